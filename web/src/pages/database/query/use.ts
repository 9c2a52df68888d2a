import { useEffect, useRef, useState } from 'preact/hooks';
import { draftOf, keepDraft } from '../../../drafts';
import type { Complete } from '../../../editor';
import type { Json } from '../../../json';
import { type Place, recall, refine, remember } from '../../../router';
import { complain } from '../../../ui';
import { fieldsOf } from '../schema/sample';
import { wrongJson } from '../views/source';
import { explain, type Found, find, indexes, TEMPLATES } from './ask';
import { complete, type Known } from './complete';
import { change, type Kept, load, withRun } from './kept';

/** Longer queries are not kept in the address. */
const ADDRESS_MAX = 4000;

/** What was typed, and the query of the address at that time. */
interface Typed {
  text: string;
  from: string;
  partition: string;
}

/** What the editor begins with: what was typed last, unless the address has another query. */
function typed(db: string, { query }: Place): Typed {
  const from = query.get('q') ?? '';
  const kept = draftOf<Typed>(`query ${db}`);
  return kept && (from === '' || from === kept.from) && !query.has('run')
    ? kept
    : { text: from || TEMPLATES.all, from, partition: query.get('partition') ?? '' };
}

/** The text of the editor. It outlives the page, and another query in the address replaces it. */
export interface Editing {
  /** What the editor begins with, and a number that changes when it has to begin again. */
  begin: string;
  round: number;
  now: string;
  partition: string;
  /** What is wrong with the text. */
  wrong: string | undefined;
  change: (text: string) => void;
  /** Takes the place of what is there. */
  take: (text: string, partition?: string) => void;
  setPartition: (to: string) => void;
  /** Puts the query into the address. */
  keepInAddress: () => void;
}

export function useEditing(db: string, place: Place, replaced: () => void): Editing {
  const [first] = useState(() => typed(db, place));
  const [begin, setBegin] = useState(first.text);
  const [round, setRound] = useState(0);
  const [now, setNow] = useState(begin);
  const [partition, setPartition] = useState(first.partition);
  const told = place.query.get('q') ?? '';
  const own = useRef(told);
  const keep = (text: string, to = partition) =>
    keepDraft(`query ${db}`, { text, from: own.current, partition: to });
  const use = (text: string, to: string) => {
    // The editor takes another text only: typed over, the same one needs another editor.
    if (text === begin) setRound(round + 1);
    setBegin(text);
    setNow(text);
    setPartition(to);
  };
  // Another query in the address takes the place of what is there, unless it came from here.
  useEffect(() => {
    if (told === own.current) return;
    own.current = told;
    const to = typed(db, place);
    if (to.text === now) return;
    use(to.text, to.partition);
    replaced();
  }, [told]);
  return {
    begin,
    round,
    now,
    partition,
    wrong: wrongJson(now) ?? (now.trim() === '' ? wrongJson(' x') : undefined),
    change: (text) => {
      // What an address brings is not typed.
      if (text !== now) keep(text);
      setNow(text);
    },
    take: (text, to = partition) => {
      use(text, to);
      keep(text, to);
    },
    setPartition: (to) => {
      setPartition(to);
      keep(now, to);
    },
    keepInAddress: () => {
      own.current = now.length <= ADDRESS_MAX ? now : '';
      refine({ q: own.current, partition, run: undefined });
      keep(now);
    },
  };
}

export type Answer = { found: Found; query: string } | { explained: Json; query: string };

export interface Asked {
  answer: Answer | undefined;
  error: unknown;
  /** What was sent last. */
  sent: string;
  isBusy: boolean;
  run: () => Promise<void>;
  tell: () => Promise<void>;
  forget: () => void;
}

/** What the server answers to a query. `ran` is called with one that was run. */
export function useAsked(db: string, editing: Editing, ran: (query: string) => void): Asked {
  const { now, partition, wrong } = editing;
  const [answer, setAnswer] = useState<Answer>();
  const [error, setError] = useState<unknown>();
  const [sent, setSent] = useState('');
  const [isBusy, setBusy] = useState(false);
  const work = async (ask: () => Promise<Answer>) => {
    if (wrong || isBusy) return;
    editing.keepInAddress();
    setSent(now);
    setBusy(true);
    setError(undefined);
    try {
      setAnswer(await ask());
    } catch (thrown) {
      setError(thrown);
    }
    setBusy(false);
  };
  return {
    answer,
    error,
    sent,
    isBusy,
    run: () => {
      if (!wrong) remember('ran', now);
      return work(async () => {
        const found = await find(db, partition, now);
        ran(now);
        return { found, query: now };
      });
    },
    tell: () => work(async () => ({ explained: await explain(db, partition, now), query: now })),
    forget: () => {
      setAnswer(undefined);
      setError(undefined);
    },
  };
}

/** The kept queries of the user, and what changes them. */
export interface KeptQueries {
  kept: Kept | undefined;
  change: (to: (kept: Kept) => Kept) => Promise<void>;
  /** Adds a query that was run. That it cannot be kept is nobody's concern. */
  ran: (query: string, partition: string) => void;
}

export function useKept(db: string): KeptQueries {
  const [kept, setKept] = useState<Kept>();
  useEffect(() => {
    const control = new AbortController();
    load(db, control.signal).then(setKept, () => undefined);
    return () => control.abort();
  }, [db]);
  return {
    kept,
    change: (to) => change(db, to).then(setKept, complain),
    ran: (query, partition) => {
      const run = { query, at: Date.now(), ...(partition && { partition }) };
      change(db, (old) => withRun(old, run)).then(setKept, () => undefined);
    },
  };
}

/** Completes fields, values and indexes of the database, once the editor has the focus. */
export function useCompletion(db: string): { complete: Complete; prepare: () => void } {
  const known = useRef<Known>({ fields: [], docs: 0, indexes: [] });
  return {
    complete: (text, at) => complete(text, at, known.current),
    prepare: () => {
      // Who may not read documents has operators alone.
      fieldsOf(db).then(
        ({ fields, docs }) => Object.assign(known.current, { fields, docs }),
        () => undefined,
      );
      if (known.current.indexes.length === 0)
        indexes(db).then(
          (all) => {
            const names = all.filter(({ ddoc }) => ddoc !== null).map(({ name }) => name);
            known.current.indexes = names;
          },
          () => undefined,
        );
    },
  };
}

/**
 * Runs a query that was run at this step of the history, or that a link wants to be run: once the
 * link's query is the one that is there, if another one was before.
 */
export function useRunAtOnce({ query }: Place, now: string, run: () => Promise<void>): void {
  const isWanted = query.has('run') && (query.get('q') || now) === now;
  useEffect(() => {
    if (isWanted || recall('ran') === now) void run();
  }, [isWanted]);
}

import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { path } from '../../../api';
import { draftOf, keepDraft } from '../../../drafts';
import type { Json } from '../../../json';
import { link, type Place, recall, refine, remember } from '../../../router';
import { Button, Empty, Loading, TextField } from '../../../ui';
import { Code, CopyCurl } from '../views/shared';
import { curl, wrongJson } from '../views/source';
import { explain, type Found, find, TEMPLATES } from './ask';
import { Explained } from './explain';
import { Indexes } from './indexes';
import { Needed, needsIndex } from './needed';
import { Refused } from './refused';
import { Results } from './results';
import { say } from './texts';

/** Mango: queries and their indexes. */
export default function Query({ db, place }: { db: string; place: Place }): JSX.Element {
  const t = say();
  const isIndexes = place.parts[2] === '_index';
  return (
    <div class="views-page">
      <nav class="row-of" aria-label="Mango">
        <a
          class="button"
          href={link(['database', db, '_find'])}
          aria-current={isIndexes ? undefined : 'page'}
        >
          {t.query}
        </a>
        <a
          class="button"
          href={link(['database', db, '_index'])}
          aria-current={isIndexes ? 'page' : undefined}
        >
          {t.indexes}
        </a>
      </nav>
      {isIndexes ? <Indexes db={db} /> : <Editing db={db} place={place} />}
    </div>
  );
}

/** Longer queries are not kept in the address. */
const ADDRESS_MAX = 4000;

/** What was typed, and the query of the address at that time. */
interface Typed {
  text: string;
  from: string;
  partition: string;
}

/** What the editor begins with: what was typed last, unless the address has another query. */
function typed(db: string, place: Place): Typed {
  const from = place.query.get('q') ?? '';
  const kept = draftOf<Typed>(`query ${db}`);
  return kept && (from === '' || from === kept.from)
    ? kept
    : { text: from || TEMPLATES.all, from, partition: place.query.get('partition') ?? '' };
}

type Answer = { found: Found; query: string } | { explained: Json; query: string };

function Editing({ db, place }: { db: string; place: Place }): JSX.Element {
  const t = say();
  const [first] = useState(() => typed(db, place));
  const [begin, setBegin] = useState(first.text);
  const [round, setRound] = useState(0);
  const [now, setNow] = useState(begin);
  const [partition, setPartition] = useState(first.partition);
  const [answer, setAnswer] = useState<Answer>();
  const [error, setError] = useState<unknown>();
  /** What was sent last. */
  const [sent, setSent] = useState('');
  const [isBusy, setBusy] = useState(false);
  const wrong = wrongJson(now) ?? (now.trim() === '' ? wrongJson(' x') : undefined);
  const keep = (text: string, to = partition) =>
    keepDraft(`query ${db}`, { text, from: own.current, partition: to });
  const change = (text: string) => {
    // What an address brings is not typed.
    if (text !== now) keep(text);
    setNow(text);
  };
  const use = (text: string) => {
    // The editor takes another text only: typed over, the same one needs another editor.
    if (text === begin) setRound(round + 1);
    setBegin(text);
    setNow(text);
  };
  const take = (template: string) => {
    use(template);
    keep(template);
  };
  // Another query in the address takes the place of what is there, unless it came from here.
  const told = place.query.get('q') ?? '';
  const own = useRef(told);
  useEffect(() => {
    if (told === own.current) return;
    own.current = told;
    const to = typed(db, place);
    if (to.text === now) return;
    use(to.text);
    setPartition(to.partition);
    setAnswer(undefined);
    setError(undefined);
  }, [told]);
  const work = async (load: () => Promise<Answer>) => {
    if (wrong || isBusy) return;
    own.current = now.length <= ADDRESS_MAX ? now : '';
    refine({ q: own.current, partition });
    keep(now);
    setSent(now);
    setBusy(true);
    setError(undefined);
    try {
      setAnswer(await load());
    } catch (thrown) {
      setError(thrown);
    }
    setBusy(false);
  };
  const run = () => {
    if (!wrong) remember('ran', now);
    return work(async () => ({ found: await find(db, partition, now), query: now }));
  };
  // A step back leads to what was found.
  useEffect(() => {
    if (recall('ran') === now) void run();
  }, []);
  const tell = () =>
    work(async () => ({ explained: await explain(db, partition, now), query: now }));
  const at = path(db) + (partition ? path('_partition', partition) : '');
  return (
    <div class="split">
      <div>
        <div class="bar">
          <Templates take={take} />
          <span class="grow" />
          <CopyCurl text={() => curl('POST', `${at}/_find`, {}, now)} />
          <Button onClick={tell} disabled={!!wrong} icon="info">
            {t.explain}
          </Button>
          <Button onClick={run} disabled={!!wrong} kind="primary" icon="play">
            {t.run}
          </Button>
        </div>
        <Code
          key={round}
          label={t.query}
          mode="json"
          value={begin}
          onChange={change}
          onSave={() => void run()}
          onRun={() => void run()}
        />
        {wrong && (
          <p class="notice warn" role="status">
            {wrong}
          </p>
        )}
        <details open={partition !== ''}>
          <summary>{t.partition}</summary>
          <TextField
            label={t.partition}
            value={partition}
            onInput={(to) => {
              setPartition(to);
              keep(now, to);
            }}
          />
        </details>
      </div>
      <div>
        {needsIndex(error) ? (
          <Needed {...{ db, partition, error }} query={sent} again={() => void run()} />
        ) : (
          <Refused error={error} retry={() => void run()} />
        )}
        {isBusy && !answer && <Loading />}
        {!answer && !isBusy && error === undefined && (
          <Empty icon="search" title={t.press}>
            <span>{t.pressDo}</span>
          </Empty>
        )}
        {answer && 'found' in answer && (
          <Results
            key={answer.query}
            db={db}
            found={answer.found}
            more={async (bookmark) => find(db, partition, answer.query, bookmark)}
          />
        )}
        {answer && 'explained' in answer && (
          <Explained db={db} partition={partition} query={answer.query} told={answer.explained} />
        )}
      </div>
    </div>
  );
}

function Templates({ take }: { take: (text: string) => void }): JSX.Element {
  const t = say();
  return (
    <select
      class="short"
      aria-label={t.template}
      value=""
      onChange={(event) => take(TEMPLATES[event.currentTarget.value as keyof typeof TEMPLATES])}
    >
      <option value="" disabled selected>
        {t.template}
      </option>
      {Object.entries(t.templates).map(([id, name]) => (
        <option key={id} value={id}>
          {name}
        </option>
      ))}
    </select>
  );
}

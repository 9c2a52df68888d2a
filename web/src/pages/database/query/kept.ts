import { ApiError, ask, docPath, session } from '../../../api';
import { draftOf, keepDraft } from '../../../drafts';

/** A query that was run, or starred. */
export interface KeptQuery {
  query: string;
  partition?: string;
  /** When, in milliseconds of the clock. */
  at: number;
  /** Of a starred one. */
  name?: string;
}

/** The queries of a user, latest first. */
export interface Kept {
  starred: KeptQuery[];
  history: KeptQuery[];
}

const HISTORY_MAX = 50;
const STARRED_MAX = 200;
/** Longer ones are run, but not kept. */
const QUERY_MAX = 10_000;

function isSame(a: KeptQuery, b: KeptQuery): boolean {
  return a.query === b.query && (a.partition ?? '') === (b.partition ?? '');
}

/** With a query that was just run at the top of the history. */
export function withRun(kept: Kept, run: KeptQuery): Kept {
  if (run.query.length > QUERY_MAX) return kept;
  const others = kept.history.filter((each) => !isSame(each, run));
  return { ...kept, history: [run, ...others].slice(0, HISTORY_MAX) };
}

/** With a query starred under a name. It takes the place of one with this name, or this query. */
export function withStar(kept: Kept, star: KeptQuery): Kept {
  const others = kept.starred.filter((each) => each.name !== star.name && !isSame(each, star));
  return { ...kept, starred: [star, ...others].slice(0, STARRED_MAX) };
}

export function withoutStar(kept: Kept, star: KeptQuery): Kept {
  return { ...kept, starred: kept.starred.filter((each) => !isSame(each, star)) };
}

export function withoutHistory(kept: Kept): Kept {
  return { ...kept, history: [] };
}

export function starOf(kept: Kept, query: string, partition: string): KeptQuery | undefined {
  return kept.starred.find((each) => isSame(each, { query, partition, at: 0 }));
}

/** What somebody else may have written, as far as it is what this page writes. */
export function keptOf(doc: Partial<Record<keyof Kept, unknown>>): Kept {
  const list = (value: unknown) =>
    (Array.isArray(value) ? value : []).filter(
      (each: Partial<KeptQuery> | null): each is KeptQuery =>
        typeof each?.query === 'string' && typeof each.at === 'number',
    );
  return { starred: list(doc.starred), history: list(doc.history) };
}

/**
 * The document of a user in a database. A local one is not replicated, has no revisions, and is
 * written by all who may write documents; `_users` is for server admins only.
 */
function pathOf(db: string): string | undefined {
  const name = session.value?.name;
  return name ? docPath(db, `_local/settee-queries:${name}`) : undefined;
}

const draft = (db: string) => `queries ${db}`;

type Stored = Partial<Kept> & { _rev?: string };

async function stored(to: string, signal?: AbortSignal): Promise<Stored> {
  try {
    return await ask<Stored>('GET', to, { signal, background: true });
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return {};
    throw error;
  }
}

/** What this browser has: of nobody, and of who may not write documents. */
function here(db: string): Kept {
  return keptOf(draftOf<Kept>(draft(db)) ?? {});
}

/** The queries of the user. */
export async function load(db: string, signal?: AbortSignal): Promise<Kept> {
  const to = pathOf(db);
  const doc = to && (await stored(to, signal));
  return doc && doc._rev !== undefined ? keptOf(doc) : here(db);
}

const TRIES = 3;

/**
 * Changes the queries of the user, and answers them. Users who may not write documents have them in
 * this browser, until they log out.
 */
export async function change(db: string, to: (kept: Kept) => Kept): Promise<Kept> {
  const at = pathOf(db);
  for (let n = 1; at; n++) {
    try {
      const { _rev, ...doc } = await stored(at);
      const next = to(keptOf(doc));
      await ask('PUT', at, { body: { ...doc, ...next, _rev }, background: true });
      return next;
    } catch (error) {
      // Another tab wrote it.
      const isConflict = error instanceof ApiError && error.status === 409;
      if (isConflict && n < TRIES) continue;
      if (!(error instanceof ApiError) || ![401, 403].includes(error.status)) throw error;
      break;
    }
  }
  const next = to(here(db));
  keepDraft(draft(db), next);
  return next;
}

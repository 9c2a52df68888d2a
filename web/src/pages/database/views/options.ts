import { path } from '../../../api';

/** Options of a view as its address has them: CouchDB's names. */
export const JSONS = ['key', 'keys', 'startkey', 'endkey'] as const;
export const TEXTS = ['startkey_docid', 'endkey_docid'] as const;
/** Those that are on only when they say so. */
export const FLAGS = ['descending', 'include_docs', 'conflicts', 'stable', 'update_seq'] as const;
/** Those that are off only when they say so. */
export const DEFAULTS = ['inclusive_end', 'sorted'] as const;

export const ALL = [
  ...JSONS,
  ...TEXTS,
  ...FLAGS,
  ...DEFAULTS,
  'limit',
  'skip',
  'reduce',
  'group',
  'group_level',
  'update',
  'partition',
];

export const LIMIT = 100;

export type Chosen = Record<string, string>;

export function chosenOf(query: URLSearchParams): Chosen {
  const chosen: Chosen = {};
  for (const name of ALL) {
    const value = query.get(name);
    if (value !== null && value !== '') chosen[name] = value;
  }
  // Fauxton and older clients write these.
  for (const [old, name] of [
    ['start_key', 'startkey'],
    ['end_key', 'endkey'],
    ['start_key_doc_id', 'startkey_docid'],
    ['end_key_doc_id', 'endkey_docid'],
  ] as const) {
    const value = query.get(old);
    if (value) chosen[name] = value;
  }
  return chosen;
}

/** What a query of a view with a reduce function returns. */
export type Reduction = 'rows' | 'one' | 'groups' | 'level';

export function reductionOf(chosen: Chosen): Reduction {
  if (chosen.group_level) return 'level';
  if (chosen.group === 'true') return 'groups';
  return chosen.reduce === 'true' ? 'one' : 'rows';
}

/** The options with another reduction. */
export function reduced(chosen: Chosen, to: Reduction): Chosen {
  return {
    ...chosen,
    reduce: to === 'one' ? 'true' : '',
    group: to === 'groups' ? 'true' : '',
    group_level: to === 'level' ? '1' : '',
  };
}

export function limitOf(chosen: Chosen): number {
  const limit = Number(chosen.limit ?? LIMIT);
  return Number.isInteger(limit) && limit >= 0 ? limit : LIMIT;
}

export interface Request {
  method: 'GET' | 'POST';
  to: string;
  query: Record<string, string>;
  body?: string;
}

/** What is sent. `keys` goes in the body, as there may be many. */
export function requestOf(
  db: string,
  design: string,
  view: string,
  isReduced: boolean,
  chosen: Chosen,
): Request {
  const { partition, keys, ...query } = chosen;
  const to = path(
    db,
    ...(partition ? ['_partition', partition] : []),
    '_design',
    design,
    '_view',
    view,
  );
  const isReducing =
    isReduced &&
    (query.reduce === 'true' || query.group === 'true' || query.group_level !== undefined);
  if (isReduced && !isReducing) query.reduce = 'false';
  if (isReducing) {
    delete query.reduce;
    for (const name of ['include_docs', 'conflicts']) delete query[name];
  }
  if (query.include_docs !== 'true') delete query.conflicts;
  query.limit = String(limitOf(chosen));
  return keys === undefined
    ? { method: 'GET', to, query }
    : { method: 'POST', to, query, body: `{"keys":${keys}}` };
}

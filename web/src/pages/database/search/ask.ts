import { ask, docPath, isAdmin, path, read } from '../../../api';
import { from, type Json, member, number, Obj, print, text } from '../../../json';
import type { Info } from '../../databases/infos';
import type { IndexProps } from './links';
import type { Kind } from './request';

/** Which index; `info` is what the server says of the database. */
export type Of = Pick<IndexProps, 'db' | 'design' | 'kind' | 'name' | 'info'>;

export interface State {
  docs: number;
  size: number;
  /** How many changes of the database it does not have yet. */
  behind: number;
  /** It has all changes and no documents, and the database has some. */
  isBarren: boolean;
}

interface Told {
  search_index: {
    doc_count?: number;
    num_docs?: number;
    disk_size: number;
    pending_seq?: number;
    committed_seq?: number;
    update_seq?: number;
  };
}

/** What an index says of itself, how many changes it has, and how many there are. */
async function told({ db, design, kind, name, info }: Of, signal: AbortSignal) {
  const { search_index: index } = await ask<Told>(
    'GET',
    `${docPath(db, `_design/${design}`)}${path(`${kind}_info`, name)}`,
    { signal, background: true },
  );
  const done = index.committed_seq ?? index.update_seq ?? 0;
  return {
    index,
    done,
    all: index.pending_seq ?? (Number.parseInt(String(info?.update_seq), 10) || done),
  };
}

/** How an index is. */
export async function stateOf(of: Of, signal: AbortSignal): Promise<State> {
  const { index, done, all } = await told(of, signal);
  const state = {
    docs: index.num_docs ?? index.doc_count ?? 0,
    size: index.disk_size,
    behind: Math.max(0, all - done),
    isBarren: false,
  };
  const count = of.info?.doc_count ?? 0;
  if (state.docs > 0 || state.behind > 0 || count === 0) return state;
  // Design documents are in no index.
  const { total_rows: designs } = await ask<{ total_rows: number }>(
    'GET',
    `${path(of.db)}/_design_docs`,
    { query: { limit: 0 }, signal, background: true },
  );
  return { ...state, isBarren: count > designs };
}

interface Task {
  type: string;
  database?: string | null;
  design_document?: string;
  index?: string;
  changes_done?: number;
}

/** The server commits an index after so many changes, or before. */
const UNCOMMITTED_MAX = 100_000;

/**
 * How many changes an index has, of how many. What is not committed yet only admins of the server
 * can see.
 */
export async function progressOf(
  of: Of,
  signal: AbortSignal,
): Promise<{ done: number; all: number }> {
  const info = await ask<Info>('GET', path(of.db), { signal, background: true });
  const { done, all } = await told({ ...of, info }, signal);
  if (!isAdmin.value || done >= all) return { done, all };
  const tasks = await ask<Task[]>('GET', '/_active_tasks', { signal, background: true });
  const isOwn = (task: Task) =>
    task.type === 'search_indexer' &&
    task.database?.replace(/^shards\/[^/]+\/(.*)\.\d+$/s, '$1') === of.db &&
    task.design_document === `_design/${of.design}` &&
    task.index === of.name;
  const doing = tasks.filter(isOwn).reduce((sum, task) => sum + (task.changes_done ?? 0), 0);
  // A longer task has committed some of what it did.
  return {
    done: Math.min(all - 1, doing < UNCOMMITTED_MAX ? done + doing : Math.max(done, doing)),
    all,
  };
}

export function pathOf(
  db: string,
  design: string,
  kind: Kind,
  name: string,
  partition = '',
): string {
  return path(db, ...(partition ? ['_partition', partition] : []), '_design', design, kind, name);
}

export interface Group {
  by: Json | undefined;
  total: number;
  hits: Json[];
}

export type Facet = [value: string, hits: number];

export interface Answer {
  /** How many hits are on the pages before. */
  from: number;
  total: number;
  bookmark: string;
  /** Hits that are in no groups are one, without `by`. */
  groups: Group[];
  counts: [field: string, all: Facet[]][];
  ranges: [field: string, all: Facet[]][];
}

function facetsOf(value: Json | undefined): [string, Facet[]][] {
  return value instanceof Obj
    ? [...value].map(([field, all]) => [
        field,
        all instanceof Obj ? [...all].map(([name, n]): Facet => [name, number(n)]) : [],
      ])
    : [];
}

/** Where a range begins. */
function lower([range]: Facet): number {
  const end = Number.parseFloat(range.slice(1));
  return Number.isNaN(end) ? -Number.MAX_VALUE : end;
}

export async function search(
  to: string,
  body: unknown,
  start: number,
  signal: AbortSignal,
): Promise<Answer> {
  const told = await read('POST', to, { body: print(from(body)), signal });
  const groupOf = (of: Json): Group => {
    const hits = member(of, 'rows') ?? member(of, 'hits');
    return {
      by: member(of, 'by'),
      total: number(member(of, 'total_rows') ?? member(of, 'total_hits')),
      hits: Array.isArray(hits) ? hits : [],
    };
  };
  const groups = member(told, 'groups');
  const all = groupOf(told);
  return {
    from: start,
    total: all.total,
    bookmark: text(member(told, 'bookmark')),
    groups: Array.isArray(groups) ? groups.map(groupOf) : [all],
    counts: facetsOf(member(told, 'counts')).map(([field, of]) => [
      field,
      of.sort((a, b) => b[1] - a[1]),
    ]),
    ranges: facetsOf(member(told, 'ranges')).map(([field, of]) => [
      field,
      of.sort((a, b) => lower(a) - lower(b)),
    ]),
  };
}

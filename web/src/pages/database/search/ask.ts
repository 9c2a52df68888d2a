import { ask, docPath, path, read } from '../../../api';
import { type Json, Obj, from, member, number, print, text } from '../../../json';
import type { Kind } from './request';

export interface State {
  docs: number;
  size: number;
  /** How many changes of the database it does not have yet. */
  behind: number;
}

interface Told {
  search_index: { doc_count?: number; num_docs?: number; disk_size: number; pending_seq?: number; committed_seq?: number; update_seq?: number };
}

/** How an index is; `seq` is the database's. */
export async function stateOf(db: string, design: string, kind: Kind, name: string, seq: unknown, signal: AbortSignal): Promise<State> {
  const { search_index: of } = await ask<Told>('GET', `${docPath(db, `_design/${design}`)}${path(`${kind}_info`, name)}`, { signal, background: true });
  const [all, own] = [of.pending_seq ?? Number.parseInt(String(seq), 10), of.committed_seq ?? of.update_seq ?? 0];
  return { docs: of.num_docs ?? of.doc_count ?? 0, size: of.disk_size, behind: Math.max(0, all - own || 0) };
}

export function pathOf(db: string, design: string, kind: Kind, name: string, partition = ''): string {
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
  return value instanceof Obj ? [...value].map(([field, all]) => [field, all instanceof Obj ? [...all].map(([name, n]): Facet => [name, number(n)]) : []]) : [];
}

/** Where a range begins. */
function lower([range]: Facet): number {
  const end = Number.parseFloat(range.slice(1));
  return Number.isNaN(end) ? -Number.MAX_VALUE : end;
}

export async function search(to: string, body: unknown, start: number, signal: AbortSignal): Promise<Answer> {
  const told = await read('POST', to, { body: print(from(body)), signal });
  const groupOf = (of: Json): Group => {
    const hits = member(of, 'rows') ?? member(of, 'hits');
    return { by: member(of, 'by'), total: number(member(of, 'total_rows') ?? member(of, 'total_hits')), hits: Array.isArray(hits) ? hits : [] };
  };
  const groups = member(told, 'groups');
  const all = groupOf(told);
  return {
    from: start,
    total: all.total,
    bookmark: text(member(told, 'bookmark')),
    groups: Array.isArray(groups) ? groups.map(groupOf) : [all],
    counts: facetsOf(member(told, 'counts')).map(([field, of]) => [field, of.sort((a, b) => b[1] - a[1])]),
    ranges: facetsOf(member(told, 'ranges')).map(([field, of]) => [field, of.sort((a, b) => lower(a) - lower(b))]),
  };
}

import { ask, path, read } from '../../../api';
import { from, type Json, member, number, Obj, parse, print, text } from '../../../json';

export interface Stats {
  keys: number;
  docs: number;
  seconds: number;
}

export interface Found {
  rows: Json[];
  isGroups: boolean;
  bookmark: string;
  warning: string;
  stats: Stats | undefined;
}

/** Where queries of a database, or of one of its partitions, go. */
function place(db: string, partition: string): string {
  return path(db) + (partition === '' ? '' : path('_partition', partition));
}

/** Runs a query; what it examined is told too. */
export async function find(
  db: string,
  partition: string,
  query: string,
  bookmark = '',
): Promise<Found> {
  const body = parse(query);
  if (body instanceof Obj) {
    if (!body.has('execution_stats')) body.set('execution_stats', true);
    if (bookmark !== '') body.set('bookmark', bookmark);
  }
  const told = await read('POST', `${place(db, partition)}/_find`, { body: print(body) });
  const groups = member(told, 'groups');
  const rows = groups ?? member(told, 'docs');
  const stats = member(told, 'execution_stats');
  return {
    rows: Array.isArray(rows) ? rows : [],
    isGroups: groups !== undefined,
    bookmark: text(member(told, 'bookmark')),
    warning: text(member(told, 'warning')),
    stats: !stats
      ? undefined
      : {
          keys: number(member(stats, 'total_keys_examined')),
          docs: number(member(stats, 'total_docs_examined')),
          seconds: number(member(stats, 'execution_time_ms')) / 1000,
        },
  };
}

export function explain(db: string, partition: string, query: string): Promise<Json> {
  return read('POST', `${place(db, partition)}/_explain`, { body: print(parse(query)) });
}

export interface Index {
  ddoc: string | null;
  name: string;
  type: string;
  partitioned?: boolean;
  def: Obj;
}

export function indexOf(value: Json | undefined): Index {
  const def = member(value, 'def');
  return {
    ddoc: text(member(value, 'ddoc')) || null,
    name: text(member(value, 'name')),
    type: text(member(value, 'type')),
    partitioned: member(value, 'partitioned') === true,
    def: def instanceof Obj ? def : new Obj(),
  };
}

/** Names of an index's fields, and the direction of each. */
export function fieldsOf(index: Index): [name: string, direction: string][] {
  const fields = index.def.get('fields');
  if (!Array.isArray(fields)) return [];
  return fields.flatMap((each) =>
    each instanceof Obj
      ? [...each].map(([name, to]): [string, string] => [name, text(to)])
      : [[text(each), 'asc'] as [string, string]],
  );
}

export async function indexes(db: string, signal: AbortSignal): Promise<Index[]> {
  const told = await read('GET', `${path(db)}/_index`, { signal });
  const all = member(told, 'indexes');
  return Array.isArray(all) ? all.map(indexOf) : [];
}

export function createIndex(
  db: string,
  wanted: Obj,
): Promise<{ result: string; id: string; name: string }> {
  return ask('POST', `${path(db)}/_index`, { body: print(wanted) });
}

export function deleteIndex(
  db: string,
  index: Pick<Index, 'ddoc' | 'name' | 'type'>,
): Promise<unknown> {
  return ask(
    'DELETE',
    `${path(db)}/_index/_design${path((index.ddoc ?? '').replace(/^_design\//, ''), index.type, index.name)}`,
  );
}

const RANGES = ['$gt', '$gte', '$lt', '$lte', '$beginsWith'];

/** The conditions that all documents must meet: of the selector as `_explain` writes it. */
export function conditions(selector: Json | undefined): [field: string, operator: string][] {
  if (!(selector instanceof Obj)) return [];
  return [...selector].flatMap(([name, value]): [string, string][] => {
    if (name === '$and' && Array.isArray(value)) return value.flatMap(conditions);
    if (name.startsWith('$')) return [[name, '']];
    return value instanceof Obj
      ? [...value.keys()].map((operator): [string, string] => [name, operator])
      : [[name, '$eq']];
  });
}

/**
 * Fields for an index of a query: first what must be equal, then the order, then what is within a
 * range.
 */
export function suggest(told: Json): string[] {
  const all = conditions(member(told, 'selector'));
  const of = (operators: string[]) =>
    all.filter(([, operator]) => operators.includes(operator)).map(([field]) => field);
  const sort = member(told, 'opts', 'sort');
  const sorted = sort instanceof Obj ? [...sort.keys()] : [];
  const fields = [...new Set([...of(['$eq']), ...sorted, ...of(['$in']), ...of(RANGES)])];
  return fields.length === 1 && fields[0] === '_id' ? [] : fields;
}

/** A body for `_index`. */
export function indexBody(
  fields: string[],
  more: { name?: string; ddoc?: string; partial?: string; partitioned?: boolean } = {},
): Obj {
  const index = from({ fields }) as Obj;
  if (more.partial?.trim()) index.set('partial_filter_selector', parse(more.partial));
  const body = from({
    index: null,
    type: 'json',
    name: more.name?.trim() || undefined,
    ddoc: more.ddoc?.trim() || undefined,
    partitioned: more.partitioned,
  }) as Obj;
  body.set('index', index);
  return body;
}

export const TEMPLATES = {
  all: '{\n  "selector": {},\n  "limit": 25\n}',
  equal: '{\n  "selector": {\n    "type": "order"\n  },\n  "limit": 25\n}',
  range:
    '{\n  "selector": {\n    "type": "order",\n    "total": {"$gte": 10, "$lt": 100}\n  },\n  "sort": [{"type": "asc"}, {"total": "asc"}],\n  "fields": ["_id", "total"],\n  "limit": 25\n}',
  text: '{\n  "selector": {\n    "$or": [\n      {"name": {"$beginsWith": "A"}},\n      {"name": {"$regex": "^B.*n$"}}\n    ]\n  }\n}',
  list: '{\n  "selector": {\n    "tags": {"$elemMatch": {"$in": ["new", "urgent"]}}\n  }\n}',
  ids: '{\n  "selector": {\n    "_id": {"$gte": "a", "$lt": "b"}\n  }\n}',
  aggregate:
    '{\n  "selector": {\n    "type": "order"\n  },\n  "aggregate": {\n    "group_by": ["city"],\n    "compute": {\n      "orders": {"$count": true},\n      "revenue": {"$sum": "total"},\n      "mean": {"$average": "total"}\n    }\n  }\n}',
};

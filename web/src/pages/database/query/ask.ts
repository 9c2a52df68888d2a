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

export async function indexes(db: string, signal?: AbortSignal): Promise<Index[]> {
  const told = await read('GET', `${path(db)}/_index`, { signal });
  const all = member(told, 'indexes');
  return Array.isArray(all) ? all.map(indexOf) : [];
}

/** What an index may have besides its fields. */
export interface Wanted {
  name?: string;
  ddoc?: string;
  /** A selector as JSON. */
  partial?: string;
  partitioned?: boolean;
}

const NAME_MAX = 60;

/** A name that says what an index has, and that none of the others has. */
export function nameOf(fields: string[], others: Iterable<string>): string {
  const words = fields.map((field) => field.replace(/[^\p{L}\p{N}_.-]+/gu, '-')).join('-');
  const name = `by-${words.slice(0, NAME_MAX)}`;
  const taken = new Set(others);
  for (let n = 1; ; n++) {
    const tried = n === 1 ? name : `${name}-${n}`;
    if (!taken.has(tried)) return tried;
  }
}

/**
 * Creates an index. The server names one that has no name by a hash: it is named after its fields
 * here, unless it is there already, under whatever name.
 */
export async function createIndex(
  db: string,
  fields: string[],
  wanted: Wanted,
): Promise<{ result: string; id: string; name: string }> {
  const all = await indexes(db);
  const given = { name: wanted.name?.trim(), ddoc: wanted.ddoc?.trim() };
  const same = all.find(
    (index) =>
      index.ddoc !== null &&
      index.type === 'json' &&
      print(from(fieldsOf(index))) === print(from(fields.map((field) => [field, 'asc']))) &&
      index.def.get('partial_filter_selector') === undefined &&
      (index.partitioned ?? false) === (wanted.partitioned ?? false),
  );
  if (same && !given.name && !given.ddoc && !wanted.partial?.trim())
    return { result: 'exists', id: same.ddoc ?? '', name: same.name };
  const name =
    given.name ||
    nameOf(
      fields,
      all.map((index) => index.name),
    );
  // An index that is changed makes the others of its design document be built again.
  const own = `${name}-index`;
  const isTaken = all.some((index) => index.ddoc === `_design/${own}`);
  const ddoc = given.ddoc || (isTaken ? '' : own);
  return ask('POST', `${path(db)}/_index`, {
    body: print(indexBody(fields, { ...wanted, name, ddoc })),
  });
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
export function indexBody(fields: string[], more: Wanted = {}): Obj {
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

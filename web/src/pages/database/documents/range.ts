/** Which documents are listed, in which order: what `_all_docs` understands. */
export interface Range {
  start?: string;
  end?: string;
  /** The end itself is left out. */
  isExclusive?: boolean;
  /** These, in this order. */
  keys?: string[];
  isDown?: boolean;
  skip?: number;
  limit?: number;
  partition?: string;
}

/** Reads what stands in an address: Fauxton's names, keys as JSON or as they are. */
export function rangeOf(query: URLSearchParams): Range {
  const range: Range = {};
  const start = key(query.get('startkey') ?? query.get('start_key'));
  const end = key(query.get('endkey') ?? query.get('end_key'));
  const one = key(query.get('key'));
  const keys = list(query.get('keys')) ?? (one === undefined ? undefined : [one]);
  if (start !== undefined) range.start = start;
  if (end !== undefined) range.end = end;
  if (keys) range.keys = keys;
  if (query.get('descending') === 'true') range.isDown = true;
  if (query.get('inclusive_end') === 'false') range.isExclusive = true;
  const [skip, limit] = [count(query.get('skip')), count(query.get('limit'))];
  if (skip) range.skip = skip;
  if (limit !== undefined) range.limit = limit;
  const partition = query.get('partition');
  if (partition) range.partition = partition;
  return range;
}

/** As it stands in an address. */
export function queryOf(range: Range): Record<string, string | undefined> {
  const quoted = (value: string | undefined) =>
    value === undefined ? undefined : JSON.stringify(value);
  return {
    startkey: quoted(range.start),
    endkey: quoted(range.end),
    key: undefined,
    keys: range.keys && JSON.stringify(range.keys),
    descending: range.isDown ? 'true' : undefined,
    inclusive_end: range.isExclusive ? 'false' : undefined,
    skip: range.skip ? String(range.skip) : undefined,
    limit: range.limit === undefined ? undefined : String(range.limit),
    partition: range.partition || undefined,
  };
}

/** All ids that begin so. */
export function beginning(prefix: string, isDown: boolean): Range {
  const [low, high] = [prefix, `${prefix}\ufff0`];
  return isDown ? { start: high, end: low, isDown } : { start: low, end: high };
}

function key(value: string | null): string | undefined {
  if (!value) return undefined;
  try {
    const read: unknown = JSON.parse(value);
    return typeof read === 'string' ? read : value;
  } catch {
    return value;
  }
}

function list(value: string | null): string[] | undefined {
  try {
    const read: unknown = JSON.parse(value ?? 'null');
    return Array.isArray(read) ? read.map(String) : undefined;
  } catch {
    return undefined;
  }
}

function count(value: string | null): number | undefined {
  return value !== null && /^[0-9]+$/.test(value) ? Number(value) : undefined;
}

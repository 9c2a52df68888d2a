import { type Json, Num, Obj, print } from '../../../json';

/** Names from the document down; `null` for the elements of an array. */
export type Path = (string | null)[];

/** The types of values, by the names of Mango's `$type`. */
export type TypeName = 'string' | 'number' | 'boolean' | 'null' | 'array' | 'object';

/** A share of the values between two of them: from the first, up to the second. */
export interface Bin {
  from: Json;
  /** `undefined`: the last bin, which has its largest value too. */
  to: Json | undefined;
  count: number;
}

export interface Field {
  path: Path;
  /** Documents that have it. */
  docs: number;
  /** Values in all of them: an array may have many. */
  values: number;
  /** How many values have a type, most frequent first. */
  types: [type: TypeName, count: number][];
  /** The most frequent values. */
  top: [value: Json, count: number][];
  /** How many different values there are; `undefined` for more than were counted. */
  distinct: number | undefined;
  /** Whether its strings are times. */
  isTime: boolean;
  /** The distribution of its numbers, or times. */
  bins: Bin[];
}

const FIELDS_MAX = 500;
const DEPTH_MAX = 6;
const DISTINCT_MAX = 1000;
const TOP = 8;
const BINS = 12;
/** Longer values are not counted as values. */
const VALUE_MAX = 200;
/** Dates, and times of them, as ISO 8601 writes them. */
const TIME = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?$/;

export function isTime(value: Json | undefined): value is string {
  return typeof value === 'string' && TIME.test(value) && !Number.isNaN(Date.parse(value));
}

export function typeOf(value: Json): TypeName {
  if (value === null) return 'null';
  if (value instanceof Num) return 'number';
  if (Array.isArray(value)) return 'array';
  if (value instanceof Obj) return 'object';
  return typeof value as 'string' | 'boolean';
}

/** As it is shown: `lines[].sku`. */
export function nameOf(path: Path): string {
  return path.reduce<string>(
    (name, part) => (part === null ? `${name}[]` : name === '' ? part : `${name}.${part}`),
    '',
  );
}

interface Seen {
  path: Path;
  docs: number;
  last: number;
  values: number;
  types: Map<TypeName, number>;
  /** Values as JSON, and how many there are of each. */
  counts: Map<string, [value: Json, count: number]>;
  isMore: boolean;
  numbers: Num[];
  times: string[];
}

/** The fields of documents, in their order, those of objects and arrays after these. */
export function schemaOf(docs: Obj[]): Field[] {
  const seen = new Map<string, Seen>();
  docs.forEach((doc, n) => {
    // The server's own, but for the id, say nothing of the documents.
    for (const [name, value] of doc)
      if (name === '_id' || !name.startsWith('_')) visit(seen, [name], value, n);
  });
  return ordered(seen).map(fieldOf);
}

/** Parents before what is in them, and those of one parent as they were found. */
function ordered(seen: Map<string, Seen>): Seen[] {
  const places = new Map([...seen.keys()].map((key, n) => [key, n]));
  const ranks = [...seen.values()].map((each) => ({
    each,
    rank: each.path.map((_, n) => places.get(keyOf(each.path.slice(0, n + 1))) ?? 0),
  }));
  ranks.sort(({ rank: a }, { rank: b }) => {
    const at = a.findIndex((place, n) => place !== b[n]);
    return at < 0 ? a.length - b.length : (a[at] ?? 0) - (b[at] ?? -1);
  });
  return ranks.map(({ each }) => each);
}

function keyOf(path: Path): string {
  return JSON.stringify(path);
}

function visit(seen: Map<string, Seen>, path: Path, value: Json, doc: number): void {
  const found = seen.get(keyOf(path)) ?? begin(seen, path);
  if (!found) return;
  if (found.last !== doc) found.docs++;
  found.last = doc;
  found.values++;
  const type = typeOf(value);
  found.types.set(type, (found.types.get(type) ?? 0) + 1);
  if (Array.isArray(value)) {
    if (path.length < DEPTH_MAX) for (const each of value) visit(seen, [...path, null], each, doc);
  } else if (value instanceof Obj) {
    if (path.length < DEPTH_MAX)
      for (const [name, each] of value) visit(seen, [...path, name], each, doc);
  } else count(found, value);
}

function begin(seen: Map<string, Seen>, path: Path): Seen | undefined {
  if (seen.size >= FIELDS_MAX) return undefined;
  const fresh: Seen = {
    path,
    docs: 0,
    last: -1,
    values: 0,
    types: new Map(),
    counts: new Map(),
    isMore: false,
    numbers: [],
    times: [],
  };
  seen.set(keyOf(path), fresh);
  return fresh;
}

function count(found: Seen, value: Json): void {
  if (value instanceof Num) found.numbers.push(value);
  else if (isTime(value)) found.times.push(value);
  const text = print(value);
  const known = found.counts.get(text);
  if (known) known[1]++;
  else if (found.counts.size < DISTINCT_MAX && text.length <= VALUE_MAX)
    found.counts.set(text, [value, 1]);
  else found.isMore = true;
}

function fieldOf(seen: Seen): Field {
  const { path, docs, values, types, counts, isMore, numbers, times } = seen;
  const strings = types.get('string') ?? 0;
  const isOfTimes = strings > 0 && times.length >= strings * 0.9;
  return {
    path,
    docs,
    values,
    types: [...types].sort((a, b) => b[1] - a[1]),
    top: [...counts.values()].sort((a, b) => b[1] - a[1]).slice(0, TOP),
    distinct: isMore ? undefined : counts.size,
    isTime: isOfTimes,
    bins: isOfTimes && times.length > numbers.length ? timeBins(times) : numberBins(numbers),
  };
}

/** A round step: 1, 2 or 5 times a power of ten, and not less. */
export function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((each) => each * power >= least * 0.999_999) ?? 10);
}

function numberBins(numbers: Num[]): Bin[] {
  const values = numbers.map((each) => each.value).filter(Number.isFinite);
  const least = values.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const most = values.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  if (!(most > least)) return [];
  const step = roundStep((most - least) / BINS);
  const first = Math.floor(least / step);
  const bins: Bin[] = Array.from({ length: Math.floor(most / step) - first + 1 }, (_, n) => ({
    from: rounded((first + n) * step),
    to: rounded((first + n + 1) * step),
    count: 0,
  }));
  for (const value of values) {
    const bin = bins[Math.min(bins.length - 1, Math.floor(value / step) - first)];
    if (bin) bin.count++;
  }
  return bins;
}

/** Without the noise of binary fractions: 0.30000000000000004 is 0.3. */
function rounded(value: number): Num {
  return new Num(String(Number(value.toPrecision(12))));
}

/**
 * Bins of times, whose edges are values: strings are compared as strings, so that an edge has to be
 * written as they are.
 */
function timeBins(times: string[]): Bin[] {
  const sorted = times.toSorted((a, b) => (a < b ? -1 : 1));
  const [first, last] = [Date.parse(sorted[0] ?? ''), Date.parse(sorted.at(-1) ?? '')];
  if (!(last > first)) return [];
  const bins: Bin[] = [];
  let part = -1;
  for (const time of sorted) {
    const now = Math.min(
      BINS - 1,
      Math.floor(((Date.parse(time) - first) / (last - first)) * BINS),
    );
    const bin = bins.at(-1);
    if (bin && now <= part) bin.count++;
    else {
      if (bin) bin.to = time;
      bins.push({ from: time, to: undefined, count: 1 });
      part = now;
    }
  }
  return bins;
}

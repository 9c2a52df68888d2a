import { type Json, Num, number, Obj, print } from '../../../json';
import { isTime, roundStep } from '../schema/model';

/** What the rows are: documents, groups of an aggregate, or rows of a view. */
export type RowKind = 'docs' | 'groups' | 'view';

export type Point = [longitude: number, latitude: number];

export interface Column {
  name: string;
  kind: 'number' | 'time' | 'text' | 'place';
  /** For each row. */
  values: (Json | undefined)[];
  /** For each row, of a column of places. */
  places?: (Point | undefined)[];
}

const DEPTH_MAX = 3;
const COLUMNS_MAX = 60;
/** A column is of a type that so many of its values have. */
const MOST = 0.8;

type Cells = Map<string, Json>;

/** The columns that can be drawn, of rows of any of the kinds. */
export function columnsOf(rows: Json[], kind: RowKind): Column[] {
  const cells = rows.map((row) => cellsOf(row, kind));
  const names = [...new Set(cells.flatMap((each) => [...each.keys()]))].slice(0, COLUMNS_MAX);
  const columns = names.map((name) => columnOf(name, cells));
  return [...pairs(columns), ...columns];
}

function cellsOf(row: Json, kind: RowKind): Cells {
  const cells: Cells = new Map();
  if (!(row instanceof Obj)) return cells;
  const parts = kind === 'docs' ? [row] : [row.get('key'), row.get('value')];
  if (kind === 'view') addViewRow(cells, row);
  else
    for (const part of parts)
      if (part instanceof Obj)
        for (const [name, value] of part) if (name !== '_rev') add(cells, name, value, 1);
  return cells;
}

function addViewRow(cells: Cells, row: Obj): void {
  const key = row.get('key');
  if (Array.isArray(key)) {
    cells.set('key', key.map(labelOf).join(' / '));
    key.forEach((part, n) => {
      add(cells, `key[${n}]`, part, 2);
    });
  } else if (key !== undefined) add(cells, 'key', key, 1);
  for (const name of ['value', 'doc']) {
    const value = row.get(name);
    if (value !== undefined && value !== null) add(cells, name, value, 1);
  }
}

/** A value, or the members of an object. Of arrays, those that are places count. */
function add(cells: Cells, name: string, value: Json, depth: number): void {
  if (placeOf(value) !== undefined) cells.set(name, value);
  else if (value instanceof Obj) {
    if (depth < DEPTH_MAX)
      for (const [member, each] of value) add(cells, `${name}.${member}`, each, depth + 1);
  } else if (!Array.isArray(value)) cells.set(name, value);
}

/** The middle of a geometry of GeoJSON, or of a feature. */
export function placeOf(value: Json | undefined): Point | undefined {
  if (!(value instanceof Obj)) return undefined;
  const inner = value.get('geometry');
  if (inner !== undefined) return placeOf(inner);
  const points: Point[] = [];
  collect(value.get('coordinates'), points);
  if (points.length === 0 || typeof value.get('type') !== 'string') return undefined;
  const middle = (n: 0 | 1) => points.reduce((sum, point) => sum + point[n], 0) / points.length;
  return onEarth([middle(0), middle(1)]);
}

function collect(value: Json | undefined, points: Point[]): void {
  if (!Array.isArray(value)) return;
  const [x, y] = value;
  if (x instanceof Num && y instanceof Num) points.push([x.value, y.value]);
  else for (const each of value) collect(each, points);
}

function onEarth([x, y]: Point): Point | undefined {
  return Math.abs(x) <= 180 && Math.abs(y) <= 90 ? [x, y] : undefined;
}

function columnOf(name: string, cells: Cells[]): Column {
  const values = cells.map((each) => each.get(name));
  const given = values.filter((value) => value !== undefined && value !== null);
  const is = (test: (value: Json) => boolean) =>
    given.length > 0 && given.filter(test).length >= given.length * MOST;
  if (is((value) => placeOf(value) !== undefined))
    return { name, kind: 'place', values, places: values.map(placeOf) };
  const kind = is((value) => value instanceof Num) ? 'number' : is(isTime) ? 'time' : 'text';
  return { name, kind, values };
}

const LATITUDE = /(^|[._])(lat|latitude)$/i;

/** Columns of a latitude and a longitude, as one of places. */
function pairs(columns: Column[]): Column[] {
  return columns.flatMap((latitude) => {
    if (latitude.kind !== 'number' || !LATITUDE.test(latitude.name)) return [];
    const before = latitude.name.replace(/(lat|latitude)$/i, '').toLowerCase();
    const longitude = columns.find(
      ({ name, kind }) =>
        kind === 'number' &&
        ['lon', 'lng', 'long', 'longitude'].some((each) => name.toLowerCase() === before + each),
    );
    if (!longitude) return [];
    const places = latitude.values.map((y, n) => {
      const x = longitude.values[n];
      return x instanceof Num && y instanceof Num ? onEarth([x.value, y.value]) : undefined;
    });
    const name = `${latitude.name}, ${longitude.name}`;
    return places.some(Boolean) ? [{ name, kind: 'place' as const, values: [], places }] : [];
  });
}

export type How = 'sum' | 'average' | 'min' | 'max';

/** What is drawn of the columns. */
export interface Choice {
  kind: 'bars' | 'lines' | 'map';
  x: string;
  /** A column of numbers; `''` counts rows. */
  y: string;
  how: How;
  /** A column whose values are lines of their own, or `''`. */
  by: string;
}

const LONGITUDE = /(^|[._])(lon|lng|long|longitude)$/i;

/** What is drawn until something else is chosen: of a kind, or of what fits the columns best. */
export function guess(columns: Column[], kind?: Choice['kind']): Choice {
  const first = (of: Column['kind'], but = /^_id$/) =>
    columns.find((column) => column.kind === of && !but.test(column.name))?.name;
  const [place, time] = [first('place'), first('time')];
  const best = kind ?? (place ? 'map' : time ? 'lines' : 'bars');
  const text = columns.find(({ name }) => name === 'key')?.name ?? first('text') ?? '_id';
  const x = { map: place ?? '', lines: time ?? first('number') ?? '', bars: text }[best];
  const y = columns.find(
    ({ name, kind: of }) =>
      of === 'number' &&
      name !== x &&
      !/^key/.test(name) &&
      !LATITUDE.test(name) &&
      !LONGITUDE.test(name),
  );
  return { kind: best, x, y: y?.name ?? '', how: 'sum', by: '' };
}

function columnNamed(columns: Column[], name: string): Column | undefined {
  return columns.find((column) => column.name === name);
}

/** A value as a label. */
export function labelOf(value: Json | undefined): string {
  return value === undefined ? '–' : typeof value === 'string' ? value : print(value);
}

/** What several numbers are together. Of none there is a sum, but nothing else. */
function together(numbers: number[], how: How | 'count'): number | undefined {
  if (how === 'count') return numbers.length;
  const sum = numbers.reduce((a, b) => a + b, 0);
  if (how === 'sum') return sum;
  if (numbers.length === 0) return undefined;
  return how === 'average'
    ? sum / numbers.length
    : numbers.reduce((a, b) => (how === 'min' ? Math.min(a, b) : Math.max(a, b)));
}

/** The number that each row has; `undefined` where it has none. */
function numbersOf(columns: Column[], y: string, rows: number): (number | undefined)[] {
  if (y === '') return Array.from({ length: rows }, () => 1);
  const values = columnNamed(columns, y)?.values ?? [];
  // A number such as 1e999 is none that can be drawn.
  return values.map((value) =>
    value instanceof Num && Number.isFinite(value.value) ? value.value : undefined,
  );
}

export interface Bar {
  label: string;
  value: number;
}

const BARS_MAX = 40;

/** The bars of groups: of times and numbers in their order, else the largest first. */
export function barsOf(columns: Column[], choice: Choice): { bars: Bar[]; more: number } {
  const x = columnNamed(columns, choice.x);
  if (!x) return { bars: [], more: 0 };
  const numbers = numbersOf(columns, choice.y, x.values.length);
  const groups = new Map<string, { first: Json | undefined; of: number[] }>();
  x.values.forEach((value, n) => {
    const label = labelOf(value);
    const group = groups.get(label) ?? { first: value, of: [] };
    groups.set(label, group);
    const each = numbers[n];
    if (each !== undefined) group.of.push(each);
  });
  const all = [...groups].flatMap(([label, { first, of }]) => {
    const value = together(of, choice.y === '' ? 'count' : choice.how);
    return value === undefined ? [] : [{ label, value, first }];
  });
  if (x.kind === 'number') all.sort((a, b) => number(a.first) - number(b.first));
  else if (x.kind === 'time') all.sort((a, b) => (a.label < b.label ? -1 : 1));
  else if (!/^key/.test(x.name)) all.sort((a, b) => b.value - a.value);
  const bars = all.slice(0, BARS_MAX).map(({ label, value }) => ({ label, value }));
  return { bars, more: all.length - bars.length };
}

export interface Series {
  name: string;
  /** In the order of x; `undefined` where nothing is known, which breaks the line. */
  points: [x: number, y: number | undefined][];
}

const SERIES_MAX = 6;
const POINTS_MAX = 200;
const STEPS_MAX = 60;
const HOUR_MS = 3_600_000;
/** Steps of time that people count in. */
const TIME_STEPS_MS = [1000, 60_000, 600_000, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS, 168 * HOUR_MS];
const MONTH_MS = 30 * 24 * HOUR_MS;

/** The place of a row on the axis: a number, or a time in milliseconds. */
function at(value: Json | undefined): number {
  if (value instanceof Num) return Number.isFinite(value.value) ? value.value : Number.NaN;
  return isTime(value) ? Date.parse(value) : Number.NaN;
}

/** The step that divides a range into few enough parts. */
export function stepOf(range: number, isOfTime: boolean): number {
  const least = range / STEPS_MAX;
  if (!isOfTime) return roundStep(least);
  return TIME_STEPS_MS.find((step) => step >= least) ?? MONTH_MS * Math.ceil(least / MONTH_MS);
}

/** Lines over time or numbers. What is too close together to be seen is put into one. */
export function linesOf(columns: Column[], choice: Choice): { lines: Series[]; step: number } {
  const x = columnNamed(columns, choice.x);
  if (!x) return { lines: [], step: 0 };
  const places = x.values.map(at);
  const known = places.filter((place) => !Number.isNaN(place));
  const least = known.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const most = known.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const isMany = new Set(known).size > POINTS_MAX;
  const how = choice.y === '' ? 'count' : choice.how;
  const step = isMany && most > least ? stepOf(most - least, x.kind === 'time') : 0;
  const numbers = numbersOf(columns, choice.y, places.length);
  const by = columnNamed(columns, choice.by);
  const names = by ? largest(by.values.map(labelOf)) : [''];
  const lines = names.map((name) => {
    const groups = new Map<number, number[]>();
    // In steps without rows there is a count and a sum, of 0; no mean was measured.
    if (step > 0)
      for (let n = Math.floor(least / step); n <= Math.floor(most / step); n++)
        groups.set(n * step, []);
    places.forEach((place, n) => {
      if (Number.isNaN(place) || (by && labelOf(by.values[n]) !== name)) return;
      const key = step > 0 ? Math.floor(place / step) * step : place;
      const each = numbers[n];
      const group = groups.get(key) ?? [];
      groups.set(key, group);
      if (each !== undefined) group.push(each);
    });
    const points = [...groups].sort((a, b) => a[0] - b[0]);
    return {
      name,
      points: points.map(([place, of]): Series['points'][0] => [place, together(of, how)]),
    };
  });
  return { lines, step };
}

function largest(labels: string[]): string[] {
  const counts = new Map<string, number>();
  for (const label of labels) counts.set(label, (counts.get(label) ?? 0) + 1);
  return [...counts]
    .sort((a, b) => b[1] - a[1])
    .slice(0, SERIES_MAX)
    .map(([label]) => label);
}

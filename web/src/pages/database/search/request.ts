import { type Json, from, member, parse, text } from '../../../json';

/** The two interfaces, as their paths have them, and which member of a design document has the indexes of each. */
export const MEMBER = { _nouveau: 'nouveau', _search: 'indexes' } as const;
export type Kind = keyof typeof MEMBER;

interface Field {
  name: string;
  hasCounts: boolean;
  hasText: boolean;
}

/** Fields that a function's text names: a guess, to begin with, as a function may make names up. */
export function fieldsOf(kind: Kind, definition: Json | undefined): Field[] {
  const all = new Map<string, Field>();
  for (const call of text(member(definition, 'index')).split(/\bindex\s*\(/).slice(1)) {
    const [, first = '', second = ''] = /^\s*["']([^"']+)["']\s*,\s*(?:["']([^"']+)["'])?/.exec(call) ?? [];
    const has = (option: string) => new RegExp(`\\b${option}["']?\\s*:\\s*(true|["']yes)`).test(call);
    const [name, hasCounts, isText] = kind === '_search' ? [first, has('facet'), !has('facet')] : [second, first === 'string', first === 'text'];
    if (name) all.set(name, { name, hasCounts, hasText: isText && has('store') });
  }
  return [...all.values()];
}

/** What is asked, as the address has it. */
export type Wanted = Record<string, string>;
export const TEXTS = ['sort', 'counts', 'ranges', 'highlight_fields', 'group_field'] as const;
export const NAMES = ['q', ...TEXTS, 'limit', 'include_docs', 'narrow', 'partition'];
export const LIMIT = 25;

/** A value of a field, or with `isRange` one of its ranges, that all hits have. */
export type Narrow = [field: string, value: string, isRange: boolean];

export function narrowsOf(wanted: Wanted): Narrow[] {
  try {
    const all: unknown = JSON.parse(wanted.narrow ?? '[]');
    return Array.isArray(all) ? all.filter((each): each is Narrow => Array.isArray(each)) : [];
  } catch {
    return [];
  }
}

const RANGE = /[[{]\s*(\S+)\s+TO\s+(\S+)\s*[\]}]/;

/** Of `year [0 TO 2000} [2000 TO *], price [0 TO 10]` the ranges of each field; `undefined` for what is none. */
export function rangesOf(source: string): Map<string, string[]> | undefined {
  const all = new Map<string, string[]>();
  const rest = source.replaceAll(/([^\s,[{]+)\s*((?:[[{][^\]}]*[\]}][\s,]*)+)/g, (_, field: string, ranges: string) => {
    all.set(field, ranges.match(/[[{][^\]}]*[\]}]/g) ?? []);
    return '';
  });
  const isSound = (range: string) => RANGE.exec(range)?.slice(1).every((end) => end === '*' || Number.isFinite(Number(end)));
  return rest.trim() === '' && [...all.values()].flat().every(isSound) ? all : undefined;
}

function rangeBody(kind: Kind, ranges: string[]): unknown {
  if (kind === '_search') return Object.fromEntries(ranges.map((range) => [range, range]));
  return ranges.map((range) => {
    const [min, max] = (RANGE.exec(range) ?? []).slice(1).map((end) => (end === '*' ? undefined : Number(end)));
    return { label: range, min, max, min_inclusive: range.startsWith('['), max_inclusive: range.endsWith(']') };
  });
}

const list = (source: string | undefined) => (source ?? '').split(',').map((each) => each.trim()).filter((each) => each !== '');

/** A list as JSON, or separated by commas; those of `<distance,…>` do not separate. */
function sortOf(source: string): Json {
  return source.startsWith('[') ? parse(source) : from(source.split(/,\s*(?![^<]*>)/).map((each) => each.trim()));
}

/**
 * The clause of a query for a string as it is. Nouveau analyzes what a query says: by the analyzer `keyword` a range of one string is
 * that string, by others only an expression can say what has capitals or signs, with a dot for each of these.
 */
function clause(field: string, value: string, definition: Json | undefined): string {
  const analyzer = member(definition, 'field_analyzers', field) ?? member(definition, 'default_analyzer');
  const quoted = JSON.stringify(value);
  return analyzer === 'keyword' ? `${field}:[${quoted} TO ${quoted}]` : `${field}:/${value.replaceAll(/[^a-z0-9 ]/gu, '.')}/`;
}

/** Signs that mark what was found: no text has them, so that nothing in it is taken for a mark. */
export const [PRE, POST] = ['\u0002', '\u0003'];

/** The body of a request. */
export function bodyOf(kind: Kind, definition: Json | undefined, wanted: Wanted, bookmark?: string): unknown {
  const narrows = narrowsOf(wanted);
  const isClause = (narrow: Narrow) => narrow[2] || kind === '_nouveau';
  const clauses = narrows.filter(isClause).map(([field, value, isRange]) => ` +${isRange ? `${field}:${value}` : clause(field, value, definition)}`);
  const drilldown = narrows.filter((narrow) => !isClause(narrow)).map(([field, value]) => [field, value]);
  const some = <T>(all: T[]) => (all.length > 0 ? all : undefined);
  const [ranges, highlights] = [rangesOf(wanted.ranges ?? ''), some(list(wanted.highlight_fields))];
  return {
    q: clauses.length > 0 ? `+(${wanted.q})${clauses.join('')}` : wanted.q,
    limit: limitOf(wanted),
    sort: wanted.sort?.trim() ? sortOf(wanted.sort.trim()) : undefined,
    counts: some(list(wanted.counts)),
    ranges: ranges?.size ? Object.fromEntries([...ranges].map(([field, of]) => [field, rangeBody(kind, of)])) : undefined,
    drilldown: some(drilldown),
    group_field: wanted.group_field?.trim() || undefined,
    ...(highlights && { highlight_fields: highlights, highlight_pre_tag: PRE, highlight_post_tag: POST, highlight_number: 3, highlight_size: 200 }),
    include_docs: wanted.include_docs === 'true' || undefined,
    bookmark,
  };
}

export function limitOf({ limit }: Wanted): number {
  return limit === undefined || !/^\d+$/.test(limit) ? LIMIT : Number(limit);
}

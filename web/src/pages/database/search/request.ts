import { from, type Json, member, parse, text } from '../../../json';

/**
 * The two interfaces, as their paths have them, and which member of a design document has the
 * indexes of each.
 */
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
  for (const call of text(member(definition, 'index'))
    .split(/\bindex\s*\(/)
    .slice(1)) {
    const [, first = '', second = ''] =
      /^\s*["']([^"']+)["']\s*,\s*(?:["']([^"']+)["'])?/.exec(call) ?? [];
    const has = (option: string) =>
      new RegExp(`\\b${option}["']?\\s*:\\s*(true|["']yes)`).test(call);
    const [name, hasCounts, isText] =
      kind === '_search'
        ? [first, has('facet'), !has('facet')]
        : [second, first === 'string', first === 'text'];
    const known = all.get(name);
    if (name)
      all.set(name, {
        name,
        hasCounts: hasCounts || !!known?.hasCounts,
        hasText: (isText && has('store')) || !!known?.hasText,
      });
  }
  return [...all.values()];
}

/** What is asked, as the address has it. */
export type Wanted = Record<string, string>;
export const TEXTS = [
  'sort',
  'counts',
  'ranges',
  'highlight_fields',
  'group_field',
  'group_sort',
  'group_limit',
] as const;
export const NAMES = ['q', ...TEXTS, 'limit', 'include_docs', 'narrow', 'partition'];
/** Hits of a page or a group, and at most: all of them are drawn. */
export const [LIMIT, LIMIT_MAX] = [25, 200];
/** Groups, and as many as servers give at most. */
export const [GROUPS, GROUPS_MAX] = [10, 200];

/** The query that a definition suggests: facets and highlighting of all fields that have them. */
export function guessOf(fields: Field[]): Wanted {
  const names = (some: Field[]) => some.map((field) => field.name).join(', ');
  return {
    counts: names(fields.filter((field) => field.hasCounts)),
    highlight_fields: names(fields.filter((field) => field.hasText)),
  };
}

/** The query in the address; what it does not mention is what the definition suggests. */
export function wantedOf(query: URLSearchParams, guess: Wanted): Wanted {
  const given = NAMES.flatMap((name) => {
    const value = query.get(name);
    return value === null ? [] : [[name, value] as const];
  });
  return { ...guess, ...Object.fromEntries(given) };
}

/**
 * The query of the address for these wishes. An emptied field is kept as a blank where the
 * definition suggests a value: without it the suggestion would return.
 */
export function queryOf(wanted: Wanted, guess: Wanted): Wanted {
  return Object.fromEntries(
    Object.entries(wanted).map(([name, value]) => [
      name,
      value === guess[name] ? '' : value || (guess[name] ? ' ' : ''),
    ]),
  );
}

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

/** The value of `narrow` with one more restriction, or without it where it is there. */
export function toggled(all: Narrow[], one: Narrow): string {
  const others = all.filter((each) => each.join() !== one.join());
  const next = others.length < all.length ? others : [...all, one];
  return next.length > 0 ? JSON.stringify(next) : '';
}

/** Numbers as both interfaces read them in a query too: without exponents. */
const RANGE = /^[[{]\s*(-?\d*\.?\d+|\*)\s+TO\s+(-?\d*\.?\d+|\*)\s*[\]}]$/;
/** Longer texts are no ranges that somebody wrote. */
const RANGES_MAX = 2000;

/**
 * Of `year [0 TO 2000} [2000 TO *], price [0 TO 10]` the ranges of each field; `undefined` for what
 * is none.
 */
export function rangesOf(source: string): Map<string, string[]> | undefined {
  if (source.length > RANGES_MAX) return undefined;
  const all = new Map<string, string[]>();
  const rest = source.replaceAll(
    /([^\s,[{]+)\s*((?:[[{][^\]}]*[\]}][\s,]*)+)/g,
    (_, field: string, ranges: string) => {
      all.set(field, [...(all.get(field) ?? []), ...(ranges.match(/[[{][^\]}]*[\]}]/g) ?? [])]);
      return '';
    },
  );
  return rest.trim() === '' && [...all.values()].flat().every((range) => RANGE.test(range))
    ? all
    : undefined;
}

function rangeBody(kind: Kind, ranges: string[]): unknown {
  if (kind === '_search') return Object.fromEntries(ranges.map((range) => [range, range]));
  return ranges.map((range) => {
    const [min, max] = (RANGE.exec(range) ?? [])
      .slice(1)
      .map((end) => (end === '*' ? undefined : Number(end)));
    return {
      label: range,
      min,
      max,
      min_inclusive: range.startsWith('['),
      max_inclusive: range.endsWith(']'),
    };
  });
}

const list = (source: string | undefined) =>
  (source ?? '')
    .split(',')
    .map((each) => each.trim())
    .filter((each) => each !== '');

/** A list as JSON, or separated by commas; those of `<distance,…>` do not separate. */
function sortOf(source: string): Json {
  return source.startsWith('[')
    ? parse(source)
    : from(source.split(/,\s*(?![^<]*>)/).map((each) => each.trim()));
}

/** A field as a query names it. */
const fieldOf = (field: string) => field.replaceAll(/[^\w$.]/gu, '\\$&');

/** Values of a field that are counted, and told, at most. */
const COUNTED = 100;

/** Signs that mark what was found: no text has them, so that nothing in it is taken for a mark. */
export const MARKS = ['\u0002', '\u0003'] as const;
/** What others mark it by. */
export const TAGS = ['<em>', '</em>'] as const;

interface How {
  marks?: readonly [string, string];
  /** Of the page before. */
  bookmark?: string | undefined;
  /** Asks an index that is behind for what it has. */
  isAsItIs?: boolean;
}

/** The body of a request. */
export function bodyOf(
  kind: Kind,
  wanted: Wanted,
  { marks: [pre, post] = MARKS, bookmark, isAsItIs }: How = {},
): unknown {
  const narrows = narrowsOf(wanted);
  const clauses = narrows
    .filter((narrow) => narrow[2])
    .map(([field, value]) => ` +${fieldOf(field)}:${value}`);
  const drilldown = narrows.filter((narrow) => !narrow[2]).map(([field, value]) => [field, value]);
  const some = <T>(all: T[]) => (all.length > 0 ? all : undefined);
  const sorted = (source: string | undefined) =>
    source?.trim() ? sortOf(source.trim()) : undefined;
  const group = wanted.group_field?.trim();
  const [ranges, highlights] = [rangesOf(wanted.ranges ?? ''), some(list(wanted.highlight_fields))];
  return {
    q: clauses.length > 0 ? `+(${wanted.q})${clauses.join('')}` : wanted.q,
    limit: limitOf(wanted),
    // Of ranges, so many are told too.
    top_n:
      kind === '_nouveau'
        ? Math.min(
            1000,
            Math.max(
              COUNTED,
              ...[...(ranges ?? new Map<string, string[]>()).values()].map((of) => of.length),
            ),
          )
        : undefined,
    sort: sorted(wanted.sort),
    counts: some(list(wanted.counts)),
    ranges: ranges?.size
      ? Object.fromEntries([...ranges].map(([field, of]) => [field, rangeBody(kind, of)]))
      : undefined,
    drilldown: some(drilldown),
    ...(group && {
      group_field: group,
      group_sort: sorted(wanted.group_sort),
      group_limit: wanted.group_limit?.trim() ? groupsOf(wanted) : undefined,
    }),
    ...(highlights && {
      highlight_fields: highlights,
      highlight_pre_tag: pre,
      highlight_post_tag: post,
      highlight_number: 3,
      highlight_size: 200,
    }),
    include_docs: wanted.include_docs === 'true' || undefined,
    bookmark,
    ...(isAsItIs && (kind === '_nouveau' ? { update: false } : { stale: 'ok' })),
  };
}

/** Whether a number was given as one that may be, or none. */
export function isWithin(source: string | undefined, max: number): boolean {
  return (
    !source?.trim() || (/^\d+$/.test(source.trim()) && Number(source) >= 1 && Number(source) <= max)
  );
}

function within(source: string | undefined, max: number, usual: number): number {
  return source && /^\d+$/.test(source.trim()) ? Math.min(max, Math.max(1, Number(source))) : usual;
}

export const limitOf = ({ limit }: Wanted): number => within(limit, LIMIT_MAX, LIMIT);
export const groupsOf = ({ group_limit: limit }: Wanted): number =>
  within(limit, GROUPS_MAX, GROUPS);

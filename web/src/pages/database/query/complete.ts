import type { Proposal, Proposals } from '../../../editor/completion';
import { print } from '../../../json';
import type { Field, Path } from '../schema/model';
import { dotted } from '../schema/query';

/** What is known of a database. */
export interface Known {
  fields: Field[];
  /** Documents that the fields are of. */
  docs: number;
  indexes: string[];
}

/** Where a caret is in a query. */
interface Spot {
  /** Keys down to the caret; `null` for an element of an array. */
  path: Path;
  isKey: boolean;
  from: number;
  to: number;
  /** What was typed of the string or word at the caret. */
  typed: string;
}

interface Frame {
  isObject: boolean;
  key: string | undefined;
}

const SHOWN_MAX = 50;

/** A string, closed or not, a word, or a character. */
const TOKEN = /"(?:[^"\\\n]|\\.)*("?)|[\w$.+-]+|[{}[\]:,]/g;

/** Where the caret is, of JSON that may be half written; `undefined` where nothing can be added. */
export function spotOf(source: string, at: number): Spot | undefined {
  const frames: Frame[] = [];
  let before = '';
  for (const { index, 0: token, 1: quote } of source.matchAll(TOKEN)) {
    const end = index + token.length;
    const isString = token.startsWith('"');
    if (index >= at) break;
    if (end > at || (end === at && (isString ? quote === '' : /^[\w$.+-]/.test(token))))
      return spot(frames, before, index, end, source.slice(isString ? index + 1 : index, at));
    enter(frames, token, before);
    before = token;
  }
  return spot(frames, before, at, at, '');
}

/** Follows a token into an object or array, to a value or the next one, or out. */
function enter(frames: Frame[], token: string, before: string): void {
  const top = frames.at(-1);
  if (token === '{' || token === '[') frames.push({ isObject: token === '{', key: undefined });
  else if (token === '}' || token === ']') frames.pop();
  else if (token === ':' && top) top.key = before.slice(1, -1).replaceAll('\\\\', '\\');
  else if (token === ',' && top) top.key = undefined;
}

function spot(
  frames: Frame[],
  before: string,
  from: number,
  to: number,
  typed: string,
): Spot | undefined {
  const top = frames.at(-1);
  // Only after these something begins.
  if (!top || !['{', '[', ',', ':'].includes(before)) return undefined;
  const path = frames.map(({ isObject, key }) => (isObject ? (key ?? '') : null));
  const isKey = top.isObject && top.key === undefined;
  return { path: isKey ? path.slice(0, -1) : path, isKey, from, to, typed };
}

const MEMBERS: [name: string, value: string, back: number][] = [
  ['selector', '{}', 1],
  ['fields', '[]', 1],
  ['sort', '[]', 1],
  ['limit', '25', 0],
  ['skip', '0', 0],
  ['use_index', '""', 1],
  ['aggregate', '{"group_by": [], "compute": {"n": {"$count": true}}}', 38],
  ['execution_stats', 'true', 0],
  ['allow_fallback', 'false', 0],
  ['conflicts', 'true', 0],
  ['bookmark', '""', 1],
];
/** Operators of a field, and what they begin with. */
const OPERATORS: [name: string, value: string, back: number][] = [
  ['$eq', '', 0],
  ['$ne', '', 0],
  ['$gt', '', 0],
  ['$gte', '', 0],
  ['$lt', '', 0],
  ['$lte', '', 0],
  ['$in', '[]', 1],
  ['$nin', '[]', 1],
  ['$exists', 'true', 0],
  ['$type', '"string"', 1],
  ['$beginsWith', '""', 1],
  ['$regex', '""', 1],
  ['$elemMatch', '{}', 1],
  ['$allMatch', '{}', 1],
  ['$all', '[]', 1],
  ['$size', '', 0],
  ['$mod', '[2, 0]', 1],
  ['$keyMapMatch', '{}', 1],
  ['$not', '{}', 1],
];
const COMBINATIONS: [name: string, value: string, back: number][] = [
  ['$and', '[{}]', 2],
  ['$or', '[{}]', 2],
  ['$nor', '[{}]', 2],
  ['$not', '{}', 1],
];
const COMPUTED: [name: string, value: string, back: number][] = [
  ['$count', 'true', 0],
  ['$sum', '""', 1],
  ['$min', '""', 1],
  ['$max', '""', 1],
  ['$average', '""', 1],
  ['$distinct', '""', 1],
];
const TYPES = ['string', 'number', 'boolean', 'null', 'array', 'object'];

/** What can be written at a place of a query. */
export function complete(source: string, at: number, known: Known): Proposals | undefined {
  const found = spotOf(source, at);
  if (!found) return undefined;
  const { from, to, typed, isKey } = found;
  const hasColon = isKey && /^\s*:/.test(source.slice(to));
  const all = proposals(found, known).map((each) =>
    // Its value is there already.
    hasColon
      ? { ...each, insert: /^"(?:[^"\\]|\\.)*"/.exec(each.insert)?.[0] ?? each.insert, back: 0 }
      : each,
  );
  const plain = (text: string) => text.replaceAll('\\', '').toLowerCase();
  const ranked = all
    .map((each) => ({ each, place: plain(each.label).indexOf(plain(typed)) }))
    .filter(({ place }) => place >= 0)
    .sort((a, b) => Math.min(1, a.place) - Math.min(1, b.place));
  const shown = ranked.slice(0, SHOWN_MAX).map(({ each }) => each);
  return shown.length > 0 ? { from, to, all: shown } : undefined;
}

function proposals({ path, isKey }: Spot, known: Known): Proposal[] {
  const [member] = path;
  if (path.length === 0) return isKey ? keys(MEMBERS) : [];
  const names = () => fieldNames([], known).map(({ label, detail }) => quoted(label, detail));
  switch (member) {
    case 'selector':
      return inSelector(path.slice(1), isKey, known);
    case 'sort':
      return isKey
        ? fieldNames([], known)
        : path.length === 3
          ? ['asc', 'desc'].map((each) => quoted(each))
          : names();
    case 'fields':
      return names();
    case 'use_index':
      return known.indexes.map((each) => quoted(each));
    case 'aggregate':
      return inAggregate(path, isKey, names);
    case 'execution_stats':
    case 'allow_fallback':
    case 'conflicts':
      return ['true', 'false'].map(word);
    default:
      return [];
  }
}

function inAggregate(path: Path, isKey: boolean, names: () => Proposal[]): Proposal[] {
  const [, part, , operator] = path;
  if (part === undefined)
    return isKey
      ? keys([
          ['group_by', '[]', 1],
          ['compute', '{}', 1],
        ])
      : [];
  if (part === 'group_by') return names();
  if (isKey) return path.length === 3 ? keys(COMPUTED) : [];
  return operator === '$count' ? [word('true')] : operator === undefined ? [] : names();
}

/** Where in a selector a path leads to. */
interface Meant {
  /** The field that is meant. */
  field: Path;
  /** Whether fields may stand there, operators of one, or both. */
  takes: 'fields' | 'operators' | 'both';
  /** The operator whose value it is. */
  operator: string | undefined;
}

function meant(path: Path): Meant {
  let now: Meant = { field: [], takes: 'fields', operator: undefined };
  for (const name of path) {
    if (name === null) continue;
    if (name === '$and' || name === '$or' || name === '$nor' || name === '$not')
      now = { ...now, operator: name };
    else if (name === '$elemMatch' || name === '$allMatch')
      now = { field: [...now.field, null], takes: 'both', operator: name };
    else if (name.startsWith('$')) now = { ...now, operator: name };
    else now = { field: [...now.field, ...names(name)], takes: 'operators', operator: undefined };
  }
  return now;
}

/** The parts of a dotted name. */
function names(name: string): string[] {
  return name.split(/(?<!\\)\./).map((part) => part.replaceAll('\\.', '.'));
}

function inSelector(path: Path, isKey: boolean, known: Known): Proposal[] {
  const { field, takes, operator } = meant(path);
  if (isKey) {
    const below = fieldNames(field, known);
    if (takes === 'fields') return [...below, ...keys(COMBINATIONS)];
    return takes === 'both' ? [...below, ...keys(OPERATORS)] : [...keys(OPERATORS), ...below];
  }
  if (path.length === 0) return [];
  switch (operator) {
    case undefined:
      return [
        ...values(field, known),
        ...OPERATORS.map(([name, value, back]) => ({
          label: name,
          insert: `{"${name}": ${value}}`,
          back: back + 1,
        })),
      ];
    case '$exists':
      return ['true', 'false'].map(word);
    case '$type':
      return TYPES.map((each) => quoted(each));
    case '$and':
    case '$or':
    case '$nor':
      return [];
    default:
      return values(field, known);
  }
}

/** The most frequent values of a field, or of its elements. */
function values(path: Path, { fields }: Known): Proposal[] {
  const own = (to: Path) => fields.find((field) => same(field.path, to))?.top ?? [];
  return [...own(path), ...own([...path, null])].map(([value, n]) => {
    const text = print(value);
    return { label: typeof value === 'string' ? value : text, insert: text, detail: `× ${n}` };
  });
}

/** The names of the fields below one, as far as no array is between. */
function fieldNames(below: Path, { fields, docs }: Known): Proposal[] {
  return fields.flatMap(({ path, docs: n }) => {
    const rest = path.slice(below.length);
    if (rest.length === 0 || rest.includes(null) || !same(path.slice(0, below.length), below))
      return [];
    const name = dotted(rest as string[]);
    return [
      {
        label: name,
        insert: `${JSON.stringify(name)}: `,
        detail: `${Math.round((100 * n) / Math.max(1, docs))} %`,
      },
    ];
  });
}

function same(a: Path, b: Path): boolean {
  return a.length === b.length && a.every((each, n) => each === b[n]);
}

function keys(all: [name: string, value: string, back: number][]): Proposal[] {
  return all.map(([label, value, back]) => ({ label, insert: `"${label}": ${value}`, back }));
}

function quoted(label: string, detail?: string): Proposal {
  return { label, insert: JSON.stringify(label), ...(detail && { detail }) };
}

function word(label: string): Proposal {
  return { label, insert: label };
}

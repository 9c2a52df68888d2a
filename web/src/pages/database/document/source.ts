// Changes single members in the text of a document: whatever else was typed stays byte for byte.

import { type Json, Obj, print } from '../../../json';

interface Span {
  name: string;
  from: number;
  valueFrom: number;
  valueTo: number;
}

function spaceEnd(source: string, at: number): number {
  let end = at;
  while (/\s/.test(source[end] ?? '')) end++;
  return end;
}

function stringEnd(source: string, at: number): number {
  for (let from = at + 1; ; ) {
    const quote = source.indexOf('"', from);
    if (quote < 0) return source.length;
    let before = quote;
    while (source[before - 1] === '\\') before--;
    if ((quote - before) % 2 === 0) return quote + 1;
    from = quote + 1;
  }
}

function valueEnd(source: string, at: number): number {
  const first = source[at] ?? '';
  if (first === '"') return stringEnd(source, at);
  if (first === '{' || first === '[') return nestedEnd(source, at);
  const length = source.slice(at).search(/[\s,\]}]/);
  return length < 0 ? source.length : at + length;
}

/** The end of an object or array. */
function nestedEnd(source: string, at: number): number {
  let depth = 0;
  let now = at;
  while (now < source.length) {
    const character = source[now] ?? '';
    if (character === '"') {
      now = stringEnd(source, now);
      continue;
    }
    now++;
    if (character === '{' || character === '[') depth++;
    else if ((character === '}' || character === ']') && --depth === 0) return now;
  }
  return source.length;
}

/** The members of the outermost object of a text that is valid JSON. */
function members(source: string): Span[] {
  const all: Span[] = [];
  let at = spaceEnd(source, source.indexOf('{') + 1);
  while (source[at] === '"') {
    const nameEnd = stringEnd(source, at);
    const valueFrom = spaceEnd(source, spaceEnd(source, nameEnd) + 1);
    const valueTo = valueEnd(source, valueFrom);
    all.push({
      name: JSON.parse(source.slice(at, nameEnd)) as string,
      from: at,
      valueFrom,
      valueTo,
    });
    at = spaceEnd(source, valueTo);
    if (source[at] === ',') at = spaceEnd(source, at + 1);
  }
  return all;
}

/** The text with a member set, or without it. `source` is a valid object. */
export function put(source: string, name: string, value: Json | undefined): string {
  const all = members(source);
  const index = all.findLastIndex((span) => span.name === name);
  const span = all[index];
  const isLong = source.includes('\n');
  const printed =
    value === undefined ? '' : isLong ? print(value, 2).replaceAll('\n', '\n  ') : print(value);
  if (span && value !== undefined)
    return source.slice(0, span.valueFrom) + printed + source.slice(span.valueTo);
  if (span) {
    const before = all[index - 1];
    const from = before ? before.valueTo : span.from;
    return (
      source.slice(0, from) +
      source.slice(before ? span.valueTo : (all[index + 1]?.from ?? span.valueTo))
    );
  }
  if (value === undefined) return source;
  const member = `${JSON.stringify(name)}:${isLong ? ' ' : ''}${printed}`;
  const after = (name === '_rev' && all.find((each) => each.name === '_id')) || all.at(-1);
  if (after)
    return `${source.slice(0, after.valueTo)},${isLong ? '\n  ' : ''}${member}${source.slice(after.valueTo)}`;
  return isLong ? `{\n  ${member}\n}` : `{${member}}`;
}

/** The line of an outermost member, from 1; 1 where it is not there. */
export function lineOf(source: string, name: string): number {
  const span = members(source).find((each) => each.name === name);
  return span ? source.slice(0, span.from).split('\n').length : 1;
}

/** A document without what describes its state only. */
export function plain(doc: Obj): Obj {
  const kept = new Obj(doc);
  for (const name of ['_conflicts', '_deleted_conflicts', '_revisions', '_revs_info', '_local_seq'])
    kept.delete(name);
  return kept;
}

/** Whether two documents have the same content: their ids and revisions aside. */
export function isSame(a: Obj, b: Obj): boolean {
  const content = (doc: Obj) =>
    print(new Obj([...doc].filter(([name]) => name !== '_id' && name !== '_rev')));
  return content(a) === content(b);
}

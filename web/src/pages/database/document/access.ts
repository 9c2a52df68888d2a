// The member `_access` of a document: who may read and write it.

import { type Json, member, Obj } from '../../../json';
import type { Kind } from '../manage';

export type Right = 'write' | 'read';

/** Those who may write, and those who may only read. */
export type Access = Record<Right, string[]>;

const ROLE = 'role:';

function strings(value: Json | undefined): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === 'string') : [];
}

/** Reads the member of a document. */
export function accessOf(doc: Obj | undefined): Access {
  const access = doc?.get('_access');
  if (!(access instanceof Obj)) return { write: strings(access), read: [] };
  const write = strings(member(access, 'write'));
  return { write, read: strings(member(access, 'read')).filter((each) => !write.includes(each)) };
}

/** The value of the member. */
export function written({ write, read }: Access): Json {
  if (read.length === 0) return write;
  return new Obj([
    ['read', read],
    ['write', write],
  ]);
}

/** The users or the roles with a right. */
export function having(access: Access, right: Right, kind: Kind): string[] {
  return access[right]
    .filter((each) => each.startsWith(ROLE) === (kind === 'roles'))
    .map((each) => (kind === 'roles' ? each.slice(ROLE.length) : each));
}

/** With other users or roles having a right: whoever may write now is no longer only a reader. */
export function changed(access: Access, right: Right, kind: Kind, list: string[]): Access {
  const mine = list.map((each) => (kind === 'roles' ? ROLE + each : each));
  const others = access[right].filter((each) => each.startsWith(ROLE) !== (kind === 'roles'));
  const next = { ...access, [right]: [...others, ...mine] };
  const other = right === 'write' ? 'read' : 'write';
  const added = mine.filter((each) => !access[right].includes(each));
  return { ...next, [other]: access[other].filter((each) => !added.includes(each)) };
}

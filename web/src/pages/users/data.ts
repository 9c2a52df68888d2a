import { ask, docPath, path, read } from '../../api';
import { from, type Json, member, Obj, print, text } from '../../json';

const PREFIX = 'org.couchdb.user:';
export const ADMINS = '/_node/_local/_config/admins';
/** So many users are loaded to be searched by any part; of more, those whose names begin so. */
const ALL_MAX = 2000;

export interface User {
  name: string;
  roles: string[];
}

export interface Users {
  users: User[];
  /** Whether these are all. */
  isAll: boolean;
}

export function idOf(name: string): string {
  return PREFIX + name;
}

export function rolesOf(doc: Json | undefined): string[] {
  const roles = member(doc, 'roles');
  return Array.isArray(roles) ? roles.map(text) : [];
}

/** Users whose names begin so; without a beginning all, as far as they are few. */
export async function users(beginning: string, signal: AbortSignal): Promise<Users> {
  const query = {
    include_docs: true,
    limit: ALL_MAX + 1,
    startkey: JSON.stringify(idOf(beginning)),
    endkey: JSON.stringify(`${idOf(beginning)}\ufff0`),
  };
  const told = await read('GET', '/_users/_all_docs', { query, signal });
  const rows = member(told, 'rows');
  const all = (Array.isArray(rows) ? rows : []).map((row) => ({
    name: text(member(row, 'id')).slice(PREFIX.length),
    roles: rolesOf(member(row, 'doc')),
  }));
  return { users: all.slice(0, ALL_MAX), isAll: beginning === '' && all.length <= ALL_MAX };
}

export async function user(name: string, signal?: AbortSignal): Promise<Obj> {
  const doc = await read('GET', docPath('_users', idOf(name)), { signal });
  return doc instanceof Obj ? doc : new Obj();
}

/** A user document, or none where the name is no user's: as an admin asks. */
export async function userIfAny(name: string, signal?: AbortSignal): Promise<Obj | undefined> {
  const told = await read('POST', '/_users/_all_docs', {
    query: { include_docs: true },
    body: { keys: [idOf(name)] },
    signal,
  });
  const rows = member(told, 'rows');
  const doc = Array.isArray(rows) ? member(rows[0], 'doc') : undefined;
  return doc instanceof Obj ? doc : undefined;
}

export async function put(doc: Obj): Promise<void> {
  await ask('PUT', docPath('_users', text(doc.get('_id'))), { body: print(doc) });
}

export async function create(name: string, password: string, roles: string[]): Promise<void> {
  const doc = from({ _id: idOf(name), name, type: 'user', roles, password });
  if (doc instanceof Obj) await put(doc);
}

/** Changes members of the document as it is now; all others survive. */
export async function change(name: string, members: Record<string, Json>): Promise<Obj> {
  const old = await user(name);
  await put(new Obj([...old, ...Object.entries(members)]));
  return old;
}

/** Deletes; answers what brings the user back, with the password. */
export async function remove(name: string): Promise<() => Promise<void>> {
  const doc = await user(name);
  await ask('DELETE', docPath('_users', idOf(name)), { query: { rev: text(doc.get('_rev')) } });
  return () => put(new Obj([...doc].filter(([each]) => each !== '_rev')));
}

/** Names of server admins. */
export async function admins(signal?: AbortSignal): Promise<string[]> {
  return Object.keys(await ask<Record<string, string>>('GET', ADMINS, { signal })).sort((a, b) =>
    a.localeCompare(b),
  );
}

export async function putAdmin(name: string, password: string): Promise<void> {
  await ask('PUT', ADMINS + path(name), { body: JSON.stringify(password) });
}

export async function removeAdmin(name: string): Promise<void> {
  await ask('DELETE', ADMINS + path(name));
}

/** Roles as they are typed. */
export function split(roles: string): string[] {
  return [
    ...new Set(
      roles
        .split(/[,\n]/)
        .map((role) => role.trim())
        .filter(Boolean),
    ),
  ];
}

/** The users that have every word of a search in their name or a role. */
export function matching(all: User[], search: string): User[] {
  const words = search.toLowerCase().split(/\s+/);
  return all.filter(({ name, roles }) => {
    const text = `${name} ${roles.join(' ')}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

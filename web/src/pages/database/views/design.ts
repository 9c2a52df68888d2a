import { ApiError, ask, docPath, path, read, send } from '../../../api';
import { from, type Json, member, Num, Obj, parse, print, text } from '../../../json';

/** Functions that a design document holds by name, besides views. */
export const KINDS = ['filters', 'updates', 'shows', 'lists'] as const;
/** Those of which it has one. */
export const SINGLES = ['validate_doc_update', 'rewrites'] as const;
export type Kind = (typeof KINDS)[number] | (typeof SINGLES)[number];

export interface Info {
  view_index: {
    signature: string;
    language: string;
    update_seq: number | string;
    updates_pending?: { total: number };
    sizes: { file: number; active: number; external: number };
    updater_running: boolean;
    compact_running: boolean;
    waiting_clients: number;
  };
}

/** A text index, and the interface that asks it. */
export interface Text {
  kind: '_search' | '_nouveau';
  name: string;
}

export interface Design {
  name: string;
  doc: Obj;
  language: string;
  views: string[];
  texts: Text[];
  functions: { kind: Kind; name: string }[];
}

function namesOf(value: Json | undefined): string[] {
  return value instanceof Obj ? [...value.keys()] : [];
}

export function designOf(doc: Obj): Design {
  return {
    name: text(doc.get('_id')).replace(/^_design\//, ''),
    doc,
    language: text(doc.get('language')) || 'javascript',
    // `views.lib` holds modules for the others.
    views: namesOf(doc.get('views')).filter(
      (name) => member(doc, 'views', name, 'map') !== undefined,
    ),
    texts: [
      ...namesOf(doc.get('nouveau')).map((name): Text => ({ kind: '_nouveau', name })),
      ...namesOf(doc.get('indexes')).map((name): Text => ({ kind: '_search', name })),
    ],
    functions: [
      ...KINDS.flatMap((kind) => namesOf(doc.get(kind)).map((name) => ({ kind, name }))),
      ...SINGLES.filter((kind) => doc.has(kind)).map((kind) => ({ kind, name: '' })),
    ],
  };
}

export async function designs(db: string, signal: AbortSignal): Promise<Design[]> {
  const told = await read('GET', `${path(db)}/_design_docs`, {
    query: { include_docs: true },
    signal,
  });
  const rows = member(told, 'rows');
  return Array.isArray(rows)
    ? rows.flatMap((row) =>
        ((doc) => (doc instanceof Obj ? [designOf(doc)] : []))(member(row, 'doc')),
      )
    : [];
}

export async function load(db: string, name: string, signal?: AbortSignal): Promise<Design> {
  const doc = await read('GET', docPath(db, `_design/${name}`), { signal });
  return designOf(doc as Obj);
}

export function infoOf(db: string, name: string, signal: AbortSignal): Promise<Info> {
  return ask('GET', `${docPath(db, `_design/${name}`)}/_info`, { signal, background: true });
}

/**
 * A copy with a member set or, without a value, left out. Everything else stays as it is, in its
 * order.
 */
export function put(doc: Obj, at: string[], value: Json | undefined): Obj {
  const [name = '', ...rest] = at;
  const copy = new Obj(doc);
  if (rest.length > 0) {
    const inner = doc.get(name);
    copy.set(name, put(inner instanceof Obj ? inner : new Obj(), rest, value));
  } else if (value === undefined) copy.delete(name);
  else copy.set(name, value);
  return copy;
}

/** A copy with a view of these functions; without a reduce function where the text is empty. */
export function withView(doc: Obj, name: string, map: string, reduce: string): Obj {
  const mapped = put(doc, ['views', name, 'map'], map);
  return put(mapped, ['views', name, 'reduce'], reduce === '' ? undefined : reduce);
}

/** A copy where a member has another name, at its place. */
export function rename(doc: Obj, at: string[], to: string): Obj {
  const last = at.at(-1) ?? '';
  const parent = member(doc, ...at.slice(0, -1));
  if (!(parent instanceof Obj)) return doc;
  const renamed = new Obj([...parent].map(([name, value]) => [name === last ? to : name, value]));
  return put(doc, at.slice(0, -1), renamed);
}

/**
 * Edits the design document as it is now: what others changed meanwhile stays. Where they changed
 * the very member at `mine`, it is a conflict. A design document that is not there is made, in this
 * language.
 */
export async function change(
  db: string,
  name: string,
  edit: (doc: Obj) => Obj,
  mine?: { at: string[]; was: Json | undefined },
  language = 'javascript',
): Promise<Design> {
  const to = docPath(db, `_design/${name}`);
  let doc: Obj;
  try {
    doc = (await read('GET', to)) as Obj;
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    doc = from({ _id: `_design/${name}`, language }) as Obj;
  }
  const said = (value: Json | undefined) => (value === undefined ? '' : print(value));
  if (mine && said(member(doc, ...mine.at)) !== said(mine.was))
    throw new ApiError(409, 'conflict', `${mine.at.join('.')} was changed by somebody else`, null);
  const edited = edit(doc);
  const saved = await ask<{ rev: string }>('PUT', to, { body: print(edited) });
  return designOf(put(edited, ['_rev'], saved.rev));
}

export async function remove(db: string, design: Design): Promise<void> {
  await send('DELETE', docPath(db, `_design/${design.name}`), {
    query: { rev: text(design.doc.get('_rev')) },
  });
}

export async function clone(db: string, name: string, to: string): Promise<void> {
  await send('COPY', docPath(db, `_design/${name}`), {
    headers: { destination: `_design/${encodeURIComponent(to)}` },
  });
}

export interface Failure {
  id?: string;
  error: string;
  reason: string;
  line?: number;
}

export interface Previewed {
  rows: { id: string; key: Json; value: Json }[];
  reduced: Json | undefined;
  /**
   * Of a function that does not heed `rereduce`: what parts of the rows come to, when it is not the
   * same.
   */
  parts: Json | undefined;
  errors: Failure[];
  documents: number;
  validate: Json | undefined;
}

/** The server cannot run functions that are not saved. */
export class NoPreview extends Error {}

/** Runs functions as they stand in the editor, on some documents, without saving them. */
export async function preview(db: string, wanted: Record<string, unknown>): Promise<Previewed> {
  let told: Json;
  try {
    told = await read('POST', `${path(db)}/_settee/preview`, { body: print(from(wanted)) });
  } catch (error) {
    // CouchDB, and a Settee without it, take the path for an attachment of a document that cannot
    // be.
    if (
      error instanceof ApiError &&
      (error.status === 404 || error.status === 405 || error.error === 'illegal_docid')
    )
      throw new NoPreview('', { cause: error });
    throw error;
  }
  const list = (name: string) => {
    const value = member(told, name);
    return Array.isArray(value) ? value : [];
  };
  const line = (value: Json | undefined) => (value ? { line: Number(print(value)) } : {});
  const [reduced, parts] = [member(told, 'reduced'), member(told, 'rereduced')];
  return {
    rows: list('rows').map((row) => ({
      id: text(member(row, 'id')),
      key: member(row, 'key') ?? null,
      value: member(row, 'value') ?? null,
    })),
    reduced,
    parts: parts === undefined || isSame(reduced, parts) ? undefined : parts,
    errors: list('errors').map((each) => ({
      id: text(member(each, 'id')),
      error: text(member(each, 'error')),
      reason: text(member(each, 'reason')),
      ...line(member(each, 'line')),
    })),
    documents: Number(print(member(told, 'documents') ?? '0')),
    validate: member(told, 'validate'),
  };
}

/** Sums of fractions differ a little by their order, and members may come in another. */
function isSame(a: Json | undefined, b: Json | undefined): boolean {
  if (a instanceof Num && b instanceof Num)
    return (
      a.text === b.text ||
      Math.abs(a.value - b.value) <= 1e-9 * Math.max(Math.abs(a.value), Math.abs(b.value))
    );
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((each, n) => isSame(each, b[n]));
  if (a instanceof Obj && b instanceof Obj)
    return a.size === b.size && [...a].every(([name, value]) => isSame(value, b.get(name)));
  return a === b;
}

/** A member that is JSON in its text, if it is no function's text. */
export function sourceOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : value === undefined ? '' : print(value, 2);
}

/** The other way: what an array or object was stays one. */
export function edited(source: string, was: Json | undefined): Json {
  return was !== undefined && typeof was !== 'string' ? parse(source) : source;
}

/** Whether a text stands for another value; of JSON its spaces do not count. */
export function differs(source: string, was: Json | undefined): boolean {
  if (was === undefined || typeof was === 'string') return source !== was;
  try {
    return print(parse(source)) !== print(was);
  } catch {
    return true;
  }
}

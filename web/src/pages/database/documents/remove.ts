import { path, read } from '../../../api';
import { from, type Json, member, Obj, print, text } from '../../../json';
import { rowsOf } from './rows';

export interface Chosen {
  id: string;
  rev: string;
}

/** Of so many, the documents are kept until they were deleted, so that they can be put back. */
export const UNDO_MAX = 1000;
export const UNDO_BYTES_MAX = 32_000_000;
const CHUNK = 100;
const DELETE_CHUNK = 1000;

export interface Removal {
  removed: number;
  /** Why others were not: id and reason. */
  failed: [string, string][];
  /** Of so many there is another revision now, that was in conflict with the deleted one. */
  conflicts: number;
  undo?: () => Promise<void>;
}

/**
 * Deletes revisions. With `isKept` their documents and attachments are read before, and `undo`
 * writes them again.
 */
export async function remove(
  db: string,
  chosen: Chosen[],
  isKept: boolean,
  progress: (done: number) => void,
): Promise<Removal> {
  const kept = new Map<string, Obj>();
  const result: Removal = { removed: 0, failed: [], conflicts: 0 };
  if (isKept) for (const part of parts(chosen, CHUNK)) await keep(db, part, kept);
  for (const part of parts(chosen, DELETE_CHUNK)) {
    const docs = part.map(({ id, rev }) => ({ _id: id, _rev: rev, _deleted: true }));
    for (const told of await write(db, from(docs))) {
      const [id, reason] = [
        text(member(told, 'id')),
        text(member(told, 'reason')) || text(member(told, 'error')),
      ];
      const doc = kept.get(id);
      if (member(told, 'error') !== undefined) {
        result.failed.push([id, reason]);
        kept.delete(id);
        continue;
      }
      result.removed++;
      if (doc?.has('_conflicts')) result.conflicts++;
      doc?.set('_rev', text(member(told, 'rev')));
    }
    progress(result.removed);
  }
  if (isKept && kept.size > 0) result.undo = () => putBack(db, [...kept.values()]);
  return result;
}

async function keep(db: string, part: Chosen[], kept: Map<string, Obj>): Promise<void> {
  const told = await read('POST', `${path(db)}/_all_docs`, {
    query: { include_docs: true, attachments: true, conflicts: true },
    body: { keys: part.map(({ id }) => id) },
  });
  for (const { id, doc } of rowsOf(told)) if (doc) kept.set(id, doc);
}

/** Writes what was deleted as the next revision of each. */
async function putBack(db: string, docs: Obj[]): Promise<void> {
  for (const part of parts(docs, CHUNK)) {
    const [forked, plain] = [
      part.filter((doc) => doc.has('_conflicts')),
      part.filter((doc) => !doc.has('_conflicts')),
    ];
    for (const doc of plain) doc.delete('_rev');
    const told = [
      ...(plain.length > 0 ? await write(db, plain) : []),
      ...(forked.length > 0 ? await write(db, forked.map(next), false) : []),
    ];
    const failed = told.find((each) => member(each, 'error') !== undefined);
    if (failed)
      throw new Error(
        `${text(member(failed, 'id'))}: ${text(member(failed, 'reason')) || text(member(failed, 'error'))}`,
      );
  }
}

/**
 * Another revision won meanwhile: the branch that was deleted is continued, as a replication would.
 */
function next(doc: Obj): Obj {
  const [start, hash] = text(doc.get('_rev')).split('-');
  const ids = [
    crypto
      .getRandomValues(new Uint8Array(16))
      .reduce((all, byte) => all + byte.toString(16).padStart(2, '0'), ''),
    hash,
  ];
  const now = new Obj(doc);
  now.delete('_conflicts');
  now.set('_rev', `${Number(start) + 1}-${ids[0]}`);
  return now.set('_revisions', from({ start: Number(start) + 1, ids })) as Obj;
}

async function write(db: string, docs: Json, isNew = true): Promise<Json[]> {
  const told = await read('POST', `${path(db)}/_bulk_docs`, {
    body: print(
      new Obj([
        ['docs', docs],
        ['new_edits', isNew],
      ]),
    ),
  });
  return Array.isArray(told) ? told : [];
}

function* parts<T>(all: T[], size: number): Iterable<T[]> {
  for (let n = 0; n < all.length; n += size) yield all.slice(n, n + size);
}

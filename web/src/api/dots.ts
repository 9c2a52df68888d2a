import { from, type Json, member, type Obj, parse, print, text } from '../json';
import type { Query } from './client';
import { ApiError } from './errors';

// Browsers resolve the parts `.` and `..` of a path, escaped or not, and would send a request to
// another path. So documents with such an id are read and written by requests that name them in the
// body.

/** Sends a POST with a JSON body below the database, and answers what came. */
export type Post = (to: string, query: Query, body: Json) => Promise<Json>;

/** Whether a browser would resolve a part of this path. */
export function hasDots(to: string): boolean {
  return /\/\.\.?(\/|$)/.test(to);
}

/** There is no way to do it. */
export function noAddress(): ApiError {
  return failed(400, 'No browser sends this path.');
}

function failed(status: number, reason: string, error = 'not_found'): ApiError {
  return new ApiError(status, error, reason, null);
}

/**
 * Does what a request to a document's path would do, and answers the text of its answer. `to`: the
 * path, without the database.
 */
export async function askDots(
  method: string,
  to: string,
  query: Query,
  body: unknown,
  post: Post,
): Promise<string> {
  const id = decodeURIComponent(to);
  if (!/^(_(design|local)\/)?\.\.?$/.test(id) || method === 'COPY') throw noAddress();
  if (method === 'GET') return print(await get(id, query, post));
  const doc = (
    method === 'PUT' ? parse(String(body)) : from({ _rev: query.rev, _deleted: true })
  ) as Obj;
  doc.set('_id', id);
  const [done] = (await post('_bulk_docs', {}, from({ docs: [doc] }))) as Json[];
  const error = text(member(done, 'error'));
  if (error) throw failed(error === 'conflict' ? 409 : 403, text(member(done, 'reason')), error);
  return print(done as Json);
}

async function get(
  id: string,
  { open_revs: open, rev, ...query }: Query,
  post: Post,
): Promise<Json> {
  if (open ?? rev) {
    const revs = rev
      ? [rev]
      : open === 'all'
        ? [undefined]
        : (JSON.parse(String(open)) as string[]);
    const told = member(
      await post('_bulk_get', query, from({ docs: revs.map((rev) => ({ id, rev })) })),
      'results',
    ) as Json[];
    const found = told.flatMap((each) => member(each, 'docs') as Json[]);
    if (open) return found;
    const doc = member(found[0], 'ok');
    if (doc) return doc;
    throw failed(404, 'missing');
  }
  const [row] = member(
    await post('_all_docs', { ...query, include_docs: true }, from({ keys: [id] })),
    'rows',
  ) as Json[];
  const doc = member(row, 'doc');
  if (doc) return doc;
  throw failed(404, member(row, 'value', 'deleted') ? 'deleted' : 'missing');
}

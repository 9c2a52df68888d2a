import { ApiError, read } from '../../../api';
import { type Json, member, number, Obj, text } from '../../../json';
import type { Draft } from './draft';
import { plain } from './source';
import { generation, type Leaf, type Node, shape } from './tree';

/** How many ancestors of losing leaves are asked for. */
const ASKED_MAX = 30;

/** All leaves: the winner first, then those in conflict, then deleted ones. */
export async function readLeaves(draft: Draft, signal: AbortSignal): Promise<Leaf[]> {
  const told = await read('GET', draft.path, { query: { open_revs: 'all', revs: true }, signal });
  const docs = (Array.isArray(told) ? told : [])
    .map((each) => member(each, 'ok'))
    .filter((each): each is Obj => each instanceof Obj);
  const leaves = docs.map((doc): Leaf => {
    const rev = text(doc.get('_rev'));
    const start = number(member(doc, '_revisions', 'start'));
    const ids = member(doc, '_revisions', 'ids');
    const history = (Array.isArray(ids) ? ids : []).map((id, n) => `${start - n}-${text(id)}`);
    return {
      rev,
      isDeleted: doc.get('_deleted') === true,
      isWinner: false,
      doc: plain(doc),
      history: history.length > 0 ? history : [rev],
    };
  });
  leaves.sort(
    (a, b) =>
      Number(a.isDeleted) - Number(b.isDeleted) ||
      generation(b.rev) - generation(a.rev) ||
      (a.rev < b.rev ? 1 : -1),
  );
  const winner = leaves.find((leaf) => leaf.rev === draft.rev) ?? leaves[0];
  if (winner) winner.isWinner = true;
  return leaves.sort((a, b) => Number(b.isWinner) - Number(a.isWinner));
}

/** The tree of revisions, the newest first. */
export async function readTree(draft: Draft, signal: AbortSignal): Promise<Node[]> {
  const leaves = await readLeaves(draft, signal);
  const there = new Map<string, boolean>(leaves.map((leaf) => [leaf.rev, true]));
  await askWinner(draft, there, signal);
  const others = leaves.flatMap((leaf) => leaf.history).filter((rev) => !there.has(rev));
  await askOthers(draft, [...new Set(others)].slice(0, ASKED_MAX), there, signal);
  return shape(leaves, there);
}

async function askWinner(
  draft: Draft,
  there: Map<string, boolean>,
  signal: AbortSignal,
): Promise<void> {
  try {
    const info = member(
      await read('GET', draft.path, { query: { revs_info: true }, signal }),
      '_revs_info',
    );
    for (const each of Array.isArray(info) ? info : [])
      there.set(text(member(each, 'rev')), text(member(each, 'status')) !== 'missing');
  } catch (error) {
    // A deleted document has no winner that could be asked for by its id alone.
    if (!(error instanceof ApiError && error.status === 404)) throw error;
  }
}

async function askOthers(
  draft: Draft,
  revs: string[],
  there: Map<string, boolean>,
  signal: AbortSignal,
): Promise<void> {
  if (revs.length === 0) return;
  const told = await read('GET', draft.path, {
    query: { open_revs: JSON.stringify(revs) },
    signal,
  });
  const found = new Set(
    (Array.isArray(told) ? told : []).map((each: Json) => text(member(each, 'ok', '_rev'))),
  );
  for (const rev of revs) there.set(rev, found.has(rev));
}

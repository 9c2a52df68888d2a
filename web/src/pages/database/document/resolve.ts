import { ask, path, read } from '../../../api';
import { from, member, Obj, parse, print, text } from '../../../json';
import type { Draft } from './draft';
import { put } from './source';
import type { Leaf } from './tree';

export interface Failed {
  rev: string;
  reason: string;
}

/** The merged text was refused; nothing was deleted. */
export class NotKept extends Error {
  constructor(override readonly cause: unknown) {
    super(String(cause), { cause });
  }
}

/**
 * Keeps one leaf, with the text as its content, and deletes the others.
 * A changed text is saved first: were it refused after the others were deleted, what was taken from
 * them would be lost.
 */
export async function resolve(
  draft: Draft,
  kept: Leaf,
  leaves: Leaf[],
  result: string,
): Promise<{ rev: string; deleted: number; failed: Failed[] }> {
  const rev = print(parse(result)) === print(kept.doc) ? kept.rev : await save(draft, kept, result);
  const others = leaves.filter((leaf) => leaf !== kept);
  const docs = others.map(
    (leaf) =>
      new Obj([
        ['_id', draft.id ?? ''],
        ['_rev', leaf.rev],
        ['_deleted', true],
      ]),
  );
  const told = await read('POST', `${path(draft.db)}/_bulk_docs`, { body: print(from({ docs })) });
  const answers = Array.isArray(told) ? told : [];
  const failed = others.flatMap((leaf, n): Failed[] => {
    const answer = answers[n];
    if (member(answer, 'ok') === true || text(member(answer, 'rev')) !== '') return [];
    return [
      {
        rev: leaf.rev,
        reason: `${text(member(answer, 'error'))}: ${text(member(answer, 'reason'))}`,
      },
    ];
  });
  return { rev, deleted: others.length - failed.length, failed };
}

async function save(draft: Draft, kept: Leaf, result: string): Promise<string> {
  try {
    const told = await ask<{ rev: string }>('PUT', draft.path, {
      body: put(result, '_rev', kept.rev),
    });
    return told.rev;
  } catch (error) {
    // biome-ignore lint/style/useErrorCause: its constructor takes the cause alone
    throw new NotKept(error);
  }
}

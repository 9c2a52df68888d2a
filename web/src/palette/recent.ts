import { draftOf, keepDraft } from '../drafts';

/** A document that was open: kept until its user logs out. */
export type Recent = [db: string, id: string];

const NAME = 'recent';
const KEPT_MAX = 30;

export function recentDocuments(): Recent[] {
  return draftOf<Recent[]>(NAME) ?? [];
}

/** Puts a document before the others. */
export function visited(db: string, id: string): void {
  const others = recentDocuments().filter((each) => each[0] !== db || each[1] !== id);
  keepDraft(NAME, [[db, id], ...others].slice(0, KEPT_MAX));
}

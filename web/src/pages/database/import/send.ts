import { ApiError, ask, path } from '../../../api';
import type { Item } from './rows';

const BATCH_DOCS = 1000;
const BATCH_CHARACTERS = 2_000_000;
const EXAMPLES = 3;

type Doc = Extract<Item, { text: string }>;

export interface Report {
  written: number;
  /** Numbers and first ids of the documents that were not written, by reason. */
  refused: Map<string, { count: number; ids: string[] }>;
}

interface Answer {
  id?: string;
  error?: string;
  reason?: string;
}

/** Sends the body of a `_bulk_docs`, and answers what the server says of the documents. */
type Post = (body: string) => Promise<Answer[]>;

/** Posts to a database. */
export function poster(db: string, signal: AbortSignal): Post {
  return (body) => ask<Answer[]>('POST', `${path(db)}/_bulk_docs`, { body, signal });
}

/**
 * Writes documents batch by batch. Those with a revision keep it, as in a replication. Stops where
 * the server refuses a whole request for another reason than its content.
 */
export async function write(
  items: AsyncIterable<Item>,
  post: Post,
  report: Report,
  words: (refusal: Extract<Item, { refused: unknown }>['refused']) => string,
): Promise<void> {
  const batches: Record<'fresh' | 'revised', Doc[]> = { fresh: [], revised: [] };
  const sizes = { fresh: 0, revised: 0 };
  const flush = async (kind: 'fresh' | 'revised') => {
    const docs = batches[kind];
    batches[kind] = [];
    sizes[kind] = 0;
    if (docs.length > 0) await writeBatch(docs, kind === 'revised', post, report);
  };
  for await (const item of items) {
    if ('refused' in item) {
      refuse(report, words(item.refused), item.label);
      continue;
    }
    const kind = item.hasRev ? 'revised' : 'fresh';
    if (sizes[kind] + item.text.length > BATCH_CHARACTERS) await flush(kind);
    batches[kind].push(item);
    sizes[kind] += item.text.length;
    if (batches[kind].length >= BATCH_DOCS) await flush(kind);
  }
  await flush('fresh');
  await flush('revised');
}

/** A batch that is refused for its content is halved, until the documents at fault are found. */
async function writeBatch(
  docs: Doc[],
  isRevised: boolean,
  post: Post,
  report: Report,
): Promise<void> {
  const texts = docs.map(({ text }) => text).join(',');
  try {
    const answers = await post(`{${isRevised ? '"new_edits":false,' : ''}"docs":[${texts}]}`);
    const refused = answers.filter(({ error }) => error !== undefined);
    for (const { id, error, reason } of refused)
      refuse(report, `${error}: ${reason ?? ''}`, id ?? '');
    report.written += docs.length - refused.length;
  } catch (error) {
    if (!(error instanceof ApiError) || ![400, 413].includes(error.status)) throw error;
    const [only, ...others] = docs;
    if (only && others.length === 0) refuse(report, error.message, only.label);
    else {
      const half = docs.length >> 1;
      await writeBatch(docs.slice(0, half), isRevised, post, report);
      await writeBatch(docs.slice(half), isRevised, post, report);
    }
  }
}

function refuse(report: Report, reason: string, id: string): void {
  const known = report.refused.get(reason) ?? { count: 0, ids: [] };
  known.count++;
  if (known.ids.length < EXAMPLES) known.ids.push(id);
  report.refused.set(reason, known);
}

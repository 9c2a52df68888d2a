import { type Options, path, read } from '../../../api';
import { type Json, member, number, Obj, text } from '../../../json';
import { type Field, schemaOf } from './model';

/** So many places of a database are sampled, as its documents may be in order of their age. */
const PLACES = 10;
/** About as many bytes are loaded. */
const BYTES_MAX = 8_000_000;
const LEAST = 20;

export interface Sample {
  docs: Obj[];
  /** Documents in the database. */
  all: number;
}

/** How requests are made: for whom they can be given up, and whether a user waits for them. */
type How = Pick<Options, 'signal' | 'background'>;

async function some(db: string, query: Options['query'], how: How): Promise<Json> {
  return read('GET', `${path(db)}/_all_docs`, { query: { include_docs: true, ...query }, ...how });
}

function docsOf(told: Json): Obj[] {
  const rows = member(told, 'rows');
  return (Array.isArray(rows) ? rows : []).flatMap((row) => {
    const doc = member(row, 'doc');
    return doc instanceof Obj && !text(member(row, 'id')).startsWith('_design/') ? [doc] : [];
  });
}

/**
 * Ids that divide those between two others, about evenly where ids are random or numbers: what both
 * begin with is kept, and the next two characters count.
 */
export function between(first: string, last: string, parts: number): string[] {
  let same = 0;
  while (same < first.length && first[same] === last[same]) same++;
  const digits = (id: string) => (id.charCodeAt(same) || 0) * 128 + (id.charCodeAt(same + 1) || 0);
  const [from, to] = [digits(first), digits(last)];
  // Of other scripts, what is between is no text.
  if (to >= 128 * 128) return [];
  return Array.from({ length: parts - 1 }, (_, n) => {
    const at = Math.round(from + ((to - from) * (n + 1)) / parts);
    return first.slice(0, same) + String.fromCharCode(Math.floor(at / 128), at % 128);
  });
}

/** Documents of many places of a database; all of a small one. */
export async function sample(db: string, most: number, how: How): Promise<Sample> {
  const told = await read('GET', path(db), how);
  const all = number(member(told, 'doc_count'));
  const average = number(member(told, 'sizes', 'external')) / Math.max(1, all) || 1;
  const wanted = Math.max(LEAST, Math.min(most, Math.floor(BYTES_MAX / average)));
  if (all <= wanted) return { docs: docsOf(await some(db, { limit: wanted }, how)), all };
  const limit = Math.ceil(wanted / PLACES);
  const [first, last] = await Promise.all([
    some(db, { limit }, how),
    some(db, { limit, descending: true }, how),
  ]);
  const ends = [docsOf(first), docsOf(last)];
  const ids = ends.map((docs) => text(docs[0]?.get('_id')));
  const places = between(ids[0] ?? '', ids[1] ?? '', PLACES - 1);
  const parts = await Promise.all(
    places.map((startkey) => some(db, { limit, startkey: JSON.stringify(startkey) }, how)),
  );
  const found = new Map(
    [...ends, ...parts.map(docsOf)].flat().map((doc) => [text(doc.get('_id')), doc]),
  );
  return { docs: [...found.values()], all };
}

/** Documents that are enough to complete names and values. */
const FEW = 200;
const KEPT_MS = 120_000;

interface Known {
  fields: Field[];
  /** Documents that they are of. */
  docs: number;
}

const kept = new Map<string, { at: number; known: Promise<Known> }>();

/** The fields of a small sample, which is kept for a while. */
export function fieldsOf(db: string): Promise<Known> {
  const found = kept.get(db);
  if (found && Date.now() - found.at < KEPT_MS) return found.known;
  const known = sample(db, FEW, { background: true }).then(({ docs }) => ({
    fields: schemaOf(docs),
    docs: docs.length,
  }));
  // What failed is tried again.
  known.catch(() => kept.delete(db));
  kept.set(db, { at: Date.now(), known });
  return known;
}

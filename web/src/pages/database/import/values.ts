import { Num, Obj, parse, print, text } from '../../../json';
import type { Item } from './rows';

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d];
/** White space, and the commas of a list. */
const BETWEEN = new Set([0x20, 0x09, 0x0a, 0x0d, 0x2c]);

/** The text is not JSON, or ends early. */
export class FormatError extends Error {}

/**
 * Cuts JSON into the objects of its lists and lines, piece by piece: an array, arrays one after the
 * other, or objects one after the other.
 */
export class JsonReader {
  private rest = '';
  private depth = 0;
  /** The depth at which objects stand: 1 in an array. */
  private base = 0;
  private isText = false;
  private isEscaped = false;

  /** The texts of the objects that are complete. */
  push(piece: string): string[] {
    const found: string[] = [];
    let begin = this.depth > this.base ? 0 : -1;
    for (let at = 0; at < piece.length; at++) {
      const code = piece.charCodeAt(at);
      if (this.isText) this.within(code);
      else if (begin >= 0) {
        this.inside(code);
        if (this.depth > this.base) continue;
        found.push(this.rest + piece.slice(begin, at + 1));
        this.rest = '';
        begin = -1;
      } else if (this.outside(code)) begin = at;
    }
    if (begin >= 0) this.rest += piece.slice(begin);
    return found;
  }

  end(): string[] {
    if (this.depth > 0) throw new FormatError('end');
    return [];
  }

  private within(code: number): void {
    if (this.isEscaped) this.isEscaped = false;
    else if (code === BACKSLASH) this.isEscaped = true;
    else if (code === QUOTE) this.isText = false;
  }

  private inside(code: number): void {
    if (code === QUOTE) this.isText = true;
    else if (code === OPEN || code === OPEN_LIST) this.depth++;
    else if (code === CLOSE || code === CLOSE_LIST) this.depth--;
  }

  /** Whether an object begins. */
  private outside(code: number): boolean {
    if (code === OPEN) {
      this.depth++;
      return true;
    }
    if (code === OPEN_LIST && this.depth === 0) this.base = this.depth = 1;
    else if (code === CLOSE_LIST && this.depth === 1) this.base = this.depth = 0;
    else if (!BETWEEN.has(code)) throw new FormatError('value');
    return false;
  }
}

/** The documents of an object: itself, or those of a dump of `_all_docs` or a body of `_bulk_docs`. */
export function itemsOf(source: string, label: string, id: string | undefined): Item[] {
  const value = parse(source);
  if (!(value instanceof Obj)) return [{ label, refused: 'object' }];
  const docs = value.get('docs');
  if (Array.isArray(docs) && !value.has('_id'))
    return docs.map((doc) => itemOf(doc, print(doc), label, id));
  const rows = value.get('rows') ?? value.get('results');
  if (Array.isArray(rows) && !value.has('_id'))
    return rows.map((row) => {
      const doc = row instanceof Obj ? (row.get('doc') ?? null) : null;
      return itemOf(doc, print(doc), label, id);
    });
  return [itemOf(value, source, label, id)];
}

function itemOf(value: unknown, source: string, label: string, id: string | undefined): Item {
  if (!(value instanceof Obj)) return { label, refused: 'object' };
  const hasRev = typeof value.get('_rev') === 'string';
  const own = value.get('_id');
  if (own !== undefined || id === undefined)
    return { text: source, label: text(own) || label, hasRev };
  const from = value.get(id);
  const chosen = from instanceof Num ? from.text : from;
  if (typeof chosen !== 'string' || chosen === '') return { label, refused: 'id' };
  const rest = source.slice(source.indexOf('{') + 1);
  const comma = value.size > 0 ? ',' : '';
  return { text: `{"_id":${JSON.stringify(chosen)}${comma}${rest}`, label: chosen, hasRev };
}

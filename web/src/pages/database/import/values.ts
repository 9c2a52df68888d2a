import { type Json, member, Num, Obj, parse, print, text } from '../../../json';
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

/** What a dump has besides its list. An object with other members is a document. */
const DUMP_MEMBER = /^(total_rows|offset|update_seq|new_edits|last_seq|pending)$/;

/** The list of a dump, and its name; `undefined` for a document. */
function listOf(value: Obj): [name: string, list: Json[]] | undefined {
  const [other, ...more] = [...value].filter(([name]) => !DUMP_MEMBER.test(name));
  if (!other || more.length > 0) return undefined;
  const [name, list] = other;
  return /^(docs|rows|results)$/.test(name) && Array.isArray(list) ? [name, list] : undefined;
}

/** The documents of an object: itself, or those of a dump of `_all_docs` or a body of `_bulk_docs`. */
export function itemsOf(source: string, label: string, id: string | undefined): Item[] {
  const value = parse(source);
  if (!(value instanceof Obj)) return [{ label, refused: 'object' }];
  const [name, list] = listOf(value) ?? [];
  if (!list) return [itemOf(value, source, label, id)];
  return list.map((each) => {
    const doc = name === 'docs' ? each : (member(each, 'doc') ?? null);
    return itemOf(doc, print(doc), label, id);
  });
}

/** Whether attachments lack their data. The server refuses a whole request for one of these. */
function hasStubs(document: Obj): boolean {
  const attachments = document.get('_attachments');
  return (
    attachments instanceof Obj &&
    [...attachments.values()].some((each) => each instanceof Obj && !each.has('data'))
  );
}

function itemOf(value: unknown, source: string, label: string, id: string | undefined): Item {
  if (!(value instanceof Obj)) return { label, refused: 'object' };
  if (hasStubs(value)) return { label: text(value.get('_id')) || label, refused: 'stub' };
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

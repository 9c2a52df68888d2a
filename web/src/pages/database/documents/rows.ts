import { isAborted, path, type Query, read } from '../../../api';
import { type Json, member, Num, number, Obj, text } from '../../../json';
import type { Range } from './range';

export interface DocRow {
  id: string;
  rev: string;
  /** Where documents are asked for. */
  doc: Obj | undefined;
  /** Why there is none: `not_found`, `deleted`. */
  missing?: string;
}

/** A row whose place is known: other pages are reached from the nearest one. */
interface Anchor {
  index: number;
  id: string;
}

const PAGES_MAX = 60;
const ALL_PAGE = 5000;
/** While a bar is dragged, nothing is asked for. */
const REST_MS = 40;

/**
 * The rows of `_all_docs`, of which those pages are loaded that are seen. `count` is exact: offsets
 * tell how many are outside of the range. A page is reached from the nearest row that is known, in
 * either direction, as `skip` over a million rows is slow.
 */
export class Rows {
  count: number | undefined;
  /** Of all documents, or of the partition. */
  total = 0;
  error: unknown;
  private base = 0;
  private isEndOut = false;
  /** The server tells no offsets: rows are counted as they come. */
  private isOpen = false;
  private readonly pages = new Map<number, DocRow[]>();
  private readonly asked = new Map<number, AbortController>();
  private anchors: Anchor[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly control = new AbortController();
  private readonly to: string;

  constructor(
    db: string,
    readonly range: Range,
    private readonly withDocs: boolean,
    private readonly size: number,
    private readonly changed: () => void,
  ) {
    this.to =
      range.partition === undefined || range.keys
        ? `${path(db)}/_all_docs`
        : `${path(db, '_partition', range.partition)}/_all_docs`;
  }

  /** Finds out how many there are, and has the first of them. */
  async begin(): Promise<void> {
    this.error = undefined;
    try {
      await (this.range.keys ? this.loadKeys(this.range.keys) : this.loadFirst());
    } catch (error) {
      if (!isAborted(error)) this.error = error;
    }
    if (!this.control.signal.aborted) this.changed();
  }

  close(): void {
    clearTimeout(this.timer);
    this.control.abort();
    for (const one of this.asked.values()) one.abort();
  }

  row(index: number): DocRow | undefined {
    return this.pages.get(Math.floor(index / this.size))?.[index % this.size];
  }

  /** The rows that are there. */
  *loaded(): Iterable<DocRow> {
    for (const page of this.pages.values()) yield* page;
  }

  /** These are looked at. */
  seen(from: number, to: number): void {
    if (this.count === undefined || this.range.keys) return;
    const [first, last] = [
      Math.floor(from / this.size),
      Math.floor(Math.max(from, to - 1) / this.size),
    ];
    for (const [page, one] of this.asked) if (page < first - 1 || page > last + 1) one.abort();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      for (let page = first; page <= last; page++)
        if (!this.pages.has(page) && !this.asked.has(page)) void this.load(page);
      if (this.isOpen && to >= (this.count ?? 0)) void this.load(last + 1);
    }, REST_MS);
  }

  /** Which row the id has, or would have. */
  async indexOf(id: string): Promise<number | undefined> {
    if (this.range.keys) return this.range.keys.indexOf(id);
    const told = await this.ask({ startkey: id, descending: this.range.isDown, limit: 1 });
    const offset = member(told, 'offset');
    if (!(offset instanceof Num)) return undefined;
    return Math.min(Math.max(0, offset.value - this.base), Math.max(0, (this.count ?? 1) - 1));
  }

  /** All rows without their documents, some thousand at a time. */
  async *all(): AsyncGenerator<DocRow[]> {
    if (this.range.keys) return yield [...this.loaded()].filter((row) => !row.missing);
    let left = this.count ?? 0;
    let last: string | undefined;
    while (left > 0) {
      const from =
        last === undefined
          ? { startkey: this.range.start, skip: this.range.skip }
          : { startkey: last, skip: 1 };
      const rows = rowsOf(
        await this.ask({
          ...from,
          ...this.until(),
          limit: Math.min(ALL_PAGE, left),
          descending: this.range.isDown,
        }),
      );
      if (rows.length === 0) return;
      yield rows;
      left -= rows.length;
      last = rows.at(-1)?.id;
    }
  }

  private async loadKeys(keys: string[]): Promise<void> {
    const told = await read('POST', this.to, {
      body: { keys },
      query: this.docs(),
      signal: this.control.signal,
    });
    const rows = rowsOf(told);
    for (let n = 0; n < rows.length; n += this.size)
      this.pages.set(n / this.size, rows.slice(n, n + this.size));
    this.total = number(member(told, 'total_rows'));
    this.count = rows.length;
  }

  private async loadFirst(): Promise<void> {
    const { start, end, isExclusive, isDown, skip, limit } = this.range;
    const size = Math.min(this.size, limit ?? this.size);
    const [first, far] = await Promise.all([
      this.ask({
        startkey: start,
        skip,
        ...this.until(),
        descending: isDown,
        limit: size,
        ...this.docs(),
      }),
      end === undefined ? undefined : this.ask({ startkey: end, descending: !isDown, limit: 1 }),
    ]);
    const rows = rowsOf(first);
    const [offset, after] = [member(first, 'offset'), far && member(far, 'offset')];
    this.total = number(member(first, 'total_rows'));
    this.isOpen = !(offset instanceof Num) || (far !== undefined && !(after instanceof Num));
    this.base = number(offset);
    this.isEndOut = isExclusive === true && far !== undefined && rowsOf(far)[0]?.id === end;
    const all = this.isOpen
      ? rows.length
      : Math.max(0, this.total - this.base - number(after) - (this.isEndOut ? 1 : 0));
    // An empty range has no offset of its own.
    this.count = rows.length < size ? rows.length : Math.min(all, limit ?? all);
    this.isOpen &&= rows.length === this.size && this.count < (limit ?? Number.POSITIVE_INFINITY);
    this.keep(0, rows);
  }

  private async load(page: number): Promise<void> {
    const control = new AbortController();
    this.asked.set(page, control);
    const from = page * this.size;
    const limit = this.isOpen ? this.size : Math.min(this.size, (this.count ?? 0) - from);
    try {
      const rows = await this.reach(from, limit, control.signal);
      if (this.isOpen) this.grow(from, rows.length);
      this.keep(page, rows);
      this.error = undefined;
    } catch (error) {
      if (isAborted(error)) return;
      this.error = error;
    } finally {
      if (this.asked.get(page) === control) this.asked.delete(page);
    }
    if (!this.control.signal.aborted) this.changed();
  }

  private grow(from: number, found: number): void {
    this.count = Math.max(
      this.count ?? 0,
      Math.min(from + found, this.range.limit ?? Number.POSITIVE_INFINITY),
    );
    this.isOpen =
      found === this.size && this.count < (this.range.limit ?? Number.POSITIVE_INFINITY);
  }

  /** The rows from one on, by the shortest way. */
  private async reach(from: number, limit: number, signal: AbortSignal): Promise<DocRow[]> {
    const { start, end, isDown = false, skip = 0 } = this.range;
    const last = from + limit - 1;
    let ahead: { distance: number; startkey: string | undefined } = {
      distance: from + skip,
      startkey: start,
    };
    let back: { distance: number; startkey: string | undefined } | undefined;
    // From the end, where it is the range's own.
    if (!this.isOpen && this.range.limit === undefined)
      back = { distance: (this.count ?? 0) - 1 - last + (this.isEndOut ? 1 : 0), startkey: end };
    for (const { index, id } of this.anchors) {
      if (index <= from && from - index < ahead.distance)
        ahead = { distance: from - index, startkey: id };
      if (index >= last && (!back || index - last < back.distance))
        back = { distance: index - last, startkey: id };
    }
    if (!back || ahead.distance <= back.distance)
      return rowsOf(
        await this.ask(
          {
            startkey: ahead.startkey,
            skip: ahead.distance,
            ...this.until(),
            descending: isDown,
            limit,
            ...this.docs(),
          },
          signal,
        ),
      );
    const told = await this.ask(
      {
        startkey: back.startkey,
        skip: back.distance,
        endkey: start,
        descending: !isDown,
        limit,
        ...this.docs(),
      },
      signal,
    );
    return rowsOf(told).reverse();
  }

  private keep(page: number, rows: DocRow[]): void {
    this.pages.set(page, rows);
    const [first, last] = [rows[0], rows.at(-1)];
    const from = page * this.size;
    this.anchors = this.anchors.filter(({ index }) => Math.floor(index / this.size) !== page);
    if (first && last)
      this.anchors.push(
        { index: from, id: first.id },
        { index: from + rows.length - 1, id: last.id },
      );
    if (this.pages.size <= PAGES_MAX) return;
    const far = [...this.pages.keys()].reduce((a, b) =>
      Math.abs(b - page) > Math.abs(a - page) ? b : a,
    );
    this.pages.delete(far);
  }

  private until(): Query {
    return this.range.end === undefined
      ? {}
      : { endkey: this.range.end, inclusive_end: this.range.isExclusive ? false : undefined };
  }

  private docs(): Query {
    return this.withDocs ? { include_docs: true, conflicts: true } : {};
  }

  private async ask(query: Query, signal = this.control.signal): Promise<Json> {
    const quoted = Object.entries(query).map(([name, value]) => [
      name,
      name.endsWith('key') && value !== undefined
        ? JSON.stringify(value)
        : name === 'descending'
          ? value || undefined
          : value,
    ]);
    return read('GET', this.to, { query: Object.fromEntries(quoted) as Query, signal });
  }
}

export function rowsOf(told: Json): DocRow[] {
  const rows = member(told, 'rows');
  return Array.isArray(rows) ? rows.map(rowOf) : [];
}

function rowOf(row: Json): DocRow {
  const doc = member(row, 'doc');
  const id = text(member(row, 'id')) || text(member(row, 'key'));
  const missing =
    text(member(row, 'error')) || (member(row, 'value', 'deleted') === true ? 'deleted' : '');
  return {
    id,
    rev: text(member(row, 'value', 'rev')),
    doc: doc instanceof Obj ? doc : undefined,
    ...(missing && { missing }),
  };
}

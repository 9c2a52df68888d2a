import { signal } from '@preact/signals';
import { ApiError, ask, isAborted, lines, path, type Query, send } from '../../../api';
import { type Json, parse, text } from '../../../json';

/** What is asked for. */
export interface Wanted {
  db: string;
  /** `recent`: what came last, and then what comes. */
  since: string;
  includeDocs: boolean;
  query: Query;
  /** Of the filters `_selector` and `_doc_ids`. */
  body?: string | undefined;
  /** Left out here, as the server does not filter by it. */
  keep: (line: string) => boolean;
}

export type State = 'starting' | 'live' | 'waiting' | 'paused' | 'ended';

/** A change as it came; it is parsed when it is drawn. */
export interface Change {
  n: number;
  line: string;
}

const ROWS_MAX = 5000;
/** Documents can be large: characters that are held. */
const CHARACTERS_MAX = 32_000_000;
const RECENT = 100;
const WAITS_MS = [500, 1000, 2000, 5000];
const HEARTBEAT_MS = 20_000;

/**
 * A continuous feed. What comes goes to a bounded buffer at once; `drawn` changes at most once a
 * frame.
 */
export class Feed {
  readonly drawn = signal(0);
  readonly state = signal<State>('starting');
  readonly error = signal<unknown>(undefined);
  readonly rate = signal(0);
  /** The newest is last. */
  private kept: Change[] = [];
  private characters = 0;
  private control: AbortController | undefined;
  private seq: string | undefined;
  private frame = 0;
  private timer: ReturnType<typeof setInterval> | undefined;
  private marks: [at: number, count: number][] = [];
  count = 0;

  constructor(private readonly wanted: Wanted) {}

  get size(): number {
    return this.kept.length;
  }

  /** Of those that came, how many are not held any more. */
  get leftOut(): number {
    return this.count - this.kept.length;
  }

  /** The newest is 0. */
  at(index: number): Change | undefined {
    return index < this.kept.length ? this.kept.at(-1 - index) : undefined;
  }

  start(): void {
    if (this.control) return;
    this.control = new AbortController();
    this.timer = setInterval(() => this.measure(), 500);
    void this.run(this.control.signal);
  }

  /** Stops; what comes meanwhile is told after `start`. */
  stop(state: State = 'paused'): void {
    this.control?.abort();
    this.control = undefined;
    clearInterval(this.timer);
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.marks = [];
    this.rate.value = 0;
    this.state.value = state;
    this.drawn.value++;
  }

  clear(): void {
    this.kept = [];
    this.characters = 0;
    this.count = 0;
    this.drawn.value++;
  }

  private async run(stop: AbortSignal): Promise<void> {
    for (let failed = 0; !stop.aborted; ) {
      try {
        this.seq ??= await this.begin(stop);
        const response = await this.ask(
          { feed: 'continuous', since: this.seq, heartbeat: HEARTBEAT_MS },
          stop,
        );
        failed = 0;
        this.state.value = 'live';
        this.error.value = undefined;
        for await (const part of lines(response)) {
          if (stop.aborted) return;
          this.take(part);
        }
      } catch (error) {
        if (stop.aborted || isAborted(error)) return;
        if (error instanceof ApiError && error.status < 500 && error.status !== 429) {
          this.error.value = error;
          this.stop('ended');
          return;
        }
      }
      if (stop.aborted) return;
      this.state.value = 'waiting';
      await new Promise((resolve) =>
        setTimeout(resolve, WAITS_MS[Math.min(failed++, WAITS_MS.length - 1)]),
      );
    }
  }

  private ask(query: Query, signal: AbortSignal): Promise<Response> {
    const { db, body, includeDocs } = this.wanted;
    const all = { ...this.wanted.query, ...query, include_docs: includeDocs || undefined };
    return send(body === undefined ? 'GET' : 'POST', `${path(db)}/_changes`, {
      query: all,
      body,
      signal,
    });
  }

  /** Where the feed begins. What came last is asked for once, from its end. */
  private async begin(stop: AbortSignal): Promise<string> {
    const { since, db } = this.wanted;
    if (since !== 'recent') return since;
    const info = await ask<{ update_seq: string }>('GET', path(db), { signal: stop });
    const response = await this.ask({ descending: true, limit: RECENT }, stop);
    const rows: string[] = [];
    for await (const part of lines(response))
      rows.push(
        ...part
          .filter((line) => line.startsWith('{"seq"'))
          .map((line) => line.replace(/,\s*$/, '')),
      );
    this.add(rows.reverse());
    return String(info.update_seq);
  }

  private take(part: string[]): void {
    const last = part.at(-1) ?? '';
    const isEnd = last.startsWith('{"last_seq"');
    const rows = isEnd ? part.slice(0, -1) : part;
    const seq = seqOf(last) ?? seqOf(rows.at(-1) ?? '');
    if (seq !== undefined) this.seq = seq;
    this.add(rows);
  }

  private add(rows: string[]): void {
    for (const line of rows) {
      if (!this.wanted.keep(line)) continue;
      this.kept.push({ n: ++this.count, line });
      this.characters += line.length;
    }
    let gone = Math.max(0, this.kept.length - ROWS_MAX);
    for (let n = 0; n < gone; n++) this.characters -= this.kept[n]?.line.length ?? 0;
    while (this.characters > CHARACTERS_MAX && gone < this.kept.length - 1)
      this.characters -= this.kept[gone++]?.line.length ?? 0;
    if (gone > 0) this.kept.splice(0, gone);
    if (rows.length > 0 && this.frame === 0) this.frame = requestAnimationFrame(() => this.draw());
  }

  private draw(): void {
    this.frame = 0;
    this.drawn.value++;
  }

  /** Changes a second, of the last three. */
  private measure(): void {
    const now = performance.now();
    this.marks = [...this.marks.filter(([at]) => at > now - 3000), [now, this.count]];
    const [first] = this.marks;
    this.rate.value =
      first && now > first[0]
        ? Math.max(0, Math.round(((this.count - first[1]) * 1000) / (now - first[0])))
        : 0;
  }
}

/**
 * The sequence of a line, of either `seq` or `last_seq`: a text, or a number in CouchDB's oldest
 * way.
 */
function seqOf(line: string): string | undefined {
  const found = /^\{"(?:last_)?seq":\s*("(?:[^"\\]|\\.)*"|\d+)/.exec(line)?.[1];
  return found === undefined ? undefined : text(parse(found)) || found;
}

const HEAD =
  /^\{"seq":\s*(?:"[^"]*"|\d+|null),\s*"id":\s*"((?:[^"\\]|\\.)*)",\s*"changes":\s*\[[^\]]*\](,\s*"deleted":\s*true)?/;

/** What of a line can be said without parsing it, documents and all. */
export function headOf(line: string): { id: string; isDeleted: boolean } {
  const found = HEAD.exec(line);
  if (!found) return { id: '', isDeleted: /"deleted":\s*true/.test(line) };
  const raw = found[1] ?? '';
  return {
    id: raw.includes('\\') ? text(parse(`"${raw}"`)) : raw,
    isDeleted: found[2] !== undefined,
  };
}

const parsed = new WeakMap<Change, Json>();

/** A change, parsed once. */
export function read(change: Change): Json {
  const found = parsed.get(change);
  if (found !== undefined) return found;
  let value: Json;
  try {
    value = parse(change.line);
  } catch {
    value = null;
  }
  parsed.set(change, value);
  return value;
}

import { type Json, Num, Obj } from './value';

/** Text that is no JSON: where, and why. */
export class JsonError extends Error {
  constructor(
    readonly problem: Problem,
    /** Characters from the start. */
    readonly at: number,
    readonly line: number,
    readonly column: number,
  ) {
    super(`${problem} (line ${line}, column ${column})`);
  }
}

export type Problem =
  | 'value'
  | 'comma'
  | 'colon'
  | 'name'
  | 'string'
  | 'escape'
  | 'number'
  | 'end'
  | 'deep'
  | 'more';

const DEPTH_MAX = 512;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const SPACE = /[ \t\n\r]*/y;
/** A string without escapes. */
const PLAIN = /"[^"\\\u0000-\u001f]*"/y;
const ANY = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
/** As `ANY`, as far as it goes: long strings with escapes would exhaust the stack of the above. */
const PART = /[^"\\\u0000-\u001f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const LONG = 10_000;

/** Reads JSON. Of names that stand twice in an object the last value counts, as for CouchDB. */
export function parse(source: string): Json {
  return new Parser(source).whole();
}

class Parser {
  private at = 0;

  constructor(private readonly source: string) {}

  whole(): Json {
    this.space();
    const value = this.value(0);
    this.space();
    if (this.at < this.source.length) this.fail('more');
    return value;
  }

  private value(depth: number): Json {
    if (depth > DEPTH_MAX) this.fail('deep');
    switch (this.source[this.at]) {
      case '{':
        return this.object(depth);
      case '[':
        return this.array(depth);
      case '"':
        return this.string();
      case 't':
        return this.word('true', true);
      case 'f':
        return this.word('false', false);
      case 'n':
        return this.word('null', null);
      case undefined:
        return this.fail('end');
      default:
        return this.number();
    }
  }

  private object(depth: number): Obj {
    const members = new Obj();
    this.at++;
    this.space();
    if (this.takes('}')) return members;
    while (true) {
      if (this.source[this.at] !== '"') this.fail(this.isEnd() ? 'end' : 'name');
      const name = this.string();
      this.space();
      if (!this.takes(':')) this.fail(this.isEnd() ? 'end' : 'colon');
      this.space();
      members.set(name, this.value(depth + 1));
      this.space();
      if (this.takes('}')) return members;
      if (!this.takes(',')) this.fail(this.isEnd() ? 'end' : 'comma');
      this.space();
    }
  }

  private array(depth: number): Json[] {
    const values: Json[] = [];
    this.at++;
    this.space();
    if (this.takes(']')) return values;
    while (true) {
      values.push(this.value(depth + 1));
      this.space();
      if (this.takes(']')) return values;
      if (!this.takes(',')) this.fail(this.isEnd() ? 'end' : 'comma');
      this.space();
    }
  }

  private string(): string {
    const plain = this.match(PLAIN);
    if (plain !== undefined) return plain.slice(1, -1);
    const from = this.at;
    const quick = this.source.indexOf('"', from + 1) - from < LONG ? this.match(ANY) : undefined;
    if (quick !== undefined) return JSON.parse(quick) as string;
    this.at = from + 1;
    while (this.match(PART) !== undefined);
    if (this.source[this.at] !== '"')
      this.fail(this.isEnd() ? 'end' : this.source[this.at] === '\\' ? 'escape' : 'string');
    this.at++;
    return JSON.parse(this.source.slice(from, this.at)) as string;
  }

  private number(): Num {
    const from = this.at;
    const text = this.match(NUMBER);
    if (text === undefined) return this.fail('value');
    // `01` and `1.` begin as numbers do.
    if (/[0-9.eE+-]/.test(this.source[this.at] ?? '')) {
      this.at = from;
      this.fail('number');
    }
    return new Num(text);
  }

  private word<T>(word: string, value: T): T {
    if (!this.source.startsWith(word, this.at)) return this.fail('value');
    this.at += word.length;
    return value;
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.source)?.[0];
    if (found !== undefined) this.at += found.length;
    return found;
  }

  private takes(character: string): boolean {
    const is = this.source[this.at] === character;
    if (is) this.at++;
    return is;
  }

  private space(): void {
    const next = this.source.charCodeAt(this.at);
    if (next === 32 || (next >= 9 && next <= 13)) this.match(SPACE);
  }

  private isEnd(): boolean {
    return this.at >= this.source.length;
  }

  private fail(problem: Problem): never {
    const before = this.source.slice(0, this.at);
    const line = before.split('\n').length;
    throw new JsonError(problem, this.at, line, this.at - before.lastIndexOf('\n'));
  }
}

/** A number as its text: `JSON.parse` would make 9223372036854775807 another one, and 1 of 1.0. */
export class Num {
  constructor(readonly text: string) {}

  get value(): number {
    return Number(this.text);
  }
}

/** Members in their order. `Map`, as plain objects put names like `1` first. */
export class Obj extends Map<string, Json> {}

export type Json = null | boolean | string | Num | Json[] | Obj;

/** A member of an object; `undefined` for one that is not there, and for what is no object. */
export function member(value: Json | undefined, ...path: string[]): Json | undefined {
  let at = value;
  for (const name of path) at = at instanceof Obj ? at.get(name) : undefined;
  return at;
}

/** A text, or `''`. */
export function text(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}

/** A number, or 0: for what is counted, not for what is edited. */
export function number(value: Json | undefined): number {
  return value instanceof Num ? value.value : 0;
}

/** Makes it of plain values. A `number` becomes the text that JavaScript has for it. */
export function from(value: unknown): Json {
  if (
    value === null ||
    value === undefined ||
    typeof value === 'boolean' ||
    typeof value === 'string'
  )
    return value ?? null;
  if (value instanceof Num || value instanceof Obj) return value;
  if (typeof value === 'number') return Number.isFinite(value) ? new Num(String(value)) : null;
  if (Array.isArray(value)) return value.map(from);
  return new Obj(
    Object.entries(value as object)
      .filter(([, of]) => of !== undefined)
      .map(([name, of]) => [name, from(of)]),
  );
}

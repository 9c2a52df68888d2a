import assert from 'node:assert/strict';

/** Compares the members that are expected; others may be there too. */
export function matches(actual: unknown, expected: object, message?: string): void {
  const all = actual as Record<string, unknown>;
  const some = Object.fromEntries(Object.keys(expected).map((name) => [name, all[name]]));
  assert.deepEqual(some, { ...expected }, message);
}

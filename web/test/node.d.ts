// The parts of Node's modules that the tests use. Node's own types would change those of the pages:
// timers are numbers in a browser.

declare module 'node:test' {
  type Work = () => void | Promise<void>;
  export const describe: (name: string, work: Work) => void;
  export const it: (name: string, work: Work) => void;
  export const test: (name: string, work: Work) => void;
}

declare module 'node:assert/strict' {
  const assert: {
    ok(value: unknown, message?: string): asserts value;
    strictEqual(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    match(text: string, expected: RegExp, message?: string): void;
    throws(work: () => unknown, error: unknown): void;
    rejects(work: Promise<unknown> | (() => Promise<unknown>), error: unknown): Promise<void>;
  };
  export default assert;
}

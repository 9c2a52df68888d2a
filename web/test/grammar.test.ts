import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parser } from '../src/editor/javascript/parser';

/** Where the grammar finds mistakes. */
function mistakes(source: string): number[] {
  const found: number[] = [];
  parser.parse(source).iterate({
    enter: ({ type, from }) => {
      if (type.isError) found.push(from);
    },
  });
  return found;
}

test('design functions of any edition of JavaScript are read without a mistake', () => {
  for (const source of [
    'var f = function (doc) { if (!doc.a) return\n emit([doc.a, doc.b++], {v: 1, "w": [,2], [k]: 3}) }',
    'doc => emit(doc._id)',
    '(doc, {db: name, ...rest} = {}, [first, ...others]) => ({id: doc._id, first})',
    'async (a) => { for await (const x of y) { await x; } }',
    'function f() { label: for (let i = 0, n = 9; i < n; i += 2) { if (i in o) continue label; else break } }',
    'class A extends B { static #x = 1; static { this.y = 2 } get x() { return this.#x } async *all() { yield* super.all() } }',
    'switch (a) { case 1: case "b": throw new Error(`no x`); default: debugger }',
    'try { x?.y?.[0]?.(1) } catch { y ||= 2 ** 3 } finally { z = a ? b : c, delete d.e }',
    'var r = /[/\\]]+/gi.test(s), big = 9_007n, o = {get a() { return 1 }, set a(v) {}, async b() {}, *c() {}}',
    'exports.lib = require("views/lib/x"), typeof a === "function" && void 0',
    '`no $\x7ba ?? `x$\x7b1}`}`',
    'do { i-- } while (i > 0)\nwith (o) { p = new.target }',
    '',
  ])
    assert.deepEqual(mistakes(source), [], source);
});

test('a mistake is found where it is', () => {
  for (const [source, at] of [
    ['var a = ;', 8],
    ['f(1, 2', 6],
    ['if (a { b }', 6],
    ['var x = 1;\nvar 2y = 3;', 15],
    ['a = {b: 1 c: 2}', 10],
    ['return "open', 12],
  ] as const)
    assert.ok(
      mistakes(source).some((found) => Math.abs(found - at) <= 1),
      `${source}: ${mistakes(source)}`,
    );
});

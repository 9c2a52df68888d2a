import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { from, JsonError, member, Num, Obj, parse, print } from '../src/json';
import { matches } from './matches';

describe('JSON without loss', () => {
  it('gives back what it was given', () => {
    for (const text of [
      '9223372036854775807',
      '1.0',
      '-0',
      '1E400',
      '0.10',
      '{"b":1,"a":2,"10":3,"2":4}',
      '["",null,true,false,{},[]]',
      '"\u2028 \u00e9 \ud83d\ude00"',
      '{"a":{"b":[1,{"c":[]}]}}',
      '{"__proto__":1,"constructor":2}',
    ]) {
      assert.strictEqual(print(parse(text)), text);
      assert.strictEqual(print(parse(print(parse(text), 2))), text);
    }
  });

  it('reads what the browser reads, and refuses what it refuses', () => {
    const pieces = [
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"a"',
      '"\\n"',
      '"\\x"',
      '1',
      '-',
      '01',
      '1.',
      '1e5',
      'true',
      'nul',
      ' ',
      '\n',
      '"',
      '\\',
      '\u0001',
    ];
    let state = 7;
    const random = (below: number) => {
      state = (state * 48_271) % 2_147_483_647;
      return state % below;
    };
    for (let n = 0; n < 50_000; n++) {
      let source = '';
      for (let m = random(7); m >= 0; m--) source += pieces[random(pieces.length)];
      let wanted: unknown = JsonError;
      try {
        wanted = JSON.parse(source);
      } catch {
        // It is no JSON.
      }
      let got: unknown = JsonError;
      try {
        got = JSON.parse(print(parse(source)));
      } catch (error) {
        if (!(error instanceof JsonError)) throw error;
      }
      assert.deepEqual(got, wanted, source);
    }
  });

  it('says where the mistake is', () => {
    for (const [source, problem, line, column] of [
      ['{"a": 1\n "b": 2}', 'comma', 2, 2],
      ['[1,]', 'value', 1, 4],
      ['{"a" 1}', 'colon', 1, 6],
      ['{a: 1}', 'name', 1, 2],
      ['["\\q"]', 'escape', 1, 3],
      ['01', 'number', 1, 1],
      ['{"a": 1', 'end', 1, 8],
      ['1 2', 'more', 1, 3],
    ] as const) {
      let error: unknown;
      try {
        parse(source);
      } catch (thrown) {
        error = thrown;
      }
      matches(error, { problem, line, column }, source);
    }
  });

  it('reads long strings and deep values', () => {
    const long = JSON.stringify('a"\\\n'.repeat(1_000_000));
    assert.strictEqual(print(parse(long)), long);
    const deep = '['.repeat(500) + ']'.repeat(500);
    assert.strictEqual(print(parse(deep)), deep);
    assert.throws(() => parse('['.repeat(600)), JsonError);
  });

  it('is made of plain values', () => {
    const value = from({ a: [1, 'x', null], b: undefined, c: new Num('1.0') });
    assert.strictEqual(print(value), '{"a":[1,"x",null],"c":1.0}');
    assert.ok(Array.isArray(member(value, 'a')));
    assert.strictEqual(member(new Obj(), 'a', 'b'), undefined);
  });
});

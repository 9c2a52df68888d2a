import { describe, expect, it } from 'vitest';
import { from, Num, Obj } from '../src/json';
import { lineOf, put } from '../src/pages/database/document/source';
import { shape } from '../src/pages/database/document/tree';

describe('put', () => {
  it('changes one member and leaves the rest byte for byte', () => {
    expect(
      put('{ "a":1.0 ,\n"_rev" : "1-a", "rev":"x", "s":"\\"_rev\\": \\\\"}', '_rev', '2-b'),
    ).toBe('{ "a":1.0 ,\n"_rev" : "2-b", "rev":"x", "s":"\\"_rev\\": \\\\"}');
  });
  it('does not take a nested member for its own', () => {
    expect(put('{"a":{"_rev":"x"},"_rev":"1-a"}', '_rev', '2-b')).toBe(
      '{"a":{"_rev":"x"},"_rev":"2-b"}',
    );
  });
  it('adds a revision after the id, and other members at the end', () => {
    expect(put('{"_id":"a","n":1.0}', '_rev', '1-a')).toBe('{"_id":"a","_rev":"1-a","n":1.0}');
    expect(put('{\n  "n": 1.0\n}', 'm', new Num('9223372036854775807'))).toBe(
      '{\n  "n": 1.0,\n  "m": 9223372036854775807\n}',
    );
    expect(put('{}', 'm', from([]))).toBe('{"m":[]}');
  });
  it('removes the first, a middle, the last and the only member', () => {
    expect(put('{"a":1,"b":2,"c":3}', 'a', undefined)).toBe('{"b":2,"c":3}');
    expect(put('{"a":1,"b":[2],"c":3}', 'b', undefined)).toBe('{"a":1,"c":3}');
    expect(put('{"a":1,"b":{"x":"}"}}', 'b', undefined)).toBe('{"a":1}');
    expect(put('{"a":1}', 'a', undefined)).toBe('{}');
  });
  it('finds the line of a member', () => {
    expect(lineOf('{\n "a": "x\\ny",\n "_foo": 1\n}', '_foo')).toBe(3);
  });
});

describe('the tree of revisions', () => {
  const leaf = (isDeleted: boolean, ...history: string[]) => ({
    rev: history[0] ?? '',
    isDeleted,
    isWinner: false,
    doc: new Obj(),
    history,
  });
  it('has each revision once, with lanes of their own after the fork', () => {
    const nodes = shape([leaf(false, '3-a', '2-a', '1-r'), leaf(false, '2-b', '1-r')], new Map());
    expect(nodes.map(({ rev, lane, parent }) => [rev, lane, parent])).toEqual([
      ['3-a', 0, '2-a'],
      ['2-a', 0, '1-r'],
      ['2-b', 1, '1-r'],
      ['1-r', 0, undefined],
    ]);
  });
  it('folds long runs of compacted revisions', () => {
    const history = Array.from({ length: 50 }, (_, n) => `${50 - n}-x`);
    const nodes = shape(
      [leaf(false, ...history)],
      new Map(history.map((rev, n) => [rev, n === 0])),
    );
    expect(nodes.map(({ rev, more }) => [rev, more])).toEqual([
      ['50-x', 0],
      ['49-x', 49],
    ]);
  });
  it('bears histories that do not reach the root', () => {
    expect(
      shape([leaf(false, '9-a', '8-a'), leaf(true, '4-b')], new Map()).map(({ rev }) => rev),
    ).toEqual(['9-a', '8-a', '4-b']);
  });
});

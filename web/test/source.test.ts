import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { from, Num, Obj } from '../src/json';
import { lineOf, put } from '../src/pages/database/document/source';
import { shape } from '../src/pages/database/document/tree';

describe('put', () => {
  it('changes one member and leaves the rest byte for byte', () => {
    assert.strictEqual(
      put('{ "a":1.0 ,\n"_rev" : "1-a", "rev":"x", "s":"\\"_rev\\": \\\\"}', '_rev', '2-b'),
      '{ "a":1.0 ,\n"_rev" : "2-b", "rev":"x", "s":"\\"_rev\\": \\\\"}',
    );
  });
  it('does not take a nested member for its own', () => {
    assert.strictEqual(
      put('{"a":{"_rev":"x"},"_rev":"1-a"}', '_rev', '2-b'),
      '{"a":{"_rev":"x"},"_rev":"2-b"}',
    );
  });
  it('adds a revision after the id, and other members at the end', () => {
    assert.strictEqual(
      put('{"_id":"a","n":1.0}', '_rev', '1-a'),
      '{"_id":"a","_rev":"1-a","n":1.0}',
    );
    assert.strictEqual(
      put('{\n  "n": 1.0\n}', 'm', new Num('9223372036854775807')),
      '{\n  "n": 1.0,\n  "m": 9223372036854775807\n}',
    );
    assert.strictEqual(put('{}', 'm', from([])), '{"m":[]}');
  });
  it('removes the first, a middle, the last and the only member', () => {
    assert.strictEqual(put('{"a":1,"b":2,"c":3}', 'a', undefined), '{"b":2,"c":3}');
    assert.strictEqual(put('{"a":1,"b":[2],"c":3}', 'b', undefined), '{"a":1,"c":3}');
    assert.strictEqual(put('{"a":1,"b":{"x":"}"}}', 'b', undefined), '{"a":1}');
    assert.strictEqual(put('{"a":1}', 'a', undefined), '{}');
  });
  it('finds the line of a member', () => {
    assert.strictEqual(lineOf('{\n "a": "x\\ny",\n "_foo": 1\n}', '_foo'), 3);
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
    assert.deepEqual(
      nodes.map(({ rev, lane, parent }) => [rev, lane, parent]),
      [
        ['3-a', 0, '2-a'],
        ['2-a', 0, '1-r'],
        ['2-b', 1, '1-r'],
        ['1-r', 0, undefined],
      ],
    );
  });
  it('folds long runs of compacted revisions', () => {
    const history = Array.from({ length: 50 }, (_, n) => `${50 - n}-x`);
    const nodes = shape(
      [leaf(false, ...history)],
      new Map(history.map((rev, n) => [rev, n === 0])),
    );
    assert.deepEqual(
      nodes.map(({ rev, more }) => [rev, more]),
      [
        ['50-x', 0],
        ['49-x', 49],
      ],
    );
  });
  it('bears histories that do not reach the root', () => {
    assert.deepEqual(
      shape([leaf(false, '9-a', '8-a'), leaf(true, '4-b')], new Map()).map(({ rev }) => rev),
      ['9-a', '8-a', '4-b'],
    );
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { from, Obj, parse, print } from '../src/json';
import { beginning, queryOf, rangeOf } from '../src/pages/database/documents/range';
import {
  conditions,
  fieldsOf,
  indexBody,
  indexOf,
  nameOf,
  suggest,
  TEMPLATES,
} from '../src/pages/database/query/ask';
import {
  guessOf,
  narrowsOf,
  queryOf as searchQuery,
  toggled,
  wantedOf,
} from '../src/pages/database/search/request';

test('a range survives its address', () => {
  for (const address of [
    'startkey="a"&endkey="b"&inclusive_end=false&descending=true',
    'keys=["a","b"]&skip=3&limit=0',
    'partition=p',
  ]) {
    const range = rangeOf(new URLSearchParams(address));
    const kept = Object.entries(queryOf(range)).filter(([, value]) => value !== undefined);
    assert.deepEqual(
      new Map(kept.map(([name, value]) => [name, value ?? ''])),
      new Map(new URLSearchParams(address)),
    );
  }
});

test('keys may be JSON or plain, by old names too', () => {
  assert.deepEqual(rangeOf(new URLSearchParams('start_key=a&end_key="b"&key=c&limit=x')), {
    start: 'a',
    end: 'b',
    keys: ['c'],
  });
  assert.deepEqual(beginning('a', false), { start: 'a', end: 'a\ufff0' });
  assert.deepEqual(beginning('a', true), { start: 'a\ufff0', end: 'a', isDown: true });
});

const EXPLAINED = from({
  selector: {
    $and: [{ type: { $eq: 'order' } }, { total: { $gt: 1 } }, { tag: { $in: ['a'] } }],
  },
  opts: { sort: { date: 'asc' } },
});

test('an index is named after its fields, as no other one is', () => {
  assert.strictEqual(nameOf(['type', 'address.city'], []), 'by-type-address.city');
  assert.strictEqual(nameOf(['größe / maß'], []), 'by-größe-maß');
  assert.strictEqual(nameOf(['a'], ['by-a', 'by-a-2']), 'by-a-3');
  assert.ok(nameOf(['x'.repeat(1000)], []).length < 100);
});

test('an index is suggested: equal fields, the order, then ranges', () => {
  assert.deepEqual(suggest(EXPLAINED), ['type', 'date', 'tag', 'total']);
  assert.deepEqual(suggest(from({ selector: { _id: { $gt: null } }, opts: {} })), []);
  assert.deepEqual(conditions(from({ $or: [], a: 1 })), [
    ['$or', ''],
    ['a', '$eq'],
  ]);
});

test('an index is read and written', () => {
  const index = indexOf(
    from({ ddoc: '_design/x', name: 'n', type: 'json', def: { fields: [{ a: 'desc' }, 'b'] } }),
  );
  assert.deepEqual(fieldsOf(index), [
    ['a', 'desc'],
    ['b', 'asc'],
  ]);
  assert.strictEqual(
    print(indexBody(['a'], { name: ' n ', partial: '{"x":1.0}', partitioned: true })),
    '{"index":{"fields":["a"],"partial_filter_selector":{"x":1.0}},"type":"json","name":"n","partitioned":true}',
  );
});

test('templates are queries', () => {
  for (const template of Object.values(TEMPLATES)) {
    const query = parse(template);
    assert.ok(query instanceof Obj && query.has('selector'));
  }
});

const FIELDS = [
  { name: 'a', hasCounts: true, hasText: false },
  { name: 'b', hasCounts: false, hasText: true },
];

test('a search begins with what its definition suggests, and keeps what was emptied', () => {
  const guess = guessOf(FIELDS);
  assert.deepEqual(guess, { counts: 'a', highlight_fields: 'b' });
  assert.deepEqual(wantedOf(new URLSearchParams('q=x&counts='), guess), {
    q: 'x',
    counts: '',
    highlight_fields: 'b',
  });
  const query = searchQuery({ q: 'x', counts: '', highlight_fields: 'b' }, guess);
  assert.deepEqual(query, { q: 'x', counts: ' ', highlight_fields: '' });
});

test('a restriction is added once, and removed again', () => {
  const one = toggled([], ['tag', 'x', false]);
  assert.deepEqual(narrowsOf({ narrow: one }), [['tag', 'x', false]]);
  assert.strictEqual(toggled(narrowsOf({ narrow: one }), ['tag', 'x', false]), '');
  assert.deepEqual(narrowsOf({ narrow: '{' }), []);
});

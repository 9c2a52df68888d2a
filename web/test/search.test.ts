import assert from 'node:assert/strict';
import { test } from 'node:test';
import { from, print } from '../src/json';
import { definitionOf, draftOf } from '../src/pages/database/search/definition';
import {
  bodyOf,
  fieldsOf,
  groupsOf,
  isWithin,
  type Kind,
  limitOf,
  rangesOf,
  TAGS,
} from '../src/pages/database/search/request';
import { matches } from './matches';

const NOUVEAU = from({
  default_analyzer: 'english',
  field_analyzers: { book: 'keyword' },
  index:
    'function (doc) { index("text", "default", doc.text, {store: true}); index("string", "book", doc.book); index(\'double\', \'year\', doc.year, {"store": true}); }',
});
const CLOUSEAU = from({
  index:
    "function (doc) { index('default', doc.text, {'store': 'yes'}); index('tag', doc.tag, {facet: true, store: true}); }",
});

test('fields that a function names, with what it says of them', () => {
  assert.deepEqual(fieldsOf('_nouveau', NOUVEAU), [
    { name: 'default', hasCounts: false, hasText: true },
    { name: 'book', hasCounts: true, hasText: false },
    { name: 'year', hasCounts: false, hasText: false },
  ]);
  assert.deepEqual(fieldsOf('_search', CLOUSEAU), [
    { name: 'default', hasCounts: false, hasText: true },
    { name: 'tag', hasCounts: true, hasText: false },
  ]);
  // An index of Mango has no function.
  assert.deepEqual(fieldsOf('_search', from({ index: { fields: 'all_fields' } })), []);
});

test('ranges of fields, and what is none', () => {
  assert.deepEqual(
    rangesOf('year [0 TO 2000} [2000 TO *], price[0 TO .5], year [-1 TO 0]'),
    new Map([
      ['year', ['[0 TO 2000}', '[2000 TO *]', '[-1 TO 0]']],
      ['price', ['[0 TO .5]']],
    ]),
  );
  assert.deepEqual(rangesOf(' '), new Map());
  for (const wrong of [
    'year',
    'year 1 2',
    'year [a TO b]',
    'year [1 TO 2',
    '[1 TO 2]',
    'year [0 TO 1e3]',
    'year [0x1 TO 3]',
    'year [+1 TO 3]',
    'x [y [0 TO 5]',
    'year [1 TO 2] '.repeat(1000),
  ])
    assert.strictEqual(rangesOf(wrong), undefined, wrong);
});

test('the same wishes for both interfaces', () => {
  const wanted = {
    q: 'fox',
    counts: 'book, tag',
    ranges: 'year [* TO 2000}',
    sort: '<distance,lon,lat,8,50,km>, -year',
    limit: '3',
    include_docs: 'true',
  };
  // As they are sent: without members that are undefined.
  const sent = (kind: Kind) => JSON.parse(print(from(bodyOf(kind, wanted)))) as unknown;
  const both = {
    q: 'fox',
    limit: 3,
    sort: ['<distance,lon,lat,8,50,km>', '-year'],
    counts: ['book', 'tag'],
    include_docs: true,
  };
  assert.deepEqual(sent('_search'), {
    ...both,
    ranges: { year: { '[* TO 2000}': '[* TO 2000}' } },
  });
  assert.deepEqual(sent('_nouveau'), {
    ...both,
    top_n: 100,
    ranges: {
      year: [{ label: '[* TO 2000}', max: 2000, min_inclusive: true, max_inclusive: false }],
    },
  });
  assert.deepEqual(
    ['x', '0', '30', '100000'].map((limit) => limitOf({ limit })),
    [25, 1, 30, 200],
  );
  const many = Array.from({ length: 120 }, (_, n) => `[${n} TO ${n}]`).join(' ');
  matches(bodyOf('_nouveau', { q: 'a', ranges: `n ${many}` }), { top_n: 120 });
});

test('a search is narrowed by drilldown to strings as they are, and by clauses to ranges', () => {
  const narrow = JSON.stringify([
    ['tag', 'Big Animal', false],
    ['book', '1 "Sam"', false],
    ['a-b:c', '[2000 TO *]', true],
  ]);
  for (const kind of ['_search', '_nouveau'] as const)
    matches(bodyOf(kind, { q: 'a OR b', narrow }), {
      q: '+(a OR b) +a\\-b\\:c:[2000 TO *]',
      drilldown: [
        ['tag', 'Big Animal'],
        ['book', '1 "Sam"'],
      ],
    });
});

test('a field that a function names twice has what either call says', () => {
  const twice = from({
    index:
      "function (doc) { index('tag', doc.tag, {facet: true}); index('tag', doc.other, {store: true}); }",
  });
  assert.deepEqual(fieldsOf('_search', twice), [{ name: 'tag', hasCounts: true, hasText: true }]);
});

test('analyzers by field stay as they are, also without fields', () => {
  const saved = from({ analyzer: { name: 'perfield', default: 'english' }, index: 'x' });
  assert.strictEqual(
    print(definitionOf('_search', saved, draftOf('_search', saved))),
    print(saved),
  );
});

test('groups have an order and a number of their own, and without a field there are none', () => {
  const wanted = { q: 'a', group_field: 'tag', group_sort: '-year', group_limit: '3' };
  matches(bodyOf('_search', wanted), {
    group_field: 'tag',
    group_sort: from(['-year']),
    group_limit: 3,
  });
  assert.deepEqual(
    Object.keys(bodyOf('_search', { ...wanted, group_field: ' ' }) as object).filter((name) =>
      name.startsWith('group'),
    ),
    [],
  );
  assert.deepEqual(
    ['', 'x', '7', '999'].map((limit) => groupsOf({ group_limit: limit })),
    [10, 10, 7, 200],
  );
});

test('numbers that may be', () => {
  assert.strictEqual(
    [undefined, '', ' ', '1', '200'].every((source) => isWithin(source, 200)),
    true,
  );
  for (const wrong of ['0', '201', '-1', '1.5', '1e2', 'x'])
    assert.strictEqual(isWithin(wrong, 200), false, wrong);
});

test('each interface has its own way to ask for an index as it is', () => {
  matches(bodyOf('_nouveau', { q: 'a' }, { isAsItIs: true }), { update: false });
  matches(bodyOf('_search', { q: 'a' }, { isAsItIs: true }), { stale: 'ok' });
});

test('what is copied has tags that can be read', () => {
  matches(bodyOf('_nouveau', { q: 'a', highlight_fields: 'default' }, { marks: TAGS }), {
    highlight_pre_tag: '<em>',
    highlight_post_tag: '</em>',
  });
});

test('what was found is marked by signs that no text has', () => {
  matches(bodyOf('_nouveau', { q: 'a', highlight_fields: 'default' }), {
    highlight_fields: ['default'],
    highlight_pre_tag: '\u0002',
    highlight_post_tag: '\u0003',
  });
});

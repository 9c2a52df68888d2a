import { expect, test, vi } from 'vitest';
import { from, print } from '../src/json';
import {
  bodyOf,
  fieldsOf,
  groupsOf,
  isWithin,
  limitOf,
  rangesOf,
  TAGS,
} from '../src/pages/database/search/request';

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
  expect(fieldsOf('_nouveau', NOUVEAU)).toEqual([
    { name: 'default', hasCounts: false, hasText: true },
    { name: 'book', hasCounts: true, hasText: false },
    { name: 'year', hasCounts: false, hasText: false },
  ]);
  expect(fieldsOf('_search', CLOUSEAU)).toEqual([
    { name: 'default', hasCounts: false, hasText: true },
    { name: 'tag', hasCounts: true, hasText: false },
  ]);
  // An index of Mango has no function.
  expect(fieldsOf('_search', from({ index: { fields: 'all_fields' } }))).toEqual([]);
});

test('ranges of fields, and what is none', () => {
  expect(rangesOf('year [0 TO 2000} [2000 TO *], price[0 TO .5], year [-1 TO 0]')).toEqual(
    new Map([
      ['year', ['[0 TO 2000}', '[2000 TO *]', '[-1 TO 0]']],
      ['price', ['[0 TO .5]']],
    ]),
  );
  expect(rangesOf(' ')).toEqual(new Map());
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
    expect(rangesOf(wrong), wrong).toBeUndefined();
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
  const both = {
    q: 'fox',
    limit: 3,
    sort: from(['<distance,lon,lat,8,50,km>', '-year']),
    counts: ['book', 'tag'],
    include_docs: true,
  };
  expect(bodyOf('_search', wanted)).toEqual({
    ...both,
    ranges: { year: { '[* TO 2000}': '[* TO 2000}' } },
  });
  expect(bodyOf('_nouveau', wanted)).toEqual({
    ...both,
    top_n: 100,
    ranges: {
      year: [{ label: '[* TO 2000}', max: 2000, min_inclusive: true, max_inclusive: false }],
    },
  });
  expect(['x', '0', '30', '100000'].map((limit) => limitOf({ limit }))).toEqual([25, 1, 30, 200]);
  const many = Array.from({ length: 120 }, (_, n) => `[${n} TO ${n}]`).join(' ');
  expect(bodyOf('_nouveau', { q: 'a', ranges: `n ${many}` })).toMatchObject({ top_n: 120 });
});

test('a search is narrowed by drilldown to strings as they are, and by clauses to ranges', () => {
  const narrow = JSON.stringify([
    ['tag', 'Big Animal', false],
    ['book', '1 "Sam"', false],
    ['a-b:c', '[2000 TO *]', true],
  ]);
  for (const kind of ['_search', '_nouveau'] as const)
    expect(bodyOf(kind, { q: 'a OR b', narrow })).toMatchObject({
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
  expect(fieldsOf('_search', twice)).toEqual([{ name: 'tag', hasCounts: true, hasText: true }]);
});

test('analyzers by field stay as they are, also without fields', async () => {
  vi.stubGlobal('location', new URL('http://127.0.0.1/_utils/'));
  const { definitionOf, draftOf } = await import('../src/pages/database/search/definition');
  const saved = from({ analyzer: { name: 'perfield', default: 'english' }, index: 'x' });
  expect(print(definitionOf('_search', saved, draftOf('_search', saved)))).toBe(print(saved));
});

test('groups have an order and a number of their own, and without a field there are none', () => {
  const wanted = { q: 'a', group_field: 'tag', group_sort: '-year', group_limit: '3' };
  expect(bodyOf('_search', wanted)).toMatchObject({
    group_field: 'tag',
    group_sort: from(['-year']),
    group_limit: 3,
  });
  expect(
    Object.keys(bodyOf('_search', { ...wanted, group_field: ' ' }) as object).filter((name) =>
      name.startsWith('group'),
    ),
  ).toEqual([]);
  expect(['', 'x', '7', '999'].map((limit) => groupsOf({ group_limit: limit }))).toEqual([
    10, 10, 7, 200,
  ]);
});

test('numbers that may be', () => {
  expect([undefined, '', ' ', '1', '200'].every((source) => isWithin(source, 200))).toBe(true);
  for (const wrong of ['0', '201', '-1', '1.5', '1e2', 'x'])
    expect(isWithin(wrong, 200), wrong).toBe(false);
});

test('each interface has its own way to ask for an index as it is', () => {
  expect(bodyOf('_nouveau', { q: 'a' }, { isAsItIs: true })).toMatchObject({ update: false });
  expect(bodyOf('_search', { q: 'a' }, { isAsItIs: true })).toMatchObject({ stale: 'ok' });
});

test('what is copied has tags that can be read', () => {
  expect(
    bodyOf('_nouveau', { q: 'a', highlight_fields: 'default' }, { marks: TAGS }),
  ).toMatchObject({ highlight_pre_tag: '<em>', highlight_post_tag: '</em>' });
});

test('what was found is marked by signs that no text has', () => {
  expect(bodyOf('_nouveau', { q: 'a', highlight_fields: 'default' })).toMatchObject({
    highlight_fields: ['default'],
    highlight_pre_tag: '\u0002',
    highlight_post_tag: '\u0003',
  });
});

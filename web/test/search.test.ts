import { expect, test } from 'vitest';
import { from } from '../src/json';
import { bodyOf, fieldsOf, limitOf, rangesOf } from '../src/pages/database/search/request';

const NOUVEAU = from({ default_analyzer: 'english', field_analyzers: { book: 'keyword' }, index: 'function (doc) { index("text", "default", doc.text, {store: true}); index("string", "book", doc.book); index(\'double\', \'year\', doc.year, {"store": true}); }' });
const CLOUSEAU = from({ index: "function (doc) { index('default', doc.text, {'store': 'yes'}); index('tag', doc.tag, {facet: true, store: true}); }" });

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
  expect(rangesOf('year [0 TO 2000} [2000 TO *], price[0 TO 1e3]')).toEqual(
    new Map([
      ['year', ['[0 TO 2000}', '[2000 TO *]']],
      ['price', ['[0 TO 1e3]']],
    ]),
  );
  expect(rangesOf(' ')).toEqual(new Map());
  for (const wrong of ['year', 'year 1 2', 'year [a TO b]', 'year [1 TO 2', '[1 TO 2]']) expect(rangesOf(wrong), wrong).toBeUndefined();
});

test('the same wishes for both interfaces', () => {
  const wanted = { q: 'fox', counts: 'book, tag', ranges: 'year [* TO 2000}', sort: '<distance,lon,lat,8,50,km>, -year', limit: '3', include_docs: 'true' };
  const both = { q: 'fox', limit: 3, sort: from(['<distance,lon,lat,8,50,km>', '-year']), counts: ['book', 'tag'], include_docs: true };
  expect(bodyOf('_search', CLOUSEAU, wanted)).toEqual({ ...both, ranges: { year: { '[* TO 2000}': '[* TO 2000}' } } });
  expect(bodyOf('_nouveau', NOUVEAU, wanted)).toEqual({ ...both, ranges: { year: [{ label: '[* TO 2000}', max: 2000, min_inclusive: true, max_inclusive: false }] } });
  expect(limitOf({ limit: 'x' })).toBe(25);
});

test('a search is narrowed by drilldown where there is one, and by clauses', () => {
  const narrow = JSON.stringify([['tag', 'Big Animal', false], ['book', '1 "Sam"', false], ['year', '[2000 TO *]', true]]);
  expect(bodyOf('_search', CLOUSEAU, { q: 'a OR b', narrow })).toMatchObject({ q: '+(a OR b) +year:[2000 TO *]', drilldown: [['tag', 'Big Animal'], ['book', '1 "Sam"']] });
  // Analyzed fields by an expression, those of the analyzer `keyword` as they are.
  expect(bodyOf('_nouveau', NOUVEAU, { q: 'a', narrow })).toMatchObject({ q: '+(a) +tag:/.ig .nimal/ +book:["1 \\"Sam\\"" TO "1 \\"Sam\\""] +year:[2000 TO *]' });
});

test('what was found is marked by signs that no text has', () => {
  expect(bodyOf('_nouveau', NOUVEAU, { q: 'a', highlight_fields: 'default' })).toMatchObject({ highlight_fields: ['default'], highlight_pre_tag: '\u0002', highlight_post_tag: '\u0003' });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { from, type Obj } from '../src/json';
import {
  choicesOf,
  filtersOf,
  hasName,
  queryOf,
  wantedOf,
} from '../src/pages/database/changes/choices';
import { designOf } from '../src/pages/database/views/design';

test('the address holds all choices', () => {
  for (const address of [
    '',
    'since=now',
    'since=12-abc&find=x&deleted=true',
    'include_docs=true&style=all_docs&by=design&with=d%2Ff&args=a%3D1',
    'by=selector&with=%7B%7D',
    'by=_design',
  ]) {
    const query = new URLSearchParams(address);
    const given = Object.entries(queryOf(choicesOf(query))).filter(([, value]) => value !== '');
    assert.deepEqual(new Set(given.map(String)), new Set([...query].map(String)), address);
  }
  assert.ok(choicesOf(new URLSearchParams('find=x')).isFiltered);
  assert.ok(!choicesOf(new URLSearchParams('since=0')).isFiltered);
});

test('a filter becomes the request of the feed', () => {
  const of = (address: string) => wantedOf('db', choicesOf(new URLSearchParams(address)));
  assert.deepEqual(of('by=design&with=d/f&args=a%3D1').query, {
    style: undefined,
    a: '1',
    filter: 'd/f',
  });
  assert.deepEqual(of('by=view&with=d/v').query, {
    style: undefined,
    filter: '_view',
    view: 'd/v',
  });
  assert.strictEqual(of('by=selector').body, '{"selector":{}}');
  assert.strictEqual(of('by=ids&with=%20a%0A%0Ab').body, '{"doc_ids":["a","b"]}');
  assert.strictEqual(of('since=5-x').since, '5-x');
});

test('changes are searched by id, and for deletions', () => {
  const keep = wantedOf('db', choicesOf(new URLSearchParams('find=ab&deleted=true'))).keep;
  assert.ok(keep('{"seq":"1","id":"xaby","changes":[],"deleted":true}'));
  assert.ok(!keep('{"seq":"1","id":"xaby","changes":[]}'));
  assert.ok(!keep('{"seq":"1","id":"b","changes":[],"deleted":true}'));
});

test('filters are functions of design documents', () => {
  const design = designOf(
    from({ _id: '_design/d', views: { v: { map: 'm' } }, filters: { f: 'x' } }) as Obj,
  );
  assert.deepEqual(filtersOf(design, 'view'), ['d/v']);
  assert.deepEqual(filtersOf(design, 'design'), ['d/f']);
  assert.deepEqual((['', 'design', 'view', 'ids'] as const).map(hasName), [
    false,
    true,
    true,
    false,
  ]);
});

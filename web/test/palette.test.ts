import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recentDocuments, visited } from '../src/palette/recent';
import { found, idIn, rank, type Target } from '../src/palette/search';

const target = (name: string, kind: Target['kind'] = 'database', more = ''): Target => ({
  kind,
  name,
  to: name,
  more,
});
const names = (all: Target[], search: string) => found(all, search).map(({ name }) => name);

test('what fits better comes first', () => {
  const all = ['webshop', 'shop-old', 'my-shop', 'shop', 'she-hops', 'other'].map((each) =>
    target(each),
  );
  assert.deepEqual(names(all, 'shop'), ['shop', 'shop-old', 'my-shop', 'webshop', 'she-hops']);
  assert.deepEqual(names(all, 'SHOP old'), ['shop-old']);
  assert.deepEqual(names(all, 'xyz'), []);
  assert.strictEqual(rank('abc', 'acb'), undefined);
});

test('settings are found by their help, after those that have the word in their name', () => {
  const all = [
    target('couchdb/max_document_size', 'setting', 'Largest document body'),
    target('log/level', 'setting', 'How much is logged of a body'),
    target('chttpd/body', 'setting'),
  ];
  assert.deepEqual(names(all, 'body')[0], 'chttpd/body');
  assert.deepEqual(names(all, 'largest'), ['couchdb/max_document_size']);
});

test('an empty search shows recent documents and pages', () => {
  const all = [target('shop'), target('shop/one', 'recent'), target('Users', 'page')];
  assert.deepEqual(names(all, ' '), ['shop/one', 'Users']);
});

test('twenty thousand databases are searched, and few are shown', () => {
  const all = Array.from({ length: 20_000 }, (_, n) => target(`tenant-${n}`));
  assert.strictEqual(found(all, 'tenant').length, 40);
  assert.deepEqual(names(all, 'tenant-19999'), ['tenant-19999']);
});

test('an id is looked for in the database that is named, or in the one that is shown', () => {
  const all = ['shop', 'shop/eu', 'other'];
  assert.deepEqual(idIn('shop/one', all, undefined), { db: 'shop', id: 'one' });
  assert.deepEqual(idIn('shop/eu/a/b', all, undefined), { db: 'shop/eu', id: 'a/b' });
  assert.deepEqual(idIn('one', all, 'other'), { db: 'other', id: 'one' });
  assert.strictEqual(idIn('one', all, undefined), undefined);
  assert.strictEqual(idIn(' ', all, 'other'), undefined);
});

test('recent documents are kept once each, latest first, and are few', () => {
  for (let n = 0; n < 50; n++) visited('shop', `d-${n}`);
  visited('shop', 'd-40');
  visited('other', 'd-40');
  assert.deepEqual(recentDocuments().slice(0, 3), [
    ['other', 'd-40'],
    ['shop', 'd-40'],
    ['shop', 'd-49'],
  ]);
  assert.strictEqual(recentDocuments().length, 30);
});

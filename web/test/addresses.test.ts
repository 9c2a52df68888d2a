import assert from 'node:assert/strict';
import { test } from 'node:test';
import { docPath, path, url } from '../src/api/client';
import { askDots, hasDots } from '../src/api/dots';
import { ApiError } from '../src/api/errors';
import { lines } from '../src/api/lines';
import { from, type Json, print } from '../src/json';
import { docLink, where } from '../src/pages/database/address';
import { link, type Place } from '../src/router';

const placeOf = (hash: string): Place => {
  const [to = '', query = ''] = hash.split('?');
  return { parts: to.split('/').map(decodeURIComponent), query: new URLSearchParams(query) };
};

test('the API is next to the pages, below any path', () => {
  assert.strictEqual(url('/_up').href, 'http://127.0.0.1:5984/proxy/_up');
  assert.strictEqual(
    url('/db/_find', { limit: 2, skip: undefined, q: 'a b' }).href,
    'http://127.0.0.1:5984/proxy/db/_find?limit=2&q=a+b',
  );
});

test('parts of paths may hold anything', () => {
  assert.strictEqual(path('a/b', 'c?d', 'é'), '/a%2Fb/c%3Fd/%C3%A9');
  assert.strictEqual(docPath('db', '_design/x/y'), '/db/_design/x%2Fy');
  assert.strictEqual(docPath('db', '_local/x'), '/db/_local/x');
  assert.strictEqual(docPath('db', 'a/b'), '/db/a%2Fb');
});

test('links hold parts and queries, without empty ones', () => {
  assert.strictEqual(link([]), '#/');
  assert.strictEqual(
    link(['database', 'a/b', '_doc', '..'], { rev: '1-a', none: '', no: undefined }),
    '#/database/a%2Fb/_doc/..?rev=1-a',
  );
});

test('addresses of Fauxton lead to the same pages', () => {
  for (const [hash, part] of [
    ['database/db', 'documents'],
    ['database/db/_all_docs?limit=5', 'documents'],
    ['database/db/_design/d/_view/v', 'views'],
    ['database/db/_design/d/_nouveau/n', 'search'],
    ['database/db/_find', 'query'],
    ['database/db/_index', 'query'],
    ['database/db/_changes', 'changes'],
    ['database/db/permissions', 'permissions'],
    ['database/db/new', 'document'],
  ])
    assert.strictEqual(where(placeOf(hash ?? '')).part, part, hash);
  const within = where(placeOf('database/db/_partition/p/_find'));
  assert.strictEqual(within.part, 'query');
  assert.strictEqual(within.place.query.get('partition'), 'p');
});

test('any id has an address', () => {
  for (const id of ['a', 'changes', 'new', '.', '..', 'a/b', '_design/d', 'ü ?#%'])
    assert.strictEqual(where(placeOf(docLink('db', id).slice(2))).id, id);
  assert.strictEqual(where(placeOf('database/db/doc/conflicts')).id, 'doc');
});

test('ids that browsers would resolve are noticed, and nothing else', () => {
  for (const to of ['/db/.', '/db/..', '/db/../x', '/db/_design/..', '/db/./a'])
    assert.ok(hasDots(to), to);
  for (const to of ['/db/...', '/db/a.', '/db/.a', '/db/a..b', '/db']) assert.ok(!hasDots(to), to);
  assert.throws(() => url('/db/..'), ApiError);
});

/** A server that answers a request by its path. */
function server(answers: Record<string, unknown>) {
  const asked: [string, unknown][] = [];
  const post = (to: string, _: unknown, body: Json) => {
    asked.push([to, JSON.parse(print(body))]);
    return Promise.resolve(from(answers[to]));
  };
  return { asked, post };
}

test('documents whose id is a dot are read, written and deleted by their body', async () => {
  const { asked, post } = server({
    _all_docs: { rows: [{ id: '..', doc: { _id: '..', n: 1 } }] },
    _bulk_docs: [{ ok: true, id: '..', rev: '2-b' }],
    _bulk_get: { results: [{ id: '..', docs: [{ ok: { _id: '..', _rev: '1-a' } }] }] },
  });
  assert.strictEqual(await askDots('GET', '..', {}, undefined, post), '{"_id":"..","n":1}');
  assert.strictEqual(
    await askDots('GET', '..', { rev: '1-a' }, undefined, post),
    '{"_id":"..","_rev":"1-a"}',
  );
  await askDots('PUT', '..', {}, '{"n":1.0}', post);
  await askDots('DELETE', '_design/..', { rev: '1-a' }, undefined, post);
  assert.deepEqual(asked, [
    ['_all_docs', { keys: ['..'] }],
    ['_bulk_get', { docs: [{ id: '..', rev: '1-a' }] }],
    ['_bulk_docs', { docs: [{ n: 1, _id: '..' }] }],
    ['_bulk_docs', { docs: [{ _rev: '1-a', _deleted: true, _id: '_design/..' }] }],
  ]);
});

test('refusals of documents whose id is a dot are those of a request to them', async () => {
  const conflict = server({ _bulk_docs: [{ id: '.', error: 'conflict', reason: 'x' }] });
  await assert.rejects(askDots('PUT', '.', {}, '{}', conflict.post), { status: 409 });
  const deleted = server({ _all_docs: { rows: [{ value: { deleted: true }, doc: null }] } });
  await assert.rejects(askDots('GET', '.', {}, undefined, deleted.post), {
    status: 404,
    reason: 'deleted',
  });
  await assert.rejects(askDots('GET', './x', {}, undefined, conflict.post), { status: 400 });
});

test('lines are whole, however they arrive', async () => {
  const parts = ['{"a":1}\n{"b', '":2}\n\n', '\n{"ü":3}'].map((part) =>
    new TextEncoder().encode(part),
  );
  const body = new ReadableStream<Uint8Array>({
    start(control) {
      for (const part of parts) control.enqueue(part);
      control.close();
    },
  });
  const all: string[] = [];
  for await (const some of lines(new Response(body))) all.push(...some);
  assert.deepEqual(all, ['{"a":1}', '{"b":2}', '{"ü":3}']);
});

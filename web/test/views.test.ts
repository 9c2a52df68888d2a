import assert from 'node:assert/strict';
import { test } from 'node:test';
import { session } from '../src/api';
import { from, type Obj, print } from '../src/json';
import {
  designOf,
  differs,
  edited,
  put,
  rename,
  sourceOf,
  withView,
} from '../src/pages/database/views/design';
import { beginOf, LANGUAGES, modeOf } from '../src/pages/database/views/language';
import { toFunction, toView } from '../src/pages/database/views/links';
import {
  chosenOf,
  limitOf,
  reduced,
  reductionOf,
  requestOf,
} from '../src/pages/database/views/options';
import { curl, lineOf } from '../src/pages/database/views/source';

const obj = (value: object) => from(value) as Obj;

test('a design document is read with all that it may hold', () => {
  const design = designOf(
    obj({
      _id: '_design/d',
      views: { lib: { a: 'exports.a = 1' }, v: { map: 'm' } },
      indexes: { s: {} },
      nouveau: { n: {} },
      filters: { f: 'x' },
      validate_doc_update: 'y',
    }),
  );
  assert.strictEqual(design.name, 'd');
  assert.strictEqual(design.language, 'javascript');
  assert.deepEqual(design.views, ['v']);
  assert.deepEqual(
    design.texts.map(({ kind, name }) => `${kind} ${name}`),
    ['_nouveau n', '_search s'],
  );
  assert.deepEqual(design.functions, [
    { kind: 'filters', name: 'f' },
    { kind: 'validate_doc_update', name: '' },
  ]);
});

test('edits leave the rest of a design document in its order', () => {
  const doc = obj({ _id: 'a', views: { x: { map: '1' }, y: { map: '2', options: {} } }, z: 1 });
  assert.strictEqual(
    print(withView(doc, 'y', '3', '_sum')),
    '{"_id":"a","views":{"x":{"map":"1"},"y":{"map":"3","options":{},"reduce":"_sum"}},"z":1}',
  );
  assert.strictEqual(
    print(rename(doc, ['views', 'x'], 'w').get('views') ?? null),
    '{"w":{"map":"1"},"y":{"map":"2","options":{}}}',
  );
  assert.strictEqual(print(put(doc, ['views', 'x'], undefined)).includes('"x"'), false);
  assert.strictEqual(print(doc.get('z') ?? null), '1');
});

test('functions that are JSON stay JSON', () => {
  const rewrites = from([{ from: '/a', to: 'b' }]);
  assert.strictEqual(print(edited(sourceOf(rewrites), rewrites)), print(rewrites));
  assert.strictEqual(edited('function () {}', 'x'), 'function () {}');
  assert.ok(!differs('[{"from":"/a", "to":"b"}]', rewrites));
  assert.ok(differs('[', rewrites));
  assert.ok(differs('a', 'b'));
});

test('a new view begins with a function of its language', () => {
  for (const language of LANGUAGES) assert.ok(beginOf(language) !== '', language);
  assert.strictEqual(beginOf('cobol'), '');
  assert.deepEqual(['javascript', 'nodejs', '', 'erlang'].map(modeOf), [
    'javascript',
    'javascript',
    'javascript',
    'text',
  ]);
});

test('options are read from the address, by old names too', () => {
  const query = new URLSearchParams('start_key="a"&limit=5&limit2=1&reduce=&end_key_doc_id=x');
  assert.deepEqual(chosenOf(query), { limit: '5', startkey: '"a"', endkey_docid: 'x' });
  assert.deepEqual(
    ['', '0', '7', '-1', 'x'].map((limit) => limitOf(limit ? { limit } : {})),
    [100, 0, 7, 100, 100],
  );
});

test('a reduction is one of four', () => {
  for (const to of ['rows', 'one', 'groups', 'level'] as const)
    assert.strictEqual(reductionOf(reduced({ group: 'true', reduce: 'true' }, to)), to);
});

test('a request fits what the view can do', () => {
  assert.deepEqual(requestOf('db', 'd', 'v', true, { include_docs: 'true' }), {
    method: 'GET',
    to: '/db/_design/d/_view/v',
    query: { include_docs: 'true', reduce: 'false', limit: '100' },
  });
  assert.deepEqual(requestOf('db', 'd', 'v', true, { group: 'true', include_docs: 'true' }).query, {
    group: 'true',
    limit: '100',
  });
  assert.deepEqual(requestOf('db', 'd', 'v', false, { keys: '["a"]', partition: 'p' }), {
    method: 'POST',
    to: '/db/_partition/p/_design/d/_view/v',
    query: { limit: '100' },
    body: '{"keys":["a"]}',
  });
});

test('the line that an error of a function names is found', () => {
  for (const [reason, line] of [
    ['Compilation of the map function failed: line 3: unexpected token', 3],
    ['SyntaxError at <eval>:7', 7],
    ['map:12: x', 12],
    ['ReferenceError: emitt is not defined', undefined],
  ] as const)
    assert.strictEqual(lineOf(reason), line, reason);
});

test('a copied command is quoted for a shell', () => {
  assert.strictEqual(
    curl('POST', '/db/_find', {}, '{"selector":{"a":"it\'s"}}'),
    `curl -X POST 'http://127.0.0.1:5984/proxy/db/_find' -H 'Content-Type: application/json' -d '{"selector":{"a":"it'\\''s"}}'`,
  );
  session.value = { name: 'ann', roles: [] };
  assert.strictEqual(
    curl('GET', '/db', { q: '1' }),
    "curl -u 'ann' 'http://127.0.0.1:5984/proxy/db?q=1'",
  );
  session.value = undefined;
});

test('links lead to views and functions', () => {
  assert.strictEqual(toView('db', 'd', 'a/b'), '#/database/db/_design/d/_view/a%2Fb');
  assert.strictEqual(
    toFunction('db', 'd', 'rewrites', ''),
    '#/database/db/_design/d/_function/rewrites',
  );
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Obj, parse } from '../src/json';
import { complete, type Known, spotOf } from '../src/pages/database/query/complete';
import { schemaOf } from '../src/pages/database/schema/model';

const DOCS = [
  '{"type":"order","total":9223372036854775807,"address":{"city":"Ulm"},"tags":["new"],"a.b":1}',
  '{"type":"order","total":2,"lines":[{"sku":"x","n":1}]}',
].map((doc) => parse(doc) as Obj);
const KNOWN: Known = { fields: schemaOf(DOCS), docs: 2, indexes: ['by-type'] };

/** What is proposed where the text has `|`, and the text once the first is taken. */
function at(marked: string): { labels: string[]; taken: string } {
  const caret = marked.indexOf('|');
  const source = marked.replace('|', '');
  const found = complete(source, caret, KNOWN);
  const first = found?.all[0];
  if (!found || !first) return { labels: [], taken: source };
  const text = source.slice(0, found.from) + first.insert + source.slice(found.to);
  const place = found.from + first.insert.length - (first.back ?? 0);
  return {
    labels: found.all.map(({ label }) => label),
    taken: `${text.slice(0, place)}|${text.slice(place)}`,
  };
}

test('a spot is known in half a query', () => {
  assert.deepEqual(spotOf('{"selector": {"a": {"$i', 23), {
    path: ['selector', 'a'],
    isKey: true,
    from: 20,
    to: 23,
    typed: '$i',
  });
  assert.deepEqual(spotOf('{"a": ["x", tr', 14)?.path, ['a', null]);
  for (const [source, caret] of [
    ['', 0],
    ['{"a": 1 ', 8],
    ['{"a": "b"', 9],
    ['{"a" ', 5],
    ['{} ', 3],
  ] as const)
    assert.strictEqual(spotOf(source, caret), undefined, source);
});

test('members of a query are proposed, with their brackets', () => {
  assert.strictEqual(at('{|}').labels[0], 'selector');
  assert.strictEqual(at('{"se|"}').taken, '{"selector": {|}}');
  assert.strictEqual(at('{sor|').taken, '{"sort": [|]');
  assert.strictEqual(at('{"agg|').taken.split('|')[0], '{"aggregate": {"group_by": [');
});

test('fields are proposed with their share, and what is typed narrows them', () => {
  assert.deepEqual(at('{"selector": {"t|"}}').labels.slice(0, 3), ['type', 'total', 'tags']);
  assert.strictEqual(at('{"selector": {"t|"}}').taken, '{"selector": {"type": |}}');
  assert.deepEqual(at('{"selector": {"ci|').labels, ['address.city']);
  assert.strictEqual(at('{"selector": {"a.|').taken, '{"selector": {"a\\\\.b": |');
  assert.deepEqual(complete('{"selector": {"ci', 17, KNOWN)?.all[0]?.detail, '50 %');
});

test('a key before a colon keeps its value', () => {
  assert.strictEqual(at('{"selector": {"ty|": 5}}').taken, '{"selector": {"type"|: 5}}');
});

test('operators, and fields of an object, are proposed within a field', () => {
  assert.strictEqual(at('{"selector": {"total": {|}}}').labels[0], '$eq');
  assert.strictEqual(at('{"selector": {"type": {"$in|').taken, '{"selector": {"type": {"$in": [|]');
  assert.ok(at('{"selector": {"address": {|}}}').labels.includes('city'));
  assert.deepEqual(at('{"selector": {"lines": {"$elemMatch": {"|').labels.slice(0, 2), [
    'sku',
    'n',
  ]);
  assert.ok(at('{"selector": {"$or": [{"to|').labels.includes('total'));
  assert.ok(at('{"selector": {"total": {"$not": {"$g|').labels.includes('$gte'));
});

test('values are those of the documents, without loss', () => {
  assert.strictEqual(at('{"selector": {"type": "|"}}').taken, '{"selector": {"type": "order"|}}');
  assert.deepEqual(at('{"selector": {"total": {"$gt": 92|').labels, ['9223372036854775807']);
  assert.deepEqual(at('{"selector": {"address": {"city": "U|').labels, ['Ulm']);
  assert.deepEqual(at('{"selector": {"tags": {"$in": ["|').labels, ['new']);
  assert.deepEqual(at('{"selector": {"type": {"$exists": t|').labels, ['true']);
  assert.deepEqual(at('{"selector": {"type": {"$type": "nu|').labels, ['number', 'null']);
  assert.strictEqual(at('{"selector": {"total": $gt|').labels[0], '$gt');
  assert.strictEqual(
    at('{"selector": {"total": $gte|').taken,
    '{"selector": {"total": {"$gte": |}',
  );
});

test('sort, fields, indexes and aggregates are completed', () => {
  assert.strictEqual(at('{"sort": [{"to|"}]}').taken, '{"sort": [{"total": |}]}');
  assert.deepEqual(at('{"sort": [{"total": "|"}]}').labels, ['asc', 'desc']);
  assert.strictEqual(at('{"fields": ["_id", "ty|"]}').taken, '{"fields": ["_id", "type"|]}');
  assert.deepEqual(at('{"use_index": "|"}').labels, ['by-type']);
  assert.ok(at('{"aggregate": {"group_by": ["|').labels.includes('type'));
  assert.strictEqual(
    at('{"aggregate": {"compute": {"n": {"$c|').taken,
    '{"aggregate": {"compute": {"n": {"$count": true|',
  );
  assert.ok(at('{"aggregate": {"compute": {"n": {"$sum": "t|').labels.includes('total'));
});

test('any beginning of a query can be completed without an error', () => {
  const source =
    '{"selector": {"$or": [{"a\\"b": {"$in": [1, "x", true]}}, {"t": {"$not": {"$gt": -1e5}}}]},\n"sort": [{"a": "asc"}], "aggregate": {"group_by": ["a"]}}';
  for (let n = 0; n <= source.length; n++) {
    complete(source.slice(0, n), n, KNOWN);
    complete(source, n, KNOWN);
  }
});

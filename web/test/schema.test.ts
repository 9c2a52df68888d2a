import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Num, type Obj, parse, print } from '../src/json';
import {
  type Field,
  isTime,
  nameOf,
  roundStep,
  schemaOf,
} from '../src/pages/database/schema/model';
import {
  canBeQueried,
  condition,
  dotted,
  equalTo,
  queryOf,
  within,
} from '../src/pages/database/schema/query';
import { between } from '../src/pages/database/schema/sample';

function of(...docs: string[]): Map<string, Field> {
  const fields = schemaOf(docs.map((doc) => parse(doc) as Obj));
  return new Map(fields.map((field) => [nameOf(field.path), field]));
}

test('fields have their documents, types and most frequent values', () => {
  const all = of(
    '{"_id":"a","_rev":"1-x","city":"Ulm","n":1}',
    '{"_id":"b","city":"Ulm","n":null,"deep":{"list":[{"sku":7},{"sku":8}]}}',
    '{"_id":"c","city":"Kiel","n":"x","deep":{"list":[]}}',
  );
  assert.deepEqual(
    [...all.keys()],
    ['_id', 'city', 'n', 'deep', 'deep.list', 'deep.list[]', 'deep.list[].sku'],
  );
  assert.strictEqual(all.get('city')?.docs, 3);
  assert.deepEqual(all.get('city')?.top, [
    ['Ulm', 2],
    ['Kiel', 1],
  ]);
  assert.deepEqual(all.get('n')?.types, [
    ['number', 1],
    ['null', 1],
    ['string', 1],
  ]);
  const { docs, values } = all.get('deep.list[].sku') as Field;
  assert.deepEqual([docs, values], [1, 2]);
});

test('numbers keep their notation, and large ones are not mixed up', () => {
  const all = of('{"n":9223372036854775807}', '{"n":9223372036854775806}', '{"n":1.0}');
  assert.deepEqual(
    all.get('n')?.top.map(([value]) => print(value)),
    ['9223372036854775807', '9223372036854775806', '1.0'],
  );
});

test('a distribution has each number once, in bins with round edges', () => {
  const all = of(...Array.from({ length: 100 }, (_, n) => `{"n":${n / 10}}`));
  const bins = all.get('n')?.bins ?? [];
  assert.deepEqual([print(bins[0]?.from ?? null), print(bins[0]?.to ?? null)], ['0', '1']);
  assert.strictEqual(bins.length, 10);
  for (const { count } of bins) assert.strictEqual(count, 10);
  assert.deepEqual(of('{"n":5}', '{"n":5}').get('n')?.bins, []);
  for (const [least, step] of [
    [0.3, 0.5],
    [1, 1],
    [2, 2],
    [60, 100],
  ] as const)
    assert.strictEqual(roundStep(least), step);
});

test('a distribution of any numbers loses none', () => {
  let seed = 7;
  const random = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  for (let round = 0; round < 50; round++) {
    const scale = 10 ** Math.round(random() * 20 - 10);
    const numbers = Array.from({ length: 40 }, () => (random() - 0.5) * scale);
    const bins = of(...numbers.map((n) => `{"n":${n}}`)).get('n')?.bins ?? [];
    assert.strictEqual(
      bins.reduce((sum, { count }) => sum + count, 0),
      numbers.length,
    );
    for (const { from, to, count } of bins) {
      const inside = numbers.filter(
        (n) => n >= (from as Num).value && n < (to as Num).value,
      ).length;
      assert.strictEqual(inside, count, `${numbers} ${print(from)}`);
    }
  }
});

test('times are known, and their bins have edges that are values', () => {
  for (const time of ['2026-11-30', '2026-11-30T12:00:00Z', '2026-11-30 12:00:00.5+01:00'])
    assert.ok(isTime(time), time);
  for (const other of ['2026-13-01', '2026', 'now', '12:00', 20_261_130 as unknown as string])
    assert.ok(!isTime(other), other);
  const days = Array.from({ length: 30 }, (_, n) => `2026-11-${String(n + 1).padStart(2, '0')}`);
  const field = of(...days.map((day) => `{"at":"${day}"}`)).get('at') as Field;
  assert.ok(field.isTime);
  assert.strictEqual(field.bins.length, 12);
  assert.strictEqual(field.bins.at(-1)?.to, undefined);
  for (const { from, to, count } of field.bins)
    assert.strictEqual(
      days.filter((day) => day >= (from as string) && (to === undefined || day < (to as string)))
        .length,
      count,
    );
});

test('a very wide document has an end', () => {
  const wide = Array.from({ length: 2000 }, (_, n) => `"f${n}":${n}`).join();
  assert.strictEqual(of(`{${wide}}`).size, 500);
  const deep = `${'{"a":'.repeat(50)}1${'}'.repeat(50)}`;
  assert.ok(of(deep).size < 10);
});

test('a click becomes a selector, through objects and arrays', () => {
  const selector = (path: (string | null)[], value: string) =>
    print(condition(path, equalTo(parse(value))));
  assert.strictEqual(selector(['city'], '"Ulm"'), '{"city":{"$eq":"Ulm"}}');
  assert.strictEqual(selector(['a', 'b.c'], '1.0'), '{"a.b\\\\.c":{"$eq":1.0}}');
  assert.strictEqual(selector(['tags', null], '"x"'), '{"tags":{"$elemMatch":{"$eq":"x"}}}');
  assert.strictEqual(
    selector(['lines', null, 'sku'], '7'),
    '{"lines":{"$elemMatch":{"sku":{"$eq":7}}}}',
  );
  assert.strictEqual(
    print(within({ from: new Num('1'), to: new Num('2'), count: 0 })),
    '{"$gte":1,"$lt":2}',
  );
  assert.strictEqual(dotted(['a', 'b']), 'a.b');
  assert.ok(canBeQueried(['a', null, 'b']) && !canBeQueried(['$a']) && !canBeQueried(['']));
  assert.deepEqual(
    print(parse(queryOf(parse('{"a":1}') as Obj))),
    '{"selector":{"a":1},"limit":25}',
  );
});

test('a sample is taken from places that divide the ids', () => {
  const ids = between('doc-000000', 'doc-999999', 10);
  assert.strictEqual(ids.length, 9);
  assert.ok(
    ids.every((id, n) => n === 0 || id > (ids[n - 1] ?? '')),
    ids.join(),
  );
  assert.ok(
    ids.every((id) => id > 'doc-000000' && id < 'doc-999999'),
    ids.join(),
  );
  assert.deepEqual(
    between('customer', 'order', 4).map((id) => id[0]),
    ['f', 'i', 'l'],
  );
  assert.deepEqual(between('ä', 'ö', 4), []);
});

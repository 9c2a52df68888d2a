import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Kept,
  keptOf,
  starOf,
  withoutHistory,
  withoutStar,
  withRun,
  withStar,
} from '../src/pages/database/query/kept';

const NONE: Kept = { starred: [], history: [] };

test('the history has each query once, latest first, and an end', () => {
  let kept = NONE;
  for (let n = 0; n < 120; n++) kept = withRun(kept, { query: `{"n":${n % 80}}`, at: n });
  assert.strictEqual(kept.history.length, 50);
  assert.deepEqual(kept.history[0], { query: '{"n":39}', at: 119 });
  assert.strictEqual(new Set(kept.history.map(({ query }) => query)).size, 50);
  const other = withRun(kept, { query: '{"n":39}', partition: 'p', at: 120 });
  assert.strictEqual(other.history[1]?.query, '{"n":39}');
  assert.strictEqual(withRun(kept, { query: 'x'.repeat(20_000), at: 121 }), kept);
});

test('a star has one query, and a query one star', () => {
  let kept = withStar(NONE, { query: '{}', at: 1, name: 'all' });
  kept = withStar(kept, { query: '{"a":1}', at: 2, name: 'one' });
  kept = withStar(kept, { query: '{}', at: 3, name: 'everything' });
  assert.deepEqual(
    kept.starred.map(({ name }) => name),
    ['everything', 'one'],
  );
  kept = withStar(kept, { query: '{"b":2}', at: 4, name: 'one' });
  assert.strictEqual(starOf(kept, '{"a":1}', ''), undefined);
  const star = starOf(kept, '{"b":2}', '');
  assert.strictEqual(star?.name, 'one');
  assert.deepEqual(
    withoutStar(kept, star as NonNullable<typeof star>).starred.map(({ name }) => name),
    ['everything'],
  );
});

test('the history is cleared without the stars', () => {
  const kept = withRun(withStar(NONE, { query: '{}', at: 1, name: 'all' }), { query: '{}', at: 2 });
  assert.deepEqual(withoutHistory(kept), { starred: kept.starred, history: [] });
});

test('a document that something else wrote is read as far as it can be', () => {
  assert.deepEqual(keptOf({}), NONE);
  assert.deepEqual(
    keptOf({ starred: 'x', history: [null, 1, { query: 1, at: 1 }, { query: '{}', at: 1 }] }),
    { starred: [], history: [{ query: '{}', at: 1 }] },
  );
});

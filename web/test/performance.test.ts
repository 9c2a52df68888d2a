import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Frame, grow, seen, shares, svg, totals } from '../src/pages/performance/flame';
import { nearest, pathOf } from '../src/pages/performance/line';
import { between, type Snapshot } from '../src/pages/performance/snapshot';

const SNAPSHOT: Snapshot = {
  node: 'n',
  version: '1',
  started: 5,
  at: 10,
  processors: 2,
  requests: 100,
  aborted: 0,
  in_flight: 0,
  connections: 1,
  connections_accepted: 1,
  feeds: 0,
  sent_bytes: 1000,
  received_bytes: 0,
  document_writes: 10,
  commit_requests: 10,
  commit_batches: 5,
  syncs: 5,
  all_databases: 1,
  open_databases: 1,
  open_indexes: 0,
  replications: { running: 0, pending: 0, crashing: 0 },
  routes: [{ route: 'find', requests: 100, refused: 0, failed: 0, times: [[1000, 100]] }],
  threads: {
    clocks: [{ name: 'http', alive: 1, states: { idle: 9, read: 1 } }],
    cpu_seconds: { http: 1 },
    worker_cpu_seconds: null,
  },
  databases: [{ name: 'db', since: 1, requests: 4, writes: 0, seconds: 1, bytes: 0 }],
  views: [],
  functions: [],
  tasks: [],
  queues: {},
  memory: { resident: 0, limit: 0, parts: {} },
  disk: { free: null, size: null, files: {} },
};

test('rates are those between two snapshots', () => {
  const later: Snapshot = {
    ...SNAPSHOT,
    at: 12,
    requests: 120,
    commit_requests: 30,
    commit_batches: 10,
    routes: [
      {
        route: 'find',
        requests: 120,
        refused: 2,
        failed: 0,
        times: [
          [1000, 110],
          [5000, 110],
        ],
      },
    ],
    threads: {
      clocks: [{ name: 'http', alive: 1, states: { idle: 10, read: 2 } }],
      cpu_seconds: { http: 2 },
      worker_cpu_seconds: null,
    },
    databases: [{ name: 'db', since: 1, requests: 8, writes: 2, seconds: 2, bytes: 10 }],
  };
  const frame = between(SNAPSHOT, later);
  assert.ok(frame);
  assert.deepEqual(
    [frame.requests, frame.aBatch, frame.cpu, frame.p50, frame.p99],
    [10, 4, 0.5, 0.005, 0.005],
  );
  assert.deepEqual(frame.states, { idle: 0.5, read: 0.5 });
  assert.deepEqual(
    frame.databases.map(({ perS, writes, busy }) => [perS, writes, busy]),
    [[2, 1, 0.5]],
  );
  assert.strictEqual(frame.routes[0]?.refused, 1);
});

test('a restart of the server is no rate', () => {
  assert.strictEqual(between(SNAPSHOT, { ...SNAPSHOT, started: 6, at: 11 }), undefined);
  assert.strictEqual(between(SNAPSHOT, SNAPSHOT), undefined);
});

const FOLDED = 'a;b 3\na;c 1\na;b;a 4\nd 2\n';

test('folded stacks become a graph', () => {
  const root = grow(FOLDED);
  assert.ok(root);
  assert.strictEqual(root.value, 10);
  assert.deepEqual(
    root.children.map(({ name, value, self, x, width }: Frame) => [name, value, self, x, width]),
    [
      ['a', 8, 0, 0, 0.8],
      ['d', 2, 2, 0.8, 0.2],
    ],
  );
  assert.deepEqual(
    seen(root, 0.15).map((frame) => frame.name),
    ['', 'a', 'b', 'a', 'd'],
  );
  for (const wrong of ['', 'a b', 'a;b x\n']) assert.strictEqual(grow(wrong), undefined, wrong);
});

test('a function that calls itself counts once', () => {
  const root = grow(FOLDED);
  assert.ok(root);
  const a = totals(root).get('a');
  assert.deepEqual([a?.self, a?.all], [0.4, 0.8]);
});

test('profiles are compared by their stacks', () => {
  const [before, now] = [grow('a;b 1\na;c 1\n'), grow('a;b 3\na;d 1\n')];
  assert.ok(before && now);
  const was = shares(before);
  const [b, d] = now.children[0]?.children ?? [];
  assert.ok(b && d);
  assert.deepEqual([was(b), was(d)], [0.5, 0]);
});

test('a picture escapes the names of functions', () => {
  const root = grow('<script>&"x" 1\n');
  assert.ok(root);
  assert.ok(!svg(root, '<title>').includes('<script>'));
});

test('a chart has no line where nothing was measured', () => {
  const path = (times: number[], values: (number | null)[]) =>
    pathOf(times, values, (at, value) => `${at} ${value}`);
  assert.strictEqual(path([0, 2, 4], [1, 2, 3]), 'M0 1L2 2L4 3');
  assert.strictEqual(path([0, 2, 62, 64], [1, 2, 3, 4]), 'M0 1L2 2M62 3L64 4');
  assert.strictEqual(path([0, 2, 4, 6], [1, null, 3, 4]), 'M0 1h0M4 3L6 4');
  assert.strictEqual(path([0, 2, 60, 120], [1, 2, 3, 4]), 'M0 1L2 2M60 3h0M120 4h0');
  assert.strictEqual(path([], []), '');
});

test('what is pointed at is a measurement, or none', () => {
  const times = [0, 2, 4, 60, 62];
  assert.deepEqual(
    [-10, 0, 2.9, 3.1, 5, 30, 59, 70].map((at) => nearest(times, at)),
    [undefined, 0, 1, 2, 2, undefined, 3, undefined],
  );
  assert.strictEqual(nearest([], 1), undefined);
});

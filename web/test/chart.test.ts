import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Json, parse } from '../src/json';
import {
  barsOf,
  type Choice,
  columnsOf,
  guess,
  linesOf,
  placeOf,
  type RowKind,
  stepOf,
} from '../src/pages/database/chart/data';
import { drawBars, drawLines, drawMap, pathOf } from '../src/pages/database/chart/draw';
import { ofBars, ofLines, ofSpots } from '../src/pages/database/chart/table';

const columns = (kind: RowKind, ...rows: string[]) => columnsOf(rows.map(parse) as Json[], kind);
const kinds = (kind: RowKind, ...rows: string[]) =>
  Object.fromEntries(columns(kind, ...rows).map((column) => [column.name, column.kind]));
const BARS: Choice = { kind: 'bars', x: 'city', y: '', how: 'sum', by: '' };
const LINES: Choice = { kind: 'lines', x: 'at', y: 'n', how: 'sum', by: '' };

test('columns are found in documents, groups and rows of views', () => {
  assert.deepEqual(
    kinds(
      'docs',
      '{"_id":"a","_rev":"1-x","n":1,"at":"2026-11-30","deep":{"city":"Ulm"},"tags":["x"]}',
    ),
    { _id: 'text', n: 'number', at: 'time', 'deep.city': 'text' },
  );
  assert.deepEqual(kinds('groups', '{"key":{"city":"Ulm"},"value":{"n":2}}'), {
    city: 'text',
    n: 'number',
  });
  assert.deepEqual(kinds('view', '{"key":["tea",7],"value":{"sum":1,"count":2}}'), {
    key: 'text',
    'key[0]': 'text',
    'key[1]': 'number',
    'value.sum': 'number',
    'value.count': 'number',
  });
  assert.deepEqual(kinds('view', '{"id":"a","key":"x","value":1}'), {
    key: 'text',
    value: 'number',
  });
});

test('places are GeoJSON, or a latitude and a longitude', () => {
  const geo = '{"type":"Point","coordinates":[9.99,48.4]}';
  assert.deepEqual(kinds('docs', `{"_id":"a","where":${geo}}`), { _id: 'text', where: 'place' });
  assert.deepEqual(placeOf(parse(`{"type":"Feature","geometry":${geo}}`)), [9.99, 48.4]);
  assert.deepEqual(placeOf(parse('{"type":"LineString","coordinates":[[0,0],[2,4]]}')), [1, 2]);
  assert.strictEqual(placeOf(parse('{"type":"Point","coordinates":[999,1]}')), undefined);
  assert.strictEqual(placeOf(parse('{"type":"Point"}')), undefined);
  for (const doc of ['{"lat":48.4,"lon":9.99}', '{"at":{"latitude":48.4,"Longitude":9.99}}']) {
    const [first] = columns('docs', doc);
    assert.deepEqual([first?.kind, first?.places], ['place', [[9.99, 48.4]]], doc);
  }
});

test('a chart is guessed from the columns', () => {
  const guessed = (...rows: string[]) => guess(columns('docs', ...rows));
  assert.strictEqual(guessed('{"_id":"a","lat":1,"lng":2}').kind, 'map');
  assert.deepEqual(guessed('{"_id":"a","at":"2026-11-30","n":1}'), { ...LINES, y: 'n' });
  assert.deepEqual(guessed('{"_id":"a","city":"Ulm","n":1}'), { ...BARS, y: 'n' });
  const all = columns('docs', '{"_id":"a","lat":1,"lng":2,"city":"Ulm","at":"2026-11-30","n":3}');
  assert.deepEqual(
    (['map', 'lines', 'bars'] as const).map((kind) => [guess(all, kind).x, guess(all, kind).y]),
    [
      ['lat, lng', 'n'],
      ['at', 'n'],
      ['city', 'n'],
    ],
  );
});

test('bars combine the rows of a group', () => {
  const all = columns(
    'docs',
    '{"_id":"a","city":"Ulm","n":1}',
    '{"_id":"b","city":"Kiel","n":5}',
    '{"_id":"c","city":"Ulm","n":2}',
    '{"_id":"d","n":7}',
  );
  const bars = (part: Partial<Choice>) =>
    barsOf(all, { ...BARS, ...part }).bars.map(({ label, value }) => [label, value]);
  assert.deepEqual(bars({}), [
    ['Ulm', 2],
    ['Kiel', 1],
    ['–', 1],
  ]);
  assert.deepEqual(bars({ y: 'n' })[0], ['–', 7]);
  assert.deepEqual(bars({ y: 'n', how: 'average' }).at(-1), ['Ulm', 1.5]);
  assert.deepEqual(bars({ y: 'n', how: 'min' }).at(-1), ['Ulm', 1]);
  assert.deepEqual(bars({ x: 'nowhere' }), []);
  const many = columns('docs', ...Array.from({ length: 99 }, (_, n) => `{"city":"c${n}"}`));
  assert.deepEqual([barsOf(many, BARS).bars.length, barsOf(many, BARS).more], [40, 59]);
});

test('bars of a view keep the order of its keys', () => {
  const all = columns('view', '{"key":["a",10],"value":1}', '{"key":["a",9],"value":5}');
  assert.deepEqual(
    barsOf(all, { ...BARS, x: 'key', y: 'value' }).bars.map(({ label }) => label),
    ['a / 10', 'a / 9'],
  );
});

test('lines are in order, one for each value of a column', () => {
  const all = columns(
    'docs',
    '{"at":"2026-11-30","n":3,"city":"Ulm"}',
    '{"at":"2026-11-28","n":1,"city":"Kiel"}',
    '{"at":"2026-11-30","n":4,"city":"Ulm"}',
  );
  const day = (n: number) => Date.UTC(2026, 10, n);
  assert.deepEqual(linesOf(all, LINES).lines, [
    {
      name: '',
      points: [
        [day(28), 1],
        [day(30), 7],
      ],
    },
  ]);
  assert.deepEqual(
    linesOf(all, { ...LINES, by: 'city' }).lines.map(({ name, points }) => [name, points.length]),
    [
      ['Ulm', 1],
      ['Kiel', 1],
    ],
  );
});

test('many points are combined; steps without rows are 0 of a count, and break a mean', () => {
  const all = columns(
    'docs',
    ...Array.from({ length: 400 }, (_, n) => `{"at":${n < 200 ? n : n + 4000},"n":2}`),
  );
  const lines = (part: Partial<Choice>) => linesOf(all, { ...LINES, ...part });
  const counted = lines({ y: '' });
  assert.ok(counted.step > 0);
  const sum = counted.lines[0]?.points.reduce((total, [, y]) => total + (y ?? 0), 0);
  assert.strictEqual(sum, 400);
  assert.ok(counted.lines[0]?.points.some(([, y]) => y === 0));
  const means = lines({ how: 'average' }).lines[0]?.points ?? [];
  assert.ok(means.some(([, y]) => y === undefined) && means.every(([, y]) => (y ?? 2) === 2));
  assert.strictEqual(stepOf(60 * 86_400_000, true), 86_400_000);
});

test('a line is broken where nothing is known', () => {
  const line = {
    name: '',
    points: [
      [0, 1],
      [1, undefined],
      [2, 3],
      [3, 4],
    ] as [number, number | undefined][],
  };
  assert.strictEqual(pathOf(line, Number, Number), 'M0 1h0M2 3h0L3 4');
});

test('everything is drawn within its width', () => {
  const numbers = (shapes: { shapes: object[] }) =>
    shapes.shapes.flatMap((shape) => ('x' in shape ? [shape.x as number] : []));
  const bars = [
    { label: 'x'.repeat(300), value: 5 },
    { label: '', value: -3 },
    { label: 'zero', value: 0 },
  ];
  const points: [number, number][] = Array.from({ length: 50 }, (_, n) => [n * 1e9, n * n]);
  const spots = [
    { point: [9.99, 48.4] as [number, number], label: 'Ulm', value: 5 },
    { point: [10.12, 54.32] as [number, number], label: 'Kiel', value: undefined },
  ];
  for (const width of [300, 700, 1200])
    for (const drawing of [
      drawBars(bars, width),
      drawBars([], width),
      drawLines([{ name: 'a', points }], width, true, true),
      drawLines([{ name: 'a', points: [[5, 5]] }], width, false, false),
      drawLines([], width, false, false),
      drawMap(spots, width, false),
      drawMap(spots.slice(1), width, false),
      drawMap([], width, true),
    ]) {
      assert.ok(
        numbers(drawing).every((x) => x >= 0 && x <= width),
        JSON.stringify(drawing.shapes),
      );
      assert.ok(!/NaN|undefined|Infinity/.test(JSON.stringify(drawing.shapes)));
      assert.ok(drawing.height > 0 && drawing.height <= 460);
    }
});

test('what is drawn is a table, too', () => {
  assert.deepEqual(ofBars([{ label: 'Ulm', value: 2 }], 'city', 'n').head, ['city', 'n']);
  const lines = [
    {
      name: 'a',
      points: [
        [0, 1],
        [2, undefined],
      ] as [number, number | undefined][],
    },
    { name: 'b', points: [[1, 3]] as [number, number][] },
  ];
  const { head, rows } = ofLines(lines, 'at', 'n', true);
  assert.deepEqual(head, ['at', 'a', 'b']);
  assert.deepEqual(
    rows.map(([at, a, b]) => [at, a !== undefined, b !== undefined]),
    [
      ['1970-01-01T00:00:00.000Z', true, false],
      ['1970-01-01T00:00:00.001Z', false, true],
      ['1970-01-01T00:00:00.002Z', false, false],
    ],
  );
  assert.deepEqual(ofSpots([{ point: [1, 2], label: 'x', value: undefined }], 'name', '').head, [
    'name',
    'longitude',
    'latitude',
  ]);
});

test('a number beyond all bounds is not drawn', () => {
  const rows = ['{"city":"a","n":1e999}', '{"city":"a","n":2}', '{"city":"b","n":-1e999}'];
  const all = columns('docs', ...rows);
  const { bars } = barsOf(all, { ...BARS, y: 'n' });
  assert.deepEqual(bars, [
    { label: 'a', value: 2 },
    { label: 'b', value: 0 },
  ]);
  const { lines } = linesOf(all, { ...LINES, x: 'n', y: '' });
  assert.deepEqual(lines[0]?.points, [[2, 1]]);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from '../src/api';
import { CsvReader, delimiterOf } from '../src/pages/database/import/csv';
import {
  beginningOf,
  encodingOf,
  itemsOfFile,
  previewOf,
  settingsOf,
} from '../src/pages/database/import/file';
import type { Item } from '../src/pages/database/import/rows';
import { write } from '../src/pages/database/import/send';
import { jsonOf, namesOf, typeOf } from '../src/pages/database/import/types';
import { FormatError, itemsOf, JsonReader } from '../src/pages/database/import/values';

/** All pieces of a text that two cuts make. */
function* cuts(text: string): Generator<string[]> {
  for (let one = 0; one <= text.length; one++)
    for (let two = one; two <= text.length; two++)
      yield [text.slice(0, one), text.slice(one, two), text.slice(two)];
}

test('rows are the same, however the text is cut', () => {
  const text = 'a,"b ""x""\r\ny",c\r\n\r\n1,,"",\n"z"';
  const rows = [['a', 'b "x"\r\ny', 'c'], ['1', '', '', ''], ['z']];
  for (const pieces of cuts(text)) {
    const reader = new CsvReader(',');
    const found = [...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()];
    assert.deepEqual(found, rows);
  }
});

test('objects are the same, however the text is cut', () => {
  const objects = ['{"a":"}]\\"{"}', '{"b":[1,{"c":1.0}]}', '{}'];
  for (const text of [
    objects.join('\n'),
    `[${objects.join(', ')}]`,
    `[${objects[0]}]\n[${objects[1]},${objects[2]}]\n`,
  ])
    for (const pieces of cuts(text)) {
      const reader = new JsonReader();
      assert.deepEqual(
        [...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()],
        objects,
      );
    }
  assert.throws(() => new JsonReader().push('a,b'), FormatError);
  const cut = new JsonReader();
  cut.push('[{"a":1}');
  assert.throws(() => cut.end(), FormatError);
});

test('the delimiter divides lines evenly', () => {
  const delimiters = [
    'a,b\n1,2',
    'a;b\n"x, y, z";4,5\n',
    'a\tb\nx, y\tz',
    'a|b',
    'name\nTea, green',
  ];
  assert.deepEqual(delimiters.map(delimiterOf), [',', ';', '\t', '|', ',']);
});

test('a type is that of all cells, and numbers keep their digits', () => {
  const max = '9223372036854775807';
  assert.strictEqual(typeOf('n', ['1', '-2', max], false), 'integer');
  assert.strictEqual(typeOf('n', ['1', '4.50', '1e-7'], false), 'number');
  for (const cells of [
    ['01234', '98765'],
    ['1E5'],
    ['18446744073709551616'],
    ['1', 'x'],
    ['+1'],
    [],
  ])
    assert.strictEqual(typeOf('n', cells, false), 'text', String(cells));
  assert.strictEqual(typeOf('_id', ['1'], false), 'text');
  assert.strictEqual(typeOf('n', ['true', 'FALSE'], false), 'boolean');
  assert.strictEqual(typeOf('n', ['[1]', '{}'], false), 'json');
  assert.strictEqual(jsonOf(max, 'integer', false), max);
  assert.strictEqual(jsonOf('4.50', 'number', false), '4.50');
  assert.strictEqual(jsonOf('4,50', 'number', true), '4.50');
  assert.strictEqual(jsonOf('="007"', 'text', false), '"007"');
  assert.deepEqual(namesOf(['a', '', 'a'], true), ['a', 'column2', 'a 2']);
  assert.deepEqual(namesOf(['a', 'a', 'a 2', 'a 2', 'column5', ''], true), [
    'a',
    'a 3',
    'a 2',
    'a 2 2',
    'column5',
    'column6',
  ]);
  const many = ['a', 'a', 'a 2', 'a 3', 'a', '', 'column6', 'column6 2', 'column6'];
  assert.strictEqual(new Set(namesOf(many, true)).size, many.length);
});

test('documents of dumps are found, and ids are taken from a member', () => {
  const texts = (items: Item[]) => items.map((item) => ('text' in item ? item.text : item.refused));
  assert.deepEqual(texts(itemsOf('{ "k":7.0,"n":1}', '1', 'k')), ['{"_id":"7.0", "k":7.0,"n":1}']);
  assert.deepEqual(texts(itemsOf('{"_id":"a","k":7}', '1', 'k')), ['{"_id":"a","k":7}']);
  assert.deepEqual(texts(itemsOf('{}', '1', 'k')), ['id']);
  const dump = '{"rows":[{"id":"a","doc":{"_id":"a","_rev":"1-a","n":1.0}},{"id":"b"}]}';
  assert.deepEqual(texts(itemsOf(dump, '1', undefined)), [
    '{"_id":"a","_rev":"1-a","n":1.0}',
    'object',
  ]);
  assert.deepEqual(texts(itemsOf('{"new_edits":false,"docs":[{"a":1}]}', '1', undefined)), [
    '{"a":1}',
  ]);
});

test('a document whose member is a list is no dump', () => {
  for (const source of [
    '{"title":"x","docs":[{"a":1}]}',
    '{"query":"x","results":[{"a":1}]}',
    '{"rows":[[1,2]],"columns":2}',
    '{"rows":2}',
  ])
    assert.deepEqual(itemsOf(source, '1', undefined), [
      { text: source, label: '1', hasRev: false },
    ]);
});

test('attachments without data are refused, as one of them would refuse a whole request', () => {
  const stub = '{"_id":"a","_attachments":{"x":{"stub":true,"length":3}}}';
  assert.deepEqual(itemsOf(stub, '1', undefined), [{ label: 'a', refused: 'stub' }]);
  const whole = '{"_id":"a","_attachments":{"x":{"data":"aGk="}}}';
  assert.ok('text' in (itemsOf(whole, '1', undefined)[0] ?? {}));
});

test('columns may have any name', async () => {
  const names = ['constructor', '__proto__', 'toString', 'hasOwnProperty'];
  const { items, misfits } = await read(new File([`${names}\nx,y,1,z\n`], 'a.csv'));
  assert.deepEqual(misfits, []);
  assert.deepEqual(items, [
    {
      text: '{"constructor":"x","__proto__":"y","toString":1,"hasOwnProperty":"z"}',
      label: '2',
      hasRev: false,
    },
  ]);
});

const read = async (file: File, id?: string) => {
  const beginning = await beginningOf(file);
  const settings = { ...settingsOf(beginning), id };
  const { columns } = previewOf(beginning, settings);
  const items: Item[] = [];
  const misfits: string[] = [];
  const all = itemsOfFile(
    file,
    beginning,
    settings,
    columns,
    () => undefined,
    ({ name }) => misfits.push(name),
  );
  for await (const item of all) items.push(item);
  return { beginning, items, misfits };
};

test('a file of a spreadsheet is read, also in an older encoding', async () => {
  const utf8 = await read(new File(['\ufeffplz;ort\r\n01234;Köln\r\n;\r\n'], 'a.csv'), 'plz');
  assert.deepEqual(utf8.items, [
    { text: '{"plz":"01234","ort":"Köln","_id":"01234"}', label: '01234', hasRev: false },
  ]);
  const latin = new Uint8Array([...'a\nK'].map((letter) => letter.charCodeAt(0)).concat(0xf6));
  assert.strictEqual(encodingOf(latin), 'windows-1252');
  const { items } = await read(new File([latin], 'b.csv'));
  assert.ok(items[0] && 'text' in items[0] && items[0].text === '{"a":"Kö"}');
});

test('batches are halved until the document at fault is found', async () => {
  const items: Item[] = Array.from({ length: 9 }, (_, n) => ({
    text: `{"_id":"${n}"}`,
    label: String(n),
    hasRev: n === 8,
  }));
  items.push({ label: 'x', refused: 'id' });
  const bodies: string[] = [];
  const post = (body: string) => {
    bodies.push(body);
    if (body.includes('"5"')) throw new ApiError(400, 'bad_request', 'poisoned', null);
    return Promise.resolve(
      body.includes('"2"')
        ? [{ id: '2', error: 'conflict', reason: 'Document update conflict.' }]
        : [],
    );
  };
  async function* all() {
    yield* items;
  }
  const report = { written: 0, refused: new Map() };
  await write(
    all(),
    async (body) => post(body),
    report,
    () => 'no id',
  );
  assert.strictEqual(report.written, 7);
  assert.deepEqual(
    [...report.refused.values()].map(({ ids }) => ids),
    [['x'], ['2'], ['5']],
  );
  assert.ok(bodies.at(-1)?.startsWith('{"new_edits":false,'));
});

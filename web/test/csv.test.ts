import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cell, csv } from '../src/csv';
import { parse } from '../src/json';

/** The cell of a value as JSON. */
const of = (json: string) => cell(parse(json));

test('numbers keep all their digits', () => {
  for (const [json, kept] of [
    ['9223372036854775807', "'9223372036854775807"],
    ['-9223372036854775808', "'-9223372036854775808"],
    ['123456789012345', '123456789012345'],
    ['-5', '-5'],
    ['1.0', '1.0'],
    ['1e3', '1e3'],
    ['1e999', "'1e999"],
    ['0.1234567890123456789', "'0.1234567890123456789"],
  ] as const)
    assert.strictEqual(of(json), kept);
});

test('texts of digits are kept as texts', () => {
  for (const [text, kept] of [
    ['007', "'007"],
    ['12', '12'],
    ['1.10', "'1.10"],
    ['1E5', "'1E5"],
    ['4111111111111111', "'4111111111111111"],
    ['0', '0'],
    ['0x1f', "'0x1f"],
    ['Infinity', 'Infinity'],
    ['', ''],
  ] as const)
    assert.strictEqual(cell(text), kept);
});

test('no text is a formula', () => {
  for (const text of [
    '=1+1',
    '+49 170',
    '-cmd',
    '@SUM(A1)',
    ' =1',
    '\t=1',
    '\r=1',
    '＝1',
    '=HYPERLINK("http://x","y")',
  ]) {
    const written = cell(text).replace(/^"/, '');
    assert.ok(written.startsWith("'"), written);
  }
  // A spreadsheet may divide cells at semicolons, tabs and lines.
  assert.strictEqual(cell('a;=1'), '"a;\'=1"');
  assert.strictEqual(cell('a\n=1'), '"a\n\'=1"');
  assert.strictEqual(cell('a; ＝1'), '"a; \'＝1"');
});

test('a text of line breaks alone takes no longer than others', () => {
  // Steps that grow with the square of the length would not end here.
  const text = `x${'\n'.repeat(2_000_000)}`;
  assert.strictEqual(cell(text).length, text.length + 2);
});

test('a table is divided as RFC 4180 says', () => {
  assert.strictEqual(
    csv(
      ['a', '=b'],
      [
        ['x,"y"', undefined],
        [null, parse('{"a":[1.0]}')],
        [true, 'two\nlines'],
      ],
    ),
    '\ufeffa,\'=b\r\n"x,""y""",\r\nnull,"{""a"":[1.0]}"\r\ntrue,"two\nlines"\r\n',
  );
});

test('what is written is read again, but for the apostrophes', () => {
  const values = ['a', ' ', '"', ',', 'x\r\ny', '=x', "'", 'ü', '""', 'a,b\n"c"'];
  const text = csv(values, [values]).slice(1);
  const cells = [
    ...text.matchAll(/(?:^|,|\r\n)(?:"((?:[^"]|"")*)"|([^",\r\n]*))(?=,|\r\n|$)/g),
  ].map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain);
  assert.deepEqual(
    cells.slice(0, values.length).map((each) => (each === "'=x" ? '=x' : each)),
    values,
  );
});

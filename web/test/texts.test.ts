import assert from 'node:assert/strict';
import { test } from 'node:test';
import { language } from '../src/i18n';

type Exports = Record<string, unknown>;
const modules = {
  ...import.meta.glob<Exports>('../src/**/texts.ts', { eager: true }),
  ...import.meta.glob<Exports>('../src/ui/mistakes.ts', { eager: true }),
};
const sources = import.meta.glob<string>('../src/**/*.{ts,tsx}', {
  eager: true,
  query: '?raw',
  import: 'default',
});

/** A text in the language that is set, with places for its parameters; `undefined` for no texts. */
function textsOf(name: string, value: unknown): unknown {
  if (typeof value !== 'function' || value.length > 0 || /^(inLine|explainJson)$/.test(name))
    return undefined;
  return (value as () => unknown)();
}

/** [path, text] of all texts below a value. Functions are called with a place for each parameter. */
function* flat(at: string, value: unknown): Generator<[string, string]> {
  if (typeof value === 'string') yield [at, value];
  else if (typeof value === 'function') {
    // As many places as any text has.
    for (const n of ['1', '2'])
      yield [`${at}(${n})`, String((value as (...of: string[]) => string)(n, n, n, n))];
  } else if (value instanceof RegExp) yield [at, `/${value.source}/`];
  else if (typeof value === 'object' && value !== null)
    for (const [name, each] of Object.entries(value)) yield* flat(`${at}.${name}`, each);
}

function all(to: 'en' | 'de'): Map<string, string> {
  language.value = to;
  const found = Object.entries(modules).flatMap(([file, exports]) =>
    Object.entries(exports).flatMap(([name, value]) => [
      ...flat(`${file.replace('../src/', '')} ${name}`, textsOf(name, value)),
    ]),
  );
  language.value = 'en';
  return new Map(found);
}

const [en, de] = [all('en'), all('de')];

test('both languages have the same texts, and none is empty', () => {
  assert.ok(en.size > 900, `${en.size} texts`);
  assert.deepEqual([...de.keys()], [...en.keys()]);
  for (const [at, text] of [...en, ...de]) assert.ok(text.trim() !== '', at);
});

test('a text and its translation have the same parameters', () => {
  const digits = (text: string) => (text.match(/[12]/g) ?? []).sort().join('');
  // Of one thing English names the number too.
  for (const [at, text] of en)
    if (at.endsWith('(2)')) assert.strictEqual(digits(de.get(at) ?? ''), digits(text), at);
});

test('one thing is not named as several', () => {
  // Of several always: revisions in conflict, and factors.
  const several = /\b(solveText|gain)\(/;
  const plurals: [Map<string, string>, RegExp][] = [
    [en, /\b1 (of 1 )?(more )?(?!has\b|accepts\b)[a-z]+s\b|\b1 of them still have\b/],
    [
      de,
      /\b1 (von 1 |der 1 )?(weitere |davon )?(\p{Lu}\p{L}+(ungen|onen|enten?|ilen|nken|ppen|unde|les|rds)|haben|konnten|nehmen)\b/u,
    ],
  ];
  for (const [texts, words] of plurals)
    for (const [at, text] of texts)
      if (at.endsWith('(1)') && !several.test(at)) assert.ok(!words.test(text), `${at}: ${text}`);
});

test('a sentence is one in both languages', () => {
  const end = (text: string) => /[.!?:…]$/.exec(text)?.[0] ?? '';
  for (const [at, text] of en) assert.strictEqual(end(de.get(at) ?? ''), end(text), at);
});

test('texts use the usual words', () => {
  const banned: [Map<string, string>, RegExp][] = [
    [
      en,
      /\b(mend|anew|tells?|told|look(s|ed)? at|whoever|somebody|nobody|is there already|brings? (it )?back|by itself|so many|begun|goes on|go on|of your own|as they stand|given back|meanwhile)\b/i,
    ],
    [
      de,
      /Design-Dokument|\bIds?\b|Komprimier|[Nn]och einmal|sieht .* an\b|Prüffunktion|\bPlatte\b|indizier|beschreiben/,
    ],
  ];
  for (const [texts, words] of banned)
    for (const [at, text] of texts) assert.ok(!words.test(text), `${at}: ${text}`);
});

test('texts are in the files that these tests read', () => {
  const others = Object.entries(sources)
    .filter(([file]) => !/\/(texts|i18n|ui\/mistakes)\.ts$/.test(file))
    .filter(([, source]) => /\btexts(<.*>)?\(\{?$/m.test(source) || /=\s*texts\(/.test(source));
  assert.deepEqual(
    others.map(([file]) => file),
    [],
  );
});

test('lines have at most 100 columns, but for texts that cannot be broken', () => {
  const written = Object.entries(sources).filter(([, source]) => !/^\/\/ .*generated/.test(source));
  const tooLong = written.flatMap(([file, source]) =>
    source
      .split('\n')
      .flatMap((line, n) =>
        line.length > 100 && !/['"`/][^\s].*['"`/]|biome-ignore/.test(line)
          ? [`${file}:${n + 1}`]
          : [],
      ),
  );
  assert.deepEqual(tooLong, []);
});

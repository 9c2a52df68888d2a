import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytes, count, duration, moment, percent, speak } from '../src/i18n';
import { Num } from '../src/json';
import { brief } from '../src/pages/database/views/source';
import { budgetName, short } from '../src/pages/performance/figures';

/** As both languages write it, with plain spaces. */
function both(write: () => string): string[] {
  const all = (['en', 'de'] as const).map((to) => {
    speak(to);
    return write().replaceAll(/[\u00a0\u202f]/g, ' ');
  });
  speak('en');
  return all;
}

test('numbers are written as the language does', () => {
  assert.deepEqual(
    both(() => count(1_234_567)),
    ['1,234,567', '1.234.567'],
  );
  assert.deepEqual(
    both(() => percent(0.0123)),
    ['1.2%', '1,2 %'],
  );
  assert.deepEqual(
    both(() => percent(0.5)),
    ['50%', '50 %'],
  );
});

test('bytes are in units of 1,000', () => {
  assert.deepEqual(
    [0, 1, 999, 1000, 1500, 12_345, 1e6, 5e9, 7.5e12, 1e16].map((n) => both(() => bytes(n))[0]),
    [
      '0 bytes',
      '1 byte',
      '999 bytes',
      '1 kB',
      '1.5 kB',
      '12 kB',
      '1 MB',
      '5 GB',
      '7.5 TB',
      '10,000 TB',
    ],
  );
});

test('a duration has a unit that fits', () => {
  assert.deepEqual(
    [0.000_005, 0.0123, 1.25, 90, 600, 8000, 300_000].map((n) => both(() => duration(n))[0]),
    ['5 μs', '12 ms', '1.3 sec', '90 sec', '10 min', '2.2 hr', '3.5 days'],
  );
});

test('a moment that is none stays as it is', () => {
  assert.strictEqual(moment('never'), 'never');
  assert.match(both(() => moment('2024-05-06T07:08:09Z'))[1] ?? '', /^0\d\.05\.2024, /);
});

test('rates have few digits', () => {
  assert.deepEqual([0, 0.123, 9.999, 12.7].map(short), ['0', '0.12', '10', '13']);
  assert.strictEqual(budgetName('no_such_budget'), 'no such budget');
});

test('a value is cut to what a cell shows', () => {
  assert.strictEqual(brief(undefined), '');
  assert.strictEqual(brief(new Num('1.0')), '1.0');
  assert.strictEqual(brief(['abcdef'], 4), '["ab…');
});

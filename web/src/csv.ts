import { type Json, Num, print } from './json';

/** Spreadsheets keep as many digits of a number. */
const DIGITS_MAX = 15;
/** What a spreadsheet takes for a formula, also where it divides cells in another way. */
const FORMULA = /^\s*[=+\-@\t\r＝＋－＠]/;
const LATER = /([;\t\r\n] *)(?=[=+\-@＝＋－＠])/g;

/** Whether a spreadsheet would show another number: without leading zeros or its last digits. */
function changes(text: string): boolean {
  const trimmed = text.trim();
  if (trimmed === '' || Number.isNaN(Number(trimmed))) return false;
  const digits = trimmed.replace(/e.*/i, '').replace(/\D/g, '').replace(/^0+/, '');
  return digits.length > DIGITS_MAX || String(Number(trimmed)) !== text;
}

/**
 * A value as a cell that spreadsheets show as it is. An apostrophe keeps a text from being a
 * formula, and digits from being changed.
 */
export function cell(value: Json | undefined): string {
  if (value === undefined) return '';
  const text = typeof value === 'string' ? value : print(value);
  const isKept =
    value instanceof Num
      ? !Number.isFinite(value.value) ||
        text.replace(/e.*/i, '').replace(/\D/g, '').length > DIGITS_MAX
      : typeof value === 'string' && (FORMULA.test(text) || changes(text));
  const safe = (isKept ? `'${text}` : text).replace(LATER, "$1'");
  return /[",;\s]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** A table as CSV (RFC 4180) in UTF-8, with the mark by which spreadsheets know it. */
export function csv(head: string[], rows: (Json | undefined)[][]): string {
  const line = (cells: (Json | undefined)[]) => `${cells.map(cell).join(',')}\r\n`;
  return `\ufeff${[head, ...rows].map(line).join('')}`;
}

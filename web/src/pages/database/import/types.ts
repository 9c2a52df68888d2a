import { parse } from '../../../json';

export const TYPES = ['text', 'integer', 'number', 'boolean', 'json'] as const;
export type Type = (typeof TYPES)[number];

export interface Column {
  name: string;
  type: Type;
}

/** More digits than these change when a program reads the number as a double. */
const DIGITS_MAX = 17;
const INTEGER_MIN = -(2n ** 63n);
const INTEGER_MAX = 2n ** 64n - 1n;
/**
 * Numbers as JSON has them. `1E5` is none, because codes look like that: an exponent has a sign, or
 * decimals before it.
 */
const NUMBER = /^-?(\d+)(?:\.(\d+)(?:[eE][+-]?\d+)?|[eE][+-]\d+)?$/;
/** By which spreadsheets keep a text. */
const KEPT = /^="([^"]*)"$/;

/** The names of the columns. Those that stand twice get a number. */
export function namesOf(first: string[], hasHeader: boolean): string[] {
  const own = first.map((cell, n) => (hasHeader && cell.trim()) || `column${n + 1}`);
  const known = new Set(own);
  const times = new Map<string, number>();
  return own.map((name) => {
    let number = (times.get(name) ?? 0) + 1;
    // Another column may have the name with this number.
    while (number > 1 && known.has(`${name} ${number}`)) number++;
    times.set(name, number);
    return number > 1 ? `${name} ${number}` : name;
  });
}

/** The type that all cells of a column have, which are not empty. */
export function typeOf(name: string, cells: string[], isComma: boolean): Type {
  if (name === '_id' || name === '_rev' || cells.length === 0) return 'text';
  const found = new Set(cells.map((cell) => kindOf(cell, isComma)));
  const [only = 'text'] = found;
  if (found.size === 1) return only;
  return found.size === 2 && found.has('integer') && found.has('number') ? 'number' : 'text';
}

function kindOf(cell: string, isComma: boolean): Type {
  return (
    (['integer', 'number', 'boolean', 'json'] as const).find(
      (type) => jsonOf(cell, type, isComma) !== undefined,
    ) ?? 'text'
  );
}

/** The JSON of a cell; `undefined` if it is not of the type. Numbers keep their digits. */
export function jsonOf(cell: string, type: Type, isComma: boolean): string | undefined {
  switch (type) {
    case 'text':
      return JSON.stringify(KEPT.exec(cell)?.[1] ?? cell);
    case 'boolean':
      return /^(?:true|True|TRUE|false|False|FALSE)$/.test(cell) ? cell.toLowerCase() : undefined;
    case 'json':
      return /^[{[]/.test(cell) && isJson(cell) ? cell : undefined;
    default:
      return numberOf(cell, type === 'integer', isComma);
  }
}

function isJson(cell: string): boolean {
  try {
    parse(cell);
    return true;
  } catch {
    return false;
  }
}

function numberOf(cell: string, isInteger: boolean, isComma: boolean): string | undefined {
  if (isComma && cell.includes('.')) return undefined;
  const number = isComma ? cell.replace(',', '.') : cell;
  const [, whole, decimals] = NUMBER.exec(number) ?? [];
  if (whole === undefined || (whole.length > 1 && whole.startsWith('0'))) return undefined;
  if (/^-?\d+$/.test(number)) {
    const value = BigInt(number);
    return value >= INTEGER_MIN && value <= INTEGER_MAX ? number : undefined;
  }
  const isKept = whole.length + (decimals?.length ?? 0) <= DIGITS_MAX;
  return !isInteger && isKept && Number.isFinite(Number(number)) ? number : undefined;
}

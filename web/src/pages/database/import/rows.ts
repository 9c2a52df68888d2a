import { type Column, jsonOf } from './types';

/** A document to be written, or why a value cannot be one. */
export type Item =
  | { text: string; label: string; hasRev: boolean }
  | { label: string; refused: Refusal };

export type Refusal = 'cells' | 'object' | 'id' | 'stub';

export interface RowOptions {
  columns: Column[];
  /** The column whose cells are ids; `undefined` where the server chooses them. */
  id: string | undefined;
  isComma: boolean;
}

/**
 * The document of a row; `undefined` for one without content. `onMisfit` gets the column of a cell
 * that is not of its type, and becomes text.
 */
export function itemOf(
  row: string[],
  label: string,
  { columns, id, isComma }: RowOptions,
  onMisfit: (column: Column) => void,
): Item | undefined {
  if (row.every((cell) => cell === '')) return undefined;
  if (row.length > columns.length) return { label, refused: 'cells' };
  const members = new Map<string, string>();
  for (const [n, column] of columns.entries()) {
    const cell = row[n] ?? '';
    if (cell === '') continue;
    const json = jsonOf(cell, column.type, isComma);
    if (json === undefined) onMisfit(column);
    members.set(column.name, json ?? jsonOf(cell, 'text', isComma) ?? '');
  }
  if (id !== undefined && !members.has('_id')) {
    const cell = row[columns.findIndex(({ name }) => name === id)];
    if (!cell) return { label, refused: 'id' };
    members.set('_id', jsonOf(cell, 'text', isComma) ?? '');
  }
  const own = members.get('_id');
  const all = [...members].map(([name, json]) => `${JSON.stringify(name)}:${json}`);
  return {
    text: `{${all.join(',')}}`,
    label: own === undefined ? label : (JSON.parse(own) as string),
    hasRev: members.has('_rev'),
  };
}

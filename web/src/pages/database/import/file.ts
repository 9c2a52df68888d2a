import { Obj, parse } from '../../../json';
import { CsvReader, type Delimiter, delimiterOf } from './csv';
import { type Item, itemOf } from './rows';
import { type Column, namesOf, typeOf } from './types';
import { itemsOf, JsonReader } from './values';

/** What types and delimiters are detected from. */
const SAMPLE_BYTES = 1 << 20;
const SHOWN = 10;

/** How a file is read, which its user may change. */
export interface Settings {
  delimiter: Delimiter;
  hasHeader: boolean;
  isComma: boolean;
  /** The member or column whose value becomes the id. */
  id: string | undefined;
  /** Types of columns that were chosen, by name: any name, so that this is no object. */
  types: ReadonlyMap<string, Column['type']>;
}

/** The beginning of a file. */
export interface Beginning {
  isCsv: boolean;
  encoding: string;
  text: string;
  /** Whether that is the whole file. */
  isAll: boolean;
}

export async function beginningOf(file: File): Promise<Beginning> {
  const bytes = new Uint8Array(await file.slice(0, SAMPLE_BYTES).arrayBuffer());
  const encoding = encodingOf(bytes);
  const text = new TextDecoder(encoding).decode(bytes, { stream: true });
  // Objects and lists are JSON, whatever the file is called.
  const isCsv = /\.[ct]sv$/i.test(file.name) || !/^\s*[{[]/.test(text);
  return { isCsv, encoding, text, isAll: file.size <= bytes.length };
}

/** Files of older spreadsheets are not UTF-8. */
export function encodingOf(bytes: Uint8Array): string {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return 'utf-16le';
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return 'utf-16be';
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true });
    return 'utf-8';
  } catch {
    return 'windows-1252';
  }
}

export function settingsOf(beginning: Beginning): Settings {
  const delimiter = beginning.isCsv ? delimiterOf(beginning.text) : ',';
  return { delimiter, hasHeader: true, isComma: false, id: undefined, types: new Map() };
}

/** What the first rows or objects become. */
export interface Preview {
  columns: Column[];
  /** The first rows of CSV. */
  rows: string[][];
  /** The first documents. */
  items: Item[];
  /** The names that ids can be taken from. */
  names: string[];
}

/** Throws where the text is not JSON. */
export function previewOf(beginning: Beginning, settings: Settings): Preview {
  if (!beginning.isCsv) return previewOfJson(beginning, settings);
  const reader = new CsvReader(settings.delimiter);
  const all = reader.push(beginning.text);
  if (beginning.isAll) all.push(...reader.end());
  const [first = []] = all;
  const rows = settings.hasHeader ? all.slice(1) : all;
  const columns = namesOf(first, settings.hasHeader).map((name, n) => {
    const cells = rows.map((row) => row[n] ?? '').filter(Boolean);
    return { name, type: settings.types.get(name) ?? typeOf(name, cells, settings.isComma) };
  });
  const options = { columns, id: settings.id, isComma: settings.isComma };
  const items = rows.slice(0, SHOWN).flatMap((row, n) => {
    const item = itemOf(row, String(n + 1), options, () => undefined);
    return item ? [item] : [];
  });
  return { columns, rows: rows.slice(0, SHOWN), items, names: columns.map(({ name }) => name) };
}

function previewOfJson({ text, isAll }: Beginning, { id }: Settings): Preview {
  const reader = new JsonReader();
  const found = reader.push(text);
  if (isAll) reader.end();
  const items = found
    .slice(0, SHOWN)
    .flatMap((source, n) => itemsOf(source, String(n + 1), id))
    .slice(0, SHOWN);
  const names = items.flatMap((item) => {
    const document = 'text' in item ? parse(item.text) : undefined;
    return document instanceof Obj ? [...document.keys()] : [];
  });
  const own = [...new Set(names)].filter((name) => !name.startsWith('_'));
  return { columns: [], rows: [], items, names: own };
}

/** Reads the documents of a whole file. `onRead` gets the bytes that were read so far. */
export async function* itemsOfFile(
  file: File,
  { isCsv, encoding }: Beginning,
  settings: Settings,
  columns: Column[],
  onRead: (bytes: number) => void,
  onMisfit: (column: Column) => void,
): AsyncGenerator<Item> {
  const reader = isCsv ? new CsvReader(settings.delimiter) : new JsonReader();
  const options = { columns, id: settings.id, isComma: settings.isComma };
  let number = 0;
  for await (const text of pieces(file, encoding, onRead)) {
    for (const found of text === undefined ? reader.end() : reader.push(text)) {
      number++;
      if (typeof found === 'string') yield* itemsOf(found, String(number), settings.id);
      else if (number > 1 || !settings.hasHeader) {
        const item = itemOf(found, String(number), options, onMisfit);
        if (item) yield item;
      }
    }
  }
}

/** The text of a file, piece by piece; `undefined` is its end. */
async function* pieces(
  file: File,
  encoding: string,
  onRead: (bytes: number) => void,
): AsyncGenerator<string | undefined> {
  const decoder = new TextDecoder(encoding, { fatal: true });
  const reader = file.stream().getReader();
  let bytes = 0;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      bytes += part.value.length;
      onRead(bytes);
      yield decoder.decode(part.value, { stream: true });
    }
    yield decoder.decode();
    yield;
  } finally {
    await reader.cancel();
  }
}

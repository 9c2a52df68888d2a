import { texts } from '../i18n';
import type { JsonError, Problem } from '../json';

const where = texts<(line: number, column?: number) => string>(
  (line, column) => (column ? `Line ${line}, column ${column}` : `Line ${line}`),
  (line, column) => (column ? `Zeile ${line}, Spalte ${column}` : `Zeile ${line}`),
);

/** What is wrong with a text that is no JSON. */
export const mistakeWords = texts<Record<Problem, string>>(
  {
    value: 'A value is expected here: a text in "…", a number, true, false, null, { or [.',
    comma: 'A comma, or the closing bracket, is expected here.',
    colon: 'A colon is expected here, after the name.',
    name: 'A name in "…" is expected here. Perhaps there is a comma too many before it.',
    string: 'This text does not end, or has a line break in it. Write \\n for one.',
    escape: 'There is no such escape. A backslash itself is written \\\\.',
    number: 'This is no number as JSON writes them.',
    end: 'The text ends too early: a closing bracket is missing.',
    deep: 'This is nested too deeply.',
    more: 'The document ended before this. What follows is too much.',
  },
  {
    value: 'Hier fehlt ein Wert: ein Text in "…", eine Zahl, true, false, null, { oder [.',
    comma: 'Hier fehlt ein Komma oder die schließende Klammer.',
    colon: 'Hier fehlt ein Doppelpunkt nach dem Namen.',
    name: 'Hier fehlt ein Name in "…". Vielleicht steht ein Komma zu viel davor.',
    string: 'Dieser Text endet nicht oder enthält einen Zeilenumbruch. Dafür steht \\n.',
    escape: 'Diese Maskierung gibt es nicht. Ein Backslash selbst ist \\\\.',
    number: 'So schreibt JSON keine Zahlen.',
    end: 'Der Text endet zu früh: eine schließende Klammer fehlt.',
    deep: 'Das ist zu tief verschachtelt.',
    more: 'Das Dokument war davor zu Ende. Was folgt, ist zu viel.',
  },
);

/** In which line, and column, something is. */
export function inLine(line: number, column?: number): string {
  return where()(line, column);
}

/** What is wrong with a text that is no JSON, and where. */
export function explainJson(error: JsonError): string {
  return `${inLine(error.line, error.column)}: ${mistakeWords()[error.problem]}`;
}

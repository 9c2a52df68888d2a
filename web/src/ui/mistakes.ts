import { texts } from '../i18n';
import type { JsonError, Problem } from '../json';

const where = texts<(line: number, column?: number) => string>(
  (line, column) => (column ? `Line ${line}, column ${column}` : `Line ${line}`),
  (line, column) => (column ? `Zeile ${line}, Spalte ${column}` : `Zeile ${line}`),
);

/** What is wrong with a text that is no JSON. */
export const mistakeWords = texts<Record<Problem, string>>(
  {
    value: 'Expected a value: a string in "…", a number, true, false, null, { or [.',
    comma: 'Expected a comma or the closing bracket.',
    colon: 'Expected a colon after the name.',
    name: 'Expected a name in "…". Perhaps the comma before it is superfluous.',
    string: 'This string is not closed, or contains a line break. Write \\n instead.',
    escape: 'Unknown escape sequence. Write \\\\ for a backslash.',
    number: 'This is not a valid JSON number.',
    end: 'Unexpected end: a closing bracket is missing.',
    deep: 'This is nested too deeply.',
    more: 'Unexpected text after the end of the document.',
  },
  {
    value: 'Hier fehlt ein Wert: eine Zeichenkette in "…", eine Zahl, true, false, null, { oder [.',
    comma: 'Hier fehlt ein Komma oder die schließende Klammer.',
    colon: 'Hier fehlt ein Doppelpunkt nach dem Namen.',
    name: 'Hier fehlt ein Name in "…". Vielleicht steht ein Komma zu viel davor.',
    string:
      'Diese Zeichenkette ist nicht geschlossen oder enthält einen Zeilenumbruch. Schreiben Sie dafür \\n.',
    escape: 'Unbekannte Maskierung. Für einen Backslash schreiben Sie \\\\.',
    number: 'Das ist keine gültige JSON-Zahl.',
    end: 'Unerwartetes Ende: Eine schließende Klammer fehlt.',
    deep: 'Das ist zu tief verschachtelt.',
    more: 'Unerwarteter Text nach dem Ende des Dokuments.',
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

import { from, type Json } from '../../../json';
import type { Bar, Series } from './data';
import type { Spot } from './draw';

export interface Drawn {
  head: string[];
  rows: (Json | undefined)[][];
}

/** What bars show, as a table. */
export function ofBars(bars: Bar[], x: string, y: string): Drawn {
  return { head: [x, y], rows: bars.map(({ label, value }) => [label, from(value)]) };
}

/** What lines show, as a table: a row for each place of the axis. */
export function ofLines(lines: Series[], x: string, y: string, isTime: boolean): Drawn {
  const places = [...new Set(lines.flatMap(({ points }) => points.map(([at]) => at)))];
  const values = lines.map(({ points }) => new Map(points));
  return {
    head: [x, ...lines.map(({ name }) => name || y)],
    rows: places
      .sort((a, b) => a - b)
      .map((at) => [
        isTime ? new Date(at).toISOString() : from(at),
        ...values.map((of) => {
          const value = of.get(at);
          return value === undefined ? undefined : from(value);
        }),
      ]),
  };
}

/** What a map shows, as a table. */
export function ofSpots(spots: Spot[], name: string, y: string): Drawn {
  return {
    head: [name, 'longitude', 'latitude', ...(y ? [y] : [])],
    rows: spots.map(({ label, point, value }) => [
      label,
      ...point.map(from),
      ...(y ? [value === undefined ? undefined : from(value)] : []),
    ]),
  };
}

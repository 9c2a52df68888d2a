import { count, language } from '../../../i18n';
import { roundStep } from '../schema/model';
import type { Bar, Point, Series } from './data';
import { stepOf } from './data';
import { LAND } from './land';

/** A path, or a text. Colours are the style sheet's, by class. */
export type Shape =
  | { d: string; class: string; title?: string }
  | { x: number; y: number; text: string; anchor?: 'middle' | 'end' };

export interface Drawing {
  height: number;
  shapes: Shape[];
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function dot(x: number, y: number, r: number): string {
  return `M${round(x - r)} ${round(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
}

/** The multiples of a step between two values. */
function multiples(from: number, to: number, step: number): number[] {
  const first = Math.ceil(from / step);
  const n = Math.max(0, Math.floor(to / step) - first + 1);
  return Array.from({ length: Math.min(n, 100) }, (_, at) => (first + at) * step);
}

const ROW = 24;
const LETTER = 7;
const VALUE = 72;

/** Bars from left to right, each with its label and value. */
export function drawBars(bars: Bar[], width: number): Drawing {
  const left = Math.min(
    200,
    width * 0.38,
    LETTER * Math.max(...bars.map(({ label }) => label.length), 0) + 8,
  );
  const least = Math.min(0, ...bars.map(({ value }) => value));
  const most = Math.max(0, ...bars.map(({ value }) => value));
  const scale = (width - left - VALUE) / (most - least || 1);
  const zero = left + 8 - least * scale;
  const shapes = bars.flatMap(({ label, value }, n): Shape[] => {
    const y = n * ROW;
    const length = Math.floor(left / LETTER);
    const cut = label.length > length ? `${label.slice(0, Math.max(1, length - 1))}…` : label;
    const size = value === 0 ? 1 : value * scale;
    return [
      { x: left, y: y + 16, text: cut, anchor: 'end' },
      {
        d: `M${round(zero)} ${y + 4}h${round(size)}v16h${round(-size)}z`,
        class: 'c0',
        title: `${label}: ${count(value)}`,
      },
      { x: round(zero + Math.max(0, size)) + 6, y: y + 16, text: count(value) },
    ];
  });
  return { height: Math.max(1, bars.length) * ROW, shapes };
}

const HEIGHT = 300;
const [LEFT, TOP, RIGHT, BOTTOM] = [64, 12, 16, 26];
const DOTS_MAX = 200;
const DAY_MS = 86_400_000;

/** A time on an axis, as exact as the axis is long. */
function timeOf(at: number, range: number): string {
  const options: Intl.DateTimeFormatOptions =
    range > 2 * DAY_MS ? { dateStyle: 'medium' } : { timeStyle: 'short' };
  return new Intl.DateTimeFormat(language.value, { ...options, timeZone: 'UTC' }).format(at);
}

/** Lines over time, or over numbers. `fromZero`: the axis of values begins there. */
export function drawLines(
  lines: Series[],
  width: number,
  isTime: boolean,
  fromZero: boolean,
): Drawing {
  const points = lines.flatMap((line) => line.points);
  const xs = points.map(([x]) => x);
  const ys = points.flatMap(([, y]) => (y === undefined ? [] : [y]));
  if (ys.length === 0) return { height: HEIGHT, shapes: [] };
  const extent = (all: number[]) => [
    all.reduce((a, b) => Math.min(a, b)),
    all.reduce((a, b) => Math.max(a, b)),
  ];
  const [first = 0, last = 0] = extent(xs);
  const [least = 0, most = 0] = extent(fromZero ? [0, ...ys] : ys);
  const [right, bottom] = [width - RIGHT, HEIGHT - BOTTOM];
  const x = (at: number) =>
    round(
      last > first ? LEFT + ((at - first) / (last - first)) * (right - LEFT) : (LEFT + right) / 2,
    );
  const y = (at: number) =>
    round(most > least ? bottom - ((at - least) / (most - least)) * (bottom - TOP) : bottom / 2);
  const saidX = (at: number) => (isTime ? timeOf(at, last - first) : count(at));
  const ticks = Math.max(1, Math.floor((right - LEFT) / 110));
  const steps =
    last > first
      ? multiples(
          first,
          last,
          isTime ? stepOf(((last - first) / ticks) * 60, true) : roundStep((last - first) / ticks),
        )
      : [first];
  const levels = most > least ? multiples(least, most, roundStep((most - least) / 6)) : [most];
  const shapes: Shape[] = [
    ...levels.flatMap((at): Shape[] => [
      { d: `M${LEFT} ${y(at)}H${right}`, class: 'grid' },
      { x: LEFT - 8, y: y(at) + 4, text: count(at), anchor: 'end' },
    ]),
    ...steps.map((at): Shape => ({ x: x(at), y: HEIGHT - 6, text: saidX(at), anchor: 'middle' })),
    ...lines.map((line, n): Shape => ({ d: pathOf(line, x, y), class: `line c${n}` })),
  ];
  if (points.length <= DOTS_MAX)
    for (const [n, line] of lines.entries())
      for (const [at, value] of line.points)
        if (value !== undefined)
          shapes.push({
            d: dot(x(at), y(value), 3),
            class: `c${n}`,
            title: [line.name, `${saidX(at)}: ${count(value)}`].filter(Boolean).join(', '),
          });
  return { height: HEIGHT, shapes };
}

/** A line that is broken where nothing is known. */
export function pathOf(
  { points }: Series,
  x: (at: number) => number,
  y: (at: number) => number,
): string {
  let isBroken = true;
  return points
    .map(([at, value]) => {
      if (value === undefined) {
        isBroken = true;
        return '';
      }
      const step = `${isBroken ? 'M' : 'L'}${x(at)} ${y(value)}`;
      // A point alone is drawn as a dot.
      const drawn = isBroken ? `${step}h0` : step;
      isBroken = false;
      return drawn;
    })
    .join('');
}

export interface Spot {
  point: Point;
  label: string;
  /** Its size, where one is chosen. */
  value: number | undefined;
}

const SPOTS_MAX = 5000;
/** Lines of degrees are at least so far apart, in pixels, that labels fit between them. */
const LABEL = 64;
const WORLD = { west: -180, east: 180, south: -60, north: 85 };
/** Of less there is nothing but a grid: outlines are coarse. */
const LAND_MIN_DEGREES = 12;

/** Points on a map, from above: of the world, or of where they are. */
export function drawMap(spots: Spot[], width: number, isWorld: boolean): Drawing {
  const shown = spots.slice(0, SPOTS_MAX);
  const box = isWorld || shown.length === 0 ? WORLD : around(shown);
  // Degrees of longitude are shorter than those of latitude, but at the equator.
  const narrow = isWorld ? 0.8 : Math.max(0.1, Math.cos(((box.north + box.south) / 360) * Math.PI));
  const height = Math.round(Math.min(460, Math.max(220, width * 0.6)));
  const [wide, high] = [(box.east - box.west) * narrow, box.north - box.south];
  const scale = Math.min(width / wide, height / high);
  const x = (at: number) => round((at - (box.west + box.east) / 2) * narrow * scale + width / 2);
  const y = (at: number) => round(((box.south + box.north) / 2 - at) * scale + height / 2);
  const step = roundStep(LABEL / scale / narrow);
  const [halfX, halfY] = [width / 2 / narrow / scale, height / 2 / scale];
  const middle = [(box.west + box.east) / 2, (box.south + box.north) / 2] as const;
  const degrees = (at: number) => `${count(Number(at.toPrecision(9)))}°`;
  const shapes: Shape[] = [];
  if (high >= LAND_MIN_DEGREES) shapes.push({ d: landOf(x, y), class: 'land' });
  for (const at of multiples(middle[0] - halfX, middle[0] + halfX, step))
    shapes.push(
      { d: `M${x(at)} 0V${height}`, class: 'grid' },
      { x: Math.min(width - LABEL / 2, x(at) + 3), y: height - 5, text: degrees(at) },
    );
  for (const at of multiples(middle[1] - halfY, middle[1] + halfY, step))
    shapes.push(
      { d: `M0 ${y(at)}H${width}`, class: 'grid' },
      { x: 4, y: y(at) - 4, text: degrees(at) },
    );
  const most = shown.reduce((a, { value }) => Math.max(a, Math.abs(value ?? 0)), 0);
  for (const { point, label, value } of shown)
    shapes.push({
      d: dot(x(point[0]), y(point[1]), sizeOf(value, most)),
      class: 'spot',
      title: value === undefined ? label : `${label}: ${count(value)}`,
    });
  return { height, shapes };
}

/** The radius of a point, whose area is its value. */
function sizeOf(value: number | undefined, most: number): number {
  return value === undefined || most === 0
    ? 5
    : Math.round((3 + 13 * Math.sqrt(Math.abs(value) / most)) * 10) / 10;
}

function around(spots: Spot[]): typeof WORLD {
  const xs = spots.map(({ point }) => point[0]);
  const ys = spots.map(({ point }) => point[1]);
  const range = (all: number[]) => {
    const [least, most] = [
      all.reduce((a, b) => Math.min(a, b)),
      all.reduce((a, b) => Math.max(a, b)),
    ];
    const edge = Math.max(0.005, (most - least) * 0.1);
    return [least - edge, most + edge] as const;
  };
  const [[west, east], [south, north]] = [range(xs), range(ys)];
  return { west, east, south, north };
}

function landOf(x: (at: number) => number, y: (at: number) => number): string {
  const draw = (points: Point[], shift: number) =>
    `M${points.map(([east, north]) => `${x(east + shift)} ${y(north)}`).join('L')}z`;
  return LAND.split(';')
    .map((ring) => {
      const steps = ring.split(' ').map(Number);
      const points: Point[] = [];
      let [east, north] = [0, 0];
      for (let n = 0; n < steps.length; n += 2) {
        east += (steps[n] ?? 0) / 2;
        north += (steps[n + 1] ?? 0) / 2;
        points.push([east, north]);
      }
      // What reaches over the date line is on both sides of the map.
      const isBoth = points.some(([at]) => at > 180);
      return draw(points, 0) + (isBoth ? draw(points, -360) : '');
    })
    .join('');
}

import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { language } from '../../i18n';
import { nearest, pathOf } from './line';

export interface Line {
  name: string;
  /** The name of a colour of the style. */
  colour: string;
  values: (number | null)[];
}

export interface ChartProps {
  label: string;
  /** Seconds of the clock. */
  times: number[];
  lines: Line[];
  say: (value: number) => string;
  /** What the axis reaches at least, so that what is next to nothing looks so. */
  least: number;
}

const HEIGHT = 130;
/** Where the lines are drawn: room for what stands beside the axes is kept free. */
const [LEFT, TOP, RIGHT, BOTTOM] = [64, 8, 4, 22];
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
/** Between two times: the longest (`01:38:04 PM`), and what the outermost are moved inwards. */
const TIME_SPACE = 108;
const VALUE_SPACE = 30;

/** What is pointed at, in seconds of the clock: in all charts the same. */
const pointed = signal<number | undefined>(undefined);

/**
 * Lines over time. What they show stands beside them in words, so that they are no more than a
 * picture.
 */
export function Chart({ label, times, lines, say, least }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const [first = 0, last = 0] = [times[0], times.at(-1)];
  const most =
    Math.max(least, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))) * 1.1;
  const inner = Math.max(1, width - LEFT - RIGHT);
  const x = (at: number) => LEFT + (last > first ? (at - first) / (last - first) : 1) * inner;
  const y = (value: number) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
  const move = (event: PointerEvent) => {
    const share = (event.clientX - (box.current?.getBoundingClientRect().left ?? 0) - LEFT) / inner;
    pointed.value = first + Math.min(1, Math.max(0, share)) * (last - first);
  };
  return (
    <div
      class="chart"
      ref={box}
      role="img"
      aria-label={label}
      onPointerMove={move}
      onPointerLeave={() => (pointed.value = undefined)}
    >
      {width > 0 && (
        <svg width={width} height={HEIGHT} aria-hidden="true">
          {steps(0, most, nice((most * VALUE_SPACE) / (HEIGHT - TOP - BOTTOM))).map((value) => (
            <g key={value}>
              <path class="is-line" d={`M${LEFT} ${y(value)}H${width - RIGHT}`} />
              <text x={LEFT - 6} y={y(value) + 4} text-anchor="end">
                {say(value)}
              </text>
            </g>
          ))}
          {times.length > 1 &&
            steps(first, last, timeStep(last - first, inner)).map((at) => (
              <text
                key={at}
                x={x(at)}
                y={HEIGHT - 5}
                text-anchor={x(at) < LEFT + 24 ? 'start' : x(at) > width - 40 ? 'end' : 'middle'}
              >
                {clock(at)}
              </text>
            ))}
          {lines.map((line) => (
            <path
              key={line.colour}
              class={`chart-line is-${line.colour}`}
              d={pathOf(times, line.values, (at, value) => `${round(x(at))} ${round(y(value))}`)}
            />
          ))}
          <Pointed times={times} x={x} />
        </svg>
      )}
      <Values times={times} lines={lines} say={say} />
    </div>
  );
}

function Pointed({ times, x }: { times: number[]; x: (at: number) => number }): JSX.Element | null {
  const n = pointedAt(times);
  return n === undefined ? null : (
    <path class="is-soft" d={`M${round(x(times[n] ?? 0))} ${TOP}V${HEIGHT - BOTTOM}`} />
  );
}

/** Says what is below the pointer. */
function Values({ times, lines, say }: Omit<ChartProps, 'label' | 'least'>): JSX.Element | null {
  const n = pointedAt(times);
  if (n === undefined) return null;
  const told = (value: number | null | undefined) =>
    value === null || value === undefined ? '–' : say(value);
  return (
    <output class="chart-point">
      {[clock(times[n] ?? 0), ...lines.map((line) => `${line.name} ${told(line.values[n])}`)].join(
        '  ',
      )}
    </output>
  );
}

/** Which of the times is pointed at. */
function pointedAt(times: number[]): number | undefined {
  const at = pointed.value;
  return at === undefined ? undefined : nearest(times, at);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/** 1, 2 or 5 times a power of ten, and not less. */
function nice(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((each) => each * power >= least) ?? 10);
}

function timeStep(seconds: number, inner: number): number {
  const least = (seconds * TIME_SPACE) / inner;
  return TIME_STEPS.find((step) => step >= least) ?? 3600;
}

/** The multiples of a step between two values. */
function steps(from: number, to: number, step: number): number[] {
  const begin = Math.ceil(from / step);
  return Array.from(
    { length: Math.max(0, Math.floor(to / step) - begin + 1) },
    (_, n) => (begin + n) * step,
  );
}

function clock(at: number): string {
  return new Intl.DateTimeFormat(language.value, {
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
  }).format(at * 1000);
}

import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { csv } from '../../../csv';
import { count } from '../../../i18n';
import { type Json, Num } from '../../../json';
import { link, type Place, refine } from '../../../router';
import {
  Button,
  Check,
  Choice as Choose,
  CopyButton,
  complain,
  download,
  Empty,
  words,
} from '../../../ui';
import { Switch } from '../views/shared';
import {
  barsOf,
  type Choice,
  type Column,
  columnsOf,
  guess,
  type How,
  linesOf,
  type RowKind,
} from './data';
import { type Drawing, drawBars, drawLines, drawMap, type Shape, type Spot } from './draw';
import './chart.css';
import { labelOf } from './data';
import { picture } from './picture';
import { type Drawn, ofBars, ofLines, ofSpots } from './table';
import { say } from './texts';

interface Props {
  rows: Json[];
  kind: RowKind;
  /** What the files are named after. */
  name: string;
  place: Place;
}

const KINDS = ['bars', 'lines', 'map'] as const;
const HOWS: How[] = ['sum', 'average', 'min', 'max'];
/** Of the count of rows, in an address, which has no empty values. */
const COUNT = '*';

/** Which columns each chart takes as its first. */
const FITS: Record<Choice['kind'], (column: Column) => boolean> = {
  bars: ({ kind }) => kind !== 'place',
  lines: ({ kind }) => kind === 'time' || kind === 'number',
  map: ({ kind }) => kind === 'place',
};

/** What the address says, as far as there are such columns. */
function chosen(columns: Column[], { query }: Place): Choice {
  const named = (name: string, fits: (column: Column) => boolean) =>
    columns.find((column) => column.name === query.get(name) && fits(column))?.name;
  const first = guess(
    columns,
    KINDS.find((each) => each === query.get('chart') && columns.some(FITS[each])),
  );
  const isNumber = ({ kind }: Column) => kind === 'number';
  return {
    kind: first.kind,
    x: named('x', FITS[first.kind]) ?? first.x,
    y: query.get('y') === COUNT ? '' : (named('y', isNumber) ?? first.y),
    how: HOWS.find((each) => each === query.get('how')) ?? first.how,
    by: named('by', ({ kind }) => kind === 'text') ?? '',
  };
}

/** The results of a query or a view as bars, as lines or on a map. */
export default function Chart({ rows, kind, name, place }: Props): JSX.Element {
  const t = say();
  const columns = useMemo(() => columnsOf(rows, kind), [rows, kind]);
  const choice = chosen(columns, place);
  const fitting = columns.filter(FITS[choice.kind]);
  const set = (part: Partial<Choice>) => {
    const { kind: chart, x, y, how, by } = { ...choice, ...part };
    refine({ chart, x, y: y === '' ? COUNT : y, how, by });
  };
  if (columns.length === 0)
    return (
      <Empty icon="performance" title={t.nothing}>
        <small>{t.nothingDo}</small>
      </Empty>
    );
  const named = (all: Column[]) => all.map((column) => [column.name, column.name] as const);
  const numbers = columns.filter((column) => column.kind === 'number');
  const isMap = choice.kind === 'map';
  return (
    <div class="drawing views-scroll">
      <Switch
        label={t.kind}
        value={choice.kind}
        of={KINDS.filter((each) => columns.some(FITS[each])).map((each) => [each, t.kinds[each]])}
        onChange={(to) => set({ kind: to })}
      />
      <div class="drawing-choices">
        <Choose
          label={isMap ? t.place : choice.kind === 'lines' ? t.axis : t.x}
          value={choice.x}
          of={named(fitting)}
          onChange={(x) => set({ x })}
        />
        <Choose
          label={isMap ? t.size : t.y}
          value={choice.y}
          of={[['', isMap ? t.same : t.count], ...named(numbers)]}
          onChange={(y) => set({ y })}
        />
        {choice.y !== '' && !isMap && (
          <Choose
            label={t.how}
            value={choice.how}
            of={HOWS.map((how) => [how, t.hows[how]] as const)}
            onChange={(how) => set({ how })}
          />
        )}
        {choice.kind === 'lines' && (
          <Choose
            label={t.by}
            value={choice.by}
            of={[['', t.single], ...named(columns.filter((column) => column.kind === 'text'))]}
            onChange={(by) => set({ by })}
          />
        )}
      </div>
      <Figure {...{ columns, choice, rows: rows.length, name, place }} />
    </div>
  );
}

interface Content {
  title: string;
  notes: string[];
  legend: string[];
  drawn: Drawn;
  draw: (width: number) => Drawing;
}

/** What a chart shows, whatever its width. */
function contentOf(columns: Column[], choice: Choice, isWorld: boolean): Content {
  const t = say();
  const { x, y, how } = choice;
  const saidY = y === '' ? t.count : t.of(t.hows[how], y);
  if (choice.kind === 'bars') {
    const { bars, more } = barsOf(columns, choice);
    return {
      title: t.bars(saidY, x),
      notes: more > 0 ? [t.more(count(more))] : [],
      legend: [],
      drawn: ofBars(bars, x, saidY),
      draw: (width) => drawBars(bars, width),
    };
  }
  const column = columns.find((each) => each.name === x);
  if (choice.kind === 'lines') {
    const { lines, step } = linesOf(columns, choice);
    const isTime = column?.kind === 'time';
    return {
      title: t.lines(saidY, x),
      notes: step > 0 ? [t.step] : [],
      legend: lines.length > 1 ? lines.map((line) => line.name) : [],
      drawn: ofLines(lines, x, saidY, isTime),
      draw: (width) => drawLines(lines, width, isTime, y === '' || how === 'sum'),
    };
  }
  const spots = spotsOf(columns, column, y);
  return {
    title: t.map(x, count(spots.length)),
    notes: [],
    legend: [],
    drawn: ofSpots(spots, words().name, y),
    draw: (width) => drawMap(spots, width, isWorld),
  };
}

function spotsOf(columns: Column[], places: Column | undefined, y: string): Spot[] {
  const named = (name: string) => columns.find((column) => column.name === name);
  const labels = named('_id') ?? named('key') ?? columns.find((column) => column.kind === 'text');
  const values = named(y)?.values;
  return (places?.places ?? []).flatMap((point, n) => {
    const value = values?.[n];
    return point
      ? [
          {
            point,
            label: labelOf(labels?.values[n]),
            value: value instanceof Num ? value.value : undefined,
          },
        ]
      : [];
  });
}

/** The drawing, and the buttons that save it. */
function Figure({
  columns,
  choice,
  rows,
  name,
  place,
}: {
  columns: Column[];
  choice: Choice;
  rows: number;
  name: string;
  place: Place;
}): JSX.Element {
  const t = say();
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const isWorld = place.query.has('world');
  const content = contentOf(columns, choice, isWorld);
  const { shapes, height } = width > 0 ? content.draw(width) : { shapes: [], height: 0 };
  const file = `${name.replace(/[^\p{L}\p{N}_-]+/gu, '-')}-${choice.kind}`;
  const savePng = async () => {
    const svg = box.current?.querySelector('svg');
    if (svg) download(`${file}.png`, await picture(svg));
  };
  const saveCsv = () =>
    download(`${file}.csv`, csv(content.drawn.head, content.drawn.rows), 'text/csv;charset=utf-8');
  return (
    <figure>
      <figcaption class="bar">
        <span class="grow">
          <strong>{content.title}</strong>{' '}
          <span class="soft">{[t.rows(count(rows)), ...content.notes].join(' ')}</span>
        </span>
        {choice.kind === 'map' && (
          <Check
            label={t.world}
            value={isWorld}
            onChange={(is) => refine({ world: is ? '1' : undefined })}
          />
        )}
        <Button icon="download" onClick={() => savePng().catch(complain)}>
          {t.png}
        </Button>
        <Button icon="download" onClick={saveCsv}>
          {t.csv}
        </Button>
        <CopyButton text={() => linkOf(place)}>{t.link}</CopyButton>
      </figcaption>
      {content.legend.length > 0 && (
        <ul class="drawing-legend" aria-label={t.legend}>
          {content.legend.map((each, n) => (
            <li key={each}>
              <span class={`c${n}`} />
              {each}
            </li>
          ))}
        </ul>
      )}
      <div ref={box}>
        <svg class="drawn" width={width} height={height} role="img" aria-label={content.title}>
          {shapes.map((shape, n) => drawn(shape, n))}
        </svg>
      </div>
    </figure>
  );
}

function drawn(shape: Shape, n: number): JSX.Element {
  return 'd' in shape ? (
    <path key={n} d={shape.d} class={shape.class}>
      {shape.title && <title>{shape.title}</title>}
    </path>
  ) : (
    <text key={n} x={shape.x} y={shape.y} text-anchor={shape.anchor}>
      {shape.text}
    </text>
  );
}

/** The link of a query runs it. */
function linkOf({ parts, query }: Place): string {
  const run = query.has('q') ? '1' : undefined;
  const to = link(parts, { ...Object.fromEntries(query), as: 'chart', run });
  return new URL(to, location.href).href;
}

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { language } from '../../i18n';

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
}

const HEIGHT = 130;

/** Lines over time. What they show stands beside them in words, so that they are no more than a picture. */
export default function Chart({ label, times, lines, say }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const told = useRef(say);
  told.current = say;
  const names = lines.map((line) => line.name).join('|');
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    // Canvases know no names of colours: they are asked again when the theme changes.
    const colour = (name: string) => getComputedStyle(element.querySelector(`[data-colour="${name}"]`) ?? element).color;
    const axis = { stroke: () => colour('soft'), grid: { stroke: () => colour('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, sync: { key: 'performance' } },
        axes: [
          { ...axis, size: 24, space: 70, values: (_, all) => all.map((at) => new Intl.DateTimeFormat(language.value, { hour: '2-digit', minute: '2-digit', second: '2-digit' }).format(at * 1000)) },
          { ...axis, size: 64, space: 28, values: (_, all) => all.map((value) => told.current(value)) },
        ],
        scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, 1e-3)] } },
        series: [{}, ...lines.map((line) => ({ label: line.name, stroke: () => colour(line.colour), width: 1.5, points: { show: false } }))],
        hooks: { setCursor: [(u) => point(u, element, told.current)] },
      },
      [times, ...lines.map((line) => line.values)],
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => element.clientWidth > 0 && made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    const redraw = () => made.redraw();
    const themes = new MutationObserver(redraw);
    themes.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', redraw);
    return () => {
      observer.disconnect();
      themes.disconnect();
      dark.removeEventListener('change', redraw);
      made.destroy();
    };
  }, [names, language.value]);
  useEffect(() => plot.current?.setData([times, ...lines.map((line) => line.values)]), [times, lines]);
  return (
    <div class="chart" ref={box} role="img" aria-label={label}>
      <i hidden data-colour="soft" class="is-soft" />
      <i hidden data-colour="line" class="is-line" />
      {lines.map((line) => (
        <i key={line.colour} hidden data-colour={line.colour} class={`is-${line.colour}`} />
      ))}
      <output class="chart-point" aria-hidden="true" />
    </div>
  );
}

/** Says what is below the pointer. */
function point(u: uPlot, element: HTMLElement, say: (value: number) => string): void {
  const output = element.querySelector('.chart-point');
  if (!output) return;
  const at = u.cursor.idx;
  output.textContent = at == null ? '' : u.series.slice(1).map((series, n) => `${typeof series.label === 'string' ? series.label : ''} ${show(u.data[n + 1]?.[at], say)}`).join('  ');
}

function show(value: number | null | undefined, say: (value: number) => string): string {
  return value == null ? '–' : say(value);
}

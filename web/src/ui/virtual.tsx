import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { recall, remember } from '../router';

export interface Column<T> {
  id: string;
  name: string;
  /** As CSS grid tracks have it; `1fr` without. */
  width?: string;
  align?: 'end';
  /** Left out on narrow screens. */
  isExtra?: boolean;
  cell: (row: T, index: number) => ComponentChildren;
  /** Sorts by this when its head is pressed. */
  sort?: () => void;
}

interface TableProps<T> {
  label: string;
  columns: Column<T>[];
  count: number;
  /** `undefined` for one that is not loaded. */
  row: (index: number) => T | undefined;
  /** Which rows are seen: they are to be loaded. */
  onSeen?: (from: number, to: number) => void;
  /** Where a row leads to. */
  href?: (row: T) => string;
  sorted?: { by: string; isDown: boolean } | undefined;
  /** A row that is to be seen, and a number that changes when it is asked for again. */
  goTo?: { index: number; round: number } | undefined;
  rowHeight?: number;
  selected?: (row: T) => boolean;
}

/** Browsers do not draw what is higher. */
const HEIGHT_MAX = 8_000_000;
const MARGIN = 8;

/**
 * A table of as many rows as there are, of which those are drawn that are seen. Arrow keys move,
 * Enter opens. A step back in the history finds it where it was.
 */
export function Table<T>({
  label,
  columns,
  count,
  row,
  onSeen,
  href,
  sorted,
  goTo,
  rowHeight = 36,
  selected,
}: TableProps<T>): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const name = `table ${label}`;
  const [active, setActive] = useState(() => recall<[number, number]>(name)?.[1] ?? 0);
  const all = count * rowHeight;
  // With more than a browser can draw, the bar moves over all rows all the same.
  const scale = all > HEIGHT_MAX ? all / HEIGHT_MAX : 1;
  const keep = () => remember(name, [(box.current?.scrollTop ?? 0) * scale, active]);
  const view = useView(box, (recall<[number, number]>(name)?.[0] ?? 0) / scale, keep);
  const first = Math.floor((view.top * scale) / rowHeight);
  const from = Math.max(0, first - MARGIN);
  const to = Math.min(count, first + Math.ceil(view.height / rowHeight) + MARGIN);
  useEffect(() => onSeen?.(from, to), [from, to, count]);
  const show = (index: number) => {
    const element = box.current;
    if (!element) return;
    const top = (index * rowHeight) / scale;
    const end = top + rowHeight - element.clientHeight + rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (end > element.scrollTop) element.scrollTop = end;
  };
  useEffect(() => {
    if (!goTo) return;
    setActive(goTo.index);
    if (box.current) box.current.scrollTop = (goTo.index * rowHeight) / scale;
  }, [goTo?.round, goTo?.index]);
  const tracks = columns.map((column) => column.width ?? 'minmax(0, 1fr)').join(' ');
  const narrow = columns
    .filter((column) => !column.isExtra)
    .map((column) => column.width ?? 'minmax(0, 1fr)')
    .join(' ');
  const move = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 2);
    const steps: Record<string, number> = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -count,
      End: count,
    };
    const step = steps[event.key];
    if (step !== undefined && event.target === box.current) {
      event.preventDefault();
      const next = Math.min(count - 1, Math.max(0, active + step));
      setActive(next);
      show(next);
    }
    const now = row(active);
    if (event.key === 'Enter' && event.target === box.current && now !== undefined && href) {
      keep();
      location.hash = href(now);
    }
  };
  const drawn: JSX.Element[] = [];
  for (let index = from; index < to; index++)
    drawn.push(
      <Row
        key={index}
        index={index}
        top={index * rowHeight - first * rowHeight + view.top}
        row={row(index)}
        {...{ columns, href, rowHeight, isActive: index === active, selected }}
      />,
    );
  return (
    <div
      class="table"
      role="table"
      aria-label={label}
      aria-rowcount={count + 1}
      ref={(element) =>
        style(element, { '--tracks': tracks, '--narrow': narrow, '--row': `${rowHeight}px` })
      }
    >
      <div class="table-head" role="row">
        {columns.map((column) => (
          <div
            key={column.id}
            role="columnheader"
            class={cell(column)}
            aria-sort={
              sorted?.by === column.id ? (sorted.isDown ? 'descending' : 'ascending') : undefined
            }
          >
            {column.sort ? (
              <button type="button" class="plain" onClick={column.sort}>
                {column.name}
                {sorted?.by === column.id && (
                  <span aria-hidden="true">{sorted.isDown ? ' ↓' : ' ↑'}</span>
                )}
              </button>
            ) : (
              column.name
            )}
          </div>
        ))}
      </div>
      <div
        class="table-body"
        role="rowgroup"
        ref={box}
        tabIndex={0}
        aria-label={label}
        onKeyDown={move}
      >
        <div
          role="presentation"
          ref={(element) =>
            style(element, { height: `${Math.min(all, HEIGHT_MAX)}px`, position: 'relative' })
          }
        >
          {drawn}
        </div>
      </div>
    </div>
  );
}

interface View {
  top: number;
  height: number;
}

/** What of a box is seen; it begins at `first`, and `scrolled` is called when it is scrolled. */
function useView(box: { current: HTMLElement | null }, first: number, scrolled: () => void): View {
  const [view, setView] = useState({ top: 0, height: 600 });
  const latest = useRef(scrolled);
  latest.current = scrolled;
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    element.scrollTop = first;
    const look = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const scroll = () => {
      look();
      latest.current();
    };
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener('scroll', scroll, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', scroll);
    };
  }, []);
  return view;
}

function Row<T>({
  index,
  top,
  row,
  columns,
  href,
  isActive,
  selected,
  rowHeight,
}: {
  index: number;
  top: number;
  row: T | undefined;
  columns: Column<T>[];
  href: ((row: T) => string) | undefined;
  isActive: boolean;
  selected: ((row: T) => boolean) | undefined;
  rowHeight: number;
}): JSX.Element {
  const to = row !== undefined && href ? href(row) : undefined;
  const open = (event: MouseEvent) => {
    const target = event.target as Element;
    if (to && !target.closest('a, button, input, label')) location.hash = to;
  };
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      class={`row${isActive ? ' active' : ''}${to ? ' leads' : ''}${row !== undefined && selected?.(row) ? ' selected' : ''}`}
      ref={(element) =>
        style(element, { transform: `translateY(${top}px)`, height: `${rowHeight}px` })
      }
      onClick={open}
    >
      {columns.map((column) => (
        <div key={column.id} role="cell" class={cell(column)}>
          {row === undefined ? <span class="ghost" /> : column.cell(row, index)}
        </div>
      ))}
    </div>
  );
}

function cell<T>(column: Column<T>): string {
  return [column.align, column.isExtra ? 'extra' : ''].filter(Boolean).join(' ');
}

/** Sets styles by the object model: the policy forbids `style` attributes. */
export function style(element: HTMLElement | null, styles: Record<string, string>): void {
  for (const [name, value] of Object.entries(styles)) element?.style.setProperty(name, value);
}

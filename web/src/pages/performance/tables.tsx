import type { JSX } from 'preact';
import { bytes, duration } from '../../i18n';
import { link, type Place } from '../../router';
import { Button, type Column, Empty, Table } from '../../ui';
import { short } from './figures';
import type { Frame, RouteRates, UseRates } from './snapshot';
import { say } from './texts';

type Refine = (query: Record<string, string | undefined>) => void;

/** A table with a column for each number, sorted by the one that is chosen. */
function Sorted<T extends object>({
  label,
  rows,
  columns,
  first,
  place,
  refine,
}: {
  label: string;
  rows: T[];
  columns: (Column<T> & { by: (row: T) => number | string })[];
  first: string;
  place: Place;
  refine: Refine;
}): JSX.Element | null {
  const wanted = place.query.get('sort') ?? first;
  const by = columns.find((column) => column.id === wanted) ?? columns[0];
  if (!by) return null;
  const isUp = place.query.has('up');
  const sorted = [...rows].sort(
    (a, b) => (by.by(a) < by.by(b) ? 1 : by.by(a) > by.by(b) ? -1 : 0) * (isUp ? -1 : 1),
  );
  const sortable = columns.map((column) => ({
    ...column,
    sort: () => refine({ sort: column.id, up: column.id === by.id && !isUp ? '1' : undefined }),
  }));
  return (
    <div class="busiest">
      <Table
        label={label}
        columns={sortable}
        count={sorted.length}
        row={(n) => sorted[n]}
        sorted={{ by: by.id, isDown: !isUp }}
        rowHeight={32}
      />
    </div>
  );
}

/** What is asked, of which databases and views, the costliest first. */
export function Busiest({
  frame,
  place,
  refine,
}: {
  frame: Frame;
  place: Place;
  refine: Refine;
}): JSX.Element {
  const t = say();
  const which =
    ['routes', 'databases', 'views'].find((id) => id === place.query.get('table')) ?? 'routes';
  const text = place.query.get('filter') ?? '';
  const rows = {
    routes: frame.routes.filter((route) => route.perS > 0),
    databases: frame.databases,
    views: frame.views,
  };
  const same = { label: t.tables[which] ?? which, place, refine };
  const matches = (name: string) => name.toLowerCase().includes(text.toLowerCase());
  const shown =
    which === 'routes'
      ? rows.routes.filter((route) => matches(route.route))
      : rows[which as 'views'].filter(
          (of) => matches(of.name) && of.perS + of.busy + of.functions > 0,
        );
  return (
    <section class="part">
      <div class="bar" role="group" aria-label={t.table}>
        {(['routes', 'databases', 'views'] as const).map((id) => (
          <Button
            key={id}
            aria-pressed={id === which}
            onClick={() =>
              refine({ table: id === 'routes' ? undefined : id, sort: undefined, up: undefined })
            }
          >
            {t.tables[id]}
          </Button>
        ))}
        <input
          type="search"
          aria-label={t.name}
          placeholder={t.name}
          value={text}
          onInput={(event) => refine({ filter: event.currentTarget.value || undefined })}
        />
      </div>
      {shown.length === 0 ? (
        <Empty icon="performance" title={t.quiet} />
      ) : which === 'routes' ? (
        <Sorted {...same} first="perS" rows={shown as RouteRates[]} columns={routeColumns()} />
      ) : (
        <Sorted
          {...same}
          first="busy"
          rows={shown as UseRates[]}
          columns={usageColumns(which === 'views')}
        />
      )}
    </section>
  );
}

type Sortable<T> = Column<T> & { by: (row: T) => number | string };

function number<T>(
  id: string,
  name: string,
  by: (row: T) => number,
  show: (value: number) => string,
  isExtra = false,
): Sortable<T> {
  return {
    id,
    name,
    width: 'minmax(6.2rem, 0.6fr)',
    align: 'end',
    isExtra,
    by,
    cell: (row) => (by(row) === 0 ? <span class="soft">0</span> : show(by(row))),
  };
}

function routeColumns(): Sortable<RouteRates>[] {
  const t = say();
  return [
    {
      id: 'route',
      name: t.route,
      width: 'minmax(0, 1.6fr)',
      by: (row) => row.route,
      cell: (row) => row.route.replaceAll('_', ' '),
    },
    number('perS', t.perS, (row) => row.perS, short),
    number('p50', t.p50, (row) => row.p50, duration, true),
    number('p99', t.p99, (row) => row.p99, duration),
    number('max', t.max, (row) => row.max, duration, true),
    number('refused', t.refused, (row) => row.refused, short, true),
    number('failed', t.failed, (row) => row.failed, short, true),
  ];
}

function usageColumns(isView: boolean): Sortable<UseRates>[] {
  const t = say();
  const all: Sortable<UseRates>[] = [
    {
      id: 'name',
      name: t.name,
      width: 'minmax(0, 2fr)',
      by: (row) => row.name,
      cell: (row) => <Name name={row.name} isView={isView} />,
    },
    number('busy', t.busy, (row) => row.busy, short),
    number('perS', t.perS, (row) => row.perS, short),
    isView
      ? number('function', t.function, (row) => row.functions, short, true)
      : number('writes', t.writesS, (row) => row.writes, short, true),
    number('bytes', t.bytesS, (row) => row.bytes, bytes, true),
  ];
  return all;
}

function Name({ name, isView }: { name: string; isView: boolean }): JSX.Element {
  const [, db = name, design = '', view = ''] = isView
    ? (/^(.*)\/_design\/([^/]*)\/_view\/(.*)$/s.exec(name) ?? [])
    : [];
  const to =
    isView && view
      ? link(['database', db, '_design', design, '_view', view])
      : link(['database', db, '_all_docs']);
  return (
    <a href={to} title={name}>
      {name}
    </a>
  );
}

import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { count, duration } from '../../../i18n';
import { type Json, member, Obj, print, text } from '../../../json';
import { lazy } from '../../../lazy';
import { type Place, refine } from '../../../router';
import { Button, type Column, complain, Editor, Empty, Table } from '../../../ui';
import { Switch, toDocument } from '../views/shared';
import { brief } from '../views/source';
import type { Found } from './ask';
import { say } from './texts';

const COLUMNS_MAX = 8;
const AS = ['table', 'json', 'chart'] as const;

const Chart = lazy(() => import('../chart'));

/** What a query found, as a table, as JSON or as a chart. */
export function Results({
  db,
  found,
  more,
  place,
}: {
  db: string;
  found: Found;
  place: Place;
  more: (bookmark: string) => Promise<Found>;
}): JSX.Element {
  const t = say();
  const [last, setLast] = useState(found);
  const [first, setFirst] = useState(found);
  const [added, setAdded] = useState<Json[]>([]);
  const as = AS.find((each) => each === place.query.get('as')) ?? 'table';
  if (first !== found) {
    setFirst(found);
    setLast(found);
    setAdded([]);
  }
  const rows = useMemo(() => [...found.rows, ...added], [found, added]);
  const load = async () => {
    try {
      const next = await more(last.bookmark);
      setAdded([...added, ...next.rows]);
      setLast(next);
    } catch (error) {
      complain(error);
    }
  };
  const { stats, warning, isGroups } = found;
  const isMore =
    !isGroups && last.bookmark !== '' && last.bookmark !== 'nil' && last.rows.length > 0;
  return (
    <>
      <div class="bar">
        <Switch
          label={t.results}
          value={as}
          onChange={(to) => refine({ as: to === 'table' ? undefined : to })}
          of={[
            ['table', t.table],
            ['json', t.json],
            ['chart', t.chart],
          ]}
        />
        <span class="soft" role="status">
          {(isGroups ? t.groups : t.found)(count(rows.length))}
          {stats && ` · ${t.examined(count(stats.keys), count(stats.docs))}`}
          {stats && ` · ${t.took(duration(stats.seconds))}`}
        </span>
        {isMore && (
          <>
            <span class="grow" />
            <Button icon="down" onClick={load}>
              {t.more}
            </Button>
          </>
        )}
      </div>
      {warning && <p class="notice warn">{warning}</p>}
      {rows.length === 0 ? (
        <Empty icon="search" title={t.nothing}>
          <span>{t.nothingDo}</span>
        </Empty>
      ) : as === 'json' ? (
        <Editor label={t.results} mode="json" isReadOnly value={print(rows, 2)} />
      ) : as === 'chart' ? (
        <Chart rows={rows} kind={isGroups ? 'groups' : 'docs'} name={db} place={place} />
      ) : (
        <Rows db={db} rows={rows} isGroups={isGroups} />
      )}
    </>
  );
}

function Rows({
  db,
  rows,
  isGroups,
}: {
  db: string;
  rows: Json[];
  isGroups: boolean;
}): JSX.Element {
  const hasIds = !isGroups && rows.every((row) => text(member(row, '_id')) !== '');
  return (
    <Table
      label={say().results}
      columns={isGroups ? groupColumns(rows) : columns(db, rows)}
      count={rows.length}
      row={(n) => rows[n]}
      {...(hasIds && { href: (row: Json) => toDocument(db, text(member(row, '_id'))) })}
    />
  );
}

function names(rows: Json[], of: (row: Json) => Json | undefined): string[] {
  const all = new Map<string, number>();
  for (const row of rows.slice(0, 100)) {
    const value = of(row);
    if (value instanceof Obj)
      for (const name of value.keys()) all.set(name, (all.get(name) ?? 0) + 1);
  }
  return [...all.keys()];
}

function columns(db: string, rows: Json[]): Column<Json>[] {
  return names(rows, (row) => row)
    .filter((name) => name !== '_rev')
    .slice(0, COLUMNS_MAX)
    .map((name, n) => ({
      id: name,
      name,
      ...(name === '_id' ? { width: 'minmax(7rem, 1.5fr)' } : {}),
      isExtra: n > 2,
      cell: (row) =>
        name === '_id' ? (
          <a href={toDocument(db, text(member(row, name)))}>{text(member(row, name))}</a>
        ) : (
          <code>{brief(member(row, name))}</code>
        ),
    }));
}

function groupColumns(rows: Json[]): Column<Json>[] {
  return (['key', 'value'] as const).flatMap((part) =>
    names(rows, (row) => member(row, part)).map(
      (name): Column<Json> => ({
        id: `${part}.${name}`,
        name,
        cell: (row) => <code>{brief(member(row, part, name))}</code>,
      }),
    ),
  );
}

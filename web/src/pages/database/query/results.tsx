import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { count, duration } from '../../../i18n';
import { type Json, member, Obj, print, text } from '../../../json';
import { Button, type Column, complain, Editor, Empty, Table } from '../../../ui';
import { Switch, toDocument } from '../views/shared';
import { brief } from '../views/source';
import type { Found } from './ask';
import { say } from './texts';

const COLUMNS_MAX = 8;

/** What a query found, as a table or as JSON. */
export function Results({
  db,
  found,
  more,
}: {
  db: string;
  found: Found;
  more: (bookmark: string) => Promise<Found>;
}): JSX.Element {
  const t = say();
  const [last, setLast] = useState(found);
  const [first, setFirst] = useState(found);
  const [added, setAdded] = useState<Json[]>([]);
  const [as, setAs] = useState<'table' | 'json'>('table');
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
          onChange={setAs}
          of={[
            ['table', t.table],
            ['json', t.json],
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
      ) : isGroups ? (
        <Table
          label={t.results}
          columns={groupColumns(rows)}
          count={rows.length}
          row={(n) => rows[n]}
        />
      ) : rows.every((row) => text(member(row, '_id')) !== '') ? (
        <Table
          label={t.results}
          columns={columns(db, rows)}
          count={rows.length}
          row={(n) => rows[n]}
          href={(row) => toDocument(db, text(member(row, '_id')))}
        />
      ) : (
        <Table
          label={t.results}
          columns={columns(db, rows)}
          count={rows.length}
          row={(n) => rows[n]}
        />
      )}
    </>
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

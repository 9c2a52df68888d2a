import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { type Json, print } from '../../../json';
import { Badge, type Column, Table } from '../../../ui';
import { docLink } from '../address';
import type { DocRow, Rows } from './rows';
import { t } from './texts';

export interface Picking {
  has: (id: string) => boolean;
  /** Selects them, or takes them out. */
  pick: (rows: DocRow[], isOn: boolean) => void;
}

const CELL_MAX = 300;

/** Documents as rows of their fields. */
export function DocsTable({
  db,
  rows,
  fields,
  withDocs,
  seen,
  goTo,
  picking,
}: {
  db: string;
  rows: Rows;
  fields: string[];
  withDocs: boolean;
  seen: (from: number, to: number) => void;
  goTo: { index: number; round: number } | undefined;
  picking: Picking;
}): JSX.Element {
  const columns: Column<DocRow>[] = [
    {
      id: '_pick',
      name: '',
      width: '40px',
      cell: (row, index) => <Pick row={row} index={index} rows={rows} picking={picking} />,
    },
    { id: '_id', name: '_id', width: 'minmax(0, 1.4fr)', cell: (row) => <Id db={db} row={row} /> },
  ];
  if (withDocs)
    for (const [n, field] of fields.entries())
      columns.push({
        id: field,
        name: field,
        isExtra: n > 0,
        cell: (row) => <Value value={row.doc?.get(field)} />,
      });
  else
    columns.push({
      id: '_rev',
      name: '_rev',
      isExtra: true,
      cell: (row) => <code class="soft">{row.rev}</code>,
    });
  return (
    <Table
      label={t().list}
      columns={columns}
      count={rows.count ?? 0}
      row={(index) => rows.row(index)}
      href={(row) => docLink(db, row.id)}
      onSeen={seen}
      goTo={goTo}
      selected={(row) => picking.has(row.id)}
    />
  );
}

/** The box that selects a row; with Shift, all between it and the last one. */
export function Pick({
  row,
  index,
  rows,
  picking,
}: {
  row: DocRow;
  index: number;
  rows: Rows;
  picking: Picking;
}): JSX.Element | null {
  const isRange = useRef(false);
  if (row.missing) return null;
  const change = (isOn: boolean) => {
    const before = lastPicked;
    lastPicked = { rows, index };
    if (!isRange.current || before?.rows !== rows) return picking.pick([row], isOn);
    const [from, to] = [Math.min(before.index, index), Math.max(before.index, index)];
    const between = Array.from({ length: to - from + 1 }, (_, n) => rows.row(from + n)).filter(
      (each) => each !== undefined && !each.missing,
    );
    picking.pick(between as DocRow[], isOn);
  };
  return (
    <input
      type="checkbox"
      aria-label={t().select(row.id)}
      checked={picking.has(row.id)}
      onClick={(event) => (isRange.current = event.shiftKey)}
      onChange={(event) => change(event.currentTarget.checked)}
    />
  );
}

let lastPicked: { rows: Rows; index: number } | undefined;

export function Id({ db, row }: { db: string; row: DocRow }): JSX.Element {
  return (
    <>
      <a href={docLink(db, row.id)} title={row.id}>
        {row.id}
      </a>
      {row.missing && (
        <>
          {' '}
          <Badge kind="warn">{row.missing === 'deleted' ? t().deleted : t().missing}</Badge>
        </>
      )}
      {row.doc?.has('_conflicts') && (
        <>
          {' '}
          <Badge kind="bad">{t().conflicts}</Badge>
        </>
      )}
    </>
  );
}

function Value({ value }: { value: Json | undefined }): JSX.Element | null {
  if (value === undefined) return null;
  if (typeof value === 'string') return <>{value.slice(0, CELL_MAX)}</>;
  const text = print(value);
  return <code title={text.slice(0, CELL_MAX)}>{text.slice(0, CELL_MAX)}</code>;
}

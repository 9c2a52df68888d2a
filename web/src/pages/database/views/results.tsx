import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, path, read, useResource } from '../../../api';
import { count } from '../../../i18n';
import { type Json, member, number, text } from '../../../json';
import { lazy } from '../../../lazy';
import { type Place, refine } from '../../../router';
import { Button, type Column, Empty, Loading, Problem, Table } from '../../../ui';
import { Chooser } from './chooser';
import { type Chosen, chosenOf, limitOf, requestOf } from './options';
import { CopyCurl, Switch, toDocument } from './shared';
import { brief, curl } from './source';
import { say } from './texts';

const Chart = lazy(() => import('../chart'));

/** The rows of a saved view, for options that the address holds. */
export function Results({
  db,
  design,
  view,
  isReduced,
  place,
}: {
  db: string;
  design: string;
  view: string;
  isReduced: boolean;
  place: Place;
}): JSX.Element {
  const [round, setRound] = useState(0);
  const chosen = chosenOf(place.query);
  const request = requestOf(db, design, view, isReduced, chosen);
  const info = useResource(`partitioned ${db}`, (signal) =>
    ask<{ props?: { partitioned?: boolean } }>('GET', path(db), { signal }),
  );
  const found = useResource(`${JSON.stringify(request)} ${round}`, (signal) =>
    read(request.method, request.to, { query: request.query, body: request.body, signal }),
  );
  const all = member(found.data, 'rows');
  const rows = Array.isArray(all) ? all : [];
  const failed = member(found.data, 'errors');
  const isChart = place.query.get('as') === 'chart';
  return (
    <>
      <Chooser
        key={JSON.stringify(chosen)}
        chosen={chosen}
        isReduced={isReduced}
        isPartitioned={info.data?.props?.partitioned === true}
        onRun={() => setRound(round + 1)}
      />
      <Paging
        data={found.data}
        chosen={chosen}
        rows={rows.length}
        isChart={isChart}
        curlText={() => curl(request.method, request.to, request.query, request.body)}
      />
      {found.error !== undefined && <Problem error={found.error} retry={found.reload} />}
      {Array.isArray(failed) && failed.length > 0 && <p class="notice warn">{brief(failed)}</p>}
      {found.isLoading ? (
        <Loading />
      ) : (
        found.data !== undefined &&
        (isChart && rows.length > 0 ? (
          <Chart rows={rows} kind="view" name={`${db}-${view}`} place={place} />
        ) : (
          <Rows
            db={db}
            rows={rows}
            isIds={rows.some((row) => member(row, 'id') !== undefined)}
            hasDocs={request.query.include_docs === 'true'}
          />
        ))
      )}
    </>
  );
}

function Paging({
  data,
  chosen,
  rows,
  isChart,
  curlText,
}: {
  data: Json | undefined;
  chosen: Chosen;
  rows: number;
  isChart: boolean;
  curlText: () => string;
}): JSX.Element {
  const t = say();
  const limit = limitOf(chosen);
  const skip = Number(chosen.skip ?? 0) || 0;
  const total = member(data, 'total_rows');
  const to = (from: number) => refine({ skip: from > 0 ? String(from) : '' });
  return (
    <div class="bar">
      <Button
        icon="left"
        label={t.before}
        disabled={skip === 0}
        onClick={() => to(Math.max(0, skip - limit))}
      />
      <Button
        icon="right"
        label={t.next}
        disabled={rows < limit || limit === 0}
        onClick={() => to(skip + limit)}
      />
      <span class="soft end" role="status">
        {data === undefined
          ? ''
          : total === undefined || rows === 0
            ? t.some(count(rows))
            : t.total(
                count(number(member(data, 'offset')) + 1),
                count(number(member(data, 'offset')) + rows),
                count(number(total)),
              )}
      </span>
      <span class="grow" />
      <Switch
        label={t.results}
        value={isChart ? 'chart' : 'table'}
        of={[
          ['table', t.table],
          ['chart', t.chart],
        ]}
        onChange={(to) => refine({ as: to === 'chart' ? to : undefined })}
      />
      <CopyCurl text={curlText} />
    </div>
  );
}

function Rows({
  db,
  rows,
  isIds,
  hasDocs,
}: {
  db: string;
  rows: Json[];
  isIds: boolean;
  hasDocs: boolean;
}): JSX.Element {
  const t = say();
  if (rows.length === 0)
    return (
      <Empty icon="function" title={t.noRows}>
        <span>{t.noRowsDo}</span>
        <small>{t.throws}</small>
      </Empty>
    );
  const id = (row: Json) => text(member(row, 'value', '_id')) || text(member(row, 'id'));
  const columns: Column<Json>[] = [
    {
      id: 'key',
      name: t.key,
      cell: (row) => <code title={brief(member(row, 'key'))}>{brief(member(row, 'key'))}</code>,
    },
    {
      id: 'value',
      name: t.value,
      cell: (row) => <code title={brief(member(row, 'value'))}>{brief(member(row, 'value'))}</code>,
    },
    ...(isIds
      ? [
          {
            id: 'id',
            name: t.id,
            isExtra: true,
            cell: (row: Json) => (
              <a href={toDocument(db, text(member(row, 'id')))}>{text(member(row, 'id'))}</a>
            ),
          },
        ]
      : []),
    ...(hasDocs
      ? [
          {
            id: 'doc',
            name: t.doc,
            width: 'minmax(0, 2fr)',
            isExtra: true,
            cell: (row: Json) => <code>{brief(member(row, 'doc'))}</code>,
          },
        ]
      : []),
  ];
  return isIds ? (
    <Table
      label={t.results}
      columns={columns}
      count={rows.length}
      row={(n) => rows[n]}
      href={(row) => toDocument(db, hasDocs ? id(row) : text(member(row, 'id')))}
    />
  ) : (
    <Table label={t.results} columns={columns} count={rows.length} row={(n) => rows[n]} />
  );
}

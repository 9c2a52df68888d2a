import type { JSX } from 'preact';
import { ask, path, useResource } from '../../../api';
import { link } from '../../../router';
import {
  say as announce,
  Badge,
  Button,
  type Column,
  complain,
  Empty,
  Loading,
  Problem,
  Table,
} from '../../../ui';
import type { PartProps } from '../index';
import { OnlyAdmins, useMayManage } from '../manage';
import { designs, type Text } from '../views/design';
import { say as ofViews } from '../views/texts';
import type { Of } from './ask';
import { toIndex } from './links';
import { MEMBER } from './request';
import { IndexState, useIndexState } from './state';
import { say } from './texts';

type Row = Text & { design: string; isMango: boolean };

/** All text indexes of a database. */
export function List({ db, info }: Pick<PartProps, 'db' | 'info'>): JSX.Element {
  const [t, v] = [say(), ofViews()];
  const may = useMayManage(db);
  const all = useResource(`designs ${db}`, (signal) => designs(db, signal));
  const rows = (all.data ?? []).flatMap(({ name: design, language, texts }) =>
    texts.map((each): Row => ({ ...each, design, isMango: language === 'query' })),
  );
  const cleanUp = () =>
    Promise.all(
      Object.keys(MEMBER).map((kind) =>
        ask('POST', `${path(db, `${kind}_cleanup`)}`, { body: '' }),
      ),
    ).then(() => announce(v.cleaned), complain);
  const href = ({ design, kind, name }: Row) => toIndex(db, design, kind, name);
  const columns: Column<Row>[] = [
    {
      id: 'name',
      name: v.name,
      width: 'minmax(7rem, 1.2fr)',
      cell: (row) => <a href={href(row)}>{row.name}</a>,
    },
    {
      id: 'design',
      name: v.newDesign,
      isExtra: true,
      cell: (row) => <a href={link(['database', db, '_design', row.design])}>{row.design}</a>,
    },
    {
      id: 'kind',
      name: t.kind,
      width: '7.5rem',
      isExtra: true,
      cell: (row) => <Badge>{row.isMango ? 'Mango' : row.kind}</Badge>,
    },
    {
      id: 'state',
      name: v.size,
      width: 'minmax(12rem, 1.2fr)',
      cell: (row) => (
        <RowState db={db} info={info} design={row.design} kind={row.kind} name={row.name} />
      ),
    },
  ];
  if (all.error !== undefined) return <Problem error={all.error} retry={all.reload} />;
  if (!all.data) return <Loading />;
  const make = may && (
    <a class="button primary" href={link(['database', db, 'new_search'])}>
      {v.newText}
    </a>
  );
  if (rows.length === 0)
    return (
      <Empty icon="search" title={t.nothing}>
        <span>{t.nothingDo}</span>
        {make}
        <OnlyAdmins may={may} />
      </Empty>
    );
  return (
    <div class="views-page">
      {may && (
        <div class="bar">
          <span class="grow" />
          <Button onClick={cleanUp} title={v.cleanUpHint}>
            {v.cleanUp}
          </Button>
          {make}
        </div>
      )}
      <OnlyAdmins may={may} />
      <Table
        label={v.texts}
        columns={columns}
        count={rows.length}
        row={(n) => rows[n]}
        href={href}
      />
    </div>
  );
}

function RowState(of: Of): JSX.Element {
  return <IndexState told={useIndexState(of)} />;
}

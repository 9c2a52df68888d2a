import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { ask, path, useResource } from '../../../api';
import { bytes, count } from '../../../i18n';
import { link } from '../../../router';
import { Badge, Button, type Column, Empty, Loading, Problem, Table, complain, say as announce } from '../../../ui';
import { t as ofDatabase } from '../texts';
import { type Text, designs } from '../views/design';
import { say as ofViews } from '../views/texts';
import { stateOf } from './ask';
import { toIndex } from './index';
import { type Kind, MEMBER } from './request';
import { say } from './texts';

type Row = Text & { design: string; isMango: boolean };

const POLL_MS = 4000;

/** All text indexes of a database. */
export function List({ db, seq }: { db: string; seq: unknown }): JSX.Element {
  const [t, v] = [say(), ofViews()];
  const all = useResource(`designs ${db}`, (signal) => designs(db, signal));
  const rows = (all.data ?? []).flatMap(({ name: design, language, texts }) => texts.map((each): Row => ({ ...each, design, isMango: language === 'query' })));
  const cleanUp = () => Promise.all(Object.keys(MEMBER).map((kind) => ask('POST', `${path(db, `${kind}_cleanup`)}`, { body: '' }))).then(() => announce(v.cleaned), complain);
  const href = ({ design, kind, name }: Row) => toIndex(db, design, kind, name);
  const columns: Column<Row>[] = [
    { id: 'name', name: v.name, width: 'minmax(7rem, 1.2fr)', cell: (row) => <a href={href(row)}>{row.name}</a> },
    { id: 'design', name: v.newDesign, isExtra: true, cell: (row) => <a href={link(['database', db, '_design', row.design])}>{row.design}</a> },
    { id: 'kind', name: t.kind, width: '7.5rem', isExtra: true, cell: (row) => <Badge>{row.isMango ? 'Mango' : row.kind}</Badge> },
    { id: 'state', name: v.size, width: 'minmax(12rem, 1.2fr)', cell: (row) => <StateOf {...row} db={db} seq={seq} /> },
  ];
  if (all.error !== undefined) return <Problem error={all.error} retry={all.reload} />;
  if (!all.data) return <Loading />;
  const make = (
    <a class="button primary" href={link(['database', db, 'new_search'])}>
      {v.newText}
    </a>
  );
  if (rows.length === 0)
    return (
      <Empty icon="search" title={t.nothing}>
        <span>{t.nothingDo}</span>
        {make}
      </Empty>
    );
  return (
    <div class="views-page">
      <div class="bar">
        <span class="grow" />
        <Button onClick={cleanUp} title={v.cleanUpHint}>
          {v.cleanUp}
        </Button>
        {make}
      </div>
      <Table label={v.texts} columns={columns} count={rows.length} row={(n) => rows[n]} href={href} />
    </div>
  );
}

/** How much an index has, and whether it has all; asked again `after` it was searched. */
export function StateOf({ db, design, kind, name, seq, after }: { db: string; design: string; kind: Kind; name: string; seq: unknown; after?: unknown }): JSX.Element | null {
  const info = useResource(`${kind} ${db}/${design}/${name}`, (signal) => stateOf(db, design, kind, name, seq, signal), POLL_MS);
  useEffect(() => {
    if (after !== undefined) info.reload();
  }, [after]);
  if (info.error !== undefined) {
    const told = info.error instanceof Error ? info.error.message : '';
    return (
      <span title={told}>
        <Badge kind="bad">{told}</Badge>
      </span>
    );
  }
  if (!info.data) return null;
  const { docs, size, behind } = info.data;
  return (
    <>
      {ofDatabase().count(count(docs))}, {bytes(size)} {behind > 0 ? <Badge kind="info">{ofViews().behind(count(behind))}</Badge> : <Badge kind="good">{ofViews().current}</Badge>}
    </>
  );
}

import type { JSX } from 'preact';
import { ask, path, useResource } from '../../../api';
import { bytes, count } from '../../../i18n';
import { link, type Place, refine } from '../../../router';
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
import { OnlyAdmins, useMayManage } from '../manage';
import { toIndex } from '../search/links';
import { type Design, designs, type Info, infoOf, type Kind, type Text } from './design';
import { toDesign, toFunction, toView } from './links';
import { say } from './texts';

type Row = { design: Design; kind?: Kind | Text['kind'] | 'view'; name: string };

const POLL_MS = 4000;

/** All design documents, each with its views and functions below it. */
export function List({ db, place }: { db: string; place: Place }): JSX.Element {
  const t = say();
  const may = useMayManage(db);
  const all = useResource(`designs ${db}`, (signal) => designs(db, signal));
  const find = place.query.get('find') ?? '';
  const rows = [...(all.data ?? [])]
    .sort((a, b) => Number(a.language === 'query') - Number(b.language === 'query'))
    .flatMap((design) => rowsOf(design, find.toLowerCase()));
  const cleanUp = () =>
    ask('POST', `${path(db)}/_view_cleanup`, { body: '' }).then(
      () => announce(t.cleaned),
      complain,
    );
  const columns: Column<Row>[] = [
    {
      id: 'name',
      name: t.name,
      width: 'minmax(9rem, 2fr)',
      cell: (row) => <Name db={db} row={row} />,
    },
    {
      id: 'kind',
      name: t.kind,
      width: '8.5rem',
      cell: (row) => (
        <span class="soft">
          {row.kind === undefined
            ? row.design.language === 'query'
              ? t.mango
              : t.design
            : row.kind === 'view'
              ? t.view
              : t.kinds[row.kind]}
        </span>
      ),
    },
    {
      id: 'language',
      name: t.language,
      width: '7rem',
      isExtra: true,
      cell: (row) => row.kind === undefined && <Badge>{row.design.language}</Badge>,
    },
    {
      id: 'size',
      name: t.size,
      width: '14rem',
      isExtra: true,
      cell: (row) => row.kind === undefined && <State db={db} design={row.design} />,
    },
  ];
  if (all.error !== undefined) return <Problem error={all.error} retry={all.reload} />;
  if (!all.data) return <Loading />;
  return (
    <div class="views-page">
      <div class="bar">
        <input
          type="search"
          aria-label={t.search}
          placeholder={t.search}
          value={find}
          onInput={(event) => refine({ find: event.currentTarget.value })}
        />
        <span class="grow" />
        {may && (
          <>
            <Button onClick={cleanUp} title={t.cleanUpHint}>
              {t.cleanUp}
            </Button>
            <a class="button primary" href={link(['database', db, 'new_view'])}>
              {t.newView}
            </a>
          </>
        )}
      </div>
      <OnlyAdmins may={may} />
      {all.data.length === 0 ? (
        <Empty icon="function" title={t.nothing}>
          <span>{t.nothingDo}</span>
        </Empty>
      ) : (
        <Table
          label={t.designs}
          columns={columns}
          count={rows.length}
          row={(n) => rows[n]}
          href={(row) => hrefOf(db, row)}
        />
      )}
    </div>
  );
}

function rowsOf(design: Design, find: string): Row[] {
  const isIn = (name: string) => name.toLowerCase().includes(find);
  const inner: Row[] = [
    ...design.views.map((name) => ({ design, kind: 'view' as const, name })),
    ...[...design.texts, ...design.functions].map(({ kind, name }) => ({ design, kind, name })),
  ];
  const own = isIn(design.name) ? inner : inner.filter((row) => isIn(row.name || (row.kind ?? '')));
  // An index of Mango is one row, of its own page.
  if (design.language === 'query')
    return own.length > 0 || isIn(design.name)
      ? [{ design, name: [...design.views, ...design.texts.map((each) => each.name)].join(', ') }]
      : [];
  return own.length > 0 || isIn(design.name) ? [{ design, name: design.name }, ...own] : [];
}

function hrefOf(db: string, { design, kind, name }: Row): string {
  if (design.language === 'query') return link(['database', db, '_index']);
  if (kind === undefined) return toDesign(db, design.name);
  if (kind === 'view') return toView(db, design.name, name);
  return kind === '_search' || kind === '_nouveau'
    ? toIndex(db, design.name, kind, name)
    : toFunction(db, design.name, kind, name);
}

function Name({ db, row }: { db: string; row: Row }): JSX.Element {
  return (
    <a class={row.kind === undefined ? '' : 'views-indent'} href={hrefOf(db, row)}>
      {row.kind === undefined ? <strong>{row.name}</strong> : row.name || row.kind}
    </a>
  );
}

/** How large an index is and whether it is up to date. */
function State({ db, design }: { db: string; design: Design }): JSX.Element | null {
  const t = say();
  const info = useResource(
    design.views.length > 0 ? `info ${db}/${design.name}` : undefined,
    (signal) => infoOf(db, design.name, signal),
    POLL_MS,
  );
  if (design.views.length === 0) return <span class="soft">{t.noIndex}</span>;
  const index = info.data?.view_index;
  return index ? (
    <>
      {bytes(index.sizes.file)} <StateBadge index={index} />
    </>
  ) : null;
}

export function StateBadge({ index }: { index: Info['view_index'] }): JSX.Element {
  const t = say();
  const pending = index.updates_pending?.total ?? 0;
  if (index.updater_running) return <Badge kind="warn">{t.building}</Badge>;
  if (index.compact_running) return <Badge kind="warn">{t.compacting}</Badge>;
  return pending > 0 ? (
    <Badge kind="info">{t.behind(count(pending))}</Badge>
  ) : (
    <Badge kind="good">{t.current}</Badge>
  );
}

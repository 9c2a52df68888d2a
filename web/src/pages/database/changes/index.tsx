import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { count } from '../../../i18n';
import { type Json, member, Obj, print, text } from '../../../json';
import type { Place } from '../../../router';
import { Badge, Button, type Column, Empty, Loading, Problem, Table } from '../../../ui';
import { toDocument } from '../views/shared';
import { type Choices, choicesOf, wantedOf } from './choices';
import { type Change, Feed, headOf, read } from './feed';
import { Options } from './options';
import { say } from './texts';

/** The changes of a database as they happen. */
export default function Changes({ db, place }: { db: string; place: Place }): JSX.Element {
  const key = place.query.toString();
  const choices = useMemo(() => choicesOf(place.query), [key]);
  const feed = useMemo(() => new Feed(wantedOf(db, choices)), [db, key]);
  useEffect(() => {
    feed.start();
    return () => feed.stop();
  }, [feed]);
  return (
    <div class="views-page">
      <Bar feed={feed} />
      <Options key={`options ${key}`} db={db} choices={choices} />
      <Rows key={key} feed={feed} db={db} choices={choices} />
    </div>
  );
}

function Bar({ feed }: { feed: Feed }): JSX.Element {
  const t = say();
  const state = feed.state.value;
  const isRunning = state === 'live' || state === 'starting' || state === 'waiting';
  return (
    <div class="bar">
      <Button
        icon={isRunning ? 'pause' : 'play'}
        kind={isRunning ? undefined : 'primary'}
        onClick={() => (isRunning ? feed.stop() : feed.start())}
      >
        {isRunning ? t.pause : t.goOn}
      </Button>
      <Button icon="remove" onClick={() => feed.clear()}>
        {t.clear}
      </Button>
      <span role="status">
        <Badge
          kind={
            state === 'live'
              ? 'good'
              : state === 'waiting' || state === 'paused'
                ? 'warn'
                : state === 'ended'
                  ? 'bad'
                  : ''
          }
        >
          {t[state]}
        </Badge>
      </span>
      <Counts feed={feed} />
    </div>
  );
}

/** Apart, as it is drawn with every frame. */
function Counts({ feed }: { feed: Feed }): JSX.Element {
  const t = say();
  void feed.drawn.value;
  return (
    <span class="soft end">
      {t.rate(count(feed.rate.value))} · {t.counts(count(feed.count))}
      {feed.leftOut > 0 && ` · ${t.leftOut(count(feed.leftOut))}`}
    </span>
  );
}

function Rows({ feed, db, choices }: { feed: Feed; db: string; choices: Choices }): JSX.Element {
  const t = say();
  void feed.drawn.value;
  const error = feed.error.value;
  const again = () => feed.start();
  if (error !== undefined) return <Problem error={error} retry={again} />;
  if (feed.size === 0)
    return feed.state.value === 'starting' ? (
      <Loading />
    ) : (
      <Empty icon="replicate" title={choices.isFiltered ? t.nothingFits : t.nothing}>
        <span>{t.nothingDo}</span>
      </Empty>
    );
  const columns: Column<Change>[] = [
    { id: 'id', name: t.id, width: 'minmax(8rem, 2fr)', cell: (row) => <Id db={db} row={row} /> },
    { id: 'what', name: t.what, width: '6rem', cell: (row) => <What row={row} /> },
    {
      id: 'rev',
      name: t.rev,
      width: choices.includeDocs ? '9rem' : 'minmax(0, 2fr)',
      isExtra: true,
      cell: (row) => <code>{revs(read(row)).join(' ')}</code>,
    },
    ...(choices.includeDocs
      ? [
          {
            id: 'doc',
            name: t.doc,
            width: 'minmax(0, 4fr)',
            isExtra: true,
            cell: (row: Change) => <code>{content(read(row))}</code>,
          },
        ]
      : []),
    {
      id: 'seq',
      name: t.seq,
      width: '8rem',
      isExtra: true,
      cell: (row) => <Seq value={member(read(row), 'seq')} />,
    },
  ];
  return (
    <Table
      label={t.label}
      columns={columns}
      count={feed.size}
      row={(index) => feed.at(index)}
      href={(row) => toDocument(db, headOf(row.line).id)}
    />
  );
}

function Id({ db, row }: { db: string; row: Change }): JSX.Element {
  const { id } = headOf(row.line);
  return <a href={toDocument(db, id)}>{id}</a>;
}

function What({ row }: { row: Change }): JSX.Element {
  const t = say();
  if (headOf(row.line).isDeleted) return <Badge kind="bad">{t.deleted}</Badge>;
  return revs(read(row))[0]?.startsWith('1-') ? (
    <Badge kind="good">{t.created}</Badge>
  ) : (
    <Badge>{t.changed}</Badge>
  );
}

function Seq({ value }: { value: Json | undefined }): JSX.Element {
  const all = text(value) || (value ? print(value) : '');
  return <code title={all}>{all}</code>;
}

function revs(row: Json): string[] {
  const all = member(row, 'changes');
  return Array.isArray(all) ? all.map((each) => text(member(each, 'rev'))) : [];
}

function content(row: Json): string {
  const doc = member(row, 'doc');
  if (!(doc instanceof Obj)) return '';
  // Both have columns of their own.
  return print(new Obj([...doc].filter(([name]) => name !== '_id' && name !== '_rev'))).slice(
    0,
    400,
  );
}

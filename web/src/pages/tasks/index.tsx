import type { ComponentChildren, JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { ask, isAdmin, useResource } from '../../api';
import { count, duration, moment, percent } from '../../i18n';
import { link, type Place, refine } from '../../router';
import { Button, type Column, Empty, Loading, Problem, Progress, Table } from '../../ui';
import { merge, Rates, share, type Task, type Work } from './merge';
import { say } from './texts';
import './tasks.css';

const EVERY_MS = 2000;

/** Who may see numbers only is told of tasks by what `settee top` asks. */
async function load(signal: AbortSignal, background: boolean): Promise<Task[]> {
  if (isAdmin.value) return ask<Task[]>('GET', '/_active_tasks', { signal, background });
  return (await ask<{ tasks: Task[] }>('GET', '/_settee/top', { signal, background })).tasks;
}

export default function Tasks({ place }: { place: Place }): JSX.Element {
  const t = say();
  const { data, error, reload } = useResource<Task[]>('tasks', load, EVERY_MS);
  const rates = useRef(new Rates());
  const seen = useRef<{ of: Task[] | undefined; all: Work[] }>({ of: undefined, all: [] });
  if (data && seen.current.of !== data) {
    seen.current = { of: data, all: merge(data) };
    rates.current.note(seen.current.all, Date.now());
  }
  const all = seen.current.all;
  const kind = place.query.get('type') ?? '';
  const kinds = [...new Set([...all.map((work) => work.type), ...(kind ? [kind] : [])])].sort(
    (a, b) => a.localeCompare(b),
  );
  return (
    <>
      <div class="page-head">
        <h1>{t.title}</h1>
      </div>
      <Problem error={error} retry={reload} />
      {!data && !error && <Loading />}
      {kinds.length > 1 && (
        <div class="bar" role="group" aria-label={t.kind}>
          {['', ...kinds].map((each) => (
            <Button
              key={each}
              aria-pressed={each === kind}
              onClick={() => refine({ type: each || undefined })}
            >
              {each ? nameOf(each) : t.all}
              <span class="soft">
                {count(each ? all.filter((work) => work.type === each).length : all.length)}
              </span>
            </Button>
          ))}
        </div>
      )}
      {data && all.length === 0 && (
        <Empty icon="tasks" title={t.nothing}>
          <small>{t.nothingText}</small>
        </Empty>
      )}
      {all.length > 0 && (
        <List
          all={all.filter((work) => !kind || work.type === kind)}
          rates={rates.current}
          place={place}
        />
      )}
    </>
  );
}

function List({ all, rates, place }: { all: Work[]; rates: Rates; place: Place }): JSX.Element {
  const t = say();
  const by = place.query.get('sort') ?? 'kind';
  const isDown = place.query.has('down');
  const sorters: Record<string, (work: Work) => string | number> = {
    kind: (work) => nameOf(work.type),
    what: (work) => work.database || (work.task.source ?? ''),
    progress: (work) => share(work) ?? -1,
    rate: (work) => rates.of(work) ?? -1,
    left: (work) => rates.left(work) ?? Number.POSITIVE_INFINITY,
    started: (work) => work.started,
  };
  const value = sorters[by] ?? ((work: Work) => work.started);
  const rows = [...all].sort(
    (a, b) =>
      compare(value(a), value(b)) * (isDown ? -1 : 1) ||
      a.started - b.started ||
      compare(a.key, b.key),
  );
  const sort = (id: string) => () =>
    refine({ sort: id, down: by === id && !isDown ? '1' : undefined });
  const column = (
    id: string,
    name: string,
    width: string,
    cell: (work: Work) => ComponentChildren,
    more: Partial<Column<Work>> = {},
  ): Column<Work> => ({
    id,
    name,
    width,
    cell,
    ...(sorters[id] ? { sort: sort(id) } : {}),
    ...more,
  });
  const isOneNode = new Set(all.flatMap((work) => work.nodes)).size < 2;
  const columns = [
    column('what', t.what, 'minmax(0, 3fr)', (work) => <What work={work} />),
    column('progress', t.progress, 'minmax(7rem, 2fr)', (work) => <How work={work} />),
    column(
      'rate',
      t.rate,
      '6rem',
      (work) => <Rate value={rates.of(work)} isOpen={work.task.continuous === true} />,
      { align: 'end', isExtra: true },
    ),
    column('left', t.left, '4.8rem', (work) => known(rates.left(work), duration), { align: 'end' }),
    column('started', t.started, '13.5rem', (work) => <Started at={work.started} />, {
      isExtra: true,
    }),
    ...(isOneNode
      ? []
      : [
          column(
            'node',
            t.node,
            'minmax(0, 1fr)',
            (work) => <span title={work.nodes.join(', ')}>{work.nodes.join(', ') || '–'}</span>,
            { isExtra: true },
          ),
        ]),
  ];
  return (
    <Table
      label={t.label}
      columns={columns}
      count={rows.length}
      row={(n) => rows[n]}
      rowHeight={54}
      sorted={{ by, isDown }}
    />
  );
}

/** The page of what a task works on. */
function pageOf({ type, database, design }: Work): string | undefined {
  if (type === 'replication') return link(['replication']);
  if (!database) return undefined;
  return link(
    design ? ['database', database, '_design', design] : ['database', database, '_all_docs'],
  );
}

/** The database, and the design document, that a task works on. */
function objectOf({ database, design }: Work): string | undefined {
  return database && design ? `${database} / ${design}` : database;
}

function What({ work }: { work: Work }): JSX.Element {
  const t = say();
  const { source, target, continuous } = work.task;
  const isReplication = work.type === 'replication';
  const to = pageOf(work);
  const name = isReplication && source ? between(source, target ?? '') : objectOf(work) || t.store;
  return (
    <div class="two-lines">
      {to ? (
        <a
          class="cut"
          href={to}
          title={isReplication && source ? `${bare(source)} → ${bare(target ?? '')}` : name}
        >
          {name}
        </a>
      ) : (
        <span class="cut">{name}</span>
      )}
      <small class="soft cut">
        {[
          nameOf(work.type),
          work.shards > 1 && t.shards(count(work.shards)),
          isReplication && continuous && t.continuous,
        ]
          .filter(Boolean)
          .join(' · ')}
      </small>
    </div>
  );
}

function How({ work }: { work: Work }): JSX.Element {
  const t = say();
  const part = share(work);
  const { docs_written, doc_write_failures, changes_pending } = work.task;
  const told =
    work.type === 'replication'
      ? [
          t.written(count(docs_written ?? 0)),
          changes_pending ? t.waits(count(changes_pending)) : '',
          doc_write_failures ? t.failed(count(doc_write_failures)) : '',
        ]
          .filter(Boolean)
          .join(' · ')
      : work.total === undefined
        ? count(work.done)
        : t.ofTotal(count(work.done), count(work.total));
  return (
    <div class="two-lines">
      {part === undefined ? (
        <span class="soft">–</span>
      ) : (
        <span class="far">
          <Progress value={part} label={t.progress} />
          <span class="end">{percent(part)}</span>
        </span>
      )}
      <small class="soft cut" title={told}>
        {told}
      </small>
    </div>
  );
}

function Rate({ value, isOpen }: { value: number | undefined; isOpen: boolean }): JSX.Element {
  if (value === 0 && !isOpen) return <span class="soft">{say().stands}</span>;
  return <>{known(value, (n) => count(n < 10 ? Math.round(n * 10) / 10 : Math.round(n)))}</>;
}

function Started({ at }: { at: number }): JSX.Element {
  return (
    <div class="two-lines">
      <span>{moment(at * 1000)}</span>
      <small class="soft">
        {say().seconds(duration(Math.max(0, Math.round(Date.now() / 1000 - at))))}
      </small>
    </div>
  );
}

function nameOf(type: string): string {
  return say().kinds[type] ?? type.replaceAll('_', ' ');
}

function known(value: number | undefined, show: (value: number) => string): string {
  return value === undefined ? '–' : show(value);
}

/** An address without its scheme, name and password, and without a slash at its end. */
/** From where to where; their server is left out where it is the same. */
function between(source: string, target: string): string {
  const [from, to] = [bare(source), bare(target)];
  const host = from.slice(0, from.indexOf('/') + 1);
  const isSame = host !== '' && to.startsWith(host);
  return isSame ? `${from.slice(host.length)} → ${to.slice(host.length)}` : `${from} → ${to}`;
}

function bare(address: string): string {
  return address.replace(/^https?:\/\/([^/@]*@)?/, '').replace(/\/$/, '');
}

function compare(a: string | number, b: string | number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { isAdmin, useResource } from '../../api';
import { count, moment } from '../../i18n';
import { link, place, refine } from '../../router';
import {
  Badge,
  type Column,
  complain,
  confirm,
  Empty,
  Loading,
  Problem,
  say,
  Table,
  words,
} from '../../ui';
import { pause, remove, resume } from './act';
import { type Job, keyOf, load, replicators, STATES, type State } from './jobs';
import { ownAddresses } from './own';
import { t } from './texts';
import { bare, meaning, short } from './words';

export const KINDS: Record<State, '' | 'good' | 'warn' | 'bad' | 'info'> = {
  initializing: 'info',
  running: 'good',
  pending: 'info',
  crashing: 'bad',
  error: 'bad',
  failed: 'bad',
  paused: 'warn',
  completed: '',
};

export function linkOf(job: Job): string {
  return link(
    job.db === null
      ? ['replication', 'job', job.id ?? '']
      : ['replication', 'doc', job.db, job.doc],
  );
}

/** How often something was brought back, wherever its reader has gone since. */
const undone = signal(0);

export function List(): JSX.Element {
  const w = t();
  return (
    <>
      <div class="page-head">
        <h1>{w.title}</h1>
        <a class="button primary" href={link(['replication', '_create'])}>
          {w.new}
        </a>
      </div>
      {isAdmin.value ? <Jobs /> : <Empty icon="replicate" title={w.adminsOnly} />}
    </>
  );
}

function Jobs(): JSX.Element {
  const w = t();
  const [every, setEvery] = useState(4000);
  const dbs = useResource('replicators', replicators);
  const own = useResource('own', ownAddresses);
  const { data, error, reload } = useResource(
    dbs.data?.join(),
    async (signal, background) => {
      const jobs = await load(signal, background, dbs.data ?? []);
      setEvery(jobs.length > 300 ? 10_000 : 4000);
      return jobs;
    },
    every,
  );
  const brought = undone.value;
  useEffect(() => void (brought > 0 && reload()), [brought]);
  const query = place.value.query;
  const [search, state, by, isDown] = [
    query.get('q') ?? '',
    query.get('state') ?? '',
    query.get('by') ?? '',
    query.has('down'),
  ];
  const shown = useMemo(
    () =>
      sorted(
        (data ?? []).filter((job) => fits(job, search, state)),
        by,
        isDown,
      ),
    [data, search, state, by, isDown],
  );
  const sort = (id: string) => () =>
    refine({ by: id, down: by === id && !isDown ? '1' : undefined });
  if (error !== undefined && !data) return <Problem error={error} retry={reload} />;
  if (dbs.error !== undefined) return <Problem error={dbs.error} retry={dbs.reload} />;
  if (!data) return <Loading />;
  if (data.length === 0)
    return (
      <Empty icon="replicate" title={w.none}>
        <p>{w.noneDo}</p>
      </Empty>
    );
  return (
    <>
      <div class="bar">
        <input
          type="search"
          aria-label={w.search}
          placeholder={words().search}
          value={search}
          onInput={(event) => refine({ q: event.currentTarget.value })}
        />
        <select
          class="narrow"
          aria-label={w.state}
          value={state}
          onChange={(event) => refine({ state: event.currentTarget.value })}
        >
          <option value="">{w.allStates}</option>
          {STATES.map((each) => (
            <option key={each} value={each} selected={each === state}>
              {`${w.states[each]} (${count(data.filter((job) => job.state === each).length)})`}
            </option>
          ))}
        </select>
        <span class="soft" role="status">
          {w.shown(count(shown.length), count(data.length))}
        </span>
        <Many jobs={shown} done={reload} />
      </div>
      <Problem error={error} retry={reload} />
      {shown.length === 0 ? (
        <Empty icon="search" title={w.nothing} />
      ) : (
        <Table
          label={w.title}
          columns={columnsOf(own.data, sort)}
          count={shown.length}
          row={(n) => shown[n]}
          href={linkOf}
          rowHeight={52}
          sorted={by ? { by, isDown } : undefined}
        />
      )}
    </>
  );
}

function Way({ job, own }: { job: Job; own: string[] | undefined }): JSX.Element {
  const said = bare(job.error);
  const name =
    job.db === null ? '_replicate' : job.db === '_replicator' ? job.doc : `${job.db}/${job.doc}`;
  return (
    <>
      <a
        class="cut replication-line"
        href={linkOf(job)}
        title={`${bare(job.source)} → ${bare(job.target)}`}
      >
        {short(job.source, own)} → {short(job.target, own)}
      </a>
      <small
        class={`cut replication-line ${said ? 'replication-bad' : 'soft'}`}
        title={said ? `${name}: ${said}` : name}
      >
        {said ? (meaning(said) ?? said) : name}
      </small>
    </>
  );
}

/** What is done with all that the filter shows. */
function Many({ jobs, done }: { jobs: Job[]; done: () => void }): JSX.Element {
  const w = t();
  const n = w.many(count(jobs.length));
  const kept = jobs.filter((job) => job.db !== null);
  const work = async (what: string) => {
    try {
      if (what === 'pause')
        await pauseAll(
          kept.filter((job) => runs(job)),
          done,
        );
      if (what === 'resume')
        await resumeAll(
          kept.filter((job) => !runs(job)),
          done,
        );
      if (what === 'delete')
        await confirm({
          title: w.delete,
          text: w.deleteText(n),
          action: w.delete,
          work: () => removeAll(jobs, done),
        });
    } catch (error) {
      complain(error);
    }
  };
  return (
    <select
      class="narrow"
      aria-label={w.withShown}
      value=""
      disabled={jobs.length === 0}
      onChange={(event) => {
        const what = event.currentTarget.value;
        event.currentTarget.value = '';
        void work(what);
      }}
    >
      <option value="">{w.withShown}</option>
      <option value="pause">{w.pause}</option>
      <option value="resume">{w.resume}</option>
      <option value="delete">{w.delete}</option>
    </select>
  );
}

/** Whether it works or waits for its turn. */
export function runs(job: Job): boolean {
  return !['paused', 'failed', 'completed'].includes(job.state);
}

export async function pauseAll(jobs: Job[], done: () => void): Promise<void> {
  await pause(jobs);
  say(t().paused(count(jobs.length)), () => resume(jobs).then(done));
  done();
}

export async function resumeAll(jobs: Job[], done: () => void): Promise<void> {
  await resume(jobs);
  say(t().resumed(count(jobs.length)));
  done();
}

export async function removeAll(jobs: Job[], done: () => void): Promise<void> {
  const back = await remove(jobs);
  say(
    t().deleted(count(jobs.length)),
    jobs.some((job) => job.db !== null) ? () => back().then(() => void undone.value++) : undefined,
  );
  done();
}

function fits(job: Job, search: string, state: string): boolean {
  if (state && job.state !== state) return false;
  const text = bare(`${job.source} ${job.target} ${job.db} ${job.doc} ${job.error}`).toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function sorted(jobs: Job[], by: string, isDown: boolean): Job[] {
  if (!by) return jobs;
  const value = (job: Job): string | number =>
    by === 'state'
      ? STATES.indexOf(job.state)
      : by === 'way'
        ? job.source
        : by === 'started'
          ? job.started
          : (job[by as 'pending'] ?? -1);
  const order = (a: Job, b: Job) => {
    const [x, y] = [value(a), value(b)];
    return x < y ? -1 : x > y ? 1 : keyOf(a) < keyOf(b) ? -1 : 1;
  };
  const up = [...jobs].sort(order);
  return isDown ? up.reverse() : up;
}

function columnsOf(own: string[] | undefined, sort: (id: string) => () => void): Column<Job>[] {
  const w = t();
  return [
    {
      id: 'state',
      name: w.state,
      width: '104px',
      cell: (job) => <Badge kind={KINDS[job.state]}>{w.states[job.state]}</Badge>,
      sort: sort('state'),
    },
    { id: 'way', name: w.way, cell: (job) => <Way job={job} own={own} />, sort: sort('way') },
    {
      id: 'pending',
      name: w.pending,
      width: '96px',
      align: 'end',
      isExtra: true,
      cell: (job) => (job.pending === undefined ? '' : count(job.pending)),
      sort: sort('pending'),
    },
    {
      id: 'rate',
      name: w.rate,
      width: '80px',
      align: 'end',
      isExtra: true,
      cell: (job) => (job.rate === undefined ? '' : count(Math.round(job.rate))),
      sort: sort('rate'),
    },
    {
      id: 'written',
      name: w.written,
      width: '100px',
      align: 'end',
      isExtra: true,
      cell: (job) => (job.written === undefined ? '' : count(job.written)),
      sort: sort('written'),
    },
    {
      id: 'started',
      name: w.started,
      width: '186px',
      isExtra: true,
      cell: (job) => job.started && moment(job.started),
      sort: sort('started'),
    },
  ];
}

import type { JSX } from 'preact';
import { useResource } from '../../api';
import { count, moment } from '../../i18n';
import { go, link } from '../../router';
import { Badge, Button, Copyable, complain, confirm, Loading, Problem, words } from '../../ui';
import { isContinuous, type Job, one, transient } from './jobs';
import { KINDS, pauseAll, removeAll, resumeAll, runs } from './list';
import { t } from './texts';
import { bare, meaning } from './words';

const EVERY_MS = 2000;

/** A replication that has a document. */
export function JobPage({ db, doc }: { db: string; doc: string }): JSX.Element {
  const resource = useResource(
    `${db}/${doc}`,
    (signal, background) => one(signal, background, db, doc),
    EVERY_MS,
  );
  return <Page title={doc} {...resource} />;
}

/** One that `_replicate` began. */
export function OncePage({ id }: { id: string }): JSX.Element {
  const resource = useResource(
    id,
    (signal, background) => transient(signal, background, id),
    EVERY_MS,
  );
  return <Page title={id} {...resource} />;
}

function Page({
  title,
  data,
  error,
  reload,
}: {
  title: string;
  data: Job | undefined;
  error: unknown;
  reload: () => void;
}): JSX.Element {
  const w = t();
  return (
    <>
      <nav class="crumbs">
        <a href={link(['replication'])}>{w.title}</a>
        <span aria-hidden="true">/</span>
        <span>{data?.db && data.db !== '_replicator' ? `${data.db} / ${title}` : title}</span>
      </nav>
      <div class="page-head">
        <h1>{title}</h1>
        {data && <Acts job={data} done={reload} />}
      </div>
      <Problem error={error} retry={reload} />
      {data ? <Details job={data} /> : error === undefined && <Loading />}
    </>
  );
}

function Acts({ job, done }: { job: Job; done: () => void }): JSX.Element {
  const w = t();
  const leave = () => go(['replication']);
  const ask = () =>
    confirm({
      title: w.cancel,
      text: w.cancelText,
      action: w.cancel,
      work: () => removeAll([job], leave),
    });
  if (job.db === null)
    return (
      <Button icon="close" onClick={ask}>
        {w.cancel}
      </Button>
    );
  return (
    <div class="row-of">
      {runs(job) ? (
        <Button icon="pause" onClick={() => pauseAll([job], done).catch(complain)}>
          {w.pause}
        </Button>
      ) : (
        <Button icon="play" onClick={() => resumeAll([job], done).catch(complain)}>
          {job.state === 'paused' ? w.resume : w.restart}
        </Button>
      )}
      <a class="button" href={link(['replication', 'edit', job.db, job.doc])}>
        {words().edit}
      </a>
      <Button icon="remove" onClick={() => removeAll([job], leave).catch(complain)}>
        {w.delete}
      </Button>
    </div>
  );
}

function Details({ job }: { job: Job }): JSX.Element {
  const w = t();
  const said = bare(job.error);
  const rows: [string, JSX.Element | string][] = [
    [w.source, <Copyable text={bare(job.source)} />],
    [w.target, <Copyable text={bare(job.target)} />],
    [w.started, job.started && moment(job.started)],
    [w.updated, job.updated && moment(job.updated)],
    [w.rate, job.rate === undefined ? '' : count(Math.round(job.rate))],
    [w.failures, job.failures > 0 && job.state !== 'paused' ? count(job.failures) : ''],
    [
      w.document,
      job.db === null ? (
        w.noDocument
      ) : (
        <a href={link(['database', job.db, job.doc])}>{`${job.db} / ${job.doc}`}</a>
      ),
    ],
    [w.job, job.id ? <Copyable text={job.id} /> : ''],
  ];
  return (
    <>
      <div class="row-of">
        <Badge kind={KINDS[job.state]}>{w.states[job.state]}</Badge>
        {job.id && <Badge>{isContinuous(job) ? w.continuous : w.once}</Badge>}
      </div>
      {said && (
        <div class="problem" role="alert">
          <div class="problem-text">
            <strong>{meaning(said) ?? w.states.error}</strong>
            <p class="told">{said}</p>
          </div>
        </div>
      )}
      <table class="plain replication-facts">
        <tbody>
          {rows
            .filter(([, value]) => value !== '')
            .map(([name, value]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{value}</td>
              </tr>
            ))}
        </tbody>
      </table>
      <div class="cards replication-parts">
        <Counters job={job} />
        <History job={job} />
      </div>
    </>
  );
}

/** What `info` counts, and what it holds else. */
function Counters({ job }: { job: Job }): JSX.Element | null {
  const w = t();
  const told = Object.entries(job.info).filter(
    ([name, value]) => name !== 'error' && value !== null && typeof value !== 'object',
  );
  if (told.length === 0) return null;
  return (
    <section class="card">
      <h2>{w.progress}</h2>
      <table class="plain">
        <tbody>
          {told.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{w.counters[name] ?? name}</th>
              <td class="end">{typeof value === 'number' ? count(value) : String(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function History({ job }: { job: Job }): JSX.Element {
  const w = t();
  return (
    <section class="card">
      <h2>{w.history}</h2>
      {job.history.length === 0 ? (
        <p class="soft">{w.noHistory}</p>
      ) : (
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">{w.when}</th>
              <th scope="col">{w.what}</th>
            </tr>
          </thead>
          <tbody>
            {job.history.map((event, n) => (
              <tr key={n}>
                <td>{moment(event.timestamp)}</td>
                <td>
                  {w.events[event.type] ?? event.type}
                  {event.reason && (
                    <small class="replication-line replication-told">
                      {meaning(event.reason) ?? bare(event.reason)}
                    </small>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

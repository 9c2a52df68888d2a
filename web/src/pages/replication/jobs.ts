import { ApiError, ask, path } from '../../api';

export type State =
  | 'initializing'
  | 'running'
  | 'pending'
  | 'crashing'
  | 'error'
  | 'failed'
  | 'paused'
  | 'completed';
export const STATES: readonly State[] = [
  'running',
  'pending',
  'initializing',
  'crashing',
  'error',
  'failed',
  'paused',
  'completed',
];

/** A replication, as `_scheduler/docs` or, without a document, `_scheduler/jobs` tells of it. */
export interface Job {
  /** Database and id of its document; `db` is null for one that `_replicate` began. */
  db: string | null;
  doc: string;
  /** The job's own id, while it is one. */
  id: string | null;
  source: string;
  target: string;
  state: State;
  info: Record<string, unknown>;
  error: string;
  failures: number;
  pending: number | undefined;
  written: number | undefined;
  /** Documents a second. */
  rate: number | undefined;
  started: string;
  updated: string;
  history: { timestamp: string; type: string; reason?: string }[];
}

/**
 * Documents of this reason stay where they are and do not run: what CouchDB leaves alone as failed.
 */
export const PAUSED = 'paused';

/** CouchDB answers 100 unless it is asked for more. */
const PAGE = 1000;

interface Told {
  database: string | null;
  doc_id: string | null;
  id: string | null;
  source: string;
  target: string;
  state?: State;
  info: Record<string, unknown> | string | null;
  error_count?: number;
  start_time: string | null;
  last_updated?: string | null;
  pid?: string | null;
  history?: Job['history'];
}

/** All replicator databases: `_replicator`, and those whose names end so. */
export async function replicators(signal?: AbortSignal, background = false): Promise<string[]> {
  const all = await ask<string[]>('GET', '/_all_dbs', { signal, background });
  return all.filter((db) => db === '_replicator' || db.endsWith('/_replicator'));
}

async function pages(
  to: string,
  member: 'docs' | 'jobs',
  signal: AbortSignal,
  background: boolean,
): Promise<Told[]> {
  const all: Told[] = [];
  while (true) {
    const told = await ask<{ total_rows: number; docs?: Told[]; jobs?: Told[] }>('GET', to, {
      query: { limit: PAGE, skip: all.length },
      signal,
      background,
    });
    const rows = told[member] ?? [];
    all.push(...rows);
    if (rows.length < PAGE) return all;
  }
}

/** Everything that replicates, has replicated and is to replicate. */
export async function load(
  signal: AbortSignal,
  background: boolean,
  dbs: string[],
): Promise<Job[]> {
  const docs = dbs.map((db) =>
    pages(`/_scheduler/docs${path(db)}`, 'docs', signal, background).catch(gone),
  );
  const [jobs, ...kept] = await Promise.all([
    pages('/_scheduler/jobs', 'jobs', signal, background),
    ...docs,
  ]);
  return [...jobs.filter((job) => job.doc_id === null), ...kept.flat()].map(read);
}

function gone(error: unknown): Told[] {
  if (error instanceof ApiError && error.status === 404) return [];
  throw error;
}

/** One of a document, with its history where it is a job. */
export async function one(
  signal: AbortSignal,
  background: boolean,
  db: string,
  doc: string,
): Promise<Job> {
  const told = await ask<Told>('GET', `/_scheduler/docs${path(db, doc)}`, { signal, background });
  const job = told.id
    ? await ask<Told>('GET', `/_scheduler/jobs${path(told.id)}`, { signal, background }).catch(gone)
    : undefined;
  return read({ ...told, history: Array.isArray(job) ? [] : (job?.history ?? []) });
}

/** One that `_replicate` began. */
export async function transient(
  signal: AbortSignal,
  background: boolean,
  id: string,
): Promise<Job> {
  return read(await ask<Told>('GET', `/_scheduler/jobs${path(id)}`, { signal, background }));
}

function read(told: Told): Job {
  const info = typeof told.info === 'string' ? { error: told.info } : (told.info ?? {});
  const count = (name: string) => (typeof info[name] === 'number' ? info[name] : undefined);
  const error = typeof info.error === 'string' ? info.error : '';
  const written = count('docs_written');
  const isPaused = told.state === 'failed' && error === PAUSED;
  const job = {
    db: told.database,
    doc: told.doc_id ?? '',
    id: told.id,
    source: told.source ?? '',
    target: told.target ?? '',
    state: isPaused ? 'paused' : (told.state ?? stateOf(told)),
    info,
    error: isPaused ? '' : error,
    failures: told.error_count ?? 0,
    pending: count('changes_pending'),
    written,
    started: told.start_time ?? '',
    updated: told.last_updated ?? '',
    history: told.history ?? [],
  };
  return { ...job, rate: job.state === 'running' ? rate(keyOf(job), written) : undefined };
}

function stateOf({ history, pid }: Told): State {
  const last = history?.[0]?.type;
  return pid || last === 'started' ? 'running' : last === 'crashed' ? 'crashing' : 'pending';
}

export function keyOf({ db, doc, id }: Pick<Job, 'db' | 'doc' | 'id'>): string {
  return db === null ? (id ?? '') : `${db}/${doc}`;
}

const seen = new Map<string, { at: number; written: number; rate: number | undefined }>();

/** How fast it is, by what it had written when it was last asked for. */
function rate(key: string, written: number | undefined): number | undefined {
  if (written === undefined) return undefined;
  const now = Date.now();
  const last = seen.get(key);
  if (last && now - last.at < 900) return last.rate;
  const rate =
    last && written >= last.written
      ? ((written - last.written) * 1000) / (now - last.at)
      : undefined;
  seen.set(key, { at: now, written, rate });
  return rate;
}

export function isContinuous(job: Job): boolean {
  return job.id?.includes('+continuous') ?? false;
}

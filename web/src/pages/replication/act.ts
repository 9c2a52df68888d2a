import { ApiError, ask, docPath, path, read } from '../../api';
import { from, member, Obj, print, text } from '../../json';
import { type Job, PAUSED } from './jobs';

/** What the replicator writes into documents, and what starts them again when it is taken away. */
export const STATE_MEMBERS = [
  '_replication_state',
  '_replication_state_reason',
  '_replication_state_time',
  '_replication_id',
  '_replication_stats',
  '_replication_start_time',
];

/** The documents of jobs, of one database after the other. */
async function documents(jobs: Job[]): Promise<Map<string, Obj[]>> {
  const all = new Map<string, Obj[]>();
  for (const db of new Set(jobs.flatMap((job) => job.db ?? []))) {
    const keys = jobs.filter((job) => job.db === db).map((job) => job.doc);
    const told = await read('POST', `${path(db)}/_all_docs`, {
      query: { include_docs: true },
      body: { keys },
    });
    const rows = member(told, 'rows');
    const docs = Array.isArray(rows) ? rows.map((row) => member(row, 'doc')) : [];
    all.set(
      db,
      docs.filter((doc) => doc instanceof Obj),
    );
  }
  return all;
}

async function write(db: string, docs: Obj[]): Promise<Obj[]> {
  const told = await read('POST', `${path(db)}/_bulk_docs`, { body: print(from({ docs })) });
  const answers = Array.isArray(told) ? told : [];
  const refused = answers.find((answer) => member(answer, 'error') !== undefined);
  if (refused)
    throw new ApiError(
      text(member(refused, 'error')) === 'conflict' ? 409 : 403,
      text(member(refused, 'error')),
      `${text(member(refused, 'id'))}: ${text(member(refused, 'reason'))}`,
      null,
    );
  return answers.filter((answer) => answer instanceof Obj);
}

export function withoutState(doc: Obj): Obj {
  return new Obj([...doc].filter(([name]) => !STATE_MEMBERS.includes(name)));
}

/**
 * Replications that stand still, with all they hold, until they are let go on: failed, for this
 * reason, which no server tries again.
 */
export async function pause(jobs: Job[]): Promise<void> {
  for (const [db, docs] of await documents(jobs)) {
    const paused = docs.map(
      (doc) =>
        new Obj([
          ...withoutState(doc),
          ['_replication_state', 'failed'],
          ['_replication_state_reason', PAUSED],
        ]),
    );
    await write(db, paused);
  }
}

/** Writes them again without a state: so they begin anew, where their checkpoints are. */
export async function resume(jobs: Job[]): Promise<void> {
  for (const [db, docs] of await documents(jobs)) await write(db, docs.map(withoutState));
}

/**
 * Deletes their documents, or cancels those without; answers what brings the documents back as they
 * were.
 */
export async function remove(jobs: Job[]): Promise<() => Promise<void>> {
  for (const job of jobs)
    if (job.db === null)
      await ask('POST', '/_replicate', {
        body: { cancel: true, replication_id: job.id },
        background: true,
      });
  const all = await documents(jobs);
  for (const [db, docs] of all)
    await write(
      db,
      docs.map(
        (doc) =>
          new Obj([
            ['_id', doc.get('_id') ?? null],
            ['_rev', doc.get('_rev') ?? null],
            ['_deleted', true],
          ]),
      ),
    );
  return async () => {
    for (const [db, docs] of all)
      await write(
        db,
        docs.map((doc) => new Obj([...doc].filter(([name]) => name !== '_rev'))),
      );
  };
}

export async function document(db: string, id: string, signal?: AbortSignal): Promise<Obj> {
  const doc = await read('GET', docPath(db, id), { signal });
  return doc instanceof Obj ? doc : new Obj();
}

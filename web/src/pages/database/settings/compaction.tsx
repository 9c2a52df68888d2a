import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ask, isAdmin, mayMeasure, path, useResource } from '../../../api';
import { bytes, percent } from '../../../i18n';
import { Button, Choice, complain, Progress, say } from '../../../ui';
import type { Info } from '../../databases/infos';
import { t } from './texts';

interface Task {
  type: string;
  pid: string;
  database?: string;
  design_document?: string;
  progress?: number;
}

const POLL_MS = 1000;
/** A compaction of little is over before it is seen: so long it is looked for. */
const LOOK_MS = 4000;

/** Compacts, and shows how far that is. */
export function Compaction({
  db,
  info,
  reload,
}: {
  db: string;
  info: Info;
  reload: () => void;
}): JSX.Element | null {
  const [isLooking, setLooking] = useState(false);
  const [before, setBefore] = useState<number>();
  const isRunning = isLooking || info.compact_running === true;
  const tasks = useResource(
    isRunning && mayMeasure.value ? `compaction ${db}` : undefined,
    (signal) => ask<Task[]>('GET', '/_active_tasks', { signal, background: true }),
    POLL_MS,
  );
  const mine = (tasks.data ?? []).filter(
    (task) => task.type.endsWith('_compaction') && ofDatabase(task, db),
  );
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(reload, POLL_MS);
    return () => clearInterval(timer);
  }, [isRunning]);
  useEffect(() => {
    if (!isLooking) return;
    const timer = setTimeout(() => setLooking(false), LOOK_MS);
    return () => clearTimeout(timer);
  }, [isLooking, mine.length]);
  const begin = async (to: string, text: string) => {
    setBefore(info.sizes.file);
    await ask('POST', path(db) + to, { body: {} });
    say(text);
    setLooking(true);
    reload();
  };
  if (!isAdmin.value) return null;
  return (
    <section class="card" aria-label={t().compaction}>
      <h2>{t().compaction}</h2>
      <p class="note">{t().compactionHint}</p>
      <div class="row-of">
        <Button
          disabled={info.compact_running ?? false}
          onClick={() => begin('/_compact', t().began).catch(complain)}
        >
          {t().compact}
        </Button>
        {before !== undefined && (
          <span class="soft" role="status">
            {bytes(before)} → {bytes(info.sizes.file)}
          </span>
        )}
      </div>
      {mine.map((task) => (
        <Running key={task.pid} task={task} />
      ))}
      {mine.length === 0 && info.compact_running && (
        <progress aria-label={t().running(t().database)} />
      )}
      <Views db={db} compact={(name) => begin(path('_compact', name), t().began).catch(complain)} />
      <div class="hinted">
        <Button onClick={() => begin('/_view_cleanup', t().cleaned).catch(complain)}>
          {t().cleanup}
        </Button>
        <p class="note">{t().cleanupHint}</p>
      </div>
    </section>
  );
}

/** CouchDB names the shard: `shards/00000000-7fffffff/db.1700000000`. */
function ofDatabase({ database = '' }: Task, db: string): boolean {
  return database === db || database.replace(/^shards\/[^/]+\//, '').replace(/\.\d+$/, '') === db;
}

function Running({ task }: { task: Task }): JSX.Element {
  const what = task.design_document?.replace(/^_design\//, '') ?? t().database;
  const part = (task.progress ?? 0) / 100;
  return (
    <div class="field">
      <small>
        {t().running(what)} · {percent(part)}
      </small>
      <Progress value={part} label={t().running(what)} />
    </div>
  );
}

function Views({
  db,
  compact,
}: {
  db: string;
  compact: (name: string) => Promise<unknown>;
}): JSX.Element {
  const told = useResource(`designs ${db}`, (signal) =>
    ask<{ rows: { id: string }[] }>('GET', `${path(db)}/_design_docs`, { signal }),
  );
  const names = told.data?.rows.map(({ id }) => id.slice('_design/'.length)) ?? [];
  const [chosen, setChosen] = useState<string>();
  const name = chosen ?? names[0];
  if (name === undefined) return <small class="soft">{told.data && t().noViews}</small>;
  return (
    <div class="bar">
      <div class="grow">
        <Choice
          label={t().view}
          value={name}
          of={names.map((each) => [each, each] as const)}
          onChange={setChosen}
        />
      </div>
      <Button class="low" onClick={() => compact(name)}>
        {t().compactViews}
      </Button>
    </div>
  );
}

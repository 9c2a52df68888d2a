/** A task as `_active_tasks` has it: numbers of what it is about differ by its type. */
export interface Task {
  type: string;
  node?: string;
  database?: string | null;
  design_document?: string;
  progress?: number;
  changes_done?: number;
  total_changes?: number;
  started_on: number;
  updated_on?: number;
  phase?: string;
  // Replications
  replication_id?: string;
  doc_id?: string | null;
  source?: string;
  target?: string;
  continuous?: boolean;
  user?: string | null;
  docs_read?: number;
  docs_written?: number;
  doc_write_failures?: number;
  changes_pending?: number | null;
}

/** What is one piece of work to people: shards of a database are worked on one by one. */
export interface Work {
  key: string;
  type: string;
  database: string;
  design: string;
  nodes: string[];
  shards: number;
  /** `undefined` where the end is not known. */
  total: number | undefined;
  done: number;
  started: number;
  updated: number;
  task: Task;
}

/** `shards/00000000-7fffffff/shop.1700000000` is `shop`. */
export function databaseOf(name: string): string {
  return /^shards\/[0-9a-f]+-[0-9a-f]+\/(.*?)(\.\d+)?$/s.exec(name)?.[1] ?? name;
}

function one(task: Task): Work {
  const database = databaseOf(task.database ?? '');
  const design = (task.design_document ?? '').replace(/^_design\//, '');
  const isReplication = task.type === 'replication';
  const done = task.changes_done ?? task.docs_written ?? 0;
  const pending =
    isReplication && typeof task.changes_pending === 'number'
      ? done + task.changes_pending
      : undefined;
  return {
    key: [task.type, isReplication ? (task.replication_id ?? task.source) : database, design].join(
      ' ',
    ),
    type: task.type,
    database,
    design,
    nodes: task.node ? [task.node] : [],
    shards: 1,
    total: task.total_changes ?? pending,
    done,
    started: task.started_on,
    updated: task.updated_on ?? task.started_on,
    task,
  };
}

/** Tasks of one kind of the same thing are one. */
export function merge(tasks: Task[]): Work[] {
  const all = new Map<string, Work>();
  for (const work of tasks.map(one)) {
    const same = all.get(work.key);
    if (!same) {
      all.set(work.key, work);
      continue;
    }
    same.shards++;
    same.done += work.done;
    same.total =
      same.total === undefined || work.total === undefined ? undefined : same.total + work.total;
    same.started = Math.min(same.started, work.started);
    same.updated = Math.max(same.updated, work.updated);
    same.nodes = [...new Set([...same.nodes, ...work.nodes])];
  }
  return [...all.values()];
}

/** 0 to 1. */
export function share(work: Work): number | undefined {
  if (work.type === 'replication' && work.task.continuous) return undefined;
  return work.total ? Math.min(1, work.done / work.total) : undefined;
}

const WINDOW_MS = 15_000;

/** How fast things get on, of what was seen lately. */
export class Rates {
  private seen = new Map<string, { at: number; done: number }[]>();

  note(all: Work[], now: number): void {
    const next = new Map<string, { at: number; done: number }[]>();
    for (const work of all) {
      const before = (this.seen.get(work.key) ?? []).filter(
        (point) => now - point.at < WINDOW_MS && point.done <= work.done,
      );
      next.set(
        work.key,
        before.at(-1)?.at === now ? before : [...before, { at: now, done: work.done }],
      );
    }
    this.seen = next;
  }

  /** A second; until it was seen twice, over its whole time. */
  of(work: Work): number | undefined {
    const points = this.seen.get(work.key) ?? [];
    const [first, last] = [points[0], points.at(-1)];
    if (first && last && last.at - first.at > 1000)
      return ((last.done - first.done) / (last.at - first.at)) * 1000;
    const seconds = work.updated - work.started;
    return seconds > 0 && work.type !== 'replication' ? work.done / seconds : undefined;
  }

  /** Seconds until it has ended, at that rate. */
  left(work: Work): number | undefined {
    const rate = this.of(work);
    if (!rate || work.total === undefined || work.task.continuous) return undefined;
    return Math.max(0, work.total - work.done) / rate;
  }
}

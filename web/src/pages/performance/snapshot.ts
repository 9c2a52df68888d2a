import type { Task } from '../tasks/merge';

/** What `/_settee/top` answers: sums since the server's start. */
export interface Snapshot {
  node: string;
  version: string;
  started: number;
  /** Seconds since the start. */
  at: number;
  processors: number;
  requests: number;
  aborted: number;
  in_flight: number;
  connections: number;
  connections_accepted: number;
  feeds: number;
  sent_bytes: number;
  received_bytes: number;
  document_writes: number;
  commit_requests: number;
  commit_batches: number;
  syncs: number;
  all_databases: number;
  open_databases: number;
  open_indexes: number;
  replications: { running: number; pending: number; crashing: number };
  routes: RouteSums[];
  threads: {
    clocks: Clock[];
    cpu_seconds: Record<string, number>;
    worker_cpu_seconds: number | null;
  };
  databases: UseSums[];
  views: UseSums[];
  functions: UseSums[];
  tasks: Task[];
  queues: Record<string, number>;
  memory: {
    resident: number;
    limit: number;
    parts: Record<string, { budget: number; used: number; peak?: number }>;
  };
  disk: { free: number | null; size: number | null; files: Record<string, number> };
}

/** Pairs of microseconds and how many took so long. */
type Times = [number, number][];

interface RouteSums {
  route: string;
  requests: number;
  refused: number;
  failed: number;
  times: Times;
}

interface Clock {
  name: string;
  alive: number;
  states: Record<string, number>;
}

interface UseSums {
  name: string;
  since: number;
  requests: number;
  writes: number;
  seconds: number;
  bytes: number;
}

export interface RouteRates {
  route: string;
  perS: number;
  refused: number;
  failed: number;
  /** Seconds. */
  p50: number;
  p99: number;
  max: number;
}

export interface UseRates {
  name: string;
  perS: number;
  writes: number;
  /** Seconds that its requests took, for each second that passed. */
  busy: number;
  /** The same of a view's map function. */
  functions: number;
  bytes: number;
}

export interface ThreadRates {
  name: string;
  alive: number;
  cpu: number;
  states: Record<string, number>;
}

/** What happened between two snapshots, for each second. */
export interface Frame {
  now: Snapshot;
  seconds: number;
  requests: number;
  writes: number;
  aborted: number;
  syncs: number;
  aBatch: number;
  sent: number;
  received: number;
  cpu: number;
  workers: number;
  p50: number;
  p99: number;
  routes: RouteRates[];
  databases: UseRates[];
  views: UseRates[];
  threads: ThreadRates[];
  states: Record<string, number>;
}

/** `undefined` where the server was started anew in between. */
export function between(a: Snapshot, b: Snapshot): Frame | undefined {
  if (a.started !== b.started || b.at <= a.at) return undefined;
  const seconds = b.at - a.at;
  const rate = (name: keyof Snapshot) =>
    Math.max(0, (b[name] as number) - (a[name] as number)) / seconds;
  const cpu = (s: Snapshot) => Object.values(s.threads.cpu_seconds).reduce((sum, n) => sum + n, 0);
  const batches = rate('commit_batches');
  const before = new Map(a.routes.map((route) => [route.route, route]));
  const all: Times = b.routes
    .flatMap((route) => grown(before.get(route.route)?.times ?? [], route.times))
    .sort((x, y) => x[0] - y[0]);
  return {
    now: b,
    seconds,
    requests: rate('requests'),
    writes: rate('document_writes'),
    aborted: rate('aborted'),
    syncs: rate('syncs'),
    aBatch: batches > 0 ? rate('commit_requests') / batches : 0,
    sent: rate('sent_bytes'),
    received: rate('received_bytes'),
    cpu: Math.max(0, cpu(b) - cpu(a)) / seconds,
    workers:
      Math.max(0, (b.threads.worker_cpu_seconds ?? 0) - (a.threads.worker_cpu_seconds ?? 0)) /
      seconds,
    p50: quantile(all, 0.5),
    p99: quantile(all, 0.99),
    routes: b.routes.map((now) => routeRates(before.get(now.route), now, seconds)),
    databases: uses(a.databases, b.databases, a.at, seconds),
    views: views(a, b, seconds),
    threads: threads(a, b, seconds),
    states: states(a.threads.clocks, b.threads.clocks),
  };
}

function routeRates(was: RouteSums | undefined, now: RouteSums, seconds: number): RouteRates {
  const rate = (name: 'requests' | 'refused' | 'failed') =>
    Math.max(0, now[name] - (was?.[name] ?? 0)) / seconds;
  const times = grown(was?.times ?? [], now.times);
  return {
    route: now.route,
    perS: rate('requests'),
    refused: rate('refused'),
    failed: rate('failed'),
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    max: (times.at(-1)?.[0] ?? 0) / 1e6,
  };
}

/** What came to a distribution. */
function grown(before: Times, now: Times): Times {
  const was = new Map(before);
  return now
    .map(([us, n]): [number, number] => [us, n - (was.get(us) ?? 0)])
    .filter(([, n]) => n > 0);
}

/** The seconds that a share of all do not exceed; 0 of none. */
function quantile(times: Times, share: number): number {
  const wanted = Math.ceil(times.reduce((sum, [, n]) => sum + n, 0) * share);
  let seen = 0;
  for (const [us, n] of times) {
    seen += n;
    if (seen >= wanted) return us / 1e6;
  }
  return 0;
}

/** `toldAt` is when `before` was told. */
function uses(before: UseSums[], now: UseSums[], toldAt: number, seconds: number): UseRates[] {
  const known = new Map(before.map((of) => [of.name, of]));
  return now.flatMap((of) => {
    let was = known.get(of.name);
    if (was?.since !== of.since) {
      // One that was not told before may have been used long ago: it counts from the next time on.
      if (of.since < toldAt) return [];
      was = undefined;
    }
    const rate = (name: 'requests' | 'writes' | 'bytes' | 'seconds') =>
      Math.max(0, of[name] - (was?.[name] ?? 0)) / seconds;
    return [
      {
        name: of.name,
        perS: rate('requests'),
        writes: rate('writes'),
        busy: rate('seconds'),
        functions: 0,
        bytes: rate('bytes'),
      },
    ];
  });
}

/** Views that are asked, and those whose functions run. */
function views(a: Snapshot, b: Snapshot, seconds: number): UseRates[] {
  const all = new Map(uses(a.views, b.views, a.at, seconds).map((of) => [of.name, of]));
  for (const of of uses(a.functions, b.functions, a.at, seconds)) {
    const asked = all.get(of.name) ?? { ...of, perS: 0, busy: 0, bytes: 0 };
    asked.functions += of.busy;
    all.set(of.name, asked);
  }
  return [...all.values()];
}

/**
 * The share of each state in what clocks counted, the largest first; rest aside they are 1 together
 * with it.
 */
function states(a: Clock[], b: Clock[]): Record<string, number> {
  const spent: Record<string, number> = {};
  for (const now of b) {
    const was = a.find((clock) => clock.name === now.name);
    for (const [state, seconds] of Object.entries(now.states))
      spent[state] = (spent[state] ?? 0) + Math.max(0, seconds - (was?.states[state] ?? 0));
  }
  const all = Object.values(spent).reduce((sum, n) => sum + n, 0) || 1;
  return Object.fromEntries(Object.entries(spent).map(([state, n]) => [state, n / all]));
}

function threads(a: Snapshot, b: Snapshot, seconds: number): ThreadRates[] {
  const all = new Map<string, ThreadRates>();
  for (const [name, spent] of Object.entries(b.threads.cpu_seconds))
    all.set(name, {
      name,
      alive: 0,
      cpu: Math.max(0, spent - (a.threads.cpu_seconds[name] ?? 0)) / seconds,
      states: {},
    });
  for (const clock of b.threads.clocks) {
    const of = all.get(clock.name) ?? { name: clock.name, alive: 0, cpu: 0, states: {} };
    all.set(clock.name, {
      ...of,
      alive: clock.alive,
      states: states(
        a.threads.clocks.filter((was) => was.name === clock.name),
        [clock],
      ),
    });
  }
  return [...all.values()];
}

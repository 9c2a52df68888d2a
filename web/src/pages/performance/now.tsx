import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { ApiError, ask, useResource } from '../../api';
import { bytes, count, duration, percent } from '../../i18n';
import { type Place, refine } from '../../router';
import { Button, Empty, Loading, Problem } from '../../ui';
import { Chart, type ChartProps } from './chart';
import { budgetName, short } from './figures';
import { note, peaks, points } from './history';
import { Meter, Stack } from './meter';
import type { Frame, Snapshot } from './snapshot';
import { Busiest } from './tables';
import { say } from './texts';

const EVERY_MS = 2000;
/** Each state has the same colour everywhere. */
const STATES = [
  'idle',
  'network',
  'answer',
  'auth',
  'parse',
  'read',
  'write',
  'sync',
  'functions',
  'index',
  'sort',
  'compaction',
  'replication',
  'accept',
  'other',
];

async function load(signal: AbortSignal, background: boolean): Promise<Snapshot> {
  const told = await ask<Snapshot>('GET', '/_settee/top', { signal, background });
  note(told);
  return told;
}

/** What the server does now, and did in the last minutes. */
export function Now({ place }: { place: Place }): JSX.Element {
  const t = say();
  const [paused, setPaused] = useState<typeof points.value | undefined>();
  const { error, data, reload } = useResource<Snapshot>(paused ? undefined : 'top', load, EVERY_MS);
  const seen = paused ?? points.value;
  const frame = seen.at(-1)?.frame;
  if (error instanceof ApiError && error.status === 404)
    return (
      <Empty icon="performance" title={t.notHere}>
        <small>{t.notHereText}</small>
      </Empty>
    );
  return (
    <>
      <Problem error={error} retry={reload} />
      {!frame && !error && (data ? <p class="soft small">{t.first}</p> : <Loading />)}
      {frame && (
        <>
          <div class="bar">
            <span class="grow soft">
              {frame.now.node} · Settee {frame.now.version} · {t.upFor(duration(frame.now.at))}
            </span>
            <Button
              icon={paused ? 'play' : 'pause'}
              aria-pressed={paused !== undefined}
              onClick={() => setPaused(paused ? undefined : points.value)}
            >
              {paused ? t.goOn : t.pause}
            </Button>
          </div>
          <Charts seen={seen} />
          <Figures frame={frame} />
          <Busiest frame={frame} place={place} refine={refine} />
          <div class="cards two">
            <Threads frame={frame} />
            <Memory frame={frame} />
          </div>
        </>
      )}
    </>
  );
}

function Charts({ seen }: { seen: typeof points.value }): JSX.Element {
  const t = say();
  const times = useMemo(() => seen.map((point) => point.at), [seen]);
  const line = (name: string, colour: string, value: (frame: Frame) => number) => ({
    name,
    colour,
    values: seen.map((point) => value(point.frame)),
  });
  const perS = (value: number) => t.perSecond(short(value));
  const charts: Omit<ChartProps, 'times'>[] = [
    {
      label: t.requests,
      say: perS,
      least: 1,
      lines: [
        line(t.requests, 'accent', (f) => f.requests),
        line(t.writes, 'warn', (f) => f.writes),
      ],
    },
    {
      label: t.latency,
      say: duration,
      least: 0.001,
      lines: [line(t.most, 'warn', (f) => f.p99), line(t.half, 'accent', (f) => f.p50)],
    },
    {
      label: t.processors,
      say: short,
      least: 0.1,
      lines: [line(t.server, 'accent', (f) => f.cpu), line(t.functions, 'warn', (f) => f.workers)],
    },
    {
      label: t.traffic,
      say: (n) => t.perSecond(bytes(n)),
      least: 1000,
      lines: [line(t.sent, 'accent', (f) => f.sent), line(t.received, 'warn', (f) => f.received)],
    },
  ];
  return (
    <div class="charts">
      {charts.map((chart) => (
        <figure key={chart.label}>
          <figcaption>
            <h2>{chart.label}</h2>
            {chart.lines.map((each) => (
              <span key={each.name}>
                <i class={`key is-${each.colour}`} />
                {each.name} <b>{chart.say(each.values.at(-1) ?? 0)}</b>
              </span>
            ))}
          </figcaption>
          <Chart {...chart} times={times} />
        </figure>
      ))}
    </div>
  );
}

function Figures({ frame }: { frame: Frame }): JSX.Element {
  const t = say();
  const { now } = frame;
  const queues = Object.entries(now.queues)
    .filter(([name]) => peaks[name])
    .map(
      ([name, n]) =>
        `${t.queueNames[name] ?? name} ${count(n)} (${t.mostSeen} ${count(peaks[name] ?? n)})`,
    );
  const all: [string, string][] = [
    [t.inFlight, count(now.in_flight)],
    [t.connections, count(now.connections)],
    [t.feeds, count(now.feeds)],
    [t.aborted, t.perSecond(short(frame.aborted))],
    [t.syncs, t.perSecond(short(frame.syncs))],
    [t.batch, short(frame.aBatch)],
    [t.databasesOpen, t.of(count(now.open_databases), count(now.all_databases))],
    [
      t.replications,
      count(now.replications.running) +
        (now.replications.crashing ? `, ${t.crashing(count(now.replications.crashing))}` : ''),
    ],
    [t.waiting, queues.join(', ') || '0'],
  ];
  return (
    <dl class="figures">
      {all.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Threads({ frame }: { frame: Frame }): JSX.Element {
  const t = say();
  const colour = (state: string) => Math.max(0, STATES.indexOf(state));
  const parts = Object.entries(frame.states).sort((a, b) => colour(a[0]) - colour(b[0]));
  return (
    <div class="card">
      <h2>{t.doing}</h2>
      <Stack
        label={t.doing}
        parts={parts.map(([state, value]) => ({
          name: t.states[state] ?? state,
          value,
          colour: colour(state),
        }))}
      />
      <table class="plain" aria-label={t.tables.threads}>
        <thead>
          <tr>
            <th>{t.name}</th>
            <th class="end">{t.alive}</th>
            <th class="end">{t.cpu}</th>
            <th>{t.doing}</th>
          </tr>
        </thead>
        <tbody>
          {frame.threads
            .filter((thread) => thread.alive > 0 || thread.cpu > 0)
            .sort((a, b) => b.cpu - a.cpu || b.alive - a.alive)
            .slice(0, 12)
            .map((thread) => (
              <tr key={thread.name}>
                <td class="mono">{thread.name}</td>
                <td class="end">{thread.alive || '–'}</td>
                <td class="end">{percent(thread.cpu)}</td>
                <td class="soft">{busiest(thread.states)}</td>
              </tr>
            ))}
        </tbody>
      </table>
    </div>
  );
}

/** The two things that threads do most, but rest. */
function busiest(states: Record<string, number>): string {
  const t = say();
  const all = Object.entries(states).filter(([state, share]) => state !== 'idle' && share >= 0.001);
  return all
    .sort((a, b) => b[1] - a[1])
    .slice(0, 2)
    .map(([state, share]) => `${t.states[state] ?? state} ${percent(share)}`)
    .join(', ');
}

function Memory({ frame: { now } }: { frame: Frame }): JSX.Element {
  const t = say();
  const files = Object.values(now.disk.files).reduce((sum, n) => sum + n, 0);
  const { free, size } = now.disk;
  return (
    <div class="card">
      <h2>{t.memory}</h2>
      <Meter label={t.process} used={now.memory.resident} of={now.memory.limit} />
      {Object.entries(now.memory.parts).map(([name, { used, budget, peak }]) => (
        <Meter key={name} label={budgetName(name)} used={used} of={budget} peak={peak} />
      ))}
      <h2>{t.disk}</h2>
      {free !== null && size !== null && <Meter label={t.filled} used={size - free} of={size} />}
      {size !== null && <Meter label={t.storage} used={files} of={size} />}
    </div>
  );
}

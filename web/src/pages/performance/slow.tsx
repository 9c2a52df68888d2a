import type { JSX } from 'preact';
import { ask, useResource } from '../../api';
import { duration, moment } from '../../i18n';
import { link } from '../../router';
import { Button, Empty, Loading, Problem } from '../../ui';
import { points } from './history';
import { say } from './texts';

/** A line of the slow log, as far as it is shown. */
interface Line {
  time: string;
  id: string;
  ms: number;
  method: string;
  path: string;
  user?: string | null;
  status?: number | null;
  phases: Record<string, number>;
}

interface SlowLog {
  slow_time: number;
  slow_file: string;
  requests: Line[];
}

/** Phases that are named for each request. */
const PHASES_MAX = 2;

/** The last lines of the slow log, and the kinds of requests that were slow while this page was open. */
export default function Slow(): JSX.Element {
  const t = say();
  const { data, error, isLoading, reload } = useResource('slow', (signal) =>
    ask<SlowLog>('GET', '/_settee/slow', { signal }),
  );
  const limit = data?.slow_time ?? 1000;
  const file = data?.slow_file ?? '';
  return (
    <>
      <Problem error={error} retry={reload} />
      {isLoading && <Loading lines={3} />}
      {data && (
        <section class="card">
          {limit === 0 ? (
            <p>{t.slowOff}</p>
          ) : (
            <p>
              {t.slowTime} <b>{duration(limit / 1000)}</b>
              {duration(limit / 1000).endsWith('.') ? ' ' : '. '}
              {file ? (
                <>
                  {t.slowFile} <code>{file}</code>.
                </>
              ) : (
                t.slowInLog
              )}
            </p>
          )}
          <p class="soft small">{t.slowWhere}</p>
          <p class="soft small">{t.slowFields}</p>
          <p class="small">
            <a href={link(['_config', '_local', 'log'])}>{t.slowSet}</a>
          </p>
        </section>
      )}
      {data && limit > 0 && <Requests lines={data.requests} reload={reload} />}
      <Slowest />
    </>
  );
}

function Requests({ lines, reload }: { lines: Line[]; reload: () => void }): JSX.Element {
  const t = say();
  return (
    <section class="part">
      <div class="bar">
        <h2 class="grow">{t.slowRecent}</h2>
        <Button icon="reload" onClick={reload}>
          {t.slowReload}
        </Button>
      </div>
      {lines.length === 0 ? (
        <Empty icon="check" title={t.slowEmpty} />
      ) : (
        <div class="scrolls">
          <table class="plain" aria-label={t.slowRecent}>
            <thead>
              <tr>
                <th>{t.slowRequest}</th>
                <th class="end">{t.slowDuration}</th>
                <th>{t.slowPhases}</th>
                <th>{t.slowUser}</th>
                <th class="end">{t.slowStatus}</th>
                <th class="end">{t.atTime}</th>
              </tr>
            </thead>
            <tbody>
              {lines.map((line) => (
                <tr key={line.id}>
                  <td class="mono">
                    {line.method} {line.path}
                  </td>
                  <td class="end">{duration(line.ms / 1000)}</td>
                  <td>{longest(line.phases)}</td>
                  <td>{line.user ?? ''}</td>
                  <td class="end">{line.status ?? ''}</td>
                  <td class="end">{moment(line.time)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** The longest phases of a request, in words. */
function longest(phases: Record<string, number>): string {
  return Object.entries(phases)
    .sort((a, b) => b[1] - a[1])
    .slice(0, PHASES_MAX)
    .map(([name, ms]) => `${name} ${duration(ms / 1000)}`)
    .join(', ');
}

function Slowest(): JSX.Element {
  const t = say();
  const longest = new Map<string, { at: number; max: number; p99: number }>();
  for (const { at, frame } of points.value) {
    for (const route of frame.routes) {
      if (route.perS > 0 && route.max > (longest.get(route.route)?.max ?? 0))
        longest.set(route.route, { at, max: route.max, p99: route.p99 });
    }
  }
  const rows = [...longest].sort((a, b) => b[1].max - a[1].max).slice(0, 20);
  return (
    <section class="part">
      <h2>{t.slowestNow}</h2>
      {rows.length === 0 ? (
        <Empty icon="performance" title={t.slowNone} />
      ) : (
        <table class="plain" aria-label={t.slowestNow}>
          <thead>
            <tr>
              <th>{t.route}</th>
              <th class="end">{t.slowest}</th>
              <th class="end">{t.p99}</th>
              <th class="end">{t.atTime}</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([route, of]) => (
              <tr key={route}>
                <td>{route.replaceAll('_', ' ')}</td>
                <td class="end">{duration(of.max)}</td>
                <td class="end">{duration(of.p99)}</td>
                <td class="end">{moment(of.at * 1000)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

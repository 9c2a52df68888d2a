import type { JSX } from 'preact';
import { ask, useResource } from '../../api';
import { duration, moment } from '../../i18n';
import { link } from '../../router';
import { Empty, Loading, Problem } from '../../ui';
import { points } from './history';
import { say } from './texts';

/**
 * No endpoint gives the slow log's lines: what is known is where they are, and which kinds of
 * requests were slow while this page was open.
 */
export default function Slow(): JSX.Element {
  const t = say();
  const { data, error, isLoading, reload } = useResource('log', (signal) =>
    ask<Record<string, string>>('GET', '/_node/_local/_config/log', { signal }),
  );
  const limit = Number(data?.slow_time ?? 1000);
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
      <Slowest />
    </>
  );
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

import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { ApiError, ask, server, useResource } from '../../api';
import { examined as noteFindings } from '../../health';
import { count, duration } from '../../i18n';
import { Badge, Button, Copyable, CopyButton, Empty, Loading, Problem } from '../../ui';
import { ActButton } from './acts/button';
import { actOf } from './acts/command';
import { say } from './texts';

interface Finding {
  id: string;
  area: string;
  severity: 'error' | 'warning' | 'note';
  subject?: string | null;
  says: string;
  evidence?: unknown;
  why: string;
  do?: string[];
}

interface Check {
  id: string;
  area: string;
  title: string;
  looks_at: string;
  finds: string;
  outcome: string;
  why?: string;
  not_told?: number;
}

interface Examined {
  findings: Finding[];
  checks: Check[];
  databases: { all?: number; looked_at?: number; not_looked_at?: number } & Record<string, number>;
  not_looked_at?: unknown[];
  took_ms: number;
}

const KINDS: Record<string, 'bad' | 'warn' | 'info' | 'good' | ''> = {
  error: 'bad',
  warning: 'warn',
  note: 'info',
  ok: 'good',
  skipped: '',
};

const BUSY_MS = 500;
const BUSY_TIMES = 20;

/**
 * Asks for an examination. The server refuses a second one at a time, and goes on with one that is
 * not wanted any more, such as before the last act was undone: its end is waited for.
 */
async function examine(signal: AbortSignal): Promise<Examined> {
  for (let n = 0; ; n++)
    try {
      return await ask<Examined>('GET', '/_settee/doctor', { signal });
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 503) || n >= BUSY_TIMES) throw error;
      await new Promise((done) => setTimeout(done, BUSY_MS));
    }
}

/** What is wrong with the server, and what does something about it. */
export default function Doctor(): JSX.Element {
  const t = say();
  const { data, error, isLoading, reload } = useResource('doctor', examine);
  useEffect(() => {
    if (data) noteFindings(data.findings);
  }, [data]);
  const again = async () => {
    reload();
    // The button waits as long as the next answer takes, more or less: examinations take up to some
    // seconds, one at a time.
    await new Promise((done) => setTimeout(done, Math.min(3000, data?.took_ms ?? 500) + 200));
  };
  return (
    <>
      <div class="bar">
        <span class="grow soft">{data && examined(data)}</span>
        <Button icon="reload" onClick={again}>
          {t.run}
        </Button>
      </div>
      <Problem error={error} retry={reload} />
      {isLoading && <Loading />}
      {data && data.findings.length === 0 && <Empty icon="check" title={t.fine} />}
      {data?.findings.map((finding) => (
        <Found
          key={`${finding.id} ${finding.subject ?? ''} ${finding.says}`}
          finding={finding}
          done={reload}
          notTold={data.checks.find((check) => check.id === finding.id)?.not_told}
        />
      ))}
      {data?.findings.some((finding) => finding.do?.some((each) => each.includes('$S'))) && (
        <p class="small">
          {t.commandsSay}{' '}
          <Copyable
            text={`S=${server.href.replace(/^(https?:\/\/)/, '$1NAME:PASSWORD@').replace(/\/$/, '')}`}
          />
        </p>
      )}
      {data && <Checks data={data} />}
    </>
  );
}

function examined(data: Examined): string {
  const { all = 0, looked_at, not_looked_at } = data.databases;
  return say().examined(
    count(looked_at ?? all - (not_looked_at ?? 0)),
    count(all),
    duration(data.took_ms / 1000),
  );
}

function Found({
  finding,
  done,
  notTold,
}: {
  finding: Finding;
  done: () => void;
  notTold: number | undefined;
}): JSX.Element {
  const t = say();
  return (
    <article class={`finding ${finding.severity}`}>
      <div class="bar">
        <Badge kind={KINDS[finding.severity] ?? ''}>{t.severities[finding.severity]}</Badge>
        <h2 lang="en">{[finding.id, finding.subject].filter(Boolean).join(': ')}</h2>
      </div>
      <p lang="en">{finding.says}</p>
      <p class="soft">
        {t.why}: <span lang="en">{finding.why}</span>
      </p>
      {finding.do?.map((each) => (
        <Do key={each} text={each} done={done} />
      ))}
      {notTold ? <small class="soft">{t.notTold(count(notTold))}</small> : null}
    </article>
  );
}

/** A command can be copied, and run where the page knows how; what follows `#` is for people. */
function Do({ text, done }: { text: string; done: () => void }): JSX.Element {
  const act = actOf(text);
  if (text.startsWith('#')) return <p lang="en">{text.replace(/^#\s*/, '')}</p>;
  return (
    <div class="command">
      <pre>{text}</pre>
      <CopyButton text={() => text} />
      {act && <ActButton act={act} command={text} done={done} />}
    </div>
  );
}

function Checks({ data }: { data: Examined }): JSX.Element {
  const t = say();
  const by = (outcome: string) => data.checks.filter((check) => check.outcome === outcome).length;
  const [ok, skipped] = [by('ok'), by('skipped')];
  return (
    <details>
      <summary>
        {t.checks}{' '}
        <span class="soft">
          {t.checkCounts(count(ok), count(data.checks.length - ok - skipped), count(skipped))}
        </span>
      </summary>
      {data.not_looked_at && data.not_looked_at.length > 0 && (
        <p class="notice">
          {t.notLooked}:{' '}
          {data.not_looked_at
            .map((each) => (typeof each === 'string' ? each : JSON.stringify(each)))
            .join(', ')}
        </p>
      )}
      <div class="scrolls" tabIndex={0} role="region" aria-label={t.checks}>
        <table class="plain checks">
          <thead>
            <tr>
              <th>{t.check}</th>
              <th>{t.outcome}</th>
              <th>{t.looksAt}</th>
              <th>{t.finds}</th>
            </tr>
          </thead>
          <tbody>
            {data.checks.map((check) => (
              <tr key={check.id}>
                <td>
                  <b lang="en">{check.title}</b>
                  <br />
                  <code class="soft">{check.id}</code>
                </td>
                <td>
                  <Badge kind={KINDS[check.outcome] ?? ''}>
                    {t.severities[check.outcome] ?? check.outcome}
                  </Badge>
                  {check.why && (
                    <small class="soft block" lang="en">
                      {check.why}
                    </small>
                  )}
                </td>
                <td lang="en">{check.looks_at}</td>
                <td lang="en">{check.finds}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

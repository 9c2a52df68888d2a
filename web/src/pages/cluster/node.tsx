import type { JSX } from 'preact';
import { ask, isAdmin, useResource } from '../../api';
import { bytes, count, duration } from '../../i18n';
import { Button, confirm, Loading, Problem, say as toast } from '../../ui';
import { budgetName } from '../performance/figures';
import { Meter, Stack } from '../performance/meter';
import { say } from './texts';
import type { System, Versions } from './types';

interface Facts {
  system: System;
  versions: Versions;
}

async function load(signal: AbortSignal, background: boolean): Promise<Facts> {
  const options = { signal, background };
  const [system, versions] = await Promise.all([
    ask<System>('GET', '/_node/_local/_system', options),
    ask<Versions>('GET', '/_node/_local/_versions', options),
  ]);
  return { system, versions };
}

/** The node that answers: what it is, what it has open, and how full its memory is. */
export function NodeFacts({
  isInMaintenance,
  reload: again,
}: {
  isInMaintenance: boolean;
  reload: () => void;
}): JSX.Element {
  const t = say();
  const { data, error, reload } = useResource<Facts>('facts', load, 5000);
  return (
    <section class="part">
      <div class="bar">
        <h2 class="grow">{t.node}</h2>
        {isAdmin.value && <Maintenance isOn={isInMaintenance} reload={again} />}
      </div>
      {isInMaintenance && <p class="notice warn">{t.maintenanceOn}</p>}
      <Problem error={error} retry={reload} />
      {!data && !error && <Loading />}
      {data && (
        <div class="cards">
          <Numbers {...data} />
          <Memory {...data} />
          {data.system.keyspace_bytes && <Storage files={data.system.keyspace_bytes} />}
        </div>
      )}
    </section>
  );
}

function Maintenance({ isOn, reload }: { isOn: boolean; reload: () => void }): JSX.Element {
  const t = say();
  const set = async (value: string) => {
    await ask('PUT', '/_node/_local/_config/couchdb/maintenance_mode', { body: value });
    toast(t.saved);
    reload();
  };
  if (isOn)
    return (
      <Button icon="play" onClick={() => set('"false"')}>
        {t.leave}
      </Button>
    );
  return (
    <Button
      icon="pause"
      onClick={() =>
        confirm({
          title: t.maintenanceMode,
          text: t.enterText,
          action: t.enter,
          kind: 'primary',
          work: () => set('"true"'),
        })
      }
    >
      {t.enter}
    </Button>
  );
}

function Numbers({ system, versions }: Facts): JSX.Element {
  const t = say();
  const waiting = Object.entries(system.message_queues ?? {}).filter(
    (pair): pair is [string, number] =>
      typeof pair[1] === 'number' && t.queueNames[pair[0]] !== undefined,
  );
  const rows: [string, string | undefined][] = [
    [t.uptime, duration(system.uptime)],
    [t.databases, some(system.databases)],
    [t.openDatabases, some(system.open_databases)],
    [t.openIndexes, some(system.open_indexes)],
    [t.toIndex, some(system.databases_to_index)],
    [t.connections, some(system.open_connections)],
    [t.feeds, some(system.open_feeds)],
    [t.threads, some(system.process_count)],
    [
      t.queues,
      waiting.length > 0
        ? waiting.map(([name, n]) => `${t.queueNames[name]} ${count(n)}`).join(', ')
        : undefined,
    ],
    ...versionsOf(versions),
  ];
  return (
    <div class="card">
      <h3>{t.facts}</h3>
      <dl class="node-facts">
        {rows.map(([name, value]) =>
          value === undefined ? null : (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ),
        )}
      </dl>
    </div>
  );
}

function versionsOf({
  settee,
  couchdb,
  javascript_engine: js,
  collation_driver: icu,
  erlang,
}: Versions): [string, string | undefined][] {
  return [
    ['Settee', settee],
    ['CouchDB', couchdb],
    ['Erlang', erlang?.version],
    ['JavaScript', js && [js.name, js.version].filter(Boolean).join(' ')],
    [
      'Unicode',
      icu && [icu.name, icu.collator_version ?? icu.library_version].filter(Boolean).join(' '),
    ],
  ];
}

function Memory({ system: { memory } }: Facts): JSX.Element {
  const t = say();
  const budgets = Object.entries(memory.budgets ?? {});
  const others = Object.entries(memory).filter(
    (pair): pair is [string, number] => typeof pair[1] === 'number',
  );
  return (
    <div class="card">
      <h3>{t.memory}</h3>
      {memory.resident !== undefined && memory.limit !== undefined && (
        <Meter label={t.process} used={memory.resident} of={memory.limit} />
      )}
      {budgets.map(([name, { used, budget, peak }]) => (
        <Meter key={name} label={budgetName(name)} used={used} of={budget} peak={peak} />
      ))}
      {budgets.length > 0 && <small class="soft">{t.peak}</small>}
      {budgets.length === 0 && (
        <Stack
          label={t.memory}
          parts={others.map(([name, value], n) => ({
            name,
            value,
            colour: n + 1,
            said: bytes(value),
          }))}
        />
      )}
    </div>
  );
}

function Storage({ files }: { files: Record<string, number> }): JSX.Element {
  const t = say();
  const parts = Object.entries(files).sort((a, b) => b[1] - a[1]);
  const all = parts.reduce((sum, [, size]) => sum + size, 0);
  return (
    <div class="card">
      <h3>
        {t.storage} <span class="soft">{bytes(all)}</span>
      </h3>
      {all > 0 ? (
        <Stack
          label={t.storage}
          parts={parts.map(([name, value], n) => ({
            name: t.files[name] ?? name,
            value,
            colour: n + 1,
            said: bytes(value),
          }))}
        />
      ) : (
        <p class="soft small">{t.notYet}</p>
      )}
    </div>
  );
}

function some(value: number | undefined): string | undefined {
  return value === undefined ? undefined : count(value);
}

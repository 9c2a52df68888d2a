import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, isAdmin, path, useResource } from '../../../api';
import { bytes, count, moment } from '../../../i18n';
import { go } from '../../../router';
import { Button, Copyable, Form, Loading, Problem, say, TextField, words } from '../../../ui';
import { askToDelete } from '../../databases/create';
import type { Info } from '../../databases/infos';
import type { PartProps } from '..';
import { OnlyAdmins, useMayManage } from '../manage';
import { Compaction } from './compaction';
import { t } from './texts';

/** What a database is, what it keeps, and what can be done to all of it. */
export default function Settings({ db, info, reload }: PartProps): JSX.Element {
  return (
    <div class="halves">
      <div>
        <section class="card" aria-label={t().facts}>
          <h2>{t().facts}</h2>
          {info ? <Facts info={info} /> : <Loading lines={12} />}
        </section>
        <Shards db={db} />
      </div>
      <div>
        {info && <Compaction db={db} info={info} reload={reload} />}
        <Limits db={db} />
        {isAdmin.value && (
          <section class="card" aria-label={t().danger}>
            <h2>{t().danger}</h2>
            <p class="note">{t().deleteHint}</p>
            <div>
              <Button
                kind="danger"
                icon="remove"
                onClick={async () => (await askToDelete(db)) && go([])}
              >
                {t().delete}
              </Button>
            </div>
          </section>
        )}
      </div>
    </div>
  );
}

/** Members that only some servers tell. */
interface More {
  encryption?: unknown;
  props?: { encryption?: unknown; encrypted?: unknown };
}

function Facts({ info }: { info: Info & More }): JSX.Element {
  const { sizes, cluster } = info;
  const encryption = info.encryption ?? info.props?.encryption ?? info.props?.encrypted;
  const started = Number(info.instance_start_time);
  const facts: [string, JSX.Element | string | undefined][] = [
    [t().documents, count(info.doc_count)],
    [t().deleted, count(info.doc_del_count)],
    [t().disk, bytes(sizes.file)],
    [t().active, bytes(sizes.active)],
    [t().free, bytes(Math.max(0, sizes.file - sizes.active))],
    [t().external, bytes(sizes.external)],
    [t().partitioned, info.props?.partitioned ? words().yes : words().no],
    [t().cluster, cluster && t().clusterText(cluster.q, cluster.n, cluster.r, cluster.w)],
    [
      t().encrypted,
      encryption === undefined
        ? undefined
        : typeof encryption === 'string'
          ? encryption
          : encryption === false
            ? words().no
            : encryption === true
              ? words().yes
              : JSON.stringify(encryption),
    ],
    [
      t().format,
      info.disk_format_version === undefined ? undefined : String(info.disk_format_version),
    ],
    [t().since, started > 0 ? moment(started > 1e14 ? started / 1000 : started * 1000) : undefined],
    [t().seq, <Copyable text={String(info.update_seq)} />],
    [
      t().purge,
      info.purge_seq === undefined ? undefined : <Copyable text={String(info.purge_seq)} />,
    ],
  ];
  return (
    <table class="plain facts-table">
      <tbody>
        {facts.map(([name, value]) =>
          value === undefined ? null : (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{value}</td>
            </tr>
          ),
        )}
      </tbody>
    </table>
  );
}

function Shards({ db }: { db: string }): JSX.Element | null {
  const told = useResource(`shards ${db}`, (signal) =>
    ask<{ shards: Record<string, string[]> }>('GET', `${path(db)}/_shards`, { signal }),
  );
  // Older servers, and databases of nodes themselves, have none.
  if (told.error !== undefined) return null;
  return (
    <section class="card" aria-label={t().shards}>
      <h2>{t().shards}</h2>
      {!told.data && <Loading lines={3} />}
      {told.data && (
        <table class="plain">
          <thead>
            <tr>
              <th>{t().range}</th>
              <th>{t().nodes}</th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(told.data.shards).map(([range, nodes]) => (
              <tr key={range}>
                <td>
                  <code>{range}</code>
                </td>
                <td>{nodes.join(', ')}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Limits({ db }: { db: string }): JSX.Element {
  const may = useMayManage(db);
  const limit = (name: string) => ({ to: `${path(db)}/${name}`, may });
  return (
    <section class="card" aria-label={t().limits}>
      <h2>{t().limits}</h2>
      <OnlyAdmins may={may} />
      <Limit {...limit('_revs_limit')} label={t().revs} hint={t().revsHint} />
      <Limit {...limit('_purged_infos_limit')} label={t().purges} hint={t().purgesHint} />
    </section>
  );
}

function Limit({
  to,
  may,
  label,
  hint,
}: {
  to: string;
  may: boolean | undefined;
  label: string;
  hint: string;
}): JSX.Element {
  const told = useResource(to, (signal) => ask<number>('GET', to, { signal }));
  const [typed, setTyped] = useState<string>();
  const value = typed ?? String(told.data ?? '');
  const isGood = /^[1-9][0-9]*$/.test(value);
  const save = async () => {
    const before = told.data;
    const put = async (limit: string) => {
      await ask('PUT', to, { body: limit });
      told.reload();
    };
    await put(value);
    setTyped(undefined);
    say(t().saved, before === undefined ? undefined : () => put(String(before)));
  };
  if (told.error !== undefined) return <Problem error={told.error} retry={told.reload} />;
  return (
    <Form
      onSubmit={save}
      submit={words().save}
      disabled={!isGood || typed === undefined || typed === String(told.data)}
    >
      <TextField
        label={label}
        hint={hint}
        type="number"
        value={value}
        onInput={setTyped}
        disabled={!may}
        error={value !== '' && !isGood ? t().whole : undefined}
      />
    </Form>
  );
}

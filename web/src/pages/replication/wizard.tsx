import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ask, docPath, isAdmin, path, read as readJson, session, useResource } from '../../api';
import { count } from '../../i18n';
import { member, print, text } from '../../json';
import { go, link, setGuard } from '../../router';
import { complain, Form, Loading, Problem, say, words } from '../../ui';
import { document } from './act';
import { EndForm } from './end';
import { blank, type Model, problems, read, write } from './model';
import { How, More } from './options';
import { ownAddresses } from './own';
import { t } from './texts';

interface Surroundings {
  own: string;
  dbs: string[];
}

async function surroundings(signal: AbortSignal): Promise<Surroundings> {
  const [own, dbs] = await Promise.all([
    ownAddresses(signal),
    ask<string[]>('GET', '/_all_dbs', { signal }).catch(() => []),
  ]);
  return { own: own[0] ?? '', dbs };
}

export function New({ source }: { source: string }): JSX.Element {
  const { data, error, reload } = useResource('surroundings', surroundings);
  const w = t();
  return (
    <>
      <Head title={w.new} />
      <Problem error={error} retry={reload} />
      {data ? (
        <Wizard
          first={{ ...blank(session.value?.name ?? '', data.own, source), isKept: isAdmin.value }}
          {...data}
          isNew
        />
      ) : (
        error === undefined && <Loading />
      )}
    </>
  );
}

export function Edit({ db, doc }: { db: string; doc: string }): JSX.Element {
  const { data, error, reload } = useResource(`edit ${db}/${doc}`, async (signal) => {
    const around = await surroundings(signal);
    return { around, model: { ...read(await document(db, doc, signal), around.own), keptIn: db } };
  });
  return (
    <>
      <Head title={t().editTitle(doc)} />
      <Problem error={error} retry={reload} />
      {data ? (
        <Wizard first={data.model} {...data.around} isNew={false} />
      ) : (
        error === undefined && <Loading />
      )}
    </>
  );
}

function Head({ title }: { title: string }): JSX.Element {
  return (
    <>
      <nav class="crumbs">
        <a href={link(['replication'])}>{t().title}</a>
        <span aria-hidden="true">/</span>
        <span>{title}</span>
      </nav>
      <div class="page-head">
        <h1>{title}</h1>
      </div>
    </>
  );
}

function Wizard({
  first,
  own: _,
  dbs,
  isNew,
}: Surroundings & { first: Model; isNew: boolean }): JSX.Element {
  const w = t();
  const [given] = useState(first);
  const [model, setModel] = useState(given);
  const [isTried, setTried] = useState(false);
  const wrong = isTried ? problems(model) : {};
  const change = (part: Partial<Model>) => setModel((old) => ({ ...old, ...part }));
  const isChanged = model !== given;
  useEffect(() => {
    setGuard(isChanged ? () => globalThis.confirm(words().unsaved) : undefined);
    return () => setGuard(undefined);
  }, [isChanged]);
  const leave = () => {
    setGuard(undefined);
    history.back();
  };
  const submit = async () => {
    setTried(true);
    if (Object.keys(problems(model)).length > 0) {
      // The first field that is wrong is where to go on.
      setTimeout(() =>
        globalThis.document
          .querySelector<HTMLElement>('.replication-form [aria-invalid="true"]')
          ?.focus(),
      );
      return;
    }
    if (model.isKept) await keep(model);
    else await once(model);
  };
  const end = (side: 'source' | 'target') => (
    <EndForm
      title={w[side]}
      end={model[side]}
      own={model.own}
      dbs={dbs}
      creates={side === 'target' && model.createTarget}
      error={wrong[side]}
      focus={side === 'source' && isNew}
      onChange={(to) => change({ [side]: to })}
    />
  );
  return (
    <div class="replication-form">
      <Form onSubmit={submit} submit={isNew ? w.create : w.save} onCancel={leave}>
        <div class="cards">
          {end('source')}
          {end('target')}
        </div>
        <How
          model={model}
          wrong={wrong}
          onChange={change}
          isNew={isNew}
          replicators={dbs.filter((db) => db === '_replicator' || db.endsWith('/_replicator'))}
        />
        <More model={model} wrong={wrong} onChange={change} />
      </Form>
    </div>
  );
}

/** From a document: written anew, it begins anew. */
async function keep(model: Model): Promise<void> {
  const body = print(write(model));
  const told = model.id
    ? await readJson('PUT', docPath(model.keptIn, model.id), { body })
    : await readJson('POST', path(model.keptIn), { body });
  const id = text(member(told, 'id'));
  say(t().begun(id));
  setGuard(undefined);
  go(['replication', 'doc', model.keptIn, id]);
}

const AT_ONCE_MS = 1500;

/**
 * By `_replicate`, which answers when it is done: who looks need not wait for that, but for what is
 * wrong at once.
 */
async function once(model: Model): Promise<void> {
  const request = ask<{
    _local_id?: string;
    docs_written?: number;
    history?: { docs_written?: number }[];
  }>('POST', '/_replicate', { body: print(write(model)), background: true });
  const end = request.then((told) =>
    say(
      told._local_id
        ? t().begun(told._local_id)
        : t().ended(count(told.history?.[0]?.docs_written ?? told.docs_written ?? 0)),
    ),
  );
  const isOver = await Promise.race([
    end.then(() => true),
    new Promise<boolean>((resolve) => setTimeout(() => resolve(false), AT_ONCE_MS)),
  ]);
  if (!isOver) {
    say(t().runs);
    end.catch(complain);
  }
  setGuard(undefined);
  go(['replication']);
}

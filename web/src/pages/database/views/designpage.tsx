import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, path, useResource } from '../../../api';
import { bytes, count } from '../../../i18n';
import { go, link } from '../../../router';
import {
  say as announce,
  Badge,
  Button,
  Choice,
  complain,
  confirm,
  Dialog,
  Form,
  TextField,
  words,
} from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { toIndex } from '../search/links';
import { NameDialog } from './ask';
import { clone, type Design, type Info, infoOf, KINDS, type Kind, remove, SINGLES } from './design';
import { toFunction, toView } from './links';
import { StateBadge } from './list';
import { toDocument } from './shared';
import { say } from './texts';

/** One design document: what it holds, and how its index is. */
export function DesignPage({
  db,
  design,
  onChange,
}: {
  db: string;
  design: Design;
  onChange: () => void;
}): JSX.Element {
  const t = say();
  const [asked, setAsked] = useState<'clone' | 'function'>();
  const { name } = design;
  const may = useMayManage(db);
  const info = useResource(
    design.views.length > 0 ? `info ${db}/${name}` : undefined,
    (signal) => infoOf(db, name, signal),
    2000,
  );
  const drop = () =>
    confirm({
      title: t.deleteDesign,
      text: t.deleteDesignText,
      action: words().delete,
      type: name,
      work: () => remove(db, design),
    }).then((done) => done && go(['database', db, '_design']));
  const compact = () =>
    ask('POST', `${path(db)}/_compact${path(name)}`, { body: '' }).then(
      () => announce(t.compacted),
      complain,
    );
  const copy = async (to: string) => {
    await clone(db, name, to);
    announce(t.cloned);
    go(['database', db, '_design', to]);
  };
  return (
    <>
      <div class="bar">
        <h2>{name}</h2>
        <Badge>{design.language}</Badge>
        <span class="grow" />
        <a class="button" href={toDocument(db, `_design/${name}`)}>
          {t.asJson}
        </a>
        {may && (
          <>
            <Button onClick={() => setAsked('clone')}>{t.clone}</Button>
            {design.views.length > 0 && <Button onClick={compact}>{t.compact}</Button>}
            <Button icon="remove" onClick={drop}>
              {words().delete}
            </Button>
          </>
        )}
      </div>
      <OnlyAdmins may={may} />
      {info.data && <Facts index={info.data.view_index} />}
      <div class="bar">
        <h2>{t.views}</h2>
        {may && (
          <a class="button" href={link(['database', db, 'new_view', name])}>
            {t.newView}
          </a>
        )}
      </div>
      <Links none={t.none} all={design.views.map((view) => [view, toView(db, name, view), ''])} />
      <div class="bar">
        <h2>{t.texts}</h2>
        {may && (
          <a class="button" href={link(['database', db, 'new_search', name])}>
            {t.newText}
          </a>
        )}
      </div>
      <Links
        none={t.none}
        all={design.texts.map((each) => [
          each.name,
          toIndex(db, name, each.kind, each.name),
          each.kind,
        ])}
      />
      <div class="bar">
        <h2>{t.functions}</h2>
        {may && <Button onClick={() => setAsked('function')}>{t.newFunction}</Button>}
      </div>
      <Links
        none={t.none}
        all={design.functions.map((each) => [
          each.name || each.kind,
          toFunction(db, name, each.kind, each.name),
          t.kindNames[each.kind],
        ])}
      />
      {asked === 'clone' && (
        <NameDialog
          title={t.clone}
          label={t.cloneTo}
          begin={`${name}-2`}
          onClose={() => setAsked(undefined)}
          work={copy}
        />
      )}
      {asked === 'function' && (
        <NewFunction
          db={db}
          design={design}
          onClose={() => {
            setAsked(undefined);
            onChange();
          }}
        />
      )}
    </>
  );
}

function Facts({ index }: { index: Info['view_index'] }): JSX.Element {
  const t = say();
  const seq = String(index.update_seq);
  const facts: [string, string][] = [
    [t.file, bytes(index.sizes.file)],
    [t.active, bytes(index.sizes.active)],
    [t.external, bytes(index.sizes.external)],
    [t.seq, seq.length > 16 ? `${seq.slice(0, 16)}…` : seq],
    [t.pending, count(index.updates_pending?.total ?? 0)],
    [t.waiting, count(index.waiting_clients)],
    [t.signature, index.signature],
  ];
  return (
    <dl class="views-facts card">
      <div>
        <dt>{t.state}</dt>
        <dd>
          <StateBadge index={index} />
        </dd>
      </div>
      {facts.map(([name, value]) => (
        <div key={name} class={name === t.signature ? 'wide' : ''}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Links({
  all,
  none,
}: {
  all: [name: string, href: string, kind: string][];
  none: string;
}): JSX.Element {
  if (all.length === 0) return <p class="soft">{none}</p>;
  return (
    <ul class="views-chips">
      {all.map(([name, href, kind]) => (
        <li key={href}>
          <a href={href}>{name}</a> {kind && <span class="soft">{kind}</span>}
        </li>
      ))}
    </ul>
  );
}

function NewFunction({
  db,
  design,
  onClose,
}: {
  db: string;
  design: Design;
  onClose: () => void;
}): JSX.Element {
  const t = say();
  const left = [...KINDS, ...SINGLES.filter((kind) => !design.doc.has(kind))];
  const [kind, setKind] = useState<Kind>('filters');
  const [name, setName] = useState('');
  const isSingle = (SINGLES as readonly string[]).includes(kind);
  const isTaken = design.functions.some((each) => each.kind === kind && each.name === name.trim());
  const open = async () => {
    location.hash = toFunction(db, design.name, kind, isSingle ? '' : name.trim());
  };
  return (
    <Dialog title={t.newFunction} onClose={onClose}>
      <Form
        onSubmit={open}
        submit={words().create}
        onCancel={onClose}
        disabled={!isSingle && (name.trim() === '' || isTaken)}
      >
        <Choice
          label={t.kind}
          value={kind}
          of={left.map((each) => [each, t.kindNames[each]] as const)}
          onChange={setKind}
        />
        {!isSingle && (
          <TextField
            label={t.functionName}
            value={name}
            onInput={setName}
            focus
            error={isTaken ? t.taken : undefined}
          />
        )}
      </Form>
    </Dialog>
  );
}

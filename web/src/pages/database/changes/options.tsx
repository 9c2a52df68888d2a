import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../../api';
import { place, refine } from '../../../router';
import { Button, Check, Choice, Field, TextField } from '../../../ui';
import { designs } from '../views/design';
import { Chosen, wrongJson } from '../views/shared';
import { headOf, type Wanted } from './feed';
import { say } from './texts';

type By = '' | 'design' | 'selector' | 'ids' | '_design' | 'view';

export interface Choices {
  since: 'recent' | 'now' | '0' | 'seq';
  seq: string;
  find: string;
  onlyDeleted: boolean;
  includeDocs: boolean;
  allLeaves: boolean;
  by: By;
  /** Of the filter: a function's name, a selector, ids. */
  with: string;
  /** The query of a design document's filter. */
  args: string;
  isFiltered: boolean;
}

/** The address holds them. */
export function choicesOf(query: URLSearchParams): Choices {
  const since = query.get('since') ?? 'recent';
  const find = query.get('find') ?? '';
  const by = (query.get('by') ?? '') as By;
  const onlyDeleted = query.get('deleted') === 'true';
  return {
    since: since === 'recent' || since === 'now' || since === '0' ? since : 'seq',
    seq: /^(recent|now|0)$/.test(since) ? '' : since,
    find,
    onlyDeleted,
    includeDocs: query.get('include_docs') === 'true',
    allLeaves: query.get('style') === 'all_docs',
    by,
    with: query.get('with') ?? '',
    args: query.get('args') ?? '',
    isFiltered: find !== '' || onlyDeleted || by !== '',
  };
}

export function wantedOf(db: string, choices: Choices): Wanted {
  const { by, find, onlyDeleted } = choices;
  const query: Wanted['query'] = { style: choices.allLeaves ? 'all_docs' : undefined };
  let body: string | undefined;
  if (by === 'design')
    Object.assign(query, Object.fromEntries(new URLSearchParams(choices.args)), {
      filter: choices.with,
    });
  if (by === 'view') Object.assign(query, { filter: '_view', view: choices.with });
  if (by === '_design') query.filter = '_design';
  if (by === 'selector') {
    query.filter = '_selector';
    body = `{"selector":${choices.with.trim() || '{}'}}`;
  }
  if (by === 'ids') {
    query.filter = '_doc_ids';
    body = JSON.stringify({
      doc_ids: choices.with
        .split('\n')
        .map((id) => id.trim())
        .filter((id) => id !== ''),
    });
  }
  const keep = (line: string) => {
    if (find === '' && !onlyDeleted) return true;
    const head = headOf(line);
    return head.id.includes(find) && (!onlyDeleted || head.isDeleted);
  };
  return {
    db,
    since: choices.since === 'seq' ? choices.seq : choices.since,
    includeDocs: choices.includeDocs,
    query,
    body,
    keep,
  };
}

export function Options({ db, choices }: { db: string; choices: Choices }): JSX.Element {
  const t = say();
  const [now, setNow] = useState(choices);
  const set = (to: Partial<Choices>) => setNow((old) => ({ ...old, ...to }));
  const isNamed = now.by === 'design' || now.by === 'view';
  const known = useResource(isNamed ? `functions ${db}` : undefined, (signal) =>
    designs(db, signal),
  );
  const names = (known.data ?? []).flatMap((each) =>
    (now.by === 'view'
      ? each.views
      : each.functions.filter(({ kind }) => kind === 'filters').map(({ name }) => name)
    ).map((name) => `${each.name}/${name}`),
  );
  const wrong = now.by === 'selector' ? wrongJson(now.with) : undefined;
  const apply = (event?: Event) => {
    event?.preventDefault();
    if (wrong) return;
    const since = now.since === 'seq' ? now.seq.trim() : now.since;
    const isOne = now.by !== '' && now.by !== '_design';
    refine({
      since: since === 'recent' ? '' : since,
      find: now.find,
      deleted: now.onlyDeleted ? 'true' : '',
      include_docs: now.includeDocs ? 'true' : '',
      style: now.allLeaves ? 'all_docs' : '',
      by: now.by,
      with: isOne ? now.with : '',
      args: now.by === 'design' ? now.args : '',
    });
  };
  return (
    <details>
      <Chosen
        title={t.options}
        all={[...place.value.query]
          .filter(([name]) => name !== 'partition')
          .map(([name, value]) => `${name}=${value}`)}
      />
      <form class="card" onSubmit={apply}>
        <div class="views-options">
          <Choice
            label={t.from}
            value={now.since}
            onChange={(since) => set({ since })}
            of={[
              ['recent', t.recent],
              ['now', t.now],
              ['0', t.start],
              ['seq', t.sequence],
            ]}
          />
          {now.since === 'seq' && (
            <TextField label={t.seqValue} value={now.seq} onInput={(seq) => set({ seq })} />
          )}
          <TextField
            label={t.findId}
            type="search"
            value={now.find}
            onInput={(find) => set({ find })}
          />
          <Choice
            label={t.filter}
            value={now.by}
            onChange={(by) => set({ by, with: '' })}
            of={[
              ['', t.none],
              ['design', t.byDesign],
              ['selector', t.bySelector],
              ['ids', t.byIds],
              ['_design', t.designDocs],
              ['view', t.byView],
            ]}
          />
          {isNamed && (
            <TextField
              label={t.name}
              list={names}
              hint={t.nameHint}
              value={now.with}
              onInput={(to) => set({ with: to })}
              required
            />
          )}
          {now.by === 'design' && (
            <TextField
              label={t.query}
              hint={t.queryHint}
              value={now.args}
              onInput={(args) => set({ args })}
            />
          )}
          {(now.by === 'selector' || now.by === 'ids') && (
            <div class="wide">
              <Field label={now.by === 'ids' ? t.ids : t.selector} error={wrong}>
                {(id, described) => (
                  <textarea
                    id={id}
                    rows={3}
                    aria-describedby={described}
                    aria-invalid={wrong !== undefined}
                    value={now.with}
                    onInput={(event) => set({ with: event.currentTarget.value })}
                  />
                )}
              </Field>
            </div>
          )}
        </div>
        <div class="row-of">
          <Check
            label={t.onlyDeleted}
            value={now.onlyDeleted}
            onChange={(onlyDeleted) => set({ onlyDeleted })}
          />
          <Check
            label={t.includeDocs}
            value={now.includeDocs}
            onChange={(includeDocs) => set({ includeDocs })}
          />
          <Check
            label={t.allLeaves}
            value={now.allLeaves}
            onChange={(allLeaves) => set({ allLeaves })}
          />
          <span class="grow" />
          <Button type="submit" kind="primary" disabled={wrong !== undefined}>
            {t.apply}
          </Button>
        </div>
      </form>
    </details>
  );
}

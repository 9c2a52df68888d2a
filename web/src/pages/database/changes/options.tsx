import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../../api';
import { place, refine } from '../../../router';
import { Button, Check, Choice, Field, TextField } from '../../../ui';
import { designs } from '../views/design';
import { Chosen } from '../views/shared';
import { wrongJson } from '../views/source';
import { type Choices, filtersOf, hasName, queryOf } from './choices';
import { say } from './texts';

export function Options({ db, choices }: { db: string; choices: Choices }): JSX.Element {
  const t = say();
  const [now, setNow] = useState(choices);
  const set = (to: Partial<Choices>) => setNow((old) => ({ ...old, ...to }));
  const isNamed = hasName(now.by);
  const known = useResource(isNamed ? `functions ${db}` : undefined, (signal) =>
    designs(db, signal),
  );
  const names = (known.data ?? []).flatMap((design) => filtersOf(design, now.by));
  const wrong = now.by === 'selector' ? wrongJson(now.with) : undefined;
  const apply = (event?: Event) => {
    event?.preventDefault();
    if (wrong) return;
    refine(queryOf(now));
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
          <FilterValue now={now} names={names} wrong={wrong} set={set} />
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

/** The value of a filter: a function's name, a selector, ids. */
function FilterValue({
  now,
  names,
  wrong,
  set,
}: {
  now: Choices;
  names: string[];
  wrong: string | undefined;
  set: (to: Partial<Choices>) => void;
}): JSX.Element {
  const t = say();
  return (
    <>
      {hasName(now.by) && (
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
    </>
  );
}

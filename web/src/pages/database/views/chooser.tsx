import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { refine } from '../../../router';
import { Button, Check, Choice, Field, TextField } from '../../../ui';
import {
  ALL,
  type Chosen as All,
  DEFAULTS,
  FLAGS,
  JSONS,
  LIMIT,
  type Reduction,
  reduced,
  reductionOf,
  TEXTS,
} from './options';
import { Chosen } from './shared';
import { wrongJson } from './source';
import { say } from './texts';

/** Every option of a view's query. They take effect together, and stand in the address. */
export function Chooser({
  chosen,
  isReduced,
  isPartitioned,
  onRun,
}: {
  chosen: All;
  isReduced: boolean;
  isPartitioned: boolean;
  onRun: () => void;
}): JSX.Element {
  const t = say();
  const [now, setNow] = useState(chosen);
  const set = (name: string, value: string) => setNow((old) => ({ ...old, [name]: value }));
  const wrong = Object.fromEntries(JSONS.map((name) => [name, wrongJson(now[name] ?? '')]));
  const as = reductionOf(now);
  const isWrong = Object.values(wrong).some((each) => each !== undefined);
  const run = (event: Event) => {
    event.preventDefault();
    if (isWrong) return;
    refine(Object.fromEntries(ALL.map((name) => [name, now[name]?.trim() ?? ''])));
    onRun();
  };
  return (
    <details>
      <Chosen
        title={t.options}
        all={Object.entries(chosen).map(([name, value]) => `${name}=${value}`)}
      />
      <form class="card" onSubmit={run}>
        <div class="views-options">
          <Keys now={now} wrong={wrong} set={set} />
          {TEXTS.map((name) => (
            <TextField
              key={name}
              label={nameOf(name)}
              value={now[name] ?? ''}
              onInput={(value) => set(name, value)}
            />
          ))}
          <TextField
            label={nameOf('limit')}
            type="number"
            placeholder={String(LIMIT)}
            value={now.limit ?? ''}
            onInput={(value) => set('limit', value)}
          />
          <TextField
            label={nameOf('skip')}
            type="number"
            placeholder="0"
            value={now.skip ?? ''}
            onInput={(value) => set('skip', value)}
          />
          {isReduced && <Reduced now={now} setNow={setNow} />}
          <Choice
            label={t.update}
            value={now.update ?? ''}
            onChange={(value) => set('update', value)}
            of={[
              ['', t.updateTrue],
              ['false', t.updateFalse],
              ['lazy', t.updateLazy],
            ]}
          />
          {isPartitioned && (
            <TextField
              label={nameOf('partition')}
              value={now.partition ?? ''}
              onInput={(value) => set('partition', value)}
            />
          )}
        </div>
        <div class="row-of">
          {FLAGS.map((name) => (
            <Check
              key={name}
              label={nameOf(name)}
              value={now[name] === 'true'}
              onChange={(is) => set(name, is ? 'true' : '')}
              disabled={
                (name === 'conflicts' && now.include_docs !== 'true') ||
                (name === 'include_docs' && as !== 'rows')
              }
            />
          ))}
          {DEFAULTS.map((name) => (
            <Check
              key={name}
              label={nameOf(name)}
              value={now[name] !== 'false'}
              onChange={(is) => set(name, is ? '' : 'false')}
            />
          ))}
          <span class="grow" />
          <Button type="submit" kind="primary" icon="play" disabled={isWrong}>
            {t.run}
          </Button>
        </div>
      </form>
    </details>
  );
}

/** In words, with CouchDB's name for it where that is another. */
function nameOf(option: string): string {
  const words = say().names[option] ?? option;
  return words.toLowerCase() === option ? words : `${words} (${option})`;
}

interface Part {
  now: All;
  wrong: Record<string, string | undefined>;
  set: (name: string, value: string) => void;
}

/** Keys and ranges, which are JSON. */
function Keys({ now, wrong, set }: Part): JSX.Element {
  return (
    <>
      {JSONS.map((name) =>
        name === 'keys' ? (
          <Field key={name} label={nameOf(name)} error={wrong[name]}>
            {(id, described) => (
              <textarea
                id={id}
                rows={1}
                placeholder="[…]"
                aria-describedby={described}
                aria-invalid={wrong[name] !== undefined}
                value={now[name] ?? ''}
                onInput={(event) => set(name, event.currentTarget.value)}
              />
            )}
          </Field>
        ) : (
          <TextField
            key={name}
            label={nameOf(name)}
            placeholder="JSON"
            value={now[name] ?? ''}
            onInput={(value) => set(name, value)}
            error={wrong[name]}
          />
        ),
      )}
    </>
  );
}

/** Which rows a view with a reduce function returns. */
function Reduced({
  now,
  setNow,
}: {
  now: All;
  setNow: (change: (old: All) => All) => void;
}): JSX.Element {
  const t = say();
  const as = reductionOf(now);
  return (
    <>
      <Choice
        label={t.reduction}
        value={as}
        onChange={(to: Reduction) => setNow((old) => reduced(old, to))}
        of={[
          ['rows', t.asRows],
          ['one', t.asOne],
          ['groups', t.asGroups],
          ['level', t.asLevel],
        ]}
      />
      {as === 'level' && (
        <TextField
          label={t.level}
          type="number"
          value={now.group_level ?? ''}
          onInput={(value) => setNow((old) => ({ ...old, group_level: value }))}
        />
      )}
    </>
  );
}

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { refine } from '../../../router';
import { Button, Check, Choice, Field, TextField } from '../../../ui';
import { type Chosen as All, DEFAULTS, FLAGS, JSONS, LIMIT, TEXTS } from './options';
import { Chosen, wrongJson } from './shared';
import { say } from './texts';

const ALL = [
  ...JSONS,
  ...TEXTS,
  ...FLAGS,
  ...DEFAULTS,
  'limit',
  'skip',
  'reduce',
  'group',
  'group_level',
  'update',
  'partition',
];

type As = 'rows' | 'one' | 'groups' | 'level';

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
  const as: As = now.group_level
    ? 'level'
    : now.group === 'true'
      ? 'groups'
      : now.reduce === 'true'
        ? 'one'
        : 'rows';
  const reduceAs = (to: As) =>
    setNow((old) => ({
      ...old,
      reduce: to === 'one' ? 'true' : '',
      group: to === 'groups' ? 'true' : '',
      group_level: to === 'level' ? '1' : '',
    }));
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
          {JSONS.map((name) =>
            name === 'keys' ? (
              <Field key={name} label={name} error={wrong[name]}>
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
                label={name}
                placeholder="JSON"
                value={now[name] ?? ''}
                onInput={(value) => set(name, value)}
                error={wrong[name]}
              />
            ),
          )}
          {TEXTS.map((name) => (
            <TextField
              key={name}
              label={name}
              value={now[name] ?? ''}
              onInput={(value) => set(name, value)}
            />
          ))}
          <TextField
            label="limit"
            type="number"
            placeholder={String(LIMIT)}
            value={now.limit ?? ''}
            onInput={(value) => set('limit', value)}
          />
          <TextField
            label="skip"
            type="number"
            placeholder="0"
            value={now.skip ?? ''}
            onInput={(value) => set('skip', value)}
          />
          {isReduced && (
            <Choice
              label={t.reduction}
              value={as}
              onChange={reduceAs}
              of={[
                ['rows', t.asRows],
                ['one', t.asOne],
                ['groups', t.asGroups],
                ['level', t.asLevel],
              ]}
            />
          )}
          {isReduced && as === 'level' && (
            <TextField
              label={t.level}
              type="number"
              value={now.group_level ?? ''}
              onInput={(value) => set('group_level', value)}
            />
          )}
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
              label="partition"
              value={now.partition ?? ''}
              onInput={(value) => set('partition', value)}
            />
          )}
        </div>
        <div class="row-of">
          {FLAGS.map((name) => (
            <Check
              key={name}
              label={name}
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
              label={name}
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

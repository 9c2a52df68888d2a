import type { JSX } from 'preact';
import { Check, Choice, Field, TextField } from '../../ui';
import { type Model, NUMBERS, PROXIES, type Selection } from './model';
import { t } from './texts';

interface Props {
  model: Model;
  wrong: Record<string, string>;
  onChange: (part: Partial<Model>) => void;
}

function Area({
  label,
  value,
  hint,
  error,
  onInput,
}: {
  label: string;
  value: string;
  hint?: string;
  error?: string | undefined;
  onInput: (value: string) => void;
}): JSX.Element {
  return (
    <Field label={label} hint={hint} error={error}>
      {(id, described) => (
        <textarea
          id={id}
          rows={5}
          spellcheck={false}
          aria-describedby={described}
          aria-invalid={error !== undefined}
          value={value}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

/** How it runs, and what it copies. */
export function How({
  model,
  wrong,
  onChange,
  replicators,
  isNew,
}: Props & { replicators: string[]; isNew: boolean }): JSX.Element {
  const w = t();
  const selections: [Selection, string][] = [
    ['all', w.all],
    ['selector', w.bySelector],
    ['ids', w.byIds],
    ['filter', w.byFilter],
  ];
  return (
    <div class="cards">
      <fieldset class="card replication-end" aria-label={w.how}>
        <h2>{w.how}</h2>
        <Check
          label={w.continuous}
          hint={w.continuousHint}
          value={model.continuous}
          onChange={(continuous) => onChange({ continuous })}
        />
        <Check
          label={w.createTarget}
          value={model.createTarget}
          onChange={(createTarget) => onChange({ createTarget })}
        />
        {isNew && (
          <Choice
            label={w.kind}
            value={model.isKept ? 'doc' : 'once'}
            of={[
              ['doc', w.kindDoc],
              ['once', w.kindOnce],
            ]}
            onChange={(kind) => onChange({ isKept: kind === 'doc' })}
          />
        )}
        {isNew && model.isKept && replicators.length > 1 && (
          <Choice
            label={w.keptIn}
            value={model.keptIn}
            of={replicators.map((db) => [db, db] as const)}
            onChange={(keptIn) => onChange({ keptIn })}
          />
        )}
        {isNew && model.isKept && (
          <TextField
            label={w.docId}
            hint={w.docIdHint}
            value={model.id}
            onInput={(id) => onChange({ id })}
            autocomplete="off"
          />
        )}
      </fieldset>
      <fieldset class="card replication-end" aria-label={w.selection}>
        <h2>{w.selection}</h2>
        <Choice
          label={w.which}
          value={model.selection}
          of={selections}
          onChange={(selection) => onChange({ selection })}
        />
        {model.selection === 'selector' && (
          <Area
            label={w.selector}
            value={model.selector}
            error={wrong.selector}
            onInput={(selector) => onChange({ selector })}
          />
        )}
        {model.selection === 'ids' && (
          <Area label={w.ids} value={model.ids} onInput={(ids) => onChange({ ids })} />
        )}
        {model.selection === 'filter' && (
          <>
            <TextField
              label={w.filter}
              hint={w.filterHint}
              value={model.filter}
              onInput={(filter) => onChange({ filter })}
              required
            />
            <Area
              label={w.params}
              value={model.params}
              error={wrong.params}
              onInput={(params) => onChange({ params })}
            />
          </>
        )}
      </fieldset>
    </div>
  );
}

/** What few need. Empty is the server's setting. */
export function More({ model, wrong, onChange }: Props): JSX.Element {
  const w = t();
  const line = (name: string, label: string | undefined, placeholder: string) => (
    <TextField
      key={name}
      label={label ?? name}
      placeholder={placeholder}
      value={model.lines[name] ?? ''}
      error={wrong[name]}
      onInput={(value) => onChange({ lines: { ...model.lines, [name]: value } })}
      autocomplete="off"
    />
  );
  return (
    <details class="card">
      <summary>{w.more}</summary>
      <div class="cards">
        <TextField
          label={w.own}
          hint={w.ownHint}
          value={model.own}
          onInput={(own) => onChange({ own })}
          autocomplete="off"
        />
        <TextField
          label={w.since}
          hint={w.sinceHint}
          value={model.since}
          onInput={(since) => onChange({ since })}
          autocomplete="off"
        />
        <div class="replication-end">
          <Check
            label={w.winners}
            value={model.winners}
            onChange={(winners) => onChange({ winners })}
          />
          <Check
            label={w.noCheckpoints}
            value={model.noCheckpoints}
            onChange={(noCheckpoints) => onChange({ noCheckpoints })}
          />
          <Check
            label={w.noBulk}
            value={model.noBulk}
            onChange={(noBulk) => onChange({ noBulk })}
          />
          {model.createTarget && (
            <Check
              label={w.partitioned}
              value={model.partitioned}
              onChange={(partitioned) => onChange({ partitioned })}
            />
          )}
        </div>
        {model.createTarget && line('q', w.shards, w.byServer)}
        {NUMBERS.map((name) => line(name, w.numbers[name], w.byServer))}
        {PROXIES.map((name) => line(name, w.proxies[name], 'http://proxy:3128'))}
      </div>
    </details>
  );
}

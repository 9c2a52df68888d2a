import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button, Choice, complain, TextField } from '../../ui';
import type { End } from './model';
import { probe, type Tested } from './probe';
import { t } from './texts';

interface Props {
  title: string;
  end: End;
  own: string;
  dbs: string[];
  /** Whether a database that is missing will be created. */
  creates: boolean;
  error: string | undefined;
  focus: boolean;
  onChange: (end: End) => void;
}

/** One end: where it is, who asks, and a test of both. */
export function EndForm({
  title,
  end,
  own,
  dbs,
  creates,
  error,
  focus,
  onChange,
}: Props): JSX.Element {
  const w = t();
  const [tested, setTested] = useState<Tested | undefined>();
  const change = (part: Partial<End>) => {
    setTested(undefined);
    onChange({ ...end, ...part });
  };
  const test = () => probe(end, own, creates).then(setTested, complain);
  const isMissing = end.kind === 'here' ? end.db === '' : end.address === '';
  return (
    <fieldset class="card replication-end" aria-label={title}>
      <h2>{title}</h2>
      <Choice
        label={w.where}
        value={end.kind}
        of={[
          ['here', w.fromHere],
          ['remote', w.remote],
        ]}
        onChange={(kind) => change({ kind })}
      />
      {end.kind === 'here' ? (
        <TextField
          label={w.database}
          value={end.db}
          list={dbs}
          onInput={(db) => change({ db })}
          error={error}
          focus={focus}
          autocomplete="off"
        />
      ) : (
        <TextField
          label={w.address}
          value={end.address}
          onInput={(address) => change({ address })}
          placeholder="https://example.org/database"
          hint={w.addressHint}
          error={error}
          autocomplete="off"
        />
      )}
      <TextField
        label={w.user}
        value={end.user}
        onInput={(user) => change({ user })}
        hint={w.userHint}
        autocomplete="off"
      />
      <TextField
        label={w.password}
        type="password"
        value={end.password}
        onInput={(password) => change({ password })}
        placeholder={end.kept ? w.keptPassword : ''}
        hint={end.kept ? w.kept : undefined}
        autocomplete="new-password"
      />
      <div class="row-of">
        <Button icon="check" disabled={isMissing} onClick={test}>
          {w.test}
        </Button>
      </div>
      {tested && (
        <div class={`notice ${tested.isGood ? 'good' : 'warn'}`} role="status">
          {tested.text}
          {tested.told && <p class="told">{tested.told}</p>}
        </div>
      )}
    </fieldset>
  );
}

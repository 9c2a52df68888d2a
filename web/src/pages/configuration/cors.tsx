import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../api';
import {
  Button,
  Check,
  Choice,
  complain,
  Form,
  Loading,
  Problem,
  say,
  TextField,
  words,
} from '../../ui';
import {
  forPouchDb,
  LINES,
  load,
  type Model,
  originOf,
  POUCHDB_APP,
  type Values,
  wanted,
  write,
} from './origins';
import { t } from './texts';

export function Cors(): JSX.Element {
  const { data, error, reload } = useResource('cors', load);
  if (!data) return error === undefined ? <Loading /> : <Problem error={error} retry={reload} />;
  return (
    <CorsForm
      key={JSON.stringify(data.values)}
      first={data.model}
      values={data.values}
      done={reload}
    />
  );
}

function CorsForm({
  first,
  values,
  done,
}: {
  first: Model;
  values: Values;
  done: () => void;
}): JSX.Element {
  const w = t();
  const [model, setModel] = useState(first);
  const change = (part: Partial<Model>) => setModel({ ...model, ...part });
  const save = async (saved: Model) => {
    const to = wanted(saved, values);
    await write(values, to);
    say(w.corsSaved, () => write(to, values).then(done));
    done();
  };
  const isAny = model.origins.includes('*');
  return (
    <div class="configuration-cors">
      <p class="soft">{w.corsHint}</p>
      {!hasPouchDb(first) && (
        <div>
          <Button icon="add" onClick={() => save(forPouchDb(first)).catch(complain)}>
            {w.pouchDb(POUCHDB_APP)}
          </Button>
        </div>
      )}
      <Form
        onSubmit={() => save(model)}
        submit={words().save}
        disabled={JSON.stringify(model) === JSON.stringify(first)}
      >
        <Check label={w.corsOn} value={model.isOn} onChange={(isOn) => change({ isOn })} />
        {model.isOn && (
          <>
            <Choice
              label={w.origins}
              value={isAny ? '*' : 'some'}
              of={[
                ['some', w.someOrigins],
                ['*', w.anyOrigin],
              ]}
              onChange={(to) =>
                change({
                  origins: to === '*' ? ['*'] : first.origins.filter((each) => each !== '*'),
                })
              }
            />
            {!isAny && (
              <Origins origins={model.origins} onChange={(origins) => change({ origins })} />
            )}
            <Check
              label={w.credentials}
              value={model.credentials}
              onChange={(credentials) => change({ credentials })}
            />
            {isAny && model.credentials && (
              <p class="notice warn" role="alert">
                {w.danger}
              </p>
            )}
            <details>
              <summary>{w.more}</summary>
              <div class="configuration-cors">
                {LINES.map((key, n) => (
                  <TextField
                    key={key}
                    label={[w.headers, w.exposed, w.methods, w.maxAge][n] ?? key}
                    placeholder={w.byDefault}
                    value={model.lines[key] ?? ''}
                    onInput={(value) => change({ lines: { ...model.lines, [key]: value } })}
                    autocomplete="off"
                  />
                ))}
              </div>
            </details>
          </>
        )}
      </Form>
    </div>
  );
}

/** Whether a PouchDB app in development may use the server already. */
function hasPouchDb({ isOn, origins, credentials }: Model): boolean {
  return isOn && credentials && (origins.includes(POUCHDB_APP) || origins.includes('*'));
}

function Origins({
  origins,
  onChange,
}: {
  origins: string[];
  onChange: (origins: string[]) => void;
}): JSX.Element {
  const w = t();
  const [typed, setTyped] = useState('');
  const [isBad, setBad] = useState(false);
  const add = () => {
    const origin = originOf(typed);
    setBad(origin === undefined);
    if (origin === undefined) return;
    onChange([...new Set([...origins, origin])]);
    setTyped('');
  };
  return (
    <div class="configuration-cors">
      {origins.length === 0 && <p class="soft">{w.noOrigins}</p>}
      {origins.map((origin) => (
        <div key={origin} class="row-of">
          <code class="grow cut">{origin}</code>
          <Button
            kind="plain"
            icon="remove"
            label={w.removeOrigin(origin)}
            onClick={() => onChange(origins.filter((each) => each !== origin))}
          />
        </div>
      ))}
      <div
        class="configuration-add"
        onKeyDown={(event) => {
          if (event.key !== 'Enter') return;
          event.preventDefault();
          add();
        }}
      >
        <TextField
          label={w.origin}
          value={typed}
          onInput={(to) => {
            setBad(false);
            setTyped(to);
          }}
          hint={w.originHint}
          error={isBad ? w.badOrigin : undefined}
          placeholder="https://app.example.org"
          autocomplete="off"
        />
        <Button icon="add" onClick={add}>
          {w.addOrigin}
        </Button>
      </div>
    </div>
  );
}

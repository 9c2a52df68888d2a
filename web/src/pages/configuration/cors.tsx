import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../api';
import { Button, Check, Choice, Form, Loading, Problem, say, TextField, words } from '../../ui';
import { put, section } from './data';
import { t } from './texts';

const LINES = ['headers', 'exposed_headers', 'methods', 'max_age'] as const;
/** What CouchDB's pages for browsers need, where nothing else is set. */
const HEADERS = 'accept, authorization, content-type, origin, referer';

interface Model {
  isOn: boolean;
  origins: string[];
  credentials: boolean;
  lines: Record<string, string>;
}

type Set = Record<string, string | null>;

async function load(signal: AbortSignal): Promise<{ model: Model; set: Set }> {
  const [http, old, cors] = await Promise.all([
    section('chttpd', signal),
    section('httpd', signal),
    section('cors', signal),
  ]);
  const on = http.enable_cors ?? old.enable_cors ?? null;
  const set: Set = {
    enable_cors: http.enable_cors ?? null,
    ...Object.fromEntries(
      ['origins', 'credentials', ...LINES].map((key) => [key, cors[key] ?? null]),
    ),
  };
  const origins = (cors.origins ?? '')
    .split(',')
    .map((each) => each.trim())
    .filter(Boolean);
  return {
    set,
    model: {
      isOn: on === 'true',
      origins,
      credentials: cors.credentials === 'true',
      lines: Object.fromEntries(LINES.map((key) => [key, cors[key] ?? ''])),
    },
  };
}

/** What the settings are for a form. */
function wanted(model: Model, before: Set): Set {
  const lines = Object.fromEntries(LINES.map((key) => [key, model.lines[key]?.trim() || null]));
  if (model.isOn && before.headers === null && before.enable_cors !== 'true')
    lines.headers ??= HEADERS;
  return {
    ...lines,
    origins: model.origins.join(', ') || null,
    credentials: model.credentials ? 'true' : before.credentials === null ? null : 'false',
    enable_cors: model.isOn ? 'true' : before.enable_cors === null ? null : 'false',
  };
}

/** Writes what differs: first who may come, then that they may. */
async function write(from: Set, to: Set): Promise<void> {
  for (const [key, value] of Object.entries(to))
    if (value !== from[key])
      await put({ section: key === 'enable_cors' ? 'chttpd' : 'cors', key }, value);
}

export function Cors(): JSX.Element {
  const { data, error, reload } = useResource('cors', load);
  if (!data) return error === undefined ? <Loading /> : <Problem error={error} retry={reload} />;
  return (
    <CorsForm key={JSON.stringify(data.set)} first={data.model} set={data.set} done={reload} />
  );
}

function CorsForm({ first, set, done }: { first: Model; set: Set; done: () => void }): JSX.Element {
  const w = t();
  const [model, setModel] = useState(first);
  const change = (part: Partial<Model>) => setModel({ ...model, ...part });
  const submit = async () => {
    const to = wanted(model, set);
    await write(set, to);
    say(w.corsSaved, () => write(to, set).then(done));
    done();
  };
  const isAny = model.origins.includes('*');
  return (
    <div class="configuration-cors">
      <p class="soft">{w.corsHint}</p>
      <Form
        onSubmit={submit}
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
    const origin = typed.trim().replace(/\/$/, '');
    const isOrigin = /^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s,]+$/i.test(origin);
    setBad(!isOrigin);
    if (!isOrigin) return;
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
        onKeyDown={(event) => event.key === 'Enter' && (event.preventDefault(), add())}
      >
        <TextField
          label={w.origin}
          value={typed}
          onInput={(to) => (setBad(false), setTyped(to))}
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

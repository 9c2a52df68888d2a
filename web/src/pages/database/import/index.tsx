import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { bytes, count } from '../../../i18n';
import {
  Button,
  Check,
  Choice,
  Dialog,
  Form,
  Loading,
  Problem,
  Progress,
  words,
} from '../../../ui';
import { useGuard } from '../views/shared';
import { DELIMITERS } from './csv';
import {
  type Beginning,
  beginningOf,
  type Preview,
  previewOf,
  type Settings,
  settingsOf,
} from './file';
import { Job, mistakeOf, type State } from './job';
import { t } from './texts';
import { TYPES, type Type } from './types';

const TEXT_MAX = 300;

export interface ImportProps {
  db: string;
  file: File;
  onClose: () => void;
  /** Documents were written. */
  onDone: () => void;
}

/** Shows what a file becomes, and writes it. */
export default function Import({ db, file, onClose, onDone }: ImportProps): JSX.Element {
  const [beginning, setBeginning] = useState<Beginning>();
  const [error, setError] = useState<unknown>();
  const [job, setJob] = useState<Job>();
  useEffect(() => {
    beginningOf(file).then(setBeginning, setError);
  }, [file]);
  const close = () => {
    job?.stop();
    if (job?.state.value.report.written) onDone();
    onClose();
  };
  return (
    <Dialog title={t().title} onClose={close} wide>
      <p>
        <strong>{file.name}</strong> <span class="soft">{bytes(file.size)}</span>
      </p>
      <Problem error={error} />
      {job ? (
        <Running job={job} size={file.size} onClose={close} />
      ) : beginning ? (
        <Before
          beginning={beginning}
          onCancel={close}
          start={(settings, preview) => {
            const next = new Job(db, file);
            setJob(next);
            void next.run(beginning, settings, preview.columns);
          }}
        />
      ) : (
        error === undefined && <Loading />
      )}
    </Dialog>
  );
}

/** The settings, and what the first rows become. */
function Before({
  beginning,
  onCancel,
  start,
}: {
  beginning: Beginning;
  onCancel: () => void;
  start: (settings: Settings, preview: Preview) => void;
}): JSX.Element {
  const [settings, setSettings] = useState(() => settingsOf(beginning));
  const change = (part: Partial<Settings>) => setSettings({ ...settings, ...part });
  const { preview, error } = useMemo(() => tried(beginning, settings), [beginning, settings]);
  const names = preview?.names ?? [];
  return (
    <Form
      onSubmit={async () => preview && start(settings, preview)}
      submit={t().import}
      onCancel={onCancel}
      disabled={!preview?.items.length}
    >
      {beginning.isCsv && (
        <>
          <Choice
            label={t().delimiter}
            value={settings.delimiter}
            of={DELIMITERS.map((each) => [each, each === '\t' ? t().tab : each] as const)}
            onChange={(delimiter) => change({ delimiter, id: undefined, types: new Map() })}
          />
          <Check
            label={t().header}
            value={settings.hasHeader}
            onChange={(hasHeader) => change({ hasHeader, id: undefined, types: new Map() })}
          />
          <Check
            label={t().comma}
            value={settings.isComma}
            onChange={(isComma) => change({ isComma })}
          />
        </>
      )}
      {names.length > 0 && (
        <Choice
          label={t().id}
          value={settings.id ?? ''}
          of={[['', t().server], ...names.map((name) => [name, name] as const)]}
          onChange={(id) => change({ id: id || undefined })}
        />
      )}
      <Wrong error={error} />
      {preview && <Shown preview={preview} isCsv={beginning.isCsv} {...{ settings, change }} />}
    </Form>
  );
}

function Wrong({ error }: { error: unknown }): JSX.Element {
  const mistake = mistakeOf(error);
  return mistake === undefined ? (
    <Problem error={error} />
  ) : (
    <p class="notice warn" role="alert">
      {mistake}
    </p>
  );
}

function tried(beginning: Beginning, settings: Settings): { preview?: Preview; error?: unknown } {
  try {
    return { preview: previewOf(beginning, settings) };
  } catch (thrown) {
    return { error: thrown };
  }
}

function Shown({
  preview: { columns, rows, items },
  isCsv,
  settings,
  change,
}: {
  preview: Preview;
  isCsv: boolean;
  settings: Settings;
  change: (part: Partial<Settings>) => void;
}): JSX.Element {
  if (items.length === 0) return <p class="notice">{t().none}</p>;
  return (
    <div class="import-preview" role="region" aria-label={t().preview} tabIndex={0}>
      {isCsv ? (
        <table class="plain">
          <thead>
            <tr>
              {columns.map(({ name, type }) => (
                <th key={name}>
                  <Choice
                    label={name}
                    value={type}
                    of={TYPES.map((each): [Type, string] => [each, t().types[each]])}
                    onChange={(to) => change({ types: new Map(settings.types).set(name, to) })}
                  />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, n) => (
              <tr key={n}>
                {columns.map(({ name }, at) => (
                  <td key={name}>{cut(row[at] ?? '')}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        items.map((item, n) => (
          <pre key={n}>{'text' in item ? cut(item.text) : `${item.label}: ${item.refused}`}</pre>
        ))
      )}
    </div>
  );
}

function cut(text: string): string {
  return text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text;
}

function Running({
  job,
  size,
  onClose,
}: {
  job: Job;
  size: number;
  onClose: () => void;
}): JSX.Element {
  const state = job.state.value;
  const isRunning = state.is === 'running';
  useGuard(isRunning);
  // Nobody sees what is written once the page is left.
  useEffect(() => () => job.stop(), [job]);
  return (
    <>
      <Progress value={isRunning ? state.read / Math.max(1, size) : 1} label={t().title} />
      <p role="status">
        {t().written(count(state.report.written))}
        {state.is === 'stopped' && ` · ${t().stopped}`}
      </p>
      <Wrong error={state.error} />
      {!isRunning && <Findings state={state} />}
      <div class="actions">
        {isRunning ? (
          <Button onClick={() => job.stop()}>{t().stop}</Button>
        ) : (
          <Button kind="primary" onClick={onClose}>
            {words().close}
          </Button>
        )}
      </div>
    </>
  );
}

/** The documents that were not written, and the cells that are text. */
function Findings({ state: { report, misfits } }: { state: State }): JSX.Element {
  return (
    <>
      {[...report.refused].map(([reason, { count: n, ids }]) => (
        <p key={reason} class="notice warn">
          {t().refused(count(n), reason)} {t().first(ids.join(', '))}
        </p>
      ))}
      {[...misfits].map(([column, n]) => (
        <p key={column} class="notice">
          {t().misfits(count(n), column)}
        </p>
      ))}
    </>
  );
}

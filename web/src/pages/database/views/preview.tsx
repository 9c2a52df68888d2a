import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { count } from '../../../i18n';
import type { Obj } from '../../../json';
import { Button, type Column, Empty, Problem, Table } from '../../../ui';
import { type Failure, NoPreview, type Previewed, preview } from './design';
import { toDocument } from './shared';
import { brief } from './source';
import { say } from './texts';

const DOCS = 100;

type Row = Previewed['rows'][number];

/** The rows that functions would give, as they stand. */
export function Preview({
  db,
  language,
  map,
  reduce,
  design,
  onFailures,
  onSave,
}: {
  db: string;
  language: string;
  map: string;
  reduce: string;
  design: Obj;
  onFailures: (all: Failure[]) => void;
  onSave: () => Promise<unknown>;
}): JSX.Element {
  const t = say();
  const [found, setFound] = useState<Previewed>();
  const [error, setError] = useState<unknown>();
  const run = async () => {
    setError(undefined);
    try {
      // The design document goes along for what the function requires of it.
      const told = await preview(db, {
        language,
        map,
        reduce: reduce === '' ? undefined : reduce,
        docs: DOCS,
        design,
      });
      setFound(told);
      onFailures(told.errors);
    } catch (thrown) {
      setFound(undefined);
      setError(thrown);
    }
  };
  const columns: Column<Row>[] = [
    { id: 'key', name: t.key, cell: (row) => <code>{brief(row.key)}</code> },
    { id: 'value', name: t.value, cell: (row) => <code>{brief(row.value)}</code> },
    {
      id: 'id',
      name: t.id,
      isExtra: true,
      cell: (row) => <a href={toDocument(db, row.id)}>{row.id}</a>,
    },
  ];
  return (
    <>
      <div class="bar">
        <Button kind="primary" icon="play" onClick={run}>
          {t.preview}
        </Button>
        {found && (
          <span class="soft" role="status">
            {t.previewOf(count(found.rows.length), count(found.documents))}
          </span>
        )}
      </div>
      {error instanceof NoPreview ? (
        <div class="notice warn" role="alert">
          {t.noPreview} {t.noPreviewDo} <Button onClick={onSave}>{t.saveAndRun}</Button>
        </div>
      ) : (
        <Problem error={error} retry={() => void run()} />
      )}
      {!found && error === undefined && <p class="soft text">{t.previewFirst}</p>}
      {found && found.errors.length > 0 && <Failures db={db} all={found.errors} />}
      {found && found.reduced !== undefined && (
        <p class="notice">
          {t.reduced} <code>{brief(found.reduced)}</code>
        </p>
      )}
      {found && found.parts !== undefined && (
        <p class="notice warn" role="alert">
          {t.inParts} <code>{brief(found.parts)}</code>. {t.inPartsDo}
        </p>
      )}
      {found &&
        (found.rows.length > 0 ? (
          <Table
            label={t.preview}
            columns={columns}
            count={found.rows.length}
            row={(n) => found.rows[n]}
          />
        ) : (
          found.errors.length === 0 && <Empty icon="function" title={t.noRows} />
        ))}
    </>
  );
}

const FAILURES_MAX = 20;

function Failures({ db, all }: { db: string; all: Failure[] }): JSX.Element {
  const t = say();
  return (
    <details class="notice warn" open>
      <summary>{t.failures(count(all.length))}</summary>
      <ul>
        {all.slice(0, FAILURES_MAX).map((each, n) => (
          <li key={n}>
            {each.id && <a href={toDocument(db, each.id)}>{each.id}</a>}{' '}
            {each.line !== undefined && `(${t.inLine(each.line)}) `}
            <code>
              {each.error}: {each.reason}
            </code>
          </li>
        ))}
      </ul>
    </details>
  );
}

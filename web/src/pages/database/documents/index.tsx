import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { count } from '../../../i18n';
import { link, recall, refine, remember } from '../../../router';
import { Button, Check, complain, Empty, Icon, Loading, Problem, words } from '../../../ui';
import type { PartProps } from '..';
import { Bulk } from './bulk';
import { chosenFields, Fields, fieldsOf, usual } from './fields';
import { Importing } from './importing';
import { DocsJson } from './json';
import { Jump } from './jump';
import { Options } from './options';
import { queryOf, type Range, rangeOf } from './range';
import type { DocRow, Rows } from './rows';
import { DocsTable, type Picking } from './table';
import { t } from './texts';
import { isHeavy, useRows } from './use';

/** All documents of a database. */
export default function Documents({ db, place, info, reload }: PartProps): JSX.Element {
  const range = rangeOf(place.query);
  const isJson = place.query.get('view') === 'json';
  const wanted = place.query.get('include_docs');
  const withDocs = isJson || (wanted === null ? !isHeavy(info) : wanted === 'true');
  const { rows, reload: again, seen } = useRows(db, range, withDocs, info);
  const [chosen, setChosen] = useState<Map<string, string>>(new Map());
  const [isOpen, setOpen] = useState(false);
  const isAll = Object.keys(range).length === 0;
  const key = JSON.stringify(range);
  const [went, setWent] = useState(() => ({
    key,
    index: recall<number>(`jump ${key}`) ?? 0,
    round: 0,
  }));
  // Another range begins at its beginning.
  const goTo = went.key === key ? went : { key, index: 0, round: 0 };
  const jump = (index: number) => {
    remember(`jump ${key}`, index);
    setWent({ key, index, round: went.round + 1 });
  };
  const picking: Picking = {
    has: (id) => chosen.has(id),
    pick: (picked, isOn) => setChosen((old) => pickIn(old, picked, isOn)),
  };
  const changed = () => {
    again();
    reload();
  };
  const selectAll = async () => {
    if (!rows) return;
    for await (const part of rows.all()) setChosen((old) => pickIn(old, part, true));
  };
  return (
    <>
      <div class="docs-head">
        <Head
          {...{ db, rows, isJson, withDocs, isOpen, isAll, jump, changed }}
          toggle={() => setOpen(!isOpen)}
        />
        {isOpen && (
          <Options key={key} range={range} isPartitioned={info?.props?.partitioned ?? false} />
        )}
        <Problem error={rows?.error} retry={again} />
        <div class={chosen.size > 0 ? 'bar picked' : 'bar status'}>
          {/* It stays where it is: a second click on it must not meet another button. */}
          <Button
            kind="plain"
            disabled={!rows?.count || chosen.size >= rows.count}
            onClick={() => selectAll().catch(complain)}
          >
            {t().selectAll}
          </Button>
          {chosen.size > 0 && info ? (
            <Bulk
              db={db}
              info={info}
              chosen={chosen}
              clear={() => setChosen(new Map())}
              changed={changed}
            />
          ) : (
            rows && <Count rows={rows} range={range} />
          )}
        </div>
      </div>
      <Body {...{ db, rows, isAll, isJson, withDocs, goTo, jump, seen, picking }} key={key} />
    </>
  );
}

/** The documents, as a table or as JSON. */
function Body({
  db,
  rows,
  isAll,
  isJson,
  withDocs,
  goTo,
  jump,
  seen,
  picking,
}: {
  db: string;
  rows: Rows | undefined;
  isAll: boolean;
  isJson: boolean;
  withDocs: boolean;
  goTo: { index: number; round: number };
  jump: (index: number) => void;
  seen: (from: number, to: number) => void;
  picking: Picking;
}): JSX.Element | null {
  if (rows?.count === undefined) return rows?.error === undefined ? <Loading lines={10} /> : null;
  if (rows.count === 0) return <None isAll={isAll} db={db} />;
  if (isJson)
    return (
      <DocsJson
        db={db}
        rows={rows}
        from={Math.min(goTo.index, Math.max(0, rows.count - 1))}
        setFrom={jump}
        seen={seen}
        picking={picking}
      />
    );
  return (
    <Rowed {...{ db, rows, withDocs, seen, picking }} goTo={goTo.round > 0 ? goTo : undefined} />
  );
}

/** The buttons above the documents. */
function Head({
  db,
  rows,
  isJson,
  withDocs,
  isOpen,
  isAll,
  jump,
  toggle,
  changed,
}: {
  db: string;
  rows: Rows | undefined;
  isJson: boolean;
  withDocs: boolean;
  isOpen: boolean;
  isAll: boolean;
  jump: (index: number) => void;
  toggle: () => void;
  changed: () => void;
}): JSX.Element {
  return (
    <div class="bar">
      <div class="group" role="group" aria-label={t().how}>
        <button type="button" aria-pressed={!isJson} onClick={() => refine({ view: undefined })}>
          {t().table}
        </button>
        <button type="button" aria-pressed={isJson} onClick={() => refine({ view: 'json' })}>
          {t().json}
        </button>
      </div>
      {!isJson && (
        <Check
          label={t().withDocs}
          value={withDocs}
          onChange={(on) => refine({ include_docs: String(on) })}
        />
      )}
      {!isJson && withDocs && rows && <Columns db={db} rows={rows} />}
      <Button icon="filter" aria-expanded={isOpen} aria-pressed={!isAll} onClick={toggle}>
        {t().range}
      </Button>
      {rows && <Jump rows={rows} to={jump} />}
      <Button kind="plain" icon="reload" label={words().reload} onClick={changed} />
      <Importing db={db} changed={changed} />
      <a class="button primary push" href={link(['database', db, 'new'])}>
        <Icon name="add" />
        {t().create}
      </a>
    </div>
  );
}

function Count({ rows, range }: { rows: Rows; range: Range }): JSX.Element {
  const isAll = Object.keys(range).length === 0;
  return (
    <>
      {rows.count !== undefined && (
        <span class="soft" role="status">
          {isAll ? t().all(count(rows.count)) : t().some(count(rows.count), count(rows.total))}
        </span>
      )}
      {!isAll && <Within range={range} />}
    </>
  );
}

function pickIn(old: Map<string, string>, picked: DocRow[], isOn: boolean): Map<string, string> {
  const now = new Map(old);
  for (const { id, rev } of picked)
    if (isOn) now.set(id, rev);
    else now.delete(id);
  return now;
}

function Rowed({
  db,
  rows,
  ...rest
}: {
  db: string;
  rows: Rows;
  withDocs: boolean;
  seen: (from: number, to: number) => void;
  goTo: { index: number; round: number } | undefined;
  picking: Picking;
}): JSX.Element {
  // Of the rows that came first, so that columns stay while one scrolls.
  const first = useMemo(() => usual(fieldsOf(rows.loaded())), [rows]);
  return <DocsTable db={db} rows={rows} fields={chosenFields(db) ?? first} {...rest} />;
}

/** The button that lets choose columns. */
function Columns({ db, rows }: { db: string; rows: Rows }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const close = () => {
    setOpen(false);
    // The table reads what was chosen.
    refine({});
  };
  const fields = isOpen ? fieldsOf(rows.loaded()) : [];
  return (
    <>
      <Button onClick={() => setOpen(true)}>{t().fields}</Button>
      {isOpen && (
        <Fields
          db={db}
          fields={fields}
          shown={chosenFields(db) ?? usual(fields)}
          onClose={close}
          onChange={() => undefined}
        />
      )}
    </>
  );
}

/** The options that are in force, by CouchDB's names. */
function Within({ range }: { range: Range }): JSX.Element {
  const given = Object.entries(queryOf(range)).filter(([, value]) => value !== undefined);
  return (
    <span class="chip">
      <code class="cut">{given.map(([name, value]) => `${name}=${value}`).join(' ')}</code>
      <Button kind="plain" icon="close" label={t().reset} onClick={() => refine(queryOf({}))} />
    </span>
  );
}

function None({ isAll, db }: { isAll: boolean; db: string }): JSX.Element {
  return (
    <Empty icon="document" title={isAll ? t().none : t().noneInRange}>
      {isAll ? (
        <a class="button" href={link(['database', db, 'new'])}>
          {t().create}
        </a>
      ) : (
        <Button onClick={() => refine(queryOf({}))}>{t().reset}</Button>
      )}
    </Empty>
  );
}

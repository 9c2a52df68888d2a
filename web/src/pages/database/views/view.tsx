import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Mistake } from '../../../editor';
import { member, text } from '../../../json';
import { go, link, type Place, setGuard } from '../../../router';
import { say as announce, Button, Choice, confirm, Problem, TextField, words } from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { NameDialog } from './ask';
import { change, type Design, type Failure, put, rename, sourceOf } from './design';
import { toDesign } from './index';
import { beginOf } from './new';
import { Preview } from './preview';
import { Results } from './results';
import { Code, lineOf, located, Switch, useGuard } from './shared';
import { say } from './texts';

const BUILT_IN = ['_sum', '_count', '_stats', '_approx_count_distinct'];
const FIRST_REDUCE = 'function (keys, values, rereduce) {\n  return sum(values);\n}';

/** Edits a view, with a preview of what stands there and the rows of what is saved. */
export function ViewPage({
  db,
  design: loaded,
  view,
  place,
}: {
  db: string;
  design: Design;
  view: string;
  place: Place;
}): JSX.Element {
  const t = say();
  const may = useMayManage(db);
  const [design, setDesign] = useState(loaded);
  const saved = member(design.doc, 'views', view);
  const [map, setMap] = useState(() =>
    saved === undefined ? beginOf(design.language) : sourceOf(member(saved, 'map')),
  );
  const [reduce, setReduce] = useState(() => text(member(saved, 'reduce')));
  const [begin] = useState({ map, reduce: reduce.startsWith('_') ? '' : reduce });
  const [error, setError] = useState<unknown>();
  const [failures, setFailures] = useState<Failure[]>([]);
  const [show, setShow] = useState<'preview' | 'rows'>(saved === undefined ? 'preview' : 'rows');
  const [asked, setAsked] = useState<'clone' | 'rename'>();
  const [round, setRound] = useState(0);
  const isChanged =
    saved === undefined ||
    map !== sourceOf(member(saved, 'map')) ||
    reduce !== text(member(saved, 'reduce'));
  useGuard(isChanged && may === true);
  const refused = useMemo(() => refusedAt(error), [error]);
  const mistakes = useMemo(
    () => [
      ...refused.map,
      ...failures.flatMap(({ line, reason }) => (line ? [{ line, text: reason }] : [])),
    ],
    [refused, failures],
  );
  if (design.language === 'query') return <Mango db={db} map={sourceOf(member(saved, 'map'))} />;

  const put_ = (name: string) => (doc: Design['doc']) =>
    put(
      put(doc, ['views', name, 'map'], map),
      ['views', name, 'reduce'],
      reduce === '' ? undefined : reduce,
    );
  const save = async () => {
    setError(undefined);
    try {
      setDesign(await change(db, design.name, put_(view), { at: ['views', view], was: saved }));
      setRound(round + 1);
      setShow('rows');
      setFailures([]);
      announce(t.saved);
    } catch (thrown) {
      setError(await located(thrown, isOfReduce(thrown) ? reduce : map));
    }
  };
  const leave = (to: string[]) => {
    setGuard(undefined);
    go(to);
  };
  const clone = async (to: string) => {
    if (member(design.doc, 'views', to) !== undefined) throw new Error(t.taken);
    await change(db, design.name, (doc) =>
      put(
        put_(to)(put(doc, ['views', to], saved ?? member(doc, 'views', view))),
        ['views', to, 'map'],
        map,
      ),
    );
    leave(['database', db, '_design', design.name, '_view', to]);
  };
  const move = async (to: string) => {
    if (member(design.doc, 'views', to) !== undefined) throw new Error(t.taken);
    await change(db, design.name, (doc) => rename(put_(view)(doc), ['views', view], to), {
      at: ['views', view],
      was: saved,
    });
    leave(['database', db, '_design', design.name, '_view', to]);
  };
  const drop = () =>
    confirm({
      title: t.deleteOne(view),
      text: t.deleteOneText,
      action: words().delete,
      work: () => change(db, design.name, (doc) => put(doc, ['views', view], undefined)),
    }).then((done) => {
      if (!done) return;
      setGuard(undefined);
      location.hash = toDesign(db, design.name);
    });
  return (
    <div class="split">
      <div>
        <div class="bar">
          {may && (
            <>
              <Button kind="primary" onClick={save} disabled={!isChanged}>
                {words().save}
              </Button>
              <Button onClick={() => setAsked('clone')}>{t.clone}</Button>
              {saved !== undefined && (
                <Button onClick={() => setAsked('rename')}>{t.rename}</Button>
              )}
              {saved !== undefined && (
                <Button kind="plain" icon="remove" label={words().delete} onClick={drop} />
              )}
            </>
          )}
          <span class="grow" />
          <span class="soft">{design.language}</span>
        </div>
        <OnlyAdmins may={may} />
        <Problem error={error} dismiss={() => setError(undefined)} />
        <Code
          label={t.map}
          mode={modeOf(design.language)}
          value={begin.map}
          onChange={setMap}
          onSave={() => void save()}
          isReadOnly={!may}
          mistakes={mistakes}
        />
        <Reduce
          reduce={reduce}
          begin={begin.reduce}
          language={design.language}
          isReadOnly={!may}
          onChange={setReduce}
          onSave={() => void save()}
          mistakes={refused.reduce}
        />
      </div>
      <div>
        {may && (
          <Switch
            label={t.view}
            value={show}
            onChange={setShow}
            of={[
              ['rows', t.results],
              ['preview', `${t.preview}: ${t.previewDocs}`],
            ]}
          />
        )}
        {may && show === 'preview' ? (
          <Preview
            db={db}
            language={design.language}
            map={map}
            reduce={reduce}
            design={design.doc}
            onFailures={setFailures}
            onSave={save}
          />
        ) : (
          <>
            {may && isChanged && <p class="notice warn">{t.unsaved}</p>}
            {saved !== undefined && (
              <Results
                key={round}
                db={db}
                design={design.name}
                view={view}
                isReduced={member(saved, 'reduce') !== undefined}
                place={place}
              />
            )}
          </>
        )}
      </div>
      {asked === 'clone' && (
        <NameDialog
          title={t.clone}
          label={t.cloneTo}
          begin={`${view}-2`}
          onClose={() => setAsked(undefined)}
          work={clone}
        />
      )}
      {asked === 'rename' && (
        <NameDialog
          title={t.rename}
          label={t.renameTo}
          begin={view}
          onClose={() => setAsked(undefined)}
          work={move}
        />
      )}
    </div>
  );
}

export function modeOf(language: string): 'javascript' | 'text' {
  return language === 'javascript' || language === 'nodejs' || language === ''
    ? 'javascript'
    : 'text';
}

function isOfReduce(error: unknown): boolean {
  return error instanceof Error && /\breduce function\b/.test(error.message);
}

/** Where the server found a mistake when it was to save. */
function refusedAt(error: unknown): { map: Mistake[]; reduce: Mistake[] } {
  const line = error instanceof Error ? lineOf(error.message) : undefined;
  const mistakes = line === undefined ? [] : [{ line, text: (error as Error).message }];
  return isOfReduce(error) ? { map: [], reduce: mistakes } : { map: mistakes, reduce: [] };
}

/** None, one of the server's own, or a function. */
function Reduce({
  reduce,
  begin,
  language,
  isReadOnly,
  mistakes,
  onChange,
  onSave,
}: {
  reduce: string;
  begin: string;
  language: string;
  isReadOnly: boolean;
  mistakes: Mistake[];
  onChange: (to: string) => void;
  onSave: () => void;
}): JSX.Element {
  const t = say();
  const isBuiltIn = reduce.startsWith('_');
  const is =
    reduce === '' ? '' : BUILT_IN.includes(reduce) ? reduce : isBuiltIn ? 'other' : 'custom';
  const [own, setOwn] = useState(begin || (modeOf(language) === 'javascript' ? FIRST_REDUCE : ''));
  const choose = (to: string) => onChange(to === 'custom' ? own : to === 'other' ? '_top_10' : to);
  return (
    <>
      <div class="views-options">
        <Choice
          label={t.reduce}
          value={is}
          onChange={choose}
          of={[
            ['', t.noReduce],
            ...BUILT_IN.map((name) => [name, name] as const),
            ['other', t.other],
            ['custom', t.custom],
          ]}
          disabled={isReadOnly}
        />
        {is === 'other' && (
          <TextField
            label={t.builtIn}
            value={reduce}
            onInput={(to) => onChange(to.startsWith('_') ? to : `_${to}`)}
            list={['_first', '_last', '_top_10', '_bottom_10']}
            disabled={isReadOnly}
          />
        )}
      </div>
      {is === 'custom' && (
        <Code
          isSmall
          label={t.ownReduce}
          mode={modeOf(language)}
          value={own}
          isReadOnly={isReadOnly}
          mistakes={mistakes}
          onSave={onSave}
          onChange={(to) => {
            setOwn(to);
            onChange(to || ' ');
          }}
        />
      )}
    </>
  );
}

function Mango({ db, map }: { db: string; map: string }): JSX.Element {
  const t = say();
  return (
    <>
      <p class="notice">
        {t.isMango} <a href={link(['database', db, '_index'])}>{t.toIndexes}</a>
      </p>
      <Code label={t.map} mode="json" value={map} isReadOnly />
    </>
  );
}

import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Mistake } from '../../../editor';
import { type Json, member, type Obj, text } from '../../../json';
import { go, link, type Place, setGuard } from '../../../router';
import { say as announce, Button, confirm, Problem, words } from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { NameDialog } from './ask';
import { change, type Design, type Failure, put, rename, sourceOf, withView } from './design';
import { beginOf, modeOf } from './language';
import { Preview } from './preview';
import { Reduce } from './reduce';
import { Results } from './results';
import { Code, Switch, useGuard } from './shared';
import { lineOf, located } from './source';
import { say } from './texts';

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

  const put_ = (name: string) => (doc: Obj) => withView(doc, name, map, reduce);
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
  const leave = (...to: string[]) => {
    setGuard(undefined);
    go(['database', db, '_design', design.name, ...to]);
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
    leave('_view', to);
  };
  const move = async (to: string) => {
    if (member(design.doc, 'views', to) !== undefined) throw new Error(t.taken);
    await change(db, design.name, (doc) => rename(put_(view)(doc), ['views', view], to), {
      at: ['views', view],
      was: saved,
    });
    leave('_view', to);
  };
  const drop = () =>
    confirm({
      title: t.deleteOne(view),
      text: t.deleteOneText,
      action: words().delete,
      work: () => change(db, design.name, (doc) => put(doc, ['views', view], undefined)),
    }).then((done) => done && leave());
  return (
    <div class="split">
      <div>
        <Head
          {...{ may, save, isChanged, drop }}
          isSaved={saved !== undefined}
          language={design.language}
          ask={setAsked}
        />
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
      <Output
        {...{ db, design, view, place, map, reduce, may, isChanged, show, setShow, save, round }}
        saved={saved}
        onFailures={setFailures}
      />
      {asked && (
        <NameDialog
          title={t[asked]}
          label={asked === 'clone' ? t.cloneTo : t.renameTo}
          begin={asked === 'clone' ? `${view}-2` : view}
          onClose={() => setAsked(undefined)}
          work={asked === 'clone' ? clone : move}
        />
      )}
    </div>
  );
}

/** The buttons above the functions of a view. */
function Head({
  may,
  isSaved,
  isChanged,
  language,
  save,
  ask,
  drop,
}: {
  may: boolean | undefined;
  isSaved: boolean;
  isChanged: boolean;
  language: string;
  save: () => Promise<void>;
  ask: (name: 'clone' | 'rename') => void;
  drop: () => void;
}): JSX.Element {
  const t = say();
  return (
    <div class="bar">
      {may && (
        <>
          <Button kind="primary" onClick={save} disabled={!isChanged}>
            {words().save}
          </Button>
          <Button onClick={() => ask('clone')}>{t.clone}</Button>
          {isSaved && <Button onClick={() => ask('rename')}>{t.rename}</Button>}
          {isSaved && <Button kind="plain" icon="remove" label={words().delete} onClick={drop} />}
        </>
      )}
      <span class="grow" />
      <span class="soft">{language}</span>
    </div>
  );
}

/** The rows of the saved view, or those of the functions as they are in the editor. */
function Output({
  db,
  design,
  view,
  place,
  map,
  reduce,
  saved,
  may,
  isChanged,
  show,
  setShow,
  save,
  round,
  onFailures,
}: {
  db: string;
  design: Design;
  view: string;
  place: Place;
  map: string;
  reduce: string;
  saved: Json | undefined;
  may: boolean | undefined;
  isChanged: boolean;
  show: 'preview' | 'rows';
  setShow: (to: 'preview' | 'rows') => void;
  save: () => Promise<void>;
  /** Of the saves: after each the rows are loaded again. */
  round: number;
  onFailures: (all: Failure[]) => void;
}): JSX.Element {
  const t = say();
  return (
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
          onFailures={onFailures}
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
  );
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

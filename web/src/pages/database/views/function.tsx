import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { member } from '../../../json';
import { go, setGuard } from '../../../router';
import { say as announce, Button, confirm, Problem, words } from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { NameDialog } from './ask';
import {
  change,
  type Design,
  differs,
  edited,
  type Kind,
  put,
  rename,
  SINGLES,
  sourceOf,
} from './design';
import { DryRun } from './dryrun';
import { modeOf } from './language';
import { toDesign } from './links';
import { Code, useGuard } from './shared';
import { lineOf, located } from './source';
import { say } from './texts';

const BEGIN: Record<Kind, string> = {
  filters: 'function (doc, req) {\n  return true;\n}',
  updates: "function (doc, req) {\n  return [doc, 'done'];\n}",
  shows: 'function (doc, req) {\n  return {json: doc};\n}',
  lists:
    "function (head, req) {\n  var row;\n  start({headers: {'Content-Type': 'text/plain'}});\n  while ((row = getRow())) send(row.key + '\\n');\n}",
  validate_doc_update:
    "function (newDoc, oldDoc, userCtx, secObj) {\n  if (!newDoc._deleted && !newDoc.type) {\n    throw {forbidden: 'type is missing'};\n  }\n}",
  rewrites: "function (req) {\n  return {path: req.path.slice(4).join('/')};\n}",
};

/** Edits a function of a design document that is no view; of a validation, what it would say. */
export function FunctionPage({
  db,
  design: loaded,
  kind,
  name,
}: {
  db: string;
  design: Design;
  kind: Kind;
  name: string;
}): JSX.Element {
  const t = say();
  const may = useMayManage(db);
  const [design, setDesign] = useState(loaded);
  const isSingle = (SINGLES as readonly string[]).includes(kind);
  const at = isSingle ? [kind] : [kind, name];
  const saved = member(design.doc, ...at);
  const [begin] = useState(() =>
    saved === undefined
      ? modeOf(design.language) === 'javascript'
        ? BEGIN[kind]
        : ''
      : sourceOf(saved),
  );
  const [source, setSource] = useState(begin);
  const [error, setError] = useState<unknown>();
  const [asked, setAsked] = useState<'clone' | 'rename'>();
  const isChanged = differs(source, saved);
  useGuard(isChanged && may === true);
  const save = async () => {
    setError(undefined);
    try {
      setDesign(
        await change(db, design.name, (doc) => put(doc, at, edited(source, saved)), {
          at,
          was: saved,
        }),
      );
      announce(t.saved);
    } catch (thrown) {
      setError(await located(thrown, source));
    }
  };
  const leave = (to: string) => {
    setGuard(undefined);
    go(['database', db, '_design', design.name, '_function', kind, to]);
  };
  const as = async (to: string) => {
    if (member(design.doc, kind, to) !== undefined) throw new Error(t.taken);
    if (asked === 'clone')
      await change(db, design.name, (doc) => put(doc, [kind, to], edited(source, saved)));
    else
      await change(db, design.name, (doc) => rename(put(doc, at, edited(source, saved)), at, to), {
        at,
        was: saved,
      });
    leave(to);
  };
  const drop = () =>
    confirm({
      title: t.deleteOne(name || kind),
      text: t.kindNames[kind],
      action: words().delete,
      work: () => change(db, design.name, (doc) => put(doc, at, undefined), { at, was: saved }),
    }).then((done) => {
      if (!done) return;
      setGuard(undefined);
      location.hash = toDesign(db, design.name);
    });
  const mistakes = useMemo(() => {
    const line = error instanceof Error ? lineOf(error.message) : undefined;
    return line ? [{ line, text: (error as Error).message }] : [];
  }, [error]);
  const isJson = saved !== undefined && typeof saved !== 'string';
  const editor = (
    <>
      <div class="bar">
        {may && (
          <>
            <Button kind="primary" onClick={save} disabled={!isChanged}>
              {words().save}
            </Button>
            {!isSingle && <Button onClick={() => setAsked('clone')}>{t.clone}</Button>}
            {!isSingle && saved !== undefined && (
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
        label={t.kindNames[kind]}
        mode={isJson ? 'json' : modeOf(design.language)}
        value={begin}
        onChange={setSource}
        onSave={() => void save()}
        isReadOnly={!may}
        mistakes={mistakes}
      />
    </>
  );
  return (
    <>
      {kind === 'validate_doc_update' && may ? (
        <div class="split">
          <div>{editor}</div>
          <div>
            <DryRun db={db} language={design.language} source={source} />
          </div>
        </div>
      ) : (
        editor
      )}
      {asked && (
        <NameDialog
          title={asked === 'clone' ? t.clone : t.rename}
          label={asked === 'clone' ? t.cloneTo : t.renameTo}
          begin={asked === 'clone' ? `${name}-2` : name}
          onClose={() => setAsked(undefined)}
          work={as}
        />
      )}
    </>
  );
}

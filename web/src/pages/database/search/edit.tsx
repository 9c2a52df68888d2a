import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { ask, isAdmin } from '../../../api';
import { member, print } from '../../../json';
import { link, setGuard } from '../../../router';
import { say as announce, Button, confirm, TextField, words } from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { change, type Design, put } from '../views/design';
import { modeOf } from '../views/language';
import { Code, useGuard } from '../views/shared';
import { wrongJson } from '../views/source';
import { say as ofViews } from '../views/texts';
import { ANALYZERS, analyzerOf, type Draft, definitionOf, draftOf } from './definition';
import { type IndexProps, toIndex } from './links';
import { Refused } from './refused';
import { type Kind, MEMBER } from './request';
import { say } from './texts';

/** Edits the definition of an index, and shows what its analyzers make of a text. */
export function Edit({ db, kind, name, loaded }: IndexProps & { loaded: Design }): JSX.Element {
  const [t, v] = [say(), ofViews()];
  const may = useMayManage(db);
  const [design, setDesign] = useState(loaded);
  const at = [MEMBER[kind], name];
  const saved = member(design.doc, ...at);
  const [begin] = useState(() => draftOf(kind, saved));
  const [draft, setDraft] = useState(begin);
  const [error, setError] = useState<unknown>();
  // Keys repeat.
  const isSaving = useRef(false);
  const set = (part: keyof Draft) => (value: string) =>
    setDraft((old) => ({ ...old, [part]: value }));
  const wrong = [
    /^\s*[{[]/.test(draft.analyzer) ? wrongJson(draft.analyzer) : undefined,
    wrongJson(draft.fields) ?? (/^\s*[^\s{]/.test(draft.fields) ? t.noFields : undefined),
  ];
  const isWrong = wrong.some((each) => each !== undefined);
  const isMango = design.language === 'query';
  const isChanged =
    !isMango &&
    (saved === undefined || isWrong || print(definitionOf(kind, saved, draft)) !== print(saved));
  useGuard(isChanged && may === true);
  if (isMango)
    return (
      <>
        <p class="notice">
          {v.isMango} <a href={link(['database', db, '_index'])}>{v.toIndexes}</a>
        </p>
        <Code label={t.definition} mode="json" value={print(saved ?? null, 2)} isReadOnly />
      </>
    );
  const save = async () => {
    if (isWrong || !isChanged || isSaving.current) return;
    isSaving.current = true;
    setError(undefined);
    try {
      setDesign(
        await change(db, design.name, (doc) => put(doc, at, definitionOf(kind, saved, draft)), {
          at,
          was: saved,
        }),
      );
      announce(v.saved);
      // Only what is there can be asked: its page is shown with the new one.
      if (saved === undefined) {
        setGuard(undefined);
        location.hash = toIndex(db, design.name, kind, name);
      }
    } catch (thrown) {
      setError(thrown);
    } finally {
      isSaving.current = false;
    }
  };
  const drop = () =>
    confirm({
      title: v.deleteOne(name),
      text: t.deleteText,
      action: words().delete,
      work: () => change(db, design.name, (doc) => put(doc, at, undefined), { at, was: saved }),
    }).then((done) => {
      if (!done) return;
      setGuard(undefined);
      location.hash = link(['database', db, '_search']);
    });
  return (
    <div class="split">
      <div>
        <div class="bar">
          {may && (
            <Button kind="primary" onClick={save} disabled={!isChanged || isWrong}>
              {words().save}
            </Button>
          )}
          {may && saved !== undefined && (
            <Button kind="plain" icon="remove" label={words().delete} onClick={drop} />
          )}
          <span class="grow" />
          <span class="soft">{kind === '_search' ? 'Clouseau' : 'Nouveau'}</span>
        </div>
        <OnlyAdmins may={may} />
        <Refused error={error} dismiss={() => setError(undefined)} />
        <Code
          label={t.function}
          mode={modeOf(design.language)}
          value={begin.source}
          onChange={set('source')}
          onSave={() => void save()}
          isReadOnly={!may}
        />
      </div>
      <div>
        <div class="views-options">
          <TextField
            label={t.analyzer}
            value={draft.analyzer}
            onInput={set('analyzer')}
            list={ANALYZERS}
            placeholder="standard"
            error={wrong[0]}
            disabled={!may}
          />
          <TextField
            label={t.fieldAnalyzers}
            value={draft.fields}
            onInput={set('fields')}
            placeholder='{"tag": "keyword"}'
            hint={t.strings}
            error={wrong[1]}
            disabled={!may}
          />
        </div>
        {isAdmin.value && <Analyze kind={kind} analyzer={draft.analyzer} />}
      </div>
    </div>
  );
}

/** Shows the words that an analyzer makes of a text. */
function Analyze({ kind, analyzer }: { kind: Kind; analyzer: string }): JSX.Element {
  const t = say();
  const [own, setOwn] = useState<string>();
  const [text, setText] = useState('');
  const [tokens, setTokens] = useState<string[]>();
  const [error, setError] = useState<unknown>();
  const used = own ?? (analyzer || 'standard');
  const run = async (event: Event) => {
    event.preventDefault();
    setError(undefined);
    setTokens(undefined);
    try {
      setTokens(
        (
          await ask<{ tokens: string[] }>('POST', `/${kind}_analyze`, {
            body: `{"analyzer":${print(analyzerOf(used) ?? 'standard')},"text":${JSON.stringify(text)}}`,
          })
        ).tokens,
      );
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <form class="card" onSubmit={run}>
      <h2>{t.tryIt}</h2>
      <TextField label={t.analyzer} value={used} onInput={setOwn} list={ANALYZERS} />
      <TextField label={t.text} value={text} onInput={setText} />
      <div class="row-of">
        <Button type="submit" disabled={text === ''}>
          {t.showWords}
        </Button>
      </div>
      <Refused error={error} />
      <ul class="views-chips" aria-label={t.words} aria-live="polite">
        {tokens?.map((token, n) => (
          <li key={n} class="chip">
            <span class="mono">{token}</span>
          </li>
        ))}
        {tokens?.length === 0 && <li>{words().none}</li>}
      </ul>
    </form>
  );
}

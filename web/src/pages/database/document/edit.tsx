import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { print } from '../../../json';
import { Button, Compare, Editor, Icon, inLine } from '../../../ui';
import type { Draft } from './draft';
import { say } from './texts';

/** The document as text, and what came of saving it. */
export function Edit({
  draft,
  onSave,
}: {
  draft: Draft;
  onSave: (work?: () => Promise<string | undefined>) => Promise<void>;
}): JSX.Element {
  const t = say();
  const { text, round } = draft.shown.value;
  const wrongs = draft.wrongs.value;
  const state = draft.state.value;
  const clash = draft.clash.value;
  const save = () => {
    if (state === 'there' && !draft.isDirty.value) return;
    void onSave(() => draft.save());
  };
  return (
    <>
      {state === 'deleted' && <p class="notice warn">{t.deletedNote}</p>}
      {state === 'new' && draft.clone === undefined && <p class="notice">{t.newNote}</p>}
      {wrongs.map((wrong) => (
        <div key={wrong.line} class="problem" role="alert">
          <Icon name="warning" />
          <div class="problem-text">
            <strong>{inLine(wrong.line, wrong.column)}</strong> {wrong.text}
          </div>
        </div>
      ))}
      {clash && <Clashed draft={draft} onSave={onSave} />}
      <div class="fill" hidden={clash !== undefined}>
        <Editor
          key={round}
          mode="json"
          label={t.editor}
          value={text}
          mistakes={wrongs}
          onChange={(now) => draft.change(now)}
          onSave={save}
          focus
        />
      </div>
    </>
  );
}

/** What is there now beside the own text: nobody's work is lost without a choice. */
function Clashed({
  draft,
  onSave,
}: {
  draft: Draft;
  onSave: (work?: () => Promise<string | undefined>) => Promise<void>;
}): JSX.Element {
  const t = say();
  const theirs = draft.clash.value?.theirs;
  const before = useMemo(() => (theirs ? print(theirs, 2) : ''), [theirs]);
  const title = !theirs ? t.clashGone : draft.id === undefined ? t.clashNew : t.clash;
  return (
    <section class="fill clash" aria-label={title}>
      <div class="notice warn" role="alert">
        <strong>{title}.</strong> {t.clashText}
      </div>
      <div class="row-of">
        <Button kind="primary" onClick={() => (draft.clash.value = undefined)}>
          {t.goOn}
        </Button>
        <Button onClick={() => draft.takeTheirs()}>{t.takeTheirs}</Button>
        <Button onClick={() => onSave(() => draft.saveUpon())}>
          {theirs ? t.saveMine : t.saveAnew}
        </Button>
      </div>
      <Sides left={t.theirs} right={t.mine} />
      <Compare before={before} after={draft.now} labels={[t.theirs, t.mine]} />
    </section>
  );
}

/** Names above two texts side by side. */
export function Sides({ left, right }: { left: string; right: string }): JSX.Element {
  return (
    <div class="sides" aria-hidden="true">
      <span class="cut">{left}</span>
      <span class="cut">{right}</span>
    </div>
  );
}

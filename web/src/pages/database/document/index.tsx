import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo } from 'preact/hooks';
import { ApiError, returns } from '../../../api';
import { count } from '../../../i18n';
import { Obj } from '../../../json';
import { visited } from '../../../palette/recent';
import { go, place as here, link, type Place, setGuard } from '../../../router';
import {
  Badge,
  Button,
  confirm,
  Icon,
  Loading,
  Problem,
  Tabs,
  say as tell,
  words,
} from '../../../ui';
import type { Info } from '../../databases/infos';
import { docLink } from '../address';
import { Attachments } from './attachments';
import { Conflicts } from './conflicts';
import './document.css';
import { Draft } from './draft';
import { Edit } from './edit';
import { Revisions } from './revisions';
import { Sharing } from './sharing';
import { say } from './texts';
import { Uploads } from './upload';

interface Props {
  db: string;
  /** `undefined` for a new document. */
  id: string | undefined;
  place: Place;
  info: Info | undefined;
}

const PARTS = ['json', 'attachments', 'revisions', 'conflicts', 'sharing'] as const;

export default function Document({ db, id, place, info }: Props): JSX.Element {
  const clone = id === undefined ? (place.query.get('clone') ?? undefined) : undefined;
  const draft = useMemo(() => new Draft(db, id, clone), [db, id, clone]);
  useEffect(() => {
    const control = new AbortController();
    void draft.load(control.signal);
    return () => control.abort();
  }, [draft]);
  const uploads = useMemo(() => new Uploads(draft, (name) => tell(say().uploaded(name))), [draft]);
  useEffect(() => () => uploads.end(), [uploads]);
  useUnsaved(draft.isDirty.value || uploads.isBusy.value);
  useSaveKey(draft);
  const came = returns.value;
  useEffect(() => {
    if (draft.state.value === 'failed') void draft.load();
    else if (draft.waiting === draft.now) void saveDraft(draft);
  }, [came]);
  const hasClash = draft.clash.value !== undefined;
  useEffect(() => {
    // It is shown where the text is.
    if (hasClash && place.query.has('part')) go(place.parts);
  }, [hasClash]);
  const t = say();
  const state = draft.state.value;
  const part = PARTS.find((each) => each === place.query.get('part')) ?? 'json';
  const attachments = draft.doc.value?.get('_attachments');
  const names: Record<(typeof PARTS)[number], string> = {
    json: t.json,
    attachments: numbered(t.attachments, attachments instanceof Obj ? attachments.size : 0),
    revisions: t.revisions,
    conflicts: numbered(t.conflicts, draft.conflicts.value.length),
    sharing: t.sharing,
  };
  const hasAccess = info?.props?.access === true && !id?.startsWith('_design/');
  // Not after it is painted: its user may have left by then.
  useLayoutEffect(() => {
    if (id !== undefined && state === 'there') visited(db, id);
  }, [db, id, state]);
  const isThere = state === 'there' || state === 'deleted';
  return (
    <div class="document fill">
      <Head
        draft={draft}
        part={part}
        onPart={(to) => go(place.parts, { ...Object.fromEntries(place.query), part: to })}
      />
      {isThere && !id?.startsWith('_local/') && (
        <Tabs
          label={t.views}
          current={part}
          tabs={PARTS.filter((each) => each !== 'sharing' || hasAccess).map((each) => ({
            id: each,
            name: names[each],
            href: link(place.parts, { part: each === 'json' ? undefined : each }),
          }))}
        />
      )}
      {state === 'loading' && <Loading />}
      {state === 'failed' && <Problem error={draft.error.value} retry={() => void draft.load()} />}
      {(isThere || state === 'new') && (
        <>
          <Problem
            error={draft.error.value}
            dismiss={() => (draft.error.value = undefined)}
            {...(draft.waiting !== undefined && { retry: () => void saveDraft(draft) })}
          />
          {/* The editor stays while others are looked at: it has its own history. */}
          <div class="fill" hidden={part !== 'json' && isThere}>
            <Edit draft={draft} onSave={(work) => saveDraft(draft, work)} />
          </div>
          {isThere && part === 'attachments' && <Attachments draft={draft} uploads={uploads} />}
          {isThere && part === 'revisions' && (
            <Revisions draft={draft} onTaken={() => go(place.parts)} />
          )}
          {isThere && part === 'conflicts' && <Conflicts draft={draft} />}
          {isThere && part === 'sharing' && hasAccess && (
            <Sharing draft={draft} onSave={() => saveDraft(draft)} />
          )}
        </>
      )}
    </div>
  );
}

function numbered(name: string, n: number): string {
  return n > 0 ? `${name} (${count(n)})` : name;
}

/** Asks before unsaved text is left; its own parts may be changed. */
function useUnsaved(isDirty: boolean): void {
  const now = here.value;
  useLayoutEffect(() => {
    const path = location.hash.replace(/\?.*/s, '');
    setGuard(
      isDirty
        ? () => location.hash.replace(/\?.*/s, '') === path || window.confirm(words().unsaved)
        : undefined,
    );
    return () => setGuard(undefined);
  }, [isDirty, now]);
}

/** Saves wherever the focus is; in the editor, it is its own key. */
function useSaveKey(draft: Draft): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (
        event.defaultPrevented ||
        event.key !== 's' ||
        !(event.ctrlKey || event.metaKey) ||
        document.querySelector('dialog[open]')
      )
        return;
      event.preventDefault();
      if (!draft.clash.value && (draft.isDirty.value || draft.state.value !== 'there'))
        void saveDraft(draft);
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [draft]);
}

/** Saves, and says so; a new document gets its own page. */
async function saveDraft(draft: Draft, work = () => draft.save()): Promise<void> {
  const id = await work();
  if (id === undefined) return;
  tell(say().saved(id));
  if (draft.id !== undefined) return;
  setGuard(undefined);
  location.hash = docLink(draft.db, id);
}

function Head({
  draft,
  part,
  onPart,
}: {
  draft: Draft;
  part: string;
  onPart: (part: string) => void;
}): JSX.Element {
  const { db, id, clone } = draft;
  const t = say();
  const state = draft.state.value;
  const isThere = state === 'there';
  const isDirty = draft.isDirty.value;
  const conflicts = draft.conflicts.value.length;
  const canSave = isThere || state === 'new' || state === 'deleted';
  return (
    <>
      <div class="page-head">
        <h1>
          {id ?? (clone === undefined ? t.fresh : t.cloneOf(clone))}{' '}
          {id?.startsWith('_design/') && <Badge kind="info">{t.design}</Badge>}{' '}
          {state === 'deleted' && <Badge kind="bad">{t.isDeleted}</Badge>}{' '}
          {isDirty && <Badge kind="warn">{t.unsaved}</Badge>}
        </h1>
        <div class="row-of">
          {isThere && (
            <>
              <Button
                kind="plain"
                icon="reload"
                label={words().reload}
                onClick={() => reload(draft)}
              />
              <a
                class="button"
                href={draft.href({})}
                target="_blank"
                rel="noreferrer"
                aria-label={t.raw}
                title={t.raw}
              >
                <Icon name="document" />
                <span class="wide">{t.raw}</span>
              </a>
              <Button
                icon="copy"
                label={t.clone}
                onClick={() => go(['database', db, '_new'], { clone: id })}
              >
                <span class="wide">{t.clone}</span>
              </Button>
              <Button icon="remove" label={words().delete} onClick={() => remove(draft)}>
                <span class="wide">{words().delete}</span>
              </Button>
            </>
          )}
          {isDirty && isThere && (
            <Button icon="close" label={t.undoAll} onClick={() => draft.undoAll()}>
              <span class="wide">{t.undoAll}</span>
            </Button>
          )}
          {canSave && (
            <Button
              kind="primary"
              icon="check"
              disabled={draft.isSaving.value || (isThere && !isDirty)}
              onClick={() => saveDraft(draft)}
              aria-keyshortcuts="Control+S"
            >
              {words().save}
            </Button>
          )}
        </div>
      </div>
      {conflicts > 0 && part !== 'conflicts' && (
        <p class="notice warn row-of">
          {t.conflictNote(count(conflicts))}{' '}
          <button type="button" onClick={() => onPart('conflicts')}>
            {t.resolve}
          </button>
        </p>
      )}
    </>
  );
}

async function reload(draft: Draft): Promise<void> {
  if (!draft.isDirty.value || window.confirm(words().unsaved)) await draft.load();
}

/** Deletes at once, as it can be taken back; it asks where it cannot. */
async function remove(draft: Draft): Promise<void> {
  const { db, id = '' } = draft;
  const t = say();
  const hasConflicts = draft.conflicts.value.length > 0;
  const work = async () => {
    const undo = await draft.remove();
    if (hasConflicts) return tell(t.removedOne);
    const back = async () => {
      await undo();
      tell(say().back);
      location.hash = docLink(db, id);
    };
    tell(t.removed(id), back);
    setGuard(undefined);
    go(['database', db, '_all_docs']);
  };
  const warning = hasConflicts
    ? t.removeConflicts
    : draft.isDirty.value
      ? t.removeDirty
      : undefined;
  if (warning)
    return void (await confirm({
      title: t.removeAsk(id),
      text: warning,
      action: words().delete,
      work,
    }));
  try {
    await work();
  } catch (error) {
    if (error instanceof ApiError && error.status === 409) await draft.collide();
    else draft.error.value = error;
  }
}

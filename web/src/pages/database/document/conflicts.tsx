import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { useResource } from '../../../api';
import { count } from '../../../i18n';
import { type Json, JsonError, Obj, print } from '../../../json';
import {
  Button,
  Check,
  Editor,
  Empty,
  explainJson,
  Loading,
  Problem,
  say as tell,
} from '../../../ui';
import type { Draft } from './draft';
import { readLeaves } from './leaves';
import { type Failed, NotKept, resolve } from './resolve';
import { say } from './texts';
import { type Leaf, short } from './tree';

export function Conflicts({ draft }: { draft: Draft }): JSX.Element {
  const t = say();
  const leaves = useResource(`${draft.path} ${draft.changes.value}`, (signal) =>
    readLeaves(draft, signal),
  );
  const [failed, setFailed] = useState<Failed[]>([]);
  if (!leaves.data)
    return leaves.error === undefined ? (
      <Loading />
    ) : (
      <Problem error={leaves.error} retry={leaves.reload} />
    );
  const live = leaves.data.filter((leaf) => !leaf.isDeleted);
  return (
    <div class="fill conflicts">
      {failed.length > 0 && (
        <div class="problem" role="alert">
          <div class="problem-text">
            <strong>{t.partly(count(failed.length))}</strong>
            {failed.map(({ rev, reason }) => (
              <p key={rev} class="told">
                {rev}: {reason}
              </p>
            ))}
          </div>
        </div>
      )}
      {live.length < 2 ? (
        <Empty icon="check" title={t.noConflicts}>
          <p>{t.noConflictsText}</p>
        </Empty>
      ) : (
        <Solver
          key={live.map((leaf) => leaf.rev).join()}
          draft={draft}
          leaves={live}
          onFailed={setFailed}
        />
      )}
    </div>
  );
}

/** The text of a value, to compare and to show. `undefined` where the field is not there. */
function shown(leaf: Leaf, field: string): string | undefined {
  const value = leaf.doc.get(field);
  return value === undefined ? undefined : print(value, 2);
}

/** All leaves side by side, field by field; what is chosen makes the text that is kept. */
function Solver({
  draft,
  leaves,
  onFailed,
}: {
  draft: Draft;
  leaves: Leaf[];
  onFailed: (failed: Failed[]) => void;
}): JSX.Element | null {
  const t = say();
  const [kept, setKept] = useState(0);
  /** Of which leaf a field is taken, where not of the one that is kept. */
  const [picks, setPicks] = useState<Record<string, number>>({});
  const [isShort, setShort] = useState(true);
  const [typed, setTyped] = useState<string | undefined>();
  const [error, setError] = useState<unknown>();
  const fields = useMemo(
    () =>
      [...new Set(leaves.flatMap((leaf) => [...leaf.doc.keys()]))].filter(
        (field) => field !== '_id' && field !== '_rev',
      ),
    [leaves],
  );
  const different = useMemo(
    () =>
      new Set(fields.filter((field) => new Set(leaves.map((leaf) => shown(leaf, field))).size > 1)),
    [fields],
  );
  const base = leaves[kept] ?? leaves[0];
  const merged = useMemo(() => (base ? print(merge(base, leaves, picks), 2) : ''), [base, picks]);
  if (!base) return null;
  const result = typed ?? merged;
  const keep = (index: number) => {
    setKept(index);
    setPicks({});
    setTyped(undefined);
  };
  const pick = (field: string, index: number) => {
    setPicks({ ...picks, [field]: index });
    setTyped(undefined);
  };
  const solve = async () => {
    setError(undefined);
    onFailed([]);
    try {
      const done = await resolve(draft, base, leaves, result);
      onFailed(done.failed);
      tell(t.resolved(short(done.rev), count(done.deleted)));
      await draft.load();
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <>
      <p class="notice">{t.solveText(count(leaves.length))}</p>
      <Check label={t.onlyDifferent} value={isShort} onChange={setShort} />
      <div class="scrolls solver" tabIndex={0} role="region" aria-label={t.conflicts}>
        <table class="plain">
          <thead>
            <tr>
              <th>{t.field}</th>
              {leaves.map((leaf, index) => (
                <th key={leaf.rev}>
                  <label class="pick" title={leaf.rev}>
                    <input
                      type="radio"
                      name="kept"
                      checked={index === kept}
                      aria-label={`${t.keep} ${leaf.rev}`}
                      onChange={() => keep(index)}
                    />
                    <span>
                      {t.keep} <code>{short(leaf.rev)}</code> {leaf.isWinner && `(${t.winner})`}
                    </span>
                  </label>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {fields
              .filter((field) => !isShort || different.has(field))
              .map((field) => (
                <tr key={field}>
                  <th scope="row" class="mono">
                    {field}
                  </th>
                  {leaves.map((leaf, index) => (
                    <td key={leaf.rev} class={(picks[field] ?? kept) === index ? 'taken' : ''}>
                      {/* biome-ignore lint/a11y/noLabelWithoutControl: the control is there when the revisions differ */}
                      <label class="pick">
                        {/* Attachments stay with their revision: another has no content for them. */}
                        {different.has(field) && field !== '_attachments' && (
                          <input
                            type="radio"
                            name={`field-${field}`}
                            checked={(picks[field] ?? kept) === index}
                            aria-label={t.takeField(field, leaf.rev)}
                            onChange={() => pick(field, index)}
                          />
                        )}
                        <Value text={shown(leaf, field)} />
                      </label>
                    </td>
                  ))}
                </tr>
              ))}
          </tbody>
        </table>
      </div>
      <h2>{t.result}</h2>
      <div class="fill result">
        <Editor mode="json" label={t.resultText} value={merged} onChange={setTyped} />
      </div>
      <Wrong error={error} />
      <div class="actions">
        {draft.isDirty.value && <span class="soft">{t.saveFirst}</span>}
        <Button kind="primary" icon="check" disabled={draft.isDirty.value} onClick={solve}>
          {t.resolveNow(count(leaves.length - 1))}
        </Button>
      </div>
    </>
  );
}

function Wrong({ error }: { error: unknown }): JSX.Element | null {
  const t = say();
  if (error instanceof JsonError)
    return (
      <p class="notice warn" role="alert">
        {explainJson(error)}
      </p>
    );
  if (!(error instanceof NotKept)) return <Problem error={error} />;
  return (
    <>
      <p class="notice warn">{t.notKept}</p>
      <Problem error={error.cause} />
    </>
  );
}

const SHOWN_MAX = 2000;

function Value({ text }: { text: string | undefined }): JSX.Element {
  if (text === undefined) return <span class="soft">{say().absent}</span>;
  return <pre>{text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text}</pre>;
}

/** What is kept, with the fields that were taken from others. */
function merge(base: Leaf, leaves: Leaf[], picks: Record<string, number>): Obj {
  const doc = new Obj(base.doc);
  for (const [field, index] of Object.entries(picks)) {
    const value: Json | undefined = leaves[index]?.doc.get(field);
    if (value === undefined) doc.delete(field);
    else doc.set(field, value);
  }
  return doc;
}

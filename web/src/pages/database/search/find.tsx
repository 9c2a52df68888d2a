import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useResource } from '../../../api';
import { draftOf, forgetDraft, keepDraft } from '../../../drafts';
import { count } from '../../../i18n';
import { from, member, type Obj, print } from '../../../json';
import { recall, refine, remember } from '../../../router';
import { Button, Check, Empty, Loading, TextField } from '../../../ui';
import { Chosen, CopyCurl } from '../views/shared';
import { curl } from '../views/source';
import { say as ofViews } from '../views/texts';
import { type Answer, pathOf, search } from './ask';
import { Facets, shown } from './facets';
import { Hits } from './hits';
import type { IndexProps } from './links';
import { Refused } from './refused';
import {
  bodyOf,
  fieldsOf,
  GROUPS,
  GROUPS_MAX,
  groupsOf,
  guessOf,
  isWithin,
  LIMIT,
  LIMIT_MAX,
  limitOf,
  MEMBER,
  type Narrow,
  narrowsOf,
  queryOf,
  rangesOf,
  TAGS,
  TEXTS,
  toggled,
  type Wanted,
  wantedOf,
} from './request';
import { IndexState, useIndexState } from './state';
import { say } from './texts';
import { Waiting } from './waiting';

/** Bookmarks of the pages of a query. */
interface Turned {
  asked: string;
  marks: string[];
}

/** Asks an index: what is asked stands in the address. */
export function Find({
  db,
  design,
  kind,
  name,
  place,
  info,
  doc,
}: IndexProps & { doc: Obj }): JSX.Element {
  const definition = member(doc, MEMBER[kind], name);
  const fields = fieldsOf(kind, definition);
  const guess = guessOf(fields);
  const wanted = wantedOf(place.query, guess);
  const [round, setRound] = useState(0);
  const asked = JSON.stringify(wanted);
  // Bookmarks of the pages up to this one: of this query, another one begins at its first page.
  const [turned, turn] = useState(() => recall<Turned>('pages') ?? { asked, marks: [] });
  const marks = turned.asked === asked ? turned.marks : [];
  const to = pathOf(db, design, kind, name, wanted.partition);
  // Of this query alone: the next one waits for the index again.
  const [hurried, hurry] = useState<string>();
  const isAsItIs = hurried === asked;
  const found = useResource(
    wanted.q ? `${asked} ${marks.at(-1)} ${round} ${isAsItIs}` : undefined,
    (signal) =>
      search(
        to,
        bodyOf(kind, wanted, { bookmark: marks.at(-1), isAsItIs }),
        marks.length * limitOf(wanted),
        signal,
      ),
  );
  const of = { db, design, kind, name, info };
  const state = useIndexState(of, found.data);
  // While the next is asked for, the last answer stays, and what has the focus.
  const [last, setLast] = useState<Answer>();
  useEffect(() => setLast(found.data ?? last), [found.data]);
  const answer = found.data ?? (found.isLoading ? last : undefined);
  const set = (some: Wanted) => {
    refine(queryOf(some, guess));
    turn({ asked: '', marks: [] });
    hurry(undefined);
    setRound(round + 1);
  };
  const narrows = narrowsOf(wanted);
  const toggle = (one: Narrow) => set({ narrow: toggled(narrows, one) });
  const isMango = member(doc, 'language') === 'query';
  const names = isMango ? ['$default'] : fields.map((field) => field.name);
  return (
    <>
      <Form
        wanted={wanted}
        draft={`search ${db}/${design}/${kind}/${name}`}
        fields={names}
        isPartitioned={info?.props?.partitioned === true}
        curlText={() => curl('POST', to, {}, print(from(bodyOf(kind, wanted, { marks: TAGS }))))}
        onRun={set}
      />
      <div class="bar">
        <span class="soft">
          <IndexState told={state} />
        </span>
        {answer && (
          <Paging
            answer={answer}
            groupsMax={groupsOf(wanted)}
            marks={marks}
            turn={(to) => {
              if (!found.data) return;
              remember('pages', { asked, marks: to });
              turn({ asked, marks: to });
            }}
          />
        )}
      </div>
      <Narrowed narrows={narrows} toggle={toggle} />
      <Refused error={found.error} retry={found.reload} />
      {found.isLoading && !isAsItIs && <Waiting of={of} onNow={() => hurry(asked)} />}
      {isAsItIs && found.data && <p class="notice">{say().partly}</p>}
      {!wanted.q ? (
        <Empty icon="search" title={say().press}>
          <span>{say().pressDo}</span>
          <Syntax fields={names} />
        </Empty>
      ) : answer ? (
        <div class="search-found" aria-busy={found.isLoading}>
          <Facets
            answer={answer}
            narrows={narrows}
            isGuess={place.query.get('counts') === null}
            onNarrow={toggle}
          />
          <Hits
            db={db}
            answer={answer}
            isSorted={!!wanted.sort?.trim()}
            isBarren={!isMango && state.data?.isBarren === true}
          />
        </div>
      ) : (
        found.isLoading && <Loading />
      )}
    </>
  );
}

/** The values and ranges that all hits have. */
function Narrowed({
  narrows,
  toggle,
}: {
  narrows: Narrow[];
  toggle: (one: Narrow) => void;
}): JSX.Element | null {
  if (narrows.length === 0) return null;
  return (
    <ul class="views-chips" aria-label={say().narrowed}>
      {narrows.map((one, n) => (
        <li key={n} class="chip">
          <span>
            {one[0]}: <strong>{shown(one[1])}</strong>
          </span>
          <Button
            kind="plain"
            icon="close"
            label={say().widen(one.slice(0, 2).join(': '))}
            onClick={() => toggle(one)}
          />
        </li>
      ))}
    </ul>
  );
}

function Form({
  wanted,
  draft,
  fields,
  isPartitioned,
  curlText,
  onRun,
}: {
  wanted: Wanted;
  /** The name under which what is typed is kept. */
  draft: string;
  fields: string[];
  isPartitioned: boolean;
  curlText: () => string;
  onRun: (wanted: Wanted) => void;
}): JSX.Element {
  const [t, v] = [say(), ofViews()];
  const told = JSON.stringify(wanted);
  const [now, setNow] = useState(() => {
    const kept = draftOf<{ from: string; typed: Wanted }>(draft);
    return kept && (kept.from === told || !wanted.q) ? kept.typed : wanted;
  });
  const before = useRef(wanted);
  // What was typed and is not asked yet stays, but where the address says something new.
  useEffect(() => {
    const old = before.current;
    before.current = wanted;
    const changed = [...new Set([...Object.keys(old), ...Object.keys(wanted)])].filter(
      (each) => old[each] !== wanted[each],
    );
    setNow((typed) => ({
      ...typed,
      ...Object.fromEntries(changed.map((each) => [each, wanted[each] ?? ''])),
    }));
  }, [told]);
  const set = (name: string) => (value: string) => {
    const typed = { ...now, [name]: value };
    setNow(typed);
    keepDraft(draft, { from: told, typed });
  };
  const options = useRef<HTMLDetailsElement>(null);
  const noNumber = (name: string, max: number) =>
    isWithin(now[name], max) ? undefined : t.noNumber(count(max));
  const wrong: Record<string, string | undefined> = {
    ranges: rangesOf(now.ranges ?? '') ? undefined : t.noRange,
    limit: noNumber('limit', LIMIT_MAX),
    group_limit: noNumber('group_limit', GROUPS_MAX),
  };
  const run = (event: Event) => {
    event.preventDefault();
    if (Object.values(wrong).some((each) => each !== undefined))
      options.current?.setAttribute('open', '');
    else {
      forgetDraft(draft);
      onRun({ ...now, q: now.q?.trim() || '*:*' });
    }
  };
  return (
    <form class="search-form" onSubmit={run}>
      <div class="bar">
        <input
          type="search"
          aria-label={t.query}
          placeholder={fields[0] === '$default' ? '$default:fox' : 'fox dog'}
          spellcheck={false}
          autocapitalize="off"
          value={now.q === '*:*' ? '' : (now.q ?? '')}
          onInput={(event) => set('q')(event.currentTarget.value)}
        />
        <Button type="submit" kind="primary" icon="search">
          {t.find}
        </Button>
        <CopyCurl text={curlText} />
      </div>
      <details ref={options}>
        <Chosen
          title={v.options}
          all={[...TEXTS, 'limit', 'include_docs', 'partition'].flatMap((name) =>
            wanted[name]?.trim() ? [`${name}=${wanted[name]}`] : [],
          )}
        />
        <div class="card">
          <Syntax fields={fields} />
          <div class="views-options">
            {TEXTS.map((name) => (
              <TextField
                key={name}
                label={t.of[name]}
                type={name === 'group_limit' ? 'number' : 'text'}
                value={now[name] ?? ''}
                onInput={set(name)}
                placeholder={PLACEHOLDERS[name] ?? ''}
                error={wrong[name]}
              />
            ))}
            <TextField
              label={now.group_field?.trim() ? t.limitOfGroup : t.limit}
              type="number"
              placeholder={String(LIMIT)}
              value={now.limit ?? ''}
              onInput={set('limit')}
              error={wrong.limit}
            />
            {isPartitioned && (
              <TextField
                label={v.names.partition ?? ''}
                value={now.partition ?? ''}
                onInput={set('partition')}
              />
            )}
          </div>
          <Check
            label={t.docs}
            value={now.include_docs === 'true'}
            onChange={(is) => set('include_docs')(is ? 'true' : '')}
          />
        </div>
      </details>
    </form>
  );
}

const PLACEHOLDERS: Record<string, string> = {
  sort: '-year, title',
  ranges: 'year [0 TO 2000} [2000 TO *]',
  group_sort: '-year',
  group_limit: String(GROUPS),
};

/** How a query is written. */
function Syntax({ fields }: { fields: string[] }): JSX.Element {
  const t = say();
  return (
    <p class="note">
      {t.syntax} <code>fox dog</code>, <code>+fox -dog</code>, <code>"lazy dog"~3</code>,{' '}
      <code>fo*</code>, <code>foxs~1</code>, <code>tag:red</code>, <code>year:[2000 TO *]</code>.{' '}
      {fields.length > 0 && t.fields(fields.join(', '))} {t.strings}
    </p>
  );
}

function Paging({
  answer,
  groupsMax,
  marks,
  turn,
}: {
  answer: Answer;
  groupsMax: number;
  marks: string[];
  turn: (marks: string[]) => void;
}): JSX.Element {
  const [t, v] = [say(), ofViews()];
  const { from: start, groups, total, bookmark } = answer;
  const shown = groups[0]?.hits.length ?? 0;
  const isGrouped = groups.length !== 1 || groups[0]?.by !== undefined;
  return (
    <span class="row-of push">
      <span class="soft" role="status">
        {isGrouped
          ? `${t.hits(count(total))}, ${t.groups(count(groups.length) + (groups.length === groupsMax ? '+' : ''))}`
          : shown > 0
            ? v.total(count(start + 1), count(start + shown), count(total))
            : t.hits(count(total))}
      </span>
      {!isGrouped && (
        <>
          <Button
            icon="left"
            label={v.before}
            disabled={marks.length === 0}
            onClick={() => turn(marks.slice(0, -1))}
          />
          <Button
            icon="right"
            label={v.next}
            disabled={shown === 0 || start + shown >= total}
            onClick={() => turn([...marks, bookmark])}
          />
        </>
      )}
    </span>
  );
}

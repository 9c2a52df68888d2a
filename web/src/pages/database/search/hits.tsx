import { Fragment, type JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { count } from '../../../i18n';
import { type Json, member, Num, Obj, print, text } from '../../../json';
import { Empty } from '../../../ui';
import { docLink } from '../address';
import { brief } from '../views/source';
import type { Answer } from './ask';
import { MARKS } from './request';
import { say } from './texts';

/**
 * What was found, in its order: each hit with its stored fields, and what matched in them marked.
 */
export function Hits({
  db,
  answer,
  isSorted,
  isBarren,
}: {
  db: string;
  answer: Answer;
  isSorted: boolean;
  isBarren: boolean;
}): JSX.Element {
  const t = say();
  const list = useRef<HTMLOListElement>(null);
  // Another answer begins at its top.
  useLayoutEffect(() => list.current?.scrollTo(0, 0), [answer]);
  if (answer.groups.every((group) => group.hits.length === 0))
    return (
      <Empty icon="search" title={t.none}>
        <span>{isBarren ? t.barrenDo : t.noneDo}</span>
      </Empty>
    );
  return (
    <ol class="docs-json" aria-label={t.results} ref={list}>
      {answer.groups.map(({ by, total, hits }, n) => (
        <Fragment key={n}>
          {by !== undefined && (
            <li class="search-group">
              <h2>{typeof by === 'string' ? by : '–'}</h2>{' '}
              <span class="soft">{t.hits(count(total))}</span>
            </li>
          )}
          {hits.map((hit) => (
            <Hit key={text(member(hit, 'id'))} db={db} hit={hit} isSorted={isSorted} />
          ))}
        </Fragment>
      ))}
    </ol>
  );
}

function Hit({ db, hit, isSorted }: { db: string; hit: Json; isSorted: boolean }): JSX.Element {
  const id = text(member(hit, 'id'));
  const [fields, highlights, doc, order] = ['fields', 'highlights', 'doc', 'order'].map((name) =>
    member(hit, name),
  );
  const names = new Set([...namesOf(fields), ...namesOf(highlights)]);
  // Last is what hits of equal rank are ordered by.
  const ranks = Array.isArray(order) ? order.slice(0, -1).map(rank) : [];
  return (
    <li>
      <header>
        <a class="grow cut" href={docLink(db, id)}>
          {id}
        </a>
        <span class="soft">
          {isSorted ? '' : say().score} {ranks.join(', ')}
        </span>
      </header>
      <dl>
        {[...names].map((name) => (
          <Field
            key={name}
            name={name}
            value={member(fields, name)}
            parts={member(highlights, name)}
          />
        ))}
      </dl>
      {doc && <pre>{print(doc, 2)}</pre>}
    </li>
  );
}

const namesOf = (value: Json | undefined): string[] =>
  value instanceof Obj ? [...value.keys()] : [];

/** What a hit is ordered by. `_nouveau` says its type too. */
function rank(each: Json): string {
  const value = member(each, 'value') ?? each;
  return value instanceof Num
    ? Number.isInteger(value.value)
      ? String(value.value)
      : count(value.value)
    : typeof value === 'string'
      ? value
      : '–';
}

function Field({
  name,
  value,
  parts,
}: {
  name: string;
  value: Json | undefined;
  parts: Json | undefined;
}): JSX.Element | null {
  const found = Array.isArray(parts) ? parts.map(text).filter((part) => part !== '') : [];
  if (found.length === 0 && value === undefined) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {found.length > 0 ? (
          <Marked text={found.join(' … ')} />
        ) : typeof value === 'string' ? (
          clip(value)
        ) : (
          brief(value).replace(/^(-?\d+)\.0$/, '$1')
        )}
      </dd>
    </div>
  );
}

const clip = (value: string) => (value.length > 300 ? `${value.slice(0, 300)}…` : value);

function Marked({ text }: { text: string }): JSX.Element {
  const [pre, post] = MARKS;
  return (
    <>
      {text
        .split(new RegExp(`${pre}([^${post}]*)${post}`))
        .map((part, n) => (n % 2 === 1 ? <mark key={n}>{part}</mark> : part))}
    </>
  );
}

import type { JSX } from 'preact';
import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import { useResource } from '../api';
import { place } from '../router';
import { Dialog, Icon, type IconName } from '../ui';
import { found, idIn, type Target } from './search';
import { databases, documents, pages, recent, settings, toDatabase } from './targets';
import { say } from './texts';

const ICONS: Record<Target['kind'], IconName> = {
  page: 'right',
  database: 'database',
  document: 'document',
  setting: 'settings',
  recent: 'clock',
};
/** While somebody types, nothing is asked for. */
const REST_MS = 120;

/** Leads to any database, id, setting and page, by a few letters of its name. */
export function Search({ close }: { close: () => void }): JSX.Element {
  const t = say();
  const id = useId();
  const [search, setSearch] = useState('');
  // Not its place in the list: entries that arrive later may stand before it.
  const [active, setActive] = useState<string>();
  const list = useRef<HTMLDivElement>(null);
  const [area, db] = place.value.parts;
  const current = area === 'database' ? db : undefined;
  const names = useResource('databases', databases).data;
  const known = useResource('settings', settings).data;
  const ids = useIds(search, names ?? [], current);
  const all = useMemo(
    () => [...recent(), ...pages(current), ...(names ?? []).map(toDatabase), ...(known ?? [])],
    [names, known],
  );
  const shown = useMemo(() => withIds(found(all, search), ids), [all, search, ids]);
  const chosen = Math.max(
    0,
    shown.findIndex((target) => keyOf(target) === active),
  );
  useEffect(() => {
    list.current?.children[chosen]?.scrollIntoView({ block: 'nearest' });
  }, [chosen, shown]);
  const go = (target: Target | undefined) => {
    if (!target) return;
    close();
    location.hash = target.to;
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setActive(keyOf(shown[(chosen + step + shown.length) % shown.length]));
    else if (event.key === 'Enter') go(shown[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title={t.title} onClose={close}>
      <div class="palette">
        <input
          type="text"
          role="combobox"
          aria-label={t.search}
          aria-expanded={shown.length > 0}
          aria-controls={id}
          aria-autocomplete="list"
          aria-activedescendant={shown.length > 0 ? `${id}-${chosen}` : undefined}
          placeholder={t.search}
          autocapitalize="off"
          autocomplete="off"
          spellcheck={false}
          value={search}
          autofocus
          onInput={(event) => {
            setSearch(event.currentTarget.value);
            setActive(undefined);
          }}
          onKeyDown={press}
        />
        <div role="listbox" id={id} aria-label={t.title} ref={list} hidden={shown.length === 0}>
          {shown.map((target, n) => (
            <div
              key={keyOf(target)}
              id={`${id}-${n}`}
              role="option"
              aria-selected={n === chosen}
              onClick={() => go(target)}
            >
              <Icon name={ICONS[target.kind]} />
              <span class="grow cut" title={target.name}>
                {target.name}
              </span>
              <small>{t.kinds[target.kind]}</small>
            </div>
          ))}
        </div>
        <small class="soft" role="status">
          {shown.length === 0 ? t.nothing : t.hint}
        </small>
      </div>
    </Dialog>
  );
}

function keyOf(target: Target | undefined): string {
  return `${target?.kind} ${target?.to}`;
}

/** Ids come before what fits less well than the name of a page or a database. */
function withIds(targets: Target[], ids: Target[]): Target[] {
  const others = ids.filter(({ to }) => !targets.some((target) => target.to === to));
  const first = targets.findIndex(({ kind }) => kind === 'setting');
  const at = first < 0 ? Math.min(targets.length, 8) : Math.min(first, 8);
  return [...targets.slice(0, at), ...others, ...targets.slice(at)];
}

/** Documents whose ids begin as the search does, once nobody types. */
function useIds(search: string, names: string[], current: string | undefined): Target[] {
  const asked = idIn(search, names, current);
  const key = asked && JSON.stringify(asked);
  const [rested, setRested] = useState<string>();
  useEffect(() => {
    const timer = setTimeout(() => setRested(key), REST_MS);
    return () => clearTimeout(timer);
  }, [key]);
  const { data } = useResource(rested === key ? key : undefined, (signal) =>
    asked ? documents(asked.db, asked.id, signal) : Promise.resolve([]),
  );
  return data ?? [];
}

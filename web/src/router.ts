import { signal } from '@preact/signals';

/** Where we are: parts of the path after `#`, unescaped, and its query. */
export interface Place {
  parts: string[];
  query: URLSearchParams;
}

function here(): Place {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const parts = path.split('/').filter((part) => part !== '');
  return { parts: parts.map(unescaped), query: new URLSearchParams(query) };
}

function unescaped(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const place = signal<Place>(here());

const STEPS = 'settee-steps';
const REMEMBERED_MAX = 300;
/**
 * What pages remember of a step of the history, such as how far a list was scrolled, by the step's
 * id and a name. It outlives a reload of the page, but not its tab.
 */
const memory = new Map<string, unknown>(
  JSON.parse(globalThis.sessionStorage?.getItem(STEPS) ?? '[]') as [string, unknown][],
);
/** What was there when this step was entered. */
let before = memory;
/** The last step at each address. */
const steps = new Map<string, string>();
let step = enter();

/**
 * The id of the step of the history that was just entered: its own when it was left before. A link
 * to an address that was left within the same area continues that one.
 */
function enter(from?: Place): string {
  const own = (history.state as { step?: string } | null | undefined)?.step;
  const known = from && isNear(from, here()) ? steps.get(location.hash) : undefined;
  const id = own ?? known ?? `${Date.now()} ${Math.random()}`;
  if (!own) history.replaceState({ step: id }, '', location.hash);
  steps.set(location.hash, id);
  before = new Map(memory);
  return id;
}

/** Whether both are in one area, or in one database, or the second is the first page. */
function isNear({ parts: [area, db] }: Place, { parts: [to, toDb] }: Place): boolean {
  return to === undefined || (area === to && (area !== 'database' || db === toDb));
}

/** Keeps a value for whoever comes back to this step of the history. */
export function remember(name: string, value: unknown): void {
  const key = `${step} ${name}`;
  // What was set last is dropped last.
  memory.delete(key);
  memory.set(key, value);
  before.delete(key);
}

/** What was kept at this step before it was left; `undefined` once there is something newer. */
export function recall<T>(name: string): T | undefined {
  return before.get(`${step} ${name}`) as T | undefined;
}

/** Forgets all of it. */
export function forget(): void {
  memory.clear();
}

addEventListener('pagehide', () => {
  sessionStorage.setItem(STEPS, JSON.stringify([...memory].slice(-REMEMBERED_MAX)));
});

/** Asked before a page is left; answers whether it may be. */
type Guard = () => boolean;
let guard: Guard | undefined;
let last = location.hash;

addEventListener('hashchange', () => {
  if (location.hash === last) return;
  if (guard && !guard()) {
    history.replaceState({ step }, '', last || '#/');
    return;
  }
  guard = undefined;
  last = location.hash;
  step = enter(place.value);
  place.value = here();
});

addEventListener('beforeunload', (event) => {
  if (guard) event.preventDefault();
});

/** Has something asked before this page is left: that there is unsaved text. */
export function setGuard(to: Guard | undefined): void {
  guard = to;
}

/** Whether there is unsaved text. */
export function isGuarded(): boolean {
  return guard !== undefined;
}

/** An address within the pages, of parts that may hold anything. */
export function link(parts: string[], query: Record<string, string | undefined> = {}): string {
  const search = new URLSearchParams(
    Object.entries(query).filter(
      (pair): pair is [string, string] => pair[1] !== undefined && pair[1] !== '',
    ),
  );
  const path = parts.map((part) => `/${encodeURIComponent(part)}`).join('');
  return `#${path || '/'}${search.size > 0 ? `?${search}` : ''}`;
}

/** Goes somewhere. */
export function go(parts: string[], query?: Record<string, string | undefined>): void {
  location.hash = link(parts, query);
}

/** Changes the query only, without a step in the history. */
export function refine(query: Record<string, string | undefined>): void {
  const all = { ...Object.fromEntries(place.value.query), ...query };
  const to = link(place.value.parts, all);
  history.replaceState({ step }, '', to);
  last = location.hash;
  steps.set(last, step);
  place.value = here();
}

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

/** Asked before a page is left; answers whether it may be. */
type Guard = () => boolean;
let guard: Guard | undefined;
let last = location.hash;

addEventListener('hashchange', () => {
  if (location.hash === last) return;
  if (guard && !guard()) {
    history.replaceState(null, '', last || '#/');
    return;
  }
  guard = undefined;
  last = location.hash;
  place.value = here();
});

addEventListener('beforeunload', (event) => {
  if (guard) event.preventDefault();
});

/** Has something asked before this page is left: that there is unsaved text. */
export function setGuard(to: Guard | undefined): void {
  guard = to;
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
  history.replaceState(null, '', to);
  last = location.hash;
  place.value = here();
}

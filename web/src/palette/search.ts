/** Where the palette can lead to. */
export interface Target {
  kind: 'page' | 'database' | 'document' | 'setting' | 'recent';
  name: string;
  /** The address. */
  to: string;
  /** What is searched besides its name. */
  more?: string;
}

const SHOWN_MAX = 40;

/**
 * How well a name has the letters of a search in their order: the less the better; `undefined` where
 * it does not have them. A whole word is best, then a beginning, then a part, then letters.
 */
export function rank(name: string, wanted: string): number | undefined {
  const text = name.toLowerCase();
  if (text === wanted) return 0;
  const at = text.indexOf(wanted);
  if (at === 0) return 1 + text.length / 1000;
  if (at > 0) return (/[\w]/.test(text[at - 1] ?? '') ? 3 : 2) + text.length / 1000;
  let place = -1;
  let gaps = 0;
  for (const letter of wanted) {
    const next = text.indexOf(letter, place + 1);
    if (next < 0) return undefined;
    if (place >= 0) gaps += next - place - 1;
    place = next;
  }
  return 4 + gaps + text.length / 1000;
}

/** Those that fit a search, the best first; of each word one has all letters. */
export function found(all: Target[], search: string): Target[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0)
    return all.filter(({ kind }) => kind === 'recent' || kind === 'page').slice(0, SHOWN_MAX);
  const ranked = all.flatMap((target) => {
    let sum = 0;
    for (const word of words) {
      const own = rank(target.name, word);
      const other = target.more?.toLowerCase().includes(word) ? 5 : undefined;
      if (own === undefined && other === undefined) return [];
      sum += Math.min(own ?? 9, other ?? 9);
    }
    return [{ target, sum }];
  });
  ranked.sort((a, b) => a.sum - b.sum);
  return ranked.slice(0, SHOWN_MAX).map(({ target }) => target);
}

/** What `shop/order-7` asks for: an id in a database; within one, any text may be an id. */
export function idIn(
  search: string,
  databases: string[],
  current: string | undefined,
): { db: string; id: string } | undefined {
  const text = search.trim();
  // Names of databases may have slashes: the longest that fits counts.
  const db = databases
    .filter((name) => text.startsWith(`${name}/`))
    .reduce<string | undefined>(
      (a, b) => (a !== undefined && a.length > b.length ? a : b),
      undefined,
    );
  if (db !== undefined) return { db, id: text.slice(db.length + 1) };
  return current !== undefined && text !== '' ? { db: current, id: text } : undefined;
}

/** A function and what it calls. */
export interface Frame {
  name: string;
  /** With what it calls. */
  value: number;
  self: number;
  depth: number;
  /** Where it begins and how wide it is, as shares of the whole. */
  x: number;
  width: number;
  children: Frame[];
  parent: Frame | undefined;
}

export interface Profile {
  id: number;
  name: string;
  /** The lines as the server told them: `a;b;c 12`. */
  folded: string;
  root: Frame;
  /** What the server said of it. */
  told: Record<string, number>;
  unit: 'samples' | 'us';
  query: Record<string, string | number>;
}

/** Reads folded stacks; `undefined` where they are none. */
export function grow(folded: string): Frame | undefined {
  const root: Frame = {
    name: '',
    value: 0,
    self: 0,
    depth: 0,
    x: 0,
    width: 1,
    children: [],
    parent: undefined,
  };
  const known = new Map<Frame, Map<string, Frame>>();
  for (const line of folded.split('\n')) {
    if (line.trim() === '') continue;
    const [, stack = '', told = ''] = /^(.*) (\d+)$/.exec(line.trimEnd()) ?? [];
    const n = Number(told);
    if (!stack) return undefined;
    let at = root;
    root.value += n;
    for (const name of stack.split(';')) {
      const of = known.get(at) ?? new Map<string, Frame>();
      known.set(at, of);
      let child = of.get(name);
      if (!child) {
        child = {
          name,
          value: 0,
          self: 0,
          depth: at.depth + 1,
          x: 0,
          width: 0,
          children: [],
          parent: at,
        };
        of.set(name, child);
        at.children.push(child);
      }
      child.value += n;
      at = child;
    }
    at.self += n;
  }
  if (root.value === 0) return undefined;
  place(root, root.value);
  return root;
}

function place(frame: Frame, all: number): void {
  let x = frame.x;
  frame.children.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const child of frame.children) {
    child.x = x;
    child.width = child.value / all;
    x += child.width;
    place(child, all);
  }
}

/** The frames that can be seen when `zoom` fills the whole width, those around it first. */
export function seen(zoom: Frame, least: number): Frame[] {
  const around: Frame[] = [];
  for (let at = zoom.parent; at; at = at.parent) around.unshift(at);
  const below: Frame[] = [];
  const walk = (frame: Frame) => {
    if (frame.width < least * zoom.width) return;
    below.push(frame);
    frame.children.forEach(walk);
  };
  walk(zoom);
  return [...around, ...below];
}

/**
 * How much each function has of the whole, by itself and with what it calls; a function that calls
 * itself counts once.
 */
export function totals(root: Frame): Map<string, { self: number; all: number }> {
  const sums = new Map<string, { self: number; all: number }>();
  const walk = (frame: Frame, above: Set<string>) => {
    const of = sums.get(frame.name) ?? { self: 0, all: 0 };
    of.self += frame.self / root.value;
    if (!above.has(frame.name)) of.all += frame.width;
    sums.set(frame.name, of);
    const next = frame.children.length > 0 ? new Set(above).add(frame.name) : above;
    for (const child of frame.children) walk(child, next);
  };
  for (const child of root.children) walk(child, new Set());
  return sums;
}

/** The share that the same stack has in another profile. */
export function shares(root: Frame): (frame: Frame) => number {
  const found = new Map<string, number>();
  const walk = (frame: Frame, path: string) => {
    found.set(path, frame.width);
    for (const child of frame.children) walk(child, `${path};${child.name}`);
  };
  walk(root, '');
  const pathOf = (frame: Frame): string =>
    frame.parent ? `${pathOf(frame.parent)};${frame.name}` : '';
  return (frame) => found.get(pathOf(frame)) ?? 0;
}

/** Like functions have like colours; of a comparison red is more and blue less. */
export function colour(frame: Frame, before?: number): string {
  if (before !== undefined) {
    const change = Math.max(
      -1,
      Math.min(
        1,
        ((frame.width - before) / Math.max(frame.width, before, 1e-9)) *
          Math.min(1, Math.max(frame.width, before) * 8 + 0.15),
      ),
    );
    return change >= 0 ? `hsl(8 80% ${92 - change * 30}%)` : `hsl(215 75% ${92 + change * 28}%)`;
  }
  let hash = 7;
  for (let n = 0; n < frame.name.length; n++) hash = (hash * 31 + frame.name.charCodeAt(n)) % 1009;
  const hue = /\(js\)$|^\(anonymous:|_design\//.test(frame.name)
    ? 165
    : /^\[/.test(frame.name)
      ? 210
      : 38;
  return `hsl(${hue + (hash % 20) - 10} ${62 + (hash % 18)}% ${70 + (hash % 11)}%)`;
}

const ROW = 16;

/** A picture of its own, for who has no such page. */
export function svg(root: Frame, title: string, before?: (frame: Frame) => number): string {
  const frames = seen(root, 0.0005);
  const depth = Math.max(...frames.map((frame) => frame.depth));
  const escaped = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const height = (depth + 3) * ROW;
  const drawn = frames.map((frame) => {
    const [x, y, width] = [
      frame.x * 1200,
      height - (frame.depth + 1) * ROW - 4,
      frame.width * 1200,
    ];
    const letters = Math.floor(width / 6.8);
    const name = frame.name || title;
    const text =
      letters > 2
        ? `<text x="${(x + 3).toFixed(1)}" y="${y + 11}">${escaped(name.length > letters ? `${name.slice(0, letters - 1)}…` : name)}</text>`
        : '';
    return `<g><title>${escaped(name)}: ${(frame.width * 100).toFixed(2)} % (${frame.value})</title><rect x="${x.toFixed(2)}" y="${y}" width="${width.toFixed(2)}" height="${ROW - 1}" rx="1" fill="${colour(frame, before?.(frame))}"/>${text}</g>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 ${height}" font-family="monospace" font-size="11"><rect width="1200" height="${height}" fill="#fff"/><text x="4" y="13">${escaped(title)}</text>${drawn.join('')}</svg>`;
}

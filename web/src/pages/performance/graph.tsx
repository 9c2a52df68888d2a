import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { count, duration, percent } from '../../i18n';
import { Button, style } from '../../ui';
import { colour, type Frame, type Profile, seen, shares } from './flame';
import { say } from './texts';

const ROW = 20;

/**
 * A flame graph: what a function calls stands above it. A click fills the width with it; arrow keys
 * go to what calls it, to what it calls, and beside it.
 */
export function Graph({
  profile,
  before,
}: {
  profile: Profile;
  before: Profile | undefined;
}): JSX.Element {
  const t = say();
  const [zoom, setZoom] = useState<Frame>(profile.root);
  const [text, setText] = useState('');
  const [over, setOver] = useState<Frame | undefined>();
  const [width, setWidth] = useState(800);
  const [current, setCurrent] = useState<Frame>(profile.root);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    setZoom(profile.root);
    setCurrent(profile.root);
    setOver(undefined);
  }, [profile]);
  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(entry.contentRect.width));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const frames = useMemo(() => seen(zoom, 1 / Math.max(200, width)), [zoom, width]);
  const was = useMemo(() => before && shares(before.root), [before]);
  const depth = frames.reduce((most, frame) => Math.max(most, frame.depth), 0);
  const isFound = (frame: Frame) =>
    text !== '' && frame.name.toLowerCase().includes(text.toLowerCase());
  const all = t.all;
  const told = (frame: Frame) => {
    const now = t.frameSays(
      frame.name || all,
      percent(frame.width),
      profile.unit === 'us' ? duration(frame.value / 1e6) : t.total(count(frame.value)),
    );
    return was ? `${now}. ${t.before}: ${percent(was(frame))}` : now;
  };
  const focus = (frame: Frame | undefined) => {
    if (!frame) return;
    setCurrent(frame);
    setOver(frame);
    box.current?.querySelectorAll('button')[frames.indexOf(frame)]?.focus();
  };
  const move = (event: KeyboardEvent) => {
    const largest = [...current.children].sort((a, b) => b.value - a.value)[0];
    const beside = (by: number) =>
      current.parent?.children[current.parent.children.indexOf(current) + by];
    const to: Record<string, Frame | undefined> = {
      ArrowUp: largest,
      ArrowDown: current.parent,
      ArrowLeft: beside(-1),
      ArrowRight: beside(1),
    };
    if (event.key === 'Escape') setZoom(profile.root);
    if (!(event.key in to)) return;
    event.preventDefault();
    const next = to[event.key];
    if (next && frames.includes(next)) focus(next);
  };
  return (
    <div class="part">
      <div class="bar">
        <input
          type="search"
          aria-label={t.find}
          placeholder={t.find}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        {text !== '' && <span class="soft">{t.found(percent(share(profile.root, isFound)))}</span>}
        {zoom !== profile.root && <Button onClick={() => setZoom(profile.root)}>{t.all}</Button>}
        {was && (
          <small class="soft">
            <i class="swatch more" /> {t.more} <i class="swatch less" /> {t.less}
          </small>
        )}
      </div>
      <div
        class="flame"
        ref={(element) => {
          box.current = element;
          style(element, { height: `${(depth + 1) * ROW}px` });
        }}
        role="group"
        aria-label={profile.name}
        onKeyDown={move}
        onMouseLeave={() => setOver(undefined)}
      >
        {frames.map((frame) => (
          <Bar
            key={key(frame)}
            {...{ frame, zoom, depth, width }}
            tab={frame === current ? 0 : -1}
            label={told(frame)}
            isFound={isFound(frame)}
            paint={isFound(frame) ? '#8b2fc9' : colour(frame, was?.(frame))}
            name={frame.name || all}
            onOver={() => setOver(frame)}
            onPress={() => {
              setZoom(frame);
              setCurrent(frame);
            }}
          />
        ))}
      </div>
      <p class="flame-said mono" aria-live="polite">
        {told(over ?? zoom)}
      </p>
    </div>
  );
}

function Bar({
  frame,
  zoom,
  depth,
  width,
  tab,
  label,
  isFound,
  paint,
  name,
  onOver,
  onPress,
}: {
  frame: Frame;
  zoom: Frame;
  depth: number;
  width: number;
  tab: number;
  label: string;
  isFound: boolean;
  paint: string;
  name: string;
  onOver: () => void;
  onPress: () => void;
}): JSX.Element {
  const isOuter = frame.depth < zoom.depth;
  const x = isOuter ? 0 : (frame.x - zoom.x) / zoom.width;
  const share = isOuter ? 1 : frame.width / zoom.width;
  const place = (element: HTMLElement | null) =>
    style(element, {
      'inset-inline-start': `${x * 100}%`,
      width: `calc(${share * 100}% - 1px)`,
      'inset-block-start': `${(depth - frame.depth) * ROW}px`,
      'background-color': paint,
    });
  return (
    <button
      type="button"
      tabIndex={tab}
      class={`${isOuter ? 'outer' : ''} ${isFound ? 'found' : ''}`}
      aria-label={label}
      title={label}
      ref={place}
      onMouseEnter={onOver}
      onFocus={onOver}
      onClick={onPress}
    >
      {share * width > 24 ? name : ''}
    </button>
  );
}

const keys = new WeakMap<Frame, number>();
let made = 0;

/** Frames stay the same elements while the width changes. */
function key(frame: Frame): number {
  const known = keys.get(frame) ?? ++made;
  keys.set(frame, known);
  return known;
}

/** The share of what is found, once for each stack. */
function share(frame: Frame, isFound: (frame: Frame) => boolean): number {
  return isFound(frame)
    ? frame.width
    : frame.children.reduce((sum, child) => sum + share(child, isFound), 0);
}

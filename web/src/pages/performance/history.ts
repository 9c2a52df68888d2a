import { signal } from '@preact/signals';
import { between, type Frame, type Snapshot } from './snapshot';

/** Ten minutes, of which charts show the last. */
const POINTS_MAX = 300;

export interface Point {
  at: number;
  frame: Frame;
}

export const points = signal<Point[]>([]);
export const peaks: Record<string, number> = {};
let last: Snapshot | undefined;

/** What was seen stays while other pages are looked at. */
export function note(now: Snapshot): void {
  if (last === now) return;
  const frame = last && between(last, now);
  if (last && last.started !== now.started) points.value = [];
  last = now;
  for (const [name, n] of Object.entries(now.queues)) peaks[name] = Math.max(peaks[name] ?? 0, n);
  // A gap of minutes is no second's rate.
  if (frame && frame.seconds < 30)
    points.value = [...points.value.slice(1 - POINTS_MAX), { at: Date.now() / 1000, frame }];
}

import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { Button } from './controls';
import { Problem } from './errors';
import { Icon } from './icons';
import { words } from './texts';

interface Toast {
  id: number;
  text?: string;
  error?: unknown;
  undo?: (() => Promise<unknown>) | undefined;
}

const toasts = signal<Toast[]>([]);
let ids = 0;
const SHOWN_MS = 6000;
/** Who deleted the wrong thing needs time to see it. */
const UNDO_MS = 60_000;

function remove(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

/** Says what was done, for a while; with `undo`, it can be taken back. */
export function say(text: string, undo?: () => Promise<unknown>): void {
  const id = ++ids;
  toasts.value = [...toasts.value, { id, text, undo }];
  setTimeout(() => remove(id), undo ? UNDO_MS : SHOWN_MS);
}

/** Shows an error that has no place of its own, until it is dismissed. */
export function complain(error: unknown): void {
  toasts.value = [
    ...toasts.value.filter((toast) => toast.error === undefined).slice(-3),
    { id: ++ids, error },
  ];
}

/** Where both are shown, once on the page: below it, so that they cover nothing. */
export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status">
      {toasts.value.map((toast) =>
        toast.error === undefined ? (
          <div key={toast.id} class="toast">
            <Icon name="check" />
            <span>{toast.text}</span>
            {toast.undo && (
              <Button onClick={() => toast.undo?.().then(() => remove(toast.id), complain)}>
                {words().undo}
              </Button>
            )}
            <Button
              kind="plain"
              icon="close"
              label={words().dismiss}
              onClick={() => remove(toast.id)}
            />
          </div>
        ) : (
          <Problem key={toast.id} error={toast.error} dismiss={() => remove(toast.id)} />
        ),
      )}
    </div>
  );
}

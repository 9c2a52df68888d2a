import { signal } from '@preact/signals';
import { server } from './address';

/** Whether the server could not be reached just now. */
export const isLost = signal(false);
/** How often it came back: who shows data asks again. */
export const returns = signal(0);

const WAITS_MS = [500, 1000, 2000, 4000];
let isTrying = false;

/** The server was not reached: it is tried until it is there. */
export function lost(): void {
  isLost.value = true;
  if (!isTrying) void tryAgain();
}

async function tryAgain(): Promise<void> {
  isTrying = true;
  for (let n = 0; isLost.value; n++) {
    await new Promise((resolve) => setTimeout(resolve, WAITS_MS[n] ?? 4000));
    if (document.hidden) continue;
    try {
      await fetch(new URL('_up', server));
      isLost.value = false;
    } catch {
      // It is still away.
    }
  }
  isTrying = false;
  returns.value++;
}

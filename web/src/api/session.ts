import { computed, signal } from '@preact/signals';
import { server } from './address';

export interface Session {
  name: string | null;
  roles: string[];
}

/** Who is asking; `undefined` until the server said so. */
export const session = signal<Session | undefined>(undefined);
/** The session ended while there was work: its user is asked for the password in place. */
export const isExpired = signal(false);

export const isAdmin = computed(() => session.value?.roles.includes('_admin') ?? false);
export const mayMeasure = computed(
  () => isAdmin.value || (session.value?.roles.includes('_metrics') ?? false),
);

/**
 * Whether the session of who was logged in has ended. Servers say 401 as well to who is logged in,
 * and may not.
 */
export async function isOver(): Promise<boolean> {
  if (isExpired.value) return true;
  const told = await fetch(new URL('_session', server), {
    headers: { accept: 'application/json' },
  }).then(
    (response) => response.json() as Promise<{ userCtx?: Session }>,
    () => undefined,
  );
  return told?.userCtx?.name !== session.value?.name;
}

/** Waits until there is a session again. */
export function renewed(stop?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(new DOMException('', 'AbortError'));
    stop?.addEventListener('abort', abort);
    const end = isExpired.subscribe((is) => {
      if (is) return;
      stop?.removeEventListener('abort', abort);
      queueMicrotask(() => end());
      resolve();
    });
  });
}

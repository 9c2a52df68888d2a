import { computed, signal } from '@preact/signals';
import { ask, server } from './client';

export interface Session {
  name: string | null;
  roles: string[];
}

/** Who is asking; `undefined` until the server said so. */
export const session = signal<Session | undefined>(undefined);
/** The session ended while there was work: its user is asked for the password in place. */
export const isExpired = signal(false);

export const isAdmin = computed(() => session.value?.roles.includes('_admin') ?? false);
export const mayMeasure = computed(() => isAdmin.value || (session.value?.roles.includes('_metrics') ?? false));

/** Asks who is asking. */
export async function look(): Promise<void> {
  const told = await ask<{ userCtx: Session }>('GET', '/_session', { background: true });
  session.value = told.userCtx;
}

/** Begins a session. An error is the server's. */
export async function logIn(name: string, password: string): Promise<void> {
  await ask('POST', '/_session', { body: { name, password }, background: true });
  await look();
  isExpired.value = false;
}

export async function logOut(): Promise<void> {
  await fetch(new URL('_session', server), { method: 'DELETE' });
  session.value = { name: null, roles: [] };
}

/** Takes a 401 as the end of a session, where there was one that is over; answers whether it was. Servers say 401 as well to who is logged in, and may not. */
export async function expired(): Promise<boolean> {
  const name = session.value?.name;
  if (name == null) return false;
  if (isExpired.value) return true;
  const now = await ask<{ userCtx: Session }>('GET', '/_session', { background: true }).catch(() => undefined);
  if (now?.userCtx.name === name) return false;
  isExpired.value = true;
  return true;
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

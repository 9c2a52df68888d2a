import { server } from './address';
import { ask } from './client';
import { isExpired, type Session, session } from './session';

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

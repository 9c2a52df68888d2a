import { server } from './address';
import { ask } from './client';
import { lost } from './connection';
import { LostError } from './errors';
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

/** Ends the session; what the page has of it is left to the caller. */
export async function logOut(): Promise<void> {
  try {
    await fetch(new URL('_session', server), { method: 'DELETE' });
  } catch (error) {
    lost();
    throw new LostError('', { cause: error });
  }
}

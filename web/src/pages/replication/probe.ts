import { ApiError, ask, isAborted, path, send } from '../../api';
import { from, print } from '../../json';
import { rights, type Security } from '../users/rights';
import { type End, writeEnd } from './model';
import { t } from './texts';
import { bare, meaning } from './words';

export interface Tested {
  isGood: boolean;
  text: string;
  told?: string;
}

const LONGEST_MS = 20_000;

/**
 * Whether an end can be reached and read, as the server sees it: it replicates it to itself, but
 * none of its documents. Browsers may not ask other servers.
 */
export async function probe(end: End, own: string, creates: boolean): Promise<Tested> {
  const w = t().tested;
  const at = writeEnd(end, own);
  const body = print(
    from({
      source: at,
      target: at,
      doc_ids: [''],
      use_checkpoints: false,
      retries_per_request: 0,
      connection_timeout: 5000,
    }),
  );
  try {
    await ask('POST', '/_replicate', {
      body,
      background: true,
      signal: AbortSignal.timeout(LONGEST_MS),
    });
    return {
      isGood: true,
      text: `${w.good} ${end.kind === 'here' ? await mayWrite(end) : w.unknownWrite}`,
    };
  } catch (error) {
    if (isAborted(error) || (error instanceof DOMException && error.name === 'TimeoutError'))
      return { isGood: false, text: w.stopped };
    if (!(error instanceof ApiError)) throw error;
    const told = bare(`${error.error}: ${error.reason}`);
    if (creates && /db_not_found/.test(told)) return { isGood: true, text: w.willCreate };
    return { isGood: false, text: meaning(told) ?? '', told };
  }
}

async function mayWrite(end: End): Promise<string> {
  const w = t().tested;
  const password = end.password || end.kept;
  const headers: Record<string, string> = end.user
    ? {
        authorization: `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(`${end.user}:${password}`)))}`,
      }
    : {};
  try {
    const who = await (await send('GET', '/_session', { headers, background: true })).json();
    const security = await ask<Security>('GET', `${path(end.db)}/_security`, {
      headers,
      background: true,
    });
    const { write, admin } = rights(end.db, security, end.user || null, who.userCtx.roles);
    return admin ? w.may : write ? w.mayMember : w.mayNot;
  } catch {
    return w.unknownWrite;
  }
}

import { ask, isAdmin, server } from '../../api';
import { ownAddress } from './model';

/** Addresses that mean this server: the one it has by its settings first. */
export async function ownAddresses(signal: AbortSignal): Promise<string[]> {
  const here = server.href.replace(/\/$/, '');
  if (!isAdmin.value) return [here];
  const settings = await ask<{ port?: string; bind_address?: string }>(
    'GET',
    '/_node/_local/_config/chttpd',
    { signal, background: true },
  ).catch(() => undefined);
  return [ownAddress(settings), here];
}

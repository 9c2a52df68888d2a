import { link } from '../../../router';

/** What a command of a finding does, as far as the page can do it. */
export type Act =
  /** Sets a setting. */
  | { kind: 'config'; section: string; key: string; value: string }
  /** Creates a Mango index. */
  | { kind: 'index'; db: string; body: string }
  /** Deletes a Mango index. */
  | { kind: 'drop'; db: string; ddoc: string; type: string; name: string }
  | { kind: 'compact'; db: string }
  /** Removes files that no index uses: of views or text indexes. */
  | { kind: 'cleanup'; db: string; what: string }
  /** Shows something. */
  | { kind: 'show'; to: string };

/** A curl command as the server writes it. */
const CURL =
  /^curl (?:-X ([A-Z]+) )?"\$S(\/[^"]*)"(?: -H 'Content-Type: application\/json')?(?: -d ('(?:[^']|'\\'')*'))?(?:\s+#.*)?$/;
const CLEANUPS = ['_view_cleanup', '_search_cleanup', '_nouveau_cleanup'];

function unescaped(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Reads a command; `undefined` for one that is left to its reader, such as one with a placeholder. */
export function actOf(command: string): Act | undefined {
  const [, method = 'GET', path = '', quoted] = CURL.exec(command.trim()) ?? [];
  // What a shell would put there is not known here.
  if (path === '' || path.includes('$')) return undefined;
  const parts = path.slice(1).replace(/\?.*/s, '').split('/').map(unescaped);
  const body = quoted?.slice(1, -1).replaceAll("'\\''", "'");
  switch (method) {
    case 'GET':
      return shown(parts);
    case 'PUT':
      return body === undefined ? undefined : setting(parts, body);
    case 'POST':
      return posted(parts, body);
    case 'DELETE':
      return dropped(parts);
    default:
      return undefined;
  }
}

function shown(parts: string[]): Act | undefined {
  const [first = '', second = '', third] = parts;
  if (first === '_scheduler') return { kind: 'show', to: link(['replication']) };
  if (first.startsWith('_') || second === '') return undefined;
  if (second === '_design' && third !== undefined)
    return { kind: 'show', to: link(['database', first, '_design', third]) };
  return parts.length === 2
    ? { kind: 'show', to: link(['database', first, '_doc', second]) }
    : undefined;
}

function setting(parts: string[], body: string): Act | undefined {
  const [node, local, config, section, key, ...more] = parts;
  if ([node, local, config].join('/') !== '_node/_local/_config') return undefined;
  // Passwords are set on their own page.
  if (!section || !key || more.length > 0 || section === 'admins') return undefined;
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === 'string' ? { kind: 'config', section, key, value } : undefined;
  } catch {
    return undefined;
  }
}

function posted(
  [db = '', what = '', ...more]: string[],
  body: string | undefined,
): Act | undefined {
  if (db === '' || db.startsWith('_') || more.length > 0) return undefined;
  if (what === '_index' && body !== undefined) return { kind: 'index', db, body };
  if (body !== undefined) return undefined;
  if (what === '_compact') return { kind: 'compact', db };
  return CLEANUPS.includes(what) ? { kind: 'cleanup', db, what } : undefined;
}

function dropped(parts: string[]): Act | undefined {
  const [db = '', index, design, ddoc, type, name, ...more] = parts;
  return index === '_index' && design === '_design' && ddoc && type && name && more.length === 0
    ? { kind: 'drop', db, ddoc, type, name }
    : undefined;
}

import { ApiError, session, url } from '../../../api';
import { type Json, JsonError, parse, print } from '../../../json';
import { explainJson } from '../../../ui/mistakes';

/** What is wrong with a text that should be JSON; `undefined` for nothing, and for an empty one. */
export function wrongJson(source: string): string | undefined {
  if (source.trim() === '') return undefined;
  try {
    parse(source);
    return undefined;
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return explainJson(error);
  }
}

/** A value on one line, not longer than a cell can show. */
export function brief(value: Json | undefined, length = 300): string {
  if (value === undefined) return '';
  const all = print(value);
  return all.length > length ? `${all.slice(0, length)}…` : all;
}

/** The line that a server's words about a function name. */
export function lineOf(reason: string): number | undefined {
  const found =
    /\bline:? (\d+)/i.exec(reason) ??
    /(?:<[\w.]+>|\.js|\(function\)|map|reduce):(\d+)/.exec(reason);
  return found ? Number(found[1]) : undefined;
}

/**
 * The server refuses a function that it cannot compile, and does not always say in which line: then
 * the grammar does.
 */
export async function located(error: unknown, source: string): Promise<unknown> {
  if (
    !(error instanceof ApiError) ||
    error.error !== 'compilation_error' ||
    lineOf(error.reason) !== undefined
  )
    return error;
  const { lineOfMistake } = await import('../../../editor');
  const line = lineOfMistake(source);
  return line === undefined
    ? error
    : new ApiError(error.status, error.error, `${error.reason} (line ${line})`, error.requestId);
}

/** As a request of a shell: curl asks for the password of who is logged in. */
export function curl(
  method: string,
  to: string,
  query: Record<string, string> = {},
  body?: string,
): string {
  const quoted = (part: string) => `'${part.replaceAll("'", "'\\''")}'`;
  const { name = null } = session.value ?? {};
  const parts = [
    'curl',
    ...(method === 'GET' ? [] : ['-X', method]),
    ...(name === null ? [] : ['-u', quoted(name)]),
    quoted(url(to, query).href),
  ];
  if (body !== undefined)
    parts.push('-H', quoted('Content-Type: application/json'), '-d', quoted(body));
  return parts.join(' ');
}

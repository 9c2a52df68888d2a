import { type Json, parse, print } from '../json';
import { server } from './address';
import { isLost, lost } from './connection';
import { askDots, hasDots, noAddress } from './dots';
import { ApiError, isAborted, LostError } from './errors';
import { isExpired, isOver, renewed, session } from './session';

export type Query = Record<string, string | number | boolean | undefined>;

export interface Options {
  query?: Query;
  /** Sent as JSON; a string is sent as it is. */
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** Asked by a timer: where the session has ended it fails, and asks nobody for a password. */
  background?: boolean;
}

/**
 * The URL of a path and its query. Parts of paths are escaped by `path`. Throws where a browser
 * would go somewhere else.
 */
export function url(to: string, query: Query = {}): URL {
  if (hasDots(to)) throw noAddress();
  const url = new URL(to.replace(/^\//, ''), server);
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) url.searchParams.set(name, String(value));
  return url;
}

/** A path of parts that may hold anything. */
export function path(...parts: string[]): string {
  return parts.map((part) => `/${encodeURIComponent(part)}`).join('');
}

/** The path of a document. `_design/x` and `_local/x` keep their slash. */
export function docPath(db: string, id: string): string {
  const special = /^(_design|_local)\/(.*)$/s.exec(id);
  return special ? path(db, special[1] ?? '', special[2] ?? '') : path(db, id);
}

/** Asks, and answers whatever comes with a status below 400. */
export async function send(method: string, to: string, options: Options = {}): Promise<Response> {
  if (hasDots(to)) {
    const [, db = '', rest = ''] = /^\/?([^/]+)\/(.*)$/.exec(to) ?? [];
    const post = (below: string, query: Query, body: Json) =>
      read('POST', `/${db}/${below}`, { ...options, query, body: print(body) });
    return new Response(await askDots(method, rest, options.query ?? {}, options.body, post));
  }
  while (true) {
    const response = await sendOnce(method, to, options);
    if (response.ok) return response;
    const error = await errorOf(response);
    error.isRefusal = response.status === 401 && isLoggedIn() && !(await isOver());
    // Unsaved text stays where it is: the request is sent again when there is a session again.
    if (response.status !== 401 || options.background || error.isRefusal || !isLoggedIn())
      throw error;
    isExpired.value = true;
    await renewed(options.signal);
  }
}

function isLoggedIn(): boolean {
  return typeof session.value?.name === 'string';
}

async function sendOnce(
  method: string,
  to: string,
  { query, body, headers, signal }: Options,
): Promise<Response> {
  const isText = typeof body === 'string' || body instanceof Blob;
  const init: RequestInit = {
    method,
    headers: { accept: 'application/json', ...headers },
    credentials: 'same-origin',
    signal: signal ?? null,
  };
  if (body !== undefined) {
    init.body = isText ? body : JSON.stringify(body);
    init.headers = { 'content-type': 'application/json', ...init.headers };
  }
  try {
    const response = await fetch(url(to, query), init);
    isLost.value = false;
    return response;
  } catch (error) {
    if (isAborted(error)) throw error;
    lost();
    throw new LostError('', { cause: error });
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  let told: { error?: string; reason?: string } = {};
  try {
    told = JSON.parse(text) as typeof told;
  } catch {
    told = { reason: text.slice(0, 500) };
  }
  const id = response.headers.get('x-couch-request-id');
  return new ApiError(
    response.status,
    told?.error ?? String(response.status),
    told?.reason ?? response.statusText,
    id,
  );
}

/** Answers what is not a document: numbers as the browser has them. */
export async function ask<T>(method: string, to: string, options?: Options): Promise<T> {
  const response = await send(method, to, options);
  return (await response.json()) as T;
}

/** Answers what may hold documents: without loss. */
export async function read(method: string, to: string, options?: Options): Promise<Json> {
  const response = await send(method, to, options);
  return parse(await response.text());
}

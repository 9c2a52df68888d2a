import { put, section } from './data';

export const LINES = ['headers', 'exposed_headers', 'methods', 'max_age'] as const;
/** The headers that CouchDB's pages for browsers need, where nothing else is set. */
const HEADERS = 'accept, authorization, content-type, origin, referer';

/** CORS as the form has it. */
export interface Model {
  isOn: boolean;
  origins: string[];
  credentials: boolean;
  lines: Record<string, string>;
}

/** The settings; null where the default is in force. */
export type Values = Record<string, string | null>;

type Section = Record<string, string>;

export async function load(signal: AbortSignal): Promise<{ model: Model; values: Values }> {
  const [http, old, cors] = await Promise.all([
    section('chttpd', signal),
    section('httpd', signal),
    section('cors', signal),
  ]);
  return { values: valuesOf(http, cors), model: modelOf(http, old, cors) };
}

export function valuesOf(http: Section, cors: Section): Values {
  const keys = ['origins', 'credentials', ...LINES];
  return {
    enable_cors: http.enable_cors ?? null,
    ...Object.fromEntries(keys.map((key) => [key, cors[key] ?? null])),
  };
}

export function modelOf(http: Section, old: Section, cors: Section): Model {
  return {
    isOn: (http.enable_cors ?? old.enable_cors) === 'true',
    origins: (cors.origins ?? '')
      .split(',')
      .map((each) => each.trim())
      .filter(Boolean),
    credentials: cors.credentials === 'true',
    lines: Object.fromEntries(LINES.map((key) => [key, cors[key] ?? ''])),
  };
}

/** The origin of Vite's development server. */
export const POUCHDB_APP = 'http://localhost:5173';

/** The form for a PouchDB app in development: its origin, and the credentials that it always sends. */
export function forPouchDb(model: Model): Model {
  const others = model.origins.filter((origin) => origin !== '*' && origin !== POUCHDB_APP);
  return { ...model, isOn: true, origins: [...others, POUCHDB_APP], credentials: true };
}

/** The settings for a form. */
export function wanted(model: Model, before: Values): Values {
  const lines = Object.fromEntries(LINES.map((key) => [key, model.lines[key]?.trim() || null]));
  if (model.isOn && before.headers === null && before.enable_cors !== 'true')
    lines.headers ??= HEADERS;
  return {
    ...lines,
    origins: model.origins.join(', ') || null,
    credentials: model.credentials ? 'true' : before.credentials === null ? null : 'false',
    enable_cors: model.isOn ? 'true' : before.enable_cors === null ? null : 'false',
  };
}

/** Writes the settings that differ: the allowed origins first, then that CORS is on. */
export async function write(from: Values, to: Values): Promise<void> {
  for (const [key, value] of Object.entries(to))
    if (value !== from[key])
      await put({ section: key === 'enable_cors' ? 'chttpd' : 'cors', key }, value);
}

/**
 * The origin that somebody typed; `undefined` for what is more or less than scheme, host and port.
 */
export function originOf(typed: string): string | undefined {
  const origin = typed.trim().replace(/\/$/, '');
  return /^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s,]+$/i.test(origin) ? origin : undefined;
}

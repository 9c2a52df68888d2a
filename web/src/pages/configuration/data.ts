import { ApiError, ask, path } from '../../api';

export type Kind = 'bool' | 'integer' | 'duration' | 'number' | 'list' | 'text';

/** A setting, as `_node/_local/_settee/settings` tells of it. */
export interface Setting {
  section: string;
  key: string;
  /** What is set; null where the default is in force. */
  value: string | null;
  default: string | null;
  help: string;
  /** Whether it is read only when the server starts. */
  restart: boolean;
  kind: Kind;
  choices?: string[];
  secret?: boolean;
  /** Whether it names something of the machine, and cannot be changed over HTTP. */
  file_only?: boolean;
}

export interface Settings {
  all: Setting[];
  /** Whether the server has a table of its settings; CouchDB has none. */
  isTold: boolean;
}

const CONFIG = '/_node/_local/_config';

export type Values = Record<string, Record<string, string>>;

/** The table of settings, and what is set besides: names of the user's own, which no table has. */
export async function load(signal: AbortSignal): Promise<Settings> {
  const [told, values] = await Promise.all([table(signal), ask<Values>('GET', CONFIG, { signal })]);
  const known = new Set(told?.map(nameOf));
  const others = Object.entries(values).flatMap(([section, keys]) =>
    Object.entries(keys).map(([key, value]) => plain(section, key, value)),
  );
  const all = [...(told ?? []), ...others.filter((setting) => !known.has(nameOf(setting)))];
  return {
    all: all.map((setting) => ({ ...setting, secret: setting.secret ?? isSecret(setting) })),
    isTold: told !== undefined,
  };
}

async function table(signal: AbortSignal): Promise<Setting[] | undefined> {
  try {
    const told = await ask<Setting[] | { settings: Setting[] }>(
      'GET',
      '/_node/_local/_settee/settings',
      { signal },
    );
    return Array.isArray(told) ? told : told.settings;
  } catch (error) {
    // CouchDB has other words for a path that it does not know, by version.
    if (
      error instanceof ApiError &&
      error.status >= 400 &&
      error.status < 500 &&
      error.status !== 401 &&
      error.status !== 403
    )
      return undefined;
    throw error;
  }
}

function plain(section: string, key: string, value: string): Setting {
  return {
    section,
    key,
    value,
    default: null,
    help: '',
    restart: false,
    kind: value === 'true' || value === 'false' ? 'bool' : 'text',
  };
}

export function nameOf({ section, key }: Pick<Setting, 'section' | 'key'>): string {
  return `${section}/${key}`;
}

/** What is shown to nobody who only looks. */
function isSecret({ section, key }: Setting): boolean {
  return (
    section === 'admins' ||
    section === 'jwt_keys' ||
    /(^|_)(secret|password|passwd|token)$/.test(key) ||
    /\bpassword\b/.test(key)
  );
}

/** Sets it; `null` takes away what is set, so that the default is in force. */
export async function put(
  { section, key }: Pick<Setting, 'section' | 'key'>,
  value: string | null,
): Promise<void> {
  const to = CONFIG + path(section, key);
  if (value !== null) {
    await ask('PUT', to, { body: JSON.stringify(value) });
    return;
  }
  await ask('DELETE', to).catch((error: unknown) => {
    if (!(error instanceof ApiError && error.status === 404)) throw error;
  });
}

export async function section(name: string, signal: AbortSignal): Promise<Record<string, string>> {
  return ask('GET', `${CONFIG}${path(name)}`, { signal });
}

/**
 * Whether a setting has every word of a search in its name, help or value; secrets are not
 * searched.
 */
export function fits(setting: Setting, search: string): boolean {
  const value = setting.secret ? '' : (setting.value ?? setting.default ?? '');
  const text = `${nameOf(setting)} ${setting.help} ${value}`.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

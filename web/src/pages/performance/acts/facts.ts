import { ApiError, ask, path } from '../../../api';
import { bytes } from '../../../i18n';
import type { Act } from './command';
import { say } from './texts';

/** What is compared before and after an act: a name, and a value. */
export type Fact = [name: string, value: string];

interface Index {
  ddoc: string | null;
  name: string;
  type: string;
  partitioned?: boolean;
  def: { fields?: unknown };
}

async function indexes(db: string): Promise<Index[]> {
  return (await ask<{ indexes: Index[] }>('GET', `${path(db)}/_index`)).indexes;
}

interface Sizes {
  compact_running?: boolean;
  sizes: { file: number; active: number };
}

const settingPath = (section: string, key: string) => `/_node/_local/_config${path(section, key)}`;

async function settingOf(section: string, key: string): Promise<string | undefined> {
  try {
    return await ask<string>('GET', settingPath(section, key));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

/** Facts that an act changes, as they are now. */
export async function factsOf(act: Act): Promise<Fact[]> {
  const t = say();
  switch (act.kind) {
    case 'config':
      return [
        [`${act.section}/${act.key}`, (await settingOf(act.section, act.key)) ?? t.defaultValue],
      ];
    case 'index':
    case 'drop': {
      const names = (await indexes(act.db)).map(({ name }) => name);
      return [[t.indexes, names.join(', ')]];
    }
    case 'compact':
    case 'cleanup': {
      const { sizes } = await ask<Sizes>('GET', path(act.db));
      return [
        [t.fileSize, bytes(sizes.file)],
        [t.activeSize, bytes(sizes.active)],
      ];
    }
    case 'show':
      return [];
  }
}

const POLL_MS = 500;
const COMPACTED_MAX_MS = 120_000;

async function compacted(db: string): Promise<void> {
  const end = Date.now() + COMPACTED_MAX_MS;
  do await new Promise((done) => setTimeout(done, POLL_MS));
  while ((await ask<Sizes>('GET', path(db))).compact_running && Date.now() < end);
}

/** Does it, and answers what undoes it; `undefined` where nothing can. */
export async function perform(act: Act): Promise<(() => Promise<unknown>) | undefined> {
  switch (act.kind) {
    case 'config': {
      const { section, key, value } = act;
      const to = settingPath(section, key);
      const before = await settingOf(section, key);
      await ask('PUT', to, { body: JSON.stringify(value) });
      return () =>
        before === undefined ? ask('DELETE', to) : ask('PUT', to, { body: JSON.stringify(before) });
    }
    case 'index': {
      const made = await ask<{ result: string; id: string; name: string }>(
        'POST',
        `${path(act.db)}/_index`,
        { body: act.body },
      );
      const ddoc = made.id.replace(/^_design\//, '');
      return made.result === 'exists'
        ? undefined
        : () => ask('DELETE', indexPath({ ...act, ddoc, type: 'json', name: made.name }));
    }
    case 'drop': {
      const { db, ddoc, type, name } = act;
      const old = (await indexes(db)).find(
        (each) => each.name === name && each.ddoc === `_design/${ddoc}`,
      );
      await ask('DELETE', indexPath(act));
      const body = old && { index: old.def, ddoc, name, type, partitioned: old.partitioned };
      return body && (() => ask('POST', `${path(db)}/_index`, { body }));
    }
    case 'compact':
      await ask('POST', `${path(act.db)}/_compact`, { body: {} });
      await compacted(act.db);
      return undefined;
    case 'cleanup':
      await ask('POST', `${path(act.db)}/${act.what}`, { body: {} });
      return undefined;
    case 'show':
      return undefined;
  }
}

function indexPath({
  db,
  ddoc,
  type,
  name,
}: {
  db: string;
  ddoc: string;
  type: string;
  name: string;
}) {
  return `${path(db)}/_index/_design${path(ddoc, type, name)}`;
}

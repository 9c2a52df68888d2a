import { ask, isAdmin, mayMeasure, path } from '../api';
import { t as parts } from '../pages/database/texts';
import { link } from '../router';
import { shell } from '../texts';
import { recentDocuments } from './recent';
import type { Target } from './search';
import { say } from './texts';

/** The pages of the interface, and those of the database that is shown. */
export function pages(db: string | undefined): Target[] {
  const t = say();
  const names = shell();
  const page = (name: string, ...to: string[]): Target => ({ kind: 'page', name, to: link(to) });
  const within = (name: string, part: string) =>
    db === undefined ? [] : [page(`${db}: ${name}`, 'database', db, part)];
  const p = parts();
  return [
    ...within(p.documents, '_all_docs'),
    ...within(p.views, '_design'),
    ...within(p.query, '_find'),
    ...within(p.schema, '_schema'),
    ...within(p.search, '_search'),
    ...within(p.changes, '_changes'),
    ...within(p.permissions, 'permissions'),
    ...within(p.settings, '_settings'),
    ...within(t.create, 'new'),
    page(names.databases),
    page(names.replication, 'replication'),
    page(names.users, 'users'),
    ...(mayMeasure.value
      ? [page(names.tasks, 'activetasks'), page(names.performance, 'performance')]
      : []),
    ...(isAdmin.value
      ? [
          page(names.configuration, '_config'),
          page('CORS', 'cors'),
          page(names.cluster, 'cluster'),
          page(t.doctor, 'performance', 'doctor'),
          page(t.profile, 'performance', 'profile'),
          page(t.slow, 'performance', 'slow'),
        ]
      : []),
  ];
}

export function recent(): Target[] {
  return recentDocuments().map(([db, id]) => ({ ...document(db, id), kind: 'recent' }));
}

function document(db: string, id: string): Target {
  return { kind: 'document', name: `${db}/${id}`, to: link(['database', db, '_doc', id]) };
}

/** The databases that the user may list. */
export async function databases(signal: AbortSignal): Promise<string[]> {
  return ask<string[]>('GET', '/_all_dbs', { signal, background: true });
}

export function toDatabase(name: string): Target {
  return { kind: 'database', name, to: link(['database', name, '_all_docs']) };
}

/** The settings of the server, found by their help too. */
export async function settings(signal: AbortSignal): Promise<Target[]> {
  if (!isAdmin.value) return [];
  const told = await ask<{ section: string; key: string; help: string }[] | { settings: [] }>(
    'GET',
    '/_node/_local/_settee/settings',
    { signal, background: true },
  );
  return (Array.isArray(told) ? told : told.settings).map(({ section, key, help }) => ({
    kind: 'setting',
    name: `${section}/${key}`,
    more: help,
    to: link(['_config'], { q: `${section}/${key}` }),
  }));
}

const IDS_MAX = 8;

/** Documents whose ids begin so. */
export async function documents(db: string, id: string, signal: AbortSignal): Promise<Target[]> {
  const query = {
    startkey: JSON.stringify(id),
    endkey: JSON.stringify(`${id}\ufff0`),
    limit: IDS_MAX,
  };
  const { rows } = await ask<{ rows: { id: string }[] }>('GET', `${path(db)}/_all_docs`, {
    query,
    signal,
    background: true,
  });
  return rows.map((row) => document(db, row.id));
}

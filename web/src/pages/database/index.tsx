import type { ComponentType, JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { ApiError, ask, path, useResource } from '../../api';
import { bytes, count } from '../../i18n';
import { lazy } from '../../lazy';
import { link, type Place } from '../../router';
import { Badge, Problem, Tabs } from '../../ui';
import type { Info } from '../databases/infos';
import { type Part, where } from './address';
import './database.css';
import Documents from './documents';
import { t } from './texts';

export interface PartProps {
  db: string;
  place: Place;
  /** What the server says of the database, once it did. */
  info: Info | undefined;
  /** Asks for it again: something was changed. */
  reload: () => void;
}

const PARTS: Record<Exclude<Part, 'document'>, ComponentType<PartProps>> = {
  documents: Documents,
  views: lazy<PartProps>(() => import('./views')),
  query: lazy<PartProps>(() => import('./query')),
  schema: lazy<PartProps>(() => import('./schema')),
  search: lazy<PartProps>(() => import('./search')),
  changes: lazy<PartProps>(() => import('./changes')),
  permissions: lazy<PartProps>(() => import('./permissions')),
  settings: lazy<PartProps>(() => import('./settings')),
};
const Document = lazy<PartProps & { id: string | undefined }>(() => import('./document'));

const TABS: [keyof typeof PARTS, string][] = [
  ['documents', '_all_docs'],
  ['views', '_design'],
  ['query', '_find'],
  ['schema', '_schema'],
  ['search', '_search'],
  ['changes', '_changes'],
  ['permissions', 'permissions'],
  ['settings', '_settings'],
];
const POLL_MS = 10_000;

/** What was known last, so that nothing jumps from one part to another. */
const last = new Map<string, Info>();

export default function Database({ place }: { place: Place }): JSX.Element {
  const db = place.parts[1] ?? '';
  const found = where(place);
  const told = useResource(
    db,
    (signal, background) => ask<Info>('GET', path(db), { signal, background }),
    POLL_MS,
  );
  useEffect(() => {
    if (told.data) last.set(db, told.data);
  }, [told.data]);
  // Of narrow tabs, the one that is shown is to be seen.
  const info = told.data ?? last.get(db);
  if (told.error instanceof ApiError && (told.data === undefined || told.error.status === 404))
    return <Missing db={db} error={told.error} retry={told.reload} />;
  if (found.part === 'document')
    return (
      <>
        <Crumbs db={db} isParent />
        <Document
          key={found.id}
          db={db}
          place={found.place}
          id={found.id}
          info={info}
          reload={told.reload}
        />
      </>
    );
  const Shown = PARTS[found.part];
  return (
    <>
      <header class="database-head">
        <Crumbs db={db} />
        <div class="page-head">
          <h1>{db}</h1>
          <Facts info={info} />
        </div>
        <Tabs
          label={t().parts}
          current={found.part}
          tabs={TABS.map(([id, to]) => ({ id, name: t()[id], href: link(['database', db, to]) }))}
        />
      </header>
      <Shown db={db} place={found.place} info={info} reload={told.reload} />
    </>
  );
}

function Crumbs({ db, isParent }: { db: string; isParent?: boolean }): JSX.Element {
  return (
    <nav class="crumbs" aria-label={t().databases}>
      <a href="#/">{t().databases}</a>
      <span aria-hidden="true">/</span>
      {isParent ? <a href={link(['database', db, '_all_docs'])}>{db}</a> : <span>{db}</span>}
    </nav>
  );
}

function Facts({ info }: { info: Info | undefined }): JSX.Element {
  if (!info) return <div class="facts" aria-busy="true" />;
  const seq = String(info.update_seq);
  return (
    <div class="facts">
      <span>{t().count(count(info.doc_count))}</span>
      {info.doc_del_count > 0 && <span>{t().deleted(count(info.doc_del_count))}</span>}
      <span>{t().disk(bytes(info.sizes.file))}</span>
      <span class="wide">{t().data(bytes(info.sizes.external))}</span>
      <span class="wide" title={seq}>
        {t().seq} {seq.replace(/-.*/s, '')}
      </span>
      {info.props?.partitioned && <Badge kind="info">{t().partitioned}</Badge>}
      {info.props?.access && <Badge kind="info">{t().access}</Badge>}
      {info.compact_running && <Badge kind="warn">{t().compacting}</Badge>}
    </div>
  );
}

function Missing({
  db,
  error,
  retry,
}: {
  db: string;
  error: unknown;
  retry: () => void;
}): JSX.Element {
  return (
    <>
      <Crumbs db={db} />
      <h1>{db}</h1>
      <Problem error={error} retry={retry} />
      <div>
        <a class="button" href="#/">
          {t().toDatabases}
        </a>
      </div>
    </>
  );
}

import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { ApiError, ask, isAdmin, session, useResource } from '../../api';
import { bytes, count } from '../../i18n';
import { go, link, type Place, refine } from '../../router';
import { login } from '../../texts';
import {
  Badge,
  Button,
  type Column,
  Empty,
  Form,
  Loading,
  Problem,
  Table,
  TextField,
  words,
} from '../../ui';
import { askToDelete, Create } from './create';
import { type Info, type Infos, useInfos } from './infos';
import { Sample } from './sample';
import { t } from './texts';

type Order = 'name' | 'documents' | 'size';

const POLL_MS = 60_000;
const BY: Record<Exclude<Order, 'name'>, (info: Info) => number> = {
  documents: (info) => info.doc_count,
  size: (info) => info.sizes.file,
};

export function Databases({ place }: { place: Place }): JSX.Element {
  const [isCreating, setCreating] = useState(false);
  const names = useResource(
    'databases',
    (signal, background) => ask<string[]>('GET', '/_all_dbs', { signal, background }),
    POLL_MS,
  );
  const search = place.query.get('search') ?? '';
  const sort = (place.query.get('sort') ?? 'name') as Order;
  const isDown = place.query.has('down');
  const infos = useInfos(sort !== 'name', names.data);
  const all = names.data;
  const mayNot =
    all === undefined && names.error instanceof ApiError && [401, 403].includes(names.error.status);
  const found = useMemo(() => {
    const wanted = search.toLowerCase();
    return all?.filter((name) => name.includes(wanted)) ?? [];
  }, [all, search]);
  const sorted = useMemo(
    () => order(found, sort, isDown, infos),
    [found, sort, isDown, sort === 'name' ? 0 : infos.known],
  );
  const open = (event: Event) => {
    event.preventDefault();
    const to = sorted.find((name) => name === search) ?? sorted[0];
    if (to) go(['database', to, '_all_docs']);
  };
  return (
    <>
      <div class="page-head">
        <h1>{t().title}</h1>
        {isAdmin.value && (
          <Button kind="primary" icon="add" onClick={() => setCreating(true)}>
            {t().create}
          </Button>
        )}
      </div>
      {isCreating && <Create onClose={() => setCreating(false)} />}
      {!mayNot && <Problem error={names.error} retry={names.reload} />}
      {names.isLoading && <Loading />}
      {mayNot && <OpenByName />}
      {all && (
        <>
          <form class="bar" role="search" onSubmit={open}>
            <input
              type="search"
              aria-label={t().find}
              placeholder={t().find}
              value={search}
              autocapitalize="off"
              spellcheck={false}
              onInput={(event) => refine({ search: event.currentTarget.value })}
            />
            <span class="soft" role="status">
              {found.length === all.length
                ? t().all(count(all.length))
                : t().some(count(found.length), count(all.length))}
              {sort !== 'name' &&
                infos.known < all.length &&
                infos.error === undefined &&
                ` · ${t().sorting(count(infos.known), count(all.length))}`}
            </span>
          </form>
          <Problem error={infos.error} />
          {sorted.length === 0 ? (
            <None isAll={all.length === 0} />
          ) : (
            <List names={sorted} infos={infos} sort={sort} isDown={isDown} reload={names.reload} />
          )}
          {isAdmin.value && all.every((name) => name.startsWith('_')) && <Sample />}
        </>
      )}
    </>
  );
}

function order(names: string[], sort: Order, isDown: boolean, infos: Infos): string[] {
  if (sort === 'name') return isDown ? names.toReversed() : names;
  const value = (name: string) => {
    const info = infos.of(name);
    return info ? BY[sort](info) : -1;
  };
  const valued = names.map((name) => [name, value(name)] as const);
  return valued.sort((a, b) => (isDown ? b[1] - a[1] : a[1] - b[1])).map(([name]) => name);
}

function List({
  names,
  infos,
  sort,
  isDown,
  reload,
}: {
  names: string[];
  infos: Infos;
  sort: Order;
  isDown: boolean;
  reload: () => void;
}): JSX.Element {
  const by = (to: Order) => () => {
    // Numbers begin with the largest, names with the first.
    const down = sort === to ? !isDown : to !== 'name';
    refine({ sort: to === 'name' ? undefined : to, down: down ? '1' : undefined });
  };
  const fact = (name: string, of: (info: Info) => string) => {
    const info = infos.of(name);
    return info ? of(info) : info === null ? '–' : <span class="ghost" />;
  };
  const columns: Column<string>[] = [
    {
      id: 'name',
      name: words().name,
      sort: by('name'),
      cell: (name) => (
        <>
          <a href={link(['database', name, '_all_docs'])} title={name}>
            {name}
          </a>{' '}
          {infos.of(name)?.props?.partitioned && <Badge>{t().partitioned}</Badge>}
          {infos.of(name) === null && <Badge kind="warn">{t().gone}</Badge>}
        </>
      ),
    },
    {
      id: 'documents',
      name: t().documents,
      width: '6rem',
      align: 'end',
      sort: by('documents'),
      cell: (name) => fact(name, (info) => count(info.doc_count)),
    },
    {
      id: 'deleted',
      name: t().deleted,
      width: '7rem',
      align: 'end',
      isExtra: true,
      cell: (name) => fact(name, (info) => count(info.doc_del_count)),
    },
    {
      id: 'size',
      name: t().size,
      width: '5.5rem',
      align: 'end',
      sort: by('size'),
      cell: (name) => fact(name, (info) => bytes(info.sizes.file)),
    },
  ];
  if (isAdmin.value)
    columns.push({
      id: 'actions',
      name: '',
      width: '52px',
      isExtra: true,
      cell: (name) => (
        <Button
          kind="plain"
          icon="remove"
          label={t().delete(name)}
          onClick={async () => (await askToDelete(name)) && reload()}
        />
      ),
    });
  return (
    <Table
      label={t().title}
      columns={columns}
      count={names.length}
      row={(index) => names[index]}
      href={(name) => link(['database', name, '_all_docs'])}
      sorted={{ by: sort, isDown }}
      onSeen={(from, to) => infos.want(names.slice(from, to))}
    />
  );
}

function None({ isAll }: { isAll: boolean }): JSX.Element {
  return (
    <Empty icon="database" title={isAll ? t().none : t().noneFound}>
      {!isAll && <Button onClick={() => refine({ search: undefined })}>{t().clear}</Button>}
    </Empty>
  );
}

function OpenByName(): JSX.Element {
  const [name, setName] = useState('');
  return (
    <div class="card">
      <p>{t().openText}</p>
      {session.value?.name === null && (
        <p>
          <a href="#/login">{login().title}</a>
        </p>
      )}
      <Form
        onSubmit={async () => go(['database', name, '_all_docs'])}
        submit={t().go}
        disabled={name === ''}
      >
        <TextField label={t().open} value={name} onInput={setName} focus />
      </Form>
    </div>
  );
}

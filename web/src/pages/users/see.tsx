import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ask, isAborted, path, useResource } from '../../api';
import { count } from '../../i18n';
import { link, place } from '../../router';
import {
  Badge,
  Button,
  Check,
  type Column,
  complain,
  Form,
  Progress,
  Table,
  TextField,
  words,
} from '../../ui';
import { admins, rolesOf, split, userIfAny, users } from './data';
import { type Rights, rights, type Security } from './rights';
import { t } from './texts';

interface Row {
  db: string;
  /** Unknown where the server did not answer. */
  rights: Rights | undefined;
}

interface Run {
  name: string;
  roles: string[];
  rows: Row[];
  of: number;
  isRunning: boolean;
}

/** So many databases are asked for at once, and drawn at once. */
const AT_ONCE = 8;
const CHUNK = 64;

export function See(): JSX.Element {
  const w = t();
  const first = place.value.query.get('name') ?? '';
  const [name, setName] = useState(first);
  const [roles, setRoles] = useState('');
  const [run, setRun] = useState<Run | undefined>();
  const control = useRef<AbortController | undefined>(undefined);
  const names = useResource('names', (signal) =>
    users('', signal).then((all) => all.users.map((user) => user.name)),
  );
  const start = async (who: string, given: string) => {
    control.current?.abort();
    const mine = new AbortController();
    control.current = mine;
    const all = [...(await rolesFor(who, mine.signal)), ...split(given)];
    try {
      await examine(who || null, [...new Set(all)], mine.signal, setRun);
    } catch (error) {
      if (!isAborted(error)) throw error;
    }
  };
  useEffect(() => {
    if (first) start(first, '').catch(complain);
    return () => control.current?.abort();
  }, []);
  const stop = () => {
    control.current?.abort();
    setRun((old) => old && { ...old, isRunning: false });
  };
  return (
    <>
      <div class="users-see">
        <Form onSubmit={() => start(name.trim(), roles)} submit={w.go}>
          <div class="cards">
            <TextField
              label={w.who}
              value={name}
              onInput={setName}
              hint={w.whoHint}
              list={names.data ?? []}
              autocomplete="off"
            />
            <TextField
              label={w.roles}
              value={roles}
              onInput={setRoles}
              hint={w.rolesHint}
              autocomplete="off"
            />
          </div>
        </Form>
      </div>
      {run && <Result run={run} stop={stop} />}
    </>
  );
}

/** What a server gives to a name: its roles as a user, and being an admin. */
async function rolesFor(name: string, signal: AbortSignal): Promise<string[]> {
  if (name === '') return [];
  const [doc, all] = await Promise.all([userIfAny(name, signal), admins(signal)]);
  return [...(all.includes(name) ? ['_admin'] : []), ...rolesOf(doc)];
}

/** Asks all databases for their security, a few at a time. */
async function examine(
  name: string | null,
  roles: string[],
  signal: AbortSignal,
  show: (run: Run) => void,
): Promise<void> {
  const dbs = await ask<string[]>('GET', '/_all_dbs', { signal });
  const rows: Row[] = [];
  const tell = (isRunning: boolean) =>
    show({ name: name ?? '', roles, rows: [...rows], of: dbs.length, isRunning });
  tell(true);
  for (let at = 0; at < dbs.length; at += CHUNK) {
    const chunk = dbs.slice(at, at + CHUNK);
    const found: Row[] = [];
    let next = 0;
    const work = async () => {
      for (let n = next++; n < chunk.length; n = next++)
        found[n] = await look(chunk[n] ?? '', name, roles, signal);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    rows.push(...found);
    tell(at + CHUNK < dbs.length);
  }
  if (dbs.length === 0) tell(false);
}

async function look(
  db: string,
  name: string | null,
  roles: string[],
  signal: AbortSignal,
): Promise<Row> {
  // A server admin needs no database's leave.
  if (roles.includes('_admin')) return { db, rights: rights(db, {}, name, roles) };
  try {
    return {
      db,
      rights: rights(
        db,
        await ask<Security>('GET', `${path(db)}/_security`, { signal }),
        name,
        roles,
      ),
    };
  } catch (error) {
    if (isAborted(error)) throw error;
    return { db, rights: undefined };
  }
}

function Result({ run, stop }: { run: Run; stop: () => void }): JSX.Element {
  const w = t();
  const [search, setSearch] = useState('');
  const [onlyMay, setOnlyMay] = useState(false);
  const shown = useMemo(
    () =>
      run.rows.filter(
        (row) => row.db.includes(search.toLowerCase()) && (!onlyMay || row.rights?.read !== false),
      ),
    [run, search, onlyMay],
  );
  const sum = (what: 'read' | 'write' | 'admin') =>
    count(run.rows.filter((row) => row.rights?.[what]).length);
  const columns: Column<Row>[] = [
    {
      id: 'right',
      name: w.right,
      width: '136px',
      cell: (row) =>
        row.rights && (
          <Badge kind={row.rights.admin ? 'warn' : row.rights.write ? 'good' : ''}>
            {w.rights[level(row.rights)]}
          </Badge>
        ),
    },
    { id: 'db', name: `${w.database}, ${w.why}`, cell: (row) => <Where row={row} /> },
  ];
  return (
    <>
      <p role="status">
        <strong>{w.sums(sum('read'), sum('write'), sum('admin'))}</strong>{' '}
        <span class="soft">
          {run.name && w.fromUser(run.name, run.roles.join(', ') || w.noRoles)}
        </span>
      </p>
      {run.isRunning && (
        <div class="row-of">
          <span class="grow">
            <Progress
              value={run.rows.length / Math.max(1, run.of)}
              label={w.progress(count(run.rows.length), count(run.of))}
            />
          </span>
          <span class="soft">{w.progress(count(run.rows.length), count(run.of))}</span>
          <Button onClick={stop}>{w.stop}</Button>
        </div>
      )}
      <div class="bar">
        <input
          type="search"
          aria-label={w.filter}
          placeholder={words().search}
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        <Check label={w.onlyMay} value={onlyMay} onChange={setOnlyMay} />
      </div>
      <Table
        label={w.see}
        columns={columns}
        count={shown.length}
        row={(n) => shown[n]}
        rowHeight={52}
      />
      <small class="soft">{w.memberNote}</small>
    </>
  );
}

function Where({ row }: { row: Row }): JSX.Element {
  return (
    <>
      <a class="cut users-line" href={link(['database', row.db, 'permissions'])}>
        {row.db}
      </a>
      <small class="cut users-line soft" title={whyOf(row)}>
        {whyOf(row)}
      </small>
    </>
  );
}

function level(rights: Rights): 'none' | 'read' | 'write' | 'admin' {
  return rights.admin ? 'admin' : rights.write ? 'write' : rights.read ? 'read' : 'none';
}

function whyOf(row: Row): string {
  const w = t();
  return row.rights ? w.whys[row.rights.why](row.rights.role) : w.unknown;
}

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ApiError, useResource } from '../../api';
import { count } from '../../i18n';
import { link, place, refine } from '../../router';
import {
  Badge,
  Button,
  type Column,
  Dialog,
  Empty,
  Form,
  Loading,
  Problem,
  say,
  Table,
  TextField,
  words,
} from '../../ui';
import { create, matching, remove, split, type User, users } from './data';
import { t } from './texts';

export function UserList(): JSX.Element {
  const w = t();
  const search = place.value.query.get('q') ?? '';
  const [isNew, setNew] = useState(false);
  const all = useResource('users', (signal) => users('', signal));
  const isMany = all.data !== undefined && !all.data.isAll;
  const begun = useResource(isMany && search ? `users ${search}` : undefined, (signal) =>
    users(search, signal),
  );
  if (all.error !== undefined && !all.data)
    return all.error instanceof ApiError && all.error.status === 404 ? (
      <Empty icon="users" title={w.noDb} />
    ) : (
      <Problem error={all.error} retry={all.reload} />
    );
  if (!all.data) return <Loading />;
  const shown = isMany && search ? (begun.data?.users ?? []) : matching(all.data.users, search);
  const reload = () => {
    all.reload();
    begun.reload();
  };
  return (
    <>
      <div class="bar">
        <input
          type="search"
          aria-label={isMany ? w.searchBegin : w.search}
          placeholder={isMany ? w.searchBegin : words().search}
          value={search}
          onInput={(event) => refine({ q: event.currentTarget.value })}
        />
        <span class="soft" role="status">
          {words().rows(`${count(shown.length)}${isMany && shown.length >= 2000 ? '+' : ''}`)}
        </span>
        <span class="grow" />
        <Button kind="primary" icon="add" onClick={() => setNew(true)}>
          {w.newUser}
        </Button>
      </div>
      <Problem error={all.error ?? begun.error} retry={reload} />
      {begun.isLoading ? <Loading /> : <Users shown={shown} isSearch={search !== ''} />}
      {isNew && <NewUser onClose={() => setNew(false)} done={reload} />}
    </>
  );
}

function Users({ shown, isSearch }: { shown: User[]; isSearch: boolean }): JSX.Element {
  const w = t();
  if (shown.length === 0)
    return (
      <Empty icon="users" title={isSearch ? w.nothing : w.noUsers}>
        {!isSearch && <p>{w.noUsersDo}</p>}
      </Empty>
    );
  const columns: Column<User>[] = [
    {
      id: 'name',
      name: w.name,
      cell: (user) => <a href={link(['users', 'user', user.name])}>{user.name}</a>,
    },
    { id: 'roles', name: w.roles, cell: (user) => <Roles of={user.roles} /> },
  ];
  return (
    <Table
      label={w.users}
      columns={columns}
      count={shown.length}
      row={(n) => shown[n]}
      href={(user) => link(['users', 'user', user.name])}
    />
  );
}

export function Roles({ of }: { of: string[] }): JSX.Element {
  return (
    <span class="users-roles">
      {of.map((role) => (
        <Badge key={role}>{role}</Badge>
      ))}
    </span>
  );
}

function NewUser({ onClose, done }: { onClose: () => void; done: () => void }): JSX.Element {
  const w = t();
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [roles, setRoles] = useState('');
  const submit = async () => {
    await create(name, password, split(roles));
    say(w.created(name), () => remove(name).then(done));
    done();
    onClose();
  };
  return (
    <Dialog title={w.newUser} onClose={onClose}>
      <Form onSubmit={submit} submit={w.create} onCancel={onClose}>
        <TextField
          label={w.name}
          value={name}
          onInput={setName}
          autocomplete="off"
          focus
          required
        />
        <TextField
          label={w.password}
          type="password"
          value={password}
          onInput={setPassword}
          autocomplete="new-password"
          required
        />
        <TextField
          label={w.roles}
          value={roles}
          onInput={setRoles}
          hint={w.rolesHint}
          autocomplete="off"
        />
      </Form>
    </Dialog>
  );
}

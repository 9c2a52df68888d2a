import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../api';
import { Obj, print } from '../../json';
import { go, link } from '../../router';
import { Button, complain, Form, Loading, Problem, say, TextField } from '../../ui';
import { change, idOf, remove, rolesOf, split, user } from './data';
import { t } from './texts';

/** What the server makes of passwords, and what has controls of its own. */
const KNOWN = [
  '_id',
  '_rev',
  'name',
  'type',
  'roles',
  'password_scheme',
  'pbkdf2_prf',
  'iterations',
  'derived_key',
  'salt',
  'password_sha',
  'password',
];

export function UserPage({ name }: { name: string }): JSX.Element {
  const w = t();
  const { data, error, reload } = useResource(`user ${name}`, (signal) => user(name, signal));
  const leave = () => go(['users']);
  const take = async () => {
    const back = await remove(name);
    say(w.deleted(name), () => back().then(() => go(['users', 'user', name])));
    leave();
  };
  return (
    <>
      <nav class="crumbs">
        <a href={link(['users'])}>{w.users}</a>
        <span aria-hidden="true">/</span>
        <span>{name}</span>
      </nav>
      <div class="page-head">
        <h1>{name}</h1>
        <div class="row-of">
          <a class="button" href={link(['users', 'see'], { name })}>
            {w.seeFor}
          </a>
          <a class="button" href={link(['database', '_users', idOf(name)])}>
            {w.toDocument}
          </a>
          <Button icon="remove" disabled={!data} onClick={() => take().catch(complain)}>
            {w.deleteUser}
          </Button>
        </div>
      </div>
      <Problem error={error} retry={reload} />
      {data ? (
        <Cards key={name} name={name} doc={data} done={reload} />
      ) : (
        error === undefined && <Loading />
      )}
    </>
  );
}

function Cards({ name, doc, done }: { name: string; doc: Obj; done: () => void }): JSX.Element {
  const w = t();
  const others = new Obj([...doc].filter(([each]) => !KNOWN.includes(each)));
  return (
    <div class="cards">
      {/* Roles that come anew are shown; a password that is half typed stays. */}
      <RolesForm key={rolesOf(doc).join()} name={name} roles={rolesOf(doc)} done={done} />
      <PasswordForm onSave={(password) => change(name, { password }).then(done)} />
      {others.size > 0 && (
        <section class="card">
          <h2>{w.others}</h2>
          <pre>{print(others, 2)}</pre>
          <small class="soft">{w.othersHint}</small>
        </section>
      )}
    </div>
  );
}

function RolesForm({
  name,
  roles,
  done,
}: {
  name: string;
  roles: string[];
  done: () => void;
}): JSX.Element {
  const w = t();
  const [typed, setTyped] = useState(roles.join(', '));
  const submit = async () => {
    await change(name, { roles: split(typed) });
    say(w.saved(name), () => change(name, { roles }).then(done));
    done();
  };
  return (
    <section class="card">
      <h2>{w.roles}</h2>
      <Form onSubmit={submit} submit={w.saveRoles} disabled={split(typed).join() === roles.join()}>
        <TextField
          label={w.roles}
          value={typed}
          onInput={setTyped}
          hint={w.rolesHint}
          autocomplete="off"
        />
      </Form>
    </section>
  );
}

/** A new password, typed twice; `old` asks for the present one, and answers whether it is. */
export function PasswordForm({
  onSave,
  old,
}: {
  onSave: (password: string) => Promise<unknown>;
  old?: (password: string) => Promise<boolean>;
}): JSX.Element {
  const w = t();
  const [present, setPresent] = useState('');
  const [password, setPassword] = useState('');
  const [again, setAgain] = useState('');
  const [isWrong, setWrong] = useState(false);
  const isOther = again !== '' && again !== password;
  const submit = async () => {
    if (password !== again) return;
    if (old && !(await old(present))) {
      setWrong(true);
      return;
    }
    await onSave(password);
    for (const set of [setPresent, setPassword, setAgain]) set('');
    say(w.changed);
  };
  return (
    <section class="card">
      <h2>{w.changePassword}</h2>
      <Form
        onSubmit={submit}
        submit={w.changePassword}
        disabled={password === '' || password !== again}
      >
        {old && (
          <TextField
            label={w.oldPassword}
            type="password"
            value={present}
            onInput={(to) => {
              setWrong(false);
              setPresent(to);
            }}
            error={isWrong ? w.wrong : undefined}
            autocomplete="current-password"
            required
          />
        )}
        <TextField
          label={w.newPassword}
          type="password"
          value={password}
          onInput={setPassword}
          autocomplete="new-password"
          required
        />
        <TextField
          label={w.again}
          type="password"
          value={again}
          onInput={setAgain}
          error={isOther ? w.notSame : undefined}
          autocomplete="new-password"
          required
        />
      </Form>
    </section>
  );
}

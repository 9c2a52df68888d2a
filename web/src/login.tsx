import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ApiError, isExpired, logIn, session } from './api';
import { texts } from './i18n';
import { Dialog, Form, TextField } from './ui';

const say = texts(
  {
    title: 'Log in',
    name: 'Name',
    password: 'Password',
    wrong: 'Name or password is wrong.',
    expired: 'Your session has ended',
    expiredText: 'What you typed is still here. Give your password, and it goes on.',
    other: 'Go on without a login',
  },
  {
    title: 'Anmelden',
    name: 'Name',
    password: 'Passwort',
    wrong: 'Name oder Passwort ist falsch.',
    expired: 'Ihre Sitzung ist abgelaufen',
    expiredText: 'Was Sie eingegeben haben, ist noch da. Geben Sie Ihr Passwort ein, und es geht weiter.',
    other: 'Ohne Anmeldung weiter',
  },
);

function useLogin(name: string) {
  const [password, setPassword] = useState('');
  const [wrong, setWrong] = useState<string | undefined>();
  const send = async () => {
    setWrong(undefined);
    try {
      await logIn(name, password);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 401)) throw error;
      setWrong(say().wrong);
      return false;
    }
    return true;
  };
  const field = (focus: boolean) => <TextField label={say().password} type="password" autocomplete="current-password" value={password} onInput={setPassword} error={wrong} focus={focus} required />;
  return { send, field };
}

/** A page of its own, for who is nobody yet. */
export function Login({ onDone }: { onDone: () => void }): JSX.Element {
  const [name, setName] = useState('');
  const { send, field } = useLogin(name);
  const t = say();
  const submit = async () => {
    if (!(await send())) return;
    if (location.hash.startsWith('#/login')) location.hash = '#/';
    onDone();
  };
  return (
    <main class="login">
      <div class="card">
        <h1>{t.title}</h1>
        <Form onSubmit={submit} submit={t.title}>
          <TextField label={t.name} autocomplete="username" value={name} onInput={setName} focus required />
          {field(false)}
        </Form>
        <p>
          <a href="#/" onClick={onDone}>
            {t.other}
          </a>
        </p>
      </div>
    </main>
  );
}

/** In place: the page below keeps what it has. */
export function Relogin(): JSX.Element | null {
  return isExpired.value ? <Again name={session.value?.name ?? ''} /> : null;
}

function Again({ name }: { name: string }): JSX.Element {
  const { send, field } = useLogin(name);
  const t = say();
  return (
    <Dialog title={t.expired} onClose={() => undefined}>
      <Form onSubmit={send} submit={t.title}>
        <p>{t.expiredText}</p>
        <input class="hidden" type="text" autocomplete="username" aria-label={t.name} tabIndex={-1} value={name} readOnly />
        <p>
          {t.name}: <strong>{name}</strong>
        </p>
        {field(true)}
      </Form>
    </Dialog>
  );
}

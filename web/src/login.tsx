import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ApiError, isExpired, logIn, session } from './api';
import { type Place, place } from './router';
import { login as say } from './texts';
import { Dialog, Form, TextField } from './ui';

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
  const field = (focus: boolean) => (
    <TextField
      label={say().password}
      type="password"
      autocomplete="current-password"
      value={password}
      onInput={setPassword}
      error={wrong}
      focus={focus}
      required
    />
  );
  return { send, field };
}

/** Where someone was before the server sent them here; only an address of this server is one. */
function wayBack(to: string | null): string | undefined {
  if (!to?.startsWith('/')) return undefined;
  const server = new URL('..', location.href);
  const address = new URL(`.${to}`, server);
  return address.origin === server.origin && address.pathname.startsWith(server.pathname)
    ? address.href
    : undefined;
}

/** For who is sent to log in, and is logged in: now, or before, and may not what was wanted. */
export function LoggedIn({ place }: { place: Place }): JSX.Element {
  const t = say();
  const reason = place.query.get('reason');
  const back = wayBack(place.query.get('return'));
  return (
    <>
      <h1>{t.loggedIn(session.value?.name ?? '')}</h1>
      {reason && <p class="notice">{reason}</p>}
      <p>
        <a href={back ?? '#/'}>{back ? t.back : t.home}</a>
      </p>
    </>
  );
}

/** A page of its own, for who is nobody yet. */
export function Login({ onDone }: { onDone: () => void }): JSX.Element {
  const [name, setName] = useState('');
  const { send, field } = useLogin(name);
  const t = say();
  const reason = place.value.parts[0] === 'login' ? place.value.query.get('reason') : null;
  const submit = async () => {
    if (!(await send())) return;
    const { parts, query } = place.value;
    if (parts[0] === 'login') {
      const back = wayBack(query.get('return'));
      if (back) {
        location.replace(back);
        return;
      }
      location.hash = '#/';
    }
    onDone();
  };
  return (
    <main class="login">
      <div class="card">
        <h1>{t.title}</h1>
        {reason && <p class="notice">{reason}</p>}
        <Form onSubmit={submit} submit={t.title}>
          <TextField
            label={t.name}
            autocomplete="username"
            value={name}
            onInput={setName}
            focus
            required
          />
          {field(false)}
        </Form>
        <p>
          {/* biome-ignore lint/a11y/useValidAnchor: it leads to a page, and closes the login that covers it */}
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
        <input
          class="hidden"
          type="text"
          autocomplete="username"
          aria-label={t.name}
          tabIndex={-1}
          value={name}
          readOnly
        />
        <p>
          {t.name}: <strong>{name}</strong>
        </p>
        {field(true)}
      </Form>
    </Dialog>
  );
}

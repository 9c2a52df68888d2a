import type { JSX } from 'preact';
import { ApiError, ask, isAdmin, logIn, session, useResource } from '../../api';
import { Empty, Loading, Problem } from '../../ui';
import { admins, change, putAdmin, user, userIfAny } from './data';
import { Roles } from './list';
import { t } from './texts';
import { PasswordForm } from './user';

/** Who is logged in, and the own password. */
export function Account(): JSX.Element {
  const w = t();
  const { name, roles } = session.value ?? { name: null, roles: [] };
  const { data, error, reload } = useResource(
    name === null ? undefined : `account ${name}`,
    (signal) => keeper(name ?? '', signal),
  );
  if (name === null) return <Empty icon="users" title={w.nobody} />;
  return (
    <>
      <p>
        {w.youAre} <strong>{name}</strong>{' '}
        {roles.length > 0 ? <Roles of={roles} /> : <span class="soft">({w.noRoles})</span>}
      </p>
      <Problem error={error} retry={reload} />
      {data === 'elsewhere' && <p class="notice">{w.elsewhere}</p>}
      {data === 'closed' && <p class="notice">{w.closed}</p>}
      {data === 'config' && <p class="soft">{w.asAdmin}</p>}
      {data === undefined && error === undefined && <Loading />}
      {(data === 'users' || data === 'config') && (
        <div class="cards">
          <PasswordForm
            old={(password) => isRight(name, password)}
            onSave={(password) => save(name, password, data)}
          />
        </div>
      )}
    </>
  );
}

type Keeper = 'config' | 'users' | 'closed' | 'elsewhere';

/** Where somebody's password is kept. */
async function keeper(name: string, signal: AbortSignal): Promise<Keeper> {
  if (isAdmin.value)
    return (await admins(signal)).includes(name)
      ? 'config'
      : (await userIfAny(name, signal))
        ? 'users'
        : 'elsewhere';
  const own = user(name, signal).then(() => 'users' as const);
  return own.catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 404) return 'elsewhere';
    // As servers come: its administrators have to open _users to its users.
    if (error instanceof ApiError && error.status === 403) return 'closed';
    throw error;
  });
}

async function isRight(name: string, password: string): Promise<boolean> {
  try {
    await ask('POST', '/_session', { body: { name, password }, background: true });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return false;
    throw error;
  }
}

/** The session ends with the old password, and another begins. */
async function save(name: string, password: string, where: Keeper): Promise<void> {
  if (where === 'config') await putAdmin(name, password);
  else await change(name, { password });
  await logIn(name, password);
}

import type { JSX } from 'preact';
import { ApiError } from '../api/errors';
import { isExpired, session } from '../api/session';
import { explain } from './explain';
import { Icon } from './icons';
import { words } from './texts';

/** Asks for the password in place, or leads to the login and back. */
function logIn(): void {
  if (session.value?.name) isExpired.value = true;
  else {
    const page = `/${location.pathname.split('/').at(-2)}/${location.hash}`;
    location.hash = `#/login?return=${encodeURIComponent(page)}`;
  }
}

/**
 * An error where it happened. It stays until it is dismissed or what it is about is tried again.
 */
export function Problem({
  error,
  retry,
  dismiss,
}: {
  error: unknown;
  retry?: () => void;
  dismiss?: () => void;
}): JSX.Element | null {
  if (error === undefined || error === null) return null;
  const { what, todo, told, requestId } = explain(error);
  const t = words();
  return (
    <div class="problem" role="alert">
      <Icon name="warning" />
      <div class="problem-text">
        <strong>{what}</strong> <span>{todo}</span>
        {told && <p class="told">{told}</p>}
        {requestId && (
          <p class="told">
            {t.requestId} <code>{requestId}</code>
          </p>
        )}
      </div>
      {error instanceof ApiError && error.status === 401 && !error.isRefusal && (
        <button type="button" onClick={logIn}>
          {t.logIn}
        </button>
      )}
      {retry && (
        <button type="button" onClick={retry}>
          {t.retry}
        </button>
      )}
      {dismiss && (
        <button type="button" class="plain" aria-label={t.dismiss} onClick={dismiss}>
          <Icon name="close" />
        </button>
      )}
    </div>
  );
}

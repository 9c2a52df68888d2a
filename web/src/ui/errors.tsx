import type { JSX } from 'preact';
import { ApiError, LostError } from '../api';
import { JsonError } from '../json';
import { Icon } from './icons';
import { explainJson } from './mistakes';
import { words } from './text';

/** What went wrong, in words: what it is, what to do, and what the server said. */
export function explain(error: unknown): {
  what: string;
  todo: string;
  told: string;
  requestId: string | null;
} {
  const t = words();
  const told =
    error instanceof ApiError
      ? `${error.error}: ${error.reason}`
      : error instanceof Error
        ? error.message
        : String(error);
  const requestId = error instanceof ApiError ? error.requestId : null;
  const say = (what: string, todo: string) => ({ what, todo, told, requestId });
  if (error instanceof LostError) return { ...say(t.lost, t.lostDo), told: '' };
  if (error instanceof JsonError) return { ...say(t.noJson, ''), told: explainJson(error) };
  if (!(error instanceof ApiError)) return say(t.odd, t.oddDo);
  switch (error.status) {
    case 401:
      return error.isRefusal
        ? say(t.forbidden, t.forbiddenDo)
        : say(t.unauthorized, t.unauthorizedDo);
    case 403:
      return say(t.forbidden, t.forbiddenDo);
    case 404:
      return say(t.notFound, t.notFoundDo);
    case 409:
      return say(t.conflict, t.conflictDo);
    case 412:
      return say(t.exists, t.existsDo);
    case 413:
      return say(t.tooLarge, t.tooLargeDo);
    case 429:
    case 503:
      return say(t.busy, t.busyDo);
    default:
      return error.status < 500 ? say(t.bad, t.badDo) : say(t.fault, t.faultDo);
  }
}

/** An error where it happened. It stays until it is dismissed or what it is about is tried again. */
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

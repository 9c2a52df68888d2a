import { isLost } from '../api/connection';
import { ApiError, LostError } from '../api/errors';
import { JsonError } from '../json';
import { explainJson } from './mistakes';
import { words } from './texts';

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
  if (error instanceof LostError)
    return { ...(isLost.value ? say(t.lost, t.lostDo) : say(t.back, t.backDo)), told: '' };
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

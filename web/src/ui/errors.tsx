import type { JSX } from 'preact';
import { explain } from './explain';
import { Icon } from './icons';
import { words } from './texts';

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

import type { JSX } from 'preact';
import { ApiError } from '../../../api';
import { Problem } from '../../../ui';
import { say } from './texts';

/** An error of Mango, and what to do about it. */
export function Refused({
  error,
  retry,
}: {
  error: unknown;
  retry?: () => void;
}): JSX.Element | null {
  const help = error instanceof ApiError ? say().errors[error.error] : undefined;
  if (error === undefined) return null;
  return (
    <>
      <Problem error={error} {...(retry ? { retry } : {})} />
      {help && <p class="notice">{help}</p>}
    </>
  );
}

import type { JSX } from 'preact';
import { Problem } from '../../../ui';
import { say } from './texts';

/** What the server said of a query or a definition, and what may help. */
export function Refused({
  error,
  ...rest
}: {
  error: unknown;
  retry?: () => void;
  dismiss?: () => void;
}): JSX.Element | null {
  if (error === undefined) return null;
  const told = error instanceof Error ? error.message : '';
  const help = say().errors.find(([pattern]) => pattern.test(told))?.[1];
  return (
    <>
      <Problem error={error} {...rest} />
      {help && <p class="notice">{help}</p>}
    </>
  );
}

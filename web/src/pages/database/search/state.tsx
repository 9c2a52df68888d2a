import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { type Resource, useResource } from '../../../api';
import { bytes, count } from '../../../i18n';
import { Badge } from '../../../ui';
import { t as ofDatabase } from '../texts';
import { say as ofViews } from '../views/texts';
import { type Of, type State, stateOf } from './ask';
import { say } from './texts';

const POLL_MS = 4000;

/** How an index is; asked again `after` it was searched. */
export function useIndexState(of: Of, after?: unknown): Resource<State> {
  const told = useResource(
    `${of.kind} ${of.db}/${of.design}/${of.name}`,
    (signal) => stateOf(of, signal),
    POLL_MS,
  );
  useEffect(() => {
    if (after !== undefined) told.reload();
  }, [after]);
  return told;
}

/** How much an index has, and whether it has all. */
export function IndexState({
  told: { data, error },
}: {
  told: Resource<State>;
}): JSX.Element | null {
  if (error !== undefined) {
    const told = error instanceof Error ? error.message : '';
    return (
      <span title={told}>
        <Badge kind="bad">{told}</Badge>
      </span>
    );
  }
  if (!data) return null;
  const { docs, size, behind, isBarren } = data;
  return (
    <>
      {ofDatabase().count(count(docs))}, {bytes(size)}{' '}
      {behind > 0 ? (
        <Badge kind="info">{ofViews().behind(count(behind))}</Badge>
      ) : isBarren ? (
        <Badge kind="warn">{say().barren}</Badge>
      ) : (
        <Badge kind="good">{ofViews().current}</Badge>
      )}
    </>
  );
}

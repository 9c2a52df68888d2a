import type { JSX } from 'preact';
import { count } from '../../../i18n';
import { words } from '../../../ui';
import type { Answer, Facet } from './ask';
import type { Narrow } from './request';
import { say } from './texts';

const SHOWN_MAX = 10;

/** A value that can be seen. */
export const shown = (value: string): string =>
  value.trim() === '' ? JSON.stringify(value) : value;

/**
 * How many hits have which value, or are in which range: pressed, these are shown alone, and
 * pressed again, with the others.
 */
export function Facets({
  answer,
  narrows,
  isGuess,
  onNarrow,
}: {
  answer: Answer;
  narrows: Narrow[];
  isGuess: boolean;
  onNarrow: (one: Narrow) => void;
}): JSX.Element | null {
  // Nobody asked to count what is different in every document.
  const tellsNothing = ([field, of]: Answer['counts'][number]) =>
    isGuess &&
    of.length > SHOWN_MAX &&
    of.every(([, hits]) => hits === 1) &&
    !narrows.some((one) => one[0] === field);
  const all = [
    ...answer.counts
      .filter((each) => !tellsNothing(each))
      .map(([field, of]) => [field, of, false] as const),
    ...answer.ranges.map(([field, of]) => [field, of, true] as const),
  ].filter(([, of]) => of.length > 0);
  if (all.length === 0) return null;
  const button = (field: string, [value, hits]: Facet, isRange: boolean) => {
    const isOn = narrows.some((one) => one[0] === field && one[1] === value);
    return (
      <li key={value}>
        <button
          type="button"
          class="plain"
          aria-pressed={isOn}
          disabled={!isOn && hits === 0}
          onClick={() => onNarrow([field, value, isRange])}
        >
          <span class="cut" title={value}>
            {shown(value)}
          </span>{' '}
          <small>{count(hits)}</small>
        </button>
      </li>
    );
  };
  return (
    <aside class="search-facets" aria-label={say().narrow}>
      {all.map(([field, of, isRange]) => (
        <section key={`${field} ${isRange}`}>
          <h3>{field}</h3>
          <ul>{of.slice(0, SHOWN_MAX).map((each) => button(field, each, isRange))}</ul>
          {of.length > SHOWN_MAX && (
            <details>
              <summary>{words().more}</summary>
              <ul>{of.slice(SHOWN_MAX).map((each) => button(field, each, isRange))}</ul>
            </details>
          )}
        </section>
      ))}
    </aside>
  );
}

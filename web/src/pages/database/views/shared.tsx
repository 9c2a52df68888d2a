import type { JSX } from 'preact';
import { useLayoutEffect } from 'preact/hooks';
import type { Complete, Mistake, Mode } from '../../../editor';
import { setGuard } from '../../../router';
import { Button, CopyButton, Editor, words } from '../../../ui';
import './parts.css';
import { say } from './texts';

export { docLink as toDocument } from '../address';

export function CopyCurl({ text }: { text: () => string }): JSX.Element {
  return <CopyButton text={text}>{say().curl}</CopyButton>;
}

/** An editor with its name above it. */
export function Code({
  label,
  isSmall,
  ...rest
}: {
  label: string;
  isSmall?: boolean;
  value: string;
  mode: Mode;
  onChange?: (value: string) => void;
  onSave?: () => void;
  onRun?: () => void;
  isReadOnly?: boolean;
  mistakes?: Mistake[];
  focus?: boolean;
  complete?: Complete;
}): JSX.Element {
  return (
    <div class={`views-code${isSmall ? ' small' : ''}`}>
      <span>{label}</span>
      <Editor label={label} {...rest} />
    </div>
  );
}

/** One of few, as buttons. */
export function Switch<T extends string>({
  label,
  value,
  of,
  onChange,
}: {
  label: string;
  value: T;
  of: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}): JSX.Element {
  return (
    <div class="row-of" role="group" aria-label={label}>
      {of.map(([each, name]) => (
        <Button key={each} aria-pressed={each === value} onClick={() => onChange(each)}>
          {name}
        </Button>
      ))}
    </div>
  );
}

/** Asks before the page is left, while there is unsaved text. */
export function useGuard(isChanged: boolean): void {
  // With what is drawn: nobody is asked any more who sees that all is saved.
  useLayoutEffect(() => {
    setGuard(isChanged ? () => window.confirm(words().unsaved) : undefined);
    return () => setGuard(undefined);
  }, [isChanged]);
}

/** Above options that are folded away: those that count. */
export function Chosen({ title, all }: { title: string; all: string[] }): JSX.Element {
  return (
    <summary>
      <span>{title}</span>{' '}
      {all.map((each) => (
        <code key={each} class="soft">
          {each.slice(0, 60)}{' '}
        </code>
      ))}
    </summary>
  );
}

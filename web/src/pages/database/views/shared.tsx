import type { JSX } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';
import { ApiError, url } from '../../../api';
import type { Mistake, Mode } from '../../../editor';
import { texts } from '../../../i18n';
import { type Json, JsonError, parse, print } from '../../../json';
import { setGuard } from '../../../router';
import { Button, Editor, explainJson, words } from '../../../ui';
import './parts.css';

const say = texts({ curl: 'Copy as curl' }, { curl: 'Als curl kopieren' });

/** What is wrong with a text that should be JSON; `undefined` for nothing, and for an empty one. */
export function wrongJson(source: string): string | undefined {
  if (source.trim() === '') return undefined;
  try {
    parse(source);
    return undefined;
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return explainJson(error);
  }
}

export { docLink as toDocument } from '../address';

/** A value on one line, not longer than a cell can show. */
export function brief(value: Json | undefined, length = 300): string {
  if (value === undefined) return '';
  const all = print(value);
  return all.length > length ? `${all.slice(0, length)}…` : all;
}

/** The line that a server's words about a function name. */
export function lineOf(reason: string): number | undefined {
  const found =
    /\bline:? (\d+)/i.exec(reason) ??
    /(?:<[\w.]+>|\.js|\(function\)|map|reduce):(\d+)/.exec(reason);
  return found ? Number(found[1]) : undefined;
}

/** The server refuses a function that it cannot compile, and does not always say in which line: then the grammar does. */
export async function located(error: unknown, source: string): Promise<unknown> {
  if (
    !(error instanceof ApiError) ||
    error.error !== 'compilation_error' ||
    lineOf(error.reason) !== undefined
  )
    return error;
  const { lineOfMistake } = await import('../../../editor');
  const line = lineOfMistake(source);
  return line === undefined
    ? error
    : new ApiError(error.status, error.error, `${error.reason} (line ${line})`, error.requestId);
}

/** As a request of a shell. */
export function curl(
  method: string,
  to: string,
  query: Record<string, string> = {},
  body?: string,
): string {
  const quoted = (part: string) => `'${part.replaceAll("'", "'\\''")}'`;
  const parts = ['curl', ...(method === 'GET' ? [] : ['-X', method]), quoted(url(to, query).href)];
  if (body !== undefined)
    parts.push('-H', quoted('Content-Type: application/json'), '-d', quoted(body));
  return parts.join(' ');
}

export function CopyCurl({ text }: { text: () => string }): JSX.Element {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text());
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <Button icon={isCopied ? 'check' : 'copy'} onClick={copy}>
      {isCopied ? words().copied : say().curl}
    </Button>
  );
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
  isReadOnly?: boolean;
  mistakes?: Mistake[];
  focus?: boolean;
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

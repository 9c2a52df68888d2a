import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { Problem } from './errors';
import { Icon, type IconName } from './icons';
import { words } from './texts';

type ButtonProps = Omit<JSX.IntrinsicElements['button'], 'onClick' | 'icon'> & {
  icon?: IconName;
  kind?: 'plain' | 'primary' | 'danger' | undefined;
  /** While its promise runs, the button cannot be pressed again. */
  onClick?: () => unknown;
  /** For a button of an icon alone. */
  label?: string;
};

export function Button({
  icon,
  kind,
  onClick,
  label,
  children,
  disabled,
  class: more,
  ...rest
}: ButtonProps): JSX.Element {
  const [isBusy, setBusy] = useState(false);
  const press = () => {
    const done = onClick?.();
    if (!(done instanceof Promise)) return;
    setBusy(true);
    void done.finally(() => setBusy(false));
  };
  return (
    <button
      type="button"
      {...rest}
      class={[kind, more].filter(Boolean).join(' ')}
      disabled={disabled || isBusy}
      aria-busy={isBusy}
      aria-label={label}
      title={label}
      onClick={press}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

interface FieldProps {
  label: string;
  /** Below the control: what is meant. */
  hint?: ComponentChildren;
  /** What is wrong with what was given. */
  error?: string | undefined;
  children: (id: string, described: string | undefined) => ComponentChildren;
}

/** A control with its label. */
export function Field({ label, hint, error, children }: FieldProps): JSX.Element {
  const id = useId();
  const described = hint || error ? `${id}-hint` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, described)}
      {described && (
        <small id={described} class={error ? 'wrong' : ''}>
          {error ?? hint}
        </small>
      )}
    </div>
  );
}

interface TextProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  hint?: ComponentChildren;
  error?: string | undefined;
  type?: 'text' | 'password' | 'search' | 'url' | 'number';
  placeholder?: string;
  autocomplete?: string;
  required?: boolean;
  disabled?: boolean;
  focus?: boolean;
  list?: string[];
}

export function TextField({
  label,
  value,
  onInput,
  hint,
  error,
  focus,
  list,
  type = 'text',
  ...rest
}: TextProps): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  // A dialog that opens gives the focus to `autofocus`, before anything is typed.
  useEffect(() => {
    if (focus) input.current?.focus();
  }, []);
  return (
    <Field label={label} hint={hint} error={error}>
      {(id, described) => (
        <>
          <input
            {...(rest as object)}
            {...({ type, list: list && `${id}-list` } as { type: 'text' })}
            id={id}
            ref={input}
            autofocus={focus}
            value={value}
            aria-describedby={described}
            aria-invalid={error !== undefined}
            autocapitalize="off"
            spellcheck={false}
            onInput={(event) => onInput(event.currentTarget.value)}
          />
          {list && (
            <datalist id={`${id}-list`}>
              {list.map((each) => (
                <option key={each} value={each} />
              ))}
            </datalist>
          )}
        </>
      )}
    </Field>
  );
}

export function Choice<T extends string>({
  label,
  value,
  of,
  onChange,
  hint,
  disabled,
}: {
  label: string;
  value: T;
  of: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
  hint?: ComponentChildren;
  disabled?: boolean;
}): JSX.Element {
  return (
    <Field label={label} hint={hint}>
      {(id, described) => (
        <select
          id={id}
          aria-describedby={described}
          value={value}
          disabled={disabled}
          onChange={(event) => onChange(event.currentTarget.value as T)}
        >
          {of.map(([each, name]) => (
            <option key={each} value={each} selected={each === value}>
              {name}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function Check({
  label,
  value,
  onChange,
  hint,
  disabled,
}: {
  label: string;
  value: boolean;
  onChange: (value: boolean) => void;
  hint?: string;
  disabled?: boolean;
}): JSX.Element {
  const id = useId();
  return (
    <div class="check">
      <input
        id={id}
        type="checkbox"
        checked={value}
        disabled={disabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <label for={id}>
        {label}
        {hint && <small>{hint}</small>}
      </label>
    </div>
  );
}

/** A form that sends by Enter, shows what went wrong, and cannot be sent twice at once. */
export function Form({
  onSubmit,
  children,
  submit,
  kind = 'primary',
  onCancel,
  disabled,
}: {
  onSubmit: () => Promise<unknown>;
  children: ComponentChildren;
  submit: string;
  kind?: 'primary' | 'danger';
  onCancel?: () => void;
  disabled?: boolean;
}): JSX.Element {
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const alive = useRef(true);
  useEffect(
    () => () => {
      alive.current = false;
    },
    [],
  );
  const send = async (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(undefined);
    try {
      await onSubmit();
    } catch (thrown) {
      if (alive.current) setError(thrown);
    }
    if (alive.current) setBusy(false);
  };
  return (
    <form onSubmit={(event) => void send(event)} noValidate={false}>
      {children}
      <Problem error={error} dismiss={() => setError(undefined)} />
      <div class="actions">
        {onCancel && (
          <button type="button" onClick={onCancel}>
            {words().cancel}
          </button>
        )}
        <button type="submit" class={kind} disabled={isBusy || disabled} aria-busy={isBusy}>
          {submit}
        </button>
      </div>
    </form>
  );
}

export interface Tab {
  id: string;
  name: string;
  href?: string;
}

/** Places of one page, each with an address. */
export function Tabs({
  label,
  tabs,
  current,
}: {
  label: string;
  tabs: Tab[];
  current: string;
}): JSX.Element {
  const all = useRef<HTMLElement>(null);
  useEffect(
    () =>
      all.current
        ?.querySelector('[aria-current]')
        ?.scrollIntoView({ block: 'nearest', inline: 'center' }),
    [current],
  );
  return (
    <nav class="tabs" aria-label={label} ref={all}>
      {tabs.map((tab) => (
        <a key={tab.id} href={tab.href} aria-current={tab.id === current ? 'page' : undefined}>
          {tab.name}
        </a>
      ))}
    </nav>
  );
}

/** What stands where there is nothing. */
export function Empty({
  icon,
  title,
  children,
}: {
  icon: IconName;
  title: string;
  children?: ComponentChildren;
}): JSX.Element {
  return (
    <div class="empty">
      <Icon name={icon} />
      <p>{title}</p>
      {children}
    </div>
  );
}

/** Room for what is being loaded, so that nothing jumps. */
export function Loading({ lines = 6 }: { lines?: number }): JSX.Element {
  return (
    <div class="loading" role="status" aria-label={words().loading}>
      {Array.from({ length: lines }, (_, n) => (
        <span key={n} />
      ))}
    </div>
  );
}

/** A small word beside a name. */
export function Badge({
  kind = '',
  children,
}: {
  kind?: '' | 'good' | 'warn' | 'bad' | 'info';
  children: ComponentChildren;
}): JSX.Element {
  return <span class={`badge ${kind}`}>{children}</span>;
}

/** How far something is, 0 to 1. */
export function Progress({ value, label }: { value: number; label: string }): JSX.Element {
  return <progress value={Math.min(1, Math.max(0, value))} max={1} aria-label={label} />;
}

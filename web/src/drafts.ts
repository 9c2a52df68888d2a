import { session } from './api';

const PREFIX = 'settee-draft ';

function keyOf(name: string): string {
  return `${PREFIX}${session.value?.name ?? ''} ${name}`;
}

/**
 * What was typed under this name and not sent. It outlives the tab, until its user logs out.
 */
export function draftOf<T>(name: string): T | undefined {
  try {
    return (JSON.parse(localStorage.getItem(keyOf(name)) ?? 'null') ?? undefined) as T | undefined;
  } catch {
    return undefined;
  }
}

/** Keeps what is typed. A browser without room for it keeps nothing. */
export function keepDraft(name: string, value: unknown): void {
  try {
    localStorage.setItem(keyOf(name), JSON.stringify(value));
  } catch {
    forgetDraft(name);
  }
}

export function forgetDraft(name: string): void {
  localStorage.removeItem(keyOf(name));
}

export function forgetDrafts(): void {
  for (const key of Object.keys(localStorage))
    if (key.startsWith(PREFIX)) localStorage.removeItem(key);
}

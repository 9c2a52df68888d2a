import { signal } from '@preact/signals';
import { ask, session } from './api';

/** How many findings of the doctor an administrator should act on. */
export const findings = signal<number | undefined>(undefined);

/** An examination takes up to some seconds of the server: it is not asked for with each page. */
const EVERY_MS = 1_800_000;
const FIRST_MS = 5000;
const KEPT = 'settee-health';

interface Kept {
  at: number;
  of: string | null;
  count: number;
}

/** Takes note of what the doctor found. */
export function examined(found: { severity: string }[]): void {
  const count = found.filter(({ severity }) => severity !== 'note').length;
  findings.value = count;
  const kept: Kept = { at: Date.now(), of: session.value?.name ?? null, count };
  sessionStorage.setItem(KEPT, JSON.stringify(kept));
}

function kept(): Kept | undefined {
  const found = JSON.parse(sessionStorage.getItem(KEPT) ?? 'null') as Kept | null;
  const isOwn = found?.of === (session.value?.name ?? null);
  return found && isOwn && Date.now() - found.at < EVERY_MS ? found : undefined;
}

/** Examines the server once in a while, while the page is looked at; answers what ends that. */
export function watchHealth(): () => void {
  let timer: ReturnType<typeof setTimeout>;
  const turn = async () => {
    const known = kept();
    findings.value = known?.count ?? findings.value;
    if (!known && !document.hidden)
      await ask<{ findings: { severity: string }[] }>('GET', '/_settee/doctor', {
        background: true,
      })
        // Other servers have no doctor.
        .then(
          (told) => examined(told.findings),
          () => undefined,
        );
    timer = setTimeout(() => void turn(), EVERY_MS / 10);
  };
  timer = setTimeout(() => void turn(), kept() ? 0 : FIRST_MS);
  return () => clearTimeout(timer);
}

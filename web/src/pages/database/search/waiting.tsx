import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { useResource } from '../../../api';
import { count } from '../../../i18n';
import { Button } from '../../../ui';
import { type Of, progressOf } from './ask';
import { say } from './texts';

/** Most searches are answered before this. */
const PATIENCE_MS = 700;
const POLL_MS = 1000;

/** While a search waits for its index: how far that is, and a way to wait no longer. */
export function Waiting({ of, onNow }: { of: Of; onNow: () => void }): JSX.Element | null {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, []);
  const { data } = useResource(
    isLate ? `progress ${of.kind} ${of.db}/${of.design}/${of.name}` : undefined,
    (signal) => progressOf(of, signal),
    POLL_MS,
  );
  if (!data || data.done >= data.all) return null;
  const t = say();
  return (
    <div class="notice row-of search-waits">
      <span class="grow" role="status">
        {data.done > 0 ? t.buildingSo(count(data.done), count(data.all)) : t.building}
      </span>
      <Button onClick={onNow}>{t.asItIs}</Button>
    </div>
  );
}

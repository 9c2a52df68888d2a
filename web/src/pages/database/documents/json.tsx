import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { count } from '../../../i18n';
import { Obj, print } from '../../../json';
import { Button, Loading } from '../../../ui';
import type { DocRow, Rows } from './rows';
import { Id, Pick, type Picking } from './table';
import { t } from './texts';

const PAGE = 20;
const SHOWN_MAX = 50_000;

/** Documents as they are, some at a time. */
export function DocsJson({
  db,
  rows,
  from,
  setFrom,
  seen,
  picking,
}: {
  db: string;
  rows: Rows;
  from: number;
  setFrom: (from: number) => void;
  seen: (from: number, to: number) => void;
  picking: Picking;
}): JSX.Element {
  const all = rows.count ?? 0;
  const to = Math.min(all, from + PAGE);
  useEffect(() => seen(from, to), [from, to, rows]);
  const shown = Array.from(
    { length: to - from },
    (_, n) => [from + n, rows.row(from + n)] as const,
  );
  return (
    <>
      <ul class="docs-json" key={from} tabIndex={0} aria-label={t().list}>
        {shown.map(([index, row]) => (
          <li key={index}>
            {row ? (
              <>
                <header>
                  <Pick row={row} index={index} rows={rows} picking={picking} />
                  <span class="grow cut">
                    <Id db={db} row={row} />
                  </span>
                  <small class="soft">{count(index + 1)}</small>
                </header>
                <Text row={row} />
              </>
            ) : (
              <Loading lines={4} />
            )}
          </li>
        ))}
      </ul>
      <div class="bar">
        <Button icon="left" disabled={from === 0} onClick={() => setFrom(Math.max(0, from - PAGE))}>
          {t().before}
        </Button>
        <Button disabled={to >= all} onClick={() => setFrom(to)}>
          {t().after}
        </Button>
        <span class="soft">{t().span(count(from + 1), count(to), count(all))}</span>
      </div>
    </>
  );
}

function Text({ row }: { row: DocRow }): JSX.Element | null {
  const text = useMemo(
    () => row.doc && print(new Obj([...row.doc].filter(([name]) => name !== '_conflicts')), 2),
    [row.doc],
  );
  if (text === undefined) return null;
  return (
    <pre tabIndex={0}>
      {text.slice(0, SHOWN_MAX)}
      {text.length > SHOWN_MAX && '…'}
    </pre>
  );
}

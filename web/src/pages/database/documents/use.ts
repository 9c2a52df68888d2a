import { useEffect, useRef, useState } from 'preact/hooks';
import { returns } from '../../../api';
import type { Info } from '../../databases/infos';
import type { Range } from './range';
import { Rows } from './rows';

/** About so many bytes at once. */
const PAGE_BYTES = 2_000_000;
/** Documents of this size, on average, are not loaded unless they are asked for. */
const HEAVY_BYTES = 100_000;

function average(info: Info): number {
  return (info.sizes.external || info.sizes.file) / Math.max(1, info.doc_count);
}

export function isHeavy(info: Info | undefined): boolean {
  return info !== undefined && average(info) > HEAVY_BYTES;
}

interface Used {
  rows: Rows | undefined;
  reload: () => void;
  seen: (from: number, to: number) => void;
}

/**
 * The rows of a range. They are loaded again when the database changed, or the server was away;
 * what was there stays meanwhile.
 */
export function useRows(db: string, range: Range, withDocs: boolean, info: Info | undefined): Used {
  const [shown, setShown] = useState<{ key: string; rows: Rows }>();
  const [, draw] = useState(0);
  const [round, setRound] = useState(0);
  const looked = useRef<[number, number]>([0, 30]);
  const key = JSON.stringify([db, range, withDocs]);
  const isReady = info !== undefined;
  const came = returns.value;
  useEffect(() => {
    if (!info) return;
    const size = withDocs
      ? Math.min(100, Math.max(5, Math.floor(PAGE_BYTES / Math.max(1, average(info)))))
      : 200;
    let isBegun = false;
    const rows = new Rows(db, range, withDocs, size, () => {
      draw((n) => n + 1);
      if (isBegun) return;
      isBegun = true;
      setShown({ key, rows });
      rows.seen(...looked.current);
    });
    void rows.begin();
    return () => rows.close();
  }, [key, round, isReady, came, String(info?.update_seq)]);
  return {
    // Of another range, nothing is shown under these options.
    rows: shown?.key === key ? shown.rows : undefined,
    reload: () => setRound((n) => n + 1),
    seen: (from, to) => {
      looked.current = [from, to];
      shown?.rows.seen(from, to);
    },
  };
}

import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, usePoll } from '../../api';

/** What `GET /{db}` says. */
export interface Info {
  db_name: string;
  doc_count: number;
  doc_del_count: number;
  update_seq: string | number;
  purge_seq?: string | number;
  sizes: { file: number; external: number; active: number };
  props?: { partitioned?: boolean; access?: boolean };
  compact_running?: boolean;
  cluster?: { q: number; n: number; w: number; r: number };
  disk_format_version?: number;
  instance_start_time?: string;
}

interface Told {
  key: string;
  info?: Info;
  error?: string;
}

/**
 * As many as a server answers at once, unless it is told otherwise
 * (`max_db_number_for_dbs_info_req`).
 */
const CHUNK = 100;
const PAGE = 2000;
const POLL_MS = 15_000;

export interface Infos {
  /** `undefined`: not known yet; `null`: the server does not tell. */
  of: (name: string) => Info | null | undefined;
  /** These are seen. */
  want: (names: string[]) => void;
  /** How many are known. */
  known: number;
  error: unknown;
}

/** What is known of databases: of those that are seen, and of all of them while `needsAll`. */
export function useInfos(needsAll: boolean, names: string[] | undefined): Infos {
  const kept = useRef({
    map: new Map<string, Info | null>(),
    asked: new Set<string>(),
    seen: [] as string[],
  }).current;
  const [, draw] = useState(0);
  const [error, setError] = useState<unknown>();
  const keep = (told: Told[]) => {
    setError(undefined);
    for (const each of told) kept.map.set(each.key, each.info ?? null);
    draw((n) => n + 1);
  };
  const load = async (wanted: string[]) => {
    for (const name of wanted) kept.asked.add(name);
    try {
      for (let n = 0; n < wanted.length; n += CHUNK)
        keep(
          await ask<Told[]>('POST', '/_dbs_info', {
            body: { keys: wanted.slice(n, n + CHUNK) },
            background: true,
          }),
        );
    } catch (thrown) {
      for (const name of wanted) kept.asked.delete(name);
      setError(thrown);
    }
  };
  useEffect(() => {
    if (!needsAll || !names || names.every((name) => kept.map.has(name))) return;
    const control = new AbortController();
    void loadAll(keep, control.signal).catch(
      (thrown: unknown) => !control.signal.aborted && setError(thrown),
    );
    return () => control.abort();
  }, [needsAll, names]);
  usePoll(() => void load(kept.seen), POLL_MS);
  return {
    of: (name) => kept.map.get(name),
    want: (seen) => {
      kept.seen = seen;
      const unknown = seen.filter((name) => !kept.asked.has(name) && !kept.map.has(name));
      if (unknown.length > 0) void load(unknown);
    },
    known: kept.map.size,
    error,
  };
}

async function loadAll(keep: (told: Told[]) => void, signal: AbortSignal): Promise<void> {
  for (let last: string | undefined; ; ) {
    const query =
      last === undefined
        ? { limit: PAGE }
        : { limit: PAGE, startkey: JSON.stringify(last), skip: 1 };
    const told = await ask<Told[]>('GET', '/_dbs_info', { query, signal, background: true });
    keep(told);
    last = told.at(-1)?.key;
    if (told.length < PAGE) return;
  }
}

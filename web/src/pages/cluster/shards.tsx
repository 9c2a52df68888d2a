import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ask, path, useResource } from '../../api';
import { count } from '../../i18n';
import { type Place, refine } from '../../router';
import { Empty, Loading, Problem, TextField } from '../../ui';
import { say } from './texts';

/** Where the shards of a database are: ranges of hashes downwards, nodes sidewards. */
export function Shards({ place, nodes }: { place: Place; nodes: string[] }): JSX.Element {
  const t = say();
  const db = place.query.get('db') ?? '';
  const id = place.query.get('id') ?? '';
  const [typed, setTyped] = useState(db);
  const [typedId, setTypedId] = useState(id);
  useEffect(
    () => later(() => typed !== db && refine({ db: typed || undefined, id: undefined })),
    [typed],
  );
  useEffect(() => later(() => typedId !== id && refine({ id: typedId || undefined })), [typedId]);
  const known = useResource(`names ${typed}`, (signal) =>
    ask<string[]>('GET', '/_all_dbs', {
      query: { start_key: JSON.stringify(typed), limit: 20 },
      signal,
    }),
  );
  const shards = useResource(
    db || undefined,
    async (signal) =>
      (await ask<{ shards: Record<string, string[]> }>('GET', `${path(db)}/_shards`, { signal }))
        .shards,
  );
  const found = useResource(
    db && id ? `${db} ${id}` : undefined,
    async (signal) =>
      (await ask<{ range: string }>('GET', `${path(db)}/_shards${path(id)}`, { signal })).range,
  );
  return (
    <section class="part">
      <h2>{t.shards}</h2>
      <div class="shard-asks">
        <TextField label={t.database} value={typed} onInput={setTyped} list={known.data ?? []} />
        <TextField label={t.document} value={typedId} onInput={setTypedId} hint={t.documentHint} />
      </div>
      <Problem
        error={shards.error ?? found.error}
        retry={shards.error ? shards.reload : found.reload}
      />
      {!db && <Empty icon="cluster" title={t.choose} />}
      {shards.isLoading && <Loading lines={3} />}
      {shards.data && (
        <ShardMap shards={shards.data} nodes={nodes} marked={id ? found.data : undefined} />
      )}
    </section>
  );
}

function ShardMap({
  shards,
  nodes,
  marked,
}: {
  shards: Record<string, string[]>;
  nodes: string[];
  marked: string | undefined;
}): JSX.Element {
  const t = say();
  const all = [...new Set([...nodes, ...Object.values(shards).flat()])];
  const ranges = Object.keys(shards).sort((a, b) => a.localeCompare(b));
  return (
    <div class="scrolls">
      <table class="plain shard-map" aria-label={t.shards}>
        <thead>
          <tr>
            <th>{t.range}</th>
            {all.map((node) => (
              <th key={node}>{node}</th>
            ))}
            <th class="end">{t.copies}</th>
          </tr>
        </thead>
        <tbody>
          {ranges.map((range) => (
            <tr
              key={range}
              class={range === marked ? 'marked' : ''}
              aria-current={range === marked ? 'true' : undefined}
            >
              <td class="mono">{range}</td>
              {all.map((node) => (
                <td key={node}>
                  {shards[range]?.includes(node) && (
                    <span class="shard" role="img" aria-label={t.isOn(range, node)} />
                  )}
                </td>
              ))}
              <td class="end">{count(shards[range]?.length ?? 0)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Does it when nobody typed for a moment. */
function later(work: () => unknown): () => void {
  const timer = setTimeout(work, 300);
  return () => clearTimeout(timer);
}

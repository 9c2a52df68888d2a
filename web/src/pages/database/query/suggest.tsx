import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { count, duration } from '../../../i18n';
import { type Json, member, Obj, parse, print } from '../../../json';
import { say as announce, Button } from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { createIndex, deleteIndex, fieldsOf, find, indexOf, type Stats, suggest } from './ask';
import { Refused } from './refused';
import { say } from './texts';

interface Measured {
  before: Stats | undefined;
  after: Stats | undefined;
  index: { ddoc: string; name: string; type: string };
}

/** The quickest of these many runs counts. */
const RUNS = 3;

async function best(db: string, partition: string, query: string): Promise<Stats | undefined> {
  let found: Stats | undefined;
  for (let n = 0; n < RUNS; n++) {
    const { stats } = await find(db, partition, query);
    if (stats && (!found || stats.seconds < found.seconds)) found = stats;
  }
  return found;
}

/** An index that would serve better, and what it gains, measured. */
export function Suggestion({
  db,
  partition,
  query,
  told,
}: {
  db: string;
  partition: string;
  query: string;
  told: Json;
}): JSX.Element {
  const t = say();
  const may = useMayManage(db);
  const [measured, setMeasured] = useState<Measured>();
  const [error, setError] = useState<unknown>();
  const fields = suggest(told);
  const used = fieldsOf(indexOf(member(told, 'index'))).map(([name]) => name);
  const isRefused = !(member(told, 'index') instanceof Obj);
  const measure = async () => {
    setError(undefined);
    try {
      const before = isRefused ? undefined : await best(db, partition, query);
      const made = await createIndex(db, fields, { partitioned: partition !== '' });
      const index = { ddoc: made.id, name: made.name, type: 'json' };
      const body = parse(query) as Obj;
      body.set('use_index', [made.id.replace(/^_design\//, ''), made.name]);
      const named = print(body);
      // The first run waits until the index is built.
      await find(db, partition, named);
      setMeasured({ before, after: await best(db, partition, named), index });
    } catch (thrown) {
      setError(thrown);
    }
  };
  const drop = async () => {
    if (!measured) return;
    try {
      await deleteIndex(db, measured.index);
      setMeasured(undefined);
      announce(t.dropped);
    } catch (thrown) {
      setError(thrown);
    }
  };
  const isFit = fields.length > 0 && fields.every((name, n) => used[n] === name);
  return (
    <section class="card" aria-label={t.suggestion}>
      <h2>{t.suggestion}</h2>
      {measured ? (
        <>
          <Gain {...measured} />
          <div class="row-of">
            <span class="soft grow text">{t.kept}</span>
            <Button onClick={drop}>{t.drop}</Button>
          </div>
        </>
      ) : fields.length === 0 || isFit ? (
        <p class="soft text">{isFit ? t.fits : t.noSuggestion}</p>
      ) : (
        <div class="row-of">
          <span class="grow text">
            {t.suggestText} <code>{fields.join(', ')}</code>
          </span>
          {may && (
            <Button kind="primary" icon="add" onClick={measure}>
              {t.measure}
            </Button>
          )}
          <OnlyAdmins may={may} />
        </div>
      )}
      <Refused error={error} />
    </section>
  );
}

function Gain({ before, after }: Measured): JSX.Element {
  const t = say();
  const factor = before && after ? before.docs / Math.max(1, after.docs) : 1;
  const rows: [string, (stats: Stats) => string][] = [
    [t.keys, (stats) => count(stats.keys)],
    [t.docs, (stats) => count(stats.docs)],
    [t.time, (stats) => duration(stats.seconds)],
  ];
  return (
    <>
      <table class="plain">
        <thead>
          <tr>
            <th />
            <th class="end">{t.before}</th>
            <th class="end">{t.after}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, of]) => (
            <tr key={name}>
              <td>{name}</td>
              <td class="end">{before ? of(before) : '–'}</td>
              <td class="end">{after ? of(after) : '–'}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class={factor > 1 ? 'notice good' : 'notice'}>
        {factor > 1 ? t.gain(count(Math.round(factor * 10) / 10)) : t.noGain}
      </p>
    </>
  );
}

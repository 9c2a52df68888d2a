import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { path } from '../../../api';
import type { Json } from '../../../json';
import { link, type Place, refine } from '../../../router';
import { Button, Empty, Loading, TextField } from '../../../ui';
import { Code, CopyCurl } from '../views/shared';
import { curl, wrongJson } from '../views/source';
import { explain, type Found, find, TEMPLATES } from './ask';
import { Explained } from './explain';
import { Indexes } from './indexes';
import { Refused } from './refused';
import { Results } from './results';
import { say } from './texts';

/** Mango: queries and their indexes. */
export default function Query({ db, place }: { db: string; place: Place }): JSX.Element {
  const t = say();
  const isIndexes = place.parts[2] === '_index';
  return (
    <div class="views-page">
      <nav class="row-of" aria-label="Mango">
        <a
          class="button"
          href={link(['database', db, '_find'])}
          aria-current={isIndexes ? undefined : 'page'}
        >
          {t.query}
        </a>
        <a
          class="button"
          href={link(['database', db, '_index'])}
          aria-current={isIndexes ? 'page' : undefined}
        >
          {t.indexes}
        </a>
      </nav>
      {isIndexes ? <Indexes db={db} /> : <Editing db={db} place={place} />}
    </div>
  );
}

/** Longer queries are not kept in the address. */
const ADDRESS_MAX = 4000;

type Answer = { found: Found; query: string } | { explained: Json; query: string };

function Editing({ db, place }: { db: string; place: Place }): JSX.Element {
  const t = say();
  const [begin, setBegin] = useState(place.query.get('q') ?? TEMPLATES.all);
  const [now, setNow] = useState(begin);
  const [partition, setPartition] = useState(place.query.get('partition') ?? '');
  const [answer, setAnswer] = useState<Answer>();
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const wrong = wrongJson(now) ?? (now.trim() === '' ? wrongJson(' x') : undefined);
  const use = (template: string) => {
    setBegin(template);
    setNow(template);
  };
  // Another query in the address takes the place of what is there, unless it came from here.
  const told = place.query.get('q') ?? '';
  const own = useRef(told);
  useEffect(() => {
    if (told === own.current) return;
    own.current = told;
    use(told || TEMPLATES.all);
    setAnswer(undefined);
    setError(undefined);
  }, [told]);
  const work = async (load: () => Promise<Answer>) => {
    if (wrong || isBusy) return;
    own.current = now.length <= ADDRESS_MAX ? now : '';
    refine({ q: own.current, partition });
    setBusy(true);
    setError(undefined);
    try {
      setAnswer(await load());
    } catch (thrown) {
      setError(thrown);
    }
    setBusy(false);
  };
  const run = () => work(async () => ({ found: await find(db, partition, now), query: now }));
  const tell = () =>
    work(async () => ({ explained: await explain(db, partition, now), query: now }));
  const at = path(db) + (partition ? path('_partition', partition) : '');
  return (
    <div class="split">
      <div>
        <div class="bar">
          <select
            class="short"
            aria-label={t.template}
            value=""
            onChange={(event) =>
              use(TEMPLATES[event.currentTarget.value as keyof typeof TEMPLATES])
            }
          >
            <option value="" disabled selected>
              {t.template}
            </option>
            {Object.entries(t.templates).map(([id, name]) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
          <span class="grow" />
          <CopyCurl text={() => curl('POST', `${at}/_find`, {}, now)} />
          <Button onClick={tell} disabled={!!wrong} icon="info">
            {t.explain}
          </Button>
          <Button onClick={run} disabled={!!wrong} kind="primary" icon="play">
            {t.run}
          </Button>
        </div>
        <Code
          label={t.query}
          mode="json"
          value={begin}
          onChange={setNow}
          onSave={() => void run()}
        />
        {wrong && (
          <p class="notice warn" role="status">
            {wrong}
          </p>
        )}
        <details open={partition !== ''}>
          <summary>{t.partition}</summary>
          <TextField label={t.partition} value={partition} onInput={setPartition} />
        </details>
      </div>
      <div>
        <Refused error={error} retry={() => void run()} />
        {isBusy && !answer && <Loading />}
        {!answer && !isBusy && error === undefined && (
          <Empty icon="search" title={t.press}>
            <span>{t.pressDo}</span>
          </Empty>
        )}
        {answer && 'found' in answer && (
          <Results
            key={answer.query}
            db={db}
            found={answer.found}
            more={async (bookmark) => find(db, partition, answer.query, bookmark)}
          />
        )}
        {answer && 'explained' in answer && (
          <Explained db={db} partition={partition} query={answer.query} told={answer.explained} />
        )}
      </div>
    </div>
  );
}

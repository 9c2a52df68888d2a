import type { JSX } from 'preact';
import { path } from '../../../api';
import { link, type Place } from '../../../router';
import { Button, Empty, Loading, TextField } from '../../../ui';
import { Code, CopyCurl } from '../views/shared';
import { curl } from '../views/source';
import { find, TEMPLATES } from './ask';
import { Explained } from './explain';
import { KeptButtons } from './history';
import { Indexes } from './indexes';
import { Needed, needsIndex } from './needed';
import { Refused } from './refused';
import { Results } from './results';
import { say } from './texts';
import { type Asked, useAsked, useCompletion, useEditing, useKept, useRunAtOnce } from './use';

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

function Editing({ db, place }: { db: string; place: Place }): JSX.Element {
  const t = say();
  const queries = useKept(db);
  const editing = useEditing(db, place, () => asked.forget());
  const { now, partition, wrong, take } = editing;
  const asked = useAsked(db, editing, (query) => queries.ran(query, partition));
  const { run, tell } = asked;
  const { complete, prepare } = useCompletion(db);
  useRunAtOnce(place, now, run);
  const at = path(db) + (partition ? path('_partition', partition) : '');
  return (
    <div class="split">
      <div>
        <div class="bar">
          <Templates take={take} />
          <KeptButtons {...queries} {...{ partition, take }} query={now} isWrong={!!wrong} />
          <span class="grow" />
          <CopyCurl text={() => curl('POST', `${at}/_find`, {}, now)} />
          <Button onClick={tell} disabled={!!wrong} icon="info">
            {t.explain}
          </Button>
          <Button onClick={run} disabled={!!wrong} kind="primary" icon="play">
            {t.run}
          </Button>
        </div>
        <div class="query-editor" onFocusIn={prepare}>
          <Code
            key={editing.round}
            label={t.query}
            mode="json"
            value={editing.begin}
            onChange={editing.change}
            onSave={() => void run()}
            onRun={() => void run()}
            complete={complete}
          />
        </div>
        <small class="soft">{t.editing}</small>
        {wrong && (
          <p class="notice warn" role="status">
            {wrong}
          </p>
        )}
        <details open={partition !== ''}>
          <summary>{t.partition}</summary>
          <TextField label={t.partition} value={partition} onInput={editing.setPartition} />
        </details>
      </div>
      <Answers {...{ db, partition, asked, place }} />
    </div>
  );
}

/** What came of the query: documents or groups, its explanation, an error. */
function Answers({
  db,
  partition,
  asked: { answer, error, sent, isBusy, run },
  place,
}: {
  db: string;
  partition: string;
  asked: Asked;
  place: Place;
}): JSX.Element {
  const t = say();
  return (
    <div>
      {needsIndex(error) ? (
        <Needed {...{ db, partition, error }} query={sent} again={() => void run()} />
      ) : (
        <Refused error={error} retry={() => void run()} />
      )}
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
          place={place}
          more={async (bookmark) => find(db, partition, answer.query, bookmark)}
        />
      )}
      {answer && 'explained' in answer && (
        <Explained db={db} partition={partition} query={answer.query} told={answer.explained} />
      )}
    </div>
  );
}

function Templates({ take }: { take: (text: string) => void }): JSX.Element {
  const t = say();
  return (
    <select
      class="short"
      aria-label={t.template}
      value=""
      onChange={(event) => take(TEMPLATES[event.currentTarget.value as keyof typeof TEMPLATES])}
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
  );
}

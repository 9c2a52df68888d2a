import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { refine } from '../../../router';
import { Button, Check, Field, TextField } from '../../../ui';
import { beginning, queryOf, type Range } from './range';
import { t } from './texts';

/** What of `_all_docs` can be chosen. */
export function Options({
  range,
  isPartitioned,
}: {
  range: Range;
  isPartitioned: boolean;
}): JSX.Element {
  const [start, setStart] = useState(range.start ?? '');
  const [end, setEnd] = useState(range.end ?? '');
  const [prefix, setPrefix] = useState('');
  const [keys, setKeys] = useState(range.keys?.join('\n') ?? '');
  const [limit, setLimit] = useState(range.limit === undefined ? '' : String(range.limit));
  const [skip, setSkip] = useState(range.skip ? String(range.skip) : '');
  const [isDown, setDown] = useState(range.isDown ?? false);
  const [isInclusive, setInclusive] = useState(!range.isExclusive);
  const [partition, setPartition] = useState(range.partition ?? '');
  const begin = (to: string) => {
    setPrefix(to);
    const both = to === '' ? {} : beginning(to, isDown);
    setStart(both.start ?? '');
    setEnd(both.end ?? '');
  };
  const apply = (event: Event) => {
    event.preventDefault();
    const to: Range = { isDown, isExclusive: !isInclusive, partition, skip: Number(skip) || 0 };
    const list = keys.split('\n').filter((key) => key !== '');
    if (list.length > 0) to.keys = list;
    else {
      if (start !== '') to.start = start;
      if (end !== '') to.end = end;
    }
    if (limit !== '') to.limit = Number(limit);
    refine(queryOf(to));
  };
  return (
    <form class="card" onSubmit={apply} aria-label={t().range}>
      <div class="options">
        {isPartitioned && (
          <TextField label={t().partition} value={partition} onInput={setPartition} />
        )}
        <TextField label={t().prefix} hint={t().prefixHint} value={prefix} onInput={begin} focus />
        <TextField label={t().start} value={start} onInput={setStart} />
        <TextField label={t().end} value={end} onInput={setEnd} />
        <TextField label={t().limit} type="number" value={limit} onInput={setLimit} />
        <TextField label={t().skip} type="number" value={skip} onInput={setSkip} />
        <Field label={t().keys} hint={t().keysHint}>
          {(id, described) => (
            <textarea
              id={id}
              aria-describedby={described}
              rows={2}
              spellcheck={false}
              value={keys}
              onInput={(event) => setKeys(event.currentTarget.value)}
            />
          )}
        </Field>
        <div>
          <Check label={t().descending} value={isDown} onChange={setDown} />
          <Check label={t().inclusive} value={isInclusive} onChange={setInclusive} />
        </div>
      </div>
      <div class="actions">
        <Button onClick={() => refine(queryOf({}))}>{t().reset}</Button>
        <button type="submit" class="primary">
          {t().apply}
        </button>
      </div>
    </form>
  );
}

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { moment } from '../../../i18n';
import { Button, Dialog, Empty, Form, TextField, words } from '../../../ui';
import { type Kept, type KeptQuery, starOf, withoutHistory, withoutStar, withStar } from './kept';
import { say } from './texts';
import type { KeptQueries } from './use';

interface Props extends KeptQueries {
  /** The text of the editor. */
  query: string;
  partition: string;
  isWrong: boolean;
  take: (query: string, partition: string) => void;
}

/** Stars the query of the editor, and leads to those that were starred or run. */
export function KeptButtons({ kept, change, query, partition, isWrong, take }: Props): JSX.Element {
  const t = say();
  const [open, setOpen] = useState<'list' | 'star'>();
  const star = kept && starOf(kept, query, partition);
  const close = () => setOpen(undefined);
  return (
    <>
      <Button
        icon="star"
        label={star ? t.unstar : t.star}
        aria-pressed={star !== undefined}
        disabled={isWrong || !kept}
        onClick={() => (star ? change((old) => withoutStar(old, star)) : setOpen('star'))}
      />
      <Button icon="clock" label={t.history} disabled={!kept} onClick={() => setOpen('list')} />
      {open === 'star' && (
        <Star {...{ query, partition, change, close }} names={kept?.starred ?? []} />
      )}
      {open === 'list' && kept && (
        <List
          {...{ kept, change, close }}
          take={(each) => {
            close();
            take(each.query, each.partition ?? '');
          }}
        />
      )}
    </>
  );
}

function Star({
  query,
  partition,
  change,
  close,
  names,
}: {
  query: string;
  partition: string;
  change: KeptQueries['change'];
  close: () => void;
  names: KeptQuery[];
}): JSX.Element {
  const t = say();
  const [name, setName] = useState('');
  const isTaken = names.some((each) => each.name === name.trim());
  const save = async () => {
    const star = { query, at: Date.now(), name: name.trim(), ...(partition && { partition }) };
    await change((old) => withStar(old, star));
    close();
  };
  return (
    <Dialog title={t.star} onClose={close}>
      <Form onSubmit={save} submit={words().save} onCancel={close} disabled={name.trim() === ''}>
        <TextField
          label={words().name}
          value={name}
          onInput={setName}
          hint={isTaken ? t.replaces : t.starHint}
          autocomplete="off"
          focus
          required
        />
      </Form>
    </Dialog>
  );
}

function List({
  kept,
  change,
  close,
  take,
}: {
  kept: Kept;
  change: KeptQueries['change'];
  close: () => void;
  take: (query: KeptQuery) => void;
}): JSX.Element {
  const t = say();
  const [find, setFind] = useState('');
  const fits = ({ query, name = '' }: KeptQuery) =>
    `${name} ${query}`.toLowerCase().includes(find.toLowerCase());
  const [starred, history] = [kept.starred.filter(fits), kept.history.filter(fits)];
  return (
    <Dialog title={t.history} onClose={close} wide>
      <div class="query-kept">
        <TextField label={words().search} type="search" value={find} onInput={setFind} focus />
        {starred.length + history.length === 0 && <Empty icon="star" title={t.nothingKept} />}
        {starred.length > 0 && <h3>{t.starred}</h3>}
        <ul>
          {starred.map((each) => (
            <li key={each.name}>
              <Row query={each} take={take} />
              <Button
                kind="plain"
                icon="remove"
                label={`${t.unstar}: ${each.name}`}
                onClick={() => change((old) => withoutStar(old, each))}
              />
            </li>
          ))}
        </ul>
        {history.length > 0 && (
          <div class="bar">
            <h3 class="grow">{t.ran}</h3>
            <Button onClick={() => change(withoutHistory)}>{t.clear}</Button>
          </div>
        )}
        <ul>
          {history.map((each) => (
            <li key={each.at}>
              <Row query={each} take={take} />
            </li>
          ))}
        </ul>
        <p class="soft">{t.keptWhere}</p>
      </div>
    </Dialog>
  );
}

function Row({ query, take }: { query: KeptQuery; take: (query: KeptQuery) => void }): JSX.Element {
  return (
    <button type="button" class="plain" onClick={() => take(query)}>
      {query.name && <strong>{query.name}</strong>}
      <code>{query.query.replace(/\s+/g, ' ').slice(0, 200)}</code>
      <small class="soft">{[query.partition, moment(query.at)].filter(Boolean).join(' · ')}</small>
    </button>
  );
}

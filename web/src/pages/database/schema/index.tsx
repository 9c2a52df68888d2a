import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { useResource } from '../../../api';
import { count } from '../../../i18n';
import { refine } from '../../../router';
import { Button, Choice, Empty, Loading, Problem } from '../../../ui';
import type { PartProps } from '..';
import { FieldRow } from './field';
import { nameOf, schemaOf } from './model';
import { sample } from './sample';
import './schema.css';
import { say } from './texts';

const SIZES = ['200', '1000', '5000'] as const;

/** What the documents of a database have in common, of a sample of them. */
export default function Schema({ db, place }: PartProps): JSX.Element {
  const t = say();
  const size = SIZES.find((each) => each === place.query.get('sample')) ?? '1000';
  const find = place.query.get('field') ?? '';
  const { data, error, isLoading, reload } = useResource(`${db} ${size}`, (signal) =>
    sample(db, Number(size), { signal }),
  );
  const fields = useMemo(() => data && schemaOf(data.docs), [data]);
  const [open, setOpen] = useState<Set<string>>(() => new Set());
  const shown = fields?.filter(({ path }) =>
    nameOf(path).toLowerCase().includes(find.toLowerCase()),
  );
  const toggle = (key: string, is: boolean) =>
    setOpen((old) => new Set(is ? [...old, key] : [...old].filter((each) => each !== key)));
  return (
    <div class="schema">
      <div class="bar">
        <input
          type="search"
          aria-label={t.find}
          placeholder={t.find}
          value={find}
          onInput={(event) => refine({ field: event.currentTarget.value })}
        />
        <Choice
          label={t.size}
          value={size}
          of={SIZES.map((each) => [each, t.docs(count(Number(each)))] as const)}
          onChange={(to) => refine({ sample: to })}
        />
        <Button kind="plain" icon="reload" label={t.again} onClick={reload} />
        <span class="soft" role="status">
          {data && shown && `${t.sampled(count(data.docs.length), count(data.all))} · `}
          {shown && t.fields(count(shown.length))}
        </span>
      </div>
      <Problem error={error} retry={reload} />
      {isLoading && <Loading />}
      {data?.docs.length === 0 && (
        <Empty icon="search" title={t.none}>
          <small>{t.noneDo}</small>
        </Empty>
      )}
      {shown?.map((field) => {
        // Two paths may have one name: the member `a.b`, and `b` of `a`.
        const key = JSON.stringify(field.path);
        return (
          <FieldRow
            key={key}
            db={db}
            field={field}
            all={data?.docs.length ?? 0}
            isOpen={open.has(key)}
            onToggle={(is) => toggle(key, is)}
          />
        );
      })}
    </div>
  );
}

import type { JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import { Button } from '../../../ui';
import type { Kind } from '../manage';
import { t } from './texts';

/** Names and roles with one right, to which others can be added. */
export function Lists({
  title,
  hint,
  values,
  known,
  mayEdit,
  onChange,
}: {
  title: string;
  hint: string;
  values: (kind: Kind) => string[];
  known: string[] | undefined;
  mayEdit: boolean;
  onChange: (kind: Kind, values: string[]) => Promise<unknown>;
}): JSX.Element {
  return (
    <section class="card" aria-label={title}>
      <div>
        <h2>{title}</h2>
        <p class="note">{hint}</p>
      </div>
      {(['names', 'roles'] as const).map((kind) => (
        <List
          key={kind}
          kind={kind}
          values={values(kind)}
          known={kind === 'names' ? known : undefined}
          mayEdit={mayEdit}
          onChange={(list) => onChange(kind, list)}
        />
      ))}
    </section>
  );
}

function List({
  kind,
  values,
  known,
  mayEdit,
  onChange,
}: {
  kind: Kind;
  values: string[];
  known: string[] | undefined;
  mayEdit: boolean;
  onChange: (values: string[]) => Promise<unknown>;
}): JSX.Element {
  const [value, setValue] = useState('');
  const id = useId();
  const label = kind === 'names' ? t().addName : t().addRole;
  const add = async (event: Event) => {
    event.preventDefault();
    const name = value.trim();
    if (name === '') return;
    if (!values.includes(name)) await onChange([...values, name]);
    setValue('');
  };
  return (
    <div class="field">
      <h3>{t()[kind]}</h3>
      <div class="row-of">
        {values.length === 0 && (
          <span class="note">{kind === 'names' ? t().noNames : t().noRoles}</span>
        )}
        {values.map((each) => (
          <span key={each} class="chip">
            <span>{each}</span>
            {mayEdit && (
              <Button
                kind="plain"
                icon="close"
                label={t().remove(each)}
                onClick={() => onChange(values.filter((other) => other !== each))}
              />
            )}
          </span>
        ))}
      </div>
      {mayEdit && (
        <form class="row-of" onSubmit={(event) => void add(event)}>
          <input
            type="text"
            class="grow"
            aria-label={label}
            placeholder={label}
            list={known && `${id}-known`}
            value={value}
            autocapitalize="off"
            spellcheck={false}
            onInput={(event) => setValue(event.currentTarget.value)}
          />
          {known && (
            <datalist id={`${id}-known`}>
              {known.map((name) => (
                <option key={name} value={name} />
              ))}
            </datalist>
          )}
          <button type="submit" disabled={value.trim() === ''}>
            {t().add}
          </button>
        </form>
      )}
    </div>
  );
}

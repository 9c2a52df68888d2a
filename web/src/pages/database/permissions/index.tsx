import type { JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import { ask, isAdmin, path, read, useResource } from '../../../api';
import { type Json, member, Obj, print } from '../../../json';
import { Button, complain, confirm, Icon, Loading, Problem, say } from '../../../ui';
import type { PartProps } from '..';
import { type Group, type Kind, listed, mayManage } from '../manage';
import { t } from './texts';

/** With another list in it. Whatever else an object holds stays. */
function changed(security: Json, group: Group, kind: Kind, list: string[]): Obj {
  const all = new Obj(security instanceof Obj ? security : []);
  const of = member(all, group);
  return all.set(group, new Obj(of instanceof Obj ? of : []).set(kind, list)) as Obj;
}

function isPublic(security: Json): boolean {
  return (
    listed(security, 'members', 'names').length + listed(security, 'members', 'roles').length === 0
  );
}

/** Who may read and write a database. */
export default function Permissions({ db }: PartProps): JSX.Element {
  const to = `${path(db)}/_security`;
  const told = useResource(`security ${db}`, (signal) => read('GET', to, { signal }));
  const users = useResource(isAdmin.value ? 'user names' : undefined, userNames);
  const security = told.data;
  if (told.error !== undefined && security === undefined)
    return <Problem error={told.error} retry={told.reload} />;
  if (security === undefined) return <Loading />;
  const put = async (next: Json) => {
    await ask('PUT', to, { body: print(next) });
    told.reload();
  };
  const save = async (next: Json) => {
    const work = () => put(next);
    if (isPublic(next) && !isPublic(security)) {
      if (
        !(await confirm({
          title: t().publicTitle,
          text: t().publicText,
          action: t().publicDo,
          work,
        }))
      )
        return;
    } else await work();
    say(t().saved, () => put(security));
  };
  const mayEdit = mayManage(security);
  const lists = (group: Group, title: string, hint: string) => (
    <section class="card" aria-label={title}>
      <div>
        <h2>{title}</h2>
        <p class="note">{hint}</p>
      </div>
      {(['names', 'roles'] as const).map((kind) => (
        <List
          key={kind}
          kind={kind}
          values={listed(security, group, kind)}
          known={kind === 'names' ? users.data : undefined}
          mayEdit={mayEdit}
          onChange={(list) => save(changed(security, group, kind, list)).catch(complain)}
        />
      ))}
    </section>
  );
  return (
    <>
      <Meaning security={security} />
      <Problem error={told.error} retry={told.reload} />
      {!mayEdit && <p class="notice">{t().readOnly}</p>}
      <div class="halves">
        {lists('members', t().members, t().membersHint)}
        {lists('admins', t().admins, t().adminsHint)}
      </div>
    </>
  );
}

async function userNames(signal: AbortSignal): Promise<string[]> {
  const told = await ask<{ rows: { id: string }[] }>('GET', '/_users/_all_docs', {
    query: { startkey: '"org.couchdb.user:"', endkey: '"org.couchdb.user:\ufff0"', limit: 500 },
    signal,
    background: true,
  });
  return told.rows.map(({ id }) => id.slice('org.couchdb.user:'.length));
}

function Meaning({ security }: { security: Json }): JSX.Element {
  if (isPublic(security))
    return (
      <p class="notice warn" role="status">
        {t().publicNow}
      </p>
    );
  const isAdminsOnly =
    [...listed(security, 'members', 'roles'), ...listed(security, 'admins', 'roles')].every(
      (role) => role === '_admin',
    ) &&
    listed(security, 'members', 'names').length + listed(security, 'admins', 'names').length === 0;
  return (
    <p class="notice row-of" role="status">
      <Icon name="lock" />
      <span class="grow">{isAdminsOnly ? t().adminsOnly : t().limited}</span>
    </p>
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

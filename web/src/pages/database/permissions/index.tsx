import type { JSX } from 'preact';
import { ask, isAdmin, path, read, useResource } from '../../../api';
import { type Json, member, Obj, print } from '../../../json';
import { complain, confirm, Icon, Loading, Problem, say } from '../../../ui';
import type { PartProps } from '..';
import { type Group, type Kind, listed, mayManage } from '../manage';
import { Lists } from './lists';
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
    <Lists
      title={title}
      hint={hint}
      values={(kind) => listed(security, group, kind)}
      known={users.data}
      mayEdit={mayEdit}
      onChange={(kind, list) => save(changed(security, group, kind, list)).catch(complain)}
    />
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

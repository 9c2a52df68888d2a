import type { JSX } from 'preact';
import { isAdmin } from '../../api';
import { link, type Place } from '../../router';
import { Tabs } from '../../ui';
import { Account } from './account';
import { Admins } from './admins';
import { UserList } from './list';
import { See } from './see';
import { t } from './texts';
import { UserPage } from './user';
import './users.css';

/** `account`, `changePassword`, `createAdmin` and `addAdmin` are Fauxton's. */
export default function Users({ place }: { place: Place }): JSX.Element {
  const w = t();
  const [area, tab = '', ...rest] = place.parts;
  const fromFauxton: Record<string, string> = {
    account: 'account',
    changePassword: 'account',
    createAdmin: 'admins',
    addAdmin: 'admins',
  };
  const current = !isAdmin.value ? 'account' : (fromFauxton[area ?? ''] ?? (tab || 'users'));
  if (current === 'user') return <UserPage name={rest.join('/')} />;
  const tabs = [
    { id: 'users', name: w.users, href: link(['users']) },
    { id: 'admins', name: w.admins, href: link(['users', 'admins']) },
    { id: 'see', name: w.see, href: link(['users', 'see']) },
    { id: 'account', name: w.account, href: link(['users', 'account']) },
  ];
  return (
    <>
      <div class="page-head">
        <h1>{isAdmin.value ? w.title : w.account}</h1>
      </div>
      {isAdmin.value && <Tabs label={w.title} tabs={tabs} current={current} />}
      {current === 'account' ? (
        <Account />
      ) : current === 'admins' ? (
        <Admins isNew={area === 'createAdmin' || area === 'addAdmin'} />
      ) : current === 'see' ? (
        <See />
      ) : (
        <UserList />
      )}
    </>
  );
}

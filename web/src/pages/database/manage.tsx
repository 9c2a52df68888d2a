import type { JSX } from 'preact';
import { isAdmin, path, read, session, useResource } from '../../api';
import { type Json, member } from '../../json';
import { t } from './texts';

export type Group = 'members' | 'admins';
export type Kind = 'names' | 'roles';

/** Who is named in a `_security` object. */
export function listed(security: Json | undefined, group: Group, kind: Kind): string[] {
  const list = member(security, group, kind);
  return Array.isArray(list) ? list.filter((each) => typeof each === 'string') : [];
}

/**
 * Whether who is asking may write design documents, make and clean up indexes, and change
 * permissions.
 */
export function mayManage(security: Json | undefined): boolean {
  const { name = null, roles = [] } = session.value ?? {};
  return (
    isAdmin.value ||
    (name !== null && listed(security, 'admins', 'names').includes(name)) ||
    listed(security, 'admins', 'roles').some((role) => roles.includes(role))
  );
}

/** The same for a database; `undefined` while it is not known. */
export function useMayManage(db: string): boolean | undefined {
  const told = useResource(isAdmin.value ? undefined : `security ${db}`, (signal) =>
    read('GET', `${path(db)}/_security`, { signal }),
  );
  return isAdmin.value || told.data !== undefined || told.error !== undefined
    ? mayManage(told.data)
    : undefined;
}

/** What is said to who may not. */
export function OnlyAdmins({ may }: { may: boolean | undefined }): JSX.Element | null {
  return may === false ? <p class="notice">{t().onlyAdmins}</p> : null;
}

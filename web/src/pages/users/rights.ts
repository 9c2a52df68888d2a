/** What `_security` of a database answers. */
export interface Security {
  admins?: { names?: string[]; roles?: string[] };
  members?: { names?: string[]; roles?: string[] };
}

export type Why =
  | 'server'
  | 'adminName'
  | 'adminRole'
  | 'memberName'
  | 'memberRole'
  | 'public'
  | 'own'
  | 'none';

export interface Rights {
  read: boolean;
  write: boolean;
  admin: boolean;
  why: Why;
  /** The role that gives it. */
  role: string;
}

/** What somebody may do in a database, by CouchDB's rules. Nobody's name is `null`. */
export function rights(
  db: string,
  security: Security,
  name: string | null,
  roles: string[],
): Rights {
  const may = (level: 0 | 1 | 2 | 3, why: Why, role = ''): Rights => ({
    read: level > 0,
    write: level > 1,
    admin: level > 2,
    why,
    role,
  });
  if (roles.includes('_admin')) return may(3, 'server', '_admin');
  const common = (given: string[] | undefined) => given?.find((role) => roles.includes(role));
  const named = (given: string[] | undefined) => name !== null && (given?.includes(name) ?? false);
  if (named(security.admins?.names)) return may(3, 'adminName');
  const adminRole = common(security.admins?.roles);
  if (adminRole !== undefined) return may(3, 'adminRole', adminRole);
  const { names = [], roles: wanted = [] } = security.members ?? {};
  const role = common(wanted);
  const isPublic = names.length === 0 && wanted.length === 0;
  if (!named(names) && role === undefined && !isPublic) return may(0, 'none');
  // Whoever is let in there meets rules of its own.
  if (db === '_users') return may(name === null ? 0 : 1, 'own');
  return named(names)
    ? may(2, 'memberName')
    : role !== undefined
      ? may(2, 'memberRole', role)
      : may(2, 'public');
}

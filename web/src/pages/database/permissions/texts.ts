import { texts } from '../../../i18n';

export const t = texts(
  {
    members: 'Members',
    membersHint: 'They read all documents and write all but design documents.',
    admins: 'Admins',
    adminsHint: 'They also write design documents and change these permissions.',
    names: 'Users',
    roles: 'Roles',
    noNames: 'No users',
    noRoles: 'No roles',
    addName: 'Add a user',
    addRole: 'Add a role',
    add: 'Add',
    remove: (what: string) => `Remove ${what}`,
    publicNow:
      'Public: everybody who can reach the server, even without a login, may read and write here, as no member is named.',
    adminsOnly:
      'Only administrators of the server may read and write here: the role _admin is theirs alone.',
    limited:
      'Only the members and admins below, and administrators of the server, may read and write here.',
    saved: 'The permissions are saved.',
    publicTitle: 'Make the database public?',
    publicText:
      'Without members, everybody who can reach the server may read and write it, even without a login.',
    publicDo: 'Make public',
    readOnly: 'Only admins of the database and of the server can change this.',
  },
  {
    members: 'Mitglieder',
    membersHint: 'Sie lesen alle Dokumente und schreiben alle außer Design-Dokumenten.',
    admins: 'Admins',
    adminsHint: 'Sie schreiben auch Design-Dokumente und ändern diese Rechte.',
    names: 'Benutzer',
    roles: 'Rollen',
    noNames: 'Keine Benutzer',
    noRoles: 'Keine Rollen',
    addName: 'Benutzer hinzufügen',
    addRole: 'Rolle hinzufügen',
    add: 'Hinzufügen',
    remove: (what: string) => `${what} entfernen`,
    publicNow:
      'Öffentlich: Jeder, der den Server erreicht, darf hier auch ohne Anmeldung lesen und schreiben, denn es ist kein Mitglied genannt.',
    adminsOnly:
      'Nur Administratoren des Servers dürfen hier lesen und schreiben: Die Rolle _admin haben nur sie.',
    limited:
      'Nur die Mitglieder und Admins unten und die Administratoren des Servers dürfen hier lesen und schreiben.',
    saved: 'Die Rechte sind gespeichert.',
    publicTitle: 'Datenbank öffentlich machen?',
    publicText:
      'Ohne Mitglieder darf jeder, der den Server erreicht, sie lesen und schreiben, auch ohne Anmeldung.',
    publicDo: 'Öffentlich machen',
    readOnly: 'Nur Admins der Datenbank und des Servers können das ändern.',
  },
);

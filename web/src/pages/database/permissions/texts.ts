import { texts } from '../../../i18n';

export const t = texts(
  {
    members: 'Members',
    membersHint: 'Members read all documents, and write all except design documents.',
    admins: 'Admins',
    adminsHint: 'Admins also write design documents and change these permissions.',
    names: 'Users',
    roles: 'Roles',
    noNames: 'No users',
    noRoles: 'No roles',
    addName: 'Add a user',
    addRole: 'Add a role',
    add: 'Add',
    remove: (what: string) => `Remove ${what}`,
    publicNow:
      'Public: there are no members, so anyone who can reach the server may read and write, even without logging in.',
    adminsOnly: 'Only server admins may read and write: no one else has the role _admin.',
    limited: 'Only the members and admins below, and server admins, may read and write.',
    saved: 'Permissions saved.',
    publicTitle: 'Make the database public?',
    publicText:
      'Without members, anyone who can reach the server may read and write, even without logging in.',
    publicDo: 'Make public',
    readOnly: 'Only database admins and server admins can change this.',
  },
  {
    members: 'Mitglieder',
    membersHint: 'Mitglieder lesen alle Dokumente und schreiben alle außer Designdokumenten.',
    admins: 'Admins',
    adminsHint: 'Admins schreiben auch Designdokumente und ändern diese Berechtigungen.',
    names: 'Benutzer',
    roles: 'Rollen',
    noNames: 'Keine Benutzer',
    noRoles: 'Keine Rollen',
    addName: 'Benutzer hinzufügen',
    addRole: 'Rolle hinzufügen',
    add: 'Hinzufügen',
    remove: (what: string) => `${what} entfernen`,
    publicNow:
      'Öffentlich: Es gibt keine Mitglieder, also dürfen alle, die den Server erreichen, lesen und schreiben, auch ohne Anmeldung.',
    adminsOnly: 'Nur Server-Admins dürfen lesen und schreiben: Nur sie haben die Rolle _admin.',
    limited: 'Nur die Mitglieder und Admins unten und Server-Admins dürfen lesen und schreiben.',
    saved: 'Berechtigungen gespeichert.',
    publicTitle: 'Datenbank öffentlich machen?',
    publicText:
      'Ohne Mitglieder dürfen alle, die den Server erreichen, lesen und schreiben, auch ohne Anmeldung.',
    publicDo: 'Öffentlich machen',
    readOnly: 'Das können nur Admins der Datenbank und Server-Admins ändern.',
  },
);

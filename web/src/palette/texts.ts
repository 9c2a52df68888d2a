import { texts } from '../i18n';

export const say = texts(
  {
    title: 'Go to',
    search: 'Database, id, setting or page',
    hint: 'database/id finds an id in any database.',
    kinds: {
      page: 'Page',
      database: 'Database',
      document: 'Document',
      setting: 'Setting',
      recent: 'Recent document',
    },
    nothing: 'Nothing found.',
    create: 'New document',
    doctor: 'Doctor',
    profile: 'Profile',
    slow: 'Slow requests',
  },
  {
    title: 'Gehe zu',
    search: 'Datenbank, ID, Einstellung oder Seite',
    hint: 'Datenbank/ID findet eine ID in jeder Datenbank.',
    kinds: {
      page: 'Seite',
      database: 'Datenbank',
      document: 'Dokument',
      setting: 'Einstellung',
      recent: 'Zuletzt geöffnet',
    },
    nothing: 'Nichts gefunden.',
    create: 'Neues Dokument',
    doctor: 'Diagnose',
    profile: 'Profil',
    slow: 'Langsame Anfragen',
  },
);

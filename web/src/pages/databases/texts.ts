import { counted, texts } from '../../i18n';

export const t = texts(
  {
    title: 'Databases',
    find: 'Search databases',
    sample: 'New here?',
    sampleText:
      'The sample shop has products, customers and orders, views, a text index, and three conflicts to resolve. You can delete it like any database.',
    loadSample: 'Load the sample shop',
    sampleLoaded: 'Loaded the sample shop.',
    all: (n: string) => (n === '1' ? '1 database' : `${n} databases`),
    some: (n: string, all: string) => `${n} of ${counted(all, 'database', 'databases')}`,
    create: 'New database',
    documents: 'Documents',
    deleted: 'Deleted',
    size: 'Size',
    none: 'There are no databases yet.',
    noneFound: 'No database matches.',
    clear: 'Clear search',
    sorting: (n: string, all: string) =>
      `Loaded the sizes of ${n} of ${counted(all, 'database', 'databases')}…`,
    partitioned: 'partitioned',
    gone: 'not readable',
    open: 'Open a database by name',
    openText:
      'Only server admins can list all databases. You can open those that you have access to.',
    go: 'Open',
    delete: (name: string) => `Delete ${name}`,
    deleteTitle: 'Delete the database?',
    deleteText: (name: string) =>
      `This deletes ${name} with all documents, views and attachments. It cannot be undone.`,
    system:
      'The server uses this database itself. Deleting it deletes the users or replications in it.',
    wasDeleted: (name: string) => `Deleted ${name}.`,
    wasCreated: (name: string) => `Created ${name}.`,
    rule: 'Lowercase letters, digits and _ $ ( ) + - /, starting with a letter.',
    isPartitioned: 'Partitioned',
    partitionedHint:
      'Every id is “partition:name”, and a query of one partition reads one shard only. You cannot change this later.',
    hasAccess: 'Access by document',
    accessHint: 'Each user sees only documents that name the user. You cannot change this later.',
    shards: 'Shards (q)',
    shardsHint:
      "Empty: the server's default. More shards spread a large database. You cannot change this later.",
    copies: 'Copies (n)',
    copiesHint: 'The number of nodes that store each shard.',
    options: 'Options',
  },
  {
    title: 'Datenbanken',
    find: 'Datenbanken suchen',
    sample: 'Neu hier?',
    sampleText:
      'Der Beispielladen hat Produkte, Kunden und Bestellungen, Views, einen Textindex und drei Konflikte zum Auflösen. Er lässt sich löschen wie jede Datenbank.',
    loadSample: 'Beispielladen laden',
    sampleLoaded: 'Beispielladen geladen.',
    all: (n: string) => (n === '1' ? '1 Datenbank' : `${n} Datenbanken`),
    some: (n: string, all: string) => `${n} von ${counted(all, 'Datenbank', 'Datenbanken')}`,
    create: 'Neue Datenbank',
    documents: 'Dokumente',
    deleted: 'Gelöscht',
    size: 'Größe',
    none: 'Es gibt noch keine Datenbank.',
    noneFound: 'Keine Datenbank passt.',
    clear: 'Suche leeren',
    sorting: (n: string, all: string) =>
      `Größen von ${n} von ${counted(all, 'Datenbank', 'Datenbanken')} geladen…`,
    partitioned: 'partitioniert',
    gone: 'nicht lesbar',
    open: 'Datenbank nach Namen öffnen',
    openText:
      'Nur Server-Admins können alle Datenbanken auflisten. Öffnen können Sie jede, auf die Sie Zugriff haben.',
    go: 'Öffnen',
    delete: (name: string) => `${name} löschen`,
    deleteTitle: 'Datenbank löschen?',
    deleteText: (name: string) =>
      `${name} wird mit allen Dokumenten, Views und Anhängen gelöscht. Das lässt sich nicht rückgängig machen.`,
    system:
      'Der Server verwendet diese Datenbank selbst. Mit ihr löschen Sie die Benutzer oder Replikationen darin.',
    wasDeleted: (name: string) => `${name} gelöscht.`,
    wasCreated: (name: string) => `${name} angelegt.`,
    rule: 'Kleinbuchstaben, Ziffern und _ $ ( ) + - /, am Anfang ein Buchstabe.',
    isPartitioned: 'Partitioniert',
    partitionedHint:
      'Jede ID ist „Partition:Name“, und Abfragen einer Partition lesen nur einen Shard. Das lässt sich später nicht ändern.',
    hasAccess: 'Zugriff je Dokument',
    accessHint: 'Benutzer sehen nur Dokumente, die sie nennen. Das lässt sich später nicht ändern.',
    shards: 'Shards (q)',
    shardsHint:
      'Leer: die Vorgabe des Servers. Mehr Shards verteilen eine große Datenbank. Das lässt sich später nicht ändern.',
    copies: 'Kopien (n)',
    copiesHint: 'Die Anzahl der Knoten, die jeden Shard speichern.',
    options: 'Optionen',
  },
);

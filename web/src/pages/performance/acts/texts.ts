import { texts } from '../../../i18n';

export const say = texts(
  {
    acts: {
      config: 'Change the setting',
      index: 'Create this index',
      drop: 'Delete the index',
      compact: 'Compact now',
      cleanup: 'Clean up now',
      show: 'Show',
    },
    done: 'Done',
    beforeAct: 'Before',
    afterAct: 'After',
    newValue: 'New value',
    defaultValue: 'default',
    indexes: 'Indexes',
    fileSize: 'On disk',
    activeSize: 'In use',
  },
  {
    acts: {
      config: 'Einstellung ändern',
      index: 'Diesen Index anlegen',
      drop: 'Index löschen',
      compact: 'Jetzt verdichten',
      cleanup: 'Jetzt aufräumen',
      show: 'Anzeigen',
    },
    done: 'Erledigt',
    beforeAct: 'Vorher',
    afterAct: 'Nachher',
    newValue: 'Neuer Wert',
    defaultValue: 'Vorgabe',
    indexes: 'Indexe',
    fileSize: 'Auf dem Datenträger',
    activeSize: 'In Gebrauch',
  },
);

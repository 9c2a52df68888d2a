import { texts } from '../i18n';

export const say = texts(
  { unreadable: 'This is not valid JavaScript.', proposals: 'Proposals' },
  { unreadable: 'Das ist kein gültiges JavaScript.', proposals: 'Vorschläge' },
);

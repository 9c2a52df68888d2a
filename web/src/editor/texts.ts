import { texts } from '../i18n';

export const say = texts(
  { unreadable: 'This cannot be read as JavaScript.' },
  { unreadable: 'Das ist kein lesbares JavaScript.' },
);

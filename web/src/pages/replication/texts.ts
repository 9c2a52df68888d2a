import { texts } from '../../i18n';
import { de } from './texts-de';
import { en } from './texts-en';

export const t = texts(en, de);

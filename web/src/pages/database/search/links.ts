import { link } from '../../../router';
import type { PartProps } from '../index';
import type { Kind } from './request';

export interface IndexProps extends Pick<PartProps, 'db' | 'place' | 'info'> {
  design: string;
  kind: Kind;
  name: string;
}

export function toIndex(
  db: string,
  design: string,
  kind: Kind,
  name: string,
  ...more: string[]
): string {
  return link(['database', db, '_design', design, kind, name, ...more]);
}

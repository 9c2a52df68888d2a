import { link } from '../../../router';
import type { Kind } from './design';

export function toDesign(db: string, name: string): string {
  return link(['database', db, '_design', name]);
}

export function toView(db: string, name: string, view: string): string {
  return link(['database', db, '_design', name, '_view', view]);
}

export function toFunction(db: string, name: string, kind: Kind, of: string): string {
  return link(['database', db, '_design', name, '_function', kind, ...(of === '' ? [] : [of])]);
}

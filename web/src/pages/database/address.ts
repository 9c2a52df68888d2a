import { link, type Place } from '../../router';

export type Part =
  | 'documents'
  | 'views'
  | 'query'
  | 'schema'
  | 'search'
  | 'changes'
  | 'permissions'
  | 'settings'
  | 'document';

/** What an address within a database means. */
export interface Where {
  part: Part;
  /** The document; `undefined` for a new one. */
  id?: string;
  /** As the part reads it: without `_partition/{p}`, which is `partition` in the query then. */
  place: Place;
}

/**
 * The address of a document. Fauxton's `{db}/{id}` would mean a page, with an id such as `changes`
 * or `new`.
 */
export function docLink(
  db: string,
  id: string,
  query?: Record<string, string | undefined>,
): string {
  return link(['database', db, '_doc', id], query);
}

/** Finds what is meant: Fauxton's addresses, and `_doc/{id}`, under which any id can be reached. */
export function where(place: Place): Where {
  const [, db = '', first, ...rest] = place.parts;
  const as = (part: Part): Where => ({ part, place });
  const document = (id: string): Where => ({ part: 'document', id, place });
  switch (first) {
    case undefined:
    case '_all_docs':
      return as('documents');
    case '_doc':
      return rest.length > 0 ? document(rest.join('/')) : as('document');
    case 'new':
    case '_new':
      return as('document');
    case 'new_view':
    case '_design_docs':
    case '_views':
      return as('views');
    case '_search':
    case 'new_search':
    case 'new_nouveau':
      return as('search');
    case '_design':
      if (rest[1] === '_search' || rest[1] === '_nouveau') return as('search');
      return rest.length > 1 && rest.at(-1) === 'edit' && !rest[1]?.startsWith('_')
        ? document(`_design/${rest.slice(0, -1).join('/')}`)
        : as('views');
    case '_find':
    case '_index':
      return as('query');
    case '_schema':
      return as('schema');
    case 'changes':
    case '_changes':
      return as('changes');
    case 'permissions':
    case '_security':
      return as('permissions');
    case '_settings':
      return as('settings');
    case '_partition': {
      const query = new URLSearchParams(place.query);
      if (rest[0]) query.set('partition', rest[0]);
      return where({ parts: ['database', db, ...rest.slice(1)], query });
    }
    default:
      // Fauxton has a page of a document's conflicts beside it.
      return document(
        [first, ...rest.filter((part, n) => n < rest.length - 1 || part !== 'conflicts')].join('/'),
      );
  }
}

import type { Design } from '../views/design';
import { headOf, type Wanted } from './feed';

export type By = '' | 'design' | 'selector' | 'ids' | '_design' | 'view';

export interface Choices {
  since: 'recent' | 'now' | '0' | 'seq';
  seq: string;
  find: string;
  onlyDeleted: boolean;
  includeDocs: boolean;
  allLeaves: boolean;
  by: By;
  /** Of the filter: a function's name, a selector, ids. */
  with: string;
  /** The query of a design document's filter. */
  args: string;
  isFiltered: boolean;
}

/** The address holds them. */
export function choicesOf(query: URLSearchParams): Choices {
  const since = query.get('since') ?? 'recent';
  const find = query.get('find') ?? '';
  const by = (query.get('by') ?? '') as By;
  const onlyDeleted = query.get('deleted') === 'true';
  return {
    since: since === 'recent' || since === 'now' || since === '0' ? since : 'seq',
    seq: /^(recent|now|0)$/.test(since) ? '' : since,
    find,
    onlyDeleted,
    includeDocs: query.get('include_docs') === 'true',
    allLeaves: query.get('style') === 'all_docs',
    by,
    with: query.get('with') ?? '',
    args: query.get('args') ?? '',
    isFiltered: find !== '' || onlyDeleted || by !== '',
  };
}

export function wantedOf(db: string, choices: Choices): Wanted {
  const { by, find, onlyDeleted } = choices;
  const query: Wanted['query'] = { style: choices.allLeaves ? 'all_docs' : undefined };
  let body: string | undefined;
  if (by === 'design')
    Object.assign(query, Object.fromEntries(new URLSearchParams(choices.args)), {
      filter: choices.with,
    });
  if (by === 'view') Object.assign(query, { filter: '_view', view: choices.with });
  if (by === '_design') query.filter = '_design';
  if (by === 'selector') {
    query.filter = '_selector';
    body = `{"selector":${choices.with.trim() || '{}'}}`;
  }
  if (by === 'ids') {
    query.filter = '_doc_ids';
    body = JSON.stringify({
      doc_ids: choices.with
        .split('\n')
        .map((id) => id.trim())
        .filter((id) => id !== ''),
    });
  }
  const keep = (line: string) => {
    if (find === '' && !onlyDeleted) return true;
    const head = headOf(line);
    return head.id.includes(find) && (!onlyDeleted || head.isDeleted);
  };
  return {
    db,
    since: choices.since === 'seq' ? choices.seq : choices.since,
    includeDocs: choices.includeDocs,
    query,
    body,
    keep,
  };
}

/** The query of the address that holds these choices. */
export function queryOf(choices: Choices): Record<string, string> {
  const { by, since } = choices;
  const from = since === 'seq' ? choices.seq.trim() : since;
  return {
    since: from === 'recent' ? '' : from,
    find: choices.find,
    deleted: choices.onlyDeleted ? 'true' : '',
    include_docs: choices.includeDocs ? 'true' : '',
    style: choices.allLeaves ? 'all_docs' : '',
    by,
    with: by === '' || by === '_design' ? '' : choices.with,
    args: by === 'design' ? choices.args : '',
  };
}

/** Whether a filter is a function of a design document. */
export function hasName(by: By): boolean {
  return by === 'design' || by === 'view';
}

/** The functions of a design document that filter changes: its views, or its filters. */
export function filtersOf({ name, views, functions }: Design, by: By): string[] {
  const all =
    by === 'view'
      ? views
      : functions.filter(({ kind }) => kind === 'filters').map((each) => each.name);
  return all.map((each) => `${name}/${each}`);
}

import { server } from '../../api';
import { from, type Json, member, Num, Obj, parse, print, text } from '../../json';
import { withoutState } from './act';
import { t } from './texts';
import { decode } from './words';

/** One end of a replication, as the form has it. */
export interface End {
  kind: 'here' | 'remote';
  /** Database of this server, or address of another's. */
  db: string;
  address: string;
  user: string;
  /** As typed. */
  password: string;
  /** As stored: shown to nobody, and written back unless another is typed. */
  kept: string;
  /** What else the document says of it, like headers. */
  rest: Obj;
}

export const NUMBERS = [
  'checkpoint_interval',
  'worker_processes',
  'worker_batch_size',
  'http_connections',
  'connection_timeout',
  'retries_per_request',
] as const;
export const PROXIES = ['source_proxy', 'target_proxy'] as const;
export type Selection = 'all' | 'selector' | 'ids' | 'filter';

export interface Model {
  source: End;
  target: End;
  /** Where this server reaches itself. */
  own: string;
  isKept: boolean;
  keptIn: string;
  id: string;
  continuous: boolean;
  createTarget: boolean;
  selection: Selection;
  selector: string;
  ids: string;
  filter: string;
  params: string;
  since: string;
  winners: boolean;
  noCheckpoints: boolean;
  noBulk: boolean;
  partitioned: boolean;
  /** What is a line of text, by its member. */
  lines: Record<string, string>;
  /** Members of the document that the form does not know: they survive. */
  rest: Obj;
}

const KNOWN = [
  'source',
  'target',
  'continuous',
  'create_target',
  'create_target_params',
  'selector',
  'doc_ids',
  'filter',
  'query_params',
  'since_seq',
  'winning_revs_only',
  'use_checkpoints',
  'use_bulk_get',
  ...NUMBERS,
  ...PROXIES,
];

export function emptyEnd(user: string): End {
  return { kind: 'here', db: '', address: '', user, password: '', kept: '', rest: new Obj() };
}

export function blank(user: string, own: string, source: string): Model {
  return {
    ...read(new Obj(), own),
    source: { ...emptyEnd(user), db: source },
    target: emptyEnd(user),
  };
}

/** The form of a document. */
export function read(doc: Obj, own: string): Model {
  const is = (name: string) => doc.get(name) === true;
  const selection: Selection = doc.has('selector')
    ? 'selector'
    : doc.has('doc_ids')
      ? 'ids'
      : doc.has('filter')
        ? 'filter'
        : 'all';
  const json = (name: string) => (doc.has(name) ? print(doc.get(name) ?? null, 2) : '');
  const line = (value: Json | undefined) =>
    value === undefined || value === null ? '' : typeof value === 'string' ? value : print(value);
  const ids = doc.get('doc_ids');
  return {
    source: readEnd(doc.get('source'), own),
    target: readEnd(doc.get('target'), own),
    own,
    isKept: true,
    keptIn: '_replicator',
    id: text(doc.get('_id')),
    continuous: is('continuous'),
    createTarget: is('create_target'),
    selection,
    selector: json('selector') || '{}',
    ids: Array.isArray(ids) ? ids.map(text).join('\n') : '',
    filter: text(doc.get('filter')),
    params: json('query_params'),
    since: line(doc.get('since_seq')),
    winners: is('winning_revs_only'),
    noCheckpoints: doc.get('use_checkpoints') === false,
    noBulk: doc.get('use_bulk_get') === false,
    partitioned: member(doc, 'create_target_params', 'partitioned') === true,
    lines: {
      ...Object.fromEntries([...NUMBERS, ...PROXIES].map((name) => [name, line(doc.get(name))])),
      q: line(member(doc, 'create_target_params', 'q')),
    },
    rest: new Obj([...withoutState(doc)].filter(([name]) => !KNOWN.includes(name))),
  };
}

function readEnd(end: Json | undefined, own: string): End {
  const address = typeof end === 'string' ? end : text(member(end, 'url'));
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const basic = member(end, 'auth', 'basic');
  const user = text(member(basic, 'username')) || decode(url?.username ?? '');
  const kept = text(member(basic, 'password')) || decode(url?.password ?? '');
  // Passwords of addresses move to where they are not shown.
  const plain = address.replace(/^(\w+:\/\/)[^/@]*@/, '$1').replace(/\/$/, '');
  const isHere = plain.startsWith(`${own}/`) && !plain.slice(own.length + 1).includes('/');
  const rest =
    end instanceof Obj
      ? new Obj(
          [...end].filter(([name]) => name !== 'url' && !(name === 'auth' && basic !== undefined)),
        )
      : new Obj();
  return {
    kind: isHere ? 'here' : 'remote',
    db: isHere ? decode(plain.slice(own.length + 1)) : '',
    address: isHere ? '' : plain,
    user,
    password: '',
    kept,
    rest,
  };
}

export function addressOf(end: End, own: string): string {
  return end.kind === 'here'
    ? `${own.replace(/\/$/, '')}/${encodeURIComponent(end.db)}`
    : end.address.trim();
}

/** An end as documents have it, its password beside the address. */
export function writeEnd(end: End, own: string): Obj {
  const out = new Obj([['url', addressOf(end, own)], ...end.rest]);
  // Of an address that was pasted with a password, too.
  const url = URL.canParse(addressOf(end, own)) ? new URL(addressOf(end, own)) : undefined;
  const [user, password] = [
    end.user || decode(url?.username ?? ''),
    end.password || (end.user ? end.kept : decode(url?.password ?? '')),
  ];
  out.set('url', addressOf(end, own).replace(/^(\w+:\/\/)[^/@]*@/, '$1'));
  if (user) out.set('auth', from({ basic: { username: user, password } }));
  return out;
}

/** What is wrong with the form, by member; nothing when it can be sent. */
export function problems(model: Model): Record<string, string> {
  const wrong: Record<string, string> = {};
  const w = t();
  for (const side of ['source', 'target'] as const) {
    const end = model[side];
    if (end.kind === 'here' ? end.db === '' : !/^https?:\/\/[^/]+\/.+/.test(end.address))
      wrong[side] = end.kind === 'here' ? w.sayDatabase : w.addressHint;
  }
  if (model.selection === 'selector' && !isObject(model.selector)) wrong.selector = w.sayObject;
  if (model.selection === 'filter' && model.params.trim() && !isObject(model.params))
    wrong.params = w.sayObject;
  for (const name of [...NUMBERS, 'q'])
    if (!/^\d*$/.test(model.lines[name]?.trim() ?? '')) wrong[name] = w.sayNumber;
  return wrong;
}

function isObject(source: string): boolean {
  try {
    return parse(source) instanceof Obj;
  } catch {
    return false;
  }
}

/** The document of the form, or the body of `_replicate`. */
export function write(model: Model): Obj {
  const doc = new Obj(model.rest);
  const set = (name: string, value: Json | undefined, isSet: boolean) =>
    isSet && value !== undefined && doc.set(name, value);
  if (model.id && model.isKept) doc.set('_id', model.id);
  doc.set('source', writeEnd(model.source, model.own));
  doc.set('target', writeEnd(model.target, model.own));
  set('continuous', true, model.continuous);
  set('create_target', true, model.createTarget);
  const q = model.lines.q?.trim();
  if (model.createTarget && (q || model.partitioned))
    doc.set(
      'create_target_params',
      new Obj([
        ...(q ? [['q', new Num(q)] as const] : []),
        ...(model.partitioned ? [['partitioned', true] as const] : []),
      ]),
    );
  if (model.selection === 'selector') doc.set('selector', parse(model.selector));
  if (model.selection === 'ids')
    doc.set(
      'doc_ids',
      model.ids
        .split('\n')
        .map((id) => id.trim())
        .filter(Boolean),
    );
  if (model.selection === 'filter') {
    doc.set('filter', model.filter.trim());
    if (model.params.trim()) doc.set('query_params', parse(model.params));
  }
  const since = model.since.trim();
  set('since_seq', /^\d+$/.test(since) ? new Num(since) : since, since !== '');
  set('winning_revs_only', true, model.winners);
  set('use_checkpoints', false, model.noCheckpoints);
  set('use_bulk_get', false, model.noBulk);
  for (const name of NUMBERS)
    set(name, new Num(model.lines[name]?.trim() ?? ''), Boolean(model.lines[name]?.trim()));
  for (const name of PROXIES)
    set(name, model.lines[name]?.trim(), Boolean(model.lines[name]?.trim()));
  return doc;
}

/**
 * Where this server reaches itself, by its settings; by this page's address where those are not
 * known.
 */
export function ownAddress(settings: { port?: string; bind_address?: string } | undefined): string {
  const port = Number(settings?.port);
  if (!port) return server.href.replace(/\/$/, '');
  const bound = settings?.bind_address ?? '127.0.0.1';
  const host = ['0.0.0.0', 'any', '::', ''].includes(bound)
    ? '127.0.0.1'
    : bound.includes(':')
      ? `[${bound}]`
      : bound;
  return `http://${host}:${port}`;
}

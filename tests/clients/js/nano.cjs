// nano, the official CouchDB client for Node.
const Nano = require(process.env.NANO ?? 'nano');
const { url, name, password, urlWithAdmin, check, equal, fails, collect, until, run } = require('./checks.cjs');

const DB = 'client-nano';
const ids = (list) => list.rows.map((row) => row.id);

run(async () => {
  const nano = Nano(urlWithAdmin);
  equal('info', (await nano.info()).couchdb, 'Welcome');
  equal('uuids', (await nano.uuids(3)).uuids.map((uuid) => uuid.length), [32, 32, 32]);
  equal('create a database', (await nano.db.create(DB)).ok, true);
  await fails('create it again', nano.db.create(DB), 412, 'file_exists');
  check('list databases', (await nano.db.list()).includes(DB));
  await fails('open a missing one', nano.db.get('client-nano-none'), 404, 'not_found');
  await fails('a wrong password', Nano(url.replace('://', `://${name}:wrong@`)).db.list(), 401, 'unauthorized');

  const db = nano.use(DB);
  await documents(db);
  await bulk(db);
  await lists(db);
  await revisions(db);
  await feeds(db);
  await views(db);
  await functions(db);
  await search(db);
  await attachments(db);
  await replication(nano, db);
  await users(nano, db);
  await security(nano, db);
  await session();
  equal('compact', (await nano.db.compact(DB)).ok, true);
  equal('delete the database', (await nano.db.destroy(DB)).ok, true);
});

async function documents(db) {
  const first = await db.insert({ name: 'Jöhn 🙂', ratio: 1.5 }, 'rabbit');
  equal('insert', [first.ok, first.id, first.rev.slice(0, 2)], [true, 'rabbit', '1-']);
  equal('get', (await db.get('rabbit')).name, 'Jöhn 🙂');
  const second = await db.insert({ _id: 'rabbit', _rev: first.rev, name: 'Peter' });
  equal('update', (await db.get('rabbit')).name, 'Peter');
  await fails('conflict', db.insert({ _id: 'rabbit', _rev: first.rev }), 409, 'conflict');
  await fails('get a missing document', db.get('none'), 404, 'not_found');
  const head = await db.head('rabbit');
  equal('head', head.etag, `"${second.rev}"`);
  equal('insert without an id', (await db.insert({ a: 1 })).id.length, 32);
  await db.insert({ slash: true }, 'a/b c+d');
  equal('an id with a slash, a space and a plus', (await db.get('a/b c+d')).slash, true);
  equal('batch=ok', (await db.insert({ batched: true }, { docName: 'batched', batch: 'ok' })).ok, true);
  equal('copy', await copy(db, 'rabbit', 'hare'), true);
  const hare = await db.get('hare');
  equal('delete', (await db.destroy('hare', hare._rev)).ok, true);
  await fails('get a deleted document', db.get('hare'), 404, 'not_found');
  await fails('an illegal id', db.insert({}, '_nope'), 400);
}

/** Not with nano's own request: nano 11 sends the method in lower case, which CouchDB refuses too. */
async function copy(db, doc, to) {
  const authorization = `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`;
  const answer = await fetch(`${url}/${DB}/${doc}`, { method: 'COPY', headers: { destination: to, authorization } });
  return answer.status === 201 && (await answer.json()).ok;
}

async function bulk(db) {
  const docs = Array.from({ length: 50 }, (_, n) => ({ _id: `bulk-${String(n).padStart(3, '0')}`, n }));
  equal('bulk', (await db.bulk({ docs })).filter((row) => row.ok).length, 50);
  const again = await db.bulk({ docs: [{ _id: 'bulk-000' }, { _id: 'bulk-new' }] });
  equal('bulk with a conflict', [again[0].error, again[1].ok], ['conflict', true]);
  const fetched = await db.fetch({ keys: ['bulk-001', 'none', 'bulk-002'] });
  equal('fetch', fetched.rows.map((row) => row.doc?.n ?? row.error), [1, 'not_found', 2]);
  const revs = await db.fetchRevs({ keys: ['bulk-001'] });
  equal('fetch revisions', revs.rows[0].value.rev.slice(0, 2), '1-');
  const got = await db.server.request({ db: DB, path: '_bulk_get', method: 'post', body: { docs: [{ id: 'bulk-003' }, { id: 'none' }] } });
  equal('bulk_get', got.results.map((row) => Object.keys(row.docs[0])[0]), ['ok', 'error']);
}

async function lists(db) {
  equal('list a range', ids(await db.list({ startkey: 'bulk-010', endkey: 'bulk-013', inclusive_end: false })), ['bulk-010', 'bulk-011', 'bulk-012']);
  const whole = await db.list({ include_docs: true });
  equal('list counts', whole.total_rows, whole.rows.length);
  const paged = [];
  for (let skip = 0; ; skip += 7) {
    const page = await db.list({ limit: 7, skip });
    equalQuietly('offset', page.offset, Math.min(skip, whole.total_rows));
    if (!page.rows.length) break;
    paged.push(...ids(page));
  }
  equal('paging', paged, ids(whole));
  equal('descending', ids(await db.list({ descending: true })), ids(whole).reverse());
  const info = await db.info();
  equal('info', [info.db_name, info.doc_count], [DB, whole.total_rows]);
}

function equalQuietly(what, actual, expected) {
  if (actual !== expected) equal(what, actual, expected);
}

async function revisions(db) {
  const request = (path, method, body, qs) => db.server.request({ db: DB, path, method, body, qs });
  const ancestor = 'a'.repeat(32);
  const graft = (hash, value) => ({ _id: 'forked', _rev: `2-${hash}`, _revisions: { start: 2, ids: [hash, ancestor] }, value });
  const low = '1'.repeat(32);
  const high = 'f'.repeat(32);
  equal('new_edits=false', await db.bulk({ new_edits: false, docs: [graft(low, 'low'), graft(high, 'high')] }), []);
  const winner = await db.get('forked', { conflicts: true, revs: true });
  equal('the winner', [winner.value, winner._conflicts], ['high', [`2-${low}`]]);
  equal('revs', winner._revisions, { start: 2, ids: [high, ancestor] });
  const open = await db.get('forked', { open_revs: 'all' });
  const values = Array.isArray(open) ? open.map((row) => row.ok.value).sort() : String(open).match(/"value":"(\w+)"/g).sort();
  equal('open_revs', values.length, 2);
  const diff = await request('_revs_diff', 'post', { forked: [`2-${low}`, '3-x'] });
  equal('revs_diff', diff.forked.missing, ['3-x']);
  await request('_local/checkpoint', 'put', { seq: 7 });
  equal('local document', (await request('_local/checkpoint')).seq, 7);
}

async function feeds(db) {
  const start = await db.changes({ limit: 5 });
  equal('changes', start.results.length, 5);
  const rest = await db.changes({ since: start.last_seq });
  equal('changes since', rest.results.length + 5, (await db.changes()).results.length);
  const seen = [];
  await new Promise((resolve, reject) => {
    const deadline = setTimeout(() => reject(new Error(`only ${seen.length} live changes`)), 30_000);
    db.changesReader.start({ since: rest.last_seq, includeDocs: true, timeout: 5000 })
      .on('change', (change) => {
        seen.push(change.id);
        if (seen.length < 3) return;
        clearTimeout(deadline);
        db.changesReader.stop();
        resolve();
      })
      .on('error', reject);
    (async () => {
      for (const n of [1, 2, 3]) await db.insert({ n }, `live-${n}`);
    })().catch(reject);
  });
  equal('changes live', seen.slice(0, 3), ['live-1', 'live-2', 'live-3']);
}

async function views(db) {
  const docs = Array.from({ length: 30 }, (_, n) => ({ _id: `view-${String(n).padStart(2, '0')}`, kind: n % 3, amount: n, friend: 'view-00' }));
  await db.bulk({ docs });
  const byKind = function (doc) { if (doc.amount !== undefined) emit([doc.kind, doc.amount], doc.amount); };
  const friends = (doc) => { if (doc.friend) emit(doc._id, { _id: doc.friend }); };
  const design = await db.insert({ views: { by_kind: { map: byKind, reduce: '_sum' }, friends: { map: friends } } }, '_design/nano');
  equal('insert a design document with functions', design.ok, true);
  const rows = await db.view('nano', 'by_kind', { reduce: false, startkey: [1], endkey: [1, {}] });
  equal('view', rows.rows.map((row) => row.value), [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]);
  equal('view counts', [rows.total_rows, rows.offset], [30, 10]);
  equal('view reduced', (await db.view('nano', 'by_kind')).rows, [{ key: null, value: 435 }]);
  const groups = await db.view('nano', 'by_kind', { group_level: 1 });
  equal('view grouped', groups.rows, [{ key: [0], value: 135 }, { key: [1], value: 145 }, { key: [2], value: 155 }]);
  const keys = await db.view('nano', 'by_kind', { reduce: false, keys: [[2, 5], [0, 0], [9, 9]] });
  equal('view keys', ids(keys), ['view-05', 'view-00']);
  const backwards = await db.view('nano', 'by_kind', { reduce: false, descending: true, limit: 2, skip: 1 });
  equal('view backwards', ids(backwards), ['view-26', 'view-23']);
  const linked = await db.view('nano', 'friends', { key: 'view-07', include_docs: true });
  equal('view with a linked document', linked.rows.map((row) => [row.id, row.doc._id]), [['view-07', 'view-00']]);
  const both = await db.server.request({ db: DB, path: '_design/nano/_view/by_kind/queries', method: 'post', body: { queries: [{ group_level: 1, limit: 1 }, { reduce: false, limit: 1 }] } });
  equal('view queries', both.results.map((result) => result.rows[0].key), [[0], [0, 0]]);
  await fails('a view that does not exist', db.view('nano', 'none'), 404, 'not_found');
  await fails('a design document that does not exist', db.view('none', 'none'), 404, 'not_found');
  await fails('a range the wrong way round', db.view('nano', 'by_kind', { reduce: false, startkey: [2], endkey: [1] }), 400, 'query_parse_error');
  const info = await db.server.request({ db: DB, path: '_design/nano/_info' });
  equal('view info', [info.name, info.view_index.language], ['nano', 'javascript']);
  equal('view cleanup', (await db.server.request({ db: DB, path: '_view_cleanup', method: 'post', body: {} })).ok, true);
  equal('compact a view', (await db.server.request({ db: DB, path: '_compact/nano', method: 'post', body: {} })).ok, true);
}

async function functions(db) {
  const shows = { hello: "function (doc, req) { return { headers: { 'X-Said': 'yes' }, body: 'hello ' + doc._id + ' ' + req.query.x }; }" };
  const updates = { bump: 'function (doc, req) { doc.bumped = JSON.parse(req.body || "{}").by; return [doc, "bumped"]; }' };
  const lists = { ids: "function (head, req) { start({ headers: { 'Content-Type': 'text/plain' } }); var row; while (row = getRow()) { send(row.id + ';'); } }" };
  const validate = "function (doc, old, user) { if (doc.forbidden) { throw { forbidden: 'not by ' + user.name }; } }";
  const by = { by: { map: 'function (doc) { if (doc.bumpable) { emit(doc._id); } }' } };
  await db.insert({ shows, updates, lists, views: by, validate_doc_update: validate }, '_design/functions');
  await db.insert({ bumpable: true }, 'bumpable');
  equal('show', (await db.server.request({ db: DB, path: '_design/functions/_show/hello/bumpable', qs: { x: 1 } })), 'hello bumpable 1');
  equal('update handler', await db.atomic('functions', 'bump', 'bumpable', { by: 7 }), 'bumped');
  equal('what the update handler wrote', (await db.get('bumpable')).bumped, 7);
  equal('list', await db.viewWithList('functions', 'by', 'ids'), 'bumpable;');
  await fails('validation', db.insert({ forbidden: true }, 'forbidden'), 403, 'forbidden');
}

async function attachments(db) {
  const text = 'So she said “yes”.\n'.repeat(200);
  const bytes = Buffer.from(Array.from({ length: 5000 }, (_, n) => (n * 7919) % 256));
  const first = await db.attachment.insert('attached', 'note.txt', text, 'text/plain');
  equal('an attachment makes its document', first.rev.slice(0, 2), '1-');
  const second = await db.attachment.insert('attached', 'deep/blob ü.bin', bytes, 'application/octet-stream', { rev: first.rev });
  equal('get a text attachment', (await db.attachment.get('attached', 'note.txt')).toString(), text);
  check('get a binary attachment', (await db.attachment.get('attached', 'deep/blob ü.bin')).equals(bytes));
  check('get one as a stream', (await collect(db.attachment.getAsStream('attached', 'deep/blob ü.bin'), true)).equals(bytes));
  const stubs = (await db.get('attached', { att_encoding_info: true }))._attachments;
  equal('stubs', Object.entries(stubs).map(([one, stub]) => [one, stub.content_type, stub.length, stub.revpos, stub.encoding ?? null]).sort(),
    [['deep/blob ü.bin', 'application/octet-stream', 5000, 2, null], ['note.txt', 'text/plain', Buffer.byteLength(text), 1, 'gzip']]);
  await fails('an attachment with an old rev', db.attachment.insert('attached', 'late.txt', 'x', 'text/plain', { rev: first.rev }), 409, 'conflict');
  await fails('an attachment that is not there', db.attachment.get('attached', 'none'), 404);
  equal('attachments inline', Buffer.from((await db.get('attached', { attachments: true }))._attachments['note.txt'].data, 'base64').toString(), text);
  const third = await db.attachment.destroy('attached', 'note.txt', { rev: second.rev });
  equal('delete an attachment', Object.keys((await db.get('attached'))._attachments), ['deep/blob ü.bin']);
  equal('its revision', third.rev.slice(0, 2), '3-');
  check('an old revision keeps it', (await db.get('attached', { rev: second.rev }))._attachments['note.txt'].stub);
  const parts = [{ name: 'a.txt', data: 'first', content_type: 'text/plain' }, { name: 'b.bin', data: bytes, content_type: 'image/png' }];
  equal('a document and attachments at once', (await db.multipart.insert({ many: true }, parts, 'multi')).ok, true);
  equal('the document of them', [(await db.get('multi')).many, Object.keys((await db.get('multi'))._attachments).sort()], [true, ['a.txt', 'b.bin']]);
  check('the content of them', (await db.attachment.get('multi', 'b.bin')).equals(bytes) && (await db.attachment.get('multi', 'a.txt')).toString() === 'first');
  const multi = (await db.multipart.get('multi')).toString();
  check('a document as multipart', multi.includes('"follows":true') && multi.includes('filename="b.bin"') && multi.trimEnd().endsWith('--'), multi.slice(0, 600));
  const kept = await db.get('multi');
  await db.insert({ ...kept, changed: true });
  check('an update by stubs keeps them', (await db.attachment.get('multi', 'b.bin')).equals(bytes));
  await fails('a stub of nothing', db.insert({ _attachments: { x: { stub: true } } }, 'stub of nothing'), 412, 'missing_stub');
  check('a copy has them too', await copy(db, 'multi', 'multi-copy') && (await db.attachment.get('multi-copy', 'b.bin')).equals(bytes));
}

async function leaves(db) {
  const { results } = await db.changes({ style: 'all_docs' });
  return results.map((row) => [row.id, row.changes.map((change) => change.rev).sort()]).sort();
}

async function replication(nano, db) {
  const [from, to] = [`${urlWithAdmin}/${DB}`, `${urlWithAdmin}/${DB}-copy`];
  const once = await nano.db.replicate(from, to, { create_target: true });
  check('replicate', once.ok && once.history[0].doc_write_failures === 0, once);
  equal('the copy has every leaf', await leaves(nano.use(`${DB}-copy`)), await leaves(db));
  equal('and the attachments', (await nano.use(`${DB}-copy`).attachment.get('multi', 'a.txt')).toString(), 'first');
  equal('replicate again', (await nano.db.replicate(from, to)).no_changes, true);
  const enabled = await nano.db.replication.enable(from, `${to}-2`, { create_target: true });
  const completed = async () => (await nano.db.replication.query(enabled.id))._replication_state === 'completed';
  check('a replication document completes', await until(completed), await nano.db.replication.query(enabled.id));
  equal('its copy has every leaf', await leaves(nano.use(`${DB}-copy-2`)), await leaves(db));
  const { _rev } = await nano.db.replication.query(enabled.id);
  equal('disable it', (await nano.db.replication.disable(enabled.id, _rev)).ok, true);
  for (const copy of [`${DB}-copy`, `${DB}-copy-2`]) await nano.db.destroy(copy);
}

async function search(db) {
  const index = "function (doc) { if (doc.fruit) { index('default', doc.fruit, { store: true }); index('kind', doc.kind, { facet: true }); } }";
  await db.insert({ indexes: { fruit: { index } } }, '_design/fruit');
  await db.bulk({ docs: [{ _id: 'fruit-a', fruit: 'green apple', kind: 'apple' }, { _id: 'fruit-b', fruit: 'green pear', kind: 'pear' }] });
  const found = await db.search('fruit', 'fruit', { q: 'green', counts: ['kind'], include_docs: true, limit: 1 });
  equal('search', [found.total_rows, found.counts, found.rows[0].doc.fruit], [2, { kind: { apple: 1, pear: 1 } }, found.rows[0].fields.default]);
  const next = await db.search('fruit', 'fruit', { q: 'green', bookmark: found.bookmark });
  check('its next page', next.rows.length === 1 && next.rows[0].id !== found.rows[0].id, next);
  equal('search as a stream', JSON.parse(await collect(db.searchAsStream('fruit', 'fruit', { q: 'pear' }))).rows.map((row) => row.id), ['fruit-b']);
  await fails('a query that is none', db.search('fruit', 'fruit', { q: '(' }), 400, 'bad_request');
}

async function users(nano, db) {
  const anna = { _id: 'org.couchdb.user:nano-anna', name: 'nano-anna', type: 'user', roles: ['nurse'], password: 'sécret' };
  await nano.use('_users').insert(anna);
  await nano.use('_users').insert({ ...anna, _id: 'org.couchdb.user:nano-other', name: 'nano-other' });
  const hers = Nano({ url, requestDefaults: { jar: true } });
  equal('log in', (await hers.auth('nano-anna', 'sécret')).roles, ['nurse']);
  equal('who am I', (await hers.session()).userCtx, { name: 'nano-anna', roles: ['nurse'] });
  await nano.request({ db: DB, path: '_security', method: 'put', body: { members: { roles: ['nurse'] }, admins: { roles: [] } } });
  equal('a member reads', (await hers.use(DB).get('rabbit')).name, 'Peter');
  equal('a member writes', (await hers.use(DB).insert({ by: 'anna' }, 'by anna')).ok, true);
  await fails('a member writes no design document', hers.use(DB).insert({ views: {} }, '_design/hers'), 403, 'forbidden');
  await fails('a member creates no database', hers.db.create(`${DB}-hers`), 401, 'unauthorized');
  await fails('nobody reads users without logging in', Nano(url).use('_users').get(anna._id), 401, 'unauthorized');
  await fails('nor does she, as long as that is for admins', hers.use('_users').get(anna._id), 403, 'forbidden');
  const closed = await nano.request({ db: '_users', path: '_security' });
  const editable = { path: '_node/_local/_config/couchdb/users_db_security_editable', method: 'put' };
  await fails('whose security nobody edits', nano.request({ db: '_users', path: '_security', method: 'put', body: closed }), 403, 'forbidden');
  await nano.request({ ...editable, body: 'true' });
  await nano.request({ db: '_users', path: '_security', method: 'put', body: { ...closed, members: { roles: [] } } });
  await fails('then she reads no other one', hers.use('_users').get('org.couchdb.user:nano-other'), 404, 'not_found');
  const own = await hers.use('_users').get(anna._id);
  check('she reads her own', own.name === 'nano-anna' && !('password' in own), own);
  await fails('she gives herself no role', hers.use('_users').insert({ ...own, roles: ['nurse', 'doctor'] }), 403, 'forbidden');
  equal('she changes her password', (await hers.use('_users').insert({ ...own, password: 'new' })).ok, true);
  await fails('the old password', Nano({ url, requestDefaults: { jar: true } }).auth('nano-anna', 'sécret'), 401, 'unauthorized');
  equal('the new password', (await Nano({ url, requestDefaults: { jar: true } }).auth('nano-anna', 'new')).name, 'nano-anna');
  await nano.request({ db: '_users', path: '_security', method: 'put', body: closed });
  await nano.request({ ...editable, method: 'delete' });
  await nano.use('_users').destroy(anna._id, (await nano.use('_users').get(anna._id))._rev);
  await nano.use('_users').destroy('org.couchdb.user:nano-other', (await nano.use('_users').get('org.couchdb.user:nano-other'))._rev);
  await fails('a user that is gone', Nano({ url, requestDefaults: { jar: true } }).auth('nano-anna', 'new'), 401, 'unauthorized');
}

async function security(nano, db) {
  const wanted = { admins: { names: ['me'], roles: [] }, members: { names: [], roles: ['r'] } };
  const request = (method, body) => nano.request({ db: DB, path: '_security', method, body });
  equal('set security', (await request('put', wanted)).ok, true);
  equal('get security', await request('get'), wanted);
  await fails('an outsider is refused', Nano(url).use(DB).list(), 401, 'unauthorized');
}

async function session() {
  const nano = Nano({ url, requestDefaults: { jar: true } });
  equal('cookie session', (await nano.auth(name, password)).name, name);
  equal('who am I', (await nano.session()).userCtx.roles, ['_admin']);
  equal('reading with the cookie', (await nano.use(DB).get('rabbit')).name, 'Peter');
  await fails('a wrong password for a session', nano.auth(name, 'wrong'), 401, 'unauthorized');
}

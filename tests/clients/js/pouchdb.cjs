// PouchDB over its http adapter, and replicating between two databases: what offline-first apps do.
const PouchDB = require('pouchdb');
const { url, name, password, check, equal, fails, run } = require('./checks.cjs');

const auth = { username: name, password };
const open = (db) => new PouchDB(`${url}/${db}`, { auth });
const ids = (list) => list.rows.map((row) => row.id);

run(async () => {
  const db = open('client-pouchdb');
  equal('create and info', (await db.info()).doc_count, 0);
  await documents(db);
  await bulk(db);
  await lists(db);
  await revisions(db);
  await live(db);
  await views(db);
  await attachments(db);
  await replicates(db);
  await users(db);
  equal('compact', (await db.compact({ interval: 50 })).ok, true);
  equal('destroy', (await db.destroy()).ok, true);
  await fails('destroyed', new PouchDB(`${url}/client-pouchdb`, { auth, skip_setup: true }).get('a'), 404, 'not_found');
});

async function documents(db) {
  const first = await db.put({ _id: 'a', name: 'Jöhn 🙂', nested: { list: [1, 2.5, null] } });
  equal('put', [first.ok, first.id], [true, 'a']);
  equal('get', await db.get('a'), { _id: 'a', _rev: first.rev, name: 'Jöhn 🙂', nested: { list: [1, 2.5, null] } });
  const second = await db.put({ _id: 'a', _rev: first.rev, name: 'two' });
  await fails('conflict', db.put({ _id: 'a', _rev: first.rev }), 409, 'conflict');
  await fails('get a missing document', db.get('none'), 404, 'not_found');
  equal('post', (await db.post({ posted: true })).ok, true);
  equal('get an old revision', (await db.get('a', { rev: first.rev })).name, 'Jöhn 🙂');
  equal('revs', (await db.get('a', { revs: true }))._revisions.ids.length, 2);
  equal('open_revs', (await db.get('a', { open_revs: 'all' })).map((row) => row.ok._rev), [second.rev]);
  equal('remove', (await db.remove({ _id: 'a', _rev: second.rev })).ok, true);
  await fails('get a removed document', db.get('a'), 404, 'not_found');
  const back = await db.put({ _id: 'a', name: 'again' });
  equal('put over a tombstone', back.rev.slice(0, 2), '4-');
  equal('a local document', (await db.put({ _id: '_local/checkpoint', seq: 7 })).ok, true);
  equal('and back', (await db.get('_local/checkpoint')).seq, 7);
}

async function bulk(db) {
  const docs = Array.from({ length: 60 }, (_, n) => ({ _id: `bulk-${String(n).padStart(3, '0')}`, n }));
  equal('bulkDocs', (await db.bulkDocs(docs)).filter((row) => row.ok).length, 60);
  const again = await db.bulkDocs([{ _id: 'bulk-000' }, { _id: 'bulk-new' }]);
  equal('bulkDocs with a conflict', [again[0].status, again[1].ok], [409, true]);
  const got = await db.bulkGet({ docs: [{ id: 'bulk-001' }, { id: 'none' }], revs: true });
  equal('bulkGet', got.results.map((row) => row.docs[0].ok?.n ?? row.docs[0].error.error), [1, 'not_found']);
}

async function lists(db) {
  const whole = await db.allDocs();
  equal('allDocs', whole.total_rows, whole.rows.length);
  equal('allDocs range', ids(await db.allDocs({ startkey: 'bulk-010', endkey: 'bulk-012' })), ['bulk-010', 'bulk-011', 'bulk-012']);
  const page = await db.allDocs({ limit: 5, skip: 20, include_docs: true });
  equal('allDocs paging', [ids(page), page.offset], [ids(whole).slice(20, 25), 20]);
  equal('allDocs keys', (await db.allDocs({ keys: ['bulk-002', 'none'] })).rows.map((row) => row.error ?? row.id), ['bulk-002', 'not_found']);
  const changes = await db.changes({ since: 0, limit: 10 });
  equal('changes', changes.results.length, 10);
  const rest = await db.changes({ since: changes.last_seq, include_docs: true, batch_size: 7 });
  equal('changes since, in batches', rest.results.length, whole.total_rows - 10);
  equal('changes by doc_ids', (await db.changes({ doc_ids: ['bulk-007'] })).results.map((row) => row.id), ['bulk-007']);
  equal('changes by selector', (await db.changes({ selector: { n: { $gt: 57 } } })).results.map((row) => row.id), ['bulk-058', 'bulk-059']);
}

async function revisions(db) {
  const ancestor = 'a'.repeat(32);
  const graft = (hash) => ({ _id: 'forked', _rev: `2-${hash}`, _revisions: { start: 2, ids: [hash, ancestor] }, from: hash[0] });
  await db.bulkDocs([graft('1'.repeat(32)), graft('f'.repeat(32))], { new_edits: false });
  const winner = await db.get('forked', { conflicts: true });
  equal('conflicts', [winner.from, winner._conflicts], ['f', [`2-${'1'.repeat(32)}`]]);
  equal('open_revs of a conflict', (await db.get('forked', { open_revs: 'all' })).map((row) => row.ok.from).sort(), ['1', 'f']);
  const diff = await db.revsDiff({ forked: [`2-${'1'.repeat(32)}`, '3-x'], none: ['1-a'] });
  equal('revsDiff', [diff.forked.missing, diff.none.missing], [['3-x'], ['1-a']]);
}

async function live(db) {
  const seen = [];
  const info = await db.info();
  await new Promise((resolve, reject) => {
    const deadline = setTimeout(() => reject(new Error(`only ${seen.length} live changes`)), 30_000);
    const feed = db.changes({ live: true, since: info.update_seq, include_docs: true, heartbeat: 1000 })
      .on('change', (change) => {
        seen.push(change.doc.n);
        if (seen.length === 3) feed.cancel();
      })
      .on('complete', () => { clearTimeout(deadline); resolve(); })
      .on('error', reject);
    (async () => {
      for (const n of [1, 2, 3]) await db.put({ _id: `live-${n}`, n });
    })().catch(reject);
  });
  equal('changes live', seen, [1, 2, 3]);
}

async function views(db) {
  const docs = Array.from({ length: 30 }, (_, n) => ({ _id: `view-${String(n).padStart(2, '0')}`, kind: 'abc'[n % 3], amount: n / 2 }));
  await db.bulkDocs(docs);
  const byKind = 'function (doc) { if (doc.kind) emit([doc.kind, doc.amount], doc.amount); }';
  await db.put({ _id: '_design/pouch', views: { by_kind: { map: byKind, reduce: '_stats' }, same_name: { map: byKind }, pouch: { map: byKind, reduce: '_count' } } });
  const rows = await db.query('pouch/by_kind', { reduce: false, startkey: ['b'], endkey: ['b', {}], include_docs: true });
  equal('query', rows.rows.map((row) => row.doc.amount), [0.5, 2, 3.5, 5, 6.5, 8, 9.5, 11, 12.5, 14]);
  equal('query counts', [rows.total_rows, rows.offset], [30, 10]);
  equal('query reduced', (await db.query('pouch/by_kind')).rows[0].value, { sum: 217.5, count: 30, min: 0, max: 14.5, sumsqr: 2138.75 });
  equal('query grouped', (await db.query('pouch', { group_level: 1 })).rows, [['a'], ['b'], ['c']].map((key) => ({ key, value: 10 })));
  equal('query by key', ids(await db.query('pouch/same_name', { key: ['c', 1] })), ['view-02']);
  equal('query by keys', ids(await db.query('pouch/same_name', { keys: [['c', 1], ['a', 0], ['x', 0]] })), ['view-02', 'view-00']);
  const grouped = await db.query('pouch', { keys: [['c', 1], ['a', 0]], group: true });
  equal('query by keys, grouped', grouped.rows, [{ key: ['c', 1], value: 1 }, { key: ['a', 0], value: 1 }]);
  equal('query backwards', ids(await db.query('pouch/same_name', { descending: true, limit: 2, skip: 1 })), ['view-26', 'view-23']);
  equal('query without its end', ids(await db.query('pouch/same_name', { startkey: ['a', 0], endkey: ['a', 3], inclusive_end: false })), ['view-00', 'view-03']);
  await db.remove(await db.get('view-00'));
  equal('query after a removal', (await db.query('pouch')).rows, [{ key: null, value: 29 }]);
  equal('query as it was', (await db.query('pouch/same_name', { stale: 'ok', limit: 1 })).rows.length, 1);
  await fails('a view that does not exist', db.query('pouch/none'), 404, 'not_found');
  equal('viewCleanup', (await db.viewCleanup()).ok, true);
}

async function attachments(db) {
  const text = Buffer.from('So she said “yes”.\n'.repeat(200));
  const bytes = Buffer.from(Array.from({ length: 5000 }, (_, n) => (n * 7919) % 256));
  const first = await db.putAttachment('attached', 'note.txt', text, 'text/plain');
  const second = await db.putAttachment('attached', 'deep/blob ü.bin', first.rev, bytes, 'application/octet-stream');
  check('getAttachment of a text', (await db.getAttachment('attached', 'note.txt')).equals(text));
  check('getAttachment of bytes', (await db.getAttachment('attached', 'deep/blob ü.bin')).equals(bytes));
  await fails('getAttachment of none', db.getAttachment('attached', 'none'), 404);
  const whole = await db.get('attached', { attachments: true });
  check('get with attachments', Buffer.from(whole._attachments['deep/blob ü.bin'].data, 'base64').equals(bytes));
  const binary = await db.get('attached', { attachments: true, binary: true });
  check('get with binary attachments', binary._attachments['note.txt'].data.equals(text));
  const inline = await db.put({ _id: 'inline', _attachments: { 'a.txt': { content_type: 'text/plain', data: text.toString('base64') }, b: { content_type: 'image/png', data: bytes } } });
  check('put with attachments inline', (await db.getAttachment('inline', 'a.txt')).equals(text) && (await db.getAttachment('inline', 'b')).equals(bytes));
  const kept = await db.get('inline');
  await db.put({ ...kept, changed: true });
  check('an update by stubs keeps them', (await db.getAttachment('inline', 'b')).equals(bytes));
  check('an attachment of an old revision', (await db.getAttachment('inline', 'b', { rev: inline.rev })).equals(bytes));
  const listed = await db.allDocs({ keys: ['attached', 'inline'], include_docs: true, attachments: true });
  equal('allDocs with attachments', listed.rows.map((row) => Object.values(row.doc._attachments).every((one) => one.data)), [true, true]);
  const changed = await db.changes({ doc_ids: ['inline'], include_docs: true, attachments: true });
  check('changes with attachments', Buffer.from(changed.results[0].doc._attachments['a.txt'].data, 'base64').equals(text));
  const removed = await db.removeAttachment('attached', 'note.txt', second.rev);
  equal('removeAttachment', [removed.ok, Object.keys((await db.get('attached'))._attachments)], [true, ['deep/blob ü.bin']]);
  await fails('a stub of nothing', db.put({ _id: 'no stub', _attachments: { x: { stub: true, digest: 'md5-x', revpos: 1 } } }), 412);
  await db.bulkDocs([{ _id: 'bulk attached', _attachments: { c: { content_type: 'image/png', data: bytes.toString('base64') } } }]);
  check('bulkDocs with attachments', (await db.getAttachment('bulk attached', 'c')).equals(bytes));
}

/** As apps do it: a database that one user may read and write, and nobody else. */
async function users(db) {
  const as = (username, word) => new PouchDB(db.name, { auth: { username, password: word }, skip_setup: true });
  const authorization = `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`;
  const put = (path, body) => fetch(`${url}/${path}`, { method: 'PUT', body: JSON.stringify(body), headers: { authorization } });
  equal('a user', (await put('_users/org.couchdb.user:pouch-anna', { name: 'pouch-anna', password: 'sécret', roles: [], type: 'user' })).status, 201);
  await put('client-pouchdb/_security', { members: { names: ['pouch-anna'] }, admins: { names: [] } });
  equal('who reads', (await as('pouch-anna', 'sécret').get('later')).late, true);
  equal('and writes', (await as('pouch-anna', 'sécret').put({ _id: 'by anna' })).ok, true);
  await fails('but no design document', as('pouch-anna', 'sécret').put({ _id: '_design/hers' }), 403, 'forbidden');
  await fails('a wrong password', as('pouch-anna', 'wrong').get('later'), 401, 'unauthorized');
  await fails('nobody else', new PouchDB(db.name, { skip_setup: true }).get('later'), 401, 'unauthorized');
  const them = new PouchDB(`${url}/_users`, { auth, skip_setup: true });
  equal('the user is removed', (await them.remove(await them.get('org.couchdb.user:pouch-anna'))).ok, true);
}

async function replicates(db) {
  const copy = open('client-pouchdb-copy');
  const first = await PouchDB.replicate(db, copy, { batch_size: 20 });
  check('replicate', first.ok && first.doc_write_failures === 0, first);
  const leaves = (result) => result.results.map((row) => [row.id, row.changes.map((change) => change.rev).sort()]).sort();
  const all = { since: 0, style: 'all_docs' };
  equal('the copy has every leaf', leaves(await copy.changes(all)), leaves(await db.changes(all)));
  await db.put({ _id: 'later', late: true });
  const second = await PouchDB.replicate(db, copy);
  equal('replicate again, from the checkpoint', second.docs_written, 1);
  await copy.put({ _id: 'on the copy' });
  const both = await PouchDB.sync(db, copy);
  check('sync', both.push.ok && both.pull.ok && both.pull.docs_written === 1, both);
  check('attachments in the copy', (await copy.getAttachment('inline', 'b')).length === 5000);
  await copy.destroy();
}

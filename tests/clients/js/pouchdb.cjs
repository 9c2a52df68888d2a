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
  await replicates(db);
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
  await copy.destroy();
}

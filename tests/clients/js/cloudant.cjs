// The Cloudant SDK for Node: everything in it that is CouchDB's (Mango comes later).
const { Readable } = require('node:stream');
const { CloudantV1, BasicAuthenticator, CouchdbSessionAuthenticator, ChangesFollower, Pagination, PagerType } = require('@ibm-cloud/cloudant');
const { url, name, password, check, equal, run, collect, until } = require('./checks.cjs');

const db = 'client-cloudant';
const pad = (n) => String(n).padStart(3, '0');
const ids = (rows) => rows.map((row) => row.id);

async function fails(what, promise, status, error) {
  try {
    check(what, false, { succeeded: (await promise).result });
  } catch (thrown) {
    check(what, thrown.code === status && (!error || thrown.result?.error === error), { code: thrown.code, message: thrown.message, result: thrown.result });
  }
}

function open(authenticator) {
  const service = CloudantV1.newInstance({ authenticator });
  service.setServiceUrl(url);
  return service;
}

run(async () => {
  const service = open(new BasicAuthenticator({ username: name, password }));
  await server(service);
  await documents(service);
  await bulk(service);
  await lists(service);
  await changes(service);
  await designs(service);
  await attachments(service);
  await search(service);
  await partitions(service);
  await security(service);
  await replication(service);
  await compressed(service);
  await session();
  equal('delete the database', (await service.deleteDatabase({ db })).result, { ok: true });
  await fails('delete it again', service.deleteDatabase({ db }), 404, 'not_found');
});

async function server(service) {
  const information = (await service.getServerInformation()).result;
  equal('server information', [information.couchdb, information.version], ['Welcome', '3.5.2']);
  equal('up', [(await service.getUpInformation()).result.status, (await service.headUpInformation()).status], ['ok', 200]);
  equal('uuids', (await service.getUuids({ count: 4 })).result.uuids.map((uuid) => uuid.length), [32, 32, 32, 32]);
  const membership = (await service.getMembershipInformation()).result;
  equal('membership', membership.allNodes, membership.clusterNodes);
  equal('create a database', (await service.putDatabase({ db })).result, { ok: true });
  await fails('create it again', service.putDatabase({ db }), 412, 'file_exists');
  equal('all databases', (await service.getAllDbs({ startKey: JSON.stringify(db), endKey: JSON.stringify(`${db}a`) })).result, [db]);
  const [info, none] = (await service.postDbsInfo({ keys: [db, 'client-cloudant-none'] })).result;
  equal('databases by name', [info.info.docCount, none.error], [0, 'not_found']);
  const about = (await service.getDatabaseInformation({ db })).result;
  equal('database information', [about.dbName, about.docCount, about.docDelCount, about.props], [db, 0, 0, {}]);
  equal('head of a database', (await service.headDatabase({ db })).status, 200);
  await fails('head of a missing one', service.headDatabase({ db: 'client-cloudant-none' }), 404);
  const noted = async () => (await service.getDbUpdates({ since: '0' })).result.results.some((row) => row.dbName === db && row.type === 'created');
  check('updates name the new database', await until(noted));
}

async function documents(service) {
  const first = (await service.putDocument({ db, docId: 'a b/ü+', document: { name: 'Jöhn 🙂', when: 1.5 } })).result;
  equal('put a document', [first.ok, first.id, first.rev.slice(0, 2)], [true, 'a b/ü+', '1-']);
  equal('get it', (await service.getDocument({ db, docId: 'a b/ü+' })).result, { _id: 'a b/ü+', _rev: first.rev, name: 'Jöhn 🙂', when: 1.5 });
  equal('head of a document', (await service.headDocument({ db, docId: 'a b/ü+' })).headers.etag, `"${first.rev}"`);
  equal('not modified', (await service.headDocument({ db, docId: 'a b/ü+', ifNoneMatch: `"${first.rev}"` }).catch((error) => error)).code, 304);
  await fails('conflict', service.putDocument({ db, docId: 'a b/ü+', document: {} }), 409, 'conflict');
  const second = (await service.putDocument({ db, docId: 'a b/ü+', ifMatch: first.rev, document: { name: 'Peter' } })).result;
  equal('update with If-Match', second.rev.slice(0, 2), '2-');
  const info = (await service.getDocument({ db, docId: 'a b/ü+', revs: true, revsInfo: true, localSeq: true, meta: true })).result;
  equal('revisions', [info._revisions.ids.length, info._revs_info.map((row) => row.status)], [2, ['available', 'available']]);
  equal('an old revision', (await service.getDocument({ db, docId: 'a b/ü+', rev: first.rev })).result.name, 'Jöhn 🙂');
  const posted = (await service.postDocument({ db, document: { posted: true } })).result;
  equal('post a document', [posted.id.length, (await service.getDocument({ db, docId: posted.id })).result.posted], [32, true]);
  equal('post as a batch', (await service.postDocument({ db, document: { _id: 'batched' }, batch: 'ok' })).status, 202);
  equal('get as a stream', JSON.parse(await collect((await service.getDocumentAsStream({ db, docId: 'a b/ü+' })).result)).name, 'Peter');
  equal('delete', (await service.deleteDocument({ db, docId: posted.id, rev: posted.rev })).result.ok, true);
  await fails('get a deleted document', service.getDocument({ db, docId: posted.id }), 404, 'not_found');
  await service.putLocalDocument({ db, docId: 'checkpoint', document: { seq: 7 } });
  equal('a local document', (await service.getLocalDocument({ db, docId: 'checkpoint' })).result.seq, 7);
  equal('head of a local document', (await service.headLocalDocument({ db, docId: 'checkpoint' })).status, 200);
  equal('delete a local document', (await service.deleteLocalDocument({ db, docId: 'checkpoint' })).result.ok, true);
  await fails('and it is gone', service.getLocalDocument({ db, docId: 'checkpoint' }), 404, 'not_found');
}

async function bulk(service) {
  const docs = Array.from({ length: 100 }, (_, n) => ({ _id: `bulk-${pad(n)}`, n, tag: `t${n % 4}` }));
  equal('bulk', (await service.postBulkDocs({ db, bulkDocs: { docs } })).result.filter((row) => row.ok).length, 100);
  const again = (await service.postBulkDocs({ db, bulkDocs: { docs: [{ _id: 'bulk-000' }, { _id: 'bulk-new' }] } })).result;
  equal('bulk with a conflict', [again[0].error, again[1].ok], ['conflict', true]);
  const streamed = Readable.from([JSON.stringify({ docs: [{ _id: 'bulk-streamed', n: -1 }] })]);
  equal('bulk as a stream', (await service.postBulkDocs({ db, bulkDocs: streamed, headers: { 'Content-Type': 'application/json' } })).result[0].ok, true);
  const hash = (character) => character.repeat(32);
  const graft = (character) => ({ _id: 'forked', _rev: `2-${hash(character)}`, _revisions: { start: 2, ids: [hash(character), hash('a')] }, from: character });
  equal('bulk of replicated revisions', (await service.postBulkDocs({ db, bulkDocs: { newEdits: false, new_edits: false, docs: [graft('1'), graft('f')] } })).result, []);
  const winner = (await service.getDocument({ db, docId: 'forked', conflicts: true })).result;
  equal('conflicts', [winner.from, winner._conflicts], ['f', [`2-${hash('1')}`]]);
  const got = (await service.postBulkGet({ db, revs: true, docs: [{ id: 'bulk-003' }, { id: 'forked', rev: `2-${hash('1')}` }, { id: 'none' }] })).result;
  equal('bulk get', got.results.map((row) => row.docs[0].ok?._id ?? row.docs[0].error.error), ['bulk-003', 'forked', 'not_found']);
  equal('bulk get, the revision asked for', got.results[1].docs[0].ok.from, '1');
  const mixed = await collect((await service.postBulkGetAsMixed({ db, docs: [{ id: 'bulk-003' }] })).result);
  check('bulk get as multipart/mixed', mixed.includes('"n":3') && mixed.startsWith('--'), mixed.slice(0, 200));
  const related = await collect((await service.postBulkGetAsRelated({ db, docs: [{ id: 'bulk-003' }] })).result);
  check('bulk get as multipart/related', related.includes('"n":3') && related.startsWith('--'), related.slice(0, 200));
  const diff = (await service.postRevsDiff({ db, documentRevisions: { forked: [`2-${hash('1')}`, '3-x'], none: ['1-a'] } })).result;
  equal('revs_diff', [diff.forked.missing, diff.none.missing], [['3-x'], ['1-a']]);
}

async function lists(service) {
  const page = (await service.postAllDocs({ db, startKey: 'bulk-010', endKey: 'bulk-013', inclusiveEnd: false, includeDocs: true })).result;
  equal('all_docs of a range', page.rows.map((row) => row.doc.n), [10, 11, 12]);
  equal('all_docs by keys', (await service.postAllDocs({ db, keys: ['bulk-002', 'none'] })).result.rows.map((row) => row.error ?? row.id), ['bulk-002', 'not_found']);
  const both = (await service.postAllDocsQueries({ db, queries: [{ keys: ['bulk-001'] }, { startKey: 'bulk-09', limit: 2 }] })).result.results;
  equal('all_docs with several queries', both.map((result) => ids(result.rows)), [['bulk-001'], ['bulk-090', 'bulk-091']]);
  const pager = Pagination.newPagination(service, PagerType.POST_ALL_DOCS, { db, limit: 30, startKey: 'bulk-000', endKey: 'bulk-099' });
  const paged = [];
  for await (const row of pager.rows()) paged.push(row.id);
  equal('paging', paged, Array.from({ length: 100 }, (_, n) => `bulk-${pad(n)}`));
  const streamed = await collect((await service.postAllDocsAsStream({ db, limit: 2 })).result);
  equal('all_docs as a stream', JSON.parse(streamed).rows.length, 2);
}

async function changes(service) {
  const start = (await service.postChanges({ db, limit: 5 })).result;
  equal('changes', [start.results.length, typeof start.lastSeq], [5, 'string']);
  const { docCount, docDelCount } = (await service.getDatabaseInformation({ db })).result;
  const rest = (await service.postChanges({ db, since: start.lastSeq })).result;
  equal('changes since', rest.results.length + 5, docCount + docDelCount);
  equal('changes pending', [start.pending, rest.pending], [rest.results.length, 0]);
  equal('changes by document ids', ids((await service.postChanges({ db, filter: '_doc_ids', docIds: ['bulk-007'] })).result.results), ['bulk-007']);
  const chosen = (await service.postChanges({ db, filter: '_selector', selector: { n: { $gte: 98 } }, includeDocs: true })).result.results;
  equal('changes by selector', chosen.map((row) => row.doc.n), [98, 99]);
  const forked = (await service.postChanges({ db, filter: '_doc_ids', docIds: ['forked'], style: 'all_docs' })).result.results[0];
  equal('changes with all leaves', forked.changes.length, 2);
  const continuous = (await service.postChangesAsStream({ db, feed: 'continuous', since: rest.lastSeq, timeout: 500 })).result;
  await service.putDocument({ db, docId: 'live-1', document: { live: 1 } });
  const lines = (await collect(continuous)).trim().split('\n').filter(Boolean).map(JSON.parse);
  equal('a continuous feed to its end', [lines[0].id, lines.at(-1).last_seq !== undefined], ['live-1', true]);
  const follower = new ChangesFollower(service, { db, limit: docCount + docDelCount });
  let seen = 0;
  for await (const change of follower.startOneOff()) seen += change.id ? 1 : 0;
  equal('a follower, once', seen, docCount + docDelCount);
  // With a limit, because a follower that is stopped ends when its last request of a minute does.
  const live = new ChangesFollower(service, { db, since: rest.lastSeq, includeDocs: true, limit: 3 });
  const followed = [];
  const writing = (async () => { for (const n of [2, 3]) await service.putDocument({ db, docId: `live-${n}`, document: { live: n } }); })();
  for await (const change of live.start()) followed.push(change.doc.live);
  await writing;
  equal('a follower, live', followed, [1, 2, 3]);
}

async function designs(service) {
  const byTag = { map: 'function (doc) { if (doc.tag) { emit(doc.tag, doc.n); } }' };
  const design = { views: { by_tag: { ...byTag, reduce: '_stats' }, plain: byTag } };
  equal('put a design document', (await service.putDesignDocument({ db, ddoc: 'cloudant', designDocument: design })).result.id, '_design/cloudant');
  equal('get it', (await service.getDesignDocument({ db, ddoc: 'cloudant' })).result.views.by_tag.reduce, '_stats');
  check('head of it', (await service.headDesignDocument({ db, ddoc: 'cloudant' })).headers.etag.startsWith('"1-'));
  equal('design documents', ids((await service.postDesignDocs({ db })).result.rows), ['_design/cloudant']);
  equal('design documents with several queries', ids((await service.postDesignDocsQueries({ db, queries: [{ limit: 1 }] })).result.results[0].rows), ['_design/cloudant']);
  const view = (options) => service.postView({ db, ddoc: 'cloudant', view: 'by_tag', ...options });
  equal('view', (await view({ reduce: false, key: 't1', limit: 3 })).result.rows.map((row) => row.value), [1, 5, 9]);
  equal('view reduced', (await view({})).result.rows[0].value, { sum: 4950, count: 100, min: 0, max: 99, sumsqr: 328350 });
  equal('view grouped', (await view({ group: true })).result.rows.map((row) => [row.key, row.value.count]), [['t0', 25], ['t1', 25], ['t2', 25], ['t3', 25]]);
  equal('view backwards', (await view({ reduce: false, descending: true, limit: 2 })).result.rows.map((row) => row.value), [99, 95]);
  const several = (await service.postViewQueries({ db, ddoc: 'cloudant', view: 'by_tag', queries: [{ reduce: false, limit: 1 }, { group: true, limit: 1 }] })).result.results;
  equal('view with several queries', several.map((result) => result.rows[0].key), ['t0', 't0']);
  const pager = Pagination.newPagination(service, PagerType.POST_VIEW, { db, ddoc: 'cloudant', view: 'plain', limit: 30 });
  let rows = 0;
  for await (const page of pager.pages()) rows += page.length;
  equal('view paging', rows, 100);
  const about = (await service.getDesignDocumentInformation({ db, ddoc: 'cloudant' })).result;
  equal('view information', [about.name, about.viewIndex.language], ['cloudant', 'javascript']);
  await fails('a view that does not exist', service.postView({ db, ddoc: 'cloudant', view: 'none' }), 404, 'not_found');
  const { _rev } = (await service.getDesignDocument({ db, ddoc: 'cloudant' })).result;
  equal('delete a design document', (await service.deleteDesignDocument({ db, ddoc: 'cloudant', rev: _rev })).result.ok, true);
}

async function attachments(service) {
  const docId = 'with attachments';
  const text = 'So she said “yes”.\n'.repeat(200);
  const bytes = Buffer.from(Array.from({ length: 5000 }, (_, n) => (n * 7919) % 256));
  const put = (attachmentName, attachment, contentType, rev) => service.putAttachment({ db, docId, attachmentName, attachment, contentType, rev });
  const first = (await put('note.txt', Buffer.from(text), 'text/plain')).result;
  equal('put an attachment makes the document', first.rev.slice(0, 2), '1-');
  const second = (await put('deep/blob.bin', Readable.from([bytes]), 'application/octet-stream', first.rev)).result;
  const get = async (attachmentName, options) => Buffer.from(await collect((await service.getAttachment({ db, docId, attachmentName, ...options })).result, true));
  equal('get a text', (await get('note.txt')).toString(), text);
  check('get bytes', (await get('deep/blob.bin')).equals(bytes));
  // The SDK gzips what it uploads, and of what is stored gzipped CouchDB gives no ranges.
  check('a range of what was gzipped is all of it', (await get('deep/blob.bin', { range: 'bytes=10-19' })).equals(bytes));
  const head = (await service.headAttachment({ db, docId, attachmentName: 'deep/blob.bin' })).headers;
  equal('head of an attachment', head['content-type'], 'application/octet-stream');
  const stubs = (await service.getDocument({ db, docId, attEncodingInfo: true })).result._attachments;
  const shown = (stub) => [stub.contentType ?? stub.content_type, stub.revpos, stub.stub];
  equal('stubs', [shown(stubs['note.txt']), shown(stubs['deep/blob.bin'])], [['text/plain', 1, true], ['application/octet-stream', 2, true]]);
  const inline = (await service.getDocument({ db, docId, attachments: true })).result._attachments;
  equal('inline', Buffer.from(inline['note.txt'].data, 'base64').toString(), text);
  const related = await collect((await service.getDocumentAsRelated({ db, docId, attachments: true })).result, true);
  check('the document as multipart/related', related.includes('"follows":true') && related.includes('filename="deep/blob.bin"'), related.toString().slice(0, 500));
  const removed = (await service.deleteAttachment({ db, docId, attachmentName: 'note.txt', rev: second.rev })).result;
  equal('delete an attachment', removed.rev.slice(0, 2), '3-');
  await fails('and it is gone', service.getAttachment({ db, docId, attachmentName: 'note.txt' }), 404, 'not_found');
  const document = { kept: true, _attachments: { 'inline.txt': { content_type: 'text/plain', data: Buffer.from('hello').toString('base64') }, 'deep/blob.bin': { stub: true } } };
  const third = (await service.putDocument({ db, docId, rev: removed.rev, document })).result;
  equal('an inline attachment beside a stub', [(await get('inline.txt')).toString(), (await get('deep/blob.bin')).equals(bytes), third.rev.slice(0, 2)], ['hello', true, '4-']);
  await fails('a stub of nothing', service.putDocument({ db, docId: 'stub of nothing', document: { _attachments: { x: { stub: true } } } }), 412, 'missing_stub');
  const listed = (await service.postAllDocs({ db, key: docId, includeDocs: true, attachments: true })).result.rows[0].doc._attachments;
  equal('attachments in a list', Buffer.from(listed['inline.txt'].data, 'base64').toString(), 'hello');
  const changed = (await service.postChanges({ db, filter: '_doc_ids', docIds: [docId], includeDocs: true, attachments: true })).result.results[0].doc;
  equal('attachments in changes', Buffer.from(changed._attachments['inline.txt'].data, 'base64').toString(), 'hello');
}

async function partitions(service) {
  const parts = `${db}-parts`;
  await service.putDatabase({ db: parts, partitioned: true });
  await service.postBulkDocs({ db: parts, bulkDocs: { docs: ['x:1', 'x:2', 'y:1'].map((_id) => ({ _id, v: _id })) } });
  equal('partition', (await service.getPartitionInformation({ db: parts, partitionKey: 'x' })).result.docCount, 2);
  equal('all_docs of a partition', ids((await service.postPartitionAllDocs({ db: parts, partitionKey: 'x' })).result.rows), ['x:1', 'x:2']);
  await service.putDesignDocument({ db: parts, ddoc: 'p', designDocument: { views: { v: { map: 'function (doc) { emit(doc.v, 1); }' } } } });
  equal('a view of a partition', ids((await service.postPartitionView({ db: parts, partitionKey: 'y', ddoc: 'p', view: 'v' })).result.rows), ['y:1']);
  await service.deleteDatabase({ db: parts });
}

async function security(service) {
  const wanted = { admins: { names: ['boss'], roles: [] }, members: { names: ['worker'], roles: ['staff'] } };
  equal('set security', (await service.putSecurity({ db, ...wanted })).result, { ok: true });
  const { admins, members } = (await service.getSecurity({ db })).result;
  equal('get security', { admins, members }, wanted);
  await service.putDocument({ db: '_users', docId: 'org.couchdb.user:cloudant-worker', document: { name: 'cloudant-worker', password: 'pa:ss wörd', roles: ['staff'], type: 'user' } });
  const worker = open(new BasicAuthenticator({ username: 'cloudant-worker', password: 'pa:ss wörd' }));
  equal('a member reads', (await worker.getDocument({ db, docId: 'bulk-001' })).result.n, 1);
  await fails('a member writes no design document', worker.putDesignDocument({ db, ddoc: 'x', designDocument: {} }), 403, 'forbidden');
  await fails('a member creates no database', worker.putDatabase({ db: `${db}-worker` }), 401, 'unauthorized');
  const cookie = open(new CouchdbSessionAuthenticator({ username: 'cloudant-worker', password: 'pa:ss wörd' }));
  equal('a member with a session', (await cookie.getDocument({ db, docId: 'bulk-001' })).result.n, 1);
  await service.putSecurity({ db, admins: wanted.admins, members: { names: ['somebody'], roles: [] } });
  await fails('who is no member any more', worker.getDocument({ db, docId: 'bulk-001' }), 403, 'forbidden');
  const { _rev } = (await service.getDocument({ db: '_users', docId: 'org.couchdb.user:cloudant-worker' })).result;
  await service.deleteDocument({ db: '_users', docId: 'org.couchdb.user:cloudant-worker', rev: _rev });
  await fails('who is no user any more', worker.getSessionInformation(), 401, 'unauthorized');
}

async function replication(service) {
  const copy = `${db}-copy`;
  const docId = 'cloudant-replication';
  const basic = { auth: { basic: { username: name, password } } };
  const document = { source: { url: `${url}/${db}`, ...basic }, target: { url: `${url}/${copy}`, ...basic }, createTarget: true };
  equal('put a replication', (await service.putReplicationDocument({ docId, replicationDocument: document })).status, 201);
  const completed = async () => (await service.getSchedulerDocument({ docId }).catch(() => ({}))).result?.state === 'completed';
  check('the replication completes', await until(completed), (await service.getSchedulerDocs({})).result);
  const [here, there] = await Promise.all([db, copy].map(async (one) => (await service.postChanges({ db: one, style: 'all_docs' })).result.results
    .map((row) => [row.id, row.changes.map((change) => change.rev).sort()]).sort()));
  equal('the copy has every leaf', there, here);
  const info = (await service.getSchedulerDocument({ docId })).result;
  check('its document says what was written', info.info.docsWritten >= here.length && info.info.docWriteFailures === 0, info.info);
  check('no password is shown', !JSON.stringify([info, (await service.getSchedulerDocs({})).result, (await service.getSchedulerJobs({})).result]).includes(`${name}:${password}`));
  equal('head of a scheduler document', (await service.headSchedulerDocument({ docId })).status, 200);
  const { _rev } = (await service.getReplicationDocument({ docId })).result;
  equal('delete a replication', (await service.deleteReplicationDocument({ docId, rev: _rev })).result.ok, true);
  check('active tasks', Array.isArray((await service.getActiveTasks()).result));
  await service.deleteDatabase({ db: copy });
}

/** The SDK can compress what it sends. */
async function compressed(service) {
  service.setEnableGzipCompression(true);
  const { result } = await service.putDocument({ db, docId: 'compressed', document: { text: 'z'.repeat(100_000) } });
  service.setEnableGzipCompression(false);
  equal('a compressed body', [result.ok, (await service.getDocument({ db, docId: 'compressed' })).result.text.length], [true, 100_000]);
}

async function search(service) {
  const index = "function (doc) { if (doc.fruit) { index('default', doc.fruit, { store: true }); index('kind', doc.kind, { facet: true }); index('price', doc.price, { facet: true }); } }";
  await service.putDesignDocument({ db, ddoc: 'fruit', designDocument: { indexes: { fruit: { index } } } });
  const docs = [{ _id: 'fruit-a', fruit: 'green apple', kind: 'apple', price: 1 }, { _id: 'fruit-b', fruit: 'green pear', kind: 'pear', price: 2 }];
  await service.postBulkDocs({ db, bulkDocs: { docs } });
  const ask = async (params) => (await service.postSearch({ db, ddoc: 'fruit', index: 'fruit', ...params })).result;
  const found = await ask({ query: 'green', counts: ['kind'], ranges: { price: { cheap: '[0 TO 1]' } }, sort: ['-price<number>'], highlightFields: ['default'] });
  equal('search', [found.totalRows, found.counts, found.ranges], [2, { kind: { apple: 1, pear: 1 } }, { price: { cheap: 1 } }]);
  equal('in order', ids(found.rows), ['fruit-b', 'fruit-a']);
  equal('with highlights', found.rows[0].highlights, { default: ['<em>green</em> pear'] });
  equal('drilled down', ids((await ask({ query: 'green', drilldown: [['kind', 'apple']], includeDocs: true })).rows), ['fruit-a']);
  const groups = await ask({ query: 'green', groupField: 'kind', groupSort: ['price'] });
  equal('in groups', groups.groups.map((group) => [group.by, group.totalRows]), [['apple', 1], ['pear', 1]]);
  equal('search information', (await service.getSearchInfo({ db, ddoc: 'fruit', index: 'fruit' })).result.searchIndex.docCount, 2);
  equal('search disk size', (await service.getSearchDiskSize({ db, ddoc: 'fruit', index: 'fruit' })).result.searchIndex.diskSize > 0, true);
  equal('analyze', (await service.postSearchAnalyze({ analyzer: 'english', text: 'running' })).result.tokens, ['run']);
  const pager = Pagination.newPagination(service, PagerType.POST_SEARCH, { db, ddoc: 'fruit', index: 'fruit', query: 'green', limit: 1 });
  equal('all pages', ids(await pager.pager().getAll()).sort(), ['fruit-a', 'fruit-b']);
}

async function session() {
  const service = open(new CouchdbSessionAuthenticator({ username: name, password }));
  const { userCtx, info } = (await service.getSessionInformation()).result;
  equal('session', [userCtx.name, userCtx.roles, info.authenticated], [name, ['_admin'], 'cookie']);
  const wrong = open(new CouchdbSessionAuthenticator({ username: name, password: 'wrong' }));
  await fails('a session with a wrong password', wrong.getSessionInformation(), 401);
}

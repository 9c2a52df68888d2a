// Mango queries with pouchdb-find over HTTP, with nano and with the Cloudant SDK.
const Nano = require('nano');
const PouchDB = require('pouchdb-core').plugin(require('pouchdb-adapter-http')).plugin(require('pouchdb-find'));
const { CloudantV1, CouchdbSessionAuthenticator } = require('@ibm-cloud/cloudant');
const { url, name, password, urlWithAdmin, check, equal, fails, run } = require('./checks.cjs');

const DB = 'client-find';
const BIRDS = [
  { _id: 'auk', kind: 'bird', wings: 2, weight: 0.9, home: { sea: 'north' } },
  { _id: 'emu', kind: 'bird', wings: 2, weight: 40 },
  { _id: 'owl', kind: 'bird', wings: 2, weight: 1.5, home: { sea: 'none' } },
  { _id: 'bee', kind: 'insect', wings: 4, weight: 0.0001 },
];
const ids = (docs) => docs.map((doc) => doc._id);

run(async () => {
  const nano = Nano(urlWithAdmin);
  await nano.db.create(DB);
  const db = nano.use(DB);
  await db.bulk({ docs: BIRDS });
  await withNano(db);
  await withPouch();
  await withCloudant();
  equal('delete the database', (await nano.db.destroy(DB)).ok, true);
});

async function withNano(db) {
  const created = await db.createIndex({ index: { fields: ['kind', 'weight'] }, ddoc: 'by', name: 'kind-weight' });
  equal('nano: create an index', [created.result, created.id, created.name], ['created', '_design/by', 'kind-weight']);
  const found = await db.find({ selector: { kind: 'bird', weight: { $lt: 10 } }, sort: ['kind', 'weight'], fields: ['_id', 'weight'] });
  equal('nano: find', [ids(found.docs), found.warning], [['auk', 'owl'], undefined]);
  await fails('nano: a sort without an index', db.find({ selector: { wings: 2 }, sort: ['wings'] }), 400, 'no_usable_index');
  const stats = await db.find({ selector: { wings: 4 }, execution_stats: true });
  equal('nano: a scan', [ids(stats.docs), stats.execution_stats.total_docs_examined, typeof stats.warning], [['bee'], 5, 'string']);
}

async function withPouch() {
  const db = new PouchDB(`${url}/${DB}`, { auth: { username: name, password } });
  const created = await db.createIndex({ index: { fields: ['home.sea'] } });
  equal('pouchdb-find: create an index', created.result, 'created');
  equal('pouchdb-find: create it again', (await db.createIndex({ index: { fields: ['home.sea'] } })).result, 'exists');
  const { indexes } = await db.getIndexes();
  equal('pouchdb-find: list indexes', indexes.map((index) => index.type), ['special', 'json', 'json']);
  const found = await db.find({ selector: { 'home.sea': { $gt: null } }, sort: [{ 'home.sea': 'desc' }] });
  equal('pouchdb-find: find', ids(found.docs), ['auk', 'owl']);
  const plan = await db.explain({ selector: { 'home.sea': 'north' } });
  equal('pouchdb-find: explain', [plan.index.type, plan.index.def.fields], ['json', [{ 'home.sea': 'asc' }]]);
  const made = indexes.find((index) => index.ddoc && index.ddoc !== '_design/by');
  equal('pouchdb-find: delete an index', (await db.deleteIndex(made)).ok, true);
}

async function withCloudant() {
  const client = CloudantV1.newInstance({ authenticator: new CouchdbSessionAuthenticator({ username: name, password }) });
  client.setServiceUrl(url);
  const db = DB;
  const made = await client.postIndex({ db, index: { fields: [{ wings: 'asc' }] }, ddoc: 'sdk', name: 'wings', type: 'json' });
  equal('cloudant: create an index', made.result.result, 'created');
  const list = await client.getIndexesInformation({ db });
  equal('cloudant: list indexes', list.result.totalRows, 3);
  const page = await client.postFind({ db, selector: { wings: { $in: [2, 4] } }, sort: [{ wings: 'desc' }], limit: 2, fields: ['_id'] });
  equal('cloudant: the first page', ids(page.result.docs), ['bee', 'owl']);
  const next = await client.postFind({ db, selector: { wings: { $in: [2, 4] } }, sort: [{ wings: 'desc' }], bookmark: page.result.bookmark, fields: ['_id'] });
  equal('cloudant: the second page', ids(next.result.docs), ['emu', 'auk']);
  const plan = await client.postExplain({ db, selector: { wings: 2 }, fields: ['wings'] });
  equal('cloudant: explain', [plan.result.index.name, plan.result.covering, plan.result.mrargs.startKey], ['wings', true, [2]]);
  check('cloudant: candidates have reasons', plan.result.indexCandidates.every((c) => c.analysis.reasons.length > 0), plan.result.indexCandidates);
  equal('cloudant: delete an index', (await client.deleteIndex({ db, ddoc: 'sdk', type: 'json', index: 'wings' })).result.ok, true);
}

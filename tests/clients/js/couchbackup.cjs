// @cloudant/couchbackup: backup and restore, shallow and full, compared document by document.
const { createReadStream, createWriteStream, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const couchbackup = require('@cloudant/couchbackup');
const Nano = require('nano');
const { urlWithAdmin, check, equal, run } = require('./checks.cjs');

const FROM = 'client-couchbackup';
const CONTENT = 'an attachment '.repeat(500);
const nano = Nano(urlWithAdmin);
const folder = mkdtempSync(join(tmpdir(), 'settee-couchbackup-'));

run(async () => {
  try {
    await everything();
  } finally {
    rmSync(folder, { recursive: true });
    for (const db of (await nano.db.list()).filter((one) => one.startsWith(FROM))) await nano.db.destroy(db);
  }
});

async function everything() {
  await fill();
  const full = await leaves(FROM);
  const winners = await winningLeaves(FROM);
  await roundTrip('full', { mode: 'full', bufferSize: 50, parallelism: 3 }, full);
  await roundTrip('shallow', { mode: 'shallow', bufferSize: 50 }, winners);
  await resumed(full);
  await refusals();
  const data = Buffer.from(CONTENT).toString('base64');
  await nano.use(FROM).insert({ with: 'attachment', _attachments: { 'deep/note.txt': { content_type: 'text/plain', data } } }, 'attached');
  await roundTrip('full with attachments', { mode: 'full', bufferSize: 50, attachments: true }, await leaves(FROM), true);
}

/** Documents with history, conflicts, tombstones, a design document, and awkward ids and values. */
async function fill() {
  await nano.db.create(FROM);
  const db = nano.use(FROM);
  const docs = Array.from({ length: 230 }, (_, n) => ({ _id: `doc-${String(n).padStart(3, '0')}`, n, half: n + 0.5, text: 'ß🙂"\\\n'.repeat(n % 7) }));
  await db.bulk({ docs });
  const { rows } = await db.list({ limit: 40, startkey: 'doc-' });
  await db.bulk({ docs: rows.map((row, n) => ({ _id: row.id, _rev: row.value.rev, n: -n, ...(n % 5 === 0 && { _deleted: true }) })) });
  await db.insert({ slash: true }, 'a/b c+ü');
  await db.insert({ views: { all: { map: 'function (doc) { emit(doc.n); }' } } }, '_design/backup');
  const hash = (character) => character.repeat(32);
  const graft = (character, more) => ({ _id: 'forked', _rev: `2-${hash(character)}`, _revisions: { start: 2, ids: [hash(character), hash('a')] }, from: character, ...more });
  await db.bulk({ new_edits: false, docs: [graft('1'), graft('7', { _deleted: true }), graft('f')] });
}

async function roundTrip(what, options, wanted, attachments = false) {
  const target = `${FROM}-${what.replaceAll(' ', '-')}`;
  const file = join(folder, `${target}.txt`);
  const total = await backup(file, options);
  const documents = new Set(Object.keys(wanted)).size;
  check(`${what}: everything is in the backup`, total >= documents, { total, documents });
  await nano.db.create(target);
  const restored = await restore(file, target, { bufferSize: 40, parallelism: 2, attachments: options.attachments });
  equal(`${what}: everything is restored`, restored, total);
  equal(`${what}: the copy equals the original, leaf by leaf`, strip(await leaves(target), attachments), strip(wanted, attachments));
  if (!attachments) return;
  const copied = await nano.use(target).attachment.get('attached', 'deep/note.txt');
  equal(`${what}: the attachment's content`, copied.toString(), CONTENT);
}

/** A backup that stops after its log was written, and goes on from there. */
async function resumed(wanted) {
  const [file, log, target] = [join(folder, 'resumed.txt'), join(folder, 'resumed.log'), `${FROM}-resumed`];
  await backup(file, { mode: 'full', bufferSize: 50, log });
  check('resume: the log is there', existsSync(log));
  // Take back that the second batch was done, and its lines.
  const lines = readFileSync(log, 'utf8').split('\n');
  const done = lines.findLastIndex((line) => line.startsWith(':d batch'));
  const batch = /:d (batch\d+)/.exec(lines[done])[1];
  const ids = new Set(JSON.parse(lines.find((line) => line.startsWith(`:t ${batch} `)).slice(`:t ${batch} `.length)).map((one) => one.id));
  writeFileSync(log, lines.toSpliced(done, 1).join('\n'));
  const [header, ...batches] = readFileSync(file, 'utf8').trimEnd().split('\n');
  const kept = batches.filter((line) => !JSON.parse(line).some((doc) => ids.has(doc._id)));
  check('resume: a batch is taken away', kept.length < batches.length, { batches: batches.length, kept: kept.length });
  writeFileSync(file, `${[header, ...kept].join('\n')}\n`);
  await backup(file, { mode: 'full', log, resume: true }, 'a');
  await nano.db.create(target);
  await restore(file, target, {});
  equal('resume: the copy equals the original', strip(await leaves(target)), strip(wanted));
}

async function refusals() {
  const failed = async (promise) => promise.then(() => 'no error', (error) => error.name);
  equal('a database that is not there', await failed(backup(join(folder, 'none'), {}, 'w', `${FROM}-none`)), 'DatabaseNotFound');
  equal('a restore into a filled database', await failed(restore(join(folder, `${FROM}-full.txt`), FROM, {})), 'DatabaseNotEmpty');
}

function backup(file, options, flags = 'w', db = FROM) {
  return new Promise((resolve, reject) => {
    const out = createWriteStream(file, { flags });
    couchbackup.backup(`${urlWithAdmin}/${db}`, out, options, (error, total) => (error ? reject(error) : out.end(() => resolve(total?.total ?? total))));
  });
}

function restore(file, db, options) {
  return new Promise((resolve, reject) => {
    couchbackup.restore(createReadStream(file), `${urlWithAdmin}/${db}`, options, (error, total) => (error ? reject(error) : resolve(total?.total ?? total)));
  });
}

async function leaves(name) {
  const db = nano.use(name);
  const { results } = await db.changes({ style: 'all_docs' });
  const docs = results.flatMap((row) => row.changes.map(({ rev }) => ({ id: row.id, rev })));
  const got = await db.server.request({ db: name, path: '_bulk_get', method: 'post', qs: { revs: true }, body: { docs } });
  const found = {};
  for (const { id, docs: read } of got.results) for (const { ok } of read) (found[id] ??= {})[ok._rev] = ok;
  return found;
}

/** What a shallow backup keeps: the winners that are not deleted, without their history. */
async function winningLeaves(name) {
  const { rows } = await nano.use(name).list({ include_docs: true });
  return Object.fromEntries(rows.map((row) => [row.id, { [row.doc._rev]: row.doc }]));
}

/** Without what a backup does not carry: history in a shallow one, and attachments unless asked for. */
function strip(found, attachments = false) {
  const stripped = ({ _revisions, _attachments, ...doc }) => (attachments ? { ...doc, names: Object.keys(_attachments ?? {}) } : doc);
  return Object.fromEntries(Object.entries(found).sort().map(([id, revs]) => [id, Object.fromEntries(Object.entries(revs).sort().map(([rev, doc]) => [rev, stripped(doc)]))]));
}

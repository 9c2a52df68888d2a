// PouchDB 9.0.0 as it is, but for one line.
//
// With `retry: true`, a replication whose changes feed fails drops the batches that it has read ahead and starts anew. But the
// old one lives on: when the batch that it was at is written, it asks for changes after those that it dropped, and once there
// are none it writes a checkpoint behind documents that nobody has copied. They are never copied then, whatever the server.
const { readFileSync } = require('node:fs');
const Module = require('node:module');

const BEFORE = 'function getChanges() {';
const AFTER = `${BEFORE} if (replicationCompleted) { return; }`;

function loadPouchDB() {
  const path = require.resolve('pouchdb');
  const source = readFileSync(path, 'utf8');
  if (source.split(BEFORE).length !== 2) throw new Error('another version of PouchDB: is its replicator still wrong?');
  const patched = new Module(path, module);
  patched.filename = path;
  patched.paths = Module._nodeModulePaths(path);
  patched._compile(source.replace(BEFORE, AFTER), path);
  return patched.exports;
}

module.exports = { loadPouchDB };

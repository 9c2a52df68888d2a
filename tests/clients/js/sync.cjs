// One device of an offline-first app: a PouchDB in LevelDB that syncs live with a server, and edits without asking it.
//
// The test drives it by lines of JSON on stdin, {"id", "do", …}, each answered by {"id", "value"} or {"id", "error"}.
// Whatever the sync itself says comes in between as {"event", …}.
const { writeFileSync } = require('node:fs');
const { createInterface } = require('node:readline');
const PouchDB = require('pouchdb');
const { Edits } = require('./edits.cjs');

const RETRY_MS = 100;
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const told = (error) => ({ status: error?.status, name: error?.name, message: error?.message ?? String(error), id: error?.docId ?? error?.id });

// PouchDB leaves the promise of a request alone whose answer it no longer needs. In a browser its failure is a line in the
// console; Node would end.
process.on('unhandledRejection', (error) => {
  if (error?.message !== 'fetch failed' && error?.message !== 'terminated' && error?.name !== 'AbortError') throw error;
  say({ event: 'unhandled', about: told(error) });
});

// Node's own fetch, which is a browser's. The one that PouchDB brings for Node (node-fetch 2) waits for ever when a connection ends
// within a body of known length.
const overFetch = (path, { headers, ...options } = {}) => fetch(path, { ...options, headers: Object.fromEntries(headers ?? []) });
const open = (url, username, password) => new PouchDB(url, { auth: { username, password }, skip_setup: true, fetch: overFetch });

let db;
let sync;
let edits;

const commands = {
  open({ path, name, seed }) {
    db = new PouchDB(path);
    edits = new Edits(db, name, seed);
  },

  /** Syncs in both directions from now on, through whatever happens to the connection. */
  live({ url, username, password, batch_size }) {
    const remote = open(url, username, password);
    sync = db.sync(remote, { live: true, retry: true, batch_size, back_off_function: () => RETRY_MS, heartbeat: 1000 });
    for (const event of ['denied', 'error', 'complete']) sync.on(event, (about) => say({ event, about: told(about?.doc ?? about) }));
    sync.on('change', ({ direction, change }) => say({ event: 'change', direction, written: change.docs_written, failed: change.doc_write_failures }));
  },

  /** One sync that ends by itself. */
  async once({ url, username, password, batch_size }) {
    const remote = open(url, username, password);
    const { push, pull } = await db.sync(remote, { batch_size });
    const count = ({ ok, docs_read, docs_written, doc_write_failures }) => ({ ok, docs_read, docs_written, doc_write_failures });
    return { push: count(push), pull: count(pull) };
  },

  /** `count` random edits; answers with what was acknowledged: [[id, rev], …]. */
  edit({ count }) {
    return edits.make(count);
  },

  async stop() {
    sync.cancel();
  },

  async revs() {
    const { results } = await db.changes({ since: 0, style: 'all_docs' });
    return results.map((row) => [row.id, row.changes.map((change) => change.rev).sort()]);
  },

  /** Every leaf with its ancestry and attachments, as a list of documents in a file. */
  async leaves({ file }) {
    const docs = [];
    for (const [id, revs] of await commands.revs()) {
      for (const rev of revs) docs.push(await db.get(id, { rev, revs: true, attachments: true }));
    }
    writeFileSync(file, JSON.stringify(docs));
  },
};

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, do: command, ...options } = JSON.parse(line);
  try {
    say({ id, value: (await commands[command](options)) ?? null });
  } catch (error) {
    say({ id, error: told(error) });
  }
}).on('close', () => process.exit(0));

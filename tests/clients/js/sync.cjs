// One device of an offline-first app: a PouchDB in LevelDB that syncs live with a server, and edits without asking it.
//
// The test drives it by lines of JSON on stdin, {"id", "do", …}, each answered by {"id", "value"} or {"id", "error"}.
// Whatever the sync itself says comes in between as {"event", …}.
const { writeFileSync } = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const { createInterface } = require('node:readline');
const { Edits } = require('./edits.cjs');
const { loadPouchDB } = require('./pouchdb_retrying.cjs');

const RETRY_MS = 100;
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const told = (error) => ({ status: error?.status, name: error?.name, message: error?.message ?? String(error), id: error?.docId ?? error?.id });

// PouchDB leaves the promise of a request alone whose answer it no longer needs. In a browser its failure is a line in the
// console; Node would end.
process.on('unhandledRejection', (error) => {
  if (!error?.code && error?.name !== 'AbortError' && !/^the connection ended/.test(error?.message)) throw error;
  say({ event: 'unhandled', about: told(error) });
});

const transports = {
  'http:': { request: http.request, agent: new http.Agent({ keepAlive: true }) },
  'https:': { request: https.request, agent: new https.Agent({ keepAlive: true }) },
};
const unanswered = new Set();

// A fetch that notices every end of a connection. Those that Node has do not: node-fetch 2, which PouchDB brings, waits for ever when
// one ends within a body of known length, and Node's own may forget requests when connecting fails.
async function overHttp(path, { method = 'GET', headers, body, signal } = {}) {
  const asked = { method, path, at: new Date().toISOString() };
  unanswered.add(asked);
  try {
    return await exchange(path, { method, signal, headers: Object.fromEntries(headers ?? []) }, body);
  } finally {
    unanswered.delete(asked);
  }
}

function exchange(path, options, body) {
  return new Promise((resolve, reject) => {
    const { request: begin, agent } = transports[new URL(path).protocol];
    const request = begin(path, { ...options, agent }, (answer) => {
      const chunks = [];
      answer.on('data', (chunk) => chunks.push(chunk));
      answer.on('error', reject);
      answer.on('close', () => reject(new Error('the connection ended within the answer')));
      answer.on('end', () => {
        if (!answer.complete) return;
        const empty = answer.statusCode === 204 || answer.statusCode === 304;
        const body = Buffer.concat(chunks);
        const response = new Response(empty ? null : body, { status: answer.statusCode, headers: answer.headers });
        resolve(Object.assign(response, { buffer: async () => body })); // as node-fetch has it; PouchDB asks for it
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}

const open = (url, username, password) => new PouchDB(url, { auth: { username, password }, skip_setup: true, fetch: overHttp });

let PouchDB;
let retry;
let db;
let sync;
let edits;

const commands = {
  /** `retries`: PouchDB's own `retry: true`; otherwise this app starts a sync that failed again. */
  open({ path, name, seed, retries }) {
    retry = retries;
    PouchDB = retries ? loadPouchDB() : require('pouchdb');
    db = new PouchDB(path);
    edits = new Edits(db, name, seed);
  },

  /** Syncs in both directions from now on, through whatever happens to the connection. */
  live({ url, username, password, batch_size }) {
    const options = { live: true, retry, batch_size, back_off_function: () => RETRY_MS, heartbeat: 1000 };
    const begin = () => {
      sync = db.sync(open(url, username, password), options);
      for (const event of ['denied', 'complete']) sync.on(event, (about) => say({ event, about: told(about?.doc ?? about) }));
      sync.on('change', ({ direction, change }) => say({ event: 'change', direction, written: change.docs_written, failed: change.doc_write_failures }));
      sync.on('error', (error) => {
        say({ event: retry || error.status ? 'error' : 'broken', about: told(error) });
        if (!retry) setTimeout(begin, RETRY_MS);
      });
      for (const direction of ['push', 'pull']) {
        sync[direction].on('paused', (error) => say({ event: 'paused', direction, at: new Date().toISOString(), about: error?.message }));
      }
    };
    begin();
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

  /** The requests that wait for their answers. */
  unanswered() {
    return [...unanswered];
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

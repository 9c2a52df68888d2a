import PouchDB from 'pouchdb-browser';

const server = import.meta.env.VITE_SERVER ?? 'http://localhost:5984';
const element = (id) => document.getElementById(id);

// The database of this browser. It works without a login, and without a network.
const local = new PouchDB('notes');

element('new').onsubmit = async (event) => {
  event.preventDefault();
  await local.put({ _id: `note:${new Date().toISOString()}`, text: element('text').value, done: false });
  element('text').value = '';
};

async function draw() {
  const { rows } = await local.allDocs({ startkey: 'note:', endkey: 'note:\uffff', include_docs: true });
  element('notes').replaceChildren(...rows.map(({ doc }) => item(doc)));
}

function item(doc) {
  const box = document.createElement('input');
  box.type = 'checkbox';
  box.checked = doc.done;
  box.onchange = () => local.put({ ...doc, done: box.checked });
  const label = document.createElement('label');
  label.append(box, ' ', doc.text);
  const item = document.createElement('li');
  item.append(label);
  return item;
}

// Changes come from this tab, from other tabs, and from the server.
local.changes({ since: 'now', live: true }).on('change', draw);
draw();

let sync;
element('login').onsubmit = async (event) => {
  event.preventDefault();
  sync?.cancel();
  const auth = { username: element('name').value, password: element('password').value };
  const remote = new PouchDB(`${server}/notes`, { auth, skip_setup: true });
  try {
    await remote.allDocs({ limit: 0 });
  } catch (error) {
    return show(error.status === 401 ? 'wrong name or password' : `failed: ${error.message}`);
  }
  element('password').value = '';
  sync = local
    .sync(remote, { live: true, retry: true })
    .on('active', () => show('sending and receiving'))
    .on('paused', (error) => show(error ? 'waiting for the network' : 'up to date'))
    .on('error', (error) => show(`stopped: ${error.message}`));
};

function show(status) {
  element('status').value = status;
}

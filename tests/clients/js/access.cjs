// Two users with a device each sync with one database with access by document: grants, revocation while a device is offline and while it
// is live, an edit made offline after it, access given back, deletions, and roles given, taken and given back.
const { mkdtempSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const PouchDB = require('pouchdb');
const { url, name, password, check, equal, fails, until, run } = require('./checks.cjs');

const DB = 'client-access';
const folder = mkdtempSync(join(tmpdir(), 'access-'));
const basic = (user, secret) => `Basic ${Buffer.from(`${user}:${secret}`).toString('base64')}`;

async function admin(method, path, body) {
  const headers = { authorization: basic(name, password), 'content-type': 'application/json' };
  const answer = await fetch(`${url}${path}`, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, json: await answer.json() };
}

const remote = (user) => new PouchDB(`${url}/${DB}`, { auth: { username: user, password: 'pw' }, skip_setup: true });
const devices = Object.fromEntries(['alice', 'bob'].map((user) => [user, new PouchDB(join(folder, user))]));
const sync = (user) => devices[user].sync(remote(user), { batch_size: 7 });
const has = async (user, id) => devices[user].get(id).then(() => true, () => false);

async function person(user, roles) {
  const path = `/_users/org.couchdb.user:${user}`;
  const before = await admin('GET', path);
  const doc = { _id: `org.couchdb.user:${user}`, name: user, password: 'pw', roles, type: 'user' };
  const written = await admin('PUT', path, before.status === 200 ? { ...doc, _rev: before.json._rev } : doc);
  equal(`user ${user} with ${roles.length} roles`, written.status, 201);
}

/** Edits a document on a device. */
async function edit(user, id, members) {
  const before = await devices[user].get(id).catch(() => ({ _id: id }));
  return devices[user].put({ ...before, ...members });
}

run(async () => {
  await person('alice', []);
  await person('bob', []);
  equal('create', (await admin('PUT', `/${DB}?access=true`)).status, 201);
  const security = { admins: { roles: ['_admin'] }, members: { names: ['alice', 'bob'], roles: [] } };
  equal('security', (await admin('PUT', `/${DB}/_security`, security)).status, 200);
  await sharing();
  await revocation();
  await live();
  await roles();
  await Promise.all(Object.values(devices).map((device) => device.close()));
  rmSync(folder, { recursive: true, force: true });
  for (const user of ['alice', 'bob']) {
    const path = `/_users/org.couchdb.user:${user}`;
    await admin('DELETE', `${path}?rev=${(await admin('GET', path)).json._rev}`);
  }
  equal('destroy', (await admin('DELETE', `/${DB}`)).status, 200);
});

async function sharing() {
  for (let n = 0; n < 30; n++) {
    await edit('alice', `alice-${n}`, { _access: ['alice'], n });
    await edit('bob', `bob-${n}`, { _access: ['bob'], n });
  }
  await edit('alice', 'list', { _access: ['alice', 'bob'], items: [] });
  await edit('alice', 'note', { _access: ['alice', 'bob'] });
  equal('alice pushes', (await sync('alice')).push.doc_write_failures, 0);
  equal('bob pushes', (await sync('bob')).push.doc_write_failures, 0);
  const ids = (await devices.bob.allDocs()).rows.map((row) => row.id);
  equal('bob has his own and what is shared', ids.filter((id) => !id.startsWith('bob-')), ['list', 'note']);
  await edit('bob', 'list', { items: ['milk'] });
  await sync('bob');
  await sync('alice');
  equal('alice has the edit', (await devices.alice.get('list')).items, ['milk']);
  const again = await sync('bob');
  equal('nothing is left to do', [again.pull.docs_written, again.push.docs_written], [0, 0]);
}

async function revocation() {
  for (const id of ['list', 'note']) await edit('alice', id, { _access: ['alice'] });
  await edit('bob', 'list', { items: ['milk', 'tea'] });
  await sync('alice');
  const synced = await sync('bob');
  check('the edit after it is refused', synced.push.doc_write_failures > 0, synced.push);
  check('what was taken away is gone', !(await has('bob', 'note')));
  equal('the edit stays on its device', (await devices.bob.get('list')).items, ['milk', 'tea']);
  equal('and nowhere else', (await remote('alice').get('list')).items, ['milk']);
  await fails('it is hidden', remote('bob').get('list'), 404);
  await sync('bob');
  await sync('alice');
  check('a device sends nothing back', await has('alice', 'note'));
  await edit('alice', 'note', { _access: ['alice', 'bob'], again: true });
  await sync('alice');
  await sync('bob');
  equal('given back', (await devices.bob.get('note').catch(() => ({}))).again, true);
  await devices.alice.remove(await devices.alice.get('note'));
  await sync('alice');
  await sync('bob');
  check('a deletion arrives', !(await has('bob', 'note')));
}

async function live() {
  const following = devices.bob.sync(remote('bob'), { live: true, retry: true });
  following.catch(() => {});
  await edit('alice', 'live', { _access: ['alice', 'bob'] });
  await sync('alice');
  check('it arrives', await until(() => has('bob', 'live')));
  await edit('alice', 'live', { _access: ['alice'] });
  await sync('alice');
  check('and goes', await until(async () => !(await has('bob', 'live'))));
  following.cancel();
}

async function roles() {
  await edit('alice', 'team', { _access: { read: ['role:team'], write: ['alice'] } });
  await sync('alice');
  await sync('bob');
  check('not without the role', !(await has('bob', 'team')));
  await person('bob', ['team']);
  await sync('bob');
  check('an older document of a new role', await has('bob', 'team'));
  await rolesTaken();
}

async function rolesTaken() {
  const team = { read: ['role:team'], write: ['alice'] };
  await edit('alice', 'kept', { _access: team, n: 0 });
  await sync('alice');
  await sync('bob');
  await person('bob', []);
  await edit('alice', 'team', { n: 1 });
  await edit('alice', 'kept', { n: 1 });
  await edit('alice', 'later', { _access: team });
  await edit('bob', 'team', { n: 'mine' });
  await sync('alice');
  const taken = await sync('bob');
  check('an edit of a reader is refused', taken.push.doc_write_failures > 0, taken.push);
  check('nothing more arrives without the role', !(await has('bob', 'later')));
  equal('what was there stays', [(await devices.bob.get('team')).n, (await devices.bob.get('kept')).n], ['mine', 0]);
  await fails('it is hidden', remote('bob').get('team'), 404);
  await devices.bob.put({ _id: 'own', _access: ['bob'] });
  await sync('bob');
  equal('what is his own still goes', (await remote('bob').get('own'))._access, ['bob']);
  await edit('alice', 'later', { _access: ['alice'] });
  await edit('alice', 'again', { _access: team });
  await sync('alice');
  await person('bob', ['team']);
  await sync('bob');
  check('what came meanwhile', await has('bob', 'again'));
  equal('an edit that was made meanwhile', (await devices.bob.get('kept')).n, 1);
  check('but not what the role lost', !(await has('bob', 'later')));
  equal('its edit is there too', (await devices.bob.get('team', { conflicts: true }))._conflicts.length, 1);
}

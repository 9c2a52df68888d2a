import assert from 'node:assert/strict';
import { test } from 'node:test';
import { from, Num, Obj, print } from '../src/json';
import { fits, type Setting } from '../src/pages/configuration/data';
import {
  forPouchDb,
  modelOf,
  originOf,
  valuesOf,
  wanted,
} from '../src/pages/configuration/origins';
import {
  addressOf,
  blank,
  ownAddress,
  problems,
  read,
  write,
} from '../src/pages/replication/model';
import { databaseOf, merge, Rates, share, type Task } from '../src/pages/tasks/merge';
import { matching } from '../src/pages/users/data';
import { rights } from '../src/pages/users/rights';

const SETTING: Setting = {
  section: 'chttpd',
  key: 'port',
  value: null,
  default: '5984',
  help: 'The port of the API.',
  restart: true,
  kind: 'integer',
};

test('settings are found by every word, secrets not by their value', () => {
  assert.ok(fits(SETTING, ''));
  assert.ok(fits(SETTING, 'PORT api 5984'));
  assert.ok(!fits(SETTING, 'port xyz'));
  assert.ok(!fits({ ...SETTING, value: 'hidden', secret: true }, 'hidden'));
});

test('CORS survives its form, and gets headers when it is first switched on', () => {
  const [http, cors] = [{ enable_cors: 'true' }, { origins: 'https://a, https://b', max_age: '5' }];
  const before = valuesOf(http, cors);
  const model = modelOf(http, {}, cors);
  assert.deepEqual(model.origins, ['https://a', 'https://b']);
  assert.deepEqual(wanted(model, before), before);
  const none = valuesOf({}, {});
  const on = wanted({ ...modelOf({}, {}, {}), isOn: true, origins: ['*'] }, none);
  assert.deepEqual([on.enable_cors, on.origins, on.credentials], ['true', '*', null]);
  assert.match(on.headers ?? '', /content-type/);
  assert.ok(modelOf({}, { enable_cors: 'true' }, {}).isOn);
});

test('a PouchDB app gets its origin and credentials, and every page loses them', () => {
  const before = { isOn: false, origins: ['*', 'https://a'], credentials: false, lines: {} };
  const model = forPouchDb(before);
  assert.deepEqual(model.origins, ['https://a', 'http://localhost:5173']);
  assert.ok(model.isOn && model.credentials);
  assert.deepEqual(forPouchDb(model), model);
});

test('an origin is scheme, host and port', () => {
  assert.strictEqual(originOf(' https://app.example.org:8443/ '), 'https://app.example.org:8443');
  for (const wrong of ['*', 'app.example.org', 'https://a/b', 'https://a?b', 'https://u@a', ''])
    assert.strictEqual(originOf(wrong), undefined, wrong);
});

test('users are found by words of names and roles', () => {
  const all = [
    { name: 'Anna', roles: ['editor'] },
    { name: 'ben', roles: [] },
  ];
  assert.deepEqual(matching(all, ''), all);
  assert.deepEqual(matching(all, 'ann EDIT'), [all[0]]);
  assert.deepEqual(matching(all, 'anna x'), []);
});

test('rights are those that the server grants', () => {
  const security = {
    admins: { names: ['a'], roles: ['boss'] },
    members: { names: ['m'], roles: ['team'] },
  };
  const why = (name: string | null, roles: string[], db = 'db', of: object = security) =>
    rights(db, of, name, roles);
  assert.deepEqual(
    [
      why('x', ['_admin']),
      why('a', []),
      why('x', ['boss']),
      why('m', []),
      why('x', ['team']),
      why('x', []),
      why(null, [], 'db', {}),
      why('x', [], '_users', {}),
      why(null, [], '_users', {}),
    ].map((of) => `${of.why} ${Number(of.read)}${Number(of.write)}${Number(of.admin)}`),
    [
      'server 111',
      'adminName 111',
      'adminRole 111',
      'memberName 110',
      'memberRole 110',
      'none 000',
      'public 110',
      'own 100',
      'own 000',
    ],
  );
});

const task = (more: Partial<Task>): Task => ({ type: 'indexer', started_on: 100, ...more });

test('tasks of shards are one task', () => {
  const [work, ...others] = merge([
    task({ database: 'shards/00000000-7fffffff/shop.17', changes_done: 1, total_changes: 10 }),
    task({ database: 'shards/80000000-ffffffff/shop.17', changes_done: 3, total_changes: 10 }),
  ]);
  assert.ok(work);
  assert.deepEqual(others, []);
  assert.deepEqual([work.database, work.shards, work.done, work.total], ['shop', 2, 4, 20]);
  assert.strictEqual(share(work), 0.2);
  assert.strictEqual(databaseOf('plain'), 'plain');
});

test('a rate is that of the last seconds, and gives the time that is left', () => {
  const rates = new Rates();
  const at = (done: number) =>
    merge([task({ database: 'db', changes_done: done, total_changes: 100, updated_on: 110 })]);
  rates.note(at(10), 0);
  rates.note(at(30), 2000);
  const [work] = at(30);
  assert.ok(work);
  assert.strictEqual(rates.of(work), 10);
  assert.strictEqual(rates.left(work), 7);
  assert.strictEqual(
    share(merge([task({ type: 'replication', continuous: true })])[0] ?? work),
    undefined,
  );
});

const OWN = 'http://127.0.0.1:5984';

test('a replication survives its form, with members that the form does not know', () => {
  const doc = from({
    _id: 'r',
    source: { url: 'https://other.example.org/db', headers: { x: 'y' } },
    target: { url: `${OWN}/a%2Fb`, auth: { basic: { username: 'u', password: 'p' } } },
    continuous: true,
    selector: { a: { $gt: 1 } },
    since_seq: '5-x',
    worker_processes: new Num('4'),
    use_checkpoints: false,
    own: 'stays',
  }) as Obj;
  const model = read(doc, OWN);
  assert.deepEqual([model.target.kind, model.target.db], ['here', 'a/b']);
  assert.deepEqual(problems(model), {});
  const sorted = (value: Obj) => print(new Obj([...value].sort(([a], [b]) => a.localeCompare(b))));
  assert.strictEqual(sorted(write(model)), sorted(doc));
});

test('what is missing in a form is named', () => {
  const model = blank('u', OWN, '');
  model.selection = 'selector';
  model.selector = '[';
  model.lines.worker_processes = 'x';
  model.target = { ...model.target, kind: 'remote', address: 'other/db' };
  assert.deepEqual(
    Object.keys(problems(model)).sort((a, b) => a.localeCompare(b)),
    ['selector', 'source', 'target', 'worker_processes'],
  );
});

test('the address of this server is that of its settings', () => {
  assert.strictEqual(
    ownAddress({ port: '6000', bind_address: '0.0.0.0' }),
    'http://127.0.0.1:6000',
  );
  assert.strictEqual(ownAddress({ port: '6000', bind_address: '::1' }), 'http://[::1]:6000');
  assert.strictEqual(ownAddress(undefined), 'http://127.0.0.1:5984/proxy');
  assert.strictEqual(addressOf(blank('', OWN, 'a b').source, OWN), `${OWN}/a%20b`);
});

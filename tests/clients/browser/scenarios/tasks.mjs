// Tasks: what runs in the background, with progress, rate and time left; nothing when nothing runs.
export const name = 'tasks';

const DOCUMENTS = 6000;
// The build is to last for more than one look of the page, on a fast machine too.
const SLOW_MAP = 'function (doc) { var n = 0; for (var i = 0; i < 120000; i++) n += i % 7; emit(doc.n, n); }';

export async function run({ page, server, open, check }) {
  await page.route('**/_active_tasks', (route) => route.fulfill({ json: [] }));
  await open('#/activetasks');
  await page.getByText('No background tasks are running.').waitFor();
  check('without tasks it says so', true);

  // What the server does not do by itself in a test: shards of a cluster, compactions, replications.
  const started = Math.floor(Date.now() / 1000) - 60;
  let turn = 0;
  await page.unroute('**/_active_tasks');
  await page.route('**/_active_tasks', (route) => {
    turn++;
    const build = (range, done) => ({ type: 'indexer', node: 'one@127.0.0.1', pid: '<0.1.0>', database: `shards/${range}/shop.1700000000`, design_document: '_design/sales', changes_done: done, total_changes: 1000, progress: done / 10, started_on: started, updated_on: started + 60 });
    const tasks = [
      build('00000000-7fffffff', 100 + turn * 50),
      build('80000000-ffffffff', 300 + turn * 50),
      { type: 'database_compaction', node: 'two@127.0.0.1', pid: '<0.2.0>', database: 'archive', changes_done: 10, total_changes: 40, progress: 25, started_on: started - 3600, updated_on: started },
      { type: 'space_reclamation', node: 'two@127.0.0.1', pid: '<0.2.0>', database: '', changes_done: 3, total_changes: 4, progress: 75, started_on: started, updated_on: started },
      { type: 'replication', node: 'one@127.0.0.1', pid: '<0.3.0>', replication_id: 'abc', source: 'http://me:secret@far.example/shop/', target: 'http://127.0.0.1/copy/', continuous: true, docs_read: 5000, docs_written: 4990, doc_write_failures: 10, changes_pending: 77, started_on: started, updated_on: started },
    ];
    return route.fulfill({ json: tasks });
  });
  await open('#/activetasks?sort=what');
  const table = page.getByRole('table', { name: 'Active tasks' });
  const row = (text) => table.getByRole('row').filter({ hasText: text });
  await row('shop / sales').waitFor();
  check('shards of one index are one task', (await row('shop / sales').count()) === 1 && (await row('2 shards').count()) === 1);
  check('its progress is that of all', /of 2,000/.test(await row('shop / sales').innerText()), await row('shop / sales').innerText());
  await page.waitForFunction(() => [...document.querySelectorAll('[role=row]')].some((element) => /shop \/ sales[\s\S]*\b(4\d|5\d)\b/.test(element.innerText)), undefined, { timeout: 12_000 });
  check('a rate is told after two looks', true);
  const replication = await row('far.example').innerText();
  check('passwords of addresses are not shown', !replication.includes('secret'), replication);
  check('a replication tells what is left and what failed', /4,990 written/.test(replication) && /77 to go/.test(replication) && /10 failed/.test(replication), replication);
  check('space that is given back is told', (await row('The whole store').count()) === 1);
  const bars = table.getByRole('progressbar');
  check('what has an end has a bar', (await bars.count()) === 3, await bars.count());
  await page.getByRole('button', { name: /Compactions/ }).click();
  check('one kind is shown alone', (await table.getByRole('row').count()) === 2, await table.innerText());
  await page.getByRole('button', { name: /^All/ }).click();
  await table.getByRole('columnheader', { name: 'Started' }).getByRole('button').click();
  check('it is sorted by a press on a head', /archive/.test(await table.getByRole('row').nth(1).innerText()), await table.innerText());
  await page.unroute('**/_active_tasks');

  // And a real one.
  await server.request('DELETE', '/tasks-real');
  await server.request('PUT', '/tasks-real');
  for (let at = 0; at < DOCUMENTS; at += 2000) await server.request('POST', '/tasks-real/_bulk_docs', { docs: Array.from({ length: 2000 }, (_, n) => ({ n: at + n })) });
  await open('#/activetasks');
  await server.request('PUT', '/tasks-real/_design/slow', { views: { v: { map: SLOW_MAP } } });
  const asked = server.request('GET', '/tasks-real/_design/slow/_view/v?limit=1');
  try {
    await row('tasks-real').first().waitFor({ timeout: 20_000 });
    const told = await row('tasks-real').first().innerText();
    check('an index that is built is shown by itself', /Index builds/.test(told) && /slow/.test(told), told);
  } finally {
    await asked;
    await server.request('DELETE', '/tasks-real');
  }
  await page.getByText('No background tasks are running.').or(table).first().waitFor();
  await page.waitForFunction(() => !document.body.innerText.includes('tasks-real'), undefined, { timeout: 15_000 });
  check('and goes when it is done', true);

}

// A replication from its first field to its last: tested, started, paused, edited, deleted, brought back. No password is ever shown.
export const name = 'replication wizard';
export const widths = [1280, 360];
// A test of an end that is not there: the server's refusal, which the page shows.
export const allow = [/status of 500/];

const until = async (is) => {
  for (let n = 0; n < 100; n++) {
    if (await is()) return true;
    await new Promise((done) => setTimeout(done, 100));
  }
  return false;
};

export async function run({ page, server, check, open, width }) {
  const [source, target, id] = [`replication-source-${width}`, `replication-target-${width}`, `replication-wizard-${width}`];
  const [, password] = server.admin.split(/:(.*)/s);
  const old = await server.request('GET', `/_replicator/${id}`);
  if (old.status === 200) await server.request('DELETE', `/_replicator/${id}?rev=${old.json._rev}`);
  for (const db of [source, target]) await server.request('DELETE', `/${db}`);
  await server.request('PUT', `/${source}`);
  await server.request('POST', `/${source}/_bulk_docs`, { docs: Array.from({ length: 30 }, (_, n) => ({ _id: `d${n}`, n })) });

  await open('replication/_create');
  const from = page.getByRole('group', { name: 'Source' });
  const to = page.getByRole('group', { name: 'Target' });
  await page.getByText('More options').click();
  await page.getByLabel('Own address of this server').fill(server.url);

  await from.getByLabel('Database').fill(`${source}-missing`);
  await from.getByLabel('Password').fill(password);
  await from.getByRole('button', { name: 'Test' }).click();
  await from.getByText('The database does not exist.').waitFor();
  await from.getByLabel('Database').fill(source);
  await from.getByRole('button', { name: 'Test' }).click();
  await from.getByText('Readable. Writable.').waitFor();
  check('a test says what is wrong, and what is right', true);

  await to.getByLabel('Database').fill(target);
  await to.getByLabel('Password').fill(password);
  await page.getByLabel('Create the target if it does not exist').check();
  await to.getByRole('button', { name: 'Test' }).click();
  await to.getByText('will be created').waitFor();
  await page.getByRole('checkbox', { name: /^Continuous/ }).check();
  await page.getByLabel('Document id').fill(id);
  await page.getByRole('button', { name: 'Start replication' }).click();
  await page.getByRole('heading', { level: 1, name: id, exact: true }).waitFor();
  await page.getByRole('main').getByText('Running').first().waitFor();
  check('all documents are copied', await until(async () => (await server.request('GET', `/${target}`)).json?.doc_count === 30));

  const kept = (await server.request('GET', `/_replicator/${id}`)).json;
  check('the password is beside the address', kept.source.auth?.basic?.password === password && !kept.source.url.includes('@'), kept);
  check('the password is not shown', !(await page.getByRole('main').innerText()).includes(password));

  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('main').getByText('Paused', { exact: true }).waitFor();
  await server.request('PUT', `/${source}/later`, {});
  await page.waitForTimeout(700);
  check('what is paused copies nothing', (await server.request('GET', `/${target}`)).json.doc_count === 30);
  await page.getByRole('button', { name: 'Resume' }).click();
  check('it goes on', await until(async () => (await server.request('GET', `/${target}`)).json.doc_count === 31));

  // What the form does not know survives.
  const now = (await server.request('GET', `/_replicator/${id}`)).json;
  await server.request('PUT', `/_replicator/${id}`, { ...now, note: 'of the ops team', big: 1 });
  await open(`replication/edit/_replicator/${id}`);
  await page.getByLabel('Which documents').selectOption({ label: 'Documents that match a selector' });
  await page.getByLabel('Selector (JSON)').fill('{"n": {"$gt": 9223372036854775807}');
  await page.getByRole('button', { name: 'Save and restart' }).click();
  await page.getByText('This must be a JSON object.').waitFor();
  await page.getByLabel('Selector (JSON)').fill('{"n": {"$lt": 9223372036854775807}}');
  await page.getByRole('button', { name: 'Save and restart' }).click();
  await page.getByRole('heading', { level: 1, name: id, exact: true }).waitFor();
  const edited = await server.request('GET', `/_replicator/${id}`);
  check('an edit keeps other members, the password and the digits', edited.json.note === 'of the ops team' && edited.json.source.auth.basic.password === password && edited.text.includes('9223372036854775807'), edited.text);

  await page.getByRole('main').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('heading', { level: 1, name: 'Replication', exact: true }).waitFor();
  check('it is deleted', (await server.request('GET', `/_replicator/${id}`)).status === 404);
  await page.getByRole('status').getByRole('button', { name: 'Undo' }).last().click();
  check('and brought back', await until(async () => (await server.request('GET', `/_replicator/${id}`)).json?.note === 'of the ops team'));

  await open(`replication/_create/${source}`);
  const once = page.getByRole('group', { name: 'Target' });
  check('an address can name the source', (await page.getByRole('group', { name: 'Source' }).getByLabel('Database').inputValue()) === source);
  await page.getByText('More options').click();
  await page.getByLabel('Own address of this server').fill(server.url);
  await page.getByRole('group', { name: 'Source' }).getByLabel('Password').fill(password);
  await once.getByLabel('Database').fill(target);
  await once.getByLabel('Password').fill(password);
  await page.getByLabel('Start', { exact: true }).selectOption({ label: 'Immediately, without a document' });
  await page.getByRole('button', { name: 'Start replication' }).click();
  await page.getByText(/The replication has ended/).waitFor();
  check('one by _replicate runs to its end', true);
  const { json } = await server.request('GET', `/_replicator/${id}`);
  await server.request('DELETE', `/_replicator/${id}?rev=${json._rev}`);
}

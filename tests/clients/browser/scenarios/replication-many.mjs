// A thousand replications are all there (Fauxton shows 99), with their states, and can be filtered and handled at once.
export const name = 'replication many';
export const themes = true;

const COUNT = 1000;

export async function run({ page, server, check, open }) {
  const made = (await server.request('GET', '/_replicator/_all_docs?startkey="many-"&endkey="many-\\ufff0"')).json.rows.length;
  await server.request('PUT', '/replication-empty');
  if (made < COUNT) {
    const [user, password] = server.admin.split(/:(.*)/s);
    const at = (db) => ({ url: `${server.url}/${db}`, auth: { basic: { username: user, password } } });
    // Most are one-shot of an empty database, each of another document; some wait, some can never run.
    const docs = Array.from({ length: COUNT }, (_, n) => ({ _id: `many-${String(n).padStart(4, '0')}`, source: n === 7 ? `http://hidden:hunter2@127.0.0.1:1/none` : at('replication-empty'), target: at('replication-empty'), doc_ids: [`d${n}`], ...(n % 10 === 3 ? { _replication_state: 'failed', _replication_state_reason: 'paused' } : {}) }));
    await server.request('POST', '/_replicator/_bulk_docs', { docs });
  }
  await open('replication');
  await page.getByLabel('Search replications').fill('many-');
  const told = page.getByRole('main').getByRole('status').filter({ hasText: ' of ' });
  await page.waitForFunction((n) => document.querySelector('main')?.innerText.includes(`${n} of `), COUNT.toLocaleString('en'), { timeout: 60_000 });
  check('all are there', true, await told.innerText());
  const table = page.getByRole('table', { name: 'Replication' });
  check('only those seen are drawn', (await table.getByRole('row').count()) < 60, await table.getByRole('row').count());
  const body = table.getByRole('rowgroup');
  await body.focus();
  await page.keyboard.press('End');
  await table.getByText('many-0999').waitFor();
  check('the last can be reached by keyboard', true);

  await page.getByRole('combobox', { name: 'State' }).selectOption('paused');
  await page.waitForFunction(() => document.querySelector('main')?.innerText.includes('100 of '));
  check('a state filters', true);
  await page.getByRole('combobox', { name: 'State' }).selectOption('');
  await page.getByLabel('Search replications').fill('many-0007');
  await table.getByText('many-0007').or(table.getByText('No server answers at this address.')).first().waitFor();
  await table.getByText('No server answers at this address.').waitFor({ timeout: 60_000 });
  check('an error is said in words', true);
  check('a password of an address is not shown', !(await page.content()).includes('hunter2'));
  await table.getByRole('link').first().click();
  await page.getByRole('heading', { level: 1, name: 'many-0007' }).waitFor();
  await page.getByRole('heading', { name: 'History' }).waitFor();
  check('its page has the history', true);

  await open('replication?q=many-001');
  await page.waitForFunction(() => document.querySelector('main')?.innerText.includes('10 of '));
  await page.getByLabel('Actions for all shown…').selectOption('delete');
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('Deleted: 10').waitFor();
  const left = async () => (await server.request('GET', '/_replicator/_all_docs?startkey="many-001"&endkey="many-001\\ufff0"')).json.rows.length;
  check('those shown are deleted at once', (await left()) === 0);
  await page.getByRole('status').getByRole('button', { name: 'Undo' }).last().click();
  for (let n = 0; n < 50 && (await left()) < 10; n++) await page.waitForTimeout(100);
  check('and brought back', (await left()) === 10);
}

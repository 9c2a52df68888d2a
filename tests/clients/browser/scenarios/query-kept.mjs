// A query that was typed is kept, Ctrl+Enter runs it, and one that needs an index says which, and creates it under a name that can be read.
import { editorOf, textOf, write } from '../query.mjs';

export const name = 'query: kept, and helped';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];
export const allow = [/status of 400/];

const TYPED = '{"selector": {"n": 7}, "limit": 5}';

export async function run(tools) {
  const { server, page } = tools;
  const db = `query-kept-${Date.now().toString(36)}`;
  await server.request('PUT', `/${db}?q=1`);
  try {
    await server.request('POST', `/${db}/_bulk_docs`, { docs: Array.from({ length: 60 }, (_, n) => ({ _id: `d-${String(n).padStart(2, '0')}`, n, city: ['Ulm', 'Kiel'][n % 2], total: n * 10 })) });
    await kept({ ...tools, db });
    await keys({ ...tools, db });
    await needed({ ...tools, db });
    await german({ ...tools, db });
    await names({ ...tools, db });
    await curl({ ...tools, db });
  } finally {
    await server.request('DELETE', `/${db}`);
  }
}

function shows(page, text) {
  return editorOf(page).filter({ hasText: text }).waitFor({ timeout: 5000 }).then(
    () => true,
    () => false,
  );
}

async function kept({ page, context, db, base, open, check }) {
  await open(`#/database/${db}/_find`);
  await shows(page, 'selector');
  await write(page, TYPED);
  await page.getByRole('link', { name: 'Documents', exact: true }).click();
  await page.getByRole('table', { name: 'Documents' }).waitFor();
  await page.getByRole('link', { name: 'Query', exact: true }).click();
  check('a query that was not run is kept while other parts are shown', await shows(page, TYPED), await textOf(page));
  check('and is not run', (await page.getByRole('table', { name: 'Results' }).count()) === 0);
  await page.reload();
  check('it outlives a reload', await shows(page, TYPED), await textOf(page));
  const other = await context.newPage();
  await other.goto(new URL(`#/database/${db}/_find`, base).href);
  check('and its tab', await shows(other, TYPED));
  const asked = '{"selector": {"n": 8}}';
  await other.goto(new URL(`#/database/${db}/_find?q=${encodeURIComponent(asked)}`, base).href);
  check('a query of an address takes its place', await shows(other, asked), await textOf(other));
  await other.close();
  await page.getByLabel('Template').selectOption({ label: 'In an array' });
  check('a template takes its place', await shows(page, '$elemMatch'));
  await write(page, TYPED);
  await page.getByLabel('Template').selectOption({ label: 'In an array' });
  check('the same template again, too', await shows(page, '$elemMatch'));
}

async function keys({ page, db, open, check }) {
  await open('#/');
  await open(`#/database/${db}/_find`);
  await shows(page, 'selector');
  await write(page, TYPED);
  await page.keyboard.press('Control+Enter');
  await page.getByRole('table', { name: 'Results' }).getByRole('link', { name: 'd-07' }).waitFor();
  check('Ctrl+Enter runs the query, and changes nothing of it', (await textOf(page)) === TYPED, await textOf(page));
  await write(page, '{"selector": ');
  await page.keyboard.press('Control+Enter');
  check('half a query is not run, nor changed', (await textOf(page)) === '{"selector":' && (await page.getByRole('alert').count()) === 0, await textOf(page));
}

const SORTED = { selector: { city: 'Ulm' }, sort: [{ city: 'asc' }, { total: 'asc' }] };

async function needed({ page, db, server, open, check }) {
  await open(`#/database/${db}/_find?q=${encodeURIComponent(JSON.stringify(SORTED))}`);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  const told = page.getByRole('alert').filter({ hasText: 'This query needs an index.' });
  await told.waitFor();
  check('a sort without an index is told which it needs', (await told.innerText()).includes('city, total') && !/did not understand|rejected/.test(await page.locator('main').innerText()), await page.locator('main').innerText());
  await told.getByRole('button', { name: 'Create index and run' }).click();
  await page.getByRole('table', { name: 'Results' }).getByRole('link', { name: 'd-00' }).waitFor();
  check('a button creates it, and runs the query', (await page.getByRole('alert').count()) === 0);
  const { json } = await server.request('GET', `/${db}/_index`);
  check('its name can be read', json.indexes.some(({ name, ddoc }) => name === 'by-city-total' && ddoc === '_design/by-city-total-index'), json.indexes);
}

async function german({ page, db, open, check }) {
  await page.evaluate(() => localStorage.setItem('settee-language', 'de'));
  await page.goto('about:blank');
  await open(`#/database/${db}/_find?q=${encodeURIComponent('{"selector": {"n": {"$gt": 3}}, "sort": ["total"]}')}`);
  await page.getByRole('button', { name: 'Ausführen', exact: true }).click();
  const told = page.getByRole('alert').filter({ hasText: 'Diese Abfrage braucht einen Index.' });
  check('German says so too', await told.getByRole('button', { name: 'Index anlegen und ausführen' }).waitFor().then(() => true, () => false), await page.locator('main').innerText());
  await page.evaluate(() => localStorage.removeItem('settee-language'));
  await page.goto('about:blank');
}

async function names({ page, db, open, check }) {
  await open(`#/database/${db}/_index`);
  const indexes = page.getByRole('table', { name: 'Indexes' });
  const create = async (fields) => {
    await page.getByRole('button', { name: 'New index' }).click();
    await page.getByRole('dialog').getByLabel('Fields').fill(fields);
    await page.getByRole('dialog').getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  };
  await create('address.city, n');
  check('a new index without a name is named after its fields', await indexes.getByText('by-address.city-n', { exact: true }).waitFor().then(() => true, () => false), await indexes.innerText());
  await create('address.city, n');
  check('the same index is not created twice', await page.getByText('The index by-address.city-n already exists.').waitFor().then(() => true, () => false));
  const hashes = (await indexes.innerText()).match(/\b[0-9a-f]{40}\b/g);
  check('no name is a hash', hashes === null, hashes);
}

async function curl({ page, db, open, check }) {
  await open(`#/database/${db}/_find?q=${encodeURIComponent(TYPED)}`);
  await shows(page, TYPED);
  await page.getByRole('button', { name: 'Copy as curl' }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  check('a copied request logs in, without the password', /^curl -X POST -u 'admin' 'http/.test(copied) && !copied.includes('secret'), copied);
}

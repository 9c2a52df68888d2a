// A step back in the history leads to where a list was: documents as a table and as JSON, databases, results of a query.
export const name = 'steps back';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];

const DB = 'steps-back';
const COUNT = 3000;
const idOf = (n) => `doc-${String(n).padStart(6, '0')}`;

export async function run(tools) {
  await prepare(tools.server);
  await documents(tools);
  await json(tools);
  await databases(tools);
  await query(tools);
}

async function prepare(server) {
  if ((await server.request('PUT', `/${DB}?q=1`)).status === 412) return;
  await server.request('POST', `/${DB}/_bulk_docs`, { docs: Array.from({ length: COUNT }, (_, n) => ({ _id: idOf(n), n })) });
  for (let n = 0; n < 60; n++) await server.request('PUT', `/steps-back-${String(n).padStart(2, '0')}?q=1`);
}

const scrolled = (page) => page.locator('.table-body').evaluate((element) => element.scrollTop);
const comesTo = (page, top) =>
  page.waitForFunction((to) => Math.abs((document.querySelector('.table-body')?.scrollTop ?? -1) - to) < 1, top, { timeout: 5000 }).then(
    () => true,
    () => false,
  );

async function documents({ page, open, check }) {
  const table = page.getByRole('table', { name: 'Documents' });
  const link = (n) => table.getByRole('link', { name: idOf(n) });
  await open(`#/database/${DB}/_all_docs`);
  await link(0).waitFor();
  await page.getByLabel('Jump to').fill('2001');
  await page.getByRole('button', { name: 'Go', exact: true }).click();
  await link(2000).waitFor();
  // Not where the jump led: where it was scrolled to.
  await page.locator('.table-body').evaluate((element) => element.scrollBy(0, 150));
  await link(2006).waitFor();
  const top = await scrolled(page);
  const visit = async () => {
    await link(2006).click();
    await page.getByRole('heading', { name: idOf(2006), level: 1 }).waitFor();
  };
  await visit();
  await page.goBack();
  check('a step back from a document leads to its row', (await comesTo(page, top)) && (await link(2006).waitFor().then(() => true)), await scrolled(page));
  await visit();
  await page.getByRole('link', { name: DB, exact: true }).click();
  check('so does the link above the document', (await comesTo(page, top)) && (await link(2006).waitFor().then(() => true)));
  await page.reload();
  await link(2006).waitFor();
  check('so does a reload', await comesTo(page, top));
  await page.getByRole('link', { name: 'Changes', exact: true }).click();
  await page.getByRole('table', { name: 'Changes' }).waitFor();
  await page.getByRole('link', { name: 'Documents', exact: true }).click();
  await link(2006).waitFor();
  check('and a way over another tab', await comesTo(page, top));
  await page.getByRole('button', { name: 'Options' }).click();
  await page.getByRole('form', { name: 'Options' }).getByLabel('Starts with').fill('doc-001');
  await page.getByRole('form', { name: 'Options' }).getByRole('button', { name: 'Show' }).click();
  await link(1000).waitFor();
  check('other rows begin at the first', (await scrolled(page)) === 0, await scrolled(page));
  await open('#/');
  await page.getByLabel('Search databases').fill(DB);
  await page.getByRole('table', { name: 'Databases' }).getByRole('link', { name: DB, exact: true }).click();
  await link(0).waitFor();
  check('from the list of databases, a database is opened at its first row', (await scrolled(page)) === 0, await scrolled(page));
}

async function json({ page, open, check }) {
  await open(`#/database/${DB}/_all_docs?view=json`);
  await page.getByRole('link', { name: idOf(0) }).waitFor();
  for (const n of [20, 40]) {
    await page.getByRole('button', { name: 'Next' }).click();
    await page.getByRole('link', { name: idOf(n) }).waitFor();
  }
  await page.getByRole('link', { name: idOf(40) }).click();
  await page.getByRole('heading', { name: idOf(40), level: 1 }).waitFor();
  await page.goBack();
  await page.getByRole('list', { name: 'Documents' }).getByRole('link').first().waitFor();
  check('a step back to JSON leads to its part', (await page.getByRole('link', { name: idOf(40) }).waitFor().then(() => true, () => false)), await page.locator('main').innerText());
}

async function databases({ page, open, check }) {
  await open('#/?search=steps-back-');
  const link = page.getByRole('table', { name: 'Databases' }).getByRole('link', { name: 'steps-back-59' });
  await page.getByRole('rowgroup', { name: 'Databases' }).focus();
  await page.keyboard.press('End');
  await link.waitFor();
  const top = await scrolled(page);
  await link.click();
  await page.getByRole('heading', { name: 'steps-back-59', level: 1 }).waitFor();
  await page.goBack();
  check('a step back leads to the row of a database', top > 0 && (await comesTo(page, top)), top);
}

async function query({ page, open, check }) {
  await open(`#/database/${DB}/_find?q=${encodeURIComponent('{"selector": {"n": {"$gte": 10}}, "limit": 200}')}`);
  const results = page.getByRole('table', { name: 'Results' });
  check('a query of an address is not run unasked', (await results.count()) === 0);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await results.getByRole('link', { name: idOf(10) }).waitFor();
  await page.getByRole('rowgroup', { name: 'Results' }).focus();
  await page.keyboard.press('End');
  await results.getByRole('link', { name: idOf(209) }).waitFor();
  const top = await scrolled(page);
  await results.getByRole('link', { name: idOf(209) }).click();
  await page.getByRole('heading', { name: idOf(209), level: 1 }).waitFor();
  await page.goBack();
  check('a step back leads to the results of a query, and to their row', (await comesTo(page, top)) && (await results.getByRole('link', { name: idOf(209) }).isVisible()), await page.locator('main').innerText());
}

// The editor of queries: fields, operators and values complete from sampled documents, queries are starred and kept in a document of
// the user, a link runs its query.
import { checkAxe } from '../axe.mjs';
import { editorOf, textOf, write } from '../query.mjs';

export const name = 'query: completion, stars and history';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];

const BIG = '9223372036854775807';

export async function run(tools) {
  const { server } = tools;
  const db = `query-editor-${Date.now().toString(36)}`;
  await server.request('PUT', `/${db}?q=1`);
  try {
    const docs = Array.from({ length: 300 }, (_, n) => `{"_id":"d-${n}","type":"${n % 3 ? 'order' : 'invoice'}","total":${n % 10 === 7 ? BIG : n},"address":{"city":"${['Ulm', 'Kiel'][n % 2]}"},"a.b":${n % 4}}`);
    await server.request('POST', `/${db}/_bulk_docs`, `{"docs":[${docs.join()}]}`);
    await server.request('POST', `/${db}/_index`, { index: { fields: ['type'] }, name: 'by-type' });
    await completes({ ...tools, db });
    await keeps({ ...tools, db });
    await links({ ...tools, db });
    await german({ ...tools, db });
  } finally {
    await server.request('DELETE', `/${db}`);
  }
}

const listOf = (page) => page.getByRole('listbox', { name: 'Proposals' });
const optionsOf = async (page) => (await listOf(page).getByRole('option').allInnerTexts()).map((text) => text.split('\n')[0]);

const isShown = (page) => listOf(page).waitFor({ timeout: 5000 }).then(() => true, () => false);
const isHidden = (page) => listOf(page).waitFor({ state: 'hidden', timeout: 5000 }).then(() => true, () => false);

async function completes({ page, db, open, check, width }) {
  await open(`#/database/${db}/_find`);
  // The sample is loaded once the editor has the focus.
  for (let n = 0; n < 50; n++) {
    await write(page, '{"selector": {', '"to');
    if ((await isShown(page)) && (await optionsOf(page)).includes('total')) break;
    await page.keyboard.press('Escape');
  }
  check('a field completes', (await optionsOf(page)).includes('total'), await optionsOf(page));
  const active = await editorOf(page).getAttribute('aria-activedescendant');
  check('the list and the active proposal are told to screen readers', /^proposals-\d+-0$/.test(active ?? ''), active);
  const box = await listOf(page).boundingBox();
  check('the list is within the window', box.x >= 0 && box.x + box.width <= width + 1, box);
  await checkAxe(page, check, 'the proposals');
  await page.keyboard.press('Enter');
  check('Enter takes it, with its colon', (await textOf(page)).startsWith('{"selector": {"total":'), await textOf(page));
  check('and the list closes', await isHidden(page));
  await write(page, '{"selector": {"total": {', '"$gt');
  check('operators complete', (await isShown(page)) && JSON.stringify(await optionsOf(page)) === '["$gt","$gte"]', await optionsOf(page));
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Tab');
  check('arrow keys choose, Tab takes', (await textOf(page)).includes('"$gte":'), await textOf(page));
  await write(page, '{"selector": {"total": ', '92');
  check('values complete without loss', (await isShown(page)) && (await optionsOf(page)).includes(BIG), await optionsOf(page));
  await page.keyboard.press('Escape');
  check('Escape closes the list', await isHidden(page));
  await write(page, '{"selector": {"type": ', '"in');
  await isShown(page);
  await listOf(page).getByRole('option', { name: 'invoice' }).click();
  check('a click takes one, and the editor keeps the focus', (await textOf(page)).includes('"type": "invoice"') && (await page.evaluate(() => document.activeElement?.localName)) === 'settee-editor', await textOf(page));
  await write(page, '{"selector": {"type": "order"}, "use_index": ');
  await page.keyboard.press('Control+Space');
  check('Ctrl+Space proposes where nothing is typed', (await isShown(page)) && (await optionsOf(page)).includes('by-type'), await optionsOf(page));
  await page.keyboard.press('Escape');
  await write(page, '{"selector": {"a.b": 1}}');
  check('a whole query has no proposals', await isHidden(page));
}

async function keeps({ page, db, server, base, context, open, check }) {
  const query = '{"selector": {"type": "invoice"}, "limit": 3}';
  await open(`#/database/${db}/_find?q=${encodeURIComponent(query)}`);
  await page.getByRole('button', { name: 'Star this query' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Invoices');
  await dialog.getByRole('button', { name: 'Save' }).click();
  check('a query is starred', await page.getByRole('button', { name: 'Remove the star' }).waitFor().then(() => true, () => false));
  await editorOf(page).click();
  await page.keyboard.press('Control+Enter');
  await page.getByRole('table', { name: 'Results' }).waitFor();
  const to = `/${db}/_local/settee-queries%3Aadmin`;
  let told;
  for (let n = 0; n < 50; n++) {
    told = (await server.request('GET', to)).json;
    if (told?.history?.length > 0) break;
    await page.waitForTimeout(100);
  }
  check('both are in a document of the user', told.starred[0]?.name === 'Invoices' && told.starred[0]?.query === query && told.history[0]?.query === query, told);
  const other = await context.newPage();
  await other.goto(new URL(`#/database/${db}/_find?q=${encodeURIComponent('{"selector": {}}')}`, base).href);
  await other.getByRole('button', { name: 'Starred and recent queries' }).click();
  const list = other.getByRole('dialog', { name: 'Starred and recent queries' });
  await checkAxe(other, check, 'the kept queries');
  await list.getByLabel('Search').fill('invoi');
  await list.getByRole('button', { name: /^Invoices/ }).click();
  check('another tab has them, and takes one', await editorOf(other).filter({ hasText: '"invoice"' }).waitFor({ timeout: 5000 }).then(() => true, () => false), await textOf(other));
  await other.getByRole('button', { name: 'Starred and recent queries' }).click();
  await list.getByRole('button', { name: 'Clear' }).click();
  await list.getByRole('heading', { name: 'Recent', exact: true }).waitFor({ state: 'detached' });
  await list.getByRole('button', { name: 'Remove the star: Invoices' }).click();
  check('both can be removed', await list.getByText('No queries yet.').waitFor().then(() => true, () => false));
  await other.close();
}

async function links({ page, db, open, check }) {
  const query = encodeURIComponent('{"selector": {"address.city": "Kiel", "total": 1}}');
  await open(`#/database/${db}/_find?q=${query}&run=1`);
  check('a link runs its query', await page.getByRole('table', { name: 'Results' }).getByRole('link', { name: 'd-1', exact: true }).waitFor().then(() => true, () => false));
  check('the address says what was run, and not to run it', !/run=1/.test(page.url()), page.url());
}

async function german({ page, db, open, check }) {
  await page.evaluate(() => localStorage.setItem('settee-language', 'de'));
  await page.goto('about:blank');
  await open(`#/database/${db}/_find`);
  await page.getByRole('button', { name: 'Markierte und letzte Abfragen' }).click();
  check('German has the list too', await page.getByRole('dialog', { name: 'Markierte und letzte Abfragen' }).waitFor().then(() => true, () => false));
}

// A server that is away for a while: what was to be saved is saved when it is back, once, and no message promises more than happens.
export const name = 'server away';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];
export const allow = [/net::ERR_FAILED/];

const DB = 'server-away';

export async function run(tools) {
  const { server } = tools;
  await server.request('PUT', `/${DB}?q=1`);
  await saves(tools);
  await unknown(tools);
  await typedOn(tools);
  await asks(tools);
}

/** No request reaches the server until the returned function is called. */
async function away(page) {
  const everything = (url) => !url.pathname.includes('/_utils');
  const abort = (route) => route.abort();
  await page.route(everything, abort);
  return () => page.unroute(everything, abort);
}

const editorOf = (page) => page.getByRole('textbox', { name: 'Document as JSON' });
const lost = (page) => page.getByRole('main').getByRole('alert').filter({ hasText: 'The server cannot be reached.' });

async function edit({ page, server, open }, id, text) {
  await server.request('PUT', `/${DB}/${id}`, { is: 'first' });
  await open('#/');
  await open(`#/database/${DB}/_doc/${id}`);
  await editorOf(page).filter({ hasText: 'first' }).click();
  await page.keyboard.press('Control+Home');
  await page.keyboard.press('End');
  await page.keyboard.insertText(text);
  await page.getByText('not saved', { exact: true }).waitFor();
}

const saved = (page) => page.getByText('not saved', { exact: true }).waitFor({ state: 'detached' }).then(() => true, () => false);
const raw = async (server, id) => (await server.request('GET', `/${DB}/${id}`)).json;

async function saves(tools) {
  const { page, server, check, width } = tools;
  const id = `saved-${width}-${Date.now().toString(36)}`;
  await edit(tools, id, '\n  "kept": true,');
  const back = await away(page);
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await lost(page).waitFor();
  check('a save while the server is away is told as such', (await editorOf(page).innerText()).includes('kept'));
  await back();
  check('it is saved when the server is back', (await saved(page)) && (await raw(server, id)).kept === true, await raw(server, id));
  await page.getByText('The server cannot be reached.').first().waitFor({ state: 'detached' });
  check('and no error is left', (await page.getByRole('main').getByRole('alert').count()) === 0, await page.getByRole('main').innerText());
}

/** The server stores the document, and the response does not come. */
async function unknown(tools) {
  const { page, server, check, width } = tools;
  const id = `unknown-${width}-${Date.now().toString(36)}`;
  await edit(tools, id, '\n  "kept": 5,');
  const puts = (url) => url.pathname.endsWith(`/${id}`);
  let isLost = false;
  const swallow = async (route) => {
    if (isLost || route.request().method() !== 'PUT') return route.continue();
    isLost = true;
    await route.fetch();
    await route.abort();
  };
  await page.route(puts, swallow);
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  check('a save whose response was lost is found to be stored', await saved(page));
  await page.unroute(puts, swallow);
  const doc = await raw(server, id);
  check('it is stored once, and is no conflict', doc.kept === 5 && doc._rev.startsWith('2-') && (await page.getByRole('region', { name: /Another user saved/ }).count()) === 0, doc);
}

async function typedOn(tools) {
  const { page, server, check, width } = tools;
  const id = `typed-${width}-${Date.now().toString(36)}`;
  await edit(tools, id, '\n  "kept": 1,');
  const back = await away(page);
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await lost(page).waitFor();
  await editorOf(page).click();
  await page.keyboard.press('Control+Home');
  await page.keyboard.press('End');
  await page.keyboard.insertText('\n  "more": 2,');
  await back();
  const told = page.getByRole('main').getByRole('alert').filter({ hasText: 'The server can be reached again.' });
  await told.waitFor();
  check('what was typed since is not saved unasked', (await raw(server, id)).is === 'first' && (await raw(server, id)).kept === undefined);
  await told.getByRole('button', { name: 'Try again' }).click();
  check('but by a button', (await saved(page)) && (await raw(server, id)).more === 2, await raw(server, id));
}

/** Pages read again by themselves; a query is run again by a button. */
async function asks({ page, server, open, check }) {
  await server.request('POST', `/${DB}/_bulk_docs`, { docs: [{ _id: 'seen' }] });
  let back = await away(page);
  await page.evaluate(() => (location.hash = '#/database/server-away/_all_docs'));
  await page.getByText('The server cannot be reached.').first().waitFor();
  await back();
  check('a list comes when the server is back', await page.getByRole('table', { name: 'Documents' }).getByRole('link', { name: 'seen' }).waitFor().then(() => true, () => false), await page.locator('main').innerText());
  await open(`#/database/${DB}/_find?q=${encodeURIComponent('{"selector": {"_id": "seen"}}')}`);
  back = await away(page);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await lost(page).waitFor();
  await back();
  const told = page.getByRole('main').getByRole('alert').filter({ hasText: 'The server can be reached again.' });
  await told.getByRole('button', { name: 'Try again' }).click();
  check('a query can be run again then', await page.getByRole('table', { name: 'Results' }).getByRole('link', { name: 'seen' }).waitFor().then(() => true, () => false));
}

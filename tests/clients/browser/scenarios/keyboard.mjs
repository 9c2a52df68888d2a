// Six core tasks by the keyboard alone: what is used is reached by Tab, and pressed by Enter.
export const name = 'keyboard';
export const short = true;

const DB = 'keyboard-db';
const TABS_MAX = 120;

export async function run({ page, server, open, check }) {
  await server.request('DELETE', `/${DB}`);
  const { keyboard } = page;
  /** Goes on by Tab until it has the focus. */
  const reach = async (locator, what) => {
    await locator.first().waitFor();
    for (let n = 0; n < TABS_MAX; n++) {
      if (await locator.first().evaluate((element) => element.matches(':focus'))) return;
      await keyboard.press('Tab');
    }
    throw new Error(`${what} is not reached by ${TABS_MAX} tabs`);
  };
  const press = async (role, name) => {
    await reach(page.getByRole(role, { name, exact: true }), name);
    await keyboard.press('Enter');
  };
  const write = async (label, text) => {
    await reach(page.getByRole('textbox', { name: label, exact: true }), label);
    await keyboard.press('Control+a');
    await keyboard.insertText(text);
  };
  const stored = async (id) => (await server.request('GET', `/${DB}/${id}`)).json;

  await open('#/');
  await press('button', 'New database');
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  check('a dialog takes the focus', await dialog.getByRole('textbox', { name: 'Name', exact: true }).evaluate((element) => element.matches(':focus')));
  await keyboard.type(DB);
  await keyboard.press('Enter');
  await dialog.waitFor({ state: 'detached' });
  check('1: a database is created', (await server.request('GET', `/${DB}`)).status === 200);

  await server.request('PUT', `/${DB}/_design/d`, { views: { by_n: { map: 'function (doc) { if (doc.n) emit(doc.n); }' } } });
  await open('#/');
  await press('link', DB);
  await press('link', 'New document');
  await write('Document as JSON', '{"_id": "by-keys", "n": 1}');
  await keyboard.press('Control+s');
  await page.getByText('Saved by-keys').waitFor();
  check('2: a document is created', (await stored('by-keys')).n === 1);

  await open(`#/database/${DB}`);
  await press('link', 'by-keys');
  await reach(page.getByRole('textbox', { name: 'Document as JSON' }), 'the editor');
  await keyboard.press('Control+Home');
  await keyboard.press('End');
  await keyboard.insertText('\n  "more": true,');
  check('the editor lets Tab go on', await leaves(page));
  await press('button', 'Save');
  // The notice of the first time may be there still.
  await page.getByText('not saved', { exact: true }).waitFor({ state: 'detached' });
  check('3: it is edited and saved', (await stored('by-keys')).more === true, await stored('by-keys'));

  await open(`#/database/${DB}`);
  await press('link', 'Query');
  await write('Query', '{"selector": {"n": 1}}');
  await press('button', 'Run');
  await page.getByRole('table', { name: 'Results' }).getByText('by-keys').waitFor();
  check('4: a Mango query is run', true);

  await press('link', 'Views');
  await press('link', 'by_n');
  await page.getByRole('table', { name: 'Rows' }).getByText('by-keys').waitFor();
  check('5: a view is opened', true);

  await press('button', 'Log out');
  await page.waitForFunction(async () => (await (await fetch('../_session')).json()).userCtx.name === null);
  check('6: somebody logs out', true);
  await server.request('DELETE', `/${DB}`);
}

/** Whether Tab leaves the element that has the focus. */
async function leaves(page) {
  const active = () => page.evaluate(() => document.activeElement?.outerHTML.slice(0, 80));
  const before = await active();
  await page.keyboard.press('Tab');
  return (await active()) !== before;
}

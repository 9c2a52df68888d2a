// Settings: search, change with the server's check, undo, back to default; help, default and the badge where the server tells them; CORS.
export const name = 'configuration';
export const widths = [1280, 360];

const LEVEL = '/_node/_local/_config/log/level';

export async function run({ page, server, check, open }) {
  const value = async (to) => (await server.request('GET', to)).json;
  await server.request('PUT', LEVEL, '"notice"');
  const told = await server.request('GET', '/_node/_local/_settee/settings');
  await open('_config?q=log/level');
  const row = page.getByRole('region', { name: 'log' });
  await row.getByRole('button', { name: 'Change log/level' }).click();
  const field = row.getByLabel('Value');
  const isChoice = (await field.evaluate((element) => element.tagName)) === 'SELECT';
  if (!isChoice) {
    await field.fill('nonsense');
    await row.getByRole('button', { name: 'Save' }).click();
    await row.getByRole('alert').waitFor();
    check('the server refuses, and says what it expects', /expected/.test(await row.getByRole('alert').innerText()), await row.innerText());
    check('nothing has changed', (await value(LEVEL)) === 'notice');
    await field.fill('warning');
  } else await field.selectOption('warning');
  await row.getByRole('button', { name: 'Save' }).click();
  await page.getByText(/Changed: log\/level/).waitFor();
  check('a setting is changed', (await value(LEVEL)) === 'warning');
  await page.getByRole('status').getByRole('button', { name: 'Undo' }).last().click();
  await row.getByText('notice', { exact: true }).waitFor();
  check('undo brings the value back', (await value(LEVEL)) === 'notice');
  await row.getByRole('button', { name: /log\/level$/ }).first().click();
  await page.getByText('No longer set: log/level').waitFor();
  check('it goes back to its default', (await value(LEVEL)) !== 'notice');
  await page.getByRole('status').getByRole('button', { name: 'Undo' }).last().click();
  for (let n = 0; n < 50 && (await value(LEVEL)) !== 'notice'; n++) await page.waitForTimeout(100);
  check('which can be undone', (await value(LEVEL)) === 'notice');
  await server.request('DELETE', LEVEL);

  await open('_config');
  const text = await page.getByRole('main').innerText();
  const secret = await value('/_node/_local/_config/chttpd_auth/secret');
  check('secrets are not shown', !/-pbkdf2[:-]/.test(text) && (typeof secret !== 'string' || !text.includes(secret)));
  if (told.status === 200) {
    await page.getByLabel('Search settings').fill('max_document_size');
    const region = page.getByRole('region', { name: 'couchdb' });
    check('settings have their help and default', /Largest document body/.test(await region.innerText()) && /8000000/.test(await region.innerText()), await region.innerText());
    await page.getByLabel('Search settings').fill('chttpd/port');
    check('what is read at start has a badge', /needs a restart/.test(await page.getByRole('region', { name: 'chttpd', exact: true }).innerText()));
  }

  for (const key of ['origins', 'credentials', 'headers']) await server.request('DELETE', `/_node/_local/_config/cors/${key}`);
  await server.request('DELETE', '/_node/_local/_config/chttpd/enable_cors');
  await open('cors');
  await page.getByLabel('Allow pages of other origins to use this server').check();
  await page.getByRole('textbox', { name: 'Origin' }).fill('https://app.example.org/path');
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByText('An origin consists of scheme, host and port').waitFor();
  await page.getByRole('textbox', { name: 'Origin' }).fill('https://app.example.org');
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('CORS settings saved.').waitFor();
  const allows = async (origin) => (await fetch(`${server.url}/`, { headers: { origin } })).headers.get('access-control-allow-origin');
  check('the origin may come, others may not', (await allows('https://app.example.org')) === 'https://app.example.org' && (await allows('https://evil.example')) === null);
  await page.getByRole('combobox', { name: 'Origins' }).selectOption({ label: 'All origins (*)' });
  await page.getByLabel('Allow sessions and passwords').check();
  check('what is dangerous is said', await page.getByText('any web page can use the session').waitFor().then(() => true, () => false));
  await page.getByRole('status').getByRole('button', { name: 'Undo' }).last().click();
  for (let n = 0; n < 50 && (await allows('https://app.example.org')) !== null; n++) await page.waitForTimeout(100);
  check('CORS can be undone', (await allows('https://app.example.org')) === null);

  const app = 'http://localhost:5173';
  await open('cors');
  await page.getByRole('button', { name: `Allow a PouchDB app at ${app}` }).click();
  for (let n = 0; n < 50 && (await allows(app)) !== app; n++) await page.waitForTimeout(100);
  const answer = await fetch(`${server.url}/`, { headers: { origin: app } });
  check('one click allows a PouchDB app, with credentials', answer.headers.get('access-control-allow-credentials') === 'true', [...answer.headers]);
  await page.getByRole('button', { name: `Allow a PouchDB app at ${app}` }).waitFor({ state: 'detached' });
  check('the button goes then', true);
  for (const key of ['origins', 'credentials', 'headers']) await server.request('DELETE', `/_node/_local/_config/cors/${key}`);
  await server.request('DELETE', '/_node/_local/_config/chttpd/enable_cors');
}

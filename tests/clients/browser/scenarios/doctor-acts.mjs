// Findings of the doctor are fixed by a button: before and after stand side by side, what can be undone is; the navigation has their number.
import { checkAxe } from '../axe.mjs';

export const name = 'doctor: buttons';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];
// One examination at a time: the page asks again.
export const allow = [/status of 503/];

const DB = 'doctor-acts';
const LEVEL = '/_node/_local/_config/doctor-acts/level';
const TYPE = "-H 'Content-Type: application/json'";
const FINDINGS = [
  { id: 'scans', area: 'queries', severity: 'warning', subject: DB, says: 'queries without an index', why: 'each reads all', do: [`curl -X POST "$S/${DB}/_index" ${TYPE} -d '{"index":{"fields":["what","price"]},"name":"by-what"}'`, '# fields with $eq first'] },
  { id: 'unused-indexes', area: 'queries', severity: 'warning', subject: DB, says: 'not used', why: 'it costs', do: [`curl -X DELETE "$S/${DB}/_index/_design/old/json/old" ${TYPE}`] },
  { id: 'settings', area: 'operation', severity: 'note', subject: '', says: 'a setting', why: 'it matters', do: [`curl -X PUT "$S/_node/_local/_config/doctor-acts/level" ${TYPE} -d '"high"'   # or another one`] },
  { id: 'compaction-due', area: 'data', severity: 'warning', subject: DB, says: 'superseded revisions', why: 'they take space', do: [`curl -X POST "$S/${DB}/_compact" ${TYPE}`, `curl "$S/${DB}/one"   # a document`, `curl -X POST "$S/$DB/_compact" ${TYPE}   # for each`] },
];

const REFUSED = { error: 'service_unavailable', reason: 'the server is being examined already' };

export async function run(tools) {
  const { server, page } = tools;
  let refusals = 0;
  const refuse = () => {
    refusals = 2;
  };
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}?q=1`);
  await server.request('PUT', `/${DB}/one`, { what: 'tea' });
  await server.request('POST', `/${DB}/_index`, { index: { fields: ['old'] }, name: 'old', ddoc: 'old' });
  await server.request('DELETE', LEVEL);
  // What it finds on this server is not known.
  await page.route('**/_settee/doctor', async (route) => {
    if (refusals > 0) {
      refusals--;
      await route.fulfill({ status: 503, json: REFUSED });
      return;
    }
    const answer = await route.fetch();
    if (!answer.ok()) await route.fulfill({ response: answer });
    else await route.fulfill({ json: { ...(await answer.json()), findings: FINDINGS } });
  });
  try {
    await waits({ ...tools, refuse });
    await fixes(tools);
    await badge(tools);
  } finally {
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await server.request('DELETE', `/${DB}`);
    await server.request('DELETE', LEVEL);
  }
}

async function waits({ page, open, check, refuse }) {
  await open('#/performance/doctor');
  refuse();
  const answer = page.waitForResponse((response) => response.url().endsWith('/_settee/doctor') && response.ok());
  await page.getByRole('button', { name: 'Run again' }).click();
  check('who is refused while another examination runs asks again', await answer.then(() => true, () => false));
  check('and no error is shown', (await page.getByRole('alert').count()) === 0);
}

async function fixes({ page, server, open, check }) {
  await open('#/performance/doctor');
  const of = (id) => page.getByRole('article').filter({ has: page.getByRole('heading', { name: new RegExp(`^${id}`) }) });
  const dialog = page.getByRole('dialog');
  const names = async () => (await server.request('GET', `/${DB}/_index`)).json.indexes.map((index) => index.name);
  const close = async () => {
    await dialog.locator('form').getByRole('button', { name: 'Close' }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  const undo = async () => {
    await page.getByRole('status').getByRole('button', { name: 'Undo' }).last().click();
  };
  const until = async (is) => {
    for (let n = 0; n < 50; n++) {
      if (await is()) return true;
      await page.waitForTimeout(100);
    }
    return false;
  };

  await of('scans').getByRole('button', { name: 'Create this index' }).click();
  await dialog.getByRole('row', { name: /Indexes/ }).waitFor();
  await checkAxe(page, check, 'the dialog of a finding');
  check('the command is shown, and what is before', (await dialog.locator('pre').innerText()).startsWith('curl -X POST') && /_all_docs, old/.test(await dialog.innerText()), await dialog.innerText());
  await dialog.getByRole('button', { name: 'Create this index' }).click();
  await dialog.getByRole('cell', { name: /by-what/ }).waitFor();
  check('the index is there, and stands beside it', (await names()).includes('by-what'), await names());
  await close();
  await undo();
  check('it can be undone', await until(async () => !(await names()).includes('by-what')), await names());

  await of('unused-indexes').getByRole('button', { name: 'Delete the index' }).click();
  await dialog.locator('form').getByRole('button', { name: 'Delete the index' }).click();
  await dialog.locator('form').getByRole('button', { name: 'Close' }).waitFor();
  check('an index is deleted', !(await names()).includes('old'), await names());
  await close();
  await undo();
  check('and comes back', await until(async () => (await names()).includes('old')), await names());

  await of('settings').getByRole('button', { name: 'Change the setting' }).click();
  await dialog.getByLabel('New value').fill('low');
  check('a setting that is not set has its default before', /doctor-acts\/level\s+default/.test(await dialog.getByRole('table').innerText()), await dialog.getByRole('table').innerText());
  await dialog.getByRole('button', { name: 'Change the setting' }).click();
  await dialog.getByRole('cell', { name: 'low' }).waitFor();
  check('another value than the suggested one can be set', (await server.request('GET', LEVEL)).json === 'low');
  await close();
  await undo();
  check('and its default is in force again', await until(async () => (await server.request('GET', LEVEL)).status === 404));

  await of('compaction-due').getByRole('button', { name: 'Compact now' }).first().click();
  await dialog.locator('form').getByRole('button', { name: 'Compact now' }).click();
  await dialog.locator('form').getByRole('button', { name: 'Close' }).waitFor({ timeout: 30_000 });
  const sizes = await dialog.getByRole('row', { name: /On disk/ }).innerText();
  check('a compaction shows the size before and after', (sizes.match(/\d/g) ?? []).length >= 2 && !/–/.test(sizes), sizes);
  await close();
  check('a command with a placeholder has no button', (await of('compaction-due').getByRole('button', { name: 'Compact now' }).count()) === 1);
  check('what only shows something is a link', (await of('compaction-due').getByRole('link', { name: 'Show' }).getAttribute('href')) === `#/database/${DB}/_doc/one`);
}

async function badge({ page, open, check, width }) {
  await open('#/');
  if (width < 760) await page.getByRole('button', { name: 'Open the navigation' }).click();
  const link = page.getByRole('navigation', { name: 'Main navigation' }).getByRole('link', { name: /^Performance/ });
  await link.getByText('3', { exact: true }).waitFor();
  check('the navigation has the number of errors and warnings', ((await link.textContent()) ?? '').includes('3 findings'), await link.textContent());
  const wide = await link.evaluate((element) => element.scrollWidth <= element.clientWidth);
  check('it has room', wide);
}

// Who has no rights is told so, and what to do, by no error: on the first page, on those of admins, and in a database of others' making.
export const name = 'users without rights';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];
export const allow = [/status of 40[0134]/];

const DB = 'no-rights';
const READER = 'no-rights-reader';
const PARTS = ['_all_docs', '_design', '_find', '_index', '_schema', '_search', '_changes', 'permissions', '_settings', 'new'];

export async function run(tools) {
  const { server, page, context, login } = tools;
  await server.request('PUT', '/_users');
  await server.request('PUT', `/_users/org.couchdb.user:${READER}`, { name: READER, password: 'reading-it-1', roles: [], type: 'user' });
  await server.request('PUT', `/${DB}?q=1`);
  await server.request('PUT', `/${DB}/_security`, { members: { names: [READER] }, admins: { names: [], roles: ['_admin'] } });
  await server.request('POST', `/${DB}/_bulk_docs`, { docs: [{ _id: 'one', n: 1 }] });
  await context.clearCookies();
  await login(`${READER}:reading-it-1`);
  await page.goto('about:blank');
  await first(tools);
  await admins(tools);
  await parts(tools);
  await index(tools);
  await nobody(tools);
  await login();
}

const alerts = (page) => page.getByRole('alert').allInnerTexts();

async function first({ page, open, check }) {
  await open('#/');
  const told = await page.getByText('Only server admins can list all databases.').waitFor().then(() => true, () => false);
  check('the first page says what its user can do', told, await page.locator('main').innerText());
  check('and shows no error', (await alerts(page)).length === 0, await alerts(page));
  await page.getByLabel('Open a database by name').fill(DB);
  await page.getByRole('button', { name: 'Open', exact: true }).click();
  check('a database is opened by its name', await page.getByRole('table', { name: 'Documents' }).getByRole('link', { name: 'one' }).waitFor().then(() => true, () => false));
}

async function admins({ page, open, check }) {
  for (const to of ['#/_config', '#/cors', '#/activetasks', '#/cluster', '#/performance']) {
    await open(to);
    const told = await page.getByText('Your account has no access to this page.').waitFor().then(() => true, () => false);
    check(`${to}: an admin's page says whose it is, by no error`, told && (await alerts(page)).length === 0, await page.locator('main').innerText());
  }
  for (const to of ['#/users', '#/replication', '#/replication/_create']) {
    await open(to);
    check(`${to}: shows no error`, (await alerts(page)).length === 0, await alerts(page));
  }
}

async function parts({ page, open, check }) {
  // Feeds do not end.
  const requests = new Set();
  page.on('request', (request) => /[?&]feed=/.test(request.url()) || requests.add(request));
  for (const event of ['requestfinished', 'requestfailed']) page.on(event, (request) => requests.delete(request));
  for (const part of PARTS) {
    await open(`#/database/${DB}/${part}`);
    for (let n = 0; n < 100 && requests.size > 0; n++) await page.waitForTimeout(50);
    check(`${part}: shows no error`, (await alerts(page)).length === 0, await alerts(page));
  }
  await open(`#/database/${DB}/_settings`);
  await page.getByRole('region', { name: 'Limits' }).getByText('Only database admins can change this.').waitFor();
  check('what a reader cannot change cannot be written', await page.getByLabel('Revisions kept (revs_limit)').isDisabled());
}

async function index({ page, open, check }) {
  await open(`#/database/${DB}/_find?q=${encodeURIComponent('{"selector": {"n": {"$gt": 0}}, "sort": ["n"]}')}`);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByText('This query needs an index.').waitFor();
  const told = await page.getByText('Only database admins can change this.').waitFor().then(() => true, () => false);
  check('a reader is told who may create an index', told && (await page.getByRole('button', { name: 'Create index and run' }).count()) === 0);
}

async function nobody({ page, context, open, check }) {
  await context.clearCookies();
  await page.goto('about:blank');
  await open('#/login');
  await page.getByRole('link', { name: 'Continue without logging in' }).click();
  await page.getByText('Only server admins can list all databases.').waitFor();
  check('nobody is met by no error', (await alerts(page)).length === 0, await alerts(page));
  await page.locator('main').getByRole('link', { name: 'Log in' }).click();
  check('and has a way to the login', await page.getByRole('heading', { name: 'Log in' }).waitFor().then(() => true, () => false));
}

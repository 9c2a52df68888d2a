// The app of the manual's page “PouchDB in five minutes” in Chromium: two browsers, and two tabs of one of them, in live sync with a login.
//   node pouchdb-app.mjs APP-URL NAME PASSWORD
// Each check is a line of JSON, {"what", "ok", "detail"}; the last line is {"done"}.
import { createRequire } from 'node:module';

// Not by `import`, which does not look where NODE_PATH says.
const { chromium } = createRequire(import.meta.url)('playwright-core');

const [app, name, password] = process.argv.slice(2);
let done = 0;

function check(what, ok, detail = '') {
  done++;
  console.log(JSON.stringify({ what, ok: Boolean(ok), detail: String(detail).slice(0, 1000) }));
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage'] });

/** A browser with a database of its own, and its first tab. */
async function device() {
  const context = await browser.newContext();
  context.setDefaultTimeout(30_000);
  return { context, page: await tab(context) };
}

async function tab(context) {
  const page = await context.newPage();
  page.on('pageerror', (error) => check('no error in the page', false, error.stack));
  await page.goto(app);
  return page;
}

async function logIn(page, secret) {
  await page.getByPlaceholder('Name').fill(name);
  await page.getByPlaceholder('Password').fill(secret);
  await page.getByRole('button', { name: 'Log in' }).click();
}

async function add(page, text) {
  await page.getByPlaceholder('A new note').fill(text);
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByLabel(text).waitFor();
}

/** Whether something comes, within the time limit of the page. */
const comes = (locator) => locator.waitFor().then(
  () => true,
  () => false,
);
const hasStatus = (page, text) => comes(page.locator('#status', { hasText: text }));

try {
  const [one, two] = [await device(), await device()];
  await add(one.page, 'before the login');
  check('notes need no login', true);
  await logIn(one.page, 'wrong');
  check('a wrong password is named', await hasStatus(one.page, 'wrong name or password'), await one.page.locator('#status').textContent());
  await logIn(one.page, password);
  check('the first browser syncs', await hasStatus(one.page, 'up to date'), await one.page.locator('#status').textContent());
  await logIn(two.page, password);
  check('an older note comes to the second', await comes(two.page.getByLabel('before the login')));
  await add(two.page, 'from the second');
  check('a new one comes to the first, live', await comes(one.page.getByLabel('from the second')));
  await one.page.getByLabel('from the second').click();
  check('and its change back', await comes(two.page.locator('li', { has: two.page.locator('input:checked') })));

  const other = await tab(one.context);
  check('another tab has all notes', await comes(other.getByLabel('from the second')));
  await add(two.page, 'for both tabs');
  check('and gets new ones', await comes(other.getByLabel('for both tabs')));

  await two.context.setOffline(true);
  await add(two.page, 'without a network');
  await two.context.setOffline(false);
  check('a note written without a network comes later', await comes(one.page.getByLabel('without a network')));
} catch (error) {
  check('runs to its end', false, error.stack);
}
console.log(JSON.stringify({ done }));
await browser.close();

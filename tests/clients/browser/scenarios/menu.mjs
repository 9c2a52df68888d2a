// The menu at all widths leads everywhere, and a log-out leaves nothing on the screen, in this tab and in others.
export const name = 'menu and log-out';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];
// Its layout changes between them.
export const everyWidth = true;
// A server that cannot be reached.
export const allow = [/net::ERR_FAILED/];

const DB = 'menu-db';
const ID = 'menu-secret-document';

export async function run(tools) {
  const { server } = tools;
  await server.request('PUT', `/${DB}?q=1`);
  await server.request('PUT', `/${DB}/${ID}`, { text: 'menu-secret-words' });
  await menu(tools);
  await logOutAsks(tools);
  await logOut(tools);
}

const navOf = (page) => page.getByRole('navigation', { name: 'Main navigation' });
const buttonOf = (page) => page.getByRole('button', { name: 'Open the navigation' });
const editorOf = (page) => page.getByRole('textbox', { name: 'Document as JSON' });

/** Two frames later: what a click does has happened. */
function drawn(page) {
  return page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

async function openMenu(page, width) {
  if (width >= 760) return;
  await buttonOf(page).click();
  await navOf(page).waitFor();
}

async function menu({ page, open, check, width }) {
  const [nav, button] = [navOf(page), buttonOf(page)];
  await open('#/');
  check('the button of the menu is there where the menu is not', (await button.isVisible()) !== (await nav.isVisible()) && (await button.isVisible()) === width < 760);
  if (width < 760) {
    await button.click();
    await drawn(page);
    check('a click opens the menu, and it stays', (await nav.isVisible()) && (await button.getAttribute('aria-expanded')) === 'true');
    check('the focus is in it', await nav.getByRole('link', { name: 'Databases' }).evaluate((element) => element === document.activeElement));
    await page.keyboard.press('Escape');
    await drawn(page);
    check('Escape closes it, and gives the focus back', !(await nav.isVisible()) && (await button.evaluate((element) => element === document.activeElement)));
    await button.click();
    await page.mouse.click(width - 20, 400);
    await drawn(page);
    check('a click beside it closes it, and presses nothing', !(await nav.isVisible()) && page.url().endsWith('#/'), page.url());
    await button.click();
    await nav.getByRole('link', { name: 'Databases' }).click();
    await drawn(page);
    check('so does a link to the page that is shown', !(await nav.isVisible()));
  }
  for (const area of ['Replication', 'Users', 'Configuration', 'Cluster', 'Databases']) {
    await openMenu(page, width);
    await nav.getByRole('link', { name: area }).click();
    await page.getByRole('heading', { level: 1 }).first().waitFor();
    await drawn(page);
    check(`the menu leads to ${area}`, (await nav.isVisible()) === width >= 760);
  }
}

/** Who has unsaved text, or no server, is not logged out. */
async function logOutAsks({ page, open, check, width }) {
  await open(`#/database/${DB}/_doc/${ID}`);
  await editorOf(page).filter({ hasText: 'menu-secret-words' }).waitFor();
  await page.route('**/_session', (route) => route.abort());
  await openMenu(page, width);
  await navOf(page).getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('alert').filter({ hasText: 'The server' }).first().waitFor();
  check('a log-out that does not reach the server is told as an error', await page.getByRole('heading', { name: ID, level: 1 }).isVisible());
  await page.unroute('**/_session');
  await page.reload();
  await editorOf(page).filter({ hasText: 'menu-secret-words' }).click();
  await page.keyboard.press('Control+Home');
  await page.keyboard.press('End');
  await page.keyboard.insertText('\n  "unsaved": true,');
  await page.getByText('not saved', { exact: true }).waitFor();
  let asked = 0;
  const told = new Promise((done) => page.once('dialog', (dialog) => (asked++, dialog.dismiss().then(done))));
  await openMenu(page, width);
  await navOf(page).getByRole('button', { name: 'Log out' }).click();
  await told;
  check('unsaved text is asked for', asked === 1 && (await editorOf(page).innerText()).includes('unsaved'));
}

async function logOut({ page, context, server, base, check, width }) {
  // Two other tabs: one has unsaved text.
  const [other, writer] = [await context.newPage(), await context.newPage()];
  for (const tab of [other, writer]) {
    await tab.goto(new URL(`#/database/${DB}/_doc/${ID}`, base).href);
    await editorOf(tab).filter({ hasText: 'menu-secret-words' }).waitFor();
  }
  await editorOf(writer).click();
  await writer.keyboard.press('Control+Home');
  await writer.keyboard.press('End');
  await writer.keyboard.insertText('\n  "kept": true,');
  await writer.getByText('not saved', { exact: true }).waitFor();

  page.on('dialog', (dialog) => dialog.accept());
  await page.evaluate(() => localStorage.setItem('settee-draft admin query x', '{"text":"menu-secret-words"}'));
  // The document is a step of the history before this one.
  await page.evaluate(() => (location.hash += '?part=revisions'));
  await page.getByRole('list', { name: /Revisions/ }).waitFor();
  if (!(await navOf(page).isVisible())) await openMenu(page, width);
  await navOf(page).getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  const left = await page.evaluate((id) => document.documentElement.innerText.includes(id) || document.querySelector('settee-editor') !== null, ID);
  check('a log-out leaves nothing of the document on the screen', !left && page.url().endsWith('#/login'), page.url());
  check('nor of what was typed', (await page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith('settee-draft')))).length === 0);
  check('it ends the session', (await (await page.request.get(new URL('../_session', base).href)).json()).userCtx.name === null);
  check('the other tab shows the login too', await other.getByRole('heading', { name: 'Log in' }).waitFor().then(() => true, () => false));
  check('one with unsaved text asks for the password in place', await writer.getByRole('dialog', { name: 'Your session has ended' }).waitFor().then(() => true, () => false));
  check('and keeps the text', (await editorOf(writer).innerText()).includes('kept'));
  await page.goBack();
  await page.getByText('You need to log in.').waitFor();
  check('a step back shows nothing of the document', !(await page.evaluate((id) => document.documentElement.innerText.includes(id), ID)), page.url());
  await page.getByRole('alert').getByRole('button', { name: 'Log in' }).click();
  await page.getByLabel('Name').fill('admin');
  await page.getByLabel('Password').fill(server.admin.split(/:(.*)/s)[1]);
  await page.getByLabel('Password').press('Enter');
  check('its button leads to the login, and back', await page.getByRole('heading', { name: ID, level: 1 }).waitFor().then(() => true, () => false), page.url());
  for (const tab of [other, writer]) await tab.close();
}

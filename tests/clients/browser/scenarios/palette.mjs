// Ctrl+K leads to any database, id, setting, page and recent document, by a few letters, by the keyboard alone and by the pointer.
import { checkAxe } from '../axe.mjs';

export const name = 'palette';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];

const DB = 'palette-shop';
const ODD = 'palette/odd+name';

export async function run(tools) {
  const { server } = tools;
  for (const db of [DB, encodeURIComponent(ODD)]) await server.request('PUT', `/${db}?q=1`);
  await server.request('POST', `/${DB}/_bulk_docs`, { docs: Array.from({ length: 30 }, (_, n) => ({ _id: `palette-order-${n}`, n })) });
  await server.request('PUT', `/${encodeURIComponent(ODD)}/x%2Fy`, {});
  try {
    await opens(tools);
    await leads(tools);
    await keepsTheChoice(tools);
    await german(tools);
  } finally {
    for (const db of [DB, encodeURIComponent(ODD)]) await server.request('DELETE', `/${db}`);
  }
}

const boxOf = (page, name = 'Database, id, setting or page') => page.getByRole('combobox', { name });
const optionsOf = (page) => page.getByRole('dialog').getByRole('option');

async function ask(page, text) {
  await page.keyboard.press('Control+k');
  await boxOf(page).waitFor();
  await page.keyboard.type(text);
}

async function opens({ page, open, check, width }) {
  await open('#/');
  await page.evaluate(noteFocusOnceOpen);
  await page.keyboard.press('Control+k');
  await boxOf(page).waitFor();
  const focused = await page.evaluate(() => window.focusedAtFirst);
  check('Ctrl+K opens it, and it has the focus from the beginning', focused === 'combobox', focused);
  check('pages are there before anything is typed', await optionsOf(page).filter({ hasText: 'Configuration' }).isVisible());
  const box = await page.getByRole('dialog').boundingBox();
  check('it fits into the window', box.x >= 0 && box.x + box.width <= width, box);
  await checkAxe(page, check, 'the palette');
  await page.keyboard.press('Escape');
  await boxOf(page).waitFor({ state: 'detached' });
  check('Escape closes it', true);
  if (width < 760) await page.getByRole('button', { name: 'Open the navigation' }).click();
  await page.getByRole('button', { name: /^Go to…/ }).click();
  check('so does a button open it', await boxOf(page).waitFor().then(() => true, () => false));
  await optionsOf(page).filter({ hasText: 'Users' }).first().click();
  check('and a click leads somewhere', await page.getByRole('heading', { name: 'Users', level: 1 }).waitFor().then(() => true, () => false), page.url());
}

async function leads({ page, open, check }) {
  // A document is a recent one once it was there.
  const isThere = () => page.getByRole('navigation', { name: 'Parts of the document' }).waitFor();
  const arrives = (hash) => page.waitForFunction((to) => location.hash === to, hash, { timeout: 5000 }).then(() => true, () => false);
  await ask(page, 'palshop');
  await optionsOf(page).filter({ hasText: DB }).first().waitFor();
  await page.keyboard.press('Enter');
  check('letters of a name lead to its database', await arrives(`#/database/${DB}/_all_docs`), page.url());
  await ask(page, 'palette-order-17');
  await optionsOf(page).filter({ hasText: `${DB}/palette-order-17` }).waitFor();
  await page.keyboard.press('Enter');
  check('within a database, an id leads to its document', await arrives(`#/database/${DB}/_doc/palette-order-17`), page.url());
  await page.getByRole('heading', { name: 'palette-order-17', level: 1 }).waitFor();
  await isThere();
  await open('#/');
  await ask(page, `${ODD}/x`);
  await optionsOf(page).filter({ hasText: `${ODD}/x/y` }).waitFor();
  await page.keyboard.press('Enter');
  check('from elsewhere, database/id does, however odd', await arrives(`#/database/${encodeURIComponent(ODD)}/_doc/x%2Fy`), page.url());
  await isThere();
  await page.evaluate(leaveOnceShown, `#/database/${DB}/_doc/palette-order-3`);
  await open('#/');
  await page.keyboard.press('Control+k');
  const recent = optionsOf(page).filter({ hasText: 'Recent document' });
  await recent.first().waitFor();
  const recents = [`${DB}/palette-order-3`, `${ODD}/x/y`, `${DB}/palette-order-17`].map((document) => `${document}\nRecent document`);
  const first = (await optionsOf(page).allInnerTexts()).slice(0, recents.length);
  check('recent documents come first, also one that was left as soon as it was shown', first.join() === recents.join(), first);
  await page.keyboard.type('size of a document body');
  await optionsOf(page).filter({ hasText: 'couchdb/max_document_size' }).waitFor();
  await page.keyboard.press('Enter');
  check('a setting is found by its help', await page.getByRole('region', { name: 'couchdb' }).getByText('max_document_size').first().waitFor().then(() => true, () => false), page.url());
  await ask(page, 'pages');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('cluster');
  // The page, and settings once the server has answered.
  await optionsOf(page).nth(1).waitFor();
  const before = await boxOf(page).getAttribute('aria-activedescendant');
  await page.keyboard.press('ArrowDown');
  const after = await boxOf(page).getAttribute('aria-activedescendant');
  check('arrow keys choose, and screen readers are told', before !== after && (await page.locator(`[id="${after}"]`).getAttribute('aria-selected')) === 'true', [before, after]);
  await page.keyboard.press('Control+a');
  await page.keyboard.type('qqqqzzzz');
  check('nothing is said to be found', await page.getByRole('dialog').getByText('Nothing found.').waitFor().then(() => true, () => false));
  await checkAxe(page, check, 'the palette without anything found');
  await page.keyboard.press('Enter');
  check('and Enter goes nowhere then', await boxOf(page).isVisible());
  await page.keyboard.press('Escape');
}

/** Notes what has the focus in the moment in which a dialog opens. */
function noteFocusOnceOpen() {
  const observer = new MutationObserver(() => {
    if (!document.querySelector('dialog[open]')) return;
    observer.disconnect();
    window.focusedAtFirst = document.activeElement?.role ?? document.activeElement?.localName;
  });
  observer.observe(document, { attributes: true, childList: true, subtree: true });
}

/** Goes to a document, and away in the moment in which it is shown. */
function leaveOnceShown(hash) {
  return new Promise((done) => {
    const observer = new MutationObserver(() => {
      if (!document.querySelector('[aria-label="Parts of the document"]')) return;
      observer.disconnect();
      location.hash = '#/';
      done();
    });
    observer.observe(document, { childList: true, subtree: true });
    location.hash = hash;
  });
}

/** Settings come after the choice of a page, and before that page. */
async function keepsTheChoice({ page, open, check }) {
  let answer;
  const answered = new Promise((resolve) => {
    answer = resolve;
  });
  await page.route('**/_settee/settings', async (route) => {
    await answered;
    await route.continue();
  });
  await open('#/');
  await ask(page, 're');
  await page.keyboard.press('ArrowDown');
  const chosen = page.getByRole('dialog').getByRole('option', { selected: true });
  const before = await chosen.innerText();
  answer();
  await optionsOf(page).filter({ hasText: 'replicator/' }).first().waitFor();
  const after = await chosen.innerText();
  check('what arrives later leaves the choice as it is', before === after, [before, after]);
  await page.keyboard.press('Escape');
  await page.unroute('**/_settee/settings');
}

async function german({ page, open, check }) {
  await page.evaluate(() => localStorage.setItem('settee-language', 'de'));
  await page.goto('about:blank');
  await open('#/');
  await page.keyboard.press('Control+k');
  check('German has it too', await boxOf(page, 'Datenbank, ID, Einstellung oder Seite').waitFor().then(() => true, () => false));
  await page.keyboard.press('Escape');
}

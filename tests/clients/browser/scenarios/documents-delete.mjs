// No double click deletes documents, many are asked for, and what was deleted can be undone for a minute. Messages cover no buttons.
export const name = 'documents: select and delete';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];

const DB = 'documents-delete';
const COUNT = 36;

export async function run(tools) {
  const { server } = tools;
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}?q=1`);
  await server.request('POST', `/${DB}/_bulk_docs`, { docs: Array.from({ length: COUNT }, (_, n) => ({ _id: `d-${String(n).padStart(2, '0')}`, n })) });
  await tools.page.clock.install();
  await doubleClick(tools);
  await asked(tools);
  await covered(tools);
  await undone(tools);
  await handful(tools);
}

const countOf = async (server) => (await server.request('GET', `/${DB}`)).json.doc_count;

async function doubleClick({ page, server, open, check }) {
  await open(`#/database/${DB}/_all_docs`);
  const all = page.getByRole('button', { name: 'Select all' });
  const before = await all.boundingBox();
  const writes = [];
  page.on('request', (request) => request.url().endsWith('/_bulk_docs') && writes.push(request.url()));
  await all.dblclick();
  await page.getByText(`${COUNT} selected`).waitFor();
  check('a double click on "Select all" selects all, and deletes nothing', (await page.getByRole('dialog').count()) === 0 && writes.length === 0 && (await countOf(server)) === COUNT);
  check('no other button takes the place of "Select all"', JSON.stringify(await all.boundingBox()) === JSON.stringify(before), [before, await all.boundingBox()]);
}

async function asked({ page, server, check }) {
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  const dialog = page.getByRole('dialog', { name: 'Delete documents?' });
  await dialog.waitFor();
  check('so many are asked for, with their number', (await dialog.innerText()).includes(`This deletes ${COUNT} documents. You can undo it for one minute.`), await dialog.innerText());
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  check('who cancels keeps them', (await countOf(server)) === COUNT);
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByText(`${COUNT} deleted.`).waitFor();
  check('who agrees deletes them', (await countOf(server)) === 0);
}

/** Controls of the page whose middle is below a message, or out of the window. */
function covers(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('main :is(a, button, input, select, textarea)')]
      .filter((element) => element.checkVisibility({ visibilityProperty: true }))
      .filter((element) => {
        element.scrollIntoView({ block: 'nearest' });
        const { left, top, width, height } = element.getBoundingClientRect();
        return document.elementFromPoint(left + width / 2, top + height / 2)?.closest('.toasts');
      })
      .map((element) => element.innerText || element.getAttribute('aria-label')),
  );
}

async function covered({ page, open, check, width }) {
  for (const to of [`#/database/${DB}/_all_docs`, `#/database/${DB}/new`, `#/database/${DB}/_find`, '#/replication/_create', '#/cors']) {
    // Opening the page that is shown would load it anew, without its messages.
    if (!page.url().endsWith(to)) await open(to);
    const undo = page.getByRole('button', { name: 'Undo' });
    check(`${to}: the message is seen`, await undo.isVisible());
    const found = await covers(page);
    check(`${to}: it covers no control`, found.length === 0, found);
    const box = await page.locator('.toasts').boundingBox();
    check(`${to}: it is within the window`, box.x >= 0 && box.x + box.width <= width && box.y + box.height <= page.viewportSize().height, box);
  }
}

async function undone({ page, server, open, check }) {
  await page.clock.fastForward(35_000);
  await open(`#/database/${DB}/_all_docs`);
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('table', { name: 'Documents' }).getByRole('link', { name: 'd-00' }).waitFor();
  check('after more than half a minute all can be brought back, from another page too', (await countOf(server)) === COUNT);
}

async function handful({ page, server, check }) {
  for (const n of ['00', '01']) await page.getByLabel(`Select d-${n}`).check();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByText('2 deleted.').waitFor();
  check('a few are deleted without a question', (await countOf(server)) === COUNT - 2);
  await page.getByRole('button', { name: 'Dismiss' }).last().click();
  await page.getByText('2 deleted.').waitFor({ state: 'detached' });
  check('a message can be dismissed', true);
}

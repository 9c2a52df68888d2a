// Views: written, previewed without saving, saved without loss, asked with options; the other functions; a dry run.
export const name = 'views: editor, preview, functions';
export const short = true;
// A server without the preview answers so, once.
export const allow = [/_settee\/preview|status of (400|404|405)/];

const DESIGN = '{"_id":"_design/shop","language":"javascript","price":1.0,"huge":9223372036854775807,"views":{"by_type":{"map":"function (doc) { emit(doc.type, doc.total); }","reduce":"_sum","note":{"kept":1.0}},"lib":{"m":"exports.one = 1;"}},"filters":{"people":"function (doc) { return true; }"},"validate_doc_update":"function (n, o, u, s) { if (!n.type) throw {forbidden: \'no type\'}; }","rewrites":[{"from":"/x","to":"_view/by_type"}]}';

export async function run({ server, check, page, open }) {
  const db = `views-edit-${Date.now().toString(36)}`;
  await server.request('PUT', `/${db}?q=1`);
  try {
    await server.request('POST', `/${db}/_bulk_docs`, { docs: Array.from({ length: 250 }, (_, n) => ({ _id: `d-${String(n).padStart(3, '0')}`, type: n % 2 ? 'tea' : 'milk', total: n })) });
    await server.request('PUT', `/${db}/_design/shop`, DESIGN);
    const raw = async () => (await server.request('GET', `/${db}/_design/shop`)).text;

    await open(`#/database/${db}/_design`);
    const list = page.getByRole('table', { name: 'Design documents' });
    for (const one of ['by_type', 'people', 'validate_doc_update', 'rewrites']) check(`${one} is listed`, await shown(list.getByRole('link', { name: one, exact: true })));
    check('the state of the index is told', await shown(list.getByText(/up to date|behind|building/).first()));
    await list.getByRole('link', { name: 'by_type' }).click();

    const rows = page.getByRole('table', { name: 'Rows' });
    await rows.getByRole('link').first().waitFor();
    check('rows of the view', await shown(page.getByText('1–100 of 250')));
    await preview({ page, check, server, db });

    await write(page, 'Map', 'function (doc) {\n  emit([doc.type, doc.total % 3], 1);\n}');
    await page.getByLabel('Reduce', { exact: true }).selectOption('_stats');
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await saved(page);
    const now = await raw();
    check('unknown members and numbers survive', ['"price":1.0', '"huge":9223372036854775807', '"note":{"kept":1.0}', '"lib":{"m"', '"rewrites":[{'].every((part) => now.includes(part)), now);
    check('the view is saved', now.includes('"_stats"') && now.includes('% 3'), now);

    await page.getByText('Options', { exact: true }).click();
    await page.getByLabel('Start key (startkey)').fill('["tea"');
    check('a wrong key is told by line', await shown(page.getByText(/Line 1, column/)));
    await page.getByLabel('Start key (startkey)').fill('["tea"]');
    await page.getByLabel('End key (endkey)').fill('["tea",{}]');
    await page.getByLabel('Rows or reduction').selectOption('level');
    await page.getByLabel('Group level').fill('1');
    await page.getByRole('button', { name: 'Run' }).click();
    check('a range is reduced by group level', await rows.getByText('"count":125').first().waitFor().then(() => true), await rows.textContent());
    check('the address keeps the options', /startkey=/.test(page.url()) && /group_level=1/.test(page.url()), page.url());
    await page.reload();
    check('and they come from it', await rows.getByText('"count":125').first().waitFor().then(() => true));
    await page.getByRole('button', { name: 'Copy as curl' }).click();
    check('copied as curl', await shown(page.getByRole('button', { name: 'Copied' })));

    await broken({ page, check, open, db });
    await functions({ page, check, open, db, raw, server });
    await others({ page, check, open, db, raw });
    await names({ page, check, open, db, raw });
  } finally {
    await server.request('DELETE', `/${db}`);
  }
}

async function write(page, label, text) {
  const editor = page.getByRole('textbox', { name: label, exact: true });
  await editor.click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(text);
}

function shown(what) {
  return what.waitFor({ timeout: 5000 }).then(
    () => true,
    () => false,
  );
}

async function saved(page) {
  await page.locator('button:disabled:not([aria-busy="true"])', { hasText: /^Save$/ }).waitFor();
  // What asks before the page is left goes a moment after the button is drawn.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))));
}

/** Where the server has no preview yet, one stands in for it, and what the page says without it is looked at first. */
async function preview({ page, check, server, db }) {
  const has = (await server.request('POST', `/${db}/_settee/preview`, { language: 'javascript', map: 'function (doc) {}', docs: 1 })).status === 200;
  await page.getByRole('button', { name: /^Preview: 100/ }).click();
  if (!has) {
    await page.getByRole('button', { name: 'Preview', exact: true }).click();
    check('without a preview the page says so, and offers saving', await shown(page.getByRole('button', { name: 'Save and show rows' })));
    await page.route('**/_settee/preview', (route) => {
      const body = route.request().postDataJSON();
      const answer = body.validate ? { validate: body.validate.newDoc.type ? { ok: true } : { error: 'forbidden', reason: 'no type' } } : { rows: [{ id: 'd-000', key: 'previewed', value: 1 }], reduced: 100, errors: [{ id: 'd-001', error: 'TypeError', reason: 'cannot read', line: 2 }], documents: 100 };
      return route.fulfill({ json: answer });
    });
  }
  await write(page, 'Map', 'function (doc) {\n  if (doc._id === "d-001") doc.a.b.c;\n  emit("previewed", 1);\n}');
  await page.getByRole('button', { name: 'Preview', exact: true }).click();
  await page.getByRole('table', { name: 'Preview' }).getByText('"previewed"').first().waitFor();
  check('the preview shows rows of what is not saved', await page.getByText(/rows of 100 documents/).isVisible());
  check('and failures by line', await page.getByText(/\(line 2\)/).isVisible());
  if (has) {
    const inParts = page.getByText('But when it is reduced in two parts first');
    check('a built-in reduction has no warning', (await inParts.count()) === 0);
    await page.getByLabel('Reduce', { exact: true }).selectOption('custom');
    await write(page, 'Reduce function', 'function (keys, values) {\n  return values.length;\n}');
    await page.getByRole('button', { name: 'Preview', exact: true }).click();
    check('a reduce function that does not heed rereduce is told', await shown(inParts));
    await write(page, 'Reduce function', 'function (keys, values, rereduce) {\n  return sum(values);\n}');
    await page.getByRole('button', { name: 'Preview', exact: true }).click();
    check('and not one that does', await inParts.waitFor({ state: 'detached' }).then(() => true));
  }
  const { text } = await server.request('GET', `/${db}/_design/shop`);
  check('nothing was saved', !text.includes('previewed'), text);
}

async function broken({ page, check, open, db }) {
  await open(`#/database/${db}/_design/shop/_view/by_type`);
  await write(page, 'Map', 'function (doc) {\n  emit(;\n}');
  check('its line is marked while it is written', await page.waitForFunction(() => [...document.querySelectorAll('settee-editor')].some((each) => each.shadowRoot?.querySelector('.cm-mistake')), undefined, { timeout: 5000 }).then(() => true, () => false));
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  check('a function that cannot be read is refused, with the reason and the line', await page.getByRole('alert').getByText(/compilation_error.*\(line 2\)/s).waitFor().then(() => true));
  page.once('dialog', (dialog) => dialog.accept());
}

async function functions({ page, check, open, db, raw }) {
  await open(`#/database/${db}/_design/shop/_function/filters/people`);
  await page.getByRole('textbox', { name: 'Filter', exact: true }).waitFor();
  await write(page, 'Filter', 'function (doc) { return doc.changed; }');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await saved(page);
  check('a filter is edited', (await raw()).includes('doc.changed'));

  await open(`#/database/${db}/_design/shop/_function/validate_doc_update`);
  await page.getByRole('textbox', { name: 'Document', exact: true }).fill('d-003');
  await page.getByRole('button', { name: 'Load' }).click();
  await page.waitForFunction(() => [...document.querySelectorAll('settee-editor')].some((each) => each.shadowRoot?.textContent.includes('"tea"')));
  await page.getByRole('button', { name: 'Check' }).click();
  check('a validation accepts in a dry run', await page.getByText('The validation accepts the write.').waitFor().then(() => true));
  await write(page, 'New document', '{"_id":"d-003"}');
  await page.getByRole('button', { name: 'Check' }).click();
  check('and forbids', await page.getByText(/The validation forbids the write/).waitFor().then(() => true));
  await write(page, 'Validation of writes', 'function (n) { if (!n.type) throw {forbidden: "edited"}; }');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await saved(page);
  check('a validation is edited', (await raw()).includes('edited'));
}

async function others({ page, check, open, db, raw }) {
  await open(`#/database/${db}/_design/shop`);
  await page.getByRole('button', { name: 'New function' }).click();
  await page.getByLabel('Type').selectOption('shows');
  await page.getByLabel('Name of the function').fill('card');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('textbox', { name: 'Show', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await saved(page);
  await page.getByRole('button', { name: 'Rename' }).click();
  await page.getByLabel('New name').fill('sheet');
  await page.getByRole('button', { name: 'OK' }).click();
  await page.waitForURL(/sheet/);
  check('a new show is made and renamed', /"shows":\{"sheet":"function/.test(await raw()), await raw());
  await open(`#/database/${db}/_design/shop/_function/rewrites`);
  await write(page, 'Rewrites', '[{"from":"/y","to":"_view/by_type"}]');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await saved(page);
  check('rewrites stay a list of rules', (await raw()).includes('"rewrites":[{"from":"/y"'), await raw());
}

async function names({ page, check, open, db, raw }) {
  await open(`#/database/${db}/_design/shop/_view/by_type`);
  await page.getByRole('button', { name: 'Rename' }).click();
  await page.getByLabel('New name').fill('by_kind');
  await page.getByRole('button', { name: 'OK' }).click();
  await page.waitForURL(/by_kind/);
  check('a view is renamed at its place', /"views":\{"by_kind":.*"lib"/.test(await raw()), await raw());
  await page.getByRole('button', { name: 'Clone' }).click();
  await page.getByLabel('Name of the copy').fill('second');
  await page.getByRole('button', { name: 'OK' }).click();
  await page.waitForURL(/second/);
  check('and cloned, with what it had', ((await raw()).match(/"kept":1\.0/g) ?? []).length === 2, await raw());
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.waitForURL((url) => !url.hash.includes('second'));
  check('and deleted', !(await raw()).includes('"second"'));

  await open(`#/database/${db}/new_view`);
  await page.getByLabel('Design document', { exact: true }).fill('fresh');
  await page.getByLabel('Name of the view').fill('all');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('textbox', { name: 'Map' }).waitFor();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  check('a new view in a new design document has rows', await page.getByRole('table', { name: 'Rows' }).getByRole('link').first().waitFor().then(() => true));
}

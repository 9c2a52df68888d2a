// The editor of documents: nothing is lost or changed that was not typed, and nobody's work is overwritten unasked.
export const name = 'document: edit';
export const short = true;

const DB = 'document-edit';

export async function run({ context, page, open, check, server }) {
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}`);
  const put = async (id, text) => (await server.request('PUT', `/${DB}/${encodeURIComponent(id)}`, text)).json.rev;
  const raw = async (id, query = '') => (await server.request('GET', `/${DB}/${encodeURIComponent(id)}${query}`)).text;
  const editor = page.getByRole('textbox', { name: 'Document as JSON' });
  const save = page.getByRole('button', { name: 'Save', exact: true });
  const write = async (text) => {
    await editor.click();
    await page.keyboard.press('Control+a');
    await page.keyboard.insertText(text);
  };
  const shows = (text) => editor.filter({ hasText: text }).waitFor().then(() => true, () => false);
  const saved = async (id) => {
    await page.getByRole('status').getByText(`Saved ${id}`).last().waitFor();
    await page.getByText('not saved').waitFor({ state: 'detached' });
  };
  const doc = (id) => open(`database/${DB}/_doc/${encodeURIComponent(id)}`);

  // Numbers.
  const first = await put('numbers', '{"big":9223372036854775807,"one":1.0,"rev":"7-mine","1":"first"}');
  await doc('numbers');
  check('9223372036854775807 and 1.0 are seen as they were written', (await shows('9223372036854775807')) && (await shows('"one": 1.0')));
  check('Save waits for a change', await save.isDisabled());
  await editor.click();
  await page.keyboard.press('Control+Home');
  await page.keyboard.press('End');
  await page.keyboard.insertText('\n  "added": true,');
  check('what is not saved is marked', await page.getByText('not saved').isVisible());
  await page.keyboard.press('Control+s');
  await saved('numbers');
  const stored = await raw('numbers');
  check('they survive the save byte for byte', stored.includes('"big":9223372036854775807') && stored.includes('"one":1.0') && stored.includes('"added":true'), stored);
  const second = JSON.parse(stored)._rev;
  check('a field called rev is a field: it does not overwrite _rev', stored.includes('"rev":"7-mine"') && second.startsWith('2-') && first !== second, stored);
  check('the editor goes on from the new revision', await shows(second));
  await page.keyboard.insertText('\n  "again": 1.10,');
  const sent = page.waitForRequest((request) => request.method() === 'PUT');
  await page.keyboard.press('Control+s');
  check('the text is sent as it was typed', (await sent).postData().includes('\n  "again": 1.10,\n'), (await sent).postData());
  await shows('"_rev": "3-');
  check('the caret stayed where it was, and it can be saved again', (await raw('numbers')).includes('"added":true,"again":1.1'), await raw('numbers'));

  // Mistakes.
  await write('{\n  "_id": "numbers",\n  "a": 01\n}');
  await save.click();
  const mistake = page.getByRole('alert').filter({ hasText: 'Line 3' });
  await mistake.waitFor();
  check('a mistake is told by its line', (await mistake.innerText()).includes('number'), await mistake.innerText());
  await write('{"_id": "other"}');
  await save.click();
  check('another _id is refused', await page.getByRole('alert').filter({ hasText: 'must stay numbers' }).waitFor().then(() => true, () => false));
  await write(`{\n  "_id": "numbers",\n  "_rev": "${JSON.parse(await raw('numbers'))._rev}",\n  "_mine": 1\n}`);
  await save.click();
  check('what the server refuses is shown at its line', await page.getByRole('alert').filter({ hasText: 'Line 4' }).waitFor().then(() => true, () => false));

  // Unsaved text.
  let asked = 0;
  const told = new Promise((done) => page.once('dialog', (dialog) => (asked++, dialog.dismiss().then(done))));
  await page.getByRole('link', { name: DB }).click();
  await Promise.race([told, page.waitForTimeout(5000)]);
  await page.waitForURL(/_doc\/numbers/);
  check('leaving with unsaved text asks, and stays', asked === 1 && page.url().includes('_doc/numbers') && (await shows('_mine')), [asked, page.url()]);
  await page.getByRole('link', { name: 'Revisions' }).click();
  await page.getByRole('list', { name: /Revisions/ }).waitFor();
  await page.getByRole('link', { name: 'JSON', exact: true }).click();
  check('looking at the other parts keeps it without asking', asked === 1 && (await shows('_mine')), [asked, page.url()]);
  await page.getByRole('button', { name: 'Discard changes' }).click();
  check('changes can be discarded', await shows('9223372036854775807'));

  // Somebody else was faster.
  for (const way of ['Continue editing', 'Use saved document', 'Overwrite with my text']) {
    await put('both', JSON.stringify({ ...((await server.request('GET', `/${DB}/both`)).json?._rev && (await server.request('GET', `/${DB}/both`)).json), who: 'nobody' }));
    await open('#/');
    await doc('both');
    await shows('nobody');
    const rev = JSON.parse(await raw('both'))._rev;
    await put('both', JSON.stringify({ _rev: rev, who: 'they' }));
    await write(`{\n  "_id": "both",\n  "_rev": "${rev}",\n  "who": "I"\n}`);
    await page.keyboard.press('Control+s');
    const clash = page.getByRole('region', { name: 'Another user saved this document in the meantime' });
    await clash.waitFor();
    check(`${way}: what is there now is beside the own text`, (await clash.getByRole('textbox', { name: 'Saved document' }).innerText()).includes('they') && (await clash.getByRole('textbox', { name: 'Your text' }).innerText()).includes('"I"'));
    await clash.getByRole('button', { name: way }).click();
    await clash.waitFor({ state: 'detached' });
    if (way === 'Continue editing') {
      check('go on: the own text is there, theirs is stored', (await shows('"I"')) && JSON.parse(await raw('both')).who === 'they');
      await page.getByRole('button', { name: 'Discard changes' }).click();
    } else if (way === 'Use saved document') check('theirs is taken', (await shows('they')) && (await save.isDisabled()));
    else {
      await saved('both');
      check('mine is saved upon theirs', JSON.parse(await raw('both')).who === 'I', await raw('both'));
    }
  }

  // The session ends while there is unsaved text.
  await doc('numbers');
  await shows('9223372036854775807');
  await editor.click();
  await page.keyboard.press('Control+Home');
  await page.keyboard.press('End');
  await page.keyboard.insertText('\n  "kept": 5.0,');
  await context.clearCookies();
  await page.keyboard.press('Control+s');
  const dialog = page.getByRole('dialog', { name: 'Your session has ended' });
  await dialog.waitFor();
  await dialog.getByLabel('Password').fill(server.admin.split(/:(.*)/s)[1]);
  await dialog.getByLabel('Password').press('Enter');
  await saved('numbers');
  check('the text outlives the session, and is saved after the login', (await raw('numbers')).includes('"kept":5.0'));

  // Delete and undo.
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByRole('status').getByText('Deleted numbers').waitFor();
  check('it is deleted', (await server.request('GET', `/${DB}/numbers`)).status === 404);
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('status').getByText('The document is restored.').waitFor();
  check('and comes back unchanged', (await raw('numbers')).includes('"kept":5.0') && (await raw('numbers')).includes('9223372036854775807'));

  // New ones, and copies.
  await open(`database/${DB}/_new`);
  await editor.filter({ hasText: /"_id": "[0-9a-f]{32}"/ }).waitFor();
  check('a new document has an _id proposed', true);
  await write('{\n  "_id": "a/b ü?",\n  "n": 1.5\n}');
  await save.click();
  await page.getByRole('heading', { name: 'a/b ü?' }).waitFor();
  check('any _id can be saved and is opened', (await raw('a/b ü?')).includes('"n":1.5'));
  const rev = JSON.parse(await raw('a/b ü?'))._rev;
  await server.request('PUT', `/${DB}/${encodeURIComponent('a/b ü?')}/x.txt?rev=${rev}`, '"x"');
  await page.getByRole('button', { name: 'Reload' }).click();
  await page.getByRole('link', { name: 'Attachments (1)' }).waitFor();
  const link = page.getByRole('link', { name: 'Raw' });
  check('there is a link to the raw document', (await link.getAttribute('href')).endsWith(`/${DB}/${encodeURIComponent('a/b ü?')}`));
  await page.getByRole('button', { name: 'Copy as new' }).click();
  await page.getByRole('heading', { name: 'Copy of a/b ü?' }).waitFor();
  await shows('1.5');
  await write((await editor.innerText()).replace(/"_id": "[^"]*"/, '"_id": "copied"'));
  await save.click();
  await page.getByRole('heading', { name: 'copied' }).waitFor();
  check('a copy has the content and the attachments', (await raw('copied')).includes('"n":1.5') && JSON.parse(await raw('copied'))._attachments['x.txt'].length === 3, await raw('copied'));
  await open(`database/${DB}/_new`);
  await shows('_id');
  await write('{"_id": "copied"}');
  await save.click();
  check('a new document does not overwrite one that is there', await page.getByRole('region', { name: 'A document with this _id already exists' }).waitFor().then(() => true, () => false));
  await page.getByRole('button', { name: 'Continue editing' }).click();
  page.once('dialog', (asking) => asking.accept());

  // Design documents, and names that were pages once.
  await put('settings', '{"is":"a document"}');
  await doc('settings');
  check('a document named settings is shown', await shows('a document'));
  await put('_design/rules', '{"validate_doc_update":"function (doc) { if (doc.bad) throw({forbidden: \'no bad ones\'}); }"}');
  await doc('_design/rules');
  await shows('no bad ones');
  await write((await editor.innerText()).replace('no bad ones', 'never bad'));
  await save.click();
  await saved('_design/rules');
  check('validators can be edited', (await raw('_design/rules')).includes('never bad'));
  await doc('copied');
  await shows('copied');
  await write((await editor.innerText()).replace('"n":', '"bad": 1, "n":'));
  await save.click();
  const refused = page.getByRole('alert').filter({ hasText: 'never bad' });
  check('what a validator says is shown', await refused.waitFor().then(() => true, () => false));
  await page.getByRole('button', { name: 'Discard changes' }).click();

  // Ids that browsers take for other paths.
  const kept = async (id) => JSON.parse((await server.request('POST', `/${DB}/_all_docs?include_docs=true`, JSON.stringify({ keys: [id] }))).text).rows[0].doc;
  const requests = [];
  page.on('request', (request) => requests.push(`${request.method()} ${new URL(request.url()).pathname}`));
  for (const id of ['.', '..']) {
    const [of] = (await server.request('POST', `/${DB}/_bulk_docs`, JSON.stringify({ docs: [{ _id: id, is: 'first', big: 1 }] }))).json;
    await doc(id);
    check(`the document ${id} is shown`, await shows('"is": "first"'));
    requests.length = 0;
    await write(`{\n  "_id": "${id}",\n  "_rev": "${of.rev}",\n  "is": "second"\n}`);
    await save.click();
    await saved(id);
    check(`and saved`, (await kept(id)).is === 'second', await kept(id));
    await page.getByRole('link', { name: 'Revisions' }).click();
    await page.getByRole('list', { name: /Revisions/ }).waitFor();
    check('with its revisions', await page.getByRole('list', { name: /Revisions/ }).getByText((await kept(id))._rev.slice(0, 8)).first().isVisible());
    await page.getByRole('link', { name: 'JSON', exact: true }).click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    const isGone = async () => (await kept(id)) === null;
    for (let tries = 0; tries < 50 && !(await isGone()); tries++) await page.waitForTimeout(100);
    check('and deleted', await isGone(), await kept(id));
    const astray = requests.filter((request) => !/^(GET|HEAD) /.test(request) && !/\/(_bulk_docs|_bulk_get|_all_docs)$/.test(request));
    check('no other request changes anything', astray.length === 0 && (await server.request('GET', `/${DB}`)).status === 200, astray);
  }
}

// The list of documents: exact counts, jumps, ranges, columns, numbers as they are, several deleted and put back, odd ids.
export const name = 'documents';

const DB = 'documents-list';
const COUNT = 12_345;
/** Ids that mean pages elsewhere. */
const ODD = ['settings', 'new', 'changes', 'permissions', 'a/b', 'ü #?&%', '_id'.slice(1)];

async function prepare(server) {
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}`);
  for (let n = 0; n < COUNT; n += 5000) {
    const docs = Array.from({ length: Math.min(5000, COUNT - n) }, (_, k) => `{"_id":"doc-${String(n + k).padStart(6, '0')}","big":9223372036854775807,"whole":1.0,"name":"N${n + k}"}`);
    await server.request('POST', `/${DB}/_bulk_docs`, `{"docs":[${docs.join(',')}]}`);
  }
}

export async function run(tools) {
  await prepare(tools.server);
  await shown(tools);
  await jumps(tools);
  await ranges(tools);
  await removed(tools);
  await odd(tools);
  await partitions(tools);
}

const tableOf = (page) => page.getByRole('table', { name: 'Documents' });

async function shown({ page, check, open }) {
  await open(`#/database/${DB}/_all_docs`);
  const table = tableOf(page);
  await table.getByRole('link', { name: 'doc-000000' }).waitFor();
  check('the count is exact', (await page.getByRole('status').filter({ hasText: '12,345 documents' }).count()) > 0);
  const row = await table.getByRole('row').nth(1).innerText();
  check('a big number and 1.0 are shown as they are', row.includes('9223372036854775807') && row.includes('1.0'), row);
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByRole('dialog').getByLabel('whole').uncheck();
  await page.getByRole('dialog').getByRole('button', { name: 'OK' }).click();
  await page.waitForFunction(() => ![...document.querySelectorAll('[role=columnheader]')].some((each) => each.textContent === 'whole'));
  check('columns can be chosen', (await table.getByRole('columnheader', { name: 'big' }).count()) === 1);
  await page.getByRole('button', { name: 'JSON' }).click();
  await page.getByText('"whole": 1.0').first().waitFor();
  check('JSON is without loss', (await page.getByText('"big": 9223372036854775807').count()) === 20);
  await page.getByRole('button', { name: 'Next' }).click();
  await page.getByRole('link', { name: 'doc-000020' }).waitFor();
  check('JSON goes on', true);
  await page.getByRole('button', { name: 'Table' }).click();
}

async function jump(page, by, to) {
  await page.getByLabel('Jump by').selectOption({ label: by });
  await page.getByLabel('Jump to').fill(to);
  await page.getByRole('button', { name: 'Go', exact: true }).click();
}

async function jumps({ page, check, open }) {
  await open(`#/database/${DB}/_all_docs`);
  const table = tableOf(page);
  await table.getByRole('link', { name: 'doc-000000' }).waitFor();
  const skips = [];
  page.on('request', (request) => {
    const skip = new URL(request.url()).searchParams.get('skip');
    if (skip) skips.push(Number(skip));
  });
  await jump(page, 'Row', '12000');
  await table.getByRole('link', { name: 'doc-011999' }).waitFor();
  check('a jump leads to the row', (await table.getByRole('row').filter({ hasText: 'doc-011999' }).getAttribute('aria-rowindex')) === '12001');
  check('it comes from the nearer end', Math.max(0, ...skips) < COUNT / 2, skips);
  await jump(page, 'ID', 'doc-004242');
  await table.getByRole('link', { name: 'doc-004242' }).waitFor();
  check('a jump leads to an id', (await table.getByRole('row').filter({ hasText: 'doc-004242' }).getAttribute('aria-rowindex')) === '4244');
  await page.getByRole('rowgroup', { name: 'Documents' }).focus();
  await page.keyboard.press('End');
  await table.getByRole('link', { name: 'doc-012344' }).waitFor();
  check('End leads to the last', true);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'doc-012344', level: 1 }).waitFor();
  check('Enter opens it', true);
}

async function ranges({ page, check, open }) {
  await open(`#/database/${DB}/_all_docs?startkey="doc-000100"&endkey="doc-000200"`);
  await page.getByText('101 of 12,345 documents').waitFor();
  check('a range of an address is shown with its exact count', true);
  await open(`#/database/${DB}/_all_docs?startkey="doc-000200"&endkey="doc-000100"&descending=true&inclusive_end=false`);
  await page.getByText('100 of 12,345 documents').waitFor();
  check('so is one that descends without its end', (await tableOf(page).getByRole('link').first().textContent()) === 'doc-000200');
  await page.getByRole('button', { name: 'Options' }).click();
  const form = page.getByRole('form', { name: 'Options' });
  await form.getByLabel('Descending').uncheck();
  await form.getByLabel('Starts with').fill('doc-0123');
  await form.getByRole('button', { name: 'Show' }).click();
  await page.getByText('45 of 12,345 documents').waitFor();
  check('a beginning is found', true);
  await form.getByLabel('Only these ids').fill('doc-000007\nnowhere');
  await form.getByRole('button', { name: 'Show' }).click();
  await page.getByText('missing').waitFor();
  check('ids that are not there are named', true);
  await page.getByRole('form', { name: 'Options' }).getByRole('button', { name: 'All documents' }).click();
  await page.getByText('12,345 documents').first().waitFor();
}

async function removed({ page, server, check, open }) {
  const before = (await server.request('GET', `/${DB}/doc-000001`)).text;
  await server.request('PUT', `/${DB}/doc-000002/note.txt?rev=${(await server.request('GET', `/${DB}/doc-000002`)).json._rev}`, '"attached"');
  await open(`#/database/${DB}/_all_docs`);
  await page.getByLabel('Select doc-000001').check();
  await page.getByLabel('Select doc-000003').click({ modifiers: ['Shift'] });
  await page.getByText('3 selected').waitFor();
  check('Shift selects what is between', true);
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByText('3 deleted.').waitFor();
  check('selected documents are deleted', (await server.request('GET', `/${DB}/doc-000002`)).status === 404);
  await page.getByText('12,342 documents').first().waitFor();
  await page.getByRole('button', { name: 'Undo' }).click();
  await tableOf(page).getByRole('link', { name: 'doc-000001' }).waitFor();
  const after = await server.request('GET', `/${DB}/doc-000001`);
  check('undo writes a new revision', after.json._rev.startsWith('3-'), after.text);
  check('with every byte as it was', after.text.replace(/"_rev":"[^"]*"/, '') === before.replace(/"_rev":"[^"]*"/, ''), after.text);
  // Of a document in conflict, the branch that was deleted goes on.
  await server.request('POST', `/${DB}/_bulk_docs`, { new_edits: false, docs: ['1-aaaa', '1-bbbb'].map((rev) => ({ _id: 'doc-forked', _rev: rev, rev })) });
  await open(`#/database/${DB}/_all_docs?key="doc-forked"`);
  await page.getByLabel('Select doc-forked').check();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByText('in conflict with the deleted one').waitFor();
  check('the other revision of a conflict is left', (await server.request('GET', `/${DB}/doc-forked`)).json.rev === '1-aaaa');
  await page.getByRole('button', { name: 'Undo' }).last().click();
  await page.getByText('in conflict with the deleted one').waitFor({ state: 'detached' });
  const forked = (await server.request('GET', `/${DB}/doc-forked?conflicts=true`)).json;
  check('undo continues the branch that was deleted', forked.rev === '1-bbbb' && forked._rev.startsWith('3-') && forked._conflicts?.[0] === '1-aaaa', forked);
  await server.request('DELETE', `/${DB}/doc-forked?rev=${forked._rev}`);
  await server.request('DELETE', `/${DB}/doc-forked?rev=1-aaaa`);
  check('attachments are put back as well', (await server.request('GET', `/${DB}/doc-000002/note.txt`)).text === '"attached"');
}

async function odd({ page, server, check, open }) {
  for (const id of ODD) await server.request('PUT', `/${DB}/${encodeURIComponent(id)}`, { odd: true });
  await open(`#/database/${DB}/_all_docs?keys=${encodeURIComponent(JSON.stringify(ODD))}`);
  for (const id of ODD) {
    await tableOf(page).getByRole('link', { name: id, exact: true }).click();
    await page.getByRole('heading', { name: id, exact: true, level: 1 }).waitFor();
    check(`the document ${id} is opened`, true);
    await page.goBack();
    await tableOf(page).getByRole('link', { name: id, exact: true }).waitFor();
  }
  for (const [address, tab] of [['changes', 'Changes'], ['_find', 'Query'], ['_index', 'Query'], ['_search', 'Search'], ['new_search/x', 'Search'], ['_design/x/_nouveau/y', 'Search'], ['new_view', 'Views'], ['permissions', 'Permissions'], ['_design/x/_view/y', 'Views']]) {
    await open(`#/database/${DB}/${address}`);
    check(`Fauxton's address ${address} leads to ${tab}`, (await page.locator('nav[aria-label="Parts of the database"] [aria-current=page]').textContent()) === tab);
  }
}

async function partitions({ page, server, check, open }) {
  await server.request('PUT', '/documents-parts?partitioned=true');
  await server.request('POST', '/documents-parts/_bulk_docs', { docs: Array.from({ length: 500 }, (_, n) => ({ _id: `p${n % 5}:${String(n).padStart(4, '0')}`, n })) });
  await open('#/database/documents-parts/_partition/p3/_all_docs');
  await page.getByText('100 of 100 documents').waitFor();
  check('a partition is shown alone', (await tableOf(page).getByRole('link').first().textContent()) === 'p3:0003');
  await open('#/database/documents-parts');
  await page.getByRole('button', { name: 'Select all' }).click();
  await page.getByText('500 selected').waitFor();
  check('all can be selected', true);
}

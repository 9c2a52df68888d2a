// Three leaves are resolved, and the chosen winner is kept: Fauxton deleted everything.
export const name = 'document: conflicts';
export const short = true;

const DB = 'document-conflicts';

export async function run({ page, open, check, server }) {
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}`);
  const leaves = (id) => [
    { _id: id, _rev: '2-aaaa', _revisions: { start: 2, ids: ['aaaa', 'r1'] }, same: 1, title: 'A', only: 'here' },
    { _id: id, _rev: '2-bbbb', _revisions: { start: 2, ids: ['bbbb', 'r1'] }, same: 1, title: 'B' },
    { _id: id, _rev: '2-cccc', _revisions: { start: 2, ids: ['cccc', 'r1'] }, same: 1, title: 'C', price: 'PRICE' },
  ];
  const fill = (id) => server.request('POST', `/${DB}/_bulk_docs`, JSON.stringify({ new_edits: false, docs: leaves(id) }).replace('"PRICE"', '9223372036854775807'));
  const now = async (id) => (await server.request('GET', `/${DB}/${id}?conflicts=true&deleted_conflicts=true`)).text;
  const solve = () => page.getByRole('button', { name: 'Keep this, delete 2 others' }).click();

  await fill('one');
  await open(`database/${DB}/_doc/one`);
  await page.getByRole('button', { name: 'Compare and resolve' }).click();
  const table = page.getByRole('region', { name: 'Conflicts' }).getByRole('table');
  await table.waitFor();
  check('all leaves are side by side', (await table.getByRole('columnheader').count()) === 4);
  check('fields that do not differ are left out', (await table.getByRole('rowheader').allInnerTexts()).join() === 'title,price,only', await table.getByRole('rowheader').allInnerTexts());
  await table.getByRole('radio', { name: 'Keep 2-aaaa' }).check();
  await solve();
  await page.getByRole('status').getByText('Resolved: kept 2-aaaa, deleted 2.').waitFor();
  const first = JSON.parse(await now('one'));
  check('the chosen one is kept as it was, the others are deleted', first._rev === '2-aaaa' && first.title === 'A' && !first._conflicts && first._deleted_conflicts?.length === 2, first);
  check('and the page says that there are no conflicts', await page.getByText('There are no conflicts.').waitFor().then(() => true, () => false));

  await fill('two');
  await open(`database/${DB}/_doc/two?part=conflicts`);
  await table.getByRole('radio', { name: 'Keep 2-bbbb' }).check();
  await table.getByRole('radio', { name: 'title of 2-aaaa' }).check();
  await table.getByRole('radio', { name: 'price of 2-cccc' }).check();
  const result = page.getByRole('textbox', { name: 'Result that is kept' });
  await result.filter({ hasText: '9223372036854775807' }).waitFor();
  await solve();
  await page.getByRole('status').getByText(/Resolved: kept 3-/).waitFor();
  const second = await now('two');
  const told = JSON.parse(second);
  check('fields of three leaves are merged without loss', told.title === 'A' && !told.only && second.includes('"price":9223372036854775807') && told._rev.startsWith('3-') && !told._conflicts, second);

  // What is refused takes nothing with it.
  await fill('three');
  await server.request('PUT', `/${DB}/_design/rules`, { validate_doc_update: "function (doc) { if (doc.title === 'bad') throw({ forbidden: 'not this' }); }" });
  await open(`database/${DB}/_doc/three?part=conflicts`);
  await result.filter({ hasText: '"C"' }).waitFor();
  await result.click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText('{"_id": "three", "title": "bad"}');
  await solve();
  await page.getByText('nothing was deleted').waitFor();
  const third = JSON.parse(await now('three'));
  check('where the merged text is refused, all leaves stay', third._conflicts?.length === 2 && third.title === 'C', third);

  // Each answer of the many is looked at.
  await fill('four');
  await open(`database/${DB}/_doc/four?part=conflicts`);
  await table.waitFor();
  await page.route('**/_bulk_docs', (route) => route.fulfill({ status: 201, json: [{ ok: true, id: 'four', rev: '3-x' }, { id: 'four', error: 'forbidden', reason: 'not yours' }] }));
  await solve();
  const told4 = page.getByRole('alert').filter({ hasText: 'not yours' });
  await told4.waitFor();
  check('what could not be deleted is told by its revision', /One revision could not be deleted/.test(await told4.innerText()) && /2-[ab]{4}: forbidden/.test(await told4.innerText()), await told4.innerText());
  await page.unroute('**/_bulk_docs');
}

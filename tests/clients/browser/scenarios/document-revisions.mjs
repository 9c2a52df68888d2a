// The tree of revisions as a picture; older ones while they exist.
export const name = 'document: revisions';
export const short = true;

const DB = 'document-revisions';

export async function run({ page, open, check, server }) {
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}`);
  const ids = (start, ...of) => ({ start, ids: of });
  await server.request('POST', `/${DB}/_bulk_docs`, {
    new_edits: false,
    docs: [
      { _id: 'tree', _rev: '4-aaaa', _revisions: ids(4, 'aaaa', 'a3', 'r2', 'r1'), who: 'winner?' },
      { _id: 'tree', _rev: '4-bbbb', _revisions: ids(4, 'bbbb', 'b3', 'r2', 'r1'), who: 'the winner' },
      { _id: 'tree', _rev: '3-cccc', _revisions: ids(3, 'cccc', 'r2', 'r1'), _deleted: true },
    ],
  });
  const old = (await server.request('PUT', `/${DB}/line`, '{"n":1.0,"what":"old"}')).json.rev;
  const now = (await server.request('PUT', `/${DB}/line`, `{"_rev":"${old}","n":2.0,"what":"present"}`)).json.rev;

  await open(`database/${DB}/_doc/tree?part=revisions`);
  const list = page.getByRole('list', { name: 'Revisions, newest first' });
  await list.waitFor();
  const said = (await list.getByRole('listitem').allInnerTexts()).map((each) => each.replace(/\s+/g, ' ').trim());
  const row = (rev) => said.find((each) => each.startsWith(rev)) ?? '';
  check('all revisions are in the picture, the newest first', said.length === 7 && said[0].startsWith('4-bbbb'), said);
  check('the winner, conflicts and deleted leaves are told apart', row('4-bbbb').includes('winner') && row('4-aaaa').includes('conflict') && row('3-cccc').includes('deleted'), said);
  check('and what is not there any more', row('2-r2').includes('compacted') && row('3-a3').includes('compacted'), said);
  await list.getByRole('button', { name: '4-aaaa' }).click();
  const shown = page.getByRole('region', { name: 'Revision 4-aaaa' });
  check('a revision is shown beside the present text', (await shown.getByRole('textbox', { name: 'Revision 4-aaaa' }).innerText()).includes('winner?') && (await shown.getByRole('textbox', { name: 'Current text' }).innerText()).includes('the winner'));
  await list.getByRole('button', { name: '2-r2' }).click();
  check('of one that is gone it says so', await page.getByText('Compaction removed the content of this revision').isVisible({ timeout: 3000 }).catch(() => false) || (await page.getByText('Compaction removed the content of this revision').waitFor().then(() => true, () => false)));

  await open(`database/${DB}/_doc/line?part=revisions`);
  await list.getByRole('button', { name: old.slice(0, 10) }).click();
  await page.getByRole('button', { name: 'Use as new text' }).click();
  const editor = page.getByRole('textbox', { name: 'Document as JSON' });
  await editor.filter({ hasText: '"old"' }).waitFor();
  check('an older revision is taken as the text, upon the present one', (await editor.innerText()).includes(now));
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('status').getByText('Saved line').waitFor();
  const stored = (await server.request('GET', `/${DB}/line`)).text;
  check('and saved', stored.includes('"n":1.0') && stored.includes('"_rev":"3-'), stored);

  await server.request('DELETE', `/${DB}/line?rev=${JSON.parse(stored)._rev}`);
  await open('#/');
  await open(`database/${DB}/_doc/line?part=revisions`);
  await list.waitFor();
  check('a deleted document has its revisions still', (await page.getByRole('heading', { level: 1 }).innerText()).includes('deleted') && (await list.getByRole('listitem').count()) === 4);
  await list.getByRole('button').nth(1).click();
  await page.getByRole('button', { name: 'Use as new text' }).click();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('heading', { level: 1 }).filter({ hasNotText: 'deleted' }).filter({ hasNotText: 'not saved' }).waitFor();
  check('and can be brought back from them', (await server.request('GET', `/${DB}/line`)).text.includes('"n":1.0'));
}

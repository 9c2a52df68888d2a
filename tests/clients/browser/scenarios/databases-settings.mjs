// A database's permissions and settings: what they mean in words, saved at once, taken back; limits, compaction, deletion.
export const name = 'database-settings';

const DB = 'databases-settings';

export async function run(tools) {
  const { server } = tools;
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}`);
  await server.request('PUT', `/${DB}/_security`, { members: { names: [], roles: [] }, admins: { names: [], roles: [] }, kept: { more: 1 } });
  await server.request('POST', `/${DB}/_bulk_docs`, { docs: Array.from({ length: 2000 }, (_, n) => ({ n })) });
  await server.request('PUT', `/${DB}/_design/x`, { views: { by: { map: 'function (doc) { emit(doc.n) }' } } });
  await permissions(tools);
  await settings(tools);
}

async function permissions({ page, server, check, open }) {
  await open(`#/database/${DB}/permissions`);
  await page.getByText(/^Public: there are no members/).waitFor();
  check('that it is public is said in words', true);
  const members = page.getByRole('region', { name: 'Members' });
  await members.getByLabel('Add a user').fill('anna');
  await members.getByLabel('Add a user').press('Enter');
  await page.getByText(/^Only the members and admins below/).waitFor();
  const { json } = await server.request('GET', `/${DB}/_security`);
  check('a member is saved, and what else there is stays', json.members.names[0] === 'anna' && json.kept.more === 1, json);
  await members.getByRole('button', { name: 'Remove anna' }).click();
  const dialog = page.getByRole('dialog', { name: 'Make the database public?' });
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  check('making it public is asked for', (await server.request('GET', `/${DB}/_security`)).json.members.names.length === 1);
  const admins = page.getByRole('region', { name: 'Admins' });
  await admins.getByLabel('Add a role').fill('keepers');
  await admins.getByRole('button', { name: 'Add' }).last().click();
  await admins.getByText('keepers').waitFor();
  await page.getByRole('button', { name: 'Undo' }).last().click();
  await admins.getByText('keepers').waitFor({ state: 'detached' });
  check('a change is taken back', (await server.request('GET', `/${DB}/_security`)).json.admins.roles.length === 0);
}

async function settings({ page, server, check, open }) {
  await open(`#/database/${DB}/_settings`);
  const limits = page.getByRole('region', { name: 'Limits' });
  await limits.getByLabel('Revisions kept (revs_limit)').fill('77');
  await limits.getByLabel('Revisions kept (revs_limit)').press('Enter');
  await page.getByText('Saved.', { exact: true }).waitFor();
  check('a limit is saved', (await server.request('GET', `/${DB}/_revs_limit`)).json === 77);
  const compaction = page.getByRole('region', { name: 'Compaction' });
  await compaction.getByRole('button', { name: 'Compact the database' }).click();
  await compaction.getByText(/ → /).waitFor();
  check('compaction begins and its gain is shown', true);
  await compaction.getByRole('button', { name: 'Compact views' }).click();
  await page.getByText('Compaction started.').last().waitFor();
  await compaction.getByRole('button', { name: 'Remove unused indexes' }).click();
  await page.getByText('Unused indexes are being removed.').waitFor();
  check('views are compacted and cleaned up', true);
  await page.getByRole('button', { name: 'Delete the database' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel(`Type ${DB} to confirm`).fill(DB);
  await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByRole('heading', { name: 'Databases', level: 1 }).waitFor();
  check('it is deleted', (await server.request('GET', `/${DB}`)).status === 404);
}

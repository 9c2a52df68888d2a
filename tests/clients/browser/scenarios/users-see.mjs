// What can somebody see? For each database, and why.
export const name = 'what can X see';

export async function run({ page, server, check, open }) {
  const user = 'users-see-paul';
  const doc = `/_users/org.couchdb.user:${user}`;
  const old = await server.request('GET', doc);
  await server.request('PUT', doc, { ...(old.status === 200 ? { _rev: old.json._rev } : {}), name: user, type: 'user', roles: ['users-see-team'], password: 'p' });
  const security = {
    'users-see-team-db': { admins: { names: [], roles: ['_admin'] }, members: { names: [], roles: ['users-see-team'] } },
    'users-see-named': { admins: { names: [], roles: ['_admin'] }, members: { names: [user], roles: [] } },
    'users-see-his': { admins: { names: [user], roles: [] }, members: { names: ['else'], roles: [] } },
    'users-see-closed': { admins: { names: [], roles: ['_admin'] }, members: { names: ['else'], roles: [] } },
    'users-see-open': { admins: { names: [], roles: ['_admin'] }, members: { names: [], roles: [] } },
  };
  for (const [db, of] of Object.entries(security)) {
    await server.request('PUT', `/${db}`);
    await server.request('PUT', `/${db}/_security`, of);
  }
  await open('users/see');
  await page.getByLabel('User name').fill(user);
  await page.getByRole('button', { name: 'Check' }).click();
  const table = page.getByRole('table', { name: 'Check permissions' });
  await page.getByLabel('Search databases').fill('users-see-');
  const wants = {
    'users-see-team-db': /read and write.*its members have the role users-see-team/s,
    'users-see-named': /read and write.*is one of its members/s,
    'users-see-his': /everything.*is one of its admins/s,
    'users-see-closed': /nothing.*neither the name nor a role/s,
    'users-see-open': /read and write.*the database is public/s,
  };
  for (const [db, want] of Object.entries(wants)) {
    const row = table.getByRole('row').filter({ hasText: db });
    await row.waitFor();
    const text = await row.innerText();
    check(`${db} is told with its reason`, want.test(text), text);
    const authorization = `Basic ${Buffer.from(`${user}:p`).toString('base64')}`;
    const may = (await fetch(`${server.url}/${db}/_all_docs`, { headers: { authorization } })).status === 200;
    check(`${db}: the server says the same`, may === !/nothing/.test(text), may);
  }
  await page.getByLabel('Only databases with permissions').check();
  await table.getByRole('row').filter({ hasText: 'users-see-closed' }).waitFor({ state: 'detached' });
  check('those without rights can be left out', true);
  await page.getByLabel('Only databases with permissions').uncheck();
  await page.getByLabel('User name').fill('');
  await page.getByRole('button', { name: 'Check' }).click();
  await table.getByRole('row').filter({ hasText: 'users-see-named' }).filter({ hasText: 'nothing' }).waitFor();
  check('somebody who is not logged in sees what is open', /read and write/.test(await table.getByRole('row').filter({ hasText: 'users-see-open' }).innerText()));
  await page.getByLabel('User name').fill(server.admin.split(':')[0]);
  await page.getByRole('button', { name: 'Check' }).click();
  await table.getByRole('row').filter({ hasText: 'users-see-closed' }).filter({ hasText: 'is a server admin' }).waitFor();
  check('a server admin sees everything', true);
}

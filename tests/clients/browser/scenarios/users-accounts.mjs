// Users: create, roles, password, delete with undo; server admins; the own password; who is no admin sees the own account only.
export const name = 'users';
export const widths = [1280, 360];

export async function run({ browser, page, base, server, check, open, login, width }) {
  const user = `users-anna-${width}`;
  const doc = `/_users/org.couchdb.user:${user}`;
  const old = await server.request('GET', doc);
  if (old.status === 200) await server.request('DELETE', `${doc}?rev=${old.json._rev}`);

  await open('users');
  await page.getByRole('button', { name: 'New user' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill(user);
  await dialog.getByLabel('Password').fill('first');
  await dialog.getByLabel('Roles').fill('sales, support');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByLabel('Search users').fill(user);
  await page.getByRole('table', { name: 'Users' }).getByText('support').waitFor();
  check('a user is created with roles', true);

  const made = (await server.request('GET', doc)).json;
  await server.request('PUT', doc, { ...made, mail: 'anna@example.org', staff: 12345678901234567n.toString() });
  await page.getByRole('link', { name: user }).click();
  await page.getByRole('heading', { level: 1, name: user }).waitFor();
  await page.getByText('anna@example.org').waitFor();
  await page.getByRole('textbox', { name: 'Roles' }).fill('sales');
  await page.getByRole('button', { name: 'Save roles' }).click();
  await page.getByText(`Saved: ${user}`).waitFor();
  let now = (await server.request('GET', doc)).json;
  check('roles change, other fields survive', now.roles.join() === 'sales' && now.mail === 'anna@example.org', now);
  await page.getByLabel('New password', { exact: true }).fill('second');
  await page.getByLabel('Repeat new password').fill('secnod');
  await page.getByText('The passwords differ.').waitFor();
  check('a typing error is told', await page.getByRole('button', { name: 'Change password' }).isDisabled());
  await page.getByLabel('Repeat new password').fill('second');
  await page.getByRole('button', { name: 'Change password' }).click();
  await page.getByText('Password changed.').waitFor();
  const logIn = async (password, who = user) => (await fetch(`${server.url}/_session`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ name: who, password }) })).status;
  check('the new password counts', (await logIn('second')) === 200 && (await logIn('first')) === 401);
  now = (await server.request('GET', doc)).json;
  check('other fields survive a new password', now.mail === 'anna@example.org' && now.roles.join() === 'sales');

  await page.getByRole('button', { name: 'Delete user' }).click();
  await page.getByText(`Deleted: ${user}`).waitFor();
  check('the user is deleted', (await server.request('GET', doc)).status === 404);
  await page.getByRole('status').getByRole('button', { name: 'Undo' }).last().click();
  await page.getByRole('heading', { level: 1, name: user }).waitFor();
  check('undo brings the user back, with the password', (await logIn('second')) === 200);

  const context = await browser.newContext({ locale: 'en-US', viewport: { width, height: 800 } });
  const own = await context.newPage();
  await login(`${user}:second`, context);
  await own.goto(new URL('#/users', base).href);
  await own.getByRole('heading', { level: 1, name: 'My account' }).waitFor();
  check('who is no admin sees the own account only', (await own.getByRole('link', { name: 'Server admins' }).count()) === 0);
  await own.getByText('On this server, only administrators can change user documents').waitFor();
  check('where users are closed to users, it says so', true);
  // Administrators may open them.
  const closed = (await server.request('GET', '/_users/_security')).json;
  const editable = '/_node/_local/_config/couchdb/users_db_security_editable';
  await server.request('PUT', editable, '"true"');
  await server.request('PUT', '/_users/_security', { ...closed, members: { names: [], roles: [] } });
  await own.reload();
  await own.getByLabel('Current password').fill('wrong');
  await own.getByLabel('New password', { exact: true }).fill('third');
  await own.getByLabel('Repeat new password').fill('third');
  await own.getByRole('button', { name: 'Change password' }).click();
  await own.getByText('The current password is wrong.').waitFor();
  await own.getByLabel('Current password').fill('second');
  await own.getByRole('button', { name: 'Change password' }).click();
  await own.getByText('Password changed.').waitFor();
  check('the own password is changed', (await logIn('third')) === 200);
  await context.close();
  await server.request('PUT', '/_users/_security', closed);
  await server.request('DELETE', editable);

  const boss = `users-boss-${width}`;
  await server.request('DELETE', `/_node/_local/_config/admins/${boss}`);
  await open('users/admins');
  await page.getByRole('button', { name: 'New server admin' }).click();
  await dialog.getByLabel('Name').fill(boss);
  await dialog.getByLabel('Password').fill('bossy');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('row', { name: new RegExp(boss) }).waitFor();
  check('a server admin can be made', (await logIn('bossy', boss)) === 200);
  await page.getByRole('button', { name: `Delete server admin: ${boss}` }).click();
  await dialog.getByLabel(`Type ${boss} to confirm`).fill(boss);
  await dialog.getByRole('button', { name: 'Delete server admin' }).click();
  await page.getByText(`Deleted: ${boss}`).waitFor();
  check('and deleted', (await logIn('bossy', boss)) === 401);
  await open('changePassword');
  check("Fauxton's address of the own password", await page.getByLabel('Current password').isVisible());
}

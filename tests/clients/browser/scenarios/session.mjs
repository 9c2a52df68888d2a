// A session that ends is renewed in place: no endless spinner, and what was asked for comes.
export const name = 'session';
export const short = true;

/** CouchDB's login page, as a server sends browsers there, leads back to where they were; never to another server. */
async function wayBack(page, { base, check, password }) {
  for (const [to, back] of [['/_all_dbs', '_all_dbs'], ['//other.example/x', 'other.example/x']]) {
    await page.request.delete(new URL('../_session', base).href);
    await page.goto(new URL(`session.html?return=${encodeURIComponent(to)}&reason=You%20are%20not%20authorized.`, base).href);
    await page.getByText('You are not authorized.').waitFor();
    await page.getByLabel('Name').fill('admin');
    await page.getByLabel('Password').fill(password);
    await page.getByLabel('Password').press('Enter');
    const server = new URL('..', base).href;
    const led = await page.waitForURL((url) => url.href.startsWith(server) && url.href.endsWith(back), { timeout: 5000 }).then(() => true, () => false);
    check(`a login leads back to ${to} of this server`, led, page.url());
  }
  await page.goto(new URL('session.html?return=%2F_all_dbs&reason=You%20may%20not.', base).href);
  await page.getByText('You may not.').waitFor();
  check('who is logged in is told why, and has a way back', await page.getByRole('link', { name: 'Back to where you were' }).isVisible());
  await page.goto('about:blank');
}

export async function run({ context, page, base, open, check, login, server }) {
  const dialog = page.getByRole('dialog', { name: 'Your session has ended' });
  const logInAgain = async (password) => {
    await dialog.getByLabel('Password').fill(password);
    await dialog.getByLabel('Password').press('Enter');
  };
  const [, password] = server.admin.split(/:(.*)/s);

  // Whatever is opened then.
  for (const area of ['Replication', 'Users', 'Configuration', 'Cluster', 'Databases']) {
    await open('#/performance/slow');
    await context.clearCookies();
    await page.getByRole('navigation', { name: 'Main navigation' }).getByRole('link', { name: area }).click();
    const asks = await dialog.waitFor({ timeout: 5000 }).then(() => true, () => false);
    check(`${area}: a session that ended asks for the password in place`, asks, await page.locator('main').innerText());
    if (asks) {
      await logInAgain(password);
      await dialog.waitFor({ state: 'detached' });
    } else await login();
    await page.getByRole('status', { name: 'Loading…' }).waitFor({ state: 'detached' });
    if (asks) check(`${area}: what was asked for comes after the login`, (await page.getByRole('alert').count()) === 0, await page.locator('main').innerText());
  }

  await open('#/');
  await context.clearCookies();
  await page.getByRole('link', { name: 'Cluster' }).click();
  await dialog.waitFor();
  check('the password has the focus', await dialog.getByLabel('Password').evaluate((element) => element === document.activeElement));
  await logInAgain('wrong');
  await dialog.getByText('Name or password is wrong.').waitFor();
  check('a wrong password is told', true);
  await logInAgain(password);
  await dialog.waitFor({ state: 'detached' });

  // A timer asks nobody for a password, and does not spin either.
  await open('#/activetasks');
  await context.clearCookies();
  await page.getByRole('alert').first().waitFor({ timeout: 10_000 });
  check('a page that asks by itself says that it needs a login', await page.getByText('You need to log in.').isVisible());
  check('and asks for no password unasked', (await dialog.count()) === 0);

  // Who comes with no session gets the login first.
  const fresh = await context.newPage();
  await fresh.goto(base);
  await fresh.getByRole('heading', { name: 'Log in' }).waitFor();
  check('nobody gets the login page', true);
  await fresh.getByLabel('Name').fill('admin');
  await fresh.getByLabel('Password').fill(password);
  await fresh.getByLabel('Password').press('Enter');
  await fresh.getByRole('heading', { name: 'Databases', level: 1 }).waitFor();
  check('a login leads to the databases', true);
  await fresh.getByRole('button', { name: 'Log out' }).click();
  await fresh.getByRole('heading', { name: 'Log in' }).or(fresh.getByRole('button', { name: 'Log in' })).first().waitFor();
  check('and a logout out of them', (await (await fresh.request.get(new URL('../_session', base).href)).json()).userCtx.name === null);
  await wayBack(fresh, { base, check, password });
  await fresh.close();

  // Servers say "unauthorized" as well to who is logged in, and may not: another login of the same would not help.
  await server.request('PUT', '/_users');
  await server.request('PUT', '/_users/org.couchdb.user:session-reader', { name: 'session-reader', password: 'reading-it-1', roles: [], type: 'user' });
  await login('session-reader:reading-it-1');
  await page.goto('about:blank');
  await open('#/');
  const told = page.getByText('Only server admins can list all databases.');
  check('who is logged in and may not is told so', await told.waitFor().then(() => true, () => false), await page.locator('main').innerText());
  check('and is asked for no password', (await dialog.count()) === 0);
  await login();
}

// Below a proxy's sub-path everything works as it does at the root.
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';

export const name = 'subpath';
export const short = true;

const SERVE = fileURLToPath(new URL('../../../../web/tools/serve.mjs', import.meta.url));

function freePort() {
  return new Promise((done) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

export async function run({ page, server, watch, check }) {
  await server.request('PUT', '/subpath-db');
  await server.request('PUT', '/subpath-db/one', { n: 1 });
  const port = await freePort();
  // Without pages of its own: those of the server are looked at.
  const proxy = spawn('node', [SERVE, String(port), server.url, '/deep/below'], { stdio: 'ignore', env: { ...process.env, DIST: '' } });
  const origin = `http://127.0.0.1:${port}`;
  watch.origins.add(origin);
  const outside = [];
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.origin === origin && !url.pathname.startsWith('/deep/below/')) outside.push(url.pathname);
  });
  try {
    for (let n = 0; n < 50 && !(await fetch(`${origin}/deep/below/_up`).catch(() => null)); n++) await new Promise((done) => setTimeout(done, 100));
    await page.goto(`${origin}/deep/below/_utils`);
    check('the pages are found without the slash', new URL(page.url()).pathname === '/deep/below/_utils/', page.url());
    // Cookies know no ports: the login of this host counts here too, or it is asked for.
    const login = page.getByRole('heading', { name: 'Log in' });
    const databases = page.getByRole('heading', { name: 'Databases', level: 1 });
    await login.or(databases).first().waitFor();
    if (await login.isVisible()) {
      const [user, password] = server.admin.split(/:(.*)/s);
      await page.getByLabel('Name').fill(user);
      await page.getByLabel('Password').fill(password);
      await page.getByLabel('Password').press('Enter');
      await databases.waitFor();
    }
    check('the databases are shown', true);
    await page.getByText('subpath-db').first().waitFor();
    check('with their names', true);
    for (const [hash, what] of [['database/subpath-db/_all_docs', 'subpath-db'], ['activetasks', 'Tasks'], ['cluster', 'Cluster'], ['performance', 'Performance'], ['_config', 'Configuration'], ['users', 'Users'], ['replication', 'Replication']]) {
      await page.goto(`${origin}/deep/below/_utils/#/${hash}`);
      await page.locator('main').getByText(what).first().waitFor();
      check(`${hash} is shown`, (await page.getByRole('alert').count()) === 0, await page.locator('main').innerText());
    }
    check('nothing is asked for outside of the path', outside.length === 0, outside);
  } finally {
    // Its last page still asks.
    await page.goto('about:blank').catch(() => undefined);
    proxy.kill();
    await server.request('DELETE', '/subpath-db');
  }
}

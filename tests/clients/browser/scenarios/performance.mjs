// Performance: what top, doctor, profile and the slow log show.
import { text as textOf } from 'node:stream/consumers';

export const name = 'performance';

export async function run({ page, server, open, check, login, context }) {
  await server.request('PUT', '/performance-db');
  await server.request('POST', '/performance-db/_bulk_docs', { docs: Array.from({ length: 500 }, (_, n) => ({ _id: `d${n}`, n })) });
  await server.request('PUT', '/performance-db/_design/d', { views: { v: { map: 'function (doc) { emit(doc.n); }' } } });
  // Something to see, for as long as it is looked at.
  let isOver = false;
  const load = (async () => {
    for (let n = 0; !isOver; n++) {
      await server.request('GET', `/performance-db/d${n % 500}`);
      await server.request('GET', '/performance-db/_design/d/_view/v?limit=5');
      if (n % 5 === 0) await server.request('GET', '/performance-db/_missing');
      await new Promise((done) => setTimeout(done, 20));
    }
  })();
  try {
    await now(page, open, check);
    await doctor(page, server, open, check);
    await profile(page, open, check);
    await slow(page, server, open, check);
    await numbersOnly({ server, page, open, check, login, context });
  } finally {
    isOver = true;
    await load;
    await server.request('DELETE', '/performance-db');
  }
}

async function now(page, open, check) {
  await open('#/performance');
  const routes = page.getByRole('table', { name: 'Requests' });
  await routes.waitFor({ timeout: 20_000 });
  await routes.getByRole('row').filter({ hasText: 'document read' }).waitFor();
  check('requests are told by route', true);
  const read = await routes.getByRole('row').filter({ hasText: 'document read' }).innerText();
  check('with rates and times', /\d.*\d+ (ms|μs|µs)/s.test(read), read);
  for (const chart of ['Requests', 'Latency', 'Processors', 'Traffic']) check(`there is a chart: ${chart}`, await page.getByRole('img', { name: chart, exact: true }).first().isVisible());
  const drawn = page.locator('.chart-line[d*=L]');
  await drawn.nth(7).waitFor({ state: 'attached', timeout: 20_000 });
  check('they are drawn, two lines each', (await drawn.count()) === 8, await drawn.count());
  check('what threads do is a bar', await page.getByRole('img', { name: /Thread activity: .*idle/ }).isVisible());
  await page.getByRole('button', { name: 'Databases', exact: true }).click();
  const databases = page.getByRole('table', { name: 'Databases' });
  await databases.getByRole('link', { name: 'performance-db' }).waitFor();
  check('databases are told', true);
  await page.getByRole('button', { name: 'Views', exact: true }).click();
  await page.getByRole('table', { name: 'Views' }).getByRole('link', { name: 'performance-db/_design/d/_view/v' }).waitFor();
  check('so are views', true);
  await page.getByRole('button', { name: 'Requests', exact: true }).click();
  await routes.getByRole('columnheader', { name: 'Endpoint' }).getByRole('button').click();
  await routes.getByRole('columnheader', { name: 'Endpoint' }).getByRole('button').click();
  const names = async () => (await routes.getByRole('row').allInnerTexts()).slice(1).map((text) => text.split('\n')[0]);
  check('the table is sorted by any column', JSON.stringify(await names()) === JSON.stringify([...(await names())].sort()), await names());
  await page.getByRole('button', { name: 'Pause' }).click();
  const before = await page.locator('main').innerText();
  await page.waitForTimeout(3000);
  check('a pause stops it', (await page.locator('main').innerText()) === before);
  await page.getByRole('button', { name: 'Resume' }).click();
}

async function doctor(page, server, open, check) {
  await page.getByRole('link', { name: 'Doctor' }).click();
  await page.getByText(/Checked .* databases in/).waitFor();
  check('doctor examines', true);
  const { json: examined } = await server.request('GET', '/_settee/doctor');
  await page.getByText('All checks').click();
  const checks = page.getByRole('region', { name: 'All checks' }).getByRole('row');
  check('all checks are listed', (await checks.count()) === examined.checks.length + 1, await checks.count());
  const finding = { id: 'scans', area: 'data', severity: 'warning', subject: 'shop', says: '20 queries without an index', evidence: {}, why: 'each reads all', do: ['curl -X POST "$S/shop/_index"', '# fields with $eq first'] };
  await page.route('**/_settee/doctor', (route) => route.fulfill({ json: { ...examined, findings: [finding] } }));
  await page.getByRole('button', { name: 'Run again' }).click();
  const shown = page.getByRole('article').filter({ hasText: 'scans: shop' });
  await shown.waitFor();
  check('a finding has its severity and reason', /Warning/.test(await shown.innerText()) && /each reads all/.test(await shown.innerText()));
  await shown.getByRole('button', { name: 'Copy' }).click();
  check('its command can be copied', (await page.evaluate(() => navigator.clipboard.readText())) === finding.do[0]);
  await page.unroute('**/_settee/doctor');
}

async function profile(page, open, check) {
  await page.getByRole('link', { name: 'Profile' }).click();
  // Samples of waits are there however little the processor has to do.
  await page.getByLabel('Type', { exact: true }).selectOption('waits');
  await page.getByLabel(/^Seconds/).fill('1');
  await page.getByRole('button', { name: 'Start profiling' }).click();
  await page.getByRole('status').filter({ hasText: 'Profiling' }).waitFor();
  const graph = page.getByRole('group', { name: /Wall-clock time/ });
  await graph.waitFor();
  const frame = graph.getByRole('button', { name: /^requests: / });
  await frame.waitFor();
  check('a flame graph is drawn', (await graph.getByRole('button').count()) > 5, await graph.getByRole('button').count());
  await frame.click();
  await page.getByRole('button', { name: 'All', exact: true }).waitFor();
  check('a click fills the width with a frame', (await frame.evaluate((element) => element.getBoundingClientRect().width / element.parentElement.getBoundingClientRect().width)) > 0.98);
  await page.keyboard.press('ArrowUp');
  const focused = await page.evaluate(() => document.activeElement.getAttribute('aria-label'));
  check('arrows go from frame to frame', focused && !focused.startsWith('requests'), focused);
  await page.getByLabel('Find a function').fill('requests');
  check('a search tells the share', await page.getByText(/^found: /).isVisible());
  await page.getByLabel('Find a function').fill('');
  for (const [button, starts] of [['SVG', '<svg'], ['folded', '']]) {
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: button, exact: true }).click()]);
    const text = await textOf(await download.createReadStream());
    check(`${button} is downloaded`, text.startsWith(starts) && text.includes('requests'), text.slice(0, 200));
  }
  check('pprof is a link', /format=pprof/.test(await page.getByRole('link', { name: 'pprof' }).getAttribute('href')));
  await page.getByRole('button', { name: 'Start profiling' }).click();
  await page.getByLabel('Compare with').waitFor();
  await page.getByLabel('Compare with').selectOption({ index: 1 });
  await page.getByRole('heading', { name: 'Largest increases' }).waitFor();
  check('two profiles are compared', await page.getByText('larger share than before').isVisible());
  await page.getByLabel(/^Seconds/).fill('30');
  await page.getByRole('button', { name: 'Start profiling' }).click();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('button', { name: 'Start profiling' }).waitFor();
  check('a profile can be stopped', (await page.getByRole('alert').count()) === 0);
}

async function slow(page, server, open, check) {
  await page.getByRole('link', { name: 'Slow requests' }).click();
  await page.getByText(/requests that take longer than/).waitFor();
  check('it says what the slow log tells', true);
  // Nearly each request is slow now.
  await server.request('PUT', '/_node/_local/_config/log/slow_time', '"1"');
  await server.request('PUT', '/performance-slow');
  const docs = Array.from({ length: 3000 }, (_, n) => ({ n, text: 'x'.repeat(300) }));
  await server.request('POST', '/performance-slow/_bulk_docs', { docs });
  await server.request('DELETE', '/performance-slow');
  await server.request('DELETE', '/_node/_local/_config/log/slow_time');
  const { json: told } = await server.request('GET', '/_settee/slow');
  check('the server has slow requests', told.requests.length > 0, told);
  await page.getByRole('button', { name: 'Reload' }).click();
  const recent = page.getByRole('table', { name: 'The last slow requests' });
  await recent.getByText(told.requests[0].path).first().waitFor();
  check('the last slow requests are in a table, with their phases', /(write|auth|body) \d/.test(await recent.innerText()), await recent.innerText());
  await page.getByRole('table', { name: 'Slowest requests since you opened this page' }).waitFor();
  check('and what was slow meanwhile', true);
}

/** A user with the role `_metrics` sees numbers, and is asked for nothing else. */
async function numbersOnly({ server, page, open, check, login, context }) {
  await server.request('PUT', '/_users');
  await server.request('PUT', '/_users/org.couchdb.user:performance-watcher', { name: 'performance-watcher', password: 'watching-it-1', roles: ['_metrics'], type: 'user' });
  await context.clearCookies();
  await login('performance-watcher:watching-it-1');
  const refused = [];
  const note = (response) => response.status() >= 400 && refused.push(`${response.status()} ${response.url()}`);
  page.on('response', note);
  await page.goto('about:blank');
  await open('#/performance');
  await page.getByRole('table', { name: 'Requests' }).waitFor({ timeout: 20_000 });
  check('who may see numbers sees them', true);
  check('but no doctor and no profile', (await page.getByRole('link', { name: 'Doctor' }).count()) + (await page.getByRole('link', { name: 'Profile' }).count()) === 0);
  await open('#/activetasks');
  await page.getByText('No background tasks are running.').or(page.getByRole('table', { name: 'Active tasks' })).first().waitFor();
  check('and tasks', (await page.getByRole('alert').count()) === 0);
  check('and nothing is asked that is refused', refused.length === 0, refused);
  page.off('response', note);
  await context.clearCookies();
  await login();
}

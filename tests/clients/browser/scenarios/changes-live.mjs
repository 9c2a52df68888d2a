// The feed: live, paused, filtered in each way, and back by itself.
export const name = 'changes: live, filters, pause';
export const short = true;
export const themes = true;
export const widths = [1280, 360];
export const allow = [/ERR_INTERNET_DISCONNECTED|Failed to load resource|Failed to fetch/];

export async function run({ server, check, page, open, context }) {
  const db = `changes-live-${Date.now().toString(36)}`;
  await server.request('PUT', `/${db}?q=1`);
  const write = (id, more = {}) => server.request('PUT', `/${db}/${encodeURIComponent(id)}`, more);
  const table = page.getByRole('table', { name: 'Changes' });
  const row = (id) => table.getByRole('link', { name: id, exact: true });
  const seen = (id, timeout = 5000) =>
    row(id)
      .first()
      .waitFor({ timeout })
      .then(
        () => true,
        () => false,
      );
  try {
    await server.request('PUT', `/${db}/_design/f`, { filters: { kind: 'function (doc, req) { return doc.kind === req.query.kind; }' } });
    await write('before', { kind: 'a', big: 1 });
    await open(`#/database/${db}/_changes`);
    check('what came last is there', await seen('before'));
    await page.getByText('Live', { exact: true }).waitFor();
    await write('second', { kind: 'b' });
    check('a change is shown as it happens', await seen('second'));

    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByText('Paused', { exact: true }).waitFor();
    await write('while-paused', { kind: 'a' });
    check('nothing comes while it is paused', !(await seen('while-paused', 700)));
    await page.getByRole('button', { name: 'Resume' }).click();
    check('what came meanwhile comes then', await seen('while-paused'));

    await context.setOffline(true);
    await write('while-away', { kind: 'a' });
    await context.setOffline(false);
    check('it comes back by itself', await seen('while-away', 15_000));

    await open(`#/database/${db}/_changes?since=0&by=design&with=f%2Fkind&args=kind%3Db`);
    check('the function of a design document filters, with its query', (await seen('second')) && (await row('before').count()) === 0);
    await open(`#/database/${db}/_changes?since=0`);
    await seen('before');
    await page.getByText('Filter and options').click();
    await page.getByLabel('Filter on the server').selectOption({ label: 'Selector' });
    await page.getByLabel('Selector (JSON)').fill('{"kind": ');
    check('a wrong selector is told by line', await page.getByText(/Line 1, column/).isVisible());
    await page.getByLabel('Selector (JSON)').fill('{"kind": "b"}');
    await page.getByRole('button', { name: 'Apply' }).click();
    check('a selector filters', (await seen('second')) && (await row('before').count()) === 0);

    const rev = (await server.request('GET', `/${db}/second`)).json._rev;
    await server.request('DELETE', `/${db}/second?rev=${rev}`);
    await open(`#/database/${db}/_changes?since=0&deleted=true`);
    check('deleted ones only', (await seen('second')) && (await row('before').count()) === 0);
    await open(`#/database/${db}/_changes?since=0&by=ids&with=before%0Awhile-away&include_docs=true`);
    check('ids filter, and documents come along', (await seen('before')) && (await table.getByText('"big":1').count()) === 1);
    await row('before').click();
    await page.waitForURL(/before/);
    check('a row opens its document', page.url().includes('before'), page.url());
  } finally {
    await server.request('DELETE', `/${db}`);
  }
}

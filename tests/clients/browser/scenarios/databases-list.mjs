// 20,000 databases are usable within a second, found by name and sorted by size; databases are made and deleted.
export const name = 'databases';
export const seconds = 300;

const MANY = 20_000;
const USABLE_MS = 1000;

/** Makes or deletes so many databases, some at a time. */
async function each(server, method, query, accepted) {
  let next = 0;
  const work = async () => {
    while (next < MANY) {
      const { status } = await server.request(method, `/many-${String(next++).padStart(5, '0')}${query}`);
      if (!accepted.includes(status)) throw new Error(`${method} of a database: ${status}`);
    }
  };
  await Promise.all(Array.from({ length: 16 }, work));
}

export async function run(tools) {
  const { server } = tools;
  try {
    await each(server, 'PUT', '?q=1', [201, 202, 412]);
    await look(tools);
  } finally {
    await server.request('DELETE', '/many-largest');
    await each(server, 'DELETE', '', [200, 202, 404]);
  }
}

async function look({ page, server, check, open }) {
  await server.request('PUT', '/many-largest?q=1');
  await server.request('POST', '/many-largest/_bulk_docs', { docs: Array.from({ length: 5000 }, (_, n) => ({ n, text: 'x'.repeat(200) })) });

  const table = page.getByRole('table', { name: 'Databases' });
  await open('#/');
  // The first time the browser compiles the code: what counts is how long the data takes.
  const began = Date.now();
  await page.reload();
  await table.getByRole('link', { name: 'many-00000' }).waitFor();
  await table.getByRole('cell', { name: '0', exact: true }).first().waitFor();
  const took = Date.now() - began;
  check(`with ${MANY} databases the list is usable within ${USABLE_MS} ms`, took < USABLE_MS, `${took} ms`);
  check('not all of them are drawn', (await table.getByRole('row').count()) < 100);

  const search = page.getByRole('searchbox', { name: 'Search databases' });
  await search.fill('19999');
  await table.getByRole('link', { name: 'many-19999' }).waitFor();
  check('a search finds one of them', (await table.getByRole('link').count()) === 1);
  await search.press('Enter');
  await page.getByRole('heading', { name: 'many-19999', level: 1 }).waitFor();
  check('Enter opens it', true);

  // Other scenarios have left databases of their own.
  await open('#/?search=many-');
  await table.getByRole('button', { name: 'Size', exact: true }).click();
  await page.waitForFunction(() => document.querySelector('[role=table] [role=row] a')?.textContent === 'many-largest', null, { timeout: 60_000 });
  check('sorted by size the largest is first', true);
  await table.getByRole('button', { name: 'Documents', exact: true }).click();
  await table.getByRole('button', { name: 'Documents', exact: true }).click();
  check('sorted by documents upwards it is not', (await table.getByRole('link').first().textContent()) !== 'many-largest');

  await create(page, server, check, open);
  await removeOne(page, server, check, open);
}

async function create(page, server, check, open) {
  await open('#/');
  await page.getByRole('button', { name: 'New database' }).click();
  const dialog = page.getByRole('dialog', { name: 'New database' });
  await dialog.getByRole('textbox', { name: 'Name' }).fill('Wrong Name');
  check('a wrong name cannot be sent', await dialog.getByRole('button', { name: 'Create' }).isDisabled());
  await dialog.getByRole('textbox', { name: 'Name' }).fill('made/by-hand');
  await dialog.getByLabel('Partitioned').check();
  await dialog.getByText('Options').click();
  await dialog.getByLabel('Shards (q)').fill('3');
  await dialog.getByRole('textbox', { name: 'Name' }).press('Enter');
  await page.getByRole('heading', { name: 'made/by-hand', level: 1 }).waitFor();
  const { json } = await server.request('GET', '/made%2Fby-hand');
  check('it is made with its options', json.props.partitioned === true && json.cluster.q === 3, json);
  await page.getByText('There are no documents yet.').waitFor();
  check('it is opened', true);
}

async function removeOne(page, server, check, open) {
  await open('#/?search=made');
  await page.getByRole('button', { name: 'Delete made/by-hand' }).click();
  const dialog = page.getByRole('dialog');
  const button = dialog.getByRole('button', { name: 'Delete', exact: true });
  check('deleting waits for the name', await button.isDisabled());
  await dialog.getByLabel('Type made/by-hand to confirm').fill('made/by-hand');
  await button.click();
  await page.getByText('No database matches.').waitFor();
  check('it is deleted', (await server.request('GET', '/made%2Fby-hand')).status === 404);
}

// Cluster: nodes, shards on a map, facts of a node; members and slots of a cluster, as its endpoint tells them.
export const name = 'cluster';

export async function run({ page, server, open, check }) {
  await server.request('PUT', '/cluster-map?q=4');
  await server.request('PUT', '/cluster-map/a-document', { n: 1 });
  const { json: membership } = await server.request('GET', '/_membership');
  await open('#/cluster');
  const nodes = page.getByRole('table', { name: 'Nodes' });
  await nodes.waitFor();
  check('the node is named', (await nodes.innerText()).includes(membership.all_nodes[0]));
  check('one node says that it is alone', await page.getByText('not a member of a cluster').isVisible());
  await page.getByRole('meter', { name: 'Process' }).waitFor();
  check('memory has its budgets', (await page.getByRole('meter').count()) >= 6, await page.getByRole('meter').count());
  check('versions are told', /Settee\s+\d+\.\d+/.test(await page.locator('main').innerText()));

  await page.getByLabel('Database', { exact: true }).fill('cluster-map');
  const map = page.getByRole('table', { name: 'Shards of a database' });
  await map.waitFor();
  const { json: shards } = await server.request('GET', '/cluster-map/_shards');
  const ranges = Object.keys(shards.shards).sort();
  check('each shard has a row', (await map.getByRole('row').count()) === ranges.length + 1, await map.innerText());
  check('and a mark at its node', (await map.getByRole('img').count()) === ranges.length);
  await page.getByLabel('Document', { exact: true }).fill('a-document');
  const { json: where } = await server.request('GET', '/cluster-map/_shards/a-document');
  const marked = map.locator('[aria-current]');
  await marked.waitFor();
  check('the shard of a document is marked', (await marked.innerText()).includes(where.range), { marked: await marked.innerText(), where });
  check('its address can be kept', page.url().includes('db=cluster-map') && page.url().includes('id=a-document'), page.url());
  await page.getByLabel('Database', { exact: true }).fill('cluster-none');
  await page.getByRole('alert').first().waitFor();
  check('a database that is not there is told', await page.getByText('Not found.').first().isVisible());

  await page.getByRole('button', { name: 'Start maintenance' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Start maintenance' }).click();
  await page.getByRole('button', { name: 'End maintenance' }).waitFor();
  check('maintenance begins', (await server.request('GET', '/_up')).status === 404);
  await page.getByRole('button', { name: 'End maintenance' }).click();
  await page.getByRole('button', { name: 'Start maintenance' }).waitFor();
  check('and ends', (await server.request('GET', '/_up')).status === 200);

  // A cluster of three, as a member tells of it: a real one is another suite's.
  const node = (number, isLive) => ({ node: number, name: `${number}@10.0.0.${number}`, address: `10.0.0.${number}:5986`, is_live: isLive, is_me: number === '1' });
  const slot = (n, more) => ({ slot: n, next_offset: 900, stable: 890, log_end: 900, generation: 0, chain: '', members: ['1', '2', '3'], takes_writes: true, reason: null, ...more });
  const told = { node: '1', name: '1@10.0.0.1', nodes: [node('1', true), node('2', true), node('3', false)], slots: [slot('control'), slot('0'), slot('1', { log_end: 1234 }), slot('2', { takes_writes: false, reason: 'its majority is down' })] };
  await page.route('**/_config/cluster', (route) => route.fulfill({ json: { log: 'nodes' } }));
  await page.route('**/_settee/cluster', (route) => route.fulfill({ json: told }));
  await page.route('**/_settee/cluster/tokens', (route) => route.fulfill({ status: 201, json: { token: 'a-token-of-one-use' } }));
  await page.route('**/_membership', (route) => route.fulfill({ json: { all_nodes: ['1@10.0.0.1', '2@10.0.0.2'], cluster_nodes: told.nodes.map((each) => each.name) } }));
  const removed = [];
  await page.route('**/_settee/cluster/nodes/*', (route) => (removed.push(`${route.request().method()} ${new URL(route.request().url()).pathname}`), route.fulfill({ json: { ok: true } })));
  await open('#/cluster');
  await nodes.getByText('does not answer').waitFor();
  check('a node that is silent is told', true);
  const slots = page.getByRole('table', { name: 'Slots' });
  await slots.waitFor();
  const text = await slots.innerText();
  check('slots tell their lag and reason', text.includes('334') && text.includes('its majority is down'), text);
  check('and how many take writes', await page.getByText('3 of 4 accept writes here').isVisible());
  await page.getByRole('button', { name: 'Add a node' }).click();
  await page.getByRole('button', { name: 'Create token' }).click();
  await page.getByText('--token a-token-of-one-use').waitFor();
  check('a token is made with its command', true);
  await page.getByRole('button', { name: 'Close' }).click();
  await nodes.getByRole('button', { name: 'Remove: 3@10.0.0.3' }).click();
  const dialog = page.getByRole('dialog');
  check('a removal wants the name', await dialog.getByRole('button', { name: 'Remove', exact: true }).isDisabled());
  await dialog.getByLabel('Type 3@10.0.0.3 to confirm').fill('3@10.0.0.3');
  await dialog.getByRole('button', { name: 'Remove', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  check('a node is removed', removed.length === 1 && removed[0].endsWith('/nodes/3') && removed[0].startsWith('DELETE'), removed);
  await server.request('DELETE', '/cluster-map');
}

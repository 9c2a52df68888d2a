// Mango: run, explain as a picture with the candidates that were rejected, a suggested index with its gain, aggregates, indexes.
export const name = 'query: explain, suggestion, aggregates';
export const short = true;
export const widths = [1280, 360];
export const allow = [/status of 400/];

export async function run({ server, check, page, open }) {
  const db = `query-mango-${Date.now().toString(36)}`;
  await server.request('PUT', `/${db}?q=1`);
  try {
    await server.request('POST', `/${db}/_bulk_docs`, { docs: Array.from({ length: 2000 }, (_, n) => ({ _id: `d-${n}`, type: n % 100 === 0 ? 'rare' : 'often', total: n, city: ['Ulm', 'Kiel'][n % 2] })) });
    await server.request('PUT', `/${db}/big`, '{"type":"big","n":9223372036854775807,"one":1.0}');
    await server.request('POST', `/${db}/_index`, { index: { fields: ['city', 'missing'] }, name: 'wide' });
    const at = (query, where = '_find') => open(`#/database/${db}/${where}?q=${encodeURIComponent(typeof query === 'string' ? query : JSON.stringify(query))}`);
    const press = (name) => page.getByRole('button', { name, exact: true }).click();
    const results = page.getByRole('table', { name: 'Results' });

    await at({ selector: { type: 'big' } });
    await press('Run');
    await results.getByRole('link', { name: 'big' }).waitFor();
    check('big integers and 1.0 stay', (await results.textContent()).includes('9223372036854775807') && (await results.textContent()).includes('1.0'));
    check('what was examined is told, and the warning', (await page.getByText(/examined: .* documents/).isVisible()) && (await page.getByText(/No matching index found/).isVisible()));

    await at({ selector: { type: 'rare', total: { $gte: 500 } } });
    await press('Explain');
    const steps = page.getByRole('list', { name: 'Explain' });
    check('a scan is shown as one', await steps.getByText('Full scan').waitFor().then(() => true));
    check('the rejected candidate has its reason', await page.getByRole('row', { name: /wide/ }).getByText('The selector does not use all of its fields.').isVisible());
    const suggestion = page.getByRole('region', { name: 'Suggested index' });
    check('an index is suggested: equal before ranges', (await suggestion.textContent()).includes('type, total'), await suggestion.textContent());
    await suggestion.getByRole('button', { name: 'Create this index and measure' }).click();
    await suggestion.getByText(/times fewer documents/).waitFor();
    const examined = await suggestion.getByRole('row', { name: /Documents examined/ }).textContent();
    check('its gain is measured', /Documents examined2,00\d15/.test(examined), examined);
    await press('Explain');
    await steps.getByText('Index range scan').waitFor();
    check('then a range of it is read', (await steps.textContent()).includes('type, total'), await steps.textContent());

    await at({ selector: { type: 'rare' }, aggregate: { group_by: ['city'], compute: { n: { $count: true }, sum: { $sum: 'total' } } } });
    await press('Run');
    await page.getByText('1 group', { exact: false }).waitFor();
    check('aggregates are a table of groups', /Ulm.*20.*19000/.test(await results.textContent()), await results.textContent());

    await at({ selector: { total: { $gt: 1 } }, sort: [{ city: 'asc' }, { total: 'desc' }] });
    await press('Run');
    check('an error of Mango has its help', await page.getByText('All fields of a sort must be ascending, or all descending.').waitFor().then(() => true));

    await open(`#/database/${db}/_index`);
    const indexes = page.getByRole('table', { name: 'Indexes' });
    await indexes.getByText('wide').first().waitFor();
    await press('New index');
    await page.getByLabel('Fields').fill('total');
    await page.getByRole('textbox', { name: 'Name', exact: true }).fill('some');
    await page.getByLabel(/^Partial/).fill('{"type": "rare"}');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    check('a partial index is created', await indexes.getByText('partial').waitFor().then(() => true));
    await page.getByRole('button', { name: 'Delete: some' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await indexes.getByText('some', { exact: true }).waitFor({ state: 'detached' });
    check('and deleted', true);
  } finally {
    await server.request('DELETE', `/${db}`);
  }
}

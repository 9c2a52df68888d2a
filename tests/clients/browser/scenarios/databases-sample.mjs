// A server without databases offers the sample shop: documents, views, a text index and conflicts. The offer goes when there is a database.
export const name = 'databases-sample';
export const short = true;
export const widths = [1280, 390];

export async function run({ page, server, check, open }) {
  const own = async () => (await server.request('GET', '/_all_dbs')).json.filter((name) => !name.startsWith('_'));
  for (const name of await own()) await server.request('DELETE', `/${encodeURIComponent(name)}`);
  const offer = page.getByRole('button', { name: 'Load the sample shop' });

  await open('#/');
  await offer.click();
  await page.getByRole('heading', { name: 'shop', level: 1 }).waitFor();
  await page.getByText('customer:anna-berg').first().waitFor();
  check('its documents are shown', true);
  const { json: info } = await server.request('GET', '/shop');
  check('all documents are there', info.doc_count > 90, info);
  const { json: sales } = await server.request('GET', '/shop/_design/shop/_view/sales_by_month?group=true');
  check('its view has a row for each month', sales.rows.length === 12, sales);
  const { json: kettle } = await server.request('GET', '/shop/product:kettle?conflicts=true');
  check('a document has a conflict', kettle._conflicts?.length === 1, kettle);

  await open('database/shop/_doc/product%3Akettle');
  await page.getByText(/conflict/i).first().waitFor();
  check('which its page shows', true);
  await open('#/');
  await page.getByRole('link', { name: 'shop', exact: true }).waitFor();
  check('the offer is gone', (await offer.count()) === 0);
  await server.request('DELETE', '/shop');
}

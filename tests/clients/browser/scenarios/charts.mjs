// Results as charts: bars of groups, lines over time, points on a map without other hosts; saved as PNG and CSV, and shared as a link.
import { checkAxe } from '../axe.mjs';

export const name = 'charts';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];
// Its layout changes between them.
export const everyWidth = true;

const BIG = '9223372036854775807';

export async function run(tools) {
  const { server } = tools;
  const db = `charts-${Date.now().toString(36)}`;
  await server.request('PUT', `/${db}?q=1`);
  try {
    const cities = [['Ulm', 48.4, 9.99], ['Kiel', 54.32, 10.14], ['=Bonn', 50.73, 7.1]];
    const docs = Array.from({ length: 90 }, (_, n) => {
      const [city, lat, lon] = cities[n % 3];
      return { _id: `d-${String(n).padStart(2, '0')}`, city, lat, lon, at: `2026-${String(1 + (n % 9)).padStart(2, '0')}-15`, total: n };
    });
    await server.request('POST', `/${db}/_bulk_docs`, { docs });
    await server.request('PUT', `/${db}/big`, `{"geo":{"type":"Point","coordinates":[13.4,52.5]},"n":${BIG}}`);
    await server.request('PUT', `/${db}/_design/sales`, { views: { by_city: { map: 'function (doc) { if (doc.city) emit([doc.city, doc.at], doc.total); }', reduce: '_stats' } } });
    await bars({ ...tools, db });
    await linesAndMap({ ...tools, db });
    await view({ ...tools, db });
    await german({ ...tools, db });
  } finally {
    await server.request('DELETE', `/${db}`);
  }
}

const GROUPED = { selector: { city: { $exists: true } }, aggregate: { group_by: ['city'], compute: { n: { $count: true }, sum: { $sum: 'total' } } } };
const DOCS = { selector: { city: { $exists: true } }, limit: 90 };
const find = (db, query, more = '') => `#/database/${db}/_find?q=${encodeURIComponent(JSON.stringify(query))}&run=1&as=chart${more}`;
const drawing = (page) => page.locator('.drawn');

/** What is drawn of a kind: the shapes' own titles. */
const titles = (page) => page.locator('.drawn title').evaluateAll((all) => all.map((each) => each.textContent));
/** Whether a shape with this title is drawn, at once or after what was chosen has reached the address. */
const draws = (page, title) => drawing(page).getByText(title, { exact: true }).waitFor({ state: 'attached' }).then(() => true, () => false);

async function textOf(download) {
  const parts = [];
  for await (const part of await download.createReadStream()) parts.push(part);
  return Buffer.concat(parts);
}

async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: button, exact: true }).click()]);
  return { name: download.suggestedFilename(), bytes: await textOf(download) };
}

async function bars({ page, db, base, open, check, width }) {
  await open(find(db, GROUPED));
  await drawing(page).locator('path').first().waitFor();
  check('groups are bars', (await titles(page)).some((text) => text.startsWith('Ulm: ')), await titles(page));
  check('the picture has its description', /^Sum of \w+, by city$/.test((await drawing(page).getAttribute('aria-label')) ?? ''), await drawing(page).getAttribute('aria-label'));
  const box = await drawing(page).boundingBox();
  check('it fits into the page', box.width > 200 && box.x + box.width <= width, box);
  await page.getByLabel('Value', { exact: true }).selectOption('sum');
  check('another value is drawn', await draws(page, 'Kiel: 1,335'), await titles(page));
  const csv = await saved(page, 'CSV');
  const text = csv.bytes.toString('utf8');
  check('CSV has what is drawn, and no formula', csv.name.endsWith('.csv') && text.startsWith('\ufeffcity,') && /\r\nKiel,1335\r\n/.test(text) && /\r\n'=Bonn,/.test(text), text);
  const png = await saved(page, 'PNG');
  check('PNG is a picture', png.name.endsWith('.png') && png.bytes.subarray(1, 4).toString() === 'PNG' && png.bytes.length > 2000, png.bytes.length);
  await page.getByRole('button', { name: 'Copy link' }).click();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  check('the link is one of this server', link.startsWith(base), link);
  await page.goto('about:blank');
  await page.goto(link);
  await drawing(page).locator('path').first().waitFor();
  check('the link leads to the same chart', await draws(page, 'Kiel: 1,335'), await titles(page));
  await page.getByRole('button', { name: 'Table', exact: true }).click();
  check('the table is a click away', await page.getByRole('table', { name: 'Results' }).waitFor().then(() => true, () => false));
}

async function linesAndMap({ page, db, open, check }) {
  await open(find(db, DOCS, '&chart=lines&x=at&y=total&how=average'));
  await page.locator('.drawn .line').waitFor();
  const d = await page.locator('.drawn .line').getAttribute('d');
  check('dates are a line', (d.match(/L/g) ?? []).length === 8, d);
  await page.getByLabel('One line per').selectOption('city');
  await page.locator('.drawn .line').nth(2).waitFor();
  check('a column divides it into lines, with a legend', (await page.getByRole('list', { name: 'Legend' }).getByRole('listitem').count()) === 3);
  await checkAxe(page, check, 'lines');
  await page.getByRole('button', { name: 'Map', exact: true }).click();
  await page.locator('.drawn .spot').first().waitFor();
  check('latitudes and longitudes are points on a map', (await page.locator('.drawn .spot').count()) === 90, await page.locator('.drawn .spot').count());
  await checkAxe(page, check, 'a map');
  await page.getByLabel('Whole world').check();
  await page.waitForFunction(() => location.hash.includes('world=1'));
  check('the whole world can be shown', (await page.locator('.drawn .spot').count()) === 90);
  check('with outlines of land', await page.locator('.drawn .land').waitFor({ state: 'attached' }).then(() => true, () => false));
  const csv = (await saved(page, 'CSV')).bytes.toString('utf8');
  check('its CSV has the places', /longitude,latitude/.test(csv) && /d-00,9.99,48.4/.test(csv), csv.slice(0, 200));
  await open(find(db, { selector: { _id: 'big' } }));
  await page.locator('.drawn .spot').waitFor();
  check('so is GeoJSON', (await titles(page)).some((text) => text.startsWith('big')), await titles(page));
}

async function view({ page, db, open, check }) {
  await open(`#/database/${db}/_design/sales/_view/by_city?group_level=1&as=chart`);
  await drawing(page).locator('path').first().waitFor();
  await page.getByLabel('Value', { exact: true }).selectOption('value.max');
  check('groups of a view are bars', await draws(page, 'Kiel: 88'), await titles(page));
  await page.getByRole('group', { name: 'Rows' }).getByRole('button', { name: 'Table', exact: true }).click();
  check('and its table is a click away', await page.getByRole('table', { name: 'Rows' }).waitFor().then(() => true, () => false));
}

async function german({ page, db, open, check }) {
  await page.evaluate(() => localStorage.setItem('settee-language', 'de'));
  await page.goto('about:blank');
  await open(find(db, GROUPED));
  await drawing(page).locator('path').first().waitFor();
  check('German has charts too', /^Summe von \w+, nach city$/.test((await drawing(page).getAttribute('aria-label')) ?? ''), await drawing(page).getAttribute('aria-label'));
}

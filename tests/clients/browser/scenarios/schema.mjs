// The fields of a database from sampled documents: types, shares, values, distributions; a click opens the query and runs it.
import { checkAxe } from '../axe.mjs';

export const name = 'schema';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];

const BIG = '9223372036854775807';

export async function run({ server, page, open, check }) {
  const db = `schema-${Date.now().toString(36)}`;
  await server.request('PUT', `/${db}?q=1`);
  try {
    const day = (n) => `2026-11-${String(1 + (n % 30)).padStart(2, '0')}`;
    const docs = Array.from({ length: 3000 }, (_, n) => `{"_id":"d-${String(n).padStart(5, '0')}","city":"${['Ulm', 'Kiel', 'Ulm'][n % 3]}","n":${n},"at":"${day(n)}"${n % 2 ? '' : ',"half":null'},"big":${BIG},"lines":[{"sku":"s${n % 5}"}],"a.b":true}`);
    await server.request('POST', `/${db}/_bulk_docs`, `{"docs":[${docs.join()}]}`);
    const row = (field) => page.locator('details').filter({ has: page.locator('summary code', { hasText: new RegExp(`^\\s*${field.replace(/[[\].]/g, '\\$&')}$`) }) });

    await open(`#/database/${db}/_schema`);
    await row('city').waitFor();
    const told = await page.getByRole('status').filter({ hasText: 'documents read' }).innerText();
    check('it says how many documents were read, of how many', /of 3,000 documents read/.test(told), told);
    const names = await page.locator('summary code').allInnerTexts();
    check('fields of objects and arrays are fields', ['city', 'lines', 'lines[]', 'lines[].sku'].every((each) => names.map((text) => text.trim()).includes(each)), names);
    const half = await row('half').locator('summary').innerText();
    check('a share is told, and the type', /null/.test(half) && /(4|5)\d %|(4|5)\d%/.test(half), half);
    check('times are known', /time/.test(await row('at').locator('summary').innerText()));

    await row('city').locator('summary').click();
    await row('city').getByRole('link', { name: '"Ulm"' }).waitFor();
    await checkAxe(page, check, 'an open field');
    await row('city').getByRole('link', { name: '"Ulm"' }).click();
    await page.getByRole('table', { name: 'Results' }).waitFor();
    check('a click on a value opens its query, and runs it', /"city": \{\s*"\$eq": "Ulm"/.test(await page.getByRole('textbox', { name: 'Query' }).innerText()) && /25 documents/.test(await page.locator('main').innerText()), page.url());
    await page.goBack();
    await row('n').locator('summary').click();
    const bars = row('n').locator('ol').last().getByRole('link');
    await bars.nth(5).waitFor();
    check('numbers have a distribution', (await bars.count()) >= 6, await bars.count());
    const label = await bars.nth(1).getAttribute('aria-label');
    check('each bar says its range and count', /^\d+ to \d+: \d+$/.test(label ?? ''), label);
    await checkAxe(page, check, 'a distribution');
    await bars.nth(1).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('table', { name: 'Results' }).waitFor();
    check('and leads to its query by the keyboard', /"\$gte": \d+,\s*"\$lt": \d+/.test(await page.getByRole('textbox', { name: 'Query' }).innerText()));

    await open(`#/database/${db}/_schema?field=big`);
    await row('big').locator('summary').click();
    await row('big').getByRole('link', { name: BIG }).click();
    await page.getByRole('table', { name: 'Results' }).waitFor();
    check('large integers keep their digits', (await page.getByRole('textbox', { name: 'Query' }).innerText()).includes(BIG));
    for (const [field, link, found] of [
      ['lines[].sku', '"s1"', '$elemMatch'],
      ['a.b', 'true', 'a\\\\.b'],
      ['half', 'Documents without it', '$exists'],
    ]) {
      await open(`#/database/${db}/_schema?field=${encodeURIComponent(field)}`);
      await row(field).locator('summary').click();
      await row(field).getByRole('link', { name: link, exact: true }).click();
      await page.getByRole('table', { name: 'Results' }).waitFor();
      check(`${field}: its query finds documents`, (await page.getByRole('textbox', { name: 'Query' }).innerText()).includes(found), await page.getByRole('textbox', { name: 'Query' }).innerText());
    }
    await open(`#/database/${db}/_schema?sample=5000`);
    await page.getByText('3,000 of 3,000 documents read').waitFor();
    check('a small database is read whole', true);
  } finally {
    await server.request('DELETE', `/${db}`);
  }
}

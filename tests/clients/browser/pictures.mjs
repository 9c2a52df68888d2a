// Takes the pictures of the web interface that the README and the manual show, on a server of its own choosing:
//   node pictures.mjs --server http://NAME:PASSWORD@127.0.0.1:PORT --to FOLDER
// It makes a database `shop` there, and takes it away again.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const { chromium } = createRequire(import.meta.url)('playwright-core');
const { values: options } = parseArgs({ options: { server: { type: 'string' }, to: { type: 'string' }, chromium: { type: 'string', default: '/usr/bin/chromium' } } });
const server = new URL(options.server);
const [name, password] = [server.username, server.password].map(decodeURIComponent);
const authorization = `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`;
const DB = 'shop';

async function request(method, path, body) {
  const headers = { authorization, 'content-type': 'application/json' };
  const response = await fetch(server.origin + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

const WHAT = ['tea', 'milk', 'bread', 'butter', 'cheese', 'apples', 'coffee', 'honey'];

async function prepare() {
  await request('PUT', `/${DB}`);
  const day = (n) => [2026, 1 + (n % 11), 1 + (n % 27)];
  const docs = Array.from({ length: 5000 }, (_, n) => ({ _id: `r${String(n).padStart(5, '0')}`, what: WHAT[(n * 7) % 8], price: ((n * 37) % 900) / 100 + 0.25, amount: 1 + (n % 4), day: day(n) }));
  await request('POST', `/${DB}/_bulk_docs`, { docs });
  const leaf = (digit, price) => ({ _id: 'r00042', _rev: `2-${digit.repeat(32)}`, _revisions: { start: 2, ids: [digit.repeat(32), '0'.repeat(32)] }, what: 'tea', price, amount: 2, day: [2026, 11, 3] });
  await request('POST', `/${DB}/_bulk_docs`, { new_edits: false, docs: [leaf('a', 4.5), leaf('b', 5), leaf('c', 4.75)] });
  const map = 'function (doc) {\n  if (doc.price > 1) {\n    emit([doc.what, doc.day[1]], doc.price * doc.amount);\n  }\n}';
  await request('PUT', `/${DB}/_design/sales`, { views: { by_what: { map, reduce: '_stats' } } });
  await request('POST', `/${DB}/_index`, { index: { fields: ['what', 'price'] }, name: 'prices', ddoc: 'prices' });
  await request('GET', `/${DB}/_design/sales/_view/by_what?limit=1`);
  for (const [other, n] of [['accounts', 1200], ['orders-2025', 860], ['orders-2026', 2400]]) {
    await request('PUT', `/${other}`);
    await request('POST', `/${other}/_bulk_docs`, { docs: Array.from({ length: n }, (_, i) => ({ _id: `d${i}`, n: i, text: 'x'.repeat(i % 300) })) });
  }
  await searched();
}

/** A text index over small texts: what each recipe is made of. */
async function searched() {
  const kinds = ['breakfast', 'supper', 'cake', 'soup'];
  const text = (n) => `${WHAT[n % 8]} with ${WHAT[(n * 3 + 1) % 8]} and a little ${WHAT[(n * 5 + 2) % 8]}, for ${2 + (n % 5)} people`;
  const docs = Array.from({ length: 90 }, (_, n) => ({ _id: `recipe-${String(n).padStart(2, '0')}`, text: text(n), kind: kinds[(n * 7 + (n >> 3)) % 4], minutes: 10 + ((n * 13) % 80) }));
  await request('PUT', '/recipes');
  await request('POST', '/recipes/_bulk_docs', { docs });
  const index = 'function (doc) {\n  index("text", "default", doc.text, {store: true});\n  index("string", "kind", doc.kind, {store: true});\n  index("double", "minutes", doc.minutes, {store: true});\n}';
  await request('PUT', '/recipes/_design/find', { nouveau: { recipes: { default_analyzer: 'english', index } } });
}

async function tidy() {
  for (const each of [DB, 'accounts', 'orders-2025', 'orders-2026', 'recipes']) await request('DELETE', `/${each}`);
}

/** Reads and queries for some seconds, so that there is something to see. */
async function load(seconds) {
  const until = Date.now() + seconds * 1000;
  const one = async () => {
    while (Date.now() < until) {
      await request('GET', `/${DB}/r${String(Math.floor(Math.random() * 5000)).padStart(5, '0')}`);
      if (Math.random() < 0.2) await request('POST', `/${DB}/_find`, { selector: { what: 'tea', price: { $gt: 4 } }, limit: 10 });
    }
  };
  await Promise.all(Array.from({ length: 6 }, one));
}

const PICTURES = [
  ['databases', '#/', 'light'],
  ['documents', `#/database/${DB}/_all_docs`, 'light'],
  ['conflicts', `#/database/${DB}/r00042`, 'light'],
  ['view', `#/database/${DB}/_design/sales`, 'dark'],
  ['explain', `#/database/${DB}/_find`, 'light'],
  ['search', `#/database/recipes/_design/find/_nouveau/recipes?${new URLSearchParams({ q: 'honey AND (cheese OR apples)', ranges: 'minutes [* TO 30] {30 TO 60] {60 TO *]' })}`, 'light'],
  ['performance', '#/performance', 'dark'],
];

async function main() {
  await prepare();
  const browser = await chromium.launch({ executablePath: options.chromium, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  try {
    for (const [picture, address, theme] of PICTURES) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: theme, locale: 'en-US', reducedMotion: 'reduce' });
      await context.request.post(`${server.origin}/_session`, { data: { name, password } });
      const page = await context.newPage();
      await page.goto(`${server.origin}/_utils/${address}`);
      await page.waitForFunction(() => document.querySelector('main')?.innerText.trim());
      if (picture === 'performance') await load(12);
      await ready[picture]?.(page);
      await page.waitForTimeout(1500);
      await page.screenshot({ path: join(options.to, `${picture}.png`) });
      await context.close();
    }
  } finally {
    await browser.close();
    await tidy();
  }
}

/** What is done on a page before it is pictured. */
const ready = {
  async conflicts(page) {
    await page.getByRole('button', { name: /compare and resolve/i }).click();
  },
  async view(page) {
    await page.getByRole('link', { name: 'by_what' }).click();
    await page.getByRole('button', { name: /preview: /i }).click();
    await page.getByRole('button', { name: 'Preview', exact: true }).click();
  },
  async explain(page) {
    await page.locator('.cm-content').first().click();
    await page.keyboard.press('Control+A');
    await page.keyboard.insertText('{"selector": {"what": "tea", "price": {"$gt": 4}}, "sort": [{"price": "asc"}], "limit": 10}');
    await page.getByRole('button', { name: /explain/i }).first().click();
  },
};

await main();

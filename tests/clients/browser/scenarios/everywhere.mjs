// Every page, light and dark, wide and narrow: no serious finding of axe, nothing wider than the page, no German text missing.
// Errors of the console, reports of the policy and requests to other hosts are the runner's.
import { findings } from '../axe.mjs';

export const name = 'everywhere';
export const short = true;
export const themes = true;
export const widths = [1280, 360];
export const seconds = 240;

const [SETTLE_MS, SETTLE_MAX_MS, ANSWERED_MAX_MS] = [100, 400, 10_000];
const DB = 'everywhere-shop';
const ADDRESSES = [
  '#/',
  `#/database/${DB}/_all_docs`,
  `#/database/${DB}/_all_docs?view=json`,
  `#/database/${DB}/one`,
  `#/database/${DB}/conflicted`,
  `#/database/${DB}/_design/sales`,
  `#/database/${DB}/_design/sales/_view/by_price`,
  `#/database/${DB}/_design/sales/_view/by_price?group=true&as=chart`,
  `#/database/${DB}/_find`,
  `#/database/${DB}/_find?q=${encodeURIComponent('{"selector": {"price": {"$gt": 1}}}')}&run=1&as=chart`,
  `#/database/${DB}/_schema`,
  `#/database/${DB}/_index`,
  `#/database/${DB}/_search`,
  `#/database/${DB}/new_search`,
  `#/database/${DB}/_design/sales/_nouveau/words?q=thing`,
  `#/database/${DB}/_design/sales/_search/words?q=thing&group_field=tag`,
  `#/database/${DB}/_design/sales/_search/words/edit`,
  `#/database/${DB}/_changes`,
  `#/database/${DB}/permissions`,
  `#/database/${DB}/_views`,
  `#/database/${DB}/_settings`,
  `#/database/${DB}/new`,
  '#/replication',
  '#/replication/_create',
  '#/users',
  '#/account',
  '#/_config',
  '#/cors',
  '#/activetasks',
  '#/cluster',
  `#/cluster?db=${DB}&id=one`,
  '#/performance',
  '#/performance/doctor',
  '#/performance/profile',
  '#/performance/slow',
  '#/there-is-no-such-page',
];
const TEXTS = {
  nouveau: { words: { index: 'function (doc) { index("text", "default", doc.name, {store: true}); index("string", "tag", doc.tags[0]); }' } },
  indexes: { words: { analyzer: 'english', index: 'function (doc) { index("default", doc.name, {store: true}); index("tag", doc.tags[0], {facet: true}); }' } },
};
/** Words that tell an English text; what the server says, and what is data, is marked or no control. */
const ENGLISH = /\b(the|and|of|with|is|are|not|new|add|show|this|from|for|delete|save|edit|open|create|search|close|to)\b/i;

export async function run({ page, server, open, check, theme, width }) {
  await prepare(server);
  const requests = openRequests(page);
  const isGermanToo = theme === 'light' && width === 1280;
  for (const address of ADDRESSES) {
    try {
      await open(address);
      await settled(page, requests);
    } catch (error) {
      check(`${address} is shown`, false, String(error));
      continue;
    }
    const found = await findings(page);
    check(`${address}: axe finds nothing serious`, found.length === 0, found.join('\n'));
    const wide = await tooWide(page);
    check(`${address}: nothing is wider than the page`, wide.length === 0, wide.join('\n'));
    // A setting of CouchDB's has the word in its default.
    const odd = await page.evaluate(() => /\bundefined\b|\bNaN\b|\[object /.exec(document.querySelector('main').innerText.replaceAll('{recbuf, undefined}', ''))?.input.slice(0, 300));
    check(`${address}: no hole in its texts`, !odd, odd);
  }
  if (isGermanToo) await german(page, open, check, requests);
}

async function prepare(server) {
  if ((await server.request('PUT', `/${DB}`)).status === 412) return;
  const { request } = server;
  // A link beside a longer text.
  await request('PUT', '/p?partitioned=true');
  await request('POST', `/${DB}/_bulk_docs`, { docs: Array.from({ length: 60 }, (_, n) => ({ _id: `item-${n}`, price: n * 1.5, name: `A thing ${n}`, tags: ['a', 'b'] })) });
  await request('PUT', `/${DB}/one`, '{"big": 9223372036854775807, "float": 1.0, "nested": {"list": [1, 2, 3]}}');
  await request('POST', `/${DB}/_bulk_docs`, { new_edits: false, docs: [1, 2, 3].map((n) => ({ _id: 'conflicted', _rev: `2-${String(n).repeat(32)}`, _revisions: { start: 2, ids: [String(n).repeat(32), '0'.repeat(32)] }, n })) });
  await request('PUT', `/${DB}/_design/sales`, { views: { by_price: { map: 'function (doc) { emit(doc.price, 1); }', reduce: '_sum' } }, ...TEXTS });
  await request('POST', `/${DB}/_index`, { index: { fields: ['price'] }, name: 'by-price', ddoc: 'everywhere-index' });
  await request('PUT', '/_users');
  await request('PUT', '/_users/org.couchdb.user:everywhere-user', { name: 'everywhere-user', password: 'somewhere-1', roles: ['reader'], type: 'user' });
}

/** The page's requests that are not answered yet, without feeds, which do not end. */
function openRequests(page) {
  const requests = new Set();
  page.on('request', (request) => /[?&]feed=(continuous|longpoll|eventsource)\b/.test(request.url()) || requests.add(request));
  for (const event of ['requestfinished', 'requestfailed']) page.on(event, (request) => requests.delete(request));
  return requests;
}

/** Waits until the page has all its answers, and nothing of it has changed for a while since then. */
async function settled(page, requests) {
  const deadline = Date.now() + ANSWERED_MAX_MS;
  for (;;) {
    const wereOpen = requests.size > 0;
    await unchanged(page);
    if ((!wereOpen && requests.size === 0) || Date.now() > deadline) return;
  }
}

/** Waits until nothing of the page has changed for a while; for pages that always change, no longer than `SETTLE_MAX_MS`. */
function unchanged(page) {
  return page.evaluate(
    ([quiet, max]) =>
      new Promise((done) => {
        let timer = setTimeout(finish, quiet);
        const last = setTimeout(finish, max);
        const observer = new MutationObserver(() => {
          clearTimeout(timer);
          timer = setTimeout(finish, quiet);
        });
        observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
        function finish() {
          observer.disconnect();
          clearTimeout(timer);
          clearTimeout(last);
          done();
        }
      }),
    [SETTLE_MS, SETTLE_MAX_MS],
  );
}

/** Elements that make the page or its content scroll sideways. */
function tooWide(page) {
  return page.evaluate(() => {
    const boxes = [document.documentElement, document.querySelector('main')];
    if (boxes.every((box) => box.scrollWidth <= box.clientWidth + 1)) return [];
    const edge = document.documentElement.clientWidth;
    const inScroller = (element) => {
      for (let at = element.parentElement; at && at.tagName !== 'MAIN'; at = at.parentElement) if (getComputedStyle(at).overflowX !== 'visible') return true;
      return false;
    };
    const all = [...document.querySelectorAll('main *')].filter((element) => element.getBoundingClientRect().right > edge + 1 && !inScroller(element));
    return all.slice(0, 4).map((element) => element.outerHTML.slice(0, 160));
  });
}

/** What can be pressed, heads and labels: none of it is left in English. */
async function german(page, open, check, requests) {
  await page.evaluate(() => localStorage.setItem('settee-language', 'de'));
  // What the server says is in English: it is marked so, or it would be found here.
  const finding = { id: 'scans', area: 'data', severity: 'warning', subject: 'the shop', says: 'queries without an index', why: 'each of them reads all', do: ['curl "$S/shop"', '# fields with $eq are first'] };
  await page.route('**/_settee/doctor', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ json: { ...(await answer.json()), findings: [finding] } });
  });
  await page.goto('about:blank');
  for (const address of ADDRESSES) {
    try {
      await open(address);
      await settled(page, requests);
    } catch (error) {
      check(`${address} is shown in German`, false, String(error));
      continue;
    }
    const texts = await page.evaluate(() => {
      const all = [...document.querySelectorAll('main button, main label, main h1, main h2, main h3, main th, main [role=columnheader], nav a, main legend, main summary')];
      return all.filter((element) => !element.closest('[lang=en], [role=row]:not(:first-child), .cm-editor')).map((element) => (element.innerText.trim() || element.getAttribute('aria-label') || '').slice(0, 120));
    });
    const english = [...new Set(texts)].filter((text) => ENGLISH.test(text.replace(/"[^"]*"|\S*[_.@/]\S*/g, '')));
    check(`${address}: no text is left in English`, english.length === 0, english.join(' | '));
  }
  await page.unroute('**/_settee/doctor');
  check('the page says its language', (await page.evaluate(() => document.documentElement.lang)) === 'de');
  await page.evaluate(() => localStorage.removeItem('settee-language'));
}

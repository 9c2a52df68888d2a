// Text indexes of both interfaces: made and edited, asked, narrowed by counts and ranges, in pages, groups and an order, with matches marked.
export const name = 'search: text indexes, hits, counts';
export const short = true;
export const themes = true;
export const widths = [1280, 360];
export const allow = [/status of 40[034]/];

const CLOUSEAU = 'function (doc) {\n  if (!doc.text) return;\n  index("default", doc.text, {store: true});\n  index("tag", doc.tag, {facet: true, store: true});\n  index("year", doc.year);\n}';
const NOUVEAU = 'function (doc) {\n  index("text", "default", doc.text, {store: true});\n  index("string", "tag", doc.tag);\n  index("double", "year", doc.year, {store: true});\n}';
const TAGS = ['Old Books', 'new', 'Old Films'];

export async function run({ browser, base, server, check, page, open, login }) {
  const db = `search-${Date.now().toString(36)}`;
  const reader = `${db}-reader`;
  await server.request('PUT', `/${db}?q=2`);
  try {
    const docs = Array.from({ length: 60 }, (_, n) => ({ _id: `d-${String(n).padStart(2, '0')}`, text: `A <b>fox</b> of number ${n} ran past ${n % 2 ? 'one dog' : 'the dogs'}`, tag: TAGS[n % 3], year: 1990 + n }));
    await server.request('POST', `/${db}/_bulk_docs`, { docs });
    await making({ page, open, check, server, db });
    await asking({ page, open, check, db });
    await narrowing({ page, open, check, db });
    await clouseau({ page, open, check, server, db });
    await listed({ page, open, check, server, db });
    await refused({ page, open, check, db });
    await others({ browser, base, server, check, login, db, reader });
    await deleting({ page, open, check, server, db });
  } finally {
    await server.request('DELETE', `/${db}`);
    const { json } = await server.request('GET', `/_users/org.couchdb.user:${reader}`);
    if (json?._rev) await server.request('DELETE', `/_users/org.couchdb.user:${reader}?rev=${json._rev}`);
  }
}

function shown(what) {
  return what.first().waitFor({ timeout: 60_000 }).then(
    () => true,
    () => false,
  );
}

const hits = (page) => page.getByRole('list', { name: 'Hits' });
const status = (page, text) => page.getByRole('status').filter({ hasText: text });
const at = (db, rest, query = {}) => `#/database/${db}/_design/books/${rest}?${new URLSearchParams(query)}`;

async function write(page, label, text) {
  await page.getByRole('textbox', { name: label, exact: true }).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(text);
}

/** An index of a design document that is there: all else in it stays as it is. */
async function making({ page, open, check, server, db }) {
  await open(`#/database/${db}/_search`);
  check('without text indexes the page says so', await shown(page.getByText('There are no text indexes.')));
  await server.request('PUT', `/${db}/_design/books`, '{"language":"javascript","huge":9223372036854775807,"one":1.0}');
  await page.getByRole('link', { name: 'New text index' }).click();
  await page.getByLabel('Design document', { exact: true }).fill('books');
  await page.getByLabel('Name', { exact: true }).fill('all');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('textbox', { name: 'Index function', exact: true }).waitFor();
  await write(page, 'Index function', NOUVEAU);
  const first = page.getByLabel('Analyzer', { exact: true }).first();
  await first.fill('english');
  await page.getByLabel('Analyzers of fields').fill('{"tag"');
  check('analyzers that are no JSON are told, and not saved', (await shown(page.getByText(/Line 1, column/))) && (await page.getByRole('button', { name: 'Save', exact: true }).isDisabled()));
  await page.getByLabel('Analyzers of fields').fill('{"note": "keyword"}');
  await page.getByLabel('Text', { exact: true }).fill('Running foxes');
  await page.getByRole('button', { name: 'Show words' }).click();
  const words = page.getByRole('list', { name: 'Words' });
  check('an analyzer shows its words', await shown(words.getByText('fox', { exact: true })), await words.textContent());
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByLabel('Query', { exact: true }).waitFor();
  const { text } = await server.request('GET', `/${db}/_design/books`);
  check('it is saved, and nothing else is changed', ['"huge":9223372036854775807', '"one":1.0', '"default_analyzer":"english"', '"field_analyzers":{"note":"keyword"}', 'index(\\"double\\"'].every((part) => text.includes(part)), text);
}

/** By the page's own form, page by page. */
async function asking({ page, open, check, db }) {
  await page.getByLabel('Query', { exact: true }).fill('dog');
  await page.keyboard.press('Enter');
  check('words are found by their stems', await shown(status(page, '1–25 of 60')));
  check('the query keeps the focus', await page.getByLabel('Query', { exact: true }).evaluate((element) => element.matches(':focus')));
  const marks = await hits(page).locator('mark').allTextContents();
  check('what was found is marked', marks.length === 25 && marks.every((mark) => /^dogs?$/.test(mark)), marks);
  check('and markup in a document is its text', (await hits(page).locator('b').count()) === 0 && (await hits(page).getByText('<b>fox</b>').count()) > 0);
  check('the state of the index is told', await shown(page.getByText(/^60 documents/)));
  const top = () => hits(page).evaluate((list) => list.scrollTop);
  await hits(page).evaluate((list) => list.scrollTo(0, 1e6));
  const all = new Set();
  for (const range of ['1–25 of 60', '26–50 of 60', '51–60 of 60']) {
    await status(page, range).waitFor();
    for (const id of await hits(page).getByRole('link').allTextContents()) all.add(id);
    if (range.startsWith('26')) check('the next page begins at its top', (await top()) === 0, await top());
    if (!range.startsWith('51')) await page.getByRole('button', { name: 'Next rows' }).click();
  }
  check('all pages together are all hits', all.size === 60, all.size);
  check('and then there are no more', await page.getByRole('button', { name: 'Next rows' }).isDisabled());
  await page.getByRole('button', { name: 'Previous rows' }).click();
  check('a page before is shown again', await shown(status(page, '26–50 of 60')));
  await hits(page).getByRole('link').first().click();
  await page.getByRole('heading', { level: 1, name: /^d-/ }).waitFor();
  await page.goBack();
  check('a step back leads to the page of hits', await shown(status(page, '26–50 of 60')));
  const query = page.getByRole('searchbox', { name: 'Query', exact: true });
  const asked = await query.inputValue();
  await query.fill('not asked yet');
  await page.getByRole('link', { name: 'Documents', exact: true }).click();
  await page.getByRole('table', { name: 'Documents' }).waitFor();
  await page.goBack();
  await query.waitFor();
  check('what was typed and not asked is kept', (await query.inputValue()) === 'not asked yet', await query.inputValue());
  await query.fill(asked);
  await page.getByText('Options', { exact: true }).click();
  await page.getByLabel('Sort', { exact: true }).fill('-year');
  await page.getByLabel('Hits per page').fill('1000');
  check('more hits than a page has are told', await shown(page.getByText('A number from 1 to 200')));
  await page.getByLabel('Hits per page').fill('2');
  await page.getByLabel('Show documents').check();
  await page.getByRole('button', { name: 'Search', exact: true }).click();
  await status(page, '1–2 of 60').waitFor();
  const ids = await hits(page).getByRole('link').allTextContents();
  check('a sort is kept, and its value is shown', ids.join() === 'd-59,d-58' && (await hits(page).textContent()).includes('2049'), ids);
  check('documents are shown with their hits', (await hits(page).locator('pre').first().textContent()).includes('"_rev"'));
  check('and link to their pages', (await hits(page).getByRole('link').first().getAttribute('href')).endsWith('_doc/d-59'));
  await open(at(db, '_nouveau/all', { q: 'dog', sort: '-year', limit: '2', group_field: 'tag' }));
  check('groups of one string each', (await shown(hits(page).getByRole('heading', { name: 'Old Films' }))) && (await shown(status(page, '60 hits, 3 groups'))));
  await grouping({ page, check });
}

/** By the options of a search that has groups. */
async function grouping({ page, check }) {
  check('with groups, a number of hits is that of each', (await shown(page.getByLabel('Hits per group'))) && (await page.getByLabel('Hits per page').count()) === 0);
  await page.getByLabel('Sort groups by').fill('-year');
  await page.getByLabel('Groups', { exact: true }).fill('2');
  await page.getByRole('button', { name: 'Search', exact: true }).click();
  check('as many groups as are asked for', await shown(status(page, '2+ groups')));
  const groups = await hits(page).getByRole('heading').allTextContents();
  check('in their own order', groups.join() === 'Old Films,new', groups);
  check('with as many hits each', (await hits(page).getByRole('link').count()) === 4);
  await page.getByRole('button', { name: 'Copy as curl' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  check('a copied search marks by tags', copied.includes('"highlight_pre_tag":"<em>"') && copied.includes('"group_limit":2') && copied.includes("-u 'admin'") && !copied.includes('bookmark'), copied);
}

async function narrowing({ page, open, check, db }) {
  await open(at(db, '_nouveau/all', { q: 'dog OR fox', ranges: 'year [* TO 2000} [2000 TO *]' }));
  await counted({ page, check });
  await page.reload();
  check('what it is narrowed to is in the address', await shown(status(page, '1–17 of 17')));
  await page.getByRole('button', { name: 'Remove tag: Old Films' }).click();
  check('and can be taken away', await shown(status(page, '1–25 of 50')));
}

/** Of 60 hits, 20 have the tag, and 17 of these are in the range. */
async function counted({ page, check }) {
  await page.getByRole('button', { name: 'Old Films 20' }).click();
  check('a count narrows the search to exactly its hits', (await shown(status(page, '1–20 of 20'))) && (await shown(page.getByRole('button', { name: 'Old Films 20', pressed: true }))));
  await page.getByRole('button', { name: '[2000 TO *] 17' }).click();
  check('and so does a range', await shown(status(page, '1–17 of 17')));
}

/** The older interface, on its own definition. */
async function clouseau({ page, open, check, server, db }) {
  const { json } = await server.request('GET', `/${db}/_design/books`);
  json.indexes = { old: { analyzer: { name: 'perfield', default: 'english', fields: { tag: 'keyword' } }, index: CLOUSEAU } };
  await server.request('PUT', `/${db}/_design/books`, json);
  await open(at(db, '_search/old', { q: 'dog OR fox', ranges: 'year [* TO 2000} [2000 TO *]' }));
  await counted({ page, check });
  await open(at(db, '_search/old', { q: 'dog', group_field: 'tag', limit: '2', sort: '-year' }));
  check('groups of the older interface', (await shown(hits(page).getByRole('heading', { name: 'Old Books' }))) && (await hits(page).getByRole('link').count()) === 6);
  await open(at(db, '_search/old', { q: 'dog', sort: '-year<number>', limit: '2' }));
  await page.getByRole('button', { name: 'Next rows' }).click();
  check('its bookmarks', await shown(hits(page).getByRole('link', { name: 'd-57' })));
  check('and its marks', (await hits(page).locator('mark').allTextContents()).join() === 'dog,dogs');
  await open(at(db, '_search/old/edit'));
  check('its analyzers are shown', (await page.getByLabel('Analyzers of fields').inputValue()) === '{"tag":"keyword"}' && (await page.getByLabel('Analyzer', { exact: true }).first().inputValue()) === 'english');
}

async function listed({ page, open, check, server, db }) {
  await server.request('POST', `/${db}/_index`, { type: 'text', ddoc: 'mango', name: 'words', index: {} });
  await open(`#/database/${db}/_search`);
  const list = page.getByRole('table', { name: 'Text indexes' });
  for (const each of ['all', 'old', 'words']) check(`${each} is listed`, await shown(list.getByRole('link', { name: each, exact: true })));
  check('with what it has, and whether it is behind', await shown(list.getByText(/^60 documents/)) && (await shown(list.getByText(/up to date|behind/))));
  await list.getByRole('link', { name: 'words', exact: true }).click();
  await page.getByLabel('Query', { exact: true }).fill('$default:ran AND year_3anumber:1991');
  await page.keyboard.press('Enter');
  check('an index of Mango is asked too', await shown(hits(page).getByRole('link', { name: 'd-01' })));
  await page.getByRole('link', { name: 'Definition' }).click();
  check('and is not edited here', await shown(page.getByText('This is a Mango index.')));
  await open(`#/database/${db}/_design/books`);
  check('a design document leads to its text indexes', await shown(page.getByRole('link', { name: 'old', exact: true })));
}

async function refused({ page, open, check, db }) {
  await open(at(db, '_nouveau/all', { q: '*og' }));
  check('a query that is refused has its help', await shown(page.getByText('A pattern starts with a letter')));
  await open(at(db, '_search/old', { q: 'dog AND (' }));
  check('and one that cannot be read', await shown(page.getByText('These characters have a special meaning')));
  await page.getByLabel('Query', { exact: true }).fill('unicorn');
  await page.keyboard.press('Enter');
  check('nothing found is said', await shown(page.getByText('No hits.')));
  await page.getByText('Options', { exact: true }).click();
  await page.getByLabel('Facets: counts by range').fill('year 2000');
  check('ranges that are none are told', await shown(page.getByText('braces exclude the bound')));
  await open(at(db, '_search/none'));
  check('an index that is not there is said', await shown(page.getByText('Not found.')));
}

/** Who is no admin searches, and is offered no analyzers. */
async function others({ browser, base, server, check, login, db, reader }) {
  await server.request('PUT', `/_users/org.couchdb.user:${reader}`, { name: reader, password: 'words-1', roles: [], type: 'user' });
  await server.request('PUT', `/${db}/_security`, { members: { names: [reader] } });
  const context = await browser.newContext({ locale: 'en-US' });
  try {
    await login(`${reader}:words-1`, context);
    const page = await context.newPage();
    await page.goto(new URL(at(db, '_nouveau/all', { q: 'dog' }), base).href);
    check('a member searches', await shown(status(page, '1–25 of 60')));
    await page.getByRole('link', { name: 'Definition' }).click();
    await page.getByRole('textbox', { name: 'Index function', exact: true }).waitFor();
    check('and is not offered what is for admins', (await page.getByText('Try an analyzer').count()) === 0);
    check('nor to save', (await shown(page.getByText('Only database admins can change this.'))) && (await page.getByRole('button', { name: 'Save', exact: true }).count()) === 0);
  } finally {
    await context.close();
  }
}

async function deleting({ page, open, check, server, db }) {
  await open(at(db, '_search/old/edit'));
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('button', { name: 'Clean up' }).click();
  check('an index is deleted, and its files are cleaned up', await shown(page.getByText('Unused indexes removed.')));
  const { text } = await server.request('GET', `/${db}/_design/books`);
  check('and the others stay', !text.includes('"old"') && text.includes('"nouveau":{"all"'), text);
}

// A text index that is behind, or has nothing: what is said, and what can be done meanwhile.
export const name = 'search: an index that is behind, or empty';
export const short = true;
export const themes = true;
export const widths = [1280, 360];
export const seconds = 240;

// Documents that take their time: with them, the index is not there before somebody has read that.
const SLOW = 'if (doc.isSlow) { var end = Date.now() + 6; while (Date.now() < end); }';
const DESIGN = {
  nouveau: {
    slow: { index: `function (doc) { ${SLOW} index("text", "default", doc.text); index("string", "id", doc._id); }` },
    barren: { index: 'function (doc) { throw new Error("no"); }' },
  },
  indexes: { slow: { index: `function (doc) { ${SLOW} index("default", doc.text); }` } },
};
const [FEW, MANY] = [20, 1500];

export async function run({ browser, base, server, check, page, open, login }) {
  const db = `waiting-${Date.now().toString(36)}`;
  const reader = `${db}-reader`;
  const at = (rest, q = '') => `#/database/${db}/_design/d/${rest}${q && `?q=${q}`}`;
  await server.request('PUT', `/${db}?q=1`);
  await server.request('PUT', `/_users/org.couchdb.user:${reader}`, { name: reader, password: 'words-1', roles: [], type: 'user' });
  await server.request('PUT', `/${db}/_security`, { members: { names: [reader] } });
  const context = await browser.newContext({ locale: 'en-US' });
  try {
    await server.request('POST', `/${db}/_bulk_docs`, { docs: Array.from({ length: FEW }, (_, n) => ({ _id: `few-${n}`, text: 'fox' })) });
    await server.request('PUT', `/${db}/_design/d`, DESIGN);
    await barren({ page, open, check, db, at });
    await open(at('_nouveau/slow', 'fox'));
    check('all is found', await shown(status(page, `1–${FEW} of ${FEW}`)));
    check('counts of what is different in each are not shown unasked', (await page.getByRole('complementary', { name: 'Narrow the search' }).count()) === 0);
    await open(at('_search/slow', 'fox'));
    await shown(status(page, `1–${FEW} of ${FEW}`));

    await server.request('POST', `/${db}/_bulk_docs`, { docs: Array.from({ length: MANY }, (_, n) => ({ text: 'fox', isSlow: true, n })) });
    await login(`${reader}:words-1`, context);
    const member = await context.newPage();
    await member.goto(new URL(at('_nouveau/slow', 'fox'), base).href);
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    check('a search that waits says for what, and how far that is', await shown(status(page, /^The index is being built: [\d,]+ of 1,52\d changes\.$/)));
    for (const [who, on] of [['a member', member], ['an admin', page]]) {
      check(`${who} is told that the index is built`, await shown(status(on, /^The index is being built/)));
      await on.getByRole('button', { name: 'Search the documents indexed so far' }).click();
      check(`${who} searches what is there already`, (await shown(status(on, `1–${FEW} of ${FEW}`))) && (await shown(on.getByText('The index is stale'))), await on.locator('main').innerText());
    }
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    check('and then waits for all', await shown(status(page, '1–25 of 1,520'), 240_000));
    check('nothing is said any more', (await page.getByText(/The index is (stale|being built)/).count()) === 0);
  } finally {
    await context.close();
    await server.request('DELETE', `/${db}`);
    const { json } = await server.request('GET', `/_users/org.couchdb.user:${reader}`);
    if (json?._rev) await server.request('DELETE', `/_users/org.couchdb.user:${reader}?rev=${json._rev}`);
  }
}

/** A function that throws for each document gives an index that is up to date, and has nothing. */
async function barren({ page, open, check, db, at }) {
  await open(at('_nouveau/barren', '*:*'));
  check('an empty index says why nothing is found', await shown(page.getByText('The index is empty: its function indexed nothing')));
  await open(`#/database/${db}/_search`);
  check('and is marked in the list', await shown(page.getByRole('table', { name: 'Text indexes' }).getByText('nothing indexed')));
}

function shown(what, timeout = 60_000) {
  return what.first().waitFor({ timeout }).then(
    () => true,
    () => false,
  );
}

const status = (page, text) => page.getByRole('status').filter({ hasText: text });

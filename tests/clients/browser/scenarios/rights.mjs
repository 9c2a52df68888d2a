// Who may read a database is offered nothing that only its admins may do; who is its admin, and not the server's, is.
export const name = 'rights: readers and admins of a database';
export const short = true;

const DESIGN = {
  language: 'javascript',
  views: { v: { map: 'function (doc) { emit(doc._id); }', reduce: '_count' } },
  nouveau: { t: { index: 'function (doc) { index("text", "default", doc.text); }' } },
  filters: { f: 'function () { return true; }' },
  validate_doc_update: 'function () {}',
};
const ONLY = 'Only database admins can change this.';

/** Pages, what is there for everybody, and which buttons and links admins have. */
const PAGES = [
  ['_search', 't', ['Clean up', 'New text index']],
  ['_design/d/_nouveau/t/edit', 'Analyzer', ['Save', 'Delete']],
  ['_design', 'd', ['Clean up', 'New view']],
  ['_design/d', 'v', ['Clone', 'Compact', 'Delete', 'New view', 'New text index', 'New function']],
  ['_design/d/_view/v', 'Reduce', ['Save', 'Clone', 'Rename', 'Delete', /^Preview/]],
  ['_design/d/_function/filters/f', 'Filter', ['Save', 'Clone', 'Rename', 'Delete']],
  ['_design/d/_function/validate_doc_update', 'Validation of writes', ['Save', 'Delete', 'Check']],
  ['_index', 'by_a', ['New index', 'Delete: by_a']],
  ['new_search', '', ['Create']],
  ['new_view', '', ['Create']],
];

export async function run({ browser, base, server, check, login }) {
  const db = `rights-${Date.now().toString(36)}`;
  const users = [['reader', [], false], ['owner', [], true], ['leader', ['leaders'], true]].map(([each, roles, may]) => ({ name: `${db}-${each}`, roles, may }));
  await server.request('PUT', `/${db}?q=1`);
  try {
    await server.request('PUT', `/${db}/_design/d`, DESIGN);
    await server.request('POST', `/${db}/_index`, { index: { fields: ['a'] }, name: 'by_a', ddoc: 'mango' });
    for (const { name, roles } of users) await server.request('PUT', `/_users/org.couchdb.user:${name}`, { name, password: 'words-1', roles, type: 'user' });
    await server.request('PUT', `/${db}/_security`, { members: { names: [users[0].name] }, admins: { names: [users[1].name], roles: ['leaders'] } });
    for (const user of users) {
      const context = await browser.newContext({ locale: 'en-US' });
      try {
        await login(`${user.name}:words-1`, context);
        const page = await context.newPage();
        for (const [to, there, offered] of PAGES) await look({ page, base, check, db, user, to, there, offered });
        await fields({ page, base, check, db, user });
      } finally {
        await context.close();
      }
    }
  } finally {
    await server.request('DELETE', `/${db}`);
    for (const { name } of users) {
      const { json } = await server.request('GET', `/_users/org.couchdb.user:${name}`);
      if (json?._rev) await server.request('DELETE', `/_users/org.couchdb.user:${name}?rev=${json._rev}`);
    }
  }
}

const address = (base, db, to) => new URL(`#/database/${db}/${to}`, base).href;
const of = (page, name) => ['button', 'link'].map((role) => page.getByRole(role, { name, exact: true })).reduce((a, b) => a.or(b));

async function look({ page, base, check, db, user, to, there, offered }) {
  const who = user.name.replace(/.*-/, '');
  await page.goto(address(base, db, to));
  if (there) await page.locator('main').getByText(there, { exact: true }).first().waitFor();
  if (user.may) {
    for (const each of offered) check(`${to}: the ${who} has ${each}`, await shown(of(page, each)));
    check(`${to}: the ${who} is told nothing of others`, (await page.getByText(ONLY).count()) === 0);
  } else {
    check(`${to}: the ${who} is told who may`, (await shown(page.getByText(ONLY))) && (await page.getByText(ONLY).count()) === 1);
    for (const each of offered) check(`${to}: the ${who} has no ${each}`, (await of(page, each).count()) === 0);
  }
}

/** What cannot be saved cannot be written. */
async function fields({ page, base, check, db, user }) {
  const who = user.name.replace(/.*-/, '');
  const change = async (label) => {
    const editor = page.getByRole('textbox', { name: label, exact: true });
    const before = await editor.innerText();
    await editor.click();
    await page.keyboard.type('x');
    return (await editor.innerText()) !== before;
  };
  page.on('dialog', (dialog) => dialog.accept());
  await page.goto(address(base, db, '_design/d/_nouveau/t/edit'));
  await shown(user.may ? of(page, 'Save') : page.getByText(ONLY));
  check(`the ${who}'s fields of an index`, (await page.getByLabel('Analyzer', { exact: true }).isEnabled()) === user.may && (await page.getByLabel('Analyzers of fields').isEnabled()) === user.may);
  check(`the ${who}'s index function`, (await change('Index function')) === user.may);
  await page.goto(address(base, db, '_design/d/_view/v'));
  await shown(user.may ? of(page, 'Save') : page.getByText(ONLY));
  check(`the ${who}'s fields of a view`, (await page.getByLabel('Reduce', { exact: true }).isEnabled()) === user.may);
  check(`the ${who}'s map`, (await change('Map')) === user.may);
}

function shown(what) {
  return what.first().waitFor({ timeout: 10_000 }).then(
    () => true,
    () => false,
  );
}

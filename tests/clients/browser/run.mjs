// Runs the scenarios of the web interface in Chromium, one after another:
//   node run.mjs --server http://NAME:PASSWORD@127.0.0.1:PORT --base http://127.0.0.1:PORT/_utils/
//     [--only NAME[,NAME…]] [--theme light|dark] [--short] [--binary PATH] [--shots FOLDER] [--insecure]
// Each check is a line of JSON: {"scenario", "what", "ok", "detail"}. The last line says how many there were: {"done", "failed"}.
//
// A scenario exports `name` and `run`, and may export `short` (it is part of `make test`), `themes` (run in light and in dark),
// `widths` (run at each), `everyWidth` (also in `make test`, where others have the narrowest and the widest), `seconds` (its time
// limit), and `allow` (expressions of console errors that it provokes).
import { mkdir, readdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Watch } from './watch.mjs';

// Not by `import`, which does not look where NODE_PATH says.
const { chromium } = createRequire(import.meta.url)('playwright-core');

const { values: options } = parseArgs({
  options: {
    server: { type: 'string' },
    base: { type: 'string' },
    only: { type: 'string' },
    theme: { type: 'string' },
    short: { type: 'boolean', default: false },
    binary: { type: 'string' },
    shots: { type: 'string' },
    // The base has a certificate that nobody knows.
    insecure: { type: 'boolean', default: false },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
  },
});
const SECONDS = 120;
const HEIGHTS = { 360: 740, 390: 844, 768: 1024, 1280: 800 };

const counts = { done: 0, failed: 0 };
const server = serverOf(options.server);

/** The API of the server, asked with basic authentication. */
function serverOf(address) {
  const url = new URL(address);
  const admin = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  const authorization = `Basic ${Buffer.from(admin).toString('base64')}`;
  async function request(method, path, body) {
    const raw = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const headers = { authorization, accept: 'application/json', ...(raw === undefined ? {} : { 'content-type': 'application/json' }) };
    const response = await fetch(url.origin + path, { method, headers, body: raw });
    const text = await response.text();
    let json;
    try {
      json = JSON.parse(text);
    } catch {
      json = undefined;
    }
    return { status: response.status, json, text, headers: response.headers };
  }
  return { url: url.origin, admin, request };
}

async function all() {
  const folder = new URL('./scenarios/', import.meta.url);
  const wanted = options.only?.split(',');
  const files = (await readdir(folder)).filter((file) => file.endsWith('.mjs')).sort();
  const scenarios = [];
  for (const file of files) {
    const name = file.replace(/\.mjs$/, '');
    try {
      const scenario = await import(new URL(file, folder));
      if (wanted ? wanted.includes(name) || wanted.includes(scenario.name) : !options.short || scenario.short) scenarios.push({ file: name, ...scenario });
    } catch (error) {
      if (!wanted || wanted.includes(name)) tell(name, 'it can be read', false, String(error.stack));
    }
  }
  return scenarios;
}

function tell(scenario, what, ok, detail) {
  counts.done++;
  if (!ok) counts.failed++;
  const text = typeof detail === 'string' ? detail : detail === undefined ? '' : JSON.stringify(detail);
  console.log(JSON.stringify({ scenario, what, ok: Boolean(ok), detail: (text ?? '').slice(0, 2000) }));
}

/**
 * In which themes and at which widths. In short the narrowest and the widest alone, unless a scenario's layout changes between
 * them (`everyWidth`), and each theme once, but not with each width.
 */
function* variants(scenario) {
  const themes = scenario.themes ? ['light', 'dark'] : ['light'];
  let widths = scenario.widths ?? [1280];
  if (options.short && !scenario.everyWidth) widths = widths.filter((width) => width === Math.min(...widths) || width === Math.max(...widths));
  const all = options.short
    ? Array.from({ length: Math.max(themes.length, widths.length) }, (_, n) => [themes[n % themes.length], widths[n % widths.length]])
    : themes.flatMap((theme) => widths.map((width) => [theme, width]));
  for (const [theme, width] of all) {
    if (options.theme && theme !== options.theme) continue;
    const said = [scenario.themes && theme, scenario.widths && width].filter(Boolean).join(' ');
    yield { theme, width, label: said ? `${scenario.name} (${said})` : scenario.name };
  }
}

async function one(browser, scenario, { theme, width, label }) {
  const context = await browser.newContext({ viewport: { width, height: HEIGHTS[width] ?? 800 }, colorScheme: theme, locale: 'en-US', reducedMotion: 'reduce', permissions: ['clipboard-read', 'clipboard-write'] });
  context.setDefaultTimeout(15_000);
  const watch = await Watch.start(context, new URL(options.base).origin, scenario.allow ?? []);
  const page = await context.newPage();
  let shots = 0;
  const shoot = async () => {
    if (!options.shots || shots++ > 3) return '';
    const to = join(options.shots, `${label.replace(/[^\w]+/g, '-')}-${shots}.png`);
    await page.screenshot({ path: to, timeout: 5000 }).catch(() => undefined);
    return to;
  };
  const pictures = [];
  const check = (what, isTrue, detail) => {
    if (!isTrue) pictures.push(shoot());
    tell(label, what, isTrue, isTrue ? '' : detail);
  };
  const tools = { browser, context, page, base: options.base, server, binary: options.binary, theme, width, check, watch, ...pageTools(context, page) };
  let timer;
  const late = new Promise((_, reject) => {
    const seconds = scenario.seconds ?? SECONDS;
    timer = setTimeout(() => reject(new Error(`still running after ${seconds} s`)), seconds * 1000);
  });
  try {
    await tools.login();
    await Promise.race([scenario.run(tools), late]);
    check('runs to its end', true);
  } catch (error) {
    check('runs to its end', false, `${error.stack ?? error}\nat ${page.url()}`);
  } finally {
    clearTimeout(timer);
    await Promise.all(pictures);
    for (const [what, found] of watch.told()) tell(label, what, found.length === 0, found.join('\n'));
    await Promise.race([context.close(), new Promise((done) => setTimeout(done, 5000))]).catch(() => undefined);
  }
}

function pageTools(context, page) {
  /** A cookie for a page's or context's requests: `login()` is the admin's, `login('NAME:PASSWORD')` another one's, of this page or of the one given. */
  async function login(...given) {
    const credentials = given.find((each) => typeof each === 'string') ?? server.admin;
    const whose = given.find((each) => each?.request) ?? context;
    const [name, password] = credentials.split(/:(.*)/s);
    const answer = await whose.request.post(new URL('../_session', options.base).href, { data: { name, password } });
    if (!answer.ok()) throw new Error(`login of ${name}: ${answer.status()} ${await answer.text()}`);
  }
  /** Goes to `#/…` and waits until the page is there: its code and what it first loads. */
  async function open(hash = '#/', on = page) {
    const to = new URL(`#/${hash.replace(/^#?\/?/, '')}`, options.base).href;
    if (on.url() === to) await on.reload();
    else await on.goto(to);
    await on.waitForFunction(() => {
      const main = document.querySelector('main');
      return main?.childElementCount > 0 && main.innerText.trim() !== '' && !main.querySelector('[role=status][aria-label="Loading…"], [role=status][aria-label="Lädt…"]');
    });
  }
  return { login, open };
}

async function main() {
  if (options.shots) await mkdir(options.shots, { recursive: true });
  const scenarios = await all();
  if (options.only && scenarios.length === 0) tell('runner', 'there is such a scenario', false, options.only);
  const browser = await chromium.launch({ executablePath: options.chromium, args: ['--no-sandbox', '--disable-dev-shm-usage', ...(options.insecure ? ['--ignore-certificate-errors'] : [])] });
  try {
    for (const scenario of scenarios) for (const variant of variants(scenario)) await one(browser, scenario, variant);
  } finally {
    await Promise.race([browser.close(), new Promise((done) => setTimeout(done, 5000))]);
  }
  console.log(JSON.stringify(counts));
}

// Playwright ends its browser when this process ends, however it ends.
main().then(
  () => process.exit(counts.failed ? 1 : 0),
  (error) => {
    tell('runner', 'runs to its end', false, String(error.stack ?? error));
    process.exit(2);
  },
);

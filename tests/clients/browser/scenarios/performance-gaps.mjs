// Charts have no line over a time that nobody measured: while another page was shown, or the window was hidden.
export const name = 'performance: gaps';
export const short = true;
export const themes = true;
export const widths = [390, 768, 1280];

const GAP_MS = 60_000;

/** The lines of all charts: for each, how far its joined points are apart, as shares of the whole, and how many parts it has. */
function drawn(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('.chart-line')].map((path) => {
      const points = [...path.getAttribute('d').matchAll(/([ML])([\d.]+) /g)].map(([, how, x]) => ({ how, x: Number(x) }));
      const all = points.at(-1).x - points[0].x;
      const steps = points.slice(1).flatMap(({ how, x }, n) => (how === 'L' ? [(x - points[n].x) / all] : []));
      return { parts: points.filter(({ how }) => how === 'M').length, longest: Math.max(0, ...steps) };
    }),
  );
}

const joined = (page, parts) =>
  page.waitForFunction(
    (wanted) => {
      const all = [...document.querySelectorAll('.chart-line')].map((path) => path.getAttribute('d'));
      return all.length === 8 && all.every((d) => d.split('M').length > wanted && /L[^M]*$/.test(d));
    },
    parts,
    { timeout: 20_000 },
  );

export async function run({ page, open, check }) {
  await page.clock.install();
  await open('#/performance');
  await joined(page, 1);
  check('what is measured in a row is one line', (await drawn(page)).every(({ parts }) => parts === 1), await drawn(page));
  await page.evaluate(() => (location.hash = '#/activetasks'));
  await page.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  await page.clock.fastForward(GAP_MS);
  await page.evaluate(() => (location.hash = '#/performance'));
  await joined(page, 2);
  const found = await drawn(page);
  check('a time that was not measured breaks the lines', found.every(({ parts }) => parts === 2), found);
  check('and nothing is drawn over it', found.every(({ longest }) => longest < 0.25), found);
  const chart = page.getByRole('img', { name: 'Requests', exact: true }).first();
  const box = await chart.boundingBox();
  await page.mouse.move(box.x + 64 + (box.width - 68) / 2, box.y + box.height / 2);
  check('nor is a value told for it', (await page.locator('.chart-point').count()) === 0);
  await page.mouse.move(box.x + box.width - 5, box.y + box.height / 2);
  await page.locator('.chart-point').first().waitFor();
  check('but for what was measured', true);
}

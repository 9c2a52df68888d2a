// 10,000 changes a second while the page is open: it goes on drawing, and says how many it does not show.
export const name = 'changes: 10,000 a second';
export const seconds = 90;

const ROUNDS = 40;
const BATCH = 2500;
const BATCH_MS = 250;
const STALL_MAX_MS = 200;

export async function run({ server, check, page, open }) {
  const db = `changes-flood-${Date.now().toString(36)}`;
  await server.request('PUT', `/${db}?q=1`);
  try {
    await open(`#/database/${db}/_changes?since=now`);
    await page.getByText('Live', { exact: true }).waitFor();
    await page.evaluate(() => {
      const meter = { worst: 0, frames: 0, last: performance.now(), on: true };
      window.meter = meter;
      const beat = (now) => {
        meter.worst = Math.max(meter.worst, now - meter.last);
        meter.last = now;
        meter.frames++;
        if (meter.on) requestAnimationFrame(beat);
      };
      requestAnimationFrame(beat);
    });
    const began = Date.now();
    let fastest = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const docs = Array.from({ length: BATCH }, (_, n) => ({ _id: `c-${String(round * BATCH + n).padStart(7, '0')}`, n }));
      await server.request('POST', `/${db}/_bulk_docs`, { docs });
      const told = await page.getByText(/ per second · /).textContent();
      fastest = Math.max(fastest, Number(told.split(' ')[0].replaceAll(',', '')));
      const early = began + (round + 1) * BATCH_MS - Date.now();
      if (early > 0) await new Promise((done) => setTimeout(done, early));
    }
    const rate = Math.round((ROUNDS * BATCH * 1000) / (Date.now() - began));
    const all = (ROUNDS * BATCH).toLocaleString('en-US');
    await page.getByText(`${all} changes received`).waitFor({ timeout: 20_000 }).catch(() => undefined);
    const told = await page.getByText(/changes received/).textContent();
    check('every change is counted', told.includes(`${all} changes received`), told);
    check('what is left out is said', /the oldest 95,000 are not shown/.test(told), told);
    const meter = await page.evaluate(() => ((window.meter.on = false), window.meter));
    check(`the main thread never stalls for more than ${STALL_MAX_MS} ms`, meter.worst <= STALL_MAX_MS, { worst_ms: Math.round(meter.worst), frames: meter.frames, written_a_second: rate });
    check('the writer and the page reached thousands a second', rate > 3000 && fastest > 3000, { rate, fastest });
    await page.getByRole('table', { name: 'Changes' }).getByRole('link').first().waitFor();
    const newest = await page.getByRole('table', { name: 'Changes' }).getByRole('link').first().textContent();
    check('the newest is first', newest === `c-${String(ROUNDS * BATCH - 1).padStart(7, '0')}`, newest);
  } finally {
    await server.request('DELETE', `/${db}`);
  }
}

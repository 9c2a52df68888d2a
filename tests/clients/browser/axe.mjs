// What axe finds on a page.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What is serious or critical. */
export async function findings(page) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return violations.filter((each) => ['serious', 'critical'].includes(each.impact)).map((each) => `${each.id} (${each.impact}): ${each.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`).join(' | ')}`);
}

/** Checks that it finds nothing serious, of what is open now. */
export async function checkAxe(page, check, what) {
  const found = await findings(page);
  check(`${what}: axe finds nothing serious`, found.length === 0, found.join('\n'));
}

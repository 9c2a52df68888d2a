// A Chromium that several runs of run.mjs share: `node shared.mjs [CHROMIUM]` prints the address for their option --connect.
// It ends with its standard input, or when Chromium does.
import { createRequire } from 'node:module';

// Not by `import`, which does not look where NODE_PATH says.
const { chromium } = createRequire(import.meta.url)('playwright-core');

const server = await chromium.launchServer({ executablePath: process.argv[2] ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage'], host: '127.0.0.1' });
server.on('close', () => process.exit(1));
process.stdin.on('end', async () => {
  server.removeAllListeners('close');
  await server.close();
  process.exit(0);
});
process.stdin.resume();
console.log(server.wsEndpoint());

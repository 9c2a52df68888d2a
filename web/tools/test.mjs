// Runs the unit tests of test/ with Node's own runner, in one process: node tools/test.mjs [NAME…]
// Vite bundles them with the modules that they test first, as Node reads neither TypeScript nor JSX.

import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'vite';

const root = new URL('../', import.meta.url).pathname;
const names = process.argv.slice(2);
const isWanted = (file) => names.length === 0 || names.some((name) => file.startsWith(name));
const files = (await readdir(join(root, 'test')))
  .filter((file) => file.endsWith('.test.ts') && isWanted(file))
  .sort();
const entry = 'virtual:tests';
const all = {
  name: 'tests',
  resolveId: (id) => (id === entry ? id : undefined),
  // `page` first: modules read the address and the language of a page while they load.
  load: (id) =>
    id === entry
      ? ['page.ts', ...files]
          .map((file) => `import ${JSON.stringify(join(root, 'test', file))};`)
          .join('\n')
      : undefined,
};

const folder = await mkdtemp(join(tmpdir(), 'settee-web-'));
try {
  await build({
    root,
    configFile: false,
    logLevel: 'error',
    plugins: [all],
    ssr: { noExternal: true },
    build: {
      ssr: true,
      outDir: folder,
      emptyOutDir: false,
      target: 'node20',
      sourcemap: 'inline',
      minify: false,
      copyPublicDir: false,
      rollupOptions: { input: { tests: entry }, output: { entryFileNames: '[name].mjs' } },
    },
  });
  const { status } = spawnSync(
    process.execPath,
    ['--enable-source-maps', '--test-reporter=dot', join(folder, 'tests.mjs')],
    { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] },
  );
  process.exitCode = status ?? 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}

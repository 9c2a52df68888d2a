// Says how large the built pages are when compressed, and fails when they are larger than is asked
// for:
//   node tools/sizes.mjs [--all]
// First load is what the list of databases needs: `index.html`, and what it and its scripts import at once.
import { readdir, readFile } from 'node:fs/promises';
import { brotliCompressSync, constants } from 'node:zlib';

const ALL_MAX = 261_000;
const FIRST_MAX = 90_000;
// Data to try things with, which is no code.
const DATA_MAX = 6000;

const dist = new URL('../dist/', import.meta.url);
const names = (await readdir(dist, { recursive: true, withFileTypes: true }))
  .filter((entry) => entry.isFile())
  .map((entry) => entry.name);
const files = new Map(
  await Promise.all(names.map(async (name) => [name, await readFile(new URL(name, dist))])),
);
const sizes = new Map(
  [...files].map(([name, bytes]) => [
    name,
    brotliCompressSync(bytes, {
      params: {
        [constants.BROTLI_PARAM_QUALITY]: 11,
        [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
      },
    }).length,
  ]),
);

/** The files that one names at once: elements of a page, and imports that are not calls. */
function needs(name) {
  const text = files.get(name).toString('utf8');
  const pattern = name.endsWith('.html')
    ? /(?:src|href)="\.\/([^"]+)"/g
    : name.endsWith('.js')
      ? /(?:^|[;}\s])(?:import|export)\s*(?:[\w$*{}\s,]*?\s*from\s*)?["'`]\.\/([^"'`]+)["'`]/g
      : /url\(["']?\.\/([^"')]+)/g;
  return [...text.matchAll(pattern)].map((found) => found[1]).filter((found) => files.has(found));
}

const first = new Set(['index.html']);
for (const name of first) for (const next of needs(name)) first.add(next);

const sum = (some) => [...some].reduce((total, name) => total + sizes.get(name), 0);
const isData = (name) => name.endsWith('.json');
const code = [...files.keys()].filter((name) => !isData(name));
const [all, atFirst, data] = [sum(code), sum(first), sum([...files.keys()].filter(isData))];
if (process.argv.includes('--all'))
  for (const [name, size] of [...sizes].sort((a, b) => b[1] - a[1]))
    console.log(String(size).padStart(8), first.has(name) ? '*' : ' ', name);
console.log(
  `in all ${all} of ${ALL_MAX} bytes, at first load (*) ${atFirst} of ${FIRST_MAX}, data ${data} of ${DATA_MAX}, by brotli`,
);
if (all > ALL_MAX || atFirst > FIRST_MAX || data > DATA_MAX) process.exitCode = 1;

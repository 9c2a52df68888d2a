// What is opened over and over, and not closed, leaves nothing behind. The number of times is the argument.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const settee = createRequire(join(process.cwd(), "package.json"))("settee");
const times = Number(process.argv[2]);
// Allocators and the collector keep some of what they had.
const GROWTH_MAX_BYTES = 96 << 20;

async function residentBytes() {
  for (let n = 0; n < 3; n++) {
    globalThis.gc();
    await sleep(20);
  }
  return process.memoryUsage.rss();
}

const parts = {};

parts["directories are opened and closed"] = async (folder) => {
  for (let n = 0; n < Math.max(20, times / 100); n++) {
    const directory = await settee.open(folder);
    const db = await directory.create("a", { existOk: true });
    await db.put({ _id: String(n) });
    await (await db.allDocs()).next();
    assert.equal((await db.info()).doc_count, n + 1);
    await directory.close();
  }
};

parts["cursors and streams are dropped"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("a");
  await db.load(Array.from({ length: 2000 }, (_, n) => ({ _id: String(n).padStart(5, "0"), text: "x".repeat(1000) })));
  await db.put({ _id: "_design/d", views: { v: { map: "function (doc) { emit(doc._id, doc.text); }" } } });
  await db.buildIndex("d");
  await db.putAttachment("f", "x", "x".repeat(300_000));
  const use = async (n) => {
    await (await db.allDocs({ include_docs: true })).next();
    await (await db.view("d", "v", { skip: n % 1000 })).next();
    await (await db.changes({ include_docs: true })).next();
    await (await db.find({ text: { $gt: null } }, { limit: 2 })).toArray();
    (await db.openAttachment("f", "x")).destroy();
    (await db.createAttachment(`g${n}`, "x")).destroy();
    await db.put({ _id: `n${n}` });
  };
  for (let n = 0; n < 100; n++) await use(n);
  const before = await residentBytes();
  for (let n = 100; n < 100 + times; n++) await use(n);
  const grown = (await residentBytes()) - before;
  assert.ok(grown < GROWTH_MAX_BYTES, `${grown >> 20} MiB more after ${times} times`);
  await directory.close();
};

parts["many promises at once"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("a");
  const ids = Array.from({ length: times * 4 }, (_, n) => `d${n}`);
  const feed = await db.changes({ live: true, timeout: 30_000 });
  const followed = new Set();
  const following = (async () => {
    for await (const row of feed) {
      followed.add(row.id);
      if (followed.size === ids.length) return;
    }
  })();
  await Promise.all(ids.map((_id, n) => db.put({ _id, n }, { delayed: n % 2 === 0 })));
  const docs = await Promise.all(ids.map((id) => db.get(id)));
  assert.ok(docs.every((doc, n) => doc.n === n));
  await following;
  await directory.close();
};

for (const [name, part] of Object.entries(parts)) {
  const folder = mkdtempSync(join(tmpdir(), "settee-bindings-"));
  try {
    await part(folder);
    console.log(`ok ${name}`);
  } catch (failure) {
    console.error(failure);
    console.log(`not ok ${name}: ${failure}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
console.log("done");
process.exit(0);

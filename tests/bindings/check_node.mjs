// The package for Node as people use it, from a tarball that was installed. The suite `bindings` runs this.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";

// From the folder that it is run in, as the package is not beside this file.
const require = createRequire(join(process.cwd(), "package.json"));
const settee = require("settee");
const entry = require.resolve("settee");

const BY_TYPE = {
  _id: "_design/by",
  views: {
    type: { map: "function (doc) { emit(doc.type, doc.n); }", reduce: "_sum" },
    id: { map: "function (doc) { emit(doc._id, null); }" },
  },
};
const SLOW = {
  _id: "_design/slow",
  autoupdate: false,
  views: { v: { map: "function (doc) { for (var i = 0, x = 0; i < 3e5; i++) { x += i; } emit(doc._id, x); }" } },
};

const parts = {};

const refused = (work, words) =>
  assert.rejects(work, (failure) => {
    assert.ok(failure instanceof settee.SetteeError, `${failure}`);
    for (const [name, value] of Object.entries(words)) assert.equal(failure[name], value);
    return true;
  });

async function* numbered(n, more = () => ({})) {
  for (let i = 0; i < n; i++) yield { _id: String(i).padStart(5, "0"), ...more(i) };
}

parts["documents are written, read and deleted"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("notes");
  // The revision that the README's tour shows for the same edit.
  const tour = await db.put({ _id: "r1", day: [2026, 11, 20], what: "tea", price: 4.5 });
  assert.deepEqual(tour, { id: "r1", rev: "1-27c8ea11f15ef39c3d198d01b48d3d81" });
  const first = await db.put({ _id: "a", text: "hello" });
  const doc = await db.get("a");
  assert.deepEqual(doc, { _id: "a", _rev: first.rev, text: "hello" });
  await refused(() => db.put({ _id: "a" }), { status: 409, error: "conflict", reason: "Document update conflict." });
  const second = await db.put({ ...doc, text: "bye" });
  assert.equal((await db.get("a", { rev: first.rev })).text, "hello");
  assert.equal((await db.get("a", { revs: true }))._revisions.start, 2);
  assert.equal((await db.put({ no: "id" })).id.length, 32);
  assert.ok((await db.delete("a", second.rev)).rev.startsWith("3-"));
  await refused(() => db.get("a"), { status: 404, error: "not_found", reason: "deleted" });
  await refused(() => db.get("never"), { reason: "missing" });
  await refused(() => db.put({ _id: "_x" }), { status: 400 });
  await refused(() => db.get("a", { nonsense: 1 }), { status: 400 });
  await directory.close();
};

parts["databases are made, listed and deleted"] = async (folder) => {
  const directory = await settee.open(folder, { q: 1 });
  await directory.create("b");
  const made = await directory.create("a", { q: 3, partitioned: true });
  assert.equal((await made.info()).q, 3);
  assert.deepEqual(await directory.names(), ["a", "b"]);
  assert.ok((await directory.has("a")) && !(await directory.has("c")));
  await refused(() => directory.create("a"), { status: 412, error: "file_exists" });
  assert.equal((await directory.create("a", { existOk: true })).name, "a");
  await refused(() => directory.create("A"), { error: "illegal_database_name" });
  await directory.delete("b");
  await refused(() => directory.database("b"), { status: 404, reason: "Database does not exist." });
  await directory.close();
  await assert.rejects(settee.open(folder, { nonsense: 1 }), TypeError);
  await refused(() => settee.open(`${folder}-no`, { create: false }), { status: 404 });
};

parts["what is no JSON is refused, and text keeps numbers"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("v");
  for (const bad of [NaN, Infinity, 1n, () => 1, new Map()]) {
    await assert.rejects(db.put({ _id: "n", a: [0, { b: bad }] }), /\.a\[1\]\.b/);
  }
  await assert.rejects(db.put([1]), TypeError);
  await assert.rejects(db.put({ _id: "n", a: [undefined] }), TypeError);
  const text = '"one":1.0,"big":123456789012345678901234567890}';
  await db.put(`{"_id":"a",${text}`);
  await db.put(Buffer.from('{"_id":"b"}'));
  assert.ok((await db.get("a", { raw: true })).endsWith(text));
  assert.equal((await db.get("a")).one, 1);
  const values = { text: "é😀\u0000\"\\", list: [null, true, {}, 1.5, -1], when: new Date(0) };
  await db.put({ _id: "c", ...values, nothing: undefined });
  const { _id, _rev, ...got } = await db.get("c");
  assert.deepEqual(got, { ...values, when: "1970-01-01T00:00:00.000Z" });
  await refused(() => db.put('{"_id":"x"},{"_id":"y"}'), { error: "bad_request" });
  assert.deepEqual(
    (await (await db.allDocs({ raw: true })).toArray()).map((row) => JSON.parse(row).id),
    ["a", "b", "c"],
  );
  assert.equal((await (await db.changes({ raw: true })).toArray()).length, 3);
  await directory.close();
};

parts["bulks and loads tell what became of each"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("bulk");
  const outcomes = await db.bulk(Array.from({ length: 1000 }, (_, n) => ({ _id: `${n}`, n })));
  assert.ok(outcomes.length === 1000 && outcomes.every((outcome) => outcome.ok));
  assert.deepEqual(await db.bulk(['{"_id":"0"}']), [
    { id: "0", error: "conflict", reason: "Document update conflict." },
  ]);
  const told = [];
  const loaded = await db.load(numbered(2500), { onProgress: ({ done }) => told.push(done) });
  assert.deepEqual([loaded, told], [{ written: 2500, failed: [] }, [1000, 2000, 2500]]);
  const stop = new AbortController();
  const load = db.load(
    numbered(100_000, () => ({ _id: undefined })),
    { signal: stop.signal, onProgress: ({ done }) => done >= 2000 && stop.abort() },
  );
  await assert.rejects(load, { name: "AbortError" });
  assert.equal((await db.info()).doc_count, 1000 + 2500 + 2000);
  await directory.close();
};

parts["listings and views are iterated"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("views");
  await db.load(numbered(5000, (n) => ({ type: n % 2 ? "odd" : "even", n })));
  const rows = await db.allDocs();
  assert.deepEqual([rows.totalRows, rows.offset], [5000, 0]);
  let n = 0;
  for await (const row of rows) assert.equal(Number(row.id), n++);
  assert.equal(n, 5000);
  const some = await db.allDocs({ startkey: "00010", endkey: "00012", inclusive_end: false, include_docs: true });
  assert.deepEqual((await some.toArray()).map((row) => row.doc.n), [10, 11]);
  await db.put(BY_TYPE);
  assert.deepEqual(await (await db.view("by", "type")).toArray(), [{ key: null, value: 4999 * 2500 }]);
  assert.deepEqual((await (await db.view("by", "type", { group: true })).toArray()).map((row) => row.key), ["even", "odd"]);
  assert.equal((await (await db.view("by", "type", { key: "odd", reduce: false })).toArray()).length, 2500);
  assert.equal((await (await db.view("by", "type", { key: null, reduce: false })).toArray()).length, 0);
  await refused(() => db.view("by", "nope"), { status: 404, reason: "missing_named_view" });
  await refused(() => db.view("by", "id", { group: true }), { error: "query_parse_error" });
  // Who leaves a loop closes what it went over.
  const left = await db.view("by", "id");
  for await (const row of left) {
    assert.ok(row.id);
    break;
  }
  await refused(async () => {
    for (;;) if ((await left.next()).done) return;
  }, { error: "closed" });
  // Calls that do not wait for each other are answered in their order.
  const together = await db.allDocs();
  const first = await Promise.all(Array.from({ length: 3000 }, () => together.next()));
  assert.deepEqual(first.map((each) => Number(each.value.id)), Array.from({ length: 3000 }, (_, i) => i));
  await directory.close();
};

parts["queries use indexes"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("find");
  await db.load(numbered(1000, (n) => ({ n, what: n % 3 ? "tea" : "milk" })));
  const made = await db.createIndex(["n"], { name: "by-n" });
  assert.equal(made.result, "created");
  assert.deepEqual((await db.indexes()).map((index) => index.name), ["_all_docs", "by-n"]);
  const found = await db.find({ n: { $gte: 10, $lt: 13 } }, { fields: ["n"], sort: ["n"] });
  assert.deepEqual(await found.toArray(), [{ n: 10 }, { n: 11 }, { n: 12 }]);
  assert.ok((await found.tail()).bookmark);
  assert.equal((await db.explain({ n: 1 })).index.name, "by-n");
  assert.equal((await (await db.find({ what: "tea" })).toArray()).length, 666);
  await refused(() => db.find({ n: { $nonsense: 1 } }), { status: 400 });
  await db.deleteIndex(made.id, "by-n");
  await refused(() => db.deleteIndex(made.id, "by-n"), { status: 404 });
  await directory.close();
};

parts["changes are read and followed"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("changes");
  await db.load(numbered(300, (n) => ({ n })));
  const all = await (await db.changes({ include_docs: true })).toArray();
  assert.equal(new Set(all.map((row) => row.doc.n)).size, 300);
  assert.deepEqual(await (await db.changes({ since: all.at(-1).seq })).toArray(), []);
  assert.equal((await (await db.changes({ selector: { n: { $lt: 5 } } })).toArray()).length, 5);
  const seen = [];
  const feed = await db.changes({ since: "now", live: true });
  const following = (async () => {
    for await (const row of feed) {
      seen.push(row.id);
      if (seen.length === 50) return;
    }
  })();
  for (let n = 0; n < 50; n++) await db.put({ _id: `new${n}` });
  await following;
  // Each once; those of different shards are in no order.
  assert.deepEqual(seen.sort(), Array.from({ length: 50 }, (_, n) => `new${n}`).sort());
  const paused = await db.changes({ since: "now", live: true, timeout: 100 });
  assert.deepEqual(await paused.toArray(), []);
  await db.put({ _id: "later" });
  assert.deepEqual((await paused.toArray()).map((row) => row.id), ["later"]);
  const stop = new AbortController();
  const waiting = await db.changes({ since: "now", live: true, signal: stop.signal });
  const next = waiting.next();
  await sleep(50);
  stop.abort();
  await assert.rejects(next, { name: "AbortError" });
  await directory.close();
};

parts["ids ascend and never repeat"] = async () => {
  for (const source of [settee.ids.sequential, settee.ids.monotonic]) {
    const newId = source("status/");
    const made = Array.from({ length: 1000 }, newId);
    for (const id of newId) {
      made.push(id);
      if (made.length === 2000) break;
    }
    made.push(source("status/")(), newId.next().value);
    assert.deepEqual(made, [...new Set(made)].sort());
    assert.ok(made.every((id) => id.startsWith("status/") && id.length === 39));
    assert.deepEqual([source()().length, newId.prefix], [32, "status/"]);
    for (const wrong of ["_design/", "_", "x".repeat(257), "a\n"]) {
      assert.throws(() => source(wrong), (error) => error instanceof settee.SetteeError && error.status === 400);
    }
    assert.throws(() => source(1), TypeError);
  }
};

parts["attachments are streams"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("files");
  const small = await db.putAttachment("a", "hello.txt", "hello", { contentType: "text/plain" });
  const reader = await db.openAttachment("a", "hello.txt");
  assert.deepEqual([reader.contentType, reader.length], ["text/plain", 5]);
  assert.equal((await reader.toArray()).join(""), "hello");
  const large = randomBytes(3_000_000);
  const pieces = [large.subarray(0, 1_000_000), large.subarray(1_000_000)];
  const written = await db.putAttachment("a", "large", Readable.from(pieces), { rev: small.rev });
  const hash = createHash("md5");
  await pipeline(await db.openAttachment("a", "large"), hash);
  assert.equal(hash.digest("hex"), createHash("md5").update(large).digest("hex"));
  const range = await db.openAttachment("a", "large", { start: 5, end: 9 });
  assert.deepEqual(Buffer.concat(await range.toArray()), large.subarray(5, 9));
  const writer = await db.createAttachment("a", "lines", { rev: written.rev, contentType: "text/plain" });
  await pipeline(Readable.from(Array.from({ length: 1000 }, (_, n) => `line ${n}\n`)), writer);
  assert.deepEqual(Object.keys((await db.get("a"))._attachments).sort(), ["hello.txt", "large", "lines"]);
  const failing = Readable.from(
    (async function* () {
      yield Buffer.from("x");
      throw new Error("given up");
    })(),
  );
  await assert.rejects(db.putAttachment("a", "no", failing, { rev: writer.written.rev }), /given up/);
  assert.ok(!("no" in (await db.get("a"))._attachments));
  await refused(() => db.putAttachment("a", "x", "", { rev: small.rev }), { status: 409 });
  await refused(() => db.openAttachment("a", "x"), { reason: "Document is missing attachment" });
  await db.deleteAttachment("a", "large", writer.written.rev);
  assert.deepEqual(Object.keys((await db.get("a", { attachments: true }))._attachments).sort(), ["hello.txt", "lines"]);
  await directory.close();
};

parts["bulks stream their attachments"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("files");
  const large = randomBytes(3_000_000);
  const pieces = [large.subarray(0, 1_000_001), large.subarray(1_000_001)];
  const doc = (id, data) => ({ _id: id, _attachments: { plain: { data: "aGVsbG8=" }, file: { content_type: "image/x", data } } });
  const sources = {
    bytes: large,
    stream: Readable.from(pieces),
    list: pieces,
    iterable: (async function* () {
      yield* pieces;
    })(),
    late: async () => Readable.from(pieces),
  };
  const docs = Object.entries(sources).map(([id, data]) => doc(id, data));
  const outcomes = await db.bulk([...docs, { _id: "without" }, '{"_id":"text"}']);
  assert.deepEqual(outcomes.map((outcome) => outcome.id), [...Object.keys(sources), "without", "text"]);
  assert.ok(outcomes.every((outcome) => outcome.ok));
  assert.equal(docs[0]._attachments.file.data, large);
  for (const id of Object.keys(sources)) {
    const reader = await db.openAttachment(id, "file");
    assert.equal(reader.contentType, "image/x");
    assert.deepEqual(Buffer.concat(await reader.toArray()), large);
    assert.equal((await (await db.openAttachment(id, "plain")).toArray()).join(""), "hello");
  }
  const [text] = await db.bulk([doc("text-file", large.toString("base64"))]);
  const [stream] = await db.bulk([doc("stream-file", large)]);
  assert.equal(text.rev, stream.rev);
  const failing = async function* () {
    yield Buffer.from("x");
    throw new Error("given up");
  };
  const whole = doc("whole", Buffer.from("x"));
  await assert.rejects(db.bulk([whole, doc("no", failing())]), /given up/);
  await assert.rejects(db.bulk([whole, doc("no", Readable.from(["text"]))]), TypeError);
  await assert.rejects(db.bulk([whole, { _id: "no", _attachments: { a: { follows: true } } }]), TypeError);
  await refused(() => db.bulk([whole, { _id: "_local/x", _attachments: { a: { data: Buffer.from("x") } } }]), { status: 400 });
  await refused(() => db.get("whole"), { status: 404 });
  const many = function* () {
    for (let n = 0; n < 250; n++) yield doc(`l${n}`, () => Readable.from([Buffer.from(String(n))]));
  };
  assert.deepEqual(await db.load(many(), { batch: 100 }), { written: 250, failed: [] });
  assert.equal((await (await db.openAttachment("l249", "file")).toArray()).join(""), "249");
  await directory.close();
};

parts["an index build tells how far it is, and is cancelled"] = async (folder) => {
  const directory = await settee.open(folder, { backgroundIndexing: false });
  const db = await directory.create("slow");
  await db.load(numbered(20_000));
  await db.put(SLOW);
  const stop = new AbortController();
  const told = [];
  const onProgress = (progress) => {
    told.push(progress);
    if (told.length === 3) stop.abort();
  };
  await assert.rejects(db.view("slow", "v", { signal: stop.signal, onProgress }), { name: "AbortError" });
  assert.ok(told[0].total > 0 && told.at(-1).done <= told.at(-1).total, JSON.stringify(told));
  const thrower = () => {
    throw new RangeError("enough");
  };
  await assert.rejects(db.buildIndex("slow", { onProgress: thrower }), RangeError);
  await assert.rejects(db.buildIndex("slow", { signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
  const deadline = Date.now() + 60_000;
  while (!(await directory.tasks()).some((task) => task.type === "indexer")) {
    assert.ok(Date.now() < deadline, "the build goes on when nobody waits for it");
    await sleep(10);
  }
  // Closing ends the build.
  const began = Date.now();
  await directory.close();
  assert.ok(Date.now() - began < 60_000, "the rest of the build is not waited for");
};

parts["closing closes everything"] = async (folder) => {
  const directory = await settee.open(folder);
  const db = await directory.create("c");
  await db.load(numbered(3000));
  const rows = await db.allDocs();
  await rows.next();
  const feed = await db.changes({ since: "now", live: true });
  const waiting = feed.next();
  const writer = await db.createAttachment("g", "x");
  const ended = refused(() => waiting, { status: 503, error: "closed" });
  await directory.close();
  await ended;
  await directory.close();
  assert.ok(directory.closed);
  await refused(() => rows.toArray(), { error: "closed" });
  await refused(() => db.info(), { error: "closed" });
  await refused(() => directory.names(), { error: "closed" });
  await assert.rejects(pipeline(Readable.from([Buffer.from("x")]), writer), { error: "closed" });
  const again = await settee.open(folder);
  assert.equal((await (await again.database("c")).info()).doc_count, 3000);
  await again.close();
};

parts["a second opener is refused"] = async (folder) => {
  const directory = await settee.open(folder);
  await refused(() => settee.open(folder), { status: 423, error: "in_use" });
  const source = `require(${JSON.stringify(entry)}).open(process.argv[1]).catch((e) => console.log(e.status, e.error))`;
  const other = (...more) => execFileSync(process.execPath, ["-e", source, folder, ...more], { encoding: "utf8" });
  assert.equal(other(), "423 in_use\n");
  // A worker thread is in the same process.
  const thread = new Worker(
    `const { workerData, parentPort } = require("node:worker_threads");
     require(workerData.entry).open(workerData.folder).catch((e) => parentPort.postMessage(e.error));`,
    { eval: true, workerData: { entry, folder } },
  );
  assert.equal(await new Promise((resolve) => thread.once("message", resolve)), "in_use");
  await thread.terminate();
  await (await directory.create("a")).put({ _id: "x" });
  await directory[Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose")]();
  assert.equal(other(), "");
};

parts["a process that ends closes"] = async (folder) => {
  const source = `(async () => {
    const directory = await require(${JSON.stringify(entry)}).open(process.argv[1]);
    const db = await directory.create("a");
    await db.load(Array.from({ length: 5000 }, (_, n) => ({ _id: String(n) })), { delayed: true });
    process.exit(0);
  })()`;
  execFileSync(process.execPath, ["-e", source, folder]);
  const directory = await settee.open(folder);
  assert.equal((await (await directory.database("a")).info()).doc_count, 5000);
  await directory.close();
};

parts["functions may run in processes"] = async (folder) => {
  const program = process.env.SETTEE_BINARY;
  assert.ok(program, "SETTEE_BINARY names the program");
  const directory = await settee.open(folder, { functions: { program } });
  const db = await directory.create("p");
  await db.load(numbered(100, () => ({ type: "x", n: 1 })));
  await db.put(BY_TYPE);
  assert.deepEqual(await (await db.view("by", "type")).toArray(), [{ key: null, value: 100 }]);
  await directory.close();
};

const wanted = process.argv.slice(2);
for (const [name, part] of Object.entries(parts)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
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
// What failed may have left something open.
process.exit(0);

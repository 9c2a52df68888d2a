// One language's part of bindings.py: URL USER:PASSWORD FOLDER SECONDS ROUNDS. Prints rates as JSON.

import assert from "node:assert/strict";
import http from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const settee = createRequire(join(process.cwd(), "package.json"))("settee");
const BULK = 1000;
// Documents that single gets go over.
const READ = 10_000;

async function here(folder) {
  const db = await (await settee.open(folder)).create("bench");
  return { bulk: (docs) => db.bulk(docs), put: (doc) => db.put(doc), get: (id) => db.get(id) };
}

async function there(url, admin) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const { hostname, port } = new URL(url);
  const headers = { authorization: `Basic ${btoa(admin)}`, "content-type": "application/json" };
  const ask = (method, path, body) =>
    new Promise((resolve, reject) => {
      const text = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
      const length = text ? { "content-length": text.length } : {};
      const request = http.request({ agent, hostname, port, method, path, headers: { ...headers, ...length } }, (answer) => {
        const pieces = [];
        answer.on("data", (piece) => pieces.push(piece));
        answer.on("end", () => {
          const value = JSON.parse(Buffer.concat(pieces).toString());
          if (answer.statusCode < 300) resolve(value);
          else reject(new Error(JSON.stringify(value)));
        });
      });
      request.on("error", reject);
      request.end(text);
    });
  await ask("PUT", "/bench");
  return {
    bulk: (docs) => ask("POST", "/bench/_bulk_docs", { docs }),
    put: (doc) => ask("PUT", `/bench/${doc._id}`, doc),
    get: (id) => ask("GET", `/bench/${id}`),
  };
}

/** Ids of its own for each place, which ascend. */
class Counter {
  n = 0;
  constructor(prefix) {
    this.prefix = prefix;
  }
  docs(count) {
    return Array.from({ length: count }, () => ({
      _id: this.prefix + (this.n++).toString(16).padStart(31, "0"),
      foo: "bar",
    }));
  }
}

/** The rate of each row in one place. */
async function slices(seconds, place, [bulks, puts]) {
  const rate = async (work) => {
    const began = performance.now();
    let done = 0;
    while (performance.now() - began < seconds * 1000) done += await work();
    return (done * 1000) / (performance.now() - began);
  };
  let at = 0;
  return {
    bulk: await rate(async () => {
      const outcomes = await place.bulk(bulks.docs(BULK));
      assert.ok(outcomes.length === BULK && outcomes.every((outcome) => outcome.rev));
      return BULK;
    }),
    put: await rate(async () => {
      await place.put(puts.docs(1)[0]);
      return 1;
    }),
    get: await rate(async () => {
      at = (at + 7919) % READ;
      const doc = await place.get("r" + at.toString(16).padStart(31, "0"));
      assert.equal(doc.foo, "bar");
      return 1;
    }),
  };
}

const [url, admin, folder, seconds, rounds] = process.argv.slice(2);
const places = { process: await here(folder), http: await there(url, admin) };
const counters = {};
for (const [name, place] of Object.entries(places)) {
  counters[name] = [new Counter("b"), new Counter("p")];
  const readable = new Counter("r");
  for (let n = 0; n < READ / BULK; n++) await place.bulk(readable.docs(BULK));
}
const measured = {};
for (let round = 0; round < Number(rounds); round++) {
  for (const [name, place] of Object.entries(places)) {
    for (const [row, rate] of Object.entries(await slices(Number(seconds), place, counters[name]))) {
      ((measured[row] ??= {})[name] ??= []).push(rate);
    }
  }
}
console.log(JSON.stringify(measured));
process.exit(0);

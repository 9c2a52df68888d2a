"use strict";

const native = require("../settee.node");
const { call, callNow } = require("./errors.js");
const { Database } = require("./database.js");
const { optionsText } = require("./json.js");
const { asyncDispose } = require("./rows.js");

// A directory that is open when the process ends is closed first, so that writes that did not wait for the disk are not lost.
const openDirectories = new Set();

process.on("exit", () => {
  for (const directory of openDirectories) {
    try {
      directory.closeNow();
    } catch {
      // It is too late to report it.
    }
  }
});

const NAMES = {
  create: "create",
  q: "q",
  cacheBytes: "cache_bytes",
  documentsBytes: "documents_bytes",
  writeBuffersBytes: "write_buffers_bytes",
  indexBuildsBytes: "index_builds_bytes",
  indexRowsBytes: "index_rows_bytes",
  backgroundIndexing: "background_indexing",
  autoCompact: "auto_compact",
  acceptDamagedLog: "accept_damaged_log",
};
const NAMES_OF_FUNCTIONS = {
  program: "program",
  timeLimitMs: "time_limit_ms",
  memoryLimitBytes: "memory_limit_bytes",
};

/** The options with their names in the compiled part. */
function renamed(options, names) {
  const said = {};
  for (const [name, value] of Object.entries(options ?? {})) {
    if (!Object.hasOwn(names, name)) throw new TypeError(`there is no option ${name}`);
    if (value !== undefined) said[names[name]] = value;
  }
  return said;
}

async function open(path, options = {}) {
  const { functions, ...others } = options;
  const said = renamed(others, NAMES);
  if (functions !== undefined) said.functions = renamed(functions, NAMES_OF_FUNCTIONS);
  const directory = await call(native.open(path, optionsText(said)));
  return new Directory(directory);
}

class Directory {
  #native;

  constructor(directory) {
    this.#native = directory;
    openDirectories.add(directory);
  }

  get path() {
    return this.#native.path;
  }

  get closed() {
    return this.#native.closed;
  }

  async names() {
    return callNow(() => this.#native.names());
  }

  async has(name) {
    return callNow(() => this.#native.has(name));
  }

  async database(name) {
    return new Database(await call(this.#native.database(name)));
  }

  async create(name, options) {
    if (options?.existOk && (await this.has(name))) return this.database(name);
    return new Database(await call(this.#native.create(name, optionsText(options, ["existOk"]))));
  }

  delete(name) {
    return call(this.#native.delete(name));
  }

  async tasks() {
    return JSON.parse(callNow(() => this.#native.tasks()));
  }

  async close() {
    await call(this.#native.close());
    openDirectories.delete(this.#native);
  }

  [asyncDispose]() {
    return this.close();
  }
}

module.exports = { open, Directory };

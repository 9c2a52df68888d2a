"use strict";

const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");

const { AttachmentReader, AttachmentWriter } = require("./attachments.js");
const { prepared, writeBulk } = require("./bulk.js");
const { cancellable, telling } = require("./cancel.js");
const { call, callNow } = require("./errors.js");
const { documentText, optionsText, text } = require("./json.js");
const { Changes, Rows } = require("./rows.js");

const NOT_ASKED = ["raw", "signal", "onProgress"];

/** The options of writes. */
function writes(options) {
  if (!options) return "";
  return optionsText({ new_edits: options.newEdits, delayed: options.delayed });
}

class Database {
  #native;

  constructor(native) {
    this.#native = native;
  }

  get name() {
    return this.#native.name;
  }

  async info() {
    return JSON.parse(await call(this.#native.info()));
  }

  compact() {
    return call(this.#native.compact());
  }

  // Documents

  async get(id, options) {
    const document = await call(this.#native.get(id, options ? optionsText(options, NOT_ASKED) : ""));
    return options?.raw ? document : JSON.parse(document);
  }

  async put(document, options) {
    return call(this.#native.put(documentText(document), writes(options)));
  }

  async delete(id, rev, options) {
    return call(this.#native.delete(id, rev, writes(options)));
  }

  async bulk(documents, options) {
    return writeBulk(this.#native, documents.map(prepared), writes(options));
  }

  async load(documents, options = {}) {
    const { batch = 1000, signal, onProgress } = options;
    const said = writes(options);
    const failed = [];
    let some = [];
    let done = 0;
    const write = async () => {
      signal?.throwIfAborted();
      const outcomes = await writeBulk(this.#native, some, said);
      for (const outcome of outcomes) if (outcome.error) failed.push(outcome);
      done += some.length;
      some = [];
      onProgress?.({ done });
    };
    for await (const document of documents) {
      some.push(prepared(document));
      if (some.length >= batch) await write();
    }
    if (some.length > 0) await write();
    return { written: done - failed.length, failed };
  }

  // Listings, views, queries, changes

  async allDocs(options) {
    return new Rows(await call(this.#native.allDocs(optionsText(options, NOT_ASKED))), options?.raw);
  }

  async view(design, view, options) {
    const said = optionsText(options, NOT_ASKED);
    const rows = await telling(
      () => callNow(() => this.#native.progress(design)),
      options?.onProgress,
      options?.signal,
      (cancel) => this.#native.view(design, view, said, cancel),
    );
    return new Rows(rows, options?.raw);
  }

  async buildIndex(design, options) {
    await telling(
      () => callNow(() => this.#native.progress(design)),
      options?.onProgress,
      options?.signal,
      (cancel) => this.#native.buildIndex(design, cancel),
    );
  }

  async find(selector, options) {
    const query = `{"selector":${text(selector)}${members(optionsText(options, NOT_ASKED))}`;
    const rows = await cancellable(options?.signal, (cancel) => this.#native.find(query, cancel));
    return new Rows(rows, options?.raw);
  }

  async explain(selector, options) {
    const query = `{"selector":${text(selector)}${members(optionsText(options, NOT_ASKED))}`;
    return JSON.parse(await call(this.#native.explain(query)));
  }

  async indexes() {
    return JSON.parse(await call(this.#native.indexes()));
  }

  async createIndex(fields, options) {
    const { name, ddoc, partitioned, partial_filter_selector } = options ?? {};
    const index = text({ fields, partial_filter_selector });
    const said = optionsText({ type: "json", name, ddoc, partitioned });
    return JSON.parse(await call(this.#native.createIndex(`{"index":${index}${members(said)}`)));
  }

  deleteIndex(ddoc, name) {
    return call(this.#native.deleteIndex(ddoc, name));
  }

  async changes(options = {}) {
    const said = optionsText(options, [...NOT_ASKED, "timeout"]);
    options.signal?.throwIfAborted();
    return new Changes(await call(this.#native.changes(said)), options);
  }

  // Attachments

  async openAttachment(id, name, options) {
    return new AttachmentReader(await call(this.#native.attachment(id, name, optionsText(options))));
  }

  async createAttachment(id, name, options = {}) {
    const said = optionsText({ rev: options.rev, content_type: options.contentType });
    return new AttachmentWriter(await call(this.#native.putAttachment(id, name, said)));
  }

  async putAttachment(id, name, data, options = {}) {
    const writer = await this.createAttachment(id, name, options);
    const source = data instanceof Uint8Array || typeof data === "string" ? [Buffer.from(data)] : data;
    await pipeline(Readable.from(source, { objectMode: false }), writer, { signal: options.signal });
    return writer.written;
  }

  deleteAttachment(id, name, rev) {
    return call(this.#native.deleteAttachment(id, name, rev));
  }
}

/** The text after the first member of an object: the members of this text, and its end. */
function members(said) {
  return said === "" ? "}" : `,${said.slice(1)}`;
}

module.exports = { Database };

"use strict";

const { call } = require("./errors.js");
const { cancellable } = require("./cancel.js");

const asyncDispose = Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose");

/** Reads rows from the database in groups, and returns them one at a time. */
class Cursor {
  #batch = [];
  #at = 0;
  #turn = Promise.resolve();

  [Symbol.asyncIterator]() {
    return this;
  }

  /** The next row. Calls that do not wait for each other are answered in their order. */
  next() {
    const mine = this.#turn.then(() => this.#next());
    this.#turn = mine.then(
      () => undefined,
      () => undefined,
    );
    return mine;
  }

  async #next() {
    if (this.#at === this.#batch.length) {
      const batch = await this._more();
      if (batch === null || batch === undefined) return { done: true, value: undefined };
      this.#batch = batch;
      this.#at = 0;
    }
    return { done: false, value: this.#batch[this.#at++] };
  }

  /** Called by `for await` when it is left. */
  async return(value) {
    await this.close();
    return { done: true, value };
  }

  /** The remaining items. */
  async toArray() {
    const all = [];
    for (;;) {
      const { done, value } = await this.next();
      if (done) return all;
      all.push(value);
    }
  }

  [asyncDispose]() {
    return this.close();
  }
}

/** Rows of a listing, of a view or of a query. */
class Rows extends Cursor {
  #native;
  #raw;
  #head;

  constructor(native, raw) {
    super();
    this.#native = native;
    this.#raw = Boolean(raw);
    this.#head = JSON.parse(native.head());
  }

  async _more() {
    if (this.#raw) return call(this.#native.nextTexts());
    const text = await call(this.#native.nextArray());
    return text === null || text === undefined ? null : JSON.parse(text);
  }

  get totalRows() {
    return this.#head.total_rows;
  }

  get offset() {
    return this.#head.offset;
  }

  get updateSeq() {
    return this.#head.update_seq;
  }

  async tail() {
    return JSON.parse(await call(this.#native.tail()));
  }

  close() {
    return call(this.#native.close());
  }
}

/** Changes of a database. */
class Changes extends Cursor {
  #native;
  #raw;
  #signal;

  constructor(native, { raw, timeout, signal }) {
    super();
    this.#native = native;
    this.#raw = Boolean(raw);
    this.#signal = signal;
    this.timeout = timeout;
  }

  async _more() {
    const timeout = this.timeout ?? null;
    if (this.#raw) {
      return cancellable(this.#signal, (cancel) => this.#native.nextTexts(timeout, cancel));
    }
    const text = await cancellable(this.#signal, (cancel) => this.#native.nextArray(timeout, cancel));
    return text === null || text === undefined ? null : JSON.parse(text);
  }

  lastSeq() {
    return call(this.#native.lastSeq());
  }

  close() {
    return call(this.#native.close());
  }
}

module.exports = { Rows, Changes, asyncDispose };

"use strict";

const { Readable, Writable } = require("node:stream");

const { call } = require("./errors.js");

/** The bytes of an attachment as a stream. */
class AttachmentReader extends Readable {
  #native;

  constructor(native) {
    super();
    this.#native = native;
    this.contentType = native.contentType;
    this.length = native.length;
    this.digest = native.digest;
  }

  _read() {
    call(this.#native.next()).then(
      (piece) => this.push(piece ?? null),
      (failure) => this.destroy(failure),
    );
  }

  _destroy(failure, done) {
    call(this.#native.close()).then(
      () => done(failure),
      (other) => done(failure ?? other),
    );
  }
}

/** A stream that becomes an attachment when it is ended; if it is destroyed before, nothing is written. */
class AttachmentWriter extends Writable {
  #native;
  #written;

  constructor(native) {
    super();
    this.#native = native;
  }

  /** The written document, once the stream has finished. */
  get written() {
    return this.#written;
  }

  _write(chunk, encoding, done) {
    const bytes = Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk, encoding);
    call(this.#native.write(bytes)).then(() => done(), done);
  }

  _final(done) {
    call(this.#native.finish()).then((written) => {
      this.#written = written;
      done();
    }, done);
  }

  _destroy(failure, done) {
    call(this.#native.close()).then(
      () => done(failure),
      (other) => done(failure ?? other),
    );
  }
}

module.exports = { AttachmentReader, AttachmentWriter };

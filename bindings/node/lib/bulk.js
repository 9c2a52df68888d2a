"use strict";

const { call } = require("./errors.js");
const { documentText } = require("./json.js");

/** Bytes of a content that are given on at a time. */
const PIECE_BYTES = 256 << 10;

/**
 * A document for a bulk: its JSON text, or when contents of its attachments are streams or bytes, its text and these contents by
 * name.
 */
function prepared(document) {
  const contents = contentsOf(document);
  if (!contents) return documentText(document);
  const _attachments = { ...document._attachments };
  for (const name of contents.keys()) {
    const { data, ...said } = _attachments[name];
    _attachments[name] = { ...said, follows: true };
  }
  return { text: documentText({ ...document, _attachments }), contents };
}

/** The contents of a document's attachments that are not text in Base64, by name; nothing when there are none. */
function contentsOf(document) {
  const attachments = document?._attachments;
  if (typeof attachments !== "object" || attachments === null) return undefined;
  const all = Object.entries(attachments).map(([name, said]) => [name, said?.data]);
  const contents = new Map(all.filter(([, data]) => isContent(data)));
  return contents.size > 0 ? contents : undefined;
}

function isContent(data) {
  if (typeof data === "function") return true;
  if (typeof data !== "object" || data === null) return false;
  return data instanceof Uint8Array || Symbol.asyncIterator in data || Symbol.iterator in data;
}

async function* pieces(name, content) {
  const data = typeof content === "function" ? await content() : content;
  if (data instanceof Uint8Array) {
    for (let at = 0; at < data.length; at += PIECE_BYTES) yield data.subarray(at, at + PIECE_BYTES);
    return;
  }
  for await (const piece of data) {
    if (!(piece instanceof Uint8Array)) throw new TypeError(`attachment ${name}: a ${typeof piece} is not bytes`);
    yield piece;
  }
}

/** Writes prepared documents in one commit. Of their contents a piece at a time is in memory. */
async function writeBulk(native, documents, options) {
  if (documents.every((document) => typeof document === "string")) {
    return JSON.parse(await call(native.bulk(documents, options)));
  }
  const bulk = await call(native.beginBulk(options));
  try {
    for (const document of documents) {
      const { text, contents } = typeof document === "string" ? { text: document } : document;
      for (const name of await call(bulk.add(text))) {
        if (!contents?.has(name)) throw new TypeError(`attachment ${name} has no data`);
        await call(bulk.begin());
        for await (const piece of pieces(name, contents.get(name))) {
          await call(bulk.write(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength)));
        }
        await call(bulk.end());
      }
    }
    return JSON.parse(await call(bulk.commit()));
  } finally {
    await call(bulk.close());
  }
}

module.exports = { prepared, writeBulk };

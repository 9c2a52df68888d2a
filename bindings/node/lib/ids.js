"use strict";

const { callNow } = require("./errors.js");
const { monotonicIds, sequentialIds } = require("../settee.node");

/** A source of ids: a function, and an iterator that never ends. */
function source(make, prefix) {
  if (typeof prefix !== "string") throw new TypeError("a prefix of ids is a string");
  const native = callNow(() => make(prefix));
  const next = () => native.next();
  return Object.assign(next, {
    prefix,
    next: () => ({ value: native.next(), done: false }),
    [Symbol.iterator]() {
      return this;
    },
  });
}

module.exports = {
  sequential: (prefix = "") => source(sequentialIds, prefix),
  monotonic: (prefix = "") => source(monotonicIds, prefix),
};

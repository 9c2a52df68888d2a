"use strict";

/** What the database refused, or what failed, in CouchDB's words. */
class SetteeError extends Error {
  constructor(status, error, reason) {
    super(`${error}: ${reason}`);
    this.name = "SetteeError";
    this.status = status;
    this.error = error;
    this.reason = reason;
  }
}

/** The exception for one of the compiled part, whose message has the words on lines of their own. */
function converted(failure) {
  const message = failure instanceof Error ? failure.message : "";
  if (!message.startsWith("settee\n")) return failure;
  const [, status, error, ...reason] = message.split("\n");
  return new SetteeError(Number(status), error, reason.join("\n"));
}

/** What the compiled part answers, or its exception. */
async function call(work) {
  try {
    return await work;
  } catch (failure) {
    throw converted(failure);
  }
}

/** The same of what answers at once. */
function callNow(work) {
  try {
    return work();
  } catch (failure) {
    throw converted(failure);
  }
}

module.exports = { SetteeError, call, callNow };

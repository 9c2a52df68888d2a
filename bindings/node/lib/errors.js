"use strict";

/** A refusal or a failure, with CouchDB's error names. */
class SetteeError extends Error {
  constructor(status, error, reason) {
    super(`${error}: ${reason}`);
    this.name = "SetteeError";
    this.status = status;
    this.error = error;
    this.reason = reason;
  }
}

/** The exception for one of the compiled part, whose message has one value per line. */
function converted(failure) {
  const message = failure instanceof Error ? failure.message : "";
  if (!message.startsWith("settee\n")) return failure;
  const [, status, error, ...reason] = message.split("\n");
  return new SetteeError(Number(status), error, reason.join("\n"));
}

/** The result of the compiled part, or its exception. */
async function call(work) {
  try {
    return await work;
  } catch (failure) {
    throw converted(failure);
  }
}

/** The result of a synchronous function of the compiled part, or its exception. */
function callNow(work) {
  try {
    return work();
  } catch (failure) {
    throw converted(failure);
  }
}

module.exports = { SetteeError, call, callNow };

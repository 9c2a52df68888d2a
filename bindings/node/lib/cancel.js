"use strict";

const native = require("../settee.node");
const { call } = require("./errors.js");

// Interval at which progress is reported.
const TELL_EVERY_MS = 100;

/** Work that an AbortSignal ends, or one of several. `start` gets its number in the compiled part. */
async function cancellable(signal, start) {
  const signals = [signal].flat().filter(Boolean);
  if (signals.length === 0) return call(start(0));
  for (const each of signals) each.throwIfAborted();
  const id = native.newCancel();
  const cancel = () => native.cancel(id);
  for (const each of signals) each.addEventListener("abort", cancel, { once: true });
  try {
    return await call(start(id));
  } catch (failure) {
    for (const each of signals) each.throwIfAborted();
    throw failure;
  } finally {
    for (const each of signals) each.removeEventListener("abort", cancel);
    native.endCancel(id);
  }
}

/** Work that reports its progress. An exception of `tell` ends the wait. */
async function telling(look, tell, signal, start) {
  if (!tell) return cancellable(signal, start);
  const thrown = new AbortController();
  const timer = setInterval(() => {
    try {
      const progress = look();
      if (progress) tell({ done: progress[0], total: progress[1] });
    } catch (failure) {
      clearInterval(timer);
      thrown.abort(failure);
    }
  }, TELL_EVERY_MS);
  try {
    return await cancellable([signal, thrown.signal], start);
  } finally {
    clearInterval(timer);
  }
}

module.exports = { cancellable, telling };

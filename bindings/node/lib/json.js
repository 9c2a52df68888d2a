"use strict";

// JSON.stringify turns NaN into null, and omits functions: values that a document would silently lose are refused here.

function refuse(what, place) {
  throw new TypeError(`${what} is not JSON: ${place || "the value itself"}`);
}

function check(value, place) {
  switch (typeof value) {
    case "number":
      if (!Number.isFinite(value)) refuse(String(value), place);
      return;
    case "bigint":
      refuse("a BigInt (give the document as JSON text)", place);
      return;
    case "function":
    case "symbol":
      refuse(`a ${typeof value}`, place);
      return;
    case "object":
      break;
    default:
      return;
  }
  if (value === null || typeof value.toJSON === "function") return;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      if (value[i] === undefined) refuse("undefined", `${place}[${i}]`);
      check(value[i], `${place}[${i}]`);
    }
    return;
  }
  if (value instanceof Map || value instanceof Set) refuse(`a ${value.constructor.name}`, place);
  for (const name of Object.keys(value)) {
    const member = value[name];
    // Most values are valid: their path is not needed.
    if (typeof member !== "string") check(member, `${place}.${name}`);
  }
}

/** JSON text of a value. */
function text(value) {
  check(value, "");
  return JSON.stringify(value);
}

/** JSON text of a document: an object, or text (a string or a Buffer), which is used unchanged. */
function documentText(document) {
  if (typeof document === "string") return document;
  if (Buffer.isBuffer(document)) return document.toString("utf8");
  if (typeof document !== "object" || document === null || Array.isArray(document)) {
    throw new TypeError("a document is an object, or JSON text as a string or a Buffer");
  }
  return text(document);
}

/** Options as JSON text: empty without options. `not`: names of those for this side. */
function optionsText(options, not = []) {
  const said = {};
  let any = false;
  for (const [name, value] of Object.entries(options ?? {})) {
    if (value === undefined || not.includes(name)) continue;
    said[name] = value;
    any = true;
  }
  return any ? text(said) : "";
}

module.exports = { text, documentText, optionsText };

// What everything else stands on. Users' functions run in the same global environment and may replace anything in it. So what
// is needed after loading is captured here, and no prototype is relied upon later: no methods, no iteration protocol, no
// spread, and property descriptors have no prototype.

const global = globalThis;
const { parse: parseJson, stringify } = JSON;
const { defineProperty, keys: keysOf } = Object;
const { apply } = Reflect;
const isArray = Array.isArray;
const BaseError = Error;
const toText = String;
const parseNumber = parseFloat;
const uncurry = Function.prototype.bind.bind(Function.prototype.call);
const hasOwn = uncurry(Object.prototype.hasOwnProperty);
const codeAt = uncurry(String.prototype.charCodeAt);
const cut = uncurry(String.prototype.slice);
const find = uncurry(String.prototype.indexOf);
const lower = uncurry(String.prototype.toLowerCase);
const trim = uncurry(String.prototype.trim);
const weakGet = uncurry(WeakMap.prototype.get);
const weakSet = uncurry(WeakMap.prototype.set);
const weakHas = uncurry(WeakMap.prototype.has);

/** Longest text of a value that is quoted in an error. */
const QUOTE_CHARS_MAX = 1000;

function put(object, key, value) {
  defineProperty(object, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
}

function push(array, value) {
  put(array, array.length, value);
}

function isObject(value) {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

function get(object, key) {
  try {
    return object[key];
  } catch (e) {
    return undefined;
  }
}

function own(object, key) {
  return isObject(object) && hasOwn(object, key) ? object[key] : undefined;
}

function split(text, separator) {
  const parts = [];
  let from = 0;
  for (;;) {
    const at = find(text, separator, from);
    if (at < 0) {
      push(parts, cut(text, from));
      return parts;
    }
    push(parts, cut(text, from, at));
    from = at + 1;
  }
}

function join(parts, separator) {
  let text = "";
  for (let i = 0; i < parts.length; i++) text += (i > 0 ? separator : "") + parts[i];
  return text;
}

function quote(value) {
  const text = toText(stringify(value));
  return text.length > QUOTE_CHARS_MAX ? cut(text, 0, QUOTE_CHARS_MAX) + "…" : text;
}

// ---- errors ----

/** Errors made here: their name and message are CouchDB's error and reason. The value is true for one that ends the process. */
const failures = new WeakMap();

function failure(name, message, fatal) {
  const e = new BaseError(message);
  put(e, "name", name);
  put(e, "message", message);
  weakSet(failures, e, fatal === true);
  return e;
}

/** Text of anything, however hostile. */
function describe(value) {
  try {
    if (typeof value === "string") return value;
    if (isObject(value)) {
      const name = value.name;
      const message = value.message;
      if (typeof name === "string" && typeof message === "string") return name + ": " + message;
      const json = stringify(value);
      if (typeof json === "string") return json;
    }
    return toText(value);
  } catch (e) {
    return "a value that cannot be shown";
  }
}

/** The frames of users' code in an error's stack. */
function stackOf(e) {
  const stack = isObject(e) ? get(e, "stack") : undefined;
  if (typeof stack !== "string") return toText(undefined);
  const lines = split(stack, "\n");
  let text = "";
  for (let i = 0; i < lines.length; i++) {
    if (find(lines[i], "prelude") >= 0 || find(lines[i], "node-server") >= 0) break;
    text += (i > 0 ? "\n" : "") + lines[i];
  }
  return text;
}

/** The refusal in what a function threw: an object of nothing but `forbidden` or `unauthorized`. */
function refusal(e) {
  if (!isObject(e) || weakHas(failures, e)) return undefined;
  if (hasOwn(e, "forbidden")) return { __proto__: null, forbidden: e.forbidden };
  if (hasOwn(e, "unauthorized")) return { __proto__: null, unauthorized: e.unauthorized };
  return undefined;
}

/** What to throw for what a function threw. `render` says whether CouchDB calls everything unknown a `render_error`. */
function report(e, render) {
  try {
    if (isObject(e)) {
      if (weakHas(failures, e)) return e;
      const refused = refusal(e);
      if (refused !== undefined) return refused;
      if (isArray(e) && (e[0] === "error" || e[0] === "fatal")) {
        return failure(describe(e[1]), describe(e[2]), e[0] === "fatal");
      }
      const name = get(e, "name");
      if (get(e, "error") && get(e, "reason")) return failure(describe(e.error), describe(e.reason));
      // Limits of the engine: nothing else is worth saying.
      if (name === "InternalError") return failure("InternalError", describe(e.message), true);
      if (!render && name) return failure(describe(name), describe(e.message));
    }
    if (!render) return failure("unnamed_error", describe(e));
    const message = "function raised error: " + describe(e) + " \nstacktrace: " + stackOf(e);
    host.log(message);
    return failure("render_error", message);
  } catch (hostile) {
    return failure("unnamed_error", "a value that cannot be shown");
  }
}

// ---- helpers that users' functions see ----

function sum(values) {
  let total = 0;
  if (isArray(values)) {
    for (let i = 0; i < values.length; i++) total += values[i];
  } else if (isObject(values)) {
    const keys = keysOf(values);
    for (let i = 0; i < keys.length; i++) total += values[keys[i]];
  }
  return total;
}

function toJSON(value, replacer, space) {
  return stringify(value, replacer, space);
}

function log(message) {
  host.log(typeof message === "string" ? message : toText(stringify(message)));
}

function install(name, value) {
  try {
    defineProperty(global, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
  } catch (e) {
    // Users' code made the name its own; it is the only one to miss it.
  }
}

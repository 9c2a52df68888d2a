// Shows, lists, updates and rewrites.

let chunks;
let startResponse;
let newHeaders; // start() was called since headers were last given away
let rowAsked;
let rowsEnded;
let sink; // where a list's output goes; null outside of lists
let provided;
let contentType;

function resetRender(listSink) {
  chunks = [];
  startResponse = {};
  newHeaders = false;
  rowAsked = false;
  rowsEnded = false;
  sink = listSink;
  provided = [];
  contentType = undefined;
}

resetRender(null);

function start(response) {
  startResponse = response || {};
  newHeaders = true;
}

function send(chunk) {
  if (chunk === null || chunk === undefined) throw failure("render_error", "send() needs something to send");
  push(chunks, toText(chunk));
}

function provides(type, fun) {
  push(provided, { __proto__: null, type, fun });
}

function getRow() {
  if (sink === null) throw failure("render_error", "getRow() is for list functions only");
  if (rowsEnded) return null;
  const pending = chunks;
  chunks = [];
  let row;
  if (rowAsked) {
    row = sink.chunks(pending, takeHeaders());
  } else {
    rowAsked = true;
    newHeaders = true;
    row = sink.start(pending, takeHeaders());
  }
  if (row === null) rowsEnded = true;
  return row;
}

/** The response object of start(), once. */
function takeHeaders() {
  if (!newHeaders) return undefined;
  newHeaders = false;
  return withContentType(startResponse);
}

/** A copy of an object's own members. Functions are left out, as in JSON: one named toJSON would have a say. */
function copyOf(object) {
  const copy = {};
  const keys = keysOf(object);
  for (let i = 0; i < keys.length; i++) {
    const value = object[keys[i]];
    if (!isFunction(value)) put(copy, keys[i], value);
  }
  return copy;
}

function headersOf(response) {
  const headers = own(response, "headers");
  return isObject(headers) ? copyOf(headers) : {};
}

/** A copy of a response object that has headers, and the type that was chosen by provides(). */
function withContentType(response) {
  const copy = copyOf(response);
  const headers = headersOf(response);
  put(copy, "headers", headers);
  if (contentType) {
    const names = keysOf(headers);
    let given = false;
    for (let i = 0; i < names.length; i++) given = given || lower(names[i]) === "content-type";
    if (!given) put(headers, "Content-Type", contentType);
  }
  return copy;
}

function notAcceptable(wanted) {
  const offered = [];
  for (let i = 0; i < provided.length; i++) {
    const types = typesOf[provided[i].type];
    push(offered, types === undefined || types.length === 0 ? toText(provided[i].type) : join(types, ", "));
  }
  const message = "Content-Type " + wanted + " not supported, try one of: " + join(offered, ", ");
  return failure("not_acceptable", message);
}

/** Runs the function given to provides() that the request wants most. */
function runProvided(request, ddoc) {
  const headers = own(request, "headers");
  const accept = own(headers, "Accept");
  const format = own(own(request, "query"), "format");
  let key;
  let reversed = false;
  if (format) {
    key = toText(format);
    contentType = typesOf[key] && typesOf[key][0];
  } else if (typeof accept === "string" && accept !== "") {
    const supported = [];
    for (let i = provided.length - 1; i >= 0; i--) {
      const types = typesOf[provided[i].type] || [];
      for (let j = 0; j < types.length; j++) push(supported, types[j]);
    }
    contentType = bestType(supported, accept);
    key = contentType === undefined ? undefined : keyOf[contentType];
    reversed = true;
  } else {
    key = provided[0].type;
    contentType = typesOf[key] && typesOf[key][0];
  }
  let chosen;
  for (let i = 0; i < provided.length; i++) {
    const each = provided[reversed ? provided.length - 1 - i : i];
    if (each.type === key && chosen === undefined) chosen = each.fun;
  }
  if (key === undefined || chosen === undefined) throw notAcceptable(accept || key);
  return apply(chosen, ddoc, []);
}

function wrapBody(response) {
  return typeof response === "string" ? { body: response } : response;
}

function requirePlain(response, what) {
  if (!isObject(response) || isFunction(response) || isArray(response)) {
    throw failure("render_error", "undefined response from " + what + " function");
  }
  return response;
}

/** In a show start() gives headers, or a response object. */
function mergeStart(response) {
  const headers = headersOf(response);
  const keys = keysOf(startResponse);
  for (let i = 0; i < keys.length; i++) {
    const value = startResponse[keys[i]];
    if (keys[i] === "headers" && isObject(value)) {
      const names = keysOf(value);
      for (let j = 0; j < names.length; j++) put(headers, names[j], value[names[j]]);
    } else if (keys[i] === "code" && typeof value === "number") {
      if (!hasOwn(response, "code")) put(response, "code", value);
    } else {
      put(headers, keys[i], value);
    }
  }
  put(response, "headers", headers);
}

function takeChunks() {
  const text = join(chunks, "");
  chunks = [];
  return text;
}

function bodyOf(response) {
  const body = own(response, "body");
  return body ? toText(body) : "";
}

function show(fun, ddoc, args) {
  resetRender(null);
  try {
    let response = wrapBody(apply(fun, ddoc, args) || {});
    response = copyOf(requirePlain(response, "show"));
    if (chunks.length > 0) {
      mergeStart(response);
      put(response, "body", takeChunks() + bodyOf(response));
    }
    if (provided.length > 0) {
      const body = wrapBody(runProvided(args[1], ddoc) || {});
      put(response, "body", bodyOf(response) + takeChunks() + bodyOf(body));
      response = withContentType(response);
    }
    return ["resp", response];
  } catch (e) {
    const path = own(args[1], "path");
    if (args[0] === null && isArray(path) && path.length > 5) throw failure("not_found", "document not found");
    throw report(e, true);
  }
}

function update(fun, ddoc, args) {
  resetRender(null);
  try {
    if (own(args[1], "method") === "GET") throw failure("method_not_allowed", "Update functions do not allow GET");
    const result = apply(fun, ddoc, args);
    const doc = result[0];
    const response = copyOf(requirePlain(wrapBody(result[1]), "update"));
    return ["up", doc === undefined ? null : doc, response];
  } catch (e) {
    throw report(e, true);
  }
}

function list(fun, ddoc, args, listSink) {
  resetRender(listSink);
  try {
    let tail = apply(fun, ddoc, args);
    if (provided.length > 0) tail = runProvided(args[1], ddoc);
    if (!rowAsked) getRow();
    if (tail !== undefined && tail !== null) push(chunks, toText(tail));
    listSink.end(chunks, takeHeaders());
  } catch (e) {
    throw report(e, true);
  } finally {
    sink = null;
  }
}

function rewrite(fun, ddoc, args) {
  let result;
  try {
    result = apply(fun, ddoc, args);
  } catch (e) {
    throw report(e, true);
  }
  if (!result) return ["no_dispatch_rule"];
  return ["ok", typeof result === "string" ? { path: result, method: own(args[0], "method") } : result];
}

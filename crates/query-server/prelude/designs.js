// Filters, validations, design documents, reduce functions, and what the prelude gives to its host.

// ---- filters and validation ----

function filter(fun, ddoc, args) {
  const passed = [];
  const docs = args[0];
  for (let i = 0; i < docs.length; i++) push(passed, !!apply(fun, ddoc, [docs[i], args[1]]));
  return [true, passed];
}

function filterView(fun, ddoc, args) {
  const passed = [];
  const docs = args[0];
  let emitted = false;
  const hadEmit = hasOwn(global, "emit");
  const emitBefore = hadEmit ? global.emit : undefined;
  install("emit", () => {
    emitted = true;
  });
  try {
    for (let i = 0; i < docs.length; i++) {
      emitted = false;
      apply(fun, undefined, [docs[i]]);
      push(passed, emitted);
    }
  } finally {
    if (hadEmit) install("emit", emitBefore);
    else delete global.emit;
  }
  return [true, passed];
}

/** What a validation threw, other than an error of the function itself. */
function validate(fun, ddoc, args) {
  try {
    apply(fun, ddoc, args);
  } catch (e) {
    if (isObject(e) && (weakHas(failures, e) || (get(e, "name") && get(e, "stack")))) throw e;
    return { __proto__: null, thrown: e };
  }
  return undefined;
}

// ---- design documents ----

const designs = { __proto__: null };

function addDesign(id, ddoc) {
  designs[id] = { __proto__: null, ddoc, functions: { __proto__: null } };
}

const CALLS = { __proto__: null, shows: show, updates: update, filters: filter, views: filterView, rewrites: rewrite, validate_doc_update: validate, lists: list };

function sourceAt(ddoc, path) {
  let source = ddoc;
  for (let i = 0; i < path.length; i++) source = own(source, path[i]);
  return source;
}

/** The source at `path` of a design document, or "". */
function sourceOf(id, path) {
  const text = sourceAt(designs[id].ddoc, path);
  return typeof text === "string" ? text : "";
}

/** The function at `path` of a design document: { fun, ddoc, kind }. */
function functionAt(id, path) {
  const design = designs[id];
  if (design === undefined) throw failure("query_protocol_error", "uncached design doc: " + id, true);
  const kind = path[0];
  if (CALLS[kind] === undefined) throw failure("unknown_command", "unknown ddoc command '" + describe(kind) + "'", true);
  restoreGlobals();
  install("require", requireOf(design.ddoc));
  const key = stringify(path);
  let fun = design.functions[key];
  if (fun === undefined) {
    const source = sourceAt(design.ddoc, path);
    if (!source) {
      const last = path[path.length - 1];
      throw failure("not_found", "missing " + kind + " function " + last + " on design doc " + id);
    }
    fun = compile(source, design.ddoc);
    design.functions[key] = fun;
  }
  return { __proto__: null, fun, ddoc: design.ddoc, kind };
}

/** Loads modules ahead of the first call; one that fails now fails again when it is required. */
function load(modules, names) {
  const require = requireOf(modules);
  for (let i = 0; i < names.length; i++) {
    try {
      require(names[i]);
    } catch (e) {
      // No call has required it yet.
    }
  }
}

/**
 * Compiles a function and loads modules ahead of the first call. Returns whether the function is verbatim; a function that does
 * not compile is reported by the call.
 */
function prepare(id, path, names) {
  try {
    const { ddoc, fun } = functionAt(id, path);
    load(ddoc, names);
    return isVerbatim(fun);
  } catch (e) {
    // No call has named the function yet.
    return false;
  }
}

function call(id, path, args) {
  const { fun, ddoc, kind } = functionAt(id, path);
  if (kind === "lists") throw failure("query_protocol_error", "a list function needs its rows");
  let reply;
  try {
    reply = CALLS[kind](fun, ddoc, args);
  } catch (e) {
    throw report(e, false);
  }
  if (kind !== "validate_doc_update") return reply;
  if (reply === undefined) return 1;
  throw refused(reply.thrown);
}

/** What a validation refuses with. Of an object that is no refusal CouchDB takes the one member for the reason. */
function refused(thrown) {
  try {
    const plain = refusal(thrown);
    if (plain !== undefined) return plain;
    const keys = isObject(thrown) && !isArray(thrown) ? keysOf(thrown) : [];
    return failure("unknown_error", describe(keys.length === 1 ? thrown[keys[0]] : thrown));
  } catch (e) {
    return failure("unknown_error", "a value that cannot be shown");
  }
}

/** Runs a list function; `io` has start, chunks and end, as the query server's protocol. */
function listTo(id, path, args, io) {
  const { fun, ddoc } = functionAt(id, path);
  list(fun, ddoc, args, io);
}

/** Runs a list function over the host: the response starts with its first output, so start() may come after getRow(). */
function listOverHost(id, path, args) {
  let started = false;
  let response = { headers: {} };

  function give(pieces, headers) {
    if (headers !== undefined) response = headers;
    for (let i = 0; i < pieces.length; i++) {
      if (pieces[i] === "") continue;
      begin();
      host.listChunk(pieces[i]);
    }
  }

  function begin() {
    if (!started) host.listStart(stringify(response));
    started = true;
  }

  function next(pieces, headers) {
    give(pieces, headers);
    const row = host.listRow();
    return typeof row === "string" ? parseJson(row) : null;
  }

  listTo(id, path, args, {
    __proto__: null,
    start: next,
    chunks: next,
    end(pieces, headers) {
      give(pieces, headers);
      begin();
    },
  });
}

// ---- views ----

/** Calls a reduce function. What it throws is logged and reduces to null, as in CouchDB; errors that end the call are thrown. */
function reduce(fun, keys, values, rereduce) {
  try {
    return apply(fun, undefined, [keys, values, rereduce]);
  } catch (e) {
    viewError(e);
    return null;
  }
}

/** Logs what a view's function threw, unless it is to end everything. `id` is the document's, for a map function. */
function viewError(e, id) {
  if (e === "fatal_error") throw failure("map_runtime_error", "function raised 'fatal_error'");
  const fatal = isObject(e) && (get(e, "name") === "InternalError" || get(e, 0) === "fatal");
  if (fatal) throw report(e, false);
  host.log("function raised exception " + describe(e) + (id === undefined ? "" : " with doc._id " + describe(id)));
}

// ---- the global environment ----

const globals = { __proto__: null, sum, isArray, toJSON, log, getRow, send, start, provides, registerType };

/** Undoes what a function did to the helpers, for example by forgetting `var`. */
function restoreGlobals() {
  const names = keysOf(globals);
  for (let i = 0; i < names.length; i++) {
    if (get(global, names[i]) !== globals[names[i]]) install(names[i], globals[names[i]]);
  }
}

restoreGlobals();

/** Whether an error that was thrown here is to end a query server's process. */
function isFatal(e) {
  return isObject(e) && weakGet(failures, e) === true;
}

const api = { __proto__: null, globals, compile, isVerbatim, sum, reduce, viewError, addDesign, sourceOf, load, prepare, call, list: listOverHost, listTo, isFatal };

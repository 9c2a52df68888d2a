// CouchDB's environment for users' JavaScript: helpers, CommonJS modules, and the design functions. A classic script whose
// value is a function of a host (see the end for what it gives); it runs in QuickJS and in V8, and does no I/O of its own.
//
// Users' functions run in the same global environment and may replace anything in it. So everything needed after loading is
// captured here; no prototype is relied upon later: no methods, no iteration protocol, no spread, and property
// descriptors have no prototype.
(function (host) {
  "use strict";

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
        if (e.error && e.reason) return failure(describe(e.error), describe(e.reason));
        // Limits of the engine: nothing else is worth saying.
        if (e.name === "InternalError") return failure("InternalError", describe(e.message), true);
        if (!render && e.name) return failure(describe(e.name), describe(e.message));
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

  // ---- sources ----

  const NEWLINE = 10;
  const SLASH = 47;
  const STAR = 42;

  function isSpace(c) {
    return c === 32 || (c >= 9 && c <= 13) || c === 0xa0 || c === 0xfeff || c === 0x2028 || c === 0x2029;
  }

  function isWord(c) {
    return (c >= 48 && c <= 57) || (c >= 65 && c <= 90) || (c >= 97 && c <= 122) || c === 95 || c === 36 || c >= 0x80;
  }

  /** Where the comment or white space at `i` ends. */
  function skipTrivia(source, i) {
    for (;;) {
      const c = codeAt(source, i);
      if (isSpace(c)) {
        i++;
      } else if (c === SLASH && codeAt(source, i + 1) === SLASH) {
        while (i < source.length && codeAt(source, i) !== NEWLINE) i++;
      } else if (c === SLASH && codeAt(source, i + 1) === STAR) {
        const end = find(source, "*/", i + 2);
        i = end < 0 ? source.length : end + 2;
      } else {
        return i;
      }
    }
  }

  function wordAt(source, i) {
    let end = i;
    while (end < source.length && isWord(codeAt(source, end))) end++;
    return cut(source, i, end);
  }

  /** Whether an anonymous `function` begins at `i`; CouchDB takes such a statement for an expression. */
  function isAnonymousAt(source, i) {
    if (wordAt(source, i) !== "function") return false;
    i = skipTrivia(source, i + 8);
    if (codeAt(source, i) === STAR) i = skipTrivia(source, i + 1);
    return source[i] === "(";
  }

  /** Where the string or regular expression at `i` ends. */
  function skipQuoted(source, i) {
    const quoteMark = codeAt(source, i);
    let inClass = false;
    for (i++; i < source.length; i++) {
      const c = codeAt(source, i);
      if (c === 92) i++;
      else if (quoteMark === SLASH && c === 91) inClass = true;
      else if (quoteMark === SLASH && c === 93) inClass = false;
      else if (c === quoteMark && !inClass) return i + 1;
    }
    return i;
  }

  // Words after which a slash begins a regular expression.
  const BEFORE_OPERAND = { __proto__: null, return: 1, typeof: 1, case: 1, in: 1, of: 1, delete: 1, void: 1, throw: 1, new: 1, else: 1, do: 1 };

  /** Start and end of the last anonymous function among the statements of a script, or undefined. */
  function lastAnonymous(source) {
    let found;
    let open = -1; // where the anonymous function that is being passed began
    let depth = 0;
    let atStatement = true;
    let operandBefore = false;
    const templates = []; // depths at which a `${` was opened
    for (let i = skipTrivia(source, 0); i < source.length; i = skipTrivia(source, i)) {
      const c = source[i];
      if (isWord(codeAt(source, i))) {
        if (depth === 0 && atStatement && isAnonymousAt(source, i)) open = i;
        const word = wordAt(source, i);
        operandBefore = BEFORE_OPERAND[word] === undefined;
        atStatement = false;
        i += word.length;
        continue;
      }
      const closesTemplate = c === "}" && templates.length > 0 && templates[templates.length - 1] === depth;
      if (c === "`" || closesTemplate) {
        if (closesTemplate) templates.length--;
        for (i++; i < source.length && source[i] !== "`" && !(source[i] === "$" && source[i + 1] === "{"); i++) {
          if (source[i] === "\\") i++;
        }
        if (source[i] === "$") {
          push(templates, depth);
          i++;
        }
        i++;
        operandBefore = source[i - 1] === "`";
        atStatement = false;
        continue;
      }
      if (c === "'" || c === '"' || (c === "/" && !operandBefore)) {
        i = skipQuoted(source, i);
        operandBefore = true;
        atStatement = false;
        continue;
      }
      if (c === "(" || c === "[" || c === "{") depth++;
      if (c === ")" || c === "]" || c === "}") depth--;
      i++;
      operandBefore = c === ")" || c === "]";
      atStatement = c === ";" || c === "}";
      if (depth === 0 && c === "}" && open >= 0) {
        found = { __proto__: null, start: open, end: i };
        open = -1;
      }
    }
    return found;
  }

  /** The script whose value is the function that `source` means. */
  function scriptOf(source) {
    const start = skipTrivia(source, 0);
    if (!isAnonymousAt(source, start)) return source;
    let end = source.length;
    while (end > start && (isSpace(codeAt(source, end - 1)) || source[end - 1] === ";")) end--;
    return "(" + cut(source, 0, end) + "\n)";
  }

  function isFunction(value) {
    return typeof value === "function";
  }

  function evaluateFunction(source) {
    let first;
    try {
      return host.evaluate(scriptOf(source));
    } catch (e) {
      first = e;
    }
    // Statements before or after an anonymous function, as inlined libraries leave them.
    const span = get(first, "name") === "SyntaxError" ? lastAnonymous(source) : undefined;
    if (span === undefined) throw first;
    try {
      const fun = cut(source, span.start, span.end);
      return host.evaluate(cut(source, 0, span.start) + "\n;(" + fun + "\n);\n" + cut(source, span.end));
    } catch (e) {
      throw get(e, "name") === "SyntaxError" ? first : e;
    }
  }

  /** The `require` of everything that is compiled with these modules. */
  const requires = new WeakMap();

  function requireOf(modules) {
    let require = weakGet(requires, modules);
    if (require === undefined) {
      require = makeRequire(modules);
      weakSet(requires, modules, require);
    }
    return require;
  }

  function compile(source, modules) {
    if (typeof source !== "string") throw failure("compilation_error", "Expression does not eval to a function. (" + quote(source) + ")");
    if (source === "") throw failure("not_found", "missing function");
    if (isObject(modules)) install("require", requireOf(modules));
    let fun;
    try {
      fun = evaluateFunction(source);
    } catch (e) {
      throw failure("compilation_error", describe(e) + " (" + source + ")");
    }
    if (!isFunction(fun)) throw failure("compilation_error", "Expression does not eval to a function. (" + source + ")");
    return fun;
  }

  // ---- CommonJS modules ----

  /** Finds a module: `node` is { value, parent, id }, the place in the design document that names are looked up in. */
  function resolve(name, node, root) {
    const names = split(name, "/");
    for (let i = 0; i < names.length; i++) {
      const n = names[i];
      if (n === ".") continue;
      if (n === "..") {
        if (node.parent === undefined) throw failure("invalid_require_path", "Object has no parent " + quote(node.value));
        node = node.parent;
        continue;
      }
      if (i === 0) node = root;
      const value = own(node.value, n);
      if (value === undefined) throw failure("invalid_require_path", 'Object has no property "' + n + '". ' + quote(node.value));
      node = { __proto__: null, value, parent: node, id: node.id === "" ? n : node.id + "/" + n };
    }
    if (typeof node.value !== "string") {
      throw failure("invalid_require_path", "Must require a JavaScript string, not: " + typeof node.value);
    }
    return node;
  }

  function makeRequire(modules) {
    const root = { __proto__: null, value: modules, parent: undefined, id: "" };
    const loaded = { __proto__: null };

    function requireFrom(place, name) {
      const node = resolve(toText(name), place, root);
      const before = loaded[node.id];
      if (before !== undefined) return before.exports;
      const module = { id: node.id, current: node.value, parent: { id: node.parent.id, current: node.parent.value }, exports: {} };
      // In place before the module runs, so that a cycle sees what is exported so far.
      loaded[node.id] = module;
      try {
        const run = host.evaluate("(function (module, exports, require) { " + node.value + "\n })");
        apply(run, global, [module, module.exports, (id) => requireFrom(node.parent, id)]);
      } catch (e) {
        delete loaded[node.id];
        throw failure("compilation_error", "Module require('" + toText(name) + "') raised error " + describe(e));
      }
      return module.exports;
    }

    return (name) => requireFrom(root, name);
  }

  // ---- content types ----

  const typesOf = { __proto__: null };
  const keyOf = { __proto__: null };

  function registerType(key) {
    const types = [];
    for (let i = 1; i < arguments.length; i++) {
      const type = toText(arguments[i]);
      push(types, type);
      keyOf[type] = key;
    }
    typesOf[key] = types;
  }

  registerType("all", "*/*");
  registerType("text", "text/plain; charset=utf-8", "txt");
  registerType("html", "text/html; charset=utf-8");
  registerType("xhtml", "application/xhtml+xml", "xhtml");
  registerType("xml", "application/xml", "text/xml", "application/x-xml");
  registerType("js", "text/javascript", "application/javascript", "application/x-javascript");
  registerType("css", "text/css");
  registerType("ics", "text/calendar");
  registerType("csv", "text/csv");
  registerType("rss", "application/rss+xml");
  registerType("atom", "application/atom+xml");
  registerType("yaml", "application/x-yaml", "text/yaml");
  registerType("multipart_form", "multipart/form-data");
  registerType("url_encoded_form", "application/x-www-form-urlencoded");
  registerType("json", "application/json", "text/x-json");

  /** A media type or range: { type, subtype, params, q }. */
  function mediaRange(text) {
    const parts = split(text, ";");
    const full = trim(parts[0]);
    const names = split(full === "*" ? "*/*" : full, "/");
    const params = { __proto__: null };
    for (let i = 1; i < parts.length; i++) {
      const pair = split(parts[i], "=");
      if (pair.length === 2) params[trim(pair[0])] = trim(pair[1]);
    }
    let q = params.q === undefined ? 1 : parseNumber(params.q);
    if (!(q >= 0 && q <= 1)) q = 1;
    return { __proto__: null, type: names[0], subtype: names[1], params, q };
  }

  /** How closely a range names a type; -1 when it does not. */
  function fitness(range, target) {
    const wild = (a, b) => a === b || a === "*" || b === "*";
    if (!wild(range.type, target.type) || !wild(range.subtype, target.subtype)) return -1;
    let score = (range.type === target.type ? 100 : 0) + (range.subtype === target.subtype ? 10 : 0);
    const names = keysOf(target.params);
    for (let i = 0; i < names.length; i++) {
      if (names[i] !== "q" && range.params[names[i]] === target.params[names[i]]) score++;
    }
    return score;
  }

  /** The supported type that an Accept header names most closely, then wants most; of equals the last. */
  function bestType(supported, accept) {
    const texts = split(accept, ",");
    const ranges = [];
    for (let i = 0; i < texts.length; i++) push(ranges, mediaRange(texts[i]));
    let best;
    let bestScore = -1;
    let bestQ = 0;
    for (let i = 0; i < supported.length; i++) {
      const target = mediaRange(supported[i]);
      let score = -1;
      let q = 0;
      for (let j = 0; j < ranges.length; j++) {
        const s = fitness(ranges[j], target);
        if (s > score) {
          score = s;
          q = ranges[j].q;
        }
      }
      if (q > 0 && (score > bestScore || (score === bestScore && q >= bestQ))) {
        best = supported[i];
        bestScore = score;
        bestQ = q;
      }
    }
    return best;
  }

  // ---- shows, lists, updates, rewrites ----

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

  function copyOf(object) {
    const copy = {};
    const keys = keysOf(object);
    for (let i = 0; i < keys.length; i++) put(copy, keys[i], object[keys[i]]);
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
      const response = requirePlain(wrapBody(result[1]), "update");
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

  function dropDesign(id) {
    delete designs[id];
  }

  const CALLS = { __proto__: null, shows: show, updates: update, filters: filter, views: filterView, rewrites: rewrite, validate_doc_update: validate, lists: list };

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
      let source = design.ddoc;
      for (let i = 0; i < path.length; i++) source = own(source, path[i]);
      if (!source) {
        const last = path[path.length - 1];
        throw failure("not_found", "missing " + kind + " function " + last + " on design doc " + id);
      }
      fun = compile(source, design.ddoc);
      design.functions[key] = fun;
    }
    return { __proto__: null, fun, ddoc: design.ddoc, kind };
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

  function install(name, value) {
    try {
      defineProperty(global, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
    } catch (e) {
      // Users' code made the name its own; it is the only one to miss it.
    }
  }

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

  return { __proto__: null, globals, compile, sum, reduce, viewError, addDesign, dropDesign, call, list: listOverHost, listTo, isFatal };
})

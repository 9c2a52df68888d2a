// CouchDB's query server for Node: the line protocol on standard input and output.
//
// Users' functions run in `vm` contexts of their own: one for views, made anew after a reset, and one for each design
// document. No object of Node's own realm may reach them, or they could climb to `process` by its constructor: only
// strings cross the border, by functions that are made inside (see DRIVER). This is no sandbox against a determined
// attacker; the process needs the operating system's limits as well.
"use strict";

const fs = require("fs");
const vm = require("vm");

const PRELUDE = fs.readFileSync(__dirname + "/prelude.js", "utf8");

/** Answers wait for a blocking read, or until there are this many characters of them, or until one of them is this old. */
const OUTPUT_CHARS_MAX = 1 << 16;
const OUTPUT_AGE_MS_MAX = 20;
const READ_BYTES = 1 << 16;
/** Contexts of design documents that are kept; one that was dropped is made again from its source. */
const DESIGN_CONTEXTS_MAX = 64;
const RETRY_MS = 1;

// ---- input and output ----

const sleeper = new Int32Array(new SharedArrayBuffer(4));
const input = { pieces: [], rest: Buffer.alloc(0), ended: false };
let output = "";
let flushed = Date.now();
let muted = false;

function retry(e) {
  if (e.code !== "EAGAIN" && e.code !== "EINTR") return false;
  Atomics.wait(sleeper, 0, 0, RETRY_MS);
  return true;
}

function flush() {
  let bytes = Buffer.from(output, "utf8");
  output = "";
  flushed = Date.now();
  while (bytes.length > 0) {
    try {
      bytes = bytes.subarray(fs.writeSync(1, bytes));
    } catch (e) {
      if (!retry(e)) process.exit(1); // nobody listens any more
    }
  }
}

function write(text) {
  if (muted) return;
  output += text + "\n";
  // Many commands may be read ahead of a slow function: their sender counts the time from answer to answer.
  if (output.length >= OUTPUT_CHARS_MAX || Date.now() - flushed >= OUTPUT_AGE_MS_MAX) flush();
}

/** More input; false at its end. */
function fill() {
  flush();
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  for (;;) {
    try {
      const n = fs.readSync(0, buffer, 0, READ_BYTES, null);
      input.rest = buffer.subarray(0, n);
      return n > 0;
    } catch (e) {
      if (e.code === "EOF") return false;
      if (!retry(e)) throw e;
    }
  }
}

/** The next line that is not blank, null at the end of input. */
function readLine() {
  for (;;) {
    const at = input.rest.indexOf(10);
    if (at >= 0) {
      const last = input.rest.subarray(0, at);
      const bytes = input.pieces.length > 0 ? Buffer.concat([...input.pieces, last]) : last;
      input.pieces = [];
      input.rest = input.rest.subarray(at + 1);
      const line = bytes.toString("utf8");
      if (line.trim() !== "") return line;
      continue;
    }
    if (input.rest.length > 0) input.pieces.push(input.rest);
    input.rest = Buffer.alloc(0);
    if (!fill()) return null;
  }
}

// ---- contexts ----

/**
 * What runs inside a context: a function of the outer functions and of the prelude's, giving a function that takes a line
 * and says how to go on ("", or "fatal"). It is evaluated from its text, so it sees nothing of this file.
 */
const DRIVER = function driver(outer, prelude) {
  "use strict";
  const { parse, stringify } = JSON;
  const { freeze, keys, defineProperty } = Object;
  const InnerError = Error;
  const isArray = Array.isArray;
  const apply = Reflect.apply;

  const put = (object, key, value) => {
    defineProperty(object, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  };
  const push = (array, value) => put(array, array.length, value);

  // What an outer function throws is never seen by users' code: it belongs to the other realm.
  const guarded = (f, text) => {
    let result;
    try {
      result = f(text);
    } catch (e) {
      result = undefined;
    }
    return result;
  };
  const writeLine = (text) => {
    guarded(outer.write, text);
  };
  const reply = (value) => {
    const text = stringify(value);
    writeLine(typeof text === "string" ? text : "null");
  };

  const log = (text) => writeLine(stringify(["log", text]));
  const evaluate = (source) => {
    const script = guarded(outer.compile, source);
    if (script === undefined || typeof script === "string") {
      const e = new InnerError(script);
      put(e, "name", "SyntaxError");
      throw e;
    }
    let failed;
    let value;
    try {
      value = script();
    } catch (e) {
      failed = guarded(outer.describe, e);
    }
    if (failed !== undefined) throw failed;
    return value;
  };

  const api = prelude({ __proto__: null, evaluate, log });
  const functions = [];
  const reducers = { __proto__: null };
  let emitted = [];
  let lib = null;
  let config = { __proto__: null };

  const emit = (key, value) => push(emitted, [key, value]);
  defineProperty(globalThis, "emit", { __proto__: null, value: emit, writable: true, enumerable: false, configurable: true });

  // A function must not change what the next one sees of the document. What lies deeper than this is not protected.
  const SEAL_DEPTH_MAX = 200;
  const seal = (value, depth) => {
    freeze(value);
    if (depth >= SEAL_DEPTH_MAX) return;
    const names = keys(value);
    for (let i = 0; i < names.length; i++) {
      const member = value[names[i]];
      if (typeof member === "object" && member !== null) seal(member, depth + 1);
    }
  };

  const mapDoc = (doc) => {
    seal(doc, 0);
    let line = "[";
    for (let i = 0; i < functions.length; i++) {
      let rows;
      emitted = [];
      try {
        apply(functions[i], undefined, [doc]);
        rows = stringify(emitted);
      } catch (e) {
        api.viewError(e, doc._id);
        rows = "[]";
      }
      line += (i > 0 ? "," : "") + (typeof rows === "string" ? rows : "[]");
    }
    writeLine(line + "]");
  };

  const reducer = (source) => {
    if (typeof source !== "string") return api.compile(source, null);
    if (reducers[source] === undefined) reducers[source] = api.compile(source, null);
    return reducers[source];
  };

  const LIMIT_CHARS = 4096;
  const LIMIT_RATIO = 2;

  const runReduce = (sources, keysOfRows, values, rereduce, lineChars) => {
    const results = [];
    let sourceChars = 0;
    for (let i = 0; i < sources.length; i++) {
      sourceChars += typeof sources[i] === "string" ? sources[i].length : 0;
      push(results, reducer(sources[i]));
    }
    for (let i = 0; i < results.length; i++) put(results, i, api.reduce(results[i], keysOfRows, values, rereduce));
    const text = stringify(results);
    const inputChars = lineChars - sourceChars;
    const limit = config.reduce_limit;
    const charsMax = typeof config.reduce_limit_threshold === "number" ? config.reduce_limit_threshold : LIMIT_CHARS;
    const ratio = typeof config.reduce_limit_ratio === "number" ? config.reduce_limit_ratio : LIMIT_RATIO;
    if (limit && text.length > charsMax && text.length * ratio > inputChars) {
      const message = "Reduce output must shrink more rapidly: input size: " + inputChars + " output size: " + text.length;
      if (limit !== "log") {
        reply(["error", "reduce_overflow_error", message]);
        return;
      }
      log("reduce_overflow_error: " + message);
    }
    writeLine("[true," + text + "]");
  };

  const reduceRows = (sources, rows, lineChars) => {
    const keysOfRows = [];
    const values = [];
    for (let i = 0; i < rows.length; i++) {
      push(keysOfRows, rows[i][0]);
      push(values, rows[i][1]);
    }
    runReduce(sources, keysOfRows, values, false, lineChars);
  };

  /** The dialogue of a list function. */
  const rows = (label, pieces, headers) => {
    const message = [label, pieces];
    if (headers !== undefined) push(message, headers);
    reply(message);
    if (label === "end") return undefined;
    const line = guarded(outer.read, "");
    const answer = typeof line === "string" ? parse(line) : ["list_end"];
    if (answer[0] === "list_end") return null;
    if (answer[0] !== "list_row") throw ["fatal", "list_error", "not a row '" + answer[0] + "'"];
    return answer[1];
  };
  const io = {
    __proto__: null,
    start: (pieces, headers) => rows("start", pieces, headers),
    chunks: (pieces, headers) => rows("chunks", pieces, headers),
    end: (pieces, headers) => rows("end", pieces, headers),
  };

  const design = (command) => {
    if (command[1] === "new") {
      api.addDesign(command[2], command[3]);
      reply(true);
    } else if (isArray(command[2]) && command[2][0] === "lists") {
      api.listTo(command[1], command[2], command[3], io);
    } else {
      reply(api.call(command[1], command[2], command[3]));
    }
  };

  const run = (command, lineChars) => {
    switch (command[0]) {
      case "reset":
        config = command[1] || { __proto__: null };
        return reply(true);
      case "add_lib":
        lib = command[1];
        return reply(true);
      case "add_fun":
        push(functions, api.compile(command[1], { views: { lib } }));
        return reply(true);
      case "map_doc":
        return mapDoc(command[1]);
      case "reduce":
        return reduceRows(command[1], command[2], lineChars);
      case "rereduce":
        return runReduce(command[1], null, command[2], true, lineChars);
      case "ddoc":
        return design(command);
      default:
        throw ["fatal", "unknown_command", "unknown command '" + command[0] + "'"];
    }
  };

  /** Answers an error; true when the process is to end. */
  const answerError = (e, command) => {
    if (isArray(e)) {
      reply(["error", e[1], e[2]]);
      return true;
    }
    const validation = command[0] === "ddoc" && isArray(command[2]) && command[2][0] === "validate_doc_update";
    const refusal = "forbidden" in e ? "forbidden" : "unauthorized" in e ? "unauthorized" : undefined;
    if (refusal !== undefined) {
      reply(validation ? e : ["error", refusal, e[refusal]]);
      return false;
    }
    reply(["error", e.name, e.message]);
    return api.isFatal(e);
  };

  /** A line that is no command leaves nothing to go on with. */
  const commandOf = (line) => {
    let command;
    try {
      command = parse(line);
    } catch (e) {
      throw ["fatal", "query_protocol_error", "not JSON: " + e.message];
    }
    if (!isArray(command)) throw ["fatal", "query_protocol_error", "a command is an array"];
    return command;
  };

  return (line) => {
    let command = [];
    try {
      command = commandOf(line);
      run(command, line.length);
    } catch (e) {
      try {
        return answerError(e, command) ? "fatal" : "";
      } catch (hostile) {
        writeLine('["error","unnamed_error","an error that cannot be shown"]');
      }
    }
    return "";
  };
};

function newContext() {
  // Node 22 can make a global that is no proxy, which makes every use of a global much faster.
  const plain = vm.constants && vm.constants.DONT_CONTEXTIFY;
  const context = vm.createContext(plain === undefined ? {} : plain, {
    // As in CouchDB: no eval() and no Function() from text.
    codeGeneration: { strings: false, wasm: false },
  });
  const outer = {
    __proto__: null,
    write,
    read: readLine,
    describe,
    compile(source) {
      let script;
      try {
        script = new vm.Script(source, { filename: "function.js" });
      } catch (e) {
        return String(e && e.message);
      }
      return () => script.runInContext(context);
    },
  };
  const prelude = vm.runInContext(PRELUDE, context, { filename: "prelude.js" });
  return vm.runInContext(`(${DRIVER.toString()})`, context, { filename: "node-server-driver.js" })(outer, prelude);
}

/** Text of what a script threw, from whichever realm. */
function describe(e) {
  try {
    return (e && typeof e === "object" && e.message ? `${e.name}: ${e.message}` : String(e)) || "an error";
  } catch (hostile) {
    return "an error that cannot be shown";
  }
}

// ---- commands ----

let views = null;
let reset = '["reset"]';
const designs = new Map(); // id → { source, run }, the latest used last

function runViews(line) {
  if (views === null) {
    views = newContext();
    quietly(views, reset);
  }
  return views(line);
}

/** Runs a command whose answer was given before. */
function quietly(run, line) {
  muted = true;
  run(line);
  muted = false;
}

function runDesign(line) {
  // The command's text is read inside; here only the id at its beginning.
  const parts = /^\s*\[\s*"ddoc"\s*,\s*("(?:[^"\\]|\\.)*")\s*(?:,\s*("(?:[^"\\]|\\.)*"))?/.exec(line);
  if (parts === null) return runViews(line);
  const first = JSON.parse(parts[1]);
  const id = first === "new" && parts[2] !== undefined ? JSON.parse(parts[2]) : first;
  if (first === "new") {
    const run = newContext();
    designs.delete(id);
    designs.set(id, { source: line, run });
    trim();
    return run(line);
  }
  const design = designs.get(id);
  if (design === undefined) return runViews(line);
  if (design.run === null) {
    design.run = newContext();
    quietly(design.run, design.source);
  }
  designs.delete(id);
  designs.set(id, design);
  trim();
  return design.run(line);
}

/** Gives up the contexts that were not used for longest. */
function trim() {
  let live = 0;
  for (const design of designs.values()) live += design.run === null ? 0 : 1;
  for (const design of designs.values()) {
    if (live <= DESIGN_CONTEXTS_MAX) break;
    if (design.run !== null) {
      design.run = null;
      live--;
    }
  }
}

function runLine(line) {
  if (line.startsWith('["map_doc"')) return runViews(line);
  if (/^\s*\[\s*"ddoc"/.test(line)) return runDesign(line);
  if (/^\s*\[\s*"reset"/.test(line)) {
    views = null;
    reset = line;
    write("true");
    return "";
  }
  return runViews(line);
}

for (let line = readLine(); line !== null; line = readLine()) {
  if (runLine(line) === "fatal") {
    flush();
    process.exit(255);
  }
}
flush();
process.exit(0);

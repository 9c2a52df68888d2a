"""The query server for Node that comes with the program, by CouchDB's line protocol.

Every case is a session: the lines that are sent, and the lines that CouchDB's server answers. The expected answers come from
CouchDB's documentation of the protocol and from recorded HTTP answers of CouchDB 3.5; where CouchDB's own answer is an
accident (an error object that turns to `{}`), ours is said in words and noted at the case.
"""

import json
import re
import subprocess

import pytest

pytestmark = pytest.mark.quick

TIMEOUT_S = 120
ALONE_ONE_IN = 8


def lay_out(folder, crates):
    """Puts the server and its prelude into a folder, as settee does. Gives the server's path."""
    source = (crates / "query-server" / "src" / "prelude.rs").read_text()
    parts = re.findall(r'include_str!\("\.\./(prelude/[a-z_]+\.js)"\)', source)
    text = "".join((crates / "query-server" / part).read_text() for part in parts)
    (folder / "prelude.js").write_text('(function (host) {\n"use strict";\n' + text + "return api;\n})\n")
    server = folder / "node-server.js"
    server.write_text((crates / "query-server" / "node" / "node-server.js").read_text())
    return server


class Has:
    """Matches a text that has all of these parts."""

    def __init__(self, *parts):
        self.parts = parts

    def __eq__(self, other):
        return isinstance(other, str) and all(part in other for part in self.parts)

    def __repr__(self):
        return f"Has{self.parts!r}"


class Lines(list):
    """A session's cases, gathered by name."""

    def case(self, name, sent, expected, code=0):
        self.append((name, sent, expected, code))

    def map(self, name, source, doc, rows, lib=None, logs=()):
        """One map function over one document."""
        sent = [["reset"]] + ([["add_lib", lib]] if lib is not None else []) + [["add_fun", source], ["map_doc", doc]]
        self.case("map: " + name, sent, [True] * (len(sent) - 1) + list(logs) + [[rows]])

    def refused(self, name, source, error, reason):
        self.case("compile: " + name, [["reset"], ["add_fun", source]], [True, ["error", error, reason]])

    def reduce(self, name, source, keys, values, result, logs=()):
        rows = [[key, value] for key, value in zip(keys, values)]
        self.case("reduce: " + name, [["reset"], ["reduce", [source], rows]], [True, *logs, [True, [result]]])

    def design(self, name, ddoc, *calls):
        """Calls of one design document: (path, args, answers)."""
        sent, expected = [["ddoc", "new", "_design/d", dict(ddoc, _id="_design/d")]], [True]
        for path, args, *answers in calls:
            sent.append(["ddoc", "_design/d", path, args])
            expected += answers
        self.case(name, sent, expected)

    def show(self, name, source, answer, doc=None, req=None, logs=(), **more):
        self.design("show: " + name, {"shows": {"s": source}, **more}, (["shows", "s"], [doc, request(**(req or {}))], *logs, answer))

    def update(self, name, source, answer, doc=None, req=None, logs=()):
        made = request(**{"method": "POST", **(req or {})})
        self.design("update: " + name, {"updates": {"u": source}}, (["updates", "u"], [doc, made], *logs, answer))

    def validate(self, name, source, answer, new=None, old=None, user=None, security=None, **more):
        args = [new or {"_id": "a"}, old, user or {"db": "db", "name": None, "roles": []}, security or {}]
        self.design("validate: " + name, {"validate_doc_update": source, **more}, (["validate_doc_update"], args, answer))

    def list(self, name, source, rows, expected, head=None, req=None, code=0, **more):
        """A whole list dialogue. `expected` are the answers; the lines are rows, then the end, as many as answers are left."""
        head = {"total_rows": len(rows), "offset": 0} if head is None else head
        sent = [
            ["ddoc", "new", "_design/d", {"_id": "_design/d", "lists": {"l": source}, **more}],
            ["ddoc", "_design/d", ["lists", "l"], [head, request(**(req or {}))]],
        ]
        sent += [["list_row", row] for row in rows] + [["list_end"]]
        self.case("list: " + name, sent, [True, *expected], code)


def request(**members):
    return {
        "method": "GET",
        "path": ["db", "_design", "d", "_show", "s"],
        "query": {},
        "headers": {},
        "form": {},
        "id": None,
        "userCtx": {"db": "db", "name": None, "roles": []},
        **members,
    }


def row(key, value=1):
    return {"id": str(key), "key": key, "value": value}


def views(t):
    doc = {"_id": "a", "_rev": "1-x", "v": 1, "tags": ["x", "y"]}
    t.map("no arguments are nulls", "function(doc){ emit(); }", doc, [[None, None]])
    t.map("a value left out is null", "function(doc){ emit(doc.v); }", doc, [[1, None]])
    t.map("numbers that JSON lacks are null", "function(doc){ emit(NaN, Infinity); emit(1/3, -0); }", doc, [[None, None], [1 / 3, 0]])
    t.map("a function is null", "function(doc){ emit('f', function(){}); }", doc, [["f", None]])
    t.map("undefined inside", "function(doc){ emit([undefined, 1], {a: undefined, b: 2}); }", doc, [[[None, 1], {"b": 2}]])
    t.map("a date is its JSON", "function(doc){ emit(new Date(0), null); }", doc, [["1970-01-01T00:00:00.000Z", None]])
    t.map("many rows keep their order", "function(doc){ for (var i = 0; i < 3; i++) emit(i % 2, i); }", doc, [[0, 0], [1, 1], [0, 2]])
    t.map("documents are frozen", "function(doc){ doc.v = 5; doc.tags[0] = 'z'; emit(doc.v, doc.tags); }", doc, [[1, ["x", "y"]]])
    t.map("an emitted object is taken at the end", "function(doc){ var o = {}; emit(1, o); o.late = true; }", doc, [[1, {"late": True}]])
    t.map(
        "what was emitted before a throw is dropped",
        "function(doc){ emit(1, 1); throw 'late'; }",
        doc,
        [],
        logs=[["log", "function raised exception late with doc._id a"]],
    )
    t.map(
        "an error is logged with the document",
        "function(doc){ emit(doc.none.x); }",
        doc,
        [],
        logs=[["log", Has("function raised exception TypeError: ", " with doc._id a")]],
    )
    t.map("helpers", "function(doc){ emit(toJSON(doc.v), isArray([])); emit(sum([1,2,3]), isArray({})); }", doc, [["1", True], [6, False]])
    t.map(
        "log of a text and of a value",
        "function(doc){ log('hi'); log({a: 1}); emit(1); }",
        doc,
        [[1, None]],
        logs=[["log", "hi"], ["log", '{"a":1}']],
    )
    t.map("arrow function", "(doc) => { emit(doc._id, doc.v); }", doc, [["a", 1]])
    t.map("arrow function with a semicolon", "doc => emit(doc._id, doc.v);", doc, [["a", 1]])
    t.map("space and comment before", "\n // hello\n function(doc) { emit(doc._id, null); }\n", doc, [["a", None]])
    t.map("semicolons, space and comment after", "function(doc) { emit(doc._id, null); } ; ; \n /* end; */ // really", doc, [["a", None]])
    t.map("async function", "async function(doc) { emit(1); }", doc, [[1, None]])
    t.map("a generator emits nothing", "function* (doc) { emit(1); }", doc, [])
    t.map("parentheses", "(function(doc) { emit(1, 2); })", doc, [[1, 2]])
    t.map("a named function in parentheses", "(function map(doc) { emit(1, 2); });", doc, [[1, 2]])
    t.map(
        "a library before the function",
        "function helper(x) { return x + '}' + /[/}]/.source; }\nvar two = 2;\nfunction(doc) { emit(helper('a'), two); }",
        doc,
        [["a}[/}]", 2]],
    )
    t.map("a library after the function", "function(doc) { emit(`${helper(`{`)}`, 1); }\nfunction helper(x) { return x; }", doc, [["{", 1]])
    t.map("a variable's value", "var f = function(doc) { emit('v'); }; f", doc, [["v", None]])
    t.map("this is the global environment, or nothing strict", "function(doc) { emit(typeof this.sum); }", doc, [["function", None]])
    t.map("large integers are JavaScript's", "function(doc) { emit(doc.n, doc.f); }", {"_id": "a", "n": 2**53 + 1, "f": 1.0}, [[2**53, 1]])
    t.map("no eval", "function(doc) { emit(eval('1+1')); }", doc, [], logs=[["log", Has("EvalError")]])
    t.map("no Node", "function(doc) { emit([typeof process, typeof module, typeof Buffer, typeof setTimeout]); }", doc, [[["undefined"] * 4, None]])
    t.map("half a surrogate pair is escaped", "function(doc) { emit(doc.s.charAt(0)); }", {"_id": "a", "s": "\U0001f600"}, [["\ud83d", None]])
    t.case(
        "map: functions in their order, and one that throws",
        [
            ["reset"],
            ["add_fun", "function(doc){ emit(1, doc.v); }"],
            ["add_fun", "function(doc){ throw {a: 1}; }"],
            ["add_fun", "function(doc){}"],
            ["map_doc", doc],
            ["map_doc", {"_id": "b"}],
        ],
        [
            True,
            True,
            True,
            True,
            ["log", 'function raised exception {"a":1} with doc._id a'],
            [[[1, 1]], [], []],
            ["log", 'function raised exception {"a":1} with doc._id b'],
            [[[1, None]], [], []],
        ],
    )
    t.case("map: reset forgets functions", [["reset"], ["add_fun", "function(doc){ emit(1); }"], ["reset"], ["map_doc", doc]], [True, True, True, []])
    t.case(
        "map: reset forgets globals",
        [
            ["reset"],
            ["add_fun", "function(doc){ leak = 1; sum = null; }"],
            ["map_doc", doc],
            ["reset"],
            ["add_fun", "function(doc){ emit(typeof leak, typeof sum); }"],
            ["map_doc", doc],
        ],
        [True, True, [[]], True, True, [[["undefined", "function"]]]],
    )
    t.case(
        "map: fatal_error ends the build",
        [["reset"], ["add_fun", "function(doc){ throw 'fatal_error'; }"], ["map_doc", doc]],
        [True, True, ["error", "map_runtime_error", "function raised 'fatal_error'"]],
    )
    t.case(
        "map: a thrown fatal ends the process",
        [["reset"], ["add_fun", "function(doc){ throw ['fatal', 'mine', 'because']; }"], ["map_doc", doc], ["reset"]],
        [True, True, ["error", "mine", "because"]],
        255,
    )
    t.refused("syntax error", "function(doc) { emit(", "compilation_error", Has("SyntaxError", "(function(doc) { emit()"))
    t.refused("empty", "", "not_found", "missing function")
    t.refused("an object literal", "{}", "compilation_error", "Expression does not eval to a function. ({})")
    t.refused("an expression", "1+1", "compilation_error", "Expression does not eval to a function. (1+1)")
    t.refused(
        "a named function is a statement",
        "function map(doc){ emit(doc._id); }",
        "compilation_error",
        "Expression does not eval to a function. (function map(doc){ emit(doc._id); })",
    )
    t.refused("a throw at the top", "throw new Error('top')", "compilation_error", "Error: top (throw new Error('top'))")
    t.refused("no text", 5, "compilation_error", "Expression does not eval to a function. (5)")
    t.refused("two anonymous functions, one broken", "function(doc){}; function(", "compilation_error", Has("SyntaxError"))


def modules(t):
    doc = {"_id": "a"}
    t.map("a module", "function(doc){ emit(require('views/lib/x').y, 1); }", doc, [[5, 1]], lib={"x": "exports.y = 5;"})
    t.map(
        "module.exports",
        "function(doc){ emit(require('views/lib/x')(2)); }",
        doc,
        [[4, None]],
        lib={"x": "module.exports = function(n) { return n * 2; }"},
    )
    t.map("a comment at a module's end", "function(doc){ emit(require('views/lib/x').y); }", doc, [[1, None]], lib={"x": "exports.y = 1 // one"})
    t.map(
        "relative ids",
        "function(doc){ emit(require('views/lib/deep/a').v); }",
        doc,
        [["b+c", None]],
        lib={"deep": {"a": "exports.v = require('./b').v + require('../c').v;", "b": "exports.v = 'b+'"}, "c": "exports.v = 'c'"},
    )
    t.map(
        "module.id",
        "function(doc){ emit(require('views/lib/deep/a').id); }",
        doc,
        [["views/lib/deep/a", None]],
        lib={"deep": {"a": "exports.id = module.id"}},
    )
    t.map(
        "a cycle sees what is exported so far",
        "function(doc){ var a = require('views/lib/a'); emit(a.seen, a.b.a === a); }",
        doc,
        [[1, True]],
        lib={
            "a": "exports.early = 1; exports.b = require('./b'); exports.seen = exports.b.early;",
            "b": "var a = require('./a'); exports.early = a.early; exports.a = a;",
        },
    )
    t.map(
        "a module is run once",
        "function(doc){ emit(require('views/lib/n').next(), require('views/lib/n').next()); }",
        doc,
        [[1, 2]],
        lib={"n": "var n = 0; exports.next = function() { return ++n; }"},
    )
    t.map(
        "a missing module",
        "function(doc){ emit(require('views/lib/none').x); }",
        doc,
        [],
        lib={"x": ""},
        logs=[["log", Has('function raised exception invalid_require_path: Object has no property "none". {"x":""}', "with doc._id a")]],
    )
    t.map(
        "an inherited property is no module",
        "function(doc){ require('views/lib/constructor'); }",
        doc,
        [],
        lib={"x": ""},
        logs=[["log", Has('Object has no property "constructor"')]],
    )
    t.map(
        "not a text",
        "function(doc){ require('views/lib'); }",
        doc,
        [],
        lib={"x": ""},
        logs=[["log", Has("invalid_require_path: Must require a JavaScript string, not: object")]],
    )
    t.map("above the root", "function(doc){ require('../x'); }", doc, [], lib={"x": ""}, logs=[["log", Has("Object has no parent")]])
    t.map(
        "a module that throws",
        "function(doc){ require('views/lib/x'); }",
        doc,
        [],
        lib={"x": "throw new TypeError('no')"},
        logs=[["log", Has("compilation_error: Module require('views/lib/x') raised error TypeError: no")]],
    )
    t.map(
        "a module that does not parse",
        "function(doc){ require('views/lib/x'); }",
        doc,
        [],
        lib={"x": "var = 1"},
        logs=[["log", Has("compilation_error: Module require('views/lib/x') raised error SyntaxError")]],
    )
    t.map(
        "a caught failure",
        "function(doc){ try { require('views/lib/none') } catch (e) { emit(e.name) } }",
        doc,
        [["invalid_require_path", None]],
        lib={"x": ""},
    )
    t.show(
        "modules of the whole design document",
        "function(doc, req) { return require('lib/m').hi + this.lib.m.length; }",
        ["resp", {"body": "hello21"}],
        lib={"m": "exports.hi = 'hello';"},
    )
    t.show(
        "modules at the top",
        "function(doc, req) { return require('lib/a').v; }",
        ["resp", {"body": "7"}],
        lib={"a": "exports.v = require('../top').v"},
        top="exports.v = '7'",
    )
    t.design(
        "modules keep their state between calls",
        {
            "lib": {"n": "var n = 0; exports.next = function() { return ++n; }"},
            "shows": {"s": "function() { return '' + require('lib/n').next(); }", "t": "function() { return '' + require('lib/n').next(); }"},
        },
        (["shows", "s"], [None, request()], ["resp", {"body": "1"}]),
        (["shows", "t"], [None, request()], ["resp", {"body": "2"}]),
    )


def reductions(t):
    keys = [["a", "1"], ["b", "2"], ["c", "3"]]
    t.reduce("sum", "function(k, v) { return sum(v); }", keys, [1, 2, 3], 6)
    t.reduce("keys have ids", "function(k, v, r) { return [k, v, r]; }", keys[:1], [9], [[["a", "1"]], [9], False])
    t.reduce("undefined is null", "function(k, v) { }", keys, [1, 2, 3], None)
    t.reduce("infinity is null", "function(k, v) { return Math.max(); }", keys, [1, 2, 3], None)
    t.reduce("an error is logged and null", "function(k, v) { throw 'no'; }", keys, [1, 2, 3], None, logs=[["log", "function raised exception no"]])
    t.case(
        "reduce: several functions",
        [["reset"], ["reduce", ["function(k,v){return sum(v)}", "function(k,v){return v.length}"], [[["a", "1"], 4], [["b", "2"], 5]]]],
        [True, [True, [9, 2]]],
    )
    t.case("rereduce", [["reset"], ["rereduce", ["function(k,v,r){return [k, sum(v), r]}"], [33, 55, 66]]], [True, [True, [[None, 154, True]]]])
    t.case(
        "reduce: not a function",
        [["reset"], ["reduce", ["1+1"], []]],
        [True, ["error", "compilation_error", "Expression does not eval to a function. (1+1)"]],
    )
    source, values = "function(k,v){return v;}", [[["a", str(i)], "x" * 50] for i in range(100)]
    length = len(json.dumps(["reduce", [source], values], separators=(",", ":"))) - len(source)
    text = len(json.dumps([[value for _, value in values]], separators=(",", ":")))
    words = f"Reduce output must shrink more rapidly: input size: {length} output size: {text}"
    for limit, answers in (
        (True, [["error", "reduce_overflow_error", words]]),
        ("log", [["log", "reduce_overflow_error: " + words], [True, [["x" * 50] * 100]]]),
        (False, [[True, [["x" * 50] * 100]]]),
    ):
        t.case(f"reduce: overflow with reduce_limit {limit}", [["reset", {"reduce_limit": limit}], ["reduce", [source], values]], [True, *answers])
    t.case(
        "reduce: a small result is never an overflow",
        [["reset", {"reduce_limit": True}], ["reduce", [source], values[:10]]],
        [True, [True, [["x" * 50] * 10]]],
    )
    t.case(
        "reduce: the limit can be set",
        [["reset", {"reduce_limit": True, "reduce_limit_threshold": 100}], ["reduce", [source], values[:10]]],
        [True, ["error", "reduce_overflow_error", Has("Reduce output must shrink more rapidly")]],
    )


def shows(t):
    doc = {"_id": "a", "x": 1}
    t.show("a text", "function(doc, req) { return 'doc ' + doc._id; }", ["resp", {"body": "doc a"}], doc)
    t.show("no document", "function(doc, req) { return doc ? 'doc' : 'nodoc ' + req.id; }", ["resp", {"body": "nodoc null"}])
    t.show(
        "a document that is not there",
        "function(doc, req) { return doc ? 'doc' : 'nodoc ' + req.id; }",
        ["resp", {"body": "nodoc zz"}],
        req={"id": "zz", "path": ["db", "_design", "d", "_show", "s", "zz"]},
    )
    t.show(
        "an error without the document that was asked for is a 404",
        "function(doc, req) { return doc._id; }",
        ["error", "not_found", "document not found"],
        req={"id": "zz", "path": ["db", "_design", "d", "_show", "s", "zz"]},
    )
    t.show(
        "a response object",
        "function(doc, req) { return {code: 201, headers: {'X-A': 'b'}, body: '<b>'}; }",
        ["resp", {"code": 201, "headers": {"X-A": "b"}, "body": "<b>"}],
    )
    t.show("json", "function(doc, req) { return {json: {a: 1}}; }", ["resp", {"json": {"a": 1}}])
    t.show("base64", "function(doc, req) { return {base64: 'aGk='}; }", ["resp", {"base64": "aGk="}])
    t.show("nothing is an empty response", "function(doc, req) { }", ["resp", {}])
    t.show("null and the empty text too", "function(doc, req) { return ''; }", ["resp", {}])
    for value in ("5", "true", "[1]", "function(){}"):
        t.show(
            "no response: " + value, f"function(doc, req) {{ return {value}; }}", ["error", "render_error", "undefined response from show function"]
        )
    t.show("send", "function(doc, req) { send('a'); send('b'); return 'c'; }", ["resp", {"headers": {}, "body": "abc"}])
    t.show("send without a value", "function(doc, req) { send('a'); send(1); }", ["resp", {"headers": {}, "body": "a1"}])
    t.show(
        "start gives headers",
        "function(doc, req) { start({'X-Test': 'Yeah'}); send('Hey'); }",
        ["resp", {"headers": {"X-Test": "Yeah"}, "body": "Hey"}],
    )
    t.show(
        "start gives a response",
        "function(doc, req) { start({code: 201, headers: {'X-Test': 'Yeah'}}); send('Hey'); }",
        ["resp", {"headers": {"X-Test": "Yeah"}, "code": 201, "body": "Hey"}],
    )
    t.show(
        "this is the design document",
        "function(doc, req) { return this._id + this.words[0]; }",
        ["resp", {"body": "_design/dhello"}],
        words=["hello"],
    )
    t.show("getRow is for lists", "function(doc, req) { getRow(); }", ["error", "render_error", "getRow() is for list functions only"])
    t.show(
        "a thrown error is a render_error",
        "function(doc, req) { return doc.none.x; }",
        ["error", "render_error", Has("function raised error: TypeError: ", "\nstacktrace: ")],
        doc,
        logs=[["log", Has("function raised error: TypeError")]],
    )
    t.show(
        "a thrown object",
        "function(doc, req) { throw({not_found: 'nf'}); }",
        ["error", "render_error", Has('function raised error: {"not_found":"nf"}')],
        logs=[["log", Has("not_found")]],
    )
    t.show("a thrown error and reason", "function(doc, req) { throw({error: 'mine', reason: 'because'}); }", ["error", "mine", "because"])
    t.show("a thrown error array", "function(doc, req) { throw(['error', 'mine', 'because']); }", ["error", "mine", "because"])
    # CouchDB says render_error, a 500; the meaning is plain, so ours is the 403 and the 401 that its HTTP layer has for these.
    t.show("forbidden", "function(doc, req) { throw({forbidden: 'no'}); }", ["error", "forbidden", "no"])
    t.show("unauthorized", "function(doc, req) { throw({unauthorized: 'no'}); }", ["error", "unauthorized", "no"])
    t.show("what JSON cannot say", "function(doc, req) { var o = {}; o.o = o; return {json: o}; }", ["error", "TypeError", Has("circular")])
    t.show("does not parse", "function(doc, req) {", ["error", "compilation_error", Has("SyntaxError")])
    t.design(
        "show: missing",
        {"shows": {"s": "function() {}"}},
        (["shows", "zz"], [None, request()], ["error", "not_found", "missing shows function zz on design doc _design/d"]),
        (["lists", "zz"], [None, request()], ["error", "not_found", "missing lists function zz on design doc _design/d"]),
        (["shows", "constructor"], [None, request()], ["error", "not_found", "missing shows function constructor on design doc _design/d"]),
    )
    t.design(
        "show: a forgotten var does no harm to the next call",
        {"shows": {"s": "function() { start = 1; send = 2; leak = 3; return 'x'; }", "t": "function() { send('sent ' + leak); }"}},
        (["shows", "s"], [None, request()], ["resp", {"body": "x"}]),
        (["shows", "t"], [None, request()], ["resp", {"headers": {}, "body": "sent 3"}]),
    )


def content_types(t):
    both = "function(doc, req) { provides('json', function() { return '{}'; }); provides('html', function() { return '<h>' + this._id; }); }"
    json_answer = ["resp", {"headers": {"Content-Type": "application/json"}, "body": "{}"}]
    html_answer = ["resp", {"headers": {"Content-Type": "text/html; charset=utf-8"}, "body": "<h>_design/d"}]
    tried = "application/json, text/x-json, text/html; charset=utf-8"

    def accept(name, header, answer, source=both):
        t.show("provides: " + name, source, answer, req={"headers": {"Accept": header}})

    def refused(wanted, types=tried):
        return ["error", "not_acceptable", f"Content-Type {wanted} not supported, try one of: {types}"]

    accept("json", "application/json", json_answer)
    accept("html", "text/html", html_answer)
    accept("a second name of a type", "text/x-json", ["resp", {"headers": {"Content-Type": "text/x-json"}, "body": "{}"}])
    accept("a browser's header", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", html_answer)
    accept("anything is the first that was provided, by its last name", "*/*", ["resp", {"headers": {"Content-Type": "text/x-json"}, "body": "{}"}])
    accept(
        "any text",
        "text/*",
        ["resp", {"headers": {"Content-Type": "text/html; charset=utf-8"}, "body": "<h>_design/d"}],
        source=both.replace("'json'", "'xhtml'"),
    )
    accept("the greater q", "application/json;q=0.3, text/html;q=0.8", html_answer)
    accept("the closer match comes before q", "application/json;q=0.1, */*;q=0.9", json_answer)
    accept("q of zero is never taken", "application/json;q=0, text/x-json;q=0, */*;q=0.1", html_answer)
    accept("nonsense as q is one", "application/json;q=x, text/html;q=0.9", json_answer)
    accept("none", "image/png", refused("image/png"))
    t.show("provides: no Accept header", both, json_answer)
    t.show("provides: format", both, html_answer, req={"query": {"format": "html"}, "headers": {"Accept": "application/json"}})
    t.show("provides: a format that is not provided", both, refused("css"), req={"query": {"format": "css"}})
    t.show("provides: a format that nobody knows", both, refused("zzz"), req={"query": {"format": "zzz"}})
    for key, mime in (
        ("all", "*/*"),
        ("text", "text/plain; charset=utf-8"),
        ("xhtml", "application/xhtml+xml"),
        ("xml", "application/xml"),
        ("js", "text/javascript"),
        ("css", "text/css"),
        ("ics", "text/calendar"),
        ("csv", "text/csv"),
        ("rss", "application/rss+xml"),
        ("atom", "application/atom+xml"),
        ("yaml", "application/x-yaml"),
        ("multipart_form", "multipart/form-data"),
        ("url_encoded_form", "application/x-www-form-urlencoded"),
    ):
        t.show(
            f"provides: {key} is {mime}",
            f"function(doc, req) {{ provides('{key}', function() {{ return 'b'; }}); }}",
            ["resp", {"headers": {"Content-Type": mime}, "body": "b"}],
        )
    t.show(
        "provides: a registered type",
        "function(doc, req) { registerType('foo', 'application/foo', 'application/x-foo'); provides('foo', function() { return 'bar'; }); }",
        ["resp", {"headers": {"Content-Type": "application/x-foo"}, "body": "bar"}],
        req={"headers": {"Accept": "application/x-foo"}},
    )
    t.show(
        "provides: what was sent comes before",
        "function(doc, req) { provides('text', function() { send('b'); return 'c'; }); return 'a'; }",
        ["resp", {"headers": {"Content-Type": "text/plain; charset=utf-8"}, "body": "abc"}],
    )
    t.show(
        "provides: the function's own type wins",
        "function(doc, req) { provides('text', function() { return 'c'; }); return {headers: {'content-type': 'x/y'}}; }",
        ["resp", {"headers": {"content-type": "x/y"}, "body": "c"}],
    )
    t.show(
        "provides: an error",
        "function(doc, req) { provides('text', function() { throw 'no'; }); }",
        ["error", "render_error", Has("function raised error: no")],
        logs=[["log", Has("function raised error: no")]],
    )
    t.show(
        "provides: forgotten by the next call",
        "function(doc, req) { if (req.query.first) provides('text', function() { return 'p'; }); return 'x'; }",
        ["resp", {"body": "x"}],
    )


def lists(t):
    rows = [row("a"), row("b")]
    plain = {"headers": {"Content-Type": "text/plain"}}
    t.list(
        "rows",
        "function(head, req) { start({headers: {'Content-Type': 'text/plain'}}); send('['); var r; while (r = getRow()) send(r.key + ';'); return ']' + head.total_rows; }",
        rows,
        [["start", ["["], plain], ["chunks", ["a;"]], ["chunks", ["b;"]], ["end", ["]2"]]],
    )
    t.list(
        "no start",
        "function(head, req) { send('first'); var r; while (r = getRow()) send(r.value); }",
        rows,
        [["start", ["first"], {"headers": {}}], ["chunks", ["1"]], ["chunks", ["1"]], ["end", []]],
    )
    t.list(
        "getRow that is never called is called",
        "function(head, req) { return 'no rows'; }",
        [],
        [["start", [], {"headers": {}}], ["end", ["no rows"]]],
    )
    t.list("no output at all", "function(head, req) { }", [], [["start", [], {"headers": {}}], ["end", []]])
    t.list(
        "a code without a body",
        "function(head, req) { start({code: 302, headers: {Location: '/x'}}); }",
        [],
        [["start", [], {"code": 302, "headers": {"Location": "/x"}}], ["end", []]],
    )
    t.list(
        "rows in one piece",
        "function(head, req) { var r, o = []; while (r = getRow()) o.push(r); return toJSON(o); }",
        rows[:1],
        [["start", [], {"headers": {}}], ["chunks", []], ["end", ['[{"id":"a","key":"a","value":1}]']]],
    )
    t.list(
        "start after the first row",
        "function(head, req) { var r = getRow(); start({code: 201}); send(r.key); getRow(); }",
        rows[:1],
        [["start", [], {"headers": {}}], ["chunks", ["a"], {"code": 201, "headers": {}}], ["end", []]],
    )
    t.list(
        "after the last row there is null",
        "function(head, req) { while (getRow()); return '' + getRow(); }",
        [],
        [["start", [], {"headers": {}}], ["end", ["null"]]],
    )
    t.list("head of a reduced view", "function(head, req) { return toJSON(head); }", [], [["start", [], {"headers": {}}], ["end", ["{}"]]], head={})
    t.list("this is the design document", "function(head, req) { return this.word; }", [], [["start", [], {"headers": {}}], ["end", ["w"]]], word="w")
    t.list("a tail that is no text", "function(head, req) { return 5; }", [], [["start", [], {"headers": {}}], ["end", ["5"]]])
    t.list(
        "provides",
        "function(head, req) { provides('html', function() { send('<ul>'); var r; while (r = getRow()) send(r.key); return '</ul>'; }); }",
        rows[:1],
        [["start", ["<ul>"], {"headers": {"Content-Type": "text/html; charset=utf-8"}}], ["chunks", ["a"]], ["end", ["</ul>"]]],
    )
    refused = ["error", "not_acceptable", "Content-Type image/png not supported, try one of: text/html; charset=utf-8"]
    session = [
        [
            "ddoc",
            "new",
            "_design/d",
            {
                "lists": {
                    "l": "function(head, req) { provides('html', function() { return ''; }); }",
                    "t": "function(head, req) { throw({forbidden: 'l'}); }",
                    "e": "function(head, req) { getRow(); null.x; }",
                }
            },
        ]
    ]
    call = lambda name, **req: ["ddoc", "_design/d", ["lists", name], [{}, request(**req)]]
    t.case("list: none that is acceptable", session + [call("l", headers={"Accept": "image/png"})], [True, refused])
    t.case("list: forbidden", session + [call("t")], [True, ["error", "forbidden", "l"]])
    t.case(
        "list: an error between rows",
        session + [call("e"), ["list_row", row("a")], ["reset"]],
        [True, ["start", [], {"headers": {}}], ["log", Has("TypeError")], ["error", "render_error", Has("function raised error: TypeError")], True],
    )
    t.case(
        "list: a line that is no row ends the process",
        session + [call("e"), ["map_doc", {}], ["reset"]],
        [True, ["start", [], {"headers": {}}], ["error", "list_error", "not a row 'map_doc'"]],
        255,
    )
    t.case(
        "list: state is not kept",
        session + [call("e"), ["list_end"], call("e"), ["list_end"]],
        [True] + [["start", [], {"headers": {}}], ["log", Has("TypeError")], ["error", "render_error", Has("TypeError")]] * 2,
    )


def updates(t):
    create = "function(doc, req) { if (!doc) return [{_id: req.id || req.uuid, made: true}, 'created']; doc.n = (doc.n || 0) + 1; return [doc, {json: {n: doc.n}, headers: {'X-Foo': 'bar'}}]; }"
    t.update("a new document", create, ["up", {"_id": "a", "made": True}, {"body": "created"}], req={"id": "a"})
    t.update("a changed document", create, ["up", {"_id": "a", "n": 2}, {"json": {"n": 2}, "headers": {"X-Foo": "bar"}}], doc={"_id": "a", "n": 1})
    t.update("no document", "function(doc, req) { return [null, 'hello']; }", ["up", None, {"body": "hello"}])
    t.update("undefined is no document", "function(doc, req) { return [undefined, 'hello']; }", ["up", None, {"body": "hello"}])
    t.update(
        "a code",
        "function(doc, req) { return [null, {code: 418, headers: {'Content-Type': 'text/x-tea'}, body: 'tea'}]; }",
        ["up", None, {"code": 418, "headers": {"Content-Type": "text/x-tea"}, "body": "tea"}],
    )
    t.update("no response", "function(doc, req) { return 'x'; }", ["error", "render_error", "undefined response from update function"])
    t.update("a null response", "function(doc, req) { return [doc, null]; }", ["error", "render_error", "undefined response from update function"])
    t.update("an array as response", "function(doc, req) { return [doc, []]; }", ["error", "render_error", "undefined response from update function"])
    t.update(
        "nothing",
        "function(doc, req) { return null; }",
        ["error", "render_error", Has("function raised error: TypeError")],
        logs=[["log", Has("TypeError")]],
    )
    t.update("GET is refused", create, ["error", "method_not_allowed", "Update functions do not allow GET"], req={"method": "GET"})
    t.update("forbidden", "function(doc, req) { throw({forbidden: 'nope'}); }", ["error", "forbidden", "nope"])
    t.update(
        "a thrown array of its own",
        "function(doc, req) { throw ['custom_error', 'because']; }",
        ["error", "render_error", Has('function raised error: ["custom_error","because"]')],
        logs=[["log", Has("custom_error")]],
    )


def filters(t):
    docs = [{"_id": "a", "v": 1}, {"_id": "b"}, {"_id": "c", "v": 0}]

    def check(name, source, *answers, req=None, **more):
        t.design("filter: " + name, {"filters": {"f": source}, **more}, (["filters", "f"], [docs, request(**(req or {}))], *answers))

    check("booleans", "function(doc, req) { return doc._id != 'b'; }", [True, [True, False, True]])
    check("truth of any value", "function(doc, req) { return doc.v; }", [True, [True, False, False]])
    check("the request", "function(doc, req) { return doc._id == req.query.id; }", [True, [False, True, False]], req={"query": {"id": "b"}})
    check("this is the design document", "function(doc, req) { return this.only == doc._id; }", [True, [False, False, True]], only="c")
    check("an error", "function(doc, req) { return doc.v.x.y; }", ["error", "TypeError", Has("undefined")])
    check("a thrown text", "function(doc, req) { throw 'no'; }", ["error", "unnamed_error", "no"])
    check("a thrown refusal", "function(doc, req) { throw {forbidden: 'no'}; }", ["error", "forbidden", "no"])
    t.design("filter: no documents", {"filters": {"f": "function() { return true; }"}}, (["filters", "f"], [[], request()], [True, []]))

    def view(name, source, *answers):
        t.design("view filter: " + name, {"views": {"v": {"map": source}}}, (["views", "v", "map"], [docs], *answers))

    view("what emits passes", "function(doc) { if ('v' in doc) emit(doc.v, null); }", [True, [True, False, True]])
    view("emitting nothing of worth is emitting", "function(doc) { emit(); }", [True, [True] * 3])
    view("an error", "function(doc) { emit(doc.none.x); }", ["error", "TypeError", Has("undefined")])
    t.design(
        "view filter: missing",
        {"views": {}},
        (["views", "v", "map"], [docs], ["error", "not_found", "missing views function map on design doc _design/d"]),
    )


def validations(t):
    t.validate("passes", "function(n) { }", 1)
    t.validate("what it returns does not matter", "function(n) { return {forbidden: 'x'}; }", 1)
    t.validate("forbidden", "function(n, o, u, s) { throw({forbidden: 'no way'}); }", {"forbidden": "no way"})
    t.validate("unauthorized", "function(n, o, u, s) { throw({unauthorized: 'log in'}); }", {"unauthorized": "log in"})
    t.validate("forbidden with more than a text", "function(n) { throw({forbidden: {a: 1}}); }", {"forbidden": {"a": 1}})
    t.validate(
        "the old document",
        "function(n, o) { if (o !== null) throw({forbidden: 'exists ' + o._rev}); }",
        {"forbidden": "exists 1-x"},
        old={"_id": "a", "_rev": "1-x"},
    )
    t.validate("no old document", "function(n, o) { if (o !== null) throw({forbidden: 'exists'}); }", 1)
    t.validate(
        "a deletion",
        "function(n, o) { if (n._deleted) throw({forbidden: 'no delete'}); }",
        {"forbidden": "no delete"},
        new={"_id": "a", "_deleted": True},
    )
    t.validate(
        "user and security",
        "function(n, o, u, s) { throw({forbidden: toJSON([u.name, u.roles, s])}); }",
        {"forbidden": '["joe",["r"],{"admins":{}}]'},
        user={"db": "db", "name": "joe", "roles": ["r"]},
        security={"admins": {}},
    )
    t.validate(
        "a module",
        "function(n) { require('lib/v').check(n); }",
        {"forbidden": "checked a"},
        lib={"v": "exports.check = function(n) { throw {forbidden: 'checked ' + n._id}; }"},
    )
    # CouchDB answers these with the thrown value itself, which its HTTP layer calls an unknown_error.
    t.validate("a thrown text", "function(n) { throw('plain'); }", ["error", "unknown_error", "plain"])
    t.validate("another object", "function(n) { throw({teapot: 'x'}); }", ["error", "unknown_error", "x"])
    # CouchDB takes it for "passes".
    t.validate("a thrown 1", "function(n) { throw 1; }", ["error", "unknown_error", "1"])
    t.validate("an error", "function(n) { n.x.y; }", ["error", "TypeError", Has("undefined")])
    t.validate("an error of its own", "function(n) { var e = new Error('mine'); e.name = 'My'; throw e; }", ["error", "My", "mine"])
    t.validate("a missing module", "function(n) { require('lib/v'); }", ["error", "invalid_require_path", Has('Object has no property "lib"')])
    t.validate("does not parse", "function(n) { ", ["error", "compilation_error", Has("SyntaxError")])
    t.design(
        "validate: missing",
        {},
        (
            ["validate_doc_update"],
            [{}, None, {}, {}],
            ["error", "not_found", "missing validate_doc_update function validate_doc_update on design doc _design/d"],
        ),
    )


def rewrites(t):
    def check(name, source, *answers):
        t.design("rewrite: " + name, {"rewrites": source}, (["rewrites"], [request(method="PUT")], *answers))

    check("a path", "function(req) { return '../../x'; }", ["ok", {"path": "../../x", "method": "PUT"}])
    check("an object", "function(req) { return {path: 'x', query: {a: '1'}, code: 200}; }", ["ok", {"path": "x", "query": {"a": "1"}, "code": 200}])
    check("nothing", "function(req) { }", ["no_dispatch_rule"])
    check("forbidden", "function(req) { throw {forbidden: 'no'}; }", ["error", "forbidden", "no"])
    check("an error", "function(req) { req.x.y; }", ["log", Has("TypeError")], ["error", "render_error", Has("function raised error: TypeError")])


def hostility(t):
    """Users' code that breaks what it can reach. It may only harm its own design document."""
    doc = {"_id": "a", "v": 1}
    spoil = (
        "Array.prototype.push = Array.prototype.join = String.prototype.split = String.prototype.indexOf = Object.keys = JSON.stringify = "
        "JSON.parse = Array.isArray = Function.prototype.apply = Function.prototype.call = Object.defineProperty = function() { throw 'spoilt'; };"
        "Array.prototype[Symbol.iterator] = Object.prototype.hasOwnProperty = WeakMap.prototype.get = Reflect.apply = null;"
    )
    t.map(
        "helpers survive spoilt prototypes",
        "function(doc) { " + spoil + " emit(toJSON([1]), isArray([])); emit(sum([1, 2])); }",
        doc,
        [["[1]", True], [3, None]],
    )
    t.design(
        "hostile: design functions survive spoilt prototypes",
        {
            "shows": {
                "spoil": "function() { " + spoil + " return 'done'; }",
                "s": "function(doc, req) { send('a'); provides('json', function() { return 'b'; }); }",
            },
            "updates": {"u": "function() { throw {forbidden: 'x'}; }"},
            "filters": {"f": "function(d) { return d.x; }"},
            "lib": {"m": "exports.x = 1"},
            "rewrites": "function() { return '' + require('lib/m').x; }",
        },
        (["shows", "spoil"], [None, request()], ["resp", {"body": "done"}]),
        (
            ["shows", "s"],
            [None, request(headers={"Accept": "application/json, */*;q=0.1"})],
            ["resp", {"headers": {"Content-Type": "application/json"}, "body": "ab"}],
        ),
        (["updates", "u"], [None, request(method="POST")], ["error", "forbidden", "x"]),
        (["filters", "f"], [[{"x": 1}, {}], request()], [True, [True, False]]),
        (["rewrites"], [request()], ["ok", {"path": "1", "method": "GET"}]),
    )
    t.design(
        "hostile: descriptors are not polluted",
        {
            "shows": {
                "s": "function() { Object.prototype.get = function() {}; Object.prototype.writable = false; return 'x'; }",
                "t": "function() { send(1); return 'y'; }",
            }
        },
        (["shows", "s"], [None, request()], ["resp", {"body": "x"}]),
        (["shows", "t"], [None, request()], ["resp", {"headers": {}, "body": "1y"}]),
    )
    t.case(
        "hostile: one design document does not touch another",
        [
            ["ddoc", "new", "_design/d", {"shows": {"s": "function() { Object.prototype.code = 500; leak = 1; return 'x'; }"}}],
            ["ddoc", "new", "_design/e", {"shows": {"s": "function() { return typeof leak + {}.code; }"}}],
            ["ddoc", "_design/d", ["shows", "s"], [None, request()]],
            ["ddoc", "_design/e", ["shows", "s"], [None, request()]],
        ],
        [True, True, ["resp", {"body": "x"}], ["resp", {"body": "undefinedundefined"}]],
    )
    escape = "function(doc) { emit(%s); }"
    for name, expression in (
        ("emit", "typeof emit.constructor('return process')"),
        ("log", "log.constructor('return 1')()"),
        ("doc", "doc.constructor.constructor('return process')().pid"),
    ):
        t.map("no way out by " + name, escape % expression, doc, [], logs=[["log", Has("EvalError")]])
    t.map(
        "errors of the host do not leak",
        "function(doc) { function deep() { try { deep(); } catch (e) { log('x'); } } var names = {}; "
        "function down(n) { try { require('views/lib/m' + n); down(n + 1); } catch (e) { names[e instanceof Error] = 1; } } down(0); emit(names); }",
        doc,
        [[{"true": 1}, None]],
        lib={"m0": ""},
    )
    t.show(
        "an error with hostile members",
        "function() { throw {get message() { throw 1; }, get name() { throw 2; }, toString: null}; }",
        ["error", "render_error", Has("a value that cannot be shown")],
        logs=[["log", Has("a value that cannot be shown")]],
    )
    t.show(
        "a revoked proxy",
        "function() { var p = Proxy.revocable({}, {}); p.revoke(); throw p.proxy; }",
        ["error", "unnamed_error", "a value that cannot be shown"],
    )
    t.validate(
        "a hostile refusal", "function() { throw {get forbidden() { throw 1; }}; }", ["error", "unknown_error", "a value that cannot be shown"]
    )
    t.show(
        "a response with a toJSON that lies", "function() { return {toJSON: function() { return undefined; }, body: 'x'}; }", ["resp", {"body": "x"}]
    )
    t.map("toJSON of all arrays", "function(doc) { Array.prototype.toJSON = function() { return undefined; }; emit(1); }", doc, [])
    t.map("endless recursion", "function(doc) { (function f() { f(); })(); }", doc, [], logs=[["log", Has("RangeError")]])
    deep = '["map_doc",' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "]"
    t.case("map: a deep document", [["reset"], ["add_fun", "function(doc) { emit(typeof doc.a); }"], deep], [True, True, [[["object", None]]]])
    t.map(
        "a name that is a prototype's",
        "function(doc) { emit(doc.__proto__ === Object.prototype, Object.keys(doc)); }",
        {"_id": "a"},
        [[True, ["_id"]]],
    )


def protocol(t):
    t.case(
        "protocol: an unknown command ends the process",
        [["reset"], ["fly", 1], ["reset"]],
        [True, ["error", "unknown_command", "unknown command 'fly'"]],
        255,
    )
    t.case(
        "protocol: an unknown design command",
        [["ddoc", "new", "_design/d", {}], ["ddoc", "_design/d", ["fly", "x"], []], ["reset"]],
        [True, ["error", "unknown_command", "unknown ddoc command 'fly'"]],
        255,
    )
    t.case(
        "protocol: a design document that was not told",
        [["ddoc", "_design/x", ["shows", "s"], []], ["reset"]],
        [["error", "query_protocol_error", "uncached design doc: _design/x"]],
        255,
    )
    t.case("protocol: no JSON", ["nonsense", ["reset"]], [["error", "query_protocol_error", Has("not JSON")]], 255)
    t.case("protocol: no array", [{"a": 1}, ["reset"]], [["error", "query_protocol_error", "a command is an array"]], 255)
    t.case("protocol: blank lines are passed over", ["", ["reset"], " ", ["reset"]], [True, True])
    t.case(
        "protocol: a design document is replaced",
        [
            ["ddoc", "new", "_design/d", {"shows": {"s": "function() { return 'old'; }"}}],
            ["ddoc", "_design/d", ["shows", "s"], [None, request()]],
            ["ddoc", "new", "_design/d", {"shows": {"s": "function() { return 'new'; }"}}],
            ["ddoc", "_design/d", ["shows", "s"], [None, request()]],
        ],
        [True, ["resp", {"body": "old"}], True, ["resp", {"body": "new"}]],
    )
    t.case(
        "protocol: a reset keeps design documents",
        [
            ["ddoc", "new", '_design/"é', {"shows": {"s": "function() { return 'x'; }"}}],
            ["reset"],
            ["ddoc", '_design/"é', ["shows", "s"], [None, request()]],
        ],
        [True, True, ["resp", {"body": "x"}]],
    )
    many = [["ddoc", "new", f"_design/{i}", {"shows": {"s": f"function() {{ return '{i}'; }}"}}] for i in range(70)]
    t.case(
        "protocol: more design documents than contexts",
        many + [["ddoc", f"_design/{i}", ["shows", "s"], [None, request()]] for i in (0, 69, 1)],
        [True] * 70 + [["resp", {"body": str(i)}] for i in (0, 69, 1)],
    )
    t.case(
        "protocol: large lines",
        [["reset"], ["add_fun", "function(doc) { emit(doc.t.length, doc.t); }"], ["map_doc", {"_id": "a", "t": "é\n" * 100_000}]],
        [True, True, [[[200_000, "é\n" * 100_000]]]],
    )
    t.case(
        "protocol: many lines",
        [["reset"], ["add_fun", "function(doc) { emit(doc.n); }"]] + [["map_doc", {"_id": "a", "n": n}] for n in range(20_000)],
        [True, True] + [[[[n, None]]] for n in range(20_000)],
    )


def run_case(server, case):
    _, sent, expected, code = case
    text = "".join((line if isinstance(line, str) else json.dumps(line, separators=(",", ":"), ensure_ascii=False)) + "\n" for line in sent)
    done = subprocess.run(["node", str(server)], input=text.encode(), capture_output=True, timeout=TIMEOUT_S, check=False)
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    if done.returncode != code or done.stderr:
        return f"exit code {done.returncode}, not {code}; {done.stderr.decode()[:500]}; answered {answers[:5]!r}"
    if answers != expected and expected != answers:
        for i, (a, e) in enumerate(zip(answers, expected)):
            if a != e:
                return f"answer {i}:\n  expected {e!r:.900}\n  actual   {a!r:.900}"
        return f"{len(answers)} answers, not {len(expected)}: {answers!r:.900}"
    return None


def dialogue(server):
    """One line at a time: every answer comes without another line being sent."""
    process = subprocess.Popen(["node", str(server)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for sent, expected in (
            (["reset"], True),
            (["add_fun", "function(doc) { emit(doc._id); }"], True),
            (["map_doc", {"_id": "a"}], [[["a", None]]]),
        ):
            process.stdin.write((json.dumps(sent) + "\n").encode())
            process.stdin.flush()
            if json.loads(process.stdout.readline()) != expected:
                return f"not {expected!r}"
        process.stdin.close()
        return None if process.wait(TIMEOUT_S) == 0 else f"exit code {process.returncode}"
    finally:
        process.kill()
        process.wait()


PARTS = (views, modules, reductions, shows, content_types, lists, updates, filters, validations, rewrites, hostility, protocol)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_sessions(ctx, part):
    """Sessions that end by themselves follow each other in one process.

    Some of them also have a process of their own, as an earlier session may leave what a later one
    lacks. With --soak, or after a failure, all of them have.
    """
    cases = Lines()
    part(cases)
    server = lay_out(ctx.folder("server"), ctx.checkout / "crates")
    lasting = [case for case in cases if case[3] == 0]
    together = run_case(server, joined(lasting))
    ctx.report.check(f"{part.__name__}: one after the other in one process", together is None, together)
    alone = lasting if ctx.soak or together else ctx.random.sample(lasting, len(lasting) // ALONE_ONE_IN)
    for case in cases:
        is_shown = case in lasting and case not in alone
        wrong = None if is_shown else run_case(server, case)
        ctx.report.check(case[0], wrong is None, wrong, quiet=True)
    ctx.report.note(f"{len(cases)} sessions")


def joined(cases):
    sent, expected = ([line for case in cases for line in case[place]] for place in (1, 2))
    return "all", sent, expected, 0


def test_one_line_at_a_time(ctx):
    wrong = dialogue(lay_out(ctx.folder("server"), ctx.checkout / "crates"))
    ctx.report.check("protocol: one line at a time", wrong is None, wrong)

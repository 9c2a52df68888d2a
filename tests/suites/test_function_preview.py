"""What functions would do that are not saved (`_settee/preview`), and the table of settings: who may ask, what they answer, and what
becomes of hostile input.
"""

import json
import time

import pytest

pytestmark = pytest.mark.quick

DOCS = 250
LIB = {"half": "exports.of = function (n) { return n / 2; };"}
# What JSON parsers of others lose.
HUGE = 9223372036854775807


@pytest.fixture(scope="module")
def server(suite):
    with suite.server(options=["--set", "functions/time_limit_ms=1000", "--set", "functions/emit_rows_limit=20000"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/shop")
        docs = [{"_id": f"d-{n:03}", "n": n, "type": "tea" if n % 2 else "milk"} for n in range(DOCS)]
        api.expect(201, "POST", "/shop/_bulk_docs", {"docs": docs})
        api.expect(201, "PUT", "/shop/_design/real", {"views": {"v": {"map": "function (doc) { emit(doc.type, doc.n); }"}}})
        yield server
        suite.report.check("no panic", "panicked" not in server.log(), server.log()[-2000:])


@pytest.fixture
def api(server):
    return server.api()


@pytest.fixture
def report(suite):
    return suite.report


def ask(api, **body):
    return api.post("/shop/_settee/preview", body)


def test_maps(report, api):
    told = ask(api, map="function (doc) { emit([doc.type, -doc.n], doc._rev.length); }").json
    report.equal("the first hundred documents", (told["documents"], len(told["rows"]), told["errors"], told["partial"]), (100, 100, [], False))
    keys = [row["key"] for row in told["rows"]]
    report.equal("rows in the order of the view", keys, sorted(keys))
    report.equal("each with its id", told["rows"][0], {"id": "d-098", "key": ["milk", -98], "value": 34})
    few = ask(api, map="function (doc) { emit(doc._id); }", docs=3).json
    report.equal("fewer documents", [row["id"] for row in few["rows"]], ["d-000", "d-001", "d-002"])
    mixed = "function (doc) { if (doc.n < 6) emit([null, false, 3, 'a', 'B', {}][doc.n]); }"
    report.equal("CouchDB's collation", [row["key"] for row in ask(api, map=mixed).json["rows"]], [None, False, 3, "a", "B", {}])
    report.equal("nothing is asked for", ask(api, map="function (doc) { emit(1); }", docs=0).json["rows"], [])
    saved = api.expect(200, "GET", "/shop/_design/real/_view/v?limit=3")["rows"]
    tried = ask(api, map="function (doc) { emit(doc.type, doc.n); }").json["rows"][:3]
    report.equal("the same rows as the view has", tried, saved)


def test_reduces(report, api):
    by = "function (doc) { emit(doc.type, doc.n); }"
    for reduce, expected in (
        ("_sum", 4950),
        ("_count", 100),
        ("_stats", {"sum": 4950, "count": 100, "min": 0, "max": 99, "sumsqr": 328350}),
        ("function (keys, values, rereduce) { return rereduce ? values : [keys[0][0], values.length, rereduce]; }", [["tea", 100, False]]),
    ):
        report.equal(f"reduced by {reduce[:20]}", ask(api, map=by, reduce=reduce).json["reduced"], expected)
    report.check("nothing to reduce", "reduced" not in ask(api, map="function () {}", reduce="_sum").json)
    report.check("no reduce function", "reduced" not in ask(api, map=by, reduce="").json)
    thrown = ask(api, map=by, reduce="function () { throw new TypeError('no'); }").json
    report.equal("one that throws gives null, as in a view", (len(thrown["rows"]), thrown["reduced"]), (100, None))
    grows = ask(api, map=by, reduce="function (k, v) { return new Array(9000).join('x'); }").json
    report.equal("one that does not shrink", [e["error"] for e in grows["errors"]], ["reduce_overflow_error"])
    unknown = ask(api, map=by, reduce="_nope")
    report.equal("a built-in one that there is not", (unknown.status, unknown.json["error"]), (400, "invalid_design_doc"))

    heeds = "function (keys, values, rereduce) { return rereduce ? sum(values) : values.length; }"
    parts = ask(api, map=by, reduce=heeds).json
    report.equal("in two parts: the same of a function that heeds rereduce", (parts["reduced"], parts["rereduced"]), (100, 100))
    parts = ask(api, map=by, reduce="function (keys, values) { return values.length; }").json
    report.equal("and another result of one that does not", (parts["reduced"], parts["rereduced"]), (1, 2))
    one = ask(api, map=by, reduce=heeds, docs=1).json
    report.check("one row has no parts", (one["reduced"], "rereduced" in one) == (1, False), one)
    report.check("a built-in function is not tried in parts", "rereduced" not in ask(api, map=by, reduce="_sum").json)


def test_options(report, api):
    seen = "function (doc) { emit(doc._id.slice(0, 8), typeof doc._local_seq); }"
    ask_with = lambda **options: ask(api, map=seen, docs=2, design={"_id": "_design/d", "options": options}).json["rows"]
    report.equal("without options", [(row["key"], row["value"]) for row in ask_with()], [("d-000", "undefined"), ("d-001", "undefined")])
    # In a store's order of ids, design documents come first.
    with_design = [row["key"] for row in ask_with(include_design=True)]
    report.equal("design documents are mapped if the options say so", with_design, ["_design/", "d-000"])
    kinds = [row["value"] for row in ask_with(local_seq=True)]
    report.check("and sequences are seen", kinds in (["number"] * 2, ["string"] * 2), kinds)


def test_given_documents(report, api):
    body = '{"map": "function (doc) { emit(doc.n, doc); }", "docs": [{"_id": "x", "_rev": "3-abc", "n": 1.0, "_attachments": {}}, {"n": %d}]}' % HUGE
    answer = api.request("POST", "/shop/_settee/preview", body.encode(), headers={"Content-Type": "application/json"})
    rows = answer.json["rows"]
    report.equal("documents that are given", [row["id"] for row in rows], ["x", "document 2"])
    report.equal("with their revision, or a first one", [row["value"]["_rev"][:2] for row in rows], ["3-", "1-"])


def test_libraries(report, api):
    by = "function (doc) { emit(require('views/lib/half').of(doc.n)); }"
    told = ask(api, map=by, design={"_id": "_design/d", "views": {"lib": LIB}}, docs=4).json
    report.equal("views.lib is there", [row["key"] for row in told["rows"]], [0, 0.5, 1, 1.5])
    without = ask(api, map=by, docs=4).json
    report.equal("without it each document fails", (without["rows"], len(without["errors"])), ([], 4))


def test_failures(report, api):
    source = "function (doc) {\n  var x = null;\n  if (doc.n === 1)\n    x.y();\n  if (doc.n === 2) throw {a: 1};\n  if (doc.n === 3) throw 'plainly';\n  emit(doc.n);\n}"
    told = ask(api, map=source, docs=5).json
    report.equal("other documents have their rows", [row["key"] for row in told["rows"]], [0, 4])
    errors = told["errors"]
    report.equal("failures by document", [e["id"] for e in errors], ["d-001", "d-002", "d-003"])
    report.equal("with the line", (errors[0]["error"], errors[0].get("line")), ("TypeError", 4))
    report.equal("what is thrown otherwise", errors[2]["reason"], "plainly")
    long = ask(api, map="function (doc) { throw new Error(new Array(100000).join('x')); }", docs=1).json
    report.check("what is long is cut", 0 < len(long["errors"][0]["reason"]) <= 2000, len(long["errors"][0]["reason"]))
    for what, source in (("no JavaScript", "function (doc) { emit(; }"), ("no function", "1"), ("nothing", "")):
        refused = ask(api, map=source)
        report.check(f"{what} is refused", 400 <= refused.status < 500 and refused.is_error_shape, refused)
    refused = ask(api, map="function (doc) { emit(; }")
    report.equal("as a function that does not compile", (refused.status, refused.json["error"]), (400, "compilation_error"))


def seconds_of(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_hostile(report, api):
    spin = "for (var end = Date.now() + 500; Date.now() < end;); emit(1);"
    finite = seconds_of(lambda: ask(api, map=f"function (doc) {{ {spin} }}", docs=1))
    began = time.monotonic()
    told = ask(api, map="function (doc) { if (doc.n > 1) for (;;); emit(1); }").json
    took = time.monotonic() - began
    limited = [(e["id"], e["error"]) for e in told["errors"]]
    report.equal("an endless loop ends, and the document is named", (limited, told["partial"]), ([("d-002", "function_limit_exceeded")], True))
    # It has a limit of 1 s; the finite one takes half a second when nothing holds it up.
    report.check("in time", took < 20 * finite, (took, finite))
    report.equal("what came before is there", told["documents"], 2)
    for what, source in (
        ("a huge emit", "function (doc) { for (var i = 0; i < 1e7; i++) emit(i, 'xxxxxxxxxxxxxxxx'); }"),
        ("much memory", "function (doc) { var a = []; for (;;) a.push(new Array(1000)); }"),
        ("a deep recursion", "function (doc) { function f() { f(); } f(); }"),
        ("the order to give up", "function (doc) { throw 'fatal_error'; }"),
        ("a regular expression without end", "function (doc) { /(a+)+$/.test(new Array(40).join('a') + 'b'); }"),
        ("a long built-in call", "function (doc) { 'x'.repeat(1e7).split('').sort().reverse().join('').split(''); }"),
    ):
        answer = ask(api, map=source, docs=1)
        sound = answer.status == 200 and isinstance(answer.json["rows"], list)
        report.check(f"{what} is answered", sound or answer.is_error_shape, answer)
        report.equal("the server is there", api.get("/_up").status, 200, quiet=True)
    loop = ask(api, map="function (doc) { emit(1); }", reduce="function () { for (;;); }").json
    report.equal("a reduce function without end", ([e["error"] for e in loop["errors"]], "reduced" in loop), (["function_limit_exceeded"], False))


def test_too_much(report, api):
    many = ask(api, map="function (doc) { for (var i = 0; i < 300; i++) emit(i); }").json
    errors = [e["error"] for e in many["errors"]]
    report.equal("too many rows in all", (errors, many["partial"], len(many["rows"])), (["preview_limit_exceeded"], True, 300 * many["documents"]))
    long = ask(api, map="function (doc) { emit(new Array(400000).join('x')); }").json
    report.equal("too many bytes in all", ([e["error"] for e in long["errors"]], long["documents"]), (["preview_limit_exceeded"], 10))
    report.equal("more documents than there may be", ask(api, map="function () {}", docs=101).status, 400)


def test_other_languages(report, api):
    unknown = ask(api, language="cobol", map="x")
    report.equal("a language that is not there", (unknown.status, unknown.json["error"]), (400, "unknown_query_language"))
    of_design = ask(api, map="x", design={"language": "cobol"})
    report.equal("the design document says which", of_design.json["error"], "unknown_query_language")


def validate(api, function, new, **more):
    return ask(api, validate={"function": function, "newDoc": new, **more})


def test_validations(report, api):
    source = "function (n, o, u, s) { if (!n.type) throw {forbidden: 'no type'}; if (!u.name) throw {unauthorized: 'who?'}; }"
    report.equal("a write that is accepted", validate(api, source, {"type": "tea"}).json, {"validate": {"ok": True}})
    report.equal("one that is forbidden", validate(api, source, {}).json, {"validate": {"error": "forbidden", "reason": "no type"}})
    nobody = {"db": "shop", "name": None, "roles": []}
    told = validate(api, source, {"type": "tea"}, userCtx=nobody).json
    report.equal("somebody else", told, {"validate": {"error": "unauthorized", "reason": "who?"}})
    sees = "function (n, o, u, s) { throw {forbidden: JSON.stringify([n, o, u.roles, s])}; }"
    told = validate(api, sees, {"_id": "a"}, oldDoc={"_id": "a", "n": 1}, userCtx={"roles": ["r"]}, secObj={"x": 1}).json
    report.equal("all that it is given", json.loads(told["validate"]["reason"]), [{"_id": "a"}, {"_id": "a", "n": 1}, ["r"], {"x": 1}])
    told = json.loads(validate(api, sees, {}).json["validate"]["reason"])
    report.equal("what is left out is as it is", (told[1], told[2], "admins" in told[3]), (None, ["_admin"], True))
    lib = "function (n) { require('lib/check').it(n); }"
    design = {"lib": {"check": "exports.it = function (n) { if (!n.ok) throw {forbidden: 'by lib'}; };"}}
    told = ask(api, design=design, validate={"function": lib, "newDoc": {}}).json
    report.equal("require looks in the design document", told["validate"].get("reason"), "by lib")
    for text in ("one", "other"):
        told = validate(api, f"function () {{ throw {{forbidden: '{text}'}}; }}", {}).json
        report.equal(f"no other function is taken for this one: {text}", told["validate"]["reason"], text)
    report.equal("one that fails", validate(api, "function () { nothing.here; }", {}).json["validate"]["error"], "ReferenceError")
    loop = validate(api, "function () { for (;;); }", {})
    report.check("one without end is an error", loop.status >= 400 and loop.json["error"] == "function_limit_exceeded", loop)
    broken = validate(api, "function (", {})
    report.equal("one that does not compile", (broken.status, broken.json["error"]), (400, "compilation_error"))


def test_wrong_requests(report, api):
    for what, body in (
        ("no JSON", b"{"),
        ("no object", b"[]"),
        ("nothing to run", b"{}"),
        ("a map that is no text", b'{"map": 1}'),
        ("documents that are none", b'{"map": "function () {}", "docs": [1]}'),
        ("a negative number", b'{"map": "function () {}", "docs": -1}'),
        ("a fraction", b'{"map": "function () {}", "docs": 1.5}'),
        ("a document with odd members", b'{"map": "function () {}", "docs": [{"_odd": 1}]}'),
        ("a validation without a document", b'{"validate": {"function": "function () {}"}}'),
        ("deep nesting", b'{"map": "function () {}", "design": ' + b"[" * 100000 + b"]" * 100000 + b"}"),
    ):
        answer = api.request("POST", "/shop/_settee/preview", body, headers={"Content-Type": "application/json"})
        report.check(f"{what} is refused", answer.status == 400 and answer.is_error_shape, answer)
    report.equal("no other method", api.get("/shop/_settee/preview").status, 405)
    form = api.request("POST", "/shop/_settee/preview", b"{}", headers={"Content-Type": "text/plain"})
    report.equal("no form of another site", form.status, 415)
    report.equal("no such database", api.post("/nowhere/_settee/preview", {"map": "x"}).status, 404)
    report.check("nothing else is there", api.post("/shop/_settee/other", {}).status >= 400)


def test_nothing_is_left(report, api):
    """Of earlier tests, and of these previews."""
    design = {"_id": "_design/left", "views": {"lib": LIB}}
    ask(api, map="function (doc) { emit(doc._id); }", reduce="_count", design=design)
    ask(api, map="function (doc) { emit(doc._id); }", docs=[{"_id": "left", "_rev": "1-a"}])
    validate(api, "function () {}", {"_id": "left"})
    info = api.expect(200, "GET", "/shop")
    report.equal("no document was written", (info["doc_count"], info["update_seq"].split("-")[0]), (DOCS + 1, str(DOCS + 1)))
    designs = api.expect(200, "GET", "/shop/_design_docs")["rows"]
    report.equal("no design document", [row["id"] for row in designs], ["_design/real"])


def test_rights(report, server):
    admin = server.api()
    for name in ("boss", "member"):
        user = {"name": name, "password": "pw", "type": "user", "roles": []}
        admin.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", user)
    admin.expect(200, "PUT", "/shop/_security", {"admins": {"names": ["boss"]}, "members": {"names": ["member"]}})
    asked = {"map": "function (doc) { emit(doc._id); }", "docs": 1}
    for who, credentials, preview, settings_status in (
        ("anonymous", "", 401, 401),
        ("a member", "member:pw", 403, 401),
        ("the database's admin", "boss:pw", 200, 401),
        ("the server's admin", server.admin, 200, 200),
    ):
        api = server.api(credentials=credentials)
        answer = api.post("/shop/_settee/preview", asked)
        report.equal(f"{who} asks for a preview", answer.status, preview)
        tried = api.post("/shop/_settee/preview", {"validate": {"function": "function () {}", "newDoc": {}}})
        report.equal(f"{who} tries a write", tried.status, preview)
        table = api.get("/_node/_local/_settee/settings")
        report.equal(f"{who} asks for the settings", table.status, settings_status)
    boss = server.api(credentials="boss:pw")
    admin.expect(200, "PUT", "/_node/_local/_config/couchdb/users_db_security_editable", "true")
    admin.expect(200, "PUT", "/_users/_security", {"admins": {"names": ["boss"]}, "members": {"names": []}})
    refused = boss.post("/_users/_settee/preview", {"map": "function (doc) { emit(doc.salt); }"})
    report.check("users' documents are listed for the server's admins alone", refused.status in (401, 403), refused)


def test_settings(report, server):
    api = server.api()
    api.expect(200, "PUT", "/_node/_local/_config/mango/default_limit", "7")
    table = {f"{each['section']}/{each['key']}": each for each in api.expect(200, "GET", "/_node/_local/_settee/settings")}
    limit = table["mango/default_limit"]
    known = {key: limit[key] for key in ("value", "default", "kind", "restart", "choices")}
    report.equal("a setting", known, {"value": "7", "default": "25", "kind": "integer", "restart": False, "choices": []})
    report.check("its help", "_find" in limit["help"] and limit["help"].endswith("."), limit)
    report.equal("the port waits for a restart", table["chttpd/port"]["restart"], True)
    level = table["log/level"]
    report.check("choices", "debug" in level["choices"] and level["kind"] == "text", level)
    report.equal("one that is not set", table["csp/attachments_enable"]["value"], None)
    report.equal("one that default.ini sets", (table["vendor/name"]["value"], table["vendor/name"]["default"]), (None, "Settee"))
    folder = api.expect(200, "GET", "/_node/_local/_config/couchdb/database_dir")
    report.equal("the folder that the command line named", (table["couchdb/database_dir"]["value"], folder), (str(server.data), str(server.data)))
    report.equal("whether it is so", table["csp/attachments_enable"]["kind"], "bool")
    secret = table["chttpd_auth/secret"]
    report.equal("a secret is set, and not shown", (secret["value"], secret["secret"]), ("", True))
    report.check("a secret that is not set", table["ssl/password"]["value"] is None and table["ssl/password"]["secret"], table["ssl/password"])
    raw = api.get("/_node/_local/_settee/settings").raw.decode()
    shown = api.expect(200, "GET", "/_node/_local/_config/chttpd_auth/secret")
    report.check("no secret is in the answer", shown not in raw and "pbkdf2:" not in raw and "-pbkdf2-" not in raw)
    report.equal("a node's name does as well", api.get("/_node/settee@127.0.0.1/_settee/settings").raw.decode(), raw)
    report.equal("no other method", api.put("/_node/_local/_settee/settings", {}).status, 405)
    api.expect(200, "DELETE", "/_node/_local/_config/mango/default_limit")

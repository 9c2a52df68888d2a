"""Shows, lists, updates, rewrites, filters and validations over HTTP, beyond what the vectors have. The expected answers are
those of CouchDB's documentation and of its own tests."""

import json
import shutil

import pytest

pytestmark = pytest.mark.quick

DDOC = {
    "_id": "_design/d",
    "word": "plankton",
    "lib": {"greet": "exports.hello = function(x) { return 'Hello ' + x; };"},
    "validate_doc_update": """function(doc, old, user, sec) {
        if (doc.refuse) throw {forbidden: 'refused ' + doc._id};
        if (doc.owner && user.roles.indexOf('_admin') < 0) throw {unauthorized: 'not yours'};
    }""",
    "views": {
        "by_n": {"map": "function(doc) { if ('n' in doc) emit(doc.n, doc._id); }"},
        "sums": {"map": "function(doc) { if ('n' in doc) emit(doc.n % 2, doc.n); }", "reduce": "_sum"},
    },
    "filters": {
        "even": "function(doc, req) { return doc.n % 2 == 0 && req.query.only != 'none'; }",
        "tens": "function(doc, req) { return !doc._deleted && doc.m % 10 == 0; }",
        "fail": "function(doc, req) { return noSuchVariable; }",
    },
    "shows": {
        "greet": "function(doc, req) { return require('lib/greet').hello(doc ? doc._id : req.id) + this.word; }",
        "request": "function(doc, req) { return {json: req}; }",
        "accept": """function(doc, req) {
            registerType('foo', 'application/foo', 'application/x-foo');
            provides('html', function() { return '<p>'; });
            provides('foo', function() { return 'foo'; });
        }""",
        "order": "function(doc, req) { provides('text', function() { send('4'); return '5'; }); send('1'); send('2'); return '3'; }",
        "start": "function(doc, req) { start({'X-Test': 'yes'}); send('Hey '); return {headers: {'X-Other': 'too'}, body: 'Dude'}; }",
        "etag": "function(doc, req) { return {headers: {Etag: 'mine'}, body: 'x'}; }",
        "binary": "function(doc, req) { return {base64: 'aGVsbG8=', headers: {'Content-Type': 'image/png'}}; }",
        "fail": "function(doc, req) { return doc._id; }",
        "refuse": "function(doc, req) { throw {forbidden: 'no'}; }",
        "unknown": "function(doc, req) { return {teapot: 1}; }",
        "split": "function(doc, req) { return {headers: {'X-A': 'b\\r\\nX-C: d'}, body: 'x'}; }",
        "length": "function(doc, req) { return {headers: {'Content-Length': '1', 'Transfer-Encoding': 'chunked'}, body: 'whole'}; }",
        "loop": "function(doc, req) { for (;;); }",
    },
    "lists": {
        "basic": "function(head, req) { send('head'); var row; while (row = getRow()) send(row.key); return 'tail'; }",
        "json": "function(head, req) { var rows = [], row; while (row = getRow()) rows.push(row); return toJSON([head, rows, req.path.slice(1)]); }",
        "stop": "function(head, req) { send('head'); getRow(); return 'tail'; }",
        "late": "function(head, req) { getRow(); start({code: 400, headers: {'X-My': 'header'}}); send('bad request'); }",
        "html": "function(head, req) { provides('html', function() { send('<ul>'); var row; while (row = getRow()) send(row.key); return '</ul>'; }); }",
        "error": "function(head, req) { getRow(); noSuchVariable; }",
        "broken": "function(head, req) { send('head'); getRow(); noSuchVariable; }",
        "docs": "function(head, req) { var row, all = ''; while (row = getRow()) all += row.doc._id; return all; }",
    },
    "updates": {
        "set": "function(doc, req) { doc = doc || {_id: req.id || req.uuid}; doc[req.query.field] = req.query.value; return [doc, 'set']; }",
        "form": "function(doc, req) { doc = doc || {_id: req.id}; for (var f in req.form) doc[f] = req.form[f]; return [doc, {json: req.form}]; }",
        "refuse": "function(doc, req) { return [{_id: req.id, refuse: true}, 'never']; }",
        "noid": "function(doc, req) { return [{}, 'oops']; }",
        "code": "function(doc, req) { return [{_id: req.id}, {code: 302, json: {ok: true}}]; }",
        "stale": "function(doc, req) { return [{_id: req.id, _rev: '1-00000000000000000000000000000000'}, 'never']; }",
    },
}

RULES = [
    {"from": "/view/:k", "to": "_view/by_n", "query": {"key": ":k"}, "formats": {"k": "int"}},
    {"from": "/doc/*", "to": "../../*"},
    {"from": "/hello/:id", "to": "_show/greet/:id", "method": "GET"},
    {"from": "/hello/:id", "to": "_update/set/:id", "method": "PUT"},
    {"from": "/list", "to": "_list/basic/by_n", "query": {"startkey": 1, "endkey": 2}},
    {"from": "/loop", "to": "_rewrite/loop"},
    {"from": "/", "to": "_show/greet/root"},
]

REWRITE = """function(req) {
    var path = req.path.slice(4);
    if (path[0] == 'answer') return {code: 418, headers: {'X-Tea': 'yes'}, body: 'tea'};
    if (path[0] == 'post') return {path: '../../', method: 'POST', body: '{"_id":"by-rewrite"}', headers: {'Content-Type': 'application/json'}};
    if (path[0] == 'refuse') throw {forbidden: 'not here'};
    if (path[0] == 'bad') return 5;
    if (path[0] == 'doc') return '../../' + path[1];
}"""


@pytest.fixture(scope="module")
def server(suite):
    with suite.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        api.expect((201, 202), "POST", "/db/_bulk_docs", {"docs": [DDOC, *({"_id": f"doc{n}", "n": n} for n in range(5)), {"_id": "with/slash"}]})
        rules = {name: DDOC[name] for name in ("word", "lib", "views", "shows", "lists", "updates")}
        other = {"shows": {"s": "function() { return 'other'; }"}, "lists": DDOC["lists"]}
        for name, body in (
            ("rules", {**rules, "rewrites": RULES}),
            ("code", {"rewrites": REWRITE}),
            ("other", other),
            ("far", {"rewrites": [{"from": "/a", "to": "../../../_uuids"}]}),
        ):
            api.expect((201, 202), "PUT", f"/db/_design/{name}", body)
        yield server
        suite.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


@pytest.fixture
def api(server):
    return server.api()


@pytest.fixture
def report(suite):
    return suite.report


def test_worker_processes(ctx):
    with ctx.server(options=["--set", "functions/isolation=process", "--set", "functions/time_limit_ms=1000"]) as server:
        processes(ctx.report, server.api())


REWRITES = {"a": [{"from": "x", "to": "../../a"}], "b": [{"from": "x", "to": "../../b"}]}


def write_rewrites(api, db, name, to):
    """A design document with revision `1-abc`, whatever is in it, and two documents."""
    for doc_id in ("a", "b"):
        api.expect(201, "PUT", f"/{db}/{doc_id}", {"text": f"{doc_id} of {db}"})
    ddoc = {"_id": f"_design/{name}", "_rev": "1-abc", "rewrites": REWRITES[to]}
    api.expect(201, "POST", f"/{db}/_bulk_docs", {"new_edits": False, "docs": [ddoc]})


def test_rewrites_are_of_one_design_document(ctx):
    """Rules of an equal revision of another design document, or of one that was there before, are not taken."""
    with ctx.server() as server:
        api = server.api()
        text = lambda path: api.expect(200, "GET", path)["text"]
        api.expect(201, "PUT", "/db")
        write_rewrites(api, "db", "r", "a")
        ctx.report.equal("a rule", text("/db/_design/r/_rewrite/x"), "a of db")
        api.expect(200, "DELETE", "/db")
        api.expect(201, "PUT", "/db")
        write_rewrites(api, "db", "r", "b")
        ctx.report.equal("that of the database that is there now", text("/db/_design/r/_rewrite/x"), "b of db")
        for db in ("short", "short%2F_design"):
            api.expect(201, "PUT", f"/{db}")
        write_rewrites(api, "short", "_design/x", "a")
        write_rewrites(api, "short%2F_design", "x", "b")
        ctx.report.equal("of a name with a slash", text("/short/_design/_design%2Fx/_rewrite/x"), "a of short")
        ctx.report.equal("not of names that are equal together", text("/short%2F_design/_design/x/_rewrite/x"), "b of short%2F_design")
        api.close()


def test_functions_do_not_see_configured_credentials(ctx):
    """Headers of proxy authentication are not shown to functions, whatever their names are, and rewrites do not set them."""
    names = {"x_auth_username": "X-Remote-User", "x_auth_roles": "X-Remote-Roles", "x_auth_token": "X-Remote-Token"}
    options = [part for key, name in names.items() for part in ("--set", f"chttpd_auth/{key}={name}")]
    with ctx.server(options=options) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        functions = {
            "shows": {"request": "function (doc, req) { return {json: req.headers}; }"},
            "rewrites": "function (req) { return {path: '_show/request', headers: {'X-Remote-User': 'mallory', 'X-Other': 'set',"
            " 'X-Seen': String('X-Remote-Token' in req.headers)}}; }",
        }
        api.expect(201, "PUT", "/db/_design/d", functions)
        sent = dict.fromkeys(names.values(), "secret")
        for path in ("_show/request", "_rewrite/any"):
            seen = api.get(f"/db/_design/d/{path}", headers={**sent, "X-Remote": "shown"}).json
            ctx.report.equal(f"{path}: other headers are seen", seen["X-Remote"], "shown")
            ctx.report.equal(f"{path}: those of logins are not", [name for name in sent if name in seen], [])
        ctx.report.equal("a rewrite function sets and sees others", (seen["X-Other"], seen["X-Seen"]), ("set", "false"))
        api.close()


def test_other_languages(ctx):
    options = [
        "--set",
        "query_servers/nodejs=builtin",
        "--set",
        "query_servers/Python=/bin/false",
        "--set",
        "native_query_servers/enable_erlang_query_server=true",
        # Starting a program takes its time on a busy machine.
        "--set",
        "couchdb/os_process_timeout=60000",
    ]
    with ctx.server(options=options) as server:
        languages(ctx.report, server.api())


def processes(report, api):
    """The same by worker processes, which end when they overrun a limit."""
    api.expect((201, 202), "PUT", "/db")
    api.expect((201, 202), "POST", "/db/_bulk_docs", {"docs": [DDOC, *({"_id": f"doc{n}", "n": n} for n in range(5))]})
    at = "/db/_design/d/"
    answer(report, "a show in a worker process", api.get(at + "_show/greet/doc1"), 200, "Hello doc1plankton")
    refusal(report, "a validation in a worker process", api.put("/db/x", {"refuse": True}), 403, "forbidden", "refused x")
    slow = api.get(at + "_show/loop")
    report.check("a worker process that does not end is ended", slow.status == 500 and "time_limit_ms" in slow.raw.decode(), slow)
    answer(report, "a list in a worker process", api.get(at + '_list/basic/_all_docs?startkey="doc3"&endkey="doc9"'), 200, "headdoc3doc4tail")
    report.equal("a filter in a worker process", len(api.get("/db/_changes?filter=d/even").json["results"]), 3)


def languages(report, api):
    api.expect((201, 202), "PUT", "/db")
    api.expect((201, 202), "POST", "/db/_bulk_docs", {"docs": [{"_id": "doc1", "n": 1}, {"_id": "doc2", "n": 2}]})
    if shutil.which("node"):
        node = {
            "language": "nodejs",
            "shows": {"s": "(doc, req) => `node ${doc?._id}`"},
            "filters": DDOC["filters"],
            "validate_doc_update": "function(doc) { if (doc.refuse) throw {forbidden: 'by node'}; }",
        }
        api.expect((201, 202), "PUT", "/db/_design/node", node)
        answer(report, "a show in Node", api.get("/db/_design/node/_show/s/doc1"), 200, "node doc1")
        report.equal("a filter in Node", [row["id"] for row in api.get("/db/_changes?filter=node/even").json["results"]], ["doc2"])
        refusal(report, "a validation in Node", api.put("/db/x", {"refuse": True}), 403, "forbidden", "by node")
    if shutil.which("erl"):
        erlang = {"language": "erlang", "filters": {"f": 'fun({Doc}, {_Req}) -> proplists:get_value(<<"n">>, Doc) =:= 1 end.'}}
        api.expect((201, 202), "PUT", "/db/_design/erl", erlang)
        report.equal("a filter in Erlang", [row["id"] for row in api.get("/db/_changes?filter=erl/f").json["results"]], ["doc1"])
    api.expect((201, 202), "PUT", "/db/_design/cobol", {"language": "cobol", "views": {"v": {"map": "MOVE"}}, "shows": {"s": "x"}})
    refusal(report, "a language that nobody runs", api.get("/db/_design/cobol/_show/s"), 500, "unknown_query_language", "cobol")
    api.expect((201, 202), "PUT", "/db/_design/python", {"language": "python", "shows": {"s": "x"}})
    refusal(report, "a query server that ends at once", api.get("/db/_design/python/_show/s"), 500, "os_process_error")


def answer(report, name, response, status, body=None, **headers):
    """Checks status, body (a text, or a JSON value) and headers, whose names are given with underscores."""
    got = {"status": response.status}
    wanted = {"status": status}
    if body is not None:
        wanted["body"] = body
        got["body"] = response.raw.decode() if isinstance(body, str) else safe_json(response)
    for header, value in headers.items():
        wanted[header] = value
        got[header] = response.headers.get(header.replace("_", "-"))
    report.equal(name, got, wanted)


def refusal(report, name, response, status, error, reason=None):
    body = safe_json(response)
    ok = response.status == status and isinstance(body, dict) and body.get("error") == error and (reason is None or reason in body.get("reason", ""))
    report.check(name, ok, f"expected {status} {error} {reason or ''}, got {response!r}")


def safe_json(response):
    try:
        return response.json
    except ValueError:
        return response.raw


def test_shows(report, api):
    at = "/db/_design/d/_show/"
    html = "text/html; charset=utf-8"
    answer(report, "a show of a document", api.get(at + "greet/doc1"), 200, "Hello doc1plankton", content_type=html, vary="Accept")
    answer(report, "a show of a document with a slash", api.get(at + "greet/with/slash"), 200, "Hello with/slashplankton")
    answer(report, "a show of a missing document", api.get(at + "greet/none"), 200, "Hello noneplankton")
    answer(report, "a show without a document", api.get(at + "greet"), 200, "Hello nullplankton")
    refusal(report, "a show without a name", api.get(at), 404, "show_error", "Invalid path.")
    refusal(report, "a show that is not there", api.get(at + "none/doc1"), 404, "not_found")
    refusal(report, "a show of a missing design document", api.get("/db/_design/none/_show/s"), 404, "not_found", "missing")
    refusal(report, "a show that fails without the document", api.get(at + "fail/none"), 404, "not_found", "document not found")
    refusal(report, "a show that fails", api.get(at + "fail"), 500, "render_error", "function raised error")
    refusal(report, "a show that refuses", api.get(at + "refuse"), 403, "forbidden", "no")
    refusal(report, "an unknown member of a response", api.get(at + "unknown"), 500, "external_response_error", "teapot")
    refusal(report, "a header that would split the answer", api.get(at + "split"), 500, "external_response_error")
    answer(report, "framing headers are the server's", api.get(at + "length"), 200, "whole", content_length="5", transfer_encoding=None)
    answer(report, "the server answers after that", api.get(at + "greet/doc1"), 200, "Hello doc1plankton")
    answer(report, "a show in base64", api.get(at + "binary"), 200, "hello", content_type="image/png")
    answer(report, "the order of what is sent", api.get(at + "order?format=text"), 200, "12345", content_type="text/plain; charset=utf-8")
    answer(report, "start and a response", api.get(at + "start"), 200, "Hey Dude", x_test="yes", x_other="too")
    answer(report, "a registered type", api.get(at + "accept", headers={"Accept": "application/x-foo"}), 200, "foo", content_type="application/x-foo")
    answer(
        report,
        "the first of accepted types",
        api.get(at + "accept", headers={"Accept": "text/html,application/atom+xml; q=0.9"}),
        200,
        "<p>",
        content_type=html,
    )
    refusal(
        report, "no accepted type", api.get(at + "accept", headers={"Accept": "text/monkeys"}), 406, "not_acceptable", "text/monkeys not supported"
    )
    etags(report, api, at)
    request = safe_json(api.get(at + "request/doc1?foo=bar&key=%5B1%5D", headers={"X-Foo": "bar", "Cookie": "a=b"}))
    expected = {
        "method": "GET",
        "path": ["db", "_design", "d", "_show", "request", "doc1"],
        "query": {"foo": "bar", "key": [1]},
        "id": "doc1",
        "raw_path": at + "request/doc1?foo=bar&key=%5B1%5D",
        "body": "undefined",
        "form": {},
        "peer": "127.0.0.1",
    }
    report.equal("the request object", {name: request.get(name) for name in expected}, expected)
    report.equal(
        "headers, cookie and user of the request object",
        (request["headers"].get("X-Foo"), request["cookie"].get("a"), request["userCtx"]),
        ("bar", "b", {"db": "db", "name": "admin", "roles": ["_admin"]}),
    )
    report.equal("the database of the request object", (request["info"]["db_name"], sorted(request["secObj"])), ("db", ["admins", "members"]))
    slow = api.get(at + "loop")
    report.check("a show that does not end is ended", slow.status >= 400 and slow.is_error_shape, slow)


def etags(report, api, at):
    first = api.get(at + "greet/doc2")
    tag = first.headers.get("ETag", "")
    answer(report, "an unchanged show is a 304", api.get(at + "greet/doc2", headers={"If-None-Match": tag}), 304)
    other = api.get(at + "greet/doc2", headers={"Accept": "x/y"})
    report.check("another Accept header is another ETag", other.headers.get("ETag") != tag, other.headers.get("ETag"))
    api.expect((201, 202), "PUT", "/db/doc2?rev=" + api.get("/db/doc2").json["_rev"], {"n": 2, "changed": True})
    answer(report, "a changed document is a 200", api.get(at + "greet/doc2", headers={"If-None-Match": tag}), 200)
    report.check("a function does not set the ETag", "mine" not in api.get(at + "etag").headers.get("ETag", ""))


def test_lists(report, api):
    at = "/db/_design/d/_list/"
    answer(report, "a list", api.get(at + "basic/by_n"), 200, "head01234tail", vary="Accept")
    answer(report, "a list with a range", api.get(at + "basic/by_n?startkey=1&endkey=3"), 200, "head123tail")
    answer(report, "a list of keys", api.get(at + "basic/by_n?keys=[4,2]"), 200, "head42tail")
    answer(report, "a list of posted keys", api.post(at + "basic/by_n", {"keys": [3, 1]}), 200, "head31tail")
    answer(report, "a list of no rows", api.get(at + "basic/by_n?startkey=99"), 200, "headtail")
    answer(
        report,
        "a list of a reduced view",
        api.get(at + "json/sums?group=true"),
        200,
        [{}, [{"key": 0, "value": 6}, {"key": 1, "value": 4}], ["_design", "d", "_list", "json", "sums"]],
    )
    answer(
        report,
        "a list of a view that is not reduced",
        api.get(at + "json/sums?reduce=false&limit=1"),
        200,
        [{"total_rows": 5, "offset": 0}, [{"id": "doc0", "key": 0, "value": 0}], ["_design", "d", "_list", "json", "sums"]],
    )
    answer(report, "a list of documents", api.get(at + "docs/by_n?include_docs=true&limit=2"), 200, "doc0doc1")
    answer(report, "a list of another design document's view", api.get("/db/_design/other/_list/basic/d/by_n"), 200, "head01234tail")
    answer(report, "a list of _all_docs", api.get(at + "basic/_all_docs?startkey=%22doc3%22&endkey=%22doc9%22"), 200, "headdoc3doc4tail")
    answer(report, "a list that stops early", api.get(at + "stop/by_n"), 200, "headtail")
    answer(report, "headers after the first row", api.get(at + "late/by_n"), 400, "bad request", x_my="header")
    answer(
        report,
        "a list that provides",
        api.get(at + "html/by_n", headers={"Accept": "text/html"}),
        200,
        "<ul>01234</ul>",
        content_type="text/html; charset=utf-8",
    )
    refusal(report, "a list that provides no accepted type", api.get(at + "html/by_n", headers={"Accept": "image/png"}), 406, "not_acceptable")
    refusal(report, "a list that fails before its first output", api.get(at + "error/by_n"), 500, "render_error", "ReferenceError")
    broken = api.get(at + "broken/by_n")
    report.check("a list that fails later says so in its body", broken.status == 200 and b"ReferenceError" in broken.raw, broken)
    refusal(report, "keys without a group", api.post(at + "basic/sums?group=false", {"keys": [1, 0]}), 400, "query_parse_error")
    tag = api.get(at + "basic/by_n").headers.get("ETag", "")
    answer(report, "an unchanged list is a 304", api.get(at + "basic/by_n", headers={"If-None-Match": tag}), 304)


def test_updates(report, api):
    at = "/db/_design/d/_update/"
    made = api.put(at + "set/made?field=title&value=test")
    doc = api.get("/db/made").json
    report.equal(
        "an update makes a document", (made.status, made.raw, made.headers.get("X-Couch-Id"), doc.get("title")), (201, b"set", "made", "test")
    )
    report.equal("its revision is in a header", made.headers.get("X-Couch-Update-NewRev"), doc["_rev"])
    changed = api.put(at + "set/with/slash?field=title&value=test")
    report.equal("an update of a document with a slash", (changed.status, changed.headers.get("X-Couch-Id")), (201, "with%2Fslash"))
    fresh = api.post(at + "set?field=a&value=b")
    report.check("an update without an id uses the server's uuid", fresh.status == 201 and len(fresh.headers.get("X-Couch-Id", "")) == 32, fresh)
    form = api.put(at + "form/form", b"a=1&b=x+y", headers={"Content-Type": "application/x-www-form-urlencoded"})
    answer(report, "an update from a form", form, 201, {"a": "1", "b": "x y"})
    answer(report, "an update with its own code", api.put(at + "code/coded"), 302, {"ok": True})
    report.equal("and its document is saved", api.get("/db/coded").status, 200)
    refusal(report, "GET is not for updates", api.get(at + "set/made"), 405, "method_not_allowed", "Update functions do not allow GET")
    refusal(report, "an update whose document is refused", api.put(at + "refuse/x"), 403, "forbidden", "refused x")
    refusal(report, "an update without an id in its document", api.put(at + "noid/x"), 400, "illegal_docid", "Document id must not be empty")
    refusal(report, "an update that conflicts", api.put(at + "stale/made"), 409, "conflict")
    refusal(report, "an update without a name", api.post(at), 404, "update_error", "Invalid path.")
    refusal(report, "an update that is not there", api.post(at + "none"), 404, "not_found")


def test_rewrites(report, api):
    at = "/db/_design/rules/_rewrite"
    found = api.get(at + "/view/3")
    report.equal("a rule to a view", [row["id"] for row in safe_json(found).get("rows", [])] if found.status == 200 else found, ["doc3"])
    report.equal("a rule to the database", safe_json(api.get(at + "/doc/doc1?revs=true")).get("_revisions", {}).get("start"), 1)
    answer(report, "a rule to a show", api.get(at + "/hello/doc1"), 200, "Hello doc1plankton")
    answer(report, "the same path by another method", api.put(at + "/hello/doc9?field=f&value=v"), 201, "set")
    answer(report, "a rule to a list", api.get(at + "/list"), 200, "head12tail")
    answer(report, "the root", api.get(at + "/"), 200, "Hello rootplankton")
    refusal(report, "no rule", api.get(at + "/none"), 404, "not_found", "missing")
    refusal(report, "a rule that leads to itself", api.get(at + "/loop"), 400, "bad_request", "Exceeded rewrite recursion limit")
    refusal(report, "a rule that leads too far", api.get("/db/_design/far/_rewrite/a"), 500, "insecure_rewrite_rule", "too many ../.. segments")
    refusal(report, "no rules at all", api.get("/db/_design/other/_rewrite/a"), 404, "rewrite_error", "Invalid path.")
    climbed = api.get(at + "/doc/%2E%2E/_all_dbs")
    report.check("a client cannot climb out of a rule", climbed.status in (400, 404), climbed)
    at = "/db/_design/code/_rewrite"
    answer(report, "a function's path", api.get(at + "/doc/doc1"), 200)
    answer(report, "a function's own answer", api.get(at + "/answer"), 418, "tea", x_tea="yes")
    report.equal("a function's method and body", (api.get(at + "/post").status, api.get("/db/by-rewrite").status), (201, 200))
    refusal(report, "a function that refuses", api.get(at + "/refuse"), 403, "forbidden", "not here")
    refusal(report, "a function that answers nonsense", api.get(at + "/bad"), 500, "rewrite_error", "bad rewrite")
    refusal(report, "a function that knows no rule", api.get(at + "/none"), 404, "rewrite_error", "Invalid path.")


def test_filters(report, api):
    def ids(query):
        response = api.get("/db/_changes?" + query)
        return sorted(row["id"] for row in response.json["results"]) if response.status == 200 else response

    report.equal("a filter", ids("filter=d/even"), ["doc0", "doc2", "doc4"])
    report.equal("a filter that sees the query", ids("filter=d/even&only=none"), [])
    report.equal("a view as a filter", ids("filter=_view&view=d/by_n"), [f"doc{n}" for n in range(5)])
    lines = api.get("/db/_changes?feed=continuous&filter=d/even&timeout=200").raw.splitlines()
    report.equal("a filter of a continuous feed", sorted(json.loads(line).get("id", "") for line in lines if line), ["", "doc0", "doc2", "doc4"])
    longpoll = api.post("/db/_changes?feed=longpoll&filter=d/even&limit=2", {})
    report.equal("a filter of a longpoll", len(longpoll.json["results"]), 2)
    events = api.get("/db/_changes?feed=eventsource&filter=_view&view=d/by_n&timeout=200").raw
    report.equal("a filter of an event source", events.count(b"data: {"), 5)
    report.equal("a filter with a limit, and on from there", *halves(api))
    report.equal("a filter downwards", ids("filter=d/even&descending=true"), ["doc0", "doc2", "doc4"])
    refusal(report, "a filter that fails", api.get("/db/_changes?filter=d/fail"), 500, "ReferenceError")
    many = api.post("/db/_bulk_docs", {"docs": [{"_id": f"many{n:04}", "m": n} for n in range(1000)]})
    report.equal("a filter of more changes than one call sees", (many.status, len(ids("filter=d/tens"))), (201, 100))
    api.post("/db/_bulk_docs", {"docs": [{"_id": row["id"], "_rev": row["rev"], "_deleted": True} for row in many.json]})
    refusal(report, "a filter that is not there", api.get("/db/_changes?filter=d/none"), 404, "not_found", "missing json key: none")
    refusal(report, "a filter of a missing design document", api.get("/db/_changes?filter=none/f"), 404, "not_found", "missing")


def halves(api):
    """What a feed of two and one that goes on after it show, and what one feed shows."""
    at = "/db/_changes?filter=d/even"
    first = api.get(at + "&limit=2").json
    rest = api.get(at + "&since=" + first["last_seq"]).json
    found = [row["id"] for part in (first, rest) for row in part["results"]]
    return found, [row["id"] for row in api.get(at).json["results"]]


def test_validations(report, api, server):
    refusal(report, "a refused document", api.put("/db/x", {"refuse": True}), 403, "forbidden", "refused x")
    bulk = api.post("/db/_bulk_docs", {"docs": [{"_id": "x", "refuse": True}, {"_id": "y"}]})
    report.equal("a refused document among others", [(row.get("ok"), row.get("error")) for row in bulk.json], [(None, "forbidden"), (True, None)])
    api.expect(200, "PUT", "/db/_security", {})
    anybody = server.api(credentials="")
    try:
        refusal(report, "a document that somebody may not write", anybody.put("/db/z", {"owner": "me"}), 401, "unauthorized", "not yours")
        answer(report, "a document that anybody may write", anybody.put("/db/z", {"free": True}), 201)
    finally:
        anybody.close()
    body = {name: value for name, value in api.get("/db/_design/d").json.items() if not name.startswith("_rev")}
    body["validate_doc_update"] = "function(doc) { if (doc.n == 77) throw {forbidden: 'new rule'}; }"
    api.expect((201, 202), "PUT", "/db/_design/d?rev=" + api.get("/db/_design/d").json["_rev"], body)
    refusal(report, "a changed validation counts at once", api.put("/db/n77", {"n": 77}), 403, "forbidden", "new rule")
    answer(report, "and the old one no more", api.put("/db/x", {"refuse": True}), 201)


def test_anonymous(report, api, server):
    api.expect(200, "PUT", "/db/_security", {"members": {"roles": ["nobody"]}})
    anybody = server.api(credentials="")
    try:
        for path in ("_show/greet/doc1", "_list/basic/by_n", "_rewrite/x"):
            refusal(report, f"{path} is for members", anybody.get("/db/_design/d/" + path), 401, "unauthorized")
        refusal(report, "updates are for members", anybody.put("/db/_design/d/_update/set/a?field=a&value=b"), 401, "unauthorized")
    finally:
        anybody.close()

"""`settee check-functions` names functions that depend on CouchDB's JavaScript engine, and no others. A small HTTP server stands in
for CouchDB, since Settee refuses functions that do not compile."""

import base64
import json
import os
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from harness.ports import closed_port

pytestmark = pytest.mark.quick

NOTHING, FOUND, NOT_RUN = range(3)
ADMIN = "admin:se%cret"


class Couch(BaseHTTPRequestHandler):
    """Answers `_all_dbs` and `_all_docs` of `server.databases`: documents by name."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append(self.path)
        wanted = "Basic " + base64.b64encode(ADMIN.encode()).decode()
        if self.headers.get("Authorization") != wanted:
            return self.answer(401, {"error": "unauthorized", "reason": "Name or password is incorrect."})
        url = urlsplit(self.path)
        if url.path == "/_all_dbs":
            return self.answer(200, sorted(self.server.databases))
        name, _, rest = unquote(url.path[1:]).rpartition("/")
        docs = self.server.databases.get(name)
        if docs is None or rest != "_all_docs":
            return self.answer(404, {"error": "not_found", "reason": "Database does not exist."})
        return self.answer(200, {"rows": [{"id": doc["_id"], "doc": doc} for doc in self.chosen(docs, parse_qs(url.query))]})

    def chosen(self, docs, query):
        one = lambda name, otherwise: query.get(name, [otherwise])[0]
        ids = sorted(docs, key=lambda doc: doc["_id"], reverse=one("descending", "false") == "true")
        start, end = (json.loads(one(name, otherwise)) for name, otherwise in (("startkey", '""'), ("endkey", '"\\ufff0"')))
        return [doc for doc in ids if start <= doc["_id"] < end][: int(one("limit", "1000"))]

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def couch(databases):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Couch)
    server.databases = {name: [{"_id": doc["_id"], "_rev": "1-" + "a" * 32, **doc} for doc in docs] for name, docs in databases.items()}
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://admin:se%25cret@127.0.0.1:{server.server_port}"
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def check(ctx, url, *options, **environment):
    command = [ctx.binary, "check-functions", url, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment})


def report(ctx, url, *options):
    done = check(ctx, url, "--json", *options)
    if done.returncode == NOT_RUN:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def design(name, **members):
    return {"_id": f"_design/{name}", **members}


def body(text):
    return f"function (doc) {{\n{text}\n}}"


DOCS = [{"_id": f"doc{n}", "n": n, "tags": ["a", "b"], "name": "x y", "t": 1_435_744_800_000, "local": "2015/07/01 10:00"} for n in range(30)]

# A map function of each kind that a run or the source shows; the kind and the line.
PLANTED = {
    "instanceof": (body("if (doc.tags instanceof Array) emit(1)"), 2),
    "constructor": (body("if (doc.tags.constructor === Array) emit(1)"), 2),
    "time-zone": (body("\nemit(new Date(doc.t).getHours())"), 3),
    "locale": (body("emit(doc.n.toLocaleString('de-DE'))"), 2),
    "regexp-statics": (body("var all = [RegExp]; /(.)/.test(doc._id); emit(all[0].$1)"), 2),
    "error-position": (body("try { doc.a.b() } catch (e) { emit(e.lineNumber) }"), 2),
    "intl": (body("emit(new Intl.NumberFormat('de').format(doc.n))"), 2),
    "static-methods": (body("Array.forEach(doc.tags, function (tag) { emit(tag) })"), 2),
    "missing-method": (body("emit(new Date(doc.t).toLocaleFormat('%Y'))"), 2),
    "missing-global": (body("try { emit(Iterator(doc)) } catch (e) {}"), 2),
    "for-each": (body("for each (var tag in doc.tags) emit(tag)"), 2),
    "expression-closure": (body("emit(doc.tags.map(function (tag) tag + 1))"), 2),
    "let-block": (body("let (a = doc.n) { emit(a) }"), 2),
    "legacy-generator": (body("function tags() { yield 1 } emit(1)"), 2),
    "comprehension": (body("emit([tag for (tag in doc.tags)])"), 2),
    "catch-condition": (body("try { emit(1) } catch (e if e.name) {}"), 2),
    "e4x": (body("var xml = <a>{doc.n}</a>; emit(xml.toString())"), 2),
    "sharp-variable": (body("var a = #1=[1]; emit(a)"), 2),
    "legacy-accessor": (body("var a = {b getter: function () { return 1 }}; emit(a.b)"), 2),
    "compile": (body("var 1a"), None),
    "throws": (body("emit(doc.missing.member)"), 2),
    "time-zone-of-texts": (body("emit(new Date(doc.local).getTime())"), None),
}
KINDS = {"constructor": "instanceof", "time-zone-of-texts": "time-zone"}

ORDINARY = {
    "views": {
        "lib": {"words": "exports.first = function (text) { return /(\\w)/.test(text) ? RegExp.$1 : null }"},
        "sorted": {"map": body("emit(doc.tags.sort(function (a, b) { return a < b }), require('views/lib/words').first(doc.name))")},
        "dates": {"map": body("emit(Date.parse('Mon, 25 Dec 1995 13:30 GMT'), new Date(doc.t).toISOString())"), "reduce": "_count"},
        "odd": {"map": body("emit(doc.toSource(), [doc.name.localeCompare('a'), doc.n.toLocaleString(), typeof Intl])")},
        "random": {"map": body("emit(Math.random(), new Date())")},
        "some": {"map": body("if (doc.n % 2) emit(doc.a.b)")},
        "lists": {"map": body("if (isArray(doc.tags)) doc.tags.forEach(function (tag) { emit(tag, doc) })"), "reduce": "function (k, v, r) { return r ? sum(v) : v.length }"},
    },
    "filters": {"mine": "function (doc, req) { return doc.owner === req.userCtx.name || req.query.name.length > 0 }"},
    "shows": {"s": "function (doc, req) { provides('html', function () { return '<b>' + (doc ? doc.name : '') + '</b>' }); return req.query.x.length }"},
    "lists": {"l": "function (head, req) { start({headers: {}}); var row; while (row = getRow()) send(row.key); }"},
    "updates": {"u": "function (doc, req) { return [doc, JSON.parse(req.body)] }"},
    "rewrites": "function (req) { return {path: '/x'} }",
    "validate_doc_update": "function (newDoc, oldDoc, userCtx, secObj) { if (userCtx.roles.indexOf('nobody') < 0) throw {forbidden: 'no'} }",
    "nouveau": {"n": {"index": body("index('text', 'name', doc.name)")}},
    "indexes": {"i": {"index": body("index('name', doc.name, {store: true})")}},
}  # fmt: skip


def test_planted_functions_of_each_kind_are_named(ctx):
    views = {name: {"map": source} for name, (source, _) in PLANTED.items()}
    with couch({"shop": [design("planted", views=views), *DOCS], "other/db": [design("fine", **ORDINARY), *DOCS]}) as server:
        found = report(ctx, server.url)
        for name, (_, line) in PLANTED.items():
            of = [each for each in found["findings"] if each["function"] == f"views/{name}/map"]
            kind = KINDS.get(name, name)
            named = [each for each in of if each["kind"] == kind and each["line"] == line]
            ctx.report.equal(f"{name} is named once", len(named), 1)
            for each in named:
                ctx.report.check(f"{name}: what differs, and what to write", each["differs"] and each["instead"] and each["effect"], each)
                ctx.report.equal(f"{name}: where", (each["database"], each["design"]), ("shop", "_design/planted"))
            ctx.report.equal(f"{name} is the only kind", {each["kind"] for each in of}, {kind})
        others = [each for each in found["findings"] if each["database"] != "shop"]
        ctx.report.equal("ordinary functions are not named", others, [])
        ctx.report.equal("what was checked", (found["databases"], found["designs"], found["documents"]), (2, 2, 60))
        done = check(ctx, server.url)
        ctx.report.equal("it fails", done.returncode, FOUND)
        line = "shop/_design/planted, views/instanceof/map, line 2: instanceof\n  doc.tags instanceof Array\n"
        ctx.report.check("text names the place", line in done.stdout, done.stdout)
        ctx.report.equal("all requests only read", [path for path in server.requests if "_all_" not in path], [])


def test_ordinary_functions_are_not_named(ctx):
    with couch({"db": [design("fine", **ORDINARY), *DOCS]}) as server:
        done = check(ctx, server.url + "/db")
        ctx.report.equal("nothing to change", (done.returncode, done.stderr), (NOTHING, ""))
        last = done.stdout.splitlines()[-1]
        # With the module that a view requires.
        ctx.report.check("numbers", last.startswith("16 functions of 1 design document in 1 database, run with 30 documents: nothing"), done.stdout)
        ctx.report.check("a function that threw for some is a note", "views/some/map: it threw for 15 of 30 documents" in done.stdout, done.stdout)


def test_other_functions_than_maps_are_run(ctx):
    members = {
        "views": {"v": {"map": body("emit(1, 1)"), "reduce": "function (keys, values) { return Array.map(values, Number) }"}},
        "filters": {"f": "function (doc, req) { return missing(doc) }"},
        "shows": {"s": "function (doc, req) { return missing }"},
        "lists": {"l": "function (head, req) { while (getRow()) send(missing) }"},
        "updates": {"u": "function (doc, req) { return [null, missing()] }"},
        "rewrites": "function (req) { return missing }",
        "validate_doc_update": "function (newDoc) { newDoc.a.b.c }",
        "lib": {"list": "exports.is = function (x) {\n return x instanceof Array }"},
        "language": "JavaScript",
    }
    requiring = {"shows": {"s": "function () { return require('lib/list').is([]) ? 'y' : 'n' }"}, "lib": members["lib"]}
    with couch({"db": [design("d", **members), design("r", **requiring), design("py", language="python", views={}), *DOCS]}) as server:
        found = report(ctx, server.url)
        places = {(each["design"], each["function"], each["kind"], each["line"]) for each in found["findings"]}
        calls = {"filters/f", "shows/s", "lists/l", "updates/u", "rewrites", "validate_doc_update"}
        wanted = {("_design/d", path, "throws", None) for path in calls} | {
            ("_design/d", "views/v/reduce", "static-methods", 1),
            ("_design/r", "lib/list", "instanceof", 2),
        }
        ctx.report.equal("all are named", places, wanted)
        ctx.report.equal("and functions in other languages noted", found["notes"], ["db/_design/py: functions in python are not checked"])


def test_the_sample_is_bounded_and_from_both_ends(ctx):
    only = lambda name: {"views": {"v": {"map": body(f"if (doc._id === '{name}') missing(); else emit(1)")}}}
    docs = [{"_id": f"doc{n:03}"} for n in range(300)]
    with couch({"db": [design("first", **only("doc000")), design("last", **only("doc299")), design("middle", **only("doc150")), *docs]}) as server:
        found = report(ctx, server.url, "--sample", "20")
        ctx.report.equal("no function threw for all", found["findings"], [])
        threw = sorted(note.split(",")[0] for note in found["notes"])
        ctx.report.equal("documents of both ends", threw, ["db/_design/first", "db/_design/last"])
        ctx.report.check("as many as wanted", 15 < found["documents"] <= 20, found["documents"])
        sources = report(ctx, server.url, "--sample", "0")
        ctx.report.equal("none at all", (sources["documents"], sources["notes"], sources["functions"]), (0, [], 3))


def test_what_cannot_be_checked_is_said(ctx):
    with couch({"db": [design("d", views={"v": {"map": body("emit(1)")}})]}) as server:
        without = server.url.replace("admin:se%25cret@", "")
        refused = check(ctx, without)
        ctx.report.equal("without a password", refused.returncode, NOT_RUN)
        ctx.report.check("says the status", "401" in refused.stderr, refused.stderr)
        ctx.report.equal("with one from the environment", check(ctx, without, SETTEE_CREDENTIALS=ADMIN).returncode, NOTHING)
        missing = check(ctx, server.url + "/none")
        ctx.report.equal("a database that does not exist", (missing.returncode, "404" in missing.stderr), (NOT_RUN, True))
        ctx.report.check("no password is said", "se%25cret" not in missing.stderr and "se%cret" not in missing.stderr, missing.stderr)
    with closed_port() as closed:
        for url in (f"http://127.0.0.1:{closed}", "ftp://x", "http://127.0.0.1:1/a/b/c"):
            ctx.report.equal(f"{url} cannot be checked", check(ctx, url).returncode, NOT_RUN)


def test_a_running_settee_is_checked_and_the_order_of_members_is_seen(ctx):
    stub = {"a.txt": {"content_type": "text/plain", "data": base64.b64encode(b"x").decode()}}
    with ctx.server("couch") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        views = {"names": {"map": body("emit(Object.keys(doc).join())")}, "all": {"map": body("for (var name in doc) emit(name, doc[name])")}}
        api.expect(201, "PUT", "/db/_design/d", {"views": views})
        api.expect(201, "PUT", "/db/x", {"z": 1, "_attachments": stub})
        api.expect(201, "PUT", "/db/y", {"z": 1})
        before = api.get("/db").json["update_seq"]
        found = report(ctx, server.url.replace("://", f"://{server.admin}@"))
        places = [(each["function"], each["kind"]) for each in found["findings"]]
        ctx.report.equal("only the text of names depends on it", places, [("views/names/map", "member-order")])
        ctx.report.check("and a document is named", "document x:" in found["findings"][0]["differs"], found["findings"])
        ctx.report.equal("nothing was written", api.get("/db").json["update_seq"], before)


def test_functions_of_recorded_scenarios_are_not_named(ctx):
    """Those that compile, each with documents of the scenarios."""
    sources, documents = set(), {}

    def collect(value):
        if isinstance(value, str) and value.startswith("function"):
            sources.add(value)
        elif isinstance(value, list):
            for each in value:
                collect(each)
        elif isinstance(value, dict):
            if isinstance(value.get("_id"), str) and not value["_id"].startswith("_") and len(documents) < 200:
                documents[value["_id"]] = {name: member for name, member in value.items() if name == "_id" or not name.startswith("_")}
            for each in value.values():
                collect(each)

    for path in sorted((Path(ctx.checkout) / "tests/vectors").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            collect(json.loads(line))
    maps = sorted(source for source in sources if "emit" in source)
    others = sorted(source for source in sources if "emit" not in source)
    designs = [
        design("maps", views={f"v{n}": {"map": source} for n, source in enumerate(maps)}),
        design("others", filters={f"f{n}": source for n, source in enumerate(others)}),
    ]
    with couch({"db": [*designs, *documents.values()]}) as server:
        found = report(ctx, server.url)
        ctx.report.check("there are many", found["functions"] > 100 and found["documents"] > 20, found)
        # Scenarios have functions that do not compile, that throw, and that have no meaning outside of a view.
        meant = {"compile", "throws"}
        ctx.report.equal("nothing else is named", [each for each in found["findings"] if each["kind"] not in meant], [])

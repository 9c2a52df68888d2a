"""Functions of design documents that mean harm: they fail, and nobody else notices.

While they run, a bystander reads documents, queries a finished view and builds on an index of its own. Its answers are
checked; its latencies are only printed.
"""

import concurrent.futures
import pathlib
import threading
import time

from harness.api import Disconnected
from harness.server import wait_until
from harness.view_samples import GROUPS, Samples, design
from suites.views import disagreement

TIME_LIMIT_MS = 1000
ANSWER_TIMEOUT_S = 180
AT_ONCE = 3
DOCUMENTS = 20
# A heap may take its limit, on every thread; without limits a bomb takes the machine's memory.
PEAK_MB_MAX = 2500

# These cannot end by themselves: the answer is an error in CouchDB's shape.
ENDLESS_MAPS = {
    "endless loop": "function (doc) { while (true) {} }",
    "endless loop over a member": "function (doc) { while (doc.n > -1) {} }",
    "loop that catches everything": "function (doc) { for (;;) { try { for (;;) {} } catch (e) {} } }",
    "loop in finally": "function (doc) { try { throw 1; } finally { for (;;) {} } }",
    "endless emits": "function (doc) { for (;;) emit(doc.n, null); }",
    "giant emits": "function (doc) { for (;;) emit('x'.repeat(100000), doc); }",
    "endless toJSON": "function (doc) { emit(doc._id, {toJSON: function () { for (;;) {} }}); }",
    "endless getter": "function (doc) { emit(doc._id, {get a() { for (;;) {} }}); }",
    "endless proxy": "function (doc) { emit(new Proxy({}, {ownKeys: function () { for (;;) {} }}), null); }",
    "endless comparison": "function (doc) { [3, 2, 1].sort(function () { for (;;) {} }); }",
    "endless generator": "function (doc) { for (const x of (function* () { for (;;) yield 1; })()) {} }",
    "regular expression bomb": "function (doc) { /^(a+)+$/.test('a'.repeat(60) + 'b'); emit(doc._id, null); }",
}
# These may throw, so that the document is skipped; or fail; or even succeed. They must be answered.
OTHER_MAPS = {
    "memory bomb": "function (doc) { var all = []; for (;;) all.push(new Array(100000).fill(doc.n)); }",
    "memory bomb of strings": "function (doc) { var s = 'x'; for (;;) s = s + s; }",
    "memory bomb that catches": "function (doc) { var all = []; for (var i = 0; i < 1e6; i++) try { all.push('x'.repeat(1e6) + i); } catch (e) {} emit(1, 1); }",
    "memory kept from document to document": "function (doc) { globalThis.kept = [globalThis.kept, new Array(1e5).fill(doc.n)]; emit(1, 1); }",
    "one long built-in call": "function (doc) { 'x'.repeat(1e7).split(''); emit(1, 1); }",
    "large power": "function (doc) { emit(String(2n ** 10000000n).length, 1); }",
    "deep recursion": "function (doc) { function down(n) { return down(n + 1) + 1; } emit(down(0), 1); }",
    "recursion in toJSON": "function (doc) { var o = {}; o.toJSON = function () { return {inside: o}; }; emit(doc._id, o); }",
    "deep value": "function (doc) { var o = null; for (var i = 0; i < 1e6; i++) o = [o]; emit(o, o); }",
    "circle": "function (doc) { var o = {}; o.o = o; emit(o, null); }",
    "deep source": "function (doc) { emit(" + "[" * 5000 + "]" * 5000 + ", 1); }",
    "giant array": "function (doc) { emit(new Array(4294967295), null); }",
    "giant key": "function (doc) { emit('k'.repeat(5e6), null); }",
    "error that cannot be told": "function (doc) { throw {get message() { for (;;) {} }, toString: function () { for (;;) {} }}; }",
    "promises without end": "function (doc) { Promise.resolve().then(function again() { return Promise.resolve().then(again); }); emit(1, 1); }",
    "blocked thread": "function (doc) { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); }",
    "exit": "function (doc) { if (typeof process !== 'undefined') process.exit(1); std.exit(1); quit(1); }",
    "import": "function (doc) { import('std').then(function (std) { std.exit(1); }); emit(1, 1); }",
    "changed prototypes": "function (doc) { Array.prototype.push = Array.prototype.map = Object.keys = JSON.stringify = function () { for (;;) {} };"
    " Object.prototype.toJSON = function () { return 'gone'; }; Object.prototype.key = 1; emit(doc._id, doc); }",
    "changed globals": "function (doc) { emit = sum = isArray = toJSON = log = require = undefined; Object.defineProperty(globalThis, 'Array',"
    " {get: function () { for (;;) {} }}); }",
    "accessors on arrays": "function (doc) { Object.defineProperty(Array.prototype, 0, {set: function () { for (;;) {} }, get: function () { return 1; }}); emit([1], [2]); }",
    "frozen doc": "function (doc) { Object.freeze(Object.prototype); doc.__proto__ = null; delete doc._id; emit(doc._id, doc); }",
}
HOSTILE_REDUCES = {
    "endless reduce": "function (keys, values) { for (;;) {} }",
    "reduce that grows": "function (keys, values) { return values.concat(values, values, 'x'.repeat(10000)); }",
    "reduce with a memory bomb": "function () { var all = []; for (;;) all.push(new Array(100000).fill(1)); }",
}


GOOD_FUNCTIONS = {
    "filters": "function (doc, req) { return doc.n === 7; }",
    "updates": "function (doc, req) { return [null, 'updated']; }",
    "shows": "function (doc, req) { return 'shown'; }",
    "lists": "function (head, req) { send('listed'); }",
}
# Errors of servers that did not even try.
UNTRIED = {"not_found", "not_implemented", "method_not_allowed", "unknown_query_language"}


def run(ctx):
    for part in (in_threads, in_processes, other_functions, other_languages):
        ctx.attempt(part)


def in_threads(ctx):
    hostile_views(ctx, "thread")


def in_processes(ctx):
    hostile_views(ctx, "process")


def options(isolation="thread", **more):
    settings = {"functions/isolation": isolation, "functions/time_limit_ms": TIME_LIMIT_MS, "couchdb/os_process_timeout": 2000, **more}
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def asked_again(ask):
    """The answer, or the next one to a function that may have been ended only because the machine stood still."""
    answer = ask()
    return ask() if b"function_limit_exceeded" in answer.raw else answer


class Bystander(threading.Thread):
    """Reads, queries and writes in a database of its own until it is told to stop."""

    def __init__(self, ctx, server):
        super().__init__(daemon=True)
        self.api, self.samples, self.stop_event = server.api(ANSWER_TIMEOUT_S), Samples(ctx.random), threading.Event()
        self.wrong, self.seconds, self.rounds = [], {"document": [], "finished view": [], "view after a write": []}, 0
        ids = [self.samples.doc_id(number) for number in range(100)]
        self.docs = [{"_id": doc_id, **self.samples.doc(ids)} for doc_id in ids]
        self.view = GROUPS["plain"][0]
        self.api.expect((201, 202), "PUT", "/bystander")
        self.api.expect((201, 202), "POST", "/bystander/_bulk_docs", {"docs": self.docs})
        for name in ("finished", "grown"):
            views = {"v": self.view.source(f" // {name}")}
            self.api.expect((201, 202), "PUT", f"/bystander/_design/{name}", {"views": views, "autoupdate": False})
            self.api.expect(200, "GET", f"/bystander/_design/{name}/_view/v")
        self.finished = self.api.expect(200, "GET", "/bystander/_design/finished/_view/v")

    def run(self):
        try:
            while not self.stop_event.is_set():
                self.once()
                self.rounds += 1
        except Disconnected as gone:
            self.wrong.append(repr(gone))

    def once(self):
        doc = self.docs[self.rounds % 100]
        answer = self._timed("document", f"/bystander/{doc['_id']}")
        self._expect(answer, answer.status == 200 and answer.json["n"] == doc["n"])
        answer = self._timed("finished view", "/bystander/_design/finished/_view/v?update=false")
        self._expect(answer, answer.status == 200 and answer.json == self.finished)
        if self.rounds % 10 == 0:
            new = {"_id": f"w{self.rounds:05d}", "k": "new", "v": self.rounds}
            answer = self.api.put(f"/bystander/{new['_id']}", new)
            self._expect(answer, answer.status == 201)
            self.docs.append(new)
            answer = asked_again(lambda: self._timed("view after a write", "/bystander/_design/grown/_view/v"))
            difference = disagreement(self.view, self.view.over(self.docs), {}, answer)
            self._expect(difference, difference is None)

    def _timed(self, what, path):
        began = time.monotonic()
        answer = self.api.get(path)
        self.seconds[what].append(time.monotonic() - began)
        return answer

    def _expect(self, answer, right):
        if not right:
            self.wrong.append(repr(answer))

    def end(self, report, label):
        self.stop_event.set()
        self.join(ANSWER_TIMEOUT_S)
        report.check(f"{label}: the bystander went on ({self.rounds} rounds)", self.rounds > 0 and not self.is_alive())
        report.check(f"{label}: all its answers are right", not self.wrong, "\n".join(self.wrong[:3]))
        for what, seconds in self.seconds.items():
            seconds.sort()
            if seconds:
                report.note(
                    f"{label}: bystander's {what}: p50 {seconds[len(seconds) // 2] * 1000:.1f} ms, "
                    f"p99 {seconds[len(seconds) * 99 // 100] * 1000:.1f} ms, max {seconds[-1] * 1000:.0f} ms"
                )


def hostile_views(ctx, isolation):
    report, label = ctx.report, f"isolation={isolation}"
    with ctx.server(isolation, options=options(isolation)) as server:
        api = server.api()
        make_database(api, "hostile")
        bystander = Bystander(ctx, server)
        bystander.start()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            attempts = [pool.submit(attempt, server, name, map_source) for name, map_source in {**ENDLESS_MAPS, **OTHER_MAPS}.items()]
            attempts += [
                pool.submit(attempt, server, name, "function (doc) { emit(doc.n, doc.n); }", reduce) for name, reduce in HOSTILE_REDUCES.items()
            ]
            answers = dict(attempt.result() for attempt in attempts)
        for name, answer in answers.items():
            judge(report, f"{label}: {name}", answer, must_fail=name in ENDLESS_MAPS or name in HOSTILE_REDUCES)
        a_new_view_is_right(ctx, api, label)
        bystander.end(report, label)
        report.check(f"{label}: the server is alive", server.alive() and api.get("/_up").status == 200)
        report.check(f"{label}: no panic", "panicked" not in server.log(), server.log()[-1500:])
        peak = server.peak_rss_mb()
        report.check(f"{label}: memory stays below {PEAK_MB_MAX} MB", peak < PEAK_MB_MAX, f"{peak:.0f} MB")
        report.note(f"{label}: {peak:.0f} MB at the peak, {server.rss_mb():.0f} MB now")


def make_database(api, name):
    api.expect((201, 202), "PUT", f"/{name}")
    docs = [{"_id": f"d{number:02d}", "n": number, "text": "a" * 100, "list": list(range(10))} for number in range(DOCUMENTS)]
    api.expect((201, 202), "POST", f"/{name}/_bulk_docs", {"docs": docs})


def attempt(server, name, map_source, reduce=None, language="javascript"):
    """Writes the design document and queries its view; the answer, or what happened instead of one."""
    api = server.api(ANSWER_TIMEOUT_S)
    path = "/hostile/_design/" + f"{language} {name}".replace(" ", "-").replace(".", "")
    view = {"map": map_source, **({"reduce": reduce} if reduce else {})}
    try:
        written = api.put(path, {"language": language, "views": {"v": view}})
        # A source may be refused when it is written.
        answer = api.get(f"{path}/_view/v") if written.status in (201, 202) else written
        stored = api.get(path)
        if stored.status == 200:
            # Background indexing would go on trying.
            api.delete(f"{path}?rev={stored.json['_rev']}")
        return name, answer
    except Disconnected as gone:
        return name, gone
    finally:
        api.close()


def judge(report, name, answer, must_fail):
    if isinstance(answer, Disconnected):
        report.check(f"{name} is answered", False, answer)
    elif must_fail:
        report.check(f"{name} fails with an error in CouchDB's shape", is_failure(answer), repr(answer))
    else:
        rows = answer.status == 200 and isinstance(answer.json.get("rows"), list)
        report.check(f"{name} is answered ({answer.status})", rows or is_failure(answer), repr(answer))


def is_failure(answer):
    """The function was tried, and an error in CouchDB's shape says that it failed: of the answer, or of each row of a reduction."""
    if answer.status == 200:
        rows = answer.json.get("rows")
        return bool(rows) and all(row.get("error") and row.get("reason") for row in rows)
    return answer.status >= 400 and answer.is_error_shape and answer.json["error"] not in UNTRIED


def a_new_view_is_right(ctx, api, label):
    """Whatever was done to a heap, the next function finds a clean one."""
    samples = Samples(ctx.random)
    ids = [samples.doc_id(number) for number in range(50)]
    docs = [{"_id": doc_id, **samples.doc(ids)} for doc_id in ids]
    api.expect((201, 202), "PUT", "/afterwards")
    answers = api.expect((201, 202), "POST", "/afterwards/_bulk_docs", {"docs": docs})
    docs = [{**doc, "_rev": answer["rev"]} for doc, answer in zip(docs, answers)]
    wrong = []
    for group in ("plain", "custom", "whole"):
        api.expect((201, 202), "PUT", f"/afterwards/_design/{group}", design(group))
        for view in GROUPS[group]:
            for query in [{}] + ([{"group": True}, {"reduce": False}] if view.reduce else []):
                text = "&".join(f"{name}={str(value).lower()}" for name, value in query.items())
                answer = api.get(f"/afterwards/_design/{group}/_view/{view.name}?{text}")
                difference = disagreement(view, view.over(docs), query, answer)
                wrong += [f"{group}/{view.name}?{text}: {difference}"] if difference else []
    ctx.report.check(f"{label}: views built afterwards are right", not wrong, "\n".join(wrong[:3]))


def other_functions(ctx):
    """validate_doc_update, filters, updates, shows, lists and rewrites that do not end."""
    loop = "function () { for (;;) {} }"
    with ctx.server("functions", options=options()) as server:
        report, api = ctx.report, server.api(ANSWER_TIMEOUT_S)
        bystander = Bystander(ctx, server)
        bystander.start()
        make_database(api, "guarded")
        rev = api.expect((201, 202), "PUT", "/guarded/_design/validate", {"validate_doc_update": loop})["rev"]
        for what, answer in (("a write", api.put("/guarded/new", {})), ("a write of an update", api.post("/guarded", {"_id": "other"}))):
            report.check(f"validate_doc_update that loops: {what} is refused", is_failure(answer), repr(answer))
        bulk = api.post("/guarded/_bulk_docs", {"docs": [{"_id": "bulk"}]})
        refused = bulk.status >= 400 or all("error" in row for row in bulk.json)
        report.check("validate_doc_update that loops: so is a bulk", refused, repr(bulk))
        report.equal("and nothing was written", api.expect(200, "GET", "/guarded")["doc_count"], DOCUMENTS + 1)
        report.check("its design document can be deleted", api.delete(f"/guarded/_design/validate?rev={rev}").status in (200, 202))
        report.equal("then writes are taken", api.put("/guarded/new", {}).status, 201)
        functions = {kind: {"f": loop, "good": source} for kind, source in GOOD_FUNCTIONS.items()}
        views = {"v": {"map": "function (doc) { emit(doc.n, null); }"}}
        api.expect((201, 202), "PUT", "/guarded/_design/loops", {**functions, "views": views})
        api.expect((201, 202), "PUT", "/guarded/_design/map", {"views": {"f": {"map": loop}}, "autoupdate": False})
        api.expect((201, 202), "PUT", "/guarded/_design/rewrite", {"rewrites": loop})
        good_functions_work(report, api, "before")
        for what, method, path in (
            ("filter", "GET", "/guarded/_changes?filter=loops/f"),
            ("map as a filter", "GET", "/guarded/_changes?filter=_view&view=map/f"),
            ("update", "POST", "/guarded/_design/loops/_update/f"),
            ("show", "GET", "/guarded/_design/loops/_show/f"),
            ("list", "GET", "/guarded/_design/loops/_list/f/v"),
            ("rewrite", "GET", "/guarded/_design/rewrite/_rewrite/x"),
        ):
            refuses(report, api, f"{what} that loops", method, path)
        memory = "function () { var all = []; for (;;) all.push(new Array(100000).fill(1)); }"
        api.expect((201, 202), "PUT", "/guarded/_design/bombs", {"shows": {"f": memory}, "filters": {"f": memory}})
        refuses(report, api, "show with a memory bomb", "GET", "/guarded/_design/bombs/_show/f")
        refuses(report, api, "filter with a memory bomb", "GET", "/guarded/_changes?filter=bombs/f")
        good_functions_work(report, api, "afterwards")
        report.equal("the database is still read", api.get("/guarded/d00").status, 200)
        bystander.end(report, "design functions")
        report.check("design functions: no panic", "panicked" not in server.log(), server.log()[-1500:])


def good_functions_work(report, api, when):
    """Those of the same design document that mean no harm."""
    feed = api.expect(200, "GET", "/guarded/_changes?filter=loops/good")["results"]
    answers = [
        sorted(row["id"] for row in feed),
        api.post("/guarded/_design/loops/_update/good", {}).raw,
        api.get("/guarded/_design/loops/_show/good").raw,
        api.get("/guarded/_design/loops/_list/good/v").raw,
    ]
    report.equal(f"{when}: good functions of the same design document work", answers, [["d07"], b"updated", b"shown", b"listed"])


def refuses(report, api, what, method, path):
    try:
        answer = api.request(method, path, {} if method == "POST" else None)
        # What streams has its status already; the error is then in the body, which is no whole answer.
        fails = is_failure(answer) or (answer.status == 200 and b'"error"' in answer.raw)
        report.check(f"{what} fails with an error in CouchDB's shape", fails, repr(answer))
    except Disconnected as cut:
        # A stream that has begun can only be cut off.
        report.check(f"{what} is cut off", "_changes" in path or "_list" in path, cut)


def other_languages(ctx):
    """A query server that does not answer is ended, and the next request gets a new one."""
    with ctx.server("languages", options=options(**{"query_servers/nodejs": "builtin"})) as server:
        api = server.api(ANSWER_TIMEOUT_S)
        make_database(api, "hostile")
        bystander = Bystander(ctx, server)
        bystander.start()
        for name in ("endless loop", "loop in finally", "memory bomb"):
            _, answer = attempt(server, name, {**ENDLESS_MAPS, **OTHER_MAPS}[name], language="nodejs")
            judge(ctx.report, f"nodejs: {name}", answer, must_fail=True)
        api.expect(
            (201, 202), "PUT", "/hostile/_design/good", {"language": "nodejs", "views": {"v": {"map": "function (doc) { emit(doc.n, null); }"}}}
        )
        rows = api.expect(200, "GET", "/hostile/_design/good/_view/v")["rows"]
        ctx.report.equal("nodejs: a view built afterwards is right", [row["key"] for row in rows], list(range(DOCUMENTS)))
        bystander.end(ctx.report, "nodejs")
        ctx.report.check("nodejs: no query server is left running wild", wait_until(lambda: not busy_children(server), 30), busy_children(server))


def busy_children(server):
    """Children that used CPU time between two looks a moment apart."""
    before = children_ticks(server.process.pid)
    threading.Event().wait(0.3)
    return [pid for pid, ticks in children_ticks(server.process.pid).items() if ticks - before.get(pid, ticks) > 10]


def children_ticks(parent):
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # gone between the two calls
        if int(fields[1]) == parent:
            found[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    return found

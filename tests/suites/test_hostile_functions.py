"""Functions of design documents that mean harm: they fail, and nobody else notices.

While they run, a bystander reads documents, queries a finished view and builds on an index of its own. Its answers are
checked; its latencies are only printed.
"""

import concurrent.futures
import random

from harness.api import Disconnected
from harness.bystander import (
    ANSWER_TIMEOUT_S,
    AT_ONCE,
    DOCUMENTS,
    OTHER_MAPS,
    PEAK_MB_MAX,
    Bystander,
    busy_children,
    make_database,
    options,
)
from harness.server import wait_until
from harness.view_models import disagreement
from harness.view_samples import GROUPS, Samples, design

# These cannot end by themselves: the answer is an error in CouchDB's shape.
ENDLESS_MAPS = {
    "endless loop": "function (doc) { while (true) {} }",
    "endless loop over a member": "function (doc) { while (doc.n > -1) {} }",
    "loop that catches everything": "function (doc) { for (;;) { try { for (;;) {} } catch (e) {} } }",
    "loop in finally": "function (doc) { try { throw 1; } finally { for (;;) {} } }",
    "endless toJSON": "function (doc) { emit(doc._id, {toJSON: function () { for (;;) {} }}); }",
    "endless getter": "function (doc) { emit(doc._id, {get a() { for (;;) {} }}); }",
    "endless proxy": "function (doc) { emit(new Proxy({}, {ownKeys: function () { for (;;) {} }}), null); }",
    "endless comparison": "function (doc) { [3, 2, 1].sort(function () { for (;;) {} }); }",
    "endless generator": "function (doc) { for (const x of (function* () { for (;;) yield 1; })()) {} }",
    "regular expression bomb": "function (doc) { /^(a+)+$/.test('a'.repeat(60) + 'b'); emit(doc._id, null); }",
}
# Each document is left out of these.
FLOODS = {
    "endless emits": "function (doc) { for (;;) emit(doc.n, null); }",
    "giant emits": "function (doc) { for (;;) emit('x'.repeat(100000), doc); }",
}
# 100 MB of keys.
LONG_MAPS = {"giant keys": "function (doc) { emit('k'.repeat(5e6), null); }"}
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


def test_in_threads(ctx):
    hostile_views(ctx, "thread")


def test_in_processes(ctx):
    hostile_views(ctx, "process")


def share(ctx, isolation, functions):
    """The engine is the same in threads and in processes: in short, a third of the functions of each kind meet it in threads, all others in processes."""
    if ctx.soak:
        return functions
    # The same of each run's tests.
    names = random.Random(ctx.seed).sample(sorted(functions), len(functions))
    in_threads = names[: len(names) // 3]
    return {name: function for name, function in functions.items() if (name in in_threads) == (isolation == "thread")}


def hostile_views(ctx, isolation):
    report, label = ctx.report, f"isolation={isolation}"
    with ctx.server(isolation, options=options(ctx, isolation)) as server:
        api = server.api()
        make_database(api, "hostile")
        bystander = Bystander(ctx, server)
        bystander.start()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            maps = {}
            for kind in (ENDLESS_MAPS, FLOODS, OTHER_MAPS, ctx.size({}, LONG_MAPS)):
                maps.update(share(ctx, isolation, kind))
            attempts = [pool.submit(attempt, server, name, map_source) for name, map_source in maps.items()]
            attempts += [
                pool.submit(attempt, server, name, "function (doc) { emit(doc.n, doc.n); }", reduce)
                for name, reduce in share(ctx, isolation, HOSTILE_REDUCES).items()
            ]
            answers = dict(attempt.result() for attempt in attempts)
        for name, answer in answers.items():
            judge(report, f"{label}: {name}", answer, must_fail=name in ENDLESS_MAPS or name in HOSTILE_REDUCES)
        # The server has closed the connection of before, if the attempts took long.
        api = server.api()
        a_new_view_is_right(ctx, api, bystander.innocents, label)
        bystander.end(report, label)
        report.check(f"{label}: the server is alive", server.alive() and api.get("/_up").status == 200)
        report.check(f"{label}: no panic", "panicked" not in server.log(), server.log()[-1500:])
        peak = server.peak_rss_mb()
        report.check(f"{label}: memory stays below {PEAK_MB_MAX} MB", peak < PEAK_MB_MAX, f"{peak:.0f} MB")
        report.note(f"{label}: {peak:.0f} MB at the peak, {server.rss_mb():.0f} MB now")


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


def a_new_view_is_right(ctx, api, innocents, label):
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
                path = f"/afterwards/_design/{group}/_view/{view.name}?{text}"
                answer = innocents.call(lambda path=path: api.get(path))
                difference = disagreement(view, view.over(docs), query, answer)
                wrong += [f"{group}/{view.name}?{text}: {difference}"] if difference else []
    ctx.report.check(f"{label}: views built afterwards are right", not wrong, "\n".join(wrong[:3]))


def test_other_functions(ctx):
    """validate_doc_update, filters, updates, shows, lists and rewrites that do not end."""
    loop = "function () { for (;;) {} }"
    with ctx.server("functions", options=options(ctx)) as server:
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
        good_functions_work(report, api, bystander.innocents, "before")
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
        good_functions_work(report, api, bystander.innocents, "afterwards")
        report.equal("the database is still read", api.get("/guarded/d00").status, 200)
        bystander.end(report, "design functions")
        report.check("design functions: no panic", "panicked" not in server.log(), server.log()[-1500:])


def good_functions_work(report, api, innocents, when):
    """Those of the same design document that mean no harm."""
    feed = innocents.feed(api, "/guarded/_changes?filter=loops/good")
    answers = [
        sorted(row["id"] for row in feed) if isinstance(feed, list) else feed,
        innocents.call(lambda: api.post("/guarded/_design/loops/_update/good", {})).raw,
        innocents.call(lambda: api.get("/guarded/_design/loops/_show/good")).raw,
        innocents.call(lambda: api.get("/guarded/_design/loops/_list/good/v")).raw,
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


def test_other_languages(ctx):
    """A query server that does not answer is ended, and the next request gets a new one."""
    with ctx.server("languages", options=options(ctx, **{"query_servers/nodejs": "builtin"})) as server:
        api = server.api(ANSWER_TIMEOUT_S)
        make_database(api, "hostile")
        bystander = Bystander(ctx, server)
        bystander.start()
        # A loop that catches errors ends no other way than one that does not: the process is killed.
        for name in ctx.size(
            (ctx.random.choice(["endless loop", "loop in finally"]), "memory bomb"), ("endless loop", "loop in finally", "memory bomb")
        ):
            _, answer = attempt(server, name, {**ENDLESS_MAPS, **OTHER_MAPS}[name], language="nodejs")
            judge(ctx.report, f"nodejs: {name}", answer, must_fail=True)
        api.expect(
            (201, 202), "PUT", "/hostile/_design/good", {"language": "nodejs", "views": {"v": {"map": "function (doc) { emit(doc.n, null); }"}}}
        )
        # Nor may a server be slow to start on a machine that is busy.
        wait_until(lambda: api.get("/hostile/_design/good/_view/v").status == 200, ANSWER_TIMEOUT_S)
        rows = api.expect(200, "GET", "/hostile/_design/good/_view/v")["rows"]
        ctx.report.equal("nodejs: a view built afterwards is right", [row["key"] for row in rows], list(range(DOCUMENTS)))
        bystander.end(ctx.report, "nodejs")
        ctx.report.check("nodejs: no query server is left running wild", wait_until(lambda: not busy_children(server), 30), busy_children(server))


def test_poison_documents(ctx):
    """One document that a function cannot take is left out of views and feeds, counted and named; all others stay."""
    emits_tags = "function (doc) { (doc.tags || []).forEach(function (tag) { emit(tag, 1); }); }"
    design = {
        "views": {"tags": {"map": emits_tags}, "type": {"map": "function (doc) { emit(doc.type, 1); }"}},
        "filters": {"all": "function (doc, req) { return doc.type !== 'hidden'; }"},
    }
    with ctx.server(options=["--set", "functions/emit_rows_limit=1000"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=1")
        api.expect(201, "PUT", "/db/_design/d", design)
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"ok{n}", "type": "x", "tags": ["a"]} for n in range(5)]})
        api.expect(201, "PUT", "/db/many", {"type": "x", "tags": ["a"] * 1001})
        deep = b'{"type":"y","z":' + b"[" * 3000 + b"]" * 3000 + b"}"
        ctx.report.equal("a deep document is stored", api.put("/db/deep", deep, headers={"Content-Type": "application/json"}).status, 201)
        ids = lambda rows: sorted(row["id"] for row in rows)
        rows = lambda view: ids(api.expect(200, "GET", f"/db/_design/d/_view/{view}")["rows"])
        ok = [f"ok{n}" for n in range(5)]
        ctx.report.equal("a view leaves a document of too many rows out", rows("tags"), ok)
        ctx.report.equal("other views of the design document have it", [name for name in rows("type") if name != "deep"], ["many", *ok])
        for name in ("filter=d/all", "filter=_view&view=d/type"):
            feed = api.expect(200, "GET", f"/db/_changes?{name}")
            found = [name for name in ids(feed["results"]) if not name.startswith("_design")]
            ctx.report.equal(f"a feed with {name} leaves out what nests too deeply", found, ["many", *ok])
        # Lines are written a moment after the responses.
        logs = lambda *texts: wait_until(lambda: all(text in server.log() for text in texts))
        ctx.report.check("the log names the document of the view", logs("a view leaves documents out", '"many"'), server.log()[-1500:])
        ctx.report.check("and that of the filter", logs("a filter leaves documents out", "deep"), server.log()[-1500:])
        counted = api.expect(200, "GET", "/_node/_local/_stats/settee")
        ctx.report.equal("both are counted", (counted["view_indexes"]["left_out"]["value"], counted["filters"]["left_out"]["value"]), (1, 2))
        findings = api.expect(200, "GET", "/_settee/doctor")["findings"]
        found = [(f["id"], f["severity"]) for f in findings if f["subject"] == "db/_design/d"]
        ctx.report.check("the doctor warns", ("failing-maps", "warning") in found, findings)


def test_documents_that_take_too_long(ctx):
    """A map function that ends for all documents but some: those are left out, and counted, in every language; all others stay."""
    limits = {"functions/time_limit_ms": ctx.size(250, 500), "couchdb/os_process_timeout": ctx.size(1500, 3000)}
    settings = {**limits, "query_servers/python": "builtin"}
    with ctx.server(options=[part for name, value in settings.items() for part in ("--set", f"{name}={value}")]) as server:
        api = server.api(ANSWER_TIMEOUT_S)
        maps = {
            "javascript": "function (doc) { while (doc.endless) {} emit(doc.n, null); }",
            "python": "def fun(doc):\n    while doc.get('endless'):\n        pass\n    yield doc['n'], None",
        }
        for language, source in maps.items():
            db = f"/{language}"
            api.expect((201, 202), "PUT", f"{db}?q=1")
            docs = [{"_id": f"d{n:02d}", "n": n, "endless": n in (0, 7, 8)} for n in range(40)]
            written = api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": docs})
            api.expect(201, "PUT", f"{db}/_design/d", {"language": language, "views": {"v": {"map": source}}})
            keys = lambda db=db: [row["key"] for row in api.expect(200, "GET", f"{db}/_design/d/_view/v")["rows"]]
            info = lambda db=db: api.expect(200, "GET", f"{db}/_design/d/_info")["view_index"]
            ctx.report.equal(f"{language}: three are left out", keys(), [n for n in range(40) if n not in (0, 7, 8)])
            ctx.report.equal(f"{language}: which _info says", info().get("num_left_out_docs"), 3)
            findings = api.expect(200, "GET", "/_settee/doctor")["findings"]
            found = [f["severity"] for f in findings if f["id"] == "failing-maps" and f["subject"] == f"{language}/_design/d"]
            ctx.report.equal(f"{language}: and the doctor", found, ["warning"])
            for n in (0, 7, 8):
                api.expect(201, "PUT", f"{db}/d{n:02d}", {"_rev": written[n]["rev"], "n": n})
            ctx.report.equal(f"{language}: once they are changed they are there", keys(), list(range(40)))
            ctx.report.check(f"{language}: and _info says nothing", "num_left_out_docs" not in info(), info())
        for language, source in maps.items():
            db = f"/{language}-for-none"
            api.expect((201, 202), "PUT", db)
            written = api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": [{"_id": f"e{n}", "n": n, "endless": True} for n in range(3)]})
            api.expect(201, "PUT", f"{db}/_design/d", {"language": language, "views": {"v": {"map": source}}, "autoupdate": False})
            for when in ("first", "second"):
                answer = api.get(f"{db}/_design/d/_view/v")
                ctx.report.check(f"{language}: a function that ends for no document fails, the {when} time", is_failure(answer), repr(answer))
            api.expect(201, "PUT", f"{db}/e1", {"_rev": written[1]["rev"], "n": 1})
            rows = api.expect(200, "GET", f"{db}/_design/d/_view/v")["rows"]
            ctx.report.equal(f"{language}: once it ends for one, the view has that one", [row["id"] for row in rows], ["e1"])
        said = lambda: "a view leaves documents out" in server.log() and '"d00"' in server.log()
        ctx.report.check("the log names the first", wait_until(said), server.log()[-1500:])
        counted = api.expect(200, "GET", "/_node/_local/_stats/settee/view_indexes/left_out")["value"]
        ctx.report.equal("they are counted", counted, 12)


def test_long_ids(ctx):
    """Each row of a view repeats the document's id. A long id counts, so that one document cannot take all memory."""
    design = {"views": {"tags": {"map": "function (doc) { (doc.tags || []).forEach(function (tag) { emit(tag, null); }); }"}}}
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=1")
        api.expect(201, "PUT", "/db/_design/d", design)
        long = lambda letter: letter * 65_000
        docs = [{"_id": long("a"), "tags": list(range(100))}, {"_id": long("b"), "tags": list(range(1100))}, {"_id": "ok", "tags": [0]}]
        written = api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        rows = lambda query="": api.expect(200, "GET", f"/db/_design/d/_view/tags{query}")
        ctx.report.equal("72 MB of a repeated id are left out, 7 MB are not", rows("?limit=0")["total_rows"], 101)
        ctx.report.equal("the rows of the first", [row["id"] == long("a") for row in rows("?key=7")["rows"]], [True])
        counted = api.expect(200, "GET", "/_node/_local/_stats/settee/view_indexes/left_out")["value"]
        ctx.report.equal("it is counted", counted, 1)
        # A document that gets too many rows loses those that it had.
        again = {"_id": long("a"), "_rev": written[0]["rev"], "tags": list(range(1100))}
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [again]})
        ctx.report.equal("earlier rows are removed", [row["id"] for row in rows()["rows"]], ["ok"])

"""Large design documents: calls share one text, and what takes long is refused or done apart from the threads that serve."""

import concurrent.futures
import time

from harness.files import MIB
from harness.memory import system
from harness.server import wait_until

CALLS = 20
ELEMENTS = 250_000
# Of one parsed copy: 20 calls that each had one would take 20 times as much.
COPY_MB = 32 * ELEMENTS / MIB
INDEXES, FIELDS_MAX, VIEWS_MAX = 40, 256, 1000


def allocated_mb(server):
    return system(server)["memory"]["allocated"] / MIB


def test_calls_that_wait_share_their_design_document(ctx):
    with ctx.server(options=["--set", "functions/workers_limit=2"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        slow = "function () { var end = Date.now() + 200; while (Date.now() < end); return 'x'; }"
        design = {"shows": {"slow": slow}, "filters": {"all": "function () { return true; }"}, "data": [0] * ELEMENTS}
        api.expect((201, 202), "PUT", "/db/_design/large", design)
        ctx.report.equal("one call is answered", show(server), 200)
        before = allocated_mb(server)
        with concurrent.futures.ThreadPoolExecutor(CALLS) as pool:
            calls = [pool.submit(show, server) for _ in range(CALLS)]
            wait_until(lambda: any(call.done() for call in calls), 60)
            during, running = allocated_mb(server), sum(not call.done() for call in calls)
            statuses = sorted({call.result() for call in calls})
        ctx.report.equal("each call is answered", statuses, [200])
        ctx.report.check("calls were measured while they waited", running > 0)
        more = during - before
        ctx.report.check(f"{running} calls that wait have no copies", more < max(5, running / 3) * COPY_MB, f"{more:.0f} MB more")
        missing = api.get("/db/_design/large/_show/none")
        ctx.report.equal("a missing function is named", (missing.status, missing.json["reason"]), (404, "missing json key: none"))


def show(server):
    api = server.api(timeout=120)
    status = api.get("/db/_design/large/_show/slow").status
    api.close()
    return status


def test_a_chain_of_rewrites_costs_little_more_than_one(ctx):
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        rules = [{"from": f"nowhere/:a/:b/{n}", "to": "x"} for n in range(998)]
        rules += [{"from": "go/*", "to": "_rewrite/go/x"}, {"from": "here", "to": "../../doc"}]
        api.expect((201, 202), "PUT", "/db/doc", {"n": 1})
        api.expect((201, 202), "PUT", "/db/_design/most", {"rewrites": rules})
        api.expect((201, 202), "PUT", "/db/_design/more", {"rewrites": [*rules, rules[0]]})
        ctx.report.equal("the last rule leads to a document", api.expect(200, "GET", "/db/_design/most/_rewrite/here")["n"], 1)
        refused = api.get("/db/_design/more/_rewrite/here")
        named = "max_rewrite_rules" in refused.json.get("reason", "")
        ctx.report.check("more rules than the limit are refused, by its name", refused.status == 400 and named, repr(refused))
        once = best_s(lambda: api.expect(200, "GET", "/db/_design/most/_rewrite/here"))
        endless = best_s(lambda: api.expect(400, "GET", "/db/_design/most/_rewrite/go/y"))
        # 100 steps: rules that were parsed at each would take 100 times as long as once.
        ctx.report.check("rules are parsed once", endless < 50 * max(once, 0.001), f"{endless * 1000:.1f} ms, one step {once * 1000:.1f} ms")
        api.expect(200, "PUT", "/_node/_local/_config/chttpd/max_rewrite_rules", "2000")
        allowed = wait_until(lambda: api.get("/db/_design/more/_rewrite/here").status == 200, 20)
        ctx.report.check("the setting can be raised", allowed)


def best_s(call):
    def timed():
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return min(timed() for _ in range(5))


def test_views_of_a_design_document_are_limited(ctx):
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        views = {f"v{n}": {"map": {"fields": {f"f{n}": "asc"}}} for n in range(VIEWS_MAX)}
        api.expect((201, 202), "PUT", "/db/_design/most", {"language": "query", "views": views})
        more = {"language": "query", "views": {**views, "last": {"map": {"fields": {"x": "asc"}}}}}
        for name, refused in (
            ("a write", api.put("/db/_design/more", more)),
            ("a replicated write", api.put("/db/_design/more?new_edits=false", {"_rev": "1-a", **more})),
        ):
            named = f"at most {VIEWS_MAX} views" in refused.json.get("reason", "")
            ctx.report.check(f"{name} of more views than the limit is refused", refused.status == 400 and named, repr(refused))


def test_definitions_of_indexes_are_not_charged_to_a_query(ctx):
    with ctx.server(options=["--set", f"memory/answers={2 * MIB}"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        fields = [f"{n:03}".ljust(1000, "x") for n in range(FIELDS_MAX)]
        for n in range(INDEXES):
            api.expect(200, "POST", "/db/_index", {"ddoc": f"d{n}", "name": "n", "index": {"fields": fields}})
        # Read by the first query after a change.
        api.expect((201, 202), "PUT", "/db/_design/other", {"n": 1})
        answer = api.post("/db/_find", {"selector": {"zz": 1}})
        ctx.report.equal("a short query is answered", (answer.status, answer.json.get("docs")), (200, []))
        used = lambda: system(server)["memory"]["budgets"]["open_databases"]["used"]
        least = INDEXES * FIELDS_MAX * 1000
        # They are counted periodically.
        counted = wait_until(lambda: used() > least, 60)
        ctx.report.check("definitions count among open databases", counted, f"{used()} of at least {least} bytes")
        listed = api.expect(200, "GET", "/db/_index")
        names = [index["ddoc"] for index in listed["indexes"]]
        expected = [None, *sorted(f"_design/d{n}" for n in range(INDEXES))]
        ctx.report.equal("all indexes are listed", (listed["total_rows"], names), (INDEXES + 1, expected))
        part = api.expect(200, "GET", "/db/_index?limit=2&skip=1")["indexes"]
        ctx.report.equal("a part of them is listed", part, listed["indexes"][1:3])
        ctx.report.equal("none are listed beyond the last", api.expect(200, "GET", "/db/_index?skip=99")["indexes"], [])
        explained = api.expect(200, "POST", "/db/_explain", {"selector": {"zz": 1}})
        ctx.report.equal("others are candidates", len(explained["index_candidates"]), INDEXES)


def test_fields_of_an_index_are_limited(ctx):
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        fields = [f"f{n}" for n in range(FIELDS_MAX + 1)]
        refused = api.post("/db/_index", {"index": {"fields": fields}})
        answer = (refused.status, refused.json.get("error"), refused.json.get("reason"))
        ctx.report.equal("more fields are refused", answer, (400, "invalid_index", "Index has too many fields: more than 256"))
        api.expect(200, "POST", "/db/_index", {"index": {"fields": fields[:-1]}})
        view = {"map": {"fields": dict.fromkeys(fields, "asc")}, "reduce": "_count", "options": {"def": {"fields": fields}}}
        api.expect((201, 202), "PUT", "/db/_design/written", {"language": "query", "views": {"v": view}})
        ctx.report.equal("queries do not use larger ones", api.expect(200, "GET", "/db/_index")["total_rows"], 2)


def test_descriptions_of_functions_have_places_of_calls(ctx):
    """Analysing the functions of a design document may take as long as a slow call, and waits for its place as one does."""
    options = {"functions/workers_limit": 2, "functions/time_limit_ms": 30_000, "functions/queue_time_limit_ms": 500}
    with ctx.server(options=[part for key, value in options.items() for part in ("--set", f"{key}={value}")]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        busy = "function () { var end = Date.now() + 5000; while (Date.now() < end); return 'x'; }"
        views = {"v": {"map": "function (doc) { emit(doc.a, null); }"}}
        api.expect((201, 202), "PUT", "/db/_design/large", {"shows": {"slow": busy}, "views": views})
        path = "/db/_design/large/_info"
        described = api.expect(200, "GET", f"{path}?projections=true")["view_index"]["projections"]
        ctx.report.check("members are shown", described["v"]["projected"] and "a" in described["v"]["members"], described)
        with concurrent.futures.ThreadPoolExecutor(CALLS) as pool:
            calls = [pool.submit(show, server) for _ in range(CALLS)]
            full = wait_until(lambda: any(call.done() and call.result() == 503 for call in calls), 60)
            waits, plain = api.get(f"{path}?projections=true"), api.get(path)
            for call in calls:
                call.result()
        ctx.report.check("calls have all places", full)
        ctx.report.equal("descriptions wait for a place, and nothing else does", (waits.status, plain.status), (503, 200))
        again = api.expect(200, "GET", f"{path}?projections=true")["view_index"]["projections"]
        ctx.report.equal("they are shown again", again, described)


def test_clean_ups_at_once_drop_what_is_unused(ctx):
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2")
        api.expect(201, "PUT", "/db/doc", {"a": 1})
        kept = {"views": {"v": {"map": "function (doc) { emit(doc.a, 1); }"}}}
        dropped = {"views": {"v": {"map": "function (doc) { emit(doc.a, 2); }"}}}
        api.expect((201, 202), "PUT", "/db/_design/kept", kept)
        rev = api.expect((201, 202), "PUT", "/db/_design/dropped", dropped)["rev"]
        for name in ("kept", "dropped"):
            api.expect(200, "GET", f"/db/_design/{name}/_view/v")
        api.expect(200, "DELETE", f"/db/_design/dropped?rev={rev}")

        def clean_up(number):
            own = server.api()
            status = own.post(f"/db/{('_view_cleanup', '_search_cleanup')[number % 2]}").status
            own.close()
            return status

        with concurrent.futures.ThreadPoolExecutor(CALLS) as pool:
            statuses = set(pool.map(clean_up, range(CALLS)))
        ctx.report.equal("each is answered", statuses, {202})
        rows = api.expect(200, "GET", "/db/_design/kept/_view/v?update=false")["rows"]
        ctx.report.equal("a used index has its rows", [row["value"] for row in rows], [1])
        api.expect((201, 202), "PUT", "/db/_design/dropped", {**dropped, "autoupdate": False})
        rows = api.expect(200, "GET", "/db/_design/dropped/_view/v?update=false")["rows"]
        ctx.report.equal("an unused one is rebuilt", rows, [])

"""What functions return and throw: it takes about the memory of its text, counts as a response, and has limits."""

import concurrent.futures
import json
import pathlib

from harness.files import MIB
from harness.server import wait_until
from harness.unread import Unread

# Nobody waits for it: it only has to be enough on a busy machine.
OPTIONS = ["--set", "functions/time_limit_ms=60000", "--set", "functions/isolation=process"]
ROWS = 1000
# `ROWS` times `ROWS` arrays, which as a tree of values would take a hundred times their text.
TREE = f"(function () {{ var a = [], b = []; while (a.length < {ROWS}) a.push([0]); while (b.length < {ROWS}) b.push(a); return b; }})()"
TREE_BYTES = len(json.dumps([[[0]] * ROWS] * ROWS, separators=(",", ":")))
TEXT = f"'x'.repeat({TREE_BYTES})"
# What a text of the same length takes may differ from one request to the next: allocators and threads keep some memory.
NOISE_MB = 48
ERROR_BYTES_MAX = 64 << 10


def growth_mb(server, work):
    """How much the peak of the server's resident memory grows, without its worker processes."""
    pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5", encoding="ascii")
    before = server.rss_mb()
    work()
    return server.peak_rss_mb() - before


def returning(value):
    """Design functions of each kind that return this."""
    return {
        "shows": {"f": f"function () {{ return {{json: {value}}}; }}"},
        "updates": {"f": f"function () {{ return [null, {{json: {value}}}]; }}"},
        "lists": {"f": f"function () {{ start({{json: {value}}}); send('sent'); }}"},
        "rewrites": f"function () {{ return {{path: 'x', unknown: {value}}}; }}",
        "views": {"v": {"map": "function (doc) { emit(1); }"}},
        "autoupdate": False,
    }


CALLS = {
    "show": ("GET", "_show/f", 200),
    "update": ("POST", "_update/f", 200),
    "list": ("GET", "_list/f/v", 200),
    "rewrite": ("GET", "_rewrite/r", 404),
}


def test_long_results_take_their_text(ctx):
    """A result of many small values takes no more memory than one long string of that length."""
    with ctx.server(options=OPTIONS) as server:
        api = server.api(300)
        api.expect((201, 202), "PUT", "/db?q=1")
        api.expect((201, 202), "PUT", "/db/_design/text", returning(TEXT))
        api.expect((201, 202), "PUT", "/db/_design/tree", returning(TREE))
        for name, (method, path, status) in CALLS.items():
            grown = {}
            for design in ("text", "tree"):
                answers = []
                call = lambda design=design, answers=answers, method=method, path=path: answers.append(
                    api.request(method, f"/db/_design/{design}/{path}", {} if method == "POST" else None)
                )
                # Processes and compiled functions are there from now on.
                call()
                grown[design] = growth_mb(server, call)
                ctx.report.equal(f"{name} of a {design} is answered", {answer.status for answer in answers}, {status})
                if name in ("show", "update") and design == "tree":
                    whole = answers[-1].raw == json.dumps([[[0]] * ROWS] * ROWS, separators=(",", ":")).encode() + b"\n"
                    ctx.report.check(f"{name}: the answer is whole", whole, len(answers[-1].raw))
            bound = 3 * grown["text"] + NOISE_MB
            ctx.report.note(f"{name}: {grown['tree']:.0f} MB for many values, {grown['text']:.0f} MB for a string of their length")
            ctx.report.check(f"{name}: many values take little more than a string", grown["tree"] <= bound, f"{grown} > {bound}")
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])
        api.close()


def test_results_have_limits(ctx):
    """Targets of rewrites and headers of responses have limits, and errors do not quote all that a function returned."""
    with ctx.server(options=OPTIONS) as server:
        api = server.api(300)
        api.expect((201, 202), "PUT", "/db?q=1")
        shows = {
            "headers": "function () { var h = {}; for (var i = 0; i < 2000; i++) h['x-' + i] = 'y'; return {headers: h}; }",
            "header": "function () { return {headers: {'x-a': 'y'.repeat(1e6)}}; }",
            "unknown": "function () { return {unknown: 'y'.repeat(1e6)}; }",
            "code": "function () { return {code: 'y'.repeat(1e6)}; }",
            "few": "function () { var h = {}; for (var i = 0; i < 50; i++) h['x-' + i] = 'y'; return {headers: h, body: 'few'}; }",
        }
        api.expect((201, 202), "PUT", "/db/_design/s", {"shows": shows})
        for name in ("headers", "header", "unknown", "code"):
            answer = api.get(f"/db/_design/s/_show/{name}")
            ctx.report.equal(f"show with bad {name}", (answer.status, answer.json["error"]), (500, "external_response_error"))
            ctx.report.check(f"{name}: the error is short", len(answer.raw) <= 2 * ERROR_BYTES_MAX, len(answer.raw))
        answer = api.get("/db/_design/s/_show/few")
        ctx.report.equal("some headers are sent", (answer.status, answer.raw, answer.headers.get("x-49")), (200, b"few", "y"))
        rewrites = {
            "path": "function () { return {path: 'a/'.repeat(2e5)}; }",
            "query": "function () { return {path: 'x', query: {a: 'b'.repeat(3e5)}}; }",
        }
        for name, rewrite in rewrites.items():
            api.expect((201, 202), "PUT", f"/db/_design/{name}", {"rewrites": rewrite})
            answer = api.get(f"/db/_design/{name}/_rewrite/x")
            ctx.report.equal(f"a rewrite with a long {name} is refused", (answer.status, answer.json["error"]), (414, "too_long"))
        api.close()


def test_thrown_texts_are_cut(ctx):
    """What functions throw is kept for each document and each index: it has a bound, and short texts are whole."""
    documents, thrown_bytes = ctx.size(200, 1000), 10**6
    validate = f"function (doc) {{ if (doc.long) throw {{forbidden: 'x'.repeat({thrown_bytes})}}; if (doc.short) throw {{forbidden: 'short'}}; }}"
    with ctx.server(options=OPTIONS) as server:
        api = server.api(300)
        api.expect((201, 202), "PUT", "/db?q=1")
        api.expect((201, 202), "PUT", "/db/_design/validate", {"validate_doc_update": validate})
        docs = [{"_id": "s", "short": True}, *({"_id": f"l{n}", "long": True} for n in range(documents)), {"_id": "ok"}]
        answers = []
        write = lambda: answers.append(api.post("/db/_bulk_docs", {"docs": docs}))
        grown = growth_mb(server, write)
        rows = answers[0].json
        ctx.report.equal("each long one is refused", {row.get("error") for row in rows[1:-1]}, {"forbidden"})
        ctx.report.equal("the first reason is as long as it may be", len(rows[1]["reason"]), ERROR_BYTES_MAX)
        ctx.report.equal("a short reason is whole", rows[0]["reason"], "short")
        ctx.report.check("those beyond the bound are told so", "4 MiB together" in rows[-2]["reason"], rows[-2]["reason"][:200])
        ctx.report.check("the valid document is written", rows[-1].get("ok"), rows[-1])
        total = sum(len(row.get("reason", "")) for row in rows)
        ctx.report.check("together they have a bound", total <= 4 * MIB + 512 * len(docs), total)
        thrown_mb = documents * thrown_bytes / MIB
        ctx.report.note(f"{documents} documents for which {thrown_mb:.0f} MB are thrown: {grown:.0f} MB more at the peak")
        # The other half is for what arrives from the worker at a time.
        ctx.report.check("and take a part of what was thrown", grown <= thrown_mb / 4 + NOISE_MB, f"{grown} of {thrown_mb}")
        long = f"'x'.repeat({thrown_bytes})"
        functions = {
            "shows": {"f": f"function () {{ throw {long}; }}", "e": f"function () {{ throw ['error', {long}, {long}]; }}"},
            "views": {"v": {"map": f"function () {{ throw ['fatal', 'n', {long}]; }}"}},
            "autoupdate": False,
        }
        api.expect((201, 202), "PUT", "/db/_design/throws", functions)
        for path in ("_show/f", "_show/e", "_view/v", "_view/v"):
            answer = api.get(f"/db/_design/throws/{path}")
            ctx.report.check(
                f"{path} fails with a short error", answer.status >= 400 and len(answer.raw) < 3 * ERROR_BYTES_MAX, (answer.status, len(answer.raw))
            )
        refused = api.put("/db/single", {"long": True})
        ctx.report.equal("so does a write", (refused.status, len(refused.json["reason"])), (403, ERROR_BYTES_MAX))
        api.close()


def test_a_status_frees_no_response_from_the_budget(ctx):
    """Long responses whose status a function chose wait for memory as others do."""
    codes = (200, 404, 500)
    # Each waits for half a minute, so each has a server of its own, at the same time.
    with concurrent.futures.ThreadPoolExecutor(len(codes)) as pool:
        for done in [pool.submit(unread_responses, ctx, code) for code in codes]:
            done.result()


def unread_responses(ctx, code):
    count, body_bytes, budget = 16, 3_000_000, 16 * MIB
    with ctx.server(f"status-{code}", options=[*OPTIONS, "--set", f"memory/answers={budget}"]) as server:
        api = server.api(300)
        api.expect((201, 202), "PUT", "/db?q=1")
        show = f"function (doc, req) {{ return {{code: Number(req.query.code), body: 'x'.repeat({body_bytes})}}; }}"
        api.expect((201, 202), "PUT", "/db/_design/d", {"shows": {"f": show}})
        answers = lambda: api.expect(200, "GET", "/_node/_local/_system")["memory"]["budgets"]["answers"]
        open_one = lambda _: Unread(server, "GET", f"/db/_design/d/_show/f?code={code}", timeout=120)
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            opened = list(pool.map(open_one, range(count)))
        part, statuses = answers(), sorted(one.status for one in opened)
        ctx.report.note(f"{count} unread responses of {body_bytes} bytes with the status {code}: {part['used']} bytes of {part['budget']}")
        ctx.report.check(f"{code}: what is held is within the budget and its reserve", part["used"] <= 1.25 * budget, part)
        ctx.report.equal(f"{code}: some are sent, the others refused", set(statuses), {code, 503})
        for one in opened:
            one.close()
        ctx.report.check(f"{code}: nothing is counted afterwards", wait_until(lambda: answers()["used"] == 0, 60), answers())
        api.close()

"""Functions that do not end, in great numbers: whoever does not call them notices little.

A public database's shows, lists and reduces are called by everybody at once; meanwhile another database is read, written, queried and logged in to.
"""

import concurrent.futures
import itertools
import os
import pathlib
import shutil
import signal
import threading
import time

from harness.api import Disconnected
from harness.bystander import PAUSE_S, busy_children
from harness.innocents import Innocents
from harness.server import Server, wait_until

TIME_LIMIT_MS = 1000
# How long after the limit a worker in a built-in call is killed, in seconds.
GRACE_S = 1
THREADS_MAX = 150
ANSWER_TIMEOUT_S = 120
# What others may wait for an answer; on a quiet machine it is milliseconds.
OTHERS_TIMEOUT_S = 60
# A built-in function that neither allocates nor looks at the clock.
ENDLESS = "'a'.repeat(15e6).indexOf('a'.repeat(7e6) + 'b')"
FUNCTIONS = {
    "shows": {
        "endless": f"function () {{ return String({ENDLESS}); }}",
        "log": "function (doc, req) { log('said\\n2026-01-01T00:00:00Z ERROR forged\\u2028line \\u001b[31m'); return 'logged'; }",
        "spoil": "function () { Array.prototype.join = function () { return 'spoilt'; }; Object.prototype.left = 1; String.prototype.trim = null;"
        " globalThis.kept = 1; counter = require('lib/counter'); counter.n++; counter.n++; return 'n ' + require('lib/counter').n; }",
        "clean": "function () { return [[1, 2].join('+'), ({}).left, typeof ''.trim, typeof kept, require('lib/counter').n].join(' '); }",
        "random": "function () { return String(Math.random()); }",
    },
    "lists": {"spoil": "function () { Array.prototype.join = null; send('spoilt'); }"},
    "filters": {
        "spoil": "function (doc) { Object.prototype.left = 1; Array.prototype.left = 2; return true; }",
        "clean": "function (doc) { return ({}).left === undefined && [].left === undefined; }",
    },
    "updates": {
        "spoil": "function (doc, req) { Object.prototype.left = 1; return [null, 'spoilt']; }",
        "clean": "function (doc, req) { return [null, String(({}).left)]; }",
    },
    "lib": {"counter": "exports.n = 0;"},
    "views": {"v": {"map": "function (doc) { emit(doc.n, 1); }"}},
}


def slow_functions(show_ms, reduce_ms):
    """A design document. A reduction of its view calls the function for each of the documents."""
    pause = lambda ms: f"for (var end = Date.now() + {ms}; Date.now() < end;);"
    view = {
        "map": "function (doc) { emit(doc.n, 1); }",
        "reduce": f"function (keys, values, rereduce) {{ {pause(reduce_ms)} return sum(values); }}",
    }
    return {
        "shows": {"slow": f"function () {{ {pause(show_ms)} return 'slow'; }}"},
        "lists": {"slow": f"function (head, req) {{ {pause(show_ms)} send('slow'); }}"},
        "views": {"slow": view},
        "autoupdate": False,
    }


def serve(ctx, name, isolation="process", **more):
    settings = {"functions/isolation": isolation, "functions/time_limit_ms": TIME_LIMIT_MS, **more}
    server = ctx.server(name, options=[part for key, value in settings.items() for part in ("--set", f"{key}={value}")])
    return server


def prepare(server):
    api = server.api(ANSWER_TIMEOUT_S)
    for name in ("public", "other"):
        api.expect((201, 202), "PUT", f"/{name}")
        api.expect((201, 202), "POST", f"/{name}/_bulk_docs", {"docs": [{"_id": f"d{n}", "n": n} for n in range(20)]})
    api.expect((200, 201), "PUT", "/public/_security", {"admins": {}, "members": {"names": [], "roles": []}})
    is_saved = lambda: api.put("/public/_design/f", {**FUNCTIONS, "autoupdate": False}).status in (201, 202)
    # On a busy machine a process that compiles may wait longer than functions may run.
    assert wait_until(is_saved, ANSWER_TIMEOUT_S)
    good = {
        "shows": {"s": "function () { return 'good'; }"},
        "views": {"v": {"map": "function (doc) { emit(doc.n, null); }"}},
        "validate_doc_update": "function (doc) { if (doc.bad) throw {forbidden: 'bad'}; }",
    }
    api.expect((201, 202), "PUT", "/other/_design/good", good)
    api.expect(200, "GET", "/other/_design/good/_view/v")
    api.expect(200, "GET", "/public/_design/f/_view/v")
    return api


def test_endless_built_in(ctx):
    limit_ms = 300
    with serve(ctx, "endless", **{"functions/time_limit_ms": limit_ms}) as server:
        prepare(server)
        anonymous = server.api(ANSWER_TIMEOUT_S, credentials="")
        answer = anonymous.get("/public/_design/f/_show/endless")
        ctx.report.check(
            "a show in an endless built-in call is ended", answer.status == 500 and answer.json["error"] == "function_limit_exceeded", repr(answer)
        )
        ctx.report.check("and nothing of it goes on", wait_until(lambda: not busy_children(server), 30), busy_children(server))
        try:
            server.api(0.3, credentials="").get("/public/_design/f/_show/endless")
        except Disconnected:
            pass  # The client does not wait for it.
        gone = wait_until(lambda: not busy_children(server), limit_ms / 1000 + GRACE_S + 30)
        ctx.report.check("nor when its client has gone", gone, busy_children(server))
        innocents = Innocents(limit_ms)
        answers = [innocents.call(lambda: anonymous.get("/public/_design/f/_show/clean")) for _ in range(5)]
        innocents.judge(ctx.report, "afterwards")
        ctx.report.equal("the next shows work", [answer.status for answer in answers], [200] * 5)


def test_flood_in_processes(ctx):
    flood(ctx, "process")


def test_flood_in_threads(ctx):
    flood(ctx, "thread")


def flood(ctx, isolation):
    slow = "/public/_design/slow"
    paths = {"shows": f"{slow}/_show/slow", "lists": f"{slow}/_list/slow/slow?reduce=false", "reduces": f"{slow}/_view/slow?group=true"}
    # More than may wait, and more than there may be threads.
    shows = ctx.size(200, 560)
    with serve(ctx, f"flood-{isolation}", isolation, **{"functions/queue_limit": ctx.size(15, 50)}) as server:
        api = prepare(server)
        api.expect((201, 202), "PUT", slow, slow_functions(*ctx.size((100, 5), (300, 100))))
        # Lists and reduces take longer.
        for what, path in paths.items():
            calls = shows if what == "shows" else shows // ctx.size(8, 4)
            label = f"isolation={isolation}, {calls} {what} at once"
            stop, threads, wrong, seconds, innocents = threading.Event(), [], [], [], Innocents(TIME_LIMIT_MS)
            with concurrent.futures.ThreadPoolExecutor(calls + 1) as pool:
                watching = pool.submit(others, server, innocents, stop, threads, wrong, seconds)
                answers = [pool.submit(call, server, path) for _ in range(calls)]
                statuses = [answer.result() for answer in answers]
                stop.set()
                watching.result()
            counts = {status: statuses.count(status) for status in set(statuses)}
            ctx.report.check(f"{label}: each is answered {counts}", set(counts) <= {200, 500, 503}, counts)
            ctx.report.check(
                f"{label}: some work, others are refused", counts.get(200, 0) > 0 and (what != "shows" or counts.get(503, 0) > 0), counts
            )
            ctx.report.check(f"{label}: never more than {THREADS_MAX} threads", max(threads) < THREADS_MAX, max(threads))
            ctx.report.check(f"{label}: all else is answered", not wrong and seconds, "\n".join(wrong[:3]))
            innocents.judge(ctx.report, label)
            ctx.report.note(f"{label}: {max(threads)} threads, others waited {max(seconds, default=0):.2f} s at most")
        ctx.report.check(f"isolation={isolation}: no panic", "panicked" not in server.log(), server.log()[-1500:])


def call(server, path):
    api = server.api(ANSWER_TIMEOUT_S, credentials="")
    try:
        answer = api.get(path)
        if answer.status == 503 and (
            answer.json["error"] != "service_unavailable" or "queue_" not in answer.json["reason"] or not answer.headers.get("Retry-After")
        ):
            return repr(answer)
        return answer.status
    except Disconnected as gone:
        return repr(gone)
    finally:
        api.close()


def others(server, innocents, stop, threads, wrong, seconds):
    """What has nothing to do with the functions that are called."""
    api = server.api(OTHERS_TIMEOUT_S)
    for number in itertools.count():
        # Whether it calls a function, too.
        requests = (
            (False, "GET", "/other/d1", None, 200),
            (False, "GET", "/other/_design/good/_view/v?update=false", None, 200),
            (False, "POST", "/other/_find", {"selector": {"n": 3}}, 200),
            (False, "POST", "/_session", {"name": "admin", "password": "admin"}, 200),
            (True, "PUT", f"/other/new{threading.get_ident()}-{number}-{time.monotonic_ns()}", {}, 201),
            (True, "GET", "/other/_design/good/_show/s", None, 200),
        )
        for calls, method, path, body, status in requests:
            began = time.monotonic()
            try:
                request = lambda asked=(method, path, body): api.request(*asked)
                answer = innocents.call(request) if calls else request()
                wrong += [] if answer.status == status else [f"{method} {path}: {answer!r}"]
            except Disconnected as gone:
                wrong.append(f"{method} {path}: {gone!r}")
            seconds.append(time.monotonic() - began)
        threads.append(server._status_kb("Threads"))
        if stop.wait(PAUSE_S):
            return


def test_feeds_and_writes_go_on(ctx):
    """Feeds under way are never refused, however many wake at once; nor are as many writes as clients send at a time."""
    feeds, writes = 200, 400
    with serve(ctx, "feeds", **{"functions/queue_limit": 20}) as server:
        api = prepare(server)
        api.expect((201, 202), "PUT", "/public/_design/filter", {"filters": {"all": "function () { return true; }"}})
        since = api.get("/public/_changes?limit=0&descending=true").json["last_seq"]
        waiting = f"/public/_changes?feed=longpoll&filter=filter/all&since={since}&timeout=60000"
        with concurrent.futures.ThreadPoolExecutor(feeds) as pool:
            answers = [pool.submit(changed_ids, server, waiting) for _ in range(feeds)]
            all_wait = wait_until(lambda: server.open_sockets() >= feeds, 60)
            api.expect((201, 202), "PUT", "/public/woken", {})
            found = [answer.result() for answer in answers]
        ctx.report.check("all feeds wait", all_wait, server.open_sockets())
        ctx.report.equal("a change wakes every feed with a filter", [ids for ids in found if ids != ["woken"]][:3], [])
    with serve(ctx, "writes") as server:
        prepare(server)
        with concurrent.futures.ThreadPoolExecutor(writes) as pool:
            statuses = list(pool.map(lambda n: put_status(server, f"/other/many{n}"), range(writes)))
        ctx.report.equal(f"{writes} validated writes at once are done", {s: statuses.count(s) for s in set(statuses)}, {201: writes})


# Calls of one user, each in a database of its own; each takes long enough that others can come in between.
DATABASES = 24
CALL_MS = 100
BUSY = f"for (var end = Date.now() + {CALL_MS}; Date.now() < end;);"
MANY_DESIGN = {
    "shows": {"s": f"function () {{ {BUSY} return 'x'; }}"},
    "filters": {"f": f"function () {{ {BUSY} return true; }}"},
    "updates": {"u": f"function () {{ {BUSY} return [null, 'x']; }}"},
    "rewrites": f"function () {{ {BUSY} return {{code: 200, body: 'x'}}; }}",
    "views": {"v": {"map": f"function (doc) {{ {BUSY} emit(doc._id, null); }}"}},
    "validate_doc_update": f"function (doc) {{ if (!doc._id.startsWith('_')) {{ {BUSY} }} }}",
    "autoupdate": False,
}
MANY_CALLS = {
    "shows": ("GET", "/_design/d/_show/s", None),
    "updates": ("POST", "/_design/d/_update/u", None),
    "rewrites": ("GET", "/_design/d/_rewrite/x", None),
    "filters": ("GET", "/_changes?filter=d/f", None),
    "writes": ("POST", "", {}),
    "views": ("GET", "/_design/d/_view/v", None),
}


def test_a_user_with_many_databases(ctx):
    """A user has one share of the places, in however many databases: another user's call is answered before most of those that came first."""
    with serve(ctx, "many", **{"chttpd_auth/iterations": 10}) as server:
        api = server.api(ANSWER_TIMEOUT_S)
        for name in ("many", "other"):
            api.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "password": "pw", "type": "user", "roles": []})
        databases = [*(f"many{n}" for n in range(DATABASES)), "other"]
        for name in databases:
            api.expect((201, 202), "PUT", f"/{name}?q=1")
            api.expect(200, "PUT", f"/{name}/_security", {"members": {"names": [name.rstrip("0123456789")]}})
            api.expect(201, "PUT", f"/{name}/d0", {})
        for name in databases:
            assert wait_until(lambda name=name: api.put(f"/{name}/_design/d", MANY_DESIGN).status in (201, 202), ANSWER_TIMEOUT_S)
        for kind, (method, path, body) in MANY_CALLS.items():
            answered, came = [], threading.Event()

            def many(number, method=method, path=path, body=body, answered=answered, came=came):
                answer = server.api(ANSWER_TIMEOUT_S, credentials="many:pw").request(method, f"/many{number}{path}", body)
                answered.append(answer.status)
                came.set()

            with concurrent.futures.ThreadPoolExecutor(DATABASES) as pool:
                calls = [pool.submit(many, number) for number in range(DATABASES)]
                # Feeds come forward together, and all end at once.
                came.wait(4 * CALL_MS / 1000)
                answer = server.api(ANSWER_TIMEOUT_S, credentials="other:pw").request(method, f"/other{path}", body)
                before = len(answered)
                concurrent.futures.wait(calls)
            good = (200, 201)
            ctx.report.check(f"{kind}: all are answered", answer.status in good and set(answered) <= set(good), (answer, answered))
            ctx.report.check(f"{kind}: the other user does not wait for all databases", before < DATABASES * 2 // 3, f"{before} of {DATABASES}")
            ctx.report.note(f"{kind}: {before} of {DATABASES} calls were answered before the other user's")


def changed_ids(server, path):
    api = server.api(ANSWER_TIMEOUT_S)
    try:
        return [row["id"] for row in api.get(path).json["results"]]
    except (Disconnected, ValueError) as error:
        return repr(error)
    finally:
        api.close()


def put_status(server, path):
    api = server.api(ANSWER_TIMEOUT_S)
    try:
        return api.put(path, {}).status
    except Disconnected as gone:
        return repr(gone)
    finally:
        api.close()


def test_a_new_binary(ctx):
    """A package that is upgraded replaces the program of a running server."""
    program = ctx.folder("program") / "settee"
    shutil.copy2(ctx.binary, program)
    server = Server(str(program), ctx.root / "upgraded", options=["--set", "functions/isolation=process"])
    with server:
        api = prepare(server)
        shutil.copy2(ctx.binary, program.with_name("new"))
        program.with_name("new").replace(program)
        for pid in children(server):
            os.kill(pid, signal.SIGKILL)
        answers = [api.get("/other/_design/good/_show/s").status for _ in range(4)]
        ctx.report.check("functions run on after the binary was replaced", answers[-1] == 200, answers)


def children(server):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        if int(stat.rsplit(")", 1)[1].split()[1]) == server.process.pid:
            found.append(int(pid))
    return found


def test_nothing_is_left(ctx):
    for isolation in ("process", "thread"):
        with serve(ctx, f"left-{isolation}", isolation) as server:
            api = prepare(server)
            design = "/public/_design/f"
            for round_ in range(3):
                label = f"isolation={isolation}, round {round_}"
                ctx.report.equal(f"{label}: a module keeps its state during a call", api.get(f"{design}/_show/spoil").raw, b"n 2")
                api.get(f"{design}/_list/spoil/v")
                api.get("/public/_changes?filter=f/spoil")
                api.post(f"{design}/_update/spoil", {})
                ctx.report.equal(f"{label}: a show sees nothing of other calls", api.get(f"{design}/_show/clean").raw, b"1+2  function undefined 0")
                ctx.report.equal(f"{label}: nor does a filter", len(api.get("/public/_changes?filter=f/clean").json["results"]), 21)
                ctx.report.equal(f"{label}: nor an update", api.post(f"{design}/_update/clean", {}).raw, b"undefined")
            numbers = {api.get(f"{design}/_show/random").raw for _ in range(5)}
            ctx.report.equal(f"isolation={isolation}: each call has random numbers of its own", len(numbers), 5)


def test_one_line_each(ctx):
    for isolation in ("process", "thread"):
        with serve(ctx, f"log-{isolation}", isolation) as server:
            api = prepare(server)
            ctx.report.equal(f"isolation={isolation}: a function logs", api.get("/public/_design/f/_show/log").raw, b"logged")
            said = wait_until(lambda: "forged" in server.log(), 10)
            lines = [line for line in server.log().splitlines() if "forged" in line]
            ctx.report.check(
                f"isolation={isolation}: what it logs is one line",
                said and len(lines) == 1 and "said" in lines[0] and "\x1b[31m" not in lines[0],
                lines,
            )

"""Selectors that take very long for one document: others are served meanwhile, and each request ends."""

import collections
import os
import pathlib
import threading
import time

from harness.server import wait_until

TEXT_BYTES, ELEMENTS, MEMBERS = 7_000_000, 1_000_000, 500_000
MIB = 1 << 20
# For others, on a busy machine; for the hostile requests, of which each document may take 2 s of a processor.
OTHERS_TIMEOUT_S, HOSTILE_TIMEOUT_S = 60, 600


def hostile_selectors():
    # A text without a period: each of its characters leads to a new state of such an expression.
    return {
        "regular expressions": {"$or": [{"random": {"$regex": f"a(a|b){{{200 + n}}}c"}} for n in range(32)]},
        "an expression of many states": {"$or": [{"same": {"$regex": f"(?:a{{1,50}}){{1,50}}c{n}"}} for n in range(32)]},
        "elements": {"n": {"$elemMatch": {"$or": [{"$eq": ELEMENTS + n} for n in range(9000)]}}},
        "fields that a long element lacks": {"m": {"$elemMatch": {"$or": [{f"z{n}": 1} for n in range(9000)]}}},
        "the whole document": {"$or": [{"$type": f"t{n}"} for n in range(9000)]},
        # Few conditions, on a text whose sort key is long.
        "few conditions": {"$and": [{"k": 1}, *({"umlauts": {"$gt": "x"}} for _ in range(50))]},
    }


def fill(ctx, api):
    api.expect(201, "PUT", "/_users/org.couchdb.user:mallory", {"name": "mallory", "password": "pw", "type": "user", "roles": []})
    for name in ("hostile", "other"):
        api.expect((201, 202), "PUT", f"/{name}")
    api.expect(200, "PUT", "/hostile/_security", {"members": {"names": ["mallory"]}})
    text = f"{ctx.random.getrandbits(TEXT_BYTES):0{TEXT_BYTES}b}".replace("0", "a").replace("1", "b")
    api.expect(201, "PUT", "/hostile/random", {"random": text})
    api.expect(201, "PUT", "/hostile/same", {"same": "a" * TEXT_BYTES})
    api.expect(201, "PUT", "/hostile/elements", {"n": list(range(ELEMENTS))})
    api.expect(201, "PUT", "/hostile/members", {"m": [{f"m{n}": n for n in range(MEMBERS)}]})
    for name in ("umlauts", "more"):
        api.expect(201, "PUT", f"/hostile/{name}", {"k": 1, "umlauts": "ä" * (TEXT_BYTES // 2)})
    api.expect(200, "POST", "/hostile/_index", {"index": {"fields": ["k"]}})
    api.expect(201, "POST", "/other/_bulk_docs", {"docs": [{"_id": f"{n}", "n": n} for n in range(50)]})


def test_one_document(ctx):
    options = ["--set", "chttpd_auth/iterations=10", "--set", f"couchdb/max_document_size={2 * TEXT_BYTES}"]
    with ctx.server(options=options) as server:
        fill(ctx, server.api())
        paths = [("/hostile/_find", (200, 400)), ("/hostile/_changes?filter=_selector", (200,))]
        first = ctx.random.randrange(2)
        for number, (name, selector) in enumerate(hostile_selectors().items(), first):
            # In short, each by one of the two, which take turns.
            for path, statuses in ctx.size([paths[number % 2]], paths):
                flooded(ctx, server, f"{name}, {path}", path, selector, statuses)
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])
        ctx.report.equal("the server ends in time", server.stop(), 0)


def flooded(ctx, server, name, path, selector, statuses):
    answers = []

    def hostile():
        api = server.api(credentials="mallory:pw", timeout=HOSTILE_TIMEOUT_S)
        answers.append(api.request("POST", path, {"selector": selector}))
        api.close()

    # More than one user may run at a time: in short one for each of a few processors.
    requests = ctx.size(min(3, max(2, os.cpu_count() or 2)), 6)
    threads = [threading.Thread(target=hostile) for _ in range(requests)]
    for thread in threads:
        thread.start()
    api = server.api(timeout=OTHERS_TIMEOUT_S)
    rounds, slowest = 0, 0
    while any(thread.is_alive() for thread in threads) or rounds < 3:
        began = time.monotonic()
        api.expect(200, "GET", "/other/1")
        api.expect(201, "POST", "/other", {"n": -1})
        api.expect(200, "POST", "/other/_find", {"selector": {"n": 3}})
        api.expect(200, "GET", "/other/_changes?limit=3")
        slowest = max(slowest, time.monotonic() - began)
        rounds += 1
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    ctx.report.note(f"{name}: {rounds} rounds of another database meanwhile, the slowest {slowest:.2f} s")
    ctx.report.check(f"{name}: each is answered", [a.status for a in answers if a.status not in statuses] == [], [repr(a)[:300] for a in answers])
    ctx.report.equal(f"{name}: all of them", len(answers), requests)
    idle = wait_until(lambda: api.get("/_active_tasks").json == [], 60)
    ctx.report.check(f"{name}: nothing goes on", idle, api.get("/_active_tasks").json)
    api.close()


def large_expressions(count, name=""):
    """A selector of 50 bytes for each expression, which takes about 430 KiB and more than a millisecond to compile."""
    return {"$or": [{"a": {"$regex": f"(?:a{{1000}}){{9}}b{name}{n}"}} for n in range(count)]}


def ticks_by_thread(server):
    """Processor time of the threads so far, by their names."""
    ticks = collections.Counter()
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        try:
            name, fields = (task / "stat").read_text(encoding="utf-8").split("(", 1)[1].rsplit(")", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        fields = fields.split()
        ticks[name] += int(fields[11]) + int(fields[12])
    return ticks


def test_selectors_are_compiled_in_turns(ctx):
    """Threads of which there are as many as cores, with turns by user, compile the selectors of requests."""
    with ctx.server(options=["--set", "chttpd_auth/iterations=10"]) as server:
        admin = server.api()
        admin.expect(201, "PUT", "/_users/org.couchdb.user:mallory", {"name": "mallory", "password": "pw", "type": "user", "roles": []})
        admin.expect((201, 202), "PUT", "/db")
        admin.expect(200, "PUT", "/db/_security", {"members": {"names": ["mallory"]}})
        selector = large_expressions(12)
        replication = {"source": f"{server.url}/db", "target": f"{server.url}/other", "cancel": True, "selector": selector}
        index = {"index": {"fields": ["a"], "partial_filter_selector": selector}}
        forms = {
            "/db/_find": ({"selector": selector}, 200),
            "/db/_explain": ({"selector": selector}, 200),
            "/db/_changes?filter=_selector": ({"selector": selector}, 200),
            "/db/_index": (index, 403),
            "/_replicate": (replication, 404),
        }
        api = server.api(credentials="mallory:pw", timeout=OTHERS_TIMEOUT_S)
        for path, (body, status) in forms.items():
            before = ticks_by_thread(server)
            statuses = {api.request("POST", path, body).status for _ in range(30)}
            ctx.report.equal(f"{path}: is answered", statuses, {status})
            spent = ticks_by_thread(server)
            spent.subtract(before)
            others = sum(ticks for name, ticks in spent.items() if name != "apart")
            ctx.report.check(f"{path}: compiled in turns", spent["apart"] > others, dict(+spent))
        api.close()
        admin.close()


def allocated(api):
    return api.expect(200, "GET", "/_node/_local/_system")["memory"]["allocated"]


def test_stored_selectors_take_no_more_than_their_memory(ctx):
    """Compiled expressions of indexes and of validations count, and only as many are compiled as there is memory for."""
    with ctx.server() as server:
        api = server.api(timeout=HOSTILE_TIMEOUT_S)
        api.expect((201, 202), "PUT", "/db")
        api.expect(201, "PUT", "/db/1", {"a": "b"})
        count = ctx.size(45, 60)
        maps = {f"v{n}": {"fields": {"a": "asc"}, "partial_filter_selector": large_expressions(30, f"of{n}x")} for n in range(count)}
        views = {name: {"map": of_view, "reduce": "_count", "options": {"def": {}}} for name, of_view in maps.items()}
        before = allocated(api)
        api.expect(201, "PUT", "/db/_design/large", {"language": "query", "views": views})
        seen = []
        done = threading.Event()

        def watch():
            own = server.api(timeout=OTHERS_TIMEOUT_S)
            while not done.is_set():
                seen.append(allocated(own))
                time.sleep(0.02)
            own.close()

        watching = threading.Thread(target=watch)
        watching.start()
        for _ in range(ctx.size(2, 3)):
            api.expect(200, "POST", "/db/_find", {"selector": {}})
        indexes = api.expect(200, "GET", "/db/_index")
        ctx.report.check("some of the indexes are used", 1 < indexes["total_rows"] < count, indexes["total_rows"])
        done.set()
        watching.join()
        # All of them take 600 MiB, or 800. Those of 64 MiB are kept; a build compiles those of 32 MiB, on each of its threads.
        grown = (max(seen) - before) / MIB
        ctx.report.check(f"{grown:.0f} MiB", grown < 400, seen[-20:])
        api.expect((200, 202), "DELETE", f"/db/_design/large?rev={api.get('/db/_design/large').json['_rev']}")
        before = allocated(api)
        for n in range(ctx.size(30, 40)):
            api.expect(201, "PUT", f"/db/_design/validate{n}", {"language": "query", "validate_doc_update": large_expressions(20)})
        refused = api.request("PUT", "/db/2", {"a": "b"})
        ctx.report.equal("validated", refused.status, 403)
        grown = (allocated(api) - before) / MIB
        ctx.report.check(f"validations keep {grown:.0f} MiB", grown < 150, grown)
        api.close()

"""Selectors that take very long for one document: others are served meanwhile, and each request ends."""

import threading
import time

from harness.server import wait_until

REQUESTS = 6
TEXT_BYTES, ELEMENTS, MEMBERS = 7_000_000, 1_000_000, 500_000
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
        for name, selector in hostile_selectors().items():
            for path, statuses in (("/hostile/_find", (200, 400)), ("/hostile/_changes?filter=_selector", (200,))):
                flooded(ctx, server, f"{name}, {path}", path, selector, statuses)
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])
        ctx.report.equal("the server ends in time", server.stop(), 0)


def flooded(ctx, server, name, path, selector, statuses):
    answers = []

    def hostile():
        api = server.api(credentials="mallory:pw", timeout=HOSTILE_TIMEOUT_S)
        answers.append(api.request("POST", path, {"selector": selector}))
        api.close()

    threads = [threading.Thread(target=hostile) for _ in range(REQUESTS)]
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
    ctx.report.equal(f"{name}: all of them", len(answers), REQUESTS)
    idle = wait_until(lambda: api.get("/_active_tasks").json == [], 60)
    ctx.report.check(f"{name}: nothing goes on", idle, api.get("/_active_tasks").json)
    api.close()

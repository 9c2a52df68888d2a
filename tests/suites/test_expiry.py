"""Documents that expire: `expires_at` of `_auto_purge` names the member that says when, and they are deleted or purged then."""

import contextlib
import datetime
import time

import pytest

from harness.clock import HOUR_S, Clock
from harness.server import wait_until

pytestmark = [pytest.mark.quick]

# More than a database remembers purges of.
MANY = 2500
DOCUMENTS = 20
DELETE = {"expires_at": "expires_at", "expired_documents": "delete"}
PURGE = {"expires_at": "expires_at", "expired_documents": "purge"}
VIEW = {"views": {"all": {"map": "function (doc) { emit(doc.n, null); }", "reduce": "_count"}}}


@pytest.fixture
def api(ctx):
    with ctx.server() as server:
        yield server.api()


def text(unix_s):
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).isoformat()


def stat(api, name):
    return api.expect(200, "GET", f"/_node/_local/_stats/settee/expiry/{name}")["value"]


def counts(api, db):
    info = api.expect(200, "GET", f"/{db}")
    return info["doc_count"], info["doc_del_count"]


def is_gone(api, db, doc):
    return wait_until(lambda: api.get(f"/{db}/{doc}").status == 404)


def test_expired_documents_are_deleted_like_any_others(ctx, api):
    report = ctx.report
    api.expect(201, "PUT", "/db?q=2")
    api.expect(201, "PUT", "/db/_auto_purge", DELETE)
    api.expect(201, "PUT", "/db/_design/d", VIEW)
    expires = int(time.time()) + 2
    kept = {"later": {"expires_at": text(expires + HOUR_S)}, "never": {}, "nested": {"a": {"expires_at": 1}}}
    for doc, body in kept.items():
        api.expect(201, "PUT", f"/db/{doc}", body)
    soon = {"seconds": expires, "fraction": expires - 0.5, "text": text(expires), "offset": text(expires)[:-6] + "Z"}
    written = {doc: api.expect(201, "PUT", f"/db/{doc}", {"expires_at": at, "n": 1})["rev"] for doc, at in soon.items()}
    api.expect(200, "POST", "/_replicate", {"source": "db", "target": "copy", "create_target": True})
    for doc in soon:
        report.check(f"{doc} expires", is_gone(api, "db", doc), api.get(f"/db/{doc}"))
        report.check(f"{doc} not before its time", time.time() >= expires, time.time() - expires)
        report.equal(f"{doc} is deleted", api.get(f"/db/{doc}").json["reason"], "deleted")
    report.equal("the others stay", [api.get(f"/db/{doc}").status for doc in kept], [200] * 3)
    rows = {row["id"]: row for row in api.expect(200, "GET", "/db/_changes")["results"]}
    report.equal("feeds show deletions", {doc for doc, row in rows.items() if row.get("deleted")}, set(soon))
    for doc, rev in written.items():
        revs = api.expect(200, "GET", f"/db/{doc}?rev={rows[doc]['changes'][0]['rev']}&revs=true")["_revisions"]
        report.equal("of the revision before", (revs["start"], f"1-{revs['ids'][1]}"), (2, rev))
    report.equal("views are without them", api.expect(200, "GET", "/db/_design/d/_view/all")["rows"][0]["value"], 3)
    api.expect(200, "POST", "/_replicate", {"source": "db", "target": "copy"})
    report.equal("replications delete them", [api.get(f"/copy/{doc}").json.get("reason") for doc in soon], ["deleted"] * 4)
    report.check("they are counted", wait_until(lambda: stat(api, "deleted") == 4), stat(api, "deleted"))
    report.equal("nothing is overdue", wait_until(lambda: stat(api, "overdue_seconds") == 0), True)


def test_documents_of_before_expire_and_what_is_changed_in_time_stays(ctx, api):
    report = ctx.report
    api.expect(201, "PUT", "/db?q=1")
    past = [{"_id": f"old{n}", "until": n} for n in range(DOCUMENTS)]
    api.expect(201, "POST", "/db/_bulk_docs", {"docs": past})
    api.expect(201, "PUT", "/db/_auto_purge", {"expires_at": "until"})
    report.check("those from before the property expire", wait_until(lambda: counts(api, "db") == (0, DOCUMENTS)), counts(api, "db"))
    expires = int(time.time()) + 2
    revs = [api.expect(201, "PUT", f"/db/{doc}", {"until": expires})["rev"] for doc in ("extended", "freed", "expired")]
    api.expect(201, "PUT", f"/db/extended?rev={revs[0]}", {"until": expires + HOUR_S})
    api.expect(201, "PUT", f"/db/freed?rev={revs[1]}", {})
    report.check("one expires", is_gone(api, "db", "expired"))
    report.equal("others were changed in time", [api.get(f"/db/{doc}").status for doc in ("extended", "freed")], [200, 200])
    api.expect(201, "PUT", "/db/_auto_purge", {})
    api.expect(201, "PUT", "/db/stays", {"until": "whenever"})
    report.check("without the property nothing is known of it", wait_until(lambda: stat(api, "databases") == 0), stat(api, "databases"))


def test_invalid_times_are_refused_from_clients_and_counted_when_replicated(ctx, api):
    report = ctx.report
    api.expect(201, "PUT", "/db?q=2")
    api.expect(201, "PUT", "/db/_auto_purge", DELETE)
    for bad in ("soon", "2026-01-01", "2026-01-01T00:00:00", 1767225600000, None, True, {}, []):
        refused = api.put("/db/bad", {"expires_at": bad})
        report.equal(f"{bad!r} is refused", (refused.status, refused.json["error"]), (400, "bad_request"))
        report.check("with the member's name", "expires_at" in refused.json["reason"], refused.json)
    good = {"expires_at": int(time.time()) + HOUR_S}
    docs = [{"_id": "a", **good}, {"_id": "b", "expires_at": "soon"}, {"_id": "c"}]
    rows = api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
    report.equal("one of several", [(row["id"], row.get("error")) for row in rows], [("a", None), ("b", "bad_request"), ("c", None)])
    rev = rows[0]["rev"]
    report.equal(
        "the member of a deletion does not count", api.post("/db", {"_id": "a", "_rev": rev, "_deleted": True, "expires_at": "x"}).status, 201
    )
    replicated = [{"_id": f"r{n}", "_rev": "1-a", "expires_at": "soon"} for n in range(DOCUMENTS)]
    report.equal("replicated ones are taken", api.expect(201, "POST", "/db/_bulk_docs", {"docs": replicated, "new_edits": False}), [])
    report.check("and counted", wait_until(lambda: stat(api, "invalid") == DOCUMENTS), stat(api, "invalid"))
    found = [finding for finding in api.expect(200, "GET", "/_settee/doctor")["findings"] if finding["id"] == "expiry"]
    report.equal("doctor notes them", [(finding["severity"], finding["evidence"]["documents"]) for finding in found], [("note", DOCUMENTS)])
    api.expect(201, "PUT", "/db/r0?rev=1-a", good)
    report.check("one that is corrected does not count", wait_until(lambda: stat(api, "invalid") == DOCUMENTS - 1), stat(api, "invalid"))


def test_purged_documents_leave_nothing_and_indexes_miss_no_purge(ctx):
    report = ctx.report
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/db?q=1")
        api.expect(201, "PUT", "/db/_auto_purge", PURGE)
        api.expect(201, "PUT", "/db/_design/d", VIEW)
        expires = int(time.time()) + 3
        docs = [{"_id": f"d{n:04}", "expires_at": expires, "n": n} for n in range(MANY)]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        api.expect(201, "PUT", "/db/kept", {"n": -1})
        report.equal("they are in a view", api.expect(200, "GET", "/db/_design/d/_view/all")["rows"][0]["value"], MANY + 1)
        report.check("they are purged", wait_until(lambda: counts(api, "db") == (2, 0)), counts(api, "db"))
        report.equal("a view is without them", api.expect(200, "GET", "/db/_design/d/_view/all")["rows"][0]["value"], 1)
        report.equal("no feed has them", [row["id"] for row in api.expect(200, "GET", "/db/_changes")["results"]], ["_design/d", "kept"])
        report.check("they are counted", wait_until(lambda: stat(api, "purged") == MANY), stat(api, "purged"))
        report.check("no index started over", "the index starts over" not in server.log(), server.log()[-2000:])


@contextlib.contextmanager
def at(ctx, clock, shift_s):
    """A server on the same data, whose clock is off."""
    with clock.off_by(shift_s), ctx.server("data") as server:
        yield server.api()


def test_documents_expire_after_a_restart(ctx):
    report, clock = ctx.report, Clock(ctx.folder("clock"))
    if clock.refused:
        pytest.skip(clock.refused)
    expires = int(time.time()) + HOUR_S
    with at(ctx, clock, 0) as api:
        for db, properties in (("deleted", DELETE), ("purged", PURGE), ("kept", {})):
            api.expect(201, "PUT", f"/{db}?q=2")
            api.expect(201, "PUT", f"/{db}/_auto_purge", properties)
            docs = [{"_id": f"d{n}", "expires_at": expires + n % 2 * HOUR_S} for n in range(DOCUMENTS)]
            api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})
        report.equal("none has expired", [counts(api, db) for db in ("deleted", "purged", "kept")], [(DOCUMENTS, 0)] * 3)
    half = DOCUMENTS // 2
    with at(ctx, clock, HOUR_S + 1) as api:
        for db, expected in (("deleted", (half, half)), ("purged", (half, 0)), ("kept", (DOCUMENTS, 0))):
            report.check(f"half of {db}", wait_until(lambda db=db, expected=expected: counts(api, db) == expected), counts(api, db))
        report.check("of what is deleted", wait_until(lambda: stat(api, "deleted") == half), stat(api, "deleted"))
    with at(ctx, clock, 2 * HOUR_S + 1) as api:
        for db, expected in (("deleted", (0, DOCUMENTS)), ("purged", (0, 0))):
            report.check(f"the rest of {db}", wait_until(lambda db=db, expected=expected: counts(api, db) == expected), counts(api, db))


def test_the_endpoint_takes_what_couchdbs_clients_send(ctx, api):
    report = ctx.report
    api.expect(201, "PUT", "/db")
    path = "/db/_auto_purge"
    report.equal("nothing at first", api.expect(200, "GET", path), {})
    ttl = {"deleted_document_ttl": "30_days"}
    for body, shown in (
        (ttl, ttl),
        ({**ttl, "expires_at": "until"}, {**ttl, "expires_at": "until", "expired_documents": "delete"}),
        (PURGE, PURGE),
        (ttl, ttl),
        ({}, {}),
    ):
        report.equal(f"{body}", (api.put(path, body).status, api.get(path).json), (201, shown))
    api.expect(201, "PUT", path, PURGE)
    for bad in (
        {"expires": "until"},
        {"expires_at": ""},
        {"expires_at": "_id"},
        {"expires_at": "n" * 257},
        {"expires_at": 5},
        {"expires_at": None},
        {"expires_at": "until", "expired_documents": "archive"},
        {"expired_documents": "purge"},
        {"expires_at": "until", "deleted_document_ttl": "soon"},
    ):
        refused = api.put(path, bad)
        report.equal(f"{bad} is refused", (refused.status, refused.json["error"]), (400, "bad_request"))
    report.equal("and changes nothing", api.expect(200, "GET", path), PURGE)

"""Documents that were deleted long ago are purged in the background. Clocks are shifted, so that a deletion is old at once."""

import contextlib
import time

import pytest

from harness.clock import DAY_S, Clock
from harness.server import wait_until

pytestmark = [pytest.mark.quick]

DELETED = 30
# Revisions that are purged per second.
SLOW_RATE = 10


@pytest.fixture
def clock(ctx):
    clock = Clock(ctx.folder("clock"))
    if clock.refused:
        pytest.skip(clock.refused)
    return clock


@contextlib.contextmanager
def at(ctx, clock, shift_s, *options):
    """A server on the same data, whose clock is off."""
    settings = [part for option in options for part in ("--set", f"couch_auto_purge_plugin/{option}")]
    with clock.off_by(shift_s), ctx.server("data", options=settings) as server:
        yield server.api()


def fill(api, db, q=2):
    """Some documents that are deleted, one of them with two leaves, and some that are not."""
    api.expect(201, "PUT", f"/{db}?q={q}")
    docs = [{"_id": f"{kind}{n}"} for kind in ("gone", "kept") for n in range(DELETED)]
    written = api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})
    api.expect(201, "POST", f"/{db}/_bulk_docs", {"new_edits": False, "docs": [{"_id": "gone0", "_rev": "2-b", "_deleted": True}]})
    gone = [{"_id": row["id"], "_rev": row["rev"], "_deleted": True} for row in written[:DELETED]]
    api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": gone})


def counts(api, db):
    info = api.expect(200, "GET", f"/{db}")
    return info["doc_count"], info["doc_del_count"]


def purged(api):
    return api.expect(200, "GET", "/_node/_local/_stats/auto_purge/purge")["value"]


def rounds(api):
    return api.expect(200, "GET", "/_node/_local/_stats/auto_purge/complete")["value"]


def another_round(api, db):
    """Waits for a round that began after this was called."""
    ttl = api.expect(200, "GET", f"/{db}/_auto_purge")
    # A round that began earlier may end first.
    for _ in range(2):
        before = rounds(api)
        api.expect(201, "PUT", f"/{db}/_auto_purge", ttl)
        assert wait_until(lambda before=before: rounds(api) > before)


def test_old_tombstones_are_purged_and_young_ones_stay(ctx, clock):
    report = ctx.report
    with at(ctx, clock, -3 * DAY_S) as api:
        for db in ("short", "long", "other"):
            fill(api, db)
        for db, ttl in (("short", "1_day"), ("long", "1_week")):
            api.expect(201, "PUT", f"/{db}/_auto_purge", {"deleted_document_ttl": ttl})
        another_round(api, "short")
        report.equal("young ones stay", counts(api, "short"), (DELETED, DELETED))
    with at(ctx, clock, 0) as api:
        report.check("old ones go", wait_until(lambda: counts(api, "short") == (DELETED, 0)), counts(api, "short"))
        report.equal("with all their leaves", purged(api), DELETED + 1)
        report.equal("no feed shows them", [row["id"] for row in api.expect(200, "GET", "/short/_changes")["results"] if row.get("deleted")], [])
        infos = api.expect(200, "GET", "/short/_purged_infos")["purged_infos"]
        report.equal("they are remembered as purged", sorted(info["id"] for info in infos), sorted(f"gone{n}" for n in range(DELETED)))
        revision = api.expect(200, "GET", "/short/kept0")["_rev"]
        api.expect(200, "DELETE", f"/short/kept0?rev={revision}")
        another_round(api, "short")
        report.equal("a new one stays", counts(api, "short"), (DELETED - 1, 1))
        report.equal("another time to live, and none", (counts(api, "long"), counts(api, "other")), ((DELETED, DELETED),) * 2)
        api.expect(201, "PUT", "/long/_auto_purge", {"deleted_document_ttl": "2_days"})
        report.check("a new value counts at once", wait_until(lambda: counts(api, "long") == (DELETED, 0)), counts(api, "long"))


def test_the_default_is_for_databases_without_a_value(ctx, clock):
    report = ctx.report
    with at(ctx, clock, -3 * DAY_S) as api:
        for db in ("default", "never"):
            fill(api, db)
        api.expect(201, "PUT", "/never/_auto_purge", {"deleted_document_ttl": "infinity"})
    with at(ctx, clock, 0, "deleted_document_ttl=1_day", "dry_run=true") as api:
        assert wait_until(lambda: rounds(api) > 0)
        report.equal("a dry run purges nothing", (counts(api, "default"), purged(api)), ((DELETED, DELETED), 0))
        found = api.expect(200, "GET", "/_settee/doctor")["findings"]
        report.equal("doctor notes it", [finding["severity"] for finding in found if finding["id"] == "auto-purge"], ["note"])
        api.expect(200, "PUT", "/_node/_local/_config/couch_auto_purge_plugin/dry_run", "false")
        report.check("settings count at once", wait_until(lambda: counts(api, "default") == (DELETED, 0)), counts(api, "default"))
        report.equal("infinity", counts(api, "never"), (DELETED, DELETED))
        refused = api.put("/_node/_local/_config/couch_auto_purge_plugin/deleted_document_ttl", "soon")
        report.equal("a value that is none is refused", refused.status, 400)


def test_purges_have_a_rate_and_are_shown_while_they_run(ctx, clock):
    with at(ctx, clock, -3 * DAY_S) as api:
        fill(api, "db", q=1)
    with at(ctx, clock, 0, "min_batch_size=1", "max_batch_size=1") as api:
        api.expect(200, "PUT", "/_node/_local/_config/couch_scanner/doc_write_rate_limit", str(SLOW_RATE))
        began = time.monotonic()
        api.expect(201, "PUT", "/db/_auto_purge", {"deleted_document_ttl": "1_day"})
        tasks = lambda: [task for task in api.expect(200, "GET", "/_active_tasks") if task["type"] == "auto_purge"]
        shown = []
        wait_until(lambda: shown.extend(tasks()) or shown)
        ctx.report.equal("the database", [task["database"] for task in shown], ["db"])
        ctx.report.check("they end", wait_until(lambda: counts(api, "db") == (DELETED, 0)), counts(api, "db"))
        took = time.monotonic() - began
        ctx.report.check("not faster than the rate", took >= DELETED / SLOW_RATE, took)
        ctx.report.check("the task ends", wait_until(lambda: not tasks()))

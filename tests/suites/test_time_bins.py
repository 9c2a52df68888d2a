"""Changes since a time, and the time bins behind them, on servers whose clock is wrong."""

import contextlib
import datetime
import time

import pytest

from harness.clock import DAY_S, HOUR_S, Clock

pytestmark = [pytest.mark.quick]

RANGE = "00000000-ffffffff"


def text(unix_s):
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def clock(ctx):
    clock = Clock(ctx.folder("clock"))
    if clock.refused:
        pytest.skip(clock.refused)
    return clock


@contextlib.contextmanager
def at(ctx, clock, shift_s):
    """A server on the same data, whose clock is off."""
    with clock.off_by(shift_s), ctx.server("data") as server:
        yield server.api()


def histogram(api, db):
    ((_, counts),) = api.expect(200, "GET", f"/{db}/_time_seq")["time_seq"][RANGE].items()
    return [count for _, count in counts]


def ids(api, db, since, **options):
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return [row["id"] for row in api.expect(200, "GET", f"/{db}/_changes?since={since}&{query}")["results"]]


def test_changes_are_found_by_when_they_were_made(ctx, clock):
    equal, now = ctx.report.equal, time.time()
    with at(ctx, clock, -2 * DAY_S) as api:
        api.expect(201, "PUT", "/db?q=1")
        api.expect(201, "PUT", "/db/old", {})
        equal("one bin", histogram(api, "db"), [1])
    with at(ctx, clock, -DAY_S) as api:
        equal("bins survive a restart", histogram(api, "db"), [1])
        api.expect(201, "PUT", "/db/middle", {})
    with at(ctx, clock, 0) as api:
        api.expect(201, "PUT", "/db/new", {})
        equal("a bin for each day", histogram(api, "db"), [1, 1, 1])
        equal("since before all", ids(api, "db", text(now - 3 * DAY_S)), ["old", "middle", "new"])
        equal("since the first day", ids(api, "db", text(now - 2 * DAY_S + 4 * HOUR_S)), ["old", "middle", "new"])
        equal("since the second day", ids(api, "db", text(now - DAY_S + 4 * HOUR_S)), ["middle", "new"])
        equal("by a longpoll feed", ids(api, "db", text(now - DAY_S + 4 * HOUR_S), feed="longpoll"), ["middle", "new"])
        equal("since now", ids(api, "db", text(now)), ["new"])
        equal("since tomorrow", ids(api, "db", text(now + DAY_S)), [])
        equal("a descending feed ignores since", ids(api, "db", "2026-13-01T00:00:00Z", descending="true"), ["new", "middle", "old"])
        compacted = api.expect(202, "POST", "/db/_compact", {})
        equal("a compaction keeps them", (compacted, histogram(api, "db")), ({"ok": True}, [1, 1, 1]))
        api.expect(200, "DELETE", "/db/_time_seq")
        equal("none after a reset", histogram(api, "db"), [])
        equal("all changes are since any time then", ids(api, "db", text(now + DAY_S)), ["old", "middle", "new"])
        api.expect(201, "PUT", "/db/newest", {})
        equal("earlier changes are counted first", histogram(api, "db"), [3, 1])


def test_changes_made_before_the_least_time_are_dated_later(ctx):
    with ctx.server("data") as server:
        api = server.api()
        api.expect(201, "PUT", "/db?q=1")
        api.expect(200, "PUT", "/_node/_local/_config/couchdb/time_seq_min_time", str(int(time.time()) + DAY_S))
        api.expect(201, "PUT", "/db/a", {})
        ctx.report.equal("the clock is wrong", histogram(api, "db"), [])
        api.expect(200, "DELETE", "/_node/_local/_config/couchdb/time_seq_min_time")
        api.expect(201, "PUT", "/db/b", {})
        ctx.report.equal("and right again, at once", histogram(api, "db"), [2])

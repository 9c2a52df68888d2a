"""System calls of the storage engine that fail, and connections that use up what there is: writes are refused meanwhile, with a reason, and taken
again when the cause is gone, without a restart. Nothing acknowledged is lost, and nothing refused is half there."""

import re
import socket
import subprocess
import time
import urllib.parse
from pathlib import Path

import pytest

from harness.api import ask
from harness.faults import Faults
from harness.prometheus import metrics
from harness.server import wait_until

pytestmark = pytest.mark.on_disk

RESUME_TIMEOUT_S = 30
# Memtables are written to files, and logs begun, every few writes.
SMALL_BUFFERS = ["--set", "rocksdb/write_buffer_size=262144"]
PAD = "x" * 20_000

LOGS, ROWS, MANIFESTS, DIRECTORY = "*/store/*.log", "*/store/*.sst", "*/store/MANIFEST*", "*/store"
# Calls, patterns of paths, errors, and how many calls pass.
CALLS = {
    "a sync of the log": [("fdatasync", LOGS, "EIO", 0)],
    "a sync of the log after some": [("fdatasync", LOGS, "EIO", 20)],
    "an append to the log": [("write", LOGS, "ENOSPC", 5)],
    "a torn append to the log": [("write", LOGS, "EIO", 0), ("fdatasync", LOGS, "EIO", 0)],
    "a log that cannot be opened": [("open", LOGS, "EMFILE", 0)],
    "a log that cannot be opened once more": [("open", LOGS, "ENFILE", 1)],
    "a log that cannot be opened while flushes wait": [("fdatasync", ROWS, "SLOW", 0), ("open", LOGS, "EMFILE", 2)],
    "a file of rows that cannot be opened": [("open", ROWS, "EMFILE", 0)],
    "a flush that has no room": [("write", ROWS, "ENOSPC", 0)],
    "a flush that fails": [("write", ROWS, "EIO", 1)],
    "a sync of a file of rows": [("fdatasync", ROWS, "EIO", 0)],
    "the manifest's write": [("write", MANIFESTS, "EIO", 0)],
    "the manifest's sync": [("fdatasync", MANIFESTS, "EIO", 0)],
    "a new manifest": [("write", MANIFESTS, "EIO", 0), ("open", MANIFESTS, "EMFILE", 0)],
    "a sync of the directory": [("fsync", DIRECTORY, "EIO", 0)],
}


@pytest.fixture
def faults(ctx):
    made = Faults(ctx.folder("faults"))
    if made.refused:
        pytest.skip(made.refused)
    with made.preloaded():
        yield made


class Writes:
    """Documents of one client, and what it was told of each."""

    def __init__(self, api, db="db"):
        self.api, self.db, self.next = api, db, 0
        self.acknowledged, self.refused = set(), set()

    def one(self, query=""):
        name = f"d{self.next:06}"
        self.next += 1
        answer = self.api.put(f"/{self.db}/{name}{query}", {"pad": PAD})
        (self.acknowledged if answer.status in (201, 202) else self.refused).add(name)
        return answer

    def until_refused(self, most=2_000):
        for _ in range(most):
            answer = self.one()
            if answer.status != 201:
                return answer
        return None

    def until_taken(self):
        return wait_until(lambda: self.one().status == 201, RESUME_TIMEOUT_S, 0.1)


def verify(ctx, api, writes, label, may_lack=frozenset()):
    """All that was acknowledged is there and whole; documents, listing and feed agree on what else is."""
    rows = api.get(f"/{writes.db}/_all_docs?include_docs=true").json["rows"]
    listed = {row["id"] for row in rows}
    whole = {row["id"] for row in rows if row["doc"] and row["doc"]["pad"] == PAD}
    changed = {row["id"] for row in api.get(f"/{writes.db}/_changes").json["results"]}
    info = api.get(f"/{writes.db}").json
    ctx.report.equal(f"{label}: acknowledged writes that are lost", sorted(writes.acknowledged - may_lack - listed), [])
    ctx.report.equal(f"{label}: documents that are not whole", sorted(listed - whole), [])
    ctx.report.equal(f"{label}: the feed has what the listing has", changed, listed)
    ctx.report.equal(f"{label}: the count is right", info["doc_count"], len(listed))


def is_sound(ctx, data, label):
    done = subprocess.run([ctx.binary, "check", data], capture_output=True, text=True, timeout=120)
    ctx.report.equal(f"{label}: settee check finds nothing", done.returncode, 0)
    if done.returncode:
        ctx.report.note(done.stdout[-2000:] + done.stderr[-2000:])


# The others are part of `make soak` alone.
SHORT_CALLS = (
    "a sync of the log",
    "a torn append to the log",
    "a log that cannot be opened while flushes wait",
    "a file of rows that cannot be opened",
    "a flush that fails",
    "the manifest's sync",
)


@pytest.mark.parametrize("what", [pytest.param(what, marks=[] if what in SHORT_CALLS else [pytest.mark.slow]) for what in CALLS])
def test_a_call_that_fails(ctx, faults, what):
    with ctx.server(options=SMALL_BUFFERS) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        writes = Writes(api)
        for _ in range(30):
            writes.one()
        faults.begin(*CALLS[what])
        refusal = writes.until_refused()
        ctx.report.check("a write is refused with a 500", refusal is not None and refusal.status == 500 and refusal.is_error_shape, repr(refusal))
        says_so(ctx, server, api, writes)
        ctx.report.check("reads go on", api.get("/db/d000000").status == 200)
        for _ in range(200):
            writes.one()
        fails_again(ctx, server, api)
        faults.end()
        ctx.report.check("writes are taken again when the cause is gone", writes.until_taken(), server.log()[-3000:])
        is_up = wait_until(lambda: api.get("/_up").status == 200, RESUME_TIMEOUT_S)
        ctx.report.check("and the server is up", is_up)
        told = metrics(api)
        ctx.report.check("they are counted", told("settee_storage_engine_resumes_total") >= 1, told("settee_storage_engine_errors_total"))
        ctx.report.equal("and fail no more", told("settee_writes_failing"), 0)
        for _ in range(30):
            writes.one()
        verify(ctx, api, writes, "resumed")
        log_is_short(ctx, server)
        server.kill()
    with ctx.server(options=SMALL_BUFFERS) as server:
        verify(ctx, server.api(), writes, "killed")
        ctx.report.check("it takes writes", Writes(server.api(), "db").api.put("/db/after", {"pad": PAD}).status == 201)
        ctx.report.equal("it stops in order", server.stop(), 0)
    is_sound(ctx, server.data, "stopped")


def fails_again(ctx, server, api):
    """The engine tries to go on, and cannot yet."""
    errors = lambda: metrics(api)("settee_storage_engine_errors_total")
    ctx.report.check("it is tried again and again", wait_until(lambda: errors() >= 3, RESUME_TIMEOUT_S, 0.1), server.log()[-2000:])


def says_so(ctx, server, api, writes):
    """While writes fail, everybody who asks is told. The engine may go on for as long as it needs no file that cannot be had, so writes go on too."""

    def told(ask):
        found = []

        def is_told():
            writes.until_refused()
            found.append(ask())
            return found[-1] is True

        return wait_until(is_told, RESUME_TIMEOUT_S, 0.05), found[-3:]

    def up_says_so():
        up = server.api(credentials="").get("/_up")
        reason = up.json.get("reason", "")
        return (up.status == 503 and "All writes fail" in reason and server.data not in reason) or up

    def doctor_says_so():
        findings = api.get("/_settee/doctor").json.get("findings", [])
        # A failed compaction is another finding of the same check.
        severities = [(finding["id"], finding["severity"]) for finding in findings]
        return ("writes", "error") in severities or severities

    def health_check_says_so():
        done = subprocess.run([ctx.binary, "healthcheck", server.url], capture_output=True, text=True, timeout=60)
        return done.returncode == 1 or done

    ctx.report.check("/_up is a 503, with a reason that names no file", *told(up_says_so))
    ctx.report.check("a metric says so", *told(lambda: metrics(api)("settee_writes_failing") == 1))
    ctx.report.check("and the doctor", *told(doctor_says_so))
    ctx.report.check("and the health check", *told(health_check_says_so))


def log_is_short(ctx, server):
    """The same error is written once a second at most, with a count of the others."""
    counted = lambda: re.search(r"\(\d+ more like this one\)$", server.log(), re.MULTILINE)
    ctx.report.check("lines that are left out are counted", wait_until(counted, 10), server.log()[-3000:])
    lines = [line for line in server.log().splitlines() if re.match(r"\S+ +(WARN|ERROR) ", line)]
    by_second = {}
    for line in lines:
        time_of, rest = line.split(" ", 1)
        rest = re.sub(r" \(\d+ more like this one\)$", "", re.sub(r"\d", "", rest))
        by_second.setdefault((time_of[:19], rest), []).append(line)
    repeated = [same for same in by_second.values() if len(same) > 2]
    ctx.report.equal("no line of the log is repeated within a second", repeated, [])


def is_in_no_log(ctx, server, writes):
    """The log was cut behind what was applied before anything was written to files."""
    logs = [path.read_bytes() for path in (Path(server.data) / "store").glob("*.log")]
    ctx.report.check("there is a log", logs)
    left = [name for name in writes.refused if any(name.encode() in log for log in logs)]
    ctx.report.equal("what was refused is in no log", left, [])
    ctx.report.check("something was refused", writes.refused)


@pytest.mark.parametrize("passing", [0, 1, 2, 3])
def test_a_crash_while_the_engine_resumes(ctx, faults, passing):
    """A sync of the log fails. Some keyspaces are written to files, and others not, when the server is killed: a batch whose write failed must not be
    applied to the others only."""
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        writes, later = Writes(api), Writes(api, "later")
        api.expect(201, "PUT", "/later")
        for _ in range(10):
            writes.one()
        # Answered before they are on disk: those may be lost, all of each.
        delayed = [later.one("?batch=ok") for _ in range(10)]
        ctx.report.equal("delayed writes are accepted", {answer.status for answer in delayed}, {202})
        faults.begin(("fdatasync", LOGS, "EIO", 0))
        refusal = writes.until_refused()
        ctx.report.check("a write is refused", refusal is not None, refusal)
        fails_again(ctx, server, api)
        faults.begin(("fdatasync", ROWS, "EIO", passing))
        # There may be fewer files than that.
        is_over = lambda: faults.failed() > 0 or metrics(api)("settee_storage_engine_resumes_total") > 0
        ctx.report.check("some files were written, and one not", wait_until(is_over), server.log()[-2000:])
        server.kill()
        faults.end()
    is_in_no_log(ctx, server, writes)
    with ctx.server() as server:
        api = server.api()
        verify(ctx, api, writes, "killed")
        verify(ctx, api, later, "delayed writes", may_lack=later.acknowledged)
        ctx.report.equal("it stops in order", server.stop(), 0)
    is_sound(ctx, server.data, "stopped")


def test_a_backup_does_not_take_the_logs_place(ctx, faults):
    """A copy of the log is written while the engine goes on with its own: that one is still the one that is sealed."""
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        writes = Writes(api)
        for _ in range(10):
            writes.one()
        done = subprocess.run(
            [ctx.binary, "backup", server.url.replace("http://", f"http://{server.admin}@"), str(ctx.root / "copy"), "--copy"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        ctx.report.equal("a backup is made", (done.returncode, done.stderr[-500:] if done.returncode else ""), (0, ""))
        for _ in range(10):
            writes.one()
        faults.begin(("fdatasync", LOGS, "EIO", 0))
        writes.until_refused()
        faults.begin(("fdatasync", ROWS, "EIO", 1))
        ctx.report.check("some files were written, and one not", wait_until(lambda: faults.failed() > 0), server.log()[-2000:])
        server.kill()
        faults.end()
    is_in_no_log(ctx, server, writes)
    with ctx.server() as server:
        verify(ctx, server.api(), writes, "killed")
        ctx.report.equal("it stops in order", server.stop(), 0)
    is_sound(ctx, server.data, "stopped")


def test_compactions_that_fail_stop_no_writes(ctx, faults):
    """What they read is still there: they are tried again."""
    with ctx.server(options=SMALL_BUFFERS) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        writes = Writes(api)
        for _ in range(30):
            writes.one()
        # Flushes write to level 0 too; a compaction reads what flushes have written.
        faults.begin(("open", ROWS, "EMFILE", 12))
        failed = lambda: metrics(api)("settee_storage_engine_compaction_failures_total") or writes.one().status != 201
        wait_until(failed, 60)
        faults.end()
        ctx.report.check("writes are taken", writes.until_taken(), server.log()[-3000:])
        verify(ctx, api, writes, "afterwards")


def limited_server(ctx, files, **options):
    """A server that may have so many descriptors, and not more: a script lowers both limits before it becomes the server."""
    script = ctx.root / "limited"
    script.write_text(f'#!/bin/sh\nulimit -n {files}\nexec "{ctx.binary}" "$@"\n')
    script.chmod(0o755)
    server = ctx.server(**options)
    server.binary = str(script)
    return server


def open_idle(server, count, held):
    address = urllib.parse.urlsplit(server.url)
    for _ in range(count):
        held.append(socket.create_connection((address.hostname, address.port), timeout=10))


def test_idle_strangers_take_nothing_from_clients(ctx):
    """More idle connections than there are descriptors: a client that is connected, and one that comes, write on."""
    limit = 512
    with limited_server(ctx, limit, options=SMALL_BUFFERS) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        writes, held = Writes(api), []
        connection = api.connection
        open_idle(server, limit, held)
        for _ in range(60):
            writes.one()
        ctx.report.equal("no write is refused", sorted(writes.refused), [])
        ctx.report.check("on the connection that there was", api.connection is connection)
        another = server.api()
        ctx.report.equal("a client that comes is served", another.put("/db/another", {"pad": PAD}).status, 201)
        told = metrics(api)
        open_files, most = told("settee_process_open_files"), told("settee_connections_max")
        ctx.report.check("descriptors are left for the store", open_files < limit - 64, (open_files, limit))
        ctx.report.check("connections are within their limit", told("settee_connections") <= most < limit, (told("settee_connections"), most))
        ctx.report.check("idle ones made room", told("settee_connections_closed_for_others_total") > 0)
        ctx.report.equal("the server is up", api.get("/_up").status, 200)
        log_has_no_errors(ctx, server)
        # Those who asked once, and rest, are strangers too.
        asked = []
        for _ in range(limit):
            stranger = server.api(credentials="")
            stranger.request("GET", "/")
            asked.append(stranger)
        for _ in range(60):
            writes.one()
        ctx.report.equal("no write is refused by strangers that asked once", sorted(writes.refused), [])
        ctx.report.check("on the same connection still", api.connection is connection)
        for stranger in asked:
            stranger.close()
        for idle in held:
            idle.close()
        verify(ctx, api, writes, "afterwards")


def log_has_no_errors(ctx, server):
    lines = [line for line in server.log().splitlines() if " ERROR " in line]
    ctx.report.equal("no errors are logged", lines, [])


def test_requests_under_way_are_not_closed_for_others(ctx):
    """Feeds of users keep their connections, however many others come; requests that come then wait for none of them."""
    with limited_server(ctx, 512, options=["--set", "chttpd/server_options=[{max, 8}]"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        feeds = [ask(server, "/db/_changes?feed=continuous&heartbeat=500") for _ in range(4)]
        for feed in feeds:
            feed.recv(1)
        held = []
        open_idle(server, 40, held)
        ctx.report.equal("a client writes", api.put("/db/a", {"pad": PAD}).status, 201)
        for number, feed in enumerate(feeds):
            text = b""
            deadline = time.monotonic() + 30
            while b'"id":"a"' not in text and time.monotonic() < deadline:
                text += feed.recv(4096) or b"closed"
            ctx.report.check(f"feed {number} goes on", b'"id":"a"' in text, text[-300:])
        for connection in [*feeds, *held]:
            connection.close()


def test_descriptors_that_others_took(ctx):
    """The limit falls below what is open: the store has none for its next file. It goes on when there are some again."""
    with ctx.server(options=SMALL_BUFFERS) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        writes = Writes(api)
        writes.one()
        limit = int(re.search(r"Max open files\s+(\d+)", Path(f"/proc/{server.process.pid}/limits").read_text()).group(1))
        change = lambda files: subprocess.run(["prlimit", f"--pid={server.process.pid}", f"--nofile={files}:{limit}"], check=True)
        change(10)
        refusal = writes.until_refused()
        ctx.report.check("a write is refused", refusal is not None and refusal.status == 500, repr(refusal))
        ctx.report.equal("/_up is a 503", api.get("/_up").status, 503)
        ctx.report.check("which says why", "Too many open files" in api.get("/_up").json["reason"], api.get("/_up").json)
        # Connections that cannot be accepted meanwhile are no reason to spin.
        address = urllib.parse.urlsplit(server.url)
        waiting = [socket.create_connection((address.hostname, address.port), timeout=10) for _ in range(5)]
        before = cpu_seconds(server)
        for _ in range(100):
            writes.one()
        spent = cpu_seconds(server) - before
        ctx.report.note(f"{spent:.2f} s of processor while nothing could be opened")
        change(limit)
        ctx.report.check("writes are taken again", writes.until_taken(), server.log()[-3000:])
        for connection in waiting:
            connection.close()
        verify(ctx, api, writes, "afterwards")
        log_is_short(ctx, server)


def cpu_seconds(server):
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100

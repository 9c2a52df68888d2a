"""What the server takes of memory and disk, however much is asked of it."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import threading
import time

import pytest

from harness.api import Disconnected
from harness.files import MIB, disk_mb, files_below
from harness.memory import family_mb, system
from harness.server import wait_until

pytestmark = pytest.mark.on_disk

WRITERS = 8
VIEW = {
    "map": "function (doc) { if (doc.n !== undefined) { emit(doc.n % 10, doc.n); } }",
    "reduce": "function (keys, values) { return sum(values); }",
}
DESIGNS = 300
# Of what a request or a build would take if all its data were in memory at once.
LARGE_PART_MAX = 0.5
BODIES_PART_MAX = 0.35
LEAVES_MB_MAX = 50
DESIGN = {"_id": "_design/app", "language": "javascript", "views": {"by_n": VIEW}}


def each(server, items, work, writers=WRITERS):
    """Runs `work(api, item)` for all items on some connections; the answers in any order."""

    def share(at):
        api = server.api()
        answers = [work(api, item) for item in items[at::writers]]
        api.close()
        return answers

    with concurrent.futures.ThreadPoolExecutor(writers) as pool:
        return [answer for answers in pool.map(share, range(writers)) for answer in answers]


def budgets(server):
    return server.api().expect(200, "GET", "/_node/_local/_system")["memory"]["budgets"]


def within_budgets(ctx, server, what):
    parts = budgets(server)
    peaks = [f"{name} {parts[name]['peak'] / MIB:.1f} of {parts[name]['budget'] / MIB:.1f}" for name in ("bodies", "index_builds")]
    ctx.report.note(f"{what}, peaks in MB: {', '.join(peaks)}")
    over = {name: parts[name] for name in ("bodies", "index_builds") if parts[name]["peak"] > parts[name]["budget"]}
    over |= {name: part for name, part in parts.items() if part["used"] > part["budget"] * 1.1}
    ctx.report.check(f"{what}: every part of the memory is within its budget", not over, over)


def test_long_keys(ctx):
    """Rows with long keys count as memory of index builds, also in updates of few documents."""
    with ctx.server("long_keys") as server:
        api = server.api(120)
        api.expect((201, 202), "PUT", "/db?q=1")
        view = {"map": "function (doc) { if (doc.t) { for (var i = 0; i < 8; i++) { emit(doc.t + i, 1); } } }"}
        api.expect(201, "PUT", "/db/_design/t", {"views": {"t": view}})
        key = "abcdefgh " * 28_000
        for number in range(4):
            api.expect(201, "PUT", f"/db/{number}", {"t": f"{key}{number}"})
        # Longer than keys can be.
        api.expect(201, "PUT", "/db/longer", {"t": key + key})
        rows = api.expect(200, "GET", "/db/_design/t/_view/t?limit=0")["total_rows"]
        ctx.report.check("documents are indexed whose keys are not too long", rows == 32, rows)
        log = server.log()
        ctx.report.check("the other one is named in the log", "longer" in log and "262144" in log, log[-1000:])
        built = budgets(server)["index_builds"]
        ctx.report.check("long keys count", built["peak"] > 2 * len(key), built)
        within_budgets(ctx, server, "long keys")


def test_large_documents(ctx):
    """An index build has few large documents in memory at once, whatever is in the database."""
    # Blocks that were read stay in the cache up to its size.
    with ctx.server("large", options=["--set", f"rocksdb/block_cache_size={4 * MIB}"]) as server:
        api = server.api(120)
        api.expect((201, 202), "PUT", "/db?q=1")
        count, text = ctx.size(200, 1000), "abcdefgh " * 100_000
        each(server, range(count), lambda own, number: own.expect(201, "PUT", f"/db/{number}", {"n": number, "text": text}), writers=4)
        api.close()
        server.stop()
        # Writes have a peak of their own.
        server.start()
        api = server.api(120)
        before = server.peak_rss_mb()
        views = {
            "lifted": {"map": "function (doc) { emit(doc.n, null); }"},
            "whole": {"map": "function (doc) { emit(Object.keys(doc).length, doc.text.length); }"},
        }
        api.expect(201, "PUT", "/db/_design/d", {"views": views})
        rows = api.expect(200, "GET", "/db/_design/d/_view/whole?limit=1")["total_rows"]
        ctx.report.equal("all large documents are in the view", rows, count)
        grown, all_mb = server.peak_rss_mb() - before, count * len(text) / MIB
        ctx.report.note(f"building a view of {all_mb:.0f} MB in documents of 0.9 MB: {grown:.0f} MB more at the peak")
        ctx.report.check("few of them are in memory at once", grown < all_mb * LARGE_PART_MAX, f"{grown:.0f} MB of {all_mb:.0f} MB")


def test_user_databases(ctx):
    count = ctx.size(250, 100_000)
    names = [f"user-{number:06d}" for number in range(count)]
    # The sample has more than may be open, too.
    options = [] if ctx.soak else ["--set", f"memory/open_databases={MIB}"]
    server = ctx.server("users", options=options).start()
    before = server.rss_mb()

    def make(api, name):
        api.expect((201, 202), "PUT", f"/{name}?q=2")
        api.expect((201, 202), "PUT", f"/{name}/_design/app", {k: v for k, v in DESIGN.items() if k != "_id"})
        api.expect(200, "POST", f"/{name}/_index", {"index": {"fields": ["n"]}, "ddoc": "found", "name": "n"})
        api.expect((201, 202), "POST", f"/{name}/_bulk_docs", {"docs": [{"_id": f"d{at}", "n": at + 1} for at in range(3)]})

    began = time.monotonic()
    each(server, names, make)
    made = time.monotonic() - began
    idle = wait_until(lambda: is_indexed(server), timeout_s=600, step_s=0.5)
    built = time.monotonic() - began
    ctx.report.check("the background comes to its end", idle)
    ctx.report.note(
        f"{count} databases with a view, an index and 3 documents: made in {made:.0f} s, built after {built:.0f} s; resident {server.rss_mb():.0f} MB"
        f" ({before:.0f} before, {server.peak_rss_mb():.0f} at the peak), with workers {family_mb(server):.0f}"
    )
    if ctx.soak:
        ctx.report.check("under 1 GB while they are made", server.peak_rss_mb() < 1024, server.peak_rss_mb())
        time.sleep(60)
        ctx.report.note(f"a minute later: {server.rss_mb():.0f} MB, with workers {family_mb(server):.0f}")
        ctx.report.check("under 600 MB a minute later", family_mb(server) < 600, family_mb(server))
    few = wait_until(lambda: system(server)["open_databases"] < count, timeout_s=30)
    ctx.report.check("most of them are closed", few, system(server))
    times = view_times(ctx, server, names)
    ctx.report.note(f"a view of one of them: p50 {percentile(times, 50):.1f} ms, p99 {percentile(times, 99):.1f} ms")
    every_one_is_built(ctx, server, names)
    ctx.report.equal("a clean stop exits with 0", server.stop(), 0)
    server = ctx.server("users", options=options).start()
    ctx.report.note(f"restart: {server.start_seconds:.2f} s, {server.rss_mb():.0f} MB")
    times = view_times(ctx, server, names)
    ctx.report.note(f"a view then: p50 {percentile(times, 50):.1f} ms, p99 {percentile(times, 99):.1f} ms")
    server.stop()


def is_indexed(server):
    tasks = server.api().expect(200, "GET", "/_active_tasks")
    return system(server)["databases_to_index"] == 0 and not any(task["type"] == "indexer" for task in tasks)


def view_times(ctx, server, names):
    api, times, wrong = server.api(), [], []
    for name in ctx.random.sample(names, min(len(names), ctx.size(200, 2000))):
        began = time.monotonic()
        answer = api.expect(200, "GET", f"/{name}/_design/app/_view/by_n?group=true")
        times.append((time.monotonic() - began) * 1000)
        if answer["rows"] != [{"key": n, "value": n} for n in (1, 2, 3)]:
            wrong.append((name, answer))
    ctx.report.check("a view of any of them is right", not wrong, wrong[:2])
    return times


def every_one_is_built(ctx, server, names):
    """Nothing is left for a query to build: the background had all of them."""
    api, behind = server.api(), []
    for name in ctx.random.sample(names, min(len(names), 200)):
        for design in ("app", "found"):
            info = api.expect(200, "GET", f"/{name}/_design/{design}/_info")["view_index"]
            if info["updates_pending"]["total"] > 0:
                behind.append((name, design, info))
    ctx.report.check("the background has built them", not behind, behind[:2])


def percentile(times, percent):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def test_designs_of_one_database(ctx):
    """Workers keep few heaps, however many design documents a database has."""
    server = ctx.server("designs").start()
    api = server.api()
    api.expect((201, 202), "PUT", "/one")
    api.expect((201, 202), "POST", "/one/_bulk_docs", {"docs": [{"_id": f"d{n}", "n": n} for n in range(200)]})

    def rows(own, number):
        return own.expect(200, "GET", f"/one/_design/d{number}/_view/by_n?reduce=false&limit=1")["total_rows"]

    def grown_mb(numbers):
        before = family_mb(server)
        designs = []
        for number in numbers:
            view = {**VIEW, "map": VIEW["map"].replace("doc.n,", f"doc.n, {number},").replace("doc.n %", f"{number} + doc.n %")}
            designs.append({"_id": f"_design/d{number}", "views": {"by_n": view}})
        api.expect((201, 202), "POST", "/one/_bulk_docs", {"docs": designs})
        ctx.report.equal("each has all its rows", set(each(server, numbers, rows)), {200})
        grown = family_mb(server) - before
        ctx.report.note(f"{len(numbers)} design documents more in one database: {grown:.0f} MB more, workers included")
        return grown

    few, more = grown_mb(range(DESIGNS // 3)), grown_mb(range(DESIGNS // 3, DESIGNS))
    ctx.report.check("twice as many more take less than they did", more < few, f"{few:.0f} MB, then {more:.0f} MB")
    server.stop()


def test_bodies_wait_for_room(ctx):
    """Many large bodies at once take hardly more memory than few: the others wait."""
    server = ctx.server("bodies", options=["--set", f"memory/bodies={ctx.size(32, 64) * MIB}", "--set", f"memory/limit={512 * MIB}"]).start()
    server.api().expect((201, 202), "PUT", "/bodies")
    before = server.rss_mb()
    text = "x" * (7 * MIB)
    docs = [{"n": n, "text": "y" * 4000} for n in range(10_500 if ctx.soak else 2500)]
    body = json.dumps({"docs": docs}).encode()

    def put(api, number):
        return api.put(f"/bodies/large-{number}", {"text": text}).status

    def bulk(api, _):
        return api.post("/bodies/_bulk_docs", body, headers={"Content-Type": "application/json"}).status

    def send(numbers, bulks):
        """Returns the highest peak of memory so far."""
        statuses = each(server, numbers, put, writers=len(numbers))
        ctx.report.check("each is answered, or refused for now", set(statuses) <= {201, 503}, set(statuses))
        ctx.report.check("most are stored", statuses.count(201) * 2 > len(numbers), statuses)
        statuses += each(server, range(bulks), bulk, writers=bulks)
        ctx.report.check("each bulk is answered, or refused for now", set(statuses) <= {201, 503}, set(statuses))
        ctx.report.note(
            f"{len(numbers)} clients that PUT 7 MB each, then {bulks} bulks of {len(body) / MIB:.0f} MB: {server.peak_rss_mb() - before:.0f} MB more"
            f" at the peak, {statuses.count(201)} stored, {statuses.count(503)} refused"
        )
        return server.peak_rss_mb()

    clients, bulks = ctx.size(20, 100), 12
    few = send(range(3), 3)
    many = send(range(3, clients), bulks)
    more_mb = ((clients - 6) * len(text) + (bulks - 3) * len(body)) / MIB
    ctx.report.check("many at once take hardly more than few", many - few < more_mb * BODIES_PART_MAX, f"{few:.0f} MB, then {many:.0f} MB")
    ctx.report.check("the peak is bounded", server.peak_rss_mb() - before < 400, server.peak_rss_mb())
    within_budgets(ctx, server, "after large bodies")
    small = server.api().expect((201, 202), "PUT", "/bodies/small", {"n": 1})
    ctx.report.check("and the server goes on", small["ok"])
    server.stop()


def test_many_leaves(ctx):
    server = ctx.server("leaves").start()
    api = server.api()
    api.expect((201, 202), "PUT", "/leaves?q=1")
    before = server.rss_mb()
    bulks = ctx.size(3, 10)
    for bulk in range(bulks):
        docs = [{"_id": "one", "n": n, "_revisions": {"start": 2, "ids": [f"{bulk * 1000 + n:032x}", "1" * 32]}} for n in range(1000)]
        api.expect((201, 202), "POST", "/leaves/_bulk_docs", {"docs": docs, "new_edits": False})
    ctx.report.note(f"{bulks} bulks of 1,000 conflicting leaves of one document: {server.peak_rss_mb() - before:.0f} MB more at the peak")
    # Each leaf rewrites the tree of its document, which in the end takes a hundred KB.
    ctx.report.check(f"under {LEAVES_MB_MAX} MB more", server.peak_rss_mb() - before < LEAVES_MB_MAX, server.peak_rss_mb())
    doc = api.expect(200, "GET", "/leaves/one?conflicts=true")
    ctx.report.equal("every leaf is there", len(doc["_conflicts"]), bulks * 1000 - 1)
    feed = api.expect(200, "GET", "/leaves/_changes?style=all_docs")["results"]
    ctx.report.equal("and the feed lists them all", [len(row["changes"]) for row in feed], [bulks * 1000])
    server.kill()
    server = ctx.server("leaves").start()
    doc = server.api().expect(200, "GET", "/leaves/one?conflicts=true")
    ctx.report.equal("also after kill -9", len(doc["_conflicts"]), bulks * 1000 - 1)
    server.stop()


class Group:
    """A control group with a limit of memory, where they can be made; else the limit is a setting alone."""

    def __init__(self, ctx, limit):
        self.limit, self.path = limit, None
        for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = pathlib.Path(root) / f"settee-test-{os.getpid()}"
            try:
                path.mkdir()
                (path / file).write_text(str(limit))
                self.path = path
                break
            except OSError:
                if path.is_dir():
                    path.rmdir()
        self.binary, self.options = ctx.binary, ["--set", f"memory/limit={limit}"]
        if self.path:
            wrapper = ctx.root / "in-group"
            wrapper.write_text(f'#!/bin/sh\necho $$ > {self.path}/cgroup.procs && exec {ctx.binary} "$@"\n')
            wrapper.chmod(0o755)
            self.binary, self.options = str(wrapper), []

    def peak_mb(self):
        for file in ("memory.max_usage_in_bytes", "memory.peak"):
            if self.path and (self.path / file).exists():
                return int((self.path / file).read_text()) / MIB
        return None

    def close(self):
        if self.path:
            wait_until(lambda: not (self.path / "cgroup.procs").read_text().strip(), timeout_s=10)
            self.path.rmdir()


def test_small_limit(ctx):
    """Everything that takes memory, at once, where there is half a gigabyte or less."""
    limit_mb = ctx.size(384, 512)
    group = Group(ctx, limit_mb * MIB)
    # In a short run indexes are small, and so is what their builds may take.
    builds = [] if ctx.soak else ["--set", f"memory/index_builds={2 * MIB}"]
    server = ctx.server("small", options=group.options + builds)
    server.binary = group.binary
    server.start()
    ctx.report.note(f"limit of {limit_mb} MB by " + ("a control group" if group.path else "a setting"))
    api = server.api()
    for name in ("large", "listed", "indexed", "copy"):
        api.expect((201, 202), "PUT", f"/{name}")
    rows = ctx.size(4_000, 100_000)
    for first in range(0, rows, 2000):
        docs = [{"_id": f"d{n:06d}", "n": n, "text": "z" * 300} for n in range(first, first + 2000)]
        for name in ("listed", "indexed"):
            api.expect((201, 202), "POST", f"/{name}/_bulk_docs", {"docs": docs})
    stored, odd, done = [], [], threading.Event()

    def guarded(work):
        def run(number):
            own = server.api(timeout=120)
            try:
                while True:
                    work(own, number)
                    if done.is_set():
                        break
            except Disconnected as error:
                odd.append(f"{work.__name__}: {error}")

        return run

    counter = iter(range(10**9))

    def large(own, _):
        number = next(counter)
        note(own.put(f"/large/l{number}", {"text": "x" * (7 * MIB)}), [f"l{number}"])

    def bulk(own, _):
        first = next(counter)
        docs = [{"_id": f"b{first}-{n}", "text": "y" * 4000} for n in range(ctx.size(2500, 10_500))]
        note(own.post("/large/_bulk_docs", {"docs": docs}), [f"b{first}-0", f"b{first}-{len(docs) - 1}"])

    def note(answer, ids):
        if answer.status in (201, 202):
            stored.extend(ids)
        elif answer.status != 503:
            odd.append(answer)

    def read(own, number):
        path = ("/listed/_all_docs?include_docs=true", "/listed/_changes?include_docs=true", "/indexed/_all_docs")[number % 3]
        answer = own.get(path)
        if answer.status not in (200, 503) or (answer.status == 200 and not answer.raw.rstrip().endswith(b"}")):
            odd.append((path, answer.status, answer.raw[-80:]))

    def build(own, number):
        design = {"views": {"v": {"map": f"function (doc) {{ emit([doc.n % {number + 2}, doc.text], doc.n); }}", "reduce": "_stats"}}}
        made = own.put(f"/indexed/_design/i{number}", design)
        answer = own.get(f"/indexed/_design/i{number}/_view/v")
        if made.status not in (201, 409, 503) or answer.status not in (200, 503):
            odd.append((number, made, answer))
        time.sleep(0.5)

    def tend(own, _):
        answers = [
            own.post("/listed/_compact", {}),
            own.post(
                "/_replicate",
                {"source": f"{server.url.replace('//', '//admin:admin@')}/listed", "target": f"{server.url.replace('//', '//admin:admin@')}/copy"},
            ),
        ]
        odd.extend(answer for answer in answers if answer.status not in (200, 202, 500, 503))
        time.sleep(0.5)

    parts = [(large, ctx.size(20, 100)), (bulk, ctx.size(4, 12)), (read, ctx.size(30, 200)), (build, ctx.size(6, 10)), (tend, 1)]
    threads = [threading.Thread(target=guarded(work), args=(number,)) for work, count in parts for number in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(ctx.size(2, 60))
    done.set()
    for thread in threads:
        thread.join()
    peak = group.peak_mb()
    ctx.report.note(
        f"{len(stored)} ids acknowledged; server's peak {server.peak_rss_mb():.0f} MB"
        + (f", the group's, page cache included, {peak:.0f} MB" if peak else "")
    )
    ctx.report.check("the server lives", server.alive(), server.log()[-1500:])
    ctx.report.check("every request is answered, or refused for now", not odd, odd[:3])
    ctx.report.check("something was stored", stored)
    within_budgets(ctx, server, "under a small limit")
    ctx.report.check(f"it takes less than {limit_mb} MB", server.peak_rss_mb() < limit_mb, server.peak_rss_mb())
    if not ctx.soak:
        built = budgets(server)["index_builds"]
        ctx.report.check("index builds press their budget", built["peak"] * 2 >= built["budget"], built)
    server.kill()
    server.start()
    gone = [
        row
        for first in range(0, len(stored), 5000)
        for row in server.api().expect(200, "POST", "/large/_all_docs", {"keys": stored[first : first + 5000]})["rows"]
        if "error" in row
    ]
    ctx.report.check("nothing acknowledged is lost", not gone, gone[:3])
    server.stop()
    group.close()


@pytest.mark.slow
def test_churn(ctx):
    """Databases that come and go leave nothing on disk, beside one that stays and is read."""
    # Always there: the restarted log and the engine's own log.
    come_and_go_beside_one_that_stays(ctx, 30_000, 400, attached_bytes=MIB, at_least_mb=4)


def test_a_large_database_leaves_nothing(ctx):
    """What a short run can see of churn: room comes back at once when much is dropped; the log is cut later, when nobody writes."""
    come_and_go_beside_one_that_stays(ctx, 2500, 1, attached_bytes=40 * MIB, at_least_mb=4, but=".log")


def come_and_go_beside_one_that_stays(ctx, documents, rounds, attached_bytes, at_least_mb, but=None):
    """`but`: what the names of files end with that do not count."""
    server = ctx.server("churn").start()
    api = server.api()
    api.expect((201, 202), "PUT", "/stays")
    revs = {}
    for round_ in range(13):
        for first in range(0, documents, 2500):
            ids = [f"d{n:05d}" for n in range(first, first + 2500)]
            docs = [{"_id": id_, "n": round_, **({"_rev": revs[id_]} if id_ in revs else {})} for id_ in ids]
            revs.update({row["id"]: row["rev"] for row in api.expect((201, 202), "POST", "/stays/_bulk_docs", {"docs": docs})})
    api.expect(202, "POST", "/stays/_compact", {})
    times, stop = [], threading.Event()

    def read():
        own = server.api()
        while not stop.is_set():
            began = time.monotonic()
            own.expect(200, "GET", f"/stays/d{ctx.random.randrange(documents):05d}")
            times.append((time.monotonic() - began) * 1000)

    reader = threading.Thread(target=read)
    reader.start()
    peak = 0
    for number in range(rounds):
        come_and_go(api, f"/churn-{number}", attached_bytes)
        peak = max(peak, disk_mb(server.data)) if number % 10 == 0 else peak
    stop.set()
    reader.join()
    ctx.report.note(
        f"{rounds} databases came and went: {peak:.0f} MB on disk at the peak; reads of the one that stays: p50 {percentile(times, 50):.2f} ms, p99 {percentile(times, 99):.2f} ms"
    )

    def lives():
        return api.expect(200, "GET", "/stays")["sizes"]["active"] / MIB

    def takes():
        return disk_mb(server.data) - (disk_mb(server.data, but) if but else 0)

    small = wait_until(lambda: takes() < 1.5 * lives() + at_least_mb, timeout_s=300, step_s=0.2)
    ctx.report.note(f"in the end: {takes():.1f} MB on disk for {lives():.1f} MB that live")
    ctx.report.check("their room comes back within five minutes", small, {str(file): stat.st_size for file, stat in files_below(server.data)})
    sizes = api.expect(200, "GET", "/stays")["sizes"]
    ctx.report.check("what lives is not more than what is on disk", sizes["active"] <= sizes["file"], sizes)
    server.kill()
    server.start()
    ctx.report.equal("what stays is whole", server.api().expect(200, "GET", "/stays")["doc_count"], documents)
    server.stop()
    shutil.rmtree(server.data, ignore_errors=True)


def come_and_go(api, name, attached_bytes):
    api.expect((201, 202), "PUT", name)
    api.expect((201, 202), "POST", f"{name}/_bulk_docs", {"docs": [{"_id": f"d{n}", "n": n, "text": f"{n * 7919:032x}" * 8} for n in range(2000)]})
    api.expect((201, 202), "PUT", f"{name}/_design/app", {"views": {"v": {"map": "function (doc) { emit(doc.n, doc.text); }", "reduce": "_count"}}})
    api.expect(200, "POST", f"{name}/_index", {"index": {"fields": ["n", "text"]}})
    attached = api.put(f"{name}/attached/bytes", os.urandom(attached_bytes), headers={"Content-Type": "application/octet-stream"})
    assert attached.status in (201, 202), attached
    api.expect(200, "GET", f"{name}/_design/app/_view/v")
    api.expect(200, "POST", f"{name}/_find", {"selector": {"n": 5}, "limit": 1})
    api.expect((200, 202), "DELETE", name)


def worker_private_mb(server):
    """What the worker processes of a server share with no other process, in MB."""
    private = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[1])
            if parent == server.process.pid:
                _, resident, shared = pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[:3]
                private += (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / MIB
        except OSError:
            continue
    return private


HOARD = "for (var i = 0; i < {mb}; i++) kept.push(new Uint8Array(1 << 20).fill(7));"


def test_worker_heaps(ctx):
    """Heaps of functions that were called are not kept however large they are, and all workers have a budget."""
    budget_mb = 200
    with ctx.server("workers", options=["--set", f"memory/workers={budget_mb * MIB}"]) as server:
        api = server.api(120)
        api.expect(201, "PUT", "/db?q=1")
        api.expect(201, "PUT", "/db/doc", {})
        count, hoard = ctx.size(12, 48), HOARD.format(mb=48)
        # What a call keeps, and what a source keeps when it is compiled.
        sources = [
            "function (doc) { var g = Function('return this')(), kept = g.kept = []; %s emit(%d); }",
            "(function () { var kept = []; %s return function (doc) { emit(%d, kept.length); }; })()",
        ]
        for number in range(count):
            views = {"v": {"map": sources[number % 2] % (hoard, number)}}
            api.expect(201, "PUT", f"/db/_design/d{number}", {"views": views, "autoupdate": False})
        each(server, range(count), lambda own, number: own.expect(200, "GET", f"/db/_design/d{number}/_view/v"), writers=2)
        wait_until(lambda: worker_private_mb(server) < budget_mb, 30)
        ctx.report.check("idle workers are small", worker_private_mb(server) < budget_mb, f"{worker_private_mb(server):.0f} MB")
        wait_until(lambda: budgets(server)["workers"]["used"] < budget_mb * MIB, 30)
        ctx.report.equal("the budget is the setting's", budgets(server)["workers"]["budget"], budget_mb * MIB)


def test_workers_at_work(ctx):
    """When functions at work take too much together, the largest is ended, and its caller is told the setting."""
    with ctx.server("working", options=["--set", f"memory/workers={64 * MIB}", "--set", "functions/workers_limit=3"]) as server:
        api = server.api(60)
        # It holds its memory until a request in the meantime could have been answered many times.
        work = "function (doc, req) { var kept = [], end = Date.now() + 1500; %s while (Date.now() < end); return 'ok'; }"
        shows = {"small": "function () { return 'ok'; }", "large": work % HOARD.format(mb=50), "medium": work % "kept.push(1);"}
        for name in ("a", "b"):
            api.expect(201, "PUT", f"/{name}?q=1")
            api.expect(201, "PUT", f"/{name}/_design/d", {"shows": shows})
        names = ["a/_design/d/_show/large", "b/_design/d/_show/large", "b/_design/d/_show/medium"]
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            answers = list(pool.map(lambda path: server.api(60).get(f"/{path}"), names))
        refused = [answer for answer in answers if answer.status == 500]
        ctx.report.check("one of the large ones is ended", len(refused) >= 1, [answer.raw for answer in answers])
        ctx.report.check("the setting is named", all(b"[memory] workers" in answer.raw for answer in refused), [answer.raw for answer in refused])
        ctx.report.equal("the small one goes on", answers[2].raw, b"ok")
        ctx.report.equal("and others do", api.get("/a/_design/d/_show/small").raw, b"ok")


def test_new_ids_have_a_limit(ctx):
    """However many ids the setting allows in one request, they fit into memory."""
    with ctx.server(options=["--set", "uuids/max_count=1000000000000"]) as server:
        api = server.api()
        for count in (100_001, 10**12, 2**64 - 1):
            answer = api.get(f"/_uuids?count={count}")
            ctx.report.equal(f"{count} ids are refused", (answer.status, answer.json["reason"]), (400, "count parameter too large"))
        ids = api.expect(200, "GET", "/_uuids?count=100000")["uuids"]
        ctx.report.equal("as many as are allowed are different", len(set(ids)), 100_000)
        api.close()

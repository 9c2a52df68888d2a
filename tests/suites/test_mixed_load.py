"""Everything at once for a long time: memory, threads, files and disk stay what they are."""

import os
import statistics
import threading
import time

import pytest

from harness.api import Disconnected
from harness.files import MIB, disk_mb
from harness.memory import family_mb, system, workers_of

pytestmark = pytest.mark.on_disk

DOCUMENTS = 5000
ATTACHED = 40
DESIGN = {
    "views": {"by_n": {"map": "function (doc) { emit(doc.n % 100, doc.text.length); }", "reduce": "_stats"}},
    "filters": {"even": "function (doc, req) { return doc.n % 2 === 0; }"},
}
SAMPLES = 40
# The log fills and is emptied again and again: what it takes is looked at so many times for each sample.
LOOKS = 10
CACHES = ("block_cache", "documents")
# How much more may be allocated, for requests that are under way, and for each completed request.
LEAK_MB_MAX, LEAK_KB_MAX = 5, 1


def test_nothing_grows(ctx):
    server = ctx.server().start()
    api = server.api()
    for name in ("work", "copy"):
        api.expect((201, 202), "PUT", f"/{name}")
        # Histories come to their full length at once.
        api.expect(200, "PUT", f"/{name}/_revs_limit", 10)
    api.expect((201, 202), "PUT", "/work/_design/app", DESIGN)
    api.expect(200, "POST", "/work/_index", {"index": {"fields": ["n"]}, "ddoc": "found", "name": "n"})
    load = Load(ctx, server)
    samples = load.run(ctx.size(12, 3600))
    ctx.report.note(f"{load.count} requests in {samples[-1]['at']:.0f} s: " + ", ".join(f"{what} {load.done[what]}" for what in sorted(load.done)))
    ctx.report.check("the server lives", server.alive(), server.log()[-1500:])
    ctx.report.check("nothing unexpected is answered", not load.odd, load.odd[:3])
    ctx.report.check("no panic", "panicked" not in server.log())
    idle = [part.__name__ for part in load.parts if not load.done.get(part.__name__)]
    ctx.report.equal("every kind of request was made", idle, [])
    ctx.report.note("memory in MB, of so many workers: " + ", ".join(f"{sample['memory']:.0f} of {sample['workers']}" for sample in samples))
    for name in samples[0]["parts"]:
        ctx.report.note(f"of it {name}, in MB: " + ", ".join(f"{sample['parts'][name]:.0f}" for sample in samples[::4]))
    nothing_leaks(ctx, samples)
    # A short run is a smoke test of these. It is still filling its caches, so it excludes them.
    memory = "memory" if ctx.soak else "memory beside the caches"
    for what, slack in ((memory, 60), ("threads", 16), ("files", 64), ("disk", 60), ("log", 120)):
        quarters = samples[len(samples) // 4 : len(samples) // 2], samples[-len(samples) // 4 :]
        second, last = (max(sample[what] for sample in quarter) for quarter in quarters)
        ctx.report.note(f"{what}: {samples[0][what]:.0f} at first, at most {second:.0f} in the second quarter, {last:.0f} in the last")
        if what in (memory, "disk", "log"):
            # How many workers, compactions, logs and files that are replaced come together in a peak is chance.
            second, last = (statistics.median(sample[what] for sample in quarter) for quarter in quarters)
            ctx.report.note(f"{what}: {second:.0f} mostly in the second quarter, {last:.0f} in the last")
        if ctx.soak:
            ctx.report.check(f"{what} is flat after the first quarter", last <= second * 1.15 + slack / 4, f"{second:.0f} {last:.0f}")
        else:
            ctx.report.check(f"{what} does not run away", last <= second * 1.5 + slack, f"{second:.0f} {last:.0f}")
    bound, most = samples[-1]["log_bound"], max(sample["log_most"] for sample in samples)
    mostly = statistics.median(sample["log"] for sample in samples)
    # It is cut when what holds it is on disk. Until then it grows: on a slow disk by half of the budget now and then.
    ctx.report.check("the log keeps to the budget of write buffers", mostly <= bound and most <= bound * 3, f"{mostly:.0f} {most:.0f} {bound:.0f}")
    ctx.report.equal("a clean stop exits with 0", server.stop(), 0)
    server.start()
    info = server.api().expect(200, "GET", "/work")
    listed = server.api().expect(200, "GET", "/work/_all_docs?limit=0")["total_rows"]
    ctx.report.equal("afterwards the counts agree", info["doc_count"], listed)
    server.stop()


def nothing_leaks(ctx, samples):
    """What is allocated and belongs to no budget does not grow with requests.

    It shows a leak sooner than resident memory, which has free memory and workers in it.
    """
    thirds = samples[len(samples) // 3 : 2 * len(samples) // 3], samples[2 * len(samples) // 3 :]
    second, last = (statistics.median(sample["unbudgeted"] for sample in third) for third in thirds)
    requests = statistics.median(sample["requests"] for sample in thirds[1]) - statistics.median(sample["requests"] for sample in thirds[0])
    told = f"{second:.1f} MB in the second third, {last:.1f} MB in the last, after {requests:.0f} requests"
    ctx.report.note(f"allocated outside of budgets: {told}")
    ctx.report.check("no request leaks", last - second <= LEAK_MB_MAX + requests * LEAK_KB_MAX / 1024, told)


def logged_mb(data):
    """What the log of writes takes, which is bounded by the budget of write buffers and not by what lives."""
    return disk_mb(data, ".log")


class Load:
    def __init__(self, ctx, server):
        self.ctx, self.server = ctx, server
        self.stop = threading.Event()
        self.odd, self.done, self.count = [], {}, 0
        self.lock = threading.Lock()
        self.parts = (
            self.bulks,
            self.updates,
            self.deletions,
            self.attachments,
            self.views,
            self.finds,
            self.feeds,
            self.replications,
            self.databases,
            self.compactions,
        )

    def run(self, seconds):
        threads = [threading.Thread(target=self.for_ever, args=(part,)) for part in self.parts]
        for thread in threads:
            thread.start()
        began, samples = time.monotonic(), []
        try:
            while time.monotonic() - began < seconds and self.server.alive():
                looks = []
                for _ in range(LOOKS):
                    time.sleep(seconds / SAMPLES / LOOKS)
                    looks.append(logged_mb(self.server.data))
                samples.append({"at": time.monotonic() - began, **self.sample(), "log": statistics.median(looks), "log_most": max(looks)})
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
        return samples

    def sample(self):
        process = f"/proc/{self.server.process.pid}"
        workers = len(workers_of(self.server))
        memory, family = system(self.server)["memory"], family_mb(self.server)
        parts = {name: part["used"] / MIB for name, part in memory["budgets"].items()}
        files = len(os.listdir(f"{process}/fd")) - workers
        return {
            "workers": workers,
            # The workers' memory is in other processes. Builds of indexes reserve what they may need, and hardly ever take it.
            "unbudgeted": memory["allocated"] / MIB - sum(used for name, used in parts.items() if name not in ("workers", "index_builds")),
            "requests": self.count,
            "parts": {"allocated": memory["allocated"] / MIB, **parts},
            "log_bound": memory["budgets"]["write_buffers"]["budget"] / MIB,
            "memory": family,
            "memory beside the caches": family - sum(parts[name] for name in CACHES),
            "threads": len(os.listdir(f"{process}/task")),
            "files": files,
            "disk": disk_mb(self.server.data) - logged_mb(self.server.data),
        }

    def for_ever(self, part):
        api = self.server.api(timeout=120)
        name = part.__name__
        while not self.stop.is_set():
            try:
                part(api)
            except (AssertionError, Disconnected) as error:
                self.odd.append(f"{name}: {error}")
                self.stop.wait(1)
            with self.lock:
                self.count += 1
                self.done[name] = self.done.get(name, 0) + 1
        api.close()

    def any_id(self):
        return f"d{self.ctx.random.randrange(DOCUMENTS):05d}"

    def document(self, rev=None):
        doc = {"n": self.ctx.random.randrange(10**6), "text": "t" * self.ctx.random.randrange(20, 600)}
        return {**doc, "_rev": rev} if rev else doc

    def bulks(self, api):
        ids = sorted({self.any_id() for _ in range(50)})
        rows = api.expect(200, "POST", "/work/_all_docs", {"keys": ids})["rows"]
        revs = {row["key"]: row["value"]["rev"] for row in rows if "value" in row and not row["value"].get("deleted")}
        api.expect((201, 202), "POST", "/work/_bulk_docs", {"docs": [{"_id": id_, **self.document(revs.get(id_))} for id_ in ids]})

    def updates(self, api):
        id_ = self.any_id()
        found = api.get(f"/work/{id_}")
        answer = api.put(f"/work/{id_}", self.document(found.json["_rev"] if found.status == 200 else None))
        assert answer.status in (201, 202, 409), answer

    def deletions(self, api):
        id_ = self.any_id()
        found = api.get(f"/work/{id_}")
        if found.status == 200:
            answer = api.delete(f"/work/{id_}?rev={found.json['_rev']}")
            assert answer.status in (200, 202, 409), answer
        self.stop.wait(0.01)

    def attachments(self, api):
        id_ = f"attached-{self.ctx.random.randrange(ATTACHED)}"
        found = api.get(f"/work/{id_}")
        rev = f"?rev={found.json['_rev']}" if found.status == 200 else ""
        if rev and self.ctx.random.random() < 0.2:
            answer = api.delete(f"/work/{id_}{rev}")
        elif rev:
            answer = api.put(
                f"/work/{id_}/bytes{rev}", os.urandom(self.ctx.random.randrange(1, 400_000)), headers={"Content-Type": "application/octet-stream"}
            )
        else:
            answer = api.put(f"/work/{id_}", self.document())
        assert answer.status in (200, 201, 202, 409), answer
        self.stop.wait(0.02)

    def views(self, api):
        api.expect(
            200,
            "GET",
            f"/work/_design/app/_view/by_n?{self.ctx.random.choice(('group=true', 'reduce=false&limit=50&include_docs=true', 'key=7&reduce=false', 'update=lazy'))}",
        )

    def finds(self, api):
        low = self.ctx.random.randrange(10**6)
        api.expect(200, "POST", "/work/_find", {"selector": {"n": {"$gte": low, "$lt": low + 20_000}}, "limit": 25, "sort": ["n"]})

    def feeds(self, api):
        how = self.ctx.random.choice(
            (
                "limit=2000",
                "filter=app/even&limit=200",
                "feed=longpoll&since=now&timeout=500",
                "feed=continuous&since=0&limit=500",
                "descending=true&limit=100&include_docs=true",
            )
        )
        answer = api.get(f"/work/_changes?{how}")
        assert answer.status == 200, answer

    def replications(self, api):
        url = self.server.url.replace("//", "//admin:admin@")
        answer = api.post("/_replicate", {"source": f"{url}/work", "target": f"{url}/copy"})
        assert answer.status in (200, 202), answer
        self.stop.wait(1)

    def databases(self, api):
        name = f"/passing-{self.ctx.random.randrange(10**9)}"
        api.expect((201, 202), "PUT", name)
        api.expect((201, 202), "PUT", f"{name}/_design/app", DESIGN)
        api.expect((201, 202), "POST", f"{name}/_bulk_docs", {"docs": [self.document() for _ in range(20)]})
        api.expect(200, "GET", f"{name}/_design/app/_view/by_n")
        api.expect((200, 202), "DELETE", name)

    def compactions(self, api):
        for name in ("work", "copy"):
            api.expect(202, "POST", f"/{name}/_compact", {})
        api.expect(202, "POST", "/work/_compact/app", {})
        self.stop.wait(self.ctx.size(1, 10))

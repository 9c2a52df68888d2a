"""Text indexes on bad days: kill -9 and a full disk during builds, and while many small updates are merged."""

import os
import pathlib
import subprocess
import threading
import time
from random import Random

import pytest

from harness.api import Disconnected
from harness.server import wait_until
from harness.small_disk import SmallDisk
from harness.text_database import QUESTIONS, WORDS, Database, design

pytestmark = pytest.mark.on_disk

# Each document costs some hundred microseconds, so a build takes long enough to be interrupted.
SLOW = "function (doc) { var x = 0; for (var i = 0; i < 8000; i++) x += i % 7; index('text', 'default', doc.text + (x < 0 ? '!' : '')); }"


def test_killed_builds(ctx):
    """kill -9 at a random part of a build, and of catching up: afterwards every question finds what is there."""
    server = ctx.server("killed").start()
    database = Database(ctx, server, "db", "?q=2")
    for number in range(1, ctx.size(4, 40) + 1):
        database.edit(ctx.size(400, 800))
        slow = f"slow{number}"
        database.api.expect(201, "PUT", f"/db/_design/{slow}", design(f"{SLOW} // {number}"))
        query = threading.Thread(target=ask_and_forget, args=(server, f"/db/_design/{slow}/_nouveau/i?q=*:*"), daemon=True)
        query.start()
        wanted = ctx.random.random() * len(database.docs)
        wait_until(lambda: changes_done(database.api, slow) >= wanted or not query.is_alive(), 60, 0.005)
        server.kill()
        query.join(30)
        server = ctx.server("killed").start()
        database.api = server.api()
        for q, matches in QUESTIONS:
            expected = sorted(doc_id for doc_id, doc in database.docs.items() if matches(doc))
            ctx.report.equal(f"kill {number}: {q}", database.ids(q, sort="_id"), expected, quiet=True)
        everything = {"q": "*:*", "sort": "_id", "limit": 100000}
        slow_ids = database.api.expect(200, "POST", f"/db/_design/{slow}/_nouveau/i", everything)
        ctx.report.equal(f"kill {number}: the index that was being built", [hit["id"] for hit in slow_ids["hits"]], sorted(database.docs))
        ctx.report.check(f"kill {number}: no panic", "panicked" not in server.log(), server.log()[-1500:], quiet=True)
    server.stop()


def changes_done(api, name):
    tasks = api.expect(200, "GET", "/_active_tasks")
    ours = [task for task in tasks if task.get("type") == "search_indexer" and task.get("design_document") == f"_design/{name}"]
    return sum(task.get("changes_done", 0) for task in ours)


def ask_and_forget(server, path):
    try:
        server.api().get(path)
    except Disconnected:
        pass  # the server was killed under it


def test_full_disk(ctx):
    """A build that finds no room says so, be it before it begins or in the middle; nothing else is lost, and it ends when there is room again."""
    with SmallDisk(ctx.folder("small"), 500 << 20) as disk:
        if disk.refused:
            ctx.report.skip("full disk", disk.refused)
            return
        server = ctx.server("small/data", log_path=str(ctx.root / "small.log")).start()
        try:
            build_on_full_disk(ctx, server, pathlib.Path(disk.path) / "ballast")
        finally:
            server.kill()


def fill(ballast, leave):
    """Takes all space of a file system but about so many bytes, beside others who write to it."""
    with open(ballast, "wb") as file:
        taken = 0
        for _ in range(100):
            left = os.statvfs(ballast.parent)
            wanted = left.f_bavail * left.f_frsize - leave
            if wanted <= 0:
                return
            try:
                os.posix_fallocate(file.fileno(), taken, wanted)
                taken += wanted
            except OSError:
                pass  # somebody else took of it


def build_on_full_disk(ctx, server, ballast):
    database = Database(ctx, server, "db", "?q=2")
    api = database.api
    for _ in range(4):
        database.edit(1000)
    everything = {"q": "*:*", "sort": "_id", "limit": 100000}
    expected = sorted(database.docs)

    def ids(name, **more):
        return [hit["id"] for hit in api.expect(200, "POST", f"/db/_design/{name}/_nouveau/i", {**everything, **more})["hits"]]

    ctx.report.equal("an index is built", ids("d"), expected)
    api.expect(201, "PUT", "/db/_design/early", design(f"{SLOW} // early"))
    api.expect(201, "PUT", "/db/_design/late", design(f"{SLOW} // late"))
    fill(ballast, 80 << 20)
    refused = api.get("/db/_design/early/_nouveau/i?q=*:*")
    ctx.report.check("a build without room is refused in CouchDB's shape", refused.status >= 500 and refused.is_error_shape, repr(refused))
    # To bring in the two design documents would take room.
    ctx.report.equal("the index that is there answers as it is", ids("d", update=False), expected)
    ballast.unlink()
    ctx.report.equal("with room again the other one is built", ids("early"), expected)
    answers = []
    query = threading.Thread(target=lambda: answers.append(server.api(timeout=120).get("/db/_design/late/_nouveau/i?q=*:*")))
    query.start()
    begun = wait_until(lambda: changes_done(api, "late") > 0 or not query.is_alive(), 60, 0.005)
    fill(ballast, 0)
    query.join(120)
    ctx.report.check("a build was under way when the disk was full", begun)
    answer = answers[0]
    is_told = answer.status == 507 and answer.is_error_shape
    ctx.report.check("it is built, or says that there is no room", answer.status == 200 or is_told, repr(answer))
    ctx.report.note(f"the disk was full in the middle: {answer.status} {answer.raw[:200]!r}")
    ctx.report.equal("the others answer as they are", ids("early", update=False), expected)
    ballast.unlink()
    ctx.report.check("it is built when there is room", wait_until(lambda: ids_or_none(api, "late", everything) == expected, 60, 0.5))
    ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])
    server.kill()
    server.start()
    database.api = api = server.api()
    for name in ("d", "early", "late"):
        ctx.report.equal(f"after kill -9: {name}", ids(name), expected)


def ids_or_none(api, name, everything):
    answer = api.post(f"/db/_design/{name}/_nouveau/i", everything)
    return [hit["id"] for hit in answer.json["hits"]] if answer.status == 200 else None


class Writers:
    """Long documents in small updates, each brought into the index at once, so that segments come and are merged all the time."""

    def __init__(self, ctx, server):
        self.server, self.is_over = server, threading.Event()
        self.answers = {}
        self.threads = [threading.Thread(target=self.write, args=(ctx.random.random(),), daemon=True) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def write(self, seed):
        random = Random(seed)
        api = self.server.api()
        try:
            while not self.is_over.is_set():
                docs = []
                for _ in range(4):
                    doc = {
                        "_id": f"d{random.randint(0, 3000):05d}",
                        "text": " ".join(random.choices(WORDS, k=random.choice([3, 300, 3000]))),
                        "n": random.randint(-5, 5),
                    }
                    known = api.get(f"/db/{doc['_id']}")
                    if known.status == 200:
                        doc["_rev"] = known.json["_rev"]
                        if random.random() < 0.3:
                            doc["_deleted"] = True
                    docs.append(doc)
                for answer in (api.post("/db/_bulk_docs", {"docs": docs}), api.get("/db/_design/d/_nouveau/i?q=alpha&limit=1")):
                    self.answers[answer.status] = answer.raw[:200]
        except Disconnected:
            pass  # the server was killed under it

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join(60)


def agrees(ctx, api, label):
    """Every question finds what is among the documents."""
    rows = api.expect(200, "GET", "/db/_all_docs?include_docs=true")["rows"]
    docs = {row["id"]: row["doc"] for row in rows if not row["id"].startswith("_")}
    for q, matches in QUESTIONS:
        expected = sorted(doc_id for doc_id, doc in docs.items() if matches(doc))
        answer = api.expect(200, "POST", "/db/_design/d/_nouveau/i", {"q": q, "sort": "_id", "limit": 100_000})
        ctx.report.equal(f"{label}: {q}", [hit["id"] for hit in answer["hits"]], expected, quiet=True)
    return len(docs)


def merges(api):
    return api.expect(200, "GET", "/_node/_local/_stats/settee/text_indexes/merges")["value"]


def test_killed_merges(ctx):
    """kill -9 at a random moment while segments are merged all the time."""
    server = ctx.server("merges").start()
    Database(ctx, server, "db", "?q=2")
    merged = docs = 0
    kills = ctx.size(4, 60)
    for number in range(1, kills + 1):
        writers = Writers(ctx, server)
        api = server.api()
        before = merges(api)
        # Merges have the lowest priority: on a busy machine they begin late.
        begun = wait_until(lambda api=api, before=before: merges(api) > before, 300, 0.05)
        ctx.report.check(f"kill {number} among merges: there are merges", begun, writers.answers, quiet=True)
        time.sleep(ctx.random.uniform(0, 2))
        merged += merges(api) - before
        server.kill()
        writers.end()
        server = ctx.server("merges").start()
        docs = agrees(ctx, server.api(), f"kill {number} among merges")
        ctx.report.check(f"kill {number} among merges: no panic", "panicked" not in server.log(), server.log()[-1500:], quiet=True)
    ctx.report.note(f"{kills} kills, {merged} merges, {docs} documents")
    server.stop()
    sound = subprocess.run([ctx.binary, "check", server.data, "--indexes"], check=False, capture_output=True, timeout=300, text=True)
    ctx.report.check("the store is sound", sound.returncode == 0, sound.stdout + sound.stderr)


def test_full_disk_while_merging(ctx):
    """The disk is full now and then while segments are merged: updates are refused, what is there is found, and all is well when there is room."""
    with SmallDisk(ctx.folder("merging"), 400 << 20) as disk:
        if disk.refused:
            ctx.report.skip("full disk among merges", disk.refused)
            return
        server = ctx.server("merging/data", log_path=str(ctx.root / "merging.log")).start()
        try:
            Database(ctx, server, "db", "?q=2")
            # Before its first build an index is not there.
            server.api().expect(200, "GET", "/db/_design/d/_nouveau/i?q=alpha")
            ballast = pathlib.Path(disk.path) / "ballast"
            writers = Writers(ctx, server)
            times = ctx.size(4, 30)
            for number in range(1, times + 1):
                time.sleep(ctx.random.uniform(0.3, 2))
                fill(ballast, ctx.random.choice([0, 0, 1 << 20, 40 << 20]) if number > 1 else 0)
                if number == 1:
                    refused = wait_until(lambda: max(list(writers.answers), default=0) >= 500, 60)
                    ctx.report.check("writes are refused while the disk is full", refused, writers.answers)
                time.sleep(ctx.random.uniform(0.1, 1))
                found = server.api().get("/db/_design/d/_nouveau/i?q=alpha&update=false")
                ctx.report.equal(f"full {number}: what is there is found", found.status, 200, quiet=True)
                ballast.unlink()
            writers.end()
            merged = merges(server.api())
            ctx.report.check("others went well", {200, 201} <= set(writers.answers), writers.answers)
            docs = agrees(ctx, server.api(), "with room again")
            ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])
            ctx.report.note(
                f"full {times} times, {merged} merges, {docs} documents, refused: { {status: raw for status, raw in writers.answers.items() if status >= 400} }"
            )
            server.kill()
            server.start()
            agrees(ctx, server.api(), "full disks, then kill -9")
        finally:
            server.kill()

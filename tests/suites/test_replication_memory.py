"""Memory of replications whose sources, targets or descriptions are made to take much of it."""

import contextlib
import json
import pathlib
import threading

import pytest

from harness.api import Disconnected
from harness.hostile_source import HostileSource, StalledTarget
from harness.server import wait_until

MIB = 1 << 20
# A part of the budget that the test can exceed by much if nothing is counted.
BUDGET_BYTES = 16 * MIB
OPTIONS = [
    text
    for option in (
        "replicator/startup_jitter=0",
        "replicator/retries_per_request=0",
        "replicator/connection_timeout=120000",
        f"memory/replications={BUDGET_BYTES}",
    )
    for text in ("--set", option)
]


@pytest.fixture(scope="module")
def server(suite):
    with suite.server(options=OPTIONS) as server:
        yield server
        suite.report.check("no panic", "panicked" not in server.log())


@pytest.fixture
def api(server):
    return server.api(timeout=300)


@contextlib.contextmanager
def closing(*ends):
    try:
        yield ends[0] if len(ends) == 1 else ends
    finally:
        for end in ends:
            end.close()


class Memory:
    """How much the server's peak memory has grown since this was made."""

    def __init__(self, server):
        self.server = server
        # Resets the peak.
        pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5", encoding="ascii")
        self.before = server.rss_mb()

    def grown_mb(self):
        return self.server.peak_rss_mb() - self.before


def part(api):
    return api.expect(200, "GET", "/_node/_local/_system")["memory"]["budgets"]["replications"]


def change(number, seq=None, more=""):
    seq = f'"{number}-x"' if seq is None else seq
    return f'{{"seq":{seq},"id":"d{number:06}","changes":[{{"rev":"1-{number:032x}"}}]{more}}}'


def pull(api, source, db, **more):
    api.request("DELETE", f"/{db}")
    return api.post("/_replicate", {"source": source.url, "target": db, "create_target": True, **more})


def test_seqs(ctx, server, api):
    """Seqs of many values or bytes are refused, and take no memory."""
    many = "[" + "[0]," * (4 * MIB) + "0]"
    long = '"1-' + "x" * (8 * MIB) + '"'
    ordinary = '"1-' + "g1AAAACbeJzLYWBg" * 200 + '"'
    for name, seq in (("many values", many), ("many bytes", long)):
        for place, source in (
            ("a row", HostileSource(rows=[change(1, seq)])),
            ("update_seq", HostileSource(rows=[change(1)], seq=seq)),
        ):
            with closing(source):
                memory = Memory(server)
                answer = pull(api, source, "seqs")
                ctx.report.equal(f"a seq of {name} in {place} fails the replication", answer.status, 500)
                grown, sent_mb = memory.grown_mb(), len(seq) / MIB
                # What is read is held, also the text before it is parsed; values would take 90 times as much.
                ctx.report.check(f"and takes little ({name}, {place})", grown < 12 * sent_mb + 64, f"{grown:.0f} MB of {sent_mb:.0f}")
    for name, seq in (("CouchDB's", ordinary), ("BigCouch's", f"[1,{ordinary}]")):
        with closing(HostileSource(rows=[change(1, seq)], seq=seq, doc='"v":1')) as source:
            answer = pull(api, source, "seqs")
            ctx.report.equal(f"{name} seqs are accepted", (answer.status, answer.json["ok"] if answer.status == 200 else answer), (200, True))


def test_reasons(ctx, server, api):
    """What a source says of its failure is cut."""
    row = json.dumps({"error": "odd", "reason": "x" * (4 * MIB)})
    with closing(HostileSource(rows=[row])) as source:
        answer = pull(api, source, "reasons")
        ctx.report.check("a reason is short", answer.status == 500 and len(answer.raw) < 4096, (answer.status, len(answer.raw)))


def test_long_documents(ctx, server, api):
    """A document that is longer than rows may be with this budget is left out, and counted. The others arrive, whether it comes with
    the changes or alone."""
    long, short = f'"x":"{"y" * (48 * MIB)}"', '"x":1'
    source = HostileSource(doc=lambda doc_id: long if doc_id == "d000002" else short)

    def row(number):
        doc = source.text(f"d{number:06}", f"1-{number:032x}") if "include_docs=true" in source.query else None
        return change(number, more=f',"doc":{doc}' if doc else "")

    with closing(source):
        for name, rows in (("alone", [change(number) for number in (1, 2, 3)]), ("with the changes", [lambda n=n: row(n) for n in (1, 2, 3)])):
            source.rows = rows
            memory = Memory(server)
            answer = pull(api, source, "long")
            history = answer.json["history"][0] if answer.status == 200 else answer
            counts = {key: history[key] for key in ("docs_written", "doc_write_failures")} if answer.status == 200 else history
            # A document that came before it with the changes may be written again, with those that are read alone.
            ctx.report.check(f"{name}: it is left out", counts in [{"docs_written": n, "doc_write_failures": 1} for n in (2, 3)], counts)
            ctx.report.equal(f"{name}: the others arrive", api.get("/long").json["doc_count"], 2)
            ctx.report.check(f"{name}: in little memory", memory.grown_mb() < 64, f"{memory.grown_mb():.0f} MB for a document of 48")


def test_descriptions(ctx, server, api):
    """A request that waits for a source that is silent keeps nothing of its body."""
    source = HostileSource(stalls=True)
    body = {"source": source.url, "target": "stalled"}
    padding = [[0]] * 150_000
    count, answers = 8, []
    api.request("PUT", "/stalled")

    def ask(number):
        request = {**body, "doc_ids": [str(number)], "x": padding}
        try:
            answers.append(server.api(timeout=300).post("/_replicate", request).status)
        except Disconnected as error:
            answers.append(error)

    before = allocated(api)
    started = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
    for thread in started:
        thread.start()
    ctx.report.check("the jobs run", wait_until(lambda: source.feeds == count, 60), source.feeds)
    # A body takes about 50 MB when it is parsed, and all of them 400.
    settled = wait_until(lambda: bodies(api) == 0 and allocated(api) - before < 100 * MIB, 60)
    ctx.report.check("what waits takes little", settled, (before, allocated(api), bodies(api)))
    for job in api.expect(200, "GET", "/_scheduler/jobs")["jobs"]:
        api.expect(200, "POST", "/_replicate", {"replication_id": job["id"], "cancel": True})
    for thread in started:
        thread.join()
    ctx.report.equal("all are answered", answers, [200] * count)
    source.close()
    for odd in (True, {"a": 1}, "5" * 100_000, [[0]] * 1000):
        answer = api.post("/_replicate", {**body, "since_seq": odd})
        ctx.report.equal(f"since_seq is a seq: {str(odd)[:20]}", (answer.status, answer.json["error"]), (400, "bad_request"))


def allocated(api):
    return api.expect(200, "GET", "/_node/_local/_system")["memory"]["allocated"]


def bodies(api):
    return api.expect(200, "GET", "/_node/_local/_system")["memory"]["budgets"]["bodies"]["used"]


def test_batches(ctx, server, api):
    """Many workers between a source of large documents and a target that does not answer: what they hold is counted and bounded. When
    the target answers, everything arrives."""
    count, doc_bytes = 600, 200_000
    source = HostileSource(rows=[change(number) for number in range(1, count + 1)], doc=f'"x":"{"y" * doc_bytes}"')
    target = StalledTarget()
    with closing(source, target):
        memory = Memory(server)
        # Batches of few documents, so that each worker gets one.
        request = {"source": source.url, "target": target.url, "worker_processes": 10_000, "worker_batch_size": 10}
        answers = []
        asking = threading.Thread(target=lambda: answers.append(server.api(timeout=300).post("/_replicate", request)))
        asking.start()
        ctx.report.check("documents are under way", wait_until(lambda: target.asked > 0 and part(api)["used"] > BUDGET_BYTES // 8, 60), part(api))
        used = part(api)
        ctx.report.check("their memory is in the table", used["used"] <= used["budget"], used)
        # The workers have nothing more to do until the target answers.
        ctx.report.check("no more come", wait_until(quiet(source, target), 60), (source.bulks, target.asked), quiet=True)
        sent_mb = count * doc_bytes / MIB
        grown = memory.grown_mb()
        ctx.report.note(f"{sent_mb:.0f} MB of documents wait for a target: {grown:.0f} MB more")
        ctx.report.check("memory is bounded", grown < 2 * sent_mb / 3, f"{grown:.0f} MB of {sent_mb:.0f}")
        target.release()
        asking.join(300)
        history = answers[0].json["history"][0] if answers and answers[0].status == 200 else answers
        ctx.report.check("everything arrives", isinstance(history, dict) and history["docs_written"] == count == target.written, history)
        ctx.report.check("and nothing is counted then", wait_until(lambda: part(api)["used"] == 0, 60), part(api))


def quiet(source, target):
    """A condition: neither has been asked since the condition was tried 50 times."""
    seen = []

    def is_quiet():
        seen.append((source.bulks, target.asked))
        return len(seen) > 50 and len(set(seen[-50:])) == 1

    return is_quiet


def test_batches_of_others(ctx, server, api):
    """A user whose target does not answer leaves others memory: their replications go on."""
    for name in ("hostile", "ordinary"):
        api.expect((201, 409), "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "password": "pw", "roles": [], "type": "user"})
    api.expect(200, "PUT", "/_node/_local/_config/replicator/allowed_addresses", "any")
    source = HostileSource(rows=[change(number) for number in range(1, 401)], doc=f'"x":"{"y" * 100_000}"')
    target = StalledTarget()
    with closing(source, target):
        jobs = []
        for number in range(4):
            request = {"source": source.url, "target": target.url, "doc_ids": [f"d{number:06}"], "worker_batch_size": 10}
            jobs.append(threading.Thread(target=server.api(timeout=300, credentials="hostile:pw").post, args=("/_replicate", request)))
            jobs[-1].start()
        ctx.report.check("the hostile user's documents wait", wait_until(lambda: target.asked >= 2, 60), target.asked)
        for db in ("from", "to"):
            api.request("DELETE", f"/{db}")
            api.expect((201, 202), "PUT", f"/{db}")
            api.expect(200, "PUT", f"/{db}/_security", {"admins": {"names": ["ordinary"]}, "members": {"names": ["ordinary"]}})
        api.expect(201, "POST", "/from/_bulk_docs", {"docs": [{"_id": f"x{n}", "v": "z" * 1000} for n in range(2000)]})
        answer = server.api(timeout=300, credentials="ordinary:pw").post("/_replicate", {"source": "from", "target": "to"})
        ctx.report.equal("another user's replication goes on", (answer.status, api.get("/to").json["doc_count"]), (200, 2000))
        for job in api.expect(200, "GET", "/_scheduler/jobs")["jobs"]:
            api.expect(200, "POST", "/_replicate", {"replication_id": job["id"], "cancel": True})
        for job in jobs:
            job.join(300)
    api.expect(200, "DELETE", "/_node/_local/_config/replicator/allowed_addresses")


def test_documents_with_many_values(ctx, server, api):
    """Replication documents of many values are refused, and those of many ids are not."""
    api.request("PUT", "/_replicator")
    doc = {"source": "http://127.0.0.1:9/a", "target": "http://127.0.0.1:9/b", "x": [[0]] * 200_000}
    answer = api.put("/_replicator/many", doc)
    ctx.report.check("many values are refused", answer.status == 403 and "values" in answer.json["reason"], answer)
    ids = [f"{number:032x}" for number in range(50_000)]
    answer = api.put("/_replicator/ids", {"source": "http://127.0.0.1:9/a", "target": "http://127.0.0.1:9/b", "doc_ids": ids})
    ctx.report.equal("many ids are accepted", answer.status, 201)
    api.expect(200, "DELETE", f"/_replicator/ids?rev={api.get('/_replicator/ids').json['_rev']}")

"""Attachments of a cluster, which are copied beside the log: through each node, at nodes that are killed between the copy and the record,
and at nodes that lack a content. Each acknowledged attachment is read from all nodes, byte by byte.
"""

import base64
import concurrent.futures
import hashlib
import json
import statistics
import threading
import time

import pytest

from harness.api import Api, Disconnected
from harness.faulty_cluster import ADMIN, ENGINES, KAFKA, FaultyCluster, with_log
from harness.prometheus import metrics
from harness.server import wait_until

pytestmark = pytest.mark.on_disk

NODES = (1, 2, 3)
DB = "attached"
# In the record, beside it, and partly in files of its own.
SIZES = (1_000, 65_536, 65_537, 700_000, 20_000_000)
LARGE_BYTES, LARGE_BYTES_SOAK = 30_000_000, 60_000_000
HUGE_BYTES, HUGE_BYTES_SOAK = 50_000_000, 100_000_000
EDITS, EDITS_SOAK = 12, 300
ROUNDS, ROUNDS_SOAK = 3, 60
KILLS, KILLS_SOAK = 4, 100
WRITERS = 3
SEEN_TIMEOUT_S = 60
REQUEST_TIMEOUT_S = 180
# Compared with one server.
PUT_TIMES_MAX = 3
EDIT_MS_MAX = 20
RESIDENT_MB_MAX = 150


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"attachments-{request.param}", log=request.param, has_links=True)
    try:
        cluster.start()
        cluster.api(1).expect(201, "PUT", f"/{DB}?q=4")
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


def api_of(cluster, number):
    return cluster.api(number, timeout=REQUEST_TIMEOUT_S)


def counter(cluster, number, name):
    """None while the node does not answer."""
    try:
        return metrics(Api(cluster.nodes[number].url, ADMIN))(f"settee_cluster_contents_{name}_total")
    except (OSError, Disconnected, AttributeError):
        return None


class Attached:
    """What was acknowledged: the digest of each attachment, by document."""

    def __init__(self, ctx, cluster):
        self.ctx, self.report, self.cluster = ctx, ctx.report, cluster
        self.revs, self.digests, self.lock = {}, {}, threading.Lock()

    def upload(self, number, doc, size, name="file"):
        """The status; None when the node closed the connection."""
        content = self.ctx.random.randbytes(size)
        rev = self.revs.get(doc)
        query = f"?rev={rev}" if rev else ""
        try:
            answer = api_of(self.cluster, number).put(f"/{DB}/{doc}/{name}{query}", content, headers={"Content-Type": "image/png"})
        except Disconnected:
            return None
        if answer.status == 201:
            with self.lock:
                self.revs[doc] = answer.json["rev"]
                self.digests.setdefault(doc, {})[name] = hashlib.sha256(content).hexdigest()
        return answer.status

    def edit(self, number, doc, value):
        """Keeps all attachments."""
        stubs = {name: {"stub": True} for name in self.digests[doc]}
        body = {"_rev": self.revs[doc], "value": value, "_attachments": stubs}
        answer = api_of(self.cluster, number).put(f"/{DB}/{doc}", body)
        if answer.status == 201:
            self.revs[doc] = answer.json["rev"]
        return answer.status

    def differences(self):
        """Attachments that a node has not, or with other bytes. Each node reads its own store."""
        return [
            f"node {number}: {doc}/{name}"
            for number in self.cluster.nodes
            for doc, digests in self.digests.items()
            for name, digest in digests.items()
            if hashlib.sha256(api_of(self.cluster, number).get(f"/{DB}/{doc}/{name}?r=1").raw).hexdigest() != digest
        ]

    def check(self, what):
        self.report.equal(f"{what}: all replicas are equal", self.cluster.wait_until_equal(SEEN_TIMEOUT_S), "")
        self.report.equal(f"{what}: all nodes have all attachments", self.differences(), [])


def test_uploads_through_each_node(suite, cluster):
    attached = Attached(suite, cluster)
    statuses = []
    for size in SIZES:
        for number in NODES:
            statuses.append(attached.upload(number, f"each-{size}-{number}", size))
            # A second one, at another node: the first is kept.
            statuses.append(attached.upload(number % 3 + 1, f"each-{size}-{number}", 70_000, "second"))
            statuses.append(attached.edit((number + 1) % 3 + 1, f"each-{size}-{number}", size))
    suite.report.equal("each is written", set(statuses), {201})
    attached.check("uploads through each node")
    staged = [counter(cluster, number, "staged") for number in NODES]
    suite.report.check("long contents were copied first", all(staged), staged)


def test_the_same_content_in_many_documents(suite, cluster):
    """Documents of a bulk, of replications and of forms share contents."""
    data = base64.b64encode(suite.random.randbytes(300_000)).decode()
    docs = [{"_id": f"same-{i}", "_attachments": {"file": {"content_type": "image/png", "data": data}}} for i in range(12)]
    written = api_of(cluster, 1).post(f"/{DB}/_bulk_docs", {"docs": docs})
    suite.report.equal("a bulk of them is written", [row.get("ok") for row in written.json], [True] * len(docs))
    replicated = [{"_id": f"replicated-{i}", "_rev": "1-abc", "_attachments": docs[0]["_attachments"]} for i in range(6)]
    written = api_of(cluster, 2).post(f"/{DB}/_bulk_docs", {"docs": replicated, "new_edits": False})
    suite.report.equal("and revisions with ids", (written.status, written.json), (201, []))
    suite.report.equal("all replicas are equal", cluster.wait_until_equal(), "")
    for number in NODES:
        api = api_of(cluster, number)
        ids = [doc["_id"] for doc in docs + replicated]
        lengths = {len(api.get(f"/{DB}/{doc}/file?r=1").raw) for doc in ids}
        suite.report.equal(f"node {number} has them", lengths, {300_000})


def test_large_attachments(suite, cluster):
    """Figures: an upload of a large attachment, edits that keep it, and four larger ones at once."""
    attached, report = Attached(suite, cluster), suite.report
    large, huge = suite.size((LARGE_BYTES, HUGE_BYTES), (LARGE_BYTES_SOAK, HUGE_BYTES_SOAK))
    began = time.monotonic()
    report.equal("a large one is written", attached.upload(1, "large", large), 201)
    cluster_s = time.monotonic() - began
    report.equal("all replicas are equal", cluster.wait_until_equal(SEEN_TIMEOUT_S), "")
    with suite.server("alone") as server:
        api = server.api(timeout=REQUEST_TIMEOUT_S)
        api.expect(201, "PUT", f"/{DB}")
        content = suite.random.randbytes(large)
        began = time.monotonic()
        report.equal("and at one server", api.put(f"/{DB}/large/file", content).status, 201)
        alone_s = time.monotonic() - began
    report.note(f"PUT of {large >> 20} MiB: {cluster_s:.2f} s, at one server {alone_s:.2f} s")
    suite.limit(f"a PUT of {large >> 20} MiB takes longer than at one server", cluster_s / alone_s, PUT_TIMES_MAX, "times")
    took = []
    for i in range(suite.size(EDITS, EDITS_SOAK)):
        began = time.monotonic()
        report.equal("an edit keeps it", attached.edit(i % 3 + 1, "large", i), 201, quiet=True)
        took.append(1000 * (time.monotonic() - began))
    report.note(f"edits of the document: the longest {max(took):.1f} ms")
    suite.limit("edits of the document: p50", statistics.median(took), EDIT_MS_MAX, "ms")
    before = {number: resident_mb(node) for number, node in cluster.nodes.items()}
    peaks = dict(before)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        began = time.monotonic()
        uploads = [pool.submit(attached.upload, i % 3 + 1, f"huge-{i}", huge) for i in range(4)]
        while not all(upload.done() for upload in uploads):
            for number, node in cluster.nodes.items():
                peaks[number] = max(peaks[number], resident_mb(node))
            time.sleep(0.05)
    report.equal("four huge ones at once are written", [upload.result() for upload in uploads], [201] * 4)
    more = {number: round(peaks[number] - before[number]) for number in NODES}
    report.note(f"four of {huge >> 20} MiB at once: {time.monotonic() - began:.1f} s, MB more resident by node: {more}")
    suite.limit("four large ones at once: more resident at a node", max(more.values()), RESIDENT_MB_MAX, "MB")
    report.check("no node holds all four in memory", max(more.values()) < 4 * huge >> 20, more)
    attached.check("large attachments")


def resident_mb(node):
    with open(f"/proc/{node.process.pid}/status", encoding="utf-8") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmRSS"].split()[0]) / 1024


@pytest.mark.parametrize("number", NODES)
def test_a_node_that_lacks_a_content_does_not_count_and_fetches_it(suite, cluster, number):
    attached, report = Attached(suite, cluster), suite.report
    writer, other = (n for n in NODES if n != number)
    fetched = counter(cluster, number, "fetched")
    # A node that was cut before reaches the others again.
    cluster.wait_until_whole()
    cluster.cut_from_peers(number)
    try:
        docs = [written(attached, n, f"cut-{number}-{i}") for i, n in enumerate((writer, other, writer))]
        report.equal("the others write", attached.edit(other, docs[0], 1), 201)
        # With Kafka it reads the records, and must not apply them. A node that is cut from the others is cut from their own log, too.
        if cluster.log == KAFKA:
            stuck = wait_until(lambda: any("attachment" in (slot["reason"] or "") for slot in slots(cluster, number)), SEEN_TIMEOUT_S)
            report.check("it notices that it lacks a content", stuck, slots(cluster, number))
        behind = {slot["slot"]: slot["next_offset"] for slot in slots(cluster, number)}
        ahead = {slot["slot"]: slot["next_offset"] for slot in slots(cluster, writer)}
        report.check("it does not pass the record", any(behind[slot] < ahead[slot] for slot in ahead), (behind, ahead))
    finally:
        cluster.heal()
    attached.check(f"node {number} was cut")
    # An attempt to send it that began before may also end after the cut.
    report.note(f"it fetched {counter(cluster, number, 'fetched') - fetched} contents")


def written(attached, number, doc):
    """The name of a new document with a long attachment. The first writes after a cut may be refused: of a slot whose leader is cut off,
    another node becomes the leader first."""
    names = (f"{doc}-{n}" for n in range(10))
    return next(name for name in names if attached.upload(number, name, 500_000) == 201)


def slots(cluster, number):
    status = cluster.status(number)
    return status["slots"] if status else []


def test_a_cut_node_uploads_nothing_or_all(suite, cluster):
    """A node that does not reach the others refuses long attachments, and what it refused is nowhere."""
    attached, report = Attached(suite, cluster), suite.report
    cluster.cut_from_peers(2)
    try:
        status = attached.upload(2, "alone", 500_000)
        report.check("it does not say that it is written", status != 201, status)
    finally:
        cluster.heal()
    report.equal("all replicas are equal", cluster.wait_until_equal(SEEN_TIMEOUT_S), "")
    found = {api_of(cluster, number).get(f"/{DB}/alone").status for number in NODES}
    report.equal("it is nowhere", found, {404})
    report.equal("and is written afterwards", attached.upload(2, "alone", 500_000), 201)
    attached.check("a cut node")


@with_log(KAFKA)
def test_a_node_is_killed_between_the_copy_and_the_record(suite, cluster):
    """The log stands still when the content has been copied; its author is killed. The document is everywhere with its content, or nowhere."""
    attached, report = Attached(suite, cluster), suite.report
    for number in range(suite.size(ROUNDS, ROUNDS_SOAK)):
        author, doc = number % 3 + 1, f"between-{number}"
        staged = counter(cluster, author, "staged")
        for broker in cluster.brokers.brokers:
            cluster.brokers.pause(broker)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            upload = pool.submit(attached.upload, author, doc, 2_000_000)
            copied = wait_until(lambda author=author, staged=staged: (counter(cluster, author, "staged") or 0) > staged, SEEN_TIMEOUT_S)
            report.check("the content is copied", copied)
            time.sleep(suite.random.choice([0, 0.05, 0.3]))
            cluster.kill(author)
            report.equal("its client gets no answer", upload.result(), None)
        cluster.heal()
        cluster.wait_until_whole()
        attached.check(f"round {number}")
        outcomes = set()
        for reader in NODES:
            answer = api_of(cluster, reader).get(f"/{DB}/{doc}/file?r=1")
            outcomes.add((answer.status, len(answer.raw) if answer.status == 200 else 0))
        report.check("it is everywhere, or nowhere", outcomes in ({(200, 2_000_000)}, {(404, 0)}), outcomes)


def test_nodes_are_killed_while_all_upload(suite, cluster):
    attached, report = Attached(suite, cluster), suite.report
    ended, counts = threading.Event(), {}

    def upload_all(writer):
        i = 0
        while not ended.is_set():
            number = NODES[(writer + i) % 3]
            try:
                status = attached.upload(number, f"killed-{writer}-{i}", SIZES[i % 4])
            except OSError:
                status = None
            with attached.lock:
                counts[status] = counts.get(status, 0) + 1
            i += 1

    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(upload_all, writer) for writer in range(WRITERS)]
        for _ in range(suite.size(KILLS, KILLS_SOAK)):
            time.sleep(suite.random.uniform(0.3, 1.5))
            number = suite.random.choice(NODES)
            cluster.kill(number)
            time.sleep(suite.random.uniform(0, 1))
            cluster.restart(number)
        ended.set()
        for writer in writers:
            writer.result()
    cluster.wait_until_whole()
    report.note(f"uploads by status: {counts}")
    report.check("some were acknowledged", counts.get(201, 0) > WRITERS, counts)
    attached.check("kills")


def test_replaced_attachments_are_removed(suite, cluster):
    """What no revision names any more is removed by compactions, on all nodes; a node that was down meanwhile needs none of it."""
    attached, report = Attached(suite, cluster), suite.report
    report.equal("it is written", attached.upload(1, "replaced", 3_000_000), 201)
    attached.check("before")
    cluster.kill(3)
    for _ in range(3):
        report.equal("it is replaced", attached.upload(1, "replaced", 3_000_000), 201)
    for number in (1, 2):
        api_of(cluster, number).expect(202, "POST", f"/{DB}/_compact")
    ended = wait_until(lambda: not any(api_of(cluster, n).get(f"/{DB}").json["compact_running"] for n in (1, 2)), SEEN_TIMEOUT_S)
    report.check("the others compact", ended)
    cluster.restart(3)
    attached.check("after")
    report.check("the document is as it was", json.loads(api_of(cluster, 3).get(f"/{DB}/replaced").raw)["_rev"] == attached.revs["replaced"])

"""Nodes that join a cluster: how long they take until they have all slots, that one which is empty does not count yet, and that an address
which leads nowhere is refused."""

import itertools
import subprocess
import threading
import time

import pytest

from harness.api import Disconnected
from harness.faulty_cluster import ENGINES, FaultyCluster
from harness.server import wait_until
from ports import free_port, free_ports

pytestmark = pytest.mark.on_disk

DB = "joins"
SLOTS = 16
# Slots, and the time within which a node without data has all of them.
WHOLE_WITHIN_S = {SLOTS: 10, 128: 10, 1_024: 60}
# More than a node may lack that becomes a replica.
DOCUMENTS, DOCUMENTS_SOAK = 6_000, 100_000
DOCUMENTS_PER_BULK = 500
WRITERS_PER_NODE = 2
PAUSE_S = 0.005
WRITES = 20
JOINED_TIMEOUT_S = 120
COMMAND_TIMEOUT_S = 60
# A node that dies may have led the log.
GAP_S_MAX = 1.5


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"joins-{request.param}", nodes=1, log=request.param, slots=SLOTS)
    try:
        join_two(suite, cluster)
        cluster.api(1).expect(201, "PUT", f"/{DB}?q=4")
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


class Writer(threading.Thread):
    """Creates documents at one node, until it is stopped."""

    def __init__(self, cluster, number, name):
        super().__init__(daemon=True)
        self.api, self.number, self.name = cluster.api(number), number, name
        self.statuses, self.times = {}, []
        self.stop_event = threading.Event()

    def run(self):
        for i in itertools.count():
            try:
                status = self.api.put(f"/{DB}/{self.name}-{i}", {"n": i}).status
            except Disconnected:
                status = None
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status == 201:
                self.times.append(time.monotonic())
            if self.stop_event.wait(PAUSE_S):
                return

    def gap_s(self):
        return max((after - before for before, after in itertools.pairwise(self.times)), default=0.0)


def start_writers(cluster, numbers):
    writers = [Writer(cluster, number, f"by-{number}-{i}") for number in numbers for i in range(WRITERS_PER_NODE)]
    for writer in writers:
        writer.start()
    return writers


def go_on(writers):
    """Each of them writes for a while."""
    before = [len(writer.times) for writer in writers]
    return wait_until(lambda: all(len(writer.times) >= n + WRITES for writer, n in zip(writers, before, strict=True)), JOINED_TIMEOUT_S)


def stop_writers(writers):
    for writer in writers:
        writer.stop_event.set()
    for writer in writers:
        writer.join()


def slots_without(cluster, name, at=1):
    """The slots that do not have a node among their replicas; None while that is not known."""
    status = cluster.status(at)
    ids = [node["node"] for node in status["nodes"] if node["name"] == name] if status else []
    return [slot["slot"] for slot in status["slots"] if ids[0] not in slot["members"]] if ids else None


def test_an_address_that_leads_nowhere(suite, cluster):
    """It is refused before the token is used, in words, and nothing is left behind."""
    data = suite.folder(f"nowhere-{cluster.log}") / "data"
    token = cluster.command("token", cluster.url_of(1)).strip()
    wrong = f"127.0.0.1:{free_port()}"
    listens = f"127.0.0.1:{free_port()}"
    arguments = ["--data", data, "--token", token, "--name", "node9"]
    command = [cluster.binary, "cluster", "join", *arguments, "--address", wrong, "--listen", listens]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    said = done.stdout + done.stderr
    is_clear = done.returncode in (1, 2) and wrong in said and "--address" in said and "panicked" not in said
    suite.report.check("it is refused, and why is said", is_clear, f"exit {done.returncode}\n{said}")
    suite.report.check("nothing is left behind", not (data / "cluster" / "member.json").exists())
    names = sorted(node["name"] for node in cluster.status(1)["nodes"])
    suite.report.equal("nobody joined", names, ["node1@127.0.0.1", "node2@127.0.0.1", "node3@127.0.0.1"])
    right = cluster.try_command("join", *arguments, "--address", listens)
    suite.report.equal("the token is still good", (right.returncode, right.stderr), (0, ""))
    left = cluster.try_command("leave", cluster.url_of(1), "--node", "node9@127.0.0.1")
    suite.report.equal("a node that never came leaves", (left.returncode, left.stderr), (0, ""))


def test_an_empty_node_does_not_count(suite, cluster):
    """A fourth node joins, and one of the others dies before the new one has anything: two of three are still enough."""
    report = suite.report
    for at in range(0, suite.size(DOCUMENTS, DOCUMENTS_SOAK), DOCUMENTS_PER_BULK):
        docs = [{"_id": f"before-{at + n}", "more": "x" * 200} for n in range(DOCUMENTS_PER_BULK)]
        cluster.api(at // DOCUMENTS_PER_BULK % 3 + 1).expect(201, "POST", f"/{DB}/_bulk_docs", {"docs": docs})
    writers = start_writers(cluster, (1, 2))
    fourth = cluster.make_node(4, *free_ports(2))
    try:
        report.check("all write", go_on(writers))
        cluster.join(fourth)
        cluster.nodes[4] = fourth
        cluster.start_process(fourth)
        # Before it has read the log, while it does, or just after.
        time.sleep(suite.random.uniform(0, 1.5))
        cluster.kill(3)
        cluster.nodes[3].is_wanted = False
        joined = wait_until(lambda: slots_without(cluster, "node4@127.0.0.1") == [], JOINED_TIMEOUT_S, 0.2)
        report.check("the new node gets all slots", joined, slots_without(cluster, "node4@127.0.0.1"))
        report.check("all write on", go_on(writers))
    finally:
        stop_writers(writers)
    statuses = {status for writer in writers for status in writer.statuses}
    # A machine that others use may keep a node from what it needs.
    allowed = suite.size({201, 503}, {201})
    report.check("each write was acknowledged by a majority", statuses <= allowed, statuses)
    suite.limit("the longest time between two writes of a client", max(writer.gap_s() for writer in writers), GAP_S_MAX, "s")
    cluster.start_process(cluster.nodes[3])
    cluster.nodes[3].wait_until_ready()
    why = cluster.wait_until_equal(JOINED_TIMEOUT_S)
    report.check("all replicas are equal", not why, why)
    counts = {api.expect(200, "GET", f"/{DB}")["doc_count"] for api in cluster.apis().values()}
    written = suite.size(DOCUMENTS, DOCUMENTS_SOAK) + sum(writer.statuses.get(201, 0) for writer in writers)
    # One that was refused may be there.
    report.check("all nodes have all documents", len(counts) == 1 and min(counts) >= written, (counts, written))


@pytest.mark.slow
@pytest.mark.parametrize("slots", [slots for slots in WHOLE_WITHIN_S if slots != SLOTS])
def test_many_slots(ctx, slots):
    cluster = FaultyCluster(ctx, f"slots-{slots}", nodes=1, slots=slots)
    try:
        join_two(ctx, cluster)
        written = [api.put(f"/whole-{number}").status for number, api in cluster.apis().items()]
        ctx.report.equal(f"{slots} slots: all nodes take writes", written, [201] * 3)
    finally:
        cluster.stop()


def join_two(ctx, cluster):
    """Starts the first node of a cluster without data, to which two others come. How long each takes is told."""
    slots = f"{cluster.slots} slots"
    cluster.brokers.start()
    began = time.monotonic()
    cluster.start_nodes()
    ctx.report.note(f"{slots}: the first node is whole after {time.monotonic() - began:.1f} s")
    for number in (2, 3):
        node = cluster.make_node(number, *free_ports(2))
        began = time.monotonic()
        cluster.join(node)
        joined_s = time.monotonic() - began
        cluster.nodes[number] = node
        cluster.start_process(node)
        node.wait_until_ready()
        ctx.report.note(f"{slots}: node {number} is a member after {joined_s:.1f} s, and listens after {time.monotonic() - began:.1f} s")
        cluster.wait_until_whole()
        ctx.limit(f"{slots}: node {number} has all of them after", time.monotonic() - began, WHOLE_WITHIN_S[cluster.slots], "s")

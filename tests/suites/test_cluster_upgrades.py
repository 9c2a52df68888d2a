"""A cluster whose nodes are updated one after the other, in all orders, under load. There is one program: a variable that only tests
set has it behave as programs of several record versions. No write is refused, and none is lost.
"""

import itertools
import os
import secrets
import signal
import threading
import time

import pytest

from harness.api import Disconnected
from harness.faulty_cluster import KAFKA, FaultyCluster
from harness.server import wait_until
from ports import free_ports

pytestmark = pytest.mark.on_disk

VARIABLE = "SETTEE_TESTS_RECORD_VERSION"
DB = "upgrades"
NODES = (1, 2, 3)
ORDERS = tuple(itertools.permutations(NODES))
FIRST = 1
# All orders raise the version by one each; every third one, which begins with another node, by three.
LAST = FIRST + len(ORDERS)
AGREED_TIMEOUT_S = 60
# A program that may not start ends within this time; it waits for the other nodes' answers.
ENDS_TIMEOUT_S = 60
# Some writes by every writer between two steps.
WRITES = 10
PAUSE_S = 0.01
GAP_S_MAX = 1
CONTINUOUS = {"source": DB, "target": "upgrades-copy", "create_target": True, "continuous": True}
EXPIRES = {"expires_at": "until", "expired_documents": "delete"}


class MixedCluster(FaultyCluster):
    """Nodes whose programs read records up to these versions."""

    def __init__(self, ctx):
        self.versions = dict.fromkeys(NODES, FIRST)
        # Older programs than of version 4 knew no other log.
        super().__init__(ctx, "cluster", log=KAFKA)

    def environment_of(self, node):
        return os.environ | {VARIABLE: str(self.versions[node.number])}

    def known(self, number):
        """The versions of all nodes, as this one knows them."""
        status = self.status(number) or {"nodes": []}
        return {node["name"].split("@")[0]: node["record_version"] for node in status["nodes"]}

    def in_force(self):
        """The version in force, and the one that is written, at each node that answers."""
        found = {number: self.status(number) for number, node in self.nodes.items() if node.is_running()}
        versions = {number: status and status["record_version"] for number, status in found.items()}
        return {number: of and (of["in_force"], of["written"]) for number, of in versions.items()}

    def is_at(self, version):
        return all(of == (version, version) for of in self.in_force().values())


class Rotation:
    """The nodes that a proxy would send requests to."""

    def __init__(self, numbers):
        self.changed = threading.Condition()
        self.starts = dict.fromkeys(numbers, 0)
        self.requests = dict.fromkeys(numbers, 0)
        self.open = set(numbers)

    def take(self, preferred):
        with self.changed:
            number = preferred if preferred in self.open else min(self.open)
            self.requests[number] += 1
            return number, self.starts[number]

    def give(self, number):
        with self.changed:
            self.requests[number] -= 1
            self.changed.notify_all()

    def remove(self, number):
        """No request is sent there any more, and those that were have been answered."""
        with self.changed:
            self.open.discard(number)
            self.changed.wait_for(lambda: self.requests[number] == 0)

    def add(self, number):
        with self.changed:
            self.starts[number] += 1
            self.open.add(number)


class Writer(threading.Thread):
    """Creates and updates documents by one node, or by another while that one is updated."""

    def __init__(self, cluster, rotation, number):
        super().__init__(daemon=True)
        self.cluster, self.rotation, self.number = cluster, rotation, number
        self.acknowledged, self.refused, self.times = {}, [], []
        self.stop_event, self.apis, self.count = threading.Event(), {}, 0
        # Documents of an earlier load exist.
        self.prefix = f"by-{number}-{secrets.token_hex(4)}"

    def run(self):
        while not self.stop_event.is_set():
            at = self.rotation.take(self.number)
            try:
                self.write(at)
            except Disconnected as gone:
                self.refused.append(f"node {at[0]}: {gone!r}")
            finally:
                self.rotation.give(at[0])
            self.stop_event.wait(PAUSE_S)

    def write(self, at):
        if at not in self.apis:
            self.apis[at] = self.cluster.api(at[0])
        # Every third write updates the document before.
        self.count += self.count == 0 or len(self.times) % 3 != 0
        doc_id = f"{self.prefix}-{self.count:06}"
        rev = self.acknowledged.get(doc_id)
        answer = self.apis[at].put(f"/{DB}/{doc_id}", {"n": len(self.times), **({"_rev": rev} if rev else {})})
        self.times.append(time.monotonic())
        if answer.status == 201:
            self.acknowledged[doc_id] = answer.json["rev"]
        else:
            self.refused.append(f"node {at[0]}, {doc_id}: {answer!r}")

    def gap_s(self):
        return max((after - before for before, after in itertools.pairwise(self.times)), default=0.0)


class Load:
    """Writers at all nodes."""

    def __init__(self, cluster):
        self.rotation = Rotation(NODES)
        self.writers = [Writer(cluster, self.rotation, number) for number in NODES]

    def __enter__(self):
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(self, *_):
        for writer in self.writers:
            writer.stop_event.set()
        for writer in self.writers:
            writer.join()

    def go_on(self):
        """Every writer writes for a while."""
        before = [len(writer.times) for writer in self.writers]
        return wait_until(lambda: all(len(of.times) >= n + WRITES for of, n in zip(self.writers, before, strict=True)), AGREED_TIMEOUT_S)

    def refused(self):
        return [line for writer in self.writers for line in writer.refused]


@pytest.fixture(scope="module")
def cluster(suite):
    cluster = MixedCluster(suite)
    try:
        cluster.start()
        cluster.api(1).expect(201, "PUT", f"/{DB}")
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


def agreed(suite, cluster, version, what):
    is_agreed = wait_until(lambda: cluster.is_at(version), AGREED_TIMEOUT_S, 0.1)
    suite.report.check(f"{what}: version {version} is in force", is_agreed, f"{cluster.in_force()}, {cluster.known(1)}")


def update(cluster, load, number, version):
    """Replaces the program of one node, as the manual says."""
    load.rotation.remove(number)
    cluster.versions[number] = version
    cluster.restart(number)
    up = cluster.api(number)
    cluster.wait_until_whole()
    if wait_until(lambda: up.get("/_up").status == 200, AGREED_TIMEOUT_S, 0.1):
        load.rotation.add(number)


def test_features_of_a_later_version_wait(suite, cluster):
    agreed(suite, cluster, FIRST, "nodes of the first version")
    refused = cluster.api(2).put(f"/{DB}/_auto_purge", EXPIRES)
    is_clear = refused.status == 503 and "record version 2" in refused.json["reason"] and "node3" in refused.json["reason"]
    suite.report.check("what needs a later one is refused, with the nodes to update", is_clear, repr(refused))
    suite.report.equal("and has no effect", cluster.api(1).get(f"/{DB}/_auto_purge").json.get("expires_at"), None)
    refused = cluster.api(2).post("/_replicate", CONTINUOUS)
    is_clear = refused.status == 503 and "record version 4" in refused.json["reason"] and "node3" in refused.json["reason"]
    suite.report.check("so is a continuous replication, which a node alone would not keep", is_clear, repr(refused))
    suite.report.equal("and none is started", cluster.api(2).expect(200, "GET", "/_scheduler/jobs")["jobs"], [])


def test_all_orders(suite, cluster):
    with Load(cluster) as load:
        step = suite.size(3, 1)
        for at, order in enumerate(ORDERS[::step], 1):
            version = FIRST + at * step
            for number in order:
                in_force = {of and of[0] for of in cluster.in_force().values()}
                suite.report.equal(f"order {order}, before node {number}: the version in force", in_force, {version - step}, quiet=True)
                update(cluster, load, number, version)
                suite.report.check(f"order {order}, after node {number}: all write", load.go_on(), load.refused()[:3], quiet=True)
            agreed(suite, cluster, version, f"order {order}")
            suite.report.check("all write", load.go_on(), load.refused()[:3], quiet=True)
    refused = load.refused()
    count = sum(len(writer.times) for writer in load.writers)
    suite.report.check(f"none of {count} writes was refused", not refused, "\n".join(refused[:8]))
    suite.limit("the longest time between two writes of a writer", max(writer.gap_s() for writer in load.writers), GAP_S_MAX, "s")
    acknowledged = {doc_id: rev for writer in load.writers for doc_id, rev in writer.acknowledged.items()}
    for number in NODES:
        rows = cluster.api(number).expect(200, "GET", f"/{DB}/_all_docs")["rows"]
        found = {row["id"]: row["value"]["rev"] for row in rows}
        lost = [f"{doc_id}: {rev}, found {found.get(doc_id)}" for doc_id, rev in acknowledged.items() if found.get(doc_id) != rev]
        suite.report.check(f"node {number} has all {len(acknowledged)} acknowledged documents", not lost, "\n".join(lost[:8]))
    why = cluster.wait_until_equal()
    suite.report.check("all replicas are equal", not why, why)


def test_features_of_the_later_version(suite, cluster):
    cluster.api(2).expect(201, "PUT", f"/{DB}/_auto_purge", EXPIRES)
    for number in NODES:
        shown = cluster.api(number).get(f"/{DB}/_auto_purge").json
        suite.report.equal(f"node {number} has the property", shown, EXPIRES)
    started = cluster.api(2).expect(202, "POST", "/_replicate", CONTINUOUS)
    suite.report.equal("replications are kept", cluster.api(3).expect(200, "POST", "/_replicate", CONTINUOUS | {"cancel": True}), started)
    said = cluster.command("status", cluster.url_of(1))
    suite.report.check("the status names the version", f"record version: {LAST} is in force" in said, said)
    numbers = cluster.api(3).get("/_node/_local/_prometheus").raw.decode()
    lines = [f"settee_cluster_record_version {LAST}"]
    lines += [f'settee_cluster_node_record_version{{node="node{number}@127.0.0.1"}} {LAST}' for number in NODES]
    missing = [line for line in lines if line not in numbers]
    suite.report.check("so do metrics", not missing, missing)


def test_going_back(suite, cluster):
    """An older program may return until the last node is updated; a node that is down is not left behind."""
    with Load(cluster) as load:
        update(cluster, load, 2, LAST + 1)
        seen = wait_until(lambda: cluster.known(1).get("node2") == LAST + 1, AGREED_TIMEOUT_S, 0.1)
        suite.report.check("a node announces what it reads", seen, cluster.known(1))
        said = cluster.command("status", cluster.url_of(1))
        waits = f"{LAST + 1} follows when these nodes run a newer program: node1" in said
        suite.report.check("the status names the nodes to update", waits, said)
        update(cluster, load, 2, LAST)
        seen = wait_until(lambda: cluster.known(1).get("node2") == LAST, AGREED_TIMEOUT_S, 0.1)
        suite.report.check("an older program withdraws that", seen, cluster.known(1))
    refused = load.refused()
    suite.report.check("no write was refused meanwhile", not refused, "\n".join(refused[:8]))
    cluster.nodes[3].end(signal.SIGTERM)
    for number in (1, 2):
        cluster.versions[number] = LAST + 1
        cluster.restart(number)
    cluster.wait_until_whole([1, 2])
    seen = wait_until(lambda: cluster.known(1) == {"node1": LAST + 1, "node2": LAST + 1, "node3": LAST}, AGREED_TIMEOUT_S, 0.1)
    suite.report.check("a node that is down keeps the version that it read", seen, cluster.known(1))
    suite.report.equal("which stays in force", cluster.in_force()[1][0], LAST)
    cluster.versions[3] = LAST + 1
    cluster.restart(3)
    cluster.wait_until_whole()
    agreed(suite, cluster, LAST + 1, "once it has the new program")


def test_programs_that_are_too_old(suite, cluster):
    """They do not start, and do not join; the others go on."""
    node = cluster.nodes[3]
    node.end(signal.SIGTERM)
    cluster.versions[3] = LAST
    cluster.start_process(node)
    ended = wait_until(lambda: not node.is_running(), ENDS_TIMEOUT_S, 0.1)
    code = node.process.returncode if ended else None
    is_clear = code == 1 and "start a newer Settee" in node.log() and "panicked" not in node.log()
    suite.report.check("an older program does not start, and says what to do", is_clear, f"exit code {code}\n{node.log()[-2000:]}")
    suite.report.equal("the others take writes", cluster.api(1).put(f"/{DB}/without-3", {}).status, 201)
    cluster.versions[3] = LAST + 1
    cluster.restart(3)
    cluster.wait_until_whole()
    suite.report.equal("the newer program starts again", cluster.api(3).get(f"/{DB}/without-3").status, 200)

    fourth = cluster.make_node(4, *free_ports(2))
    cluster.nodes[4] = fourth
    try:
        token = cluster.command("token", cluster.url_of(1)).strip()
        arguments = ["join", "--data", fourth.folder, "--token", token, "--name", "node4", "--address", fourth.address]
        old = cluster.try_command(*arguments, env=os.environ | {VARIABLE: str(LAST)})
        is_clear = old.returncode == 1 and f"records of version {LAST + 1}" in old.stderr
        suite.report.check("an older program does not join", is_clear, old)
        cluster.versions[4] = LAST + 1
        new = cluster.try_command(*arguments, env=cluster.environment_of(fourth))
        suite.report.check("a newer one does, with the same token", new.returncode == 0, new)
        cluster.start_process(fourth)
        fourth.wait_until_ready()
        cluster.wait_until_whole()
        suite.report.equal("its version is known", cluster.known(1).get("node4"), LAST + 1)
        suite.report.equal("it takes writes", cluster.api(4).put(f"/{DB}/by-4", {}).status, 201)
        cluster.command("leave", cluster.url_of(1), "--node", "node4@127.0.0.1")
        is_forgotten = wait_until(lambda: "node4" not in cluster.known(1), AGREED_TIMEOUT_S, 0.1)
        suite.report.check("it leaves", is_forgotten, cluster.known(1))
    finally:
        fourth.end(signal.SIGKILL)
        del cluster.nodes[4]
    cluster.wait_until_whole()
    agreed(suite, cluster, LAST + 1, "without it")

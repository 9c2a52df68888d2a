"""HAProxy and Caddy, with the files of examples/proxies, before a cluster of which a node is cut off: a PouchDB that syncs live and clients
that write notice nothing but a moment, and the proxy asks the others."""

import itertools
import os
import statistics
import threading
import time

import pytest

from harness import leaves
from harness.api import Api, Disconnected
from harness.certificates import Authority
from harness.faulty_cluster import ADMIN, ENGINES, KAFKA, FaultyCluster
from harness.packages import node_modules
from harness.pouch import Pouch
from harness.proxies import WHOLE, Proxy
from harness.server import wait_until
from harness.tls import SecuredApi

pytestmark = pytest.mark.on_disk

KINDS = ("haproxy", pytest.param("caddy", marks=pytest.mark.slow))
EDITS, EDITS_SOAK = 40, 400
FAULTS = ("log", "nodes", "stopped")
# Where the nodes keep the log, a node cannot be cut off from it alone.
FAULTS_OF_OWN = ("nodes", "stopped")
PAUSE_S = 0.02
# Requests in a row that another node has to answer.
ASKED = 12
NOTICED_TIMEOUT_S = 30
MOVED_TIMEOUT_S = 30
CONVERGE_TIMEOUT_S = 90
REQUEST_TIMEOUT_S = 30
NOTICED_S_MAX = 6


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"proxied-{request.param}", log=request.param, has_links=True)
    try:
        cluster.start()
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def authority(suite):
    return Authority(suite.folder("certificates"))


class Writer(threading.Thread):
    """A client of the proxy that creates documents, and repeats one after an error, as clients do."""

    def __init__(self, api, db):
        super().__init__(daemon=True)
        self.api, self.db = api, db
        self.written, self.times, self.errors = [], [], {}
        self.stop_event = threading.Event()

    def run(self):
        while not self.stop_event.is_set():
            doc_id = f"written-{len(self.written)}"
            try:
                answer = self.api.put(f"/{self.db}/{doc_id}", {})
                # One that was written, and whose response was lost, is a conflict.
                is_done, said = answer.status in (201, 409), answer.status
                is_clear = is_done or answer.is_error_shape
            except Disconnected:
                is_done, is_clear, said = False, True, "no response"
            if is_done:
                self.written.append(doc_id)
                self.times.append(time.monotonic())
            else:
                named = said if is_clear else f"{said}, not as JSON"
                self.errors[named] = self.errors.get(named, 0) + 1
            self.stop_event.wait(PAUSE_S)

    def stop(self):
        self.stop_event.set()
        self.join()


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_is_cut_off(suite, cluster, authority, kind):
    db = f"through-{kind}"
    cluster.api(1).expect(201, "PUT", f"/{db}")
    ports = [node.http_port for node in cluster.nodes.values()]
    with Proxy(suite, kind, WHOLE, authority.issue(kind), ports) as proxy:
        device = start_device(suite, authority, kind, suite.folder(f"devices-{cluster.log}"))
        client = lambda: SecuredApi(proxy.url, authority, ADMIN, REQUEST_TIMEOUT_S)
        suite.report.check(f"{kind}: all nodes are asked", wait_until(lambda: len(answering(client())) == 3, MOVED_TIMEOUT_S))
        device.live(f"{proxy.url}/{db}", ADMIN)
        for number, fault in enumerate(FAULTS if cluster.log == KAFKA else FAULTS_OF_OWN):
            one_fault(suite, cluster, device, client, Fault(kind, fault, number % 2 + 2, db))
        wrong = [event for event in device.events if event["event"] in ("denied", "error", "complete") or event.get("failed")]
        suite.report.check(f"{kind}: PouchDB's sync never gave up, and no document was denied", not wrong, wrong[:5])
        device.stop()


class Fault:
    def __init__(self, kind, what, node, db):
        self.kind, self.what, self.node, self.db = kind, what, node, db

    def __str__(self):
        return f"{self.kind}, node {self.node}, {self.what}"

    def begin(self, cluster):
        match self.what:
            case "log":
                cluster.cut_from_brokers(self.node)
            case "nodes":
                cluster.cut_from_peers(self.node)
            case "stopped":
                cluster.pause(self.node)

    def is_noticed(self, cluster):
        """A node that stands still does not answer."""
        try:
            return Api(cluster.nodes[self.node].url, "", timeout=1).get("/_up").status == 503
        except Disconnected:
            return self.what == "stopped"


def one_fault(suite, cluster, device, client, fault):
    report, edits = suite.report, suite.size(EDITS, EDITS_SOAK)
    name = cluster.api(fault.node).expect(200, "GET", "/_node/_local")["name"]
    writer = Writer(client(), fault.db)
    writer.start()
    device.edit(edits)
    began = time.monotonic()
    fault.begin(cluster)
    try:
        report.check(f"{fault}: the node says that it is unfit", wait_until(lambda: fault.is_noticed(cluster), NOTICED_TIMEOUT_S, 0.05))
        suite.limit(f"{fault}: /_up of the node is no 200 after", time.monotonic() - began, NOTICED_S_MAX, "s")
        moved = wait_until(lambda: name not in answering(client()), MOVED_TIMEOUT_S)
        report.check(f"{fault}: the proxy asks the others", moved, answering(client()))
        report.note(f"{fault}: the proxy asks the others after {time.monotonic() - began:.1f} s")
        device.edit(edits)
        there = wait_until(lambda: is_synced(cluster, device, fault.db), CONVERGE_TIMEOUT_S, 0.2)
        report.check(f"{fault}: what the device writes meanwhile is at the other nodes", there, device.events[-6:])
    finally:
        writer.stop()
        cluster.heal()
    errors = [said for said in writer.errors if "not as JSON" in str(said)]
    report.check(f"{fault}: errors are those that clients understand", not errors, writer.errors)
    report.note(f"{fault}: {len(writer.written)} documents written through the proxy, errors: {writer.errors or 'none'}")
    gaps = [after - before for before, after in itertools.pairwise(writer.times)] or [0]
    report.note(f"{fault}: time between two writes: p50 {1000 * statistics.median(gaps):.0f} ms, the longest {max(gaps):.1f} s")
    why = cluster.wait_until_equal(CONVERGE_TIMEOUT_S)
    report.check(f"{fault}: all replicas are equal afterwards", not why, why)
    found = {row["id"] for row in cluster.api(fault.node).expect(200, "GET", f"/{fault.db}/_all_docs")["rows"]}
    lost = sorted(set(writer.written) - found)
    report.check(f"{fault}: nothing that was acknowledged is lost", not lost, lost[:10])
    back = wait_until(lambda: name in answering(client()), MOVED_TIMEOUT_S)
    report.check(f"{fault}: the node is asked again", back, answering(client()))


def answering(api):
    """The names of the nodes that answer requests in a row; a request that fails has none."""
    names = set()
    for _ in range(ASKED):
        try:
            answer = api.get("/_node/_local")
            names.add(answer.json["name"] if answer.status == 200 else answer.status)
        except Disconnected:
            names.add(None)
        # The next one has a connection of its own.
        api.close()
    return names


def is_synced(cluster, device, db):
    """The device and a node that was not cut off have the same leaves, but for what others wrote since."""
    there, here = leaves.leaf_revs(cluster.api(1), db), device.revs()
    return all(there.get(doc_id) == revs for doc_id, revs in here.items())


def start_device(suite, authority, kind, folder):
    scripts = suite.checkout / "tests" / "clients" / "js"
    environment = {**os.environ, "NODE_PATH": str(node_modules(suite, scripts)), "NODE_EXTRA_CA_CERTS": str(authority.cert)}
    return Pouch(scripts / "sync.cjs", environment, folder / kind, kind, suite.random.getrandbits(31), retries=True).start()

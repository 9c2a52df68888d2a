"""Five nodes, three of which have each slot: databases are read and written through every node, slots are spread equally, a node is
drained while all write, and its slots come back to it."""

import itertools
import threading

import pytest

from harness.api import Disconnected
from harness.faulty_cluster import ENGINES, FaultyCluster
from harness.prometheus import metrics
from harness.server import wait_until

pytestmark = pytest.mark.on_disk

NODES, COPIES = 5, 3
# Those of system databases stay on all nodes.
SLOTS = 32
DATABASES, DATABASES_SOAK = 12, 200
DOCUMENTS = 40
SETTLED_TIMEOUT_S = 180
PAUSE_S = 0.01
WRITES = 20
OLD = "older"


def settled(cluster, at=1):
    """The nodes of each slot by its number, once they are those that it should have; None before."""
    status = cluster.status(at)
    slots = (status or {}).get("placement", [])
    is_settled = len(slots) == SLOTS and all(slot["wanted"] == slot["replicas"] and not slot["learners"] for slot in slots)
    return {slot["slot"]: slot["replicas"] for slot in slots} if is_settled else None


def wait_until_settled(suite, cluster, what, is_so=lambda slots: True, at=1):
    seen = {}

    def is_there():
        seen["slots"] = settled(cluster, at)
        return seen["slots"] is not None and is_so(seen["slots"])

    suite.report.check(what, wait_until(is_there, SETTLED_TIMEOUT_S, 0.2), (cluster.status(at) or {}).get("placement"))
    return seen["slots"] or {}


def loads(slots):
    """The number of slots of each node, of those that not all nodes have; and the number of the others."""
    spread = [nodes for nodes in slots.values() if len(nodes) == COPIES]
    counts = {}
    for node in itertools.chain.from_iterable(spread):
        counts[node] = counts.get(node, 0) + 1
    return counts, len(spread)


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"placement-{request.param}", nodes=NODES, log=request.param, slots=SLOTS)
    try:
        cluster.start()
        # From before the number of copies is set: in two slots.
        cluster.api(1).expect(201, "PUT", f"/{OLD}?q=2")
        cluster.api(2).expect(201, "POST", f"/{OLD}/_bulk_docs", {"docs": [{"_id": f"d{n}"} for n in range(DOCUMENTS)]})
        done = cluster.command("place", cluster.url_of(1), "--copies", COPIES)
        suite.report.check("the command tells the plan", f"each slot has {COPIES} nodes" in done, done)
        # Before its first decision, a node takes the former state for the wanted one.
        for number in cluster.nodes:
            wait_until_settled(suite, cluster, f"each slot has its nodes, as node {number} knows", lambda slots: loads(slots)[1] > 0, number)
        make_databases(suite, cluster)
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


def names(suite):
    return [f"placed-{n}" for n in range(suite.size(DATABASES, DATABASES_SOAK))]


def make_databases(suite, cluster):
    apis = cluster.apis()
    view = {"_id": "_design/d", "language": "query", "views": {"v": {"map": {"fields": {"n": "asc"}}, "reduce": "_count"}}}
    for i, name in enumerate(names(suite)):
        at = apis[i % NODES + 1]
        at.expect(201, "PUT", f"/{name}?q=2")
        docs = [{"_id": f"d{n}", "n": n} for n in range(DOCUMENTS)] + [view]
        apis[(i + 1) % NODES + 1].expect(201, "POST", f"/{name}/_bulk_docs", {"docs": docs})


def test_slots_are_spread(suite, cluster):
    report = suite.report
    slots = settled(cluster) or {}
    counts, spread = loads(slots)
    most = -(-COPIES * spread // NODES) + 1
    report.check("slots are spread equally", len(counts) == NODES and max(counts.values()) <= most, counts)
    report.check("the others are on all nodes", all(len(nodes) in (COPIES, NODES) for nodes in slots.values()), slots)
    held = {tuple(sorted(nodes)) for nodes in cluster.api(1).expect(200, "GET", f"/{OLD}/_shards")["shards"].values()}
    report.equal("a database in two slots is on all nodes", [len(nodes) for nodes in held], [NODES])
    sizes = []
    for name in names(suite)[:DATABASES]:
        of = [cluster.api(number).expect(200, "GET", f"/{name}/_shards")["shards"] for number in cluster.nodes]
        holders = {tuple(sorted(nodes)) for shards in of for nodes in shards.values()}
        report.check("a new one is in one slot, as all nodes know", len(holders) == 1, of)
        sizes.append(len(min(holders)))
    # It may be in a slot that all nodes have because of others.
    report.check("new ones are on three nodes", set(sizes) <= {COPIES, NODES} and COPIES in sizes, sizes)


def test_every_node_answers(suite, cluster):
    report = suite.report
    for name in names(suite):
        same = {}
        for number, api in cluster.apis().items():
            api.expect(201, "PUT", f"/{name}/by-{number}", {"n": -number})
            info = api.expect(200, "GET", f"/{name}")
            same.setdefault("copies", set()).add(info["cluster"]["n"])
        for api in cluster.apis().values():
            rows = api.expect(200, "GET", f"/{name}/_all_docs")
            same.setdefault("rows", set()).add((rows["total_rows"], len(rows["rows"])))
            reduced = api.expect(200, "GET", f"/{name}/_design/d/_view/v")["rows"]
            same.setdefault("view", set()).add(reduced[0]["value"])
            same.setdefault("found", set()).add(len(api.expect(200, "POST", f"/{name}/_find", {"selector": {"n": {"$lt": 0}}})["docs"]))
            same.setdefault("changes", set()).add(len(api.expect(200, "GET", f"/{name}/_changes")["results"]))
            same.setdefault("document", set()).add(api.expect(200, "GET", f"/{name}/by-1")["n"])
        total = DOCUMENTS + NODES + 1
        expected = {"copies": {COPIES}, "rows": {(total, total)}, "view": {total - 1}, "found": {NODES}, "changes": {total}, "document": {-1}}
        report.equal(f"{name}: every node answers alike", same, expected)


def test_information_on_all_databases(suite, cluster):
    report = suite.report
    expected = dict.fromkeys(names(suite), DOCUMENTS + 1)
    for number, api in cluster.apis().items():
        infos = {row["key"]: row.get("info", {}) for row in api.expect(200, "GET", "/_dbs_info")}
        counts = {name: infos.get(name, {}).get("doc_count", -1) for name in expected}
        report.check(f"node {number} has it", all(counts[name] >= least for name, least in expected.items()), counts)
        keys = names(suite)[:5] + ["missing"]
        rows = api.expect(200, "POST", "/_dbs_info", {"keys": keys})
        report.equal("in the order of the request", [row["key"] for row in rows], keys)
        report.equal("a database that does not exist is told", rows[-1].get("error"), "not_found")


def test_rights_are_checked_before_a_request_is_forwarded(suite, cluster):
    """A node without the database reads no body of a client without rights, as one with it."""
    forwarded = lambda: [metrics(api)("settee_cluster_forwarded_requests_total") for api in cluster.apis().values()]
    before, path = forwarded(), f"/{names(suite)[0]}/_bulk_docs"
    statuses = {cluster.api(number, credentials=None).post(path, {"docs": [{}]}).status for number in cluster.nodes}
    suite.report.check("each node refuses it", statuses <= {401, 403}, statuses)
    suite.report.equal("no node forwards it", forwarded(), before)


class Writer(threading.Thread):
    """Creates documents through one node, until it is stopped."""

    def __init__(self, cluster, number, name):
        super().__init__(daemon=True)
        self.api, self.number, self.name = cluster.api(number), number, name
        self.statuses, self.written = {}, []
        self.stop_event = threading.Event()

    def run(self):
        for i in itertools.count():
            doc = f"/{self.name}/w{self.number}-{i}"
            try:
                status = self.api.put(doc, {"n": i}).status
            except Disconnected:
                status = None
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status == 201:
                self.written.append(doc)
            if self.stop_event.wait(PAUSE_S):
                return


def test_draining(suite, cluster):
    """A node is drained while clients of every node write: its slots move to the others, and nothing is lost."""
    report = suite.report
    writers = [Writer(cluster, number, name) for number, name in zip(itertools.cycle(cluster.nodes), names(suite), strict=False)]
    for writer in writers:
        writer.start()
    try:
        url, drained = cluster.url_of(NODES), cluster.status(NODES)["node"]
        cluster.command("drain", url)
        slots = wait_until_settled(suite, cluster, "it has no slots any more", lambda slots: not any(drained in nodes for nodes in slots.values()))
        report.check("each has three nodes", all(len(nodes) >= COPIES for nodes in slots.values()), slots)
        before = [len(writer.written) for writer in writers]
        gone_on = wait_until(lambda: all(len(w.written) > n + WRITES for w, n in zip(writers, before, strict=True)), SETTLED_TIMEOUT_S)
        report.check("all write on, also through that node", gone_on, [writer.statuses for writer in writers])
    finally:
        for writer in writers:
            writer.stop_event.set()
        for writer in writers:
            writer.join()
    statuses = {status for writer in writers for status in writer.statuses}
    # Where a slot leaves a node in the middle of a request, the client tries again.
    report.check("no write failed for good", statuses <= suite.size({201, 503}, {201}), statuses)
    for number, api in cluster.apis().items():
        lost = [doc for writer in writers for doc in writer.written[-WRITES:] if api.get(doc).status != 200]
        report.equal(f"node {number} shows what was written", lost, [])
    shown = cluster.command("status", cluster.url_of(1))
    report.check("the status tells it", "draining" in shown and "slots: 0" in shown, shown)
    first, second = (cluster.status(number)["node"] for number in (1, 2))
    cluster.command("drain", url, "--node", first)
    refused = cluster.try_command("drain", url, "--node", second)
    report.check("so few nodes cannot have all slots", refused.returncode and "too few nodes would remain" in refused.stderr, refused.stderr)
    cluster.command("undrain", url, "--node", first)
    cluster.command("undrain", url)
    wait_until_settled(suite, cluster, "its slots come back", lambda slots: min(loads(slots)[0].get(drained, 0), 1) == 1)


def test_a_node_stops_and_returns(suite, cluster):
    """Its databases are read and written through the others meanwhile."""
    report = suite.report
    cluster.kill(2)
    cluster.nodes[2].is_wanted = False
    others = [number for number in cluster.nodes if number != 2]
    for name in names(suite):
        for number in others:
            api = cluster.api(number)
            written = wait_until(
                lambda api=api, name=name, number=number: api.put(f"/{name}/late-{number}", {"n": 1}).status in (201, 409), SETTLED_TIMEOUT_S
            )
            report.check(f"{name} through node {number}", written and api.get(f"/{name}/late-{number}").status == 200)
    cluster.start_process(cluster.nodes[2])
    cluster.nodes[2].wait_until_ready()
    wait_until_settled(suite, cluster, "each slot has its nodes")
    api = cluster.api(2)
    seen = [api.expect(200, "GET", f"/{name}/late-{others[0]}")["n"] for name in names(suite)]
    report.equal("it shows what it missed", set(seen), {1})


def test_back_to_all_nodes(suite, cluster):
    cluster.command("place", cluster.url_of(3), "--everywhere")
    cluster.wait_until_whole()
    for number, api in cluster.apis().items():
        counts = [api.expect(200, "GET", f"/{name}")["doc_count"] for name in names(suite)]
        suite.report.check(f"node {number} has all", min(counts) > DOCUMENTS, counts)

"""A cluster whose nodes can be cut off from each other, and from the brokers if its log is in Kafka."""

import shutil
import time

import pytest

import brokers as kafka
import cluster as clusters
from harness.api import Api
from harness.links import Links
from ports import free_port, free_ports

# Who keeps the log.
OWN, KAFKA = "nodes", "kafka"
# For fixtures of tests that hold for both: those on Kafka run at full length only.
ENGINES = [OWN, pytest.param(KAFKA, marks=pytest.mark.slow)]
ADMIN = "admin:cluster"
EQUAL_TIMEOUT_S = 30
READ_TIMEOUT_S = 15
# What the status of a slot says of its contents, besides its chain.
DIGESTS = ("digest", "digests")


def with_log(*engines):
    """The mark of a test whose cluster, a fixture of the module, has these logs."""
    return pytest.mark.parametrize("cluster", engines, indirect=True, scope="module")


class PatientApi(Api):
    """Asks again for what a node cannot read now: a machine that stands still may keep the brokers or its peers from it for longer than it waits."""

    def request(self, method, path, body=None, headers=None):
        deadline = time.monotonic() + READ_TIMEOUT_S
        while (answer := super().request(method, path, body, headers)).status == 503 and method == "GET" and time.monotonic() < deadline:
            time.sleep(0.2)
        return answer


class FaultyCluster(clusters.Cluster):
    """On free ports, with few slots and a known admin. With `has_links` everything passes through doors that can be closed. `log`
    is where the log is to be when nodes are started; a log in Kafka has a broker, unless there are to be more."""

    def __init__(self, ctx, name, nodes=3, log=OWN, brokers=None, has_links=False, slots=4):
        self.has_links, self.links, self.log = has_links, None, log
        if brokers is None:
            brokers = 1 if log == KAFKA else 0
        super().__init__(
            nodes, brokers, ctx.folder(name), ctx.binary, admin=ADMIN, slots=slots, options=["--set", "log/level=info", *ctx.cheap_hashes]
        )

    def make_brokers(self, count, first_port):
        doors = free_ports(count) if self.has_links else None
        return kafka.Brokers(count, self.directory / "kafka", first_port, doors)

    def make_node(self, number, http_port, peer_port):
        node = super().make_node(number, http_port, peer_port)
        node.door = free_port() if self.has_links else None
        return node

    @property
    def log_address(self):
        if self.log == OWN:
            # Where there are brokers, it is to leave them.
            return OWN if self.brokers.brokers else None
        return "kafka://" + (self.brokers.door_addresses if self.links else self.brokers.addresses)

    def options_of(self, node):
        # Without links a node listens at its door itself.
        listens = node.peer_port if self.links or not node.door else node.door
        return [*self.options, "--set", f"cluster/node_address=127.0.0.1:{listens}"]

    def join_options(self, node):
        return ["--listen", f"127.0.0.1:{node.peer_port}"] if self.links else []

    def start_nodes(self):
        if self.has_links and not self.links:
            self.open_doors()
        super().start_nodes()

    def open_doors(self):
        """The first node says where it is when it is started for the first time: at its door."""
        first = self.nodes[1]
        if not first.is_member():
            self.command("init", "--data", first.folder, "--name", "node1", "--address", first.address, "--slots", self.slots)
            self.start_process(first)
            first.wait_until_ready()
            self.wait_until_whole([1])
            self.stop_nodes()
        doors = {f"node{node.number}": (node.door, node.peer_port) for node in self.nodes.values()}
        doors |= {f"broker{broker.number}": (broker.door, broker.behind_door) for broker in self.brokers.brokers.values()}
        self.links = Links(doors)

    def start_process(self, node, log=None):
        super().start_process(node, log)
        if self.links:
            self.links.own(f"node{node.number}", node.process.pid)

    def cut_from_brokers(self, number, resets=False):
        """Without brokers, nothing."""
        self.links.cut(f"node{number}", [f"broker{broker}" for broker in self.brokers.brokers], resets)

    def cut_from_peers(self, number, resets=False, peers=None):
        """From all others, or from these alone."""
        others = peers or [other for other in self.nodes if other != number]
        self.links.cut(f"node{number}", [f"node{other}" for other in others], resets)

    def lose_log(self, number):
        """A node that does not run loses its part of the log, as if it had a disk of its own."""
        shutil.rmtree(self.nodes[number].folder / "cluster" / "log", ignore_errors=True)

    def heal(self):
        """Everybody runs and reaches everybody."""
        if self.links:
            self.links.heal()
        for processes, restart, resume in (
            (self.brokers.brokers, self.brokers.restart, self.brokers.resume),
            (self.nodes, self.restart, self.resume),
        ):
            for number, process in processes.items():
                if process.is_running():
                    resume(number)
                else:
                    restart(number)

    def why_not_equal(self):
        """What keeps the replicas of all nodes from being the same; "" when they are."""
        held = {}
        for number in self.nodes:
            status = self.status(number)
            if status is None:
                return f"node {number} does not answer"
            for slot in status["slots"]:
                # A reason may be what went wrong last.
                if not slot["takes_writes"]:
                    return f"node {number}, slot {slot['slot']}: {slot['reason']}"
                state = {name: slot[name] for name in ("next_offset", "stable", "generation", "chain", *DIGESTS) if name in slot}
                number_of_first, first = held.setdefault(slot["slot"], (number, state))
                if state != first:
                    return f"slot {slot['slot']}: node {number_of_first} has {first}, node {number} {state}"
        return ""

    def wait_until_equal(self, timeout_s=EQUAL_TIMEOUT_S):
        """Returns what is different in the end."""
        deadline = time.monotonic() + timeout_s
        while (why := self.why_not_equal()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return why

    def stop(self):
        super().stop()
        if self.links:
            self.links.stop()
            self.links = None

    def api(self, number, timeout=30, credentials=ADMIN):
        """A client of a node with a connection of its own."""
        return PatientApi(self.nodes[number].url, credentials, timeout)

    def apis(self, timeout=30):
        return {number: self.api(number, timeout) for number in self.nodes}

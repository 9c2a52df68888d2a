#!/usr/bin/env python3
"""A cluster on this machine, to try one: nodes at ports 15984, 25984, 35984 of 127.0.0.1, which keep its log.

usage: cluster.py [--nodes N] [--ports PORT,…] [--brokers N] [--data DIR] [--admin NAME:PASSWORD] [--binary PATH]

--ports: the nodes' ports for clients, one a node; each has the next one for other nodes. --brokers: so many Kafka brokers keep the
log instead; what they need is fetched (scripts/brokers.py). Runs until SIGINT or SIGTERM, or until its parent dies; a node or broker
that dies is started again. With a data directory of an earlier run it goes on where that one was; more nodes than it had then join.
"""

import argparse
import base64
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import brokers as kafka
from ports import free_ports

READY = "Settee is listening on "
READY_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 60
# Slots take a new replica one after the other.
WHOLE_TIMEOUT_S = 120
STATUS_TIMEOUT_S = 5
NODES_MAX = 5
FIRST_BROKER_PORT = 19092
# The nodes that keep the log: in clusters of fewer than five nodes, and in larger ones.
LOG_NODES, LOG_NODES_OF_LARGE = 3, 5
# The record version from which on the cluster has a table of these nodes.
TABLE_VERSION = 4


class Node(kafka.Process):
    """One node. `door` is the port at which others find it when that is not the one where it listens: a proxy's."""

    KIND, READY, READY_TIMEOUT_S = "node", READY, READY_TIMEOUT_S

    def __init__(self, number, folder, http_port, peer_port, door=None):
        super().__init__(number, folder)
        self.http_port, self.peer_port, self.door = http_port, peer_port, door

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def address(self):
        return f"127.0.0.1:{self.door or self.peer_port}"

    def is_member(self):
        return (self.folder / "cluster").is_dir()


class Cluster:
    """So many nodes and brokers with their data below `directory`, which outlives them. Without brokers, the nodes keep the log.
    Numbers begin at 1.

    `ports(number)` gives a node's port for HTTP and for other nodes. `admin` is NAME:PASSWORD; without it the first start makes
    one. `options` are more arguments of `settee serve`.
    """

    def __init__(self, nodes, brokers, directory, binary, admin=None, slots=16, ports=None, broker_port=None, options=()):
        self.directory = pathlib.Path(directory).resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.binary, self.admin, self.slots, self.options = str(binary), admin, slots, list(options)
        self.brokers = self.make_brokers(brokers, broker_port)
        self.nodes = {number: self.make_node(number, *(ports(number) if ports else free_ports(2))) for number in range(1, nodes + 1)}

    def make_brokers(self, count, first_port):
        return kafka.Brokers(count, self.directory / "kafka", first_port)

    def make_node(self, number, http_port, peer_port):
        return Node(number, self.directory / f"node-{number}", http_port, peer_port)

    @property
    def urls(self):
        return [node.url for node in self.nodes.values()]

    @property
    def log_address(self):
        """The setting `[cluster] log`; None for the default."""
        return "kafka://" + self.brokers.addresses if self.brokers.brokers else None

    def start(self):
        self.brokers.start()
        self.start_nodes()
        return self

    def start_nodes(self):
        """Members are started at once; the others join one after the other."""
        first = self.nodes[1]
        if not first.is_member():
            self.command("init", "--data", first.folder, "--name", "node1", "--address", first.address, "--slots", self.slots)
        members = [node for node in self.nodes.values() if node.is_member()]
        for node in members:
            self.start_process(node)
        for node in members:
            node.wait_until_ready()
        self.start_others()

    def start_others(self):
        """Who is no member yet joins, by way of the first node, which runs."""
        self.take_admin()
        for node in self.nodes.values():
            if not node.is_member():
                self.join(node)
                self.start_process(node)
                node.wait_until_ready()
        self.wait_until_whole()

    def join_options(self, _):
        return []

    def join(self, node):
        """Makes a folder a member's, with a token from the first node."""
        # A token names the members that there are; at its very first start a node is none yet.
        self.wait_until_whole([1])
        token = self.command("token", self.url_of(1)).strip()
        arguments = ["join", "--data", node.folder, "--token", token, "--name", f"node{node.number}"]
        arguments += ["--address", node.address, *self.join_options(node)]
        deadline = time.monotonic() + WHOLE_TIMEOUT_S
        environment = self.environment_of(node)
        # The member that was asked may be too new itself.
        while (done := self.try_command(*arguments, env=environment)).returncode and "503" in done.stderr and time.monotonic() < deadline:
            time.sleep(0.2)
        if done.returncode:
            raise RuntimeError(f"node {node.number} cannot join: {done.stderr}")

    def start_process(self, node, log=None):
        node.process = None
        arguments = ["--data", node.folder, "--bind", "127.0.0.1", "--port", node.http_port]
        if log := log or self.log_address:
            arguments += ["--set", f"cluster/log={log}"]
        if node.number == 1:
            arguments += ["--admin", self.admin] if self.admin else ["--generate-admin"]
        with open(node.log_path, "ab") as log:
            node.log_start = log.tell()
            command = [self.binary, "serve", *map(str, arguments), *self.options_of(node)]
            node.process = kafka._spawner.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment_of(node),
                start_new_session=True,
                preexec_fn=kafka.die_with_parent,
            ).result()
        node.is_wanted = True

    def options_of(self, _node):
        return self.options

    def environment_of(self, _node):
        """The variables of its process; None for those of this one."""
        return None

    def take_admin(self):
        """The password that the first start made is kept in a file of the cluster's."""
        path = self.directory / "admin-password"
        made = self.nodes[1].folder / "admin-password"
        if self.admin:
            return
        if made.exists() and not path.exists():
            with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(made.read_text(encoding="utf-8"))
        if not path.exists():
            sys.exit(f"cluster: {path} is not there: say who is admin, with --admin NAME:PASSWORD")
        self.admin = "admin:" + path.read_text(encoding="utf-8").strip()

    def url_of(self, number):
        return self.nodes[number].url.replace("http://", f"http://{self.admin}@")

    def command(self, *arguments):
        """`settee cluster …`: what it prints."""
        done = self.try_command(*arguments)
        if done.returncode:
            raise RuntimeError(f"settee cluster {arguments[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def try_command(self, *arguments, env=None):
        command = [self.binary, "cluster", *map(str, arguments)]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False, env=env)

    def status(self, number):
        """GET /_settee/cluster of a node; None when it does not answer."""
        request = urllib.request.Request(f"{self.nodes[number].url}/_settee/cluster")
        request.add_header("Authorization", "Basic " + base64.b64encode(self.admin.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=STATUS_TIMEOUT_S) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def why_not_whole(self, nodes=None):
        """What is missing until these nodes have all slots, and all take writes; "" when nothing is."""
        nodes = list(nodes or self.nodes)
        tables, led, groups = set(), 0, 0
        for number in nodes:
            status = self.status(number)
            if status is None:
                return f"node {number} does not answer"
            live = sum(node["is_live"] for node in status["nodes"])
            if live < len(nodes):
                return f"node {number} sees {live} of {len(nodes)} nodes"
            for slot in status["slots"]:
                # A node that has left a slot keeps its data for a while.
                if status.get("copies") and status["node"] not in slot["wanted"]:
                    continue
                wanted = len(slot["wanted"]) if status.get("copies") else len(nodes)
                if len(slot["members"]) < wanted or not slot["takes_writes"]:
                    return f"node {number}: slot {slot['slot']} has {len(slot['members'])} replicas; {slot['reason']}"
            if why := why_log_not_whole(status, live):
                return f"node {number}: {why}"
            log = status.get("log", {})
            tables.add(log.get("changes"))
            led += log.get("led", len(status["slots"]))
            groups = len(status["slots"])
        if len(nodes) == len(self.nodes) and led < groups:
            return f"the log of {groups - led} slots has no leader"
        return "" if len(tables) == 1 else "not all nodes know which nodes and disks keep the log"

    def wait_until_whole(self, nodes=None, timeout_s=WHOLE_TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        while why := self.why_not_whole(nodes):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster is not whole within {timeout_s} s: {why}")
            time.sleep(0.1)

    def kill(self, number):
        self.nodes[number].end(signal.SIGKILL)

    def pause(self, number):
        self.nodes[number].process.send_signal(signal.SIGSTOP)

    def resume(self, number):
        self.nodes[number].process.send_signal(signal.SIGCONT)

    def restart(self, number):
        """Starts a node again, wherever it is now, with the data that it has."""
        node = self.nodes[number]
        node.end(signal.SIGTERM)
        self.start_process(node)
        node.wait_until_ready()

    def revive(self):
        """Starts again what died without being told to."""
        self.brokers.revive()
        for node in self.nodes.values():
            if node.is_wanted and not node.is_running():
                print(f"cluster: node {node.number} ended with {node.process.returncode}; starting it again", file=sys.stderr, flush=True)
                self.start_process(node)

    def stop_nodes(self):
        """SIGTERM to all at once; returns their exit codes."""
        for node in self.nodes.values():
            node.is_wanted = False
            if node.is_running():
                node.process.send_signal(signal.SIGCONT)
                node.process.send_signal(signal.SIGTERM)
        return [node.end(signal.SIGTERM) for node in self.nodes.values()]

    def stop(self):
        self.stop_nodes()
        self.brokers.stop()


def why_log_not_whole(status, live):
    """What is missing until as many nodes keep the log as are to keep it; "" when nothing is."""
    log = status.get("log", {})
    if log.get("kept_by") != "nodes" or status["record_version"]["in_force"] < TABLE_VERSION:
        return ""
    wanted = LOG_NODES_OF_LARGE if len(status["nodes"]) >= LOG_NODES_OF_LARGE else LOG_NODES
    if len(log["nodes"]) < min(wanted, live):
        return f"{', '.join(log['nodes'])} keep the log"
    if log["unsettled"] or log["leaderless"] or log["halted"]:
        return f"the log of some slots is not settled: {log}"
    return ""


def fixed_ports(number):
    """Those for other nodes are none that Linux gives to connections, which could take one while its node is down."""
    return 5984 + 10000 * number, 15985 + number


def given_ports(text):
    """The function of a node's ports that `--ports` stands for."""
    ports = [int(port) for port in text.split(",")]

    def ports_of(number):
        if number > len(ports):
            sys.exit(f"cluster: --ports has {len(ports)} ports for more nodes")
        return ports[number - 1], ports[number - 1] + 1

    return ports_of


def default_binary():
    target = os.environ.get("CARGO_TARGET_DIR") or kafka.cache() / "target"
    return pathlib.Path(target) / "dist" / "settee"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3, choices=range(1, NODES_MAX + 1))
    parser.add_argument("--ports", type=given_ports, default=fixed_ports, metavar="PORT,…")
    parser.add_argument("--brokers", type=int, default=0)
    parser.add_argument("--data", default="cluster-data")
    parser.add_argument("--admin", help="NAME:PASSWORD; one with a random password is made when it is not given")
    parser.add_argument("--binary", default=default_binary())
    options = parser.parse_args()
    if not options.brokers and (pathlib.Path(options.data) / "kafka").is_dir():
        sys.exit(f"cluster: {options.data} has a cluster whose log is in Kafka: start it with --brokers, or another one with --data")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ctypes.CDLL(None).prctl(kafka.PR_SET_PDEATHSIG, signal.SIGTERM)
    cluster = Cluster(
        options.nodes, options.brokers, options.data, options.binary, admin=options.admin, ports=options.ports, broker_port=FIRST_BROKER_PORT
    )
    try:
        brokers = f"{options.brokers} broker(s) and " if options.brokers else ""
        print(f"cluster: starting {brokers}{options.nodes} node(s)", flush=True)
        cluster.start()
        name, password = cluster.admin.split(":", 1)
        print(f"cluster: {' '.join(cluster.urls)}", flush=True)
        print(f"cluster: admin {name}, password {password}", flush=True)
        while True:
            time.sleep(0.5)
            cluster.revive()
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        sys.exit(f"cluster: {error}")
    finally:
        # Once more Ctrl-C while it stops does no harm.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("cluster: stopping", flush=True)
        cluster.stop()


if __name__ == "__main__":
    main()

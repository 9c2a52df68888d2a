"""Power failures of one node or of all of them, and all nodes killed at once, while clients write: nothing acknowledged is lost,
documents are linearizable, and all replicas are equal afterwards. The nodes keep the log.

A power failure forgets what was not synced, of all files and names below a node's data directory (`harness/power_cut.py`).
SETTEE_ROUNDS sets the rounds of each test.
"""

import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

from harness.faulty_cluster import ADMIN, FaultyCluster
from harness.histories import PAUSE_S, History, look_again, lost, start_clients, stop_clients
from harness.packages import go_program
from harness.power_cut import BEGINNINGS, EVERYTHING, NOTHING, SECTORS, Library, VolatileFolder

pytestmark = pytest.mark.on_disk

ROUNDS_SOAK = 100
# Acknowledged writes of a round before the failure.
WRITES, WRITES_SOAK = (100, 300), (20, 1500)
WRITES_TIMEOUT_S = 60
WHOLE_TIMEOUT_S = 90
CHECK_TIMEOUT_S = 900
NODES = (1, 2, 3)
# In a soak one round after the other has the next of these; a short form has the first ones.
SURVIVORS = (NOTHING, SECTORS, BEGINNINGS)

# What the library is tested with: a program that writes, and syncs some of it.
PROGRAM = """
import os, sys
root = sys.argv[1]
os.chdir(root)

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def put(path, text, is_synced=True):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, text)
    if is_synced:
        os.fsync(fd)
    os.close(fd)

put("appended", b"first ")
put("empty", b"never synced", False)
put("replaced", b"old")
put("removed", b"still here")
put("cut", b"0123456789")
sync(".")
put("appended", b"second ")
put("appended", b"third", False)
put("old", b"changed", False)
put("new", b"without a name")
put("replaced.new", b"new")
os.replace("replaced.new", "replaced")
os.unlink("removed")
# Its inode's number is not that of the removed file.
put("later", b"later")
fd = os.open("cut", os.O_WRONLY)
os.ftruncate(fd, 4)
os.fdatasync(fd)
os.ftruncate(fd, 2)
os.pwrite(fd, b"x", 0)
os.mkdir("folder")
put("folder/file", b"in a new folder")
sync("folder")
os.mkdir("synced-folder")
sync("synced-folder")
sync(".")
put("synced-folder/file", b"without a name")
os.rename("later", "synced-folder/later")
os.rename("old", "older")
os._exit(0)
"""
SURVIVING = {
    "appended": b"first second ",
    "cut": b"0123",
    "empty": b"",
    "folder/file": b"in a new folder",
    "later": b"later",
    "new": b"without a name",
    "old": b"old",
    "replaced": b"new",
}


class PowerCluster(FaultyCluster):
    """A cluster whose nodes' power can be cut, once `begin` was called."""

    def __init__(self, ctx, name):
        self.library = Library(ctx.folder(f"{name}-library"))
        self.volatile = {}
        super().__init__(ctx, name)

    def begin(self):
        """Starts it; what the nodes have then is synced."""
        self.start()
        self.stop_nodes()
        self.volatile = {number: VolatileFolder(node.folder, self.library) for number, node in self.nodes.items()}
        self.start_nodes()
        self.wait_until_whole()

    def environment_of(self, node):
        folder = self.volatile.get(node.number)
        return folder.environment() if folder else None

    def cut(self, numbers, source, survives):
        """Ends these nodes at one moment, with what survives of their unsynced writes."""
        for number in numbers:
            self.nodes[number].process.kill()
        for number in numbers:
            self.kill(number)
            self.volatile[number].cut(source, survives)

    def forgotten(self):
        return sum(folder.forgotten for folder in self.volatile.values())


class Failures:
    """A cluster, and all that was acknowledged by it."""

    def __init__(self, ctx):
        self.ctx, self.report = ctx, ctx.report
        self.checker = go_program(ctx, ctx.checkout / "tests" / "clients" / "linearizability")
        # Not for the servers, which would take it for a setting.
        self.rounds_wanted = os.environ.pop("SETTEE_ROUNDS", "")
        self.cluster = PowerCluster(ctx, "power")
        self.histories = []

    def rounds(self, short):
        return range(int(self.rounds_wanted or self.ctx.size(short, ROUNDS_SOAK)))

    def round(self, label, victims, survives):
        source = random.Random(f"{self.ctx.seed}-{label}")
        label = f"{label} (of what is unsynced {survives} survives)"
        history = History(f"power-{len(self.histories)}")
        self.cluster.api(1).expect(201, "PUT", f"/{history.db}")
        urls = {number: node.url for number, node in self.cluster.nodes.items()}
        clients, _ = start_clients(history, urls, ADMIN, source, self.ctx.size(3, 1) * PAUSE_S)
        try:
            self.wait_for_writes(history, label, source.randint(*self.ctx.size(WRITES, WRITES_SOAK)))
            numbers = victims(source)
            self.cluster.cut(numbers, source, survives)
            for number in numbers:
                self.cluster.start_process(self.cluster.nodes[number])
            self.recovered(label)
        finally:
            stop_clients(clients)
        self.judge(history, label)

    def wait_for_writes(self, history, label, wanted):
        deadline = time.monotonic() + WRITES_TIMEOUT_S
        while len(history.writes) < wanted and time.monotonic() < deadline:
            time.sleep(0.005)
        self.report.check(f"{label}: clients write", len(history.writes) >= wanted, history.unexpected[:3], quiet=True)

    def recovered(self, label):
        try:
            for node in self.cluster.nodes.values():
                node.wait_until_ready()
            self.cluster.wait_until_whole(timeout_s=WHOLE_TIMEOUT_S)
            why = ""
        except RuntimeError as error:
            why = str(error) + "".join(f"\nnode {number}: {node.log()[-800:]}" for number, node in self.cluster.nodes.items())
        self.report.check(f"{label}: the cluster is whole again", not why, why)

    def judge(self, history, label):
        why = self.cluster.wait_until_equal()
        self.report.check(f"{label}: all replicas are equal", not why, why)
        count = len(history.written) + len(history.appended)
        for number, api in self.cluster.apis().items():
            problems = look_again(history, number, api)
            self.report.check(f"{label}: node {number} has all {count} acknowledged documents and elements", not problems, problems[:8], quiet=True)
        self.report.check(f"{label}: no odd answers", not history.unexpected, history.unexpected[:8], quiet=True)
        folder = self.ctx.folder(history.db)
        history.keep(folder / "history.jsonl")
        with open(folder / "history.jsonl", "rb") as file:
            done = subprocess.run([self.checker, folder], stdin=file, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False)
        self.report.check(f"{label}: linearizable", done.returncode == 0, done.stdout + done.stderr)
        self.report.note(f"{label}: {history.acknowledged()} acknowledged")
        history.operations, history.lists, history.writes, history.reads = [], [], [], []
        self.histories.append(history)

    def disks(self):
        return {number: self.cluster.status(number)["log"]["disk"] for number in NODES}


@pytest.fixture(scope="module")
def failures(suite):
    failures = Failures(suite)
    if failures.cluster.library.refused:
        suite.report.skip("power failures", failures.cluster.library.refused)
        pytest.skip(failures.cluster.library.refused)
    try:
        failures.cluster.begin()
        yield failures
    finally:
        failures.cluster.stop()


def test_the_library(ctx):
    """It forgets what was not synced, and nothing else."""
    library = Library(ctx.root)
    if library.refused:
        ctx.report.skip("power failures", library.refused)
        return
    folder = ctx.folder("volatile")
    (folder / "old").write_bytes(b"old")
    volatile = VolatileFolder(folder, library)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], env=volatile.environment(), capture_output=True, text=True, check=False)
    ctx.report.equal("the program runs", (done.returncode, done.stderr), (0, ""))
    ctx.report.equal("it sees what it wrote", (folder / "appended").read_bytes(), b"first second third")
    volatile.cut(ctx.random, NOTHING)
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    ctx.report.equal("what was synced survives", found, SURVIVING)
    ctx.report.check("and empty folders", (folder / "synced-folder").is_dir())
    ctx.report.check("what was lost is counted", volatile.forgotten > 0, volatile.forgotten)
    volatile.cut(ctx.random, NOTHING)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ctx.report.equal("and survives the next failure", found, SURVIVING)


def test_all_nodes_lose_power(suite, failures):
    disks = failures.disks()
    for number in failures.rounds(2):
        failures.round(f"power of all nodes, round {number + 1}", lambda _: NODES, SURVIVORS[number % len(SURVIVORS)])
    suite.report.check("unsynced writes were lost", failures.cluster.forgotten() > 0)
    suite.report.equal("no disk of the log was taken for a damaged one", failures.disks(), disks)


def test_one_node_loses_power(suite, failures):
    disks = failures.disks()
    for number in failures.rounds(1):
        victims = lambda source: [source.choice(NODES)]
        failures.round(f"power of one node, round {number + 1}", victims, SURVIVORS[number % len(SURVIVORS)])
    suite.report.equal("no disk of the log was taken for a damaged one", failures.disks(), disks)


def test_all_nodes_are_killed(suite, failures):
    for number in failures.rounds(1):
        failures.round(f"all nodes killed, round {number + 1}", lambda _: NODES, EVERYTHING)


def test_nothing_is_lost(suite, failures):
    """Later rounds had failures too, so what earlier ones wrote is looked at again, at every node."""
    problems = [
        f"node {number}, {history.db}: {problem}"
        for history in failures.histories
        for number, api in failures.cluster.apis().items()
        for problem in lost(history, api)
    ]
    suite.report.check("every round's documents are still there on all nodes", not problems, problems[:8])
    logs = {number: pathlib.Path(node.log_path).read_text(encoding="utf-8", errors="replace") for number, node in failures.cluster.nodes.items()}
    suite.report.check("no panic", not any("panicked" in log for log in logs.values()), [log[-1000:] for log in logs.values() if "panicked" in log])

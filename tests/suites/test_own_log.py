"""The log that the nodes keep: damage on its disk, idle slots, its size, and a node that was away.

`power_cuts` and `cluster_faults` test crashes, power failures and partitions; `cluster_environment` full disks and lost logs.
"""

import base64
import concurrent.futures
import contextlib
import os
import shutil
import time

import pytest

from harness.faulty_cluster import FaultyCluster
from harness.prometheus import metrics
from harness.server import wait_until

pytestmark = pytest.mark.on_disk

DB = "kept"
SLOTS = 4
NODES = (1, 2, 3)
WRITES = 12
TIMEOUT_S = 30
WHOLE_TIMEOUT_S = 90
DAMAGES = ("a flipped bit", "a torn file", "a lost file")
# Of a damaged end, so that it is in the last record that is known to be synced.
FLIPPED_BYTES = 2

# Slots of two clusters that are idle at the same time.
FEW_SLOTS, MANY_SLOTS = 8, 128
IDLE_S, QUIET_S, QUIET_TIMEOUT_S = 30, 5, 120
SYNCS_MORE_MAX = 2
MESSAGES_FACTOR_MAX = 1.2
IDLE_CORE_PERCENT_MAX, IDLE_MB_MORE_MAX = 3, 100

MB, GB = 1 << 20, 1 << 30
# What a log may have, and some for its newest files.
LOG_BYTES_MAX = 2.2 * GB
WRITTEN_TOGETHER, WRITTEN_WITHOUT = 1.5 * GB, 2.8 * GB
DISK_BYTES_MIN = 26 * GB
BULK, BODY_BYTES = 8, 48_000
BYTES_PER_S = 12 * MB
BACK_TIMEOUT_S = 600


class Kept:
    """A cluster, and the documents that it acknowledged."""

    def __init__(self, ctx, name, slots=SLOTS):
        self.ctx, self.report = ctx, ctx.report
        self.cluster = FaultyCluster(ctx, name, slots=slots)
        self.acknowledged = {}

    def begin(self):
        self.cluster.start()
        self.cluster.api(1).expect(201, "PUT", f"/{DB}?q={SLOTS}")

    def write(self, name, nodes, count=WRITES, body=None):
        """Every one of these writes is acknowledged."""
        first = len(self.acknowledged)
        todo = [(number, f"doc-{first + at * len(nodes) + place:05}") for at in range(count) for place, number in enumerate(nodes)]

        def put(at):
            number, doc_id = at
            answer = self.cluster.api(number, timeout=60).put(f"/{DB}/{doc_id}", body or {"by": number})
            if answer.status == 201:
                self.acknowledged[doc_id] = answer.json["rev"]
            return "" if answer.status == 201 else f"node {number} {doc_id}: {answer!r}"

        with concurrent.futures.ThreadPoolExecutor(len(nodes) * 4) as pool:
            failed = [*filter(None, pool.map(put, todo))]
        self.report.check(name, not failed, "\n".join(failed[:8]))

    def all_is_there(self, name, nodes=NODES):
        wrong = []
        for number in nodes:
            answer = self.cluster.api(number).post(f"/{DB}/_all_docs", {"keys": list(self.acknowledged)})
            rows = answer.json.get("rows", [])
            found = {row["key"]: row.get("value", {}).get("rev") for row in rows}
            wrong += [f"node {number} {doc_id}: {found.get(doc_id)}" for doc_id, rev in self.acknowledged.items() if found.get(doc_id) != rev]
        self.report.check(name, not wrong, "\n".join(wrong[:8]))

    def whole(self, name, timeout_s=WHOLE_TIMEOUT_S):
        try:
            self.cluster.wait_until_whole(timeout_s=timeout_s)
            why = self.cluster.wait_until_equal(timeout_s)
        except RuntimeError as error:
            why = str(error)
        return self.report.check(name, not why, why)

    def status(self, number):
        return (self.cluster.status(number) or {}).get("log", {})

    def disks(self):
        return {number: self.status(number)["disk"] for number in NODES}

    def figure(self, number, name):
        return metrics(self.cluster.api(number))(f"settee_cluster_{name}")

    def folder(self, number):
        return self.cluster.nodes[number].folder / "cluster" / "log" / str(self.status(number)["number"])


@pytest.fixture(scope="module")
def kept(suite):
    kept = Kept(suite, "own-log")
    try:
        kept.begin()
        yield kept
        logs = "".join(node.log() for node in kept.cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        kept.cluster.stop()


def synced(folder):
    """The newest file of a log, and the bytes of it that are known to be synced; None while that is not known."""
    path = max(folder.glob("*.raftlog"))
    listed = folder / "synced"
    lines = listed.read_text(encoding="ascii").splitlines() if listed.exists() else []
    ends = {name: int(end) for name, end in (line.split() for line in lines) if name != "sum"}
    return (path, ends[path.name]) if path.name in ends else None


def damage(what, path, end):
    if what == "a lost file":
        path.unlink()
    elif what == "a torn file":
        os.truncate(path, end - 1)
    else:
        flip(path, end - FLIPPED_BYTES)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 4]))


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_at_the_end(suite, kept, what):
    """The node may have forgotten votes and confirmations: it gets another id in the log, and everything from the others."""
    report, cluster = suite.report, kept.cluster
    kept.write(f"{what}: all nodes write before", NODES)
    disks, folder = kept.disks(), kept.folder(3)
    known = wait_until(lambda: synced(folder), TIMEOUT_S, 0.1)
    if not report.check("it is known what was synced", known, sorted(folder.iterdir())):
        return
    cluster.kill(3)
    damage(what, *synced(folder))
    kept.write("the others write meanwhile", (1, 2))
    cluster.restart(3)
    kept.whole("the node is back with an empty log")
    after = kept.disks()
    report.check("it is another disk for the others", after[3] != disks[3] and (after[1], after[2]) == (disks[1], disks[2]), (disks, after))
    report.check("its log says so", "the log on this disk is damaged" in cluster.nodes[3].log(), cluster.nodes[3].log()[-1500:])
    report.check("the damaged one is set aside", folder.with_name(folder.name + ".damaged").is_dir(), sorted(folder.parent.iterdir()))
    cluster.kill(1)
    kept.write("it counts among those that keep the log: another one is killed", (2, 3))
    cluster.heal()
    kept.whole("and comes back")
    kept.all_is_there("nothing acknowledged is lost")


def test_damage_in_the_middle(suite, kept):
    """A record that another node needs is damaged: the slot's log halts on that node, and the others go on."""
    report, cluster = suite.report, kept.cluster
    marker = "".join(suite.random.choices("abcdefghijklmnopqrstuvwxyz", k=40))
    folder = kept.folder(1)
    cluster.kill(3)
    kept.write("a node is off: the others write", (1, 2), body={"marker": marker})
    kept.write("and write more", (1, 2))
    cluster.kill(1)
    flipped = 0
    for path in folder.glob("*.raftlog"):
        content = path.read_bytes()
        at = content.find(marker.encode())
        while at >= 0:
            flip(path, at)
            flipped += 1
            at = content.find(marker.encode(), at + 1)
    report.check("the log has the documents as they are", flipped, [path.name for path in folder.iterdir()])
    for number in (1, 3):
        cluster.start_process(cluster.nodes[number])
    for number in (1, 3):
        cluster.nodes[number].wait_until_ready()
    equal = wait_until(lambda: not cluster.why_not_equal(), WHOLE_TIMEOUT_S, 0.2)
    report.check("the node that was off gets everything", equal, cluster.why_not_equal())
    kept.all_is_there("nothing acknowledged is lost")
    halted = kept.status(1)["halted"]
    report.note(f"the log of {len(halted)} slots is halted on the node with the damage, {flipped} records")
    report.check("what is halted says why", all(slot["reason"] for slot in halted), halted)
    kept.write("all nodes write", NODES)
    cluster.kill(1)
    cluster.lose_log(1)
    cluster.heal()
    kept.whole("without its part of the log, the node gets another one")
    kept.all_is_there("and nothing is lost")


def test_a_node_that_was_away(suite, kept):
    """It reads from the log what it missed."""
    kept.cluster.kill(3)
    kept.write("a node is away: the others write", (1, 2), suite.size(40, 400))
    kept.cluster.restart(3)
    kept.whole("it is back")
    suite.report.equal("no slot was copied", kept.figure(3, "copies_installed_total"), 0)
    kept.all_is_there("it has what it missed", (3,))


@pytest.mark.slow
def test_a_log_that_is_full(ctx):
    """It stays within its size, and a node that was away for longer than it has records copies its slots."""
    if shutil.disk_usage(ctx.root).free < DISK_BYTES_MIN:
        ctx.report.skip("a full log", f"less than {DISK_BYTES_MIN / GB:.0f} GB are free")
        return
    kept = Kept(ctx, "full-log")
    try:
        kept.begin()
        sizes = fill(kept, NODES, WRITTEN_TOGETHER)
        ctx.limit("size of the log while all nodes write", max(sizes) / GB, LOG_BYTES_MAX / GB, "GB")
        kept.cluster.kill(3)
        sizes = fill(kept, (1, 2), WRITTEN_WITHOUT)
        ctx.limit("size of the log while a node is away", max(sizes) / GB, LOG_BYTES_MAX / GB, "GB")
        kept.cluster.restart(3)
        kept.whole("the node is back, after more than the log has", BACK_TIMEOUT_S)
        copies = kept.figure(3, "copies_installed_total")
        ctx.report.check("slots were copied", copies > 0, copies)
        kept.all_is_there("nothing acknowledged is lost")
        kept.write("all nodes write", NODES)
    finally:
        kept.cluster.stop()


def fill(kept, nodes, wanted):
    """Writes as much, and no faster than logs are trimmed. Returns sizes of the log meanwhile."""
    sizes, began, count = [], time.monotonic(), 0
    apis = {number: kept.cluster.api(number, timeout=60) for number in nodes}
    while count * BODY_BYTES * 4 / 3 < wanted:
        number = nodes[count // BULK % len(nodes)]
        docs = [{"_id": f"large-{len(kept.acknowledged)}-{at}", "body": base64.b64encode(os.urandom(BODY_BYTES)).decode()} for at in range(BULK)]
        answer = apis[number].post(f"/{DB}/_bulk_docs", {"docs": docs})
        if answer.status == 201:
            kept.acknowledged |= {row["id"]: row["rev"] for row in answer.json if "rev" in row}
        count += BULK
        if count % (50 * BULK) == 0:
            sizes += [size_on_disk(kept, at) for at in nodes]
        time.sleep(max(0, count * BODY_BYTES * 4 / 3 / BYTES_PER_S - (time.monotonic() - began)))
    return sizes


def size_on_disk(kept, number):
    """With files that are kept to be used again, which the metric does not count."""
    sizes = []
    for path in (kept.cluster.nodes[number].folder / "cluster" / "log").rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_blocks * 512)
    return sum(sizes)


@pytest.mark.slow
def test_idle_slots(ctx):
    """What a slot costs that nobody writes to: two clusters are idle at the same time, one with many more slots."""
    few, many = (Kept(ctx, f"idle-{slots}", slots) for slots in (FEW_SLOTS, MANY_SLOTS))
    try:
        for kept in (few, many):
            kept.begin()
            kept.write("all nodes write", NODES)
        for kept in (few, many):
            ctx.report.check("it becomes quiet", wait_until(lambda k=kept: is_quiet(k), QUIET_TIMEOUT_S, 1))
        before = [work(kept) for kept in (few, many)]
        time.sleep(IDLE_S)
        after = [work(kept) for kept in (few, many)]
        for number in NODES:
            compare(ctx, number, *({name: end[number][name] - begin[number][name] for name in end[number]} for begin, end in zip(before, after)))
            memory = [memory_mb(kept.cluster.nodes[number].process.pid) for kept in (few, many)]
            ctx.limit(f"node {number}: memory for {MANY_SLOTS - FEW_SLOTS} more slots", memory[1] - memory[0], IDLE_MB_MORE_MAX, "MB")
    finally:
        for kept in (few, many):
            kept.cluster.stop()


def is_quiet(kept):
    """All groups sleep a few seconds after the last sync."""
    before = [kept.figure(number, "log_sync_seconds_count") for number in NODES]
    time.sleep(QUIET_S)
    return before == [kept.figure(number, "log_sync_seconds_count") for number in NODES]


def work(kept):
    return {
        number: {
            "syncs": kept.figure(number, "log_sync_seconds_count"),
            "messages": kept.figure(number, "messages_sent_total"),
            "bytes": kept.figure(number, "messages_sent_bytes_total"),
            "core": core_s(kept.cluster.nodes[number].process.pid),
        }
        for number in NODES
    }


def compare(ctx, number, few, many):
    label = f"node {number}, idle for {IDLE_S} s"
    ctx.report.note(f"{label}: with {FEW_SLOTS} slots {few}, with {MANY_SLOTS} {many}")
    ctx.report.check(f"{label}: idle slots write nothing", many["syncs"] <= few["syncs"] + SYNCS_MORE_MAX, (few, many))
    is_even = many["messages"] <= few["messages"] * MESSAGES_FACTOR_MAX
    ctx.report.check(f"{label}: the number of messages does not depend on the slots", is_even, (few, many))
    ctx.limit(f"{label}: a core", 100 * many["core"] / IDLE_S, IDLE_CORE_PERCENT_MAX, "%")


def core_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        (line,) = [line for line in file if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024

"""Three nodes, or three nodes and three brokers, under load, killed, stopped and cut off from each other: nothing acknowledged is lost, documents are
linearizable (by porcupine, tests/clients/linearizability), and all replicas are equal afterwards.

SETTEE_ROUNDS is how many rounds there are, or which: 7-9. A round's faults depend on the seed and the round's number alone. In a
soak the log is cut and lost as well, and begun anew.
"""

import itertools
import os
import random
import subprocess
import time

import pytest

from harness.faulty_cluster import ADMIN, ENGINES, KAFKA, OWN, FaultyCluster
from harness.histories import PAUSE_S, History, look_again, lost, start_clients, stop_clients
from harness.packages import go_program

pytestmark = pytest.mark.on_disk

ROUNDS = (2, 100)
# Of a round, in which its faults begin; and how long one may be.
FAULTS_S = 6.0
FAULT_S_MAX = 5.0
# How long a node is dead whose death is measured.
DEAD_S = (5.0, 8.0)
# Writing before the first fault, and after the last one is over.
CALM_S = 1.0
FIRST_WRITES = 100
FIRST_WRITES_TIMEOUT_S = 30
HEALED_TIMEOUT_S = 90
CHECK_TIMEOUT_S = 900
# The wanted times without success after one node's death, or while it stands still; they are told, not asserted.
UNAVAILABLE_GOALS_S = {OWN: {"kill_node": 1.5, "pause_node": 2.5}, KAFKA: {"kill_node": 5.0}}
# In a soak, each on a cluster of its own: of a log in Kafka, and of one that the nodes keep.
LOG_LOSSES = ("cut_tail", "delete_topic") * 5 + ("lose_most", "lose_all") * 5


class Fault:
    """Something that begins and ends in a round, at these seconds after its begin."""

    def __init__(self, begin, end, name, *arguments):
        self.begin, self.end, self.name, self.arguments = begin, end, name, arguments

    def __str__(self):
        return f"{self.begin:.1f}–{self.end:.1f} s {self.name}{self.arguments}"


KINDS = (
    "kill_node",
    "kill_broker",
    "cut_from_peers",
    "kill_brokers",
    "cut_from_brokers",
    "kill_nodes",
    "pause_node",
    "pause_broker",
    "cut_pair",
    "isolate",
)
# Where the nodes keep the log.
KINDS_OF_OWN = (
    "kill_node",
    "cut_from_peers",
    "kill_nodes",
    "lose_log",
    "pause_node",
    "cut_pair",
    "isolate",
)
# Rounds that begin with one of these have no other fault, and tell how long nothing could be written or read.
MEASURED = ("kill_node", "pause_node", "kill_broker", "kill_brokers", "lose_log")
CUTS = ("cut_from_peers", "cut_from_brokers", "cut_pair", "isolate")


def schedule(kinds, seed, number, dead_s):
    """The faults of a round, whose measured deaths last for `dead_s`. The first one's kind goes through all kinds in turn."""
    source = random.Random(f"{seed}-{number}")
    first = kinds[(number - 1) % len(kinds)]
    if first in MEASURED:
        return [Fault(CALM_S, CALM_S + dead_s, first, source.randint(1, 3))]
    faults = []
    for at in range(source.choice((1, 2, 2, 3, 4))):
        # With another node down, a lost part of the log is one too many.
        kind = first if at == 0 else source.choice([kind for kind in kinds if kind != "lose_log"])
        begin = CALM_S + (0 if at == 0 else source.uniform(0, FAULTS_S))
        end = begin + source.uniform(0.3, FAULT_S_MAX)
        resets = source.random() < 0.5
        faults.append(Fault(begin, end, kind, source.randint(1, 3), *([resets] if kind in CUTS else [])))
    return sorted(faults, key=lambda fault: fault.begin)


def begin_fault(cluster, fault):
    target, *rest = fault.arguments
    match fault.name:
        case "kill_node":
            cluster.kill(target)
        case "lose_log":
            cluster.kill(target)
            cluster.lose_log(target)
        case "kill_nodes":
            for number in cluster.nodes:
                cluster.kill(number)
        case "kill_brokers":
            for number in cluster.brokers.brokers:
                cluster.brokers.kill(number)
        case "isolate":
            cluster.cut_from_brokers(target, *rest)
            cluster.cut_from_peers(target, *rest)
        case "pause_node":
            if cluster.nodes[target].is_running():
                cluster.pause(target)
        case "kill_broker":
            cluster.brokers.kill(target)
        case "pause_broker":
            if cluster.brokers.brokers[target].is_running():
                cluster.brokers.pause(target)
        case "cut_from_brokers":
            cluster.cut_from_brokers(target, *rest)
        case "cut_from_peers":
            cluster.cut_from_peers(target, *rest)
        case "cut_pair":
            cluster.cut_from_peers(target, *rest, peers=[target % 3 + 1])


def end_fault(cluster, fault):
    target, *_ = fault.arguments
    match fault.name:
        case "kill_node" | "kill_nodes" | "lose_log":
            for node in cluster.nodes.values():
                if not node.is_running():
                    cluster.start_process(node)
        case "pause_node":
            if cluster.nodes[target].is_running():
                cluster.resume(target)
        case "kill_broker" | "kill_brokers":
            for broker in cluster.brokers.brokers.values():
                if not broker.is_running():
                    broker.start()
        case "pause_broker":
            if cluster.brokers.brokers[target].is_running():
                cluster.brokers.resume(target)
        case _:
            # Cuts that overlap end together.
            cluster.links.heal()


@pytest.mark.parametrize("log", ENGINES)
def test_rounds_of_faults(ctx, log):
    checker = go_program(ctx, ctx.checkout / "tests" / "clients" / "linearizability")
    totals = Totals(log)
    cluster = FaultyCluster(ctx, "cluster", log=log, brokers=3 if log == KAFKA else 0, has_links=True)
    try:
        began = time.monotonic()
        cluster.start()
        ctx.report.note(f"{len(cluster.brokers.brokers)} brokers and three nodes are up after {time.monotonic() - began:.1f} s")
        for number in rounds(ctx):
            one_round(ctx, cluster, checker, number, totals)
        whole(ctx, cluster, totals)
        logs = {number: everything(node.log_path) for number, node in cluster.nodes.items()}
        ctx.report.check("no panic", not any("panicked" in log for log in logs.values()), [log[-1000:] for log in logs.values() if "panicked" in log])
    finally:
        cluster.stop()
    totals.say(ctx)


@pytest.mark.slow
def test_losses_of_the_log(ctx):
    checker = go_program(ctx, ctx.checkout / "tests" / "clients" / "linearizability")
    totals = Totals(OWN)
    log_losses(ctx, checker, totals)
    totals.say(ctx)


def rounds(ctx):
    # Not for the servers, which would take it for a setting.
    asked = os.environ.pop("SETTEE_ROUNDS", "") or str(ctx.size(*ROUNDS))
    first, _, last = asked.rpartition("-")
    return range(int(first or 1), int(last) + 1)


class Totals:
    def __init__(self, log):
        self.goals_s = UNAVAILABLE_GOALS_S[log]
        self.rounds = self.operations = self.acknowledged = self.maybes = 0
        self.healed_s = []
        # (kind of fault, "written" or "read") -> seconds
        self.gaps = {}
        self.histories = []

    def say(self, ctx):
        ctx.report.note(
            f"{self.rounds} rounds, {self.operations} operations on registers and lists, {self.acknowledged} acknowledged writes, "
            f"{self.maybes} of unknown outcome"
        )
        for (fault, what), gaps in sorted(self.gaps.items()):
            goal_s = self.goals_s.get(fault)
            over = f" (wanted: under {goal_s} s)" if goal_s and max(gaps) > goal_s else ""
            ctx.report.note(
                f"{fault} for {ctx.size(*DEAD_S):.0f} s: nothing was {what} by a client of a living node for at most {max(gaps):.1f} s{over}"
            )
        if self.healed_s:
            ctx.report.note(f"whole again {max(self.healed_s):.1f} s after the last fault, at most")


def one_round(ctx, cluster, checker, number, totals):
    kinds = KINDS if cluster.log == KAFKA else KINDS_OF_OWN
    faults = schedule(kinds, ctx.seed, number, ctx.size(*DEAD_S))
    label = f"round {number}"
    folder = ctx.folder(f"round-{number}")
    said = "; ".join(map(str, faults))
    (folder / "faults.txt").write_text(f"seed {ctx.seed}, round {number}: {said}\n", encoding="utf-8")
    ctx.report.note(f"{label}: {said}")
    history = History(f"faults-{number}")
    cluster.api(1).expect(201, "PUT", f"/{history.db}")
    urls = {at: node.url for at, node in cluster.nodes.items()}
    clients, of_node = start_clients(history, urls, ADMIN, random.Random(f"{ctx.seed}-{number}-clients"), ctx.size(3, 1) * PAUSE_S)
    try:
        wait_for_writes(ctx, history, label)
        carry_out(cluster, faults, history, of_node, totals)
        began = time.monotonic()
        healed(ctx, cluster, label)
        totals.healed_s.append(time.monotonic() - began)
        time.sleep(CALM_S)
    finally:
        stop_clients(clients)
    judge(ctx, cluster, checker, history, label, folder, totals)


def wait_for_writes(ctx, history, label):
    deadline = time.monotonic() + FIRST_WRITES_TIMEOUT_S
    while len(history.writes) < FIRST_WRITES and time.monotonic() < deadline:
        time.sleep(0.02)
    ctx.report.check(f"{label}: the writers get going", len(history.writes) >= FIRST_WRITES, history.unexpected[:3], quiet=True)


def carry_out(cluster, faults, history, of_node, totals):
    start = time.monotonic()
    events = sorted([(fault.begin, True, fault) for fault in faults] + [(fault.end, False, fault) for fault in faults], key=lambda event: event[0])
    moments = {}
    for at, begins, fault in events:
        time.sleep(max(0.0, start + at - time.monotonic()))
        moments[fault, begins] = time.monotonic()
        (begin_fault if begins else end_fault)(cluster, fault)
    fault = faults[0]
    if fault.name in MEASURED:
        dead = fault.arguments[0] if fault.name in ("kill_node", "pause_node", "lose_log") else None
        living = [number for node, numbers in of_node.items() if node != dead for number in numbers]
        for what, times in (("written", history.writes), ("read", history.reads)):
            gap = longest_gap(times, living, moments[fault, True], moments[fault, False])
            totals.gaps.setdefault((fault.name, what), []).append(gap)


def longest_gap(times, clients, begin, end):
    """The longest time that one of these clients was without success between two moments; clients that never have one do not count."""
    longest = 0.0
    for client in clients:
        mine = sorted(at for at, of in times if of == client)
        within = [begin, *(at for at in mine if begin < at < end), end]
        longest = max(longest, *(b - a for a, b in itertools.pairwise(within))) if mine else longest
    return longest


def healed(ctx, cluster, label):
    cluster.heal()
    try:
        cluster.wait_until_whole(timeout_s=HEALED_TIMEOUT_S)
        why = ""
    except RuntimeError as error:
        why = f"{error}\n{statuses(cluster)}"
    ctx.report.check(f"{label}: the cluster is whole again", not why, why)


def judge(ctx, cluster, checker, history, label, folder, totals):
    """What is true after a round, whatever happened in it."""
    why = cluster.wait_until_equal()
    ctx.report.check(f"{label}: all replicas are equal", not why, why)
    for number, api in cluster.apis().items():
        try:
            problems = look_again(history, number, api)
        except Exception as error:
            problems = [repr(error)]
        count = len(history.written) + len(history.appended)
        ctx.report.check(
            f"{label}: node {number} has all {count} acknowledged documents and elements", not problems, "\n".join(problems[:8]), quiet=True
        )
    ctx.report.check(f"{label}: no odd answers", not history.unexpected, "\n".join(history.unexpected[:8]), quiet=True)
    path = folder / "history.jsonl"
    history.keep(path)
    with open(path, "rb") as file:
        done = subprocess.run([checker, folder], stdin=file, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False)
    ctx.report.check(f"{label}: linearizable, {done.stdout.strip().splitlines()[-1:]}", done.returncode == 0, done.stdout + done.stderr)
    totals.rounds += 1
    totals.operations += len(history.operations)
    totals.acknowledged += history.acknowledged()
    totals.maybes += history.maybes
    history.operations, history.lists, history.writes, history.reads = [], [], [], []
    totals.histories.append(history)


def whole(ctx, cluster, totals):
    """Later rounds had faults too, so what earlier ones wrote is looked at again, at every node."""
    problems = [
        f"node {number}, {history.db}: {problem}"
        for history in totals.histories
        for number, api in cluster.apis().items()
        for problem in lost(history, api)
    ]
    ctx.report.check("every round's documents are still there on all nodes", not problems, "\n".join(problems[:8]))


def statuses(cluster):
    lines = []
    for number in cluster.nodes:
        status = cluster.status(number) or {"slots": []}
        lines += [f"node {number} slot {slot['slot']}: {slot}" for slot in status["slots"] if slot["reason"]]
    return "\n".join(lines)


def everything(path):
    return path.read_text(encoding="utf-8", errors="replace")


def log_losses(ctx, checker, totals):
    """A log loses its end, or all of it. An administrator has it begun anew."""
    for number, kind in enumerate(LOG_LOSSES, 1):
        log = OWN if kind.startswith("lose") else KAFKA
        cluster = FaultyCluster(ctx, f"loss-{number}", log=log, has_links=True)
        try:
            cluster.start()
            one_loss(ctx, cluster, checker, number, kind, totals)
        finally:
            cluster.stop()


def one_loss(ctx, cluster, checker, number, kind, totals):
    label = f"loss {number} of the log, by {kind}"
    source = random.Random(f"{ctx.seed}-loss-{number}")
    history = History(f"loss-{number}")
    cluster.api(1).expect(201, "PUT", f"/{history.db}")
    urls = {at: node.url for at, node in cluster.nodes.items()}
    clients, _ = start_clients(history, urls, ADMIN, source)
    topics = ("settee.main.0.slots", "settee.main.0.control")
    try:
        wait_for_writes(ctx, history, label)
        time.sleep(source.uniform(0, 3 * CALM_S))
        if kind == "cut_tail":
            cluster.brokers.kill(1)
            for slot in range(cluster.slots):
                cluster.brokers.cut_tail(topics[0], slot, source.randint(100, 20_000))
            cluster.brokers.restart(1)
        elif cluster.log == OWN:
            for at in cluster.nodes:
                cluster.kill(at)
            for at in source.sample(list(cluster.nodes), 2 if kind == "lose_most" else 3):
                cluster.lose_log(at)
            cluster.heal()
        else:
            for topic in topics:
                cluster.brokers.delete_topic(topic)
        time.sleep(5 * CALM_S)
        done = cluster.try_command("reseed", cluster.url_of(2))
        ctx.report.equal(f"{label}: reseed", (done.returncode, done.stderr), (0, ""))
        healed(ctx, cluster, label)
        time.sleep(CALM_S)
    finally:
        stop_clients(clients)
    judge(ctx, cluster, checker, history, label, ctx.folder(f"loss-{number}-history"), totals)

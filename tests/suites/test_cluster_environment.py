"""Faults in the environment of a cluster: full disks, invalid records, wrong clocks, expired
certificates, brokers and topics of another cluster, a node of another version, a lost log. Each
fault has an error that names what to do. No acknowledged write is lost.

The suite `cluster` tests copied data directories and used tokens. `cluster_faults` tests crashes
and partitions.
"""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from harness import kafka_records
from harness.api import Api, Disconnected
from harness.clock import DAY_S, HOUR_S, Clock
from harness.faulty_cluster import ADMIN, KAFKA, OWN, FaultyCluster, clusters, kafka
from harness.old_node import greet
from harness.server import wait_until
from harness.small_disk import SmallDisk
from ports import free_ports

pytestmark = pytest.mark.on_disk

SLOTS = 4
DB = "days"
# A node waits for brokers for a minute, then it ends.
BROKERS_TIMEOUT_S = 90
# What a start that is refused takes at most, with brokers that are there.
REFUSAL_TIMEOUT_S = 30
SAID_TIMEOUT_S = 30
# A write is refused after 20 s, as the manual says.
ANSWER_TIMEOUT_S = 30
WHOLE_TIMEOUT_S = 60
# Less than a node wants to be free, and enough for what it writes all the same.
LEFT_BYTES = 6 << 20
# How much room there is, is found out so often at most.
ROOM_IS_KNOWN_S = 0.3
READERS = 16
# In this time what should not go on, or not happen at all, would be seen.
WATCHED_S = 4
# Of one slot, in one part.
COPIES_MAX = 3
# What one slot says of the same trouble in the program's log, at most.
LINES_MAX = 3
READY = clusters.READY
SLOTS_TOPIC, CONTROL_TOPIC = "settee.main.0.slots", "settee.main.0.control"


@pytest.fixture(scope="module", params=[OWN, KAFKA])
def cluster_days(suite, request):
    days = Days(suite, request.param)
    try:
        days.begin()
        yield days
    finally:
        days.stop()


@pytest.fixture
def days(cluster_days):
    yield cluster_days
    cluster_days.clean_up()


def with_log(*logs):
    return pytest.mark.parametrize("cluster_days", logs, indirect=True, scope="module")


on_both = with_log(OWN, pytest.param(KAFKA, marks=pytest.mark.slow))
on_kafka = with_log(KAFKA)


class Days:
    """A cluster of three nodes, all with a small disk, and what was acknowledged by it."""

    def __init__(self, ctx, log):
        self.ctx, self.report = ctx, ctx.report
        self.cluster = FaultyCluster(ctx, f"cluster-{log}", log=log, slots=SLOTS)
        self.other_brokers = kafka.Brokers(len(self.cluster.brokers.brokers), ctx.folder("other") / "kafka")
        self.clock = Clock(ctx.folder(f"clock-{log}"))
        self.disks = {number: SmallDisk(ctx.folder(f"disk-{log}-{number}")) for number in (1, 2, 3)}
        self.acknowledged, self.counter = {}, 0
        # Nodes that are none of the cluster; one whose brokers never come.
        self.strangers, self.late = [], None
        self.logs = []

    def begin(self):
        """The first node was made long ago, and is there before its brokers are."""
        for number, disk in self.disks.items():
            disk.__enter__()
            self.cluster.nodes[number].folder = disk.path / "data"
        first = self.cluster.nodes[1]
        with self.clock.off_by(-100 * DAY_S):
            self.cluster.command("init", "--data", first.folder, "--name", "node1", "--address", first.address, "--slots", SLOTS)
        kept = first.folder / "cluster" / "node.pem"
        self.old_certificate = kept.read_bytes()
        if self.cluster.log == KAFKA:
            self.begin_with_brokers(first)
        else:
            self.cluster.start_process(first)
        first.wait_until_ready()
        self.cluster.start_others()
        if not self.clock.refused:
            ended = subprocess.run(["openssl", "x509", "-noout", "-checkend", "0", "-in", kept], capture_output=True, check=False).returncode
            self.report.equal("a certificate that ended while its node was off is renewed at the start", ended, 0)
        self.cluster.api(1).expect(201, "PUT", f"/{DB}?q={SLOTS}")
        self.all_write("three nodes take writes")

    def begin_with_brokers(self, first):
        self.late = self.stranger("late", "late", kafka_address="127.0.0.1:1")
        self.cluster.start_process(first)
        said = wait_until(lambda: "waiting for the brokers" in first.log(), SAID_TIMEOUT_S)
        self.report.check("a node that is there before its brokers says where it looks for them", said and self.broker in first.log(), first.log())
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for starting in [pool.submit(brokers.start) for brokers in (self.cluster.brokers, self.other_brokers)]:
                starting.result()

    @property
    def broker(self):
        return self.cluster.brokers.addresses

    def stranger(self, folder, cluster, kafka_address=None, slots=2):
        """A first node of some other cluster, which is started."""
        node = self.cluster.make_node(1, *free_ports(2))
        node.folder = self.ctx.folder("strangers") / folder
        node.log_path = node.folder.with_suffix(".log")
        self.cluster.command("init", "--data", node.folder, "--cluster", cluster, "--address", node.address, "--slots", slots)
        self.start_stranger(node, kafka_address)
        return node

    def start_stranger(self, node, kafka_address=None):
        self.strangers.append(node)
        self.cluster.start_process(node, log=f"kafka://{kafka_address or self.broker}")

    def api_of(self, node):
        return Api(node.url, ADMIN, 30)

    def restart(self, number, clock_s=0, kafka_address=None, waits=True):
        """Starts a node again, with a clock that is off by so much, or with other brokers."""
        node = self.cluster.nodes[number]
        self.logs.append(node.log())
        node.end(signal.SIGTERM)
        log = f"kafka://{kafka_address}" if kafka_address else None
        if clock_s:
            with self.clock.off_by(clock_s):
                self.cluster.start_process(node, log)
        else:
            self.cluster.start_process(node, log)
        if waits:
            node.wait_until_ready()
        return node

    def write(self, nodes=(1, 2, 3), count=4, timeout_s=60):
        """Documents through each of these nodes at once: (path, answer or what broke, seconds). What has a 201 is kept in mind."""
        paths = []
        for number in nodes:
            for _ in range(count):
                self.counter += 1
                paths.append((number, f"/{DB}/doc-{self.counter:05}"))
        with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
            return list(pool.map(lambda at: self.write_one(*at, timeout_s), paths))

    def write_one(self, number, path, timeout_s):
        began = time.monotonic()
        try:
            answer = self.cluster.api(number, timeout=timeout_s).put(path, {"by": number})
            if answer.status == 201:
                self.acknowledged[path] = answer.json["rev"]
        except Disconnected as error:
            answer = error
        return path, answer, time.monotonic() - began

    def all_write(self, name, nodes=(1, 2, 3), count=4):
        """Every one of these writes is acknowledged."""
        written = self.write(nodes, count)
        failed = [f"{path} after {seconds:.1f} s: {answer!r}" for path, answer, seconds in written if status_of(answer) != 201]
        return self.report.check(name, not failed, "\n".join(failed))

    def lost(self, nodes, query, paths):
        """What is not as it was acknowledged, at any of these nodes."""

        def look(at):
            number, path = at
            answer = self.cluster.api(number).get(path + query)
            is_there = answer.status == 200 and answer.json["_rev"] == self.acknowledged[path]
            return "" if is_there else f"node {number} {path}, {self.acknowledged[path]}: {answer!r}"

        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            return [*filter(None, pool.map(look, [(number, path) for number in nodes for path in paths]))]

    def all_is_there(self, name, nodes=(1, 2, 3), query="", paths=None):
        """All that was acknowledged, or these documents."""
        paths = self.acknowledged if paths is None else paths
        began = time.monotonic()
        wrong = self.lost(nodes, query, list(paths))
        seconds = time.monotonic() - began
        return self.report.check(name, not wrong, f"{len(wrong)} of {len(nodes) * len(paths)}, after {seconds:.1f} s:\n" + "\n".join(wrong[:6]))

    def whole(self, name, timeout_s=WHOLE_TIMEOUT_S):
        """All nodes are back, take writes, and are equal."""
        why = ""
        try:
            self.cluster.wait_until_whole(timeout_s=timeout_s)
            why = self.cluster.wait_until_equal()
        except RuntimeError as error:
            why = str(error)
        return self.report.check(name, not why, why) and self.all_write(f"{name}, and take writes")

    def reasons(self, number):
        """By slot, what the status of a node says is wrong."""
        status = self.cluster.status(number) or {"slots": []}
        return {slot["slot"]: slot["reason"] for slot in status["slots"] if slot["reason"]}

    def said(self, name, number, word, timeout_s=SAID_TIMEOUT_S):
        """It is in the program's log of a node."""
        node = self.cluster.nodes[number]
        found = wait_until(lambda: word in node.log(), timeout_s, 0.1)
        return self.report.check(name, found, f"wanted {word!r} in the log of node {number}:\n{node.log()[-3000:]}")

    def copies(self):
        """How often each node has taken a slot's state from another one, since its start."""
        return {number: node.log().count("was copied from another node") for number, node in self.cluster.nodes.items()}

    def few_copies(self, before):
        """A copy is made where it helps, not again and again."""
        made = {number: count - before[number] for number, count in self.copies().items()}
        self.report.check("slots were copied a few times at most", max(made.values()) <= COPIES_MAX * (SLOTS + 1), f"node: copies {made}")

    def clean_up(self):
        """After each part: strangers end, and a cluster that is not whole is told to go on, so that the next part finds one that is."""
        for node in self.strangers:
            if node is not self.late:
                node.end(signal.SIGKILL)
        self.strangers = [node for node in self.strangers if node is self.late]
        for disk in self.disks.values():
            give_room(disk)
        if not self.cluster.why_not_whole():
            return
        self.cluster.heal()
        with_reseed = not wait_until(lambda: not self.cluster.why_not_whole(), 10, 0.2)
        if with_reseed:
            self.report.note(f"not whole after this part: {self.cluster.why_not_whole()}")
            self.cluster.try_command("reseed", self.cluster.url_of(1))
        self.cluster.wait_until_whole()

    def stop(self):
        for node in self.strangers:
            node.end(signal.SIGKILL)
        self.cluster.stop()
        self.other_brokers.stop()
        for disk in self.disks.values():
            disk.__exit__()


def status_of(answer):
    return getattr(answer, "status", None)


def fill(disk):
    """All but a little room is taken."""
    free = shutil.disk_usage(disk.path).free
    with open(disk.path / "ballast", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - LEFT_BYTES))
    time.sleep(ROOM_IS_KNOWN_S)


def timed(act):
    began = time.monotonic()
    act()
    return time.monotonic() - began


def give_room(disk):
    (disk.path / "ballast").unlink(missing_ok=True)


def refused(ctx, node, what, *words):
    """A start ends with an error that has these words in it."""
    ended = wait_until(lambda: not node.is_running(), REFUSAL_TIMEOUT_S, 0.05)
    is_clear = ended and node.process.returncode not in (0, 101) and all(word in node.log() for word in words)
    code = node.process.returncode if ended else f"none within {REFUSAL_TIMEOUT_S} s"
    ctx.report.check(f"{what} is refused, and what to do is said", is_clear, f"exit code {code}, wanted {words}:\n{node.log()[-2000:]}")
    return ended


@on_both
def test_other_version(suite, days):
    """A node that speaks another version of the protocol between nodes."""
    certificate = days.cluster.nodes[2].folder / "cluster" / "node.pem"
    for protocol, what in ((2, "update this node"), (0, "update node")):
        answer = greet(days.cluster.nodes[1].address, certificate, protocol)
        suite.report.check(f"a node of version {protocol} is told which of the two to update", what in answer, answer)
        suite.report.check(
            "and so is the log of the other", wait_until(lambda a=answer: a and a in days.cluster.nodes[1].log(), SAID_TIMEOUT_S), answer
        )
    days.all_write("the nodes of one version go on")


@pytest.mark.slow
@on_kafka
def test_unfit_topics(suite, days):
    """Topics that somebody else made, with what a cluster cannot use: what the error says to do helps."""
    address = days.broker
    kafka_records.create_topic(address, "settee.narrow.0.slots", 1, {})
    refused(suite, days.stranger("narrow", "narrow"), "a topic with too few partitions", "settee.narrow.0.slots", "partitions is 1", "has to be 2")
    kafka_records.create_topic(address, "settee.unfit.0.slots", 2, {"cleanup.policy": "compact", "retention.ms": "60000"})
    node = days.stranger("unfit", "unfit")
    for setting in ("cleanup.policy", "retention.ms"):
        refused(suite, node, f"a topic with a wrong {setting}", "settee.unfit.0.slots", setting, "Change it with:")
        remedy = re.search(r"kafka-configs\.sh (--alter \S.*)", node.log())
        if not suite.report.check("a command is named", remedy, node.log()):
            return
        days.cluster.brokers._tool("kafka.admin.ConfigCommand", *remedy[1].split())
        days.start_stranger(node)
    node.wait_until_ready()
    made = wait_until(lambda: days.api_of(node).put("/made").status == 201, SAID_TIMEOUT_S)
    suite.report.check("once all is done that was said, the node makes the topic that is missing and takes writes", made, node.log()[-2000:])


@on_kafka
def test_topic_of_another_cluster(suite, days):
    """A second cluster with the name of one that is there, at the same brokers."""
    one = days.stranger("one", "twins")
    one.wait_until_ready()
    api = days.api_of(one)
    wait_until(lambda: api.put("/kept").status in (201, 412), SAID_TIMEOUT_S)
    revs = {f"/kept/{n}": api.expect(201, "PUT", f"/kept/{n}", {})["rev"] for n in range(4)}
    two = days.stranger("two", "twins")
    taken = "have a log of a cluster twins already"
    said = wait_until(lambda: taken in two.log() or not two.is_running(), REFUSAL_TIMEOUT_S)
    suite.report.check("a second cluster of the same name is told that the topics are another one's", said and taken in two.log(), two.log()[-2000:])
    suite.report.check("and what to do: `settee cluster init` with another name", "--cluster" in two.log(), two.log()[-2000:])
    stopped = wait_until(lambda: "another cluster" in one.log(), WATCHED_S)
    two.end(signal.SIGKILL)
    suite.report.check("it writes nothing into the topics of the first one", not stopped, one.log()[-1500:])
    try:
        answers = [api.put(f"/kept/after-{n}", {}) for n in range(4)]
    except Disconnected as error:
        answers = [error]
    suite.report.equal("and the first one takes writes as before", [status_of(answer) for answer in answers], [201] * 4)
    suite.report.equal("and makes databases", api.put("/made-meanwhile").status, 201)
    seen = [api.get(path + "?r=1").json.get("_rev") for path in revs]
    suite.report.equal("and has what was written", seen, list(revs.values()))


@on_kafka
def test_wrong_brokers(suite, days):
    """Brokers of somebody else: at a node that is new, and at one that has been there."""
    wrong = days.other_brokers.addresses
    fourth = days.cluster.make_node(4, *free_ports(2))
    days.cluster.join(fourth)
    days.strangers.append(fourth)
    days.cluster.start_process(fourth, log=f"kafka://{wrong}")
    refused(suite, fourth, "a new node with other brokers", wrong, "others than those of the other nodes")
    days.cluster.command("leave", days.cluster.url_of(1), "--node", "node4@127.0.0.1")
    third = days.restart(3, kafka_address=wrong, waits=False)
    said = wait_until(lambda: wrong in third.log(), REFUSAL_TIMEOUT_S)
    suite.report.check("a node that has been there says which brokers have none of its topics", said, third.log()[-2000:])
    # It may end, or go on by way of the others.
    wait_until(lambda: not third.is_running(), 3)
    words = ("others than", "other brokers", "wrong brokers", "[cluster] log")
    suite.report.check("and that they may be wrong ones", any(word in third.log() for word in words), third.log()[-2000:])
    days.all_write("the others take writes meanwhile", nodes=(1, 2))
    third.end(signal.SIGTERM)
    command = [days.cluster.binary, "serve", "--data", third.folder, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=REFUSAL_TIMEOUT_S, check=False)
    is_clear = done.returncode == 2 and "whose log is in Kafka" in done.stderr
    suite.report.check("without a setting it makes no log of its own", is_clear, done)
    days.cluster.start_process(third, log="nodes")
    said = wait_until(lambda: "`settee cluster reseed` moves it" in third.log(), REFUSAL_TIMEOUT_S)
    suite.report.check("a node with another log in its settings goes on with Kafka, and says how the log is moved", said, third.log()[-2000:])
    days.restart(3)
    days.whole("with its own brokers it is as the others")


@on_both
def test_full_disk_at_one(suite, days):
    if skipped_disk(suite, days):
        return
    fill(days.disks[2])
    days.all_write("the disk of one node is full: writes through every node are acknowledged", count=8)
    said = wait_until(lambda: any("the disk is full" in reason for reason in days.reasons(2).values()), SAID_TIMEOUT_S)
    suite.report.check("its status says that the disk is full", said, days.reasons(2))
    shown = days.cluster.command("status", days.cluster.url_of(2))
    suite.report.check("and how much room it needs", "are needed" in shown, shown)
    days.said("and so does its log", 2, "the disk is full")
    latest = list(days.acknowledged)[-8:]
    began = time.monotonic()
    days.all_is_there("it reads what the others have", nodes=(2,), paths=latest)
    seconds = time.monotonic() - began
    days.all_is_there("and so do they", nodes=(1, 3))
    api = Api(days.cluster.nodes[2].url, ADMIN)
    times = sorted(timed(lambda p=path: api.expect(200, "GET", p)) for path in latest)
    other = Api(days.cluster.nodes[1].url, ADMIN)
    control = sorted(timed(lambda p=path: other.expect(200, "GET", p)) for path in latest)
    suite.report.note(
        f"{len(latest)} reads at once there take {seconds:.2f} s, one by one {times[0]:.2f} to {times[-1]:.2f} s each;"
        f" at a node with room {control[0]:.3f} to {control[-1]:.3f} s"
    )
    usual, elsewhere = times[len(times) // 2], control[len(control) // 2]
    suite.report.check("its reads are answered by others without delay, after the first ones", usual < max(1, 20 * elsewhere), (times, control))
    lines = days.cluster.nodes[2].log().count("the disk is full")
    suite.report.check("its log says so a few times, not on and on", lines <= LINES_MAX * (SLOTS + 1), f"{lines} lines")
    give_room(days.disks[2])
    days.whole("with room again it catches up, and all are equal")


@pytest.mark.slow
@pytest.mark.parametrize("full", [(2, 3), (1, 2, 3)], ids=["two", "three"])
@on_both
def test_full_disks_at_most_nodes(suite, days, full):
    if skipped_disk(suite, days):
        return
    for number in full:
        fill(days.disks[number])
    before = list(days.acknowledged)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writing = pool.submit(days.write, (1, 2, 3), 4)
        for number in full:
            said = wait_until(lambda n=number: any("the disk is full" in reason for reason in days.reasons(n).values()), SAID_TIMEOUT_S)
            suite.report.check(f"the disks of {len(full)} nodes are full: node {number} says so", said, days.reasons(number))
        days.all_is_there("what was acknowledged is read with r=1 meanwhile", query="?r=1", paths=before)
        written = writing.result()
    statuses = sorted({status_of(answer) for _, answer, _ in written}, key=str)
    longest = max(seconds for *_, seconds in written)
    # What the engine keeps free depends on what it has in memory, so some may find room.
    odd = [f"{path}: {answer!r}" for path, answer, _ in written if status_of(answer) not in (201, 202, 503, 507)]
    suite.report.check("writes are refused with a 503 or 507, or are a 202 of a node that has room", not odd, "\n".join(odd[:8]))
    refusals = [answer for _, answer, _ in written if status_of(answer) != 201]
    suite.report.check("not all of them find room", refusals, statuses)
    suite.report.check(f"within {ANSWER_TIMEOUT_S} s", longest < ANSWER_TIMEOUT_S, f"{longest:.1f} s")
    suite.report.note(f"refused with {statuses} after {longest:.1f} s at most: {written[0][1]!r}")
    some = suite.random.sample(before, 12)
    for number in (1, 2, 3):
        days.all_is_there(f"node {number} reads what was acknowledged before", nodes=(number,), paths=some)
    for disk in days.disks.values():
        give_room(disk)
    days.whole("with room again all go on, and are equal")
    days.all_is_there("and nothing is lost")


def skipped_disk(ctx, days):
    why = next((disk.refused for disk in days.disks.values() if disk.refused), None)
    if why:
        ctx.report.skip("full disk", why)
    return why


def skipped_clock(ctx, days):
    if days.clock.refused:
        ctx.report.skip("wrong clocks", days.clock.refused)
    return days.clock.refused


@on_both
def test_clocks_an_hour_off(suite, days):
    """One node is an hour ahead, one an hour behind."""
    if skipped_clock(suite, days):
        return
    fifth = days.cluster.make_node(5, *free_ports(2))
    token = days.cluster.command("token", days.cluster.url_of(1)).strip()
    join = ["join", "--data", fifth.folder, "--token", token, "--name", "node5", "--address", fifth.address]
    with days.clock.off_by(2 * HOUR_S):
        done = days.cluster.try_command(*join)
    suite.report.check(
        "a token that a wrong clock takes for expired is refused with a word on the clock", done.returncode == 1 and "clock" in done.stderr, done
    )
    with days.clock.off_by(HOUR_S // 2):
        done = days.cluster.try_command(*join)
    suite.report.equal("the same token lets a node join whose clock is half an hour off", (done.returncode, done.stderr), (0, ""))
    days.cluster.command("leave", days.cluster.url_of(1), "--node", "node5@127.0.0.1")
    for number, seconds in ((2, HOUR_S), (3, -HOUR_S)):
        days.restart(number, clock_s=seconds)
        off = days.cluster.api(number).get("/").headers["Date"]
        suite.report.note(f"node {number} takes the time for {off}")
    days.whole("an hour ahead and an hour behind: the nodes are one cluster")
    days.all_is_there("and read what was written")
    before = time.monotonic()
    copied = days.cluster.api(3).post(
        "/_replicate", {"source": f"{days.cluster.url_of(2)}/{DB}", "target": f"{days.cluster.url_of(1)}/copy", "create_target": True}
    )
    count = days.cluster.api(1).get("/copy").json.get("doc_count")
    suite.report.check(
        f"replication between them is whole after {time.monotonic() - before:.1f} s",
        copied.status == 200 and count == days.cluster.api(1).get(f"/{DB}").json["doc_count"],
        f"{copied!r}, {count}",
    )
    for number in (2, 3):
        days.restart(number)
    days.whole("with right clocks again all are equal")


def certificate_of(node):
    return node.folder / "cluster" / "node.pem"


@on_both
def test_expired_certificate(suite, days):
    """A node goes on with a certificate that ended, as its clock is months behind."""
    if skipped_clock(suite, days):
        return
    first = days.cluster.nodes[1]
    days.cluster.kill(1)
    now = certificate_of(first).read_bytes()
    certificate_of(first).write_bytes(days.old_certificate)
    days.restart(1, clock_s=-95 * DAY_S)
    days.said("an expired certificate: another node names the node, and what to do", 2, "has expired: restart settee there")
    days.said("and that it may be the clock", 2, "correct the clock")
    days.said("the node itself says what is wrong", 1, "correct the clock")
    days.all_write("the others go on", nodes=(2, 3))
    days.restart(1)
    suite.report.check("started as it says, it has a new certificate", certificate_of(first).read_bytes() not in (now, days.old_certificate))
    days.whole("and is one of them again")


@on_both
def test_certificate_of_the_future(suite, days):
    """A node was started with a clock that is months ahead, and made itself a certificate."""
    if skipped_clock(suite, days):
        return
    third = days.cluster.nodes[3]
    good = certificate_of(third).read_bytes()
    days.restart(3, clock_s=100 * DAY_S)
    days.said("a certificate of the future: another node says that it is the clock", 1, "is not valid yet: correct the clock")
    days.all_write("the others go on", nodes=(1, 2))
    days.restart(3)
    if not days.whole("with a right clock, it is one of them again"):
        third.end(signal.SIGTERM)
        certificate_of(third).write_bytes(good)


@on_kafka
def test_records_that_are_none(suite, days):
    """Another program writes to the topic of the slots: nonsense, a record of another cluster, and one of a newer version."""
    home = json.loads((days.cluster.nodes[1].folder / "cluster" / "member.json").read_text(encoding="utf-8"))
    rest = bytes([0, 0, 0]) + suite.random.randbytes(80)
    odd = {
        0: (suite.random.randbytes(100), "is damaged"),
        1: (b"\1" + suite.random.randbytes(16) + rest, "another cluster"),
        2: (b"\x63" + bytes.fromhex(home["cluster"]["id"]) + rest, "update this node"),
    }
    before = days.copies()
    for slot, (record, _) in odd.items():
        kafka_records.append(days.broker, SLOTS_TOPIC, slot, record)
    for slot, (_, words) in odd.items():
        days.said(f"slot {slot}: the log says what is wrong with the record", 1, words)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writing = pool.submit(days.write, (1, 2, 3), 6)
        halted = wait_until(lambda: all({*map(str, odd)} <= {*days.reasons(number)} for number in (1, 2, 3)), SAID_TIMEOUT_S)
        suite.report.check("the slots with such records stop at all nodes, and have a reason", halted, [days.reasons(number) for number in (1, 2, 3)])
        shown = days.cluster.command("status", days.cluster.url_of(2))
        suite.report.check("`settee cluster status` names what to do", "reseed" in shown, shown)
        days.all_is_there("what was acknowledged is read with r=1", query="?r=1")
        time.sleep(WATCHED_S)
        days.few_copies(before)
        if suite.soak:
            writing.result()
        reseed(suite, days)
        written = writing.result()
    odd = [f"{path} after {seconds:.1f} s: {answer!r}" for path, answer, seconds in written if status_of(answer) not in (201, 202, 503)]
    longest = max(seconds for *_, seconds in written)
    suite.report.check(
        f"writes meanwhile are acknowledged, or a 503 within {ANSWER_TIMEOUT_S} s", not odd and longest < ANSWER_TIMEOUT_S, "\n".join(odd)
    )
    days.all_is_there("what was acknowledged meanwhile is there")


@on_kafka
def test_record_that_is_none_in_control(suite, days):
    kafka_records.append(days.broker, CONTROL_TOPIC, 0, b"nonsense")
    halted = wait_until(lambda: all("control" in days.reasons(number) for number in (1, 2, 3)), SAID_TIMEOUT_S)
    suite.report.check("a record that is none in control: it stops, and has a reason", halted, days.reasons(1))
    days.all_write("documents are written as before")
    reseed(suite, days)
    suite.report.equal("databases are made again", days.cluster.api(2).put("/made-after").status, 201)


def reseed(ctx, days):
    """What the manual says to do when the log is not what was written."""
    began = time.monotonic()
    done = days.cluster.try_command("reseed", days.cluster.url_of(2))
    ctx.report.equal("`settee cluster reseed` does", (done.returncode, done.stderr), (0, ""))
    if not days.whole("after it all slots go on at all nodes, and are equal"):
        return
    ctx.report.note(f"they go on {time.monotonic() - began:.1f} s after it")
    days.all_is_there("and nothing is lost")


@pytest.mark.slow
@on_kafka
def test_record_damaged_at_the_broker(suite, days):
    """A bit flips on the broker's disk, in a record that two nodes have and the third has not."""
    cluster = days.cluster
    cluster.kill(3)
    days.all_write("a node is off: the others write", nodes=(1, 2), count=8)
    broker = cluster.brokers.brokers[1]
    broker.end(signal.SIGTERM)
    for slot in range(SLOTS):
        flip_last(broker.folder / f"{SLOTS_TOPIC}-{slot}")
    broker.start()
    broker.wait_until_ready()
    cluster.restart(3)
    before = days.copies()
    # The broker leads anew: whoever follows makes sure first that the log is still the same.
    odd = [f"{path}: {answer!r}" for path, answer, _ in days.write((1, 2)) if status_of(answer) not in (201, 202, 503)]
    suite.report.check("records are damaged on the broker's disk: writes are acknowledged, or a 503", not odd, odd)
    if cluster.wait_until_equal(timeout_s=WATCHED_S):
        words = ("cannot read offset", "is damaged", "is not read")

        def reasons():
            return [reason for number in (1, 2, 3) for reason in days.reasons(number).values()]

        def say_so():
            return all(any(word in reason for word in words) for reason in reasons())

        suite.report.check("who cannot read them says so", wait_until(say_so, SAID_TIMEOUT_S), reasons())
        days.all_is_there("what was acknowledged is read with r=1", nodes=(1, 2), query="?r=1")
        reseed(suite, days)
    days.whole("the nodes go on, and are equal", timeout_s=SAID_TIMEOUT_S)
    days.few_copies(before)


def flip_last(folder):
    """Flips a bit in the last record of a partition."""
    path = max(path for path in folder.glob("*.log") if path.stat().st_size)
    with open(path, "r+b") as file:
        file.seek(-20, os.SEEK_END)
        (byte,) = file.read(1)
        file.seek(-20, os.SEEK_END)
        file.write(bytes([byte ^ 4]))


@on_kafka
def test_topics_gone_while_off(suite, days):
    """Kafka lost its topics while no node ran: they start, say so, and go on once they are told to."""
    cluster = days.cluster
    cluster.stop_nodes()
    for topic in (SLOTS_TOPIC, CONTROL_TOPIC):
        kafka_records.delete_topic(days.broker, topic)
    for node in cluster.nodes.values():
        cluster.start_process(node)
    nodes = cluster.nodes.values()
    started = wait_until(lambda: all(READY in node.log() for node in nodes) or not all(node.is_running() for node in nodes), SAID_TIMEOUT_S)
    is_up = started and all(node.is_running() for node in nodes)
    last = "\n".join(node.log()[-800:] for node in nodes)
    if suite.report.check("all topics are gone while no node runs: the nodes start all the same", is_up, last):
        days.all_is_there("and read what they have with r=1", query="?r=1")
    else:
        # By hand, with the next number, as `reseed` would.
        cluster.stop_nodes()
        for topic, partitions in (("settee.main.1.slots", SLOTS), ("settee.main.1.control", 1)):
            kafka_records.create_topic(days.broker, topic, partitions, {"retention.ms": "259200000"})
        for node in nodes:
            cluster.start_process(node)
        for node in nodes:
            node.wait_until_ready()
    reseed(suite, days)


@with_log(OWN)
def test_a_lost_part_of_the_log(suite, days):
    """A node's part of the log is gone, as a disk is: the node gets another id in the log, and everything again."""
    cluster = days.cluster
    disks = log_disks(cluster)
    cluster.kill(3)
    cluster.lose_log(3)
    days.all_write("a part of the log is gone: the others write", nodes=(1, 2))
    cluster.restart(3)
    days.whole("the node is back with an empty one")
    after = log_disks(cluster)
    suite.report.check("it is another disk for the others", after[3] != disks[3] and after[1] == disks[1], (disks, after))
    cluster.kill(1)
    days.all_write("it counts among those that keep the log: another one is killed", nodes=(2, 3))
    cluster.heal()
    days.whole("and comes back")


def takes_no_writes(status):
    return status is not None and not any(slot["takes_writes"] for slot in status["slots"])


def log_disks(cluster):
    """The ids of the disks of the log, by node."""
    return {number: cluster.status(number)["log"]["disk"] for number in cluster.nodes}


@with_log(OWN)
def test_a_lost_log(suite, days):
    """Most nodes lost their parts of the log: it is gone, and an administrator has it begun anew."""
    cluster = days.cluster
    cluster.stop_nodes()
    for number in (1, 2):
        cluster.lose_log(number)
    for node in cluster.nodes.values():
        cluster.start_process(node)
    for node in cluster.nodes.values():
        node.wait_until_ready()
    days.all_is_there("the log is gone: what was acknowledged is read with r=1", query="?r=1")
    # Node 3 has its part of the log, node 2 has none.
    for number in (2, 3):
        seen = wait_until(lambda number=number: takes_no_writes(cluster.status(number)), SAID_TIMEOUT_S)
        suite.report.check(f"the status of node {number} says that no slot takes writes", seen, cluster.status(number))
        plan = cluster.command("reseed", "--dry-run", cluster.url_of(number))
        suite.report.check("and reseed --dry-run that none works", "needs no new generation" not in plan, plan)
    reseed(suite, days)
    numbers = {number: cluster.status(number)["log"]["number"] for number in cluster.nodes}
    suite.report.check("all nodes have another log", len(set(numbers.values())) == 1 and numbers[1] > 0, numbers)
    cluster.restart(3)
    kept = sorted(path.name for path in (cluster.nodes[3].folder / "cluster" / "log").iterdir())
    suite.report.equal("a node that starts removes the one before", kept, [str(numbers[3])])
    days.whole("and is one of them")


@pytest.mark.slow
def test_the_log_moves(ctx):
    """From the nodes to Kafka and back, with data, while clients write."""
    cluster = FaultyCluster(ctx, "moves", brokers=1)
    report, acknowledged = ctx.report, {}

    def write(name):
        for number, api in cluster.apis(timeout=60).items():
            for i in range(20):
                path = f"/moves/{name}-{number}-{i}"
                answer = api.put(path, {"n": i})
                if answer.status == 201:
                    acknowledged[path] = answer.json["rev"]

    def move(log, name):
        cluster.log = log
        for number in cluster.nodes:
            cluster.restart(number)
        cluster.wait_until_whole()
        write(f"before-{name}")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write, f"during-{name}")
            done = cluster.try_command("reseed", cluster.url_of(2))
            report.equal(f"{name}: reseed", (done.returncode, done.stderr), (0, ""))
            moved = wait_until(
                lambda: all((cluster.status(number) or {}).get("log", {}).get("kept_by") == log for number in cluster.nodes), WHOLE_TIMEOUT_S
            )
            report.check(f"{name}: all nodes have it there", moved, [cluster.status(number) for number in cluster.nodes])
            cluster.wait_until_whole()
            writing.result()
        write(f"after-{name}")
        report.equal(f"{name}: all are equal", cluster.wait_until_equal(), "")
        wrong = [
            f"node {number} {path}: {answer!r}"
            for number, api in cluster.apis().items()
            for path, rev in acknowledged.items()
            if (answer := api.get(path)).status != 200 or answer.json["_rev"] != rev
        ]
        report.check(f"{name}: all {len(acknowledged)} acknowledged documents are there", not wrong, "\n".join(wrong[:8]))

    try:
        cluster.start()
        cluster.api(1).expect(201, "PUT", "/moves?q=4")
        log = cluster.status(1)["log"]
        report.equal("at first the nodes keep it", (log["kept_by"], log["number"]), ("nodes", 0))
        move(KAFKA, "to Kafka")
        move(OWN, "to the nodes")
    finally:
        cluster.stop()


@on_kafka
def test_missing_brokers(suite, days):
    """They do not come within a minute."""
    node = days.late
    ended = wait_until(lambda: not node.is_running(), BROKERS_TIMEOUT_S, 0.1)
    is_clear = ended and node.process.returncode == 1 and "cannot be reached at 127.0.0.1:1" in node.log()
    suite.report.check("a node whose brokers never come ends, and says where it looked for them", is_clear, node.log()[-2000:])


def test_nothing_is_lost(suite, days):
    days.all_is_there(f"all {len(days.acknowledged)} acknowledged documents are there at every node")
    why = days.cluster.wait_until_equal()
    suite.report.check("all replicas are equal", not why, why)
    days.logs += [node.log() for node in days.cluster.nodes.values()]
    panics = [log[-1000:] for log in days.logs if "panicked" in log]
    suite.report.check("no panic", not panics, panics)

"""What operators see of a cluster: each metric moves under a staged fault and returns, each alert fires and stops, the dashboard has
values, `settee top --all` and `settee cluster bench-network` show all nodes."""

import json
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import kafka_records
from harness.api import Api, Disconnected
from harness.faulty_cluster import ADMIN, ENGINES, KAFKA, OWN, FaultyCluster, with_log
from harness.prometheus import Prometheus, metrics
from harness.server import wait_until

pytestmark = [pytest.mark.on_disk, pytest.mark.may_be_retried]

SLOTS = 4
ALL_SLOTS = SLOTS + 1
NODES = (1, 2, 3)
TOPIC = "settee.main.0.slots"
WRITES = 20
SEEN_TIMEOUT_S = 60
STOPS_TIMEOUT_S = 120
REQUEST_TIMEOUT_S = 60
STEPS = ("queue", "log", "apply", "acknowledge")
# Alerts have their thresholds for minutes; a test does not.
LAG_S = 2
TRANSFER_BYTES_MAX = 64 << 20


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"seen-{request.param}", log=request.param, has_links=True, slots=SLOTS)
    try:
        cluster.start()
        cluster.api(1).expect(201, "PUT", "/seen")
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def prometheus(suite, cluster):
    prometheus = Prometheus(suite, None, text=config(suite, cluster))
    yield prometheus
    prometheus.end()


def printed(ctx, what):
    return subprocess.run([ctx.binary, "monitoring", what], capture_output=True, text=True, check=True, timeout=30).stdout


def config(ctx, cluster):
    """All nodes are scraped each second; rules fire soon."""
    rules = ctx.folder("rules") / "alerts.yml"
    # What was so within the last minute fires; the suite `alerts` tests the rules as they are.
    text = re.sub(r"for: \d+m", "for: 1s", printed(ctx, "alerts")).replace("[1m]", "[5s]")
    rules.write_text(text.replace("settee_cluster_lag_seconds > 60", f"settee_cluster_lag_seconds > {LAG_S}"))
    name, password = ADMIN.split(":")
    scraped = {
        "job_name": "settee",
        "metrics_path": "/_node/_local/_prometheus",
        "basic_auth": {"username": name, "password": password},
        "static_configs": [{"targets": [node.url.removeprefix("http://") for node in cluster.nodes.values()]}],
    }
    interval = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return json.dumps({"global": interval, "scrape_configs": [scraped], "rule_files": [str(rules)]})


class Seen:
    """The metrics of the nodes, asked again until they are as expected."""

    def __init__(self, ctx, cluster, prometheus):
        self.report, self.cluster, self.prometheus = ctx.report, cluster, prometheus

    def of(self, number):
        return metrics(Api(self.cluster.nodes[number].url, ADMIN, REQUEST_TIMEOUT_S))

    def get(self, number, name, **labels):
        """None while the node does not answer."""
        try:
            return self.of(number)(name, **labels)
        except (OSError, Disconnected, AttributeError):
            return None

    def becomes(self, what, number, name, expected, **labels):
        """`expected` is a number, or a function of it."""
        fits = expected if callable(expected) else lambda value: value == expected
        found = []

        def is_so():
            found[:] = [self.get(number, name, **labels)]
            return found[0] is not None and fits(found[0])

        return self.report.check(f"{what}: {name} of node {number}", wait_until(is_so, SEEN_TIMEOUT_S, 0.1), found)

    def all_become(self, what, number, expected):
        """`expected` has numbers by name, which are all so at the same time."""
        found = {}

        def are_so():
            found.clear()
            try:
                now = self.of(number)
            except (OSError, Disconnected, AttributeError):
                return False
            found.update({name: now(name) for name in expected})
            return found == expected

        wait_until(are_so, SEEN_TIMEOUT_S, 0.1)
        for name, value in expected.items():
            self.report.check(f"{what}: {name} of node {number}", found.get(name) == value, found)

    def firing(self, name):
        return bool(self.prometheus.query(f'ALERTS{{alertstate="firing",alertname="{name}"}}'))

    def fires(self, *names):
        for name in names:
            self.report.check(f"{name} fires", wait_until(lambda name=name: self.firing(name), SEEN_TIMEOUT_S, 0.2))

    def stops(self, *names):
        for name in names:
            self.report.check(f"{name} stops", wait_until(lambda name=name: not self.firing(name), STOPS_TIMEOUT_S, 0.2))

    def is_well(self, what):
        """All that a fault moves is as it is without one, and no alert of the cluster fires."""
        healthy = {
            f"settee_cluster_{name}": expected
            for name, expected in {
                "log_up": 1,
                "fit": 1,
                "members": 3,
                "members_down": 0,
                "node_live": 2,
                "slots_all": ALL_SLOTS,
                "slots_under_replicated": 0,
                "slots_halted": 0,
                "slots_refusing": 0,
                "lag_records": 0,
                "lag_seconds": 0,
                "unstable_records": 0,
                "waiting_writes": 0,
                "messages_waiting": 0,
                "messages_waiting_bytes": 0,
            }.items()
        }
        for number in NODES:
            self.all_become(what, number, healthy)
        quiet = lambda: not self.prometheus.query('ALERTS{alertstate="firing",alertname=~"SetteeCluster.*"}')
        self.report.check(f"{what}: no alert of the cluster fires", wait_until(quiet, STOPS_TIMEOUT_S, 0.2))


@pytest.fixture
def seen(suite, cluster, prometheus):
    seen = Seen(suite, cluster, prometheus)
    yield seen
    cluster.heal()
    why = cluster.wait_until_equal()
    suite.report.check("all nodes are equal again", not why, why)
    seen.is_well("after the fault")


def write(cluster, number, count=WRITES):
    api = cluster.api(number)
    for _ in range(count):
        api.expect(201, "POST", "/seen", {"text": "x" * 100})


def in_background(act):
    """What an act of a client ends with is not what is looked at."""

    def carry_out():
        try:
            act()
        except (OSError, Disconnected):
            pass

    thread = threading.Thread(target=carry_out, daemon=True)
    thread.start()
    return thread


def test_a_server_alone_has_no_such_metrics(ctx):
    with ctx.server("alone") as server:
        api = server.api()
        ctx.report.check("no metric of a cluster", "settee_cluster" not in metrics(api).text)
        ctx.report.check("nor in the tree", "cluster" not in api.get("/_node/_local/_stats").json["settee"])
        ctx.report.equal("nothing is measured", api.post("/_settee/cluster/bench-network", {}).status, 404)
        url = server.url.replace("http://", f"http://{server.admin}@")
        frame = json.loads(run(ctx, "top", url, "--all", "--once", "--json"))
        ctx.report.equal("top --all has no rows of nodes", frame["nodes"], [])


def test_a_healthy_cluster(suite, cluster, seen):
    report = suite.report
    seen.is_well("at first")
    before = {number: seen.of(number) for number in NODES}
    write(cluster, 1)
    after = {number: seen.of(number) for number in NODES}
    grown = lambda number, name, **labels: after[number](f"settee_cluster_{name}", **labels) - before[number](f"settee_cluster_{name}", **labels)
    for step in STEPS:
        report.check(f"each write has the step {step}", grown(1, "write_seconds_count", step=step) >= WRITES, after[1].text)
        report.check(f"and a time of it: {step}", grown(1, "write_seconds_sum", step=step) > 0, after[1].text)
        report.check(f"which is in no node that proposed nothing: {step}", grown(2, "write_seconds_count", step=step) < WRITES, after[2].text)
    for name in ("messages_sent_total", "messages_sent_bytes_total", "messages_received_total", "messages_received_bytes_total"):
        for number in NODES:
            by = after[number].by(f"settee_cluster_{name}", "node")
            report.check(f"node {number}: {name} of each other node grows", len(by) == 2 and grown(number, name) > 0, by)
    report.equal("nothing was dropped", [grown(number, "messages_dropped_total") for number in NODES], [0, 0, 0])
    if cluster.log == OWN:
        own_log(report, seen, grown)
    led = lambda: sum(seen.get(number, "settee_cluster_slots_led") or 0 for number in NODES)
    report.check("each slot has one node that organizes it", wait_until(lambda: led() == ALL_SLOTS, SEEN_TIMEOUT_S), led())
    gathered = seen.get(1, "settee_cluster_forwarded_gathered_total")
    cluster.api(1).expect(200, "GET", "/_active_tasks")
    report.check("parts of responses are counted", seen.get(1, "settee_cluster_forwarded_gathered_total") >= gathered + 2)
    report.equal("no metric twice", [after[number].doubled for number in NODES], [[], [], []])
    names = {name for name, *_ in after[1].samples}
    is_typed = lambda name: any(name == t or name.removesuffix(s) == t for t in after[1].types for s in ("_sum", "_count", "_bucket"))
    report.equal("every sample has a type", [name for name in names if not is_typed(name)], [])
    tree = cluster.api(1).expect(200, "GET", "/_node/_local/_stats/settee/cluster")
    report.equal("_stats has them, too", (tree["members"]["value"], tree["slots"]["all"]["value"]), (3, ALL_SLOTS))


def own_log(report, seen, grown):
    for name, expected in (("nodes", 3), ("unsettled", 0), ("leaderless", 0), ("halted", 0)):
        for number in NODES:
            seen.becomes("the log that the nodes keep", number, f"settee_cluster_log_{name}", expected)
    led = lambda: sum(seen.get(number, "settee_cluster_log_led") or 0 for number in NODES)
    report.check("the log of each slot has one leader", wait_until(lambda: led() == ALL_SLOTS, SEEN_TIMEOUT_S), led())
    for number in NODES:
        report.check(f"node {number} syncs what is written", grown(number, "log_sync_seconds_count") > 0)
        seen.becomes("the log that the nodes keep", number, "settee_cluster_log_bytes", lambda size: size > 0)


@with_log(KAFKA)
def test_without_the_log(cluster, seen):
    forwarded = lambda: sum(seen.get(2, f"settee_cluster_forwarded_{what}_total") or 0 for what in ("writes", "requests"))
    before = forwarded()
    cluster.cut_from_brokers(2)
    for name in ("log_up", "fit"):
        seen.becomes("cut from the log", 2, f"settee_cluster_{name}", 0)
        for number in (1, 3):
            seen.becomes("cut from the log", number, f"settee_cluster_{name}", 1)
    write(cluster, 1)
    # It hears from the others how far the log reaches.
    seen.becomes("cut from the log", 2, "settee_cluster_lag_records", lambda records: records >= 1)
    seen.becomes("cut from the log", 2, "settee_cluster_lag_seconds", lambda seconds: seconds > LAG_S)
    write(cluster, 2)
    seen.report.check("its writes are forwarded", forwarded() >= before + WRITES, (before, forwarded()))
    seen.fires("SetteeClusterNoLog", "SetteeClusterUnfit", "SetteeClusterBehind")
    cluster.heal()
    seen.stops("SetteeClusterNoLog", "SetteeClusterUnfit", "SetteeClusterBehind")


def test_without_the_others(cluster, seen):
    at_cut = lambda: Api(cluster.nodes[3].url, ADMIN, REQUEST_TIMEOUT_S)
    # It was brought up to date a moment ago: for 2 s it takes writes, which then wait for the others.
    at_cut().expect(201, "POST", "/seen", {})
    cluster.cut_from_peers(3)
    clients = [in_background(lambda: at_cut().post("/seen", {})) for _ in range(5)]
    seen.becomes("writes at a node that is cut off", 3, "settee_cluster_waiting_writes", lambda waiting: waiting > 0)
    seen.becomes("cut from the others", 3, "settee_cluster_fit", 0)
    seen.becomes("cut from the others", 3, "settee_cluster_members_down", 2)
    seen.becomes("cut from the others", 3, "settee_cluster_node_live", 0)
    for number in (1, 2):
        seen.becomes("one node is cut off", number, "settee_cluster_members_down", 1)
        seen.becomes("one node is cut off", number, "settee_cluster_node_live", 1)
    for number in NODES:
        seen.becomes("one node is cut off", number, "settee_cluster_slots_under_replicated", ALL_SLOTS)
    write(cluster, 1)
    seen.becomes("one node is cut off", 1, "settee_cluster_messages_waiting", lambda waiting: waiting > 0)
    seen.becomes("one node is cut off", 1, "settee_cluster_messages_waiting_bytes", lambda waiting: waiting > 0)
    if cluster.log == KAFKA:
        # It reads the log, and does not hear who else has what it read.
        seen.becomes("cut from the others", 3, "settee_cluster_unstable_records", lambda records: records > 0)
    else:
        seen.becomes("cut from the others, which keep the log", 3, "settee_cluster_log_up", 0)

    def read():
        clients.append(in_background(lambda: at_cut().get("/seen")))
        return (seen.get(3, "settee_cluster_waiting_reads") or 0) > 0

    seen.report.check("reads at a node that is cut off wait", wait_until(read, SEEN_TIMEOUT_S, 0.1))
    seen.fires("SetteeClusterUnfit", "SetteeClusterNodeDown", "SetteeClusterUnderReplicated")
    cluster.heal()
    for client in clients:
        client.join()
    seen.stops("SetteeClusterUnfit", "SetteeClusterNodeDown", "SetteeClusterUnderReplicated")


@with_log(KAFKA)
def test_forwards_that_fail(cluster, seen):
    """A node without the log asks the others, which stand still, before it notices."""
    before = seen.get(2, "settee_cluster_forwarded_failures_total")
    cluster.cut_from_brokers(2)
    seen.becomes("cut from the log", 2, "settee_cluster_fit", 0)
    for number in (1, 3):
        cluster.pause(number)
    client = in_background(lambda: Api(cluster.nodes[2].url, ADMIN, REQUEST_TIMEOUT_S).post("/seen", {}))
    seen.becomes("the others stand still", 2, "settee_cluster_forwarded_failures_total", lambda count: count > before)
    cluster.heal()
    client.join()


def test_contents_that_are_not_copied(cluster, seen):
    """An attachment is sent to the nodes in reach; the one that is cut off fetches it later."""
    before = {number: seen.of(number) for number in NODES}
    grows = lambda what, number, name: seen.becomes(what, number, name, lambda value: value > before[number](name))
    cluster.cut_from_peers(3)
    # The log has the records meanwhile: it lacks contents, and nothing else.
    for i in range(3):
        answer = cluster.api(1).put(f"/seen/attached-{i}/file", bytes(500_000), headers={"Content-Type": "image/png"})
        seen.report.equal("two of three nodes are enough", answer.status, 201)
    name = "settee_cluster_contents_"
    grows("a node is cut off", 1, f"{name}failures_total")
    grows("an upload", 1, f"{name}staged_total")
    grows("an upload", 1, f"{name}sent_bytes_total")
    grows("an upload", 2, f"{name}received_bytes_total")
    cluster.heal()
    grows("the node reaches the others again", 3, f"{name}fetched_total")
    grows("the node reaches the others again", 3, f"{name}received_bytes_total")


@with_log(KAFKA)
def test_a_node_that_is_copied_to(cluster, seen):
    """One that was down for longer than the log keeps records."""
    cluster.kill(3)
    write(cluster, 1)
    for number in (1, 2):
        seen.becomes("a node is down", number, "settee_cluster_members_down", 1)
    seen.fires("SetteeClusterNodeDown", "SetteeClusterUnderReplicated")
    sent = lambda: sum(seen.get(number, "settee_cluster_copies_sent_total") for number in (1, 2))
    before = sent()
    ends = {slot["slot"]: slot["next_offset"] for slot in cluster.status(1)["slots"] if slot["slot"] != "control"}
    for slot, end in ends.items():
        if end > 0:
            cluster.brokers.truncate_topic(TOPIC, int(slot), end)
    cluster.restart(3)
    seen.becomes("a node that missed records", 3, "settee_cluster_copies_installed_total", lambda copies: copies > 0)
    seen.becomes("a node that missed records", 3, "settee_cluster_copies_received_bytes_total", lambda count: count > 0)
    seen.report.check("the others have sent them", sent() > before, (before, sent()))
    seen.stops("SetteeClusterNodeDown", "SetteeClusterUnderReplicated")


def run(ctx, *arguments):
    done = subprocess.run([ctx.binary, *arguments], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def test_top(suite, cluster, seen):
    report = suite.report
    watcher = {"name": "watcher", "password": "secret", "roles": ["_metrics"], "type": "user"}
    cluster.api(1).expect(201, "PUT", "/_users/org.couchdb.user:watcher", watcher)
    names = [node["name"] for node in cluster.status(1)["nodes"]]
    url = cluster.nodes[2].url
    stop = threading.Event()

    def load(number):
        api = cluster.api(number)
        while not stop.is_set():
            api.post("/seen", {"n": 1})

    writers = [threading.Thread(target=load, args=(number,)) for number in NODES]
    for writer in writers:
        writer.start()
    try:
        for credentials in (ADMIN, "watcher:secret"):
            frame = json.loads(run(suite, "top", url.replace("//", f"//{credentials}@"), "--all", "--once", "--json"))
            report.equal("all nodes are shown", sorted(node["name"] for node in frame["nodes"]), sorted(names))
            report.equal("and are well", {node["state"] for node in frame["nodes"]}, {"ok"})
            per_node = [node["per_s"] for node in frame["nodes"]]
            report.check("each has its requests, and together they have their sum", min(per_node) > 0, per_node)
            report.check("which is that of the nodes", abs(sum(per_node) - frame["requests_per_s"]) < 0.01, (per_node, frame["requests_per_s"]))
            report.check("each sends messages", min(node["messages_bytes_per_s"] for node in frame["nodes"]) > 0, frame["nodes"])
            written = [route["per_s"] for route in frame["routes"] if route["route"] == "document_write"]
            report.check("classes of requests are sums", len(written) == 1 and written[0] <= frame["requests_per_s"] * 1.01, frame["routes"])
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    text = run(suite, "top", url.replace("//", f"//{ADMIN}@"), "--all", "--once")
    report.check("--once prints the table", "lag s" in text and all(name in text for name in names), text)
    alone = json.loads(run(suite, "top", url.replace("//", f"//{ADMIN}@"), "--once", "--json"))
    report.equal("without --all it is the server", [node["name"] for node in alone["nodes"]], [names[1]])
    cluster.kill(3)
    seen.becomes("a node is down", 2, "settee_cluster_members_down", 1)
    states = lambda: {
        node["name"]: node["state"] for node in json.loads(run(suite, "top", url.replace("//", f"//{ADMIN}@"), "--all", "--once", "--json"))["nodes"]
    }
    expected = {names[0]: "misses 1", names[1]: "misses 1", names[2]: "no answer"}
    report.check("a dead node is shown", wait_until(lambda: states() == expected, SEEN_TIMEOUT_S), states())


def test_plans_of_placement(suite, cluster, seen):
    report, api = suite.report, cluster.api(1)
    names = [node["name"] for node in cluster.status(1)["nodes"]]
    plan = api.expect(200, "POST", "/_settee/cluster/place", {"copies": 2, "dry_run": True})
    planned = [node["planned_slots"] for node in plan["nodes"]]
    # Slots of system databases and of databases in several slots stay on all three nodes.
    everywhere, spread = plan["everywhere"], SLOTS - plan["everywhere"]
    expected, most = 2 * spread + 3 * everywhere, everywhere + -(-2 * spread // 3) + 1
    report.check("the other slots have two nodes, in equal parts", sum(planned) == expected and max(planned) <= most, plan)
    report.equal("they are some of those that have it", (plan["moves"], [node["slots"] for node in plan["nodes"]]), (0, [SLOTS] * 3))
    report.equal("all nodes are in the plan", [node["name"] for node in plan["nodes"]], names)
    text = cluster.command("place", cluster.url_of(1), "--copies", "2", "--dry-run")
    report.check("people get a table", "each slot has 2 nodes" in text and all(name in text for name in names), text)
    for body in ({"copies": 0}, {"copies": "2"}, {"dry_run": 1}):
        api.expect(400, "POST", "/_settee/cluster/place", body)
    # There are three nodes, and each has every slot.
    api.expect(409, "POST", "/_settee/cluster/place", {"copies": 4})
    api.expect(409, "PUT", f"/_settee/cluster/nodes/{names[2]}", {"draining": True})
    api.expect(200, "PUT", f"/_settee/cluster/nodes/{names[2]}", {"draining": False})
    api.expect(400, "PUT", f"/_settee/cluster/nodes/{names[2]}", {})
    api.expect(404, "PUT", "/_settee/cluster/nodes/other", {"draining": True})
    report.equal("it is for admins", cluster.api(1, credentials="").post("/_settee/cluster/place", {"dry_run": True}).status, 401)
    status = cluster.status(1)
    everywhere = sorted(node["node"] for node in status["nodes"])
    report.equal("every node should have every slot", [sorted(slot["wanted"]) for slot in status["slots"]], [everywhere] * ALL_SLOTS)


def test_bench_network(suite, cluster, seen):
    report = suite.report
    names = [node["name"] for node in cluster.status(1)["nodes"]]
    url = cluster.url_of(1)
    measure = lambda *options: json.loads(cluster.command("bench-network", url, "--seconds", "0.2", "--json", *options))
    answer = measure()
    report.equal("the other nodes are measured", (answer["node"], [node["node"] for node in answer["nodes"]]), (names[0], names[1:]))
    for node in answer["nodes"]:
        report.check("round trips are in order", node["round_trips"] > 0 and 0 < node["p50_us"] <= node["p99_us"], node)
        for direction in ("sent", "received"):
            is_bounded = 0 < node[f"{direction}_bytes"] <= TRANSFER_BYTES_MAX
            report.check(f"bytes are {direction}, not too many", is_bounded and node[f"{direction}_bytes_per_s"] > 0, node)
    text = cluster.command("bench-network", url, "--seconds", "0.2")
    report.check("people get a table", "p99 ms" in text and names[1] in text and names[2] in text, text)
    statuses = [cluster.api(1).post("/_settee/cluster/bench-network", {"seconds": seconds}).status for seconds in (0, 11, "1")]
    report.equal("its time is bounded", statuses, [400, 400, 400])
    report.equal("it is for admins", cluster.api(1, credentials="").post("/_settee/cluster/bench-network", {}).status, 401)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(cluster.api(1).post, "/_settee/cluster/bench-network", {"seconds": 1}) for _ in range(4)]
        statuses = sorted(answer.result().status for answer in asked)
    report.equal("one at a time", statuses, [200, 503, 503, 503])
    cluster.kill(3)
    seen.becomes("a node is down", 1, "settee_cluster_members_down", 1)
    found = {node["node"]: "error" in node for node in measure()["nodes"]}
    report.equal("a dead node is an error of its own", found, {names[1]: False, names[2]: True})


def test_the_dashboard_has_values(suite, cluster, seen):
    panels = [inner for panel in json.loads(printed(suite, "dashboard"))["panels"] if panel["title"] == "Cluster" for inner in panel["panels"]]
    suite.report.check("the row of the cluster has panels", len(panels) >= 8, len(panels))
    stop = threading.Event()

    def load():
        api = cluster.api(1)
        while not stop.is_set():
            api.post("/seen", {"n": 1})

    writer = threading.Thread(target=load)
    writer.start()
    try:
        for panel in panels:
            for target in panel["targets"]:
                asked = target["expr"].replace("$__rate_interval", "5s").replace("$instance", ".*")
                has_value = lambda asked=asked: any(value == value for _, value in seen.prometheus.query(asked))
                suite.report.check(f"{panel['title']}: {target['legendFormat']}", wait_until(has_value, 30, 0.5), asked)
    finally:
        stop.set()
        writer.join()


@with_log(KAFKA)
def test_slots_that_halt(cluster, seen):
    """Another program writes to the log. Last: only a new generation of all slots goes on."""
    kafka_records.append(cluster.brokers.addresses.split(",")[0], TOPIC, 0, b"nonsense" * 20)
    for number in NODES:
        seen.becomes("a record is damaged", number, "settee_cluster_slots_halted", 1)
        seen.becomes("a record is damaged", number, "settee_cluster_slots_refusing", 1)
    seen.fires("SetteeClusterSlotsHalted", "SetteeClusterSlotsRefusing")
    cluster.command("reseed", cluster.url_of(1))
    seen.stops("SetteeClusterSlotsHalted", "SetteeClusterSlotsRefusing")

"""A node of a cluster that is cut off from the log or from the other nodes, or stands still: what it answers is what the cluster has
acknowledged, or an error."""

import concurrent.futures
import itertools
import statistics
import threading
import time

import pytest

from harness.api import Api, Disconnected, quote
from harness.faulty_cluster import ADMIN, ENGINES, KAFKA, OWN, FaultyCluster, with_log
from harness.server import wait_until

pytestmark = pytest.mark.on_disk

# A node may use what it knew this long ago.
HELD_S = 2
CUT_FROM_LOG = "cut from the log"
FAULTS = ("none", CUT_FROM_LOG, "cut from the nodes", "stopped")
CHANGES = ("password", "deleted", "role")
USERS_PER_CHANGE, USERS_PER_CHANGE_SOAK = 3, 84
HEALED_TIMEOUT_S = 60
REQUEST_TIMEOUT_S = 30

# 1,000 in a soak.
RUNS, RUNS_SOAK = 6, 960
RUNS_CUT, RUNS_CUT_SOAK = 2, 20
DOCUMENTS_PER_RUN = 4
# Each run copies what earlier ones wrote.
RUNS_PER_SOURCE = 60

# So many that each node has some of them.
JOBS, JOBS_SOAK = 20, 30
JOB_FAULTS_BY_NAME = {
    CUT_FROM_LOG: lambda cluster, number: cluster.cut_from_brokers(number),
    "cut from the nodes": lambda cluster, number: cluster.cut_from_peers(number),
    "stopped": lambda cluster, number: cluster.pause(number),
    "killed": lambda cluster, number: cluster.kill(number),
}
JOB_ROUNDS_SOAK = 100
WATCH_TIMEOUT_S = 2
WATCH_EVERY_S, WATCH_EVERY_S_SOAK = 0.1, 0.05
# No job is handed over faster than this.
HANDED_OVER_S = 0.5

JOBS_ELSEWHERE_S_MAX = 10

REQUESTED, REQUESTED_SOAK = 6, 30
# So that all nodes have had a fault at the end.
REQUESTED_FAULTS = (("killed", 2), ("cut from the nodes", 3))

SPREAD_JOBS = 1_000
SPREAD_TIMEOUT_S = 300
# Of the mean.
SPREAD_DIFFERENCE_MAX = 0.2

NOTICED_TIMEOUT_S = 30
REQUESTS, REQUESTS_SOAK = 20, 500
UNFIT_WITHIN_S = 6
# From here on others answer for a node without the log.
SERVED_AFTER_S = 5
WRITE_MS_MAX, READ_MS_MAX = 50, 20

LOG_INS, LOG_INS_SOAK = 40, 2_000
LOG_IN_MS_MORE_MAX = 1


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"cut-{request.param}", log=request.param, has_links=True)
    try:
        cluster.start()
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


# A node that is cut from the others is cut from their log, too.
@pytest.mark.parametrize(
    ("cluster", "fault"),
    [
        *((OWN, fault) for fault in FAULTS if fault != CUT_FROM_LOG),
        (KAFKA, CUT_FROM_LOG),
        *(pytest.param(KAFKA, fault, marks=pytest.mark.slow) for fault in FAULTS if fault != CUT_FROM_LOG),
    ],
    indirect=["cluster"],
    scope="module",
)
def test_old_users_are_refused(suite, cluster, fault):
    """Passwords, users and roles that were changed at one node do not count at any other from two seconds after the response."""
    count = suite.size(USERS_PER_CHANGE, USERS_PER_CHANGE_SOAK)
    Round(suite, cluster, fault, FAULTS.index(fault) % 3 + 1, count).run()


def up(cluster, number):
    return cluster.api(number, credentials="").get("/_up")


@with_log(KAFKA)
def test_without_the_log(suite, cluster):
    """Other nodes answer for one that cannot reach the log, and load balancers are told."""
    report = suite.report
    cluster.api(1).expect(201, "PUT", "/served")
    cut_at = time.monotonic()
    cluster.cut_from_brokers(2)
    try:
        # PatientApi waits for a node that is unfit: asked directly.
        noticed = wait_until(lambda: Api(cluster.nodes[2].url, "").get("/_up").status == 503, NOTICED_TIMEOUT_S)
        report.check("a node without the log is unfit", noticed)
        suite.limit("it is unfit after", time.monotonic() - cut_at, UNFIT_WITHIN_S, "s")
        report.equal("the others are not", [up(cluster, number).status for number in (1, 3)], [200, 200])
        api = cluster.api(2)
        written, read = [], []
        time.sleep(max(0, cut_at + SERVED_AFTER_S - time.monotonic()))
        for i in range(suite.size(REQUESTS, REQUESTS_SOAK)):
            began = time.monotonic()
            answer = api.put(f"/served/{i}", {"n": i})
            written.append((answer.status, time.monotonic() - began))
            began = time.monotonic()
            answer = api.get(f"/served/{i}")
            read.append((answer.status, time.monotonic() - began))
        report.equal("its clients' writes are acknowledged", {status for status, _ in written}, {201})
        report.equal("and their reads are answered", {status for status, _ in read}, {200})
        middle = [1000 * statistics.median(took for _, took in taken) for taken in (written, read)]
        suite.limit("at a node without the log: p50 of writes", middle[0], WRITE_MS_MAX, "ms")
        suite.limit("at a node without the log: p50 of reads", middle[1], READ_MS_MAX, "ms")
    finally:
        cluster.heal()
    back = wait_until(lambda: Api(cluster.nodes[2].url, "").get("/_up").status == 200, NOTICED_TIMEOUT_S)
    report.check("it is fit again", back)
    cluster.brokers.pause(1)
    try:
        # Longer than a cut node needs to notice it.
        deadline = time.monotonic() + 6
        seen = set()
        while time.monotonic() < deadline:
            seen |= {Api(cluster.nodes[number].url, "").get("/_up").status for number in cluster.nodes}
            time.sleep(0.2)
        report.equal("all stay fit when nobody has the log", seen, {200})
    finally:
        cluster.brokers.resume(1)


def test_without_the_others(suite, cluster):
    """On its own log, that is more than half of the nodes that keep it."""
    cluster.cut_from_peers(3)
    try:
        alone = wait_until(lambda: Api(cluster.nodes[3].url, "").get("/_up").status == 503, NOTICED_TIMEOUT_S)
        suite.report.check("a node that reaches no majority is unfit", alone)
    finally:
        cluster.heal()
    back = wait_until(lambda: Api(cluster.nodes[3].url, "").get("/_up").status == 200, NOTICED_TIMEOUT_S)
    suite.report.check("until it reaches one", back)


def test_a_feed_of_a_cut_node_does_not_start_over(suite, cluster):
    """A sequence of another node, later than all that the cut node has: `r=1` has it answer by itself."""
    api = cluster.api(1)
    api.expect(201, "PUT", "/fed?q=2")
    for i in range(10):
        api.expect(201, "PUT", f"/fed/{i}", {})
    cluster.api(2).expect(200, "GET", "/fed")
    cluster.cut_from_brokers(2)
    cluster.cut_from_peers(2)
    at_cut = lambda query: Api(cluster.nodes[2].url, ADMIN, REQUEST_TIMEOUT_S).get(f"/fed/_changes?r=1&{query}")
    try:
        for i in range(10, 20):
            api.expect(201, "PUT", f"/fed/{i}", {})
        since = quote(api.expect(200, "GET", "/fed/_changes")["last_seq"])
        for query in (f"since={since}", f"since={since}&feed=longpoll&timeout=1000"):
            answer = at_cut(query)
            again = [row["id"] for row in answer.json["results"]] if answer.status == 200 else []
            suite.report.check("it repeats nothing, or refuses", answer.status in (200, 503) and not again, repr(answer))
    finally:
        cluster.heal()
    why = cluster.wait_until_equal()
    suite.report.check("the node catches up", not why, why)
    suite.report.equal("and continues the feed there", at_cut(f"since={since}").json["results"], [])


def test_all_acknowledged_documents_are_copied(suite, cluster):
    incomplete, outcomes = [], []
    for number in range(suite.size(RUNS, RUNS_SOAK)):
        if number % RUNS_PER_SOURCE == 0:
            runs = Runs(cluster, f"source-{number}")
        write_at, run_at = suite.random.sample(list(cluster.nodes), 2)
        runs.run(number, write_at, run_at, f"target-{number}")
        incomplete += runs.incomplete
        outcomes += runs.outcomes
        runs.incomplete, runs.outcomes = [], []
        cluster.api(run_at).delete(f"/target-{number}")
    suite.report.check(f"each of {len(outcomes)} runs copied all acknowledged documents", not incomplete, "\n".join(incomplete[:10]))
    suite.report.equal("and each succeeded", set(outcomes), {200})


@pytest.mark.parametrize(
    ("cluster", "cut"),
    [(OWN, "nodes"), (KAFKA, "log"), pytest.param(KAFKA, "nodes", marks=pytest.mark.slow)],
    indirect=["cluster"],
    scope="module",
)
def test_a_cut_node_copies_all_or_fails(suite, cluster, cut):
    runs = Runs(cluster, f"source-{cut}")
    cluster.api(2).expect(200, "GET", f"/source-{cut}")
    if cut == "log":
        cluster.cut_from_brokers(2)
    else:
        cluster.cut_from_peers(2)
    try:
        for number in range(suite.size(RUNS_CUT, RUNS_CUT_SOAK)):
            runs.run(number, 1, 2, f"target-{cut}-{number}")
    finally:
        cluster.heal()
    suite.report.check(f"cut from the {cut}: a run that succeeds copied all", not runs.incomplete, "\n".join(runs.incomplete[:10]))
    before = len(runs.outcomes)
    why = cluster.wait_until_equal()
    suite.report.check("the node catches up", not why, why)
    runs.run("after", 1, 2, f"target-{cut}-after")
    suite.report.equal("and replicates", runs.outcomes[before:], [200])
    suite.report.check("completely", not runs.incomplete, "\n".join(runs.incomplete))


def test_jobs_run_once(suite, cluster):
    """A job of a node that is cut off, stopped or killed runs elsewhere, and never on two nodes."""
    report = suite.report
    cluster.api(1).expect(201, "PUT", "/jobs")
    # All by way of the first node, which has no fault, and to which clients are never cut off.
    url = cluster.nodes[1].url.replace("//", f"//{ADMIN}@")
    count = suite.size(JOBS, JOBS_SOAK)
    for i in range(count):
        body = {"source": f"{url}/jobs", "target": f"{url}/job-{i}", "create_target": True, "continuous": True}
        cluster.api(1).expect(201, "PUT", f"/_replicator/job-{i}", body)
    watch = JobWatch(cluster, suite.size(WATCH_EVERY_S, WATCH_EVERY_S_SOAK))
    took = []
    try:
        report.check("all run", wait_until(lambda: len(watch.running()) == count, HEALED_TIMEOUT_S), watch.seen)
        faults = [fault for fault in JOB_FAULTS_BY_NAME if cluster.log == KAFKA or fault != CUT_FROM_LOG]
        for number in range(suite.size(len(faults), JOB_ROUNDS_SOAK)):
            fault, faulty = faults[number % len(faults)], number % 2 + 2
            began = time.monotonic()
            JOB_FAULTS_BY_NAME[fault](cluster, faulty)
            elsewhere = wait_until(lambda faulty=faulty: len(watch.running() - watch.of(faulty)) == count, HEALED_TIMEOUT_S, 0.1)
            took.append(time.monotonic() - began)
            report.check(f"{fault}: the jobs of node {faulty} run elsewhere", elsewhere, watch.seen)
            if fault.startswith("cut"):
                running = Api(cluster.nodes[faulty].url, ADMIN).get("/_node/_local/_stats/couch_replicator/jobs/running")
                report.equal(f"{fault}: node {faulty} runs none", running.json["value"], 0)
            cluster.heal()
            why = cluster.wait_until_equal()
            report.check(f"{fault}: all nodes are equal again", not why, why)
            spread = wait_until(lambda faulty=faulty: watch.of(faulty) and len(watch.running()) == count, HEALED_TIMEOUT_S, 0.1)
            report.check(f"{fault}: node {faulty} runs jobs again", spread, watch.seen)
    finally:
        watch.stop()
        cluster.heal()
    report.check("no job ran on two nodes", not watch.doubles, watch.doubles[:10])
    report.check("the watch saw them run", watch.samples > 10 * len(took), watch.samples)
    report.note(f"jobs of a faulty node run elsewhere after {statistics.median(took):.1f} s, at most {max(took):.1f} s")
    suite.limit("jobs of a faulty node run elsewhere after", max(took), JOBS_ELSEWHERE_S_MAX, "s")
    for i in range(count):
        rev = cluster.api(1).expect(200, "GET", f"/_replicator/job-{i}")["_rev"]
        cluster.api(1).expect(200, "DELETE", f"/_replicator/job-{i}?rev={rev}")


def test_requested_jobs_move(suite, cluster):
    """A continuous `_replicate` runs on one node, moves when that fails, outlives all of them, and ends when any node cancels it."""
    report, api = suite.report, cluster.api(1)
    api.expect(201, "PUT", "/requested")
    url = cluster.nodes[1].url.replace("//", f"//{ADMIN}@")
    count = suite.size(REQUESTED, REQUESTED_SOAK)
    bodies = [{"source": f"{url}/requested", "target": f"{url}/requested-{i}", "create_target": True, "continuous": True} for i in range(count)]

    def start(shift):
        return [cluster.api((i + shift) % 3 + 1).expect(202, "POST", "/_replicate", body)["_local_id"] for i, body in enumerate(bodies)]

    ids = start(0)
    report.equal("the same request at another node is the same replication", start(1), ids)
    wanted = set(ids)

    def listed(number):
        rows = cluster.api(number).expect(200, "GET", "/_scheduler/jobs?limit=1000")["jobs"]
        return {row["id"] for row in rows if row["id"] in wanted}

    def tasks(number):
        return {task.get("replication_id") for task in cluster.api(number).expect(200, "GET", "/_active_tasks")}

    def copied(doc_id):
        cluster.api(1).expect((201, 202), "PUT", f"/requested/{doc_id}", {})
        there = [f"/requested-{i}/{doc_id}" for i in range(count)]
        return wait_until(lambda: all(cluster.api(1).get(path).status == 200 for path in there), HEALED_TIMEOUT_S, 0.2)

    watch = JobWatch(cluster, WATCH_EVERY_S)
    try:
        report.check("all run", wait_until(lambda: wanted <= watch.running(), HEALED_TIMEOUT_S, 0.1), watch.seen)
        shown = wait_until(lambda: all(listed(number) == wanted for number in cluster.nodes), HEALED_TIMEOUT_S, 0.2)
        report.check("_scheduler/jobs of each node has all", shown, [listed(number) for number in cluster.nodes])
        for number in cluster.nodes:
            # Those that know where they start.
            active = wait_until(lambda number=number: wanted <= tasks(number), HEALED_TIMEOUT_S, 0.2)
            report.check(f"so has _active_tasks of node {number}", active, tasks(number))
            raw = cluster.api(number).get("/_scheduler/jobs?limit=1000").raw.decode()
            report.check("without passwords", ADMIN not in raw and '"database":null' in raw, raw[:500])
        report.check("what is written is copied", copied("first"))
        for fault, faulty in REQUESTED_FAULTS:
            JOB_FAULTS_BY_NAME[fault](cluster, faulty)
            elsewhere = wait_until(lambda faulty=faulty: wanted <= watch.running() - watch.of(faulty), HEALED_TIMEOUT_S, 0.1)
            report.check(f"{fault}: the jobs of node {faulty} run elsewhere", elsewhere, watch.seen)
            report.check(f"{fault}: and copy", copied(f"{faulty}"))
            cluster.heal()
            why = cluster.wait_until_equal()
            report.check(f"{fault}: all nodes are equal again", not why, why)
        for number in cluster.nodes:
            cluster.kill(number)
        cluster.heal()
        why = cluster.wait_until_equal()
        report.check("all nodes start again", not why, why)
        report.check("and go on", wait_until(lambda: wanted <= watch.running(), HEALED_TIMEOUT_S, 0.1), watch.seen)
    finally:
        watch.stop()
        cluster.heal()
    report.check("no job ran on two nodes", not watch.doubles, watch.doubles[:10])
    for i, (id, body) in enumerate(zip(ids, bodies)):
        cancel = [{"cancel": True, "_local_id": id}, {**body, "cancel": True}][i % 2]
        at = cluster.api((i + 2) % 3 + 1)
        report.equal("any node cancels", at.expect(200, "POST", "/_replicate", cancel)["_local_id"], id, quiet=True)
        report.equal("once", cluster.api(i % 3 + 1).post("/_replicate", cancel).status, 404, quiet=True)
    gone = wait_until(lambda: not any(listed(number) for number in cluster.nodes), HEALED_TIMEOUT_S, 0.2)
    report.check("then none runs", gone, [listed(number) for number in cluster.nodes])


@pytest.mark.slow
def test_many_jobs_are_spread(suite, cluster):
    report, api = suite.report, cluster.api(1)
    url = cluster.nodes[1].url.replace("//", f"//{ADMIN}@")
    for name in ("/spread", "/spread-to"):
        api.expect(201, "PUT", name)
    # What they replicate makes them different jobs.
    jobs = [
        {"_id": f"spread-{i}", "source": f"{url}/spread", "target": f"{url}/spread-to", "continuous": True, "doc_ids": [f"{i}"]}
        for i in range(SPREAD_JOBS)
    ]
    api.expect(201, "POST", "/_replicator/_bulk_docs", {"docs": jobs})
    watch = JobWatch(cluster, WATCH_EVERY_S)
    try:
        running = wait_until(lambda: len(watch.running()) == SPREAD_JOBS, SPREAD_TIMEOUT_S, 0.5)
        counts = {number: len(watch.of(number)) for number in cluster.nodes}
    finally:
        watch.stop()
    report.check(f"all {SPREAD_JOBS} jobs run", running, counts)
    mean = SPREAD_JOBS / len(counts)
    is_even = all(abs(count - mean) <= SPREAD_DIFFERENCE_MAX * mean for count in counts.values())
    report.check("each node has its part", is_even, counts)
    report.note(f"{SPREAD_JOBS} jobs by node: {counts}")
    report.check("no job ran on two nodes", not watch.doubles, watch.doubles[:10])
    rows = api.expect(200, "GET", '/_replicator/_all_docs?startkey="spread-"&endkey="spread-z"')["rows"]
    gone = [{"_id": row["id"], "_rev": row["value"]["rev"], "_deleted": True} for row in rows]
    api.expect(201, "POST", "/_replicator/_bulk_docs", {"docs": gone})


def test_log_ins_take_no_longer(suite, cluster):
    """A node makes sure that it knows the user's last change: log-ins at a node and at a server alone, in turns."""
    user = {"_id": "org.couchdb.user:timed", "name": "timed", "password": "pass", "roles": [], "type": "user"}
    took = {"a node": [], "a server alone": []}
    with suite.server("timed") as server:
        server.api().expect((201, 202, 412), "PUT", "/_users")
        apis = {"a node": cluster.api(1), "a server alone": server.api()}
        for api in apis.values():
            api.expect(201, "PUT", f"/_users/{user['_id']}", user)
        clients = {name: Api(api.url, "") for name, api in apis.items()}
        for _ in range(suite.size(LOG_INS, LOG_INS_SOAK)):
            for name, client in clients.items():
                began = time.monotonic()
                answer = client.post("/_session", {"name": "timed", "password": "pass"})
                took[name].append(1000 * (time.monotonic() - began))
                suite.report.equal(f"a log-in at {name}", answer.status, 200, quiet=True)
    middle = {name: statistics.median(times) for name, times in took.items()}
    suite.report.note(", ".join(f"log-in at {name}: p50 {ms:.2f} ms" for name, ms in middle.items()))
    suite.limit("a log-in at a node takes longer by", middle["a node"] - middle["a server alone"], LOG_IN_MS_MORE_MAX, "ms")


class JobWatch:
    """Which jobs each node runs, by itself, again and again. A node that does not answer at once has not been asked."""

    def __init__(self, cluster, every_s):
        self.cluster, self.every_s, self.seen, self.doubles, self.samples = cluster, every_s, {}, [], 0
        self.ends = threading.Event()
        self.pool = concurrent.futures.ThreadPoolExecutor(len(cluster.nodes))
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def ask(self, number):
        """The jobs, and when they were certainly running: between the beginning and the end of the request."""
        api = Api(self.cluster.nodes[number].url, ADMIN, WATCH_TIMEOUT_S)
        began = time.monotonic()
        try:
            # As nodes ask each other: for its own jobs. One that is unfit does not say.
            answer = api.get("/_scheduler/jobs?limit=1000", headers={"X-Settee-Client": "watch", "X-Settee-Gathered": "1"})
            if answer.status != 200:
                return None
            jobs = answer.json["jobs"]
        except (Disconnected, OSError):
            return None
        # A job of a request has no document.
        return began, time.monotonic(), {job["doc_id"] or job["id"] for job in jobs if job["pid"]}

    def watch(self):
        while not self.ends.wait(self.every_s):
            answers = list(self.pool.map(self.ask, self.cluster.nodes))
            self.seen = {number: answer[2] if answer else set() for number, answer in zip(self.cluster.nodes, answers)}
            self.samples += 1
            for (first, one), (second, other) in itertools.combinations([(n, a) for n, a in zip(self.cluster.nodes, answers) if a], 2):
                both = one[2] & other[2]
                # A job may end on one node and begin on another between two answers that are far apart.
                if both and max(one[1], other[1]) - min(one[0], other[0]) < HANDED_OVER_S:
                    self.doubles.append((first, second, sorted(both)))

    def of(self, number):
        return self.seen.get(number, set())

    def running(self):
        return set().union(*self.seen.values())

    def stop(self):
        self.ends.set()
        self.thread.join()
        self.pool.shutdown()


class Runs:
    """Writes at one node, and then replicates at another."""

    def __init__(self, cluster, name):
        self.cluster, self.name, self.written = cluster, name, []
        cluster.api(1).expect(201, "PUT", f"/{name}")
        self.incomplete, self.outcomes = [], []

    def run(self, number, write_at, run_at, target):
        """Each target is new: the run begins without a checkpoint."""
        for i in range(DOCUMENTS_PER_RUN):
            id = f"{number}-{i}"
            self.cluster.api(write_at).expect(201, "PUT", f"/{self.name}/{id}", {"n": i})
            self.written.append(id)
        body = {"source": self.name, "target": target, "create_target": True}
        try:
            answer = self.cluster.api(run_at, timeout=60).post("/_replicate", body)
        except (Disconnected, OSError):
            self.outcomes.append("no response")
            return
        self.outcomes.append(answer.status)
        if answer.status == 200 and answer.json["ok"]:
            missing = self.missing(write_at, target)
            if missing:
                self.incomplete.append(f"run {number} at node {run_at}: {missing} of {answer.json}")

    def missing(self, at, target):
        rows = self.cluster.api(at).expect(200, "GET", f"/{target}/_all_docs")["rows"]
        return sorted(set(self.written) - {row["id"] for row in rows})


class Round:
    """Changes users at one node while another one has a fault."""

    def __init__(self, ctx, cluster, fault, faulty, count):
        self.report, self.cluster, self.fault, self.faulty = ctx.report, cluster, fault, faulty
        self.changed_at = faulty % 3 + 1
        prefix = fault.replace(" ", "-")
        self.users = {f"{prefix}-{change}-{i}": change for change in CHANGES for i in range(count)}
        self.cookies = {}

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            made = list(pool.map(self.make, self.users))
            self.report.equal(f"{self.fault}: users log in at node {self.faulty}", made, [200] * len(made))
            self.begin_fault()
            try:
                list(pool.map(self.change, self.users))
                # The contract, not a wait for something.
                time.sleep(HELD_S)
                if self.fault == "cut from the log":
                    new = [self.log_in(name, "new") for name, change in self.users.items() if change == "password"]
                    self.report.equal("another node answers log-ins with the new password", {answer.status for answer in new}, {200})
                if self.fault == "stopped":
                    asked = [pool.submit(self.accepted, name) for name in self.users]
                    self.cluster.resume(self.faulty)
                    accepted = [answer.result() for answer in asked]
                else:
                    accepted = list(pool.map(self.accepted, self.users))
            finally:
                self.cluster.heal()
            wrong = [said for answers in accepted for said in answers]
            self.report.check(f"{self.fault}: what was changed counts no more at node {self.faulty}", not wrong, "\n".join(wrong[:10]))
            healed = wait_until(lambda: all(pool.map(self.counts, self.users)), HEALED_TIMEOUT_S)
            self.report.check(f"{self.fault}: and the new does", healed)

    def begin_fault(self):
        match self.fault:
            case "cut from the log":
                self.cluster.cut_from_brokers(self.faulty)
            case "cut from the nodes":
                self.cluster.cut_from_peers(self.faulty)
            case "stopped":
                self.cluster.pause(self.faulty)

    def user(self, name, password="old", roles=("writer",)):
        return {"_id": f"org.couchdb.user:{name}", "name": name, "password": password, "roles": list(roles), "type": "user"}

    def make(self, name):
        """Makes a user, who then is in the caches of the faulty node."""
        at = self.cluster.api(self.changed_at)
        at.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", self.user(name))
        answer = self.log_in(name, "old")
        self.cookies[name] = answer.headers.get("Set-Cookie", "").split(";")[0]
        return self.basic(name, "old").status if answer.status == 200 else answer.status

    def change(self, name):
        at = self.cluster.api(self.changed_at)
        path = f"/_users/org.couchdb.user:{name}"
        rev = at.expect(200, "GET", path)["_rev"]
        # 202 where a node that was just stopped is waited for on a busy machine: what follows holds all the same.
        match self.users[name]:
            case "password":
                at.expect((201, 202), "PUT", path, {**self.user(name, "new"), "_rev": rev})
            case "deleted":
                at.expect((200, 202), "DELETE", f"{path}?rev={rev}")
            case "role":
                at.expect((201, 202), "PUT", path, {**self.user(name, roles=()), "_rev": rev})

    def accepted(self, name):
        """The answers that show the state before the change."""
        wrong = []
        for what, ask in (
            ("Basic", lambda: self.basic(name, "old")),
            ("a log-in", lambda: self.log_in(name, "old")),
            ("a cookie", lambda: self.session(self.cookies[name])),
        ):
            try:
                answer = ask()
            except (Disconnected, OSError):
                continue
            if answer.status in (401, 503):
                continue
            if answer.status != 200:
                wrong.append(f"{name}, {what}: {answer!r}")
                continue
            shown = (answer.json or {}).get("userCtx") or answer.json or {}
            is_old = "writer" in shown.get("roles", ()) if self.users[name] == "role" else shown.get("name") is not None
            if is_old:
                wrong.append(f"{name}, {what}: {answer!r}")
        return wrong

    def counts(self, name):
        match self.users[name]:
            case "password":
                return self.basic(name, "new").status == 200 and self.basic(name, "old").status == 401
            case "deleted":
                return self.basic(name, "old").status == 401
            case "role":
                answer = self.basic(name, "old")
                return answer.status == 200 and answer.json["userCtx"]["roles"] == []

    def client(self, credentials=""):
        """Unlike the cluster's, this one does not repeat what is a 503."""
        return Api(self.cluster.nodes[self.faulty].url, credentials, REQUEST_TIMEOUT_S)

    def basic(self, name, password):
        return self.client(f"{name}:{password}").get("/_session")

    def log_in(self, name, password):
        return self.client().post("/_session", {"name": name, "password": password})

    def session(self, cookie):
        return self.client().get("/_session", headers={"Cookie": cookie})

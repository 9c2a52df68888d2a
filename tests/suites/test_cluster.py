"""Three nodes: whatever was written at one node is there at once at all others, and nodes come and go."""

import base64
import concurrent.futures
import contextlib
import hashlib
import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest

from harness import markdown
from harness.api import Api, Disconnected, json_query, quote
from harness.faulty_cluster import ADMIN, ENGINES, OWN, FaultyCluster
from harness.server import wait_until
from ports import free_port, free_ports

pytestmark = pytest.mark.on_disk

# What a refusal takes at most: the command and the server wait for others some seconds.
REFUSAL_TIMEOUT_S = 60
SEEN_TIMEOUT_S = 20
RACES = 20
SHARED_TURNS = 10
JOBS = 12
# A node waits before it runs what another one ran.
SPREAD_TIMEOUT_S = 60
DESIGN = {
    "_id": "_design/d",
    "views": {"by_n": {"map": "function (doc) { if (doc.n) emit(doc.n, 1); }", "reduce": "_sum"}},
    "validate_doc_update": "function (doc) { if (doc.bad) throw({forbidden: 'bad'}); }",
}


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"cluster-{request.param}", log=request.param)
    try:
        cluster.brokers.start()
        waits = refused_starts(suite, cluster)
        began = time.monotonic()
        cluster.start_nodes()
        said_that_it_waits(suite, waits)
        suite.report.note(f"three nodes are one cluster after {time.monotonic() - began:.1f} s")
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


@pytest.fixture
def nodes(suite, cluster):
    return Nodes(suite, cluster)


class Nodes:
    """The three nodes' clients, and checks that concern all of them."""

    def __init__(self, ctx, cluster):
        self.cluster, self.report = cluster, ctx.report
        self.apis = cluster.apis()

    def __getitem__(self, number):
        return self.apis[number]

    def __iter__(self):
        return iter(self.apis)

    def pairs(self):
        return itertools.product(self.apis, repeat=2)

    def database(self, name, at=1):
        self[at].expect((201, 202), "PUT", "/" + name)

    def put(self, number, path, body):
        """As clients do, again while the node says that it is too busy."""
        answer = self[number].put(path, body)
        until = time.monotonic() + SEEN_TIMEOUT_S
        while answer.status == 503 and time.monotonic() < until:
            time.sleep(0.5)
            answer = self[number].put(path, body)
        return answer

    def everywhere(self, name, path, expected, status=200):
        """All nodes answer this: `expected` is the body, or a function of it."""
        wrong = []
        for number, api in self.apis.items():
            answer = api.get(path)
            fits = expected(answer.json) if callable(expected) else answer.json == expected
            if answer.status != status or not fits:
                wrong.append(f"node {number}: {answer!r}")
        self.report.check(name, not wrong, f"GET {path}, expected {status} {expected}\n" + "\n".join(wrong))

    def status_everywhere(self, name, path, status):
        self.report.equal(name, [api.get(path).status for api in self.apis.values()], [status] * len(self.apis))


def at_once(*acts):
    with concurrent.futures.ThreadPoolExecutor(len(acts)) as pool:
        return [future.result() for future in [pool.submit(act) for act in acts]]


def refused_starts(ctx, cluster):
    """Before there is a cluster: what is wrong with how a node is started is said. Answers one that waits for its brokers."""
    data = ctx.folder(f"refused-{cluster.log}") / "alone"
    log = f"cluster/log={cluster.log_address or OWN}"
    refused(ctx, "a log without a cluster", [cluster.binary, "serve", "--data", data, "--set", log], "cluster init")
    cluster.command("init", "--data", data, "--cluster", "refused", "--address", cluster.nodes[1].address, "--slots", 1)
    refused(ctx, "a node that is one already", [cluster.binary, "cluster", "init", "--data", data, "--address", "127.0.0.1:1"], "already")
    again = cluster.try_command("init", "--if-absent", "--data", data, "--address", "127.0.0.1:1")
    ctx.report.check("unless it is to be made if absent", again.returncode == 0 and "already" in again.stdout, again)
    start = [cluster.binary, "serve", "--data", data, "--port", "0", "--admin", ADMIN]
    for word in ("kafka://", "nodes"):
        refused(ctx, "a log that is neither the nodes' nor Kafka's", [*start, "--set", "cluster/log=http://127.0.0.1:1"], word)
    with socket.create_server(("127.0.0.1", 0)) as node:
        unless = ("--unless", f"127.0.0.1:{node.getsockname()[1]}")
        again = [cluster.binary, "cluster", "init", "--data", data.with_name("again"), *unless]
        refused(ctx, "a cluster that exists, at its first node, which lost its data", again, "exists already")
    refused(ctx, "an address without a port", [cluster.binary, "cluster", "init", "--data", data, "--address", "here"], "HOST:PORT")
    refused(ctx, "a name that no topic can have", [cluster.binary, "cluster", "init", "--data", data, "--cluster", "a b"], "--cluster")
    elsewhere = data.with_name("elsewhere")
    made = cluster.try_command("init", "--data", elsewhere, "--address", "192.0.2.1:5986")
    ctx.report.check("an address of another machine is noted", made.returncode == 0 and "cannot listen at 192.0.2.1:5986" in made.stderr, made)
    cluster.command("init", "--data", data.with_name("waits"), "--address", f"127.0.0.1:{free_port()}")
    return start_without_brokers(cluster, data.with_name("waits"))


def start_without_brokers(cluster, data):
    """They may come up after the node does."""
    node = cluster.make_node(8, *free_ports(2))
    node.folder = data
    cluster.start_process(node, log="kafka://127.0.0.1:1")
    return node


def said_that_it_waits(ctx, node):
    said = wait_until(lambda: "127.0.0.1:1" in node.log(), REFUSAL_TIMEOUT_S)
    ctx.report.check("a node whose brokers are not there says so", said, node.log())
    node.end(signal.SIGTERM)


def refused(ctx, what, command, word):
    """The command ends with an error that has this word in it."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=REFUSAL_TIMEOUT_S, check=False)
        said, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        said, code = (late.stderr or b"").decode(), f"none within {REFUSAL_TIMEOUT_S} s"
    is_clear = code not in (0, 101) and isinstance(code, int) and word in said and "panicked" not in said
    ctx.report.check(f"{what} is refused, and why is said", is_clear, f"exit code {code}, wanted the word {word!r}\n{said}")


def test_databases(suite, nodes):
    report = suite.report
    for i in nodes:
        name = f"made-at-{i}"
        report.equal(f"a database is made at node {i}", nodes[i].put("/" + name).status, 201)
        nodes.everywhere(f"a database of node {i} is there at once", "/" + name, lambda body, name=name: body["db_name"] == name)
        nodes.everywhere("it is in the list", "/_all_dbs", lambda names, name=name: name in names)
        again = [nodes[j].put("/" + name) for j in nodes]
        report.equal("it is not made twice", [(a.status, a.json["error"]) for a in again], [(412, "file_exists")] * 3)
    for turn in range(3):
        made = at_once(*(lambda api=api: api.put(f"/raced-{turn}").status for api in nodes.apis.values()))
        report.equal("of three at once one makes a database", sorted(made), [201, 412, 412])
    nodes.database("again", at=1)
    nodes[2].expect(201, "PUT", "/again/old", {})
    for i in nodes:
        report.equal(f"node {i} deletes a database", nodes[i].delete("/again").status, 200)
        nodes.status_everywhere("it is gone at once", "/again", 404)
        report.equal("nothing is written to it", [api.put("/again/late", {}).status for api in nodes.apis.values()], [404] * 3)
        report.equal("it is deleted once", nodes[i % 3 + 1].delete("/again").status, 404)
        report.equal("one is made under its name", nodes[i % 3 + 1].put("/again").status, 201)
        nodes.everywhere("that is empty", "/again", lambda body: body["doc_count"] == 0)
        nodes.status_everywhere("and has no old document", "/again/old", 404)
        report.equal("and takes writes", nodes[i].put("/again/old", {"n": i}).status, 201)
    nodes.everywhere("deleted ones are in no list", "/_all_dbs", lambda names: names.count("again") == 1)


def test_documents(suite, nodes):
    nodes.database("documents")
    wrong = []
    for i, j in nodes.pairs():
        path = f"/documents/{i}-{j}"
        made = nodes[i].expect(201, "PUT", path, {"n": 1})
        for turn in range(5):
            seen = nodes[j].get(path)
            if seen.status != 200 or seen.json["_rev"] != made["rev"]:
                wrong.append(f"{path}, {made['rev']} written at {i}, node {j}: {seen!r}")
            made = nodes[j if turn % 2 else i].expect(201, "PUT", path, {"_rev": made["rev"], "n": turn})
        gone = nodes[i].expect(200, "DELETE", f"{path}?rev={made['rev']}")
        seen = nodes[j].get(path)
        if seen.status != 404 or seen.json["reason"] != "deleted":
            wrong.append(f"{path} deleted with {gone}, node {j}: {seen!r}")
    suite.report.check("what one node writes every node reads at once", not wrong, "\n".join(wrong[:8]))
    docs = [{"_id": f"bulk-{n:03}", "n": n} for n in range(200)]
    rows = nodes[2].expect(201, "POST", "/documents/_bulk_docs", {"docs": docs})
    suite.report.check("a bulk is written", all("rev" in row for row in rows), rows[:3])
    nodes.everywhere(
        "it is there at once",
        '/documents/_all_docs?startkey="bulk"',
        lambda body: [row["value"]["rev"] for row in body["rows"]] == [r["rev"] for r in rows],
    )
    again = nodes[3].expect(201, "POST", "/documents/_bulk_docs", {"docs": docs[:5]})
    suite.report.equal("another node says conflict for each of them", [row.get("error") for row in again], ["conflict"] * 5)
    got = nodes[1].expect(200, "POST", "/documents/_bulk_get", {"docs": [{"id": row["id"], "rev": row["rev"]} for row in rows[:5]]})
    suite.report.check("_bulk_get has them", all("ok" in result["docs"][0] for result in got["results"]), got)
    diff = {row["id"]: [row["rev"], "9-abc"] for row in rows[:3]}
    for number, api in nodes.apis.items():
        missing = api.expect(200, "POST", "/documents/_revs_diff", diff)
        suite.report.equal(f"_revs_diff at node {number}", {k: v["missing"] for k, v in missing.items()}, {row["id"]: ["9-abc"] for row in rows[:3]})


def test_races(suite, nodes):
    """Two nodes update one revision at the same time: one of them does."""
    nodes.database("races")
    wrong = []
    for turn in range(RACES):
        path = f"/races/{turn}"
        rev = nodes[1].expect(201, "PUT", path, {})["rev"]
        answers = at_once(*(lambda i=i: nodes[i].put(path, {"_rev": rev, "by": i}) for i in nodes))
        statuses = sorted(answer.status for answer in answers)
        winner = next((answer.json["rev"] for answer in answers if answer.status == 201), None)
        seen = [api.get(path + "?conflicts=true").json for api in nodes.apis.values()]
        if statuses != [201, 409, 409] or any(doc["_rev"] != winner or "_conflicts" in doc for doc in seen):
            wrong.append(f"{path}: {answers} {seen}")
    suite.report.check(f"{RACES} times three nodes update one revision at once: one 201, two 409, no conflict", not wrong, "\n".join(wrong[:4]))
    rev = nodes[1].expect(201, "PUT", "/races/grafted", {})["rev"]
    grafts = [f"2-{i}" + "0" * 31 for i in nodes]
    docs = [{"_id": "grafted", "_rev": graft, "_revisions": {"start": 2, "ids": [graft[2:], rev[2:]]}} for graft in grafts]
    at_once(*(lambda i=i: nodes[i].expect(201, "POST", "/races/_bulk_docs", {"docs": [docs[i - 1]], "new_edits": False}) for i in nodes))
    nodes.everywhere(
        "conflicts that are replicated to three nodes are there on all",
        "/races/grafted?conflicts=true",
        lambda doc: [doc["_rev"], *doc["_conflicts"]] == sorted(grafts, reverse=True),
    )


def test_other_writes(suite, nodes):
    report = suite.report
    nodes.database("other")
    for i in nodes:
        made = nodes[i].expect(201, "PUT", f"/other/_local/{i}", {"n": i})
        nodes.everywhere(
            f"a local document of node {i}", f"/other/_local/{i}", lambda doc, made=made, i=i: (doc["_rev"], doc["n"]) == (made["rev"], i)
        )
        nodes[i].expect(200, "DELETE", f"/other/_local/{i}?rev={made['rev']}")
        nodes.status_everywhere("it is deleted", f"/other/_local/{i}", 404)
        rev = nodes[i].expect(201, "PUT", "/other/purged", {"n": i})["rev"]
        purged = nodes[i % 3 + 1].request("POST", "/other/_purge", {"purged": [rev]})
        report.equal("_purge", (purged.status, purged.json["purged"]), (201, {"purged": [rev]}))
        nodes.everywhere("a purged document is gone", "/other/purged", lambda body: body["reason"] == "missing", 404)
        nodes.everywhere("nothing deleted is left", "/other", lambda body: body["doc_del_count"] == 0)
        security = {"admins": {"names": [f"a{i}"], "roles": []}, "members": {"names": [], "roles": [f"r{i}"]}}
        nodes[i].expect(200, "PUT", "/other/_security", security)
        nodes.everywhere(f"_security of node {i}", "/other/_security", security)
        nodes[i].expect(200, "PUT", "/other/_revs_limit", 50 + i)
        nodes.everywhere(f"_revs_limit of node {i}", "/other/_revs_limit", 50 + i)
        nodes[i].expect(201, "PUT", "/other/_auto_purge", {"deleted_document_ttl": f"{i + 1}_days"})
        nodes.everywhere(f"_auto_purge of node {i}", "/other/_auto_purge", {"deleted_document_ttl": f"{i + 1}_days"})
        nodes[i].expect(200, "PUT", "/other/_purged_infos_limit", 500 + i)
        nodes.everywhere(f"_purged_infos_limit of node {i}", "/other/_purged_infos_limit", 500 + i)


def test_replication_documents(suite, nodes):
    """Each job runs on one node, all show it, and another node continues those of a node that is gone."""
    cluster, report = nodes.cluster, suite.report
    nodes.database("jobs")
    jobs = [f"job-{i}" for i in range(JOBS)]
    url = cluster.nodes[1].url.replace("//", f"//{ADMIN}@")
    body = {"source": f"{url}/jobs", "create_target": True, "continuous": True}
    for i, job in enumerate(jobs):
        nodes[i % 3 + 1].expect(201, "PUT", f"/_replicator/{job}", {**body, "target": f"{url}/{job}"})

    def shown(api):
        docs = api.expect(200, "GET", "/_scheduler/docs")["docs"]
        return {doc["doc_id"]: doc["node"] for doc in docs if doc["state"] == "running"}

    def run(numbers):
        running = wait_until(lambda: all(len(shown(nodes[number])) == JOBS for number in numbers), SPREAD_TIMEOUT_S, 0.3)
        report.check("all jobs run", running, [nodes[number].get("/_scheduler/docs") for number in numbers])
        views = [shown(nodes[number]) for number in numbers]
        report.check("all nodes show the same", all(view == views[0] for view in views), views)
        return views[0]

    before = run(nodes)
    names = {number: nodes[number].expect(200, "GET", "/_node/_local")["name"] for number in nodes}
    report.equal("every node runs some", set(before.values()), set(names.values()))
    rows = [api.expect(200, "GET", "/_scheduler/jobs")["jobs"] for api in nodes.apis.values()]
    report.equal("_scheduler/jobs has each once", [sorted(row["doc_id"] for row in listed) for listed in rows], [sorted(jobs)] * 3)

    def tasks(api):
        return sorted(task["doc_id"] for task in api.expect(200, "GET", "/_active_tasks") if task["type"] == "replication")

    # Those that know where they start.
    listed = wait_until(lambda: all(tasks(api) == sorted(jobs) for api in nodes.apis.values()), SEEN_TIMEOUT_S, 0.2)
    report.check("_active_tasks too", listed, [tasks(api) for api in nodes.apis.values()])
    found = [api.get(f"/_scheduler/jobs/{quote(rows[0][0]['id'])}").json["doc_id"] for api in nodes.apis.values()]
    report.equal("every node finds a job", found, [rows[0][0]["doc_id"]] * 3)
    nodes[2].expect(201, "PUT", "/jobs/first", {})
    report.check("what is written is copied", wait_until(lambda: all(nodes[3].get(f"/{job}/first").status == 200 for job in jobs), SEEN_TIMEOUT_S))
    victim = 2
    own = [job for job, node in before.items() if node == names[victim]]
    began = time.monotonic()
    cluster.kill(victim)
    try:
        left = [number for number in nodes if number != victim]
        after = run(left)
        report.note(f"{len(own)} jobs of a dead node run elsewhere after {time.monotonic() - began:.1f} s")
        report.check("none is the dead node's", names[victim] not in after.values(), after)
        report.equal(
            "the others' stay where they are",
            {job: after[job] for job in jobs if job not in own},
            {job: before[job] for job in jobs if job not in own},
        )
        nodes[left[0]].expect((201, 202), "PUT", "/jobs/second", {})
        seen = wait_until(lambda: all(nodes[left[1]].get(f"/{job}/second").status == 200 for job in jobs), SEEN_TIMEOUT_S)
        report.check("and go on", seen)
    finally:
        cluster.restart(victim)
    cluster.wait_until_whole()
    nodes = Nodes(suite, cluster)
    report.check("they go back", wait_until(lambda: shown(nodes[1]) == before, SPREAD_TIMEOUT_S, 0.3), (shown(nodes[1]), before))
    nodes[2].expect(201, "PUT", "/_replicator/once", {**body, "target": f"{url}/once", "continuous": False})
    done = wait_until(
        lambda: {api.get("/_scheduler/docs/_replicator/once").json.get("state") for api in nodes.apis.values()} == {"completed"}, SEEN_TIMEOUT_S, 0.2
    )
    report.check("one that ends is completed at all nodes", done, nodes[1].get("/_replicator/once"))
    transient = {"source": "jobs", "target": "transient", "create_target": True, "continuous": True}
    nodes[1].expect(202, "POST", "/_replicate", transient)
    nodes[3].expect(200, "POST", "/_replicate", {**transient, "cancel": True})
    report.equal("a second cancel finds none", nodes[3].post("/_replicate", {**transient, "cancel": True}).status, 404)
    for job in [*jobs, "once"]:
        rev = nodes[1].expect(200, "GET", f"/_replicator/{job}")["_rev"]
        nodes[1].expect(200, "DELETE", f"/_replicator/{job}?rev={rev}")
    gone = wait_until(lambda: not any(api.expect(200, "GET", "/_scheduler/jobs")["jobs"] for api in nodes.apis.values()), SEEN_TIMEOUT_S, 0.2)
    report.check("they end with their documents", gone)


def test_db_updates(suite, nodes):
    """All nodes show the events of all, in one order, also while nodes die."""
    cluster, report = nodes.cluster, suite.report
    since = nodes[1].expect(200, "GET", "/_db_updates?since=now")["last_seq"]
    expected = set()

    def events(api):
        rows = api.expect(200, "GET", f"/_db_updates?since={quote(since)}")["results"]
        return [(row["db_name"], row["type"]) for row in rows]

    def act(numbers, prefix):
        for number in numbers:
            name = f"{prefix}-{number}"
            nodes[number].expect((201, 202), "PUT", f"/{name}")
            nodes[number].expect((201, 202), "PUT", f"/{name}/doc", {})
            expected.update((name, kind) for kind in ("created", "updated"))
            if number == numbers[0]:
                nodes[number].expect((200, 202), "DELETE", f"/{name}")
                expected.add((name, "deleted"))
                # Of a database that is gone only the end is certain.
                expected.discard((name, "updated"))

    def seen_by(numbers):
        def all_seen():
            views = [events(nodes[number]) for number in numbers]
            return expected <= set(views[0]) and all(view == views[0] for view in views)

        report.check("all events are seen, in one order", wait_until(all_seen, SPREAD_TIMEOUT_S, 0.3), [events(nodes[number]) for number in numbers])

    act(list(nodes), "event")
    seen_by(list(nodes))
    for victim in (2, 3):
        cluster.kill(victim)
        try:
            left = [number for number in nodes if number != victim]
            act(left, f"without-{victim}")
            seen_by(left)
        finally:
            cluster.restart(victim)
        cluster.wait_until_whole()
        nodes = Nodes(suite, cluster)


def test_expired_documents(suite, nodes):
    """One node deletes for all, and another one when it is gone."""
    cluster, report = nodes.cluster, suite.report
    nodes.database("expiring")
    properties = {"expires_at": "until", "expired_documents": "delete"}
    nodes[2].expect(201, "PUT", "/expiring/_auto_purge", properties)
    nodes.everywhere("the property", "/expiring/_auto_purge", properties)

    def deleted(numbers):
        path = "/_node/_local/_stats/settee/expiry/deleted"
        return [nodes[number].expect(200, "GET", path)["value"] for number in numbers]

    def expire(name, numbers):
        for number in numbers:
            refused = nodes[number].put(f"/expiring/{name}-{number}", {"until": "soon"})
            report.equal(f"node {number} refuses an invalid time", refused.status, 400)
            nodes[number].expect((201, 202), "PUT", f"/expiring/{name}-{number}", {"until": int(time.time())})
        for reader, number in itertools.product(numbers, numbers):
            gone = wait_until(lambda reader=reader, number=number: nodes[reader].get(f"/expiring/{name}-{number}").status == 404, 60, 0.2)
            report.check(f"{name}-{number} expires at node {reader}", gone, nodes[reader].get(f"/expiring/{name}-{number}"))

    expire("first", nodes)
    # A deletion is counted after it is seen.
    report.check("each is counted", wait_until(lambda: sum(deleted(nodes)) >= 3), deleted(nodes))
    report.equal("each is deleted once", sum(deleted(nodes)), 3)
    first = deleted(nodes).index(max(deleted(nodes))) + 1
    others = [number for number in nodes if number != first]
    before = sum(deleted(others))
    cluster.kill(first)
    try:
        expire("second", others)
        report.check("by another node", wait_until(lambda: sum(deleted(others)) - before >= 2), deleted(others))
        report.equal("once", sum(deleted(others)) - before, 2)
    finally:
        cluster.restart(first)
    cluster.wait_until_whole()
    nodes = Nodes(suite, cluster)
    nodes.everywhere("all are gone everywhere", "/expiring", lambda body: (body["doc_count"], body["doc_del_count"]) == (0, 5))


def test_attachments(suite, nodes):
    nodes.database("attachments")
    for i, size in itertools.product(nodes, (10_000, 100_000, 1_000_000)):
        content = suite.random.randbytes(size)
        digest = "md5-" + base64.b64encode(hashlib.md5(content).digest()).decode()
        path = f"/attachments/{i}-{size}"
        answer = nodes[i].put(path + "/a.bin", content, headers={"Content-Type": "application/octet-stream"})
        if not suite.report.equal(f"{size} bytes are attached at node {i}", answer.status, 201):
            continue
        raw = [api.get(path + "/a.bin").raw for api in nodes.apis.values()]
        suite.report.check("every node has them at once", all(r == content for r in raw), [len(r) for r in raw])
        nodes.everywhere(
            "and their digest",
            path,
            lambda doc, d=digest, s=size: (doc["_attachments"]["a.bin"]["digest"], doc["_attachments"]["a.bin"]["length"]) == (d, s),
        )
        inline = {"_rev": answer.json["rev"], "_attachments": {"a.bin": {"stub": True}, "b.txt": {"content_type": "text/plain", "data": "aGk="}}}
        suite.report.equal("a stub of it is taken at another node", nodes[i % 3 + 1].put(path, inline).status, 201)
        raw = [api.get(path + "/a.bin").raw == content for api in nodes.apis.values()]
        suite.report.equal("its content is the same", raw, [True] * 3)


def test_copies(suite, nodes):
    """How many nodes are to have a write, and how many are asked for a read."""
    nodes.database("copies")
    for w, status in ((1, 201), (2, 201), (3, 201), (5, 202)):
        statuses = [api.put(f"/copies/{w}-{number}?w={w}", {}).status for number, api in nodes.apis.items()]
        suite.report.equal(f"w={w}", statuses, [status] * 3)
        answer = nodes[1].post(f"/copies/_bulk_docs?w={w}", {"docs": [{"_id": f"bulk-{w}"}]})
        suite.report.equal(f"_bulk_docs with w={w}", (answer.status, [row["id"] for row in answer.json]), (status, [f"bulk-{w}"]))
    nodes.status_everywhere("what has 202 is there", "/copies/5-1", 200)
    for r in (1, 2, 3):
        answers = {
            number: wait_until(lambda api=api, r=r: api.get(f"/copies/3-1?r={r}").status == 200, SEEN_TIMEOUT_S) for number, api in nodes.apis.items()
        }
        suite.report.check(f"r={r}", all(answers.values()), answers)
    answer = nodes[2].put("/copies/batch?batch=ok", {})
    suite.report.equal("batch=ok", (answer.status, answer.json.get("ok")), (202, True))
    seen = [wait_until(lambda api=api: api.get("/copies/batch").status == 200, SEEN_TIMEOUT_S) for api in nodes.apis.values()]
    suite.report.equal("and it is written", seen, [True] * 3)
    suite.report.equal("_ensure_full_commit", nodes[3].post("/copies/_ensure_full_commit", {}).status, 201)


def test_said_of_the_cluster(suite, nodes):
    names = sorted(node["name"] for node in nodes.cluster.status(1)["nodes"])
    suite.report.equal("three members", names, ["node1@127.0.0.1", "node2@127.0.0.1", "node3@127.0.0.1"])
    nodes.everywhere("_membership", "/_membership", {"all_nodes": names, "cluster_nodes": names})
    nodes.database("said?q=2")
    nodes.everywhere("_shards", "/said/_shards", lambda body: [sorted(held) for held in body["shards"].values()] == [names] * 2)
    nodes.everywhere("_shards of a document", "/said/_shards/a", lambda body: sorted(body["nodes"]) == names)
    nodes.everywhere(
        "what a database says of copies",
        "/said",
        lambda body: (body["cluster"]["q"], body["cluster"]["n"], body["cluster"]["w"], body["cluster"]["r"]) == (2, 3, 2, 2),
    )
    nodes.everywhere("_up", "/_up", lambda body: body["status"] == "ok")
    uuids = {api.get("/").json["uuid"] for api in nodes.apis.values()}
    suite.report.equal("the server's uuid is the cluster's", len(uuids), 1)
    own = [api.get("/_node/_local").json.get("name") for api in nodes.apis.values()]
    suite.report.equal("every node knows its name", own, names)
    for i, j in nodes.pairs():
        answer = nodes[i].get(f"/_node/{names[j - 1]}")
        suite.report.equal(f"node {i} asks node {j} for its name", (answer.status, answer.json.get("name")), (200, names[j - 1]))
    suite.report.equal("an unknown node", nodes[1].get("/_node/nobody@127.0.0.1/_stats").status, 404)
    anonymous = nodes.cluster.api(1, credentials="")
    suite.report.equal("the status is for admins", anonymous.get("/_settee/cluster").status, 401)
    suite.report.equal("and tokens are", anonymous.post("/_settee/cluster/tokens", {}).status, 401)


def test_queries(suite, nodes):
    nodes.database("queries")
    nodes[1].expect(201, "PUT", "/queries/_design/d", DESIGN)
    nodes[2].expect(200, "POST", "/queries/_index", {"index": {"fields": ["n"]}, "name": "n"})
    wrong = []
    for turn, (i, j) in enumerate([*nodes.pairs()] * 2, 1):
        doc_id = f"doc-{turn:03}"
        nodes[i].expect(201, "PUT", f"/queries/{doc_id}", {"n": turn})
        view = nodes[j].expect(200, "GET", "/queries/_design/d/_view/by_n?reduce=false&" + json_query(key=turn))
        total = nodes[j].expect(200, "GET", "/queries/_design/d/_view/by_n")
        found = nodes[j].expect(200, "POST", "/queries/_find", {"selector": {"n": turn}})
        listed = nodes[j].expect(200, "GET", f"/queries/_all_docs?include_docs=true&key={quote(chr(34) + doc_id + chr(34))}")
        changes = nodes[j].expect(200, "GET", "/queries/_changes")
        seen = {
            "view": [row["id"] for row in view["rows"]] == [doc_id],
            "reduction": total["rows"][0]["value"] == turn,
            "_find": [doc["_id"] for doc in found["docs"]] == [doc_id],
            "_all_docs": [row["doc"]["n"] for row in listed["rows"]] == [turn],
            "_changes": changes["results"][-1]["id"] == doc_id or doc_id in [row["id"] for row in changes["results"]],
            "doc_count": nodes[j].expect(200, "GET", "/queries")["doc_count"] == turn + 2,
        }
        wrong += [f"{what} at node {j} lacks {doc_id} of node {i}" for what, ok in seen.items() if not ok]
    suite.report.check("views, _find, _all_docs, _changes and counts see the latest write of any node", not wrong, "\n".join(wrong[:8]))
    bodies = [api.get("/queries/_design/d/_view/by_n?reduce=false").json for api in nodes.apis.values()]
    suite.report.check("a view is the same at all nodes", bodies[0] == bodies[1] == bodies[2], bodies)


def test_feeds(suite, nodes):
    nodes.database("feeds?q=2")
    for n in range(20):
        nodes[n % 3 + 1].expect(201, "PUT", f"/feeds/{n}", {})
    seqs = [api.get("/feeds").json["update_seq"] for api in nodes.apis.values()]
    suite.report.equal("update_seq is the same at all nodes", len(set(seqs)), 1)
    answers = {number: api.get("/feeds/_changes").json for number, api in nodes.apis.items()}
    sets = [sorted((row["id"], row["changes"][0]["rev"]) for row in answer["results"]) for answer in answers.values()]
    suite.report.check("every node's feed has the same rows", sets[0] == sets[1] == sets[2] and len(sets[0]) == 20, [len(s) for s in sets])
    wrong = []
    for (i, j), at in itertools.product(nodes.pairs(), (0, 7, 19)):
        since = answers[i]["results"][at]["seq"]
        before = {row["id"] for row in answers[i]["results"][: at + 1]}
        rest = nodes[j].expect(200, "GET", "/feeds/_changes?since=" + quote(since))
        ids = [row["id"] for row in rest["results"]]
        if before & set(ids) or before | set(ids) != {row["id"] for row in answers[i]["results"]}:
            wrong.append(f"after row {at} of node {i}, node {j} has {ids}")
    suite.report.check("a seq of one node goes on at another, with nothing lost or twice", not wrong, "\n".join(wrong))
    for i, j in nodes.pairs():
        reader = nodes.cluster.api(j)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(reader.get, "/feeds/_changes?feed=longpoll&timeout=20000&since=" + quote(seqs[0]))
            nodes[i].expect(201, "PUT", f"/feeds/late-{i}-{j}", {})
            rows = waiting.result().json["results"]
        suite.report.check(f"a feed at node {j} wakes up for node {i}", any(row["id"] == f"late-{i}-{j}" for row in rows), rows)
        seqs = [api.get("/feeds").json["update_seq"] for api in nodes.apis.values()]


def test_designs(suite, nodes):
    """A design document that is acknowledged at one node is in force on all."""
    wrong = []
    for i in nodes:
        name = f"designs-{i}"
        nodes.database(name, at=i)
        rev = nodes[i].expect(201, "PUT", f"/{name}/_design/d", DESIGN)["rev"]
        for j in nodes:
            answers = [nodes.put(j, f"/{name}/bad-{j}-{n}", {"bad": True}).status for n in range(3)]
            bulk = nodes[j].post(f"/{name}/_bulk_docs", {"docs": [{"_id": f"b-{j}-{n}", "bad": True} for n in range(20)]})
            refused = [row.get("error") for row in bulk.json] if bulk.status == 201 else bulk
            if answers != [403] * 3 or refused != ["forbidden"] * 20:
                wrong.append(f"design document of node {i}, node {j}: {answers} {refused}")
        nodes[i].expect(200, "DELETE", f"/{name}/_design/d?rev={rev}")
        after = [nodes.put(j, f"/{name}/good-{j}", {"bad": True}).status for j in nodes]
        if after != [201] * 3:
            wrong.append(f"after it was deleted at node {i}: {after}")
    suite.report.check("validate_doc_update is in force everywhere when it is acknowledged, and no longer", not wrong, "\n".join(wrong))


def test_users_and_admins(suite, nodes):
    report = suite.report
    for i in nodes:
        user = {"_id": f"org.couchdb.user:u{i}", "name": f"u{i}", "password": "one", "roles": [], "type": "user"}
        rev = nodes[i].expect(201, "PUT", f"/_users/org.couchdb.user:u{i}", user)["rev"]
        logins = [log_in(nodes, j, f"u{i}:one") for j in nodes]
        report.equal(f"a user of node {i} logs in at every node at once", [answer.status for answer in logins], [200] * 3)
        nodes[i % 3 + 1].expect(201, "PUT", f"/_users/org.couchdb.user:u{i}", {**user, "_rev": rev, "password": "two"})
        report.equal("a new password counts at once", [log_in(nodes, j, f"u{i}:two").status for j in nodes], [200] * 3)
        report.equal("and the old one no more", [log_in(nodes, j, f"u{i}:one").status for j in nodes], [401] * 3)
        cookie = log_in(nodes, i, f"u{i}:two").headers["Set-Cookie"].split(";")[0]
        known = [nodes.cluster.api(j, credentials="").get("/_session", headers={"Cookie": cookie}).json["userCtx"]["name"] for j in nodes]
        report.equal("its cookie counts at every node", known, [f"u{i}"] * 3)
        answer = nodes[i].put(f"/_node/_local/_config/admins/boss{i}", "secret")
        report.equal(f"an admin is made at node {i}", answer.status, 200)
        seen = [
            wait_until(lambda j=j, i=i: nodes.cluster.api(j, credentials=f"boss{i}:secret").get("/_settee/cluster").status == 200, SEEN_TIMEOUT_S)
            for j in nodes
        ]
        report.equal("and is one at every node", seen, [True] * 3)
        nodes[i % 3 + 1].expect(200, "DELETE", f"/_node/_local/_config/admins/boss{i}")
        gone = [
            wait_until(lambda j=j, i=i: nodes.cluster.api(j, credentials=f"boss{i}:secret").get("/_all_dbs").status == 401, SEEN_TIMEOUT_S)
            for j in nodes
        ]
        report.equal("until one node removes it", gone, [True] * 3)


def test_shared_at_once(suite, nodes):
    """What all nodes share is the same at the next request to any of them, every time."""
    wrong = []
    for turn in range(SHARED_TURNS):
        i, j = suite.random.sample(list(nodes), 2)
        name = f"shared-{turn}"
        nodes.database(name, at=i)
        expect(wrong, nodes[j].put(f"/{name}/a", {}), 201, f"PUT at {j} into a database made at {i}")
        secret = {"admins": {"names": [], "roles": []}, "members": {"names": [f"s{turn}"], "roles": []}}
        nodes[j].expect(200, "PUT", f"/{name}/_security", secret)
        seen = nodes[i].get(f"/{name}/_security")
        if seen.json != secret:
            wrong.append(f"_security set at {j}, read at {i}: {seen!r}")
        user = {"name": f"s{turn}", "password": "one", "roles": [], "type": "user"}
        expect(wrong, log_in(nodes, j, f"s{turn}:one"), 401, f"log-in at {j} before the user is there")
        nodes[i].expect(201, "PUT", f"/_users/org.couchdb.user:s{turn}", user)
        expect(wrong, log_in(nodes, j, f"s{turn}:one"), 200, f"log-in at {j} of a user made at {i}")
        theirs = nodes.cluster.api(j, credentials=f"s{turn}:one")
        expect(wrong, theirs.get(f"/{name}/a"), 200, f"a read at {j} by a member")
        nodes[i].expect(200, "PUT", f"/{name}/_security", {**secret, "members": {"names": ["nobody"], "roles": []}})
        expect(wrong, theirs.get(f"/{name}/a"), 403, f"a read at {j} by whom node {i} shut out")
        nodes[i].expect(200, "DELETE", f"/{name}")
        expect(wrong, nodes[j].get(f"/{name}/a"), 404, f"GET at {j} from a database deleted at {i}")
        expect(wrong, nodes[j].put(f"/{name}/b", {}), 404, f"PUT at {j} into a database deleted at {i}")
    suite.report.check(f"{SHARED_TURNS} times databases, security and users of one node count at once at another", not wrong, "\n".join(wrong[:12]))


def expect(wrong, answer, status, what):
    if answer.status != status:
        wrong.append(f"{what}: {answer!r}")


def log_in(nodes, number, credentials):
    name, password = credentials.split(":")
    return nodes.cluster.api(number, credentials="").post("/_session", {"name": name, "password": password})


def test_digests(suite, nodes):
    replicas_are_alike(suite, nodes)


def replicas_are_alike(suite, nodes):
    why = nodes.cluster.wait_until_equal()
    suite.report.check("all replicas applied the same", not why, why)


def test_restarts(suite, nodes):
    nodes.database("restarts")
    rev = nodes[1].expect(201, "PUT", "/restarts/kept", {})["rev"]
    for number in nodes:
        nodes.cluster.restart(number)
        nodes = Nodes(suite, nodes.cluster)
        nodes.everywhere(f"node {number} was stopped and started: a document is there", "/restarts/kept", lambda doc: doc["_rev"] == rev)
        suite.report.equal("and it takes writes", nodes[number].put(f"/restarts/after-{number}", {}).status, 201)
    suite.report.equal("all nodes stop cleanly", nodes.cluster.stop_nodes(), [0] * 3)
    began = time.monotonic()
    nodes.cluster.start_nodes()
    suite.report.note(f"all nodes are back {time.monotonic() - began:.1f} s after their start")
    nodes = Nodes(suite, nodes.cluster)
    nodes.everywhere("all nodes were stopped and started: a document is there", "/restarts/kept", lambda doc: doc["_rev"] == rev)
    suite.report.equal("and all take writes", [api.put(f"/restarts/all-{j}", {}).status for j, api in nodes.apis.items()], [201] * 3)
    replicas_are_alike(suite, nodes)


def test_status_of_a_node_alone(suite, nodes):
    """The status says what the writes of a node say that lost the others."""
    cluster = nodes.cluster
    nodes.database("alone")
    nodes[1].expect(201, "PUT", "/alone/read", {})
    nodes[1].expect(200, "PUT", "/alone/_security", {"admins": {}, "members": {}})
    for number in (2, 3):
        cluster.kill(number)
    try:
        seen = wait_until(
            lambda: not any(slot["takes_writes"] for slot in (cluster.status(1) or {"slots": [{"takes_writes": True}]})["slots"]), SEEN_TIMEOUT_S
        )
        suite.report.check("no slot takes writes", seen, cluster.status(1))
        said = cluster.command("status", cluster.url_of(1))
        suite.report.check("the command says why", "slots: 0 of " in said and "a majority of its replicas does not answer" in said, said)
        suite.report.equal("r=1 reads a public database", cluster.api(1, credentials="").get("/alone/read?r=1").status, 200)
        # The state of a moment ago counts for two seconds.
        answers = []

        def is_refused():
            answers.append(Api(cluster.nodes[1].url, ADMIN, REFUSAL_TIMEOUT_S).get("/alone/read?r=1"))
            return answers[-1].status == 503

        refused = wait_until(is_refused, SEEN_TIMEOUT_S)
        suite.report.check("a login is refused, with the reason", refused and "the login is still valid" in answers[-1].json["reason"], answers[-1])
        suite.report.equal("a write is refused", cluster.api(1, timeout=REFUSAL_TIMEOUT_S).put("/alone/refused", {}).status, 503)
    finally:
        for number in (2, 3):
            cluster.restart(number)
    cluster.wait_until_whole()
    replicas_are_alike(suite, Nodes(suite, cluster))


def test_tokens(suite, nodes):
    cluster = nodes.cluster
    folder = suite.folder(f"tokens-{cluster.log}")
    join = [cluster.binary, "cluster", "join", "--address", "127.0.0.1:1", "--name"]
    short = cluster.command("token", cluster.url_of(1), "--seconds", 1).strip()
    expired = time.monotonic() + 2.1
    token = cluster.command("token", cluster.url_of(2)).strip()
    refused(suite, "a name that a member has", [*join, "node1", "--data", folder / "same", "--token", token], "node1")
    suite.report.check("and nothing is left of it", not (folder / "same" / "cluster" / "member.json").exists(), os.listdir(folder / "same"))
    done = cluster.try_command("join", "--data", folder / "used", "--token", token, "--name", "used", "--address", "127.0.0.1:1")
    if suite.report.equal("the token is good for another name", (done.returncode, done.stderr), (0, "")):
        refused(suite, "a used token", [*join, "another", "--data", folder / "another", "--token", token], "token")
        left = cluster.try_command("leave", cluster.url_of(1), "--node", "used@127.0.0.1")
        suite.report.equal("a node that never came leaves", (left.returncode, left.stderr), (0, ""))
    through = ["join", "--if-absent", "--through", cluster.url_of(3), "--data", folder / "through", "--name", "through", "--address", "127.0.0.1:1"]
    twice = [cluster.try_command(*through) for _ in range(2)]
    suite.report.equal("a node gets a token by itself", [(done.returncode, done.stderr) for done in twice], [(0, "")] * 2)
    suite.report.check("once", "is a node of the cluster" in twice[0].stdout and "already" in twice[1].stdout, twice)
    refused(suite, "a token and where to get one", [cluster.binary, "cluster", *map(str, through), "--token", token], "--token")
    cluster.try_command("leave", cluster.url_of(1), "--node", "through@127.0.0.1")
    time.sleep(max(0.0, expired - time.monotonic()))
    refused(suite, "an expired token", [*join, "late", "--data", folder / "late", "--token", short], "expired")
    refused(suite, "no token at all", [*join, "none", "--data", folder / "none", "--token", "nonsense"], "token")
    good = cluster.command("token", cluster.url_of(1)).strip()
    middle = len(good) * 3 // 4
    wrong = good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :]
    refused(suite, "a token with a wrong letter", [*join, "wrong", "--data", folder / "wrong", "--token", wrong], "token")
    refused(suite, "a wrong password", [cluster.binary, "cluster", "token", cluster.nodes[1].url.replace("//", "//admin:wrong@")], "401")
    names = sorted(node["name"] for node in cluster.status(3)["nodes"])
    suite.report.equal("nobody joined", names, ["node1@127.0.0.1", "node2@127.0.0.1", "node3@127.0.0.1"])


def test_copied_directory(suite, nodes):
    """Two processes with one identity: it is said, and nothing is lost."""
    cluster = nodes.cluster
    original = cluster.nodes[2]
    nodes.database("copied")
    cluster.kill(2)
    copy = cluster.make_node(9, *free_ports(2))
    shutil.copytree(original.folder, copy.folder)
    cluster.restart(2)
    cluster.wait_until_whole()
    cluster.start_process(copy)
    try:
        said = wait_until(lambda: any("have this node's identity" in node.log() for node in (*cluster.nodes.values(), copy)), SEEN_TIMEOUT_S)
        suite.report.check("a copied data directory is noticed", said, "".join(node.log()[-600:] for node in (*cluster.nodes.values(), copy)))
        statuses = [nodes[number].put(f"/copied/while-{number}", {}).status for number in (1, 3)]
        suite.report.equal("the others take writes meanwhile", statuses, [201] * 2)
    finally:
        copy.end(signal.SIGKILL)
    cluster.wait_until_whole()
    nodes = Nodes(suite, cluster)
    suite.report.equal(
        "all take writes once the copy is gone", [api.put(f"/copied/after-{j}", {}).status for j, api in nodes.apis.items()], [201] * 3
    )
    nodes.everywhere("and nothing is lost", "/copied", lambda body: body["doc_count"] == 5)
    replicas_are_alike(suite, nodes)


def test_leaving(suite, nodes):
    """A fourth node joins, has everything, and leaves."""
    cluster = nodes.cluster
    nodes.database("leaving")
    rev = nodes[1].expect(201, "PUT", "/leaving/before", {})["rev"]
    fourth = cluster.make_node(4, *free_ports(2))
    cluster.nodes[4] = fourth
    try:
        cluster.join(fourth)
        cluster.start_process(fourth)
        fourth.wait_until_ready()
        cluster.wait_until_whole()
        four = Nodes(suite, cluster)
        four.everywhere("a fourth node has what was there", "/leaving/before", lambda doc: doc["_rev"] == rev)
        suite.report.equal("and takes writes", four[4].put("/leaving/at-4", {}).status, 201)
        four.everywhere("which all see", "/leaving", lambda body: body["doc_count"] == 2)
        four.everywhere("n is the number of nodes", "/leaving", lambda body: body["cluster"]["n"] == 4)
        left = cluster.try_command("leave", cluster.url_of(4))
        suite.report.equal("it leaves", (left.returncode, left.stderr), (0, ""))
        suite.report.check("the command has its name and number", left.stdout.startswith("node4@127.0.0.1, number "), left.stdout)
        knows = wait_until(lambda: "this node is not a member" in cluster.try_command("status", cluster.url_of(4)).stdout, SEEN_TIMEOUT_S)
        suite.report.check("its own status says so", knows, cluster.try_command("status", cluster.url_of(4)))
        is_out = wait_until(lambda: all(len(slot["members"]) == 3 for slot in cluster.status(1)["slots"]), 60)
        suite.report.check("no slot has it any more", is_out, cluster.status(1))
        said = cluster.command("status", cluster.url_of(1))
        suite.report.check(
            "the printed status shows that", " on node3@127.0.0.1" in said and "(not a member)" not in said and "node4@" not in said, said
        )
        members = [len(cluster.status(number)["nodes"]) for number in (1, 2, 3)]
        suite.report.equal("nobody lists it", members, [3] * 3)
        try:
            answer = cluster.api(4, timeout=3).put("/leaving/late", {})
            suite.report.check("it takes no writes", answer.status >= 400, repr(answer))
        except Disconnected as gone:
            suite.report.check("it takes no writes", "timed out" in str(gone), gone)
    finally:
        fourth.end(signal.SIGKILL)
        del cluster.nodes[4]
    again = cluster.try_command("leave", cluster.url_of(1), "--node", "node4@127.0.0.1")
    suite.report.check("it leaves once", again.returncode == 1 and "404" in again.stderr, again)
    cluster.wait_until_whole()
    nodes = Nodes(suite, cluster)
    suite.report.equal("the others go on", [api.put(f"/leaving/after-{j}", {}).status for j, api in nodes.apis.items()], [201] * 3)
    cluster.start_process(fourth)
    wait_until(lambda: not fourth.is_running(), 3)
    suite.report.check("started again it is not let in", len(cluster.status(1)["nodes"]) == 3, cluster.status(1)["nodes"])
    fourth.end(signal.SIGKILL)
    replicas_are_alike(suite, nodes)


def test_the_commands_of_the_readme(ctx):
    """Three commands on three machines make a cluster; here, three addresses of this one."""
    text = (ctx.checkout / "README.md").read_text(encoding="utf-8")
    (block,) = [block for block in markdown.blocks(text) if "settee cluster join" in block.text]
    environment = os.environ | {"PATH": f"{pathlib.Path(ctx.binary).parent}:{os.environ['PATH']}"}
    nodes, running = [], []
    try:
        for number, line in enumerate(block.text.splitlines(), 1):
            address = f"127.84.0.{number}"
            data = ctx.folder("readme") / str(number)
            command = line.replace("10.0.0.", "127.84.0.").replace("0.0.0.0", address).replace("--data data", f"--data {data}")
            with open(data.with_suffix(".log"), "wb") as log:
                running.append(subprocess.Popen(["bash", "-c", command], stdout=log, stderr=log, env=environment, start_new_session=True))
            nodes.append(Api(f"http://{address}:5984", "admin:PASSWORD", REFUSAL_TIMEOUT_S))
            ready = wait_until(lambda node=nodes[-1]: answers(node), REFUSAL_TIMEOUT_S, 0.2)
            ctx.report.check(f"machine {number} runs a node", ready, data.with_suffix(".log").read_text(errors="replace"))
        whole = wait_until(lambda: all(len(node.get("/_membership").json.get("all_nodes", [])) == 3 for node in nodes), REFUSAL_TIMEOUT_S, 0.2)
        ctx.report.check("they are one cluster", whole)
        nodes[0].expect(201, "PUT", "/shop")
        rev = nodes[1].expect(201, "PUT", "/shop/tea", {"price": 4.5})["rev"]
        ctx.report.equal("which has one state", nodes[2].expect(200, "GET", "/shop/tea")["_rev"], rev)
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(node):
    try:
        return node.get("/_up").status == 200
    except (Disconnected, OSError):
        return False

"""A single server becomes the first node of a cluster in place, and a node becomes the first one of a new cluster after its own was lost.
Everything that the single server answered is answered by each node, with the same update sequences, and no index is rebuilt there.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from harness.api import quote
from harness.faulty_cluster import ADMIN, ENGINES, FaultyCluster
from harness.prometheus import metrics
from harness.server import Server, track, wait_until

pytestmark = [pytest.mark.on_disk, pytest.mark.costly_hashes]

SLOTS = 4
NODES = (1, 2, 3)
COMMAND_TIMEOUT_S = 120
SEEN_TIMEOUT_S = 60
ADOPTED_WITHIN_S = 15
SECRET = "anna-password-7"
DESIGN = {
    "views": {
        "by_n": {"map": "function (doc) { if (doc.n !== undefined) emit(doc.n % 10, doc.n); }", "reduce": "_stats"},
        "own": {"map": "function (doc) { emit(doc.kind, 1); }", "reduce": "function (keys, values, again) { return sum(values); }"},
    },
    "nouveau": {"texts": {"index": "function (doc) { if (doc.text) index('text', 'text', doc.text, {store: true}); }"}},
    "validate_doc_update": "function (doc) { if (doc.bad) throw({forbidden: 'bad'}); }",
}
QUERIES = (
    "/things/_design/d/_view/by_n?reduce=false",
    "/things/_design/d/_view/by_n?group=true",
    "/things/_design/d/_view/own?group=true",
    "/things/_design/d/_nouveau/texts?q=text:seven&limit=200&sort=%22%3Cscore%3E%22",
    "/parts/_partition/p1/_all_docs?include_docs=true",
)
# Map functions run in processes.
BUILDS = ("couchdb_query_server_process_starts_total", "settee_text_indexes_documents_total")
# The server changes these in a document of _replicator while its job runs.
OF_THE_JOB = re.compile(r"^_replication_|^_rev$")
PROPERTIES = ("_security", "_revs_limit", "_purged_infos_limit", "_auto_purge", "_purged_infos")
COUNTS = ("db_name", "doc_count", "doc_del_count", "update_seq", "purge_seq", "instance_start_time", "props")


def settee(ctx, *arguments, **more):
    command = [ctx.binary, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False, **more)


def refused(ctx, name, done, *words):
    said = done.stdout + done.stderr
    is_clear = done.returncode in (1, 2) and all(word in said for word in words) and "panicked" not in said
    ctx.report.check(f"{name} is refused, and why is said", is_clear, f"exit {done.returncode}\n{said}")


def ended_well(ctx, name, done, *words):
    fits = done.returncode == 0 and all(word in done.stdout for word in words)
    return ctx.report.check(f"{name} ends well", fits, f"exit {done.returncode}, wanted {words}\n{done.stdout}{done.stderr}")


def documents(random, count):
    kinds = ("seven dwarfs", "seven samurai", "eight")
    return [{"_id": f"doc-{n:04}", "n": n, "kind": n % 3, "text": kinds[n % 3], "more": "x" * random.randrange(300)} for n in range(count)]


def fill(ctx, api, count):
    """Content of all kinds."""
    for name in ("things?q=3", "parts?partitioned=true&q=2", "with%2Fslash", "empty?q=5", "dropped"):
        api.expect(201, "PUT", "/" + name)
    api.expect(200, "DELETE", "/dropped")
    rows = api.expect(201, "POST", "/things/_bulk_docs", {"docs": documents(ctx.random, count)})
    revs = {row["id"]: row["rev"] for row in rows}
    for doc_id in list(revs)[5:25]:
        api.expect(200, "DELETE", f"/things/{doc_id}?rev={revs[doc_id]}")
    for doc_id in list(revs)[30:40]:
        branches = [{"_id": doc_id, "_rev": f"2-{at}" + "0" * 31, "branch": at} for at in "ab"]
        for branch in branches:
            branch["_revisions"] = {"start": 2, "ids": [branch["_rev"][2:], revs[doc_id][2:]]}
        api.expect(201, "POST", "/things/_bulk_docs", {"docs": branches, "new_edits": False})
    for doc_id in list(revs)[50:53]:
        api.expect(201, "POST", "/things/_purge", {doc_id: [revs[doc_id]]})
    sizes = (0, 10, 50_000, 70_000, 3_000_000)
    for at, doc_id in enumerate(list(revs)[60:70]):
        content = ctx.random.randbytes(sizes[at % len(sizes)])
        answer = api.put(f"/things/{doc_id}/bytes?rev={revs[doc_id]}", content, headers={"Content-Type": "application/octet-stream"})
        assert answer.status == 201, answer
    inline = {"a.txt": {"content_type": "text/plain", "data": base64.b64encode(b"inline " * 3000).decode()}}
    api.expect(201, "PUT", "/with%2Fslash/attached", {"_attachments": inline})
    api.expect(201, "PUT", "/things/_design/d", DESIGN)
    api.expect(200, "POST", "/things/_index", {"index": {"fields": ["n"]}, "name": "by-n", "ddoc": "mango"})
    api.expect(201, "POST", "/parts/_bulk_docs", {"docs": [{"_id": f"p{n % 3}:{n}"} for n in range(60)]})
    api.expect(201, "PUT", "/things/_local/mine", {"at": [1, 2, 3]})
    properties(api)


def properties(api):
    api.expect(200, "PUT", "/things/_security", {"admins": {"names": [], "roles": []}, "members": {"names": ["anna"], "roles": ["staff"]}})
    api.expect(200, "PUT", "/things/_revs_limit", 77)
    api.expect(200, "PUT", "/things/_purged_infos_limit", 55)
    api.expect(201, "PUT", "/things/_auto_purge", {"deleted_document_ttl": "3_weeks", "expires_at": "until", "expired_documents": "purge"})
    api.expect(201, "PUT", "/_users/org.couchdb.user:anna", {"name": "anna", "password": SECRET, "roles": ["staff"], "type": "user"})


def add_job(api, url):
    """A replication that goes on in the cluster. Answers when it has copied all."""
    url = url.replace("//", f"//{ADMIN}@")
    job = {"source": f"{url}/things", "target": f"{url}/copied", "create_target": True, "continuous": True}
    api.expect(201, "PUT", "/_replicator/job", job)
    count = api.expect(200, "GET", "/things")["doc_count"]
    assert wait_until(lambda: api.get("/copied").json.get("doc_count") == count, SEEN_TIMEOUT_S, 0.2), api.get("/_scheduler/docs")
    # Its checkpoint follows.
    assert wait_until(lambda: checkpoint(api), SEEN_TIMEOUT_S, 0.2), api.get("/_active_tasks")


def checkpoint(api):
    tasks = api.expect(200, "GET", "/_active_tasks")
    return next((task for task in tasks if task["type"] == "replication" and task.get("checkpointed_source_seq") not in (None, 0)), None)


def observed(api, queries=True):
    """All that can be asked, but for what differs between servers: sizes and copies, and what jobs write."""
    state = {}
    for name in api.expect(200, "GET", "/_all_dbs"):
        # Its events tell of the start; checkpoints are counted.
        if name == "_global_changes":
            continue
        path = "/" + quote(name)
        info = api.expect(200, "GET", path)
        of = {"info": {member: info[member] for member in COUNTS}, "q": info["cluster"]["q"]}
        rows = api.expect(200, "GET", path + "/_all_docs?include_docs=true&conflicts=true")["rows"]
        of["changes"] = api.expect(200, "GET", path + "/_changes?style=all_docs")["results"]
        of |= {name: api.get(f"{path}/{name}").json for name in PROPERTIES}
        if name == "_replicator":
            rows = [without_job(row) for row in rows]
            del of["changes"], of["info"]["update_seq"]
        of["rows"], of["attachments"] = rows, contents(api, path, rows)
        state[name] = of
    state["local"] = api.expect(200, "GET", "/things/_local/mine")
    if queries:
        state |= {query: without_time(api.expect(200, "GET", query)) for query in QUERIES}
        find = {"selector": {"n": {"$gt": 10}}, "limit": 500, "fields": ["_id", "n"], "use_index": "mango"}
        state["find"] = api.expect(200, "POST", "/things/_find", find)["docs"]
    return state


def without_job(row):
    row["doc"] = {name: value for name, value in row["doc"].items() if not OF_THE_JOB.match(name)}
    return row | {"value": None}


def without_time(answer):
    return {name: value for name, value in answer.items() if name not in ("bookmark", "update_seq", "update_latency")}


def contents(api, path, rows):
    return {
        f"{row['id']}/{name}": hashlib.sha256(api.get(f"{path}/{quote(row['id'])}/{quote(name)}").raw).hexdigest()
        for row in rows
        for name in row["doc"].get("_attachments", {})
    }


def same(ctx, name, found, wanted):
    differing = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
    shown = [(key, short(found.get(key), wanted.get(key))) for key in differing]
    return ctx.report.check(name, not differing, json.dumps(shown)[:3000])


def short(found, wanted):
    """What differs, where both are objects."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return {key: short(found.get(key), wanted.get(key)) for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)}
    return [str(found)[:300], str(wanted)[:300]]


def number(api, name):
    return metrics(api)(name)


class Adopted:
    """A cluster whose first node was a single server."""

    def __init__(self, ctx, log):
        self.ctx, self.report = ctx, ctx.report
        self.cluster = FaultyCluster(ctx, f"adopted-{log}", log=log, slots=SLOTS)
        self.first = self.cluster.nodes[1]
        self.server = Server(ctx.binary, self.first.folder, admin=ADMIN, port=self.first.http_port)

    def adopt(self, *more):
        node = ("--name", "node1", "--address", self.first.address, "--slots", SLOTS)
        return settee(self.ctx, "cluster", "init", "--adopt", "--data", self.first.folder, *node, *more)


@pytest.fixture(scope="module", params=ENGINES)
def adopted(suite, request):
    adopted = Adopted(suite, request.param)
    adopted.first.folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        adopted.cluster.brokers.start()
        yield adopted
        logs = "".join(node.log() for node in adopted.cluster.nodes.values() if node.log_path.exists())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        adopted.cluster.stop()


def test_adoption(suite, adopted):
    report, cluster = suite.report, adopted.cluster
    with adopted.server as server:
        api = server.api()
        fill(suite, api, suite.size(300, 3_000))
        add_job(api, server.url)
        before = observed(api)
        report.check("its metrics count builds of indexes", all(number(api, name) for name in BUILDS), [number(api, name) for name in BUILDS])
        since = {name: api.expect(200, "GET", f"/{name}/_changes?limit=100")["last_seq"] for name in ("things", "parts", "_users")}
        rest = {name: api.expect(200, "GET", f"/{name}/_changes?since={quote(seq)}")["results"] for name, seq in since.items()}
        refused(suite, "a server that runs", adopted.adopt(), "stop it first")
    planned = adopted.adopt("--dry-run")
    ended_well(suite, "a dry run", planned, "would become", "things", "Nothing was changed")
    report.check("and makes no node", not adopted.first.is_member(), sorted(path.name for path in adopted.first.folder.iterdir()))
    began = time.monotonic()
    ended_well(suite, "the adoption", adopted.adopt(), "node1@127.0.0.1", "things")
    report.note(f"a store with {before['things']['info']['doc_count']} documents is adopted within {time.monotonic() - began:.2f} s")
    refused(suite, "a node", adopted.adopt(), "already")
    cluster.start_process(adopted.first)
    adopted.first.wait_until_ready()
    cluster.wait_until_whole([1])
    one = cluster.api(1)
    for query in QUERIES:
        # Custom reduce functions run in a process, too.
        if "_view/own" not in query:
            one.expect(200, "GET", query)
    built = [number(one, name) for name in BUILDS]
    report.equal("no view or text index was rebuilt: no map function ran", built, [0, 0])
    same(suite, "the first node answers what the single server did", observed(one), before)
    for name, seq in since.items():
        seen = one.expect(200, "GET", f"/{name}/_changes?since={quote(seq)}")["results"]
        report.equal(f"a feed of {name} continues from an earlier sequence", seen, rest[name])
    began = time.monotonic()
    cluster.start_others()
    report.note(f"two nodes have joined and copied after {time.monotonic() - began:.1f} s")
    for at in NODES[1:]:
        same(suite, f"node {at} answers what the single server did", observed(cluster.api(at)), before)
    report.equal("replicas are equal", cluster.wait_until_equal(), "")


def test_further_work(suite, adopted):
    """A node that was adopted is one like others."""
    report, cluster = suite.report, adopted.cluster
    apis = cluster.apis()
    for at, api in apis.items():
        api.expect(201, "PUT", f"/things/by-{at}", {"n": 1000 + at, "text": "seven"})
        api.expect(201, "PUT", f"/new-{at}?q=2")
        report.equal(f"node {at} validates", api.put("/things/bad", {"bad": True}).status, 403)
    listed = [[row["id"] for row in api.expect(200, "GET", "/things/_all_docs")["rows"] if row["id"].startswith("by-")] for api in apis.values()]
    report.equal("what is written at each node is read at all", listed, [["by-1", "by-2", "by-3"]] * 3)
    sums = [api.expect(200, "GET", "/things/_design/d/_view/by_n?key=1")["rows"][0]["value"]["max"] for api in apis.values()]
    report.equal("views have it", sums, [1001] * 3)
    copied = wait_until(lambda: all(apis[3].get(f"/copied/by-{at}").status == 200 for at in NODES), SEEN_TIMEOUT_S, 0.2)
    report.check("the replication goes on", copied, apis[1].get("/_scheduler/docs"))
    states = {api.get("/_scheduler/docs/_replicator/job").json.get("state") for api in apis.values()}
    report.equal("all nodes show it", states, {"running"})
    users = [cluster.api(at, credentials=f"anna:{SECRET}").get("/things/by-1").status for at in NODES]
    report.equal("a user logs in at all nodes", users, [200] * 3)
    report.equal("replicas are equal", cluster.wait_until_equal(), "")
    cluster.stop_nodes()
    for at in NODES:
        ended_well(suite, f"check of the store of node {at}", settee(suite, "check", "--indexes", cluster.nodes[at].folder), "sound")
    for at in NODES:
        cluster.start_process(cluster.nodes[at])
    for at in NODES:
        cluster.nodes[at].wait_until_ready()
    cluster.wait_until_whole()


def test_maintenance_reaches_all_nodes(suite, adopted):
    report, cluster = suite.report, adopted.cluster
    apis = cluster.apis()
    for api in apis.values():
        api.expect(200, "GET", "/things/_design/d/_view/own")
        api.expect(200, "GET", "/things/_design/d/_nouveau/texts?q=text:seven")
    doc = apis[1].expect(200, "GET", "/things/doc-0045")
    apis[1].expect(201, "PUT", "/things/doc-0045", doc)
    doc = apis[1].expect(200, "GET", "/things/_design/d")
    doc["views"]["own"]["map"] += " "
    doc["nouveau"]["texts"]["index"] += " "
    apis[2].expect(201, "PUT", "/things/_design/d", doc)

    def indexes():
        """The number of indexes of each node's store, and of folders of text indexes."""
        stores = [cluster.nodes[at].folder / "store" / "text" for at in NODES]
        return [len(list(store.iterdir())) if store.is_dir() else 0 for store in stores]

    for api in apis.values():
        api.expect(200, "GET", "/things/_design/d/_nouveau/texts?q=text:seven")
    before = indexes()
    apis[3].expect((200, 202), "POST", "/things/_nouveau_cleanup", {})
    apis[3].expect((200, 202), "POST", "/things/_search_cleanup", {})
    apis[3].expect(202, "POST", "/things/_view_cleanup", {})
    fewer = wait_until(lambda: all(now < then for now, then in zip(indexes(), before, strict=True)), SEEN_TIMEOUT_S, 0.2)
    report.check("a clean-up at one node drops indexes at all", fewer, (before, indexes()))
    earlier = wait_until(lambda: all(bodies(api) == 2 for api in apis.values()), SEEN_TIMEOUT_S, 0.2)
    report.check("bodies of earlier revisions are there", earlier, [bodies(api) for api in apis.values()])
    apis[1].expect(202, "POST", "/things/_compact", {})
    compacted = wait_until(lambda: all(bodies(api) == 1 for api in apis.values()), SEEN_TIMEOUT_S, 0.2)
    report.check("a compaction at one node compacts at all", compacted, [bodies(api) for api in apis.values()])
    report.equal("_sync_shards too", apis[2].post("/things/_sync_shards", {}).status, 202)


def bodies(api):
    """The number of revisions of an edited document that this node has bodies of."""
    doc = api.get("/things/doc-0045?revs_info=true&r=1").json
    return sum(info["status"] == "available" for info in doc["_revs_info"])


def test_reseed_of_one_slot(suite, adopted):
    report, cluster = suite.report, adopted.cluster
    url = cluster.url_of(1)

    def generations():
        return {slot["slot"]: slot["generation"] for slot in cluster.status(1)["slots"]}

    before = generations()
    planned = settee(suite, "cluster", "reseed", url, "--slot", "1", "--dry-run")
    ended_well(suite, "a dry run of reseed", planned, "slot 1:", "LOST", "KEPT", "Nothing was changed")
    report.equal("and changes nothing", generations(), before)
    refused(suite, "an unknown slot", settee(suite, "cluster", "reseed", url, "--slot", "99"), "slot")
    ended_well(suite, "reseed of one slot", settee(suite, "cluster", "reseed", url, "--slot", "1"))
    moved = wait_until(lambda: generations()["1"] > before["1"], SEEN_TIMEOUT_S, 0.2)
    report.check("the slot has a new generation", moved, generations())
    cluster.wait_until_whole()
    report.equal("no other has", {slot: of for slot, of in generations().items() if slot != "1"}, {s: of for s, of in before.items() if s != "1"})
    cluster.api(2).expect(201, "PUT", "/things/after-reseed", {})
    report.equal("replicas are equal", cluster.wait_until_equal(), "")


def test_migration_brings_replications(suite, adopted):
    """`settee migrate` into a cluster copies documents of replicator databases, and their jobs run there."""
    report, cluster = suite.report, adopted.cluster
    apis = cluster.apis()
    with suite.server("migrated") as source:
        there = source.api()
        there.expect(201, "PUT", "/moved")
        there.expect(201, "POST", "/moved/_bulk_docs", {"docs": [{"_id": f"m{n}"} for n in range(20)]})
        # The migration compares `_users` too.
        there.expect(201, "PUT", "/_users/org.couchdb.user:anna?new_edits=false", apis[1].expect(200, "GET", "/_users/org.couchdb.user:anna"))
        url = source.url.replace("//", f"//{source.admin}@")
        there.expect(
            201, "PUT", "/_replicator/moved", {"source": f"{url}/moved", "target": f"{url}/elsewhere", "create_target": True, "continuous": True}
        )
        there.expect(201, "PUT", "/_replicator/done", {"source": f"{url}/a", "target": f"{url}/b", "_replication_state": "completed"})
        assert wait_until(lambda: there.get("/elsewhere/m19").status == 200, SEEN_TIMEOUT_S, 0.2)
        done = settee(suite, "migrate", url, "--to", cluster.url_of(2), "--no-settings")
        ended_well(suite, "a migration into a cluster", done, "no difference")
        docs = [sorted(row["id"] for row in api.expect(200, "GET", "/_replicator/_all_docs")["rows"]) for api in apis.values()]
        report.check("all nodes have the replications", all({"moved", "done"} <= set(ids) for ids in docs), docs)
        runs = wait_until(
            lambda: {api.get("/_scheduler/docs/_replicator/moved").json.get("state") for api in apis.values()} == {"running"}, SEEN_TIMEOUT_S, 0.2
        )
        report.check("one that ran runs there", runs, apis[1].get("/_scheduler/docs"))
        there.expect(201, "PUT", "/moved/later", {})
        report.check("and copies", wait_until(lambda: there.get("/elsewhere/later").status == 200, SEEN_TIMEOUT_S, 0.2))
        report.equal("one that had ended has ended", apis[3].get("/_replicator/done").json["_replication_state"], "completed")
        rev = apis[1].expect(200, "GET", "/_replicator/moved")["_rev"]
        apis[1].expect(200, "DELETE", f"/_replicator/moved?rev={rev}")


def test_recovery(suite, adopted):
    """Two nodes of three are lost for good."""
    report, cluster = suite.report, adopted.cluster
    api = cluster.api(1)
    since = api.expect(200, "GET", "/things/_changes")["last_seq"]
    count = api.expect(200, "GET", "/things")["doc_count"]
    rev = api.expect(200, "GET", "/_replicator/job")["_rev"]
    api.expect(200, "DELETE", f"/_replicator/job?rev={rev}")
    cluster.wait_until_equal()
    data = adopted.first.folder
    recover = ("cluster", "recover", "--data", data, "--cluster")
    refused(suite, "the recovery of a node that runs", settee(suite, *recover, "again", "--dry-run"), "stop it first")
    for at in NODES:
        cluster.kill(at)
        cluster.nodes[at].is_wanted = False
        if at == 1:
            refused(suite, "a recovery while a majority runs", settee(suite, *recover, "again", "--accept-loss"), "node2@", "node3@", "stop them")
            refused(suite, "a dry run of it", settee(suite, *recover, "again", "--dry-run"), "LOST", "node2@", "node3@", "stop them")
            report.check("and changes nothing", adopted.first.is_member() and not (data / "cluster.lost").exists())
    for at in NODES[1:]:
        shutil.rmtree(cluster.nodes[at].folder)
    refused(suite, "a recovery without consent", settee(suite, *recover, "again"), "--accept-loss", "--dry-run")
    for consent in ("--accept-loss", "--dry-run"):
        refused(suite, f"a recovery under the same name, {consent}", settee(suite, *recover, "main", consent), "another name")
    refused(
        suite,
        "one of a directory without a node",
        settee(suite, *recover[:3], suite.folder("none"), "--cluster", "again", "--dry-run"),
        "no databases",
    )
    planned = settee(suite, *recover, "again", "--dry-run")
    ended_well(suite, "a dry run of a recovery", planned, "LOST", "KEPT", "control: ", "Nothing was changed")
    report.check("and changes nothing", adopted.first.is_member() and not (data / "cluster.lost").exists(), planned)
    ended_well(suite, "a recovery", settee(suite, *recover, "again", "--accept-loss"), "node1@127.0.0.1", "again")
    cluster.start_process(adopted.first)
    adopted.first.wait_until_ready()
    cluster.wait_until_whole([1])
    one = cluster.api(1)
    report.equal("the node has its documents", one.expect(200, "GET", "/things")["doc_count"], count)
    feed = one.expect(200, "GET", f"/things/_changes?since={quote(since)}")["results"]
    report.check("a feed starts from the beginning", len(feed) >= count, len(feed))
    cluster.start_others()
    counts = [api.expect(200, "GET", "/things")["doc_count"] for api in cluster.apis().values()]
    report.equal("others join it", counts, [count] * 3)
    cluster.api(3).expect(201, "PUT", "/things/after-recovery", {})
    report.equal("replicas are equal", cluster.wait_until_equal(), "")


def test_kills(ctx):
    """kill -9 at any moment of an adoption leaves a single server or a node."""
    report, template = ctx.report, ctx.root / "template"
    with Server(ctx.binary, template, admin=ADMIN) as server:
        api = server.api()
        fill(ctx, api, ctx.size(1_000, 20_000))
        before = observed(api)
    arguments = ("cluster", "init", "--adopt", "--cluster", "killed", "--slots", SLOTS)
    began = time.monotonic()
    copy(template, ctx.root / "whole")
    began = time.monotonic()
    ended_well(ctx, "an adoption without a kill", settee(ctx, *arguments, "--data", ctx.root / "whole"))
    length_s = time.monotonic() - began
    outcomes = {"single": 0, "node": 0}
    wrong = []
    for at in range(ctx.size(8, 100)):
        data = ctx.root / f"killed-{at}"
        copy(template, data)
        if why := one_kill(ctx, data, arguments, length_s * ctx.random.random() * 1.1, before, outcomes, at):
            wrong.append(f"round {at}: {why}")
        shutil.rmtree(data, ignore_errors=True)
    report.check("after each kill there is a single server or a node, and a second run ends it", not wrong, "\n".join(wrong)[:3000])
    report.note(f"after a kill: {outcomes['single']} single servers, {outcomes['node']} nodes; an adoption took {length_s:.2f} s")


def copy(template, data):
    shutil.rmtree(data, ignore_errors=True)
    subprocess.run(["cp", "-a", str(template), str(data)], check=True)


def one_kill(ctx, data, arguments, after_s, before, outcomes, at):
    """What is wrong afterwards."""
    command = [str(part) for part in (ctx.binary, *arguments, "--data", data)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    track(process)
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    is_node = (data / "cluster" / "member.json").exists()
    outcomes["node" if is_node else "single"] += 1
    if is_node:
        again = settee(ctx, *arguments, "--data", data)
        if again.returncode != 1 or "already" not in again.stderr:
            return f"a node was adopted again: {again}"
    else:
        # Every other time it is used in between.
        if at % 2 and (why := used_alone(ctx, data, before)):
            return why
        again = settee(ctx, *arguments, "--data", data)
        if again.returncode:
            return f"the second run: {again}"
    sound = settee(ctx, "check", data)
    return "" if sound.returncode == 0 else f"the store is damaged: {sound}"


def used_alone(ctx, data, before):
    with Server(ctx.binary, data, admin=ADMIN) as server:
        api = server.api()
        found = observed(api)
        differing = [key for key in before if found.get(key) != before[key]]
        api.expect(201, "PUT", "/things/in-between", {"n": 1})
        api.expect(201, "PUT", "/made-in-between")
        return f"the single server answers otherwise: {differing}" if differing else ""


def test_a_restored_backup_becomes_a_cluster(ctx):
    """Restoring into an empty cluster."""
    cluster = FaultyCluster(ctx, "restored", slots=SLOTS)
    first = cluster.nodes[1]
    try:
        with ctx.server("original") as server:
            api = server.api()
            fill(ctx, api, 200)
            before = observed(api)
            url = server.url.replace("//", f"//{server.admin}@")
            ended_well(ctx, "a backup", settee(ctx, "backup", url, ctx.root / "backups"))
        first.folder.parent.mkdir(parents=True, exist_ok=True)
        ended_well(ctx, "a restore", settee(ctx, "restore", ctx.root / "backups", first.folder))
        node = ("--name", "node1", "--address", first.address, "--slots", SLOTS)
        ended_well(ctx, "the adoption of a backup", settee(ctx, "cluster", "init", "--adopt", "--data", first.folder, *node))
        cluster.start()
        for at in NODES:
            same(ctx, f"node {at} has what was backed up", observed(cluster.api(at)), before)
    finally:
        cluster.stop()


def test_large_store(ctx):
    """The time of an adoption."""
    data = ctx.root / "large"
    with Server(ctx.binary, data, admin=ADMIN) as server:
        api = server.api()
        write_bytes(ctx, api, ctx.size(50 << 20, 2 << 30))
    size = sum(path.stat().st_size for path in (data / "store").rglob("*") if path.is_file())
    began = time.monotonic()
    done = settee(ctx, "cluster", "init", "--adopt", "--data", data, "--cluster", "large")
    took_s = time.monotonic() - began
    ended_well(ctx, "the adoption of a large store", done)
    ctx.limit(f"a store of {size >> 20} MiB is adopted within", took_s, ADOPTED_WITHIN_S, "s")


def write_bytes(ctx, api, total):
    """Documents of 1 KB with texts that do not compress, and a view."""
    api.expect(201, "PUT", "/large?q=4")
    api.expect(201, "PUT", "/large/_design/d", DESIGN)
    written = 0
    while written < total:
        docs = [{"n": n, "kind": n % 3, "text": "seven", "more": base64.b64encode(os.urandom(700)).decode()} for n in range(2_000)]
        api.expect(201, "POST", "/large/_bulk_docs", {"docs": docs})
        written += 2_000 * 1_000
    api.expect(200, "GET", "/large/_design/d/_view/by_n")

"""Five nodes, three of which have each slot, and a database whose shards are on different nodes: every node answers as one that has all
of it does."""

import json

import pytest

from harness.faulty_cluster import ENGINES, FaultyCluster
from harness.server import wait_until

pytestmark = pytest.mark.on_disk

NODES, COPIES, SLOTS, SHARDS = 5, 3, 32, 8
DOCUMENTS = 600
SETTLED_TIMEOUT_S = 180
# The same documents, spread and in one slot.
SPREAD, WHOLE = "spread", "whole"
DESIGN = {
    "_id": "_design/d",
    "views": {"v": {"map": "function(doc) { if ('n' in doc) { emit([doc.n % 5, doc.text], doc.n); emit(doc.n % 7); emit(doc.n % 7, 'again'); } }"}},
    "validate_doc_update": "function(doc, old) { if (doc.bad || old && old.fixed) throw({forbidden: 'no'}); }",
    "filters": {"even": "function(doc) { return doc.n % 2 == 0; }"},
}


def settled(cluster):
    slots = (cluster.status(1) or {}).get("placement", [])
    return len(slots) == SLOTS and all(slot["wanted"] == slot["replicas"] and not slot["learners"] for slot in slots)


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"spread-{request.param}", nodes=NODES, log=request.param, slots=SLOTS)
    try:
        cluster.start()
        cluster.command("place", cluster.url_of(1), "--copies", COPIES)
        suite.report.check("each slot has its nodes", wait_until(lambda: settled(cluster), SETTLED_TIMEOUT_S, 0.2), cluster.status(1))
        cluster.api(1).expect(201, "PUT", f"/{SPREAD}?q={SHARDS}&spread=true")
        cluster.api(1).expect(201, "PUT", f"/{WHOLE}?q={SHARDS}")
        docs = [DESIGN] + [{"_id": f"doc-{n:04}", "n": n, "text": 'é"\n,' * (n % 4)} for n in range(DOCUMENTS)]
        for i, name in enumerate([SPREAD, WHOLE]):
            cluster.api(2 + i).expect(201, "POST", f"/{name}/_bulk_docs", {"docs": docs})
            cluster.api(4).expect(200, "DELETE", f"/{name}/doc-0007?rev=" + cluster.api(3).expect(200, "GET", f"/{name}/doc-0007")["_rev"])
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


def test_shards_are_on_different_nodes(suite, cluster):
    shards = cluster.api(1).expect(200, "GET", f"/{SPREAD}/_shards")["shards"]
    suite.report.equal("each shard is on some nodes", [len(nodes) for nodes in shards.values()], [COPIES] * SHARDS)
    suite.report.check("not all on the same", len({tuple(sorted(nodes)) for nodes in shards.values()}) > 1, shards)


LISTINGS = [
    "",
    "?limit=0",
    "?limit=7&skip=5",
    "?skip=590&limit=20",
    "?skip=700",
    "?descending=true&skip=550",
    "?include_docs=true&startkey=%22doc-0100%22&endkey=%22doc-0120%22",
    "?startkey=%22doc-0100%22&skip=3&limit=2&inclusive_end=false",
    "?key=%22doc-0300%22",
    "?key=%22missing%22",
]


@pytest.mark.parametrize("query", LISTINGS)
def test_listings_are_those_of_one_node(suite, cluster, query):
    expected = cluster.api(1).expect(200, "GET", f"/{WHOLE}/_all_docs{query}")
    for number, api in cluster.apis().items():
        suite.report.equal(f"node {number}", api.expect(200, "GET", f"/{SPREAD}/_all_docs{query}"), expected)


VIEWS = [
    "",
    "?limit=7&skip=5",
    "?descending=true&limit=300&skip=3",
    "?key=3",
    "?key=3&descending=true",
    "?startkey=2&endkey=[1]&limit=400",
    "?startkey=3&startkey_docid=doc-0300&limit=40",
    "?limit=0",
]


@pytest.mark.parametrize("query", VIEWS)
def test_map_views_are_those_of_one_node(suite, cluster, query):
    expected = cluster.api(1).expect(200, "GET", f"/{WHOLE}/_design/d/_view/v{query}")
    for number, api in cluster.apis().items():
        suite.report.equal(f"node {number}", api.expect(200, "GET", f"/{SPREAD}/_design/d/_view/v{query}"), expected)


def test_each_change_comes_once_and_feeds_continue(suite, cluster):
    report = suite.report
    expected = sorted(row["id"] for row in cluster.api(1).expect(200, "GET", f"/{WHOLE}/_changes")["results"])
    for number, api in cluster.apis().items():
        whole = api.expect(200, "GET", f"/{SPREAD}/_changes")
        report.equal(f"node {number}: each once", sorted(row["id"] for row in whole["results"]), expected)
        report.equal("nothing is left", whole["pending"], 0)
        found, since = [], "0"
        while True:
            some = cluster.api(1 + len(found) % NODES).expect(200, "GET", f"/{SPREAD}/_changes?limit=50&since={since}")
            if not some["results"]:
                break
            found += [row["id"] for row in some["results"]]
            report.equal("the rest is counted", some["pending"], len(expected) - len(found))
            since = some["last_seq"]
        report.equal("in pieces through all nodes", found, [row["id"] for row in whole["results"]])
        even = api.expect(200, "GET", f"/{SPREAD}/_changes?filter=d/even")["results"]
        report.equal("filtered", len(even), DOCUMENTS // 2)
        now = api.expect(200, "GET", f"/{SPREAD}/_changes?since=now")
        report.equal("nothing since now", now["results"], [])
        later = api.expect(201, "PUT", f"/{SPREAD}/later-{number}", {"n": 1})
        rows = api.expect(200, "GET", f"/{SPREAD}/_changes?feed=longpoll&since={now['last_seq']}")["results"]
        report.equal("a feed that waits", [row["id"] for row in rows], [later["id"]])
        api.expect(200, "DELETE", f"/{SPREAD}/later-{number}?rev={later['rev']}")
        expected = sorted({*expected, later["id"]})


def test_requests_about_documents_of_several_shards(suite, cluster):
    report = suite.report
    revs = {row["id"]: row["value"]["rev"] for row in cluster.api(1).expect(200, "GET", f"/{WHOLE}/_all_docs")["rows"]}
    ids = [f"doc-{n:04}" for n in (3, 1, 599, 42, 7, 17)]
    asked = {id: [revs.get(id, "9-a"), "1-b"] for id in ids}
    got = {"docs": [{"id": id} for id in ids] + [{"id": "missing"}]}
    for path, body in [("_revs_diff", asked), ("_missing_revs", asked), ("_bulk_get", got)]:
        expected = json.dumps(cluster.api(1).expect(200, "POST", f"/{WHOLE}/{path}", body))
        for number, api in cluster.apis().items():
            answer = json.dumps(api.expect(200, "POST", f"/{SPREAD}/{path}", body))
            report.equal(f"{path} through node {number}", answer, expected)


def test_design_documents_validate_on_all_nodes(suite, cluster):
    report = suite.report
    for number, api in cluster.apis().items():
        docs = [{"_id": f"v{number}-{n}", "bad": n % 2 == 1} for n in range(8)]
        outcomes = api.expect(201, "POST", f"/{SPREAD}/_bulk_docs", {"docs": docs})
        report.equal("in order", [row["id"] for row in outcomes], [doc["_id"] for doc in docs])
        report.equal("validated", ["error" in row for row in outcomes], [doc["bad"] for doc in docs])
        fixed = api.expect(201, "PUT", f"/{SPREAD}/fixed-{number}", {"fixed": True})
        other = cluster.api(1 + number % NODES)
        other.expect(403, "PUT", f"/{SPREAD}/fixed-{number}?rev={fixed['rev']}", {})
        posted = api.expect(201, "POST", f"/{SPREAD}", {"x": number})
        report.equal("a new id", other.expect(200, "GET", f"/{SPREAD}/{posted['id']}")["x"], number)
    design = cluster.api(1).expect(200, "GET", f"/{SPREAD}/_design/d")
    design["validate_doc_update"] = "function(doc) { throw({forbidden: 'closed'}); }"
    cluster.api(2).expect(201, "PUT", f"/{SPREAD}/_design/d", design)
    for number, api in cluster.apis().items():
        for n in range(8):
            api.expect(403, "PUT", f"/{SPREAD}/closed-{number}-{n}", {})


def test_a_client_cannot_name_the_shards(suite, cluster):
    """The header of requests between nodes is removed from those of clients."""
    rows = cluster.api(1).expect(200, "GET", f"/{SPREAD}/_all_docs?limit=0")["total_rows"]
    headers = {"x-settee-part": "1"}
    for api in cluster.apis().values():
        answer = api.request("GET", f"/{SPREAD}/_all_docs?limit=0", headers=headers)
        suite.report.equal("all shards", answer.json["total_rows"], rows)

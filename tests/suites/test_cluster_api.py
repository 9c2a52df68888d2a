"""What clients get from a cluster is what a server alone answers: a table of requests (tests/harness/api_requests.py) and the recorded behaviour
of CouchDB (tests/vectors), through each node and through all in turns.

The differences that are meant are in tests/cluster_differences.txt and tests/cluster_vector_exceptions.txt, each with its reason.
"""

import json
from pathlib import Path

import pytest

from harness.api_requests import ROWS, Asked
from harness.faulty_cluster import ADMIN, ENGINES, FaultyCluster
from harness.vectors import AREAS, RoundRobin, load_replay, prepared, read_exceptions, run_area, vectors_folder

pytestmark = pytest.mark.on_disk

TESTS = Path(__file__).parent.parent
DIFFERENCES = read_exceptions(TESTS / "cluster_differences.txt")
VECTOR_EXCEPTIONS = read_exceptions(TESTS / "vector_exceptions.txt") | read_exceptions(TESTS / "cluster_vector_exceptions.txt")
ROUTES = {"node 1": (1,), "node 2": (2,), "node 3": (3,), "all in turns": (1, 2, 3)}
SHORT_ROUTES = ("node 2", "all in turns")
# The others run in a soak.
SHORT_AREAS = ("bulk", "revisions", "partitioned")
SHORT_ROUTE = "all in turns"


def routes(short):
    return [pytest.param(route, marks=() if route in short else pytest.mark.slow) for route in ROUTES]


def areas_and_routes():
    for route in ROUTES:
        for area in AREAS:
            is_short = route == SHORT_ROUTE and area in SHORT_AREAS
            yield pytest.param(area, route, marks=() if is_short else pytest.mark.slow)


@pytest.fixture(scope="module", params=ENGINES)
def cluster(suite, request):
    cluster = FaultyCluster(suite, f"api-{request.param}", log=request.param)
    try:
        cluster.start()
        yield cluster
        logs = "".join(node.log() for node in cluster.nodes.values())
        suite.report.check("no panic", "panicked" not in logs, logs[-1500:])
    finally:
        cluster.stop()


def asked(apis, at):
    """The answers to the table; `at` makes the names of its databases."""
    return Asked(apis, {"db": f"t{at}-main", "part": f"t{at}-part", "copy": f"t{at}-copy"}, ADMIN).answers()


@pytest.fixture(scope="module")
def alone(suite):
    """What a server alone answers."""
    with suite.server("alone", admin=ADMIN) as server:
        api = server.api()
        for name in ("_users", "_replicator", "_global_changes"):
            api.expect((201, 202, 412), "PUT", f"/{name}")
        return asked([api], 0)


def test_the_differences_are_of_the_table(suite):
    lines = {row.line for row in ROWS}
    suite.report.equal("differences that are of no request: remove their lines", sorted(set(DIFFERENCES) - lines), [])
    suite.report.note(f"{len(ROWS)} requests")


@pytest.mark.parametrize("route", routes(SHORT_ROUTES))
def test_requests(suite, cluster, alone, route):
    numbers = ROUTES[route]
    found = asked([cluster.api(number) for number in numbers], 1 + list(ROUTES).index(route))
    different = set()
    for (line, expected), (_, actual) in zip(alone, found, strict=True):
        # A node's own configuration is not that of the others.
        if len(numbers) > 1 and "/_node/_local/_config" in line:
            continue
        if actual != expected:
            different.add(line)
        if line not in DIFFERENCES:
            detail = f"a server alone: {json.dumps(expected)[:1500]}\n{route}: {json.dumps(actual)[:1500]}"
            suite.report.check(f"{route}: {line}", actual == expected, detail, quiet=True)
    suite.report.equal("differences that are none any more: remove their lines", sorted(set(DIFFERENCES) - different), [])
    suite.report.note(f"{route}: {len(found) - len(different)} of {len(found)} requests are answered as by a server alone")


@pytest.fixture(scope="module")
def folder(suite):
    return vectors_folder(suite)


@pytest.fixture(scope="module")
def replay(folder):
    return load_replay(folder)


@pytest.mark.parametrize(("area", "route"), areas_and_routes())
def test_recorded(suite, folder, replay, cluster, area, route):
    clients = [prepared(cluster.api(number), cluster.nodes[number].url, ADMIN, replay) for number in ROUTES[route]]
    is_round = len(clients) > 1
    client = RoundRobin(clients) if is_round else clients[0]
    # A node's own configuration is not that of the others, and what has one copy need not be at the next node.
    is_selected = lambda scenario: not (is_round and any(part in json.dumps(scenario) for part in ("/_node/_local/_config", '"w": 1')))
    failed = run_area(suite, replay, client, folder / f"{area}.jsonl", VECTOR_EXCEPTIONS, is_selected)
    new = [name for name in failed if name not in VECTOR_EXCEPTIONS]
    if new:
        suite.report.note("lines for tests/cluster_vector_exceptions.txt:\n" + "\n".join(f"{name} | WHY" for name in new))

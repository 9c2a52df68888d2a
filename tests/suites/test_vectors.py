"""Replays CouchDB's recorded behaviour (tests/vectors) against a server, area by area.

tests/vector_exceptions.txt lists the scenarios that are expected to fail, each with its reason:
`area / scenario | reason`. One that fails outside the list fails the suite, and so does one that is
listed but passes or no longer exists, so that the list only shrinks.
"""

import json
from pathlib import Path

import pytest

from harness.vectors import load_replay, read_exceptions, vectors_folder

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]

AREAS = [
    "documents",
    "revisions",
    "bulk",
    "changes",
    "database",
    "http",
    "partitioned",
    "auth",
    "views",
    "design-functions",
    "attachments",
    "replication",
    "mango",
    "nouveau",
    "nouveau10",
    "changes-validation",
    "mango-validation",
    "strict-input",
    "time-seq",
    "auto-purge",
    "reduce-limits",
    "server",
    "uuids",
]
SYSTEM_DATABASES = ["_users", "_replicator"]
DIFFERENCES_SHOWN = 5


EXCEPTIONS = read_exceptions(Path(__file__).parent.parent / "vector_exceptions.txt")


@pytest.fixture(scope="module")
def folder(suite):
    return vectors_folder(suite)


@pytest.fixture(scope="module")
def replay(folder):
    return load_replay(folder)


@pytest.fixture(scope="module")
def client(suite, replay):
    with suite.server() as server:
        yield prepared(server, replay)
        suite.report.check("no panic", "panicked" not in server.log(), tail_of_panic(server.log()))


@pytest.mark.parametrize("area", AREAS)
def test_recorded(suite, folder, replay, client, area):
    run_area(suite, replay, client, folder / f"{area}.jsonl", EXCEPTIONS)


def test_recorded_cookies(suite, folder, replay):
    """The recorded server's cookies, whose other attributes are to be as recorded too."""
    with suite.server("cookies", options=["--set", "chttpd_auth/same_site=omit"]) as server:
        others = {name: reason for name, reason in EXCEPTIONS.items() if "SameSite" not in reason}
        run_area(suite, replay, prepared(server, replay), folder / "auth.jsonl", others)


def test_exceptions_name_scenarios(suite, folder):
    scenarios = [json.loads(line) for area in AREAS for line in (folder / f"{area}.jsonl").read_text(encoding="utf-8").splitlines()]
    names = {f"{scenario['area']} / {scenario['name']}" for scenario in scenarios}
    suite.report.equal("exceptions that name no scenario: remove their lines", sorted(set(EXCEPTIONS) - names), [])


def prepared(server, replay):
    api = server.api()
    for name in SYSTEM_DATABASES:
        api.expect((201, 202, 412), "PUT", "/" + name)
    return replay.Client(server.url, server.admin)


def run_area(ctx, replay, client, path, exceptions):
    passed, expected_failures = 0, 0
    for line in path.read_text(encoding="utf-8").splitlines():
        scenario = json.loads(line)
        name = f"{scenario['area']} / {scenario['name']}"
        differences = without_races(replay.run_scenario(client, scenario))
        if name in exceptions:
            expected_failures += bool(differences)
            ctx.report.check(name, differences, "passes now, so it is no longer an exception: remove its line", quiet=True)
        else:
            passed += not differences
            ctx.report.check(name, not differences, describe(differences), quiet=True)
    ctx.report.note(f"{path.stem}: {passed} scenarios as recorded, {expected_failures} known exceptions")


def without_races(differences):
    """Leaves out what the recorded server happened to be doing: whether a compaction that was requested just before still runs."""
    kept = []
    for number, step, found in differences:
        if isinstance(found, list):
            found = [one for one in found if one[0] != "body.compact_running"]
        if found:
            kept.append((number, step, found))
    return kept


def describe(differences):
    lines = []
    for number, step, found in differences[:3]:
        lines.append(f"step {number} {step['method']} {step['path']}")
        for where, expected, actual in found[:DIFFERENCES_SHOWN] if isinstance(found, list) else []:
            lines.append(f"  {where}\n    expected {json.dumps(expected)[:400]}\n    actual   {json.dumps(actual)[:400]}")
    return "\n".join(lines)


def tail_of_panic(log):
    at = log.find("panicked")
    return log[max(0, at - 200) : at + 800] if at >= 0 else ""

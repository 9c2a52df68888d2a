"""Replays CouchDB's recorded behaviour (tests/vectors) against a server, area by area.

tests/vector_exceptions.txt lists the scenarios that are expected to fail, each with its reason:
`area / scenario | reason`. One that fails outside the list fails the suite, and so does one that is
listed but passes or no longer exists, so that the list only shrinks.
"""

import json
from pathlib import Path

import pytest

from harness.vectors import AREAS, load_replay, prepared, read_exceptions, run_area, vectors_folder

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]

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
        yield client_of(server, replay)
        suite.report.check("no panic", "panicked" not in server.log(), tail_of_panic(server.log()))


@pytest.mark.parametrize("area", AREAS)
def test_recorded(suite, folder, replay, client, area):
    run_area(suite, replay, client, folder / f"{area}.jsonl", EXCEPTIONS)


def test_recorded_cookies(suite, folder, replay):
    """The recorded server's cookies, whose other attributes are to be as recorded too."""
    with suite.server("cookies", options=["--set", "chttpd_auth/same_site=omit"]) as server:
        others = {name: reason for name, reason in EXCEPTIONS.items() if "SameSite" not in reason}
        run_area(suite, replay, client_of(server, replay), folder / "auth.jsonl", others)


def test_exceptions_name_scenarios(suite, folder):
    scenarios = [json.loads(line) for area in AREAS for line in (folder / f"{area}.jsonl").read_text(encoding="utf-8").splitlines()]
    names = {f"{scenario['area']} / {scenario['name']}" for scenario in scenarios}
    suite.report.equal("exceptions that name no scenario: remove their lines", sorted(set(EXCEPTIONS) - names), [])


def client_of(server, replay):
    return prepared(server.api(), server.url, server.admin, replay)


def tail_of_panic(log):
    at = log.find("panicked")
    return log[max(0, at - 200) : at + 800] if at >= 0 else ""

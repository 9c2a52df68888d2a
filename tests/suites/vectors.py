"""Replays CouchDB's recorded behaviour (tests/vectors) against a server, area by area.

tests/vector_exceptions.txt lists the scenarios that are expected to fail, each with its reason:
`area / scenario | reason`. One that fails outside the list fails the suite, and so does one that is
listed but passes or no longer exists, so that the list only shrinks.
"""

import importlib.util
import json
import os
import pathlib

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
]
SYSTEM_DATABASES = ["_users", "_replicator"]
DIFFERENCES_SHOWN = 5


def run(ctx):
    folder = vectors_folder(ctx)
    replay = load_replay(folder)
    exceptions = read_exceptions(ctx.checkout / "tests" / "vector_exceptions.txt")
    met = set()
    with ctx.server() as server:
        client = prepared(server, replay)
        for area in AREAS:
            met |= run_area(ctx, replay, client, folder / f"{area}.jsonl", exceptions)
        ctx.report.check("no panic", "panicked" not in server.log(), tail_of_panic(server.log()))
    # The recorded server's cookies, whose other attributes are to be as recorded too.
    with ctx.server("cookies", options=["--set", "chttpd_auth/same_site=omit"]) as server:
        others = {name: reason for name, reason in exceptions.items() if "SameSite" not in reason}
        run_area(ctx, replay, prepared(server, replay), folder / "auth.jsonl", others)
    for name in sorted(set(exceptions) - met):
        ctx.report.check(f"the exception '{name}' names a scenario", False, "no such scenario: remove the line")


def prepared(server, replay):
    api = server.api()
    for name in SYSTEM_DATABASES:
        api.expect((201, 202, 412), "PUT", "/" + name)
    return replay.Client(server.url, server.admin)


def vectors_folder(ctx):
    named = os.environ.get("SETTEE_VECTORS")
    return pathlib.Path(named) if named else ctx.checkout / "tests" / "vectors"


def load_replay(folder):
    spec = importlib.util.spec_from_file_location("replay", folder / "replay.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_exceptions(path):
    exceptions = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, bar, reason = line.rpartition("|")
        if not bar or not reason.strip():
            raise ValueError(f"{path}:{number}: expected 'area / scenario | reason'")
        exceptions[name.strip()] = reason.strip()
    return exceptions


def run_area(ctx, replay, client, path, exceptions):
    met, passed, expected_failures = set(), 0, 0
    for line in path.read_text(encoding="utf-8").splitlines():
        scenario = json.loads(line)
        name = f"{scenario['area']} / {scenario['name']}"
        differences = replay.run_scenario(client, scenario)
        if name in exceptions:
            met.add(name)
            expected_failures += bool(differences)
            ctx.report.check(name, differences, "passes now, so it is no longer an exception: remove its line", quiet=True)
        else:
            passed += not differences
            ctx.report.check(name, not differences, describe(differences), quiet=True)
    ctx.report.note(f"{path.stem}: {passed} scenarios as recorded, {expected_failures} known exceptions")
    return met


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

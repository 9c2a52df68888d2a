"""The recorded behaviour of CouchDB: where it is, its replayer, and the list of exceptions."""

import importlib.util
import itertools
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


def prepared(api, url, admin, replay):
    """A client of a server that has the databases that all scenarios expect."""
    for name in SYSTEM_DATABASES:
        api.expect((201, 202, 412), "PUT", "/" + name)
    return replay.Client(url, admin)


class RoundRobin:
    """A client of several servers, which it asks in turns. `base` is the address of the one that was asked last."""

    def __init__(self, clients):
        self.clients = itertools.cycle(clients)
        self.base, self.admin = clients[0].base, clients[0].admin

    def send(self, step, variables):
        client = next(self.clients)
        self.base = variables["base"] = client.base
        return client.send(step, variables)


def run_area(ctx, replay, client, path, exceptions, is_selected=lambda scenario: True):
    """Returns the names of the scenarios that are not as recorded."""
    passed, expected_failures, failed = 0, 0, []
    for line in path.read_text(encoding="utf-8").splitlines():
        scenario = json.loads(line)
        if not is_selected(scenario):
            continue
        name = f"{scenario['area']} / {scenario['name']}"
        differences = without_races(replay.run_scenario(client, scenario))
        if name in exceptions:
            expected_failures += bool(differences)
            ctx.report.check(name, differences, "passes now, so it is no longer an exception: remove its line", quiet=True)
        else:
            passed += not differences
            ctx.report.check(name, not differences, describe(differences), quiet=True)
        if differences:
            failed.append(name)
    ctx.report.note(f"{path.stem}: {passed} scenarios as recorded, {expected_failures} known exceptions")
    return failed


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

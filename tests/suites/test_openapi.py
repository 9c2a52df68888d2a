"""The description of the API in OpenAPI, which the server generates from its route table: it is valid, it agrees with the manual and the
authorisation matrix, and a fuzzer that follows it finds no fault of the server."""

import json
import os
import subprocess

import pytest

from harness import endpoints

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]

PATH = "/_settee/openapi.json"
# Values that lead somewhere.
VALUES = {
    "db": ["fuzzed", "partitioned", "none"],
    "ddoc": ["d", "none"],
    "design_doc": ["d"],
    "func": ["f", "none"],
    "index": ["i"],
    "name": ["i"],
    "node": ["none"],
    "node-name": ["_local"],
    "other-ddoc": ["d"],
    "partition_id": ["p", "q", "_p"],
    "replicator_db": ["_replicator", "none"],
    "view": ["v", "none"],
}
# What ends the server, waits for long, deletes what others need, or changes what it is.
LEFT_OUT = {
    ("post", "/_node/{node-name}/_restart"),
    ("get", "/_settee/profile"),
    ("delete", "/{db}"),
    ("put", "/_node/{node-name}/_config/{section}/{key}"),
    ("delete", "/_node/{node-name}/_config/{section}/{key}"),
    ("post", "/_cluster_setup"),
    ("post", "/_settee/backup"),
    ("put", "/{db}/_security"),
}
# Feeds that wait are for the suite `http_fuzz`.
WAITING = {"feed", "heartbeat"}


def described(ctx, server):
    return server.api().expect(200, "GET", PATH)


def run(ctx, program, *arguments, **options):
    command = [str(ctx.cache / "schemas" / "bin" / program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=ctx.size(300, 3600), check=False, **options)


def test_is_valid(ctx):
    with ctx.server("described") as server:
        api = described(ctx, server)
        anonymous = server.api(credentials="").request("GET", PATH)
    ctx.report.equal("anybody may read it", anonymous.status, 200)
    ctx.report.check("it has operations", len(operations(api)) > 130, len(operations(api)))
    path = ctx.root / "openapi.json"
    path.write_text(json.dumps(api), encoding="utf-8")
    done = run(ctx, "openapi-spec-validator", path)
    ctx.report.check("it is valid by OpenAPI's schema", done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:])


def operations(api):
    """{"METHOD path": who} of a description."""
    found = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                found[f"{method.removeprefix('x-').upper()} {path}"] = operation["x-settee"]["who"]
    return found


def named_as_described(path):
    """A path of the manual as the description has it."""
    return path.replace("/json/{name}", "/{kind}/{name}").rstrip("/") or "/"


def flat(routes, known):
    """{"METHOD path": who} of {path: {method: who}}. Functions have any method, of which the description has those that make sense."""
    found = {}
    for path, methods in routes.items():
        path = named_as_described(path)
        for method, who in methods.items():
            names = [name for name in known if name.endswith(" " + path)] if method == "any" else [f"{method} {path}"]
            found |= dict.fromkeys(names, who)
    return found


def test_agrees_with_the_manual_and_the_matrix(ctx):
    with ctx.server("described") as server:
        table = operations(described(ctx, server))
    manual = flat(endpoints.reference(ctx.checkout), table)
    for name in sorted(table.keys() | manual.keys()):
        ctx.report.equal(f"{name}: who may, by the route table and the manual", manual.get(name), table.get(name))
    matrix = flat(endpoints.matrix(endpoints.MORE) | endpoints.matrix(endpoints.ENDPOINTS), table)
    wrong = {name: [who, matrix[name]] for name, who in table.items() if name in matrix and matrix[name] != who}
    ctx.report.equal("who may, by the route table and the authorisation matrix", wrong, {})
    paths = {name.split()[1] for name in matrix}
    missing = sorted({name.split()[1] for name in table} - paths)
    ctx.report.equal("every path of the route table is in the matrix", missing, [])


def narrowed(api):
    """The description with names that exist, and without what would end the run."""
    parameters = api["components"]["parameters"]
    for name, values in VALUES.items():
        parameters[f"path.{name}"]["schema"] = {"enum": values}
    parameters["path.docid"]["schema"] = {"anyOf": [{"enum": ["p:a", "a"]}, {"type": "string", "minLength": 1}]}
    api["components"]["schemas"]["Endpoint"] = {"enum": ["fuzzed", "partitioned", "none"]}
    for method, path in LEFT_OUT:
        del api["paths"][path][method]
    for methods in api["paths"].values():
        for method in [method for method in methods if method.startswith("x-")]:
            del methods[method]
        for operation in methods.values():
            if "parameters" in operation:
                names = [parameter["$ref"].rpartition(".")[2] for parameter in operation["parameters"]]
                kept = zip(names, operation["parameters"], strict=True)
                operation["parameters"] = [parameter for name, parameter in kept if name not in WAITING]
    return api


def test_a_fuzzer_finds_no_fault(ctx):
    with ctx.server("fuzzed", options=["--set", "chttpd/changes_timeout=50"]) as server:
        api = server.api()
        for name, query in (("fuzzed", ""), ("partitioned", "?partitioned=true")):
            api.expect(201, "PUT", f"/{name}{query}")
            api.expect(201, "PUT", f"/{name}/p:a", {"n": 1, "_attachments": {"file.txt": {"data": "eA=="}}})
        design = {**endpoints.DESIGN, "indexes": {"i": {"index": "function (doc) { index('n', doc.n); }"}}}
        api.expect(201, "PUT", "/fuzzed/_design/d", design)
        path = ctx.root / "narrowed.json"
        path.write_text(json.dumps(narrowed(described(ctx, server))), encoding="utf-8")
        phases = ctx.size("fuzzing", "coverage,fuzzing")
        options = ["--phases", phases, "--max-examples", ctx.size(2, 100), "--seed", ctx.random.randrange(1 << 31), "--warnings", "off"]
        hooks = {**os.environ, "SCHEMATHESIS_HOOKS": "openapi_hooks"}
        fuzzer = run(
            ctx,
            "schemathesis",
            *("run", path, "--url", server.url, "--auth", "admin:admin", "--checks", "no_fault", *options),
            cwd=ctx.checkout / "tests" / "harness",
            env=hooks,
        )
        ctx.report.check("no answer is a fault of the server", fuzzer.returncode == 0, fuzzer.stdout[-6000:] + fuzzer.stderr[-2000:])
        ctx.report.check("the server still answers", api.request("GET", "/_up").status == 200, server.log()[-2000:])

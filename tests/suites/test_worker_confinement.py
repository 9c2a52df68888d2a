"""What a function could do that gets the JavaScript engine to run code of its own: it is in a process that reaches nothing."""

import contextlib
import errno
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from harness import intruder
from harness.memory import workers_of
from harness.server import wait_until

pytestmark = pytest.mark.quick

VIEW = {"views": {"v": {"map": "function (doc) { emit(doc._id, 1); }", "reduce": "function (k, v, r) { return sum(v); }"}}}
OTHERS = {
    "validate_doc_update": "function (doc) { if (doc.bad) throw {forbidden: 'bad'}; }",
    "filters": {"f": "function (doc, req) { return !doc._deleted; }"},
    "shows": {"s": "function (doc, req) { return String(new Date(0).getTimezoneOffset()); }"},
    "lists": {"l": "function (head, req) { var row, n = 0; while (row = getRow()) n++; return 'rows ' + n; }"},
    "updates": {"u": "function (doc, req) { return [{_id: req.query.id, at: Date.now(), r: Math.random()}, 'ok']; }"},
}
TEXTS = {
    "nouveau": {"n": {"index": "function (doc) { index('string', 'id', doc._id, {store: true}); }"}},
    "indexes": {"c": {"index": "function (doc) { index('id', doc._id, {store: true}); }"}},
}
FUNCTIONS = {**VIEW, **OTHERS, **TEXTS}

# A query server that says what it was given.
SPY = """
import json, os, sys
with open(sys.argv[1], "w") as out:
    files = {fd: os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)}
    json.dump({"files": files, "score": open("/proc/self/oom_score_adj").read()}, out)
for line in sys.stdin:
    print("[[[1,1]]]" if json.loads(line)[0] == "map_doc" else "true", flush=True)
"""


def inheriting(ctx, binary):
    """A program that starts the server with an open descriptor, as a careless script does."""
    secret = ctx.root / "secret"
    secret.write_text("of whoever starts the server", encoding="utf-8")
    script = ctx.root / "start"
    script.write_text(f'#!/bin/sh\nexec 7< {shlex.quote(str(secret))}\nexec {shlex.quote(str(binary))} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return script, str(secret)


def workers(server):
    """Programs that are started to ask how many processors there are, and the like, are none."""
    found = []
    for pid in workers_of(server):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == "settee-worker":
                found.append(pid)
    return found


def status(pid, field):
    return re.search(rf"^{field}:\s+(\S+)$", pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii"), re.MULTILINE)[1]


def use_all(api):
    """Runs a function of every kind; what each answers."""
    api.expect(201, "PUT", "/db?q=1")
    api.expect(201, "PUT", "/db/_design/d", FUNCTIONS)
    written = api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"d{n}"} for n in range(200)] + [{"_id": "bad", "bad": True}]})
    return {
        "validation": sum("error" in row for row in written),
        "view": api.expect(200, "GET", "/db/_design/d/_view/v")["rows"][0]["value"],
        "filter": len(api.expect(200, "GET", "/db/_changes?filter=d/f")["results"]),
        "show": api.get("/db/_design/d/_show/s").raw,
        "list": api.get("/db/_design/d/_list/l/v?reduce=false").raw,
        "update": api.post("/db/_design/d/_update/u?id=new").raw,
        "nouveau": api.expect(200, "GET", "/db/_design/d/_nouveau/n?q=*:*")["total_hits"],
        "search": api.expect(200, "GET", "/db/_design/d/_search/c?q=*:*")["total_rows"],
    }


def test_worker_process(ctx):
    """What the kernel says of a worker: a list of calls, no rights, no descriptors but its own, and it is the first to go."""
    binary, secret = inheriting(ctx, ctx.binary)
    server = ctx.server("data")
    server.binary = str(binary)
    with server:
        answers = use_all(server.api(60))
        expected = {"validation": 1, "view": 200, "filter": 201, "list": b"rows 200", "update": b"ok"}
        ctx.report.equal("functions of all kinds work", {key: answers[key] for key in expected}, expected)
        ctx.report.check("in local time", answers["show"] == zone_offset(), (answers["show"], zone_offset()))
        ctx.report.check("text indexes too", answers["nouveau"] >= 200 and answers["search"] >= 200, answers)
        ctx.report.equal("the server has what it was started with", os.readlink(f"/proc/{server.process.pid}/fd/7"), secret)
        pids = workers(server)
        ctx.report.check("there are workers", pids != [], pids)
        for pid in pids:
            # Both are the kernel's: 2 is a list of calls.
            ctx.report.equal("seccomp", status(pid, "Seccomp"), "2")
            ctx.report.equal("no new rights", status(pid, "NoNewPrivs"), "1")
            threads = [pathlib.Path(f"/proc/{pid}/task/{task}/status").read_text(encoding="ascii") for task in os.listdir(f"/proc/{pid}/task")]
            ctx.report.check("of all threads", all(re.search(r"^Seccomp:\s+2$", thread, re.MULTILINE) for thread in threads), len(threads))
            files = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            ctx.report.check("descriptors", all(name.startswith("socket:") for fd, name in files.items() if fd != "2"), files)
            ctx.report.check("none of the one that started the server", secret not in files.values(), files)
            score = int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii"))
            own = int(pathlib.Path(f"/proc/{server.process.pid}/oom_score_adj").read_text(encoding="ascii"))
            ctx.report.check("it is ended before the server", score >= 500 and score >= own, (score, own))


def zone_offset():
    """As `getTimezoneOffset` gives it at the beginning of 1970, of a process without TZ."""
    code = "import time; print(-(time.localtime(0).tm_gmtoff // 60))"
    environment = {key: value for key, value in os.environ.items() if key != "TZ"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout.strip()


@pytest.mark.skipif(not intruder.is_possible(), reason="code is put into a process by ptrace, on x86-64 and by root")
def test_taken_over_worker(ctx):
    """Code in a worker is refused all that the server's user may do: files, networks, processes, memory."""
    with ctx.server("data") as server:
        api = server.api(60)
        use_all(api)
        victim = pathlib.Path(server.data, "victim")
        victim.write_text("kept", encoding="utf-8")
        pid = workers(server)[0]
        calls = {
            "read the configuration": ("open", str(pathlib.Path(server.data, "local.ini")), os.O_RDONLY),
            "read any file": ("open", "/etc/passwd", os.O_RDONLY),
            "make a file": ("open", str(pathlib.Path(server.data, "made")), os.O_WRONLY | os.O_CREAT, 0o600),
            "truncate a file": ("truncate", str(victim), 0),
            "remove a file": ("unlink", str(victim)),
            "make a socket of IPv4": ("socket", 2, 1, 0),
            "make a socket of Unix": ("socket", 1, 1, 0),
            "start a process": ("fork",),
            "signal the server": ("kill", server.process.pid, 0),
            "read the server's memory": ("read_memory", server.process.pid, 0, 0, 0, 0, 0),
            "make memory executable": ("mmap", 0, 4096, 7, 0x22, -1, 0),
            "become dumpable": ("prctl", 4, 1, 0, 0, 0),
        }
        with intruder.Intruder(pid) as inside:
            answers = {what: inside.call(*call) for what, call in calls.items()}
        intruder.end_child(answers["start a process"])
        ctx.report.equal("all is refused", {what: answer for what, answer in answers.items() if answer not in (-errno.EPERM, -errno.EACCES)}, {})
        ctx.report.equal("nothing happened", victim.read_text(encoding="utf-8"), "kept")
        for n in range(3):
            api.expect(201, "PUT", f"/db/later{n}", {})
            ctx.report.equal("the worker works on", api.expect(200, "GET", "/db/_design/d/_view/v")["rows"][0]["value"], 202 + n)


@pytest.mark.skipif(not intruder.is_possible(), reason="the server is asked by ptrace, on x86-64 and by root")
def test_server_memory(ctx):
    """Other processes of the server's user can neither read its memory nor change it."""
    with ctx.server("data") as server, intruder.Intruder(server.process.pid) as inside:
        ctx.report.equal("it is not dumpable", inside.call("prctl", 3, 0, 0, 0, 0), 0)


@pytest.mark.skipif(not intruder.is_possible(), reason="the kernel is made an old one on x86-64")
def test_kernel_without_confinement(ctx):
    """Where the kernel has neither Landlock nor seccomp functions run all the same, and operators are warned."""
    script = ctx.root / "start"
    old_kernel = pathlib.Path(intruder.__file__).with_name("old_kernel.py")
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {old_kernel} {shlex.quote(str(ctx.binary))} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    server = ctx.server("data")
    server.binary = str(script)
    with server:
        api = server.api(60)
        ctx.report.equal("functions run", use_all(api)["view"], 200)
        ctx.report.check(
            "a warning names what is missing", "JavaScript functions run without Landlock and seccomp" in server.log(), server.log()[:2000]
        )
        findings = {finding["id"]: finding["severity"] for finding in api.expect(200, "GET", "/_settee/doctor")["findings"]}
        ctx.report.equal("doctor too", findings.get("confinement"), "warning")
    with ctx.server("new") as server:
        api = server.api(60)
        ctx.report.check("no warning elsewhere", "JavaScript functions run without" not in server.log(), server.log()[:2000])
        ctx.report.check(
            "nor a finding", all(finding["id"] != "confinement" for finding in api.expect(200, "GET", "/_settee/doctor")["findings"]), ""
        )


def test_query_server_process(ctx):
    """A query server gets no descriptor but its pipes, and is ended before the server."""
    binary, secret = inheriting(ctx, ctx.binary)
    spy, told = ctx.root / "spy.py", ctx.root / "told.json"
    spy.write_text(SPY, encoding="utf-8")
    command = f"{sys.executable} {spy} {told}"
    server = ctx.server("data", options=["--set", f"query_servers/spy={command}"])
    server.binary = str(binary)
    with server:
        api = server.api(60)
        api.expect(201, "PUT", "/db?q=1")
        api.expect(201, "PUT", "/db/_design/d", {"language": "spy", "views": {"v": {"map": "x"}}})
        api.expect(201, "PUT", "/db/doc", {})
        ctx.report.equal("it maps", len(api.expect(200, "GET", "/db/_design/d/_view/v")["rows"]), 1)
        seen = json.loads(told.read_text(encoding="utf-8"))
        ctx.report.check("no descriptor of others", secret not in seen["files"].values(), seen)
        ctx.report.check("it is ended before the server", int(seen["score"]) >= 500, seen)


# As systemd's ProtectProc=invisible has it, and without the capability that sees through it.
HIDDEN = """#!/bin/sh
exec unshare -m sh -c 'mount -t proc -o hidepid=invisible proc /proc && exec setpriv --bounding-set=-sys_ptrace "$@"' sh {binary} "$@"
"""


def test_memory_of_hidden_workers(ctx):
    """A worker's memory is measured also where `/proc` hides the worker from the server."""
    script = ctx.root / "start-hidden"
    script.write_text(HIDDEN.format(binary=shlex.quote(str(ctx.binary))), encoding="utf-8")
    script.chmod(0o755)
    server = ctx.server("hidden")
    server.binary = str(script)
    with server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        # An iterator needs the engine: it is not one of the functions that are taken apart.
        api.expect(
            201,
            "PUT",
            "/db/_design/d",
            {"views": {"v": {"map": "function (doc) { emit(doc._id.split('').map(function (c) { return c + c; }).join(''), 1); }"}}},
        )
        api.expect(201, "PUT", "/db/x", {})
        api.expect(200, "GET", "/db/_design/d/_view/v")

        def taken():
            return api.expect(200, "GET", "/_node/_local/_system")["memory"]["budgets"]["workers"]["used"]

        ctx.report.check("it is in the table", wait_until(lambda: taken() > 1 << 20, 20), taken())
        api.close()

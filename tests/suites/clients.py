"""Real clients over real sockets: nano, PouchDB, the Cloudant SDK and couchbackup in Node; couchdb, couchdb3, aiocouch and the
Cloudant SDK in Python; curl.

Every client script prints `ok NAME` or `not ok NAME: detail` for each thing that it tries, and `done`.
Their packages are installed into the machine's cache, once per version of the lists beside the scripts.
"""

import os
import subprocess
import time

from harness.packages import node_modules, virtual_environment

SCRIPT_TIMEOUT_S = 180
NODE_WANTED = 20


def run(ctx):
    folder = ctx.checkout / "tests" / "clients"
    node = {"NODE_PATH": str(node_modules(ctx, folder / "js"))}
    python = str(virtual_environment(ctx, folder / "python") / "bin" / "python")
    # They all try wrong passwords from the same address, more often than a server that is not told otherwise bears.
    with ctx.server(options=["--set", "chttpd_auth_lockout/mode=off"]) as server:
        run_script(ctx, server, "curl", ["bash", folder / "curl.sh"])
        run_script(ctx, server, "nano 10", ["node", folder / "js" / "nano.cjs"], {**node, "NANO": "nano-10"})
        for name, script in (("nano", "nano.cjs"), ("cloudant (Node)", "cloudant.cjs"), ("couchbackup", "couchbackup.cjs")):
            if node_version() < NODE_WANTED:
                ctx.report.skip(name, f"it wants Node {NODE_WANTED}")
            else:
                run_script(ctx, server, name, ["node", folder / "js" / script], node)
        run_script(ctx, server, "pouchdb", ["node", folder / "js" / "pouchdb.cjs"], node)
        run_script(ctx, server, "couchdb", [python, folder / "python" / "with_couchdb.py"])
        run_script(ctx, server, "couchdb3", [python, folder / "python" / "with_couchdb3.py"])
        run_script(ctx, server, "ibmcloudant (Python)", [python, folder / "python" / "with_ibmcloudant.py"])
        run_script(ctx, server, "aiocouch", [python, folder / "python" / "with_aiocouch.py"])
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])
        left = [name for name in server.api().expect(200, "GET", "/_all_dbs") if not name.startswith("_")]
        ctx.report.equal("every client tidied up after itself", left, [])


def node_version():
    return int(subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.lstrip("v").split(".")[0])


def run_script(ctx, server, name, command, environment=None):
    env = {**os.environ, **(environment or {}), "SETTEE_URL": server.url, "SETTEE_ADMIN": server.admin, "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [str(part) for part in command], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S, check=False
        )
        printed, error, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        printed, error, code = text(late.stdout), text(late.stderr) + f"\nstill running after {SCRIPT_TIMEOUT_S} s", None
    ctx.report.note(f"{name}: {time.monotonic() - began:.1f} s")
    lines = printed.splitlines()
    for line in lines:
        if line.startswith("ok "):
            ctx.report.check(f"{name}: {line[3:]}", True)
        elif line.startswith("not ok "):
            what, _, detail = line[7:].partition(": ")
            ctx.report.check(f"{name}: {what}", False, detail)
    ctx.report.check(f"{name}: runs to its end", code == 0 and "done" in lines, f"exit code {code}\n{printed[-1000:]}\n{error[-3000:]}")


def text(output):
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""

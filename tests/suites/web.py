"""The web interface in a real browser: Debian's Chromium, driven by the scenarios of tests/clients/browser."""

import json
import os
import pathlib
import socket
import subprocess

from harness.api import Api, Disconnected
from harness.packages import node_modules
from harness.server import end, track, wait_until

CHROMIUM = pathlib.Path("/usr/bin/chromium")
SHORT_TIMEOUT_S = 600
SOAK_TIMEOUT_S = 3600


def run(ctx):
    if not CHROMIUM.exists():
        ctx.report.check("Chromium is there", False, "no /usr/bin/chromium: run `make setup-test`")
        return
    # Scenarios log in more often, and more wrongly, than a server that is not told otherwise bears.
    with ctx.server(admin="admin:secret", options=["--set", "chttpd_auth_lockout/mode=off"]) as server:
        base = pages(ctx, server)
        scenarios(ctx, server, base)
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def pages(ctx, server):
    """Where the pages are: before the server, as a proxy has them."""
    web = ctx.checkout / "web"
    port = free_port()
    process = subprocess.Popen(["node", web / "tools" / "serve.mjs", str(port), server.url], stdin=subprocess.DEVNULL)
    track(process)
    base = f"http://127.0.0.1:{port}/_utils/"
    if not wait_until(lambda: answers(base), 20):
        end(process)
        raise RuntimeError(f"nothing answers at {base}")
    return base


def scenarios(ctx, server, base):
    folder = ctx.checkout / "tests" / "clients" / "browser"
    shots = ctx.folder("shots")
    command = ["node", folder / "run.mjs", "--server", server.url.replace("http://", f"http://{server.admin}@"), "--base", base]
    command += ["--binary", ctx.binary, "--shots", shots, *([] if ctx.soak else ["--short"])]
    env = {**os.environ, "NODE_PATH": str(node_modules(ctx, folder))}
    timeout = ctx.size(SHORT_TIMEOUT_S, SOAK_TIMEOUT_S)
    try:
        done = subprocess.run(
            [str(part) for part in command], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
        )
        printed, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        printed, error = (late.stdout or b"").decode("utf-8", "replace"), f"still running after {timeout} s"
    closing = None
    for line in printed.splitlines():
        told = json.loads(line)
        if "done" in told:
            closing = told
        else:
            ctx.report.check(f"{told['scenario']}: {told['what']}", told["ok"], told["detail"])
    ctx.report.check(
        "the runner runs to its end", closing is not None and closing["done"] > 0, f"{printed[-500:]}\n{error[-3000:]}\npictures: {shots}"
    )


def answers(base):
    api = Api(base.removesuffix("/_utils/"), "", 5)
    try:
        return api.get("/_utils/").status == 200
    except (OSError, Disconnected):
        return False
    finally:
        api.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

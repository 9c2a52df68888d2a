"""Scripts of clients: each prints `ok NAME` or `not ok NAME: detail` for each thing that it tries, and `done`."""

import os
import subprocess
import time

SCRIPT_TIMEOUT_S = 180


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

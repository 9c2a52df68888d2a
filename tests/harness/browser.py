"""The scenarios of tests/clients/browser in Chromium."""

import json
import os
import pathlib
import re
import subprocess

from harness.packages import node_modules

CHROMIUM = pathlib.Path("/usr/bin/chromium")
SHORT_TIMEOUT_S = 600
SOAK_TIMEOUT_S = 3600


FOLDER = pathlib.Path(__file__).resolve().parent.parent / "clients" / "browser"


def names():
    """Returns {name: whether it is one of `make test`} of all scenarios."""
    sources = {path.stem: path.read_text(encoding="utf-8") for path in sorted((FOLDER / "scenarios").glob("*.mjs"))}
    return {name: re.search(r"^export const short = true", source, re.M) is not None for name, source in sources.items()}


def scenarios(ctx, server, base=None, authority=None, only=None, theme=None):
    """Runs all scenarios, or one of them, in the pages at `base`, which may be those of a proxy with a certificate of this authority."""
    shots = ctx.folder("shots")
    command = [
        "node",
        FOLDER / "run.mjs",
        "--server",
        server.url.replace("http://", f"http://{server.admin}@"),
        "--base",
        base or f"{server.url}/_utils/",
    ]
    command += ["--binary", ctx.binary, "--shots", shots, *([] if ctx.soak else ["--short"])]
    command += [*(["--only", only] if only else []), *(["--theme", theme] if theme else [])]
    env = {**os.environ, "NODE_PATH": str(node_modules(ctx, FOLDER))}
    if authority:
        command.append("--insecure")
        env["NODE_EXTRA_CA_CERTS"] = str(authority.cert)
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

"""The web interface in a real browser: Debian's Chromium, driven by the scenarios of tests/clients/browser, on the pages that the
binary has in it. And what is committed in web/dist is what the sources build.
"""

import json
import os
import pathlib
import shutil
import subprocess

from harness.packages import node_modules

CHROMIUM = pathlib.Path("/usr/bin/chromium")
SHORT_TIMEOUT_S = 600
SOAK_TIMEOUT_S = 3600
BUILD_TIMEOUT_S = 300
# What is made of the sources, or of the packages.
MADE = ("node_modules", "dist")


def run(ctx):
    ctx.attempt(sources_are_sound)
    ctx.attempt(in_a_browser)


def sources_are_sound(ctx):
    """Built in a folder of its own: the checkout may have other packages, or none."""
    web, place = ctx.checkout / "web", ctx.folder("sources") / "web"
    shutil.copytree(web, place, ignore=shutil.ignore_patterns(*MADE))
    (place / "node_modules").symlink_to(node_modules(ctx, web))
    for what, command in (("types", "check"), ("unit tests", "test"), ("a build", "build"), ("its budget of bytes", "sizes")):
        done = subprocess.run(
            ["npm", "run", "--silent", command],
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        ctx.report.check(f"npm run {command}: {what}", done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-1000:]}")
    built, committed = files(place / "dist"), files(web / "dist")
    others = sorted(name for name in built | committed if built.get(name) != committed.get(name))
    ctx.report.equal("web/dist is what the sources build (`npm ci && npm run build`)", others, [])


def files(folder):
    """{name: bytes} of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def in_a_browser(ctx):
    if not CHROMIUM.exists():
        ctx.report.check("Chromium is there", False, "no /usr/bin/chromium: run `make setup-test`")
        return
    # Scenarios log in more often, and more wrongly, than a server that is not told otherwise bears.
    with ctx.server(admin="admin:secret", options=["--set", "chttpd_auth_lockout/mode=off"]) as server:
        scenarios(ctx, server)
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def scenarios(ctx, server, base=None, authority=None):
    """In the pages at `base`, which may be those of a proxy with a certificate of this authority."""
    folder = ctx.checkout / "tests" / "clients" / "browser"
    shots = ctx.folder("shots")
    command = [
        "node",
        folder / "run.mjs",
        "--server",
        server.url.replace("http://", f"http://{server.admin}@"),
        "--base",
        base or f"{server.url}/_utils/",
    ]
    command += ["--binary", ctx.binary, "--shots", shots, *([] if ctx.soak else ["--short"])]
    env = {**os.environ, "NODE_PATH": str(node_modules(ctx, folder))}
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

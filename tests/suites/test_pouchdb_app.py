"""The app of the manual's page “PouchDB in five minutes” (examples/pouchdb), as Vite serves it, in a real browser: two browsers in live sync."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from harness.browser import CHROMIUM
from harness.packages import node_modules
from harness.server import end, track, wait_until
from ports import free_port

pytestmark = pytest.mark.may_be_retried

TIMEOUT_S = 300
APP = pathlib.Path("examples") / "pouchdb"
BROWSER = pathlib.Path("tests") / "clients" / "browser"


def page_of(ctx):
    return (ctx.checkout / "docs" / "src" / "guide" / "pouchdb.md").read_text(encoding="utf-8")


def test_two_browsers_in_live_sync(ctx):
    if not CHROMIUM.exists():
        ctx.report.check("Chromium is there", False, "no /usr/bin/chromium: run `make setup-test`")
        return
    origin = f"http://localhost:{free_port()}"
    with ctx.server() as server:
        prepare(server, origin)
        vite = serve(ctx, server, origin)
        try:
            ctx.report.check("Vite serves the app", wait_until(lambda: answers(origin), 60), origin)
            check_in_browser(ctx, origin)
        finally:
            end(vite)
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def prepare(server, origin):
    """As the page does it."""
    api = server.api()
    api.expect(201, "PUT", "/notes")
    api.expect(201, "PUT", "/_users/org.couchdb.user:anna", {"name": "anna", "password": "secret", "roles": [], "type": "user"})
    api.expect(200, "PUT", "/notes/_security", {"members": {"names": ["anna"]}})
    api.expect(200, "PUT", "/_node/_local/_config/cors/origins", origin)
    api.expect(200, "PUT", "/_node/_local/_config/cors/credentials", "true")
    api.expect(200, "PUT", "/_node/_local/_config/chttpd/enable_cors", "true")


def serve(ctx, server, origin):
    """Vite's development server with the app, whose server is this one."""
    place = ctx.folder("app")
    shutil.copytree(ctx.checkout / APP, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    # Not a link: Vite writes what it prepares into the folder.
    shutil.copytree(node_modules(ctx, ctx.checkout / APP), place / "node_modules", symlinks=True)
    port = origin.rsplit(":", 1)[1]
    environment = {**os.environ, "VITE_SERVER": server.url.replace("127.0.0.1", "localhost")}
    log = open(ctx.root / "vite.log", "wb")  # noqa: SIM115
    command = ["node", "node_modules/vite/bin/vite.js", "--port", port, "--strictPort"]
    process = subprocess.Popen(command, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    log.close()
    track(process)
    return process


def answers(origin):
    done = subprocess.run(["curl", "-sf", origin], capture_output=True, check=False)
    return done.returncode == 0


def check_in_browser(ctx, origin):
    environment = {**os.environ, "NODE_PATH": str(node_modules(ctx, ctx.checkout / BROWSER))}
    command = ["node", ctx.checkout / BROWSER / "pouchdb-app.mjs", origin, "anna", "secret"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for each in told[:-1]:
        ctx.report.check(each["what"], each["ok"], each["detail"])
    ctx.report.check("the script runs to its end", told and told[-1].get("done", 0) > 8, done.stdout[-1000:] + done.stderr[-2000:])


def test_the_page_has_the_files_and_versions(ctx):
    page, package = page_of(ctx), json.loads((ctx.checkout / APP / "package.json").read_text(encoding="utf-8"))
    for name in ("index.html", "src/main.js"):
        ctx.report.check(f"{name} is in the page", f"examples/pouchdb/{name}" in page, name)
    for name, version in package["dependencies"].items():
        ctx.report.check(f"the page installs {name} as it is tested", re.search(rf"{name}@{version.split('.')[0]}\b", page), version)

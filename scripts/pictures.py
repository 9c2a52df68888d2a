#!/usr/bin/env python3
"""Takes the pictures of the web interface that the README and the manual show: `scripts/pictures.py BINARY`, after `make setup-test`.

A server of its own is started in a temporary folder, filled, and looked at in Chromium (tests/clients/browser/pictures.mjs).
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness.packages import node_modules  # noqa: E402
from harness.server import Server  # noqa: E402


def main():
    cache = pathlib.Path(os.environ.get("SETTEE_CACHE", pathlib.Path.home() / ".cache" / "settee"))
    ctx = types.SimpleNamespace(cache=cache, report=types.SimpleNamespace(note=print))
    browser, to = ROOT / "tests" / "clients" / "browser", ROOT / "docs" / "src" / "guide" / "web"
    to.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="settee-pictures-") as folder:
        server = Server(sys.argv[1], f"{folder}/data", admin="admin:secret").start()
        try:
            url = server.url.replace("http://", f"http://{server.admin}@")
            env = {**os.environ, "NODE_PATH": str(node_modules(ctx, browser))}
            subprocess.run(["node", browser / "pictures.mjs", "--server", url, "--to", to], env=env, check=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()

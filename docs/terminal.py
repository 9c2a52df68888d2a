#!/usr/bin/env python3
"""Makes docs/src/operations/top.png: `settee top` on a terminal, beside a server that has something to do. Needs Debian's tmux and chromium.

usage: docs/terminal.py --binary PATH [--chromium PATH]
"""

import argparse
import html
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PICTURE = HERE / "src" / "operations" / "top.png"
COLUMNS, LINES = 100, 26
SESSION = "settee-top-picture"

sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
from screenshot import pictured  # noqa: E402

from harness.server import Server  # noqa: E402

STYLE = "body{margin:0;background:#111;color:#ddd}pre{margin:12px;font:15px/1.25 'DejaVu Sans Mono',monospace}b{color:#fff}i{font-style:normal;background:#ddd;color:#111}"
VIEW = {"views": {"by_day": {"map": "function (doc) { emit(doc.n % 30, doc.price); }", "reduce": "_sum"}}}


def load(server, stop, work):
    api, turn = server.api(), 0
    while not stop.is_set():
        turn += 1
        work(api, turn)
    api.close()


def works():
    yield lambda api, n: api.get(f"/shop/{n % 5000:05}")
    yield lambda api, n: api.put(f"/orders/{n}", {"n": n, "price": n % 7})
    yield lambda api, n: api.get("/shop/_design/sales/_view/by_day?group=true")
    yield lambda api, n: api.post("/shop/_find", {"selector": {"n": {"$gt": 4990}}, "limit": 3})


def screen(binary, folder):
    """What the terminal shows, with escape sequences."""
    with Server(binary, folder / "data") as server:
        api = server.api()
        for name in ("shop", "orders"):
            api.expect(201, "PUT", f"/{name}")
        api.expect(201, "POST", "/shop/_bulk_docs", {"docs": [{"_id": f"{n:05}", "n": n, "price": n % 9} for n in range(5000)]})
        api.expect(201, "PUT", "/shop/_design/sales", VIEW)
        stop = threading.Event()
        threads = [threading.Thread(target=load, args=(server, stop, work)) for work in works()]
        for thread in threads:
            thread.start()
        environment = dict(os.environ, SETTEE_CREDENTIALS=server.admin, TERM="xterm-256color")
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        command = f"{binary} top {server.url}"
        subprocess.run(["tmux", "-L", SESSION, "new-session", "-d", *size, command], check=True, env=environment)
        try:
            time.sleep(8)
            shown = subprocess.run(["tmux", "-L", SESSION, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True).stdout
        finally:
            subprocess.run(["tmux", "-L", SESSION, "kill-server"], check=False)
            stop.set()
            for thread in threads:
                thread.join()
    return shown


def page(shown):
    """Bold and reversed are all that `settee top` uses."""
    out, open_tags = [], []
    for part in re.split(r"(\x1b\[[0-9;]*m)", shown):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if not code:
            out.append(html.escape(part))
            continue
        out.extend(f"</{tag}>" for tag in reversed(open_tags))
        open_tags = [tag for number, tag in (("1", "b"), ("7", "i")) if number in code[1].split(";")]
        out.extend(f"<{tag}>" for tag in open_tags)
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><pre>{''.join(out)}</pre>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "top.html"
        file.write_text(page(screen(options.binary, pathlib.Path(folder))), encoding="utf-8")
        pictured(options.chromium, file, PICTURE, width=940, height=520)


if __name__ == "__main__":
    main()

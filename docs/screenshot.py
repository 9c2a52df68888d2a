#!/usr/bin/env python3
"""Makes docs/src/guide/bench-report.png: the beginning of a report of `settee bench`. Needs Chromium.

usage: docs/screenshot.py --binary PATH [--report FILE.html] [--chromium PATH]

Two equal servers are measured, of which the second one is stopped for three tenths of the time. --report takes a report that is there.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PICTURE = HERE / "src" / "guide" / "bench-report.png"
BYTES_MAX = 200_000
WIDTH, HEIGHT = 1160, 1020

sys.path.insert(0, str(HERE.parent / "tests"))
from harness.held_server import Held  # noqa: E402
from harness.server import Server  # noqa: E402


def measured(binary, folder):
    page = folder / "report.html"
    with Server(binary, folder / "a") as a, Server(binary, folder / "b") as b:
        urls = [server.url.replace("http://", f"http://{server.admin}@") for server in (a, b)]
        held = Held(b, 0.3)
        try:
            options = ["--repeats", "10", "--seconds", "2", "--scale", "0.05", "--connections", "8", "--report", str(page)]
            subprocess.run([binary, "bench", "get_random", "writers_32", "--url", urls[0], "--url", urls[1], *options], check=True)
        finally:
            held.end()
    return page


def pictured(chromium, page, picture, width=WIDTH, height=HEIGHT, dark=False):
    """A picture of the top of a page. Chromium wants a profile of its own, and as root no sandbox."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--hide-scrollbars", "--disable-gpu", f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        options += ["--no-sandbox"] * (os.geteuid() == 0) + ["--blink-settings=preferredColorScheme=0"] * dark
        command = [chromium, *options, f"--screenshot={picture}", page.resolve().as_uri()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = options.report or measured(options.binary, pathlib.Path(folder))
        pictured(options.chromium, page, PICTURE)
    size = PICTURE.stat().st_size
    if size > BYTES_MAX:
        sys.exit(f"screenshot: {size} bytes are more than {BYTES_MAX}")
    print(f"{PICTURE}: {size} bytes")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the picture of the manual's page on `settee profile`: a server of its own under load, its flame graph, and what a browser shows of it.

usage: picture.py BINARY PNG [--dark]   (needs Debian's chromium; the graph stays beside the picture, to be looked at and removed)
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))

from harness.server import Server

DESIGN = {
    "views": {
        "by_day": {"map": "function (doc) { emit(doc.day, doc.price); }", "reduce": "_sum"},
        "words": {
            "map": "function (doc) { function words(t) { return t.toLowerCase().split(/[^a-z]+/); } words(doc.text).forEach(function (w) { emit(w, 1); }); }",
            "reduce": "_count",
        },
    }
}


def load(server, stop, what):
    api, n = server.api(), 0
    while not stop.is_set():
        n += 1
        what(api, n)
    api.close()


def write(api, n):
    docs = [{"day": [2026, 11, i % 30], "price": i, "text": "tea, milk and sugar for the shop " * 3} for i in range(200)]
    api.post("/shop/_bulk_docs", {"docs": docs})


def main():
    binary, png = sys.argv[1:3]
    scheme = "0" if "--dark" in sys.argv else "1"
    svg = pathlib.Path(png + ".svg")
    with tempfile.TemporaryDirectory() as folder, Server(binary, f"{folder}/data") as server:
        api = server.api()
        api.expect(201, "PUT", "/shop")
        api.expect(201, "PUT", "/shop/r1", {"what": "tea"})
        api.expect(201, "PUT", "/shop/_design/sales", DESIGN)
        stop = threading.Event()
        work = [write, lambda api, n: api.get("/shop/r1"), lambda api, n: api.get("/shop/_design/sales/_view/words?group=true&limit=1")]
        threads = [threading.Thread(target=load, args=(server, stop, what)) for what in work]
        for thread in threads:
            thread.start()
        url = server.url.replace("http://", f"http://{server.admin}@")
        subprocess.run([binary, "profile", url, "--seconds", "10", "-o", str(svg)], check=True)
        stop.set()
        for thread in threads:
            thread.join()
    height = re.search(r'height="(\d+)"', svg.read_text())[1]
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--window-size=1200,{height}",
        f"--blink-settings=preferredColorScheme={scheme}",
    ]
    subprocess.run([*command, f"--screenshot={png}", svg.resolve().as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Prints the licences of all that is linked into the programs: each crate with the licence that it names, then every text once.

The texts are those that the crates bring, with the copyrights in them; libraries in C and C++ are within crates.

usage: licences.py [--target TRIPLE] > THIRD-PARTY-LICENCES.txt
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
A_LICENCE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)

# Where the libraries that crates compile have theirs. What is not there any more is an error: look for it when a crate is updated.
BUNDLED = {
    "librocksdb-sys": ["rocksdb/LICENSE.Apache", "rocksdb/LICENSE.leveldb"],
    "libz-sys": ["src/zlib/LICENSE"],
    "lz4-sys": ["liblz4/lib/LICENSE"],
    "openssl-src": ["openssl/LICENSE.txt"],
    "rdkafka-sys": ["librdkafka/LICENSES.txt"],
    "ring": ["third_party/fiat/LICENSE"],
    "rquickjs-sys": ["quickjs/LICENSE"],
    "tikv-jemalloc-sys": ["jemalloc/COPYING"],
    "zstd-sys": ["zstd/LICENSE"],
}
# Builds only, but what it brings is linked.
ALSO_LINKED = {"openssl-src"}

MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software
is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR
IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default=host(), help="which system's dependencies count")
    sys.stdout.write(document(linked(metadata(parser.parse_args().target))))


def host():
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True, cwd=CHECKOUT).stdout
    return re.search(r"^host: (.*)$", said, re.MULTILINE)[1]


def metadata(target):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT).stdout)


def linked(told):
    """The crates of others that the programs `settee` and `settee-bench` need to run, by name and version."""
    packages = {package["id"]: package for package in told["packages"]}
    nodes = {node["id"]: node for node in told["resolve"]["nodes"]}
    roots = [package["id"] for package in told["packages"] if package["name"] in ("settee", "bench") and not package["source"]]
    seen, to_see = set(roots), list(roots)
    while to_see:
        for dependency in nodes[to_see.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"]) or packages[dependency["pkg"]]["name"] in ALSO_LINKED
            if is_linked and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                to_see.append(dependency["pkg"])
    return sorted((packages[at] for at in seen if packages[at]["source"]), key=lambda package: (package["name"], package["version"]))


def document(packages):
    texts = {}  # text: crates that have it
    lines = [
        "Settee is under the Apache License 2.0 (LICENSE). It contains Rust's standard library (MIT or Apache-2.0) and these crates, some of",
        "which contain libraries in C or C++. Where a crate offers a choice of licences, Apache-2.0 is taken where it is among them, else MIT.",
        "",
    ]
    for package in packages:
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}: {package['license'] or 'see its text'}")
        for text in texts_of(package):
            texts.setdefault(text, []).append(name)
    for text, names in texts.items():
        lines += ["", "=" * 100, ", ".join(names), "=" * 100, "", text]
    return "\n".join(lines) + "\n"


def texts_of(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    own = sorted(path for path in folder.iterdir() if path.is_file() and A_LICENCE.match(path.name))
    within = sorted(
        path for path in (folder / "src").rglob("*") if path.is_file() and A_LICENCE.match(path.name) and path.suffix not in (".rs", ".c", ".h")
    )
    if package["name"] in BUNDLED:
        within = [folder / path for path in BUNDLED[package["name"]]]
    texts = [path.read_text(encoding="utf-8", errors="replace").strip().replace("\r\n", "\n") for path in own + within]
    if own:
        return texts
    # Crates that name a licence and leave its text out.
    if "Apache-2.0" in package["license"]:
        return texts + [(CHECKOUT / "LICENSE").read_text(encoding="utf-8").strip()]
    if package["license"] == "MIT":
        authors = ", ".join(re.sub(r" *<.*>", "", author) for author in package["authors"])
        return texts + [f"Copyright (c) {authors or 'the authors of ' + package['name']}\n\n{MIT}"]
    raise SystemExit(f"licences: {package['name']} is under {package['license']} and brings no text of it")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Prints what `make check` has to test after a change, as assignments for a shell.

usage: changed_tests.py [COMMIT]

The change is everything since COMMIT, files that git does not know included. By default that is the last commit that passed `make test`
on this machine; without one, everything is tested.

    packages='package(=http-api) + package(=settee)'   nextest's filter: the changed packages and all that depend on them, or nothing
    suites='metrics,tls'                               changed black-box suites
"""

import json
import os
import pathlib
import re
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("SETTEE_CACHE") or pathlib.Path.home() / ".cache" / "settee")
# Every package is built with these.
OF_ALL = re.compile(r"Cargo\.(toml|lock)|rust-toolchain\.toml|\.cargo/.*|\.config/nextest\.toml|scripts/(rocksdb|env)\.sh")
# Files that packages other than the one around them are built from, or read in tests.
READ_ELSEWHERE = {
    r"default\.ini": ["config"],
    r"web/dist/.*": ["web"],
    r"web/public/shop\.json": ["load"],
    r"tests/vectors/.*": ["document", "index", "mango"],
    r"docs/src/operations/doctor\.md": ["doctor"],
    r"crates/bench/tests/it/fake/.*": ["load"],
    r"crates/projection/src/tests/.*": ["functions"],
}
SUITE = re.compile(r"tests/suites/test_(\w+)\.py")


def main():
    since = sys.argv[1] if len(sys.argv) > 1 else passed_commit()
    metadata = json.loads(output("cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"))
    folders = {str(pathlib.Path(package["manifest_path"]).parent.relative_to(CHECKOUT)): package for package in metadata["packages"]}
    files = changed_files(since) if since else None
    if files is None or any(OF_ALL.fullmatch(file) for file in files):
        packages = "all()"
    else:
        found = set()
        for file in files:
            found |= {package["name"] for folder, package in folders.items() if file.startswith(f"{folder}/")}
            found |= {name for pattern, names in READ_ELSEWHERE.items() if re.fullmatch(pattern, file) for name in names}
        packages = " + ".join(f"package(={name})" for name in sorted(with_dependents(found, folders)))
    suites = sorted(match.group(1) for match in map(SUITE.fullmatch, files or ()) if match)
    print(f"packages='{packages}' suites='{','.join(suites)}'")


def passed_commit():
    """None if `make test` has not passed here, or if the commit is not in this repository."""
    path = CACHE / "last-run" / "passed-commit"
    commit = path.read_text(encoding="ascii").strip() if path.exists() else ""
    known = commit and subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=CHECKOUT, stderr=subprocess.DEVNULL, check=False)
    return commit if known and known.returncode == 0 else None


def changed_files(since):
    """A renamed file is listed by both names."""
    try:
        lines = output("git", "diff", "--no-renames", "--name-only", since, "--") + output("git", "ls-files", "--others", "--exclude-standard")
    except subprocess.CalledProcessError as error:
        sys.exit(f"changed_tests.py: no changes since '{since}' can be listed: {error.stderr.strip()}")
    return set(lines.splitlines())


def with_dependents(names, folders):
    """Packages of this workspace that depend on these, directly or not, also for their tests."""
    users = {}
    for package in folders.values():
        for dependency in package["dependencies"]:
            users.setdefault(dependency["name"], set()).add(package["name"])
    todo, found = list(names), set(names)
    while todo:
        for user in users.get(todo.pop(), set()) - found:
            found.add(user)
            todo.append(user)
    return found


def output(*command):
    return subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()

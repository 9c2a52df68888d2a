#!/usr/bin/env python3
"""The list of what has to hold before a release, checked one by one. `make release-check` runs it.

usage: release_check.py [--list] [CHECK...]

ARCH=arm64 or ARCH=amd64 in the environment checks the files for that architecture, which may be another than this machine's.
Without names all are checked, the quick ones first; those that build are left out when a quick one has failed.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zlib

from architecture import Architecture

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
DIST = CHECKOUT / "dist"
# What cargo-deny calls RustSec's database.
DATABASE_NAME = "advisory-db-3157b0e258782691"


class Failed(Exception):
    """What does not hold, and what to do."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", choices=[[], *CHECKS], help="of: " + ", ".join(CHECKS))
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, check in CHECKS.items():
            print(f"{name:10} {check.__doc__}")
        return
    failed = []
    for name, check in CHECKS.items():
        if options.checks and name not in options.checks:
            continue
        if failed and name in SLOW and not options.checks:
            print(f"-     {name}: not checked, as something else has failed")
            continue
        try:
            print(f"ok    {name}: {check()}", flush=True)
        except Failed as why:
            failed.append(name)
            print(f"FAIL  {name}: {why}", flush=True)
    print(f"{'not ' if failed else ''}ready to be released" + (f": {', '.join(failed)}" if failed else ""))
    sys.exit(1 if failed else 0)


def tree():
    """everything is committed"""
    changes = output("git", "status", "--porcelain").splitlines()
    if changes:
        raise Failed(f"{len(changes)} files differ from the commit: {changes[0].strip()} …")
    return output("git", "log", "-1", "--format=%h %s").strip()


def version():
    """Cargo.toml, Cargo.lock and CHANGELOG.md name the same version, with a date"""
    wanted = version_of_cargo()
    locked = re.search(r'name = "settee"\nversion = "(.*)"', (CHECKOUT / "Cargo.lock").read_text(encoding="utf-8"))[1]
    if locked != wanted:
        raise Failed(f"Cargo.toml has {wanted}, Cargo.lock {locked}: run cargo build")
    first = re.search(r"^## \[(.*?)\] - (.*)$", (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if first[1] != wanted:
        raise Failed(f"Cargo.toml has {wanted}, the first section of CHANGELOG.md {first[1]}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", first[2]):
        raise Failed(f"CHANGELOG.md dates {wanted} `{first[2]}`: write the day")
    return f"{wanted} of {first[2]}"


def tag():
    """the tag v<version> is on this commit, or not there yet"""
    name = f"v{version_of_cargo()}"
    at = subprocess.run(["git", "rev-list", "-n", "1", name], cwd=CHECKOUT, capture_output=True, text=True, check=False).stdout.strip()
    if at and at != output("git", "rev-parse", "HEAD").strip():
        raise Failed(f"{name} is on another commit: raise the version in Cargo.toml and CHANGELOG.md")
    return f"{name} is here" if at else f"to do when all holds: git tag {name}"


def lints():
    """make lint"""
    run("make", "--no-print-directory", "lint")
    return "none"


def advisories():
    """no advisory of RustSec is about a version in Cargo.lock; ADVISORY_DB names a checkout of its database where there is no network"""
    tool = pathlib.Path(os.environ["SETTEE_CACHE"]) / "tools/bin/cargo-deny"
    checkout = os.environ.get("ADVISORY_DB")
    if not checkout:
        run(tool, "--log-level", "error", "check", "advisories")
        return "none, of today"
    with tempfile.TemporaryDirectory(prefix="settee-advisories-") as temporary:
        # cargo-deny takes no path: it finds a database that it has fetched before.
        database = pathlib.Path(temporary) / DATABASE_NAME
        run("git", "clone", "--quiet", checkout, database)
        run("git", "-C", database, "fetch", "--quiet")
        settings = pathlib.Path(temporary) / "deny.toml"
        text = (CHECKOUT / "deny.toml").read_text(encoding="utf-8")
        settings.write_text(text.replace("[advisories]", f'[advisories]\ndb-path = "{temporary}"'), encoding="utf-8")
        run(tool, "--offline", "--log-level", "error", "--config", settings, "check", "advisories")
        return f"none, of {output('git', '-C', database, 'log', '-1', '--format=%cs').strip()}"


def stores():
    """stores that earlier versions wrote open"""
    said = run("cargo", "test", "--release", "--locked", "-p", "database", "--test", "it", "golden")
    return re.search(r"test result: (.*?);", said)[1]


def built():
    """built twice, in two checkouts and target directories, it has the same bytes"""
    # What is compiled there stays, so that a check that was interrupted goes on.
    elsewhere = pathlib.Path(os.environ["CARGO_TARGET_DIR"]) / "release-check"
    clone = elsewhere / "checkout"
    if not (clone / ".git").exists():
        run("git", "clone", "--quiet", CHECKOUT, clone)
    run("git", "-C", clone, "fetch", "--quiet", CHECKOUT, "HEAD")
    run("git", "-C", clone, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD")
    run("git", "-C", clone, "clean", "--quiet", "-ffd")
    places = [build(CHECKOUT, {}), build(clone, {"CARGO_TARGET_DIR": str(elsewhere / "target")})]
    for name in ("settee", "settee.debug", "settee-bench", "settee-bench.debug"):
        sums = [hashlib.sha256((place / name).read_bytes()).hexdigest() for place in places]
        if sums[0] != sums[1]:
            raise Failed(f"{name} differs: {sums[0]} in {places[0]}, {sums[1]} in {places[1]}")
    return f"settee is {hashlib.sha256((places[0] / 'settee').read_bytes()).hexdigest()}"


def build(checkout, environment):
    return pathlib.Path(run(checkout / "packaging/build.sh", cwd=checkout, **environment).splitlines()[-1])


def crates():
    """the programs list their crates"""
    place, counts = build(CHECKOUT, {}), []
    architecture = Architecture(place / "settee")
    for program, wanted in (("settee", {"settee", "tokio", "librocksdb-sys"}), ("settee-bench", {"bench", "tokio"})):
        with tempfile.NamedTemporaryFile() as section:
            tools = f"{architecture.machine}-linux-gnu-" if architecture.is_foreign else ""
            run(f"{tools}objcopy", "--dump-section", f".dep-v0={section.name}", place / program, "/dev/null")
            listed = json.loads(zlib.decompress(pathlib.Path(section.name).read_bytes()))
        names = {package["name"] for package in listed["packages"]}
        if not wanted <= names:
            raise Failed(f"{program} lists only these: {sorted(names)}")
        counts.append(f"{program} {len(names)}")
    return f"{', '.join(counts)} crates"


def artefacts():
    """made twice of those programs, all that is released has the same bytes"""
    place = build(CHECKOUT, {})
    sums = []
    with tempfile.TemporaryDirectory(prefix="settee-release-") as temporary:
        for out in (pathlib.Path(temporary), DIST):
            run(sys.executable, CHECKOUT / "packaging/dist.py", "--binary", place / "settee", "--debug", "--out", out)
            sums.append((out / "SHA256SUMS").read_text().splitlines())
    # DIST may have files for another architecture, too.
    names = {line.split()[1] for line in sums[0]}
    differ = sorted(set(sums[0]) ^ {line for line in sums[1] if line.split()[1] in names})
    if differ:
        raise Failed(f"these differ: {differ}")
    return ", ".join(line.split()[1] for line in sums[0])


def tried():
    """they are unpacked, installed, upgraded, removed and run; for another architecture installed and run, by qemu-user"""
    binary = build(CHECKOUT, {}) / "settee"
    suite = "foreign_packages" if Architecture(binary).is_foreign else "packages"
    last = run(sys.executable, CHECKOUT / "tests/run.py", "--soak", "--binary", binary, suite).strip().splitlines()[-1]
    if last.startswith("0 passed"):
        raise Failed(f"nothing was tried: tests/run.py --soak --binary {binary} {suite} prints why")
    return last


CHECKS = {check.__name__: check for check in (tree, version, tag, lints, advisories, stores, built, crates, artefacts, tried)}
SLOW = ("stores", "built", "crates", "artefacts", "tried")


def version_of_cargo():
    return re.search(r'^version = "(.*)"', (CHECKOUT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]


def output(*command):
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


def run(*command, cwd=CHECKOUT, **environment):
    """What it prints; an error with the end of that when it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        raise Failed(f"{' '.join(str(part) for part in command)}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main()

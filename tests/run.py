#!/usr/bin/env python3
"""Black-box tests: real servers on free ports, real sockets, real clients. Standard library only.

usage: run.py [--soak] [--seed N] [--binary PATH] [--keep] [SUITE...]

Prints a line per check and closes with "N passed, N failed"; exits 1 when one failed.
"""

import argparse
import importlib
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from harness import server as servers  # noqa: E402
from harness.report import Report  # noqa: E402

# Each file of tests/suites is one; the recorded behaviour goes first.
SUITES = sorted(
    (path.stem for path in (pathlib.Path(__file__).resolve().parent / "suites").glob("[!_]*.py")),
    key=lambda name: (name != "vectors", name),
)


class Context:
    """What a suite gets: the binary, a directory of its own, the report, and how long it may be."""

    def __init__(self, binary, root, report, soak, seed):
        self.binary, self.root, self.report, self.soak, self.seed = binary, root, report, soak, seed
        root.mkdir(parents=True, exist_ok=True)
        self.random = random.Random(seed)
        self.checkout = pathlib.Path(__file__).resolve().parent.parent
        self.cache = pathlib.Path(os.environ.get("SETTEE_CACHE") or pathlib.Path.home() / ".cache" / "settee")

    def size(self, test, soak):
        return soak if self.soak else test

    def folder(self, name):
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def attempt(self, part):
        """Runs one part of a suite; the others run even when it breaks."""
        try:
            part(self)
        except Exception:
            self.report.check(f"{part.__name__} runs to its end", False, traceback.format_exc())
        finally:
            servers.end_all()

    def server(self, name="data", **options):
        return servers.Server(self.binary, self.root / name, **options)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="of: " + ", ".join(SUITES))
    parser.add_argument("--soak", action="store_true", help="long sizes")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's random choices")
    parser.add_argument("--binary", default=default_binary())
    parser.add_argument("--keep", action="store_true", help="leave data directories and logs behind")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}; there are: {', '.join(SUITES)}")
    return options


def default_binary():
    cache = os.environ.get("SETTEE_CACHE") or os.path.expanduser("~/.cache/settee")
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(cache, "target")
    return os.path.join(target, "dist", "settee")


def run_suite(name, ctx):
    ctx.report.suite = name
    began = time.monotonic()
    try:
        importlib.import_module(f"suites.{name}").run(ctx)
    except Exception:  # a suite that breaks is a failure, and the next suite still runs
        ctx.report.check("runs to its end", False, traceback.format_exc())
    finally:
        servers.end_all()
    ctx.report.note(f"{time.monotonic() - began:.1f} s")


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    root = pathlib.Path(tempfile.mkdtemp(prefix="settee-test-"))
    report = Report()
    print(f"seed {seed}; {root}", flush=True)
    try:
        if not os.access(options.binary, os.X_OK):
            report.check("the binary is there", False, f"no {options.binary}: run `make build`")
        else:
            for name in options.suites or SUITES:
                run_suite(name, Context(options.binary, root / name, report, options.soak, seed))
    finally:
        servers.end_all()
        if options.keep or report.failures:
            print(f"logs and data: {root}", flush=True)
        else:
            shutil.rmtree(root, ignore_errors=True)
    report.closing()
    sys.exit(1 if report.failures or not report.passed else 0)


if __name__ == "__main__":
    main()

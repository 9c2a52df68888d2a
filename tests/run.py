#!/usr/bin/env python3
"""Black-box tests: real servers on free ports, real sockets, real clients. Standard library only.

usage: run.py [--soak] [--jobs N] [--seed N] [--binary PATH] [--keep] [SUITE...]

Prints a line per check and closes with "N passed, N failed"; exits 1 when one failed. Suites run in processes of their own, some at once:
they wait more than they work. What one prints comes when it has ended.
"""

import argparse
import importlib
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import resource
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
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="suites that run at once, by default as many as there are processors")
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


def cpu_seconds():
    """What this process and those it has waited for took of processors."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def run_suite(name, ctx):
    ctx.report.suite = name
    began, before = time.monotonic(), cpu_seconds()
    try:
        importlib.import_module(f"suites.{name}").run(ctx)
    except Exception:  # a suite that breaks is a failure, and the next suite still runs
        ctx.report.check("runs to its end", False, traceback.format_exc())
    finally:
        servers.end_all()
    ctx.report.note(f"{time.monotonic() - began:.1f} s, {cpu_seconds() - before:.1f} s of processors")


# How long a suite that is told to end may take.
END_TIMEOUT_S = 30


def run_some_at_once(names, jobs, context, report):
    """Each suite in a process of its own; what it prints goes to a file first."""
    fork = multiprocessing.get_context("fork")
    waiting, running = list(names), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                here, there = fork.Pipe(duplex=False)
                process = fork.Process(target=in_a_process, args=(name, context(name, report), there))
                process.start()
                there.close()
                running[here] = name, process
            for ended in multiprocessing.connection.wait(running):
                name, process = running.pop(ended)
                try:
                    counts = ended.recv()
                except EOFError:  # it was killed
                    counts = (0, [f"{name} / runs to its end"], 0)
                process.join()
                printed = printed_by(context(name, report))
                sys.stdout.write(printed.read_text(encoding="utf-8", errors="replace"))
                sys.stdout.flush()
                printed.unlink()
                report.add(*counts)
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join(END_TIMEOUT_S)
            # Threads of a suite may go on without the servers that they ask.
            process.kill()


def in_a_process(name, ctx, connection):
    with open(printed_by(ctx), "w", encoding="utf-8") as printed:
        ctx.report = Report(printed)
        run_suite(name, ctx)
        connection.send((ctx.report.passed, ctx.report.failures, ctx.report.skipped))


def printed_by(ctx):
    return ctx.root.with_suffix(".txt")


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    root = pathlib.Path(tempfile.mkdtemp(prefix="settee-test-"))
    report = Report()
    print(f"seed {seed}; {root}", flush=True)

    def context(name, report):
        return Context(options.binary, root / name, report, options.soak, seed)

    names = options.suites or SUITES
    try:
        if not os.access(options.binary, os.X_OK):
            report.check("the binary is there", False, f"no {options.binary}: run `make build`")
        elif options.jobs > 1 and len(names) > 1:
            run_some_at_once(names, options.jobs, context, report)
        else:
            for name in names:
                run_suite(name, context(name, report))
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

#!/usr/bin/env python3
"""Runs the black-box tests with pytest. Options that are not listed here are pytest's.

usage: run.py [--jobs N] [PYTEST OPTION...] [SUITE...]

    run.py vectors views               two suites
    run.py mango_queries -k pages      one test
    run.py --quick                     the suites that `make check` runs
    run.py --lf -x                     the tests that failed last time, up to the first failure
    run.py --soak cluster_faults       full length
    run.py --seed 17 --keep http_fuzz  the random choices of another run; data and logs are kept

A failed test that is marked `may_be_retried` is run again by itself. If it passes then, it is reported as flaky, and the run passes.
The last line is "N passed, N failed", which counts checks. Results are published in ~/.cache/settee/last-run.
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.setdefault("SETTEE_CACHE", str(pathlib.Path.home() / ".cache" / "settee")))
# Tests compile Rust code too: never into the checkout.
os.environ.setdefault("CARGO_TARGET_DIR", str(CACHE / "target"))
PUBLISHED = CACHE / "last-run"
# More failures than this are not a coincidence.
RETRIED_MAX = 3
STOP_TIMEOUT_S = 60
TESTS_FAILED = 1


def main():
    arguments = sys.argv[1:]
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
    # Set by the Makefile: this is the last stage of `make check` or `make test`.
    is_stage = "--stage" in arguments
    arguments = [word for word in arguments if word != "--stage"]
    # Tests wait more than they compute: with two per processor a fifth of the time is idle. At full length, some compare figures that
    # need a quieter machine.
    processors = os.cpu_count() or 1
    jobs = str(processors if "--soak" in arguments else processors * 5 // 2)
    if "--jobs" in arguments:
        at = arguments.index("--jobs")
        jobs = arguments[at + 1]
        del arguments[at : at + 2]
    for name in ("--binary", "--seed", "--changed"):
        # pytest would take a separate value for a path, as it does not know these options yet.
        if name in arguments[:-1]:
            at = arguments.index(name)
            arguments[at : at + 2] = [f"{name}={arguments[at + 1]}"]
    suites = {path.stem.removeprefix("test_"): path for path in (TESTS / "suites").glob("test_*.py")}
    arguments = [str(suites.get(word, word)) for word in arguments]
    began, before = time.monotonic(), cpu_seconds()
    # Each run has its own folder: several may run at once on a machine, from different checkouts.
    with tempfile.TemporaryDirectory(prefix="settee-results-") as folder:
        code, counts, flaky = run(pathlib.Path(folder), jobs, arguments)
    if is_stage:
        print_stages(time.monotonic() - began, cpu_seconds() - before)
    for test in flaky:
        print(f"flaky: {test} failed, and passed when it was run again by itself")
    passed, failed, skipped = counts
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(code)


def run(folder, jobs, arguments):
    """Returns the exit code, [passed, failed, skipped], and the ids of flaky tests."""
    first = folder / "first"
    code = pytest(first, ["-n", jobs, *arguments])
    results = read_results(first)
    if results is None:
        return code or TESTS_FAILED, [0, 0, 0], []
    counts, flaky, runs = results["counts"], [], [first]
    failed = results["failed"]
    retried = [test["id"] for test in failed if test["may_be_retried"]]
    if code == TESTS_FAILED and len(retried) == len(failed) <= RETRIED_MAX:
        print(f"running again, by themselves: {', '.join(retried)}", flush=True)
        options = [word for word in arguments if word in ("--soak", "--keep") or word.startswith("--binary=")]
        second = folder / "second"
        again = pytest(second, [*options, f"--seed={results['seed']}", *(str(TESTS / id) for id in retried)])
        if again == 0 and read_results(second) is not None:
            # Their checks are counted once, as they ended.
            code, flaky, runs = 0, retried, [first, second]
            passed_before = sum(test["passed"] for test in failed)
            passed, _, skipped = read_results(second)["counts"]
            counts = [counts[0] - passed_before + passed, 0, counts[2] + skipped]
    publish(runs, flaky)
    return code, counts, flaky


def read_results(folder):
    path = folder / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def publish(runs, flaky):
    """Puts the results of a run, and of its retried tests, where the next run and people look for them."""
    PUBLISHED.mkdir(parents=True, exist_ok=True)
    files = {name: (runs[0] / name).read_text(encoding="utf-8") for name in ("results.json", "suites.json", "checks.txt")}
    for folder in runs[1:]:
        files["checks.txt"] += "run again:\n" + (folder / "checks.txt").read_text(encoding="utf-8")
    for name in ("durations.json", "cpu.json"):
        figures = PUBLISHED / name
        known = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
        for folder in runs:
            known.update(json.loads((folder / name).read_text(encoding="utf-8")))
        files[name] = json.dumps(known, indent=0, sort_keys=True)
    files["flaky.txt"] = "".join(f"{test}\n" for test in flaky)
    for name, text in files.items():
        # Other runs may read at the same time.
        part = PUBLISHED / f"{name}.{os.getpid()}"
        part.write_text(text, encoding="utf-8")
        part.replace(PUBLISHED / name)


def cpu_seconds():
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def print_stages(seconds, cpu):
    """Prints the stages of `make check` or `make test` (scripts/stage.sh), this one included, and those of the run before."""
    now, before = (read_stages(PUBLISHED / name) for name in ("stages.tsv", "stages-before.tsv"))
    now["black box"] = (seconds, cpu)
    with (PUBLISHED / "stages.tsv").open("a", encoding="utf-8") as file:
        file.write(f"black box\t{seconds:.1f}\t{cpu:.1f}\n")
    now["all"], before["all"] = ([sum(times) for times in zip(*stages.values())] or [0, 0] for stages in (now, before))
    print(f"\n{'stage':12} {'seconds':>8} {'CPU seconds':>12} {'run before':>11} {'CPU seconds':>12}")
    for name, (seconds, cpu) in now.items():
        print(f"{name:12} {seconds:8.1f} {cpu:12.1f}" + "".join(f" {value:{width}.1f}" for value, width in zip(before.get(name, ()), (11, 12))))
    print()


def read_stages(path):
    if not path.exists():
        return {}
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: (float(seconds), float(cpu)) for name, seconds, cpu in lines}


def pytest(results, arguments):
    """Runs pytest, which writes its results to the folder `results`. Returns the exit code."""
    results.mkdir()
    python = CACHE / "pytest" / "bin" / "python"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "BLACKBOX_RESULTS": str(results)}
    command = [python, "-m", "pytest", "-c", TESTS / "pytest.ini", "--rootdir", TESTS, *arguments]
    process = subprocess.Popen([str(word) for word in command], env=environment, cwd=TESTS)

    def stop(*_):
        # pytest then ends its workers, but these have no time to end the servers that they started.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
        end_started_by(results)
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)


def end_started_by(results):
    """Ends the processes that tests of this run started: they inherited its environment."""
    mark = f"BLACKBOX_RESULTS={results}".encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            pass  # It has ended, or belongs to another user.


if __name__ == "__main__":
    main()

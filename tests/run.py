#!/usr/bin/env python3
"""Runs the black-box tests: pytest with this project's options. What is not known here goes to pytest.

usage: run.py [--jobs N] [PYTEST OPTION...] [SUITE...]

    run.py vectors views               two suites
    run.py mango_queries -k pages      one test
    run.py -m quick                    those of `make check`
    run.py --lf -x                     what failed last time, up to the first failure
    run.py --soak cluster_faults       full length
    run.py --seed 17 --keep http_fuzz  the random choices of another run; data and logs stay

A test that fails is run again by itself, unless it is marked `never_retried`; when it passes then, it is printed as flaky and the run
passes. Closes with "N passed, N failed", which counts checks.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.setdefault("SETTEE_CACHE", str(pathlib.Path.home() / ".cache" / "settee")))
# When more fail than this, it is not by chance.
RETRIED_MAX = 3
NO_TESTS = 5


def main():
    arguments = sys.argv[1:]
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
    # The Makefile says so: the last stage of `make check` or `make test`.
    is_stage = "--stage" in arguments
    arguments = [word for word in arguments if word != "--stage"]
    # They wait more than they compute.
    jobs = str(2 * (os.cpu_count() or 1))
    if "--jobs" in arguments:
        at = arguments.index("--jobs")
        jobs = arguments[at + 1]
        del arguments[at : at + 2]
    for name in ("--binary", "--seed"):
        # pytest would take a value that stands apart for a path before it knows these options.
        if name in arguments[:-1]:
            at = arguments.index(name)
            arguments[at : at + 2] = [f"{name}={arguments[at + 1]}"]
    suites = {path.stem.removeprefix("test_"): path for path in (TESTS / "suites").glob("test_*.py")}
    arguments = [str(suites.get(word, word)) for word in arguments]
    began, before = time.monotonic(), cpu_seconds()
    code = pytest(["-n", jobs, *arguments])
    results = json.loads(results_file().read_text(encoding="utf-8")) if results_file().exists() else None
    if results is None:
        sys.exit(code or 1)
    flaky, counts = [], results["counts"]
    failed = results["failed"]
    retried = [test for test in failed if test["may_be_retried"]]
    if code == 1 and len(retried) == len(failed) <= RETRIED_MAX:
        print(f"again, by themselves: {', '.join(test['id'] for test in retried)}", flush=True)
        options = [word for word in arguments if word in ("--soak", "--keep") or word.startswith("--binary=")]
        seed = [f"--seed={results['seed']}"]
        code = pytest([*options, *seed, *(str(TESTS / test["id"]) for test in retried)])
        again = json.loads(results_file().read_text(encoding="utf-8"))
        if code == 0:
            flaky, counts = [test["id"] for test in retried], [counts[0] + again["counts"][0], 0, counts[2]]
    if is_stage:
        print_stages(time.monotonic() - began, cpu_seconds() - before)
    for test in flaky:
        print(f"flaky: {test} failed, and passed when it was run again by itself")
    passed, failed, skipped = counts
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(code)


def cpu_seconds():
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def print_stages(seconds, cpu):
    """The stages of `make check` or `make test` (scripts/stage.sh), this one included, beside those of the run before."""
    now, before = (read_stages(CACHE / "last-run" / name) for name in ("stages.tsv", "stages-before.tsv"))
    now["black box"] = (seconds, cpu)
    with (CACHE / "last-run" / "stages.tsv").open("a", encoding="utf-8") as file:
        file.write(f"black box\t{seconds:.1f}\t{cpu:.1f}\n")
    now["all"], before["all"] = ([sum(times) for times in zip(*stages.values())] or [0, 0] for stages in (now, before))
    print(f"\n{'stage':12} {'seconds':>8} {'of processors':>14} {'run before':>11} {'of processors':>14}")
    for name, (seconds, cpu) in now.items():
        print(f"{name:12} {seconds:8.1f} {cpu:14.1f}" + "".join(f" {value:{width}.1f}" for value, width in zip(before.get(name, ()), (11, 14))))
    print()


def read_stages(path):
    if not path.exists():
        return {}
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: (float(seconds), float(cpu)) for name, seconds, cpu in lines}


def results_file():
    return CACHE / "last-run" / "results.json"


def pytest(arguments):
    results_file().unlink(missing_ok=True)
    python = CACHE / "pytest" / "bin" / "python"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-m", "pytest", "-c", TESTS / "pytest.ini", "--rootdir", TESTS, *arguments]
    return subprocess.run([str(word) for word in command], env=environment, cwd=TESTS, check=False).returncode


if __name__ == "__main__":
    main()

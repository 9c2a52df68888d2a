"""Fixtures and options of the black-box tests: a context for each test, checks that are counted, and the order of tests.

A test is a function; it makes several checks (`ctx.report.check`), and fails after its last line if one of
them failed. The counts of checks, wall time and processor time of each suite are in the summary.
"""

import itertools
import json
import os
import pathlib
import resource
import shutil
import tempfile
import time
import zlib

import pytest

from harness import server as servers
from harness.context import Context
from harness.report import CheckFailed, report

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
# Data of tests that are not about disks is kept here: a sync costs nothing.
SHARED_MEMORY = pathlib.Path("/dev/shm")
SHARED_MEMORY_BYTES_MIN = 4 << 30
# Tests that take less of a processor than this part of their time mostly wait.
WAITING_SHARE_MAX = 0.4
# Fixtures of a module that are a cluster, whose parameter is its log.
CLUSTERS = ("cluster", "cluster_days", "adopted")
# Data that earlier runs left behind on purpose (failed tests, `--keep`): the newest are kept.
KEPT_RUNS_MAX = 3


def pytest_addoption(parser):
    group = parser.getgroup("settee")
    group.addoption("--binary", default=None, help="the server to test; by default the one that `make build` made")
    group.addoption("--soak", action="store_true", help="full length: slow tests, and long sizes of the others")
    group.addoption("--seed", type=int, default=None, help="repeats a run's random choices")
    group.addoption("--keep", action="store_true", help="leave data directories and logs behind")
    group.addoption("--quick", action="store_true", help="only suites marked `quick`, and those of --changed")
    group.addoption("--changed", default="", help="with --quick: names of suites to run although they are not quick, separated by commas")


def cache_folder():
    return pathlib.Path(os.environ.get("SETTEE_CACHE") or pathlib.Path.home() / ".cache" / "settee")


def default_binary():
    target = os.environ.get("CARGO_TARGET_DIR") or cache_folder() / "target"
    return str(pathlib.Path(target) / "dist" / "settee")


class Run:
    """What all tests of a run share: options, the seed, the directory that everything is written to."""

    def __init__(self, config):
        worker = getattr(config, "workerinput", None)
        self.is_worker = worker is not None
        self.soak = config.getoption("soak")
        self.keep = config.getoption("keep")
        self.binary = config.getoption("binary") or default_binary()
        if self.is_worker:
            self.seed, self.root, self.disk = worker["seed"], pathlib.Path(worker["root"]), pathlib.Path(worker["disk"])
            self.known = json.loads(worker["known"])
        else:
            seed = config.getoption("seed")
            self.seed = seed if seed is not None else int.from_bytes(os.urandom(4), "big")
            self.known = {"seconds": known_figures("durations.json"), "cpu": known_figures("cpu.json")}
            remove_old_runs()
            disk_folder().mkdir(parents=True, exist_ok=True)
            # The process id says whether the run that a directory belongs to is still alive.
            prefix = f"settee-test-{os.getpid()}-"
            self.disk = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=disk_folder()))
            self.root = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=SHARED_MEMORY)) if self.in_memory() else self.disk

    def in_memory(self):
        """Programs are also started from there, which a mount with `noexec` refuses."""
        if self.soak or not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free < SHARED_MEMORY_BYTES_MIN:
            return False
        return not os.statvfs(SHARED_MEMORY).f_flag & os.ST_NOEXEC

    def context(self, name, on_disk, has_cheap_hashes):
        """`name` is of a test or a suite: it decides the directory and the random choices."""
        safe = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in name)
        root = (self.disk if on_disk else self.root) / safe
        random_seed = zlib.crc32(f"{self.seed} {name}".encode())
        return Context(self.binary, root, report, self.soak, self.seed, random_seed, CHECKOUT, cache_folder(), has_cheap_hashes)

    def remove(self):
        for root in {self.root, self.disk}:
            shutil.rmtree(root, ignore_errors=True)

    def keep_on_disk(self):
        """Moves what a failed run leaves in memory to the disk. Returns where everything is."""
        if self.root != self.disk:
            shutil.copytree(self.root, self.disk / "memory", symlinks=True, ignore=ignore_special_files, dirs_exist_ok=True)
            shutil.rmtree(self.root, ignore_errors=True)
        return self.disk


def disk_folder():
    """A real disk: `/tmp` is in memory on some systems."""
    return cache_folder() / "test-runs"


def ignore_special_files(folder, names):
    """Sockets and pipes cannot be copied."""
    return [name for name in names if not (pathlib.Path(folder) / name).is_symlink() and special(pathlib.Path(folder) / name)]


def special(path):
    return not path.is_file() and not path.is_dir()


def remove_old_runs():
    """Removes what runs left behind that were killed, and all but the newest directories of failed ones."""
    kept = []
    for parent in (SHARED_MEMORY, disk_folder()):
        for path in parent.glob("settee-test-*"):
            pid = path.name.removeprefix("settee-test-").partition("-")[0]
            if pid.isdigit() and pathlib.Path("/proc", pid).exists():
                continue
            if parent == SHARED_MEMORY:
                shutil.rmtree(path, ignore_errors=True)
            else:
                kept.append(path)
    for path in sorted(kept, key=modified, reverse=True)[KEPT_RUNS_MAX:]:
        shutil.rmtree(path, ignore_errors=True)


def modified(path):
    """Seconds; 0 for a file that another run removed in the meantime."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0


def pytest_configure(config):
    config.settee = Run(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """xdist: the workers use the controller's seed and directory."""
    node.workerinput["seed"] = node.config.settee.seed
    node.workerinput["root"] = str(node.config.settee.root)
    node.workerinput["disk"] = str(node.config.settee.disk)
    # All workers have to collect tests in the same order, while other runs may write the file.
    node.workerinput["known"] = json.dumps(node.config.settee.known)


def pytest_report_header(config):
    run = config.settee
    return f"seed {run.seed}; {run.root}, on disk {run.disk}; {run.binary}"


def pytest_sessionstart(session):
    binary = session.config.settee.binary
    if not os.access(binary, os.X_OK):
        pytest.exit(f"no {binary}: run `make build`", returncode=2)


# Order: tests that share something stay together, and the longest go first. Tests that mostly wait take turns with those that compute.


def pytest_itemcollected(item):
    group = group_of(item)
    if group:
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if not is_selected(item, config)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_selected(item, config)]
    known = config.settee.known
    seconds, cpu = {}, {}
    for item in items:
        key, name = group_of(item) or item.nodeid, test_name(item)
        took = known["seconds"].get(name, 1)
        seconds[key] = seconds.get(key, 0) + took
        cpu[key] = cpu.get(key, 0) + known["cpu"].get(name, took)
    longest_first = sorted(seconds, key=lambda key: -seconds[key])
    waiting = [key for key in longest_first if cpu[key] < seconds[key] * WAITING_SHARE_MAX]
    computing = [key for key in longest_first if cpu[key] >= seconds[key] * WAITING_SHARE_MAX]
    order = [key for pair in itertools.zip_longest(waiting, computing) for key in pair if key is not None]
    places = {key: place for place, key in enumerate(order)}
    # Stable: tests of a group keep their order, and those of one log stay together.
    items.sort(key=lambda item: (places[group_of(item) or item.nodeid], *log_of(item)))


def is_selected(item, config):
    if item.get_closest_marker("slow") and not config.settee.soak:
        return False
    if not config.getoption("quick"):
        return True
    return item.get_closest_marker("quick") is not None or suite_of(item) in config.getoption("changed").split(",")


def group_of(item):
    """Tests with a fixture of a module run in one process, one after the other."""
    return suite_of(item) if "suite" in getattr(item, "fixturenames", ()) else None


def log_of(item):
    """The log of the cluster that a test shares with others, and its place in the file. pytest would begin with any of its parameters."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    log = next((params[name] for name in CLUSTERS if name in params), "")
    return log, item.location[1] if log else 0


def suite_of(item):
    return item.path.stem.removeprefix("test_")


def test_name(item):
    return f"{suite_of(item)}::{item.name}"


def name_of(node_id):
    """`suites/test_x.py::test_y` as `test_name` has it."""
    path, _, test = node_id.partition("::")
    return f"{pathlib.Path(path).stem.removeprefix('test_')}::{test}"


def known_figures(file):
    """Figures of each test when it was last run on this machine, or on the one that wrote the file in `tests`: seconds, or those of a processor."""
    known = {}
    for path in (pathlib.Path(__file__).with_name(file), cache_folder() / "last-run" / file):
        if path.exists():
            known.update(json.loads(path.read_text(encoding="utf-8")))
    return known


# Checks


def cpu_seconds():
    """Processor time of this process and of the children that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    report.begin(suite_of(item), test_name(item))
    item.settee_began = time.monotonic(), cpu_seconds()
    return (yield)


def failing_checks_fail():
    failures = report.take_failures()
    if failures:
        raise CheckFailed("\n".join(failures))


# Suites of this process in which a test failed: the data that its tests share is kept.
_failed_suites = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.failed:
        _failed_suites.add(suite_of(item))
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    yield
    failing_checks_fail()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        result = yield
    except pytest.skip.Exception:
        report.skipped += 1
        raise
    except Exception as error:
        failures = report.take_failures()
        report.broken("runs to its end", failures)
        if failures:
            error.add_note("and these checks failed before:\n" + "\n".join(failures))
        raise
    failing_checks_fail()
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item):
    try:
        result = yield
        failing_checks_fail()
        return result
    finally:
        began, before = item.settee_began
        counts = {
            "name": test_name(item),
            "suite": suite_of(item),
            "passed": report.passed,
            "failed": report.failed,
            "skipped": report.skipped,
            "seconds": round(time.monotonic() - began, 2),
            "cpu": round(cpu_seconds() - before, 2),
            "lines": report.lines,
            # A panic is a defect, however rare.
            "may_be_retried": item.get_closest_marker("may_be_retried") is not None and not report.panicked,
        }
        item.user_properties.append(("settee", counts))


@pytest.fixture
def ctx(request):
    """A context of this test alone: what it starts is ended with it."""
    yield from in_context(request, test_name(request.node))


@pytest.fixture(scope="module")
def suite(request):
    """A context that all tests of a module share, for servers and clusters that live longer than one test."""
    yield from in_context(request, request.module.__name__.rpartition(".")[2].removeprefix("test_"))


def in_context(request, name):
    run = request.config.settee
    living = servers.living()
    is_marked = lambda mark: request.node.get_closest_marker(mark) is not None
    ctx = run.context(name, on_disk=is_marked("on_disk"), has_cheap_hashes=not run.soak and not is_marked("costly_hashes"))
    yield ctx
    servers.end_all(living)
    # A full disk would fail the tests after this one.
    if not run.keep and not report.failed and suite_of(request.node) not in _failed_suites:
        shutil.rmtree(ctx.root, ignore_errors=True)


# The summary


def pytest_runtest_logreport(report):
    """In the controller: `user_properties` come from the workers."""
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == "settee":
                results().append(value)


_results = []


def results():
    return _results


def pytest_terminal_summary(terminalreporter, config):
    if config.settee.is_worker:
        return
    run = results()
    write = terminalreporter.write_line
    suites = {}
    for result in run:
        suite = suites.setdefault(result["suite"], {"tests": 0, "passed": 0, "failed": 0, "skipped": 0, "seconds": 0.0, "cpu": 0.0})
        suite["tests"] += 1
        for key in ("passed", "failed", "skipped", "seconds", "cpu"):
            suite[key] += result[key]
    if suites:
        terminalreporter.section("suites")
        write(f"{'suite':26} {'tests':>6} {'checks':>7} {'failed':>7} {'seconds':>8} {'CPU seconds':>12}")
        for name, suite in sorted(suites.items(), key=lambda pair: -pair[1]["seconds"]):
            checks = suite["passed"] + suite["failed"]
            write(f"{name:26} {suite['tests']:6} {checks:7} {suite['failed']:7} {suite['seconds']:8.1f} {suite['cpu']:12.1f}")
    passed, failed, skipped = (sum(suite[key] for suite in suites.values()) for key in ("passed", "failed", "skipped"))
    broken = [report for outcome in ("failed", "error") for report in terminalreporter.stats.get(outcome, [])]
    config.settee.failed = len(broken)
    # A test whose process died has no result, and is not retried.
    may_be_retried = {result["name"]: result["passed"] for result in run if result["may_be_retried"]}
    ids = {report.nodeid.rpartition("@")[0] or report.nodeid for report in broken}
    keep_results(
        config,
        {
            "seed": config.settee.seed,
            "counts": [passed, max(failed, len(broken)), skipped],
            "failed": [
                {"id": id, "may_be_retried": name_of(id) in may_be_retried, "passed": may_be_retried.get(name_of(id), 0)} for id in sorted(ids)
            ],
        },
        run,
        suites,
    )


def keep_results(config, results, run, suites):
    """Writes what tests/run.py reads and publishes. durations.json and cpu.json order the next run; checks.txt has a line for each check."""
    if "BLACKBOX_RESULTS" not in os.environ:
        return
    folder = pathlib.Path(os.environ["BLACKBOX_RESULTS"])
    # Long forms say nothing about the order of short ones.
    figures = {key: {} if config.settee.soak else {result["name"]: result[key] for result in run} for key in ("seconds", "cpu")}
    for name, text in {
        "durations.json": json.dumps(figures["seconds"], indent=0, sort_keys=True),
        "cpu.json": json.dumps(figures["cpu"], indent=0, sort_keys=True),
        "results.json": json.dumps(results, indent=1),
        "suites.json": json.dumps(suites, indent=1, sort_keys=True),
        "checks.txt": "".join(f"{line}\n" for result in run for line in result["lines"]),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")


def pytest_unconfigure(config):
    run = getattr(config, "settee", None)
    if run is None or run.is_worker:
        return
    if getattr(run, "failed", 0) or run.keep:
        print(f"logs and data: {run.keep_on_disk()}")
    else:
        run.remove()

"""The log on Kafka: the Rust tests of `crates/kafka-log` against brokers that this suite starts, and kills when they ask for it."""

import os
import re
import subprocess

import pytest

import brokers as kafka

TIMEOUT_S = 1800
PASSED = re.compile(r"(\d+) tests? run: (\d+) passed")
# Of the whole workspace, so that dependencies have the features that they have for `make unit`: with others they would be compiled
# once more, Kafka's client among them.
ARGUMENTS = ["nextest", "run", "--profile=brokers", "--release", "--workspace", "--test-threads=1", "--no-capture", "-E"]
# All modules of the tests. Each has brokers of its own, so that they run at the same time.
MODULES = ("log", "faults")


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_log_on_brokers(ctx, count, module):
    with_brokers(ctx, count, module)


def test_each_module_is_run(ctx):
    source = (ctx.checkout / "crates" / "kafka-log" / "tests" / "it" / "main.rs").read_text(encoding="utf-8")
    ctx.report.equal("the modules with tests", set(re.findall(r"^mod (\w+);", source, re.MULTILINE)) - {"common"}, set(MODULES))


def with_brokers(ctx, count, module):
    cluster = kafka.Brokers(count, ctx.folder(f"brokers-{count}"))
    try:
        cluster.start()
        environment = dict(os.environ, SETTEE_TEST_BROKERS=cluster.addresses, SETTEE_TEST_CONTROL=kafka.serve_control(cluster))
        command = [ctx.cache / "tools" / "bin" / "cargo-nextest", *ARGUMENTS, f"binary_id(kafka-log::it) and test(/^{module}::/)"]
        done = subprocess.run(command, cwd=ctx.checkout, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    finally:
        cluster.stop()
    found = PASSED.search(done.stderr)
    passed = int(found.group(2)) if found else 0
    ctx.report.check(
        f"{count} broker{'s' * (count > 1)}: {passed} tests of {module}",
        done.returncode == 0 and passed > 0,
        done.stdout[-6000:] + done.stderr[-2000:],
    )
    for figures in re.findall(r"append to .*", done.stdout):
        ctx.report.note(f"{count} broker{'s' * (count > 1)}: {figures}")

"""The log on Kafka: the Rust tests of `crates/kafka-log` against brokers that this suite starts, and kills when they ask for it."""

import os
import re
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

import brokers as kafka

TIMEOUT_S = 1800
DONE = re.compile(r"^test result: ok\. (\d+) passed")
# Of the whole workspace, so that dependencies have the features that they have for `make unit`: with others they would be compiled
# once more, Kafka's client among them. No other crate has tests of these names.
TESTS = ["cargo", "test", "--release", "--workspace", "--test", "faults", "--test", "log"]
BUILD = [*TESTS, "--no-run"]
RUN = [*TESTS, "--no-fail-fast", "--", "--test-threads=1", "--nocapture"]


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_log_on_brokers(ctx, count):
    built = subprocess.run(BUILD, cwd=ctx.checkout, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if ctx.report.check("its tests compile", built.returncode == 0, built.stderr[-4000:]):
        with_brokers(ctx, count)


def with_brokers(ctx, count):
    cluster = kafka.Brokers(count, ctx.folder(f"brokers-{count}"))
    try:
        cluster.start()
        environment = dict(os.environ, SETTEE_TEST_BROKERS=cluster.addresses, SETTEE_TEST_CONTROL=kafka.serve_control(cluster))
        done = subprocess.run(RUN, cwd=ctx.checkout, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    finally:
        cluster.stop()
    passed = sum(int(found.group(1)) for found in map(DONE.match, done.stdout.splitlines()) if found)
    ctx.report.check(
        f"{count} broker{'s' * (count > 1)}: {passed} tests", done.returncode == 0 and passed > 0, done.stdout[-6000:] + done.stderr[-2000:]
    )
    for figures in re.findall(r"append to .*", done.stdout):
        ctx.report.note(f"{count} broker{'s' * (count > 1)}: {figures}")

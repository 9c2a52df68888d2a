"""kill -9 at any moment: whatever was acknowledged is there after the restart, and nothing is half there."""

import os
import signal

import pytest

from harness.files import files_below
from harness.ledger import Edit, Ledger, verify
from harness.server import wait_until
from harness.writers import BulkWriter, Compactor, DatabaseWriter, GraftWriter, LocalWriter, SerialWriter

pytestmark = pytest.mark.on_disk

MIXES = {
    "bulk": [BulkWriter, BulkWriter, BulkWriter],
    "serial": [SerialWriter, SerialWriter, SerialWriter, SerialWriter],
    "mixed": [BulkWriter, SerialWriter, SerialWriter, GraftWriter, LocalWriter, DatabaseWriter, Compactor],
}
# Logs are begun again and again, and stay until what they have is written to files.
ROTATING = "[rocksdb]\nwrite_buffer_size = 262144\nbackground_bytes_per_second = 3000000\n"
FIRST_WRITES_TIMEOUT_S = 60
LOGS_TIMEOUT_S = 60
RESTART_GOAL_S = 2.0


def test_at_any_moment(ctx):
    rounds = ctx.size(6, 100)
    ledgers, restarts = [], []
    server = ctx.server().start()
    for number in range(1, rounds + 1):
        mix = list(MIXES)[(number - 1) % len(MIXES)]
        label = f"round {number} ({mix})"
        ledgers.append(write_until_killed(ctx, server, Ledger(f"crash-{number}"), mix, label))
        server = ctx.server().start()
        restarts.append(server.start_seconds)
        verify(ctx.report, server.api(), ledgers[-1], label, quiet=ctx.soak)
        goes_on(ctx, server, ledgers[-1], label)
    say_restarts(ctx, restarts)
    # Later rounds crashed on the same directory, so the databases of earlier ones are looked at again.
    whole = all([verify(ctx.report, server.api(), ledger, f"{ledger.db} at the end", quiet=True) for ledger in ledgers])
    ctx.report.check("every earlier round's database is still whole", whole)
    ctx.report.equal("a clean stop exits with 0", server.stop(), 0)
    server = ctx.server().start()
    whole = all([verify(ctx.report, server.api(), ledger, f"{ledger.db} after a clean stop", quiet=True) for ledger in ledgers])
    ctx.report.check("and after a clean stop too", whole)
    server.stop()


def test_between_logs(ctx):
    """Killed while acknowledged writes are in several logs."""
    config = ctx.root / "rotating.ini"
    config.write_text(ROTATING)
    for number in range(1, ctx.size(3, 30) + 1):
        label = f"several logs, round {number}"
        server = ctx.server("rotating", options=["--config", str(config)]).start()
        stops = lambda server=server: stops_with_several_logs(server)
        ledger = write_until_killed(ctx, server, Ledger(f"rotating-{number}"), "serial", label, ctx.random.randint(600, 1500), stops)
        ctx.report.check(f"{label}: there are several logs", logs(server) > 1, logs(server), quiet=ctx.soak)
        server = ctx.server("rotating", options=["--config", str(config)]).start()
        verify(ctx.report, server.api(), ledger, label, quiet=ctx.soak)
        server.stop()


def logs(server):
    return len([log for log, _ in files_below(server.data, ".log") if log.stem.isdigit()])


def stops_with_several_logs(server):
    """Stops the server, and continues it unless it has several logs.

    A running server could flush, and remove a log, before it is killed.
    """
    server.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if logs(server) > 1:
        return True
    server.process.send_signal(signal.SIGCONT)
    return False


def write_until_killed(ctx, server, ledger, mix, label, wanted=None, stops=None):
    """`stops` stops the server in the state to kill it in, or returns False."""
    api = server.api()
    api.expect((201, 202), "PUT", "/" + ledger.db)
    writers = [kind(server.api(), ledger, f"w{at}", ctx.random.getrandbits(32)) for at, kind in enumerate(MIXES[mix])]
    for writer in writers:
        writer.start()
    # The moment is drawn as a number of acknowledgements, so it does not depend on the machine's speed.
    wanted = wanted or ctx.random.randint(20, 3000 if mix == "bulk" else 800)
    ctx.report.check(
        f"{label}: the writers get going",
        ledger.wait_for(wanted, FIRST_WRITES_TIMEOUT_S),
        f"{ledger.count} of {wanted} acknowledged; {server.log()[-1000:]}",
        quiet=True,
    )
    if stops and not wait_until(stops, LOGS_TIMEOUT_S, 0.005):
        ctx.report.check(f"{label}: the state that is looked for is reached", False, server.log()[-1000:])
    server.kill()
    for writer in writers:
        writer.stop_event.set()
        writer.join(30)
    unexpected = [line for writer in writers for line in writer.unexpected]
    ctx.report.check(f"{label}: no write was refused", not unexpected, "\n".join(unexpected[:5]), quiet=True)
    return ledger


def goes_on(ctx, server, ledger, label):
    """After the restart a write is taken, and is booked like every other one."""
    edit = Edit({"written": "after the restart"})
    ledger.intend("zz-after-the-restart", edit)
    answer = server.api().put(f"/{ledger.db}/zz-after-the-restart", edit.body)
    if ctx.report.check(f"{label}: writing goes on", answer.status == 201, repr(answer), quiet=True):
        ledger.acknowledge("zz-after-the-restart", answer.json["rev"])


def say_restarts(ctx, seconds):
    slowest = max(seconds)
    over = sum(second > RESTART_GOAL_S for second in seconds)
    text = f"restart after kill -9: slowest {slowest:.2f} s of {len(seconds)}"
    ctx.report.note(text + (f"; {over} took more than {RESTART_GOAL_S:.0f} s" if over else ""))

"""`settee backup` while writers write, `settee restore`, and the restored copy compared with the original."""

import subprocess
import threading

from harness.ledger import Found, Ledger, disagreements, verify
from harness.writers import BulkWriter, LocalWriter, SerialWriter

COMMAND_TIMEOUT_S = 300


def backup_command(ctx, server, destination):
    return [ctx.binary, "backup", server.url.replace("://", f"://{server.admin}@"), str(destination)]


def restore_command(ctx, source, destination):
    return [ctx.binary, "restore", str(source), str(destination)]


def run(ctx):
    report = ctx.report
    with ctx.server() as server:
        before, during = Ledger("before"), Ledger("during")
        for ledger in (before, during):
            server.api().expect((201, 202), "PUT", "/" + ledger.db)
        write(ctx, server, before, ctx.size(3000, 100_000))
        writers, stop = start_writers(ctx, server, during)
        report.check("the writers get going", during.wait_for(500, 60), during.count)
        known = during.revisions()
        backup = run_command(report, "backup while writing", backup_command(ctx, server, ctx.root / "backup"))
        stop.set()
        for writer in writers:
            writer.join(30)
        report.check(
            "no write was refused meanwhile",
            not any(writer.unexpected or writer.disconnected for writer in writers),
            [(writer.unexpected[:3], writer.disconnected) for writer in writers],
        )
        verify(report, server.api(), during, "the original afterwards", quiet=True)
        if not backup:
            return
        refused = subprocess.run(
            backup_command(ctx, server, ctx.root / "backup"), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
        report.check("a second backup into the same directory is refused or made whole", refused.returncode == 0 or refused.stderr.strip(), refused)
    if not run_command(report, "restore", restore_command(ctx, ctx.root / "backup", ctx.root / "restored")):
        return
    again = subprocess.run(
        restore_command(ctx, ctx.root / "backup", ctx.root / "restored"), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    report.check("a restore over existing data is refused with a reason", again.returncode != 0 and again.stderr.strip(), again)
    with ctx.server("restored") as server:
        compare(report, server.api(), before, during, known)
    nothing = subprocess.run(
        restore_command(ctx, ctx.root / "no-such-backup", ctx.root / "x"), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    report.check("a restore from nothing is refused with a reason", nothing.returncode != 0 and nothing.stderr.strip(), nothing)


def write(ctx, server, ledger, count):
    writers, stop = start_writers(ctx, server, ledger)
    ctx.report.check("documents are written", ledger.wait_for(count, 300), ledger.count, quiet=True)
    stop.set()
    for writer in writers:
        writer.join(30)


def start_writers(ctx, server, ledger):
    stop = threading.Event()
    writers = [
        kind(server.api(), ledger, f"w{at}", ctx.random.getrandbits(32), stop)
        for at, kind in enumerate((BulkWriter, SerialWriter, SerialWriter, LocalWriter))
    ]
    for writer in writers:
        writer.start()
    return writers, stop


def run_command(report, name, command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    return report.check(f"{name} exits with 0", done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}")


def compare(report, api, before, during, known):
    """What was there when the backup began is there, whole; what came later may be."""
    verify(report, api, before, "restored, what was written before")
    found = Found(api, during.db)
    lost = [doc_id for doc_id, rev in known.items() if not reached(found, doc_id, rev)]
    report.check(f"restored, all {len(known)} documents acknowledged before the backup began", not lost, lost[:5])
    wrong = disagreements(found)
    report.check("restored, counts, lists, feed and offsets agree", not wrong, "\n".join(wrong[:5]))
    report.equal("restored, writing goes on", api.put("/during/zz-after", {}).status, 201)


def reached(found, doc_id, rev):
    row = found.by_seq.get(doc_id)
    return row is not None and int(row["doc"]["_rev"].split("-")[0]) >= int(rev.split("-")[0])

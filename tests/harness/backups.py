"""Backups beside writers: who writes, and what a restored copy must have."""

import threading

from harness.ledger import Found, disagreements, verify
from harness.writers import BulkWriter, LocalWriter, SerialWriter


def start_writers(ctx, server, ledger):
    stop = threading.Event()
    writers = [
        kind(server.api(), ledger, f"w{at}", ctx.random.getrandbits(32), stop)
        for at, kind in enumerate((BulkWriter, SerialWriter, SerialWriter, LocalWriter))
    ]
    for writer in writers:
        writer.start()
    return writers, stop


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

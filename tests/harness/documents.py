"""Documents that tests write."""

import os

from harness.ledger import Edit


def write_documents(api, ledger, count, size=300, prefix="doc"):
    """Single documents, each its own commit, so that the log has as many records."""
    for number in range(count):
        doc_id = f"{prefix}-{number:06d}"
        edit = Edit({"number": number, "pad": os.urandom(size // 2).hex()})
        ledger.intend(doc_id, edit)
        answer = api.put(f"/{ledger.db}/{doc_id}", edit.body)
        if answer.status != 201:
            raise AssertionError(f"PUT {doc_id}: {answer!r}")
        ledger.acknowledge(doc_id, answer.json["rev"])

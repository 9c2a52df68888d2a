"""What a database holds, leaf by leaf, so that two of them can be compared whatever server they are on.

A database is read as {document id: {revision: Leaf as a dictionary}}:

    {"deleted": bool, "body": JSON text of the members without underscore, sorted, "ancestors": [revision, …, oldest last],
     "attachments": {name: {"content_type", "length", "md5"}}}

`md5` is of the content, not the server's `digest`: CouchDB digests what it stores, which for text is
compressed, and PouchDB digests the content. Local documents are not leaves and not compared.
"""

import base64
import hashlib
import json

from harness.api import quote

BATCH = 200


def leaves(api, db, bulk=True):
    """Every leaf of `db`. `bulk=False` asks for one leaf a request, for servers without a good `_bulk_get`."""
    wanted = leaf_revs(api, db)
    read = _by_bulk_get if bulk else _one_by_one
    found = {}
    for doc_id, doc in read(api, db, [(doc_id, rev) for doc_id, revs in wanted.items() for rev in revs]):
        found.setdefault(doc_id, {})[doc["_rev"]] = leaf(doc)
    missing = {doc_id: sorted(set(revs) - set(found.get(doc_id, ()))) for doc_id, revs in wanted.items()}
    missing = {doc_id: revs for doc_id, revs in missing.items() if revs}
    if missing:
        raise AssertionError(f"{api.url}/{db}: leaves of _changes that cannot be read: {str(missing)[:500]}")
    return found


def leaf_revs(api, db):
    """{id: sorted leaf revisions} as `_changes?style=all_docs` names them; fast, and enough for large databases."""
    changes = api.expect(200, "GET", f"/{quote(db)}/_changes?style=all_docs")
    revs = {}
    for row in changes["results"]:
        if row["id"] in revs:
            raise AssertionError(f"{api.url}/{db}: {row['id']} is twice in _changes")
        revs[row["id"]] = sorted(change["rev"] for change in row["changes"])
    return revs


def leaf(doc):
    """A document as read with revs=true and attachments=true."""
    revisions = doc.get("_revisions") or {"start": 0, "ids": []}
    ancestors = [f"{revisions['start'] - at}-{hash_}" for at, hash_ in enumerate(revisions["ids"])]
    return {
        "deleted": bool(doc.get("_deleted")),
        # As text: 1 and 1.0 and true are equal in Python.
        "body": json.dumps({name: value for name, value in doc.items() if not name.startswith("_")}, sort_keys=True, ensure_ascii=False),
        "ancestors": ancestors[1:],
        "attachments": {
            name: content(found["content_type"], base64.b64decode(found["data"])) for name, found in (doc.get("_attachments") or {}).items()
        },
    }


def content(content_type, data):
    return {"content_type": content_type, "length": len(data), "md5": hashlib.md5(data).hexdigest()}


def same_leaves(report, name, one, other, quiet=False):
    """A check that two databases hold the same; each is (api, database)."""
    return same_readings(report, name, leaves(*one), leaves(*other), quiet=quiet)


def same_readings(report, name, one, other, names=("here", "there"), quiet=False):
    """The same of databases that were read already, or by something else."""
    counted = f"{name} ({sum(map(len, one.values()))} leaves of {len(one)} documents)"
    return report.check(counted, one == other, differences(one, other, names), quiet)


def differences(one, other, names=("here", "there"), lines_max=20):
    """Says what differs; empty when both hold the same."""
    lines = []
    for doc_id in sorted(set(one) | set(other)):
        here, there = one.get(doc_id, {}), other.get(doc_id, {})
        for rev in sorted(set(here) | set(there)):
            if rev not in here or rev not in there:
                lines.append(f"{doc_id} {rev}: only {names[0] if rev in here else names[1]}")
                continue
            for part in ("deleted", "body", "attachments", "ancestors"):
                if here[rev][part] != there[rev][part]:
                    shown = (str(side[rev][part])[:200] for side in (here, there))
                    lines.append(f"{doc_id} {rev} {part}: " + "; ".join(f"{where} {what}" for where, what in zip(names, shown)))
    more = [f"… and {len(lines) - lines_max} more"] if len(lines) > lines_max else []
    return "\n".join(lines[:lines_max] + more)


def _by_bulk_get(api, db, pairs):
    for at in range(0, len(pairs), BATCH):
        asked = {"docs": [{"id": doc_id, "rev": rev} for doc_id, rev in pairs[at : at + BATCH]]}
        answer = api.expect(200, "POST", f"/{quote(db)}/_bulk_get?revs=true&attachments=true", asked)
        for result in answer["results"]:
            for doc in result["docs"]:
                if "ok" in doc:
                    yield result["id"], doc["ok"]


def _one_by_one(api, db, pairs):
    for doc_id, rev in pairs:
        path = f"/{quote(db)}/{quote(doc_id)}?rev={rev}&revs=true&attachments=true"
        answer = api.get(path, headers={"Accept": "application/json"})
        if answer.status == 200:
            yield doc_id, answer.json

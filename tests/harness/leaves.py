"""Every leaf revision of a database: what two replicas must have in common."""

import json


def leaves(api, db):
    """{id: {rev: document}} with ancestors and attachments, of all documents, deleted ones too."""
    rows = api.expect(200, "GET", f"/{db}/_changes?style=all_docs")["results"]
    wanted = [{"id": row["id"], "rev": change["rev"]} for row in rows for change in row["changes"]]
    found = {row["id"]: {} for row in rows}
    for start in range(0, len(wanted), 1000):
        body = {"docs": wanted[start:start + 1000]}
        answer = api.expect(200, "POST", f"/{db}/_bulk_get?revs=true&attachments=true", body)
        for result in answer["results"]:
            for doc in result["docs"]:
                if "ok" in doc:
                    found[result["id"]][doc["ok"]["_rev"]] = doc["ok"]
                else:
                    found[result["id"]][doc["error"]["rev"]] = doc["error"]
    return found


def same_leaves(report, name, one, other, quiet=False):
    """`one` and `other`: (api, database)."""
    here, there = leaves(*one), leaves(*other)
    return report.check(name, here == there, differences(here, there), quiet)


def differences(here, there):
    lines = [f"{len(here)} documents here, {len(there)} there"]
    for id in sorted(set(here) | set(there)):
        if here.get(id) != there.get(id):
            lines.append(f"{id}: {json.dumps(here.get(id))[:300]} | {json.dumps(there.get(id))[:300]}")
    return "\n".join(lines[:10])

"""A device of one user that replicates with a database over HTTP, by the requests that CouchDB's replicator and PouchDB make."""

import email
import json

from harness.api import quote
from harness.naive_access import path_of

CHECKPOINT = "/db/_local/device"


class Device:
    """Its documents are {id: {rev: (parent, deleted)}}. `own` are revisions that were made on it and that the server does not have."""

    def __init__(self, api, random):
        self.api, self.random = api, random
        self.revs, self.own, self.bodies = {}, {}, {}

    def pull(self):
        """Fetches what is new, in batches, and returns what the server answered otherwise than a replicator expects."""
        stored = self.api.get(CHECKPOINT)
        since, odd = stored.json["since"] if stored.status == 200 else "0", []
        for _ in range(100):
            limit = self.random.choice((3, 20, 1000))
            batch = self.api.expect(200, "GET", f"/db/_changes?style=all_docs&limit={limit}&since={quote(str(since))}")
            wanted = [(row["id"], change["rev"]) for row in batch["results"] for change in row["changes"]]
            wanted = [(doc_id, rev) for doc_id, rev in wanted if rev not in self.revs.get(doc_id, {})]
            fetch = self.random.choice((self._by_bulk_get, self._one_by_one)) if wanted else lambda _: []
            odd += fetch(wanted)
            since = batch["last_seq"]
            if len(batch["results"]) < limit:
                break
        else:
            odd.append("the feed does not end")
        checkpoint = {"since": since, **({"_rev": stored.json["_rev"]} if stored.status == 200 else {})}
        self.api.expect(201, "PUT", CHECKPOINT, checkpoint)
        return odd

    def _by_bulk_get(self, wanted):
        asked = {"docs": [{"id": doc_id, "rev": rev} for doc_id, rev in wanted]}
        answer = self.api.expect(200, "POST", "/db/_bulk_get?revs=true&latest=true", asked)
        found = [doc for result in answer["results"] for doc in result["docs"]]
        return [odd for doc in found for odd in self._keep(doc)]

    def _one_by_one(self, wanted):
        odd = []
        for doc_id in {doc_id: None for doc_id, _ in wanted}:
            revs = json.dumps([rev for of, rev in wanted if of == doc_id], separators=(",", ":"))
            path = f"/db/{quote(doc_id)}?revs=true&latest=true&open_revs={quote(revs)}"
            answer = self.api.get(path, headers={"Accept": self.random.choice(("application/json", "multipart/mixed"))})
            if answer.status != 200:
                odd.append((path, answer))
                continue
            for doc in documents_of(answer):
                odd += self._keep(doc)
        return odd

    def _keep(self, found):
        """Stores a fetched revision with its path."""
        if "ok" not in found:
            return [found]
        doc = found["ok"]
        path = path_of(doc["_revisions"]["start"], doc["_revisions"]["ids"])
        self.add(doc["_id"], path, doc.get("_deleted", False))
        self.bodies[doc["_id"], path[0]] = doc
        return []

    def add(self, doc_id, path, deleted):
        revs = self.revs.setdefault(doc_id, {})
        for rev, parent in zip(path, [*path[1:], None], strict=True):
            before = revs.get(rev)
            revs[rev] = (parent or (before and before[0]), before[1] if before else deleted if rev == path[0] else False)

    def path(self, doc_id, rev):
        path = []
        while rev is not None:
            path.append(rev)
            rev = self.revs[doc_id][rev][0]
        return path

    def leaves(self, doc_id):
        revs = self.revs.get(doc_id, {})
        parents = {parent for parent, _ in revs.values()}
        return [rev for rev in revs if rev not in parents]

    def live(self, doc_id):
        """The leaves that came from the server and that are not deleted."""
        revs = self.revs.get(doc_id, {})
        return {rev for rev in self.leaves(doc_id) if not revs[rev][1] and (doc_id, rev) not in self.own}

    def edit(self, doc_id, parent, doc):
        """An edit without a connection."""
        generation = 1 + (int(parent.partition("-")[0]) if parent else 0)
        rev = f"{generation}-{self.random.getrandbits(128):032x}"
        path = [rev, *(self.path(doc_id, parent) if parent else [])]
        self.add(doc_id, path, doc.get("_deleted", False))
        revisions = {"start": generation, "ids": [one.partition("-")[2] for one in path]}
        self.own[doc_id, rev] = {"_id": doc_id, "_revisions": revisions, **doc}


def documents_of(answer):
    """The results of `open_revs`, of which JSON has one form and multipart another."""
    kind = answer.headers["Content-Type"]
    if not kind.startswith("multipart/"):
        yield from answer.json
        return
    message = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + answer.raw)
    for part in message.get_payload():
        if part.is_multipart():
            part = part.get_payload()[0]
        doc = json.loads(part.get_payload(decode=True))
        yield doc if "missing" in doc else {"ok": doc}

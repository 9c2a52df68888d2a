"""Random edits of a database over HTTP, with attachments and conflicts: the other users of what a device syncs."""

import base64
import hashlib

from harness.api import Disconnected, quote
from harness.server import wait_until

IDS = 40
TYPES = ["text/plain", "application/octet-stream", "application/json", "image/png"]
NAMES = ["note.txt", "deep/er/path.bin", "naïve 🙂.json", "a+b c"]
KINDS = ["put", "put", "put", "remove", "attach", "attach", "inline", "detach", "graft", "resolve", "bulk"]
BACK_AGAIN_TIMEOUT_S = 60


class ServerEdits:
    """`api` is asked for a client (`api()`), again after a connection was lost. `acknowledged`: [(id, rev), …].

    `unique_names`: no two attachments have the same name, for PouchDB's replicator, which may fetch the winner's attachment of
    a name for a revision that lost. An edit is given up when the connection breaks: it may be there or not, and is booked in neither case.
    """

    def __init__(self, api, db, name, random, unique_names=True):
        self._connect, self.db, self.name, self._random, self._unique_names = api, db, name, random, unique_names
        self.api = api()
        self.acknowledged = []
        self.refused = []
        self._made = 0

    def make(self, count):
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            self._persistently(lambda: getattr(self, "_" + self._random.choice(KINDS))(self._an_id()))
        self._persistently(self._one_of_each)

    def _persistently(self, edit):
        while True:
            try:
                return edit()
            except Disconnected:
                if not wait_until(self._back_again, BACK_AGAIN_TIMEOUT_S):
                    raise

    def _one_of_each(self):
        """A tombstone, a conflict and an attachment in documents that nobody else edits: there are some, however the dice fall."""
        self._made += 1
        for kind in ("remove", "graft", "attach"):
            doc_id = f"{self.name}-{kind}-{self._made}"
            self._put(doc_id)
            getattr(self, f"_{kind}")(doc_id)

    def _back_again(self):
        try:
            self.api = self._connect()
            return self.api.get("/").status == 200
        except Disconnected:
            return False

    def _an_id(self):
        at = self._random.randrange(IDS)
        return self._random.choice([f"shared-{at}", f"shared-{at}", f"{self.name}-{at}", f"shared/ü {at}+"])

    def _body(self):
        self._made += 1
        return {
            "by": self.name,
            "made": self._made,
            "half": self._made + 0.5,
            "text": "y" * self._random.randrange(300),
            "nested": {"list": [self._made, None, True, "ß"]},
        }

    def _content(self):
        length = self._random.randrange(3000) if self._random.randrange(4) else self._random.randrange(150_000)
        return self._random.randbytes(length) if self._random.randrange(2) else (b"abcdefghijklmnopqrstuvwxyz" * (length // 26 + 1))[:length]

    def _attachment_name(self):
        self._made += 1
        name = self._random.choice(NAMES)
        return f"{name}.{self.name}.{self._made}" if self._unique_names else name

    def _inline_content(self):
        return {"content_type": self._random.choice(TYPES), "data": base64.b64encode(self._content()).decode()}

    def _path(self, doc_id, rest=""):
        return f"/{self.db}/{quote(doc_id)}{rest}"

    def _read(self, doc_id, query=""):
        answer = self.api.get(self._path(doc_id, query))
        if answer.status == 404:
            return None
        if answer.status != 200:
            self.refused.append(f"GET {doc_id}{query}: {answer!r}")
            return None
        return answer.json

    def _book(self, answer, what):
        if answer.status in (200, 201):
            self.acknowledged.append((answer.json["id"], answer.json["rev"]))
        elif answer.status not in (404, 409):
            self.refused.append(f"{what}: {answer!r}")

    def _put(self, doc_id):
        old = self._read(doc_id) or {}
        doc = {**{name: old[name] for name in ("_rev",) if name in old}, **self._body()}
        if "_attachments" in old and self._random.randrange(4):
            doc["_attachments"] = old["_attachments"]  # stubs
        self._book(self.api.put(self._path(doc_id), doc), "put")

    def _remove(self, doc_id):
        if old := self._read(doc_id):
            if self._random.randrange(2):
                self._book(self.api.delete(self._path(doc_id, f"?rev={old['_rev']}")), "delete")
            else:
                self._book(
                    self.api.put(self._path(doc_id), {"_rev": old["_rev"], "_deleted": True, "why": "a tombstone with a body"}), "delete by put"
                )

    def _attach(self, doc_id):
        old = self._read(doc_id)
        query = f"?rev={old['_rev']}" if old else ""
        path = self._path(doc_id, f"/{quote(self._attachment_name())}{query}")
        self._book(self.api.put(path, self._content(), headers={"Content-Type": self._random.choice(TYPES)}), "attach")

    def _inline(self, doc_id):
        old = self._read(doc_id) or {}
        added = {self._attachment_name(): self._inline_content(), "empty": {"content_type": "text/plain", "data": ""}}
        doc = {**{name: old[name] for name in ("_rev",) if name in old}, **self._body(), "_attachments": {**old.get("_attachments", {}), **added}}
        self._book(self.api.put(self._path(doc_id), doc), "inline")

    def _detach(self, doc_id):
        old = self._read(doc_id)
        if old and "_attachments" in old:
            name = self._random.choice(sorted(old["_attachments"]))
            self._book(self.api.delete(self._path(doc_id, f"/{quote(name)}?rev={old['_rev']}")), "detach")

    def _graft(self, doc_id):
        """A sibling of the winner, as if a replication had brought it."""
        if not (old := self._read(doc_id, "?revs=true")):
            return
        self._made += 1
        start, ids = old["_revisions"]["start"], old["_revisions"]["ids"]
        hash_ = hashlib.md5(f"{self.name} {self._made}".encode()).hexdigest()
        doc = {
            "_id": doc_id,
            "_rev": f"{start}-{hash_}",
            "_revisions": {"start": start, "ids": [hash_, *ids[1:]]},
            **self._body(),
            "_attachments": {self._attachment_name() if self._unique_names else "note.txt": self._inline_content()},
        }
        answer = self.api.post(f"/{self.db}/_bulk_docs", {"new_edits": False, "docs": [doc]})
        if answer.status == 201 and answer.json == []:
            self.acknowledged.append((doc_id, doc["_rev"]))
        else:
            self.refused.append(f"graft: {answer!r}")

    def _resolve(self, doc_id):
        old = self._read(doc_id, "?conflicts=true")
        if old and "_conflicts" in old:
            self._book(self.api.delete(self._path(doc_id, f"?rev={self._random.choice(old['_conflicts'])}")), "resolve")

    def _bulk(self, _):
        docs = []
        for _ in range(5):
            body = self._body()
            docs.append({"_id": f"{self.name}-bulk-{self._made}", **body})
        answer = self.api.post(f"/{self.db}/_bulk_docs", {"docs": docs})
        if answer.status != 201:
            self.refused.append(f"bulk: {answer!r}")
            return
        for row in answer.json:
            if row.get("ok"):
                self.acknowledged.append((row["id"], row["rev"]))

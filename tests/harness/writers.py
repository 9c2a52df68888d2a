"""Writers that run until their server is gone (or they are told to stop), and book what it acknowledged."""

import random
import string
import threading

from harness.api import Disconnected, quote
from harness.ledger import Edit

TEXTS = ["plain ascii", "grüße", "数据库", "emoji 🙂", 'quote " and \\ slash', "tab\tnewline\n", "\u2028", ""]


def body_of(rng, writer, number):
    """A body that differs in every write, so that an old one cannot pass for a new one."""
    return {
        "writer": writer,
        "number": number,
        "nonce": rng.getrandbits(62),
        "text": rng.choice(TEXTS),
        "float": rng.random(),
        "nested": {"list": [number, None, True, {"deep": [[]]}]},
        "pad": "".join(rng.choices(string.ascii_letters, k=rng.choice((0, 20, 400, 2000)))),
    }


class Writer(threading.Thread):
    """`turn` makes one request. It ends when the server does, or on `stop_event`."""

    def __init__(self, api, ledger, name, seed, stop_event=None):
        super().__init__(name=name, daemon=True)
        self.api, self.ledger, self.rng = api, ledger, random.Random(seed)
        self.path = "/" + quote(ledger.db)
        self.stop_event = stop_event or threading.Event()
        self.mine = []
        self.number = 0
        self.unexpected = []
        self.disconnected = None

    def run(self):
        try:
            while not self.stop_event.is_set():
                self.turn()
        except Disconnected as gone:
            self.disconnected = str(gone)
        except Exception as error:  # an answer that is no JSON, say: for the suite to report
            self.unexpected.append(repr(error))
        finally:
            self.api.close()

    def next_id(self):
        self.number += 1
        if self.rng.random() < 0.5:
            return f"{self.name}-{self.number:07d}"
        return f"{self.rng.getrandbits(64):016x}-{self.name}-{self.number}"

    def next_edit(self, doc_id=None):
        """A new document, or an update or deletion of one of this writer's own: (id, edit, document)."""
        draw = self.rng.random()
        if doc_id is None and self.mine and draw < 0.35:
            doc_id = self.rng.choice(self.mine)
        if doc_id is None:
            doc_id = self.next_id()
            edit = Edit(body_of(self.rng, self.name, self.number))
            return doc_id, edit, {"_id": doc_id, **edit.body}
        last = self.ledger.acknowledged[doc_id]
        if last.deleted:  # writing over a tombstone goes on from its revision
            edit = Edit(body_of(self.rng, self.name, self.number))
            return doc_id, edit, {"_id": doc_id, **edit.body}
        if draw < 0.1:
            edit = Edit({}, deleted=True)
            return doc_id, edit, {"_id": doc_id, "_rev": last.rev, "_deleted": True}
        edit = Edit(body_of(self.rng, self.name, self.number))
        return doc_id, edit, {"_id": doc_id, "_rev": last.rev, **edit.body}

    def settle(self, doc_id, answer):
        if "rev" in answer:
            self.ledger.acknowledge(doc_id, answer["rev"])
            self.mine.append(doc_id)
        else:
            self.ledger.refuse(doc_id)
            self.unexpected.append(f"{doc_id}: {answer}")


class BulkWriter(Writer):
    def turn(self):
        batch = {}
        for _ in range(self.rng.choice((1, 20, 100, 300))):
            doc_id, edit, doc = self.next_edit()
            if doc_id not in batch:
                batch[doc_id] = doc
                self.ledger.intend(doc_id, edit)
        answer = self.api.post(self.path + "/_bulk_docs", {"docs": list(batch.values())})
        if answer.status != 201:
            self.unexpected.append(repr(answer))
            for doc_id in batch:
                self.ledger.refuse(doc_id)
            return
        for row in answer.json:
            self.settle(row["id"], row)


class SerialWriter(Writer):
    def turn(self):
        doc_id, edit, doc = self.next_edit()
        self.ledger.intend(doc_id, edit)
        path = f"{self.path}/{quote(doc_id)}"
        if edit.deleted:
            answer = self.api.delete(f"{path}?rev={doc['_rev']}")
        else:
            answer = self.api.put(path, doc)
        self.settle(doc_id, answer.json)


class GraftWriter(Writer):
    """new_edits=false: two leaves on one root, in one request."""

    def turn(self):
        doc_id = self.next_id()
        root = f"{self.rng.getrandbits(128):032x}"
        leaves, docs = {}, []
        for _ in range(2):
            leaf = f"{self.rng.getrandbits(128):032x}"
            body = body_of(self.rng, self.name, self.number)
            leaves["2-" + leaf] = body
            docs.append({"_id": doc_id, "_rev": "2-" + leaf, "_revisions": {"start": 2, "ids": [leaf, root]}, **body})
        winner = max(leaves)
        self.ledger.intend(doc_id, Edit(leaves[winner], leaves=leaves))
        answer = self.api.post(self.path + "/_bulk_docs", {"new_edits": False, "docs": docs})
        if answer.status == 201 and answer.json == []:
            self.ledger.acknowledge(doc_id, winner)
        else:
            self.ledger.refuse(doc_id)
            self.unexpected.append(repr(answer))


class LocalWriter(Writer):
    def turn(self):
        self.number += 1
        doc_id = f"{self.name}-{self.rng.randrange(50)}"
        body = {"number": self.number, "nonce": self.rng.getrandbits(62)}
        self.ledger.intend_local(doc_id, body)
        answer = self.api.put(f"{self.path}/_local/{quote(doc_id)}", body)
        if answer.status == 201:
            self.ledger.acknowledge_local(doc_id, answer.json["rev"])
        else:
            self.unexpected.append(repr(answer))


class DatabaseWriter(Writer):
    """Creates databases, and deletes every third one again."""

    def turn(self):
        self.number += 1
        name = f"{self.ledger.db}-{self.name}-{self.number}"
        self.ledger.intend_database(name, True)
        self._settle(name, self.api.put("/" + name))
        if self.number % 3 == 0:
            self.ledger.intend_database(name, False)
            self._settle(name, self.api.delete("/" + name))

    def _settle(self, name, answer):
        if answer.status in (200, 201, 202):
            self.ledger.acknowledge_database(name)
        else:
            self.unexpected.append(repr(answer))


class Compactor(Writer):
    """Keeps the store flushing and compacting under the writers."""

    def turn(self):
        answer = self.api.post(self.path + "/_compact")
        if answer.status != 202:
            self.unexpected.append(repr(answer))
        self.stop_event.wait(0.05)

"""Clients of a cluster's nodes that write down what they did, for a checker of linearizability, and what was acknowledged."""

import json
import random
import threading
import time

from harness.api import Api, Disconnected
from harness.server import wait_until

REQUEST_TIMEOUT_S = 12
PAUSE_S = 0.004
# After a refusal, so that a node that is down is not asked thousands of times.
PAUSE_AFTER_FAILURE_S = 0.05
# Once everything runs again, a node may need a moment before it reads.
READ_AGAIN_TIMEOUT_S = 15
# How old what a node knows of a user may be.
HELD_NS = 2_000_000_000
SECURITY_PAUSE_S = 0.1
REPLICATION_PAUSE_S = 0.5
BULK = 10
ATTACHMENT_BYTES = 10_000


class History:
    """What all clients of a round did. A document of a register or a list is a register to the checker: it holds `value`, every
    update writes another one, and names the one that it replaces."""

    def __init__(self, db):
        self.db = db
        self.operations = []
        self.unexpected = []
        self.maybes = 0
        # Documents that are written once: id -> revision.
        self.written = {}
        self.tried = set()
        # Elements of lists: (document, element).
        self.appended = []
        # What a reader saw of a list: (document, elements).
        self.lists = []
        # When a write was acknowledged, and when a reader was answered: (seconds, client).
        self.writes, self.reads = [], []
        self._lock = threading.Lock()

    def add(self, client, document, began, **operation):
        with self._lock:
            self.operations.append({"client": client, "document": document, "from": began, "to": time.monotonic_ns(), **operation})
            self.maybes += operation.get("outcome") == "maybe"
            # What shuts users out waits for nodes that do not answer.
            if operation.get("outcome") == "done" and operation["kind"] == "update":
                self.writes.append((time.monotonic(), client))

    def succeed(self, client):
        with self._lock:
            self.writes.append((time.monotonic(), client))

    def acknowledged(self):
        return len(self.written) + sum(operation.get("outcome") == "done" for operation in self.operations)

    def keep(self, path):
        with open(path, "w", encoding="utf-8") as file:
            for operation in self.operations:
                file.write(json.dumps(operation) + "\n")


class Client(threading.Thread):
    """Queries one node until it is stopped."""

    def __init__(self, history, number, url, credentials, seed):
        super().__init__(daemon=True)
        self.history, self.number, self.random = history, number, random.Random(seed)
        self.api = Api(url, credentials, REQUEST_TIMEOUT_S)
        self.stop_event, self.pause_s = threading.Event(), PAUSE_S
        self.count = 0

    def run(self):
        try:
            while not self.stop_event.is_set():
                self.turn()
                self.stop_event.wait(self.pause_s)
        except Exception as error:
            self.history.unexpected.append(f"client {self.number}: {error!r}")
        finally:
            self.api.close()

    def unique(self):
        self.count += 1
        return f"{self.number}.{self.count}"

    def ask(self, method, path, body=None, expected=(), db=None, api=None):
        """The answer; None when it is not known what became of the request, False when the server was not reached."""
        try:
            answer = (api or self.api).request(method, f"/{db or self.history.db}/{path}".rstrip("/"), body)
        except Disconnected as gone:
            self.stop_event.wait(PAUSE_AFTER_FAILURE_S)
            return False if isinstance(gone.__cause__, ConnectionRefusedError) else None
        if answer.status in expected:
            return answer
        if answer.status not in (202, 503):
            self.history.unexpected.append(f"client {self.number}: {method} {path} {str(body)[:200]}: {answer!r}")
        self.stop_event.wait(PAUSE_AFTER_FAILURE_S)
        return None

    def read(self, document):
        """The document; None when there was no answer, {} when it is not there. The read is part of the history."""
        began = time.monotonic_ns()
        answer = self.ask("GET", document, expected=(200, 404))
        if not answer:
            return None
        if answer.status == 404 and answer.json["reason"] != "missing":
            self.history.unexpected.append(f"client {self.number}: GET {document}: {answer!r}")
            return None
        doc = answer.json if answer.status == 200 else {}
        self.history.add(self.number, document, began, kind="read", value=doc.get("value", ""))
        if "list" in doc:
            self.history.lists.append((document, doc["list"]))
        return doc

    def update(self, document, old, new):
        """Replaces `old`, which was read. Answers the document as it is then, None when that is not known."""
        began = time.monotonic_ns()
        answer = self.ask("PUT", document, new, expected=(201, 409))
        if answer is False:
            return None
        outcome = {None: "maybe", 201: "done", 409: "conflict"}[answer and answer.status]
        self.history.add(self.number, document, began, kind="update", old=old.get("value", ""), new=new["value"], outcome=outcome)
        return {**new, "_rev": answer.json["rev"]} if outcome == "done" else None


class RegisterClient(Client):
    """Reads registers, and writes them over."""

    REGISTERS = 6

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.known = {}

    def turn(self):
        document = f"register-{self.random.randrange(self.REGISTERS)}"
        if document not in self.known or self.random.random() < 0.5:
            self.known[document] = self.read(document)
        else:
            old = self.known[document]
            self.known[document] = self.update(document, old, {**old, "value": self.unique()})
        if self.known[document] is None:
            del self.known[document]


class ReaderClient(Client):
    """Reads registers alone, so that no write keeps it waiting."""

    def turn(self):
        if self.read(f"register-{self.random.randrange(RegisterClient.REGISTERS)}") is not None:
            self.history.reads.append((time.monotonic(), self.number))


class AppendClient(Client):
    """Appends to lists, by writing them anew with one more element."""

    LISTS = 2

    def turn(self):
        document = f"list-{self.random.randrange(self.LISTS)}"
        old = self.read(document)
        if old is None:
            return
        element = self.unique()
        if self.update(document, old, {**old, "value": element, "list": [*old.get("list", []), element]}):
            self.history.appended.append((document, element))


class BulkClient(Client):
    """Writes new documents, sometimes with an attachment."""

    def turn(self):
        docs = [{"_id": f"new-{self.unique()}", "nonce": self.random.getrandbits(62)} for _ in range(BULK)]
        if self.random.random() < 0.2:
            data = "AAAA" * (ATTACHMENT_BYTES // 3)
            docs[0]["_attachments"] = {"a": {"content_type": "text/plain", "data": data}}
        self.history.tried.update(doc["_id"] for doc in docs)
        answer = self.ask("POST", "_bulk_docs", {"docs": docs}, expected=(201,))
        if not answer:
            return
        for row in answer.json:
            if "rev" in row:
                self.history.written[row["id"]] = row["rev"]
            else:
                self.history.unexpected.append(f"client {self.number}: {row}")
        self.history.succeed(self.number)


class UserClient(Client):
    """Changes users, whose role is a register, and logs in as them: that reads it, as it was at most two seconds before."""

    USERS = 2
    PASSWORD = "secret"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        # Users that have been seen: failed log-ins of others would lock them out.
        self.known = set()

    def turn(self):
        name = f"{self.history.db}-user-{self.random.randrange(self.USERS)}"
        if name not in self.known or self.random.random() < 0.2:
            self.change(name)
        else:
            self.log_in(name)

    def change(self, name):
        id = f"org.couchdb.user:{name}"
        answer = self.ask("GET", id, expected=(200, 404), db="_users")
        if not answer:
            return
        new = {"_id": id, "name": name, "type": "user", "password": self.PASSWORD, "roles": [self.unique()]}
        old = ""
        if answer.status == 200:
            new["_rev"], old = answer.json["_rev"], answer.json["roles"][0]
            self.known.add(name)
        began = time.monotonic_ns()
        answer = self.ask("PUT", id, new, expected=(201, 409), db="_users")
        if answer is not False:
            outcome = {None: "maybe", 201: "done", 409: "conflict"}[answer and answer.status]
            self.history.add(self.number, name, began, kind="update", old=old, new=new["roles"][0], outcome=outcome)

    def log_in(self, name):
        began = time.monotonic_ns() - HELD_NS
        user = Api(self.api.url, f"{name}:{self.PASSWORD}", REQUEST_TIMEOUT_S)
        answer = self.ask("GET", "", expected=(200,), db="_session", api=user)
        user.close()
        if answer:
            self.history.add(self.number, name, began, kind="read", value=answer.json["userCtx"]["roles"][0])


class SecurityClient(Client):
    """Sets who may read a database, which is a register that is written without regard to what it holds, and reads it: as it was at most two
    seconds before."""

    DOCUMENT = "_security"

    def turn(self):
        # Reads that overlap with many writes take the checker long.
        self.stop_event.wait(SECURITY_PAUSE_S)
        if self.random.random() < 0.3:
            self.write()
        else:
            self.read_as_held()

    def write(self):
        value, began = self.unique(), time.monotonic_ns()
        # Server admins, who all clients are, may do anything.
        answer = self.ask("PUT", self.DOCUMENT, {"members": {"names": [value], "roles": []}}, expected=(200,))
        if answer is not False:
            outcome = "done" if answer else "maybe"
            self.history.add(self.number, self.DOCUMENT, began, kind="write", new=value, outcome=outcome)

    def read_as_held(self):
        began = time.monotonic_ns() - HELD_NS
        answer = self.ask("GET", self.DOCUMENT, expected=(200,))
        if answer:
            names = answer.json.get("members", {}).get("names", [])
            self.history.add(self.number, self.DOCUMENT, began, kind="read", value=names[0] if names else "")


class ReplicationClient(Client):
    """Has the cluster replicate the registers into a database of its own: that reads all of them."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.target = f"{self.history.db}-copy-{self.number}"
        self.registers = [f"register-{n}" for n in range(RegisterClient.REGISTERS)]
        self.began = None

    def turn(self):
        self.stop_event.wait(REPLICATION_PAUSE_S)
        # A request may join the replication of an earlier one, whose response did not arrive.
        self.began = self.began or time.monotonic_ns()
        if not self.replicate():
            self.stop_event.wait(PAUSE_AFTER_FAILURE_S)
            return
        began, self.began = self.began, None
        answer = self.ask("POST", "_all_docs?include_docs=true", {"keys": self.registers}, expected=(200,), db=self.target)
        if answer:
            for row in answer.json["rows"]:
                self.history.add(self.number, row["key"], began, kind="read", value=(row.get("doc") or {}).get("value", ""))

    def replicate(self):
        """One that fails, for whatever reason, says nothing."""
        body = {"source": self.history.db, "target": self.target, "create_target": True, "doc_ids": self.registers}
        try:
            answer = self.api.post("/_replicate", body)
        except Disconnected:
            return False
        return answer.status == 200 and bool(answer.json.get("ok"))


KINDS = (RegisterClient, RegisterClient, AppendClient, BulkClient, ReaderClient, UserClient, SecurityClient, ReplicationClient)


def start_clients(history, urls, credentials, random_source, pause_s=PAUSE_S):
    """As many of each kind at every node, which pause after each turn; answers the numbers of a node's clients too."""
    clients, of_node = [], {}
    for node, url in urls.items():
        for kind in KINDS:
            client = kind(history, len(clients), url, credentials, random_source.getrandbits(32))
            clients.append(client)
            of_node.setdefault(node, []).append(client.number)
    for client in clients:
        client.pause_s = pause_s
        client.start()
    return clients, of_node


def stop_clients(clients):
    for client in clients:
        client.stop_event.set()
    for client in clients:
        client.join(REQUEST_TIMEOUT_S + 5)


def look_again(history, node, api):
    """Reads everything of one node once more, as a client with a number of its own. Answers what is wrong."""
    reader = Client(history, 1000 + node, api.url, "", 0)
    reader.api = api
    for document in [f"register-{n}" for n in range(RegisterClient.REGISTERS)] + [f"list-{n}" for n in range(AppendClient.LISTS)]:
        wait_until(lambda document=document: reader.read(document) is not None, READ_AGAIN_TIMEOUT_S, PAUSE_AFTER_FAILURE_S)
    return lost(history, api)


def lost(history, api):
    """What was acknowledged, and this node does not have or has otherwise."""
    answers = []
    path = f"/{history.db}/_all_docs?include_docs=true"
    is_there = wait_until(lambda: answers.append(api.get(path)) or answers[-1].status != 503, READ_AGAIN_TIMEOUT_S, PAUSE_AFTER_FAILURE_S)
    if not is_there or answers[-1].status != 200:
        return [f"GET {path}: {answers[-1]!r}"]
    found = {row["id"]: row for row in answers[-1].json["rows"]}
    problems = [
        f"{doc_id}: acknowledged {rev}, found {found.get(doc_id, {}).get('value')}"
        for doc_id, rev in history.written.items()
        if found.get(doc_id, {}).get("value") != {"rev": rev}
    ]
    problems += [f"{doc_id} was never written" for doc_id in found if doc_id.startswith("new-") and doc_id not in history.tried]
    lists = {doc_id: row["doc"]["list"] for doc_id, row in found.items() if doc_id.startswith("list-")}
    problems += [f"{document} lacks {element}" for document, element in history.appended if element not in lists.get(document, ())]
    problems += [f"{document} has elements twice: {elements}" for document, elements in lists.items() if len(set(elements)) < len(elements)]
    for document, seen in history.lists:
        now = lists.get(document, [])
        if now[: len(seen)] != seen:
            problems.append(f"{document}: a reader saw {seen[-5:]} at {len(seen)}, it begins {now[: len(seen)][-5:]}")
            break
    return problems

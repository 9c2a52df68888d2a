"""The authorisation matrix of a database with access by document: every endpoint that members reach, every principal, every document.

A document that its caller may not read gets the answer of one that does not exist, but for what docs/src/guide/access.md lists:
a new document or a replicated edit is refused where an id is in use. Every endpoint of the authorisation matrix is either in
`harness/access_requests.py`, with its requests, or refused for all but admins.
"""

import base64
import json
import re

import pytest

from harness import access_requests as requests
from harness.access_requests import DOCUMENTS, USERS, WRITES
from harness.endpoints import DESIGN, ENDPOINTS, MORE, VALUES

pytestmark = [pytest.mark.quick]

ADMINS = ("dbadmin", "admin")
# Which callers could once read: their feeds bring the removal.
TAKEN_AWAY = ("lost", "overruled")
ERRORS = {"forbidden": 403, "conflict": 409}


class World:
    """A server with the database `db`, an api for each principal, and the documents of `create`, by kind."""

    def __init__(self, ctx, server):
        self.report, self.admin = ctx.report, server.api()
        for name, (roles, _) in USERS.items():
            user = {"name": name, "password": "pw", "roles": roles, "type": "user"}
            self.admin.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", user)
        self.admin.expect(201, "PUT", "/db?access=true&q=2")
        self.admin.expect(200, "PUT", "/db/_security", requests.SECURITY)
        attached = {"file.txt": {"content_type": "text/plain", "data": "eA=="}}
        self.admin.expect(201, "PUT", "/db/_design/d", {**DESIGN, "_attachments": attached})
        self.apis = {name: server.api(credentials=f"{name}:pw") for name in USERS} | {"admin": self.admin}
        self.wrong = []

    def may_read(self, name, kind):
        readable = USERS[name][1] if name in USERS else None
        return readable is None or kind in readable

    def may_write(self, name, kind):
        return name in ADMINS or kind in WRITES.get(name, ())

    def ask(self, name, endpoint, request, doc_id, rev):
        """The status, the outcome, and the text of an answer without what differs for any two documents."""
        method, path, body, headers = requests.filled(endpoint, request, doc_id, rev, name)
        answer = self.apis[name].request(method, path, body, headers=headers)
        text = re.sub(rb'"(since|last_seq|seq)":"[^"]*"', b"", answer.raw)
        text = re.sub(rb"(?m)^--[0-9a-f]{16,}(--)?|boundary=\S+", b"--", text)
        return answer.status, outcome(answer), text.replace(doc_id.encode(), b"ID"), answer.headers.get("ETag")

    def check(self, is_right, *what):
        if not is_right:
            self.wrong.append(what)

    def verdict(self, claim):
        self.report.equal(claim, self.wrong[:10], [])
        self.wrong = []


def outcome(answer):
    """The status of an answer; of one of `_bulk_docs`, that of its document."""
    try:
        rows = answer.json
    except ValueError:
        return answer.status
    error = rows[0].get("error") if isinstance(rows, list) and rows and answer.status == 201 else None
    return ERRORS.get(error, error) if error else answer.status


def shows(text, kind):
    """Whether an answer, in which ids are replaced, has a text or an attachment of a document. In base64 an id cannot be replaced."""
    return b"MARK-ID." in text or b"FILE-ID." in text or base64.b64encode(f"FILE-doc-{kind}".encode()).rstrip(b"=")[:-2] in text


def test_reads_of_hidden_and_of_missing_documents_are_answered_alike(ctx):
    with ctx.server("reads") as server:
        world = World(ctx, server)
        revs = requests.create(world.admin, [(kind, f"doc-{kind}") for kind in DOCUMENTS])
        for name in world.apis:
            for endpoint, all_of_it in requests.READS.items():
                for request in all_of_it:
                    judge_read(world, name, endpoint, request, revs)
        world.verdict("who may read a document gets it, and who may not learns nothing")


def judge_read(world, name, endpoint, request, revs):
    for kind in DOCUMENTS:
        got = world.ask(name, endpoint, request, f"doc-{kind}", revs[f"doc-{kind}"])
        missing = world.ask(name, endpoint, request, "doc-missing", revs[f"doc-{kind}"])
        if world.may_read(name, kind):
            world.check(kind == "gone" or got != missing, "not shown", name, kind, endpoint, request, got)
            continue
        world.check(not shows(got[2], kind), "shown", name, kind, endpoint, request, got)
        if "_changes" in endpoint and kind in TAKEN_AWAY:
            is_removal = b'"id":"ID"' in got[2] and b'"removed":true' in got[2] and revs[f"doc-{kind}"].encode() not in got[2]
            world.check(is_removal, "taken away", name, kind, endpoint, request, got)
        else:
            world.check(got == missing, "differs", name, kind, endpoint, request, got, missing)


def test_edits_of_hidden_and_of_missing_documents_are_answered_alike(ctx):
    with ctx.server("edits") as server:
        world = World(ctx, server)
        mine = [{"_id": f"mine-{name}", "_access": [name]} for name in world.apis]
        world.admin.expect(201, "POST", "/db/_bulk_docs", {"docs": mine})
        tables = [(judge_edit, requests.EDITS), (judge_creation, requests.CREATIONS), (judge_replicated, requests.REPLICATED)]
        cases = [(judge, endpoint, request) for judge, table in tables for endpoint, all_of_it in table.items() for request in all_of_it]
        made = [(name, kind, number) for name in USERS for kind in DOCUMENTS for number in range(len(cases))]
        documents = {case: f"doc-{case[1]}-{case[0]}-{case[2]}" for case in made}
        revs = requests.create(world.admin, [(case[1], doc_id) for case, doc_id in documents.items()])
        for (name, kind, number), doc_id in documents.items():
            judge, endpoint, request = cases[number]
            got = world.ask(name, endpoint, request, doc_id, revs[doc_id])
            missing = world.ask(name, endpoint, request, f"missing-{doc_id}", revs[doc_id])
            judge(world, name, kind, got, missing, (endpoint, request))
            world.check(world.may_read(name, kind) or not shows(got[2], kind), "shown", name, kind, endpoint, request, got)
        world.verdict("edits of who may write are made, and others learn nothing more than that an id is in use")
        untouched(world, documents, revs)
        world.verdict("who may not write a document changes nothing of it")


def judge_edit(world, name, kind, got, missing, what):
    if world.may_write(name, kind):
        world.check(kind == "gone" or got[1] in (200, 201), "refused", name, kind, *what, got)
    elif world.may_read(name, kind):
        world.check(kind == "gone" or got[1] == 403, "not refused", name, kind, *what, got)
    else:
        world.check(got[:3] == missing[:3], "differs", name, kind, *what, got, missing)


def judge_creation(world, name, kind, got, _, what):
    if kind != "gone" or not world.may_read(name, kind):
        world.check(got[1] == 409, "an id that is in use", name, kind, *what, got)


def judge_replicated(world, name, kind, got, _, what):
    if kind != "gone" or not world.may_read(name, kind):
        world.check(got[1] in ((200, 201) if world.may_write(name, kind) else (403,)), "replicated", name, kind, *what, got)


def untouched(world, documents, revs):
    """Compares the leaves of documents that their callers may not write with those that there were."""
    ids = {doc_id: (name, kind) for (name, kind, _), doc_id in documents.items() if not world.may_write(name, kind) and (kind != "gone")}
    rows = world.admin.expect(200, "POST", "/db/_all_docs?include_docs=true&conflicts=true", {"keys": list(ids)})["rows"]
    for row in rows:
        conflicts = len(row["doc"].get("_conflicts", []))
        expected = (revs[row["id"]], ids[row["id"]][1] == "overruled")
        world.check((row["value"]["rev"], conflicts == 1) == expected, "changed", row["id"], row["value"], conflicts)


def test_listings_have_exactly_what_may_be_read(ctx):
    with ctx.server("listings") as server:
        world = World(ctx, server)
        requests.create(world.admin, [(kind, f"doc-{kind}") for kind in DOCUMENTS])
        for name, api in world.apis.items():
            readable = {kind for kind in DOCUMENTS if kind != "gone" and world.may_read(name, kind)}
            for listing in requests.LISTINGS:
                method, path, body = [*listing.split(" ", 2), None][:3]
                raw = api.request(method, path.replace("{db}", "db"), body and json.loads(body)).raw.decode()
                found = set(re.findall(r"MARK-doc-([a-z-]+)\.", raw))
                world.check(found == readable, name, listing, sorted(found), sorted(readable))
                files = {re.match(rb"FILE-doc-([a-z-]+)", data) for data in map(base64.b64decode, re.findall(r'"data":"([^"]+)"', raw))}
                files = {file[1].decode() for file in files if file}
                world.check(files <= readable, name, listing, "attachments", sorted(files))
        world.verdict("each lists the documents that its caller may read")


def test_local_documents_of_others_are_missing(ctx):
    with ctx.server("local") as server:
        world = World(ctx, server)
        world.apis["alice"].expect(201, "PUT", "/db/_local/taken", {"t": "alice"})
        for name in world.apis:
            for endpoint, all_of_it in requests.LOCAL.items():
                for request in all_of_it:
                    got, free = (world.ask(name, endpoint, request, doc_id, "0-1") for doc_id in ("taken", "other"))
                    world.check(name == "alice" or got == free, name, endpoint, request, got, free)
        world.verdict("nobody sees or changes local documents of a user")
        world.admin.expect((201, 409), "PUT", "/db/_local/taken", {"t": "admin"})
        ctx.report.equal("the admin has another", world.admin.expect(200, "GET", "/db/_local/taken")["t"], "admin")


def test_endpoints_without_access_sets_are_for_admins(ctx):
    """Whichever endpoint of a database is new: it is in `harness/access_requests.py`, or refused."""
    with ctx.server("others") as server:
        world = World(ctx, server)
        requests.create(world.admin, [(kind, f"doc-{kind}") for kind in DOCUMENTS])
        covered, refused = requests.covered(), 0
        for line in filter(None, (ENDPOINTS + MORE).splitlines()):
            method, path, who = line.split()
            if not path.startswith("/{db}") or who not in ("anybody", "user", "member"):
                continue
            filled = re.sub(r"\{([^}]*)\}", lambda m: {**VALUES, "db": "db", "docid": "doc-hidden"}[m.group(1)], path)
            method = "GET" if method == "ANY" else method
            for name in USERS:
                if f"{method} {path}" in covered - set(requests.OTHERS):
                    continue
                answer = world.apis[name].request(method, filled, {} if method in ("POST", "PUT") else None)
                is_open = name == "dbadmin" or f"{method} {path}" in covered
                is_right = answer.status not in (401, 403) if is_open else (answer.status, answer.json["error"]) == (403, "forbidden")
                world.check(is_right, name, method, path, answer)
                world.check(name == "dbadmin" or b"MARK-" not in answer.raw, name, method, path, answer)
                refused += not is_open
        world.verdict("an endpoint goes by access sets, or is for admins")
        ctx.report.check("many are refused", refused > 100, refused)

"""A database with access by document against a naive model (`harness/naive_access.py`), over HTTP: random users write, copy and replicate,
take roles and lose them, while documents are purged and compacted and the server restarts. After each step, users read by random
endpoints, and each sees what the model says. Each user has a device that replicates as CouchDB's replicator does, and that never
keeps a document which its user lost.
"""

import base64
import json

import pytest

from harness.access_device import Device
from harness.api import quote
from harness.naive_access import Document, User, path_of, sets_of
from harness.server import wait_until

pytestmark = [pytest.mark.quick]

STEPS = 250
ROUNDS, SOAK_ROUNDS = 1, 150
PRINCIPALS = ["alice", "bob", "carol", "role:nurse", "role:doctor", "role:_users", "*"]
ROLES = {"alice": ["nurse"], "bob": [], "carol": ["nurse", "doctor"]}
IDS = [f"doc-{n}" for n in range(5)] + ["purged-0", "purged-1"]
SECURITY = {"admins": {"names": ["dbadmin"], "roles": []}, "members": {"names": [], "roles": []}}
JSON = {"Accept": "application/json"}


def test_random_steps(ctx):
    for number in range(ctx.size(ROUNDS, SOAK_ROUNDS)):
        with ctx.server(f"round-{number}") as server:
            world = World(ctx, server)
            for step in range(STEPS):
                world.step(step)
                if world.wrong:
                    break
            world.everybody_reads_everything()
            ctx.report.equal(f"round {number}: users see what the model says", world.wrong[:5], [])
            if not world.wrong:
                ctx.report.check("every kind of step had every outcome", world.lacking() == set(), sorted(world.lacking()))
            ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


class World:
    def __init__(self, ctx, server):
        self.random, self.server, self.wrong, self.number, self.copies = ctx.random, server, [], 0, 0
        self.admin = server.api()
        self.outcomes = set()
        self.users = {name: User(name, roles) for name, roles in ROLES.items()}
        self.users |= {"anonymous": User(None), "dbadmin": User("dbadmin", is_admin=True), "admin": User("admin", is_admin=True)}
        for name in (*ROLES, "dbadmin"):
            user = {"name": name, "password": "pw", "roles": ROLES.get(name, []), "type": "user"}
            self.admin.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", user)
        self.admin.expect(201, "PUT", "/db?access=true&q=2")
        self.admin.expect(200, "PUT", "/db/_security", SECURITY)
        self.apis = {name: server.api(credentials=f"{name}:pw") for name in (*ROLES, "dbadmin")}
        self.apis |= {"anonymous": server.api(credentials=""), "admin": self.admin}
        self.docs = {doc_id: Document() for doc_id in IDS}
        self.devices = {name: Device(self.apis[name], self.random) for name in ROLES}
        # Roles that users had, and documents that stay on their devices until they have them again.
        self.lost = {name: set() for name in ROLES}
        self.left = {name: set() for name in ROLES}

    def step(self, step):
        steps = [
            (self.edit, 40),
            (self.replicate, 25),
            (self.pull, 12),
            (self.edit_offline, 8),
            (self.push, 8),
            (self.copy, 4),
            (self.change_roles, 3),
        ]
        steps += [(self.purge, 3)]
        kinds, weights = zip(*steps, strict=True)
        self.random.choices(kinds, weights)[0]()
        doc_id = self.random.choice(list(self.docs))
        for name in self.random.sample(list(self.users), 2):
            for check in self.random.sample(CHECKS, 2):
                check(self, name, doc_id)
        if step % 50 == 25:
            self.everybody_reads_everything()
        if step == STEPS // 3:
            self.compact()
        if step == STEPS // 2:
            self.restart()

    def check(self, is_right, *what):
        if not is_right:
            self.wrong.append(what)

    def lacking(self):
        wanted = {(kind, outcome) for kind in ("edit", "replicate") for outcome in ("ok", "forbidden")} | {("edit", "conflict")}
        return wanted - self.outcomes

    # Steps.

    def access(self, user):
        """A member `_access`; mostly one that lets its author write."""
        some = self.random.sample(PRINCIPALS, self.random.choice((0, 1, 1, 2)))
        own = [user.name or "*"] if self.random.random() < 0.7 else []
        shape = self.random.random()
        if shape < 0.5:
            return some + own
        return {"read": some, "write": own} if shape < 0.95 else None

    def body(self, access, deleted):
        """A body, and its content for the model: a number, and the text of an attachment."""
        if deleted:
            return {"_deleted": True}, None
        self.number += 1
        body, text = {"n": self.number}, None
        if access is not None:
            body["_access"] = access
        if self.random.random() < 0.3:
            text = f"file {self.number}"
            body["_attachments"] = {"a.txt": {"content_type": "text/plain", "data": base64.b64encode(text.encode()).decode()}}
        return body, (self.number, text)

    def someone(self):
        return self.random.choice(list(self.users))

    def edit(self):
        name, doc_id = self.someone(), self.random.choice(list(self.docs))
        user, doc, api = self.users[name], self.docs[doc_id], self.apis[name]
        leaves = doc.leaves()
        parent = self.random.choice(leaves).rev if leaves and self.random.random() < 0.75 else None
        if doc.revs and self.random.random() < 0.1:
            parent = self.random.choice(list(doc.revs))
        deleted = parent is not None and self.random.random() < 0.2
        access = self.access(user)
        body, content = self.body(access, deleted)
        names = sets_of(None if deleted else access)
        expected, base = doc.interactive(user, parent, deleted, names)
        by_row = self.random.random() < 0.4
        if by_row:
            sent = {"_id": doc_id, **body, **({"_rev": parent} if parent else {})}
            answer = api.post("/db/_bulk_docs", {"docs": [sent]})
        elif deleted:
            answer = api.delete(f"/db/{doc_id}?rev={parent}")
        else:
            answer = api.put(f"/db/{doc_id}" + (f"?rev={parent}" if parent else ""), body)
        got, rev = outcome_of(answer)
        if answer.status == 404 and deleted and not by_row and expected != "ok":
            # A document that its caller does not see, or that is deleted.
            got = expected
        self.outcomes.add(("edit", expected))
        self.check(got == expected, name, "edits", doc_id, parent, body, answer, expected, tree(doc))
        if got == expected == "ok":
            doc.add([rev, *([base.rev] if base else [])], deleted, names, base, content)

    def replicate(self):
        name, doc_id = self.someone(), self.random.choice(list(self.docs))
        user, doc = self.users[name], self.docs[doc_id]
        known = []
        if doc.revs and self.random.random() < 0.85:
            of = self.random.choice(doc.leaves()).rev if self.random.random() < 0.7 else self.random.choice(list(doc.revs))
            known = [one.rev for one in doc.path(of)][: self.random.choice((1, 2, 100))]
        fresh = 1 + (self.random.random() < 0.2)
        digests = [f"{self.random.getrandbits(128):032x}" for _ in range(fresh)] + [rev.partition("-")[2] for rev in known]
        newest = int(known[0].partition("-")[0]) if known else self.random.randint(0, 2)
        path = path_of(newest + fresh, digests[: newest + fresh])
        deleted = bool(doc.revs) and self.random.random() < 0.15
        access = self.access(user)
        body, content = self.body(access, deleted)
        self.judge_replicated(name, doc_id, path, body, (deleted, access, content), "replicate")

    def judge_replicated(self, name, doc_id, path, body, edit, kind):
        """Sends a replicated edit, and returns its outcome."""
        deleted, access, content = edit
        user, doc, api = self.users[name], self.docs.setdefault(doc_id, Document()), self.apis[name]
        names = sets_of(None if deleted else access)
        expected, base = doc.replicated(user, path, deleted, names)
        start = int(path[0].partition("-")[0])
        sent = {"_id": doc_id, "_rev": path[0], "_revisions": {"start": start, "ids": [rev.partition("-")[2] for rev in path]}, **body}
        by_row = self.random.random() < 0.6
        if by_row:
            answer = api.post("/db/_bulk_docs", {"new_edits": False, "docs": [sent]})
        else:
            answer = api.put(f"/db/{doc_id}?new_edits=false", sent)
        got, _ = outcome_of(answer)
        self.outcomes.add((kind, expected))
        self.check(got == expected.replace("known", "ok"), name, kind, doc_id, path, body, answer, expected, tree(doc))
        if got == expected == "ok":
            doc.add(path, deleted, names, base, content)
        return got

    def pull(self):
        name = self.random.choice(list(ROLES))
        device, user = self.devices[name], self.users[name]
        odd = device.pull()
        self.check(not odd, name, "pulls", odd)
        for doc_id, doc in self.docs.items():
            visible = {leaf.rev for leaf in doc.visible(user) if not leaf.deleted}
            known = device.revs.get(doc_id, {})
            self.check(visible <= known.keys(), name, "lacks", doc_id, visible - known.keys(), tree(doc))
            kept = device.live(doc_id) - visible
            if not doc_id.startswith("purged") and doc_id not in self.left[name]:
                self.check(not kept, name, "keeps", doc_id, kept, tree(doc))

    def edit_offline(self):
        name = self.random.choice(list(ROLES))
        device, doc_id = self.devices[name], self.random.choice(IDS)
        leaves = device.leaves(doc_id)
        access = self.access(self.users[name])
        body, content = self.body(access, False)
        device.edit(doc_id, self.random.choice(leaves) if leaves else None, {**body, "access": access, "content": content})

    def push(self):
        """Sends what was written without a connection, and sometimes the tombstones of what was taken away, as PouchDB would."""
        name = self.random.choice(list(ROLES))
        device = self.devices[name]
        for (doc_id, rev), doc in list(device.own.items()):
            if rev not in device.leaves(doc_id):
                continue
            path = device.path(doc_id, rev)
            missing = self.apis[name].expect(200, "POST", "/db/_revs_diff", {doc_id: [rev]})
            self.check(missing.get(doc_id, {}).get("missing") == [rev], name, "compares", doc_id, missing)
            body = {member: value for member, value in doc.items() if member not in ("_id", "_revisions", "access", "content")}
            got = self.judge_replicated(name, doc_id, path, body, (False, doc["access"], doc["content"]), "push")
            if got == "ok":
                device.own = {key: value for key, value in device.own.items() if key[0] != doc_id or key[1] not in path}
        for doc_id, revs in device.revs.items():
            for rev in device.leaves(doc_id):
                if revs[rev][1] and (doc_id, rev) not in device.own and rev not in self.docs[doc_id].revs and self.random.random() < 0.3:
                    self.push_removal(name, doc_id, rev)

    def push_removal(self, name, doc_id, rev):
        if doc_id.startswith("purged"):
            return
        path = self.devices[name].path(doc_id, rev)
        start = int(rev.partition("-")[0])
        sent = {"_id": doc_id, "_deleted": True, "_revisions": {"start": start, "ids": [one.partition("-")[2] for one in path]}}
        answer = self.apis[name].post("/db/_bulk_docs", {"new_edits": False, "docs": [sent]})
        self.check((answer.status, answer.json) == (201, []), name, "sends back", sent, answer)
        self.outcomes.add(("removal", "ok"))

    def copy(self):
        name, doc_id = self.someone(), self.random.choice(list(self.docs))
        user, visible = self.users[name], self.docs[doc_id].visible(self.users[name])
        self.copies += 1
        answer = self.apis[name].request("COPY", f"/db/{doc_id}", headers={"Destination": f"copy-{self.copies}"})
        if not visible or visible[0].deleted:
            self.check(answer.status == 404, name, "copies", doc_id, answer)
            return
        copied, source = Document(), visible[0]
        expected, _ = copied.interactive(user, None, False, source.names)
        self.check(outcome_of(answer)[0] == expected, name, "copies", doc_id, answer, expected)
        if answer.status == 201:
            copied.add([answer.json["rev"]], False, source.names, None, source.content)
            self.docs[f"copy-{self.copies}"] = copied

    def change_roles(self):
        name = self.random.choice(list(ROLES))
        user, roles = self.users[name], {role for role in ("nurse", "doctor") if self.random.random() < 0.5}
        self.lost[name] = (self.lost[name] | user.roles) - roles
        user.roles = roles
        path = f"/_users/org.couchdb.user:{name}"
        self.admin.expect(201, "PUT", path, {**self.admin.expect(200, "GET", path), "roles": sorted(roles)})
        device = self.devices[name]
        for doc_id, doc in self.docs.items():
            if device.live(doc_id) - {leaf.rev for leaf in doc.visible(user)}:
                self.left[name].add(doc_id)
        if not self.lost[name]:
            self.left[name] = set()

    def purge(self):
        doc_id = self.random.choice([doc_id for doc_id in IDS if doc_id.startswith("purged")])
        leaves = self.docs[doc_id].leaves()
        if leaves:
            rev = self.random.choice(leaves).rev
            purged = self.admin.expect((201, 202), "POST", "/db/_purge", {doc_id: [rev]})
            self.check(purged["purged"] == {doc_id: [rev]}, "purges", purged)
            self.docs[doc_id].purge(rev)

    def compact(self):
        self.admin.expect(202, "POST", "/db/_compact", {})
        done = wait_until(lambda: not self.admin.expect(200, "GET", "/db")["compact_running"])
        self.check(done, "the compaction does not end")
        for doc in self.docs.values():
            doc.compact()

    def restart(self):
        for api in self.apis.values():
            api.close()
        self.server.stop()
        self.server.restart()

    def everybody_reads_everything(self):
        for name in self.users:
            read_all(self, name)
            for doc_id in [*self.docs, "missing"]:
                self.random.choice(CHECKS)(self, name, doc_id)


def outcome_of(answer):
    """The outcome of an edit, and its revision."""
    by_status = {403: "forbidden", 409: "conflict"}
    if answer.status not in (200, 201):
        return by_status.get(answer.status, f"status {answer.status}"), None
    body = answer.json
    row = (body[0] if body else {}) if isinstance(body, list) else body
    return row.get("error", "ok"), row.get("rev")


def tree(doc):
    return [(one.rev, one.parent, one.deleted, [sorted(names) for names in one.access]) for one in doc.revs.values()]


# Checks: what a user reads of a document.


def of_document(world, name, doc_id):
    doc = world.docs.get(doc_id, Document())
    return world.apis[name], doc, doc.visible(world.users[name])


def read_one(world, name, doc_id):
    api, doc, visible = of_document(world, name, doc_id)
    options = world.random.choice(("?conflicts=true&deleted_conflicts=true", "?meta=true&revs=true"))
    answer = api.get(f"/db/{doc_id}{options}")
    if not visible or visible[0].deleted:
        reason = "deleted" if visible else "missing"
        world.check((answer.status, answer.json.get("reason")) == (404, reason), name, "reads", doc_id, answer, reason, tree(doc))
        return
    others = {member: {leaf.rev for leaf in visible[1:] if leaf.deleted == deleted} for member, deleted in MEMBERS.items()}
    found = answer.json if answer.status == 200 else {}
    shown = (found.get("_rev"), {member: set(found.get(member, [])) for member in MEMBERS}, found.get("n"))
    expected = (visible[0].rev, others, visible[0].content[0])
    world.check(shown == expected, name, "reads", doc_id, answer, expected, tree(doc))


MEMBERS = {"_conflicts": False, "_deleted_conflicts": True}


def read_leaves(world, name, doc_id):
    api, doc, visible = of_document(world, name, doc_id)
    answer = api.get(f"/db/{doc_id}?open_revs=all", headers=JSON)
    opened = {row["ok"]["_rev"] for row in answer.json} if answer.status == 200 else set()
    world.check(opened == {leaf.rev for leaf in visible}, name, "opens", doc_id, answer, tree(doc))


def read_revisions(world, name, doc_id):
    """Leaves are shown, other revisions as far as their bodies are there and name the user; what the user may not know is missing."""
    api, doc, visible = of_document(world, name, doc_id)
    user, leaves = world.users[name], {leaf.rev for leaf in visible}
    known = doc.known(user)
    for one in world.random.sample(list(doc.revs.values()), min(4, len(doc.revs))):
        answer = api.get(f"/db/{doc_id}?rev={one.rev}")
        may = one.rev in leaves or (one.rev in known and one.names is not None and user.is_among(one.names[0]))
        # A removal revision that became an ancestor is a tombstone for all who know it.
        is_right = answer.status == (200 if may else 404) or (not one.is_edit and answer.json.get("_deleted"))
        world.check(is_right, name, "reads", doc_id, one.rev, answer, may, tree(doc))


def compare_revisions(world, name, doc_id):
    api, doc, _ = of_document(world, name, doc_id)
    asked = [*doc.revs, "9-" + "9" * 32]
    missing = set(asked) - doc.known(world.users[name])
    got = api.expect(200, "POST", "/db/_revs_diff", {doc_id: asked}).get(doc_id, {})
    # Removal revisions that became ancestors are known to all.
    unsure = {one.rev for one in doc.revs.values() if not one.is_edit}
    world.check(set(got.get("missing", [])) - unsure == missing - unsure, name, "compares", doc_id, got, missing, tree(doc))
    ancestors = set(got.get("possible_ancestors", []))
    world.check(ancestors <= doc.known(world.users[name]), name, "gets ancestors", doc_id, got, tree(doc))
    plain = api.expect(200, "POST", "/db/_missing_revs", {doc_id: asked})["missing_revs"]
    world.check(set(plain.get(doc_id, [])) == set(got.get("missing", [])), name, "compares otherwise", doc_id, plain, got)


def read_in_bulk(world, name, doc_id):
    api, doc, visible = of_document(world, name, doc_id)
    leaves = {leaf.rev for leaf in visible}
    asked = [{"id": doc_id, "rev": leaf.rev} for leaf in doc.leaves()]
    results = api.expect(200, "POST", "/db/_bulk_get?revs=true", {"docs": asked})["results"]
    found = {row["ok"]["_rev"] for result in results for row in result["docs"] if "ok" in row}
    world.check(found == leaves, name, "gets in bulk", doc_id, results, tree(doc))


def read_by_key(world, name, doc_id):
    api, doc, visible = of_document(world, name, doc_id)
    row = api.expect(200, "POST", "/db/_all_docs?include_docs=true", {"keys": [doc_id]})["rows"][0]
    if not visible:
        world.check(row == {"key": doc_id, "error": "not_found"}, name, "lists", doc_id, row, tree(doc))
    else:
        shown = (row.get("value", {}).get("rev"), row.get("value", {}).get("deleted", False))
        world.check(shown == (visible[0].rev, visible[0].deleted), name, "lists", doc_id, row, tree(doc))


def read_attachment(world, name, doc_id):
    api, doc, visible = of_document(world, name, doc_id)
    text = visible[0].content[1] if visible and not visible[0].deleted else None
    answer = api.get(f"/db/{doc_id}/a.txt")
    shown = answer.raw.decode() if answer.status == 200 else None
    world.check(shown == text, name, "gets the attachment of", doc_id, answer, text, tree(doc))
    for leaf in visible[1:]:
        answer = api.get(f"/db/{doc_id}/a.txt?rev={leaf.rev}")
        text = leaf.content[1] if leaf.content else None
        world.check((answer.status == 200) == (text is not None), name, "gets the attachment of", doc_id, leaf.rev, answer, tree(doc))


def read_feed_of_one(world, name, doc_id):
    api, doc, visible = of_document(world, name, doc_id)
    rows = api.expect(200, "GET", f"/db/_changes?style=all_docs&filter=_doc_ids&doc_ids={quote(json.dumps([doc_id]))}")["results"]
    world.check(len(rows) == 1 or (not rows and not visible), name, "is fed", doc_id, rows, tree(doc))
    for row in rows:
        check_row(world, name, row)


CHECKS = [read_one, read_leaves, read_revisions, compare_revisions, read_in_bulk, read_by_key, read_attachment, read_feed_of_one]


def check_row(world, name, row):
    """A row of a feed with all leaves names those that the user sees, and removal revisions, which nobody wrote."""
    doc = world.docs.get(row["id"], Document())
    visible = doc.visible(world.users[name])
    named, leaves = {change["rev"] for change in row["changes"]}, {leaf.rev for leaf in visible}
    world.check(leaves <= named, name, "is fed", row, tree(doc))
    edits = {one.rev for one in doc.revs.values() if one.is_edit}
    world.check(not (named - leaves) & edits, name, "is fed too much", row, tree(doc))
    deleted = visible[0].deleted if visible else True
    world.check((row.get("deleted", False), row.get("removed", False)) == (deleted, not visible), name, "is fed", row, tree(doc))


def read_all(world, name):
    """The listing and the feed of a user."""
    api, user = world.apis[name], world.users[name]
    seen = {doc_id: doc.visible(user) for doc_id, doc in world.docs.items()}
    seen = {doc_id: leaves for doc_id, leaves in seen.items() if leaves}
    live = {doc_id: leaves[0] for doc_id, leaves in seen.items() if not leaves[0].deleted}
    order = sorted(live, reverse=world.random.random() < 0.5)
    descending = json.dumps(order != sorted(order))
    rows = api.expect(200, "GET", f"/db/_all_docs?include_docs=true&descending={descending}")["rows"]
    listed = [(row["id"], row["value"]["rev"], row["doc"].get("n")) for row in rows]
    world.check(listed == [(doc_id, live[doc_id].rev, live[doc_id].content[0]) for doc_id in order], name, "lists", listed, order)
    skip, limit = world.random.randint(0, 3), world.random.randint(0, 5)
    pages = api.expect(200, "POST", "/db/_all_docs/queries", {"queries": [{"skip": skip, "limit": limit}, {"keys": ["missing", "none", *order]}]})[
        "results"
    ]
    world.check([row["id"] for row in pages[0]["rows"]] == sorted(live)[skip : skip + limit], name, "pages", pages[0], skip, limit)
    world.check([row.get("id") for row in pages[1]["rows"]] == [None, None, *order], name, "lists keys", pages[1])
    rows = api.expect(200, "GET", "/db/_changes?style=all_docs")["results"]
    for row in rows:
        check_row(world, name, row)
    shown = [row["id"] for row in rows]
    world.check(len(shown) == len(set(shown)) and seen.keys() <= set(shown), name, "is fed", sorted(shown), sorted(seen))
    selector = {"selector": {"n": {"$gt": 0}}}
    rows = api.expect(200, "POST", "/db/_changes?filter=_selector", selector)["results"]
    of_selector = {row["id"] for row in rows if not row.get("removed")}
    world.check(of_selector == live.keys(), name, "is fed by a selector", sorted(of_selector), sorted(live))
    info = api.expect(200, "GET", "/db")
    world.check(user.is_admin or not {"doc_count", "doc_del_count", "sizes", "purge_seq"} & info.keys(), name, "counts", info)

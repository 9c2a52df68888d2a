"""What was written, what was acknowledged, and whether a server still has exactly that.

A writer says what it is about to do (`intend`), and after the answer either `acknowledge`s or
`refuse`s it. A request that never got its answer stays intended: the server may have it or not, but
whole. Every document belongs to one writer, so at most one edit of it is ever open.
"""

import itertools
import json
import threading

from harness.api import quote


class Edit:
    """One edit of one document. `leaves` are the revisions of a new_edits=false write: rev -> body."""

    __slots__ = ("body", "deleted", "leaves", "rev")

    def __init__(self, body, deleted=False, rev=None, leaves=None):
        self.body, self.deleted, self.rev, self.leaves = body, deleted, rev, leaves


class Ledger:
    def __init__(self, db):
        self.db = db
        self.acknowledged = {}
        self.open = {}
        self.locals = {}
        self.open_locals = {}
        self.databases = {}
        self.open_databases = {}
        self.count = 0
        self.order = []
        self._changed = threading.Condition()

    def intend(self, doc_id, edit):
        with self._changed:
            self.open[doc_id] = edit

    def acknowledge(self, doc_id, rev):
        with self._changed:
            edit = self.open.pop(doc_id)
            edit.rev = rev
            self.acknowledged[doc_id] = edit
            self.order.append(doc_id)
            self._count_one()

    def refuse(self, doc_id):
        with self._changed:
            del self.open[doc_id]

    def intend_local(self, doc_id, body):
        with self._changed:
            self.open_locals[doc_id] = body

    def acknowledge_local(self, doc_id, rev):
        with self._changed:
            self.locals[doc_id] = (rev, self.open_locals.pop(doc_id))
            self._count_one()

    def intend_database(self, name, exists):
        with self._changed:
            self.open_databases[name] = exists

    def acknowledge_database(self, name):
        with self._changed:
            self.databases[name] = self.open_databases.pop(name)
            self._count_one()

    def revisions(self):
        """The acknowledged revision of every document at this moment."""
        with self._changed:
            return {doc_id: edit.rev for doc_id, edit in self.acknowledged.items()}

    def _count_one(self):
        self.count += 1
        self._changed.notify_all()

    def wait_for(self, count, timeout_s):
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, timeout_s)


class Found:
    """Everything that a server says about one database, read through its lists."""

    def __init__(self, api, db):
        self.api, self.path = api, "/" + quote(db)
        self.info = api.expect(200, "GET", self.path)
        self.all_docs = api.expect(200, "GET", self.path + "/_all_docs?include_docs=true")
        self.changes = api.expect(200, "GET", self.path + "/_changes?style=all_docs&include_docs=true")
        self.rows = self.all_docs["rows"]
        self.live = {row["id"]: row for row in self.rows}
        self.by_seq = {row["id"]: row for row in self.changes["results"]}


def verify(report, api, ledger, label, may_lack=frozenset(), quiet=False):
    """Checks a server against a ledger; `may_lack` are ids whose last edit may be gone (torn log)."""
    found = Found(api, ledger.db)
    lost = lost_edits(found, ledger, may_lack)
    report.check(f"{label}: {len(ledger.acknowledged)} acknowledged documents are there, with their bodies", not lost, "\n".join(lost[:8]), quiet)
    half = half_edits(found, ledger)
    report.check(f"{label}: nothing is half there", not half, "\n".join(half[:8]), quiet)
    wrong = disagreements(found)
    report.check(f"{label}: counts, lists, feed and offsets agree", not wrong, "\n".join(wrong[:8]), quiet)
    missing = lost_locals(found, ledger) + lost_databases(api, ledger)
    if ledger.locals or ledger.databases:
        report.check(
            f"{label}: {len(ledger.locals)} local documents and {len(ledger.databases)} databases are as acknowledged",
            not missing,
            "\n".join(missing[:8]),
            quiet,
        )
    return not (lost or half or wrong or missing)


def lost_edits(found, ledger, may_lack):
    problems = []
    for doc_id, edit in ledger.acknowledged.items():
        state = state_of(found, doc_id)
        if matches(state, edit) or doc_id in may_lack:
            continue
        later = ledger.open.get(doc_id)
        if later is not None and follows(state, later, edit.rev):
            continue
        problems.append(f"{doc_id}: acknowledged {edit.rev} deleted={edit.deleted}, found {brief(state)}")
    return problems


def half_edits(found, ledger):
    """Documents that nobody wrote, or that are not what somebody wrote."""
    problems = []
    for doc_id in found.by_seq:
        if doc_id in ledger.acknowledged:
            continue
        edit = ledger.open.get(doc_id)
        state = state_of(found, doc_id)
        if edit is None or not follows(state, edit, None):
            problems.append(f"{doc_id}: unacknowledged, found {brief(state)}")
    for doc_id, row in found.live.items():
        if doc_id not in found.by_seq:
            problems.append(f"{doc_id}: in _all_docs, not in _changes")
        elif row["doc"] != found.by_seq[doc_id]["doc"]:
            problems.append(f"{doc_id}: _all_docs and _changes give different bodies")
    for doc_id, row in found.by_seq.items():
        if not row.get("deleted") and doc_id not in found.live:
            problems.append(f"{doc_id}: in _changes, not in _all_docs")
    return problems


def state_of(found, doc_id):
    """(rev, deleted, body, all leaf revisions) as the feed and the list together tell, or None."""
    change = found.by_seq.get(doc_id)
    if change is None:
        return None
    doc = change["doc"]
    row = found.live.get(doc_id)
    rev = doc["_rev"] if row is None else row["value"]["rev"]
    body = {name: value for name, value in doc.items() if name not in ("_id", "_rev", "_deleted")}
    return rev, bool(change.get("deleted")), body, {leaf["rev"] for leaf in change["changes"]}


def matches(state, edit):
    if state is None:
        return False
    rev, deleted, body, leaves = state
    wanted = set(edit.leaves) if edit.leaves else {edit.rev}
    return rev == edit.rev and deleted == edit.deleted and body == edit.body and leaves == wanted


def follows(state, edit, parent):
    """Whether the state is that of an unanswered edit, applied whole."""
    if state is None:
        return False
    rev, deleted, body, leaves = state
    if edit.leaves:
        return leaves == set(edit.leaves) and edit.leaves.get(rev) == body
    generation = int(parent.split("-")[0]) + 1 if parent else 1
    return int(rev.split("-")[0]) == generation and deleted == edit.deleted and body == edit.body and leaves == {rev}


def disagreements(found):
    rows, changes = found.rows, found.changes["results"]
    deleted = sum(bool(row.get("deleted")) for row in changes)
    seqs = [seq_number(row["seq"]) for row in changes]
    problems = []

    def same(what, actual, expected):
        if actual != expected:
            problems.append(f"{what}: {actual}, expected {expected}")

    same("doc_count against rows", found.info["doc_count"], len(rows))
    same("total_rows against rows", found.all_docs["total_rows"], len(rows))
    same("doc_del_count against the feed", found.info["doc_del_count"], deleted)
    same("rows of the feed", len(changes), len(rows) + deleted)
    same("ids in order", [row["id"] for row in rows], sorted((row["id"] for row in rows), key=str.encode))
    same("seqs strictly rising", all(a < b for a, b in itertools.pairwise(seqs)), True)
    same("update_seq not below the feed's last", seq_number(found.info["update_seq"]) >= (seqs or [0])[-1], True)
    for at in sample_positions(len(rows)):
        skipped = found.api.expect(200, "GET", f"{found.path}/_all_docs?skip={at}&limit=1")
        same(f"skip={at}", (skipped["offset"], skipped["rows"][0]["id"]), (at, rows[at]["id"]))
        started = found.api.expect(200, "GET", f"{found.path}/_all_docs?limit=1&startkey={quote(json.dumps(rows[at]['key']))}")
        same(f"offset of row {at}", (started["offset"], started["rows"][0]["id"]), (at, rows[at]["id"]))
        # A design document is redirected to when its slash is encoded, as in CouchDB.
        name = quote(rows[at]["id"]).replace("_design%2F", "_design/", 1)
        single = found.api.expect(200, "GET", f"{found.path}/{name}")
        same(f"GET of row {at}", single, rows[at]["doc"])
    for at in sample_positions(len(changes) - 1):
        rest = found.api.expect(200, "GET", f"{found.path}/_changes?limit=1&since={quote(str(changes[at]['seq']))}")
        same(f"pending after row {at}", rest["pending"], len(changes) - at - 2)
        same(f"row after row {at}", rest["results"][0]["id"], changes[at + 1]["id"])
    return problems


def sample_positions(count):
    return sorted({0, count // 3, count // 2, count * 9 // 10, count - 1}) if count > 0 else []


def seq_number(seq):
    return int(str(seq).split("-")[0])


def lost_locals(found, ledger):
    problems = []
    for doc_id, (rev, body) in ledger.locals.items():
        answer = found.api.get(f"{found.path}/_local/{quote(doc_id)}")
        if answer.status == 200:
            doc = answer.json
            content = {name: value for name, value in doc.items() if not name.startswith("_")}
            if (doc["_rev"], content) == (rev, body) or content == ledger.open_locals.get(doc_id):
                continue
        problems.append(f"_local/{doc_id}: acknowledged {rev}, found {answer!r}")
    return problems


def lost_databases(api, ledger):
    there = set(api.expect(200, "GET", "/_all_dbs"))
    return [
        f"database {name}: acknowledged exists={exists}, found {name in there}"
        for name, exists in ledger.databases.items()
        if (name in there) != exists and name not in ledger.open_databases
    ]


def brief(state):
    return "nothing" if state is None else f"{state[0]} deleted={state[1]} leaves={sorted(state[3])} body={str(state[2])[:120]}"

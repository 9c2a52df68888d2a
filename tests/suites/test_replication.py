"""Replication between two servers: what is copied, what is recorded of it, and what befalls it on the way.

The database of this server goes by its name, the other server's by its URL, so that both kinds of ends are used. Kill -9
and bad connections are in `replication_faults`."""

import base64
import http.server
import os
import threading
import time

import pytest

from harness.leaves import differences, leaves, same_leaves
from harness.replications import fill, tangle
from harness.server import wait_until

pytestmark = pytest.mark.quick

PASSWORD = "s3cr3t-pa55"
ADMIN = f"admin:{PASSWORD}"
JITTER = ["--set", "replicator/startup_jitter=0"]


@pytest.fixture(scope="module")
def pair(suite):
    with suite.server("here", admin=ADMIN, options=JITTER) as here, suite.server("there", admin=ADMIN, options=JITTER) as there:
        yield Pair(suite, here, there)


class Pair:
    """Two servers; replications are asked of the first."""

    def __init__(self, ctx, here, there):
        self.ctx, self.report, self.servers = ctx, ctx.report, (here, there)
        self.here, self.there = here.api(), there.api()
        self.here_url, self.there_url = with_password(here.url), with_password(there.url)
        self.answers = []
        self.names = 0

    def name(self):
        self.names += 1
        return f"db{self.names}"

    def databases(self, documents=0):
        """A database of that name on both servers, documents in the other server's."""
        db = self.name()
        for api in (self.here, self.there):
            api.expect(201, "PUT", f"/{db}")
        if documents:
            fill(self.there, db, documents)
        return db

    def replicate(self, source, target, **options):
        answer = self.here.post("/_replicate", {"source": source, "target": target, **options})
        self.answers.append(answer.raw)
        return answer

    def remote(self, db):
        return f"{self.there_url}/{db}"

    def get(self, path):
        answer = self.here.request("GET", path)
        self.answers.append(answer.raw)
        return answer.json


def with_password(url):
    return url.replace("http://", f"http://admin:{PASSWORD}@")


def counts(answer):
    entry = answer.json["history"][0]
    return [entry[name] for name in ("missing_checked", "missing_found", "docs_read", "docs_written", "doc_write_failures")]


def test_push_and_pull(pair):
    report, db = pair.report, pair.databases(700)
    answer = pair.replicate(pair.remote(db), db)
    report.equal("a pull is answered when it is done", (answer.status, answer.json.get("ok")), (200, True))
    report.equal("a pull counts what it did", counts(answer), [700, 700, 700, 700, 0])
    same_leaves(report, "after a pull both have the same", (pair.here, db), (pair.there, db))
    fill(pair.here, db, 1200, "new")
    answer = pair.replicate(db, pair.remote(db))
    report.equal("a push asks about everything, and sends what is missing", counts(answer), [1900, 1200, 1200, 1200, 0])
    same_leaves(report, "after a push both have the same", (pair.here, db), (pair.there, db))
    target = pair.name()
    answer = pair.replicate(pair.remote(db), f"{pair.here_url}/{target}", create_target=True, create_target_params={"q": 1})
    report.equal("from URL to URL, into a database made for it", (answer.status, counts(answer)[3]), (200, 1900))
    report.equal("made as it was asked for", pair.get(f"/{target}")["cluster"]["q"], 1)
    same_leaves(report, "a target that was made has the same", (pair.here, target), (pair.there, db))


def test_every_leaf(pair):
    report = pair.report
    for use_bulk_get in (True, False):
        db = pair.databases()
        tangle(pair.there, db)
        pair.here.expect(201, "PUT", f"/{db}/edited", {"my": "own"})
        answer = pair.replicate(pair.remote(db), db, use_bulk_get=use_bulk_get)
        how = "_bulk_get" if use_bulk_get else "single reads"
        report.equal(f"conflicts and tombstones by {how}: none is refused", counts(answer)[4], 0)
        mine = leaves(pair.here, db)["edited"]
        report.equal(f"a document made on both sides is a conflict ({how})", len(mine), 2)
        pair.replicate(db, pair.remote(db))
        same_leaves(report, f"every leaf with its ancestors is on both sides ({how})", (pair.here, db), (pair.there, db))


def test_attachments(pair):
    """Small ones, large ones, compressed ones, of winners and of conflicts, over every kind of pair."""
    report, source = pair.report, pair.databases()
    data = lambda content: base64.b64encode(content).decode()
    noise, text = os.urandom(3 << 20), b"all work and no play makes jack a dull boy\n" * 50_000
    small = {
        "a.txt": {"content_type": "text/plain", "data": data(b"hello" * 100)},
        "ü/b.bin": {"content_type": "image/x", "data": data(os.urandom(999))},
    }
    large = {
        "noise.bin": {"content_type": "application/octet-stream", "data": data(noise)},
        **small,
        "text.txt": {"content_type": "text/plain; charset=utf-8", "data": data(text)},
    }
    docs = [
        {"_id": "small", "_rev": "1-" + "a" * 32, "_attachments": small},
        {"_id": "small", "_rev": "1-" + "b" * 32, "_attachments": {"other": {"data": data(b"")}}},
        {"_id": "large", "_revisions": {"start": 2, "ids": ["c" * 32, "d" * 32]}, "n": 1, "_attachments": large},
        {"_id": "large", "_rev": "1-" + "e" * 32, "n": 2, "_attachments": {"noise.bin": {"data": data(noise[::-1])}}},
        {"_id": "none", "_rev": "1-" + "f" * 32, "about": '"_attachments":{}'},
    ]
    pair.there.expect(201, "POST", f"/{source}/_bulk_docs", {"new_edits": False, "docs": docs})
    rev = pair.there.expect(201, "PUT", f"/{source}/kept", {"_attachments": small})["rev"]
    kept = {name: {"stub": True, "content_type": "text/plain"} for name in list(small)[:1]}
    pair.there.expect(201, "PUT", f"/{source}/kept", {"_rev": rev, "n": 2, "_attachments": kept})
    expected = leaves(pair.there, source)
    report.equal("the source has them", sum(len(leaf["attachments"]) for revs in expected.values() for leaf in revs.values()), 9)
    target = lambda: f"copy{pair.name()}"
    a, b, c, d, e = (target() for _ in range(5))
    for what, api, source_end, target_end, db in (
        ("from afar, here", pair.here, pair.remote(source), a, a),
        ("from here, here", pair.here, a, b, b),
        ("from here, afar", pair.there, b, pair.remote(c), c),
        ("from afar, afar", pair.there, pair.remote(c), pair.remote(d), d),
        ("one by one", pair.here, pair.remote(d), e, e),
    ):
        answer = pair.replicate(source_end, target_end, create_target=True, use_bulk_get=what != "one by one")
        report.equal(f"attachments {what}: all are written", counts(answer)[2:] if answer.status == 200 else answer, [6, 6, 0])
        report.check(f"attachments {what}: they are the same", leaves(api, db) == expected, differences(expected, leaves(api, db)))
    pair.here.expect(200, "PUT", "/_node/_local/_config/couchdb/max_attachment_size", b'"1000000"')
    for db, end, source_end in ((target(), None, pair.remote(d)), (target(), pair.here_url, pair.remote(d)), (target(), None, a)):
        answer = pair.replicate(source_end, f"{end}/{db}" if end else db, create_target=True)
        report.equal("attachments that are too large are documents refused", counts(answer)[2:] if answer.status == 200 else answer, [6, 4, 2])
    pair.here.expect(200, "DELETE", "/_node/_local/_config/couchdb/max_attachment_size")


def test_again(pair):
    report, db = pair.report, pair.databases(10)
    first = pair.replicate(pair.remote(db), db).json
    second = pair.replicate(pair.remote(db), db).json
    report.equal("nothing new", second.get("no_changes"), True)
    report.equal("the last session is told again", second["session_id"], first["session_id"])
    fill(pair.there, db, 5, "more")
    third = pair.replicate(pair.remote(db), db)
    # One that starts over would check 15, and find 5 missing.
    report.equal("only what is new is checked, and counters go on", counts(third), [15, 15, 15, 15, 0])
    history = third.json["history"]
    report.equal("from where the session before ended", history[0]["start_last_seq"], history[1]["end_last_seq"])
    report.equal("sessions are remembered", [e["session_id"] for e in third.json["history"]][1:], [first["session_id"]])
    logs = [api.expect(200, "GET", f"/{db}/_local_docs?include_docs=true")["rows"] for api in (pair.here, pair.there)]
    docs = [{k: v for k, v in log[0]["doc"].items() if k != "_rev"} for log in logs]
    report.equal("both sides have one checkpoint, the same", [len(log) for log in logs] + [docs[0] == docs[1]], [1, 1, True])
    report.equal(
        "no checkpoints when none are wanted", pair.replicate(pair.remote(db), db, use_checkpoints=False).json, {"ok": True, "use_checkpoints": False}
    )
    pair.here.expect(201, "PUT", "/blocked")
    empty = pair.replicate(f"{pair.here_url}/blocked", "blocked")
    report.equal("an empty source", empty.json, {"ok": True, "no_changes": True})


def test_choices(pair):
    report = pair.report
    source = pair.databases(20)
    design = {
        "filters": {"kind": "function(doc, req) { return doc.kind === req.query.kind; }"},
        "views": {"odd": {"map": "function(doc) { if (doc.kind === 'odd') emit(1); }"}},
    }
    for api in (pair.here, pair.there):
        api.expect(201, "PUT", f"/{source}/_design/f", design)
    pair.replicate(pair.remote(source), source)
    cases = [
        ("doc_ids", {"doc_ids": ["doc00003", "doc00004", "no such"]}, 2),
        ("selector", {"selector": {"n": {"$lt": 7}}}, 7),
        ("filter", {"filter": "f/kind", "query_params": {"kind": "odd"}}, 10),
        ("filter _view", {"filter": "_view", "query_params": {"view": "f/odd"}}, 10),
        ("filter _design", {"filter": "_design"}, 1),
        ("since_seq", {"since_seq": pair.there.expect(200, "GET", f"/{source}")["update_seq"]}, 0),
    ]
    for name, options, expected in cases:
        for kind, end in (("remote", pair.remote(source)), ("local", source)):
            if name == "since_seq" and kind == "local":
                continue
            target = pair.name()
            answer = pair.replicate(end, target, create_target=True, **options)
            got = pair.get(f"/{target}/_all_docs").get("total_rows") if answer.status == 200 else answer
            report.equal(f"{name} of a {kind} source", got, expected)
    db = pair.databases()
    tangle(pair.there, db)
    pair.replicate(pair.remote(db), db, winning_revs_only=True)
    report.equal(
        "winning_revs_only leaves conflicts behind",
        list(leaves(pair.here, db)["conflict"]),
        [pair.there.expect(200, "GET", f"/{db}/conflict")["_rev"]],
    )


def test_continuous(pair):
    report, db = pair.report, pair.databases(3)
    answer = pair.replicate(pair.remote(db), db, continuous=True, checkpoint_interval=200)
    id = answer.json.get("_local_id", "")
    report.check("a continuous replication is accepted", answer.status == 202 and id.endswith("+continuous"), answer)
    report.equal(
        "the same again is the same job", pair.replicate(pair.remote(db), db, continuous=True, checkpoint_interval=200).json["_local_id"], id
    )
    has = lambda count: lambda: pair.get(f"/{db}")["doc_count"] == count
    report.check("it brings what is there", wait_until(has(3)))
    fill(pair.there, db, 50, "live")
    report.check("and what comes", wait_until(has(53)))
    tasks = [t for t in pair.get("/_active_tasks") if t["type"] == "replication"]
    report.equal("it is an active task", [t["replication_id"] for t in tasks], [id])
    missing = [
        m
        for m in (
            "docs_read",
            "docs_written",
            "doc_write_failures",
            "missing_revisions_found",
            "revisions_checked",
            "checkpointed_source_seq",
            "source_seq",
            "through_seq",
            "changes_pending",
            "source",
            "target",
            "continuous",
            "started_on",
            "updated_on",
            "user",
            "checkpoint_interval",
        )
        if m not in tasks[0]
    ]
    report.equal("with CouchDB's members", missing, [])
    job = pair.get(f"/_scheduler/jobs/{id}")
    report.equal("and a job of the scheduler", ([e["type"] for e in job["history"]], job["doc_id"]), (["started", "added"], None))
    checkpoint = lambda: [r["doc"] for r in pair.get(f"/{db}/_local_docs?include_docs=true")["rows"]]
    report.check("it records checkpoints while it runs", wait_until(lambda: checkpoint() and checkpoint()[0]["history"][0]["docs_written"] == 53))
    began = time.monotonic()
    cancelled = pair.replicate(pair.remote(db), db, continuous=True, cancel=True)
    report.equal("cancelled", (cancelled.status, cancelled.json), (200, {"ok": True, "_local_id": id}))
    report.note(f"a cancellation took {time.monotonic() - began:.3f} s")
    report.equal("no job is left", pair.get("/_scheduler/jobs")["total_rows"], 0)
    report.equal("cancelling what is not there", pair.replicate(pair.remote(db), db, continuous=True, cancel=True).status, 404)
    fill(pair.there, db, 1, "late")
    again = pair.replicate(pair.remote(db), db)
    report.equal("another replication goes on from the checkpoint, and with its counters", counts(again)[:2], [54, 54])
    both = [pair.replicate(db, pair.remote(db), continuous=True), pair.replicate(pair.remote(db), db, continuous=True)]
    fill(pair.here, db, 20, "mine")
    fill(pair.there, db, 20, "yours")
    report.check("both ways at once", wait_until(lambda: has(94)() and pair.there.expect(200, "GET", f"/{db}")["doc_count"] == 94))
    for answer in both:
        pair.here.expect(200, "POST", "/_replicate", {"cancel": True, "replication_id": answer.json["_local_id"]})
    same_leaves(report, "and both end equal", (pair.here, db), (pair.there, db))


def test_refusals(pair):
    report, db = pair.report, pair.databases(10)
    design = {"validate_doc_update": "function(doc) { if (doc.kind === 'odd') throw({forbidden: 'odd'}); }"}
    pair.here.expect(201, "PUT", f"/{db}/_design/v", design)
    report.equal("refused documents are counted and passed over (local)", counts(pair.replicate(pair.remote(db), db))[3:], [5, 5])
    target = pair.name()
    pair.there.expect(201, "PUT", f"/{target}")
    pair.there.expect(201, "PUT", f"/{target}/_design/v", design)
    report.equal("and by a server that is far", counts(pair.replicate(pair.remote(db), pair.remote(target)))[3:], [5, 5])
    large = pair.databases(3)
    pair.there.expect(201, "PUT", f"/{large}/big", {"x": "y" * 200_000})
    pair.here.expect(200, "PUT", "/_node/_local/_config/couchdb/max_document_size", b'"100000"')
    report.equal("documents that are too large as well (local)", counts(pair.replicate(pair.remote(large), large))[3:], [3, 1])
    target = pair.name()
    pair.here.expect(201, "PUT", f"/{target}")
    report.equal("and over HTTP", counts(pair.replicate(pair.remote(large), f"{pair.here_url}/{target}"))[3:], [3, 1])
    pair.here.expect(200, "DELETE", "/_node/_local/_config/couchdb/max_document_size")
    pair.here.expect(201, "PUT", "/parts?partitioned=true")
    pair.there.expect(201, "PUT", f"/{db}/a:1", {})
    report.equal("ids that a partitioned database cannot take", counts(pair.replicate(pair.remote(db), "parts"))[3:], [1, 10])


def test_errors(pair):
    report, db = pair.report, pair.databases(1)
    told = lambda answer: (answer.status, answer.json["error"], answer.json["reason"])
    url = pair.servers[1].url
    report.equal("no such source", told(pair.replicate(pair.remote("no-such"), db)), (500, "db_not_found", f"could not open {url}/no-such/"))
    report.equal("no such target", told(pair.replicate(db, pair.remote("no-such"))), (500, "db_not_found", f"could not open {url}/no-such/"))
    report.equal("no such local database", told(pair.replicate("no-such", db)), (500, "db_not_found", "could not open no-such"))
    wrong = url.replace("http://", "http://admin:wrong@") + "/" + db
    report.equal("a wrong password", told(pair.replicate(wrong, db)), (401, "unauthorized", f"unauthorized to access or create database {url}/{db}/"))
    gone = pair.replicate("http://127.0.0.1:9/x", db, retries_per_request=1, connection_timeout=500)
    report.check("nobody there", gone.status == 500 and "127.0.0.1:9" in gone.json["reason"], gone)
    anonymous = pair.servers[0].api(credentials="")
    request = {"source": pair.remote(db), "target": db}
    report.equal("nobody replicates without logging in", anonymous.post("/_replicate", request).status, 401)
    anna = user(pair, "anna")
    forbidden = (403, "forbidden", f"forbidden to access or create database {db}")
    report.equal("who may not use a local database", told(anna.post("/_replicate", request)), forbidden)
    mine = pair.servers[0].url
    theirs = mine.replace("http://", "http://anna:pw@") + "/" + db
    forbidden = (403, "forbidden", f"forbidden to access or create database {mine}/{db}/")
    report.equal("nor one that is far", told(pair.replicate(theirs, pair.remote(db))), forbidden)
    report.equal("nor write to it", told(pair.replicate(pair.remote(db), theirs)), forbidden)
    refused = anna.post("/_replicate", {**request, "target": "made", "create_target": True})
    report.equal("who may not create one", told(refused)[:2], (401, "unauthorized"))
    report.equal("and it is not made", pair.here.request("GET", "/made").status, 404)
    job = pair.replicate(pair.remote(db), db, continuous=True).json["_local_id"]
    report.equal("others' jobs are theirs", anna.post("/_replicate", {"cancel": True, "replication_id": job}).status, 401)
    pair.here.expect(200, "POST", "/_replicate", {"cancel": True, "replication_id": job})
    report.equal("the scheduler is for admins", [anonymous.request("GET", f"/_scheduler/{p}").status for p in ("jobs", "docs")], [401, 401])


def test_local_names(pair):
    """A database of this server may be named in an object too, and is used with the rights of the client."""
    report, db = pair.report, pair.databases(3)
    report.equal("as a target", counts(pair.replicate(pair.remote(db), {"url": db}))[3:], [3, 0])
    fill(pair.here, db, 2, "back")
    report.equal("as a source", counts(pair.replicate({"url": db}, {"url": pair.remote(db)}))[3:], [2, 0])
    made = pair.name()
    answer = pair.replicate({"url": db}, {"url": made}, create_target=True)
    report.equal("and one that is made", (answer.status, pair.get(f"/{made}")["doc_count"]), (200, 5))
    missing = pair.replicate({"url": db}, {"url": "no-such"})
    report.equal("one that is not there", (missing.status, missing.json["error"]), (500, "db_not_found"))
    barbara = user(pair, "barbara")
    # Other members have no effect, as in CouchDB.
    target = {"url": db, "auth": {"basic": {"username": "admin", "password": PASSWORD}}}
    answer = barbara.post("/_replicate", {"source": pair.remote(db), "target": target})
    report.equal("with the rights of the client", (answer.status, answer.json["error"]), (403, "forbidden"))
    for bad in ({"url": ""}, {"url": "ftp://x/y"}, {"url": 5}, {}):
        answer = pair.replicate(bad, db)
        report.equal(f"{bad} is refused", (answer.status, answer.json["error"]), (400, "invalid_replication"))
    answer = pair.here.request("PUT", "/_replicator/by-name", {"source": {"url": db}, "target": pair.remote(db)})
    report.equal("a document has URLs only", (answer.status, answer.json["reason"]), (403, "endpoint has an invalid url"))


def test_active_tasks_begin_with_sequences(pair):
    """A job is listed once it knows where it begins: its first moments are looked at again and again."""
    report, db = pair.report, pair.databases(3)
    for round_number in range(pair.ctx.size(10, 100)):
        request = {"source": pair.remote(db), "target": f"{pair.here_url}/{db}", "continuous": True}
        id = pair.here.expect(202, "POST", "/_replicate", request)["_local_id"]
        seen = []
        listed = lambda: seen.extend(t for t in pair.get("/_active_tasks") if t["type"] == "replication") or seen
        report.check("the job is listed", wait_until(listed, 20, 0))
        null = [t for t in seen if None in (t["source_seq"], t["through_seq"], t["checkpointed_source_seq"])]
        report.equal(f"round {round_number}: no sequence is null", null, [])
        job = pair.get(f"/_scheduler/jobs/{id}")["info"]
        report.check("nor one of its job", job is None or job["through_seq"] is not None, job)
        pair.here.expect(200, "POST", "/_replicate", {**request, "cancel": True})


def user(pair, name):
    """An API of a user who is nobody in particular."""
    doc = {"name": name, "password": "pw", "type": "user", "roles": []}
    pair.here.request("PUT", f"/_users/org.couchdb.user:{name}", doc)
    return pair.servers[0].api(credentials=f"{name}:pw")


def state(pair, id, db="_replicator"):
    return pair.get(f"/{db}/{id}").get("_replication_state")


def test_documents(pair):
    report, db = pair.report, pair.databases(30)
    source, target = pair.remote(db), f"{pair.here_url}/{db}"
    pair.here.expect(201, "PUT", "/_replicator/once", {"source": source, "target": target})
    report.check("a document's replication completes", wait_until(lambda: state(pair, "once") == "completed"), pair.get("/_replicator/once"))
    doc = pair.get("/_replicator/once")
    report.equal(
        "its document says so", (doc["_replication_stats"]["docs_written"], doc["owner"], "_replication_state_time" in doc), (30, "admin", True)
    )
    # The document says so a moment before.
    ended = lambda: pair.get("/_scheduler/docs/_replicator/once").get("state") == "completed"
    report.check("and comes to its end", wait_until(ended), pair.get("/_scheduler/docs"))
    row = pair.get("/_scheduler/docs/_replicator/once")
    report.equal(
        "and so does the scheduler",
        (row["state"], row["info"]["docs_written"], row["source"]),
        ("completed", 30, f"{pair.servers[1].url}/{db}/"[:-1]),
    )
    live = {"source": source, "target": target, "continuous": True}
    rev = pair.here.expect(201, "PUT", "/_replicator/live", live)["rev"]
    running = lambda: pair.get("/_scheduler/docs/_replicator/live").get("state") == "running"
    report.check("a continuous one runs", wait_until(running), pair.get("/_scheduler/docs"))
    fill(pair.there, db, 5, "live")
    report.check("and copies", wait_until(lambda: pair.get(f"/{db}")["doc_count"] == 35))
    report.equal("it is no other document", state(pair, "live"), None)
    jobs = pair.get("/_scheduler/jobs")
    report.equal("its job names it", [(j["database"], j["doc_id"]) for j in jobs["jobs"]], [("_replicator", "live")])
    twin = pair.here.expect(201, "PUT", "/_replicator/twin", live)
    report.check("a second document for the same fails", wait_until(lambda: state(pair, "twin") == "failed"), twin)
    other = pair.databases()
    rev = pair.here.expect(201, "PUT", "/_replicator/live", {**live, "target": f"{pair.here_url}/{other}", "_rev": rev})["rev"]
    report.check("an edit starts another job", wait_until(lambda: pair.get(f"/{other}")["doc_count"] == 35))
    report.equal("and ends the old one", pair.get("/_scheduler/jobs")["total_rows"], 1)
    pair.here.expect(200, "DELETE", f"/_replicator/live?rev={rev}")
    report.check("a deletion ends it", wait_until(lambda: pair.get("/_scheduler/jobs")["total_rows"] == 0))
    report.equal("and there is nothing to tell", pair.here.request("GET", "/_scheduler/docs/_replicator/live").status, 404)
    pair.here.expect(201, "PUT", "/team%2F_replicator")
    pair.here.expect(201, "PUT", "/team%2F_replicator/a", live)
    report.check(
        "other replicator databases count too", wait_until(lambda: pair.get("/_scheduler/docs/team/_replicator/a").get("state") == "running")
    )
    pair.here.expect(200, "DELETE", "/team%2F_replicator")
    report.check("a deleted database ends its jobs", wait_until(lambda: pair.get("/_scheduler/jobs")["total_rows"] == 0))
    lost = {"source": pair.remote("comes-later"), "target": target}
    pair.here.expect(201, "PUT", "/_replicator/lost", lost)
    crashing = lambda: pair.get("/_scheduler/docs/_replicator/lost").get("state") == "crashing"
    report.check("what fails is tried again later", wait_until(crashing))
    row = pair.get("/_scheduler/docs/_replicator/lost")
    report.check("and why is told", row["error_count"] == 1 and "could not open" in row["info"]["error"], row)
    job = pair.get(f"/_scheduler/jobs/{row['id']}")
    report.equal("its history has it", [e["type"] for e in job["history"]], ["crashed", "started", "added"])
    filtered = {"source": source, "target": target, "filter": "no/such"}
    pair.here.expect(201, "PUT", "/_replicator/filtered", filtered)
    report.check(
        "a filter that is not there is an error", wait_until(lambda: pair.get("/_scheduler/docs/_replicator/filtered").get("state") == "error")
    )
    listed = pair.get("/_scheduler/docs?limit=2&skip=1")
    report.equal("documents are listed in pages", (listed["total_rows"], listed["offset"], len(listed["docs"])), (4, 1, 2))
    report.equal("and by state", [d["doc_id"] for d in pair.get("/_scheduler/docs?states=completed,failed")["docs"]], ["once", "twin"])
    for id in ("lost", "filtered", "twin", "once"):
        rev = pair.get(f"/_replicator/{id}")["_rev"]
        pair.here.expect(200, "DELETE", f"/_replicator/{id}?rev={rev}")


def test_document_rules(pair):
    report = pair.report
    for name, doc in (
        ("no target", {"source": "http://h/a"}),
        ("a local name", {"source": "a", "target": "http://h/b"}),
        ("two choices", {"source": "http://h/a", "target": "http://h/b", "doc_ids": [], "filter": "a/b"}),
        ("no URL", {"source": "ftp://h/a", "target": "http://h/b"}),
        ("a bad option", {"source": "http://h/a", "target": "http://h/b", "continuous": "yes"}),
    ):
        report.equal(f"a document with {name} is refused", pair.here.request("PUT", "/_replicator/bad", doc).status, 403)
    security = pair.here.expect(200, "GET", "/_replicator/_security")
    pair.here.expect(200, "PUT", "/_replicator/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    anna, secret = user(pair, "anna"), {"url": "http://x:hidden@127.0.0.1:9/x", "headers": {"X": "hidden"}}
    doc = {"source": secret, "target": "http://y:hidden@127.0.0.1:9/y", "proxy": "http://z:hidden@127.0.0.1:9"}
    pair.here.expect(201, "PUT", "/_replicator/mine", doc)
    anna.expect(201, "PUT", "/_replicator/hers", {**doc, "target": "http://y:hidden@127.0.0.1:9/hers"})
    report.equal("a document is its writer's", anna.expect(200, "GET", "/_replicator/hers")["owner"], "anna")
    seen = anna.expect(200, "GET", "/_replicator/mine")
    report.equal("credentials are hidden from others", (seen["source"], seen["target"]), ({"url": "http://127.0.0.1:9/x"}, "http://127.0.0.1:9/y"))
    views = [anna.request("GET", path).raw for path in ("/_replicator/mine?revs=true", "/_replicator/mine?open_revs=all")]
    views.append(anna.post("/_replicator/_bulk_get", {"docs": [{"id": "mine"}]}).raw)
    report.check("wherever they look", not any(b"hidden" in view for view in views), views)
    report.check("but not from oneself", b"hidden" in anna.request("GET", "/_replicator/hers").raw)
    taken = {**doc, "_rev": pair.here.expect(200, "GET", "/_replicator/mine")["_rev"]}
    report.equal("nobody takes over another's document", anna.request("PUT", "/_replicator/mine", taken).status, 403)
    report.equal("nor writes in another's name", anna.request("PUT", "/_replicator/forged", {**doc, "owner": "admin"}).status, 403)
    rev = anna.expect(200, "GET", "/_replicator/hers")["_rev"]
    anna.expect(200, "DELETE", f"/_replicator/hers?rev={rev}")
    pair.here.expect(200, "DELETE", f"/_replicator/mine?rev={taken['_rev']}")
    pair.here.expect(200, "PUT", "/_replicator/_security", security)
    report.equal("design documents are not replications", pair.here.request("PUT", "/_replicator/_design/x", {"a": 1}).status, 201)


def test_resumed(pair):
    """Jobs of documents go on after a restart, of `_replicate` they do not."""
    report, db = pair.report, pair.databases(10)
    doc = {"source": pair.remote(db), "target": f"{pair.here_url}/{db}", "continuous": True, "checkpoint_interval": 100}
    pair.here.expect(201, "PUT", "/_replicator/resumed", doc)

    def counted():
        stats = pair.get("/_scheduler/docs/_replicator/resumed")["info"]
        return [stats[name] for name in ("revisions_checked", "missing_revisions_found", "docs_written")]

    report.check("copied", wait_until(lambda: pair.get(f"/{db}")["doc_count"] == 10))
    # The documents are there before the replicator has read that they were written.
    report.check("and counted", wait_until(lambda: counted() == [10, 10, 10]), counted())
    here = pair.servers[0]
    here.port = int(here.url.rsplit(":", 1)[1])
    report.equal("the server stops in time", here.stop(), 0)
    fill(pair.there, db, 10, "meanwhile")
    here.start()
    pair.here = here.api()
    report.check("after a restart it goes on", wait_until(lambda: pair.get(f"/{db}")["doc_count"] == 20))
    wait_until(lambda: counted() == [20, 20, 20])
    report.equal("from its checkpoint, and with its counters", counted(), [20, 20, 20])
    rev = pair.get("/_replicator/resumed")["_rev"]
    pair.here.expect(200, "DELETE", f"/_replicator/resumed?rev={rev}")


def test_recreated(pair):
    report, db = pair.report, pair.databases(10)
    pair.replicate(pair.remote(db), db)
    pair.there.expect(200, "DELETE", f"/{db}")
    pair.there.expect(201, "PUT", f"/{db}")
    fill(pair.there, db, 4, "other")
    report.equal("a source made anew is read from its beginning", counts(pair.replicate(pair.remote(db), db)), [4, 4, 4, 4, 0])
    pair.here.expect(200, "DELETE", f"/{db}")
    pair.here.expect(201, "PUT", f"/{db}")
    report.equal("and so is one whose target is new", counts(pair.replicate(pair.remote(db), db)), [4, 4, 4, 4, 0])


def test_purged(pair):
    report, db = pair.report, pair.databases(10)
    revs = {row["id"]: [row["value"]["rev"]] for row in pair.there.expect(200, "GET", f"/{db}/_all_docs?limit=3")["rows"]}
    pair.there.expect(201, "POST", f"/{db}/_purge", revs)
    report.equal("what was purged is not there to be copied", counts(pair.replicate(pair.remote(db), db))[3:], [7, 0])


def test_local_pair(pair):
    report, db = pair.report, pair.databases(50)
    tangle(pair.there, db)
    pair.replicate(pair.remote(db), db)
    copy = pair.name()
    answer = pair.replicate(db, copy, create_target=True)
    report.check("two databases of one server", answer.status == 200, answer)
    same_leaves(report, "have the same", (pair.here, db), (pair.here, copy))
    live = pair.replicate(db, copy, continuous=True)
    fill(pair.here, db, 10, "live")
    report.check("also continuously", wait_until(lambda: leaves(pair.here, db) == leaves(pair.here, copy)), live)
    pair.here.expect(200, "POST", "/_replicate", {"cancel": True, "replication_id": live.json["_local_id"]})


def test_redirects(pair):
    """A server that sends everybody elsewhere, and wants nobody's password there."""
    seen = []
    to = pair.servers[1].url

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            seen.append(self.headers.get("Authorization"))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(307)
            self.send_header("Location", to + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_PUT = do_HEAD = answer
        log_message = lambda *_: None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    db = pair.databases(4)
    pair.there.expect(200, "PUT", f"/{db}/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    answer = pair.replicate(f"http://who:knows@127.0.0.1:{server.server_port}/{db}", db)
    server.shutdown()
    pair.report.equal("redirects are followed", (answer.status, answer.json.get("ok") and counts(answer)[3]), (200, 4))
    pair.report.check("the first server was shown the password", any(seen))


def test_other_addresses(pair):
    """`[replicator] connect_to` sends requests to another address than their URL's, and leaves their host as it is."""
    db, asked = pair.databases(10), []

    class Noting(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers["Host"])
            self.send_error(404)

        do_HEAD = do_POST = do_PUT = do_GET

        def log_message(self, *_):
            pass

    port = pair.there_url.rsplit(":", 1)[1]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Noting) as noting:
        threading.Thread(target=noting.serve_forever, daemon=True).start()
        entries = f"*.db.invalid:80:127.0.0.1:{port}, *.db.invalid:5984:[::ffff:127.0.0.1]:{port}, noting.invalid:81:127.0.0.1:{noting.server_port}, nonsense"
        pair.here.expect(200, "PUT", "/_node/_local/_config/replicator/connect_to", entries)
        applied = "/_node/_local/_stats/couch_replicator/connect_to_applied"
        before = pair.get(applied)["value"]
        for n, host in enumerate(("a.db.invalid", "B.db.invalid:5984")):
            source = f"http://admin:{PASSWORD}@{host}/{db}"
            done = pair.replicate(source, f"{db}-{n}", create_target=True)
            pair.report.equal(f"documents from {host}", (done.status, pair.get(f"/{db}-{n}")["doc_count"]), (200, 10))
        pair.report.check("requests are counted", pair.get(applied)["value"] > before)
        pair.replicate(f"http://noting.invalid:81/{db}", db)
        pair.report.equal("the host of the requests", set(asked), {"noting.invalid:81"})
        noting.shutdown()
    pair.here.expect(200, "DELETE", "/_node/_local/_config/replicator/connect_to")
    refused = pair.replicate(f"http://a.db.invalid/{db}", db)
    pair.report.check("without it the name leads nowhere", refused.status >= 400, refused)


def test_no_secrets(pair):
    """In what earlier tests were answered, and in what these replications are."""
    db = pair.databases(2)
    for name, works in ((db, True), ("nowhere", False)):
        pair.report.equal(f"a replication of {name} is tried", pair.replicate(pair.remote(name), db).status == 200, works)
    doc = {"source": pair.remote(db), "target": f"{pair.here_url}/{db}", "continuous": True}
    pair.here.expect(201, "PUT", "/_replicator/secret", doc)
    running = wait_until(lambda: pair.get("/_scheduler/docs/_replicator/secret").get("state") == "running")
    pair.report.check("a document is, too", running, pair.get("/_scheduler/docs"))
    for path in ("/_scheduler/jobs", "/_active_tasks"):
        pair.get(path)
    logs = "".join(server.log() for server in pair.servers)
    answers = b"".join(pair.answers).decode()
    basic = "YWRtaW46"
    pair.report.check("no password in a log", PASSWORD not in logs and basic not in logs)
    # A document is its owner's: what it says is shown to them.
    shown = "\n".join(line for line in answers.splitlines() if '"_id"' not in line)
    pair.report.check("no password in an answer", PASSWORD not in shown and basic not in shown, shown[max(0, shown.find(PASSWORD) - 300) :][:600])
    pair.report.check("no panic", "panicked" not in logs, logs[logs.find("panicked") - 500 :][:1500])


def test_rotation(ctx):
    """More jobs than may run at once take turns."""
    options = [*JITTER, "--set", "replicator/max_jobs=2", "--set", "replicator/interval=200", "--set", "replicator/max_churn=1"]
    with ctx.server("rotation", options=options) as server:
        api = server.api()
        url = server.url.replace("http://", "http://admin:admin@")
        for n in range(5):
            api.expect(201, "PUT", f"/source{n}")
            fill(api, f"source{n}", 3)
            doc = {"source": f"{url}/source{n}", "target": f"{url}/target{n}", "create_target": True, "continuous": True}
            api.expect(201, "PUT", f"/_replicator/r{n}", doc)
        done = lambda n: api.request("GET", f"/target{n}").json.get("doc_count") == 3
        ctx.report.check("five continuous jobs get their turn in two places", wait_until(lambda: all(done(n) for n in range(5))))
        states = lambda: [job["pid"] is not None for job in api.request("GET", "/_scheduler/jobs").json["jobs"]]
        ctx.report.check("never more than two run", all(sum(states()) <= 2 for _ in range(20)), states())
        events = lambda: {e["type"] for j in api.request("GET", "/_scheduler/jobs").json["jobs"] for e in j["history"]}
        ctx.report.equal("and their histories say so", events(), {"added", "started", "stopped"})


def test_many_jobs(ctx):
    """A thousand documents are cheap."""
    count = ctx.size(200, 1000)
    with ctx.server("many", options=[*JITTER, "--set", "replicator/max_jobs=20", "--set", "replicator/interval=500"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/source")
        fill(api, "source", 1)
        url = server.url.replace("http://", "http://admin:admin@")
        before = server.rss_mb()
        docs = [{"_id": f"j{n:04}", "source": f"{url}/source", "target": f"{url}/t{n:04}", "create_target": True} for n in range(count)]
        began = time.monotonic()
        api.expect(201, "POST", "/_replicator/_bulk_docs", {"docs": docs})
        completed = lambda: len(api.request("GET", "/_scheduler/docs?states=completed").json["docs"])
        ctx.report.check(f"{count} documents complete", wait_until(lambda: completed() == count, timeout_s=120), completed())
        ctx.report.note(f"{count} replications of one document took {time.monotonic() - began:.1f} s, {server.rss_mb() - before:.0f} MB")
        ctx.report.equal("none is left", api.request("GET", "/_scheduler/jobs").json["total_rows"], 0)
        ctx.report.check("no panic", "panicked" not in server.log())

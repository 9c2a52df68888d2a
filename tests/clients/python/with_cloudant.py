"""Python's `cloudant`, which is no longer developed but still widely installed. Its own suite asks for all of this."""

import threading

import requests
from cloudant.client import CouchDB
from cloudant.design_document import DesignDocument
from cloudant.document import Document
from cloudant.error import CloudantClientException, CloudantDatabaseException
from cloudant.feed import Feed, InfiniteFeed
from cloudant.query import Query
from cloudant.replicator import Replicator
from cloudant.result import Result
from cloudant.scheduler import Scheduler
from cloudant.security_document import SecurityDocument

from checks import NAME, PASSWORD, URL, check, equal, raises, until

DB = "client-cloudant"
NAMES = [f"julia{n:03d}" for n in range(100)]

client = CouchDB(NAME, PASSWORD, url=URL, connect=True)
db = client.create_database(DB)
check("create a database", db.exists() and DB in client.all_dbs())
raises("create it again", CloudantClientException, lambda: client.create_database(DB, throw_on_exists=True), lambda e: e.status_code == 412)
raises("an illegal name", CloudantDatabaseException, lambda: client.create_database("Illegal_Name"), lambda e: e.status_code == 400)
equal("session", (client.session()["userCtx"]["name"], client.session_cookie() is not None), (NAME, True))
equal("basic authentication", CouchDB(NAME, PASSWORD, url=URL, connect=True, use_basic_auth=True).all_dbs(), client.all_dbs())
raises("a wrong password", requests.HTTPError, lambda: CouchDB(NAME, "wrong", url=URL, connect=True), lambda e: e.response.status_code == 401)

# Documents
made = db.bulk_docs([{"_id": name, "name": "julia", "age": n} for n, name in enumerate(NAMES)])
check("bulk", len(made) == 100 and all(row["ok"] for row in made), made[:2])
equal("count", db.doc_count(), 100)
doc = db.create_document({"_id": "Jöhn 🙂/1", "value": 1.0})
equal("create", (doc["_rev"][:2], Document(db, "Jöhn 🙂/1").exists()), ("1-", True))
raises(
    "create it again",
    CloudantDatabaseException,
    lambda: db.create_document({"_id": "julia001"}, throw_on_exists=True),
    lambda e: e.status_code == 409,
)
check("one without an id", len(db.create_document({"value": 2})["_id"]) == 32)
doc.update_field(Document.list_field_append, "list", 1)
doc.fetch()
equal("update a field", (doc["list"], doc["_rev"][:2]), ([1], "2-"))
with Document(db, "julia000") as changed:
    changed["age"] = "zero"
equal("the context manager writes", db["julia000"]["age"], "zero")
doc.delete()
raises("a deleted document", requests.HTTPError, lambda: Document(db, "Jöhn 🙂/1").fetch(), lambda e: e.response.status_code == 404)
raises("a document that never was", KeyError, lambda: db["nobody"])
equal("revs_diff", db.revisions_diff("julia001", "1-" + "a" * 32)["julia001"]["missing"], ["1-" + "a" * 32])
equal("missing_revs", db.missing_revisions("julia001", "1-" + "a" * 32), ["1-" + "a" * 32])
db.set_revision_limit(1234)
equal("revision limit", db.get_revision_limit(), 1234)
check("view cleanup", db.view_cleanup() == {"ok": True})

with Document(db, "attached") as attached:
    attached["n"] = 1
attached.put_attachment("a.txt", "text/plain", "Some text\n")
attached.put_attachment("a b/ü.json", "application/json", '{"n": 1.5}')
equal("a text attachment", attached.get_attachment("a.txt"), "Some text\n")
equal("a JSON attachment", attached.get_attachment("a b/ü.json", attachment_type="json"), {"n": 1.5})
attached.delete_attachment("a.txt")
equal("delete an attachment", list(attached["_attachments"]), ["a b/ü.json"])
attached.delete()

# Design documents
ddoc = DesignDocument(db, "d ü")
ddoc.add_view("by_name", "function (doc) { emit(doc._id, 1); }")
ddoc.add_view("by_half", "function (doc) { if (doc.name) { emit(Math.floor(Number(doc._id.slice(5)) / 2), 1); } }", "_count")
ddoc.add_view("pair", "function (doc) { if (doc.name) { emit(['julia', Number(doc._id.slice(5))], 1); } }", "_count")
ddoc.add_list_function(
    "names", "function (head, req) { provides('html', function () { var row, s = ''; while ((row = getRow())) { s += row.id + ';'; } return s; }); }"
)
ddoc.add_show_function("show", "function (doc, req) { return doc ? 'Hello from ' + doc._id + '!' : 'Hello, world!'; }")
ddoc["updates"] = {
    "set": "function (doc, req) { if (!doc) { return [{_id: req.uuid}, 'new']; } doc.set = req.form.set; return [doc, 'updated ' + doc._id]; }"
}
ddoc.save()
fetched = db.get_design_document("d ü")
equal("design document", (list(fetched.views), list(fetched.lists), list(fetched.shows)), (["by_name", "by_half", "pair"], ["names"], ["show"]))
equal("list them", (db.list_design_documents(), len(db.design_documents())), (["_design/d ü"], 1))
check("its info", until(lambda: ddoc.info()["view_index"]["updater_running"] is False), ddoc.info())
equal("list function", db.get_list_function_result("d ü", "names", "by_half", limit=3, reduce=False), "julia000;julia001;julia002;")
equal("show function", db.get_show_function_result("d ü", "show", "julia001"), "Hello from julia001!")
equal("update function", db.update_handler_result("d ü", "set", "julia001", data={"set": "by the form"}), "updated julia001")
equal("it has written", Document(db, "julia001").exists() and client[DB].get("julia001", remote=True)["set"], "by the form")
check("update function of a new document", db.update_handler_result("d ü", "set"), "new")

# Views and results
pairs = ddoc.get_view("pair")
by_half = ddoc.get_view("by_half")
equal("endkey", len(by_half(endkey=4, reduce=False)["rows"]), 10)
equal("endkey_docid", len(by_half(endkey=5, endkey_docid="julia010", reduce=False)["rows"]), 11)
equal("group", by_half(group=True)["rows"], [{"key": n, "value": 2} for n in range(50)])
equal("group_level", pairs(group_level=1)["rows"], [{"key": ["julia"], "value": 100}])
equal("keys", [row["id"] for row in by_half(keys=[3, 1], reduce=False)["rows"]], ["julia006", "julia007", "julia002", "julia003"])
equal("stale", len(by_half(stale="ok", reduce=False)["rows"]), 100)
result = Result(pairs, reduce=False)
equal("a row by its number", [row["id"] for row in result[10]], ["julia010"])
equal("rows by numbers", [row["id"] for row in result[10:12]], ["julia010", "julia011"])
equal("rows by keys", [row["id"] for row in result[["julia", 5] : ["julia", 7]]], ["julia005", "julia006", "julia007"])
equal("a complex key", [row["id"] for row in result[["julia", 50]]], ["julia050"])
equal("pages", [row["id"] for row in Result(by_half, reduce=False, page_size=7)], NAMES)
equal("all documents in pages", len(list(Result(db.all_docs, page_size=10))), db.doc_count())
equal("all_docs by keys", [row["id"] for row in db.all_docs(keys=["julia003", "julia001"])["rows"]], ["julia003", "julia001"])
equal("all_docs of no keys", db.all_docs(keys=[])["rows"], [])

# Queries
index = db.create_query_index(design_document_id="by-age", index_name="age", fields=["age"])
check("an index", index.name == "age" and len(db.get_query_indexes()) == 2, db.get_query_indexes())
found = db.get_query_result({"age": {"$gt": 95, "$lt": 1000}}, fields=["_id"], sort=[{"age": "desc"}], raw_result=True)
equal("find", [row["_id"] for row in found["docs"]], NAMES[:95:-1])
pages = Query(db, selector={"_id": {"$gt": 0}, "name": "julia"}, fields=["_id"]).result
equal("find in pages", [row["_id"] for row in pages], NAMES)
db.delete_query_index("by-age", "json", "age")
equal("delete an index", len(db.get_query_indexes()), 1)

# Feeds
feed = Feed(db, limit=3)
rows = list(feed)
equal("changes", (len(rows), feed.last_seq), (3, rows[-1]["seq"]))
newest = Feed(db, descending=True, limit=1)
newest_rows = list(newest)
equal("the newest change", (newest.last_seq, list(Feed(db, since=newest.last_seq))), (newest_rows[0]["seq"], []))
equal("changes of documents", [row["id"] for row in Feed(db, doc_ids=["julia005"], filter="_doc_ids")], ["julia005"])
beats, seen = 0, []
for row in Feed(db, feed="longpoll", since="now", heartbeat=10):
    if row is None:
        beats += 1
        if beats == 3:
            Document(db, "polled").create()
    else:
        seen.append(row["id"])
equal("a long poll with heartbeats", (beats >= 3, seen), (True, ["polled"]))
live = InfiniteFeed(db, since="now", timeout=100, include_docs=True)
seen = []
threading.Timer(0.5, lambda: Document(db, "first live").create()).start()
for row in live:
    seen.append(row["id"])
    if len(seen) == 1:
        threading.Timer(0.5, lambda: Document(db, "second live").create()).start()
    else:
        live.stop()
equal("an endless feed over several requests", seen, ["first live", "second live"])
names = {row["db_name"] for row in Feed(client, feed="continuous", heartbeat=False, timeout=1000)}
check("database updates without heartbeats", DB in names, names)

# Security
equal("security of a new database", db.get_security_document().json() and set(db.get_security_document()), {"admins", "members"})
with SecurityDocument(db) as security:
    security["members"] = {"names": ["anna"], "roles": ["r"]}
equal("security", db.get_security_document()["members"], {"names": ["anna"], "roles": ["r"]})

# Replication
target = client.create_database(DB + "-copy")
replicator = Replicator(client)
replicator.create_replication(db, target, "client-cloudant-once")
states = [doc.get("_replication_state") or doc.get("state") for doc in replicator.follow_replication("client-cloudant-once")]
equal("a replication is followed to its end", states[-1], "completed")
equal("its state", replicator.replication_state("client-cloudant-once"), "completed")
equal("it is listed", [doc["_id"] for doc in replicator.list_replications() if doc["_id"].startswith("client-")], ["client-cloudant-once"])
equal("all documents", target.doc_count(), db.doc_count())
scheduler = Scheduler(client)
equal("the scheduler names it", scheduler.get_doc("client-cloudant-once")["state"], "completed")
check("among others", any(doc["doc_id"] == "client-cloudant-once" for doc in scheduler.list_docs()["docs"]), scheduler.list_docs())
equal("jobs", set(scheduler.list_jobs()), {"jobs", "offset", "total_rows"})
replicator.stop_replication("client-cloudant-once")
raises("it is gone", requests.HTTPError, lambda: scheduler.get_doc("client-cloudant-once"), lambda e: e.response.status_code == 404)

# Partitions
parts = client.create_database(DB + "-parts", partitioned=True)
parts.bulk_docs([{"_id": f"{part}:{n}", "n": n} for part in ("x", "y") for n in range(4)])
equal("partitioned", parts.metadata()["props"]["partitioned"], True)
equal("a partition", (parts.partition_metadata("x")["doc_count"], len(parts.partitioned_all_docs("y")["rows"])), (4, 4))
equal("a query of it", sorted(row["_id"] for row in parts.get_partitioned_query_result("x", {"n": {"$gt": 1}})), ["x:2", "x:3"])

for name in (DB, DB + "-copy", DB + "-parts"):
    client.delete_database(name)
raises("delete a database again", CloudantClientException, lambda: client.delete_database(DB), lambda e: e.status_code == 404)
client.disconnect()
print("done")

"""Python's `couchdb` (the package CouchDB), the oldest client that is still in use."""

import base64
import io

import couchdb
from couchdb.design import ViewDefinition

from checks import NAME, PASSWORD, URL, URL_WITH_ADMIN, check, equal, raises

DB = "client-couchdb"
server = couchdb.Server(URL_WITH_ADMIN)
check("version", server.version().count(".") == 2, server.version())
equal("uuids", [len(uuid) for uuid in server.uuids(3)], [32, 32, 32])
db = server.create(DB)
check("create a database", DB in server and DB in list(server))
raises("create it again", couchdb.PreconditionFailed, lambda: server.create(DB))
raises("open a missing one", couchdb.ResourceNotFound, lambda: server["client-couchdb-none"])
raises("a wrong password", couchdb.Unauthorized, lambda: list(couchdb.Server(URL.replace("://", f"://{NAME}:wrong@"))))

doc_id, rev = db.save({"type": "Person", "name": "Jöhn 🙂", "age": 42, "ratio": 1.5})
doc = db[doc_id]
equal("insert and get", (doc["name"], doc["age"], doc["ratio"], doc.rev), ("Jöhn 🙂", 42, 1.5, rev))
doc["age"] = 43
db.save(doc)
equal("update", db[doc_id]["age"], 43)
raises("conflict", couchdb.ResourceConflict, lambda: db.save({"_id": doc_id, "_rev": rev, "age": 1}))
raises("get a missing document", couchdb.ResourceNotFound, lambda: db["none"])
check("contains", doc_id in db and "none" not in db)
db["named id/with slash"] = {"a": 1}
equal("an id with a slash", db["named id/with slash"]["a"], 1)

results = db.update([{"_id": f"bulk-{n:03d}", "n": n} for n in range(50)])
check("bulk", all(ok for ok, _, _ in results), results[:2])
results = db.update([{"_id": "bulk-000", "n": "no rev"}, {"_id": "bulk-new"}])
check("bulk with a conflict", not results[0][0] and isinstance(results[0][2], couchdb.ResourceConflict) and results[1][0], results)

rows = list(db.view("_all_docs", startkey="bulk-", endkey="bulk-\ufff0", include_docs=True))
equal("list a range", [row.id for row in rows], [f"bulk-{n:03d}" for n in range(50)] + ["bulk-new"])
equal("with documents", rows[7].doc["n"], 7)
equal("paging", [row.id for row in db.iterview("_all_docs", 7)], sorted(db, key=str.encode))
equal("keys", [row.key for row in db.view("_all_docs", keys=["bulk-003", "bulk-001"])], ["bulk-003", "bulk-001"])
equal(
    "descending with limit and skip",
    [row.id for row in db.view("_all_docs", descending=True, limit=2, skip=1)],
    sorted(db, key=str.encode, reverse=True)[1:3],
)
equal("count", len(db), db.info()["doc_count"])

changes = db.changes(limit=3)
equal("changes", len(changes["results"]), 3)
rest = db.changes(since=changes["last_seq"])
equal("changes since", len(rest["results"]) + 3, len(db))
feed = db.changes(feed="continuous", since=rest["last_seq"], heartbeat=1000, include_docs=True)
db["live"] = {"live": True}
equal("changes live", next(line for line in feed if "id" in line)["doc"]["live"], True)

revisions = list(db.revisions(doc_id))
equal("revisions", [revision["age"] for revision in revisions], [43, 42])
copied = db.copy(doc_id, "copied")
equal("copy", (db["copied"]["age"], db["copied"].rev), (43, copied))
security = {"admins": {"names": ["me"], "roles": []}, "members": {"names": [], "roles": ["r"]}}
db.security = security
equal("security", db.security, security)
db["_local/checkpoint"] = {"seq": 5}
equal("local document", db["_local/checkpoint"]["seq"], 5)
check("commit", db.commit()["ok"] is True)
check("compact", db.compact())
doc = db["copied"]
db.delete(doc)
check("delete", "copied" not in db)
raises("delete with an old rev", couchdb.ResourceConflict, lambda: db.delete({"_id": doc_id, "_rev": rev}))
purged = db.purge([db["bulk-new"]])
check("purge", "bulk-new" in purged["purged"] and "bulk-new" not in db, purged)
db.update([{"_id": f"view-{n:02d}", "kind": n % 3, "amount": n} for n in range(30)])
by_kind = "function (doc) { if (doc.kind !== undefined) emit([doc.kind, doc.amount], doc.amount); }"
views = ViewDefinition.sync_many(db, [ViewDefinition("python", "by_kind", by_kind, "_sum"), ViewDefinition("python", "kinds", by_kind)])
check("sync a design document", all(row[0] for row in views), views)
rows = db.view("python/by_kind", reduce=False, startkey=[1], endkey=[1, {}])
equal("view", [row.value for row in rows], list(range(1, 30, 3)))
equal("view counts", (rows.total_rows, rows.offset), (30, 10))
equal("view reduced", [row.value for row in db.view("python/by_kind")], [435])
equal("view grouped", [(row.key, row.value) for row in db.view("python/by_kind", group_level=1)], [([0], 135), ([1], 145), ([2], 155)])
equal("view keys", [row.id for row in db.view("python/kinds", keys=[[2, 5], [0, 0], [9, 9]])], ["view-05", "view-00"])
equal("view with documents", [row.doc["amount"] for row in db.view("python/kinds", key=[1, 4], include_docs=True)], [4])
equal("view slices", [row.id for row in db.view("python/kinds", descending=True)[[1, {}] : [1, 25]]], ["view-28", "view-25"])
equal("view paging", len(list(db.iterview("python/kinds", 7))), 30)
raises("a view that does not exist", couchdb.ResourceNotFound, lambda: list(db.view("python/none")))
check("view cleanup", db.cleanup())
check("compact a view", db.compact("python"))

text, data = ("So she said “yes”.\n" * 200).encode(), bytes(n * 7919 % 256 for n in range(5000))
db["attached"] = {"with": "attachments"}
doc = db["attached"]
db.put_attachment(doc, text, "note.txt", "text/plain")
db.put_attachment(doc, io.BytesIO(data), "deep/blob.bin", "application/octet-stream")
equal("a text attachment", db.get_attachment("attached", "note.txt").read(), text)
equal("a binary attachment", db.get_attachment(doc, "deep/blob.bin").read(), data)
stubs = db["attached"]["_attachments"]
equal(
    "stubs",
    {name: (stub["content_type"], stub["length"], stub["stub"], stub["revpos"]) for name, stub in stubs.items()},
    {"note.txt": ("text/plain", len(text), True, 2), "deep/blob.bin": ("application/octet-stream", 5000, True, 3)},
)
equal("attachments inline", base64.b64decode(db.get("attached", attachments=True)["_attachments"]["note.txt"]["data"]), text)
db.delete_attachment(doc, "note.txt")
equal("delete an attachment", (list(db["attached"]["_attachments"]), db.get_attachment("attached", "note.txt")), (["deep/blob.bin"], None))

db["_design/functions"] = {
    "shows": {"hello": "function (doc, req) { return 'hello ' + doc._id; }"},
    "lists": {"ids": "function (head, req) { var row, ids = []; while (row = getRow()) { ids.push(row.id); } send(toJSON(ids)); }"},
    "updates": {"bump": "function (doc, req) { doc.bumped = true; return [doc, 'bumped']; }"},
    "views": {"one": {"map": "function (doc) { if (doc._id === 'attached') { emit(null); } }"}},
}
equal("show", db.show("functions/hello", "attached")[1].read(), b"hello attached")
equal("list", db.list("functions/ids", "functions/one")[1], ["attached"])
equal("update handler", (db.update_doc("functions/bump", "attached")[1].read(), db["attached"]["bumped"]), (b"bumped", True))

copy = server.create(DB + "-copy")
done = server.replicate(f"{URL_WITH_ADMIN}/{DB}", f"{URL_WITH_ADMIN}/{DB}-copy")
check("replicate", done["ok"] and done["history"][0]["doc_write_failures"] == 0, done)
leaves = [
    sorted((row["id"], sorted(change["rev"] for change in row["changes"])) for row in each.changes(style="all_docs")["results"])
    for each in (db, copy)
]
equal("the copy has every leaf", leaves[1], leaves[0])
equal("and the attachment", copy.get_attachment("attached", "deep/blob.bin").read(), data)
del server[DB + "-copy"]

server.add_user("couchdb-anna", "sécret", roles=["nurse"])
hers = couchdb.Server(URL)
token = hers.login("couchdb-anna", "sécret")
check("a user logs in", hers.verify_token(token))
raises("with the right password", couchdb.Unauthorized, lambda: couchdb.Server(URL).login("couchdb-anna", "wrong"))
db.security = {"admins": {"names": [], "roles": []}, "members": {"names": [], "roles": ["nurse"]}}
anna = couchdb.Server(URL.replace("://", "://couchdb-anna:s%C3%A9cret@"))
equal("a member reads", anna[DB]["attached"]["bumped"], True)
raises("a member writes no design document", couchdb.http.Forbidden, lambda: anna[DB].save({"_id": "_design/hers"}))
server.remove_user("couchdb-anna")
raises("a user that is gone", couchdb.Unauthorized, lambda: couchdb.Server(URL).login("couchdb-anna", "sécret"))

token = server.login(NAME, PASSWORD)
check("cookie session", token and server.verify_token(token), token)
check("logout", server.logout(token) is not None)
running = {task["type"] for task in server.tasks()}
check("active tasks", running <= {"database_compaction", "indexer", "view_compaction", "replication"}, running)
server.delete(DB)
check("delete the database", DB not in server)
print("done")

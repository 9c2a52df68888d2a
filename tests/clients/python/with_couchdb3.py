"""Python's `couchdb3`, a newer client on httpx."""

import tempfile
import threading

import couchdb3

from checks import NAME, PASSWORD, URL, check, equal, raises, until

DB = "client-couchdb3"
server = couchdb3.Server(URL, user=NAME, password=PASSWORD)
check("up", server.up())
equal("info", server.info()["couchdb"], "Welcome")
db = server.create(DB)
check("create a database", DB in server.all_dbs())
raises("create it again", couchdb3.exceptions.PreconditionFailedError, lambda: server.create(DB))
raises("a wrong password", couchdb3.exceptions.UnauthorizedError, lambda: couchdb3.Server(URL, user=NAME, password="wrong").all_dbs())

doc_id, ok, rev = db.save({"_id": "a", "name": "Jöhn 🙂", "value": 1.0})
check("insert", ok and doc_id == "a")
doc = db.get("a")
equal("get", (doc["name"], doc["value"], doc["_rev"]), ("Jöhn 🙂", 1.0, rev))
doc["value"] = 2
_, ok, second = db.save(doc)
check("update", ok and second.startswith("2-"), second)
raises("conflict", couchdb3.exceptions.ConflictError, lambda: db.save({"_id": "a", "_rev": rev}))
equal("get an old revision", db.get("a", rev=rev)["value"], 1.0)
equal("revs", len(db.get("a", revs=True)["_revisions"]["ids"]), 2)
equal("revs_info", [info["status"] for info in db.get("a", revs_info=True)["_revs_info"]], ["available", "available"])
raises("get a missing document", couchdb3.exceptions.NotFoundError, lambda: db.get("none", check=True))
check("rev by HEAD", second in db.rev("a"), db.rev("a"))
check("contains", "a" in db and "none" not in db)

rows = db.bulk_docs([{"_id": f"bulk-{n:03d}", "n": n} for n in range(50)])
check("bulk", all(row["ok"] for row in rows) and len(rows) == 50, rows[:2])
got = db.bulk_get([{"id": "bulk-001"}, {"id": "bulk-002"}, {"id": "none"}])
equal(
    "bulk_get",
    [[list(doc) for doc in row["docs"]] for row in got["results"]] if isinstance(got, dict) else [[list(doc) for doc in row["docs"]] for row in got],
    [[["ok"]], [["ok"]], [["error"]]],
)
page = db.all_docs(limit=5, skip=10, include_docs=True)
equal("paging", ([row["id"] for row in page.rows], page.total_rows, page.offset), ([f"bulk-{n:03d}" for n in range(9, 14)], 51, 10))
equal("keys", [row["id"] for row in db.all_docs(keys=["bulk-003", "bulk-001"]).rows], ["bulk-003", "bulk-001"])

changes = db.changes(limit=3)
equal("changes", len(changes["results"]), 3)
equal("changes since", len(db.changes(since=changes["last_seq"])["results"]), 48)
equal("changes of documents", [row["id"] for row in db.changes(doc_ids=["a"], filter="_doc_ids")["results"]], ["a"])
equal("changes by selector", [row["id"] for row in db.changes(filter="_selector", selector={"n": {"$gte": 48}})["results"]], ["bulk-048", "bulk-049"])
seen = db.info()["update_seq"]
writer = threading.Timer(0.2, lambda: couchdb3.Server(URL, user=NAME, password=PASSWORD).get(DB).save({"_id": "live", "live": True}))
writer.start()
with db.changes_stream(since=seen, heartbeat=500, include_docs=True, timeout=20_000) as stream:
    live = next(line for line in stream if "id" in line)
writer.join()
equal("changes live", live["doc"]["live"], True)

copied, ok, _ = db.copy("a", "copied")
check("copy", ok and db.get("copied")["value"] == 2)
check("security", db.update_security(admins={"names": ["me"], "roles": []}, members={"names": [], "roles": ["r"]}))
equal("security reads back", db.security()["admins"]["names"], ["me"])
check("compact", db.compact())
check("delete", db.delete("copied", db.get("copied")["_rev"]) and "copied" not in db)
raises("delete with an old rev", couchdb3.exceptions.ConflictError, lambda: db.delete("a", rev))
purged = db.purge({"bulk-049": [db.get("bulk-049")["_rev"]]})
check("purge", "bulk-049" in purged["purged"], purged)
equal("dbs_info", [info["key"] for info in server.dbs_info([DB])], [DB])
check("membership", server.membership()["all_nodes"] == server.membership()["cluster_nodes"])
server.set_node_config("vectest", "from_couchdb3", "1")
equal("configuration", server.node_config(section="vectest", key="from_couchdb3"), "1")
server.delete_node_config("vectest", "from_couchdb3")

text, data = ("So she said “yes”.\n" * 200).encode(), bytes(n * 7919 % 256 for n in range(5000))
_, _, rev = db.save({"_id": "attached"})
_, _, rev = db.put_attachment("attached", "note.txt", rev=rev, content=text, content_type="text/plain")
with tempfile.NamedTemporaryFile(suffix=".png") as file:
    file.write(data)
    file.flush()
    _, _, rev = db.put_attachment("attached", "deep/blob.png", rev=rev, path=file.name)
note = db.get_attachment("attached", "note.txt")
equal("a text attachment", (note.content, note.content_type), (text, "text/plain"))
equal("an attachment sent in chunks", db.get_attachment("attached", "deep/blob.png").content, data)
equal(
    "stubs",
    {name: (stub["length"], stub["revpos"]) for name, stub in db.get("attached")["_attachments"].items()},
    {"note.txt": (len(text), 2), "deep/blob.png": (5000, 3)},
)
db.delete_attachment("attached", "note.txt", rev)
equal("delete an attachment", list(db.get("attached")["_attachments"]), ["deep/blob.png"])
raises("an attachment that is gone", couchdb3.exceptions.NotFoundError, lambda: db.get_attachment("attached", "note.txt"))

db.put_design("functions", views={"by_n": {"map": "function (doc) { if (doc.n !== undefined) { emit(doc.n % 2, doc.n); } }", "reduce": "_sum"}})
equal("view", [row["value"] for row in db.view("functions", "by_n", group=True).rows], [sum(range(0, 49, 2)), sum(range(1, 49, 2))])
equal("view by key", [row["value"] for row in db.view("functions", "by_n", reduce=False, key=1, limit=2).rows], [1, 3])

endpoint = lambda name: {"url": f"{URL}/{name}", "auth": {"basic": {"username": NAME, "password": PASSWORD}}}
done = server.replicate(source=endpoint(DB), target=endpoint(DB + "-copy"), create_target=True)
copy = server.get(DB + "-copy")
leaves = [
    sorted((row["id"], sorted(change["rev"] for change in row["changes"])) for row in each.changes(style="all_docs")["results"])
    for each in (db, copy)
]
equal("replicate: the copy has every leaf", leaves[1], leaves[0])
equal("and the attachment", copy.get_attachment("attached", "deep/blob.png").content, data)
started = server.replicate(source=endpoint(DB), target=endpoint(DB + "-copy"), continuous=True)
db.save({"_id": "written later", "late": True})
check("a continuous replication goes on", until(lambda: "written later" in copy))
check("and shows in the active tasks", any(task["type"] == "replication" for task in server.active_tasks()), server.active_tasks())
check("no password is shown", PASSWORD + "@" not in str(server.active_tasks()))
server.replicate(source=endpoint(DB), target=endpoint(DB + "-copy"), continuous=True, cancel=True)
check("it is cancelled", until(lambda: not any(task["type"] == "replication" for task in server.active_tasks())))
server.delete(DB + "-copy")

server.save_user("couchdb3-anna", password="sécret", roles=["r"])
check("a user logs in", server.check_user("couchdb3-anna", "sécret"))
raises(
    "a wrong password of hers", couchdb3.exceptions.UnauthorizedError, lambda: couchdb3.Server(URL, user="couchdb3-anna", password="wrong").all_dbs()
)
anna = couchdb3.Server(URL, user="couchdb3-anna", password="sécret", auth_method="basic").get(DB)
equal("a member reads", anna.get("written later")["late"], True)
raises("a member writes no design document", couchdb3.exceptions.ForbiddenError, lambda: anna.save({"_id": "_design/hers"}))
users = server.get("_users")
users.delete("org.couchdb.user:couchdb3-anna", users.get("org.couchdb.user:couchdb3-anna").rev)

cookie = couchdb3.Server(URL, user=NAME, password=PASSWORD, auth_method="cookie")
check("cookie session", DB in cookie.all_dbs())
basic = couchdb3.Server(URL, user=NAME, password=PASSWORD, auth_method="basic")
check("Basic authentication", DB in basic.all_dbs())

pdb = server.create("client-couchdb3-parts", partitioned=True)
pdb.bulk_docs([{"_id": f"{part}:{n}", "n": n} for part in ("x", "y") for n in range(4)])
equal("partition", pdb.get_partition("x").info()["doc_count"], 4)
equal("partition list", [row["id"] for row in pdb.all_docs(partition="y").rows], ["y:0", "y:1", "y:2", "y:3"])
check("delete the databases", server.delete(DB) and server.delete("client-couchdb3-parts") and DB not in server.all_dbs())
print("done")

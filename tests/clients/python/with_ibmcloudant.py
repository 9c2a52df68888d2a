"""IBM's Cloudant SDK for Python: everything in it that is CouchDB's (Mango comes later)."""

import base64
import io
import json
import threading

from ibm_cloud_sdk_core import ApiException
from ibm_cloud_sdk_core.authenticators import BasicAuthenticator
from ibmcloudant import CouchDbSessionAuthenticator
from ibmcloudant.cloudant_v1 import BulkDocs, BulkGetQueryDocument, CloudantV1, Document
from ibmcloudant.features.changes_follower import ChangesFollower
from ibmcloudant.features.pagination import PagerType, Pagination

from checks import NAME, PASSWORD, URL, check, equal, raises, until

DB, COPY, PARTS = "client-ibmcloudant", "client-ibmcloudant-copy", "client-ibmcloudant-parts"


def connect(authenticator):
    service = CloudantV1(authenticator=authenticator)
    service.set_service_url(URL)
    return service


def refused(name, status, act, error=None):
    raises(name, ApiException, act, lambda thrown: thrown.status_code == status and (error is None or error in str(thrown.http_response.text)))


def ids(rows):
    return [row["id"] for row in rows]


service = connect(BasicAuthenticator(NAME, PASSWORD))

# The server and its databases.
equal("server information", service.get_server_information().get_result()["couchdb"], "Welcome")
equal("up", service.get_up_information().get_result()["status"], "ok")
equal("uuids", [len(uuid) for uuid in service.get_uuids(count=3).get_result()["uuids"]], [32, 32, 32])
equal("create a database", service.put_database(db=DB).get_result(), {"ok": True})
refused("create it again", 412, lambda: service.put_database(db=DB), "file_exists")
check("all databases", DB in service.get_all_dbs().get_result())
equal("databases by name", [row["key"] for row in service.post_dbs_info(keys=[DB]).get_result()], [DB])
equal("database information", service.get_database_information(db=DB).get_result()["doc_count"], 0)
equal("head of a database", service.head_database(db=DB).get_status_code(), 200)
check("updates", until(lambda: any(row["db_name"] == DB for row in service.get_db_updates(since="0").get_result()["results"])))

# Documents.
first = service.put_document(db=DB, doc_id="a b/ü+", document=Document(name="Jöhn 🙂", when=1.5)).get_result()
equal(
    "put and get", service.get_document(db=DB, doc_id="a b/ü+").get_result(), {"_id": "a b/ü+", "_rev": first["rev"], "name": "Jöhn 🙂", "when": 1.5}
)
refused("conflict", 409, lambda: service.put_document(db=DB, doc_id="a b/ü+", document={}), "conflict")
second = service.put_document(db=DB, doc_id="a b/ü+", if_match=first["rev"], document={"name": "Peter"}).get_result()
equal("head", service.head_document(db=DB, doc_id="a b/ü+").get_headers()["ETag"], f'"{second["rev"]}"')
equal("an old revision", service.get_document(db=DB, doc_id="a b/ü+", rev=first["rev"]).get_result()["name"], "Jöhn 🙂")
info = service.get_document(db=DB, doc_id="a b/ü+", revs=True, revs_info=True).get_result()
equal("revisions", [len(info["_revisions"]["ids"]), [row["status"] for row in info["_revs_info"]]], [2, ["available", "available"]])
posted = service.post_document(db=DB, document={"posted": True}).get_result()
equal("post", service.get_document(db=DB, doc_id=posted["id"]).get_result()["posted"], True)
equal("delete", service.delete_document(db=DB, doc_id=posted["id"], rev=posted["rev"]).get_result()["ok"], True)
refused("get a deleted document", 404, lambda: service.get_document(db=DB, doc_id=posted["id"]), "deleted")
equal("get as a stream", json.loads(service.get_document_as_stream(db=DB, doc_id="a b/ü+").get_result().content)["name"], "Peter")
service.put_local_document(db=DB, doc_id="checkpoint", document={"seq": 7})
equal("a local document", service.get_local_document(db=DB, doc_id="checkpoint").get_result()["seq"], 7)
service.delete_local_document(db=DB, doc_id="checkpoint")
refused("a local document that is gone", 404, lambda: service.get_local_document(db=DB, doc_id="checkpoint"))

# Bulk.
docs = [Document(_id=f"bulk-{n:03d}", n=n, tag=f"t{n % 4}") for n in range(100)]
equal("bulk", sum(row.get("ok", False) for row in service.post_bulk_docs(db=DB, bulk_docs=BulkDocs(docs=docs)).get_result()), 100)
again = service.post_bulk_docs(db=DB, bulk_docs={"docs": [{"_id": "bulk-000"}, {"_id": "bulk-new"}]}).get_result()
equal("bulk with a conflict", [again[0]["error"], again[1]["ok"]], ["conflict", True])
stream = io.BytesIO(json.dumps({"docs": [{"_id": "bulk-streamed"}]}).encode())
equal("bulk from a stream", service.post_bulk_docs(db=DB, bulk_docs=stream, headers={"Content-Type": "application/json"}).get_result()[0]["ok"], True)
low, high, ancestor = ("1" * 32, "f" * 32, "a" * 32)
grafts = [{"_id": "forked", "_rev": f"2-{hash_}", "_revisions": {"start": 2, "ids": [hash_, ancestor]}, "from": hash_[0]} for hash_ in (low, high)]
equal("bulk of replicated revisions", service.post_bulk_docs(db=DB, bulk_docs={"docs": grafts, "new_edits": False}).get_result(), [])
winner = service.get_document(db=DB, doc_id="forked", conflicts=True).get_result()
equal("conflicts", [winner["from"], winner["_conflicts"]], ["f", [f"2-{low}"]])
got = service.post_bulk_get(
    db=DB, docs=[BulkGetQueryDocument(id="bulk-003"), BulkGetQueryDocument(id="forked", rev=f"2-{low}"), BulkGetQueryDocument(id="none")]
).get_result()
equal("bulk get", [row["docs"][0].get("ok", {}).get("_id", "error") for row in got["results"]], ["bulk-003", "forked", "error"])
diff = service.post_revs_diff(db=DB, document_revisions={"forked": [f"2-{low}", "3-x"], "none": ["1-a"]}).get_result()
equal("revs_diff", [diff["forked"]["missing"], diff["none"]["missing"]], [["3-x"], ["1-a"]])

# Lists.
page = service.post_all_docs(db=DB, start_key="bulk-010", end_key="bulk-013", inclusive_end=False, include_docs=True).get_result()
equal("all_docs of a range", [row["doc"]["n"] for row in page["rows"]], [10, 11, 12])
both = service.post_all_docs_queries(db=DB, queries=[{"keys": ["bulk-001"]}, {"start_key": "bulk-09", "limit": 2}]).get_result()["results"]
equal("all_docs with several queries", [ids(result["rows"]) for result in both], [["bulk-001"], ["bulk-090", "bulk-091"]])
pager = Pagination.new_pagination(service, PagerType.POST_ALL_DOCS, db=DB, limit=30, start_key="bulk-000", end_key="bulk-099")
equal("paging", [row.id for row in pager.rows()], [f"bulk-{n:03d}" for n in range(100)])

# Changes.
start = service.post_changes(db=DB, limit=5).get_result()
about = service.get_database_information(db=DB).get_result()
everything = about["doc_count"] + about["doc_del_count"]
rest = service.post_changes(db=DB, since=start["last_seq"]).get_result()
equal("changes", [len(start["results"]), len(start["results"]) + len(rest["results"]), start["pending"]], [5, everything, everything - 5])
equal(
    "changes by selector",
    ids(service.post_changes(db=DB, filter="_selector", selector={"n": {"$gte": 98}}).get_result()["results"]),
    ["bulk-098", "bulk-099"],
)
equal("changes by document ids", ids(service.post_changes(db=DB, filter="_doc_ids", doc_ids=["bulk-007"]).get_result()["results"]), ["bulk-007"])
continuous = service.post_changes_as_stream(db=DB, feed="continuous", since=rest["last_seq"], timeout=500).get_result()
service.put_document(db=DB, doc_id="live-1", document={"live": 1})
lines = [json.loads(line) for line in continuous.iter_lines() if line.strip()]
check("a continuous feed to its end", lines[0]["id"] == "live-1" and "last_seq" in lines[-1], lines)
equal("a follower, once", len(list(ChangesFollower(service, db=DB).start_one_off())), everything + 1)
follower = ChangesFollower(service, db=DB, since=rest["last_seq"], include_docs=True, limit=3)
seen = []
following = threading.Thread(target=lambda: seen.extend(change.doc.to_dict()["live"] for change in follower.start()))
following.start()
for n in (2, 3):
    service.put_document(db=DB, doc_id=f"live-{n}", document={"live": n})


def ends():
    """A follower that has what it was to give waits for the answer to its last request, for up to a minute."""
    if len(seen) == 3:
        service.post_document(db=DB, document={"for": "the last request"})
    return not following.is_alive()


check("a follower ends", until(ends))
equal("a follower, live", sorted(seen), [1, 2, 3])

# Views.
by_tag = {"map": "function (doc) { if (doc.tag) { emit(doc.tag, doc.n); } }"}
service.put_design_document(db=DB, ddoc="sdk", design_document={"views": {"by_tag": {**by_tag, "reduce": "_stats"}, "plain": by_tag}})
equal("a design document", service.get_design_document(db=DB, ddoc="sdk").get_result()["views"]["by_tag"]["reduce"], "_stats")
equal("design documents", ids(service.post_design_docs(db=DB).get_result()["rows"]), ["_design/sdk"])
rows = service.post_view(db=DB, ddoc="sdk", view="by_tag", reduce=False, key="t1", limit=3).get_result()["rows"]
equal("view", [row["value"] for row in rows], [1, 5, 9])
equal(
    "view reduced",
    service.post_view(db=DB, ddoc="sdk", view="by_tag").get_result()["rows"][0]["value"],
    {"sum": 4950, "count": 100, "min": 0, "max": 99, "sumsqr": 328350},
)
several = service.post_view_queries(
    db=DB, ddoc="sdk", view="by_tag", queries=[{"reduce": False, "limit": 1}, {"group": True, "limit": 2}]
).get_result()["results"]
equal("view with several queries", [[row["key"] for row in result["rows"]] for result in several], [["t0"], ["t0", "t1"]])
equal("view paging", len(list(Pagination.new_pagination(service, PagerType.POST_VIEW, db=DB, ddoc="sdk", view="plain", limit=30).rows())), 100)
equal("view information", service.get_design_document_information(db=DB, ddoc="sdk").get_result()["name"], "sdk")

# Attachments.
TEXT, BYTES = ("So she said “yes”.\n" * 200).encode(), bytes(n * 7919 % 256 for n in range(5000))
one = service.put_attachment(db=DB, doc_id="attached", attachment_name="note.txt", attachment=TEXT, content_type="text/plain").get_result()
two = service.put_attachment(
    db=DB, doc_id="attached", attachment_name="deep/blob.bin", attachment=io.BytesIO(BYTES), content_type="application/octet-stream", rev=one["rev"]
).get_result()
equal("get a text", service.get_attachment(db=DB, doc_id="attached", attachment_name="note.txt").get_result().content, TEXT)
equal("get bytes", service.get_attachment(db=DB, doc_id="attached", attachment_name="deep/blob.bin").get_result().content, BYTES)
# The SDK gzips what it uploads, and of what is stored gzipped CouchDB gives no ranges.
equal(
    "a range of what was gzipped is all of it",
    service.get_attachment(db=DB, doc_id="attached", attachment_name="deep/blob.bin", range="bytes=10-19").get_result().content,
    BYTES,
)
head = service.head_attachment(db=DB, doc_id="attached", attachment_name="deep/blob.bin").get_headers()
equal("head of an attachment", head["Content-Type"], "application/octet-stream")
stubs = service.get_document(db=DB, doc_id="attached", att_encoding_info=True).get_result()["_attachments"]
equal(
    "stubs",
    [[stubs[name].get(part) for part in ("content_type", "stub", "revpos")] for name in ("note.txt", "deep/blob.bin")],
    [["text/plain", True, 1], ["application/octet-stream", True, 2]],
)
inline = service.get_document(db=DB, doc_id="attached", attachments=True).get_result()["_attachments"]
equal("inline", [base64.b64decode(inline[name]["data"]) for name in ("note.txt", "deep/blob.bin")], [TEXT, BYTES])
related = service.get_document_as_related(db=DB, doc_id="attached", attachments=True).get_result().content
check("the document as multipart/related", b'"follows":true' in related and b'filename="deep/blob.bin"' in related, related[:500])
three = service.delete_attachment(db=DB, doc_id="attached", attachment_name="note.txt", rev=two["rev"]).get_result()
equal("delete an attachment", list(service.get_document(db=DB, doc_id="attached").get_result()["_attachments"]), ["deep/blob.bin"])
refused(
    "a stub of nothing", 412, lambda: service.put_document(db=DB, doc_id="no stub", document={"_attachments": {"x": {"stub": True}}}), "missing_stub"
)

# Search.
INDEX = """function (doc) {
  if (!doc.fruit) return;
  index("default", doc.fruit, {store: true});
  index("kind", doc.kind, {facet: true});
  index("price", doc.price);
}"""
service.put_design_document(db=DB, ddoc="fruit", design_document={"indexes": {"fruit": {"analyzer": {"name": "standard"}, "index": INDEX}}})
FRUITS = [
    {"_id": "fruit-a", "fruit": "green apple", "kind": "apple", "price": 1},
    {"_id": "fruit-b", "fruit": "green pear", "kind": "pear", "price": 2},
]
service.post_bulk_docs(db=DB, bulk_docs={"docs": FRUITS})


def search(**options):
    return service.post_search(db=DB, ddoc="fruit", index="fruit", **options).get_result()


found = search(query="green", counts=["kind"], ranges={"price": {"cheap": "[0 TO 1]"}}, sort=["-price<number>"], highlight_fields=["default"])
equal("search", [found["total_rows"], found["counts"], found["ranges"]], [2, {"kind": {"apple": 1, "pear": 1}}, {"price": {"cheap": 1}}])
equal("in order, with highlights", [row["highlights"]["default"] for row in found["rows"]], [["<em>green</em> pear"], ["<em>green</em> apple"]])
equal("drilled down", ids(search(query="green", drilldown=[["kind", "apple"]], include_docs=True)["rows"]), ["fruit-a"])
page = search(query="green", limit=1)
equal("all pages", sorted(ids(page["rows"]) + ids(search(query="green", limit=1, bookmark=page["bookmark"])["rows"])), ["fruit-a", "fruit-b"])
groups = search(query="green", group_field="kind", group_sort=["-price"])["groups"]
equal("in groups", [[group["by"], group["total_rows"]] for group in groups], [["pear", 1], ["apple", 1]])
info = service.get_search_info(db=DB, ddoc="fruit", index="fruit").get_result()
equal("search information", [info["name"], info["search_index"]["doc_count"]], ["_design/fruit/fruit", 2])
size = service.get_search_disk_size(db=DB, ddoc="fruit", index="fruit").get_result()
equal("search disk size", size["search_index"]["disk_size"], info["search_index"]["disk_size"])
equal("analyze", service.post_search_analyze(analyzer="english", text="running").get_result(), {"tokens": ["run"]})
refused("a query that is none", 400, lambda: search(query="("), "bad_request")

# Partitions.
service.put_database(db=PARTS, partitioned=True)
service.post_bulk_docs(db=PARTS, bulk_docs={"docs": [{"_id": id_} for id_ in ("x:1", "x:2", "y:1")]})
equal("partition", service.get_partition_information(db=PARTS, partition_key="x").get_result()["doc_count"], 2)
equal("all_docs of a partition", ids(service.post_partition_all_docs(db=PARTS, partition_key="x").get_result()["rows"]), ["x:1", "x:2"])
service.put_design_document(db=PARTS, ddoc="s", design_document={"indexes": {"i": {"index": "function (doc) { index('id', doc._id); }"}}})
within = service.post_partition_search(db=PARTS, partition_key="x", ddoc="s", index="i", query="*:*").get_result()
equal("search in a partition", sorted(ids(within["rows"])), ["x:1", "x:2"])
service.delete_database(db=PARTS)

# Users, security and sessions.
service.put_security(db=DB, admins={"names": ["boss"], "roles": []}, members={"names": [], "roles": ["staff"]})
equal("security", service.get_security(db=DB).get_result()["members"]["roles"], ["staff"])
USER = "org.couchdb.user:sdk-worker"
service.put_document(db="_users", doc_id=USER, document={"name": "sdk-worker", "password": "pa:ss wörd", "roles": ["staff"], "type": "user"})
stored = service.get_document(db="_users", doc_id=USER).get_result()
check("the password is not stored", "password" not in stored and stored["password_scheme"] == "pbkdf2", stored)
worker = connect(CouchDbSessionAuthenticator("sdk-worker", "pa:ss wörd"))
equal("a member with a session", worker.get_document(db=DB, doc_id="bulk-001").get_result()["n"], 1)
equal("who am I", worker.get_session_information().get_result()["userCtx"], {"name": "sdk-worker", "roles": ["staff"]})
refused("a member writes no design document", 403, lambda: worker.put_design_document(db=DB, ddoc="x", design_document={}), "forbidden")
stranger = connect(BasicAuthenticator("sdk-worker", "wrong"))
refused("a wrong password", 401, lambda: stranger.get_document(db=DB, doc_id="bulk-001"), "unauthorized")
service.delete_document(db="_users", doc_id=USER, rev=stored["_rev"])
session = connect(CouchDbSessionAuthenticator(NAME, PASSWORD)).get_session_information().get_result()
equal("an admin's session", [session["userCtx"]["roles"], session["info"]["authenticated"]], [["_admin"], "cookie"])

# Replication.
basic = {"auth": {"basic": {"username": NAME, "password": PASSWORD}}}
document = {"source": {"url": f"{URL}/{DB}", **basic}, "target": {"url": f"{URL}/{COPY}", **basic}, "create_target": True}
service.put_replication_document(doc_id="sdk-replication", replication_document=document)


def completed():
    try:
        return service.get_scheduler_document(doc_id="sdk-replication").get_result()["state"] == "completed"
    except ApiException:
        return False  # the scheduler has not seen it yet


check("the replication completes", until(completed))
leaves = [
    sorted(
        (row["id"], sorted(change["rev"] for change in row["changes"]))
        for row in service.post_changes(db=db, style="all_docs").get_result()["results"]
    )
    for db in (DB, COPY)
]
equal("the copy has every leaf", leaves[1], leaves[0])
shown = json.dumps([service.get_scheduler_docs().get_result(), service.get_scheduler_jobs().get_result()])
check("no password is shown", "sdk-replication" in shown and f"{NAME}:{PASSWORD}" not in shown and "basic" not in shown, shown[:500])
revision = service.get_replication_document(doc_id="sdk-replication").get_result()["_rev"]
service.delete_replication_document(doc_id="sdk-replication", rev=revision)
service.delete_database(db=COPY)

# The SDK can compress what it sends.
service.set_enable_gzip_compression(True)
service.put_document(db=DB, doc_id="compressed", document={"text": "z" * 100_000})
service.set_enable_gzip_compression(False)
equal("a compressed body", len(service.get_document(db=DB, doc_id="compressed").get_result()["text"]), 100_000)

equal("delete the database", service.delete_database(db=DB).get_result(), {"ok": True})
refused("delete it again", 404, lambda: service.delete_database(db=DB), "not_found")
print("done")

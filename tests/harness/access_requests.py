"""Requests about one document of a database with access, for each endpoint that members reach, and the documents and principals that
the authorisation matrix tries them with.

`{id}` and `{rev}` stand for the document, `{me}` for the name of the caller.
"""

import base64
import json
import urllib.parse

# By name: roles, and the documents (of DOCUMENTS) that the user may read.
USERS = {
    "alice": ([], {"own", "shared", "public"}),
    "nora": (["nurse"], {"shared", "public"}),
    "stranger": ([], {"public"}),
    "carol": ([], {"hidden", "gone", "lost", "overruled", "public"}),
    "dbadmin": ([], None),
}
WRITES = {"alice": {"own", "shared"}, "carol": {"hidden", "lost", "overruled"}}
ALL = {"read": ["alice", "nora", "stranger"], "write": ["carol"]}
DOCUMENTS = {
    "own": ["alice"],
    "shared": {"read": ["role:nurse"], "write": ["alice"]},
    "public": {"read": ["*"]},
    "hidden": ["carol"],
    "admins": None,
    "gone": ["carol"],
    "lost": ["carol"],
    "overruled": ["carol"],
}
SECURITY = {"admins": {"names": ["dbadmin"], "roles": []}, "members": {"names": list(USERS), "roles": []}}


def mark(doc_id):
    return f"MARK-{doc_id}."


def body(kind, doc_id):
    content = base64.b64encode(f"FILE-{doc_id}.".encode()).decode()
    doc = {"t": mark(doc_id), "_attachments": {"file.txt": {"content_type": "text/plain", "data": content}}}
    return doc if DOCUMENTS[kind] is None else {**doc, "_access": DOCUMENTS[kind]}


def create(admin, made):
    """Creates documents, which are [(kind, id)] with kinds of DOCUMENTS. Returns the revision of each: of a hidden winner, where there is one."""
    leaves = {"lost": ALL, "overruled": ALL}
    first = [{"_id": doc_id, **body(kind, doc_id), **({"_access": leaves[kind]} if kind in leaves else {})} for kind, doc_id in made]
    rows = admin.expect(201, "POST", "/db/_bulk_docs", {"docs": first})
    revs = {row["id"]: row["rev"] for row in rows}
    lost = [{"_id": doc_id, "_rev": revs[doc_id], **body(kind, doc_id)} for kind, doc_id in made if kind == "lost"]
    gone = [{"_id": doc_id, "_rev": revs[doc_id], "_deleted": True} for kind, doc_id in made if kind == "gone"]
    revs |= {row["id"]: row["rev"] for row in admin.expect(201, "POST", "/db/_bulk_docs", {"docs": lost + gone})}
    winner = "7-" + "e" * 32
    hidden = [{"_id": doc_id, "_rev": winner, **body(kind, doc_id)} for kind, doc_id in made if kind == "overruled"]
    admin.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": hidden})
    return revs | {doc["_id"]: winner for doc in hidden}


def query(**options):
    return "?" + "&".join(f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in options.items())


ONE = '"{id}"'
# Where a hidden document and a missing one must get the same answer, and a visible one another.
READS = {
    "GET /{db}/{docid}": [
        ("", None, {}),
        (query(meta=True, revs=True, local_seq=True, attachments=True), None, {}),
        (query(rev="{rev}"), None, {}),
        (query(rev="{rev}", latest=True, revs_info=True), None, {}),
        (query(open_revs="all"), None, {}),
        (query(open_revs="all", revs=True, attachments=True), None, {"Accept": "multipart/mixed"}),
        (query(open_revs=["{rev}"], latest=True, revs=True), None, {}),
        (query(conflicts=True, deleted_conflicts=True, atts_since=["{rev}"]), None, {}),
        ("", None, {"If-None-Match": '"{rev}"'}),
    ],
    "HEAD /{db}/{docid}": [("", None, {}), (query(rev="{rev}"), None, {}), ("", None, {"If-None-Match": '"{rev}"'})],
    "GET /{db}/{docid}/{attname}": [("", None, {}), (query(rev="{rev}"), None, {}), ("", None, {"Range": "bytes=0-3"})],
    "HEAD /{db}/{docid}/{attname}": [("", None, {}), (query(rev="{rev}"), None, {})],
    "GET /{db}/_all_docs": [
        (query(key=ONE), None, {}),
        (query(keys=["{id}"], include_docs=True), None, {}),
        (query(startkey=ONE, endkey=ONE, include_docs=True, conflicts=True), None, {}),
        (query(startkey=ONE, endkey=ONE, descending=True), None, {}),
        (query(startkey=ONE, endkey=ONE, limit=1, skip=0), None, {}),
    ],
    "POST /{db}/_all_docs": [(query(include_docs=True, conflicts=True, attachments=True), {"keys": ["{id}"]}, {})],
    "POST /{db}/_all_docs/queries": [("", {"queries": [{"keys": ["{id}"], "include_docs": True}, {"key": "{id}"}]}, {})],
    "POST /{db}/_bulk_get": [
        ("", {"docs": [{"id": "{id}"}]}, {}),
        (query(revs=True, latest=True), {"docs": [{"id": "{id}", "rev": "{rev}", "atts_since": ["{rev}"]}]}, {}),
        (query(revs=True), {"docs": [{"id": "{id}", "rev": "{rev}"}]}, {"Accept": "multipart/related"}),
    ],
    "POST /{db}/_bulk_get?attachments=true": [("", {"docs": [{"id": "{id}"}]}, {})],
    "POST /{db}/_revs_diff": [("", {"{id}": ["{rev}", "9-f"]}, {})],
    "POST /{db}/_missing_revs": [("", {"{id}": ["{rev}", "9-f"]}, {})],
    "GET /{db}/_changes": [(query(filter="_doc_ids", doc_ids=["{id}"], style="all_docs"), None, {})],
    "POST /{db}/_changes": [
        (query(filter="_doc_ids", include_docs=True, conflicts=True, attachments=True), {"doc_ids": ["{id}"]}, {}),
        (query(filter="_selector", style="all_docs"), {"selector": {"_id": "{id}"}}, {}),
        (query(filter="_selector", style="all_docs", include_docs=True), {"selector": {"t": "MARK-{id}."}}, {}),
    ],
    "GET /{db}/_design/{ddoc}/_view/{view}": [
        (query(key=ONE), None, {}),
        (query(key=ONE, update_seq=True, stale="ok"), None, {}),
        (query(startkey=ONE, endkey=ONE, descending=True, include_docs=True, conflicts=True, attachments=True), None, {}),
    ],
    "POST /{db}/_design/{ddoc}/_view/{view}": [(query(include_docs=True, update="false"), {"keys": ["{id}", "none"]}, {})],
    "POST /{db}/_design/{ddoc}/_view/{view}/queries": [("", {"queries": [{"key": "{id}"}, {"keys": ["{id}"], "update": "lazy"}]}, {})],
    "POST /{db}/_find": [
        ("", {"selector": {"_id": "{id}"}}, {}),
        ("", {"selector": {"t": "MARK-{id}."}, "fields": ["_id", "t"]}, {}),
        ("", {"selector": {"_id": {"$gte": "{id}"}, "t": "MARK-{id}."}, "sort": [{"_id": "desc"}], "conflicts": True}, {}),
    ],
}
MINE = {"_access": ["{me}"]}
STUB = {"file.txt": {"stub": True}}
CONTENT = {"b.txt": {"follows": True, "length": 4, "content_type": "text/plain"}}


def related(doc):
    return b"--b\r\nContent-Type: application/json\r\n\r\n" + json.dumps(doc).encode() + b"\r\n--b\r\n\r\ntext\r\n--b--"


RELATED = {"Content-Type": 'multipart/related; boundary="b"'}
# Edits of the revision that is there, which need write. What a hidden document and a missing one answer is the same.
EDITS = {
    "PUT /{db}/{docid}": [
        (query(rev="{rev}"), MINE, {}),
        ("", {"_rev": "{rev}", **MINE}, {}),
        ("", MINE, {"If-Match": "{rev}"}),
        (query(rev="{rev}"), {**MINE, "_attachments": STUB}, {}),
    ],
    "DELETE /{db}/{docid}": [(query(rev="{rev}"), None, {}), ("", None, {"If-Match": "{rev}"})],
    "PUT /{db}/{docid}/{attname}": [(query(rev="{rev}"), b"x", {})],
    "DELETE /{db}/{docid}/{attname}": [(query(rev="{rev}"), None, {})],
    "COPY /{db}/{docid}": [("", None, {"Destination": "copy-of-{id}"}), (query(rev="{rev}"), None, {"Destination": "copy-of-{id}"})],
    "COPY /{db}/mine": [("", None, {"Destination": "{id}?rev={rev}"})],
    "POST /{db}": [("", {"_id": "{id}", "_rev": "{rev}", **MINE}, {})],
    "POST /{db}/_bulk_docs": [
        ("", {"docs": [{"_id": "{id}", "_rev": "{rev}", **MINE}]}, {}),
        ("", {"docs": [{"_id": "{id}", "_rev": "{rev}", "_deleted": True}]}, {}),
        ("", {"docs": [{"_id": "{id}", "_rev": "{rev}", "_attachments": STUB, **MINE}]}, {}),
    ],
    "PUT /{db}/{docid}-with-attachments": [(query(rev="{rev}"), {**MINE, "_attachments": {**CONTENT, **STUB}}, RELATED)],
}
# New documents: a 409 shows that the id is in use, whoever may read the document (docs/src/guide/access.md, "Numbers").
CREATIONS = {
    "PUT /{db}/{docid}": [("", MINE, {})],
    "PUT /{db}/{docid}/{attname}": [("", b"x", {})],
    "COPY /{db}/mine": [("", None, {"Destination": "{id}"})],
    "POST /{db}": [("", {"_id": "{id}", **MINE}, {})],
    "POST /{db}/_bulk_docs": [("", {"docs": [{"_id": "{id}", **MINE}]}, {})],
    "PUT /{db}/{docid}-with-attachments": [("", {**MINE, "_attachments": CONTENT}, RELATED)],
}
# Replicated edits: a 403 shows it too.
REPLICATED = {
    "PUT /{db}/{docid}": [(query(new_edits=False), {"_revisions": {"start": 9, "ids": ["f" * 32]}, **MINE}, {})],
    "POST /{db}/_bulk_docs": [
        ("", {"new_edits": False, "docs": [{"_id": "{id}", "_revisions": {"start": 9, "ids": ["f" * 32]}, **MINE}]}, {}),
        ("", {"new_edits": False, "docs": [{"_id": "{id}", "_rev": "9-" + "f" * 32, "_deleted": True, **MINE}]}, {}),
    ],
}
# Each user has others: nobody sees those of the owner.
LOCAL = {
    "GET /{db}/_local/{docid}": [("", None, {})],
    "DELETE /{db}/_local/{docid}": [("", None, {}), (query(rev="0-1"), None, {})],
    "COPY /{db}/_local/{docid}": [("", None, {"Destination": "_local/copy-{me}"})],
    "PUT /{db}/_local/{docid}": [("", {"t": "{me}"}, {})],
}
# Which all members have, and which are of no document.
OTHERS = [
    "HEAD /{db}",
    "GET /{db}",
    "GET /{db}/_security",
    "POST /{db}/_ensure_full_commit",
    "HEAD /{db}/_design/{ddoc}",
    "GET /{db}/_design/{ddoc}",
    "GET /{db}/_design%2F{ddoc}",
    "HEAD /{db}/_design/{ddoc}/{attname}",
    "GET /{db}/_design/{ddoc}/{attname}",
    "GET /{db}/_design/{ddoc}/_view/linked?include_docs=true",
]
# Whole listings, in which exactly the readable documents are.
LISTINGS = [
    "GET /{db}/_all_docs?include_docs=true&attachments=true",
    "GET /{db}/_all_docs?include_docs=true&descending=true&conflicts=true",
    'POST /{db}/_all_docs/queries {"queries":[{"include_docs":true}]}',
    "GET /{db}/_changes?include_docs=true&style=all_docs&attachments=true",
    "GET /{db}/_changes?include_docs=true&feed=continuous&timeout=1",
    "GET /{db}/_changes?include_docs=true&feed=longpoll&timeout=1&conflicts=true",
    "GET /{db}/_changes?include_docs=true&feed=eventsource&timeout=1",
    'POST /{db}/_changes?include_docs=true&filter=_selector {"selector":{"t":{"$gt":null}}}',
    "GET /{db}/_design/d/_view/v?include_docs=true&attachments=true",
    "GET /{db}/_design/d/_view/v?include_docs=true&descending=true&conflicts=true&stale=ok",
    'POST /{db}/_design/d/_view/v/queries {"queries":[{"include_docs":true}]}',
    'POST /{db}/_find {"selector":{"t":{"$gt":null}},"limit":1000}',
]


def covered():
    """The endpoints that users have, as the authorisation matrix names them."""
    of_documents = [READS, EDITS, CREATIONS, REPLICATED, LOCAL]
    return {endpoint for table in of_documents for endpoint in table} | set(OTHERS)


def filled(endpoint, request, doc_id, rev, me):
    """The method, the path, the body and the headers of a request about a document."""
    suffix, content, headers = request
    fill = lambda text: text.replace("{id}", doc_id).replace("{rev}", rev).replace("{me}", me)
    method, path = endpoint.split(" ")
    path = path.removesuffix("-with-attachments").replace("{db}", "db").replace("{docid}", doc_id).replace("{attname}", "file.txt")
    path = path.replace("{ddoc}", "d").replace("{view}", "v")
    path = path.replace("/mine", f"/mine-{me}")
    path = path + (suffix if "?" not in path else suffix.replace("?", "&"))
    if content is not None and not isinstance(content, bytes):
        content = json.loads(fill(json.dumps(content)))
        content = related(content) if headers is RELATED else content
    sent = {"Accept": "application/json", **{name: fill(value) for name, value in headers.items()}}
    return method, urllib.parse.quote(fill(path), safe="/?&=:%,-"), content, sent

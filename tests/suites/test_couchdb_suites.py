"""What the suites of CouchDB and of its clients ask of one node, and the recorded vectors do not."""

import base64
import gzip
import hashlib
import os
import traceback

import pytest

from harness.api import Api, quote
from harness.server import StartFailed, wait_until

pytestmark = [pytest.mark.quick, pytest.mark.may_be_retried, pytest.mark.costly_hashes]

COUNTED = ("total_keys_examined", "total_docs_examined", "results_returned")
# Favourite languages of 15 people, of whom one has none.
FAVOURITES = [None if i == 8 else ["Lisp", *(["Erlang"] if i % 2 else []), {"n": i}] for i in range(15)]
NODE = "node1@127.0.0.1"
NODE_PARTS = ("", "/_config", "/_config/couchdb", "/_stats", "/_system", "/_versions", "/_prometheus", "/_smoosh")


def test_one_node(ctx):
    with ctx.server("data") as server:
        api = server.api()
        for part in (
            write_quorums,
            joined_histories,
            known_where_edits_are_validated,
            revisions_in_order,
            joined_after_stemming,
            joined_with_attachments,
            stubs_in_bulks,
            gzipped_by_clients,
            any_encoding,
            local_documents,
            design_feeds,
            scheduled_documents,
            not_modified,
            rank_functions,
            linked_documents,
            first_of_equal_keys,
            users_by_index,
            execution_stats,
            pages_counted,
            empty_or,
        ):
            db = "/" + part.__name__
            api.expect(201, "PUT", db + "?q=3")
            try:
                part(ctx.report, server, api, db)
            except Exception:  # the others run even when it breaks
                ctx.report.check(f"{part.__name__} runs to its end", False, traceback.format_exc())
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def write_quorums(report, server, api, db):
    """`w` above the one copy there is: CouchDB has accepted what it wrote itself, and nothing else."""

    def status(method, path, body=None, **headers):
        return api.request(method, db + path, body, headers=headers).status

    def rev(doc_id):
        return api.expect(200, "GET", f"{db}/{doc_id}")["_rev"]

    replicated = {"_rev": "1-abc", "n": 1}
    asked = "w=3"
    found = {
        "PUT": status("PUT", f"/a?{asked}", {}),
        "PUT with w=1": status("PUT", "/a1?w=1", {}),
        "POST": status("POST", f"?{asked}", {"_id": "b"}),
        "PUT local": status("PUT", f"/_local/a?{asked}", {}),
        "PUT replicated": status("PUT", f"/c?new_edits=false&{asked}", replicated),
        "PUT replicated again": status("PUT", f"/c?new_edits=false&{asked}", replicated),
        "PUT batch": status("PUT", f"/d?batch=ok&{asked}", {}),
        "COPY": status("COPY", f"/b?{asked}", Destination="copy"),
        "PUT attachment": status("PUT", f"/a/f?rev={rev('a')}&{asked}", b"x"),
        "DELETE attachment": status("DELETE", f"/a/f?rev={rev('a')}&{asked}"),
        "DELETE": status("DELETE", f"/a?rev={rev('a')}&{asked}"),
        "DELETE with w=1": status("DELETE", f"/a1?rev={rev('a1')}&w=1"),
        "GET with r": status("GET", "/b?r=3"),
    }
    accepted = {"PUT", "POST", "PUT local", "PUT batch", "PUT attachment", "DELETE"}
    expected = {name: 202 if name in accepted else 200 if "DELETE" in name or "GET" in name else 201 for name in found}
    report.equal("w of single documents", found, expected)

    def bulk(body, query=f"?{asked}"):
        answer = api.post(f"{db}/_bulk_docs{query}", body)
        return answer.status, [row.get("accepted", row.get("error")) for row in answer.json]

    report.equal("w of bulks: one written", bulk({"docs": [{"_id": "e"}, {"_id": "b"}]}), (202, [True, "conflict"]))
    report.equal("w in the body", bulk({"docs": [{"_id": "g"}], "w": 2}, ""), (202, [True]))
    report.equal("none written", bulk({"docs": [{"_id": "e"}]}), (201, ["conflict"]))
    report.equal("replicated", bulk({"docs": [{"_id": "h", "_rev": "1-abc"}], "new_edits": False}), (201, []))
    api.expect(201, "PUT", f"{db}/_design/u", {"updates": {"new": "function(doc, req) { return [{_id: 'made'}, 'made']; }"}})
    report.equal("w of update functions", status("POST", f"/_design/u/_update/new?{asked}", {}), 202)


def replicate(api, db, doc_id, start, *ids, status=201, **body):
    doc = {"_id": doc_id, "_revisions": {"start": start, "ids": list(ids)}, **body}
    return api.expect(status, "PUT", f"{db}/{doc_id}?new_edits=false", doc)


def history(api, db, doc_id):
    """The winner's revisions, and which of them can be read."""
    doc = api.expect(200, "GET", f"{db}/{doc_id}?revs=true&revs_info=true&conflicts=true")
    return doc["_revisions"]["ids"], [info["status"] for info in doc["_revs_info"]], doc.get("_conflicts")


def joined_histories(report, server, api, db):
    replicate(api, db, "a", 3, "c3", "b2", is_leaf=True)
    before = api.expect(200, "GET", db)["update_seq"]
    replicate(api, db, "a", 2, "b2", "a1", is_leaf=False)
    report.equal("the leaf has the longer history", history(api, db, "a"), (["c3", "b2", "a1"], ["available", "available", "missing"], None))
    ancestor = api.expect(200, "GET", f"{db}/a?rev=2-b2")
    report.equal("and its ancestor a body", ancestor, {"_id": "a", "_rev": "2-b2", "is_leaf": False})
    feed = api.expect(200, "GET", f"{db}/_changes?since={before}")
    report.equal("which is a change of the leaf", [row["changes"] for row in feed["results"]], [[{"rev": "3-c3"}]])
    after = api.expect(200, "GET", db)["update_seq"]
    replicate(api, db, "a", 2, "b2", "a1", is_leaf=None)
    report.equal("once", api.expect(200, "GET", f"{db}/_changes?since={after}")["results"], [])

    replicate(api, db, "b", 3, "c3")
    replicate(api, db, "b", 3, "c3", "b2", "a1")
    report.equal("a leaf that comes again with more", history(api, db, "b"), (["c3", "b2", "a1"], ["available", "missing", "missing"], None))
    replicate(api, db, "c", 3, "c3")
    replicate(api, db, "c", 2, "b2", "a1")
    report.equal("histories without a revision in common stay two", history(api, db, "c"), (["c3"], ["available"], ["2-b2"]))
    api.expect(
        201,
        "POST",
        f"{db}/_bulk_docs",
        {
            "new_edits": False,
            "docs": [{"_id": "d", "n": n, "_revisions": {"start": n, "ids": ids}} for n, ids in ((3, ["c3", "b2"]), (2, ["b2", "a1"]), (1, ["a1"]))],
        },
    )
    report.equal("all in one request", history(api, db, "d"), (["c3", "b2", "a1"], ["available"] * 3, None))
    info = api.expect(200, "GET", db)
    report.equal("no document more", (info["doc_count"], info["doc_del_count"]), (4, 0))
    api.expect(202, "POST", f"{db}/_compact")
    wait_until(lambda: not api.expect(200, "GET", db)["compact_running"])
    report.equal("after a compaction the leaf is there", api.expect(200, "GET", f"{db}/a")["is_leaf"], True)
    edited = api.expect(201, "PUT", f"{db}/a", {"_rev": "3-c3"})
    report.check("and goes on", edited["rev"].startswith("4-") and history(api, db, "a")[0][1:] == ["c3", "b2", "a1"], edited)
    api.expect(200, "POST", "/_replicate", {"source": db[1:], "target": db[1:] + "_copy", "create_target": True})
    report.equal("replicated, too", history(api, db + "_copy", "d")[0], ["c3", "b2", "a1"])


def revisions_in_order(report, server, api, db):
    """Doctrine's suite: `open_revs` lists revisions by their ids, each once."""
    docs = [{"_id": "ordered", "_rev": f"1-{letters}", "f": letters} for letters in ("bcd", "abc", "cde")]
    docs.append({"_id": "ordered", "_revisions": {"start": 3, "ids": ["c3", "b2", "a1"]}})
    api.expect(201, "POST", f"{db}/_bulk_docs", {"new_edits": False, "docs": docs})
    read = lambda path: api.get(f"{db}/{path}", headers={"Accept": "application/json"}).json
    shown = lambda query: [(row.get("ok") or {"_rev": row.get("missing")})["_rev"] for row in read(f"ordered?{query}")]
    leaves = ["1-abc", "1-bcd", "1-cde", "3-c3"]
    report.equal("all leaves in the order of their ids", shown("open_revs=all"), leaves)
    listed = quote('["3-c3","1-cde","9-f","1-abc","1-cde"]')
    report.equal("those of a list too", shown(f"open_revs={listed}"), ["1-abc", "1-cde", "3-c3", "9-f"])
    later = quote('["3-c3","1-a1","1-abc"]')
    report.equal("and with latest", shown(f"open_revs={later}&latest=true"), ["1-abc", "3-c3"])
    missing = [row["missing"] for row in read(f"none?open_revs={listed}")]
    report.equal("and those of a document that does not exist", missing, ["1-abc", "1-cde", "3-c3", "9-f"])


def known_where_edits_are_validated(report, server, api, db):
    """Nobody says there whether an ancestor may have this body, so it gets none, as in CouchDB."""
    api.expect(201, "PUT", f"{db}/_design/v", {"validate_doc_update": "function(doc) { if (doc.bad) throw({forbidden: 'bad'}); }"})
    replicate(api, db, "a", 3, "c3", "b2")
    replicate(api, db, "a", 2, "b2", "a1", bad=True)
    report.equal("what is known stays", history(api, db, "a"), (["c3", "b2"], ["available", "missing"], None))
    replicate(api, db, "b", 1, "a1", bad=True, status=403)


def joined_after_stemming(report, server, api, db):
    api.expect(200, "PUT", f"{db}/_revs_limit", 3)
    ids = [f"{i}" for i in range(9, 0, -1)]
    replicate(api, db, "a", 9, *ids)
    before = api.expect(200, "GET", db)["update_seq"]
    replicate(api, db, "a", 9, *ids)
    report.equal("a history that is stemmed again is no change", api.expect(200, "GET", f"{db}/_changes?since={before}")["results"], [])
    report.equal("and no longer", history(api, db, "a")[0], ids[:3])


def joined_with_attachments(report, server, api, db):
    replicate(api, db, "a", 3, "c3", "b2")
    file = {"f": {"data": base64.b64encode(b"of the ancestor").decode(), "revpos": 2}}
    replicate(api, db, "a", 2, "b2", "a1", _attachments=file)
    report.equal("an ancestor brings its attachment", api.get(f"{db}/a/f?rev=2-b2").raw, b"of the ancestor")
    report.equal("which is not the leaf's", api.get(f"{db}/a/f").status, 404)
    replicate(api, db, "s", 1, "a1", _attachments={"f": {"data": base64.b64encode(b"of the first").decode(), "revpos": 1}})
    replicate(api, db, "s", 3, "c3", "b2", "a1")
    replicate(api, db, "s", 2, "b2", "a1", _attachments={"f": {"stub": True, "revpos": 1}})
    report.equal("or a stub of one of its own ancestors", api.get(f"{db}/s/f?rev=2-b2").raw, b"of the first")


def stubs_in_bulks(report, server, api, db):
    api.expect(201, "PUT", f"{db}/a", {"_attachments": {"f": {"data": "eA=="}}})
    rev = api.expect(200, "GET", f"{db}/a")["_rev"]
    reason = {"error": "missing_stub", "reason": "Invalid attachment stub in {} for g"}

    def told(docs, **more):
        answer = api.post(f"{db}/_bulk_docs", {"docs": docs, **more})
        return answer.status, answer.json

    def refusal(doc_id):
        return 412, {**reason, "reason": reason["reason"].format(doc_id)}

    stub = {"_attachments": {"g": {"stub": True}}}
    report.equal("of a new document", told([{"_id": "b"}, {"_id": "c", **stub}]), refusal("c"))
    report.equal("of one that has another attachment", told([{"_id": "b"}, {"_id": "a", "_rev": rev, **stub}]), refusal("a"))
    report.equal("replicated", told([{"_id": "c", "_rev": "1-a", **stub}], new_edits=False), refusal("c"))
    report.equal("nothing is written", [api.get(f"{db}/{doc_id}").status for doc_id in "bc"], [404, 404])
    kept = told([{"_id": "a", "_rev": rev, "_attachments": {"f": {"stub": True}}}, {"_id": "b"}])
    report.equal(
        "a stub of what is there is kept", (kept[0], [row.get("ok") for row in kept[1]], api.get(f"{db}/a/f").raw), (201, [True, True], b"x")
    )
    report.equal("alone, too", (api.put(f"{db}/c", stub).status, api.put(f"{db}/c", stub).json), refusal("c"))


def gzipped_by_clients(report, server, api, db):
    plain = b"text that is much longer than its compressed form. " * 40
    sent = gzip.compress(plain, mtime=0)
    headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain"}
    api.request("PUT", f"{db}/a/f", sent, headers=headers)
    digest = "md5-" + base64.b64encode(hashlib.md5(sent).digest()).decode()
    entry = {"content_type": "text/plain", "revpos": 1, "digest": digest, "length": len(sent), "stub": True}
    report.equal("the length is that of what was sent", api.expect(200, "GET", f"{db}/a")["_attachments"]["f"], entry)
    encoded = {**entry, "encoding": "gzip", "encoded_length": len(sent)}
    report.equal("so is the encoded one", api.expect(200, "GET", f"{db}/a?att_encoding_info=true")["_attachments"]["f"], encoded)
    answer = api.get(f"{db}/a/f")
    report.equal(
        "read as it is, its length is not known",
        (answer.raw == plain, answer.headers["Content-Length"], answer.headers["Content-Encoding"]),
        (True, None, None),
    )
    answer = api.get(f"{db}/a/f", headers={"Accept-Encoding": "gzip"})
    report.equal("read gzipped, it is", (answer.raw == sent, answer.headers["Content-Length"]), (True, str(len(sent))))
    data = api.get(f"{db}/a?attachments=true", headers={"Accept": "application/json"}).json["_attachments"]["f"]["data"]
    report.equal("in JSON it is decoded", base64.b64decode(data) == plain, True)
    api.expect(200, "POST", "/_replicate", {"source": f"http://admin:admin@{server.url[7:]}{db}", "target": db[1:] + "_copy", "create_target": True})
    report.equal("replicated, its bytes are the same", api.get(f"{db}_copy/a/f").raw == plain, True)


def any_encoding(report, server, api, db):
    plain = b"compressible " * 50
    api.request("PUT", f"{db}/a/f", plain, headers={"Content-Type": "text/plain"})
    api.request("PUT", f"{db}/b/f", plain, headers={"Content-Type": "application/octet-stream"})

    def encoding(doc_id, accepted):
        answer = api.get(f"{db}/{doc_id}/f", headers={"Accept-Encoding": accepted})
        gunzipped = gzip.decompress(answer.raw) if answer.headers["Content-Encoding"] == "gzip" else answer.raw
        return answer.headers["Content-Encoding"], gunzipped == plain

    for accepted, expected in (("*", "gzip"), ("gzip", "gzip"), ("identity, *", "gzip"), ("*;q=0.5", "gzip"), ("gzip;q=0, *", None), ("br", None)):
        report.equal(f"what is stored gzipped for {accepted}", encoding("a", accepted), (expected, True))
    report.equal("what is not", encoding("b", "*"), (None, True))


def local_documents(report, server, api, db):
    api.expect(201, "PUT", f"{db}/_local/a", {"n": 1})
    api.expect(201, "PUT", f"{db}/_local/a", {"_rev": "0-1", "n": 2})
    doc = {"_id": "_local/a", "_rev": "0-2", "n": 2}
    missing = {"error": "not_found", "reason": "missing"}
    for query, expected in (
        ("", doc),
        ("rev=0-2", doc),
        ("rev=0-1", missing),
        ("rev=0-3", missing),
        ("rev=1-abc", missing),
        ("revs=true", {**doc, "_revisions": {"start": 0, "ids": ["2"]}}),
        ("revs_info=true&conflicts=true&local_seq=true&meta=true&deleted_conflicts=true", doc),
        ("open_revs=all", missing),
    ):
        answer = api.get(f"{db}/_local/a?{query}", headers={"Accept": "application/json"})
        report.equal(f"read with {query or 'nothing'}", (answer.status, answer.json), (404 if expected is missing else 200, expected))
    answer = api.get(f"{db}/_local/a?open_revs=%5B%220-2%22%5D", headers={"Accept": "application/json"})
    report.equal("open_revs knows none", answer.json, [{"missing": "0-2"}])
    report.equal("HEAD, too", [api.request("HEAD", f"{db}/_local/a?rev={rev}").status for rev in ("0-2", "0-1")], [200, 404])


def design_feeds(report, server, api, db):
    api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": [{"_id": f"{i}"} for i in range(5)]})
    revs = [api.expect(201, "PUT", f"{db}/_design/{name}", {})["rev"] for name in "ab"]
    api.expect(200, "DELETE", f"{db}/_design/b?rev={revs[1]}")

    def feed(query):
        answer = api.expect(200, "GET", f"{db}/_changes?{query}")
        return sorted(row["id"] for row in answer["results"]), answer["pending"]

    both = ["_design/a", "_design/b"]
    report.equal("what is no design document is pending", feed("filter=_design"), (both, 5))
    report.equal("descending", feed("filter=_design&descending=true"), (both, 5))
    report.equal("with a limit", feed("filter=_design&limit=1")[1], 6)
    report.equal("from now on", feed("filter=_design&since=now"), ([], 0))
    report.equal("without a filter nothing is", feed("")[1], 0)


def scheduled_documents(report, server, api, db):
    api.expect(201, "PUT", f"{db}/a", {})
    here = f"http://admin:admin@{server.url[7:]}{db}"
    api.expect(201, "PUT", "/_replicator/done", {"source": here, "target": here + "_copy", "create_target": True})
    api.expect(201, "PUT", "/_replicator/live", {"source": here, "target": here + "_live", "create_target": True, "continuous": True})

    def shown(name):
        return api.get(f"/_scheduler/docs/_replicator/{name}").json

    wait_until(lambda: shown("done").get("state") == "completed" and shown("live").get("state") == "running")
    done, live = shown("done"), shown("live")
    common = {"database", "doc_id", "id", "source", "target", "state", "error_count", "info", "last_updated", "start_time"}
    report.equal("of a finished replication", set(done), common)
    report.equal(
        "which has no job", (done["id"], done["error_count"], "start_time" in done["info"], done["info"]["docs_written"]), (None, 0, False, 1)
    )
    report.equal("of a running one", set(live), common | {"node", "source_proxy", "target_proxy"})
    report.equal("without proxies", (live["source_proxy"], live["target_proxy"]), (None, None))
    listed = {doc["doc_id"]: set(doc) for doc in api.expect(200, "GET", "/_scheduler/docs")["docs"]}
    report.equal("listed, they are the same", (listed.get("done"), listed.get("live")), (set(done), set(live)))
    api.expect(200, "DELETE", f"/_replicator/live?rev={api.expect(200, 'GET', '/_replicator/live')['_rev']}")


def not_modified(report, server, api, db):
    api.expect(201, "PUT", f"{db}/a", {"_attachments": {"f": {"data": "eA=="}}})
    views = {"v": {"map": "function(doc) { emit(null, 1); }", "reduce": "_count"}}
    api.expect(
        201,
        "PUT",
        f"{db}/_design/d",
        {
            "views": views,
            "shows": {"s": "function() { return 'x'; }", "t": "function() { return {code: 304, body: 'x'}; }"},
            "lists": {"l": "function() { provides('text', function() { return 'x'; }); }"},
        },
    )
    api.expect(201, "PUT", f"{db}/_local/a", {})
    paths = [
        "/a",
        "/a/f",
        "/_design/d",
        "/_local/a",
        "/_all_docs",
        "/_design/d/_view/v",
        "/_design/d/_show/s",
        "/_design/d/_list/l/v?reduce=false",
        "/_changes",
    ]
    lengths = {}
    for path in paths:
        etag = api.get(db + path).headers["ETag"]
        if etag is None:
            continue
        for method in ("GET", "HEAD"):
            answer = api.request(method, db + path, headers={"If-None-Match": etag})
            lengths[f"{method} {path}"] = (answer.status, answer.headers.get_all("Content-Length"), answer.raw, answer.headers["ETag"] == etag)
            # What follows on the same connection is the next answer.
            if api.get("/").json.get("couchdb") != "Welcome":
                lengths[f"{method} {path}"] = "the connection is out of step"
    report.check("there are answers with an ETag", len(lengths) >= 8, lengths)
    shown = api.get(f"{db}/_design/d/_show/t")
    report.equal("nor has one that a function makes", (shown.status, shown.headers.get_all("Content-Length"), shown.raw), (304, ["0"], b""))
    report.equal("and the connection goes on", api.get("/").status, 200)
    report.equal("a 304 has no bytes, and says so", lengths, dict.fromkeys(lengths, (304, ["0"], b"", True)))


def rank_functions(report, server, api, db):
    found = {}
    for name in ("_top_x", "_bottom_", "_top_0", "_bottom_101", "_top", "_top_100"):
        answer = api.put(f"{db}/_design/{name[1:]}", {"views": {"v": {"map": "function(doc) {}", "reduce": name}}})
        found[name] = (answer.status, answer.json.get("error"), answer.json.get("reason"))
    invalid = (400, "invalid_design_doc")
    report.equal(
        "of a wrong number",
        found,
        {
            "_top_x": (*invalid, "invalid rank reducer"),
            "_bottom_": (*invalid, "invalid rank reducer"),
            "_top_0": (*invalid, "rank value must be between 1 and 100"),
            "_bottom_101": (*invalid, "rank value must be between 1 and 100"),
            "_top": (*invalid, "`_top` is not a supported reduce function."),
            "_top_100": (201, None, None),
        },
    )


def linked_documents(report, server, api, db):
    links = {
        "none": {},
        "own": {"other": 1},
        "to": {"_id": "own"},
        "nowhere": {"_id": "nobody"},
        "null": {"_id": None},
        "number": {"_id": 1},
        "list": {"_id": ["own"]},
        "object": {"_id": {"_id": "own"}},
        "true": {"_id": True},
        "empty": {"_id": ""},
    }
    api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": [{"_id": name, "link": link} for name, link in links.items()]})
    api.expect(201, "PUT", f"{db}/_design/d", {"views": {"v": {"map": "function(doc) { emit(null, doc.link); }"}}})
    rows = api.expect(200, "GET", f"{db}/_design/d/_view/v?include_docs=true")["rows"]
    shown = {row["id"]: row["doc"] and row["doc"]["_id"] for row in rows}
    report.equal("an _id that is no string links to nothing", shown, {**dict.fromkeys(links), "none": "none", "own": "own", "to": "own"})


def first_of_equal_keys(report, server, api, db):
    # A zero-width space weighs nothing.
    names = {f"d{i}": "a" + "\u200b" * (9 - i) for i in range(10)}
    api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": [{"_id": doc_id, "name": name} for doc_id, name in names.items()]})
    api.expect(
        201,
        "PUT",
        f"{db}/_design/d",
        {
            "views": {
                "plain": {"map": "function(doc) { emit(doc.name, 1); }", "reduce": "_count"},
                "lists": {
                    "map": "function(doc) { emit([doc.name, doc._id], 1); }",
                    "reduce": "function(keys, values, again) { return again ? sum(values) : values.length; }",
                },
            }
        },
    )

    def groups(query):
        return [(row["key"], row["value"]) for row in api.expect(200, "GET", f"{db}/_design/d/_view/{query}")["rows"]]

    report.equal("a group shows the first", groups("plain?group=true"), [(names["d0"], 10)])
    report.equal("descending the last", groups("plain?group=true&descending=true"), [(names["d9"], 10)])
    report.equal("of the range", groups("plain?group=true&startkey=%22a%22&startkey_docid=d4"), [(names["d4"], 6)])
    report.equal("by level", groups("lists?group_level=1"), [([names["d0"]], 10)])


def users_by_index(report, server, api, db):
    users = [
        {"_id": f"org.couchdb.user:demo0{i}", "name": f"demo0{i}", "password": "x", "roles": ["r"] * (i % 2), "order": 4 - i, "type": "user"}
        for i in (1, 2, 3)
    ]
    for user in users:
        api.expect(201, "PUT", "/_users/" + user["_id"], user)
    api.expect(200, "POST", "/_users/_index", {"index": {"fields": ["order", "name"]}, "ddoc": "order"})

    def names(api, **query):
        answer = api.post("/_users/_find", {"selector": {"name": {"$gt": "demo01"}}, "fields": ["name"], **query})
        return [doc["name"] for doc in answer.json["docs"]] if answer.status == 200 else (answer.status, answer.json["error"])

    report.equal("sorted by an index", names(api, sort=[{"order": "asc"}]), ["demo03", "demo02"])
    report.equal("descending", names(api, sort=[{"order": "desc"}]), ["demo02", "demo03"])
    report.equal("without", sorted(names(api)), ["demo02", "demo03"])
    explained = api.expect(200, "POST", "/_users/_explain", {"selector": {"name": {"$gt": "demo01"}}, "sort": ["order"]})
    report.equal("and explained", explained["index"]["ddoc"], "_design/order")
    security = api.expect(200, "GET", "/_users/_security")
    api.request("PUT", "/_node/_local/_config/couchdb/users_db_security_editable", "true")
    api.expect(200, "PUT", "/_users/_security", {"admins": {"names": ["demo02"]}, "members": {"roles": []}})
    report.equal("an admin of the database may, too", names(server.api(credentials="demo02:x"), sort=["order"]), ["demo03", "demo02"])
    # The keys of an index hold what documents hide.
    report.equal(
        "others are not shown the order of what is hidden", names(server.api(credentials="demo03:x"), sort=["order"]), (400, "no_usable_index")
    )
    report.equal("but their own document", names(server.api(credentials="demo03:x")), ["demo03"])
    api.expect(200, "PUT", "/_users/_security", security)
    ddoc = api.expect(200, "GET", "/_users/_design/order")
    for doc in [*users, ddoc]:
        api.expect(200, "DELETE", f"/_users/{doc['_id']}?rev={api.expect(200, 'GET', '/_users/' + doc['_id'])['_rev']}")


def counted(api, db, selector, **options):
    body = {"selector": selector, "execution_stats": True, **options}
    answer = api.expect(200, "POST", f"{db}/_find", body)
    return tuple(answer["execution_stats"][name] for name in COUNTED), answer


def execution_stats(report, server, api, db):
    """As in the suite of CouchDB: 15 documents, and 10 design documents, of which one look through all sees all 25."""
    docs = [{"_id": f"{i:02}", "age": 30 + 4 * i, "favourites": favourite, "name": {"first": f"f{i}"}} for i, favourite in enumerate(FAVOURITES)]
    api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": docs})
    for field in ["age", "favourites", "name.first", *(f"other{i}" for i in range(7))]:
        api.expect(200, "POST", f"{db}/_index", {"index": {"fields": [field]}, "ddoc": field, "name": field})
    some = ["name", "age"]
    for what, selector, options, expected in (
        ("an index", {"age": {"$lt": 35}}, {}, (2, 2, 2)),
        ("a limit: one match more is looked at", {"age": {"$lte": 42}}, {"limit": 3, "fields": some}, (4, 4, 3)),
        ("a limit that all have", {"age": {"$lte": 42}}, {"limit": 4}, (4, 4, 4)),
        ("a limit of none", {"age": {"$lte": 42}}, {"limit": 0}, (1, 1, 0)),
        ("partial matches", {"favourites": {"$elemMatch": {"$eq": "Erlang"}}}, {"fields": some}, (15, 15, 7)),
        ("no matches in an index", {"favourites": {"$elemMatch": {"$eq": "Haskell"}}}, {"fields": some}, (15, 15, 0)),
        ("no keys in an index", {"name.first": "Lee"}, {"fields": some}, (0, 0, 0)),
        ("no matches without an index", {"foo": "bar"}, {}, (25, 25, 0)),
        ("an index, and more", {"age": {"$lt": 35}, "foo": "bar"}, {}, (2, 2, 0)),
        ("a covering index", {"age": {"$lt": 35}}, {"fields": ["_id", "age"]}, (2, 0, 2)),
        ("several values", {"age": {"$in": [30, 34]}}, {}, (15, 15, 2)),
        ("a range of ids", {"_id": {"$gte": "03", "$lt": "06"}}, {}, (4, 4, 3)),
        (
            "a limit without an index",
            {"age": {"$exists": True}},
            {"use_index": [], "limit": 2, "sort": ["_id"], "selector": {"_id": {"$gt": None}}},
            (3, 3, 2),
        ),
        ("skipped ones", {"age": {"$lte": 42}}, {"limit": 1, "skip": 1}, (3, 3, 1)),
        ("descending", {"age": {"$lte": 42}}, {"limit": 2, "sort": [{"age": "desc"}]}, (3, 3, 2)),
    ):
        report.equal(what, counted(api, db, **{"selector": selector, **options})[0], expected)
    answer = counted(api, db, {"age": {"$lte": 42}}, r=3)[1]["execution_stats"]
    report.equal(
        "several replicas asked", (answer["total_keys_examined"], answer["total_docs_examined"], answer["total_quorum_docs_examined"]), (4, 0, 4)
    )
    plain = api.expect(200, "POST", f"{db}/_find", {"selector": {"age": {"$lte": 42}}, "limit": 3})
    asked = counted(api, db, {"age": {"$lte": 42}}, limit=3)[1]
    report.equal("the answer is the same without", (plain["docs"], plain["bookmark"]), (asked["docs"], asked["bookmark"]))


def pages_counted(report, server, api, db):
    """A page begins at the last row of the one before, which is looked at again."""
    api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": [{"_id": f"{i}", "n": i} for i in range(5)]})
    api.expect(200, "POST", f"{db}/_index", {"index": {"fields": ["n"]}, "ddoc": "n"})
    for what, selector in (("an index", {"n": {"$gte": 0}}), ("all documents", {"_id": {"$gte": "0"}})):
        bookmark, pages, docs = None, [], []
        for _ in range(3):
            more = {"bookmark": bookmark} if bookmark else {}
            numbers, answer = counted(api, db, selector, limit=2, **more)
            pages.append(numbers[0])
            docs += [doc["_id"] for doc in answer["docs"]]
            bookmark = answer["bookmark"]
        report.equal(f"of {what}", (docs, pages[:2]), (list("01234"), [3, 4]))


def empty_or(report, server, api, db):
    api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": [{"age": 22, "company": "x"}, {"age": 23}]})

    def asked(selector):
        index = api.expect(200, "POST", f"{db}/_explain", {"selector": selector})["index"]
        return index["type"], len(api.expect(200, "POST", f"{db}/_find", {"selector": selector})["docs"])

    selectors = [{"$or": []}, {"age": 22, "$or": []}, {"$or": [], "a": {"$in": []}}, {}, {"$and": [{"$or": []}]}]
    report.equal("without an index", [asked(s) for s in selectors], [("special", n) for n in (0, 1, 0, 2, 2)])
    api.expect(200, "POST", f"{db}/_index", {"index": {"fields": ["age"]}, "ddoc": "age"})
    expected = [("json", 0), ("json", 1), ("json", 0), ("special", 2), ("special", 2)]
    report.equal("with one", [asked(s) for s in selectors], expected)
    explained = api.expect(200, "POST", f"{db}/_explain", {"selector": {"$or": []}})
    keys = explained["mrargs"]["start_key"], explained["mrargs"]["end_key"]
    report.equal("which reads nothing", (explained["index"]["name"] != "_all_docs", keys), (True, (None, None)))


def test_node_names(ctx):
    with ctx.server("unnamed") as server:
        api = server.api()
        own = api.expect(200, "GET", "/_node/_local")["name"]
        ctx.report.equal("a node has a name", (own.count("@"), api.get(f"/_node/{own}/_versions").status), (1, 200))
        ctx.report.equal("and not another", api.get(f"/_node/{NODE}/_versions").status, 404)
    with ctx.server("named", options=["--set", f"couchdb/node_name={NODE}"]) as server:
        named(ctx.report, server.api())
    os.environ["SETTEE_COUCHDB_NODE_NAME"] = NODE
    try:
        with ctx.server("by-environment") as server:
            ctx.report.equal("the environment names it", server.api().expect(200, "GET", "/_node/_local")["name"], NODE)
    finally:
        del os.environ["SETTEE_COUCHDB_NODE_NAME"]
    for name in ("node1", "@host", "node1@", "a@b@c", "no de@host", "a/b@host"):
        try:
            ctx.server("misnamed", options=["--set", f"couchdb/node_name={name}"]).start()
            ctx.report.check(f"{name} is no name", False, "the server started")
        except StartFailed as failure:
            ctx.report.check(f"{name} is no name", "node_name" in failure.log, failure.log[-500:])


def named(report, api):
    members = api.expect(200, "GET", "/_membership")
    report.equal("_membership names it", members, {"all_nodes": [NODE], "cluster_nodes": [NODE]})
    for name in (NODE, quote(NODE), "_local"):
        report.equal(f"it answers as {name}", [api.get(f"/_node/{name}{part}").status for part in NODE_PARTS], [200] * len(NODE_PARTS))
    report.equal("it tells its name", api.expect(200, "GET", f"/_node/{NODE}"), {"name": NODE})
    for name in ("node2@127.0.0.1", "settee@127.0.0.1", "node1", "local"):
        answers = [api.get(f"/_node/{name}{part}") for part in NODE_PARTS]
        told = {(answer.status, answer.json["error"], answer.json["reason"]) for answer in answers}
        report.equal(f"{name} is nobody", told, {(404, "not_found", f"no such node: {name}")})
    set_ = api.put(f"/_node/{NODE}/_config/log/level", "debug")
    report.equal("it is configured by its name", (set_.status, api.get("/_node/_local/_config/log/level").json), (200, "debug"))
    api.expect(201, "PUT", "/db?q=2")
    shards = api.expect(200, "GET", "/db/_shards")["shards"]
    report.equal("its shards name it", list(shards.values()), [[NODE]] * 2)
    report.equal("and each document's", api.expect(200, "GET", "/db/_shards/a")["nodes"], [NODE])
    nobody = Api(api.url, None).get(f"/_node/{NODE}/_stats")
    report.equal("not for everybody", nobody.status, 401)

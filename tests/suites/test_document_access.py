"""Databases with access by document: each user sees and changes the documents that name the user, by every endpoint, and what
is not covered is refused. The naive model is in `crates/database/tests/it/access.rs`; this is the same over HTTP, with feeds,
attachments and `_bulk_get` as a replicator uses them."""

import base64
import json
import socket
import threading

import pytest

from harness.endpoints import DESIGN
from harness.server import wait_until

pytestmark = [pytest.mark.quick]

USERS = {"alice": [], "bob": [], "nora": ["nurse"], "dbadmin": []}
SECURITY = {"admins": {"names": ["dbadmin"], "roles": []}, "members": {"names": list(USERS), "roles": []}}


def start(server):
    """An admin, and users, of a database `db`; its members are all of them."""
    admin = server.api()
    for name, roles in USERS.items():
        user = {"_id": f"org.couchdb.user:{name}", "name": name, "password": "pw", "roles": roles, "type": "user"}
        admin.expect((201, 409), "PUT", f"/_users/org.couchdb.user:{name}", user)
    admin.expect(201, "PUT", "/db?access=true&q=2")
    admin.expect(200, "PUT", "/db/_security", SECURITY)
    return admin, {name: server.api(credentials=f"{name}:pw") for name in USERS}


def ids(api):
    return [row["id"] for row in api.expect(200, "GET", "/db/_all_docs")["rows"]]


def changes(api, since="0", **more):
    options = "".join(f"&{name}={value}" for name, value in more.items())
    answer = api.expect(200, "GET", f"/db/_changes?style=all_docs&since={since}{options}")
    return answer["results"], answer["last_seq"]


def test_users_see_and_change_their_own_documents(ctx):
    report = ctx.report
    with ctx.server("own") as server:
        admin, users = start(server)
        alice, bob, nora = users["alice"], users["bob"], users["nora"]
        report.equal("the property", admin.expect(200, "GET", "/db")["props"], {"access": True})
        for n, api in enumerate((alice, bob)):
            name = ("alice", "bob")[n]
            api.expect(201, "PUT", f"/db/{name}-1", {"_access": [name], "n": n})
        alice.expect(201, "PUT", "/db/shared", {"_access": {"read": ["role:nurse"], "write": ["alice", "bob"]}})
        admin.expect(201, "PUT", "/db/secret", {"n": 1})
        admin.expect(201, "PUT", "/db/_design/d", {"views": {}})
        report.equal("alice", ids(alice), ["_design/d", "alice-1", "shared"])
        report.equal("bob", ids(bob), ["_design/d", "bob-1", "shared"])
        report.equal("a role", ids(nora), ["_design/d", "shared"])
        report.equal("admins of the database", ids(users["dbadmin"]), ids(admin))
        listed = alice.expect(200, "GET", "/db/_all_docs")
        report.equal("counts", (listed["total_rows"], listed["offset"]), (None, None))
        keys = bob.expect(200, "POST", "/db/_all_docs", {"keys": ["alice-1", "none", "bob-1"]})["rows"]
        report.equal("keys", [row.get("error") for row in keys], ["not_found", "not_found", None])
        report.equal("a hidden document", bob.get("/db/alice-1").json, bob.get("/db/none").json)
        for selection in ("", "&open_revs=all", "&rev=" + alice.get("/db/shared").json["_rev"]):
            shown = alice.get(f"/db/shared?local_seq=true{selection}", headers={"Accept": "application/json"}).raw
            report.check("no seq that hidden changes move", b"_local_seq" not in shown, shown)
        report.equal("a hidden one cannot be deleted", bob.delete("/db/alice-1?rev=1-a").json, bob.delete("/db/none?rev=1-a").json)
        report.equal("its id is taken", bob.put("/db/alice-1", {"_access": ["bob"]}).status, 409)
        report.equal("readers do not write", nora.put("/db/shared", {"_rev": alice.get("/db/shared").json["_rev"], "_access": ["nora"]}).status, 403)
        report.equal("a document of others", alice.put("/db/other", {"_access": ["bob"]}).status, 403)
        report.equal("a document of nobody", alice.put("/db/other", {}).status, 403)
        report.equal("no principal", alice.put("/db/other", {"_access": ["group:a"]}).status, 400)
        report.equal("a design document", alice.put("/db/_design/e", {"views": {}}).status, 403)
        info = bob.expect(200, "GET", "/db")
        report.equal("no counts", {"doc_count", "sizes", "doc_del_count", "purge_seq"} & info.keys(), set())


def test_revocation_reaches_a_device(ctx):
    """A feed brings a removal revision, which every route answers with a tombstone that follows what the device has."""
    report = ctx.report
    with ctx.server("revoked") as server:
        _, users = start(server)
        alice, bob = users["alice"], users["bob"]
        first = alice.expect(201, "PUT", "/db/list", {"_access": ["alice", "bob"]})["rev"]
        rows, seq = changes(bob)
        report.equal("granted", [[change["rev"] for change in row["changes"]] for row in rows], [[first]])
        second = alice.expect(201, "PUT", "/db/list", {"_rev": first, "_access": ["alice"]})["rev"]
        rows, after = changes(bob, seq)
        report.equal("removed", [(row["id"], row.get("deleted"), row.get("removed")) for row in rows], [("list", True, True)])
        removal = rows[0]["changes"][0]["rev"]
        report.check("a successor", removal.startswith("2-") and removal != second, removal)
        report.equal("hidden", bob.get("/db/list").status, 404)
        for rev in (first, second):
            report.equal("every revision", bob.get(f"/db/list?rev={rev}").status, 404)
        tombstone = bob.get(f"/db/list?rev={removal}&revs=true").json
        path = {"start": 2, "ids": [removal[2:], first[2:]]}
        report.equal("the tombstone", tombstone, {"_id": "list", "_rev": removal, "_deleted": True, "_revisions": path})
        got = bob.expect(200, "POST", "/db/_bulk_get?revs=true", {"docs": [{"id": "list", "rev": removal}]})
        report.equal("_bulk_get", got["results"][0]["docs"][0].get("ok"), tombstone)
        opened = bob.get(f"/db/list?open_revs={json.dumps([removal], separators=(',', ':'))}&revs=true", headers={"Accept": "application/json"}).json
        report.equal("open_revs", opened[0].get("ok"), tombstone)
        diff = bob.expect(200, "POST", "/db/_revs_diff", {"list": [first, second, removal]})
        report.equal("_revs_diff", sorted(diff["list"]["missing"]), sorted([first, second]))
        pushed = {"new_edits": False, "docs": [tombstone]}
        report.equal("pushed back", bob.expect(201, "POST", "/db/_bulk_docs", pushed), [])
        report.equal("it is dropped", alice.get("/db/list").json["_rev"], second)
        bob.expect(409, "PUT", "/db/list", {"_rev": removal, "_access": ["bob"]})
        edit = {"_id": "list", "_revisions": {"start": 2, "ids": ["b" * 32, first[2:]]}, "_access": ["bob"]}
        refused = bob.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [edit, {**edit, "_id": "own"}]})
        report.equal("an edit after that", [(row["id"], row["error"], row["name"]) for row in refused], [("list", "forbidden", "forbidden")])
        root = {"_id": "list", "_rev": "9-" + "f" * 32, "_access": ["bob"]}
        refused = bob.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [root]})
        report.equal("taking over", [row["error"] for row in refused], ["forbidden"])
        alice.expect(201, "PUT", "/db/list", {"_rev": second, "_access": ["alice"], "n": 1})
        rows, _ = changes(bob, after)
        report.equal("later edits are hidden", [row["id"] for row in rows], ["own"])
        alice.expect(201, "PUT", "/db/list", {"_rev": alice.get("/db/list").json["_rev"], "_access": ["alice", "bob"]})
        rows, _ = changes(bob, after)
        report.equal("given back", [(row["id"], row.get("removed")) for row in rows if row["id"] == "list"], [("list", None)])
        report.equal("visible again", bob.get("/db/list").status, 200)


def test_a_waiting_feed_ends_when_the_roles_of_its_user_change(ctx):
    """It waits for rows of its user alone, and has no timeout, so nothing else ends it."""
    with ctx.server("waiting") as server:
        admin, users = start(server)
        users["alice"].expect(201, "PUT", "/db/doc", {"_access": ["alice", "role:nurse"]})
        answers = []
        path = "/db/_changes?feed=longpoll&heartbeat=1000&since=now"
        waiting = threading.Thread(target=lambda: answers.append(users["bob"].get(path)), daemon=True)
        waiting.start()

        def has_ended():
            user = admin.expect(200, "GET", "/_users/org.couchdb.user:bob")
            admin.expect(201, "PUT", "/_users/org.couchdb.user:bob", {**user, "roles": [] if user["roles"] else ["nurse"]})
            return not waiting.is_alive()

        ctx.report.check("it ends", wait_until(has_ended))
        ctx.report.equal("without rows", [answer.json["results"] for answer in answers], [[]])
        again = admin.expect(200, "GET", "/_users/org.couchdb.user:bob")
        admin.expect(201, "PUT", "/_users/org.couchdb.user:bob", {**again, "roles": ["nurse"]})
        rows, _ = changes(users["bob"], answers[0].json["last_seq"] if answers else "0")
        ctx.report.equal("older documents of the role", [row["id"] for row in rows], ["doc"])


def test_a_feed_whose_body_comes_late_has_the_roles_of_then(ctx):
    """The client sends the body once its user has lost the role: the feed must not be open with it for as long as the client likes."""
    report = ctx.report
    with ctx.server("late") as server:
        admin, users = start(server)
        users["alice"].expect(201, "PUT", "/db/ward", {"_access": ["alice", "role:nurse"]})
        report.equal("with the role", [row["id"] for row in changes(users["nora"])[0]], ["ward"])
        lines = [
            "POST /db/_changes?feed=continuous&heartbeat=1000 HTTP/1.1",
            "Host: localhost",
            "Authorization: Basic " + base64.b64encode(b"nora:pw").decode(),
            "Content-Type: application/json",
            "Content-Length: 2",
            "Expect: 100-continue",
            "Connection: close",
        ]
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            report.check("the server waits for the body", connection.recv(1000).startswith(b"HTTP/1.1 100"))
            user = admin.expect(200, "GET", "/_users/org.couchdb.user:nora")
            admin.expect(201, "PUT", "/_users/org.couchdb.user:nora", {**user, "roles": []})
            connection.sendall(b"{}")
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
                if b"ward" in answer:
                    break
        report.check("it ends", b"last_seq" in answer, answer)
        report.check("without rows of the role", b"ward" not in answer, answer)


def test_a_deletion_reaches_all_readers(ctx):
    report = ctx.report
    with ctx.server("deleted") as server:
        _, users = start(server)
        alice, bob, nora = users["alice"], users["bob"], users["nora"]
        rev = alice.expect(201, "PUT", "/db/list", {"_access": ["alice", "bob"]})["rev"]
        _, seq = changes(bob)
        alice.expect(200, "DELETE", f"/db/list?rev={rev}")
        rows, _ = changes(bob, seq)
        report.equal("a tombstone", [(row["id"], row.get("deleted"), row.get("removed")) for row in rows], [("list", True, None)])
        report.equal("not for others", changes(nora)[0], [])
        report.equal("nor its id", nora.put("/db/list", {"_access": ["nora"]}).status, 409)
        report.equal("a reader's again", bob.put("/db/list", {"_access": ["bob"]}).status, 201)


def test_attachments_are_those_of_readable_revisions(ctx):
    report = ctx.report
    with ctx.server("attachments") as server:
        _, users = start(server)
        alice, bob = users["alice"], users["bob"]
        attached = {"a.txt": {"content_type": "text/plain", "data": "c2VjcmV0"}}
        rev = alice.expect(201, "PUT", "/db/doc", {"_access": ["alice"], "_attachments": attached})["rev"]
        report.equal("its reader", alice.get("/db/doc/a.txt").raw, b"secret")
        report.equal("others", bob.get("/db/doc/a.txt").status, 404)
        report.equal("others, by revision", bob.get(f"/db/doc/a.txt?rev={rev}").status, 404)
        stub = {"a.txt": {"stub": True, "revpos": 1, "content_type": "text/plain", "digest": "md5-5e8d6a", "length": 6}}
        for ids_of_path in (["b" * 32, rev[2:]], ["b" * 32]):
            edit = {"_id": "doc", "_revisions": {"start": 2, "ids": ids_of_path}, "_access": ["bob"], "_attachments": stub}
            answer = bob.post("/db/_bulk_docs", {"new_edits": False, "docs": [edit]})
            report.equal("stubs", (answer.status, [row.get("error") for row in answer.json]), (201, ["forbidden"]))
        report.check("writing one", bob.put(f"/db/doc/b.txt?rev={rev}", b"x").status in (404, 409))
        report.equal("its reader still", alice.get("/db/doc").json["_rev"], rev)


def test_stubs_do_not_reach_hidden_ancestors(ctx):
    """An ancestor may keep its body, while the revisions after it never had one here."""
    report = ctx.report
    with ctx.server("ancestors") as server:
        _, users = start(server)
        alice, bob = users["alice"], users["bob"]
        attached = {"a.txt": {"content_type": "text/plain", "data": "c2VjcmV0"}}
        rev = alice.expect(201, "PUT", "/db/doc", {"_access": ["alice"], "_attachments": attached})["rev"]
        shared = {"_id": "doc", "_revisions": {"start": 3, "ids": ["c" * 32, "b" * 32, rev[2:]]}, "_access": ["alice", "bob"]}
        report.equal("shared", alice.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [shared]}), [])
        report.equal("visible", bob.expect(200, "GET", "/db/doc")["_rev"], "3-" + "c" * 32)
        stub = {"a.txt": {"stub": True, "revpos": 1, "content_type": "text/plain", "digest": "md5-5e8d6a", "length": 6}}
        for parents in (["b" * 32, rev[2:]], ["e" * 32, rev[2:]]):
            edit = {"_id": "doc", "_revisions": {"start": 3, "ids": ["d" * 32, *parents]}, "_access": ["bob"], "_attachments": stub}
            refused = bob.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [edit]})
            report.equal("a stub", [row["error"] for row in refused], ["forbidden"])
        report.equal("nothing is written", bob.expect(200, "GET", "/db/doc?conflicts=true").get("_conflicts"), None)


def test_strangers_do_not_learn_which_revisions_there_are(ctx):
    report = ctx.report
    with ctx.server("strangers") as server:
        _, users = start(server)
        rev = users["alice"].expect(201, "PUT", "/db/doc", {"_access": ["alice"], "diagnosis": "flu"})["rev"]
        answers = []
        for known in (rev, "1-" + "0" * 32):
            doc = {"_id": "doc", "_rev": known, "_access": ["bob"], "diagnosis": "flu"}
            answers.append(users["bob"].expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [doc]}))
        guesses = [[{**row, "rev": None} for row in answer] for answer in answers]
        report.equal("one answer", guesses[0], guesses[1])
        report.equal("a refusal", [row["error"] for row in guesses[0]], ["forbidden"])


def test_an_edit_of_a_losing_leaf_does_not_take_a_document_over(ctx):
    """Bob could write the document, and kept a conflict in it. Now it is Alice's, and his longer branch must not win over hers."""
    report = ctx.report
    with ctx.server("losing") as server:
        admin, users = start(server)
        leaves = [(1, "a", ["alice", "bob"]), (2, "b", ["alice"])]
        docs = [{"_id": "doc", "_rev": f"{generation}-{digit * 32}", "_access": names} for generation, digit, names in leaves]
        report.equal("two leaves", admin.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": docs}), [])
        edit = {"_id": "doc", "_revisions": {"start": 3, "ids": ["d" * 32, "c" * 32, "a" * 32]}, "_access": ["bob"]}
        refused = users["bob"].expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [edit]})
        report.equal("replicated", [row["error"] for row in refused], ["forbidden"])
        users["bob"].expect(409, "PUT", "/db/doc", {"_rev": "1-" + "a" * 32, "_access": ["bob"]})
        report.equal("it is still hers", users["alice"].expect(200, "GET", "/db/doc")["_rev"], "2-" + "b" * 32)


def test_a_replicator_with_the_credentials_of_a_user(ctx):
    """It copies what the user sees, deletes what was taken away, and sends back what the user may write."""
    report = ctx.report
    with ctx.server("replicated") as server:
        admin, users = start(server)
        here, there = "copy", f"{server.url.replace('://', '://bob:pw@')}/db"
        docs = [{"_id": f"{name}-{n:02}", "_access": [name], "n": n} for name in ("alice", "bob") for n in range(20)]
        admin.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        rev = users["alice"].expect(201, "PUT", "/db/list", {"_access": ["alice", "bob"]})["rev"]
        admin.expect(200, "POST", "/_replicate", {"source": there, "target": here, "create_target": True})
        copied = [row["id"] for row in admin.expect(200, "GET", "/copy/_all_docs")["rows"]]
        report.equal("what the user sees", copied, [f"bob-{n:02}" for n in range(20)] + ["list"])
        rev = users["alice"].expect(201, "PUT", "/db/list", {"_rev": rev, "_access": ["alice"]})["rev"]
        done = admin.expect(200, "POST", "/_replicate", {"source": there, "target": here})
        report.equal("taken away", admin.get("/copy/list").status, 404)
        report.equal("nothing fails", done["history"][0]["doc_write_failures"], 0)
        admin.expect(201, "PUT", "/copy/new", {"_access": ["bob"]})
        done = admin.expect(200, "POST", "/_replicate", {"source": here, "target": there})
        report.equal("sent back", users["bob"].get("/db/new").status, 200)
        report.equal("and nothing else", (done["history"][0]["docs_written"], done["history"][0]["doc_write_failures"]), (1, 0))
        report.equal("the document is as it was", users["alice"].get("/db/list").json["_rev"], rev)


def test_local_documents_are_their_users(ctx):
    report = ctx.report
    with ctx.server("local") as server:
        admin, users = start(server)
        for name in ("alice", "bob"):
            users[name].expect(201, "PUT", "/db/_local/x", {"of": name})
        report.equal("each has one", [users[name].get("/db/_local/x").json["of"] for name in ("alice", "bob")], ["alice", "bob"])
        report.equal("the admin has none", admin.get("/db/_local/x").status, 404)
        stored = [row["id"] for row in admin.expect(200, "GET", "/db/_local_docs")["rows"]]
        report.equal("stored", len(stored), 2)
        keys = users["bob"].expect(200, "POST", "/db/_all_docs", {"keys": stored})["rows"]
        report.equal("not by keys", [row.get("error") for row in keys], ["not_found"] * 2)


VIEWS = {
    "views": {
        "by_n": {"map": "function (doc) { emit(doc.n, doc.v) }", "reduce": "_sum"},
        "own": {"map": "function (doc) { emit(doc.n, doc.v) }", "reduce": "function (k, v, r) { return sum(v) }"},
        "conflicts": {"map": "function (doc) { if (doc._conflicts) { emit(doc._conflicts) } }"},
        "linked": {"map": "function (doc) { emit(doc.n, {_id: 'secret'}) }"},
    }
}


def rows(api, view, **more):
    options = "&".join(f"{name}={json.dumps(value)}" for name, value in more.items())
    return api.expect(200, "GET", f"/db/_design/views/_view/{view}?{options}")["rows"]


def test_views_have_the_rows_of_documents_that_the_user_may_read(ctx):
    report = ctx.report
    with ctx.server("views") as server:
        admin, users = start(server)
        alice, bob, nora = users["alice"], users["bob"], users["nora"]
        admin.expect(201, "PUT", "/db/_design/views", VIEWS)
        sets = {"a": ["alice"], "b": ["bob"], "both": ["alice", "bob"], "ward": ["role:nurse"], "mixed": ["nora", "role:nurse"], "secret": []}
        docs = [{"_id": name, "n": n % 3, "v": 10**n, "_access": sets[name]} for n, name in enumerate(sets)]
        revs = {row["id"]: row["rev"] for row in admin.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})}
        seen = {name: sorted(row["id"] for row in rows(users[name], "by_n", reduce=False)) for name in ("alice", "bob", "nora")}
        report.equal("rows", seen, {"alice": ["a", "both"], "bob": ["b", "both"], "nora": ["mixed", "ward"]})
        for view in ("by_n", "own"):
            sums = {name: rows(users[name], view)[0]["value"] for name in ("alice", "bob", "nora")}
            report.equal(f"sums of {view}", sums, {"alice": 101, "bob": 110, "nora": 11000})
            groups = [(row["key"], row["value"]) for row in rows(nora, view, group=True)]
            report.equal(f"groups of {view}", groups, [(0, 1000), (1, 10000)])
        report.equal("an admin", rows(admin, "by_n")[0]["value"], 111111)
        report.equal("an admin of the database", rows(users["dbadmin"], "by_n")[0]["value"], 111111)
        answer = alice.expect(200, "GET", "/db/_design/views/_view/by_n?reduce=false&update_seq=true")
        report.equal(
            "no counts",
            {name: answer.get(name, "absent") for name in ("total_rows", "offset", "update_seq")},
            {"total_rows": None, "offset": None, "update_seq": "absent"},
        )
        report.equal("a linked document is hidden", [row["doc"] for row in rows(alice, "linked", include_docs=True)], [None, None])
        # The access of documents changes: also a stale view has no rows of others.
        admin.expect(201, "PUT", "/db/both", {"_rev": revs["both"], "n": 2, "v": 100, "_access": ["bob", "role:nurse"]})
        for options in ("", "&update=false", "&stale=ok", "&update=lazy"):
            left = alice.expect(200, "GET", f"/db/_design/views/_view/by_n?reduce=false{options}")["rows"]
            report.equal(f"moved away {options}", [row["id"] for row in left], ["a"])
        report.equal("moved", rows(nora, "by_n")[0]["value"], 11100)
        hidden = {"_id": "a", "_rev": "1-" + "0" * 32, "n": 0, "v": 0, "_access": ["bob"]}
        admin.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [hidden]})
        report.equal("no hidden leaves", (rows(alice, "conflicts"), rows(admin, "conflicts")), ([], []))
        bob.expect(200, "DELETE", f"/db/b?rev={revs['b']}")
        report.equal("deleted", rows(bob, "by_n")[0]["value"], 100)


def test_mango_finds_documents_that_the_user_may_read(ctx):
    report = ctx.report
    with ctx.server("mango") as server:
        admin, users = start(server)
        admin.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}, "name": "n"})
        docs = [{"_id": f"{name}-{n}", "n": n, "_access": [name]} for n in range(5) for name in ("alice", "bob", "role:nurse")]
        admin.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        for selector in ({"n": {"$gte": 3}}, {"n": {"$gte": 3}, "_id": {"$gt": None}}):
            for name, prefix in (("alice", "alice"), ("bob", "bob"), ("nora", "role:nurse")):
                query = {"selector": selector, "fields": ["_id"], "execution_stats": True, "limit": 10}
                found = users[name].expect(200, "POST", "/db/_find", query)
                report.equal(f"{name} {selector}", sorted(doc["_id"] for doc in found["docs"]), [f"{prefix}-3", f"{prefix}-4"])
                report.check("examined", found["execution_stats"]["total_keys_examined"] <= 6, found["execution_stats"])
        page = users["alice"].expect(200, "POST", "/db/_find", {"selector": {"n": {"$gte": 0}}, "sort": ["n"], "limit": 3})
        rest = users["alice"].expect(200, "POST", "/db/_find", {"selector": {"n": {"$gte": 0}}, "sort": ["n"], "bookmark": page["bookmark"]})
        report.equal("pages", [doc["n"] for doc in page["docs"] + rest["docs"]], [0, 1, 2, 3, 4])


def test_what_is_not_covered_is_refused(ctx):
    """Also parts of endpoints that users have; the suite `access_matrix` has whole endpoints."""
    report = ctx.report
    with ctx.server("covered") as server:
        admin, users = start(server)
        admin.expect(201, "PUT", "/db/_design/d", DESIGN)
        admin.expect(201, "PUT", "/db/a", {"_access": ["alice"]})
        report.equal("its admin", users["dbadmin"].get("/db/_revs_limit").status, 200)
        report.equal("_explain", users["alice"].post("/db/_explain", {"selector": {}}).status, 403)
        text = users["alice"].post("/db/_find", {"selector": {"$text": "x"}})
        report.check("text indexes", text.status >= 400, text)
        report.equal("a filter function", users["alice"].get("/db/_changes?filter=d/f").status, 403)
        report.equal("descending", users["alice"].get("/db/_changes?descending=true").status, 403)
        local = {"source": "db", "target": "copy", "create_target": True}
        report.check("a local replication", users["alice"].post("/_replicate", local).status >= 400)


def test_new_documents_are_their_authors_where_that_is_the_default(ctx):
    report = ctx.report
    with ctx.server("owners") as server:
        admin, users = start(server)
        admin.expect(201, "PUT", "/owners?access=true&default_access=owner")
        admin.expect(200, "PUT", "/owners/_security", SECURITY)
        report.equal("the property", admin.expect(200, "GET", "/owners")["props"], {"access": True, "default_access": "owner"})
        alice, bob = users["alice"], users["bob"]
        alice.expect(201, "PUT", "/owners/a", {"n": 1})
        alice.expect(201, "PUT", "/owners/empty", {})
        alice.expect(201, "PUT", "/owners/file/x.txt", b"x")
        alice.expect(201, "PUT", "/owners/shared", {"_access": ["alice", "bob"]})
        report.equal(
            "its author's",
            {name: member for name, member in alice.get("/owners/a").json.items() if name != "_rev"},
            {"_id": "a", "_access": ["alice"], "n": 1},
        )
        report.equal("all", [row["id"] for row in alice.get("/owners/_all_docs").json["rows"]], ["a", "empty", "file", "shared"])
        report.equal("others", [row["id"] for row in bob.get("/owners/_all_docs").json["rows"]], ["shared"])
        rev = alice.get("/owners/a").json["_rev"]
        report.equal("an edit still names its author", alice.put("/owners/a", {"_rev": rev, "n": 2}).status, 403)
        report.equal("an invalid default", admin.put("/other?access=true&default_access=all").status, 400)
        report.equal("a default without access", admin.put("/other?default_access=owner").status, 400)
        report.equal("nothing is created", admin.get("/other").status, 404)


def test_names_that_are_no_users(ctx):
    report = ctx.report
    with ctx.server("anonymous") as server:
        admin, _ = start(server)
        admin.expect(200, "PUT", "/db/_security", {"admins": {"roles": ["_admin"]}, "members": {}})
        admin.expect(201, "PUT", "/db/all", {"_access": {"read": ["*"]}})
        admin.expect(201, "PUT", "/db/users", {"_access": {"read": ["role:_users"]}})
        report.equal("anonymous", ids(server.api(credentials="")), ["all"])
        report.equal("anybody with a login", ids(server.api(credentials="bob:pw")), ["all", "users"])


def test_databases_without_access_take_the_member_as_any_other(ctx):
    report = ctx.report
    with ctx.server("plain") as server:
        admin = server.api()
        admin.expect(201, "PUT", "/plain")
        doc = {"_access": {"whatever": 1}, "n": 1}
        rev = admin.expect(201, "PUT", "/plain/a", doc)["rev"]
        report.equal("it is kept", admin.expect(200, "GET", "/plain/a"), {"_id": "a", "_rev": rev, **doc})
        report.equal("no property", admin.expect(200, "GET", "/plain")["props"], {})
        report.equal("not for system databases", admin.put("/_other?access=true").status, 400)


TEXT = "MARK-hidden-text"
# What is hidden is in none of these answers.
LISTINGS = [
    ("GET", "/db", None),
    ("GET", "/db/_all_docs?include_docs=true&conflicts=true&attachments=true&update_seq=true", None),
    ("GET", "/db/_all_docs?descending=true&include_docs=true&skip=1", None),
    ("POST", "/db/_all_docs/queries", {"queries": [{"include_docs": True, "conflicts": True}]}),
    ("GET", "/db/_changes?style=all_docs&include_docs=true&conflicts=true&attachments=true", None),
    ("GET", "/db/_changes?feed=continuous&timeout=1&style=all_docs&include_docs=true", None),
    ("GET", "/db/_changes?feed=longpoll&timeout=1&style=all_docs&include_docs=true", None),
    ("GET", "/db/_changes?feed=eventsource&timeout=1&include_docs=true", None),
    ("POST", "/db/_changes?filter=_selector&style=all_docs&include_docs=true", {"selector": {"t": {"$exists": True}}}),
    ("GET", "/db/shared?meta=true&revs=true&attachments=true", None),
    ("GET", "/db/shared?open_revs=all&revs=true&attachments=true", None),
    ("GET", "/db/ancestor?open_revs=all&revs_info=true&attachments=true", None),
    ("GET", "/db/list", None),
    ("GET", "/_dbs_info", None),
    ("POST", "/_dbs_info", {"keys": ["db"]}),
    ("GET", "/_db_updates", None),
    ("GET", "/_active_tasks", None),
    ("GET", "/_scheduler/docs", None),
    ("GET", "/_settee/slow", None),
    ("GET", "/_settee/top", None),
]


def make_hidden(admin, alice):
    """Documents, leaves and ancestors that Bob may not read. Returns ids of revisions that nobody but Alice may see."""
    attached = {"a.txt": {"content_type": "text/plain", "data": base64.b64encode(TEXT.encode()).decode()}}
    secret = {"_access": ["alice"], "t": TEXT, "_attachments": attached}
    rev = alice.expect(201, "PUT", "/db/MARK-secret", secret)["rev"]
    alice.expect(201, "PUT", "/db/_local/MARK-secret", {"t": TEXT})
    gone = alice.expect(201, "PUT", "/db/MARK-gone", secret)["rev"]
    gone = alice.expect(200, "DELETE", f"/db/MARK-gone?rev={gone}")["rev"]
    shared = {"_id": "shared", "_rev": "2-" + "b" * 32, "_access": ["alice", "bob"]}
    leaf = {"_id": "shared", "_rev": "1-" + "a" * 32, **secret}
    admin.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [shared, leaf]})
    ancestor = alice.expect(201, "PUT", "/db/ancestor", {**secret, "n": 1})["rev"]
    alice.expect(201, "PUT", "/db/ancestor", {"_rev": ancestor, "_access": ["alice", "bob"]})
    first = alice.expect(201, "PUT", "/db/list", {"_access": ["alice", "bob"]})["rev"]
    taken = alice.expect(201, "PUT", "/db/list", {"_rev": first, **secret})["rev"]
    return [hidden.partition("-")[2] for hidden in (rev, gone, leaf["_rev"], taken)]


def test_no_listing_shows_anything_of_hidden_documents(ctx):
    """Of one document each, the suite `access_matrix` compares all endpoints with answers about missing documents."""
    report = ctx.report
    with ctx.server("hidden") as server:
        admin, users = start(server)
        revs = make_hidden(admin, users["alice"])
        for name in ("bob", "nora"):
            for method, path, body in LISTINGS:
                raw = users[name].request(method, path, body, headers={"Accept": "application/json"}).raw
                found = [text for text in (TEXT, "MARK-", base64.b64encode(TEXT.encode()).decode(), *revs) if text.encode() in raw]
                report.equal(f"{name}: {method} {path}", found, [])

"""The authorisation matrix: who may use which endpoint.

ENDPOINTS names every endpoint of CouchDB's API (tests/api.md, which is compared with it) and who may use it; the suite `documentation`
compares it with the manual's reference. Each is asked by everybody, on a real server, with `require_valid_user` off and on: those who may not are
refused with 401 or 403, before anything else is said; those who may are answered, whatever the answer.
"""

import http.client
import json
import re

import pytest

from harness.api import Api, basic
from harness.endpoints import DESIGN, ENDPOINTS, MORE, VALUES

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]

# The server that would answer is gone then: those who may are not asked.
RESTART = ("POST", "/_node/{node-name}/_restart")
# Ranks: each may what those before it may.
ANYBODY, USER, MEMBER, DB_ADMIN, ADMIN, NOBODY = range(6)
WHO = {"anybody": ANYBODY, "user": USER, "member": MEMBER, "db-admin": DB_ADMIN, "admin": ADMIN, "nobody": NOBODY}
ACTORS = [
    ("anonymous", None, ANYBODY),
    ("outsider", "outsider:pw-outsider", USER),
    ("member", "member:pw-member", MEMBER),
    ("db-admin", "dbadmin:pw-dbadmin", DB_ADMIN),
    ("admin", "admin:admin", ADMIN),
]
SECURITY = {"admins": {"names": ["dbadmin"], "roles": []}, "members": {"names": [], "roles": ["readers"]}}
ROLES = {"member": ["readers"]}


BODIES = {
    "_settee/preview": {"map": "function (doc) { emit(doc._id); }"},
    "_all_docs/queries": {"queries": [{}]},
    "_design_docs/queries": {"queries": [{}]},
    "_local_docs/queries": {"queries": [{}]},
    "_view/v/queries": {"queries": [{}]},
    "_bulk_get": {"docs": [{"id": "a"}]},
    "_bulk_docs": {"docs": []},
    "_find": {"selector": {}},
    "_explain": {"selector": {}},
    "_index": {"index": {"fields": ["a"]}},
    "_bulk_delete": {"docids": []},
    "_revs_limit": 1000,
    "_purged_infos_limit": 1000,
    "_auto_purge": {"deleted_document_ttl": "infinity"},
    "_security": SECURITY,
    "_dbs_info": {"keys": ["matrix"]},
    "_cluster_setup": {"action": "nothing"},
    "_config/matrix/k": "value",
    "_replicate": {"replication_id": "none", "cancel": True},
    "_replicator/a": {"source": "http://127.0.0.1:1/none", "target": "http://127.0.0.1:1/matrix"},
    "_design/d": {},
    "_design%2Fd": {},
    "/matrix": {},
    "file.txt": b"text",
    "_reload": {},
    "_restart": {},
    "_rewrite/security": SECURITY,
    "_rewrite/design": {},
    "_rewrite/purge": {"a": ["1-x"]},
    "_rewrite/database": {},
    "_update/design": {},
    "-with-attachments": {"_attachments": {"a.txt": {"data": "eA==", "content_type": "text/plain"}}},
    "#from-here": {"source": "matrix", "target": "free"},
    "#to-here": {"source": "free", "target": "matrix"},
    "#new": {"source": "free", "target": "matrix-new", "create_target": True},
    "#design": {"_id": "_design/posted"},
    "a": {},
    "state": {"state": "stopped"},
}


def parse(text):
    for line in text.strip().splitlines():
        method, path, who = line.split()
        yield method, path, WHO[who]


def test_names_every_endpoint(ctx):
    path = ctx.checkout / "tests" / "api.md"
    listed = set(re.findall(r"^- `([A-Z]+ [^`]+)`", path.read_text(encoding="utf-8"), re.M))
    known = {f"{method} {path}" for method, path, _ in parse(ENDPOINTS)}
    ctx.report.equal("every endpoint of api.md is in the matrix", sorted(listed - known), [])


def matrix_server(ctx, name, *options):
    config = ctx.root / f"{name}.ini"
    config.write_text("[chttpd_auth]\niterations = 10\n[chttpd_auth_lockout]\nmode = off\n" + "\n".join(options), encoding="utf-8")
    return ctx.server(name, options=["--config", str(config)])


def prepare_users(api):
    for name in ("_users", "_replicator"):
        api.expect((201, 202, 412), "PUT", "/" + name)
    for _, credentials, _ in ACTORS[1:4]:
        name, password = credentials.split(":")
        user = {"name": name, "password": password, "type": "user", "roles": ROLES.get(name, [])}
        api.expect((201, 409), "PUT", f"/_users/org.couchdb.user:{name}", user)


def prepare_database(api):
    for name in ("_users", "_replicator"):
        if api.get("/" + name).status == 404:
            prepare_users(api)
    if api.get("/matrix").status == 404:
        api.expect(201, "PUT", "/matrix")
    if api.get("/free").status == 404:
        api.expect(201, "PUT", "/free")
        api.expect(200, "PUT", "/free/_security", {})
    if api.get("/matrix-new").status == 200:
        api.expect(200, "DELETE", "/matrix-new")
    api.expect(200, "PUT", "/matrix/_security", SECURITY)
    for path, body in (("/matrix/a", {}), ("/matrix/_design/d", DESIGN), ("/matrix/_local/a", {})):
        if api.get(path).status == 404:
            api.expect(201, "PUT", path, body)


def test_refuses_whom_it_must(ctx):
    with matrix_server(ctx, "matrix") as server:
        admin = server.api()
        prepare_users(admin)
        for mode in ("off", "on", "except for _up"):
            settings = {"require_valid_user": mode == "on", "require_valid_user_except_for_up": mode == "except for _up"}
            for key, value in settings.items():
                admin.expect(200, "PUT", f"/_node/_local/_config/chttpd/{key}", json.dumps(value))
            ask_all(ctx, server, admin, mode)
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-2000:])


def ask_all(ctx, server, admin, mode):
    actors = [(name, Api(server.url, credentials), rank) for name, credentials, rank in ACTORS]
    wrong, asked, may_have_changed = [], 0, True
    for method, path, who in [*parse(ENDPOINTS), *parse(MORE)]:
        for name, api, rank in actors:
            may = rank >= who
            if may and (method, path) == RESTART:
                continue
            if may_have_changed:
                prepare_database(admin)
            if rank == ANYBODY and mode != "off":
                may = (method, path) == ("POST", "/_session") or (mode != "on" and path == "/_up")
            response = ask(api, method, path)
            may_have_changed = not only_reads(method) and response.status not in (401, 403)
            asked += 1
            problem = judge(method, response, may)
            if problem:
                wrong.append(f"{name}: {method} {path}: {problem}: {response!r}")
    ctx.report.equal(f"require_valid_user {mode}: nobody is answered who must not be ({asked} requests)", wrong, [])


def only_reads(method):
    """`ANY` is of functions, which may do anything."""
    return method in ("GET", "HEAD")


def ask(api, method, path):
    path, _, trick = path.partition("#")
    query = path.partition("?")[2]
    path = path.partition("?")[0]
    path = re.sub(r"\{([^}]*)\}", lambda m: VALUES[m.group(1)], path)
    method = "GET" if method == "ANY" else method
    headers, body = {}, None
    if method == "COPY":
        headers["Destination"] = "_design/copied" if trick or "/_design/" in path else "copied" if "_local" not in path else "_local/copied"
    if method in ("PUT", "POST"):
        body = next((b for end, b in BODIES.items() if path.endswith(end) and "#" not in end), {})
        body = BODIES.get("#" + trick, body) if trick else body
    if path == "/_session" and method == "POST":
        body = {"name": "member", "password": "pw-member"}
    if path == "/_db_updates":
        path += "?timeout=1"
    if path == "/matrix" and method == "PUT":
        path = "/matrix-new"
    return api.request(method, path + ("?" + query if query else ""), body, headers=headers)


def judge(method, response, may):
    """What is wrong with an answer; None when nothing is."""
    if may:
        if response.status in (401, 403):
            return "refused, though it may"
        if response.status >= 500 and response.status not in (501, 503):
            return "failed"
        return None
    if response.status not in (401, 403):
        return "answered, though it may not"
    if method != "HEAD" and not response.is_error_shape:
        return "refused without CouchDB's error"
    return None


def test_public_databases(ctx):
    """With an empty security object everybody may read and write, but not change the design or the database."""
    with matrix_server(ctx, "public") as server:
        admin = server.api()
        prepare_users(admin)
        wrong, may_have_changed = [], True
        for name, credentials, rank in ACTORS:
            api = Api(server.url, credentials)
            for method, path, who in [*parse(ENDPOINTS), *parse(MORE)]:
                if not path.startswith("/{db}") or path == "{db}":
                    continue
                if may_have_changed:
                    prepare_database(admin)
                    admin.expect(200, "PUT", "/matrix/_security", {})
                # Nobody is named: there are no admins of the database besides the server's.
                may = who <= MEMBER or (rank == ADMIN and who != NOBODY)
                response = ask(api, method, path)
                may_have_changed = not only_reads(method) and response.status not in (401, 403)
                problem = judge(method, response, may)
                if problem:
                    wrong.append(f"{name}: {method} {path}: {problem}: {response!r}")
        ctx.report.equal("in a public database only documents are public", wrong, [])
        bulk = Api(server.url, None).post("/matrix/_bulk_docs", {"docs": [{"_id": "_design/evil"}, {"_id": "fine"}]})
        ctx.report.equal("a design document among others is refused by itself", [row.get("error") for row in bulk.json], ["unauthorized", None])
        replicated = {"new_edits": False, "docs": [{"_id": "_design/evil", "_rev": "1-a"}]}
        bulk = Api(server.url, None).post("/matrix/_bulk_docs", replicated)
        ctx.report.equal("new_edits=false is no way around", [row.get("error") for row in bulk.json], ["unauthorized"])


def test_public_users(ctx):
    """The database of users opened to everybody: each sees and changes no more than himself."""
    with matrix_server(ctx, "users", "[couchdb]\nusers_db_security_editable = true\n") as server:
        admin = server.api()
        prepare_users(admin)
        admin.expect(200, "PUT", "/_users/_security", {})
        check = ctx.report.equal
        for name, credentials, rank in ACTORS[:4]:
            api = Api(server.url, credentials)
            other = "dbadmin" if name != "db-admin" else "member"
            other = f"/_users/org.couchdb.user:{other}"
            check(f"{name}: another's document is not there", api.get(other).status, 404)
            revisions = api.get(other + "?open_revs=all", headers={"Accept": "application/json"})
            check(f"{name}: nor its revisions", (revisions.status, revisions.json["reason"]), (404, "missing"))
            rows = api.post("/_users/_bulk_get", {"docs": [{"id": other.split("/")[-1]}]}).json["results"][0]["docs"]
            check(f"{name}: nor in _bulk_get", "ok" in rows[0], False)
            none = api.post("/_users/_bulk_get", {"docs": [{"id": "org.couchdb.user:none"}]}).json["results"][0]["docs"]
            check(f"{name}: which tells of it no more than of nobody", rows[0]["error"], {**none[0]["error"], "id": other.split("/")[-1]})
            check(f"{name}: nor may it be deleted", api.delete(other + "?rev=1-a").status, 404)
            check(f"{name}: nor replaced", api.put(other, {"name": "x", "type": "user", "roles": []}).status, 403 if rank == ANYBODY else 404)
            tells_of_no_user(ctx, api, name, other.split(":")[-1])
            refused = 401 if rank == ANYBODY else (401, 403)
            for path in ("/_users/_all_docs", "/_users/_changes", "/_users/_all_docs?include_docs=true"):
                status = api.get(path).status
                ctx.report.check(f"{name}: {path} is for admins", status == refused or status in (401, 403), status)
            check(f"{name}: the design document is not shown", api.get("/_users/_design/_auth").status, 403)
        member = Api(server.url, "member:pw-member")
        own = member.get("/_users/org.couchdb.user:member")
        check("one's own document is shown, without a password", (own.status, "password" in own.json), (200, False))
        themselves(ctx, server, admin)
        admin.expect(200, "PUT", "/_node/_local/_config/chttpd_auth/public_fields", "name, colour")
        shown = Api(server.url, None).get("/_users/org.couchdb.user:member").json
        check("public fields are shown to everybody", sorted(shown), ["_id", "_rev", "name"])
        for name in ("_users", "_replicator"):
            views_where_documents_are_hidden(ctx, server, admin, name)
        queries_where_documents_are_hidden(ctx, server, admin)


def tells_of_no_user(ctx, api, actor, taken):
    """Whatever is asked of a user's document, the answer is that of a name that nobody has."""

    def answers(name):
        doc_id = f"org.couchdb.user:{name}"
        path = f"/_users/{doc_id}"
        user = {"_id": doc_id, "name": name, "type": "user", "roles": []}
        posts = [
            ("_revs_diff", {doc_id: ["1-a", "9-b"]}),
            ("_missing_revs", {doc_id: ["1-a", "9-b"]}),
            ("_bulk_get", {"docs": [{"id": doc_id}, {"id": doc_id, "rev": "1-a"}]}),
            ("_bulk_get?latest=true", {"docs": [{"id": doc_id, "rev": "1-a"}]}),
            ("_local_docs", {"keys": [doc_id]}),
            ("_design_docs", {"keys": [doc_id]}),
            ("_bulk_docs", {"docs": [{**user, "roles": ["_admin"]}]}),
            ("_bulk_docs", {"docs": [{**user, "_rev": "1-a", "roles": 5}]}),
            ("_bulk_docs", {"docs": [{**user, "_deleted": True}]}),
            ("_bulk_docs", {"docs": [{**user, "_rev": "1-a", "password": 5}]}),
            ("_bulk_docs", {"new_edits": False, "docs": [{**user, "_rev": "1-a", "roles": ["x"]}]}),
            ("_bulk_docs", {"new_edits": False, "docs": [{**user, "_rev": "9-a", "_deleted": True}]}),
            ("_find", {"selector": {"_id": doc_id}, "execution_stats": False}),
        ]
        for path_of, body in posts:
            yield "POST", path_of, api.request("POST", f"/_users/{path_of}", body)
        for method, more, body in (
            ("GET", "", None),
            ("HEAD", "", None),
            ("GET", "?rev=1-a", None),
            ("GET", "?open_revs=all", None),
            ("GET", '?open_revs=["1-a"]&latest=true', None),
            ("GET", "?revs_info=true&conflicts=true", None),
            ("GET", "/photo", None),
            ("PUT", "/photo", b"x"),
            ("DELETE", "/photo?rev=1-a", None),
            ("DELETE", "", None),
            ("DELETE", "?rev=1-a", None),
            ("PUT", "", {"type": "user", "name": name}),
            ("PUT", "?rev=1-a", {"type": "user", "name": name}),
            ("PUT", "?new_edits=false", {"_rev": "1-a", "type": "user", "name": name}),
        ):
            yield method, more, api.request(method, path + more, body, headers={"Accept": "application/json"})
        yield "COPY", "", api.request("COPY", path, None, headers={"Destination": f"org.couchdb.user:{name}x"})
        yield "PUT", "_local", api.request("PUT", f"/_users/_local/{doc_id}", {})
        yield "GET", "_local", api.request("GET", f"/_users/_local/{doc_id}")

    def shown(name):
        for method, what, answer in answers(name):
            text = re.sub(rb'"(total_rows|update_seq|offset)":[^,}]*', b"", answer.raw or b"")
            yield method, what, answer.status, text.replace(name.encode(), b"NAME")

    free = f"free{ctx.random.getrandbits(40):x}"
    for of_taken, of_free in zip(shown(taken), shown(free), strict=True):
        ctx.report.equal(f"{actor}: {of_taken[0]} {of_taken[1]} tells nothing", of_taken, of_free)


def queries_where_documents_are_hidden(ctx, server, admin):
    """A query finds what its caller may read, and cannot ask for the rest by its selector, its order or an index."""
    check, everything = ctx.report.equal, {"selector": {}, "limit": 1000}
    admin.expect(200, "PUT", "/_node/_local/_config/chttpd_auth/public_fields", "")
    admin.expect(200, "PUT", "/_users/_security", {})
    admin.expect(200, "POST", "/_users/_index", {"index": {"fields": ["derived_key"]}, "ddoc": "keys", "name": "keys"})
    key = admin.expect(200, "GET", "/_users/org.couchdb.user:dbadmin")["derived_key"]
    count = {"selector": {"type": "user"}, "aggregate": {"compute": {"users": {"$count": True}}}}
    by_key = {"selector": {"derived_key": {"$gt": None}}, "fields": ["_id"], "limit": 1000}
    users = len(admin.expect(200, "POST", "/_users/_find", by_key)["docs"])
    ctx.report.check("admins find all", users > 1, users)
    for actor, credentials, seen in (("nobody", None, []), ("member", "member:pw-member", ["org.couchdb.user:member"])):
        api = Api(server.url, credentials)
        for what, asked in (("everything", everything), ("documents with keys", by_key), ("the index", {**by_key, "use_index": ["keys", "keys"]})):
            got = [doc["_id"] for doc in api.expect(200, "POST", "/_users/_find", asked)["docs"]]
            check(f"{actor} asks for {what}", got, seen)
        check(f"{actor} asks for another's key", api.expect(200, "POST", "/_users/_find", {"selector": {"derived_key": key}})["docs"], [])
        check(f"{actor} counts", api.expect(200, "POST", "/_users/_find", count)["groups"][0]["value"], {"users": len(seen)})
        check(f"{actor} asks for an order", api.post("/_users/_find", {**by_key, "sort": ["derived_key"]}).status, 400)


def views_where_documents_are_hidden(ctx, server, admin, db):
    """Nothing hides what a view emits, so they are for admins, whichever way leads to them."""
    check, path = ctx.report.equal, f"/{db}/_design/views"
    admin.expect(
        201,
        "PUT",
        path,
        {
            "views": {
                "all": {"map": "function (doc) { emit(doc._id, doc); }"},
                "count": {"map": "function (doc) { emit(doc._id); }", "reduce": "_count"},
            },
            "lists": {"rows": "function () { var row, out = ''; while (row = getRow()) out += JSON.stringify(row); return out; }"},
            "rewrites": [{"from": "view", "to": "_view/all"}, {"from": "list", "to": "_list/rows/all"}],
        },
    )
    requests = (
        "GET _view/all",
        "HEAD _view/all",
        "GET _view/all?include_docs=true",
        "GET _view/count",
        "POST _view/all",
        "POST _view/all/queries",
        "GET _list/rows/all",
        "POST _list/rows/all",
        "GET _list/rows/views/all",
        "GET _list/rows/_all_docs",
        "GET _rewrite/view",
        "GET _rewrite/list",
    )
    for actor, credentials, may in (
        ("nobody", None, False),
        ("member", "member:pw-member", False),
        ("dbadmin", "dbadmin:pw-dbadmin", True),
        ("admin", "admin:admin", True),
    ):
        admin.expect(200, "PUT", f"/{db}/_security", {"admins": {"names": ["dbadmin"]}, "members": {}})
        api, wrong = Api(server.url, credentials), []
        for request in requests:
            method, rest = request.split(" ")
            body = {"queries": [{}]} if rest.endswith("queries") else {} if method == "POST" else None
            response = api.request(method, f"{path}/{rest}", body)
            if response.status != (200 if may else 403) or (not may and b"org.couchdb.user" in response.raw):
                wrong.append(f"{request}: {response!r}")
        check(f"{actor}: views of {db} are {'shown' if may else 'refused'}", wrong, [])
    reason = {"_users": "Only administrators can view design docs in the users database."}.get(
        db, "Only administrators can query views of this database."
    )
    refusal = Api(server.url, None).get(f"{path}/_view/all").json
    check(f"why views of {db} are refused", refusal, {"error": "forbidden", "reason": reason})
    check(f"local documents of {db} are not listed", Api(server.url, None).get(f"/{db}/_local_docs").status, 401)
    gone = admin.expect(201, "PUT", f"/{db}/_design/gone", {})["rev"]
    admin.expect(201, "POST", f"/{db}/_purge", {"_design/gone": [gone]})
    for actor, credentials, may in (("nobody", None, False), ("member", "member:pw-member", False), ("admin", "admin:admin", True)):
        infos = Api(server.url, credentials).get(f"/{db}/_purged_infos")
        check(f"{actor}: purges of {db}", (infos.status in (401, 403), b"_design/gone" in infos.raw), (not may, may))
    check(f"a view of {db} that is not there", admin.get(f"{path}/_view/none").status, 404)


def themselves(ctx, server, admin):
    """What users may do in the open: register, change their passwords, delete themselves."""
    check, nobody = ctx.report.equal, Api(server.url, None)
    user = {"name": "new", "password": "first", "type": "user", "roles": []}
    path = "/_users/org.couchdb.user:new"
    check("nobody registers with roles", nobody.put(path, {**user, "roles": ["readers"]}).json["reason"], "Only _admin may set roles")
    check("anybody registers without", nobody.put(path, user).status, 201)
    check("a name once", nobody.put(path, user).status, 409)
    taken = {"new_edits": False, "docs": [{**user, "_id": "org.couchdb.user:new", "_rev": "9-ffffffffffffffffffffffffffffffff"}]}
    check("also not beside the first", nobody.post("/_users/_bulk_docs", taken).json[0]["reason"], "Document update conflict.")
    own = Api(server.url, "new:first")
    doc = own.get(path).json
    check("a user takes no role", own.put(path, {**doc, "roles": ["readers"]}).json["reason"], "Only _admin may edit roles")
    check("but another password", own.put(path, {**doc, "password": "second"}).status, 201)
    check("which counts", [Api(server.url, f"new:{password}").get("/_session").status for password in ("first", "second")], [401, 200])
    own = Api(server.url, "new:second")
    check("a user writes nothing else", [own.put("/_users/other", {}).status, own.put("/_users/_local/l", {}).status], [404, 404])
    rev = own.get(path).json["_rev"]
    check("others do not delete it", Api(server.url, "member:pw-member").delete(f"{path}?rev={rev}").status, 404)
    check("a user deletes himself", own.delete(f"{path}?rev={rev}").status, 200)
    check("and is gone", (own.get("/_session").status, admin.get(path).status), (401, 404))


FEEDS = {"continuous": "since=0&heartbeat=60000", "eventsource": "since=0&heartbeat=60000", "longpoll": "since=now&timeout=60000"}


def test_feeds_end_when_their_user_may_no_longer_read(ctx):
    """Neither who was a member nor a user who was deleted gets later changes."""
    with ctx.server("revoked") as server:
        admin = server.api()

        def remove_member(name):
            admin.expect(200, "PUT", f"/{name}/_security", {"admins": {"roles": ["_admin"]}, "members": {"names": ["other"]}})

        def delete_user(name):
            user = admin.expect(200, "GET", f"/_users/org.couchdb.user:{name}")
            admin.expect(200, "DELETE", f"/_users/org.couchdb.user:{name}?rev={user['_rev']}")

        for name, revoke, status in (("member", remove_member, 403), ("user", delete_user, 401)):
            user = {"name": name, "password": "pw", "roles": [], "type": "user"}
            admin.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", user)
            admin.expect(201, "PUT", f"/{name}")
            admin.expect(200, "PUT", f"/{name}/_security", {"admins": {"roles": ["_admin"]}, "members": {"names": [name]}})
            admin.expect(201, "PUT", f"/{name}/first", {})
            feeds = {feed: open_feed(server, name, feed, query) for feed, query in FEEDS.items()}
            revoke(name)
            ctx.report.equal(f"{name}: reads are refused", server.api(credentials=f"{name}:pw").get(f"/{name}/first").status, status)
            admin.expect(201, "PUT", f"/{name}/later", {"text": "secret"})
            for feed, (connection, response) in feeds.items():
                rest = response.read()
                ctx.report.check(f"{name}: a {feed} feed ends without later changes", b"secret" not in rest and b"later" not in rest, rest)
                connection.close()


def test_feeds_end_when_their_admin_is_removed(ctx):
    """Also in databases that anybody may read, but not all documents of."""
    with ctx.server("removed") as server:
        admin = server.api()
        admin.expect(200, "PUT", "/_node/_local/_config/admins/second", "pw")
        admin.expect((201, 412), "PUT", "/_global_changes")
        for name in ("second", "open/_users"):
            path = f"/{name.replace('/', '%2F')}"
            admin.expect(201, "PUT", path)
            admin.expect(201, "PUT", f"{path}/first", {})
        admin.expect(200, "PUT", "/open%2F_users/_security", {})
        feeds = {f"{feed} of a database": open_feed(server, "second", feed, query) for feed, query in FEEDS.items()}
        query = FEEDS["continuous"]
        feeds["of users"] = open_feed(server, "second", "continuous", query, "/open%2F_users/_changes")
        feeds["of databases"] = open_feed(server, "second", "continuous", query, "/_db_updates", b'"second"')
        admin.expect(200, "DELETE", "/_node/_local/_config/admins/second")
        for path in ("/second/later", "/open%2F_users/later", "/later"):
            admin.expect(201, "PUT", path, {"text": "secret"})
        for feed, (connection, response) in feeds.items():
            rest = response.read()
            ctx.report.check(f"a feed {feed} ends without later changes", b"later" not in rest, rest)
            connection.close()


def open_feed(server, user, feed, query, path=None, first=b"first"):
    """A feed of the user's database that is open: its first change has come, if it is to have one."""
    connection = http.client.HTTPConnection(*server.url.removeprefix("http://").split(":"), timeout=60)
    path = f"{path or f'/{user}/_changes'}?feed={feed}&include_docs=true&{query}"
    connection.request("GET", path, headers={"Authorization": basic(f"{user}:pw")})
    response = connection.getresponse()
    while "since=0" in query and first not in response.readline():
        pass
    return connection, response

"""What somebody with a design document, or with nobody's rights, could make the server do in another's place: by rewrites,
answers of functions, functions in the server's own databases; and what a small body could make of its memory."""

import gzip
import http.client
import json
import threading
import urllib.parse

import pytest

from harness.api import Api

pytestmark = pytest.mark.quick

# A rewrite function that does what its caller's query says: so the tests are written where they are read.
PUPPET = "function (req) { return JSON.parse(req.query.as); }"

OUTSIDE = {
    "the configuration, written": {"path": "../../../_node/_local/_config/admins/evil", "method": "PUT", "body": '"pw"'},
    "the configuration": {"path": "../../../_node/_local/_config"},
    "another database": {"path": "../../../secret/doc"},
    "another database, written": {"path": "../../../secret/new", "method": "PUT", "body": "{}"},
    "users": {"path": "../../../_users/_all_docs", "query": {"include_docs": "true"}},
    "the root": {"path": "../../.."},
    "encoded parents": {"path": "%2e%2e/%2E%2e/%2e%2E/_all_dbs"},
    "half encoded parents": {"path": ".%2e/%2e./.%2e/_all_dbs"},
    "encoded slashes": {"path": "..%2f..%2f..%2f_all_dbs"},
    "double slashes": {"path": "..//..///..//_all_dbs"},
    "backslashes": {"path": "..\\..\\..\\_all_dbs"},
    "a whole URL": {"path": "http://127.0.0.1/_all_dbs"},
    "an authority": {"path": "//127.0.0.1/../../../_all_dbs"},
    "an absolute path": {"path": "/../../../_all_dbs"},
    "parents in the middle": {"path": "x/../../../../_all_dbs"},
    "too many parents": {"path": "../../../../../../_all_dbs"},
    "a query": {"path": "../../../_all_dbs?x=y"},
    "a fragment": {"path": "../../../_all_dbs#x"},
    "a replication": {
        "path": "../../../_replicate",
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps({"source": "secret", "target": "public"}),
    },
    "a session": {"path": "../../../_session", "method": "DELETE"},
    "a restart": {"path": "../../../_node/_local/_restart", "method": "POST", "headers": {"Content-Type": "application/json"}, "body": "{}"},
    "the database itself, deleted": {"path": "../..", "method": "DELETE"},
    "the database itself, made": {"path": "../..", "method": "PUT"},
    "a purge": {"path": "../../_purge", "method": "POST", "headers": {"Content-Type": "application/json"}, "body": '{"doc":["1-x"]}'},
}
# In its own database a function has no more rights than to read and to write documents.
ADMINS_IN_IT = {
    "the security object": {"path": "../../_security", "method": "PUT", "body": '{"admins":{"names":["evil"]}}'},
    "a design document": {"path": "../../_design/evil", "method": "PUT", "body": "{}"},
    "design documents in bulk": {
        "path": "../../_bulk_docs",
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps({"docs": [{"_id": "_design/evil"}]}),
    },
    "the limit of revisions": {"path": "../../_revs_limit", "method": "PUT", "body": "1"},
    "a compaction": {"path": "../../_compact", "method": "POST", "headers": {"Content-Type": "application/json"}, "body": ""},
    "an index": {
        "path": "../../_index",
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps({"index": {"fields": ["a"]}}),
    },
}
ANSWERS = {
    "how dictionaries are used": {"Use-As-Dictionary": 'match="/*"'},
    "who the server is": {"Server": "evil"},
    "a session": {"Set-Cookie": "AuthSession=evil; Path=/"},
    "a session in other letters": {"set-cookie": "authsession=evil"},
    "a session after a blank": {"Set-Cookie": "  AuthSession = evil"},
    "a cookie without a name": {"Set-Cookie": "=AuthSession=evil"},
    "a cookie of a value alone": {"Set-Cookie": "AuthSession"},
    "a long cookie for all paths": {"Set-Cookie": "a=" + 100 * "x" + "; Path=/"},
    "who may read it": {"Access-Control-Allow-Credentials": "true"},
    "a service worker's reach": {"Service-Worker-Allowed": "/"},
    "that there be only TLS": {"Strict-Transport-Security": "max-age=1000000"},
    "that all be forgotten": {"Clear-Site-Data": '"*"'},
    "that a node has not executed it": {"X-Settee-Not-Started": "1"},
}
DDOC = {
    "rewrites": PUPPET,
    "shows": {
        "told": "function (doc, req) { return {json: req}; }",
        "answer": "function (doc, req) { return {body: '<script>', headers: JSON.parse(req.query.headers)}; }",
    },
    "lists": {"answer": "function (head, req) { start({headers: JSON.parse(req.query.headers)}); send('<script>'); }"},
    "updates": {
        "answer": "function (doc, req) { return [null, {body: '<script>', headers: JSON.parse(req.query.headers)}]; }",
        "told": "function (doc, req) { return [null, JSON.stringify(req)]; }",
    },
}


def prepared(server):
    api = server.api()
    api.expect(201, "PUT", "/public")
    api.expect(200, "PUT", "/public/_security", {"admins": {"names": ["dbadmin"]}})
    api.expect(201, "PUT", "/secret")
    api.expect(201, "PUT", "/secret/doc", {"marker": "SECRET"})
    api.expect(201, "PUT", "/public/doc", {"n": 1})
    for name in ("dbadmin", "evil"):
        api.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "password": "pw", "type": "user", "roles": []})
    dbadmin = server.api(credentials="dbadmin:pw")
    dbadmin.expect(201, "PUT", "/public/_design/d", DDOC)
    dbadmin.close()
    return api


def state(api):
    """All that a request in another's place must not have changed."""
    users = api.get("/_users/_all_docs?include_docs=true").json["rows"]
    return {
        "admins": api.get("/_node/_local/_config/admins").json,
        "databases": api.get("/_all_dbs").json,
        "secret": api.get("/secret/_all_docs").json,
        "security": api.get("/public/_security").json,
        "users": len(users),
        "designs": api.get("/public/_design_docs").json["rows"],
        "revs_limit": api.get("/public/_revs_limit").json,
    }


def is_refused(answer):
    """Also in bulk, where each document is told its own."""
    return (answer.status >= 400 and answer.is_error_shape) or (answer.status == 201 and all("error" in row for row in answer.json))


def puppet(rewrite, path="/public/_design/d/_rewrite/x"):
    return path + "?as=" + urllib.parse.quote(json.dumps(rewrite))


def test_rewrites_stay(ctx):
    report = ctx.report
    with ctx.server("rewrites", options=["--set", "chttpd_auth/iterations=10"]) as server:
        api = prepared(server)
        before = state(api)
        for name, rewrite in {**OUTSIDE, **ADMINS_IN_IT}.items():
            answer = api.get(puppet(rewrite))
            report.check(
                f"a rewrite function does not reach {name}",
                is_refused(answer) and b"SECRET" not in answer.raw and b"org.couchdb" not in answer.raw,
                answer,
            )
        report.equal("and nothing is changed", state(api), before)
        report.check("inside it reads", api.get(puppet({"path": "../../doc"})).json.get("n") == 1)
        made = api.get(puppet({"path": "../../made", "method": "PUT", "body": '{"by":"rewrite"}'}))
        report.equal("and writes documents, as in CouchDB", made.status, 201)
        own = api.put("/public/_design/d/_rewrite/x?as=" + urllib.parse.quote(json.dumps({"path": "../../_revs_limit"})), 999)
        led = "function(req) { return {path: '../../_local_docs', headers: {'x-led': '1'}}; }"
        api.expect(201, "PUT", "/_users/_design/led", {"rewrites": led})
        report.equal("no admin is led to what rules hide", api.get("/_users/_design/led/_rewrite/x").status, 401)
        api.expect(200, "DELETE", f"/_users/_design/led?rev={api.expect(200, 'GET', '/_users/_design/led')['_rev']}")
        report.equal("an admin's own method and body have an admin's rights", (own.status, api.get("/public/_revs_limit").json), (200, 999))
        asked = api.put("/public/_design/d/_rewrite/x?as=" + urllib.parse.quote(json.dumps({"path": "../../_revs_limit", "body": "5"})), 998)
        report.equal("not with another body", (asked.status >= 400, api.get("/public/_revs_limit").json), (True, 999))
        twice = puppet({"path": "_rewrite/y", "method": "PUT", "body": "1", "query": {"as": json.dumps({"path": "../../_revs_limit"})}})
        report.equal("also by two rewrites", (api.get(twice).status >= 400, api.get("/public/_revs_limit").json), (True, 999))
        host = api.get(
            puppet({"path": "../../made2", "method": "PUT", "body": "{}", "headers": {"X-Forwarded-Host": "evil.example", "Host": "evil.example"}})
        )
        report.check("and no other host's name", host.status == 201 and "evil" not in host.headers.get("Location", ""), host.headers.items())
        rules = [{"from": "/a", "to": "../../../_all_dbs"}, {"from": "/ok", "to": "../../doc"}]
        api.expect(201, "PUT", "/public/_design/rules", {"rewrites": rules})
        report.equal("rules neither", api.get("/public/_design/rules/_rewrite/a").status, 500)
        rules = [{"from": "/*", "to": "../../*"}, {"from": "/", "to": "../.."}]
        api.expect(201, "PUT", "/public/_design/root", {"rewrites": rules})
        gone = api.delete("/public/_design/root/_rewrite/")
        report.equal("nor do they delete their database", (gone.status, api.get("/public").status), (403, 200))
        for path in ("/..", "/%2e%2e/_all_dbs", "/../_all_dbs", "/..%2f_all_dbs", "/%252e%252e/_all_dbs"):
            climbed = api.get("/public/_design/root/_rewrite" + path)
            report.check(f"a client does not climb by {path}", climbed.status in (400, 404), climbed)
        forged = api.get(puppet({"path": "../../doc", "method": "FOO\n2026-01-01T00:00:00 INFO forged"}))
        report.equal(
            "a method is a method, and no line of the log",
            (forged.status, [line for line in server.log().splitlines() if line.startswith("2026-01-01T00:00:00 INFO")]),
            (500, []),
        )
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def test_insecure_rewrites(ctx):
    """An admin may allow to leave the database: with what the client sent, and nothing else."""
    report = ctx.report
    options = ["--set", "chttpd_auth/iterations=10", "--set", "chttpd/secure_rewrites=false"]
    with ctx.server("insecure", options=options) as server:
        api = prepared(server)
        before = state(api)
        report.equal("a path outside", api.get(puppet({"path": "../../../_all_dbs"})).status, 200)
        for name in (
            "the configuration, written",
            "another database, written",
            "a replication",
            "a restart",
            "a session",
            "the database itself, deleted",
            "a purge",
        ):
            answer = api.get(puppet(OUTSIDE[name]))
            report.check(f"but not {name}", answer.status >= 400, answer)
        for name, rewrite in ADMINS_IN_IT.items():
            report.check(f"nor {name}", is_refused(api.get(puppet(rewrite))))
        report.equal("and nothing is changed, insecurely", state(api), before)


def test_answers_are_guarded(ctx):
    report = ctx.report
    with ctx.server("answers", options=["--set", "chttpd_auth/iterations=10"]) as server:
        api = prepared(server)

        def ways(headers):
            text = urllib.parse.quote(json.dumps(headers))
            yield "a show", api.get(f"/public/_design/d/_show/answer?headers={text}")
            yield "a list", api.get(f"/public/_design/d/_list/answer/_all_docs?headers={text}")
            yield "an update", api.post(f"/public/_design/d/_update/answer?headers={text}")
            yield "a rewrite", api.get(puppet({"code": 200, "body": "<script>", "headers": headers}))

        for name, headers in ANSWERS.items():
            for way, answer in ways(headers):
                sent = next(iter(headers))
                said = answer.headers.get(sent)
                report.check(
                    f"{way} cannot say {name}",
                    answer.status == 200 and (said is None or said.startswith("CouchDB/")),
                    (answer, answer.headers.items()),
                )
        for way, answer in ways({"Set-Cookie": "own=1", "Content-Security-Policy": "default-src *"}):
            report.equal(
                f"{way} is sandboxed, and has cookies of its own",
                (answer.headers.get_all("Content-Security-Policy"), answer.headers.get("Set-Cookie")),
                (["sandbox"], "own=1"),
            )


def test_functions_learn_no_credentials(ctx):
    report = ctx.report
    with ctx.server("credentials", options=["--set", "chttpd_auth/iterations=10"]) as server:
        api = prepared(server)
        session = server.api(credentials="").post("/_session", {"name": "dbadmin", "password": "pw"})
        cookie = session.headers["Set-Cookie"].split(";")[0]
        secret = cookie.split("=", 1)[1]
        anybody = server.api(credentials="")
        api.expect(
            201,
            "PUT",
            "/public/_design/f",
            {
                "filters": {"f": "function (doc, req) { throw {forbidden: JSON.stringify(req)}; }"},
                "rewrites": "function (req) { return {code: 200, body: JSON.stringify(req)}; }",
            },
        )
        paths = {
            "a show": ("GET", "/public/_design/d/_show/told"),
            "an update": ("POST", "/public/_design/d/_update/told"),
            "a filter": ("GET", "/public/_changes?filter=f/f"),
            "a rewrite": ("GET", "/public/_design/f/_rewrite/x"),
        }
        for way, (method, path) in paths.items():
            for name, headers in {"cookie": {"Cookie": f"own=1; {cookie}"}, "password": dict(api.authorization)}.items():
                answer = anybody.request(method, path, headers=headers)
                sent = headers.get("Authorization", "Basic " + secret).split(" ", 1)[1]
                report.check(f"{way} does not learn the {name} of its caller", b"peer" in answer.raw and sent.encode() not in answer.raw, answer)
        told = anybody.get("/public/_design/d/_show/told", headers={"Cookie": f"own=1; {cookie}"}).json
        report.equal(
            "but who it is, and other cookies",
            (told["userCtx"]["name"], told["cookie"], told["headers"]["Cookie"]),
            ("dbadmin", {"own": "1"}, "own=1"),
        )


def test_updates_in_system_databases(ctx):
    """Whoever may write design documents of a database of replications must not replicate in an admin's name."""
    report = ctx.report
    with ctx.server("system", options=["--set", "chttpd_auth/iterations=10"]) as server:
        api = prepared(server)
        api.expect(201, "PUT", "/team%2F_replicator")
        api.expect(200, "PUT", "/team%2F_replicator/_security", {"admins": {"names": ["dbadmin"]}, "members": {"names": ["dbadmin"]}})
        dbadmin = server.api(credentials="dbadmin:pw")
        update = "function (doc, req) { return [{_id: req.uuid, source: 'http://127.0.0.1:1/secret', target: 'http://127.0.0.1:1/x'}, 'made']; }"
        written = dbadmin.put("/team%2F_replicator/_design/d", {"updates": {"u": update}, "rewrites": PUPPET})
        if written.status != 201:
            report.check("design documents of _replicator databases are for admins", written.status in (401, 403), written)
            return
        api.post("/team%2F_replicator/_design/d/_update/u")
        api.get(
            puppet(
                {"path": "../../forged", "method": "PUT", "body": '{"source":"http://127.0.0.1:1/a","target":"http://127.0.0.1:1/b"}'},
                "/team%2F_replicator/_design/d/_rewrite/x",
            )
        )
        docs = [row["doc"] for row in api.get("/team%2F_replicator/_all_docs?include_docs=true").json["rows"]]
        owners = [doc for doc in docs if "source" in doc and ("_admin" in doc.get("user_ctx", {}).get("roles", []) or doc.get("owner") == "admin")]
        report.equal("no replication is made in the name of the admin who was led there", owners, [])


BOMBS = {
    "_replicate": ("POST", "/_replicate"),
    "_bulk_docs": ("POST", "/public/_bulk_docs"),
    "_bulk_get": ("POST", "/public/_bulk_get"),
    "_find": ("POST", "/public/_find"),
    "_explain": ("POST", "/public/_explain"),
    "_revs_diff": ("POST", "/public/_revs_diff"),
    "_missing_revs": ("POST", "/public/_missing_revs"),
    "keys": ("POST", "/public/_all_docs"),
    "_changes": ("POST", "/public/_changes"),
    "a view": ("POST", "/public/_design/v/_view/v"),
    "queries": ("POST", "/public/_all_docs/queries"),
    "a document": ("PUT", "/public/bomb"),
    "a posted document": ("POST", "/public"),
    "an update": ("POST", "/public/_design/d/_update/told"),
    "a show": ("POST", "/public/_design/d/_show/told"),
    "a rewrite": ("POST", "/public/_design/d/_rewrite/x"),
    "a login": ("POST", "/_session"),
    "_index": ("POST", "/public/_index"),
    "_security": ("PUT", "/public/_security"),
    "_purge": ("POST", "/public/_purge"),
    "_dbs_info": ("POST", "/_dbs_info"),
    "a setting": ("PUT", "/_node/_local/_config/a/b"),
    "_compact": ("POST", "/public/_compact"),
    "a local document": ("PUT", "/public/_local/x"),
    "_revs_limit": ("PUT", "/public/_revs_limit"),
    "_cluster_setup": ("POST", "/_cluster_setup"),
}
PEAK_MB_MAX = 700


def test_bodies_are_bounded(ctx):
    report = ctx.report
    options = ["--set", "chttpd_auth/iterations=10", "--set", "couchdb/max_attachment_size=100000000"]
    with ctx.server("bodies", options=options) as server:
        api = prepared(server)
        api.expect(201, "PUT", "/public/_design/v", {"views": {"v": {"map": "function (doc) { emit(doc._id); }"}}})
        spaces = gzip.compress(b" " * (256 << 20), 6)
        lists = gzip.compress(b'{"source":[' + b"[]," * (40 << 20) + b"[]]}", 6)
        for name, (method, path) in BOMBS.items():
            for kind, bomb in (("spaces", spaces), ("lists", lists)):
                answer = api.request(method, path, bomb, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})
                limits = ("max_", "size of a login", "encoding")
                report.check(
                    f"a bomb of {kind} to {name} is refused by a limit with a name",
                    answer.status in (413, 415) and answer.is_error_shape and any(limit in answer.json["reason"] for limit in limits),
                    answer,
                )
        many = b'{"keys":[' + b"0," * (6 << 20) + b"0]}"
        for path in ("/public/_all_docs", "/public/_revs_diff", "/public/_bulk_get", "/_replicate"):
            answer = api.post(path, many, headers={"Content-Type": "application/json"})
            report.check(f"many JSON values to {path} are refused", answer.status in (400, 413), answer)
        # Few bytes each, that inflate slowly enough for the ratio: but each is a document.
        docs = gzip.compress(b'{"docs":[' + b"{}," * 400_000 + b"{}]}")
        refused = api.post("/public/_bulk_docs", docs, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})
        report.equal(
            "very many documents in one request are refused",
            (refused.status, refused.json),
            (413, {"error": "max_bulk_docs_count_exceeded", "reason": "250000"}),
        )
        long = api.post("/_replicate", b" " * (9 << 20), headers={"Content-Type": "application/json"})
        report.equal("a body is small where a small one is enough", (long.status, long.json["error"]), (413, "too_large"))
        text = json.dumps({"docs": [{"_id": f"zip{n}", "text": "plain words again and again " * 50} for n in range(2000)]}).encode()
        zipped = api.post("/public/_bulk_docs", gzip.compress(text), headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})
        report.equal("a body that shrinks as texts do is taken", (zipped.status, len(zipped.json)), (201, 2000))
        report.check(f"memory stayed below {PEAK_MB_MAX} MB", server.peak_rss_mb() < PEAK_MB_MAX, f"{server.peak_rss_mb():.0f} MB")
        attached = api.put("/public/zipped/a.txt", spaces, headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"})
        report.equal("an attachment counts as what it inflates to", (attached.status, attached.is_error_shape), (413, True))
        at_once(ctx, server, spaces)
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def at_once(ctx, server, bomb):
    """Twenty of them at a time, and somebody else besides."""
    statuses = []

    def throw():
        api = Api(server.url)
        statuses.append(api.post("/public/_bulk_docs", bomb, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}).status)
        api.close()

    threads = [threading.Thread(target=throw) for _ in range(20)]
    for thread in threads:
        thread.start()
    read = server.api().get("/public/doc")
    for thread in threads:
        thread.join()
    ctx.report.equal("twenty bombs at once are refused, and others are answered", (sorted(set(statuses)), read.status), ([413], 200))
    ctx.report.check(f"and memory stayed below {PEAK_MB_MAX} MB", server.peak_rss_mb() < PEAK_MB_MAX, f"{server.peak_rss_mb():.0f} MB")


def test_trickling_bodies(ctx):
    """A body that does not come is a 408 once its time is over; the minute that it has is not waited for here, see body.rs."""
    with ctx.server("trickle", options=["--set", "limits/min_body_rate=0"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/public")
        parts = urllib.parse.urlsplit(server.url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        connection.putrequest("PUT", "/public/slow")
        for name, value in {**api.authorization, "Content-Type": "application/json", "Content-Length": "13"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        for byte in b'{"slow":true}':
            connection.send(bytes([byte]))
        answer = connection.getresponse()
        ctx.report.equal("a body byte by byte is taken", answer.status, 201)
        connection.close()


# Each gives what another database's call left behind, or fails by it.
SHARED_REDUCES = {
    "global": "function (k, v, r) { var g = Function('return this')(), o = g.seen || 'nothing'; if (!r && v[0].secret) g.seen = v[0].secret; return [o]; }",
    "prototype": "function (keys, values, rereduce) { var out = {}; values.forEach(function (v) { var counts = rereduce ? v : v.counts;"
    " for (var c in counts) { out[c] = out[c] || {}; for (var n in counts[c]) out[c][n] = (out[c][n] || 0) + counts[c][n]; } }); return out; }",
    "closure": "(function () { var seen = []; return function (k, v, r) { seen.push(r || v[0].secret || 0); return seen.length; }; })()",
    "memory": "function (k, v, r) { var g = Function('return this')(), s = []; if (!r && v[0].hoard && !g.kept) { g.kept = [];"
    " for (var i = 0; i < 500; i++) g.kept.push(new Uint8Array(100000).fill(7)); } for (var i = 0; i < 300000; i++) s.push({n: i}); return s.length; }",
}
SPOILING = b'{"secret":"of the other","hoard":true,"counts":{"__proto__":{"apples":1000,"injected":1}}}'


def test_reduces_share_nothing(ctx):
    """Databases with the same functions, as those of an application's users have: what one has reduced never shows in another."""
    views = {name: {"map": "function (doc) { if (doc.counts) emit(null, doc); }", "reduce": reduce} for name, reduce in SHARED_REDUCES.items()}
    with ctx.server("shared") as server:
        api = server.api(60)
        for name in ("alone", "victim", "other"):
            api.expect(201, "PUT", f"/{name}?q=1")
            api.expect(201, "PUT", f"/{name}/_design/d", {"views": views})
        api.expect(201, "PUT", "/other/spoils", SPOILING)
        rounds = 4
        for round_ in range(rounds):
            for name in ("alone", "victim"):
                if name == "victim":
                    for view in views:
                        api.get(f"/other/_design/d/_view/{view}")
                api.expect(201, "PUT", f"/{name}/doc{round_}", {"counts": {"fruit": {"apples": 3}}})
                answers = {view: api.expect(200, "GET", f"/{name}/_design/d/_view/{view}")["rows"] for view in views}
                if name == "alone":
                    expected = answers
            api.expect(201, "POST", "/other", {"counts": {"x": {"y": round_}}, "hoard": True})
            ctx.report.equal(f"round {round_}: a database reduces as if it were alone", answers, expected)
        ctx.report.equal("and its sums are right", answers["prototype"][0]["value"], {"fruit": {"apples": 3 * rounds}})


STATEFUL = "function act(doc) { var g = Function('return this')(), before = [g.kept || 0, ({}).left || 0]; if (doc.spoil) { g.kept = 1; Object.prototype.left = 1; } return before; }"


def test_documents_share_nothing(ctx):
    """One document does not change what a function makes of the next: in a build, a filter, a bulk write."""
    spoils = f"{STATEFUL} var clean = String(act(doc)) === '0,0';"
    ddoc = {
        "views": {
            "v": {"map": f"function (doc) {{ {STATEFUL} emit(act(doc), null); }}"},
            "f": {"map": f"function (doc) {{ {spoils} if (clean) emit(1); }}"},
        },
        "filters": {"f": f"function (doc, req) {{ {spoils} return clean; }}"},
        "validate_doc_update": f"function (doc, old) {{ {spoils} if (!clean) throw {{forbidden: 'spoilt'}}; }}",
    }
    with ctx.server("documents") as server:
        api = server.api(60)
        api.expect(201, "PUT", "/db?q=1")
        api.expect(201, "PUT", "/db/_design/d", ddoc)
        written = api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"d{n}", "spoil": n % 3 == 1} for n in range(30)]})
        ctx.report.equal("no document is refused for the one before it", [row for row in written if "error" in row], [])
        keys = [row["key"] for row in api.expect(200, "GET", "/db/_design/d/_view/v")["rows"]]
        ctx.report.equal("a map sees nothing of the document before", keys, [[0, 0]] * 30)
        for name in ("filter=d/f", "filter=_view&view=d/f"):
            passed = api.expect(200, "GET", f"/db/_changes?{name}")["results"]
            ids = [row["id"] for row in passed if not row["id"].startswith("_design")]
            ctx.report.equal(f"{name}: nor does a filter", len(ids), 30)

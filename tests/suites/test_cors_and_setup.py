"""What stands at the edge of the server: pages of other origins, the set-up of a single node, the page at `_utils`, and
`_db_updates` over restarts. TLS is in the suite `tls`."""

import gzip
import http.client
import json
import re
import signal
import subprocess
import threading

import pytest

from harness.api import basic, exchange
from harness.server import wait_until

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]

ORIGIN = "http://app.example"
CORS = ["--set", "chttpd/enable_cors=true"]
METHODS = "CONNECT, COPY, DELETE, GET, HEAD, OPTIONS, POST, PUT, TRACE"
EXPOSED = "accept-ranges, etag, server, x-couch-request-id, x-couch-update-newrev, x-couchdb-body-time"


def options(api, path, origin=ORIGIN, method="PUT", headers=None):
    sent = {"Origin": origin, "Access-Control-Request-Method": method}
    if headers is not None:
        sent["Access-Control-Request-Headers"] = headers
    return api.request("OPTIONS", path, headers={name: value for name, value in sent.items() if value})


def allowed(response):
    return response.headers.get("Access-Control-Allow-Origin")


def test_listed_origins(ctx):
    report = ctx.report
    with ctx.server("listed", options=[*CORS, "--set", f"cors/origins=https://other.example, {ORIGIN}", "--set", "cors/credentials=true"]) as server:
        api, anonymous = server.api(), server.api(credentials="")
        api.expect(201, "PUT", "/pages")

        asked = options(anonymous, "/pages/doc", headers="content-type, IF-MATCH")
        report.equal("a preflight needs no login and gets 204", (asked.status, asked.raw), (204, b""))
        report.equal("it names the asking origin", allowed(asked), ORIGIN)
        report.equal("it allows all methods", asked.headers["Access-Control-Allow-Methods"], METHODS)
        report.equal("it repeats the headers asked for", asked.headers["Access-Control-Allow-Headers"], "content-type, IF-MATCH")
        report.equal("it may be remembered for ten minutes", asked.headers["Access-Control-Max-Age"], "600")
        report.equal("it allows credentials", asked.headers["Access-Control-Allow-Credentials"], "true")
        report.equal("it depends on the origin", asked.headers["Vary"], "Origin")
        for path in ("/", "/pages", "/nowhere", "/pages/_changes?feed=continuous", "/_session", "/_utils/"):
            report.equal(f"a preflight for {path}", options(anonymous, path).status, 204, quiet=True)

        for name, response in {
            "another origin": options(anonymous, "/pages", origin="http://evil.example"),
            "another scheme": options(anonymous, "/pages", origin="https://app.example"),
            "another port": options(anonymous, "/pages", origin=ORIGIN + ":8080"),
            "other letter case": options(anonymous, "/pages", origin="http://APP.example"),
            "an origin that begins alike": options(anonymous, "/pages", origin=ORIGIN + ".evil.example"),
            "the origin null": options(anonymous, "/pages", origin="null"),
            "no origin": options(anonymous, "/pages", origin=None),
            "no method": options(anonymous, "/pages", method=None),
            "a method that is none": options(anonymous, "/pages", method="PATCH"),
            "a method in lower case": options(anonymous, "/pages", method="put"),
            "a header that is not allowed": options(anonymous, "/pages", headers="content-type, x-secret"),
        }.items():
            granted = allowed(response)
            ok = response.status in (401, 405) and granted in (None, ORIGIN) and "Access-Control-Allow-Methods" not in response.headers
            report.check(f"no preflight for {name}", ok, (response, granted))

        page = {"Origin": ORIGIN}
        for name, response, status in [
            ("an answer", api.get("/pages", headers=page), 200),
            ("a missing document", api.get("/pages/none", headers=page), 404),
            ("a refused login", server.api(credentials="admin:wrong").get("/", headers=page), 401),
            ("a refused anonymous", anonymous.get("/pages", headers=page), 401),
            ("a write", api.put("/pages/doc", {}, headers=page), 201),
            ("a conflict", api.put("/pages/doc", {}, headers=page), 409),
            ("a wrong method", api.request("PATCH", "/pages", headers=page), 405),
            ("a bad body", api.post("/pages/_bulk_docs", b"{", headers=page), 400),
            ("a HEAD", api.request("HEAD", "/pages/doc", headers=page), 200),
            ("a streamed list", api.get("/pages/_all_docs", headers=page), 200),
            ("a feed", api.get("/pages/_changes?feed=continuous&timeout=1", headers=page), 200),
            ("a login", anonymous.post("/_session", {"name": "admin", "password": "admin"}, headers=page), 200),
            ("a page", anonymous.get("/_utils/", headers=page), 200),
        ]:
            found = (response.status, allowed(response), response.headers.get("Access-Control-Allow-Credentials"))
            report.equal(f"{name} may be read by the page", found, (status, ORIGIN, "true"))
        exposed = api.get("/pages/doc", headers=page).headers["Access-Control-Expose-Headers"]
        report.equal("headers that pages may read", exposed, "content-type, cache-control, " + EXPOSED)

        for name, response in [("another origin", api.get("/pages", headers={"Origin": "http://evil.example"})), ("no origin", api.get("/pages"))]:
            report.check(
                f"{name} is answered and allowed nothing",
                response.status == 200 and allowed(response) is None and "Access-Control-Allow-Credentials" not in response.headers,
                response.headers.items(),
            )
            report.equal(f"with {name} the answer depends on the origin", response.headers["Vary"], "Origin", quiet=True)

        api.put("/_node/_local/_config/cors/origins", "http://new.example")
        report.equal("a changed origin counts at once", allowed(api.get("/", headers={"Origin": "http://new.example"})), "http://new.example")
        report.equal("and the old one no longer", allowed(api.get("/", headers=page)), None)


def test_all_origins(ctx):
    report = ctx.report
    with ctx.server("all", options=[*CORS, "--set", "cors/origins=*"]) as server:
        api = server.api()
        answer = api.get("/", headers={"Origin": "http://any.example"})
        report.equal("with * every origin is named", allowed(answer), "http://any.example")
        report.check("and gets no credentials unless they are configured", "Access-Control-Allow-Credentials" not in answer.headers)
        report.equal("preflight with empty headers", options(api, "/", headers="").headers["Access-Control-Allow-Headers"], "")
        api.put("/_node/_local/_config/cors/credentials", "true")
        report.equal(
            "* with credentials names the origin, as CouchDB does",
            [
                api.get("/", headers={"Origin": ORIGIN}).headers.get(name)
                for name in ("Access-Control-Allow-Origin", "Access-Control-Allow-Credentials")
            ],
            [ORIGIN, "true"],
        )
        report.check("and the log warns of it", wait_until(lambda: "[cors] credentials with origins = *" in server.log()), server.log()[-800:])


def settings_of_the_manual(ctx):
    """The settings that `Pages of other origins` has readers make, in its order: [(section/key, value)]."""
    text = (ctx.checkout / "docs/src/operations/https.md").read_text(encoding="utf-8").split("## Pages of other origins")[1]
    return re.findall(r"curl -X PUT \$S/_node/_local/_config/(\S+) -d '\"(.*?)\"'", text)


class Browser:
    """Lets a page of another origin send requests with credentials, as PouchDB 9 does with each, by the rules of the Fetch standard."""

    def __init__(self, ctx, api, origin):
        self.ctx, self.api, self.origin = ctx, api, origin

    def shares(self, name, response, status):
        """Whether the page gets to see a response to a request with credentials: `*` stands for nothing then."""
        headers = response.headers
        shared = (headers.get("Access-Control-Allow-Origin"), headers.get("Access-Control-Allow-Credentials"))
        self.ctx.report.equal(f"{name}: the page may read the response", (response.status, shared), (status, (self.origin, "true")))

    def fetch(self, status, method, path, body=None, **headers):
        name = f"{method} {path}"
        sent = {"Accept": "application/json", **({"Content-Type": "application/json"} if body is not None else {}), **headers}
        unsafe = sorted(header.lower() for header in sent if header not in ("Accept", "Cookie"))
        asked = self.api.request(
            "OPTIONS",
            path,
            headers={
                "Origin": self.origin,
                "Access-Control-Request-Method": method,
                "Access-Control-Request-Headers": ",".join(unsafe),
                "Sec-Fetch-Mode": "cors",
                "Sec-Fetch-Site": "cross-site",
            },
        )
        self.shares(f"{name}, preflight", asked, 204)
        methods, allowed = (asked.headers.get(f"Access-Control-Allow-{what}", "").lower().split(", ") for what in ("Methods", "Headers"))
        if method not in ("GET", "HEAD", "POST"):
            self.ctx.report.check(f"{name}: the method is allowed", method.lower() in methods, methods, quiet=True)
        missing = [header for header in unsafe if header not in re.split(r", ?", ",".join(allowed))]
        self.ctx.report.equal(f"{name}: the headers are allowed", missing, [], quiet=True)
        site = {"Origin": self.origin, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "cross-site"}
        response = self.api.request(method, path, body, headers={**sent, **site})
        self.shares(name, response, status)
        return response


def test_the_manuals_settings_are_enough_for_pouchdb(ctx):
    """What PouchDB 9 sends from a page at another origin, where the settings are those that the manual gives: with a name and password in
    its options, and with the cookie of a login."""
    report, made = ctx.report, settings_of_the_manual(ctx)
    report.check("the manual has settings", len(made) == 4 and ("cors/credentials", "true") in made, made)
    with ctx.server("pouchdb") as server:
        api = server.api()
        for setting, value in made:
            api.expect(200, "PUT", f"/_node/_local/_config/{setting}", value)
        origin = dict(made)["cors/origins"]
        browser = Browser(ctx, server.api(credentials=""), origin)
        login = browser.fetch(200, "POST", "/_session", {"name": "admin", "password": "admin"})
        cookie = login.headers["Set-Cookie"].split(";")[0]
        for number, who in enumerate(({"Authorization": basic("admin:admin")}, {"Cookie": cookie})):
            db = f"/pouch{number}"
            browser.fetch(404, "GET", f"{db}/", **who)
            browser.fetch(201, "PUT", f"{db}/", **who)
            browser.fetch(200, "GET", f"{db}/", **who)
            browser.fetch(404, "GET", f"{db}/_local/checkpoint", **who)
            browser.fetch(200, "POST", f"{db}/_revs_diff", {"a": ["1-" + "a" * 32]}, **who)
            docs = [{"_id": "a", "_rev": "1-" + "a" * 32, "n": 1}]
            browser.fetch(201, "POST", f"{db}/_bulk_docs", {"docs": docs, "new_edits": False}, **who)
            browser.fetch(201, "PUT", f"{db}/_local/checkpoint", {"last_seq": 1}, **who)
            browser.fetch(200, "GET", f"{db}/_changes?style=all_docs&limit=10&timeout=1000&feed=longpoll&since=0", **who)
            browser.fetch(200, "POST", f"{db}/_bulk_get?revs=true&attachments=true", {"docs": [{"id": "a"}]}, **who)
            browser.fetch(200, "POST", f"{db}/_find", {"selector": {"n": 1}}, **who)
            browser.fetch(200, "GET", f"{db}/_all_docs?include_docs=true", **who)
            browser.fetch(409, "PUT", f"{db}/a", {"n": 2}, **who)
            browser.fetch(401, "GET", f"{db}/a")
        api.expect(200, "PUT", "/_node/_local/_config/cors/credentials", "false")
        hidden = browser.api.get("/", headers={"Origin": origin})
        report.check("without credentials a browser keeps each response", "Access-Control-Allow-Credentials" not in hidden.headers, hidden)


def test_own_rules(ctx):
    rules = ["cors/origins=*", "cors/methods=GET, PUT", "cors/headers=X-Own, Content-Type", "cors/exposed_headers=X-Shown", "cors/max_age=60"]
    with ctx.server("rules", options=[*CORS, *(part for rule in rules for part in ("--set", rule))]) as server:
        api, report = server.api(), ctx.report
        asked = options(api, "/", headers="x-own")
        report.equal(
            "own methods, headers and age",
            [asked.headers[f"Access-Control-{name}"] for name in ("Allow-Methods", "Allow-Headers", "Max-Age")],
            ["GET, PUT", "x-own", "60"],
        )
        report.equal("another method", options(api, "/", method="DELETE").status, 405)
        report.equal("another header", options(api, "/", headers="if-match").status, 405)
        shown = api.get("/", headers={"Origin": ORIGIN}).headers["Access-Control-Expose-Headers"]
        report.equal("own exposed headers", shown, "content-type, cache-control, x-shown")


def test_no_cross_origin(ctx):
    with ctx.server("off") as server:
        api, report = server.api(), ctx.report
        report.equal("without enable_cors a preflight is refused", options(api, "/").status, 405)
        answer = api.get("/", headers={"Origin": ORIGIN})
        report.check(
            "and no header is added",
            not any(name.lower().startswith("access-control") or name.lower() == "vary" for name in answer.headers),
            answer.headers.items(),
        )


def test_system_databases(ctx):
    report = ctx.report
    with ctx.server("system") as server:
        api = server.api()
        report.equal("a new server has its system databases", api.expect(200, "GET", "/_all_dbs"), ["_global_changes", "_replicator", "_users"])
        report.equal(
            "they are for admins",
            {name: server.api(credentials="").get("/" + name).status for name in ("_users", "_replicator", "_global_changes")},
            {"_users": 401, "_replicator": 401, "_global_changes": 401},
        )
        api.expect(200, "DELETE", "/_replicator")
        api.expect(201, "PUT", "/_users/_local/mark", {"kept": True})
        server.stop()
    with ctx.server("system") as server:
        api = server.api()
        report.equal("a deleted one is back after a restart", api.get("/_replicator").status, 200)
        report.equal("and the others are as they were", api.expect(200, "GET", "/_users/_local/mark")["kept"], True)


def test_set_up(ctx):
    report = ctx.report
    with ctx.server("setup") as server:
        api = server.api()
        state = lambda query="": api.expect(200, "GET", "/_cluster_setup" + query)
        act = lambda **body: api.post("/_cluster_setup", body)
        report.equal("the state of a single node", state(), {"state": "single_node_enabled"})
        for method in ("GET", "POST"):
            report.equal(f"{method} is for admins", server.api(credentials="").request(method, "/_cluster_setup").status, 401)
        report.equal("other methods", api.delete("/_cluster_setup").json, {"error": "method_not_allowed", "reason": "Only GET,POST allowed"})
        report.equal("an unknown action", act(action="dance").json, {"error": "bad_request", "reason": "Invalid Action'"})
        report.equal("no action", act().status, 400)
        for body in (b"", b"[]", b"{"):
            report.equal(f"a body {body!r}", api.post("/_cluster_setup", body).json, {"error": "bad_request", "reason": "Missing JSON body'"})
        report.equal("no JSON", api.post("/_cluster_setup", b"{}", headers={"Content-Type": "text/plain"}).status, 415)
        report.equal("finished already", act(action="finish_cluster").json, {"error": "bad_request", "reason": "Cluster is already finished"})
        done = act(action="finish_cluster", ensure_dbs_exist=["_users", "more"])
        report.equal("finish_cluster makes what is missing", (done.status, done.json, api.get("/more").status), (201, {"ok": True}, 200))
        report.equal("databases that are no list", act(action="finish_cluster", ensure_dbs_exist="x").status, 400)
        report.equal(
            "a cluster on a local address",
            act(action="enable_cluster", node_count=3).json["reason"],
            "Cluster setup requires a remote bind_address (not 127.0.0.1 nor ::1)",
        )
        report.equal(
            "a cluster without a count",
            act(action="enable_cluster", bind_address="0.0.0.0").json["reason"],
            "Cluster setup requires node_count to be configured",
        )
        report.equal("a cluster of three", act(action="enable_cluster", bind_address="0.0.0.0", node_count=3).status, 501)
        report.equal("a node for no cluster", act(action="add_node", host="x").json["reason"], "Cluster is not enabled.")
        for wrong in ({"bind_address": "nowhere"}, {"port": 70000}, {"port": "x"}):
            report.equal(f"enable_single_node with {wrong}", act(action="enable_single_node", username="b", password="b", **wrong).status, 400)
        report.equal("nothing of that was kept", server.api(credentials="b:b").get("/_session").status, 401)
        one = act(action="enable_single_node", username="boss", password="secret", bind_address="127.0.0.1", port=7000, singlenode=True)
        report.equal("enable_single_node", (one.status, one.json), (201, {"ok": True}))
        report.equal("its admin logs in", server.api(credentials="boss:secret").expect(200, "GET", "/_session")["userCtx"]["roles"], ["_admin"])
        report.equal("its port is kept for the next start", api.get("/_node/_local/_config/chttpd/port").json, "7000")
        report.check("no password in the log", "secret" not in server.log(), "found")


def test_no_single_node(ctx):
    report = ctx.report
    with ctx.server("bare", options=["--set", "couchdb/single_node=false"]) as server:
        api = server.api()
        report.equal("without single_node there is no database", api.expect(200, "GET", "/_all_dbs"), [])
        report.equal(
            "_db_updates without its database",
            (lambda r: (r.status, r.json))(api.get("/_db_updates")),
            (404, {"error": "not_found", "reason": "Database does not exist."}),
        )
        state = lambda query="": api.expect(200, "GET", "/_cluster_setup" + query)["state"]
        report.equal("the state before", state(), "single_node_disabled")
        report.equal("of no databases", state("?ensure_dbs_exist=%5B%5D"), "single_node_enabled")
        report.equal("of what is no list", api.get("/_cluster_setup?ensure_dbs_exist=1").status, 400)
        api.put("/_node/_local/_config/cluster/n", "3")
        report.equal("with n = 3, on a local address", state(), "cluster_disabled")
        api.put("/_node/_local/_config/chttpd/bind_address", "0.0.0.0")
        report.equal("with n = 3, for others", state(), "cluster_enabled")
        report.equal(
            "which is said", api.post("/_cluster_setup", {"action": "enable_cluster", "node_count": 1}).json["reason"], "Cluster is already enabled"
        )
        report.equal("finishing", api.post("/_cluster_setup", {"action": "finish_cluster"}).status, 201)
        report.equal("the state after", state(), "cluster_finished")
        report.equal("its databases", api.expect(200, "GET", "/_all_dbs"), ["_replicator", "_users"])


def test_page(ctx):
    report = ctx.report
    with ctx.server("page") as server:
        api = server.api(credentials="")
        moved = api.get("/_utils?x=1")
        report.equal("/_utils leads to /_utils/, below any proxy's path", (moved.status, moved.headers["Location"]), (301, "_utils/?x=1"))
        there = api.get("/_utils/")
        text = there.raw.decode()
        report.equal("the page", (there.status, there.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        report.check("nothing of it is from elsewhere", not re.search(r"(src|href)=.(https?:|//|/)", text), text)
        report.check("no script or style is in it", "<style" not in text and not re.search(r"<script[^>]*>[^<]", text), text)
        policy = there.headers["Content-Security-Policy"]
        report.check("the policy allows its own scripts alone", "default-src 'none'" in policy and "script-src 'self';" in policy, policy)
        report.check("and nothing inline", "unsafe" not in policy and "frame-ancestors 'none'" in policy, policy)
        report.equal("it is asked for again each time", there.headers["Cache-Control"], "no-cache")
        head = api.request("HEAD", "/_utils/")
        report.equal("HEAD says how long it is", (head.status, head.headers["Content-Length"], head.raw), (200, str(len(there.raw)), b""))
        script = api.get("/_utils/index.js")
        kind = "text/javascript; charset=utf-8"
        report.equal("a script", (script.status, script.headers["Content-Type"], script.headers["Vary"]), (200, kind, "Accept-Encoding"))
        tags = {script.headers["ETag"]}
        for accepted, encoding, inflate in (("gzip, deflate", "gzip", gzip.decompress), ("gzip;q=0", None, bytes), ("gzip, deflate, br", "br", None)):
            packed = api.get("/_utils/index.js", headers={"Accept-Encoding": accepted})
            report.equal(f"accepting {accepted}", (packed.status, packed.headers.get("Content-Encoding")), (200, encoding))
            if inflate is None:
                report.check("brotli is the shortest", len(packed.raw) < len(gzip.compress(script.raw, 9)), len(packed.raw))
            else:
                report.equal("the same bytes", inflate(packed.raw), script.raw)
            tags.add(packed.headers["ETag"])
            same = api.get("/_utils/index.js", headers={"Accept-Encoding": accepted, "If-None-Match": packed.headers["ETag"]})
            report.equal("what is known already", (same.status, same.raw, same.headers["ETag"]), (304, b"", packed.headers["ETag"]))
        report.equal("each form has an ETag of its own", len(tags), 3)
        login = api.get("/_utils/session.html?return=%2Fdb")
        report.equal("CouchDB's login page leads to ours", (login.status, login.headers["Location"]), (302, "./#/login?return=%2Fdb"))
        report.equal("with and without a query", api.get("/_utils/session.html").headers["Location"], "./#/login")
        for unknown in ("fauxton.js", "index.js/", "..%2findex.js", "%2e%2e", "x/index.js", "index.js%00"):
            report.equal(f"no /_utils/{unknown}", api.get(f"/_utils/{unknown}").status, 404)
        report.equal("only GET and HEAD", api.post("/_utils/", {}).status, 405)
        report.equal("no icon at the root, as in CouchDB", api.get("/favicon.ico").status, 404)


def test_frame_options(ctx):
    report = ctx.report
    with ctx.server("frames", options=["--set", "chttpd/enable_xframe_options=true"]) as server:
        api = server.api()
        shown = lambda: api.get("/").headers["X-Frame-Options"]
        report.equal("frames are denied", shown(), "DENY")
        api.put("/_node/_local/_config/x_frame_options/hosts", f"https://x.example, {server.url}")
        report.equal("but for listed hosts", shown(), f"ALLOW-FROM {server.url}")
        api.put("/_node/_local/_config/x_frame_options/same_origin", "true")
        report.equal("or the same origin", shown(), "SAMEORIGIN")


def events(api, query=""):
    return api.expect(200, "GET", "/_db_updates" + query)


def kinds(answer, of=""):
    return [(row["type"], row["db_name"]) for row in answer["results"] if row["db_name"].startswith(of)]


def test_db_updates(ctx):
    report = ctx.report
    with ctx.server("updates") as server:
        api = server.api()
        for name in ("ev-a", "ev-b"):
            api.expect(201, "PUT", "/" + name)
        api.expect(201, "PUT", "/ev-a/doc", {})
        api.expect(200, "DELETE", "/ev-b")
        wanted = [("created", "ev-a"), ("created", "ev-b"), ("deleted", "ev-b"), ("updated", "ev-a")]
        arrived = wait_until(lambda: sorted(kinds(events(api), "ev-")) == wanted)
        report.check("created, updated and deleted are there", arrived, events(api))
        everything = events(api)
        places = {row: at for at, row in enumerate(kinds(everything, "ev-"))}
        report.check("in the order of what happened", places[("created", "ev-b")] < places[("deleted", "ev-b")], places)
        report.equal("after the last there is nothing", kinds(events(api, f"?since={everything['last_seq']}")), [])
        report.equal("nor from now on", kinds(events(api, "?since=now")), [])
        first = events(api, "?limit=1")
        report.equal("limit=1", len(first["results"]), 1)
        report.equal("and its last_seq leads to the others", kinds(events(api, f"?since={first['last_seq']}")), kinds(everything)[1:])
        report.equal("limit=0", kinds(events(api, "?limit=0")), [])
        report.equal("descending", kinds(events(api, "?descending=true")), kinds(everything)[::-1])
        for query in ("?limit=x", "?limit=-1", "?feed=x", "?since=x-y", "?heartbeat=x", "?timeout=x"):
            report.equal(f"GET {query}", api.get("/_db_updates" + query).status, 400)
        report.equal("it is for admins", server.api(credentials="").get("/_db_updates").status, 401)
        report.equal("other methods", api.post("/_db_updates", {}).status, 405)
        api.expect(201, "PUT", "/ev-a/doc2", {})
        again = wait_until(lambda: kinds(events(api, f"?since={everything['last_seq']}")) == [("updated", "ev-a")])
        report.check("an update is told again", again, events(api))
        documents = [row["id"] for row in api.expect(200, "GET", "/_global_changes/_all_docs")["rows"]]
        report.check(
            "_global_changes has a document for each", {"created:ev-a", "updated:ev-a", "created:ev-b", "deleted:ev-b"} <= set(documents), documents
        )


def live(server, query, lines, count, enough):
    """Reads a feed on a thread of its own until `count` lines have come; `enough` is set then."""

    def read():
        connection = http.client.HTTPConnection(*server.url.removeprefix("http://").split(":"), timeout=60)
        connection.request("GET", "/_db_updates" + query, headers=server.api().authorization)
        answer = connection.getresponse()
        while len(lines) < count:
            line = answer.readline()
            if not line:
                break
            lines.append(line.decode().rstrip("\n"))
        enough.set()
        connection.close()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    return reader


def test_db_updates_live(ctx):
    report = ctx.report
    with ctx.server("live") as server:
        api = server.api()
        since = events(api)["last_seq"]
        for feed, query, count in [("continuous", "&heartbeat=50", 3), ("eventsource", "&heartbeat=50", 6), ("longpoll", "&timeout=60000", 5)]:
            lines, enough = [], threading.Event()
            name = f"live-{feed}"
            reader = live(server, f"?feed={feed}&since=now{query}", lines, 10_000, enough)
            if feed != "longpoll":
                report.check(f"{feed}: heartbeats come", wait_until(lambda: len(lines) >= count, 30), lines)
            else:
                report.check("longpoll: it is open", wait_until(lambda: api.expect(200, "GET", "/_node/_local/_system")["open_feeds"] > 0, 30), lines)
            api.expect(201, "PUT", "/" + name)
            came = wait_until(lambda: any(name in line and "created" in line for line in lines), 30)
            report.check(f"{feed}: a new database is told", came, lines[-10:])
            if feed == "longpoll":
                reader.join(30)
                whole = json.loads("\n".join(lines))
                report.equal("longpoll: the answer is whole", kinds(whole), [("created", name)])
            else:
                api.expect(200, "DELETE", "/" + name)
                came = wait_until(lambda: any(name in line and "deleted" in line for line in lines), 30)
                report.check(f"{feed}: and that it is gone", came, lines[-10:])
        ended = api.get(f"/_db_updates?feed=continuous&since={since}&timeout=1")
        rows = [json.loads(line) for line in ended.raw.splitlines() if line]
        report.check("continuous: a timeout ends it with last_seq", rows and set(rows[-1]) == {"last_seq"}, ended)
        report.equal("continuous: limit ends it", len(api.get("/_db_updates?feed=continuous&limit=2").raw.splitlines()), 3)
        started = api.get("/_db_updates?feed=eventsource&timeout=1")
        report.equal("eventsource: its type", started.headers["Content-Type"], "text/event-stream")
        ids = [line for line in started.raw.decode().splitlines() if line.startswith("id: ")]
        headers = {"Last-Event-ID": ids[0].removeprefix("id: ")}
        rest = api.get("/_db_updates?feed=eventsource&timeout=1", headers=headers).raw.decode()
        report.equal("eventsource: it goes on after the last id", [line for line in rest.splitlines() if line.startswith("id: ")], ids[1:])
        lines, enough = [], threading.Event()
        reader = live(server, "?feed=continuous&heartbeat=50&since=now", lines, 10_000, enough)
        wait_until(lambda: lines, 30)
        api.expect(200, "DELETE", "/_global_changes")
        reader.join(30)
        report.check("a feed ends when _global_changes is deleted", not reader.is_alive(), lines[-5:])
        report.equal("then there is none", api.get("/_db_updates").status, 404)
        api.expect(201, "PUT", "/_global_changes")
        api.expect(201, "PUT", "/live-later")
        wait_until(lambda: ("created", "live-later") in kinds(events(api)), 30)
        report.equal("a new one contains only later events", kinds(events(api)), [("created", "live-later")])


def test_db_updates_survive(ctx):
    report = ctx.report
    with ctx.server("survive") as server:
        api = server.api()
        api.expect(201, "PUT", "/ev-kept")
        api.expect(201, "PUT", "/ev-gone")
        wait_until(lambda: ("created", "ev-gone") in kinds(events(api)))
        before = events(api)
        api.expect(201, "PUT", "/ev-kept/doc", {})
        report.equal("the server stops", server.stop(), 0)
    with ctx.server("survive") as server:
        api = server.api()
        report.equal(
            "after a restart the sequence goes on, with what was not written yet",
            kinds(events(api, f"?since={before['last_seq']}"), "ev-"),
            [("updated", "ev-kept")],
        )
        since = events(api)["last_seq"]
        api.expect(201, "PUT", "/ev-new")
        api.expect(200, "DELETE", "/ev-gone")
        server.kill()
    with ctx.server("survive") as server:
        api = server.api()
        wanted = [("created", "ev-new"), ("deleted", "ev-gone")]
        found = wait_until(lambda: sorted(kinds(events(api, f"?since={since}"), "ev-")) == wanted, 30)
        report.check("after kill -9 created and deleted databases are known", found, events(api, f"?since={since}"))


def test_small_endpoints(ctx):
    """Endpoints of the server as a whole that have no suite of their own."""
    report = ctx.report
    with ctx.server("small", options=["--set", "chttpd/max_http_request_size=2000"]) as server:
        api = server.api()
        host, port = server.url.removeprefix("http://").split(":")
        for path, status in {
            "/": 200,
            "/_up": 200,
            "/_all_dbs": 200,
            "/_dbs_info": 200,
            "/_uuids": 200,
            "/_active_tasks": 200,
            "/_membership": 200,
            "/_node/_local": 200,
            "/_node/_local/_stats": 200,
            "/_node/_local/_system": 200,
            "/_node/_local/_prometheus": 200,
            "/_node/_local/_smoosh/status": 200,
            "/_node/_local/_versions": 200,
            "/_node/_local/_config": 200,
            "/_reshard": 200,
            "/_reshard/state": 200,
            "/_reshard/jobs": 200,
            "/_scheduler/jobs": 200,
            "/_scheduler/docs": 200,
            "/_session": 200,
            "/_cluster_setup": 200,
            "/_db_updates": 200,
            "/_utils/": 200,
        }.items():
            report.equal(f"GET {path}", api.get(path).status, status, quiet=True)
            if path != "/_node/_local/_config":
                report.equal(f"HEAD {path}", api.request("HEAD", path).status, status, quiet=True)
        report.equal("POST /_search_analyze", api.post("/_search_analyze", {"analyzer": "keyword", "text": "x"}).json, {"tokens": ["x"]})
        report.check("GET / is the same by HTTP/1.0", exchange(host, int(port), b"GET / HTTP/1.0\r\n\r\n").json["couchdb"] == "Welcome")
        api.expect(201, "PUT", "/small")
        api.expect(200, "PUT", "/_node/_local/_config/chttpd/WWW-Authenticate", 'Basic realm="mine"')
        refused = server.api(credentials="").get("/_all_dbs")
        report.equal("a configured challenge", (refused.status, refused.headers.get("WWW-Authenticate")), (401, 'Basic realm="mine"'))
        api.expect(200, "DELETE", "/_node/_local/_config/chttpd/WWW-Authenticate")
        refused = server.api(credentials="").get("/_all_dbs")
        report.equal("none without it", (refused.status, refused.headers.get("WWW-Authenticate")), (401, None))
        report.equal("a body above max_http_request_size", api.post("/small/_bulk_docs", b"x" * 3000).status, 413)
        report.equal("a document above it", api.put("/small/doc", {"x": "y" * 3000}).status, 413)
        report.equal("SIGHUP", hang_up(server, api), True)
    for setting, value in (("bind_address", "127.0.0.300"), ("port", "70000")):
        refused = subprocess.run(
            [ctx.binary, "serve", "--data", ctx.root / "wrong", "--admin", "a:b", "--set", f"chttpd/{setting}={value}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        report.check(f"a wrong {setting} is refused at start", refused.returncode == 2 and setting in refused.stderr, refused)


def test_restart(ctx):
    report = ctx.report
    with ctx.server("restart") as server:
        api = server.api()
        report.equal("a restart is for admins", server.api(credentials="").post("/_node/_local/_restart", {}).status, 401)
        report.equal("only by POST", api.get("/_node/_local/_restart").status, 405)
        api.expect(201, "PUT", "/kept")
        answer = api.post("/_node/_local/_restart", {})
        report.equal("it is promised", (answer.status, answer.json), (200, {"ok": True}))
        begun = wait_until(lambda: server.log().count("Settee is listening on http://") == 2, 30)
        report.check("the server comes back at the same port", begun, server.log()[-800:])
        api = server.api()
        report.equal("with its databases", api.get("/kept").status, 200)
        report.check("as the same process", server.alive())
        report.equal("and stops as ever", server.stop(), 0)


def hang_up(server, api):
    """SIGHUP has the files read again, and the server goes on."""
    with open(f"{server.data}/local.ini", "a", encoding="utf-8") as ini:
        ini.write("\n[cors]\nmax_age = 7\n")
    server.process.send_signal(signal.SIGHUP)
    return wait_until(lambda: api.get("/_node/_local/_config/cors/max_age").status == 200, 30)

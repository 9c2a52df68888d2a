"""Doors that must stay closed: lock-outs turned on others, names told by the clock, cookies and tokens that are no good, and
replications that look around in the network of the server."""

import hashlib
import http.client
import http.server
import json
import math
import os
import pathlib
import select
import socket
import threading
import time
import urllib.parse

import pytest

from harness.accounts import FAST, config, log_in, make_user, start, user_doc, who, with_cookie
from harness.api import Api, basic
from harness.server import wait_until
from harness.tokens import by_hmac, jwt

pytestmark = pytest.mark.costly_hashes

# Of users who are no admins replications that reach nothing take as long as this, each time they try.
BRIEF = {"retries_per_request": 0, "connection_timeout": 700}
# A port that answers at once would be apart from a silent one by the timeout.
APART_S_MAX = 0.5
ROUNDS_MAX = 8
# In this time a job that is retried without a pause fails often.
WATCHED_S = 1.5


def with_credentials(server, credentials, path, host="127.0.0.1"):
    port = server.url.rsplit(":", 1)[1]
    return f"http://{credentials}@{host}:{port}/{path}"


def replicate(api, source, target, **options):
    return api.post("/_replicate", {"source": source, "target": target, **options})


def test_own_requests(ctx):
    """A user has the server itself give wrong passwords."""
    server, api = start(ctx, "own")
    check = ctx.report.equal
    make_user(api, "eve")
    make_user(api, "anna")
    api.expect(201, "PUT", "/db")
    api.expect(200, "PUT", "/db/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    eve, anna = server.api(credentials="eve:secret"), server.api(credentials="anna:secret")
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        refused = [
            replicate(eve, with_credentials(server, f"admin:wrong{n}", "db", host), with_credentials(server, "eve:secret", "db")).status
            for n in range(4)
        ]
        # 403 while the account is locked.
        check(f"replications with wrong passwords are refused ({host})", set(refused) - {401, 403}, set())
    check("they lock out nobody at 127.0.0.1", who(server, "admin:admin"), ("admin", ["_admin"]))
    check("nor whoever replicates", who(server, "eve:secret"), ("eve", []))
    right = replicate(eve, with_credentials(server, "admin:admin", "db"), with_credentials(server, "eve:secret", "db"))
    check("but the right password is refused there, too", right.status, 403)
    own = lambda name, password: with_credentials(server, f"{name}:{password}", "db")
    check("others' replications go on", replicate(anna, own("anna", "secret"), own("admin", "admin")).status, 200)
    failures = lambda: server.log().count("authentication failed")
    before = failures()
    api.expect(200, "POST", "/_replicate", {"source": own("anna", "secret"), "target": own("admin", "admin")})
    api.expect(201, "PUT", "/_replicator/wrong", {"source": own("anna", "wrong"), "target": own("anna", "wrong"), "continuous": True})
    ctx.report.check("a document's job fails", wait_until(lambda: api.get("/_scheduler/docs/_replicator/wrong").json.get("state") == "crashing"))
    often = wait_until(lambda: failures() - before > 6, WATCHED_S)
    ctx.report.check("and is not tried again at once", not often, failures() - before)
    forged = {"X-Settee-Replication": "ZXZl." + "0" * 64}
    for n in range(5):
        who(server, f"anna:wrong{n}", forged)
    check("nobody claims to be the server itself", Api(server.url, "anna:secret").get("/_session", headers={"X-Settee-Replication": "x"}).status, 403)
    check("the token is sent to nobody else", token_sent_to(ctx, api), [None])
    api.close()
    server.stop()


def token_sent_to(ctx, api):
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers.get("X-Settee-Replication"))
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_HEAD = do_GET
        log_message = lambda *_: None

    with other_server(Handler) as url:
        replicate(api, f"{url}/db", f"{url}/db", **BRIEF)
        replicate(api, f"{url.replace('127.0.0.1', 'localhost')}/db", f"{url}/db", **BRIEF)
    return sorted(set(seen), key=str)


class other_server:
    """A server of another kind, on a free port."""

    def __init__(self, handler):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_lockout(ctx):
    server, api = start(ctx, "names")
    check = ctx.report.equal
    make_user(api, "anna")
    api.expect(201, "PUT", "/_users/org.couchdb.user:bare", {"name": "bare", "type": "user", "roles": []})
    answers = {}
    for name in ("anna", "bare", "nobody", "x" * 3000):
        tries = [Api(server.url, f"{name}:wrong{n}").get("/_session") for n in range(7)]
        tries.append(Api(server.url, None).post("/_session", {"name": name, "password": "wrong"}))
        answers[name[:9]] = [(t.status, t.json["reason"]) for t in tries]
    check("whether a name exists is not told by lock-outs", len({json.dumps(a) for a in answers.values()}), 1)
    check("which there are", [status for status, _ in answers["anna"]], [401] * 5 + [403] * 3)
    cookie = None
    make_user(api, "carl")
    cookie = log_in(server, "carl")
    for n in range(6):
        who(server, f"carl:wrong{n}")
    check("a session goes on while its name is locked out", who(server, None, with_cookie(cookie)), ("carl", []))
    check("a password that was remembered does not: it could be guessed", who(server, "carl:secret"), None)
    api.close()
    server.stop()


def test_floods_of_wrong_passwords(ctx):
    """One wrong password from each of many addresses, and then the first login of somebody else."""
    server, api = start(ctx, "flood", "[chttpd_auth]\niterations = 200000\n")
    for name in ("anna", "fay"):
        make_user(api, name)
    host, port = urllib.parse.urlsplit(server.url).netloc.split(":")
    turns = max(len(os.sched_getaffinity(0)) // 2, 1)

    def send(address, method, body=None, **headers):
        connection = http.client.HTTPConnection(host, int(port), timeout=60, source_address=(address, 0))
        connection.request(method, "/_session", body, headers)
        return connection

    def answered(connections):
        return len(select.select([c.sock for c in connections], [], [], 0)[0])

    def log_in_from(address, name):
        body = json.dumps({"name": name, "password": "secret"})
        return send(address, "POST", body, **{"Content-Type": "application/json"}).getresponse().status

    known = send("127.90.1.1", "GET", Authorization=basic("anna:secret")).getresponse()
    ctx.report.equal("an address gives a right password", known.status, 200)
    for flood, (address, name) in {
        "many names from one network": ("127.80.1.1", "fay"),
        "one name from everywhere": ("127.90.1.1", "anna"),
    }.items():
        is_one_name = flood.startswith("one name")
        source = lambda n: f"127.{n % 50 + 1}.66.1" if is_one_name else f"127.66.{n % 250}.{n // 250 + 1}"
        claimed = lambda n: "anna" if is_one_name else f"someone{n}"
        sent = [send(source(n), "GET", Authorization=basic(f"{claimed(n)}:wrong{n}")) for n in range(60 * turns)]
        ctx.report.check(f"wrong passwords are refused ({flood})", wait_until(lambda: answered(sent)))
        before = answered(sent)
        status = log_in_from(address, name)
        others = answered(sent) - before
        ctx.report.equal(f"a right one is accepted meanwhile ({flood})", status, 200)
        # Five orders of turns, and what began or was answered between the counts.
        ctx.report.check(f"after a few others ({flood})", others <= 15 * turns, f"{others} of {len(sent)}")
        for connection in sent:
            connection.close()
    api.close()
    server.stop()


def test_timing(ctx):
    """Processor time of the server, which no neighbour on this machine changes much; what is to be seen is a factor of a hundred."""
    server, api = start(ctx, "timing", "[chttpd_auth]\niterations = 10\n[chttpd_auth_lockout]\nmode = off\n")
    make_user(api, "cheap")
    config(api, "chttpd_auth", "iterations", "300000")
    make_user(api, "dear")
    config(api, "chttpd_auth", "iterations", "10")
    config(api, "chttpd_auth", "pbkdf2_prf", "sha")
    make_user(api, "other")
    api.expect(201, "PUT", "/_users/org.couchdb.user:bare", {"name": "bare", "type": "user", "roles": []})

    def log_in_with(name, n):
        return Api(server.url, None).post("/_session", {"name": name, "password": f"wrong{n}"})

    def by_basic(name, n):
        return Api(server.url, f"{name}:wrong{n}").get("/_session")

    logins = ctx.size(4, 8)

    def seconds(name, way):
        before = server.cpu_seconds()
        for n in range(logins):
            way(name, f"{way.__name__}{n}")
        return server.cpu_seconds() - before

    by_basic("dear", "first")
    for way in (log_in_with, by_basic):
        spent = {name: seconds(name, way) for name in ("dear", "cheap", "other", "nobody", "bare", "admin", "_design/x", "")}
        if way is log_in_with:
            spent.pop("")  # a login without a name is no login
        ctx.report.check(f"a wrong password takes as long for everybody ({way.__name__})", max(spent.values()) < 10 * min(spent.values()), spent)
        ctx.report.check("which is long", min(spent.values()) > 0.0125 * logins, spent)
    api.close()
    server.stop()


def test_same_site(ctx):
    server, api = start(ctx, "site")
    check = ctx.report.equal
    make_user(api, "anna")
    given = lambda **headers: (
        Api(server.url, None).post("/_session", {"name": "anna", "password": "secret"}, headers=headers).headers["Set-Cookie"].split("; ")
    )
    check("cookies are not sent along from other sites", given()[-2:], ["HttpOnly", "SameSite=Lax"])
    check("also when they end", Api(server.url, None).delete("/_session").headers["Set-Cookie"].split("; ")[-1], "SameSite=Lax")
    check("nor without TLS, where a proxy says that there is", "Secure" in given(**{"X-Forwarded-Proto": "https"}), True)
    check("which there is not always", "Secure" in given(), False)
    config(api, "chttpd_auth", "same_site", "none")
    check("none wants TLS", [part for part in given() if part in ("Secure", "SameSite=None")], ["Secure", "SameSite=None"])
    config(api, "chttpd_auth", "same_site", "omit")
    check("browsers may be left alone with it", given()[-1], "HttpOnly")
    config(api, "chttpd_auth", "same_site", "")
    # CouchDB's older name of the section, and its spelling.
    for value in ("Strict", "None", "Lax", "strict"):
        config(api, "couch_httpd_auth", "same_site", value)
        check(f"[couch_httpd_auth] same_site = {value}", given()[-1], f"SameSite={value.capitalize()}")
    config(api, "couch_httpd_auth", "timeout", "7")
    check("other keys that moved count there too", "Max-Age=7" in given(), True)
    api.close()
    server.stop()


def test_token_extensions(ctx):
    import base64

    ini = (
        FAST + "[chttpd]\nauthentication_handlers = {chttpd_auth, jwt_authentication_handler}, {chttpd_auth, default_authentication_handler}\n"
        "[jwt_keys]\nhmac:_default = " + base64.b64encode(b"secret").decode() + "\n"
    )
    server, _ = start(ctx, "crit", ini)
    check, claims = ctx.report.equal, {"sub": "joe", "exp": int(time.time()) + 600}
    told = lambda **header: Api(server.url, None).get(
        "/_session", headers={"Authorization": "Bearer " + jwt(claims, by_hmac(b"secret"), alg="HS256", **header)}
    )
    check("a token is good", told().json["userCtx"]["name"], "joe")
    for crit in (["exp"], ["b64"], [], "x", None):
        answer = told(crit=crit, exp=1)
        check(f"one with crit {crit} is not", (answer.status, answer.json["reason"]), (400, "Unsupported crit header parameter"))
    check("nor one whose payload is not encoded", told(b64=False).status, 400)
    server.stop()


def test_empty_secret(ctx):
    server, api = start(
        ctx,
        "secret",
        FAST + "secret =\nproxy_use_secret = true\n[chttpd]\nauthentication_handlers = {chttpd_auth, proxy_authentication_handler}, "
        "{chttpd_auth, default_authentication_handler}\n",
    )
    import hashlib
    import hmac

    forged = {
        "X-Auth-CouchDB-UserName": "root",
        "X-Auth-CouchDB-Roles": "_admin",
        "X-Auth-CouchDB-Token": hmac.new(b"", b"root", hashlib.sha256).hexdigest(),
    }
    ctx.report.equal("an empty secret is none", who(server, None, forged), (None, []))
    ctx.report.equal("one is made up", len(api.expect(200, "GET", "/_node/_local/_config/chttpd_auth/secret")), 32)
    api.close()
    server.stop()


def test_targets(ctx):
    """Where users who are no admins may have the server connect to."""
    server, api = start(ctx, "targets")
    check = ctx.report.equal
    make_user(api, "eve")
    api.expect(201, "PUT", "/db")
    api.expect(200, "PUT", "/db/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    api.expect(201, "PUT", "/db/a", {})
    api.expect(201, "PUT", "/copy")
    api.expect(200, "PUT", "/copy/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    eve = server.api(credentials="eve:secret")
    own = lambda host="127.0.0.1": with_credentials(server, "eve:secret", "db", host)
    for host in ("127.0.0.1", "localhost", "127.1", "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]"):
        answer = replicate(eve, own(host), "copy")
        check(f"this server may be replicated with, as {host}", (answer.status, answer.json.get("ok")), (200, True))
    check("and by its databases' names", replicate(eve, "db", "copy").status, 200)
    told = lambda answer: (answer.status, answer.json["error"])
    # At all addresses of this machine.
    listener = socket.create_server(("", 0))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    for host in (
        f"127.0.0.1:{port}",
        f"127.1:{port}",
        f"2130706433:{port}",
        f"127.0.0.2:{port}",
        f"0.0.0.0:{port}",
        "[::1]:9",
        f"[::ffff:127.0.0.1]:{port}",
        "[64:ff9b::7f00:1]",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
        "224.0.0.1",
        "255.255.255.255",
    ):
        answers = [told(replicate(eve, f"http://{host}/db", "copy")), told(replicate(eve, "db", f"http://{host}/db"))]
        check(f"{host} is for admins", answers, [(403, "forbidden")] * 2)
    proxied = [told(replicate(eve, "http://192.0.2.9/db", "copy", proxy=f"{scheme}://127.0.0.1:{port}")) for scheme in ("http", "https", "socks5")]
    check("so is a proxy there", proxied, [(403, "forbidden")] * 3)
    check("also in front of this server", told(replicate(eve, own(), "copy", source_proxy=server.url))[0], 403)
    check("none of them was connected to", connections_of(listener), 0)
    asked = replicate(api, f"http://127.0.0.1:{port}/db", "copy", **BRIEF)
    ctx.report.check("an admin's replication is", asked.status == 500 and connections_of(listener) > 0, asked)
    listener.close()
    admins = replicate(api, "http://127.0.0.1:9/db", "copy", **BRIEF)
    ctx.report.check("admins are told what there is", admins.status == 500 and "cannot connect" in admins.json["reason"], admins)
    config(api, "replicator", "allowed_addresses", "public, 127.0.0.9/32")
    check("without self not even this server", told(replicate(eve, own(), "copy")), (403, "forbidden"))
    check("a network may be allowed", told(replicate(eve, "http://127.0.0.9:9/db", "copy", **BRIEF)), (500, "replication_error"))
    api.close()
    server.stop()


def connections_of(listener):
    """How many wait at a listener that does not block; they are closed."""
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_ports_alike(ctx):
    """A port that is closed, one that says nothing, one that talks nonsense, one of another kind of server: all the same."""
    server, api = start(ctx, "ports", FAST + "[replicator]\nallowed_addresses = any\n")
    config(api, "replicator", "allowed_addresses", "self, 127.0.0.0/8")
    make_user(api, "eve")
    api.expect(201, "PUT", "/db")
    api.expect(200, "PUT", "/db/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    eve = server.api(credentials="eve:secret")

    class Web(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = b"<h1>It works</h1>"
            self.send_response(404 if "missing" in self.path else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_HEAD = do_GET
        log_message = lambda *_: None

    silent, garbage = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))

    def talk():
        while True:
            try:
                connection, _ = garbage.accept()
            except OSError:
                return
            connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
            connection.close()

    threading.Thread(target=talk, daemon=True).start()
    with other_server(Web) as web:
        ports = {
            "closed": "http://127.0.0.1:9/db",
            "silent": f"http://127.0.0.1:{silent.getsockname()[1]}/db",
            "garbage": f"http://127.0.0.1:{garbage.getsockname()[1]}/db",
            "web": f"{web}/db",
            "missing": f"{web}/missing",
            "name": "http://no-such-host.invalid/db",
        }
        reasons, spent = {}, {}
        # A busy machine makes one longer now and then, never shorter.
        for _ in range(ROUNDS_MAX):
            for name, url in ports.items():
                began = time.monotonic()
                answer = replicate(eve, url, "db", **BRIEF)
                spent[name] = min(time.monotonic() - began, spent.get(name, math.inf))
                reasons[name] = (answer.status, answer.json["error"], answer.json["reason"].replace(url + "/", "URL"))
            if max(spent.values()) - min(spent.values()) < APART_S_MAX:
                break
    ctx.report.equal("all are told alike", set(reasons.values()), {(500, "replication_error", "URL could not be reached")})
    ctx.report.check("and take as long", max(spent.values()) - min(spent.values()) < APART_S_MAX, spent)
    ctx.report.check("the log has the details", "refused" in server.log())
    silent.close()
    garbage.close()
    api.close()
    server.stop()


def test_documents(ctx):
    """Documents run with the rights of their owners, whatever they say."""
    server, api = start(ctx, "documents-of", FAST + "[replicator]\nstartup_jitter = 0\n")
    check = ctx.report.equal
    for name in ("eve", "dora"):
        make_user(api, name, roles=["r"])
    api.expect(201, "PUT", "/db")
    api.expect(200, "PUT", "/db/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    api.expect(200, "PUT", "/_replicator/_security", {"members": {"roles": []}, "admins": {"names": ["dora"], "roles": []}})
    eve, dora = (server.api(credentials=f"{name}:secret") for name in ("eve", "dora"))
    target = with_credentials(server, "eve:secret", "db")
    doc = {"source": "http://127.0.0.1:9/x", "target": target, **BRIEF}
    state = lambda id: api.get(f"/_scheduler/docs/_replicator/{id}").json
    reason = lambda id: json.dumps(state(id).get("info"))
    put = lambda who, id, **more: who.put(f"/_replicator/{id}", {**doc, **more}).status
    for name, ctx_of in (
        ("forged", {"name": "eve", "roles": ["_admin"]}),
        ("others", {"name": "admin", "roles": []}),
        ("odd", {"roles": [1]}),
        ("text", "admin"),
    ):
        check(f"nobody takes roles or names ({name})", put(eve, name, user_ctx=ctx_of), 403)
    check("one's own may be said", put(eve, "plain", user_ctx={"name": "eve", "roles": ["r"]}), 201)
    ctx.report.check("a user's replication is kept away", wait_until(lambda: "only server admins" in reason("plain")), state("plain"))
    check("the database's admin is no server admin", put(dora, "doras", owner="admin"), 403)
    check("and writes for others", put(dora, "eves", owner="eve", source="http://127.0.0.1:9/y"), 201)
    ctx.report.check("with their rights", wait_until(lambda: "only server admins" in reason("eves")), state("eves"))
    check("an admin's goes out", put(api, "admins", source="http://127.0.0.1:9/z"), 201)
    ctx.report.check("as far as there is anybody", wait_until(lambda: "cannot connect" in reason("admins")), state("admins"))
    rev = api.expect(200, "GET", "/_replicator/admins")["_rev"]
    check("nobody else changes it", put(dora, "admins", _rev=rev, owner="admin"), 403)
    check("given to a user", put(api, "admins", _rev=rev, owner="eve", source="http://127.0.0.1:9/z"), 201)
    ctx.report.check("it is judged again", wait_until(lambda: "only server admins" in reason("admins")), state("admins"))
    own = {**doc, "source": with_credentials(server, "eve:secret", "db"), "target": target, "continuous": True}
    check("this server may be replicated with", eve.put("/_replicator/own", own).status, 201)
    ctx.report.check("and is", wait_until(lambda: state("own").get("state") == "running"), state("own"))
    for member in ("ssl", "cert_file", "key_file", "ssl_trusted_certificates_file"):
        check(
            f"no document names files ({member})", put(eve, f"file-{member}", source=f"http://127.0.0.1:9/{member}", **{member: "/etc/passwd"}), 201
        )
        ctx.report.check("they are passed over", wait_until(lambda: "only server admins" in reason(f"file-{member}")), state(f"file-{member}"))
    api.close()
    server.stop()


def test_redirects(ctx):
    """A server that may be reached sends the replicator to one that may not."""
    server, api = start(ctx, "redirects")
    config(api, "replicator", "allowed_addresses", "self, 127.0.0.9")
    make_user(api, "eve")
    api.expect(201, "PUT", "/db")
    api.expect(200, "PUT", "/db/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    eve, asked, led = server.api(credentials="eve:secret"), [], []

    class Inner(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_HEAD = do_GET
        log_message = lambda *_: None

    with other_server(Inner) as inner:

        class Outer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                led.append(self.headers.get("Authorization"))
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(307)
                self.send_header("Location", inner.replace("127.0.0.1", self.path.split("/")[1]) + "/db")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_HEAD = do_GET
            log_message = lambda *_: None

        outer = http.server.ThreadingHTTPServer(("127.0.0.9", 0), Outer)
        threading.Thread(target=outer.serve_forever, daemon=True).start()
        for host in ("127.0.0.1", "localhost", "127.1"):
            answer = replicate(eve, f"http://u:p@127.0.0.9:{outer.server_port}/{host}/db", "db", **BRIEF)
            ctx.report.equal(f"a redirect to {host} leads nowhere", answer.status, 500)
        outer.shutdown()
        outer.server_close()
    ctx.report.check("the first was asked", basic("u:p") in led, led)
    ctx.report.equal("the second was not", asked, [])
    api.close()
    server.stop()


def test_headers(ctx):
    server, api = start(ctx, "headers")
    make_user(api, "eve")
    api.expect(201, "PUT", "/db")
    eve = server.api(credentials="eve:secret")
    url = server.url + "/db"
    for name, value in (
        ("Content-Length", "5"),
        ("transfer-encoding", "chunked"),
        ("Connection", "close"),
        ("Upgrade", "x"),
        ("Host", "evil.example"),
        ("TE", "x"),
        ("X-Settee-Replication", "x"),
        ("A", "b\r\nC: d"),
        ("A\r\nB", "c"),
        ("A: b", "c"),
        ("", "x"),
    ):
        answer = replicate(eve, {"url": url, "headers": {name: value}}, url)
        ctx.report.equal(f"{name!r}: {value!r} is no header of a replication", (answer.status, answer.json["error"]), (400, "invalid_replication"))
    answer = replicate(api, {"url": url, "headers": {"X-Mine": "1", "Authorization": basic("admin:admin")}}, "db")
    ctx.report.equal("others are", answer.status, 200)
    api.close()
    server.stop()


def test_proxy_headers(ctx):
    """A proxy is trusted without a secret, because nobody else reaches the server: but the server reaches itself."""
    server, api = start(
        ctx,
        "trusting",
        FAST + "[chttpd]\nauthentication_handlers = {chttpd_auth, proxy_authentication_handler}, {chttpd_auth, default_authentication_handler}\n",
    )
    make_user(api, "eve")
    config(api, "chttpd_auth", "proxy_use_secret", "false")
    api.expect(201, "PUT", "/secret")
    api.expect(201, "PUT", "/secret/a", {})
    api.expect(201, "PUT", "/mine")
    api.expect(200, "PUT", "/mine/_security", {"members": {"roles": []}, "admins": {"roles": []}})
    named = {"X-Auth-CouchDB-UserName": "root", "X-Auth-CouchDB-Roles": "_admin"}
    ctx.report.equal("the proxy is believed", who(server, None, named), ("root", ["_admin"]))
    answer = replicate(server.api(credentials="eve:secret"), {"url": server.url + "/secret", "headers": named}, "mine")
    ctx.report.equal("a replication is not", answer.status, 401)
    api.close()
    server.stop()


def test_endless(ctx):
    """A server whose answer never ends."""
    server, api = start(ctx, "endless")
    api.expect(201, "PUT", "/db")

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            try:
                self.wfile.write(b'{"x":"')
                while True:
                    self.wfile.write(b"x" * (1 << 20))
            except OSError:
                pass

        do_POST = do_HEAD = do_GET
        log_message = lambda *_: None

    with other_server(Endless) as url:
        before = server.peak_rss_mb()
        answer = replicate(api, f"{url}/db", "db", retries_per_request=0)
        ctx.report.check("it is not listened to for ever", answer.status == 500 and "is longer than" in answer.json["reason"], answer)
        ctx.report.check("nor held", server.peak_rss_mb() - before < 400, server.peak_rss_mb() - before)
    api.close()
    server.stop()


def test_shares(ctx):
    """One user's replications leave room for others'."""
    server, api = start(ctx, "shares", FAST + "\n[replicator]\nmax_jobs_per_user = 3\n")
    make_user(api, "anna")
    api.expect(201, "PUT", "/public")
    api.expect(200, "PUT", "/public/_security", {})
    anna = server.api(credentials="anna:secret")
    jobs = [replicate(anna, "public", "public", continuous=True, doc_ids=[str(n)]) for n in range(5)]
    ctx.report.equal("a user has as many replications as one may have", [job.status for job in jobs], [202, 202, 202, 503, 503])
    ctx.report.check(
        "and is told which limit it is", "max_jobs_per_user" in jobs[-1].json["reason"] and jobs[-1].headers.get("Retry-After"), jobs[-1]
    )
    again = replicate(anna, "public", "public", continuous=True, doc_ids=["0"])
    ctx.report.equal("one that runs is no other one", again.status, 202)
    ctx.report.equal(
        "an admin has as many as he likes",
        [replicate(api, "public", "public", continuous=True, doc_ids=["a", str(n)]).status for n in range(5)],
        [202] * 5,
    )
    api.close()
    server.stop()


def test_running_shares(ctx):
    """However many replications one user has, an admin's runs at once."""
    options = "max_jobs = 4\ninterval = 3600000\nstartup_jitter = 0\n"
    server, api = start(ctx, "running", FAST + f"\n[replicator]\n{options}")
    make_user(api, "anna")
    api.expect(201, "PUT", "/public")
    api.expect(200, "PUT", "/public/_security", {})
    anna = server.api(credentials="anna:secret")
    for n in range(8):
        ctx.report.equal("a user's is accepted", replicate(anna, "public", "public", continuous=True, doc_ids=[str(n)]).status, 202, quiet=True)
    running = lambda user: [
        job for job in api.expect(200, "GET", "/_scheduler/jobs")["jobs"] if job["user"] == user and job["history"][0]["type"] == "started"
    ]
    ctx.report.check("half of the places are one user's", wait_until(lambda: len(running("anna")) == 2), running("anna"))
    ctx.report.equal("an admin's is accepted", replicate(api, "public", "public", continuous=True, doc_ids=["a"]).status, 202)
    ctx.report.check("and runs, though the user's wait", wait_until(lambda: len(running("admin")) == 1), running("admin"))
    ctx.report.equal("and the user has no more than before", len(running("anna")), 2)
    api.close()
    server.stop()


def test_users_own_hashes(ctx):
    """Whoever may choose his own hash does not choose what others' wrong passwords cost."""
    server, api = start(ctx, "hashes")

    def spent(name, n=0):
        before = server.cpu_seconds()
        who(server, f"{name}:wrong{n}")
        return server.cpu_seconds() - before

    dear = {
        "name": "dear",
        "type": "user",
        "roles": [],
        "password_scheme": "pbkdf2",
        "pbkdf2_prf": "sha512",
        "derived_key": "ab" * 64,
        "salt": "ab" * 8,
    }
    api.expect(201, "PUT", "/_users/org.couchdb.user:dear", {**dear, "iterations": 660_000})
    own, others = spent("dear"), min(spent("nobody", n) for n in range(3))
    ctx.report.check("a dear hash of one user is not what all wrong passwords cost", others < 0.9 * own, f"{others:.2f} s of {own:.2f} s")
    doc = user_doc(api, "dear")
    api.expect(201, "PUT", "/_users/org.couchdb.user:dear", {**doc, "iterations": 9_000_000})
    ctx.report.equal("more iterations than the server makes are refused", Api(server.url, "dear:wrong").get("/_session").status, 403)
    api.close()
    server.stop()


def test_sessions_end(ctx):
    server, api = start(ctx, "ends")
    check = ctx.report.equal
    make_user(api, "anna")
    mine = log_in(server, "anna")
    check(
        "no login goes on with a cookie that somebody planted",
        log_in(server, "anna") is not None
        and Api(server.url, None)
        .post("/_session", {"name": "anna", "password": "secret"}, headers=with_cookie(mine))
        .headers["Set-Cookie"]
        .startswith("AuthSession="),
        True,
    )
    who(server, "anna:secret")
    doc = user_doc(api, "anna")
    api.expect(201, "PUT", "/_users/org.couchdb.user:anna", {**doc, "password": "other"})
    check(
        "a new password ends sessions and what was remembered", (who(server, None, with_cookie(mine)), who(server, "anna:secret")), ((None, []), None)
    )
    outsider, nobody = server.api(credentials="anna:other"), server.api(credentials="")
    make_user(api, "bob")
    same = lambda api, name: (lambda a: (a.status, a.json["error"], a.json["reason"]))(api.get(f"/_users/org.couchdb.user:{name}"))
    check("who exists is not told to others", [same(outsider, "bob"), same(nobody, "bob")], [same(outsider, "bobby"), same(nobody, "bobby")])
    for roles in (["_admin"], ["_replicator"], ["a", "_x"]):
        bad = {"_id": "org.couchdb.user:mallory", "name": "mallory", "type": "user", "roles": roles, "password": "x"}
        done = [
            api.post("/_users/_bulk_docs", {"docs": [{**bad, **more}], **how}).json[0].get("error")
            for more, how in (({}, {}), ({"_rev": "1-a"}, {"new_edits": False}))
        ]
        check(f"no way leads to {roles}", done, ["forbidden"] * 2)
    api.close()
    server.stop()


def test_sign_ups_are_limited(ctx):
    """Of one anonymous request 100 passwords are hashed; admins may send any number."""
    server, api = start(ctx, "sign-ups", ini=FAST + "[couchdb]\nusers_db_security_editable = true\n")
    api.expect(200, "PUT", "/_users/_security", {})
    ids = [f"org.couchdb.user:u{n}" for n in range(150)]
    docs = [{"_id": id_, "name": id_.split(":")[1], "type": "user", "roles": [], "password": "secret"} for id_ in ids]
    without = {"_id": "org.couchdb.user:plain", "name": "plain", "type": "user", "roles": []}
    rows = Api(server.url, None).post("/_users/_bulk_docs", {"docs": [*docs, without]}).json
    ctx.report.equal(
        "100 sign-ups are done, and all edits without a password", [n for n, row in enumerate(rows) if row.get("ok")], [*range(100), 150]
    )
    refused = {(row["error"], "100 passwords" in row["reason"]) for row in rows[100:150]}
    ctx.report.equal("the others are told why not", refused, {("forbidden", True)})
    rows = api.post("/_users/_bulk_docs", {"docs": docs[100:] + [{**doc, "_id": doc["_id"] + "x", "name": doc["name"] + "x"} for doc in docs]}).json
    ctx.report.equal("an admin creates all", [row for row in rows if not row.get("ok")], [])
    ctx.report.equal("the last of them logs in", who(server, "u149x:secret"), ("u149x", []))
    api.close()
    server.stop()


def growth_mb(server, work):
    """How much the peak of the server's memory grows."""
    pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5", encoding="ascii")
    before = server.rss_mb()
    work()
    return server.peak_rss_mb() - before


def test_long_accounts_cost_little(ctx):
    """Users who sign up write their own accounts, which are read before the password is checked: only the members that logins need are parsed."""
    # Rules of `_users` are in JavaScript too.
    server, api = start(ctx, "long-accounts", options=("--set", "functions/memory_limit_bytes=1000000000"))
    check = ctx.report.equal
    # As a tree of values it would take a hundred times its text.
    filler = [[0]] * 1_000_000
    account = {"name": "anna", "password": "secret", "type": "user", "roles": ["r"], "filler": filler}
    api.expect(201, "PUT", "/db")
    # Threads and buffers are there from now on.
    api.expect(201, "PUT", "/db/first", {"filler": filler})
    api.expect(200, "GET", "/db/first")
    ordinary = growth_mb(server, lambda: (api.expect(201, "PUT", "/db/second", {"filler": filler}), api.expect(200, "GET", "/db/second")))
    written = growth_mb(server, lambda: api.expect(201, "PUT", "/_users/org.couchdb.user:anna", account))
    anna = lambda password: Api(server.url, None).post("/_session", {"name": "anna", "password": password}).status
    statuses = []
    logged_in = growth_mb(server, lambda: statuses.extend([anna("wrong"), anna("secret"), anna("wrong")]))
    check("logins with it work", statuses, [401, 200, 401])
    check("with its roles", who(server, "anna:secret"), ("anna", ["r"]))
    bound = 3 * ordinary + 48
    ctx.report.note(f"{ordinary:.0f} MB more for an ordinary document, {written:.0f} to write the account, {logged_in:.0f} for three logins")
    ctx.report.check("writing it takes what another document takes", written <= bound, f"{written} > {bound}")
    ctx.report.check("and so do logins", logged_in <= bound, f"{logged_in} > {bound}")
    for name, salt, status in (("bob", "s", 200), ("dora", "s" * 1_000_000, 401)):
        key = hashlib.pbkdf2_hmac("sha256", b"secret", salt.encode(), 10).hex()
        hashed = {"password_scheme": "pbkdf2", "pbkdf2_prf": "sha256", "iterations": 10, "derived_key": key, "salt": salt}
        api.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "type": "user", "roles": [], **hashed})
        answer = Api(server.url, None).post("/_session", {"name": name, "password": "secret"})
        check(f"a login with a salt of {len(salt)} bytes", answer.status, status)
    long = {"name": "carl", "password": "p" * 1_000_000, "type": "user", "roles": []}
    refused = api.put("/_users/org.couchdb.user:carl", long)
    check("a password that is too long is not stored", (refused.status, api.get("/_users/org.couchdb.user:carl").status), (403, 404))
    api.close()
    server.stop()

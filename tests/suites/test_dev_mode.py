"""`settee serve --dev`: no login for programs of this machine, and no way in for other machines, web pages and rebound names."""

import json
import re
import socket
import subprocess

import pytest

from harness.api import Api, exchange
from harness.server import wait_until
from ports import free_port

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]

APP = "http://localhost:5173"
EVIL = "http://evil.example"


def dev_server(ctx, name, *options):
    return ctx.server(name, options=["--dev", *options])


def raw(server, method, target, *headers, body=b"", version="1.1", host=True):
    """Sends a request with exactly these headers."""
    port = server.url.rsplit(":", 1)[1]
    lines = [f"{method} {target} HTTP/{version}"]
    if host:
        lines.append(f"Host: 127.0.0.1:{port}")
    lines += [*headers, "Connection: close"]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return exchange("127.0.0.1", int(port), ("\r\n".join(lines) + "\r\n\r\n").encode() + body)


def test_no_login_is_needed(ctx):
    report = ctx.report
    data = ctx.root / "alone"
    command = [ctx.binary, "serve", "--dev", "--data", data, "--port", str(free_port())]
    with ctx.server("open", options=["--dev"]) as server:
        nobody = server.api(credentials="")
        told = nobody.expect(200, "GET", "/_session")
        report.equal("everybody is a server admin", told["userCtx"], {"name": "dev", "roles": ["_admin"]})
        nobody.expect(201, "PUT", "/db")
        nobody.expect(
            201, "PUT", "/db/_design/d", {"validate_doc_update": "function (doc, old, user) { if (!user.name) throw {unauthorized: 'who?'}; }"}
        )
        nobody.expect(201, "PUT", "/db/a", {})
        nobody.expect(200, "PUT", "/_node/_local/_config/log/level", "debug")
        nobody.expect(201, "PUT", "/_users/org.couchdb.user:ann", {"name": "ann", "password": "pw", "roles": ["staff"], "type": "user"})
        wrong = server.api(credentials="who:ever")
        report.equal("wrong credentials do no harm", wrong.get("/_session").json["userCtx"]["name"], "dev")
        ann = server.api(credentials="ann:pw").get("/_session").json["userCtx"]
        report.equal("right ones give a name", (ann["name"], sorted(ann["roles"])), ("ann", ["_admin", "staff"]))
        login = nobody.post("/_session", {"name": "ann", "password": "wrong"})
        report.equal("a form for logins can be tried", login.status, 401)
        report.equal("also with the right password", nobody.post("/_session", {"name": "ann", "password": "pw"}).status, 200)
        nobody.expect(200, "PUT", "/_node/_local/_config/chttpd/require_valid_user", "true")
        report.equal("settings that require a login do not", nobody.get("/db/a").status, 200)
        nobody.expect(200, "POST", "/_replicate", {"source": "db", "target": "by-name", "create_target": True})
        copy = {"source": f"{server.url}/db", "target": f"{server.url}/by-url", "create_target": True}
        nobody.expect(201, "PUT", "/_replicator/by-url", copy)
        copied = lambda: [nobody.get(f"/by-{kind}/a").status for kind in ("name", "url")] == [200, 200]
        report.check("replications run", wait_until(copied), nobody.get("/_scheduler/docs").json)
        report.equal("the welcome says so", nobody.get("/").json["vendor"]["dev"], True)
        found = {finding["id"] for finding in nobody.get("/_settee/doctor").json["findings"] if finding["severity"] == "warning"}
        report.check("the health check says so", "dev" in found, found)
        log = server.log()
        report.check("the start says so", "DEVELOPMENT MODE (--dev): NO LOGIN" in log, log)
        report.check("the log says so", "--dev: there is no login" in log, log)
    with ctx.server("closed") as server:
        report.check("other servers do not", "dev" not in server.api().get("/").json["vendor"] and "--dev" not in server.log())
        report.equal("and need a login", server.api(credentials="").put("/db").status, 401)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        ready = next((line for line in process.stdout if line.startswith("Settee is listening on ")), "")
        url = ready.split()[-1] if ready else ""
        report.check("it starts without an admin, on a loopback address", url.startswith("http://127.0.0.1:"), url)
        report.equal("and makes none", Api(url, credentials="").get("/_node/_local/_config/admins").json, {})
    finally:
        process.terminate()
        process.wait()


def test_only_loopback_addresses(ctx):
    report = ctx.report
    data = ctx.folder("refused")
    config = ctx.root / "open.ini"
    config.write_text("[chttpd]\nbind_address = 0.0.0.0\n", encoding="utf-8")

    def refused(what, *options, environment=(), word="loopback", folder=data / "data"):
        command = [ctx.binary, "serve", "--dev", "--data", folder, "--port", "0", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", **dict(environment)})
        report.check(f"{what} is refused", done.returncode == 2 and word in done.stderr, (done.returncode, done.stderr[-500:]))

    refused("--bind 0.0.0.0", "--bind", "0.0.0.0")
    refused("--bind ::", "--bind", "::")
    refused("an address of another network", "--bind", "192.0.2.1")
    refused("an address in a file", "--config", config)
    refused("an address in the environment", environment={"SETTEE_CHTTPD_BIND_ADDRESS": "any"}.items())
    refused("an address in a setting", "--set", "chttpd/bind_address=any")
    refused("an open port for metrics", "--set", "prometheus/additional_port=true", "--set", "prometheus/bind_address=0.0.0.0")
    refused("an origin elsewhere", "--dev-origin", EVIL, word="--dev-origin http://evil.example")
    report.equal("nothing is made then", list(data.iterdir()), [])
    done = subprocess.run([ctx.binary, "serve", "--dev-origin", APP], capture_output=True, text=True, timeout=60)
    report.equal("an origin without --dev is a mistake", done.returncode, 2)
    member = ctx.root / "member"
    made = subprocess.run([ctx.binary, "cluster", "init", "--data", member], capture_output=True, text=True, timeout=60)
    report.equal("a node of a cluster is made", made.returncode, 0)
    command = [ctx.binary, "serve", "--dev", "--data", member, "--port", "0", "--set", "cluster/log=kafka://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    report.check("a node of a cluster is refused", done.returncode == 2 and "--dev never runs a node of a cluster" in done.stderr, done.stderr)
    with dev_server(ctx, "changed") as server:
        server.api().expect(200, "PUT", "/_node/_local/_config/chttpd/bind_address", "0.0.0.0")
        report.equal("a setting for the next start changes nothing", server.api(credentials="").get("/_all_dbs").status, 200)
    refused("an address that was set over HTTP", folder=server.data)


def test_ipv6_loopback(ctx):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        ctx.report.skip("::1 is served", str(error))
        return
    data, port = ctx.root / "v6", free_port()
    process = subprocess.Popen(
        [ctx.binary, "serve", "--dev", "--data", data, "--bind", "::1", "--port", str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        ready = next((line for line in process.stdout if line.startswith("Settee is listening on ")), "")
        ctx.report.check("::1 is served", "[::1]" in ready, ready)
        answer = Api(f"http://[::1]:{port}", credentials="").put("/db")
        ctx.report.equal("by its own name", answer.status, 201)
    finally:
        process.terminate()
        process.wait()


def test_rebinding(ctx):
    """A page whose name leads to 127.0.0.1 names itself in Host."""
    report = ctx.report
    with dev_server(
        ctx, "rebinding", "--dev-origin", "http://localhost:*", "--set", "prometheus/additional_port=true", "--set", "prometheus/port=0"
    ) as server:
        port = server.url.rsplit(":", 1)[1]
        for host in ("localhost", f"localhost:{port}", "LOCALHOST:1", "127.0.0.1", f"127.9.8.7:{port}", f"[::1]:{port}"):
            answer = raw(server, "GET", "/_all_dbs", f"Host: {host}", host=False)
            report.equal(f"{host} is answered", answer.status, 200, quiet=True)
        names = [
            "evil.example",
            f"evil.example:{port}",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "0.0.0.0",
            "192.168.0.1",
            "[::ffff:7f00:1]",
        ]
        for host in names:
            for path in ("/", "/_up", "/_all_dbs", "/_utils/", "/db/doc?rev=1-x"):
                answer = raw(server, "GET", path, f"Host: {host}", host=False)
                report.check(f"{path} for {host} is refused", answer.status == 403 and b"--dev" in answer.raw, repr(answer))
        answer = raw(server, "PUT", "/rebound", "Host: evil.example", "Origin: http://evil.example", host=False)
        report.equal("with the origin of that name", answer.status, 403)
        for version in ("1.0", "1.1"):
            answer = raw(server, "GET", "/_all_dbs", host=False, version=version)
            report.equal(f"HTTP/{version} without a host comes from no browser", answer.status, 200)
        report.equal("a target may name it", raw(server, "GET", "http://localhost/_all_dbs").status, 200)
        report.equal("another in the target is refused", raw(server, "GET", "http://evil.example/_all_dbs").status, 403)
        report.equal("another beside it", raw(server, "GET", "http://localhost/", "Host: evil.example", host=False).status, 403)
        upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==")
        report.equal("a WebSocket for another", raw(server, "GET", "/_changes", "Host: evil.example", *upgrade, host=False).status, 403)
        report.equal("another by a proxy's header", raw(server, "GET", "/", "X-Forwarded-For: 203.0.113.9").status, 403)
        authority = lambda name: [
            "curl",
            "-s",
            "-o",
            ctx.root / "h2",
            "-w",
            "%{http_version} %{http_code}",
            "--http2-prior-knowledge",
            "-H",
            f"Host: {name}",
        ]
        for name, wanted in ((f"localhost:{port}", "2 200"), ("evil.example", "2 403")):
            done = subprocess.run([*authority(name), f"{server.url}/_all_dbs"], capture_output=True, text=True, timeout=60)
            report.equal(f":authority {name}", done.stdout, wanted)
        metrics = re.search(r"numbers on http://127\.0\.0\.1:(\d+)/", server.log()).group(1)
        for name, wanted in ((f"127.0.0.1:{metrics}", 200), ("evil.example", 403)):
            sent = f"GET /_node/_local/_prometheus HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode()
            report.equal(f"metrics for {name}", exchange("127.0.0.1", int(metrics), sent).status, wanted)
        report.check("nothing was made", "rebound" not in server.api().get("/_all_dbs").json)


def test_foreign_pages(ctx):
    """What a browser would send for a page of another origin."""
    report = ctx.report
    with dev_server(ctx, "pages", "--set", "chttpd/enable_cors=true", "--set", "cors/origins=*", "--set", "cors/credentials=true") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/db/a", {"n": 1})
        api.expect(201, "PUT", "/db/_design/d", {"updates": {"u": "function (doc, req) { return [{_id: 'by-link'}, 'x']; }"}})
        own = server.url
        plain, form = "Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded"
        bulk = json.dumps({"docs": [{"_id": "stolen"}]}).encode()
        foreign = [EVIL, "null", "http://localhost:3000", "http://127.0.0.1:1", own.replace("http:", "https:"), f"{own}.evil.example", "file://"]
        for origin in foreign:
            sent = {
                "a simple POST": ("POST", "/db/_bulk_docs", f"Origin: {origin}", plain),
                "a form": ("POST", "/db", f"Origin: {origin}", form),
                "a replication": ("POST", "/_replicate", f"Origin: {origin}", plain),
                "a PUT": ("PUT", "/stolen", f"Origin: {origin}"),
                "a preflight": ("OPTIONS", "/db", f"Origin: {origin}", "Access-Control-Request-Method: PUT"),
                "a GET": ("GET", "/db/_all_docs", f"Origin: {origin}"),
                "a WebSocket": ("GET", "/db/_changes", f"Origin: {origin}", "Upgrade: websocket", "Connection: Upgrade"),
                "a login": ("POST", "/_session", f"Origin: {origin}", form),
            }
            for what, (method, path, *headers) in sent.items():
                answer = raw(server, method, path, *headers, body=bulk if method == "POST" else b"")
                is_refused = answer.status == 403 and b"--dev-origin" in answer.raw
                report.check(f"{what} of {origin} is refused", is_refused, repr(answer))
                report.equal(f"{what} of {origin} cannot be read", answer.headers.get("Access-Control-Allow-Origin"), None, quiet=True)
        cross = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
        for what, request in {
            "a picture": ("GET", "/db/a", *cross),
            "a script": ("GET", "/db/_all_docs?callback=steal", *cross, "Sec-Fetch-Dest: script"),
            "a picture of another port": ("GET", "/db/a", "Sec-Fetch-Site: same-site"),
            "a link to data": ("GET", "/db/a", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"),
            "a link to a function": ("GET", "/db/_design/d/_update/u", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"),
            "a frame": ("GET", "/_utils/", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
            "a form in a window": ("POST", "/", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"),
            "an older browser's picture": ("GET", "/db/a", f"Referer: {EVIL}/page"),
            "a forged own origin": ("POST", "/db", f"Origin: http://127.0.0.1:{own.rsplit(':', 1)[1]}", *cross),
        }.items():
            report.equal(f"{what} is refused", raw(server, *request).status, 403)
        link = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
        report.equal("a link to the web interface is followed", raw(server, "GET", "/_utils/", *link).status, 200)
        report.equal("an address that is typed too", raw(server, "GET", "/db/a", "Sec-Fetch-Site: none").status, 200)
        same = ("Sec-Fetch-Site: same-origin", f"Origin: http://127.0.0.1:{own.rsplit(':', 1)[1]}")
        report.equal(
            "the web interface works", raw(server, "POST", "/db", *same, "Content-Type: application/json", body=b'{"_id":"own"}').status, 201
        )
        api.expect(200, "PUT", "/_node/_local/_config/chttpd/allow_jsonp", "true")
        answer = raw(server, "GET", "/db/a?callback=steal")
        report.check("there is no JSONP", answer.status == 200 and b"steal" not in answer.raw, repr(answer))
        report.equal("nothing was changed", [row["id"] for row in api.get("/db/_all_docs").json["rows"]], ["_design/d", "a", "own"])
        report.check("nothing was made", "stolen" not in api.get("/_all_dbs").json)


def test_own_pages_on_another_port(ctx):
    """A PouchDB app of the developer's own."""
    report = ctx.report
    with dev_server(ctx, "app", "--dev-origin", APP, "--dev-origin", "http://127.0.0.1:*") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        for origin in (APP, "http://127.0.0.1:8080", "http://127.0.0.1:3000"):
            asked = raw(
                server,
                "OPTIONS",
                "/db/_bulk_docs",
                f"Origin: {origin}",
                "Access-Control-Request-Method: POST",
                "Access-Control-Request-Headers: content-type",
            )
            allowed = (asked.status, asked.headers["Access-Control-Allow-Origin"], asked.headers["Access-Control-Allow-Credentials"])
            report.equal(f"{origin}: a preflight", allowed, (204, origin, "true"))
            # PouchDB sends its requests with credentials.
            sent = ("Content-Type: application/json", f"Origin: {origin}", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors")
            wrote = raw(server, "POST", "/db/_bulk_docs", *sent, body=b'{"docs":[{}]}')
            seen = (wrote.status, wrote.headers["Access-Control-Allow-Origin"], wrote.headers["Access-Control-Allow-Credentials"])
            report.equal(f"{origin}: a write", seen, (201, origin, "true"))
            simple = raw(server, "POST", "/db/_bulk_docs", "Content-Type: text/plain", f"Origin: {origin}", body=b'{"docs":[{}]}')
            report.check(f"{origin}: a simple POST is answered as any", simple.status in (201, 415), repr(simple))
        report.equal("its pictures", raw(server, "GET", "/db", "Sec-Fetch-Site: same-site", f"Referer: {APP}/").status, 200)
        for origin in ("http://localhost:5174", "https://localhost:5173", "http://localhost", EVIL, "null"):
            answer = raw(server, "POST", "/db/_bulk_docs", "Content-Type: text/plain", f"Origin: {origin}", body=b'{"docs":[{}]}')
            report.equal(f"{origin} stays foreign", answer.status, 403)
        report.check("the start names the origins", APP in server.log(), server.log())

"""Settee behind nginx, HAProxy and Caddy, each with the files of examples/proxies: what comes through them as if they were not there, below a
path too, what does not wait in them, and what clients see of a server that is gone."""

import functools
import hashlib
import http.client
import http.server
import json
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

import pytest

from harness import browser
from harness.api import Api, Disconnected
from harness.certificates import Authority
from harness.proxies import BELOW, HOST, KINDS, WHOLE, Proxy
from harness.server import Server, end, track, wait_until

ADMIN = "admin:admin"
# What a proxy may take more for a large body than it took before. Their buffers are some 10 KB; Go's collector is late.
GROWTH_MB_MAX = 40
GONE_S = 15
SILENCE_MS = 100_000


@pytest.fixture
def authority(ctx):
    return Authority(ctx.folder("certificates"))


@pytest.fixture
def certificate(authority):
    return authority.issue("proxy")


class Through(Api):
    """A client of a proxy: TLS, and any address of this machine."""

    def __init__(self, proxy, authority, credentials=ADMIN, source="127.0.0.1", timeout=60):
        super().__init__(proxy.url, credentials, timeout)
        self.proxy, self.authority, self.source = proxy, authority, source

    def request(self, method, path, body=None, headers=None):
        if self.connection is None:
            self.connection = Connection(self.proxy.port, self.authority, self.source, self.timeout)
        return super().request(method, self.proxy.prefix + path, body, headers)

    def open(self, path):
        """The answer to a GET, of which nothing is read yet."""
        connection = Connection(self.proxy.port, self.authority, self.source, self.timeout)
        connection.request("GET", self.proxy.prefix + path, headers=self.authorization)
        answer = connection.getresponse()
        answer.connection = connection
        return answer

    def upload(self, path, block, count, headers):
        """Sends a block so often, never all at once; without a length in chunks. Answers the status."""
        connection = Connection(self.proxy.port, self.authority, self.source, self.timeout)
        headers = {**self.authorization, "Content-Type": "application/octet-stream", **headers}
        connection.request("PUT", self.proxy.prefix + path, (block for _ in range(count)), headers)
        status = connection.getresponse().status
        connection.close()
        return status


class Connection(http.client.HTTPSConnection):
    def __init__(self, port, authority, source, timeout):
        super().__init__(HOST, port, timeout=timeout)
        self.secured, self.source = secured(authority.cert), source

    def connect(self):
        plain = socket.create_connection(("127.0.0.1", self.port), self.timeout, (self.source, 0))
        self.sock = self.secured.wrap_socket(plain, server_hostname=HOST)


@functools.cache
def secured(cert):
    return ssl.create_default_context(cafile=str(cert))


def port_of(server):
    return int(server.url.rsplit(":", 1)[1])


@pytest.mark.parametrize("kind", KINDS)
def test_in_front(ctx, kind, authority, certificate):
    options = ["--set", "chttpd/trusted_proxies=127.0.0.1", "--set", "chttpd_auth_lockout/mode=enforce"]
    with ctx.server(f"{kind}-data", options=options) as server:
        ports = [port_of(server)]
        with Proxy(ctx, kind, WHOLE, certificate, ports) as whole, Proxy(ctx, kind, BELOW, certificate, ports) as below:
            for proxy in (whole, below):
                for part in (names, forged, sessions, pages, rows_as_they_come, http2, replicated):
                    part(ctx, server, proxy, authority)
            client_addresses(ctx, whole, authority)
            large_bodies(ctx, server, whole, authority)
            # That nothing is buffered is said in each of nginx's files.
            if ctx.soak or kind == "nginx":
                large_bodies(ctx, server, below, authority)
            gone(ctx, server, (whole, below), authority)
        ctx.report.check(f"{kind}: no panic", "panicked" not in server.log(), server.log()[-1500:])


def of(proxy, what):
    return f"{proxy.kind}{proxy.prefix and ' below ' + proxy.prefix}: {what}"


def names(ctx, server, proxy, authority):
    """Paths arrive as they were sent, and addresses in answers are those of the proxy."""
    report, api = ctx.report, Through(proxy, authority)
    report.equal(of(proxy, "the welcome comes through"), api.get("/").json.get("couchdb"), "Welcome")
    db = f"{proxy.form}%2Fa%2Bb"
    made = api.put(f"/{db}")
    report.equal(of(proxy, "a database with a slash in its name"), (made.status, made.headers["Location"]), (201, f"{proxy.url}/{db}"))
    document = "x%2Fy%20%C3%A9%3F%23;=@"
    made = api.put(f"/{db}/{document}", {"n": 1})
    location = made.headers["Location"] or ""
    report.check(
        of(proxy, "so has a document, and Location leads to it"),
        made.status == 201
        and location.startswith(f"{proxy.url}/{db}/x%2Fy%20")
        and api.get(location.removeprefix(proxy.url)).json["_id"] == "x/y é?#;=@",
        f"{made!r} {location}",
    )
    report.equal(of(proxy, "the server knows it by that name"), server.api().get(f"/{db}/{document}").status, 200)
    attached = api.put(f"/{db}/{document}/a%2Fb.txt?rev={made.json['rev']}", b"text", headers={"Content-Type": "text/plain"})
    report.equal(of(proxy, "an attachment too"), (attached.status, api.get(f"/{db}/{document}/a%2Fb.txt").raw), (201, b"text"))
    designed = api.get(f"/{db}/_design%2Fd?x=1")
    report.equal(
        of(proxy, "a redirect leads through the proxy"), (designed.status, designed.headers["Location"]), (301, f"{proxy.url}/{db}/_design/d?x=1")
    )
    keys = urllib.parse.quote(json.dumps([f"key {number}" for number in range(3000)], separators=(",", ":")))
    found = api.get(f"/{db}/_all_docs?keys={keys}")
    report.check(of(proxy, f"a URL of {len(keys)} bytes"), found.status == 200 and len(found.json["rows"]) == 3000, found)


def forged(ctx, _, proxy, authority):
    """What a client says in a proxy's name counts for nothing."""
    said = {
        "X-Forwarded-Host": "elsewhere.example",
        "X-Forwarded-Prefix": "/elsewhere",
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Ssl": "off",
    }
    api = Through(proxy, authority)
    made = api.put(f"/forged-{proxy.form}", headers=said)
    ctx.report.equal(of(proxy, "forged headers change nothing"), made.headers["Location"], f"{proxy.url}/forged-{proxy.form}")


def sessions(ctx, _, proxy, authority):
    report, api = ctx.report, Through(proxy, authority, credentials="")
    answer = api.post("/_session?next=/_utils/", {"name": "admin", "password": "admin"})
    cookie = answer.headers["Set-Cookie"] or ""
    report.equal(of(proxy, "who has logged in is sent on below the proxy's address"), answer.headers["Location"], f"{proxy.url}/_utils/")
    path = re.search(r"; Path=([^;]*)", cookie)
    report.check(
        of(proxy, "the cookie is for the server's path, and secure"), path and path.group(1) == (proxy.prefix or "/") and "; Secure" in cookie, cookie
    )
    session = {"Cookie": cookie.split(";")[0]}
    report.equal(of(proxy, "it is a session"), api.get("/_session", headers=session).json["userCtx"]["name"], "admin")
    origin = f"https://{HOST}:{proxy.port}"
    own = api.put(f"/by-page-{proxy.form}", headers={**session, "Origin": origin})
    other = api.put(f"/by-other-{proxy.form}", headers={**session, "Origin": "https://elsewhere.example"})
    report.equal(of(proxy, "pages of the server may use it, others not"), (own.status, other.status), (201, 403))
    sent = api.get("/_all_dbs", headers={"Accept": "text/html"})
    report.check(
        of(proxy, "a browser without a session is sent to log in"),
        sent.status == 302 and sent.headers["Location"].startswith(f"{proxy.url}/_utils/session.html?return="),
        sent.headers["Location"],
    )


def pages(ctx, _, proxy, authority):
    """The web interface asks for nothing outside of its path. The suite `web_interface` looks at what it does."""
    report, api = ctx.report, Through(proxy, authority)
    moved = api.get("/_utils")
    to = urllib.parse.urljoin(f"{proxy.url}/_utils", moved.headers["Location"])
    report.equal(of(proxy, "/_utils leads to /_utils/"), (moved.status, to), (301, f"{proxy.url}/_utils/"))
    page = api.get("/_utils/")
    files = re.findall(r'(?:src|href)="([^"]+)"', page.raw.decode())
    got = {name: api.get(f"/_utils/{name.removeprefix('./')}").status for name in files}
    report.check(of(proxy, "its files are beside it"), len(got) > 3 and set(got.values()) == {200}, got)
    squeezed = api.get("/_utils/index.js", headers={"Accept-Encoding": "br"})
    report.equal(of(proxy, "compressed as the server has it"), squeezed.headers["Content-Encoding"], "br")
    report.equal(of(proxy, "and not sent again"), api.get("/_utils/", headers={"If-None-Match": page.headers["ETag"]}).status, 304)


def rows_as_they_come(ctx, server, proxy, authority):
    """A feed's row is there before the next one is written."""
    report, direct, db = ctx.report, server.api(), f"feed-{proxy.form}"
    direct.expect(201, "PUT", f"/{db}")
    for feed, beat in (("continuous", "heartbeat=100"), ("eventsource", "heartbeat=100")):
        answer = Through(proxy, authority, timeout=10).open(f"/{db}/_changes?feed={feed}&since=now&{beat}")
        seen = []
        for number in range(5):
            written = direct.expect(201, "POST", f"/{db}", {"number": number})
            seen.append(written["id"] in next_row(answer))
        report.equal(of(proxy, f"feed={feed} comes row by row"), seen, [True] * 5)
        beats = [answer.readline() for _ in range(3)]
        report.check(of(proxy, f"and the heartbeats of feed={feed}"), all(b"data" not in line and len(line) < 30 for line in beats), beats)
        open_feeds = lambda: direct.get("/_node/_local/_stats/couchdb/httpd/clients_requesting_changes").json["value"]
        was_open = open_feeds()
        answer.connection.close()
        answer.close()
        ended = wait_until(lambda: open_feeds() == 0, 10)
        report.check(of(proxy, f"feed={feed} ends with its client"), was_open == 1 and ended, (was_open, open_feeds()))


def next_row(answer):
    while True:
        line = answer.readline()
        if b'"seq"' in line or b'"changes"' in line:
            return line.decode()
        if not line:
            raise AssertionError("the feed ended")


def http2(ctx, server, proxy, authority):
    report, db = ctx.report, f"h2-{proxy.form}"
    direct = server.api()
    done = curl(authority, "-w", "\n%{http_version} %{http_code} %header{location}", "-X", "PUT", f"{proxy.url}/{db}%2Fx")
    report.equal(of(proxy, "HTTP/2: a database is made"), done.stdout.splitlines()[-1:], [f"2 201 {proxy.url}/{db}%2Fx"])
    direct.expect(201, "PUT", f"/{db}")
    command = curl_command(authority, "--no-buffer", f"{proxy.url}/{db}/_changes?feed=continuous&since=now&heartbeat=100")
    feed = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    track(feed)
    try:
        feed.stdout.readline()  # the feed is open when it beats
        rows = (line for line in feed.stdout if line.strip())
        seen = [direct.expect(201, "POST", f"/{db}", {"number": number})["id"] in next(rows) for number in range(3)]
        report.equal(of(proxy, "HTTP/2: a feed comes row by row"), seen, [True] * 3)
    finally:
        end(feed)
        feed.stdout.close()


def curl_command(authority, *arguments):
    return ["curl", "--silent", "--show-error", "--http2", "--cacert", str(authority.cert), "--user", ADMIN, "--max-time", "60", *map(str, arguments)]


def curl(authority, *arguments):
    return subprocess.run(curl_command(authority, *arguments), capture_output=True, text=True, timeout=90, check=False)


def replicated(ctx, server, proxy, authority):
    """There and back again, through the proxy, with a session and without."""
    report, direct, db = ctx.report, server.api(), f"source-{proxy.form}%2Fx"
    direct.expect(201, "PUT", f"/{db}")
    direct.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": [{"_id": f"d/{number}", "n": number} for number in range(300)]})
    direct.expect(201, "PUT", f"/{db}/attached", {"_attachments": {"a/b": {"content_type": "text/plain", "data": "aGVsbG8="}}})
    itself = lambda name: proxy.url.replace("https://", f"https://{ADMIN}@") + "/" + name
    done = direct.post("/_replicate", {"source": itself(db), "target": itself(f"target-{proxy.form}%2Fx"), "create_target": True})
    wrote = done.json.get("history", [{}])[0].get("docs_written")
    found = direct.get(f"/target-{proxy.form}%2Fx").json.get("doc_count")
    report.check(of(proxy, "a database is replicated through it, both ways"), (wrote, found) == (301, 301), (done, found))


def client_addresses(ctx, proxy, authority):
    """Who guesses passwords is locked out, and nobody else who comes through the proxy."""
    guess = Through(proxy, authority, credentials="admin:wrong", source="127.0.0.2")
    statuses = [guess.get("/_all_dbs").status for _ in range(8)]
    locked = Through(proxy, authority, source="127.0.0.2").get("/_all_dbs").status
    other = Through(proxy, authority, source="127.0.0.3").get("/_all_dbs").status
    ctx.report.check(
        of(proxy, "wrong passwords lock out their client's address, not the proxy's"),
        set(statuses) <= {401, 403} and locked == 403 and other == 200,
        (statuses, locked, other),
    )


def large_bodies(ctx, server, proxy, authority):
    report, api, db = ctx.report, Through(proxy, authority, timeout=300), f"large-{proxy.form}"
    api.expect(201, "PUT", f"/{db}")
    before = proxy.memory_mb("VmRSS")
    docs = [{"_id": f"doc{number}", "text": "x" * 1_000_000} for number in range(30)]
    answer = api.post(f"/{db}/_bulk_docs", {"docs": docs})
    report.check(of(proxy, "30 MB of documents at once"), answer.status == 201 and all(row.get("ok") for row in answer.json), answer)
    listed = api.get(f"/{db}/_all_docs?include_docs=true")
    report.check(
        of(proxy, "and all of them back"), len(listed.raw) > 30_000_000 and listed.json["rows"][-1]["doc"]["text"] == "x" * 1_000_000, len(listed.raw)
    )
    size_mb = ctx.size(12, 200)
    block = ctx.random.randbytes(1_000_000)
    began = time.monotonic()
    with_length = api.upload(f"/{db}/with-length/file", block, size_mb, {"Content-Length": str(size_mb * len(block))})
    chunked = api.upload(f"/{db}/chunked/file", block, size_mb, {})
    up_s = time.monotonic() - began
    report.equal(of(proxy, f"attachments of {size_mb} MB, with a length and in chunks"), (with_length, chunked), (201, 201))
    digest = hashlib.sha256(block).digest()
    began = time.monotonic()
    for name in ("with-length", "chunked"):
        answer = api.open(f"/{db}/{name}/file")
        same = sum(hashlib.sha256(answer.read(len(block))).digest() == digest for _ in range(size_mb))
        report.check(of(proxy, f"and back ({name})"), same == size_mb and answer.read() == b"", same)
    down_s = time.monotonic() - began
    growth = proxy.memory_mb("VmHWM") - before
    report.check(of(proxy, "the proxy held none of it"), growth < GROWTH_MB_MAX, f"{growth:.0f} MB more; {proxy.log()[-500:]}")
    report.note(f"{of(proxy, '')} {2 * size_mb / up_s:.0f} MB/s up, {2 * size_mb / down_s:.0f} MB/s down, {growth:.0f} MB more memory")
    report.check(of(proxy, "the server is well"), server.alive())


def gone(ctx, server, proxies, authority):
    """A server that is not there is a 503 that clients understand, and comes back by itself."""
    report = ctx.report
    server.stop()
    for proxy in proxies:
        answer = Through(proxy, authority).get("/_up")
        told = answer.status == 503 and answer.is_error_shape and answer.headers["Retry-After"] and "json" in answer.headers["Content-Type"]
        report.check(of(proxy, "a server that is gone is a clear 503"), told, f"{answer!r} {answer.headers}")
    server.restart()
    for proxy in proxies:
        back = wait_until(lambda proxy=proxy: Through(proxy, authority).get("/_up").status == 200, GONE_S)
        report.check(of(proxy, "and is used when it is back"), back)
    if proxies[0].kind == "nginx":
        return  # it has no health checks
    api = server.api()
    api.expect(200, "PUT", "/_node/_local/_config/couchdb/maintenance_mode", "true")
    for proxy in proxies:
        out = wait_until(lambda proxy=proxy: Through(proxy, authority).get("/").status == 503, GONE_S)
        report.check(of(proxy, "maintenance_mode takes it out"), out)
    api.expect(200, "PUT", "/_node/_local/_config/couchdb/maintenance_mode", "false")
    report.check(of(proxies[0], "and false brings it back"), wait_until(lambda: Through(proxies[0], authority).get("/").status == 200, GONE_S))


def test_two_nodes(ctx, authority, certificate):
    """What a client asks while one of two nodes goes away is answered by the other."""
    report = ctx.report
    servers = {name: ctx.server(name, options=["--set", f"couchdb/uuid={name}"]).start() for name in ("one", "two")}
    ports = [port_of(server) for server in servers.values()]
    proxies = [Proxy(ctx, kind, WHOLE, certificate, ports).start() for kind in KINDS]
    for proxy in proxies:
        both = wait_until(lambda proxy=proxy: len({asked(proxy, authority) for _ in range(10)} - {None}) == 2, GONE_S)
        report.check(of(proxy, "both nodes are asked"), both)
    for name, stays, leave in (("one", "two", Server.stop), ("two", "one", Server.kill)):
        leave(servers[name])
        for proxy in proxies:
            answers = [asked(proxy, authority) for _ in range(20)]
            report.equal(of(proxy, f"without {name} each request is answered by {stays}"), set(answers), {stays})
        servers[name].restart()
        for proxy in proxies:
            back = wait_until(lambda proxy=proxy, name=name: asked(proxy, authority) == name, 2 * GONE_S)
            report.check(of(proxy, f"{name} is asked again when it is back"), back)
    for each in (*proxies, *servers.values()):
        each.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_lost_responses(ctx, kind, authority, certificate):
    """A node that breaks off before it answers, or does not answer in time, is an error that clients understand: HTML ends a
    replication of PouchDB."""
    with Unreliable() as unreliable:
        for form in (WHOLE, BELOW):
            proxy = Proxy(ctx, kind, form, certificate, [unreliable.port])
            # An hour in the files.
            text = proxy.config.read_text()
            proxy.config.write_text(re.sub(r"(timeout server |proxy_read_timeout )1h", r"\g<1>2s", text))
            with proxy:
                up = wait_until(lambda proxy=proxy: Through(proxy, authority).get("/_up").status == 200, GONE_S)
                ctx.report.check(of(proxy, "the node is used"), up)
                # Caddy waits for as long as it takes.
                for path in ("/breaks-off", "/hangs") if kind != "caddy" else ("/breaks-off",):
                    answer = Through(proxy, authority).get(path)
                    told = answer.status in (502, 503, 504) and answer.is_error_shape and "json" in answer.headers["Content-Type"]
                    ctx.report.check(of(proxy, f"{path} is a clear error"), told, f"{answer!r} {answer.headers}")


class Unreliable:
    """A server that answers `/_up` alone."""

    def __init__(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if self.path.endswith("/_up"):
                    self.send_response(200)
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"{}")
                    return
                if self.path.endswith("/hangs"):
                    outer.ending.wait()
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.ending = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def asked(proxy, authority):
    """Which node answers; None for none."""
    try:
        answer = Through(proxy, authority, timeout=10).get("/")
        return answer.json["uuid"] if answer.status == 200 else None
    except Disconnected:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_in_a_browser(ctx, kind, authority, certificate):
    """All that the suite `web_interface` does, below a path of a proxy."""
    options = ["--set", "chttpd_auth_lockout/mode=off"]
    server = ctx.server(f"{kind}-browsed", admin="admin:secret", options=options)
    with server, Proxy(ctx, kind, BELOW, certificate, [port_of(server)]) as proxy:
        browser.scenarios(ctx, server, f"{proxy.url}/_utils/", authority)


@pytest.mark.slow
def test_long_silence(ctx, authority, certificate):
    """Feeds that say nothing for longer than the proxies' defaults, which are a minute."""
    with ctx.server("silent", options=["--set", f"chttpd/changes_timeout={2 * SILENCE_MS}"]) as server:
        server.api().expect(201, "PUT", "/db")
        proxies = [Proxy(ctx, kind, form, certificate, [port_of(server)]).start() for kind in KINDS for form in (WHOLE, BELOW)]
        feeds = [Through(proxy, authority, timeout=300).open(f"/db/_changes?feed=continuous&since=now&heartbeat={SILENCE_MS}") for proxy in proxies]
        found = {}
        began = time.monotonic()

        def follow(number, feed):
            beat = feed.readline()
            found[number] = (beat, time.monotonic() - began, next_row(feed))

        threads = [threading.Thread(target=follow, args=pair) for pair in enumerate(feeds)]
        for thread in threads:
            thread.start()
        time.sleep(SILENCE_MS / 1000 + 5)
        written = server.api().expect(201, "POST", "/db", {})["id"]
        for thread in threads:
            thread.join(30)
        for number, proxy in enumerate(proxies):
            beat, after_s, row = found.get(number, (None, 0, ""))
            right = beat == b"\n" and after_s > SILENCE_MS / 1000 - 5 and written in row
            ctx.report.check(of(proxy, f"a feed lives through {SILENCE_MS // 1000} s of silence"), right, found.get(number))
            proxy.stop()

"""Floods of connections, and requests that hold theirs: users and server admins get places all the same, and descriptors are left."""

import http.server
import json
import re
import socket
import threading
import urllib.parse
import zlib

import pytest

from harness.api import Disconnected, basic
from harness.prometheus import metrics
from harness.server import wait_until

pytestmark = pytest.mark.costly_hashes

FILES = 512
#: What there is for replications then: see operations/limits.md.
SOCKETS_MAX = 64
#: For an answer, on a machine with much else to do.
PATIENCE_S = 10
KNOWN = 20
PLACES = 32
FLOOD = ["--set", f"chttpd/server_options=[{{max, {PLACES}}}]"]


def limited_server(ctx, files, **options):
    """A server that may have this many descriptors: a script lowers both limits before it becomes the server."""
    script = ctx.root / "limited"
    script.write_text(f'#!/bin/sh\nulimit -n {files}\nexec "{ctx.binary}" "$@"\n')
    script.chmod(0o755)
    server = ctx.server(**options)
    server.binary = str(script)
    return server


def add_user(api, name, db):
    """Adds a user who may write to a database."""
    api.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "password": "pw", "roles": [], "type": "user"})
    api.expect((201, 412), "PUT", f"/{db}")
    api.expect(200, "PUT", f"/{db}/_security", {"admins": {"names": [], "roles": ["_admin"]}, "members": {"names": [], "roles": []}})
    return f"{name}:pw"


def connect(server, source="127.0.0.1"):
    address = urllib.parse.urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=10, source_address=(source, 0))


def begin_body(server, target, credentials=None, source="127.0.0.1", method="POST"):
    """A request whose body never ends."""
    connection = connect(server, source)
    login = f"Authorization: {basic(credentials)}\r\n" if credentials else ""
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\n{login}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    connection.sendall(head.encode())
    return connection


def is_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1000) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


class SilentSource:
    """A source of replications that lists documents and never answers who reads one."""

    def __init__(self):
        self.lock, self.open, self.most = threading.Lock(), 0, 0
        self.ended = threading.Event()
        source = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                with source.lock:
                    source.open += 1
                    source.most = max(source.most, source.open)
                super().setup()

            def finish(self):
                with source.lock:
                    source.open -= 1

            def answer(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = urllib.parse.urlsplit(self.path).path
                status, body = source.reply(self.command, path)
                if status is None:
                    source.ended.wait()
                    self.close_connection = True
                    return
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_HEAD = answer
            log_message = lambda *_: None

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 1000

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def reply(self, method, path):
        if path.strip("/").count("/") == 0:
            return 200, {"db_name": "s", "update_seq": "1000-x", "instance_start_time": "0", "doc_count": 1000, "doc_del_count": 0}
        if "/_local/" in path:
            return (201, {"ok": True, "rev": "0-1"}) if method == "PUT" else (404, {"error": "not_found", "reason": "missing"})
        if path.endswith("/_changes"):
            rows = [{"seq": f"{n}-x", "id": f"d{n}", "changes": [{"rev": f"1-{n:032x}"}]} for n in range(1000)]
            return 200, {"results": rows, "last_seq": "1000-x", "pending": 0}
        return None, None

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()


def test_replications_leave_descriptors(ctx):
    """One user's replications from a server that does not answer have the sockets that there are for replications, and no more."""
    options = ["--set", "replicator/allowed_addresses=any"]
    source = SilentSource()
    try:
        with limited_server(ctx, FILES, options=options) as server:
            api = server.api()
            eve = add_user(api, "eve", "copies")
            wanted = {"target": "copies", "use_bulk_get": False, "http_connections": 20, "worker_processes": 20, "worker_batch_size": 10}

            def replicate(number):
                body = {**wanted, "source": f"{source.url}/u{number}", "connection_timeout": 600_000}
                try:
                    server.api(credentials=eve).post("/_replicate", body)
                except Disconnected:
                    pass  # the server stops

            for number in range(30):
                threading.Thread(target=replicate, args=(number,), daemon=True).start()
            wait_until(lambda: source.open >= 8, 30)
            statuses = {api.put(f"/copies/own{n}", {}).status for n in range(100)}
            wait_until(lambda: source.most > SOCKETS_MAX, 3)
            ctx.report.check("sockets of replications are within their limit", 8 <= source.most <= SOCKETS_MAX, source.most)
            ctx.report.equal("writes are taken", statuses, {201})
            ctx.report.check("descriptors are left", metrics(api)("settee_process_open_files") < FILES * 3 / 4)
            server.kill()
    finally:
        source.close()


def test_a_flood_of_strangers_displaces_no_users(ctx):
    """Requests without a login that never end, from one address: whoever is logged in stays, others with a login come, `/_up` answers."""
    with ctx.server(options=FLOOD) as server:
        api = server.api()
        bob = add_user(api, "bob", "db")
        users = [server.api() for _ in range(KNOWN)]
        for user in users:
            user.expect(200, "GET", "/_session")
        kept = [user.connection for user in users]
        held, stop = [], threading.Event()

        def flood():
            own = []
            while not stop.is_set():
                own = [connection for connection in own if is_open(connection)]
                try:
                    own += [begin_body(server, "/_session") for _ in range(len(own), PLACES)]
                except OSError:
                    pass  # closed while its head was sent
                stop.wait(0.01)
            held.extend(own)

        threads = [threading.Thread(target=flood) for _ in range(4)]
        for thread in threads:
            thread.start()
        told = metrics(api)
        full = wait_until(lambda: metrics(api)("settee_connections") >= PLACES - 2, 20)
        ctx.report.check("all places are taken", full, told("settee_connections"))
        ups = [ask_up(server) for _ in range(5)]
        ctx.report.equal("/_up answers", ups, [200] * 5)
        # Users rest for longer than a moment, after which they made room before.
        wait_until(lambda: False, 1.5)
        ctx.report.equal("an admin who comes is served", status(lambda: server.api(timeout=PATIENCE_S).get("/db")), 200)
        logins = [
            status(lambda: server.api(timeout=PATIENCE_S, credentials="").post("/_session", {"name": "bob", "password": "pw"})) for _ in range(5)
        ]
        ctx.report.equal("a user logs in from the address of the flood", logins, [200] * 5)
        ctx.report.equal("a user who comes is served", status(lambda: server.api(timeout=PATIENCE_S, credentials=bob).put("/db/bobs", {})), 201)
        again = [status(lambda user=user: user.get("/_session")) for user in users]
        ctx.report.equal("users are served", again, [200] * KNOWN)
        ctx.report.check("on the connections that they had", [user.connection for user in users] == kept)
        stop.set()
        for thread in threads:
            thread.join()
        closed = metrics(api)("settee_connections_closed_for_others_total")
        slow = [line for line in server.log().splitlines() if " slow" in line and "_session" in line]
        ctx.report.check("connections that were closed for others have no lines each", closed > 0 and len(slow) < 5, (closed, slow[:3]))
        for connection in held:
            connection.close()


def ask_up(server):
    return status(lambda: server.api(timeout=PATIENCE_S, credentials="").get("/_up"))


def status(send):
    try:
        return send().status
    except Disconnected as gone:
        return str(gone)


def test_requests_of_one_user_leave_places(ctx):
    """A user whose requests never end loses the oldest ones when others come; the same user's next ones are refused."""
    with ctx.server(options=FLOOD) as server:
        api = server.api()
        eve, bob = add_user(api, "eve", "db"), add_user(api, "bob", "db")
        api.close()
        held = []
        for number in range(2 * PLACES):
            try:
                held.append(begin_body(server, f"/db/x{number}", eve, method="PUT"))
            except OSError:
                break
        refused = wait_until(lambda: sum(map(is_open, held)) <= PLACES, 20)
        ctx.report.check("what is beyond the places is refused", refused, sum(map(is_open, held)))
        ctx.report.equal("/_up answers", [ask_up(server) for _ in range(5)], [200] * 5)
        ctx.report.equal("an admin is served", status(lambda: server.api(timeout=PATIENCE_S).get("/db")), 200)
        others = [server.api(timeout=PATIENCE_S, credentials=bob) for _ in range(PLACES // 4)]
        served = [status(lambda other=other: other.put(f"/db/{id(other)}", {})) for other in others]
        ctx.report.equal("another user is served", served, [201] * len(others))
        ctx.report.equal("and without a login, from another address", get_session(server, "127.0.0.2"), 200)
        left = sum(map(is_open, held))
        ctx.report.check("a share of requests goes on", left >= PLACES // 4, left)
        for connection in held:
            connection.close()


def get_session(server, source):
    with connect(server, source) as connection:
        connection.sendall(b"GET /_session HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return int(connection.recv(1000).split()[1])


def test_scrapes_pass_readers_that_take_nothing(ctx):
    """Connections to the port for metrics that send requests and read no answers keep no scrape out."""
    options = ["--set", "prometheus/additional_port=true", "--set", "prometheus/port=0"]
    with ctx.server(options=options) as server:
        found = re.search(r"numbers on http://127\.0\.0\.1:(\d+)/", server.log())
        port = int(found.group(1))
        held = []
        for _ in range(20):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(0.5)
            try:
                connection.connect(("127.0.0.1", port))
                for _ in range(300):
                    connection.sendall(b"GET /_node/_local/_prometheus HTTP/1.1\r\nHost: x\r\n\r\n" * 5)
            except OSError:
                pass  # it is not read any more
            held.append(connection)
        with socket.create_connection(("127.0.0.1", port), timeout=15) as scrape:
            scrape.sendall(b"GET /_node/_local/_prometheus HTTP/1.1\r\nHost: x\r\n\r\n")
            ctx.report.check("a scrape is answered", scrape.recv(100).startswith(b"HTTP/1.1 200"))
        for connection in held:
            connection.close()


def allocated(api):
    return api.expect(200, "GET", "/_node/_local/_system")["memory"]


def answer_of(connection):
    """The status of an answer, and whether the connection is over after it."""
    got = b""
    while b"\r\n\r\n" not in got:
        some = connection.recv(4096)
        if not some:
            return None, True
        got += some
    return int(got.split(b" ", 2)[1]), b"\r\nconnection: close" in got.lower()


def test_long_heads_leave_nothing(ctx):
    """Long heads are refused from 64 KiB on, and shorter ones leave no memory with connections that rest."""
    connections = ctx.size(100, 2000)
    with ctx.server(options=["--set", f"memory/limit={4 << 30}"]) as server:
        api = server.api()

        def head(length):
            return b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"a" * 990) for n in range(length // 1000)) + b"\r\n"

        resting = [connect(server) for _ in range(connections)]
        for connection in resting:
            connection.sendall(head(0))
            ctx.report.equal("a short head is answered", answer_of(connection), (200, False))
        before = allocated(api)
        held = []
        for _ in range(connections):
            held.append(connect(server))
            held[-1].sendall(head(50_000))
            ctx.report.equal("a long head is answered, and its connection closed", answer_of(held[-1]), (200, True))

        def is_given_back():
            return allocated(api)["allocated"] - before["allocated"] < connections * 8000

        ctx.report.check("nothing of it stays", wait_until(is_given_back, 60), allocated(api)["allocated"] - before["allocated"])
        longer = connect(server)
        longer.sendall(head(90_000))
        ctx.report.equal("a longer one is refused", answer_of(longer)[0], 431)
        for connection in [*resting, *held, longer]:
            connection.close()
        api.close()


def test_unfinished_heads_are_bounded(ctx):
    """Long heads that do not end are in the table, and there are no more of them than it has room for."""
    with ctx.server(options=["--set", f"memory/bodies={16 << 20}"]) as server:
        api = server.api()
        # A sixteenth of the budget, 64 KiB each.
        places, known = 16, api.expect(200, "GET", "/_up")
        begun = []
        for _ in range(2 * places):
            begun.append(connect(server))
            begun[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 40_000)

        def closed():
            return sum(not is_open(connection) for connection in begun)

        ctx.report.check("those beyond the places are closed", wait_until(lambda: closed() == 2 * places - places // 2, 20), closed())
        used = allocated(api)["budgets"]["bodies"]["used"]
        # One address has at most half of the places.
        ctx.report.equal("the others are in the table", used, (places // 2) << 16)
        ctx.report.equal("short heads are served", api.expect(200, "GET", "/_up"), known)
        for connection in begun:
            connection.close()
        gone = wait_until(lambda: allocated(api)["budgets"]["bodies"]["used"] == 0, 20)
        ctx.report.check("and leave with their connections", gone, allocated(api)["budgets"]["bodies"])
        api.close()


def test_gzipped_bodies_wait_before_they_swell(ctx):
    """Short gzipped bodies that do not end, each of which would be long: what came out of them is in the table."""
    connections = ctx.size(100, 600)
    with ctx.server(options=["--set", f"memory/bodies={16 << 20}"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        swelling = zlib.compressobj(9, zlib.DEFLATED, 31)
        body = swelling.compress(b'{"a":"' + b"A" * 1_040_000) + swelling.flush(zlib.Z_SYNC_FLUSH)
        before = allocated(api)
        login = basic(server.admin)
        head = f"PUT /db/x HTTP/1.1\r\nHost: x\r\nAuthorization: {login}\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 15000\r\n\r\n"
        begun = [connect(server) for _ in range(connections)]
        for connection in begun:
            connection.sendall(head.encode() + body)
        # Some have room, and the others wait.
        wait_until(lambda: allocated(api)["budgets"]["bodies"]["used"] > 1 << 20, 20)
        seen = [allocated(api) for _ in range(20)]
        worst = max(seen, key=lambda memory: memory["allocated"])
        grown, said = worst["allocated"] - before["allocated"], worst["budgets"]["bodies"]["used"]
        ctx.report.check("what is allocated is in the table", grown < 1.3 * said + connections * (48 << 10), f"{grown} of which {said}")
        for connection in begun:
            connection.close()
        api.close()


def test_admins_feeds_leave_places(ctx):
    """Users' feeds take all places that are shared; feeds of a server admin do not take all that are reserved."""
    with ctx.server(options=[*FLOOD, "--set", "chttpd_auth/iterations=10"]) as server:
        api = server.api()
        users = [add_user(api, f"user{number}", "db") for number in range(PLACES)]
        feeds = [open_feed(server, credentials) for credentials in [*users, *[server.admin] * 6]]

        def answered(credentials, path):
            client = server.api(timeout=PATIENCE_S, credentials=credentials)
            try:
                return client.get(path).status
            except Disconnected:
                return None
            finally:
                client.close()

        ups = [answered("", "/_up") for _ in range(5)]
        ctx.report.check("/_up is answered", ups.count(200) >= 4, ups)
        admins = [answered(None, "/db") for _ in range(5)]
        ctx.report.check("and admins are", admins.count(200) >= 4, admins)
        for feed in feeds:
            feed.close()
        ctx.report.check("users are when the feeds are gone", wait_until(lambda: answered(users[0], "/db") == 200), 20)


def open_feed(server, credentials):
    connection = connect(server)
    head = f"GET /db/_changes?feed=continuous&heartbeat=2000 HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(credentials)}\r\n\r\n"
    connection.sendall(head.encode())
    return connection

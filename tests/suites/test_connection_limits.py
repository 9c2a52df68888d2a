"""Floods of connections, and requests that hold theirs: users and server admins get places all the same, and descriptors are left."""

import http.server
import json
import re
import socket
import threading
import urllib.parse

from harness.api import Disconnected, basic
from harness.prometheus import metrics
from harness.server import wait_until

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

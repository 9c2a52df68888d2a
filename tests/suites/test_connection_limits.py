"""Connections of one user, however many there are: descriptors are left for all others."""

import http.server
import json
import threading
import urllib.parse

from harness.api import Disconnected
from harness.prometheus import metrics
from harness.server import wait_until

FILES = 512
#: What there is for replications then: see operations/limits.md.
SOCKETS_MAX = 64


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

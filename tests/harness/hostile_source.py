"""A source of replications that sends what takes much memory: a database with documents of a chosen size, or of chosen rows."""

import http.server
import json
import threading
import urllib.parse


class HostileSource:
    """`rows`: the texts of the rows of `_changes`, each of which may be a callable that returns the text. `seq`: the text of
    `update_seq`. `doc`: the text of each document that `_bulk_get` and reads of one document return, without its id and revision; it may
    be a function of the id. `stalls`: whether `_changes` sends nothing at all. `query` is that of the last `_changes`."""

    def __init__(self, rows=(), seq='"9-x"', doc=None, stalls=False):
        self.rows, self.seq, self.doc, self.stalls = rows, seq, doc, stalls
        self.closed = threading.Event()
        self.feeds = self.bulks = 0
        self.query = ""
        source = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    source.reply(self, urllib.parse.urlsplit(self.path), body)
                except OSError:
                    pass  # the client has had enough

            do_GET = do_POST = do_PUT = do_HEAD = answer
            log_message = lambda *_: None

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/src"

    def close(self):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()

    def reply(self, handler, url, body):
        path = url.path.removeprefix("/src")
        if path in ("", "/"):
            send(handler, 200, f'{{"db_name":"src","update_seq":{self.seq},"instance_start_time":"0","doc_count":1,"doc_del_count":0}}')
        elif path == "/_changes":
            self.send_changes(handler, url.query)
        elif path == "/_bulk_get":
            self.bulks += 1
            self.send_docs(handler, json.loads(body)["docs"])
        elif handler.command == "GET" and "open_revs=" in url.query:
            revs = json.loads(urllib.parse.parse_qs(url.query)["open_revs"][0])
            send(handler, 200, "[" + ",".join(f'{{"ok":{self.text(path[1:], rev)}}}' for rev in revs) + "]")
        elif handler.command == "PUT":
            send(handler, 201, '{"ok":true,"id":"x","rev":"0-1"}')
        elif path == "/_ensure_full_commit":
            send(handler, 201, '{"ok":true,"instance_start_time":"0"}')
        else:
            send(handler, 404, '{"error":"not_found","reason":"missing"}')

    def send_changes(self, handler, query):
        if "limit=0" in query:
            return send(handler, 200, '{"results":[],"last_seq":"9-x","pending":0}')
        self.feeds += 1
        self.query = query
        begin(handler, 200)
        if self.stalls:
            self.closed.wait()
            return None
        handler.wfile.write(b'{"results":[\n')
        for number, row in enumerate(self.rows):
            text = row() if callable(row) else row
            handler.wfile.write((",\n" if number else "").encode() + text.encode())
        handler.wfile.write(b'\n],"last_seq":"9-x","pending":0}\n')
        return None

    def text(self, doc_id, rev):
        """A document."""
        head = json.dumps({"_id": doc_id, "_rev": rev})[:-1]
        return f"{head},{self.doc(doc_id) if callable(self.doc) else self.doc}}}"

    def send_docs(self, handler, asked):
        begin(handler, 200)
        handler.wfile.write(b'{"results":[')
        for number, doc in enumerate(asked):
            text = f'{{"id":{json.dumps(doc["id"])},"docs":[{{"ok":{self.text(doc["id"], doc["rev"])}}}]}}'
            handler.wfile.write((("," if number else "") + text).encode())
        handler.wfile.write(b"]}")


def begin(handler, status):
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()


def send(handler, status, text):
    begin(handler, status)
    if handler.command != "HEAD":
        handler.wfile.write(text.encode())


class StalledTarget:
    """A target that lacks everything, and does not answer `_bulk_docs` before `release` is called."""

    def __init__(self):
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.asked = self.written = 0
        target = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def answer(self):
                path = self.path.split("?")[0].removeprefix("/to")
                length = int(self.headers.get("Content-Length") or 0)
                try:
                    if path == "/_bulk_docs":
                        target.stall(self, length)
                        return
                    body = self.rfile.read(length)
                    if path in ("", "/"):
                        send(self, 200, '{"db_name":"to","update_seq":"0-x","instance_start_time":"0","doc_count":1,"doc_del_count":0}')
                    elif path == "/_revs_diff":
                        send(self, 200, json.dumps({id: {"missing": revs} for id, revs in json.loads(body).items()}))
                    elif self.command == "PUT" or path == "/_ensure_full_commit":
                        send(self, 201, '{"ok":true,"id":"x","rev":"0-1","instance_start_time":"0"}')
                    else:
                        send(self, 404, '{"error":"not_found","reason":"missing"}')
                except OSError:
                    pass  # the client has gone

            do_GET = do_POST = do_PUT = do_HEAD = answer
            log_message = lambda *_: None

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/to"

    def stall(self, handler, length):
        with self.lock:
            self.asked += 1
        self.released.wait()
        docs = len(json.loads(handler.rfile.read(length))["docs"])
        send(handler, 201, "[]")
        with self.lock:
            self.written += docs

    def release(self):
        self.released.set()

    def close(self):
        self.release()
        self.server.shutdown()
        self.server.server_close()

#!/usr/bin/env python3
"""A server that acknowledges writes and keeps them in memory only: what the bench's workloads of faults must notice.

usage: forgetful.py serve … --port PORT …
"""

import http.server
import json
import sys
import threading

documents, lock = {}, threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Small answers do not wait for the client's acknowledgement.
    disable_nagle_algorithm = True

    def answer(self, status, body):
        body = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self):
        with lock:
            found = documents.get(self.path)
        if self.path == "/" or found is not None:
            self.answer(200, found or {"couchdb": "Welcome"})
        else:
            self.answer(404, {"error": "not_found", "reason": "missing"})

    def do_PUT(self):
        body = self.body()
        with lock:
            if self.path.count("/") == 2:
                documents[self.path] = {**json.loads(body), "_rev": "1-a"}
        self.answer(201, {"ok": True, "id": self.path.rsplit("/", 1)[1], "rev": "1-a"})

    def do_POST(self):
        keys, database = json.loads(self.body())["keys"], self.path.split("/")[1]
        with lock:
            there = [key for key in keys if f"/{database}/{key}" in documents]
        self.answer(200, {"rows": [{"id": key, "key": key, "value": {"rev": "1-a"}} for key in there]})

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()

"""A reverse proxy that a test puts before a server: it can answer in the server's place, and hold requests back."""

import http.client
import http.server
import threading
import urllib.parse

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Clients that are killed reset their connections: nothing to tell."""


class Proxy:
    """Passes requests to `url`. `hook(method, path)` may return (status, headers, body) to answer itself, or None.

    `hold()` keeps requests, or answers in their middle, waiting until `release()`; `held` tells how many wait.
    """

    def __init__(self, url, hook=lambda method, path: None, rewrite=None):
        parts = urllib.parse.urlsplit(url)
        self.target, self.hook, self.rewrite = (parts.hostname, parts.port), hook, rewrite
        self.seen = []
        self.held = 0
        self._rules, self._changed = [], threading.Condition()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                proxy.serve(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_COPY = do_OPTIONS = handle_any

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def hold(self, *rules):
        """From now on, what one of the rules says waits. A rule is a word in the path and, of these, how many requests
        pass, or `sent`: after how many bytes answers wait."""
        with self._changed:
            self._rules = [dict(rule) for rule in rules]

    def release(self):
        with self._changed:
            self._rules = []
            self._changed.notify_all()

    def _wait(self, path, sent=None):
        with self._changed:
            for rule in self._rules:
                if rule["word"] not in path or (sent is None) != ("sent" not in rule) or (sent is not None and sent < rule["sent"]):
                    continue
                if rule.get("requests", 0) > 0:
                    rule["requests"] -= 1
                    continue
                self.held += 1
                self._changed.wait_for(lambda: not self._rules)
                self.held -= 1
                return

    def serve(self, handler):
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length) if length else read_chunked(handler)
        self.seen.append((handler.command, handler.path))
        self._wait(handler.path)
        answer = self.hook(handler.command, handler.path)
        try:
            if answer is None:
                self.pass_on(handler, body)
            else:
                send(handler, *answer)
        except (OSError, http.client.HTTPException):
            handler.close_connection = True

    def pass_on(self, handler, body):
        connection = http.client.HTTPConnection(*self.target, timeout=120)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in HOP_BY_HOP}
        connection.request(handler.command, handler.path, body, headers)
        answer = connection.getresponse()
        headers = [(n, v) for n, v in answer.getheaders() if n.lower() not in HOP_BY_HOP]
        if self.rewrite or handler.command == "HEAD":
            raw = answer.read()
            raw = self.rewrite(handler.command, handler.path, raw) if self.rewrite else raw
            send(handler, answer.status, headers, raw, answer.headers.get("Content-Length") if handler.command == "HEAD" else None)
        else:
            self.stream(handler, answer, headers)
        connection.close()

    def stream(self, handler, answer, headers):
        handler.send_response_only(answer.status)
        for name, value in [*headers, ("Transfer-Encoding", "chunked")]:
            handler.send_header(name, value)
        handler.end_headers()
        sent = 0
        while piece := answer.read1(1 << 16):
            sent += len(piece)
            self._wait(handler.path, sent)
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.write(b"0\r\n\r\n")

    def close(self):
        self.release()
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def read_chunked(handler):
    if "chunked" not in handler.headers.get("Transfer-Encoding", ""):
        return None
    body = b""
    while True:
        size = int(handler.rfile.readline().split(b";")[0], 16)
        body += handler.rfile.read(size)
        handler.rfile.readline()
        if size == 0:
            return body


def send(handler, status, headers, body, length=None):
    handler.send_response_only(status)
    for name, value in headers:
        handler.send_header(name, value)
    handler.send_header("Content-Length", length or str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)

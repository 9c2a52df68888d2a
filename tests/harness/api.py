"""A small HTTP client: one kept connection, JSON in and out, and raw exchanges for broken requests."""

import base64
import http.client
import json
import socket
import urllib.parse


class Response:
    def __init__(self, status, headers, raw):
        self.status, self.headers, self.raw = status, headers, raw

    @property
    def json(self):
        return json.loads(self.raw)

    @property
    def is_error_shape(self):
        """CouchDB's error: an object with `error` and `reason` as strings."""
        try:
            body = self.json
        except ValueError:
            return False
        return isinstance(body, dict) and isinstance(body.get("error"), str) and isinstance(body.get("reason"), str)

    def __repr__(self):
        return f"{self.status} {self.raw[:300]!r}"


class Disconnected(Exception):
    """The server closed the connection without an answer, or could not be reached."""


class Api:
    def __init__(self, url, credentials="admin:admin", timeout=60):
        parts = urllib.parse.urlsplit(url)
        self.url, self.host, self.port, self.timeout = url, parts.hostname, parts.port, timeout
        self.authorization = {"Authorization": basic(credentials)} if credentials else {}
        self.connection = None

    def request(self, method, path, body=None, headers=None):
        """`body`: None, bytes as they are, or anything else as JSON. Raises Disconnected."""
        sent = dict(self.authorization)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body, separators=(",", ":")).encode()
            sent["Content-Type"] = "application/json"
        elif method == "POST":
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
            self.connection.request(method, path, body, sent)
            answer = self.connection.getresponse()
            response = Response(answer.status, answer.headers, answer.read())
            if answer.will_close:
                self.close()
            return response
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Disconnected(f"{method} {path}: {error!r}") from error

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def put(self, path, body=None, **kw):
        return self.request("PUT", path, body, **kw)

    def post(self, path, body=None, **kw):
        return self.request("POST", path, body, **kw)

    def delete(self, path, **kw):
        return self.request("DELETE", path, **kw)

    def expect(self, status, method, path, body=None):
        """For preparing a test: the parsed answer, or an exception when the status is another."""
        response = self.request(method, path, body)
        if response.status not in (status if isinstance(status, tuple) else (status,)):
            raise AssertionError(f"{method} {path}: expected {status}, got {response!r}")
        return response.json if response.raw else None

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def basic(credentials):
    return "Basic " + base64.b64encode(credentials.encode()).decode()


def quote(text):
    """One path segment or query value."""
    return urllib.parse.quote(text, safe="")


def json_query(**options):
    return "&".join(f"{name}={quote(json.dumps(value))}" for name, value in options.items())


def ask(server, path):
    """A connection that has asked for something, and takes little of the answer before it is read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = server.url.removeprefix("http://").split(":")
    connection.connect((host, int(port)))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(server.admin)}\r\nConnection: close\r\n\r\n".encode())
    return connection


def exchange(host, port, sent, timeout=10, half_close=False):
    """Sends bytes as they are and reads one answer.

    Returns a Response, or None when the server closed without one. `half_close` ends our side after
    sending, as a client does that dies in the middle of a body.
    """
    with socket.create_connection((host, port), timeout=timeout) as connection:
        try:
            connection.sendall(sent)
            if half_close:
                try:
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # the server closed already: what it answered can still be read
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server may answer and close before it has read everything
        try:
            answer = http.client.HTTPResponse(connection, method=_method_of(sent))
            answer.begin()
            return Response(answer.status, answer.headers, answer.read())
        except (http.client.HTTPException, ConnectionError):
            return None


def _method_of(sent):
    return "HEAD" if sent.startswith(b"HEAD ") else "GET"

"""Clients that ask for something and do not read the answer."""

import gzip
import json
import random
import socket

from harness.api import basic

RECEIVE_BYTES = 4096


class Unread:
    """One request whose answer's beginning was read, and nothing after it. A body that is not bytes is sent as JSON, gzipped."""

    def __init__(self, server, method, path, body=None, credentials=None, headers=(), timeout=60):
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.socket.settimeout(timeout)
        self.socket.connect((host, int(port)))
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: {basic(credentials or server.admin)}", *headers]
        sent = b""
        if body is not None:
            sent = body if isinstance(body, bytes) else gzip.compress(json.dumps(body).encode(), 6)
            lines += ["Content-Type: application/json", "Content-Encoding: gzip", f"Content-Length: {len(sent)}"]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + sent)
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            got = self.socket.recv(200)
            if not got:
                break
            self.head += got
        self.status = int(self.head.split(b" ", 2)[1]) if self.head else None

    def rest(self):
        """What came so far and what comes within a moment: for errors, which are short."""
        try:
            return self.head + self.socket.recv(2000)
        except TimeoutError:
            return self.head

    def close(self):
        self.socket.close()


def pad(length, seed=0):
    """Text that gzip makes about 100 times shorter, within `max_inflation_ratio`."""
    some = random.Random(seed)
    unit = 900
    return "".join("A" * unit + f"{some.getrandbits(32):08x}" for _ in range(length // (unit + 8) + 1))[:length]

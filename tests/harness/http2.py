"""Clients that send requests over HTTP/2 and read no response: the window of each stream is 0."""

import socket
import struct

from harness.api import basic

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value):
    """A string of HPACK, without Huffman's code."""
    value = value.encode()
    length, prefix = len(value), 127
    if length < prefix:
        return bytes([length]) + value
    rest, octets = length - prefix, [prefix]
    while rest >= 128:
        octets.append(rest % 128 + 128)
        rest //= 128
    return bytes([*octets, rest]) + value


def header(name, value):
    """A header of HPACK, which goes into no table."""
    return b"\x00" + text(name) + text(value)


class UnreadStreams:
    """One connection with `count` requests, whose responses the server may not send."""

    def __init__(self, server, count, method, path, body=None, credentials=None, source="127.0.0.1"):
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.bind((source, 0))
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)
        block = header(":method", method) + header(":scheme", "http") + header(":path", path) + header(":authority", host)
        block += header("accept", "application/json")
        if credentials:
            block += header("authorization", basic(credentials))
        if body is not None:
            block += header("content-type", "application/json")
        sent = PREFACE + frame(SETTINGS, 0, 0, settings)
        for stream in range(1, 2 * count, 2):
            sent += frame(HEADERS, END_HEADERS | (END_STREAM if body is None else 0), stream, block)
            if body is not None:
                sent += frame(DATA, END_STREAM, stream, body)
        self.socket.sendall(sent)

    def close(self):
        self.socket.close()

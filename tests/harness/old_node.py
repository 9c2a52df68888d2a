"""A node of another version: it has a member's certificate, and greets another node in a protocol that this one does not speak."""

import socket
import ssl
import struct

TIMEOUT_S = 10
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, GOAWAY = 0, 1, 4, 7
END_STREAM, END_HEADERS = 1, 4


def greet(address, certificate, protocol, program="9.9.9"):
    """What the node at HOST:PORT answers to a greeting in this version of the protocol. `certificate` is a file with its key."""
    host, port = address.split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2"])
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":authority": "peer",
        ":path": "/hello",
        "peers-protocol": str(protocol),
        "peers-program": program,
        "peers-instance": "1",
        "peers-connection": "1",
    }
    block = b"".join(field(name, value) for name, value in fields.items())
    with socket.create_connection((host, int(port)), TIMEOUT_S) as plain, context.wrap_socket(plain) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
        return read_answer(connection)


def field(name, value):
    """A header without an index, not compressed."""
    name, value = name.encode(), value.encode()
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def read_answer(connection):
    said = b""
    with connection.makefile("rb") as frames:
        while head := frames.read(9):
            length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
            payload = frames.read(length)
            if kind == DATA:
                said += payload
            if kind == GOAWAY or (kind in (DATA, HEADERS) and flags & END_STREAM):
                break
    return said.decode()

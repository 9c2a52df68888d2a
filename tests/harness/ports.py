"""A port of 127.0.0.1 that stays closed. Free ones: scripts/ports.py."""

import contextlib
import socket


@contextlib.contextmanager
def closed_port():
    """A port that refuses connections: a socket holds it, and does not listen."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]

"""Ports of 127.0.0.1: free ones for servers that are told their port, and one that stays closed."""

import contextlib
import random
import socket

# Below those that the kernel assigns to port 0 and to connections. So nothing takes such a port
# while its server restarts.
FIRST, END = 10_000, 32_000
TRIES = 2_000


def free_ports(count):
    found = []
    # Not the shared generator: a test that seeds it would get the same ports in every process.
    for port in random.SystemRandom().sample(range(FIRST, END), TRIES):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports")


def free_port():
    return free_ports(1)[0]


@contextlib.contextmanager
def closed_port():
    """A port that refuses connections: a socket holds it, and does not listen."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]

"""Free ports of 127.0.0.1: no two of this machine's tests are given the same one."""

import contextlib
import fcntl
import os
import pathlib
import random
import socket
import tempfile

# Below those that the kernel assigns to port 0 and to connections. So nothing takes such a port while its server restarts.
FIRST, END = 10_000, 32_000
TRIES = 2_000

# Byte N of this file is locked by the process that was given port N, until it ends.
_reserved = set()
_locks = None


def free_ports(count):
    """Ports on which nobody listens. They stay this process's, whether or not its servers run."""
    found = []
    # Not the shared generator: a test that seeds it would get the same ports in every process.
    for port in random.SystemRandom().sample(range(FIRST, END), TRIES):
        if len(found) == count:
            return found
        if _reserve(port):
            found.append(port)
    raise RuntimeError(f"no {count} free ports")


def free_port():
    return free_ports(1)[0]


def _reserve(port):
    # The kernel refuses no lock that this process has already.
    if port in _reserved:
        return False
    with contextlib.suppress(OSError):
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        with socket.create_server(("127.0.0.1", port)):
            _reserved.add(port)
            return True
    return False


def _lock_file():
    """Never closed: closing it would give up all locks. A forked process has its own."""
    global _locks
    if _locks is None or _locks[0] != os.getpid():
        _reserved.clear()
        path = pathlib.Path(tempfile.gettempdir()) / f"settee-ports-{os.getuid()}"
        _locks = os.getpid(), os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return _locks[1]

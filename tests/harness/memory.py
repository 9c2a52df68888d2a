"""Memory of a server with its workers."""

import os


def family_mb(server):
    """Memory of the server with its workers: what they share is counted once."""
    total = 0
    for pid in [server.process.pid, *workers_of(server)]:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended meanwhile
    return total / 1024


def workers_of(server):
    workers = []
    for task in os.listdir(f"/proc/{server.process.pid}/task"):
        try:
            with open(f"/proc/{server.process.pid}/task/{task}/children", encoding="ascii") as children:
                workers += [int(pid) for pid in children.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass  # the thread ended
    return workers


def system(server):
    return server.api().expect(200, "GET", "/_node/_local/_system")

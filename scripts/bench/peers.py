"""Settee beside PostgreSQL, Redis and SQLite, by `settee bench --peer`.

Each peer is a private instance in a temporary folder. It is not the system's service, and it is stopped in the end, also when something fails.
Settee is a server of its own that `settee bench` starts.
"""

import os
import subprocess
import tempfile

from instances import PACKAGES, Failed, PostgreSQL, Redis, SQLite, install, installed


def add_options(parser):
    parser.add_argument("--install", action="store_true", help="install what is missing, by apt-get")
    parser.add_argument("--only", choices=[*PACKAGES, SQLite.name])


def run(options, arguments):
    """Returns the exit status. `arguments` are those of `settee bench`."""
    if options.install:
        install()
    is_search = any(argument == "search" or argument.startswith("peer_search") for argument in arguments)
    kinds = [kind for kind in (PostgreSQL, Redis) if kind.name in installed() and options.only in (None, kind.name)]
    # SQLite is measured in searches alone, which Redis has not.
    if is_search:
        kinds = [kind for kind in kinds if kind is not Redis]
        kinds += [SQLite] if options.only in (None, SQLite.name) else []
    idle, why = (Redis, "Redis does not search") if is_search else (SQLite, "SQLite only searches: ask for search, or for a peer_search_...")
    if options.only == idle.name:
        raise Failed(why)
    if not kinds:
        missing = f"{options.only} is not" if options.only else "neither PostgreSQL nor Redis is"
        raise Failed(f"{missing} installed; --install gets what is missing from Debian")
    return max(measure(kind, options.binary, arguments) for kind in kinds)


def measure(kind, binary, arguments):
    """Returns the exit status of `settee bench`."""
    with tempfile.TemporaryDirectory(prefix="settee-peers-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        with kind(folder) as peer:
            command = [binary, "bench", "--peer", peer.url(), *arguments]
            bench = subprocess.Popen(command, env=peer.environment())
            try:
                return bench.wait()
            except BaseException:
                # It ends its own server, and tidies up, before its peer goes.
                bench.terminate()
                bench.wait()
                raise

#!/usr/bin/env python3
"""Measures Settee beside PostgreSQL, Redis and SQLite, on this machine: `make bench-peers`.

usage: bench_peers.py --binary PATH [--install] [--only NAME] [ARGUMENT OF SETTEE BENCH...]

Each peer is a private instance in a temporary folder, on a free port of 127.0.0.1, with a random password. It is not the system's service, and
it is stopped in the end, also when something fails. Settee is a server of its own that `settee bench` starts.
"""

import argparse
import glob
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PACKAGES = {"postgresql": "postgresql", "redis": "redis-server"}
READY_S = 60
STOP_S = 30
POSTGRES_USER = "postgres"


class Failed(Exception):
    """Something that ends the run, in words."""


def postgres_programs():
    """The folder with the newest PostgreSQL's `initdb` and `postgres`; None when there is none."""
    folders = [pathlib.Path(found).parent for found in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    numbers = [(int(folder.parent.name), folder) for folder in folders if folder.parent.name.isdigit()]
    if numbers:
        return max(numbers)[1]
    found = shutil.which("initdb")
    return pathlib.Path(found).parent if found else None


def redis_program():
    return shutil.which("redis-server")


def installed():
    return [name for name, found in (("postgresql", postgres_programs()), ("redis", redis_program())) if found]


def install(programs=()):
    """Debian's packages of the peers that are missing, and of programs that have packages of their name. No service is started."""
    missing = [PACKAGES[name] for name in PACKAGES if name not in installed()]
    missing += [program for program in programs if not shutil.which(program)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise Failed(f"{' and '.join(missing)} are missing, and there is no apt-get")
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    # Debian starts services only in run levels that have them: this one has none.
    quiet = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    print(f"installing {' '.join(missing)}", file=sys.stderr)
    for command in ([*quiet, "update"], [*quiet, "install", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Instance:
    """A private server in a folder, which ends with the `with` block."""

    name = scheme = user = None
    stop_signal = signal.SIGTERM

    def __init__(self, folder):
        self.folder = pathlib.Path(folder) / self.name
        self.folder.mkdir()
        self.port, self.password, self.process = free_port(), secrets.token_urlsafe(16), None
        self.log = self.folder / "log"

    def __enter__(self):
        try:
            self.process = self.spawn(self.command())
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process is None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def spawn(self, command):
        with open(self.log, "ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self.as_user())

    def as_user(self):
        return {}

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            if self.is_ready():
                return
            time.sleep(0.05)
        raise Failed(f"{self.name} did not start:\n{self.log.read_text(errors='replace')[-2000:]}")

    def is_ready(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def environment(self):
        """The password is no part of a command line, which everybody can read."""
        return {**os.environ, "SETTEE_PEER_CREDENTIALS": f"{self.user}:{self.password}"}

    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}/{self.database}"


class PostgreSQL(Instance):
    name, scheme, user, database = "postgresql", "postgres", "settee", "postgres"
    # Fast shutdown: clients are cut off.
    stop_signal = signal.SIGINT

    def as_user(self):
        """It refuses to run as root."""
        return {"user": POSTGRES_USER, "group": POSTGRES_USER, "extra_groups": []} if os.geteuid() == 0 else {}

    def command(self):
        programs, data, password = postgres_programs(), self.folder / "data", self.folder / "password"
        password.write_text(self.password)
        password.chmod(0o600)
        if self.as_user():
            for path in (self.folder, password):
                shutil.chown(path, POSTGRES_USER, POSTGRES_USER)
        make = [programs / "initdb", "-D", data, "-U", self.user, f"--pwfile={password}", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C"]
        with open(self.log, "ab") as log:
            done = subprocess.run(make, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self.as_user())
        password.unlink()
        if done.returncode:
            raise Failed(f"initdb failed:\n{self.log.read_text(errors='replace')[-2000:]}")
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "300"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [programs / "postgres", "-D", data, "-p", str(self.port), *options]


class SQLite(Instance):
    """FTS5, for the searches: a process of Python. It has a folder of its own, and no password: nothing but the texts of the run is in it."""

    name, scheme, user, database = "sqlite", "fts5", "nobody", ""

    def command(self):
        program = pathlib.Path(__file__).with_name("bench_fts5.py")
        return [sys.executable, program, "--port", str(self.port), "--folder", self.folder]


class Redis(Instance):
    name, scheme, user, database = "redis", "redis", "default", "0"

    def command(self):
        config = self.folder / "redis.conf"
        lines = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self.folder,
            "requirepass": self.password,
            # As durable as the server and PostgreSQL: an answer means that the write is synced.
            "appendonly": "yes",
            "appendfsync": "always",
            "save": '""',
        }
        config.touch(mode=0o600)
        config.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        return [redis_program(), config]


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--install", action="store_true", help="install what is missing, by apt-get")
    parser.add_argument("--only", choices=[*PACKAGES, SQLite.name])
    options, arguments = parser.parse_known_args()
    # Ended by a signal, everything is still stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
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
        statuses = [measure(kind, options.binary, arguments) for kind in kinds]
    except Failed as failed:
        sys.exit(f"bench_peers: {failed}")
    sys.exit(max(statuses))


if __name__ == "__main__":
    main()

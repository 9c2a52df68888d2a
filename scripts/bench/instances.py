"""Private servers for measurements: each in a folder, on a free port of 127.0.0.1, with a random password."""

import base64
import glob
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
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


class Settee(Instance):
    """The program under test, with one admin."""

    name, scheme, user = "settee", "http", "admin"

    def __init__(self, folder, binary):
        super().__init__(folder)
        self.binary, self.data = binary, self.folder / "data"
        self.authorization = "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        self.data.mkdir()
        settings = self.data / "local.ini"
        settings.touch(mode=0o600)
        settings.write_text(f"[admins]\n{self.user} = {self.password}\n[log]\nlevel = warning\n")

    def command(self):
        return [self.binary, "serve", "--data", self.data, "--port", str(self.port), "--bind", "127.0.0.1"]


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
        program = pathlib.Path(__file__).with_name("fts5.py")
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

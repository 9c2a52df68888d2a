"""A Settee server as its own process, started on a free port and always ended by its own pid."""

import atexit
import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import time
import weakref

from harness.api import Api
from ports import free_port

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
FREE_PORT_TRIES = 5
READY = re.compile(r"^Settee is listening on (http://\S+)$")

_running = set()


def living():
    """The processes that this run started and that still live."""
    return set(_running)


def end_all(but=frozenset()):
    """Ends every process that this run started and that still lives, except for `but`."""
    for process in living() - but:
        end(process)


def track(process):
    """From now on `end_all` ends this process too."""
    _running.add(process)


def end(process):
    if process.poll() is None:
        process.kill()
    process.wait()
    _running.discard(process)


atexit.register(end_all)


class StartFailed(Exception):
    """The server ended, or said nothing, before it was ready."""

    def __init__(self, why, exit_code, log):
        super().__init__(f"{why} (exit code {exit_code})\n{log[-2000:]}")
        self.exit_code = exit_code
        self.log = log


class Server:
    """`data` outlives the process, so the same directory can be started again.

    `port` 0 stands for a free one, which `start` chooses each time.

    `admin` None has the server make one, as `make serve` does.
    """

    def __init__(self, binary, data, admin="admin:admin", options=(), log_path=None, port=0):
        self.binary, self.data, self.admin, self.options = binary, str(data), admin, list(options)
        self.log_path = log_path or self.data.rstrip("/") + ".log"
        self.generate_admin = admin is None
        self.port = port
        self.process = None
        self.url = None
        self.start_seconds = None
        self._clients = weakref.WeakSet()

    def start(self):
        for _ in range(FREE_PORT_TRIES):
            port = self.port or free_port()
            try:
                return self._start(port)
            except StartFailed as failed:
                # Another process may take a free port first.
                if self.port or "Address already in use" not in failed.log:
                    raise
        raise StartFailed("every port that was free was taken", None, self.log())

    def _start(self, port):
        who = ["--generate-admin"] if self.generate_admin else ["--admin", self.admin]
        command = [self.binary, "serve", "--data", self.data, "--bind", "127.0.0.1", "--port", str(port), *who, *self.options]
        began = time.monotonic()
        with open(self.log_path, "ab") as log:
            self.log_start = log.tell()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, errors="replace")
        track(self.process)
        self.url = self._wait_until_ready()
        self.start_seconds = time.monotonic() - began
        return self

    def _wait_until_ready(self):
        lines = queue.Queue()
        self._reader = threading.Thread(target=_forward, args=(self.process.stdout, self.log_path, lines), daemon=True)
        self._reader.start()
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.kill()
                raise StartFailed(f"not ready within {READY_TIMEOUT_S} s", None, self.log()) from None
            if line is None:
                code = self.process.wait()
                _running.discard(self.process)
                raise StartFailed("ended before it was ready", code, self.log())
            ready = READY.match(line)
            if ready:
                return ready.group(1).rstrip("/")

    def api(self, timeout=60, credentials=None):
        """A client with a connection of its own; `credentials` is NAME:PASSWORD, "" for none."""
        client = Api(self.url, self.admin if credentials is None else credentials, timeout)
        self._clients.add(client)
        return client

    def configure(self, section, key, value):
        """Sets a value in local.ini, which may be done while the server runs, and has it read."""
        path = pathlib.Path(self.data, "local.ini")
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(f"{text}\n[{section}]\n{key} = {value}\n", encoding="utf-8")
        if self.process is not None and self.alive():
            api = self.api()
            api.expect(200, "POST", "/_node/_local/_config/_reload", {})
            api.close()

    def kill(self):
        """kill -9: no clean shutdown, nothing flushed."""
        end(self.process)

    def restart(self):
        """Starts a server again that was killed or stopped, on the port that it had, so that its clients find it."""
        self.port = int(self.url.rsplit(":", 1)[1])
        return self.start()

    def stop(self):
        """SIGTERM; returns the exit code, or None when it had to be killed."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = None
        end(self.process)
        return code

    def alive(self):
        return self.process.poll() is None

    def log(self):
        """What this start has written, stdout and stderr."""
        with open(self.log_path, "rb") as log:
            log.seek(self.log_start)
            return log.read().decode("utf-8", "replace")

    def rss_mb(self):
        return self._status_kb("VmRSS") / 1024

    def mapped_mb(self):
        """Pages of files in what `rss_mb` counts: the program's, and those of text indexes that are open."""
        return (self._status_kb("RssFile") + self._status_kb("RssShmem")) / 1024

    def peak_rss_mb(self):
        return self._status_kb("VmHWM") / 1024

    def cpu_seconds(self):
        """User and system time so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status_kb(self, field):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        raise KeyError(field)

    def open_sockets(self):
        """Those of TCP: workers of functions, which come and go, are spoken to by others."""
        inodes = set()
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{self.process.pid}/net/{table}", encoding="ascii") as lines:
                inodes |= {f"socket:[{line.split()[9]}]" for line in list(lines)[1:]}
        folder = f"/proc/{self.process.pid}/fd"
        count = 0
        for fd in os.listdir(folder):
            try:
                count += os.readlink(f"{folder}/{fd}") in inodes
            except FileNotFoundError:
                pass  # closed between the two calls
        return count

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process is not None and self.process in _running:
            # A server that ends waits for two seconds for its clients to close what they keep open.
            for client in list(self._clients):
                client.close()
            self.stop()


def _forward(stream, log_path, lines):
    with open(log_path, "a", encoding="utf-8") as log:
        for line in stream:
            log.write(line)
            log.flush()
            lines.put(line.rstrip("\n"))
    lines.put(None)


def wait_until(condition, timeout_s=30, step_s=0.02):
    """Polls until `condition()` is true; returns whether it became so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step_s)
    return True

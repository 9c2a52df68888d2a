"""PouchDB as a process of its own: a device that syncs (`Pouch`), and the server made of it (`PouchServer`)."""

import json
import queue
import subprocess
import threading
import time

from harness import leaves
from harness import server as servers
from harness.api import Api, Disconnected
from ports import free_port

CALL_TIMEOUT_S = 120
READY_TIMEOUT_S = 60


class Pouch:
    """A PouchDB in LevelDB, driven over a pipe (tests/clients/js/sync.cjs). The folder outlives the process.

    `retries`: its live sync is told to retry; otherwise the app itself starts a failed one again.
    """

    def __init__(self, script, environment, path, name, seed, retries):
        self.script, self.environment, self.path, self.name, self.seed = script, environment, str(path), name, seed
        self.retries = retries
        self.events = []
        self.acknowledged = []
        self._next = 0
        self.starts = 0

    def start(self):
        self.starts += 1
        self.log_path = self.path.rstrip("/") + ".log"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                ["node", str(self.script)], env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        servers.track(self.process)
        self._answers = queue.Queue()
        threading.Thread(target=self._read, args=(self.process.stdout, self._answers), daemon=True).start()
        # Each life has its own names and random numbers: what it wrote before a kill may have reached the others.
        self.call("open", path=self.path, name=f"{self.name}{self.starts}", seed=self.seed + self.starts, retries=self.retries)
        return self

    def live(self, url, credentials, batch_size=20):
        username, password = credentials.split(":", 1)
        self.call("live", url=url, username=username, password=password, batch_size=batch_size)

    def once(self, url, credentials, batch_size=100):
        username, password = credentials.split(":", 1)
        return self.call("once", url=url, username=username, password=password, batch_size=batch_size)

    def edit(self, count):
        made = self.call("edit", count=count)
        self.acknowledged += [tuple(pair) for pair in made]

    def revs(self):
        return dict(self.call("revs"))

    def leaves(self, folder):
        path = folder / f"{self.name}-leaves.json"
        self.call("leaves", file=str(path))
        found = {}
        for doc in json.loads(path.read_text()):
            found.setdefault(doc["_id"], {})[doc["_rev"]] = leaves.leaf(doc)
        return found

    def call(self, command, **options):
        self._next += 1
        self.process.stdin.write(json.dumps({"id": self._next, "do": command, **options}) + "\n")
        self.process.stdin.flush()
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"PouchDB did not answer {command}; {self.log()}") from None
            if answer is None:
                raise RuntimeError(f"PouchDB ended during {command}: {self.log()}")
            if answer["id"] == self._next:
                if "error" in answer:
                    raise RuntimeError(f"PouchDB: {command}: {answer['error']}")
                return answer["value"]

    def kill(self):
        servers.end(self.process)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(READY_TIMEOUT_S)
        servers.end(self.process)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()[-2000:]

    def _read(self, stream, answers):
        for line in stream:
            said = json.loads(line)
            if "event" in said:
                self.events.append(said)
            else:
                answers.put(said)
        answers.put(None)


class PouchServer:
    """The npm package pouchdb-server over LevelDB, without users. The folder outlives the process."""

    def __init__(self, modules, folder):
        self.program = modules / "pouchdb-server" / "bin" / "pouchdb-server"
        self.folder = folder
        self.port = None
        self.process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self.port = self.port or free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "db").mkdir(exist_ok=True)
        command = ["node", self.program, "--port", str(self.port), "--dir", self.folder / "db", "--config", self.folder / "config.json", "-n"]
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen([str(part) for part in command], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        servers.track(self.process)
        if not servers.wait_until(lambda: self._answers() or self.process.poll() is not None, READY_TIMEOUT_S) or self.process.poll() is not None:
            raise RuntimeError(f"pouchdb-server did not start: {self.log()}")
        return self

    def _answers(self):
        try:
            return self.api(timeout=5).get("/").status == 200
        except Disconnected:
            return False

    def api(self, timeout=60):
        return Api(self.url, "", timeout)

    def kill(self):
        servers.end(self.process)

    restart = start  # on the port that it had

    def log(self):
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()

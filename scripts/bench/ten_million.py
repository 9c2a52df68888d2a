"""Loading of ten million documents with random ids over HTTP, indexes over them, memory, disk and a restart.

The server is a private instance in a temporary folder; it takes about 3 GB of disk. Documents are
of about 100 bytes: {"_id":"<32 hexadecimal digits>","group":"group-123","number":123456,"amount":12.34}. Clients are processes that send bulks one after
another. What is printed: seconds of each million, and the rest as it comes.
"""

import http.client
import json
import multiprocessing
import os
import pathlib
import statistics
import tempfile
import time

from instances import Failed, Settee

DATABASE = "million"
GROUPS = 1000
MAP = "function (doc) { emit(doc.group, doc.amount); }"
LEVELS_MAP = "function (doc) { emit([doc.number % 10, doc.number], doc.amount); }"


class WatchedSettee(Settee):
    def client(self):
        return Client(self.port, self.authorization)

    def memory_mb(self, which):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split(which + ":")[1].split()[0]) / 1024

    def processor_s(self):
        """Seconds of processor so far: of the engine's threads that compact and flush, and of all others."""
        engine = others = 0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            name, numbers = task.joinpath("stat").read_text().split("(", 1)[1].rsplit(")", 1)
            ticks = sum(int(number) for number in numbers.split()[11:13])
            if name.startswith("rocksdb"):
                engine += ticks
            else:
                others += ticks
        a_second = os.sysconf("SC_CLK_TCK")
        return engine / a_second, others / a_second

    def disk_mb(self):
        return sum(f.stat().st_size for f in self.data.rglob("*") if f.is_file()) / (1 << 20)


class Client:
    def __init__(self, port, authorization):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
        self.headers = {"Authorization": authorization, "Content-Type": "application/json"}

    def ask(self, method, path, body=None):
        if isinstance(body, dict):
            body = json.dumps(body)
        self.connection.request(method, path, body, self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise Failed(f"{method} {path}: {answer.status} {text[:300]!r}")
        return text


def bulk(first, count):
    """The body of `_bulk_docs`."""
    digits = os.urandom(16 * count).hex()
    docs = (
        f'{{"_id":"{digits[32 * n : 32 * n + 32]}","group":"group-{(first + n) % GROUPS}","number":{first + n},"amount":{(first + n) % 9973 / 100}}}'
        for n in range(count)
    )
    return '{"docs":[' + ",".join(docs) + "]}"


def send(address, first, count, size):
    client = Client(*address)
    for begin in range(first, first + count, size):
        client.ask("POST", f"/{DATABASE}/_bulk_docs", bulk(begin, min(size, first + count - begin)))


def load(server, docs, clients, size):
    """Seconds of each million, or of each tenth of fewer documents."""
    part, took = min(1_000_000, docs // 10), []
    before = server.processor_s()
    with multiprocessing.Pool(clients) as pool:
        for begin in range(0, docs, part):
            share = part // clients
            address = (server.port, server.authorization)
            began = time.monotonic()
            pool.starmap(send, [(address, begin + n * share, share, size) for n in range(clients)])
            took.append(time.monotonic() - began)
            after = server.processor_s()
            compacting, serving = (new - old for new, old in zip(after, before, strict=True))
            before = after
            print(
                f"documents {begin + part:12,}  {took[-1]:6.2f} s  {server.memory_mb('VmRSS'):6.0f} MB resident"
                f"  processor: {compacting:5.2f} s compacting, {serving:5.2f} s else",
                flush=True,
            )
    return took


def timed(what, action, found):
    began = time.monotonic()
    answer = action()
    found[what] = time.monotonic() - began
    print(f"{what:40}{found[what] * 1000:12,.1f} ms", flush=True)
    return answer


def index(client, found):
    """Builds the indexes, one after the other, and asks them."""
    fields = {"index": {"fields": ["group", "amount"]}, "ddoc": "by", "name": "by"}
    client.ask("POST", f"/{DATABASE}/_index", fields)
    query = {"selector": {"group": "group-7", "amount": {"$gt": 50}}, "limit": 1}
    timed("json index on two fields", lambda: client.ask("POST", f"/{DATABASE}/_find", query), found)
    for name, source in (("groups", MAP), ("levels", LEVELS_MAP)):
        views = {"v": {"map": source, "reduce": "_sum"}}
        client.ask("PUT", f"/{DATABASE}/_design/{name}", {"views": views})
        timed(f"view {name}", lambda name=name: client.ask("GET", f"/{DATABASE}/_design/{name}/_view/v"), found)
    groups = f"/{DATABASE}/_design/groups/_view/v?group=true"
    rows = json.loads(timed("group=true, first", lambda: client.ask("GET", groups), found))["rows"]
    if len(rows) != GROUPS:
        raise Failed(f"{len(rows)} groups")
    for path, what in ((groups, "group=true, later"), (f"/{DATABASE}/_design/levels/_view/v?group_level=1", "group_level=1, later")):
        times = []
        for _ in range(20):
            began = time.monotonic()
            client.ask("GET", path)
            times.append(time.monotonic() - began)
        found[what] = statistics.median(times)
        print(f"{what:40}{found[what] * 1000:12,.1f} ms", flush=True)


def add_options(parser):
    parser.add_argument("--docs", type=int, default=10_000_000)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--bulk", type=int, default=5_000)
    parser.add_argument("--load-only", action="store_true", help="no indexes")


def run(options, _):
    found = {}
    with tempfile.TemporaryDirectory(prefix="settee-million-", ignore_cleanup_errors=True) as folder:
        server = WatchedSettee(folder, pathlib.Path(options.binary).resolve())
        with server:
            client = server.client()
            client.ask("PUT", f"/{DATABASE}")
            parts = found["parts"] = load(server, options.docs, options.clients, options.bulk)
            found["loading"] = sum(parts)
            print(
                f"loading {sum(parts):.1f} s; the last part took {parts[-1] / parts[0]:.2f} times the first, the slowest {max(parts) / min(parts):.2f} times the fastest"
            )
            found["disk_mb"] = server.disk_mb()
            print(f"{found['disk_mb']:,.0f} MB on disk", flush=True)
            if not options.load_only:
                index(client, found)
            found["peak_mb"] = server.memory_mb("VmHWM")
            print(
                f"{found['peak_mb']:,.0f} MB resident at most, {server.memory_mb('VmRSS'):,.0f} MB now; {server.disk_mb():,.0f} MB on disk with the indexes"
            )
        began = time.monotonic()
        with server:
            counted = json.loads(server.client().ask("GET", f"/{DATABASE}"))["doc_count"]
            found["restart"] = time.monotonic() - began
            print(f"restart until the database answers {found['restart']:.2f} s, {counted:,} documents")
    options.keep(found)

"""Settee beside PostgreSQL and Redis with the clients of others: wrk, pgbench and redis-benchmark.

All run on this machine, in private instances, and are measured in turns: a round is one
measurement of each. What is printed is the median of the rounds, with the lowest and the highest. PostgreSQL's statements are prepared; its
documents are jsonb, with an index on the two fields that `find` asks for. Redis answers a write when it is synced, as the others do.
"""

import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from instances import Failed, PostgreSQL, Redis, Settee, install, postgres_programs

CUSTOMERS = 1000
BULK_DOCS = 5000
DATABASE = "clients"
INDEX = "by_customer_amount"
LOAD_THREADS = "1"
SYNC_BYTES = 512


def document(number):
    """Of about 280 bytes."""
    draw = random.Random(number)
    return {
        "number": number,
        "customer": f"customer-{number % CUSTOMERS}",
        "amount": round(draw.random() * 1000, 2),
        "state": ("open", "paid", "sent", "void")[number % 4],
        "tags": ["a", "b"],
        "text": "".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=150)),
    }


def key(number):
    return f"doc-{number:08}"


class MeasuredSettee(Settee):
    def __init__(self, folder, binary, docs):
        super().__init__(folder, binary)
        self.docs, self.written = docs, 0

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": self.authorization, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def fill(self):
        self.ask("PUT", DATABASE)
        self.ask("PUT", f"{DATABASE}-new")
        for first in range(0, self.docs, BULK_DOCS):
            numbers = range(first, min(self.docs, first + BULK_DOCS))
            self.ask("POST", f"{DATABASE}/_bulk_docs", {"docs": [{"_id": key(n), **document(n)} for n in numbers]})
        self.ask("POST", f"{DATABASE}/_index", {"index": {"fields": ["customer", "amount"]}, "ddoc": INDEX, "name": INDEX})
        found = self.ask("POST", f"{DATABASE}/_find", find("customer-7", 100))
        try:
            self.ask("PUT", f"{DATABASE}/{key(0)}", document(1))
            raise Failed("settee: a document that is there was put again")
        except urllib.error.HTTPError as refused:
            if refused.code != 409:
                raise
        if len(found["docs"]) != 10 or "warning" in found:
            raise Failed(f"settee: {found}")

    def measure(self, row, connections, seconds):
        """Requests a second."""
        script = self.folder / f"{row}.lua"
        script.write_text(self.script(row))
        run = ["wrk", "-t", LOAD_THREADS, "-c", str(connections), "-d", f"{seconds}s", "-s", script, f"http://127.0.0.1:{self.port}"]
        printed = run_client(run, self.folder)
        if ("Non-2xx" in printed) != (row == "insert_refused") or "Socket errors" in printed:
            raise Failed(f"settee: {printed}")
        return float(re.search(r"Requests/sec:\s+([\d.]+)", printed)[1])

    def script(self, row):
        self.written += 1
        head = f'wrk.headers["Authorization"] = "{self.authorization}"\n'
        if row in ("get", "up"):
            return head + f'wrk.path = "{"/_up" if row == "up" else f"/{DATABASE}/{key(self.docs // 2)}"}"\n'
        head += f"math.randomseed({self.written})\n"
        if row == "get_random":
            return (
                head + f'request = function() return wrk.format("GET", string.format("/{DATABASE}/doc-%08d", math.random(0, {self.docs - 1}))) end\n'
            )
        head += 'wrk.headers["Content-Type"] = "application/json"\n'
        if row in ("find", "find_none"):
            query = json.dumps(find("customer-%d" if row == "find" else "nobody-%d", "AMOUNT")).replace('"AMOUNT"', "%.2f")
            ask = f"string.format('{query}', math.random(0, {CUSTOMERS - 1}), math.random() * 500)"
            return head + f'request = function() return wrk.format("POST", "/{DATABASE}/_find", nil, {ask}) end\n'
        body = json.dumps(document(1))
        if row == "insert_refused":
            path = f'string.format("/{DATABASE}/doc-%08d", math.random(0, {self.docs - 1}))'
            return head + f"request = function() return wrk.format('PUT', {path}, nil, '{body}') end\n"
        path = f'string.format("/{DATABASE}-new/{self.written:04}-%08d", n)'
        return head + f"local n = 0\nrequest = function() n = n + 1 return wrk.format('PUT', {path}, nil, '{body}') end\n"


def find(customer, above):
    return {"selector": {"customer": customer, "amount": {"$gt": above}}, "sort": [{"customer": "asc"}, {"amount": "asc"}], "limit": 10}


class MeasuredPostgreSQL(PostgreSQL):
    def __init__(self, folder, docs):
        super().__init__(folder)
        self.docs, self.written = docs, 0

    def run(self, program, *arguments, **options):
        command = [postgres_programs() / program, "-h", "127.0.0.1", "-p", str(self.port), "-U", self.user, *arguments]
        return run_client(command, self.folder, env={**os.environ, "PGPASSWORD": self.password}, **options)

    def fill(self):
        make = "CREATE TABLE docs (id text PRIMARY KEY, doc jsonb NOT NULL); CREATE TABLE docs_new (id text PRIMARY KEY, doc jsonb NOT NULL);"
        self.run("psql", "-q", "-c", make, self.database)
        rows = "".join(f"{key(n)}\t{json.dumps(document(n))}\n" for n in range(self.docs))
        self.run("psql", "-q", "-c", "COPY docs FROM STDIN", self.database, input=rows)
        self.run("psql", "-q", "-c", "CREATE INDEX docs_find ON docs ((doc->>'customer'), ((doc->>'amount')::float8))", self.database)
        self.run("psql", "-q", "-c", "VACUUM ANALYZE docs", self.database)

    def measure(self, row, connections, seconds):
        script = self.folder / f"{row}.sql"
        script.write_text(self.script(row))
        loops = ["-n", "-M", "prepared", "-D", "n=0", "-c", str(connections), "-j", LOAD_THREADS, "-T", str(seconds), "-f", script, self.database]
        printed = self.run("pgbench", *loops)
        told = re.search(r"tps = ([\d.]+) \(without", printed)
        if not told or re.search(r"failed transactions: [1-9]", printed):
            raise Failed(f"pgbench: {printed}")
        return float(told[1])

    def script(self, row):
        self.written += 1
        number = "lpad(:n::text, 8, '0')"
        if row == "get":
            return f"SELECT doc::text FROM docs WHERE id = '{key(self.docs // 2)}';\n"
        if row == "get_random":
            return f"\\set n random(0, {self.docs - 1})\nSELECT doc::text FROM docs WHERE id = 'doc-' || {number};\n"
        if row == "find":
            where = "doc->>'customer' = 'customer-' || :n AND (doc->>'amount')::float8 > :a"
            order = "ORDER BY doc->>'customer', (doc->>'amount')::float8 LIMIT 10"
            ask = f"SELECT id, doc::text FROM docs WHERE {where} {order};\n"
            return f"\\set n random(0, {CUSTOMERS - 1})\n\\set a random(0, 50000) / 100.0\n{ask}"
        body = json.dumps(document(1)).replace("'", "''").replace(":", ": ")
        # In about the order in which wrk sends them.
        return f"\\set n :n + 1\nINSERT INTO docs_new VALUES ('{self.written}-' || {number} || '-' || :client_id, '{body}');\n"


class MeasuredRedis(Redis):
    def __init__(self, folder, docs):
        super().__init__(folder)
        self.docs = docs

    def fill(self):
        parts = []
        for n in range(self.docs):
            words = [b"SET", b"key:%012d" % n, json.dumps({"_id": key(n), **document(n)}).encode()]
            parts.append(b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        environment = {**os.environ, "REDISCLI_AUTH": self.password}
        command = ["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), "--pipe"]
        subprocess.run(command, input=b"".join(parts), env=environment, capture_output=True, check=True, timeout=600)

    def measure(self, row, connections, seconds):
        if row == "find":
            return None
        value = json.dumps(document(1))
        asks = {
            "get": ["GET", f"key:{self.docs // 2:012}"],
            "get_random": ["-r", str(self.docs), "GET", "key:__rand_int__"],
        }.get(row, ["-r", "1000000000", "SET", "new:__rand_int__", value])
        # It counts requests, not seconds: so many as a short run says that there will be.
        rate = self.rate(connections, 2000, asks)
        return self.rate(connections, max(2000, int(rate * seconds)), asks)

    def rate(self, connections, requests, asks):
        # The password would be seen in the arguments; this instance lives in a private folder for a minute, and holds nothing.
        login = ["-h", "127.0.0.1", "-p", str(self.port), "-a", self.password]
        command = ["redis-benchmark", *login, "-c", str(connections), "-n", str(requests), "-q", *asks]
        printed = run_client(command, self.folder)
        return float(re.findall(r"([\d.]+) requests per second", printed)[-1])


def run_client(command, folder, **options):
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=600, check=False, **options)
    if done.returncode:
        raise Failed(f"{command[0]}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


def raw_sync(folder, seconds):
    """Appends of a small record, each synced before the next: how often this disk can be waited for in a second."""
    path, record = pathlib.Path(folder) / "raw", os.urandom(SYNC_BYTES)
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        os.write(file, record)
        os.fdatasync(file)
        count += 1
    took = time.monotonic() - began
    os.close(file)
    path.unlink()
    return count / took


# Connections. The last three bound those above them, and are Settee's alone: an answer that reads nothing, a query that finds nothing, and inserts that
# are refused because the document is there.
ROWS = {"get": 64, "get_random": 64, "find": 64, "insert": 32, "insert_1": 1, "up": 64, "find_none": 64, "insert_refused": 32}
BOUNDS = ("up", "find_none", "insert_refused")


def measure(servers, rows, options, folder):
    """Rates by row and by server, a list of rounds each."""
    found = {}
    for row in rows:
        connections = min(ROWS[row], options.connections)
        for _ in range(options.rounds):
            for name, server in servers.items():
                if row in BOUNDS and server is not servers["settee"]:
                    continue
                rate = server.measure(row, connections, options.seconds)
                if rate is not None:
                    found.setdefault(row, {}).setdefault(name, []).append(rate)
            if row == "insert_1":
                found[row].setdefault("raw fdatasync", []).append(raw_sync(folder, options.seconds))
        tell(row, connections, found[row])
    return found


def tell(row, connections, rates):
    ours = statistics.median(rates["settee"])
    for name, rounds in rates.items():
        middle = statistics.median(rounds)
        print(
            f"{row:12}{connections:4} connections  {name:14}{middle:10,.0f} a second ({min(rounds):,.0f}..{max(rounds):,.0f})   Settee / it {ours / middle:.2f}",
            flush=True,
        )


def add_options(parser):
    parser.add_argument("--install", action="store_true", help="install what is missing, by apt-get")
    parser.add_argument("--docs", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64, help="at most")
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], metavar="ROW", help=", ".join(ROWS))


def run(options, _):
    if options.install:
        install(["wrk"])
    missing = [name for name in ("wrk", "redis-benchmark") if not shutil.which(name)]
    if missing or not postgres_programs():
        raise Failed(f"{', '.join(missing) or 'PostgreSQL'} missing; --install gets it from Debian")
    with tempfile.TemporaryDirectory(prefix="settee-clients-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        binary = pathlib.Path(options.binary).resolve()
        with (
            MeasuredSettee(folder, binary, options.docs) as settee,
            MeasuredPostgreSQL(folder, options.docs) as postgres,
            MeasuredRedis(folder, options.docs) as redis,
        ):
            servers = {"settee": settee, "PostgreSQL": postgres, "Redis": redis}
            for server in servers.values():
                server.fill()
            found = measure(servers, options.rows or list(ROWS), options, folder)
    options.keep(found)

"""One language's part of bindings.py: URL USER:PASSWORD FOLDER SECONDS ROUNDS. Prints rates as JSON."""

import base64
import http.client
import json
import sys
import time
import urllib.parse

import settee

BULK = 1000
# Documents that single gets go over.
READ = 10_000


class Here:
    def __init__(self, folder):
        self.db = settee.open(folder).create("bench")
        self.bulk, self.put, self.get = self.db.bulk, self.db.put, self.db.get


class There:
    def __init__(self, url, admin):
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
        self.headers = {"Authorization": "Basic " + base64.b64encode(admin.encode()).decode(), "Content-Type": "application/json"}
        self.ask("PUT", "/bench")

    def ask(self, method, path, body=None):
        text = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        self.connection.request(method, path, text, self.headers)
        answer = self.connection.getresponse()
        value = json.loads(answer.read())
        assert answer.status < 300, value
        return value

    def bulk(self, docs):
        return self.ask("POST", "/bench/_bulk_docs", {"docs": docs})

    def put(self, doc):
        return self.ask("PUT", "/bench/" + doc["_id"], doc)

    def get(self, id):
        return self.ask("GET", "/bench/" + id)


class Counter:
    """Ids of its own for each place, which ascend."""

    def __init__(self, prefix):
        self.prefix, self.n = prefix, 0

    def docs(self, count):
        start, self.n = self.n, self.n + count
        return [{"_id": f"{self.prefix}{n:031x}", "foo": "bar"} for n in range(start, self.n)]


def slices(seconds, place, bulks, puts):
    """The rate of each row in one place."""

    def rate(work):
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            done += work()
        return done / (time.perf_counter() - began)

    def bulk():
        outcomes = place.bulk(bulks.docs(BULK))
        assert len(outcomes) == BULK and all("rev" in outcome for outcome in outcomes)
        return BULK

    def put():
        place.put(puts.docs(1)[0])
        return 1

    at = 0

    def get():
        nonlocal at
        at = (at + 7919) % READ
        doc = place.get(f"r{at:031x}")
        assert doc["foo"] == "bar"
        return 1

    return {"bulk": rate(bulk), "put": rate(put), "get": rate(get)}


def main():
    url, admin, folder, seconds, rounds = sys.argv[1:]
    places = {"process": Here(folder), "http": There(url, admin)}
    counters = {name: (Counter("b"), Counter("p")) for name in places}
    for place in places.values():
        readable = Counter("r")
        for _ in range(READ // BULK):
            place.bulk(readable.docs(BULK))
    measured = {row: {name: [] for name in places} for row in ("bulk", "put", "get")}
    for _ in range(int(rounds)):
        for name, place in places.items():
            for row, rate in slices(float(seconds), place, *counters[name]).items():
                measured[row][name].append(rate)
    print(json.dumps(measured))


main()

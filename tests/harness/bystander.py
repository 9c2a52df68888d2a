"""A client that does its own work while others do harm: its answers are checked, its latencies are recorded."""

import pathlib
import threading
import time

from harness.api import Disconnected
from harness.innocents import Innocents
from harness.view_models import disagreement
from harness.view_samples import GROUPS, Samples

ANSWER_TIMEOUT_S = 600
# Between two rounds of the bystander.
PAUSE_S = 0.02
AT_ONCE = 3
# More than ten: a function that never ends fails after ten documents in a row.
DOCUMENTS = 12
# A heap may take its limit, on every thread; without limits a bomb takes the machine's memory.
PEAK_MB_MAX = 2500
# These may throw, so that the document is skipped; or fail; or even succeed. They must be answered.
OTHER_MAPS = {
    "memory bomb": "function (doc) { var all = []; for (;;) all.push(new Array(100000).fill(doc.n)); }",
    "memory bomb of strings": "function (doc) { var s = 'x'; for (;;) s = s + s; }",
    "memory bomb that catches": "function (doc) { var all = []; for (var i = 0; i < 1e6; i++) try { all.push('x'.repeat(1e6) + i); } catch (e) {} emit(1, 1); }",
    "memory kept from document to document": "function (doc) { globalThis.kept = [globalThis.kept, new Array(1e5).fill(doc.n)]; emit(1, 1); }",
    "one long built-in call": "function (doc) { 'x'.repeat(1e7).split(''); emit(1, 1); }",
    "large power": "function (doc) { emit(String(2n ** 10000000n).length, 1); }",
    "deep recursion": "function (doc) { function down(n) { return down(n + 1) + 1; } emit(down(0), 1); }",
    "recursion in toJSON": "function (doc) { var o = {}; o.toJSON = function () { return {inside: o}; }; emit(doc._id, o); }",
    "deep value": "function (doc) { var o = null; for (var i = 0; i < 1e6; i++) o = [o]; emit(o, o); }",
    "circle": "function (doc) { var o = {}; o.o = o; emit(o, null); }",
    "deep source": "function (doc) { emit(" + "[" * 5000 + "]" * 5000 + ", 1); }",
    "giant array": "function (doc) { emit(new Array(4294967295), null); }",
    "giant key": "function (doc) { if (doc.n < 2) emit('k'.repeat(5e6), null); }",
    "error that cannot be told": "function (doc) { throw {get message() { for (;;) {} }, toString: function () { for (;;) {} }}; }",
    "promises without end": "function (doc) { Promise.resolve().then(function again() { return Promise.resolve().then(again); }); emit(1, 1); }",
    "blocked thread": "function (doc) { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); }",
    "exit": "function (doc) { if (typeof process !== 'undefined') process.exit(1); std.exit(1); quit(1); }",
    "import": "function (doc) { import('std').then(function (std) { std.exit(1); }); emit(1, 1); }",
    "changed prototypes": "function (doc) { Array.prototype.push = Array.prototype.map = Object.keys = JSON.stringify = function () { for (;;) {} };"
    " Object.prototype.toJSON = function () { return 'gone'; }; Object.prototype.key = 1; emit(doc._id, doc); }",
    "changed globals": "function (doc) { emit = sum = isArray = toJSON = log = require = undefined; Object.defineProperty(globalThis, 'Array',"
    " {get: function () { for (;;) {} }}); }",
    "accessors on arrays": "function (doc) { Object.defineProperty(Array.prototype, 0, {set: function () { for (;;) {} }, get: function () { return 1; }}); emit([1], [2]); }",
    "frozen doc": "function (doc) { Object.freeze(Object.prototype); doc.__proto__ = null; delete doc._id; emit(doc._id, doc); }",
}


def time_limit_ms(ctx):
    """Of one call of a function: processor time, so that a busy machine needs no more."""
    return ctx.size(100, 1000)


def options(ctx, isolation="thread", **more):
    timeout_ms = ctx.size(1000, 2000)
    settings = {"functions/isolation": isolation, "functions/time_limit_ms": time_limit_ms(ctx), "couchdb/os_process_timeout": timeout_ms, **more}
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


class Bystander(threading.Thread):
    """Reads, queries and writes in a database of its own until it is stopped."""

    def __init__(self, ctx, server):
        super().__init__(daemon=True)
        self.innocents = Innocents(time_limit_ms(ctx))
        self.api, self.samples, self.stop_event = server.api(ANSWER_TIMEOUT_S), Samples(ctx.random), threading.Event()
        self.wrong, self.seconds, self.rounds = [], {"document": [], "finished view": [], "view after a write": []}, 0
        ids = [self.samples.doc_id(number) for number in range(100)]
        self.docs = [{"_id": doc_id, **self.samples.doc(ids)} for doc_id in ids]
        self.view = GROUPS["plain"][0]
        self.api.expect((201, 202), "PUT", "/bystander")
        self.api.expect((201, 202), "POST", "/bystander/_bulk_docs", {"docs": self.docs})
        for name in ("finished", "grown"):
            views = {"v": self.view.source(f" // {name}")}
            self.api.expect((201, 202), "PUT", f"/bystander/_design/{name}", {"views": views, "autoupdate": False})
            self.api.expect(200, "GET", f"/bystander/_design/{name}/_view/v")
        self.finished = self.api.expect(200, "GET", "/bystander/_design/finished/_view/v")

    def run(self):
        try:
            while not self.stop_event.is_set():
                self.once()
                self.rounds += 1
                self.stop_event.wait(PAUSE_S)
        except Disconnected as gone:
            self.wrong.append(repr(gone))

    def once(self):
        doc = self.docs[self.rounds % 100]
        answer = self._timed("document", f"/bystander/{doc['_id']}")
        self._expect(answer, answer.status == 200 and answer.json["n"] == doc["n"])
        answer = self._timed("finished view", "/bystander/_design/finished/_view/v?update=false")
        self._expect(answer, answer.status == 200 and answer.json == self.finished)
        if self.rounds % 10 == 0:
            new = {"_id": f"w{self.rounds:05d}", "k": "new", "v": self.rounds}
            answer = self.api.put(f"/bystander/{new['_id']}", new)
            self._expect(answer, answer.status == 201)
            self.docs.append(new)
            answer = self.innocents.call(lambda: self._timed("view after a write", "/bystander/_design/grown/_view/v"))
            difference = disagreement(self.view, self.view.over(self.docs), {}, answer)
            self._expect(difference, difference is None)

    def _timed(self, what, path):
        began = time.monotonic()
        answer = self.api.get(path)
        self.seconds[what].append(time.monotonic() - began)
        return answer

    def _expect(self, answer, right):
        if not right:
            self.wrong.append(repr(answer))

    def end(self, report, label):
        self.stop_event.set()
        self.join(ANSWER_TIMEOUT_S)
        report.check(f"{label}: the bystander went on ({self.rounds} rounds)", self.rounds > 0 and not self.is_alive())
        report.check(f"{label}: all its answers are right", not self.wrong, "\n".join(self.wrong[:3]))
        self.innocents.judge(report, label)
        for what, seconds in self.seconds.items():
            seconds.sort()
            if seconds:
                report.note(
                    f"{label}: bystander's {what}: p50 {seconds[len(seconds) // 2] * 1000:.1f} ms, "
                    f"p99 {seconds[len(seconds) * 99 // 100] * 1000:.1f} ms, max {seconds[-1] * 1000:.0f} ms"
                )


def make_database(api, name):
    # One index a view.
    api.expect((201, 202), "PUT", f"/{name}?q=1")
    docs = [{"_id": f"d{number:02d}", "n": number, "text": "a" * 100, "list": list(range(10))} for number in range(DOCUMENTS)]
    api.expect((201, 202), "POST", f"/{name}/_bulk_docs", {"docs": docs})


def busy_children(server):
    """Children that used CPU time between two looks a moment apart."""
    before = children_ticks(server.process.pid)
    threading.Event().wait(0.3)
    return [pid for pid, ticks in children_ticks(server.process.pid).items() if ticks - before.get(pid, ticks) > 10]


def children_ticks(parent):
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # gone between the two calls
        if int(fields[1]) == parent:
            found[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    return found

"""`settee top`: its frames against a load that is known, on a real terminal, and what it costs with many databases."""

import fcntl
import itertools
import json
import os
import pathlib
import pty
import select
import signal
import statistics
import struct
import subprocess
import termios
import threading
import time

import pyte
import pytest

from harness.prometheus import metrics
from harness.server import end, track, wait_until

pytestmark = pytest.mark.may_be_retried

DOCUMENTS = 2000
FRAMES_MAX = 100


def top(ctx, server, *options, credentials=None):
    url = server.url.replace("http://", f"http://{credentials or server.admin}@")
    return [ctx.binary, "top", url, *options]


def once(ctx, server, *options):
    done = subprocess.run(top(ctx, server, "--once", "--json", *options), capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


class Load:
    """Clients that count what they were answered."""

    def __init__(self, server, paths):
        self.stop, self.counts = threading.Event(), dict.fromkeys(paths, 0)
        self.threads = [threading.Thread(target=self.ask, args=(server.api(), path)) for path in paths]
        for thread in self.threads:
            thread.start()

    def ask(self, api, path):
        while not self.stop.is_set():
            if api.get(path).status == 200:
                self.counts[path] += 1
        api.close()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def test_frames_tell_what_is_done(ctx):
    report = ctx.report
    with ctx.server("frames") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/other")
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"{n:05}", "n": n} for n in range(DOCUMENTS)]})
        api.expect(201, "PUT", "/db/_design/d", {"views": {"v": {"map": "function(doc) { emit(doc.n, 1); }"}}})
        api.expect(200, "GET", "/db/_design/d/_view/v?limit=1")
        of_route = {"document_read": "/db/00001", "view": "/db/_design/d/_view/v?limit=10", "all_docs": "/db/_all_docs?limit=50"}
        command = track_start(top(ctx, server, "--json", "--interval", "0.5"))
        next_frame = lambda: json.loads(command.stdout.readline())
        requests = lambda frame, route: sum(r["per_s"] * frame["interval_s"] for r in frame["routes"] if r["route"] == route)
        next_frame()
        load = Load(server, list(of_route.values()))
        frames = [next_frame() for _ in range(ctx.size(6, 60))]
        load.end()
        # Frames follow each other without a gap. So together they have every request.
        while len(frames) < FRAMES_MAX and any(requests(frames[-1], route) for route in of_route):
            frames.append(next_frame())
        end(command)
        for route, path in of_route.items():
            told = sum(requests(frame, route) for frame in frames)
            report.equal(f"the frames have each request of {route}", round(told), load.counts[path])
        busiest = max(frames, key=lambda frame: sum(route["per_s"] for route in frame["routes"]))
        for frame in frames:
            sums = [sum(frame["states_percent"].values())] + [sum(t["states_percent"].values()) for t in frame["threads"] if t["alive"]]
            report.check("states sum up to 100", all(abs(total - 100) < 1 for total in sums), sums, quiet=True)
        report.equal("the database is the busiest", busiest["databases"][0]["name"], "db")
        report.check("one that nobody asks is not told", "other" not in [d["name"] for d in busiest["databases"]], busiest["databases"])
        report.equal("so is the view", busiest["views"][0]["name"], "db/_design/d/_view/v")
        report.check("requests are under way", busiest["connections"] >= 3, busiest["connections"])
        busy = busiest["cpu"] + busiest["worker_cpu"]
        report.check("processors are busy", 0.05 < busy <= os.cpu_count() + 0.5, busy)
        report.equal("waits before requests are told", set(busiest["waits"]), {"accept", "socket", "event_loop"})
        late = busiest["waits"]["event_loop"]
        report.check("a timer is measured ten times a second", late["samples"] > 0 and late["p50_ms"] <= late["p99_ms"] <= late["max_ms"], late)
        serve = next(t for t in busiest["threads"] if t["name"] == "serve")
        report.check("threads are told one by one", len(serve["each"]) > 1 and all(0 <= t["cpu"] <= 1.5 for t in serve["each"]), serve)
        read = next(r for r in busiest["routes"] if r["route"] == "document_read")
        report.check("percentiles are in order", 0 < read["p50_ms"] <= read["p99_ms"] <= read["max_ms"], read)
        text = subprocess.run(top(ctx, server, "--once"), capture_output=True, text=True, check=True, timeout=60).stdout
        report.check("--once prints tables", all(word in text for word in ("req/s", "p99 ms", "threads %", "budget")), text)


def track_start(command, **options):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    track(process)
    return process


def test_views_are_told_apart(ctx):
    """Two views of one design document, which are built together: the time of each one's function."""
    with ctx.server("apart") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        busy = "function (doc) { var n = 0; for (var i = 0; i < %d; i++) n += i % 7; emit(n) }"
        views = {name: {"map": busy.replace("%d", str(turns))} for name, turns in (("heavy", 60_000), ("light", 20_000))}
        api.expect(201, "PUT", "/db/_design/d", {"views": views})
        watching, frames = track_start(top(ctx, server, "--json", "--interval", "0.3")), []
        reader = threading.Thread(target=lambda: frames.extend(json.loads(line) for line in watching.stdout if line.endswith("}\n")))
        reader.start()
        wait_until(lambda: frames, 30)
        count = ctx.size(300, 500)
        for at in range(4):
            api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"n": n + at * count} for n in range(count)]})
        api.expect(200, "GET", "/db/_design/d/_view/heavy?limit=1")
        seen = len(frames)
        wait_until(lambda: len(frames) >= seen + 3, 30)
        end(watching)
        reader.join()
        shares = []
        for frame in frames:
            spent = dict.fromkeys(("heavy", "light"), 0)
            for view in frame["views"]:
                name = view["name"].rpartition("/")[2]
                ctx.report.check("a view is named in full", view["name"] == f"db/_design/d/_view/{name}", view, quiet=True)
                spent[name] += view["functions"]
            if any(spent.values()):
                shares.append(spent["heavy"] / sum(spent.values()))
        # In a single frame the machine may have stood still during one of them.
        usual = statistics.median(shares or [0])
        ctx.report.check("the heavy one has three quarters", 0.6 < usual < 0.9, shares)


def test_text_indexes_are_told(ctx):
    """Searches are a route of their own, and a text index is told where views are, with its function; its build is a task."""
    report = ctx.report
    with ctx.server("texts") as server:
        api = server.api()
        api.expect(201, "PUT", "/db?q=1")
        busy = "function (doc) { var n = 0; for (var i = 0; i < 60000; i++) n += i % 7; index('text', 'word', doc.text + n); }"
        api.expect(201, "PUT", "/db/_design/d", {"nouveau": {"words": {"index": busy}}, "autoupdate": False})
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"text": f"red {n}"} for n in range(ctx.size(800, 6000))]})
        watching, frames = track_start(top(ctx, server, "--json", "--interval", "0.2")), []
        reader = threading.Thread(target=lambda: frames.extend(json.loads(line) for line in watching.stdout if line.endswith("}\n")))
        reader.start()
        wait_until(lambda: frames, 30)
        api.expect(200, "GET", "/db/_design/d/_nouveau/words?q=word:red")
        for _ in range(20):
            api.expect(200, "GET", "/db/_design/d/_nouveau/words?q=word:red")
        seen = len(frames)
        wait_until(lambda: len(frames) >= seen + 3, 30)
        end(watching)
        reader.join()
        builds = [task for frame in frames for task in frame["tasks"] if task["kind"] == "search_indexer"]
        report.check("its build is a task", builds and builds[0]["what"] == "db _design/d words", builds[:2])
        told = [(view, frame["interval_s"]) for frame in frames for view in frame["views"] if view["name"] == "db/_design/d/_nouveau/words"]
        asked = round(sum(view["per_s"] * interval for view, interval in told))
        # What another thread of the server counts for the first time may be told twice.
        report.check("its searches are counted", 20 <= asked <= 42, asked)
        report.check("so is the time of its function", sum(view["functions"] * interval for view, interval in told) > 0.05, told[-3:])
        routes = [(route, frame["interval_s"]) for frame in frames for route in frame["routes"] if route["route"] == "nouveau"]
        report.equal("they are a route", round(sum(route["per_s"] * interval for route, interval in routes)), 21)
        report.check("its files are told", frames[-1]["files"].get("text_indexes", 0) > 0, frames[-1]["files"])


def test_agrees_with_bench(ctx):
    """Rates are those that `settee bench` counts, and watching costs little."""
    report, seconds = ctx.report, ctx.size(2, 30)
    with ctx.server("bench") as server:
        url = server.url.replace("http://", f"http://{server.admin}@")
        watching, frames = track_start(top(ctx, server, "--json", "--interval", "1")), []
        # Read all the while: a pipe holds few frames, and top waits for its reader.
        reader = threading.Thread(target=lambda: frames.extend(json.loads(line) for line in watching.stdout if line.endswith("}\n")))
        reader.start()
        wait_until(lambda: frames, 30)
        command = [ctx.binary, "bench", "get", "--url", url, "--seconds", str(seconds), "--scale", "0.05", "--json"]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        spent = cpu_seconds(watching.pid) / (time.monotonic() - began)
        seen = len(frames)
        wait_until(lambda: len(frames) >= seen + 3, 30)
        end(watching)
        reader.join()
        line = next(line for line in json.loads(done.stdout)["lines"] if line["name"] == "get")
        measured = line["sides"][0]
        reads = [(route["per_s"], frame["interval_s"]) for frame in frames for route in frame["routes"] if route["route"] == "document_read"]
        told = sum(rate * interval for rate, interval in reads)
        # Bench pauses between rounds; a frame at a round's edges is half of something else.
        rounds = [list(frames) for is_read, frames in itertools.groupby(reads, key=lambda read: read[0] > 0) if is_read]
        inside = [read for frames in rounds for read in frames[1:-1]]
        usual = sum(rate * interval for rate, interval in inside) / (sum(interval for _, interval in inside) or 1)
        figure = statistics.mean(measured["round_rates"])
        apart = abs(usual / figure - 1)
        report.note(f"top: {usual:.0f} reads a second, bench: {figure:.0f}, {apart * 100:.1f} % apart; top took {spent * 100:.2f} % of a processor")
        # A short run has few frames, which are no rounds.
        if ctx.soak:
            report.check("top's rate is that of bench", apart < 0.02, (usual, figure))
        # What bench does to warm up is not in its figures.
        answered = metrics(server.api())("settee_request_seconds_count", route="document_read")
        report.check("top counts what bench does", 0.98 * measured["count"] <= told <= 1.02 * answered, (told, measured["count"], answered))


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_terminal_shows_it(ctx):
    """80 by 24: a frame is there within the first second, keys are heeded, and the terminal is as before."""
    report = ctx.report
    with ctx.server("terminal") as server:
        api = server.api()
        api.expect(201, "PUT", "/seen-in-top")
        load = Load(server, ["/seen-in-top/_all_docs"])
        time.sleep(0.5)
        ours, theirs = pty.openpty()
        as_before = termios.tcgetattr(theirs)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        began = time.monotonic()
        environment = dict(os.environ, TERM="xterm-256color")
        process = subprocess.Popen(top(ctx, server, "--interval", "0.3"), stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        track(process)
        screen = Screen(ours)
        is_drawn = all(screen.shows(text) for text in ("threads %", "req/s", "routes"))
        report.check("a frame is shown", is_drawn, screen)
        report.note(f"the first frame was there after {time.monotonic() - began:.2f} s")
        os.write(ours, b"2")
        report.check("2 shows databases", screen.shows("seen-in-top"), screen)
        os.write(ours, b" ")
        report.check("space pauses", screen.shows("PAUSED"), screen)
        os.write(ours, b"q")
        report.equal("q ends it", process.wait(timeout=10), 0)
        end(process)
        report.equal("the terminal is as before", termios.tcgetattr(theirs), as_before)
        process = subprocess.Popen(top(ctx, server), stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        track(process)
        Screen(ours).shows("req/s")
        process.terminate()
        report.equal("SIGTERM ends it in order", process.wait(timeout=10), 0)
        end(process)
        report.equal("the terminal is as before after SIGTERM too", termios.tcgetattr(theirs), as_before)
        process = subprocess.Popen(top(ctx, server), stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        track(process)
        os.close(theirs)
        Screen(ours).shows("req/s")
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        # How it ends is told to nobody.
        report.check("it ends with its terminal", process.wait(timeout=10) is not None)
        end(process)
        load.end()


class Screen:
    """What a terminal of 80 by 24 displays. Programs redraw only the characters that change."""

    def __init__(self, terminal):
        self.terminal, self.screen = terminal, pyte.Screen(80, 24)
        self.stream = pyte.ByteStream(self.screen)

    def shows(self, text, seconds=60):
        """Waits for a text; returns whether it is there."""
        deadline = time.monotonic() + seconds
        while text not in str(self) and time.monotonic() < deadline:
            if select.select([self.terminal], [], [], 0.2)[0]:
                self.stream.feed(os.read(self.terminal, 65536))
        return text in str(self)

    def __str__(self):
        return "\n".join(self.screen.display)


def test_who_may(ctx):
    with ctx.server("who") as server:
        refused = subprocess.run(top(ctx, server, "--once", credentials="nobody:wrong"), capture_output=True, text=True, timeout=60)
        ctx.report.equal("who is nobody is told what is wanted", (refused.returncode, "_metrics" in refused.stderr), (1, True))
        gone = subprocess.run([ctx.binary, "top", "http://127.0.0.1:1", "--once"], capture_output=True, text=True, timeout=60)
        ctx.report.check("a server that is not there is said to be", gone.returncode == 1 and "127.0.0.1:1" in gone.stderr, gone)
        a_watcher_sees_numbers_alone(ctx, server)
        bad = subprocess.run(top(ctx, server, "--interval", "0"), capture_output=True, text=True, timeout=60)
        ctx.report.equal("an interval of nothing is refused", bad.returncode, 2)


def a_watcher_sees_numbers_alone(ctx, server):
    """Whose replications there are, from where to where, is for admins; orders to a terminal are for nobody."""
    api = server.api()
    api.expect(201, "PUT", "/_users/org.couchdb.user:watcher", {"type": "user", "name": "watcher", "password": "watcher", "roles": ["_metrics"]})
    for name in ("from", "to", "rung"):
        api.expect(201, "PUT", f"/{name}")
    own = server.url.replace("http://", f"http://{server.admin}@")
    api.expect(201, "PUT", "/_replicator/r", {"source": f"{own}/from", "target": f"{own}/to", "continuous": True})
    bell = "/rung/_design/%1b%5D0;x%07"
    api.expect(201, "PUT", bell, {"views": {"v": {"map": "function (doc) { emit(1) }"}}})
    watcher = server.api(credentials="watcher:watcher")
    told = []

    def is_there():
        api.get(f"{bell}/_view/v")
        told[:] = [api.get("/_settee/top").json, watcher.get("/_settee/top").json]
        return all(any(task["type"] == "replication" for task in one["tasks"]) for one in told)

    ctx.report.check("both see that a replication runs", wait_until(is_there, 30), [one["tasks"] for one in told])
    ctx.report.equal("only the admin sees of what", ["/from" in json.dumps(one) for one in told], [True, False])
    text = subprocess.run(top(ctx, server, "--once"), capture_output=True, text=True, check=True, timeout=60).stdout
    ctx.report.check("no escape sequence is printed", "\x1b" not in text and "\x07" not in text and "rung/_design" in text, text)


def test_many_databases(ctx):
    """What is told does not grow with the databases that there are."""
    count = ctx.size(500, 20_000)
    with ctx.server("many") as server:
        api = server.api()
        for n in range(count):
            api.expect(201, "PUT", f"/db{n}")
            api.get(f"/db{n}/nothing")
        answer = api.get("/_settee/top")
        told = answer.json
        ctx.report.equal("all databases are counted", told["all_databases"] >= count, True)
        ctx.report.check("and the busiest are told", 0 < len(told["databases"]) <= 100, len(told["databases"]))
        before = server.cpu_seconds()
        for _ in range(20):
            api.get("/_settee/top")
        spent = (server.cpu_seconds() - before) / 20
        ctx.report.note(f"a frame of {count} databases takes {spent * 1000:.1f} ms of the server's time, {len(answer.raw)} bytes")

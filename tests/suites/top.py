"""`settee top`: its frames against a load that is known, on a real terminal, and what it costs with many databases."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time

from harness.server import end, track

DOCUMENTS = 2000


def run(ctx):
    for part in (frames_tell_what_is_done, a_terminal_shows_it, who_may, many_databases):
        ctx.attempt(part)


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


def frames_tell_what_is_done(ctx):
    report = ctx.report
    with ctx.server("frames") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/other")
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"{n:05}", "n": n} for n in range(DOCUMENTS)]})
        api.expect(201, "PUT", "/db/_design/d", {"views": {"v": {"map": "function(doc) { emit(doc.n, 1); }"}}})
        api.expect(200, "GET", "/db/_design/d/_view/v?limit=1")
        load = Load(server, ["/db/00001", "/db/_design/d/_view/v?limit=10", "/db/_all_docs?limit=50"])
        time.sleep(1)
        command = track_start(top(ctx, server, "--json", "--interval", "0.5"))
        frames, before = [], None
        while len(frames) < ctx.size(8, 60):
            frame = json.loads(command.stdout.readline())
            if before is None:
                before, began = dict(load.counts), time.monotonic()
            else:
                frames.append(frame)
        after, ended = dict(load.counts), time.monotonic()
        end(command)
        load.end()
        of_route = {"document_read": "/db/00001", "view": "/db/_design/d/_view/v?limit=10", "all_docs": "/db/_all_docs?limit=50"}
        spent = sum(frame["interval_s"] for frame in frames)
        for route, path in of_route.items():
            told = sum(r["per_s"] * f["interval_s"] for f in frames for r in f["routes"] if r["route"] == route) / spent
            counted = (after[path] - before[path]) / (ended - began)
            report.check(f"the rate of {route} is what clients count", abs(told - counted) <= 0.05 * counted + 2, (told, counted))
        last = frames[-1]
        for frame in frames:
            sums = [sum(frame["states_percent"].values())] + [sum(t["states_percent"].values()) for t in frame["threads"] if t["alive"]]
            report.check("states sum up to 100", all(abs(total - 100) < 1 for total in sums), sums, quiet=True)
        report.equal("the database is the busiest", last["databases"][0]["name"], "db")
        report.check("one that nobody asks is not told", "other" not in [d["name"] for d in last["databases"]], last["databases"])
        report.equal("so is the view", last["views"][0]["name"], "db/_design/d/_view/v")
        report.check("requests are under way", last["connections"] >= 3, last["connections"])
        busy = last["cpu"] + last["worker_cpu"]
        report.check("processors are busy", 0.05 < busy <= os.cpu_count() + 0.5, busy)
        read = next(r for r in last["routes"] if r["route"] == "document_read")
        report.check("percentiles are in order", 0 < read["p50_ms"] <= read["p99_ms"] <= read["max_ms"], read)
        text = subprocess.run(top(ctx, server, "--once"), capture_output=True, text=True, check=True, timeout=60).stdout
        report.check("--once prints tables", all(word in text for word in ("req/s", "p99 ms", "threads %", "budget")), text)


def track_start(command, **options):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    track(process)
    return process


def a_terminal_shows_it(ctx):
    """80 by 24: a frame is there within the first second, keys are heeded, and the terminal is as before."""
    report = ctx.report
    with ctx.server("terminal") as server:
        api = server.api()
        api.expect(201, "PUT", "/seen-in-top")
        load = Load(server, ["/seen-in-top/_all_docs"])
        time.sleep(0.5)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        began = time.monotonic()
        environment = dict(os.environ, TERM="xterm-256color")
        process = subprocess.Popen(top(ctx, server, "--interval", "0.3"), stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        track(process)
        os.close(theirs)
        shown = shows(ours, "req/s")
        report.check("a frame is shown", "req/s" in shown and "routes" in shown, shown[-500:])
        report.note(f"the first frame was there after {time.monotonic() - began:.2f} s")
        os.write(ours, b"2")
        report.check("2 shows databases", "seen-in-top" in shows(ours, "seen-in-top"), "")
        os.write(ours, b" ")
        report.check("space pauses", "PAUSED" in shows(ours, "PAUSED"))
        os.write(ours, b"q")
        report.equal("q ends it", process.wait(timeout=10), 0)
        end(process)
        os.close(ours)
        load.end()


def shows(terminal, text, seconds=15):
    """What a terminal is sent until the text is in it, without escape sequences."""
    shown, deadline = "", time.monotonic() + seconds
    while text not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            raw = os.read(terminal, 65536).decode("utf-8", "replace")
            shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", raw)
    return shown


def who_may(ctx):
    with ctx.server("who") as server:
        refused = subprocess.run(top(ctx, server, "--once", credentials="nobody:wrong"), capture_output=True, text=True, timeout=60)
        ctx.report.equal("who is nobody is told what is wanted", (refused.returncode, "_metrics" in refused.stderr), (1, True))
        gone = subprocess.run([ctx.binary, "top", "http://127.0.0.1:1", "--once"], capture_output=True, text=True, timeout=60)
        ctx.report.check("a server that is not there is said to be", gone.returncode == 1 and "127.0.0.1:1" in gone.stderr, gone)
        bad = subprocess.run(top(ctx, server, "--interval", "0"), capture_output=True, text=True, timeout=60)
        ctx.report.equal("an interval of nothing is refused", bad.returncode, 2)


def many_databases(ctx):
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

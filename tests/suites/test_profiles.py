"""`settee profile`: whose functions take how much, who may, and that a server bears being watched."""

import collections
import gzip
import os
import random
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

import pytest

from harness.api import basic
from harness.server import end, track

pytestmark = pytest.mark.may_be_retried

# Iterations of the loops of views, as shares of a whole.
SHARES = {"large": 60, "middle": 20, "small": 20}
LOOP = "function(doc) { function %s(n) { var x = 0; for (var i = 0; i < n; i++) { x = (x * 31 + i) %% 1000003; } return x; } emit(%s(%d), null); }"

PROFILES_MAX = 10


def settee(ctx, server, *options, status=0):
    url = server.url.replace("http://", f"http://{server.admin}@")
    command = [ctx.binary, "profile", url, *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    track(process)
    out, err = process.communicate(timeout=120)
    end(process)
    ctx.report.equal(f"profile {' '.join(map(str, options))} ends", process.returncode, status)
    return out + err


def stacks(folded):
    """Pairs of frames and a number."""
    pairs = (line.rsplit(" ", 1) for line in folded.splitlines())
    return [(stack.split(";"), int(count)) for stack, count in pairs]


def watched(api, wanted, enough, hz=499):
    """Stacks of as many profiles as it takes to have enough samples of what is wanted, and what the server told of each."""
    seen, told = collections.Counter(), []
    for _ in range(120):
        answer = api.get(f"/_settee/profile?format=folded&seconds=1&hz={hz}")
        if answer.status != 200:
            raise AssertionError(answer)
        told.append({name: int(n) for name, n in (pair.split("=") for pair in answer.headers["X-Settee-Profile"].split())})
        for frames, n in stacks(answer.raw.decode()):
            seen[tuple(frames)] += n
        if sum(n for frames, n in seen.items() if wanted(frames)) >= enough:
            break
    return list(seen.items()), told


def documents(api, db, count):
    api.expect(201, "PUT", f"/{db}")
    for first in range(0, count, 1000):
        docs = [{"_id": f"{n:06}", "n": n, "what": "a-secret-of-a-document"} for n in range(first, min(first + 1000, count))]
        api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})


class Building:
    """An index that is built meanwhile, and built anew when it is done."""

    def __init__(self, server, db, loops):
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.build, args=(server.api(timeout=120), db, loops))
        self.thread.start()

    def build(self, api, db, loops):
        turn = 0
        while not self.stop.is_set():
            turn += 1
            # A source that differs makes another index.
            sources = {name: {"map": LOOP % (name + "_loop", name + "_loop", loop) + f"/*{turn}*/"} for name, loop in loops.items()}
            old = api.get(f"/{db}/_design/d")
            rev = {"_rev": old.json["_rev"]} if old.status == 200 else {}
            api.expect(201, "PUT", f"/{db}/_design/d", {"views": sources, **rev})
            api.expect(200, "GET", f"/{db}/_design/d/_view/{next(iter(loops))}?limit=1")
        api.close()

    def end(self):
        self.stop.set()
        self.thread.join()


def test_views_of_one_design_document_are_told_apart(ctx):
    report = ctx.report
    for isolation in ("process", "thread"):
        with ctx.server(f"views-{isolation}", options=["--set", f"functions/isolation={isolation}"]) as server:
            api = server.api()
            documents(api, "shop", 2000)
            building = Building(server, "shop", {name: share * 400 for name, share in SHARES.items()})
            # 60 % of 1,500 samples has a standard deviation of 1.3 points, of 350 one of 2.6.
            enough, apart = ctx.size((350, 12), (1500, 5))
            seen, _ = watched(api, lambda frames: any("/_view/" in frame for frame in frames), enough)
            building.end()
            counts = {name: sum(n for frames, n in seen if f"shop/_design/d/_view/{name}" in frames) for name in SHARES}
            total = sum(counts.values())
            report.check("views have samples", total >= enough, counts)
            for name, share in SHARES.items():
                percent = counts[name] * 100 / max(total, 1)
                report.check(f"{isolation}: the view {name} has {share} ± {apart} %", abs(percent - share) <= apart, percent)
            named = sum(n for frames, n in seen if "large_loop (js)" in frames and "shop/_design/d/_view/large" in frames)
            report.check(f"{isolation}: its function is named", named > 0.8 * counts["large"], (named, counts))
            elsewhere = sum(n for frames, n in seen if "large_loop (js)" in frames and "shop/_design/d/_view/large" not in frames)
            report.equal(f"{isolation}: and nowhere else", elsewhere, 0)


class Load:
    """Reads, bulks and an index that is built, until it is ended."""

    def __init__(self, server, db):
        self.stop = threading.Event()
        # Bulks go elsewhere: the index would take longer each time.
        server.api().expect(201, "PUT", "/bulks")
        work = [lambda api, n: api.get(f"/{db}/{n % 1000:06}"), lambda api, n: api.post("/bulks/_bulk_docs", bulk(n))]
        self.threads = [threading.Thread(target=self.work, args=(server.api(), what)) for what in work]
        for thread in self.threads:
            thread.start()
        self.building = Building(server, db, {"one": 2000, "two": 1000})

    def work(self, api, what):
        n = 0
        while not self.stop.is_set():
            n += 1
            what(api, n)
        api.close()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        self.building.end()


def bulk(n):
    return {"docs": [{"what": "a-secret-of-a-document", "n": n, "i": i} for i in range(100)]}


def test_frames_are_known(ctx):
    report = ctx.report
    with ctx.server("known") as server:
        api = server.api()
        documents(api, "db", 1000)
        report.equal("nothing is installed before the first profile", catches(server, 27), False)
        report.equal("and there are no timers", timers(server), 0)
        load = Load(server, "db")
        seen, told = watched(api, lambda frames: any("JS_CallInternal" in frame for frame in frames), 200)
        load.end()
        unknown, total = sum(t["unknown"] for t in told), sum(t["total"] for t in told)
        report.check("at most 5 % have frames that are not known", total >= 200 and unknown <= 0.05 * total, told)
        report.note(f"{unknown} of {total} samples with frames that are not known")
        lost = sum(t["lost"] for t in told)
        report.check("at most 5 % are lost, and no thread", lost <= 0.05 * total and not any(t["threads_left_out"] for t in told), told)
        text = "\n".join(";".join(frames) for frames, _ in seen)
        for frame in ("serve;", "rocksdb", "settee-worker", "JS_CallInternal", "[kernel]"):
            report.check(f"{frame} is among the frames", frame in text, text[:2000])
        for secret in ("a-secret-of-a-document", server.admin.split(":")[1] + "@", basic(server.admin)):
            report.check("nothing of documents or credentials is told", secret not in text)
        report.equal("no timers are left", timers(server), 0)


def catches(server, signal):
    with open(f"/proc/{server.process.pid}/status") as file:
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", file.read(), re.M)
    return bool(int(caught[1], 16) >> (signal - 1) & 1)


def timers(server):
    """Timers of the process; none where the kernel does not tell."""
    try:
        with open(f"/proc/{server.process.pid}/timers") as file:
            return file.read().count("ID:")
    except FileNotFoundError:
        return 0


def test_formats(ctx):
    report = ctx.report
    with ctx.server("formats") as server, tempfile.TemporaryDirectory() as folder:
        documents(server.api(), "db", 1000)
        load = Load(server, "db")
        settee(ctx, server, "--seconds", 3, "-o", f"{folder}/cpu.svg", "--off-cpu", f"{folder}/waits.folded")
        # Of a second on a busy machine, the view may have no sample.
        for _ in range(PROFILES_MAX):
            settee(ctx, server, "--seconds", 1, "-o", f"{folder}/cpu.pb.gz")
            with open(f"{folder}/cpu.pb.gz", "rb") as file:
                message = gzip.decompress(file.read())
            texts = [value for field, value in fields(message) if field == 6]
            if b"db/_design/d/_view/one" in texts:
                break
        load.end()
        with open(f"{folder}/cpu.svg") as file:
            svg = file.read()
        report.check("a flame graph", svg.lstrip().startswith("<?xml") and "db/_design/d/_view/one" in svg and "function search(" in svg, svg[:500])
        report.check("it needs nothing else", not re.search(r"(src|href)=\"https?:|@import|fetch\(", svg))
        with open(f"{folder}/waits.folded") as file:
            waits = {tuple(frames): n for frames, n in stacks(file.read())}
        report.check(
            "waiting for the commit is told by route",
            waits.get(("requests", "bulk_write", "wait for the commit"), 0) > 0 or any(f[2] == "wait for the commit" for f in waits),
            waits,
        )
        report.check("threads wait for the disk", any(f[0] == "threads" and f[2] == "sync" for f in waits), waits)
        report.check("pprof's texts are there", texts[0] == b"" and b"nanoseconds" in texts and b"db/_design/d/_view/one" in texts, texts[:9])
        samples = [dict(fields(value)) for field, value in fields(message) if field == 2]
        functions = [value for field, value in fields(message) if field == 5]
        report.check("samples name places that are there", samples and all(max(numbers(s[1])) <= len(functions) for s in samples), len(functions))


def varint(data, at):
    shift = value = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Fields of a protocol buffer, by their numbers."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        found.append((key >> 3, value))
    return found


def numbers(packed):
    at, found = 0, []
    while at < len(packed):
        value, at = varint(packed, at)
        found.append(value)
    return found


def test_what_changed_is_named(ctx):
    report = ctx.report
    with ctx.server("changed") as server, tempfile.TemporaryDirectory() as folder:
        documents(server.api(), "db", 1000)
        for name, loops in (("before", {"mild": 3000}), ("after", {"mild": 3000, "planted": 12000})):
            building = Building(server, "db", loops)
            time.sleep(0.3)
            seen, _ = watched(server.api(), lambda frames: any("_loop (js)" in frame for frame in frames), 150)
            building.end()
            with open(f"{folder}/{name}.folded", "w") as file:
                file.writelines(f"{';'.join(frames)} {n}\n" for frames, n in seen)
        command = [ctx.binary, "profile", f"{folder}/after.folded", "--diff", f"{folder}/before.folded", "-o", f"{folder}/diff.svg"]
        out = subprocess.run(command, capture_output=True, text=True, timeout=60)
        grew = [line for line in out.stdout.splitlines() if "%" in line][:10]
        report.check("the function that was planted is among those that grew most", any("planted_loop (js)" in line for line in grew), out)
        report.check("so is its view", any("db/_design/d/_view/planted" in line for line in grew), out)
        with open(f"{folder}/diff.svg") as file:
            report.check("the graph has it", "planted_loop (js)" in file.read())
        with open(f"{folder}/none.folded", "w") as file:
            file.write("no number\n")
        command[4] = f"{folder}/none.folded"
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
        report.check("a file that is no profile is refused", refused.returncode == 2 and "line 1" in refused.stderr, refused)


def test_one_route_and_one_request(ctx):
    """Two kinds of requests at the same time: the profile of one has nothing of the other, and one path is enough for a profile."""
    report = ctx.report
    with ctx.server("routes") as server, tempfile.TemporaryDirectory() as folder:
        api = server.api()
        documents(api, "db", 1000)
        stop = threading.Event()

        def load(path):
            mine = server.api()
            while not stop.is_set():
                mine.expect(200, "GET", path)
            mine.close()

        clients = [threading.Thread(target=load, args=(path,)) for path in ("/db/000001", "/db/_all_docs?include_docs=true")]
        for client in clients:
            client.start()
        seen, _ = watched(api, lambda frames: "route document_read" in frames, 40)
        counts = {route: sum(n for frames, n in seen if f"route {route}" in frames) for route in ("document_read", "all_docs")}
        report.check("samples have the route", all(counts.values()), counts)
        both = [frames for frames, _ in seen if sum(frame.startswith("route ") for frame in frames) > 1]
        report.equal("and no other", both, [])
        runs = [frames for frames, _ in seen if frames.count("[runtime]") and frames[-1] != "[runtime]"]
        report.check("frames of the runtime are one frame", runs, [frames for frames, _ in seen][:3])
        query = "/_settee/profile?format=folded&seconds=2&hz=499"
        told = api.get(query).headers["X-Settee-Profile-Routes"]
        report.check("routes have their numbers of samples", all(re.search(rf"\b{route}=[1-9]", told) for route in counts), told)
        of_route = stacks(api.get(f"{query}&route=all_docs").raw.decode())
        report.check("a profile of a route begins with it", of_route and all(frames[0] == "route all_docs" for frames, _ in of_route), of_route[:3])
        everything = stacks(api.get(f"{query}&frames=all").raw.decode())
        report.check("all frames are shown", not any("[runtime]" in frames for frames, _ in everything), everything[:3])
        waits = stacks(api.get(f"{query}&of=waits&route=document_read").raw.decode())
        report.check("so are waits", waits and all(frames[:2] == ["requests", "document_read"] for frames, _ in waits), waits)
        stop.set()
        for client in clients:
            client.join()
        path = f"{folder}/one.folded"
        out = settee(ctx, server, "--seconds", 3, "--hz", 499, "--route", "all_docs", "--request", "/db/_all_docs?include_docs=true", "-o", path)
        with open(path) as file:
            one = stacks(file.read())
        report.check("a request alone is a profile", one and all(frames[0] == "route all_docs" for frames, _ in one), one[:3])
        report.check("the number of requests is told, and the route's share", re.search(r"\d requests", out) and "by route: all_docs" in out, out)
        missing = settee(ctx, server, "--seconds", 1, "--request", "/db/nothing", "-o", path, status=1)
        report.check("a request that fails ends it", "GET /db/nothing" in missing, missing)
        settee(ctx, server, "--route", "No;route", "-o", path, status=2)
        nothing = settee(ctx, server, "--seconds", 1, "--route", "bulk_get", "-o", f"{folder}/nothing.svg", status=1)
        report.check("a route without requests is told", "no samples of the route bulk_get" in nothing, nothing)


def test_who_may(ctx):
    report = ctx.report
    with ctx.server("who") as server:
        api = server.api()
        api.expect((201, 412), "PUT", "/_users")
        api.expect(201, "PUT", "/_users/org.couchdb.user:watcher", {"name": "watcher", "type": "user", "roles": ["watchers"], "password": "x"})
        for who, status in (("", 401), ("watcher:x", 403)):
            answer = server.api(credentials=who).get("/_settee/profile?seconds=1")
            report.check("only admins", answer.status in (status, 401) and answer.is_error_shape, answer)
        for query in (
            "seconds=0",
            "seconds=301",
            "seconds=x",
            "seconds=-1",
            "hz=0",
            "hz=1001",
            "hz=1.5",
            "format=png",
            "of=memory",
            "route=x",
            "frames=some",
        ):
            answer = api.get(f"/_settee/profile?{query}")
            report.check(f"{query} is refused", answer.status == 400 and answer.json["error"] == "bad_request", answer)
        report.equal("so is another method", api.request("DELETE", "/_settee/profile").status, 405)
        report.equal("HEAD makes none", api.request("HEAD", "/_settee/profile?seconds=300").status, 200)
        for _ in range(60):
            left = leave(server, "/_settee/profile?seconds=60")
            second = api.get("/_settee/profile?seconds=1&format=folded").status
            if second == 409:
                break
            # This one was first.
            left.close()
        report.equal("one at a time", second, 409)
        left.close()
        report.check("one whose client goes ends", wait_for(lambda: api.get("/_settee/profile?seconds=1&format=folded").status == 200), "")
        report.check("the command says what is wrong", "from 1 to 300" in settee(ctx, server, "--seconds", 301, status=2))


def leave(server, path):
    """A connection that has asked, and waits for nothing."""
    parts = urllib.parse.urlsplit(server.url)
    connection = socket.create_connection((parts.hostname, parts.port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(server.admin)}\r\n\r\n".encode())
    return connection


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


# Maps a document by a loop, in CouchDB's protocol.
QUERY_SERVER = """
import json, sys
for line in sys.stdin:
    command = json.loads(line)
    if command[0] == "map_doc":
        x = 0
        for i in range(20000):
            x = (x * 31 + i) % 1000003
        print(json.dumps([[[x, None]]]))
    else:
        print("true")
    sys.stdout.flush()
"""


def test_query_servers_are_seen(ctx):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write(QUERY_SERVER)
        program.flush()
        with ctx.server("servers", options=["--set", f"query_servers/slow=python3 {program.name}"]) as server:
            api = server.api(timeout=120)
            documents(api, "db", 1500)
            api.expect(201, "PUT", "/db/_design/d", {"language": "slow", "views": {"v": {"map": "x"}}})
            thread = threading.Thread(target=lambda: server.api(timeout=120).get("/db/_design/d/_view/v?limit=1"))
            thread.start()
            seen, _ = watched(api, lambda frames: frames[0] == "query servers", 20)
            thread.join()
            found = [frames[1] for frames, _ in seen if frames[0] == "query servers"]
            ctx.report.check("a query server has its time", found and found[0].startswith("slow ("), found)


def test_starts_and_stops(ctx):
    report, chance = ctx.report, random.Random(ctx.seed)
    with ctx.server("often") as server:
        api = server.api()
        documents(api, "db", 1000)
        load = Load(server, "db")
        process, ended = server.process.pid, 0
        for n in range(ctx.size(10, 1000)):
            if n % 10 == 9:
                ended += wait_for(lambda: api.get("/_settee/profile?format=folded&seconds=1&hz=1000").status == 200)
                continue
            connection = leave(server, f"/_settee/profile?seconds=60&hz={chance.choice([1, 99, 1000])}")
            time.sleep(chance.uniform(0, 0.2))
            connection.close()
        load.end()
        report.equal("profiles that were waited for were made", ended, ctx.size(10, 1000) // 10)
        report.check("the server lives", server.process.poll() is None and os.path.exists(f"/proc/{process}"))
        report.check("and answers", api.get("/db/000001").status == 200)
        report.note(f"{ctx.size(10, 1000)} profiles were begun")
        with open(server.log_path, errors="replace") as log:
            text = log.read()
        report.check("no worker died", "worker process of the functions died" not in text and "panicked" not in text, text[-1000:])

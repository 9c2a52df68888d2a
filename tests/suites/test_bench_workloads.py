"""`settee bench`: YCSB and mixes, faults, recording and replay, peers. All at tiny sizes: what is checked is what is done, not how fast."""

import base64
import concurrent.futures
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.parse

import pytest

from harness.api import Api, basic
from harness.server import end, track, wait_until

pytestmark = pytest.mark.may_be_retried

TIMEOUT_S = 300
ALL_KINDS = "read=40,update=15,insert=10,bulk=2,view=8,find=5,scan=5,changes=5,rmw=10"
SECRETS = [
    "session-secret",
    "cookie-secret",
    "basic-secret",
    "user-secret",
    "config-secret",
    "replicate-secret",
    "query-secret",
    "member-secret",
    "escaped-secret",
    "multipart-secret",
    "form-secret",
    "header-secret",
]


def bench(ctx, *arguments, env=None):
    command = [ctx.binary, "bench", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **(env or {})})


def url_of(server):
    return server.url.replace("http://", f"http://{server.admin}@")


def lines_of(done):
    return {line["name"]: line["sides"] for line in json.loads(done.stdout)["lines"]}


def figures_of(done):
    return {figure["name"]: figure["sides"][0] for figure in json.loads(done.stdout)["figures"]}


# --- workloads


def test_ycsb_and_mixes(ctx):
    report = ctx.report
    with ctx.server("ycsb") as server:
        sizes = ("--scale", 0.003, "--seconds", 0.5, "--connections", 4, "--json", "--url", url_of(server))
        done = bench(ctx, "ycsb", "mix", "--mix", ALL_KINDS, *sizes)
        report.equal("YCSB and a mix of everything end well", (done.returncode, done.stderr), (0, ""))
        lines = lines_of(done)
        wanted = {
            "ycsb_a": ["read", "update"],
            "ycsb_b": ["read", "update"],
            "ycsb_c": ["read"],
            "ycsb_d": ["read", "insert"],
            "ycsb_e": ["scan", "insert"],
            "ycsb_f": ["read", "rmw"],
            "mix": [pair.split("=")[0] for pair in ALL_KINDS.split(",")],
        }
        for name, kinds in wanted.items():
            parts = {kind: lines[f"{name}_{kind}"][0] for kind in kinds if f"{name}_{kind}" in lines}
            whole = lines[name][0]
            report.equal(f"{name} has no errors", (whole["errors"], whole["first_error"]), (0, None))
            report.equal(f"{name}: its kinds add up", sum(part["count"] for part in parts.values()), whole["count"])
        shares = {name: lines[f"{name}_read"][0]["count"] / lines[name][0]["count"] for name in ("ycsb_a", "ycsb_b", "ycsb_f")}
        for name, share in {"ycsb_a": 0.5, "ycsb_b": 0.95, "ycsb_f": 0.5}.items():
            # Within four standard deviations of a sample of that size.
            slack = 4 * (share * (1 - share) / lines[name][0]["count"]) ** 0.5
            report.check(f"{name} reads {share:.0%}", abs(shares[name] - share) <= slack, f"{shares[name]} ± {slack}")
        done = bench(ctx, "ycsb_a", "mix", "--requests", 10, *sizes)
        counts = {name: sides[0]["count"] for name, sides in lines_of(done).items() if name in ("ycsb_a", "mix")}
        report.equal("each of 4 connections does 10 operations", counts, {"ycsb_a": 40, "mix": 40})
        done = bench(ctx, "ycsb_a", "--rate", 200, *sizes)
        report.equal("operations are begun at a rate", lines_of(done)["ycsb_a"][0]["open"]["due"], 100)
        left = [name for name in server.api().expect(200, "GET", "/_all_dbs") if name.startswith("settee-bench")]
        report.equal("nothing is left behind", left, [])


def test_conflicts_are_tried_again(ctx):
    report = ctx.report
    with ctx.server("conflicts") as server:
        # Ten records and sixteen clients: they meet.
        sizes = ("--scale", 0.00001, "--seconds", 1, "--connections", 16, "--json", "--url", url_of(server))
        done = bench(ctx, "ycsb_a", *sizes)
        notes = " ".join(json.loads(done.stdout)["notes"])
        found = re.search(r"(\d+) of (\d+) updates .* met a newer revision", notes)
        report.check("updates that met a newer revision are told", found and int(found[1]) > 0, notes)
        report.equal("and are no errors", lines_of(done)["ycsb_a"][0]["errors"], 0)


def test_options_that_make_no_sense(ctx):
    report = ctx.report
    for arguments, status, said in (
        (("mix", "--mix", "read=1,write=2"), 2, 'no operation "write"'),
        (("mix", "--mix", "absent-file"), 2, "no preset"),
        (("faults_kill", "--sweep", "connections=1,2"), 1, "--sweep does not apply"),
        (("faults_kill", "--rate", "10"), 1, "--rate does not apply"),
        (("--peer", "http://127.0.0.1:1"), 1, "only postgres://, redis:// and fts5://"),
        (("--peer", "redis://127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("replay", "/absent", "--url", "http://127.0.0.1:1"), 1, "/absent"),
        (("replay", "/absent", "--url", "http://127.0.0.1:1", "--speed", "0"), 2, "a factor from"),
        (("record", "--to", "http://a:b@127.0.0.1:1", "-o", "/absent/x"), 1, "their own credentials"),
        (("record", "--to", "https://127.0.0.1:1", "-o", "/absent/x"), 1, "only http://"),
    ):
        done = bench(ctx, *arguments)
        report.check(f"bench {' '.join(arguments)} is refused", done.returncode == status and said in done.stderr, (done.returncode, done.stderr))


def test_tables_fit_the_terminal(ctx):
    """A wide table is divided: each part has the names of the workloads, and no line is longer than the terminal. Files get one table."""
    report, columns = ctx.report, 100
    with ctx.server("wide") as server:
        words = ["get", "--scale", "0.001", "--seconds", "0.2", "--url", url_of(server)]
        of = lambda text: [line.rstrip() for line in text.splitlines() if line.split()[:1] in (["workload"], ["get"])]
        heads = lambda lines: [line.split() for line in lines if "workload" in line.split()]
        whole = of(bench(ctx, *words).stdout)
        report.check("a file gets one table", len(heads(whole)) == 1 and len(whole) > 1 and len(whole[0]) > columns, whole)
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen([ctx.binary, "bench", *words], stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.PIPE, text=True)
        track(process)
        os.close(terminal)
        printed = b""
        with contextlib.suppress(OSError):  # EIO when the other end is closed
            while piece := os.read(main, 65536):
                printed += piece
        os.close(main)
        _, said = process.communicate(timeout=60)
        end(process)
        lines = of(printed.decode("utf-8", "replace"))
        report.check("a terminal gets it in parts", process.returncode == 0 and len(heads(lines)) > 1, (lines, said))
        report.check("that fit", max(map(len, lines), default=0) <= columns, lines)
        names = lambda lines: sorted({word for head in heads(lines) for word in head})
        report.equal("and have all columns", names(lines), names(whole))


def test_the_program_of_its_own(ctx):
    report = ctx.report
    done = bench(ctx, "lightning", "--scale", 0.01, "--seconds", 0.5, "--json")
    report.equal("the database without HTTP is measured", (done.returncode, done.stderr), (0, ""))
    line = lines_of(done)["lightning"][0]
    report.check("bulks of 1,000 are counted", line["count"] >= 1000 and line["count"] % 1000 == 0, line)
    report.check("of the process that the database is in", line["cpu_seconds"] is not None and line["peak_resident_bytes"] > 0, line)
    with ctx.server("recorded") as server:
        recorder = Recorder(ctx, server.url, ctx.folder("program") / "recording.jsonl")
        # Terminal, signals and exit status are then its own.
        name = pathlib.Path(f"/proc/{recorder.process.pid}/comm").read_text(encoding="utf-8").strip()
        report.equal("`settee bench` becomes settee-bench", name, "settee-bench")
        recorder.stop()


# --- faults


def test_faults_lose_nothing(ctx):
    report = ctx.report
    done = bench(ctx, "faults", "--scale", 0.01, "--seconds", 1, "--json")
    report.equal("a server that is killed and stopped keeps what it acknowledged", (done.returncode, done.stderr), (0, ""))
    figures = figures_of(done)
    for name in ("faults_kill", "faults_stop", "faults_databases"):
        report.equal(f"{name}: nothing is lost", figures.get(f"{name}: acknowledged writes lost"), 0)
    report.check("there was something to lose", figures["faults_kill: acknowledged writes"] > 100, figures)
    report.check("it came back", figures["faults_kill: first answer"] > 0 and figures["faults_databases: all databases answered"] > 0, figures)
    stopped = lines_of(done)["faults_stop"][0]
    # It is stopped for 0.2 s, a fifth of the time, and somebody waits meanwhile.
    report.check("a stopped server's clients have waited", stopped["latency_ms_max"] >= 195, stopped)
    told = " ".join(json.loads(done.stdout)["notes"])
    report.check("faults are told with their times", all(word in told for word in ("kill -9", "SIGSTOP", "SIGCONT")), told)


def test_a_server_that_forgets_is_found(ctx):
    report = ctx.report
    forgetful = ctx.checkout / "tests" / "harness" / "forgetful.py"
    done = bench(ctx, "faults_kill", "faults_databases", "--scale", 0.01, "--seconds", 1, "--json", "--faults-binary", forgetful)
    report.equal("a server that forgets fails", done.returncode, 1)
    failures = {failure["workload"]: failure["reason"] for failure in json.loads(done.stdout)["failures"]}
    report.check("its lost writes are counted", "acknowledged writes were lost" in failures.get("faults_kill", ""), failures)
    report.check("and its lost databases", "lost their document" in failures.get("faults_databases", ""), failures)


def test_a_server_that_does_not_start(ctx):
    report = ctx.report
    for program, said in (("/bin/false", "ended"), ("/absent/program", "/absent/program")):
        done = bench(ctx, "faults_kill", "--seconds", 1, "--json", "--faults-binary", program)
        reasons = [failure["reason"] for failure in json.loads(done.stdout)["failures"]]
        report.check(f"{program} is told", done.returncode == 1 and said in " ".join(reasons), reasons)


# --- recording and replay


class Recorder:
    """`settee bench record` before a server."""

    def __init__(self, ctx, to, path):
        command = [ctx.binary, "bench", "record", "--listen", "127.0.0.1:0", "--to", to, "-o", str(path)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        track(self.process)
        self.url = re.search(r"http://[\d.:]+", self.process.stdout.readline())[0]

    def stop(self):
        """What it printed."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        end(self.process)
        return out + err


def entries(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file][1:]


def raw(url, text):
    """Sends bytes as they are; returns the status line."""
    parts = urllib.parse.urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(text)
        return connection.recv(65536).split(b"\r\n", 1)[0]


def test_credentials_are_not_recorded(ctx):
    report = ctx.report
    path = ctx.folder("secrets") / "recording.jsonl"
    with ctx.server("secrets", options=["--admin", "other:basic-secret"]) as server:
        recorder = Recorder(ctx, server.url, path)
        api = Api(recorder.url, "other:basic-secret")
        api.expect(201, "PUT", "/db")
        form = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": "AuthSession=cookie-secret", "X-Auth-CouchDB-Token": "header-secret"}
        api.request("POST", "/_session", b"name=other&password=session-secret", form)
        api.request("POST", "/%5Fsession", {"name": "other", "password": "session-secret"})
        user = {"name": "u", "type": "user", "roles": [], "password": "user-secret"}
        api.expect(201, "PUT", "/_users/org.couchdb.user:u", user)
        api.request("POST", "/_users/_bulk_docs", {"docs": [{**user, "_id": "org.couchdb.user:v", "name": "v"}]})
        api.request("PUT", "/_node/_local/_config/admins/third", "config-secret")
        api.request("POST", "/_replicate", {"source": "http://x:replicate-secret@127.0.0.1:1/a", "target": "db"})
        api.request("PUT", "/_replicator/r", {"source": {"url": "http://127.0.0.1:1/a", "headers": {"X": "replicate-secret"}}, "target": "db"})
        api.request("GET", "/db/a?access_token=query-secret")
        api.expect(201, "PUT", "/db/member", {"deep": [{"password": "member-secret"}]})
        api.expect(201, "PUT", "/db/escaped", b'{"p\\u0061ssword":"escaped-secret"}')
        api.expect(201, "PUT", "/db/url", {"at": "https://anna:member-secret@host/"})
        multipart = b'--x\r\nContent-Type: application/json\r\n\r\n{"password":"multipart-secret"}\r\n--x--'
        api.request("PUT", "/db/multipart", multipart, {"Content-Type": 'multipart/related; boundary="x"'})
        api.request("POST", "/db/_design/x/_update/y", b"a=1&password=form-secret", {"Content-Type": "application/x-www-form-urlencoded"})
        raw(recorder.url, b"GET http://x:basic-secret@host/db/none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        api.expect(201, "PUT", "/db/plain", {"password_hint": "none", "note": "kept"})
        api.expect(200, "GET", "/db/member")
        said = recorder.stop()
    text = path.read_text()
    found = [secret for secret in SECRETS if secret in text or base64.b64encode(secret.encode()).decode().rstrip("=") in text]
    found += [encoded for encoded in (basic("other:basic-secret"), basic("x:basic-secret")) if encoded.split()[1] in text]
    report.equal("no credentials are in the recording", found, [])
    headers = {name.lower() for entry in entries(path) for name, _ in entry.get("headers", [])}
    report.check("nor a header that may carry them", not headers & {"authorization", "cookie", "x-auth-couchdb-token"}, headers)
    paths = [entry["path"] for entry in entries(path)]
    report.check("other requests are", {"/db", "/db/plain", "/db/member", "/db/none"} <= set(paths), paths)
    report.check("what was left out is counted", re.search(r"\d+ left out: a session", said) and "passwords and tokens" in said, said)
    report.equal("only the owner reads the file", path.stat().st_mode & 0o077, 0)


def converse(url, server):
    """A conversation of all kinds with a database; returns the id that the server made up."""
    api = Api(url, server.admin)
    api.expect(201, "PUT", "/db")
    rev = api.expect(201, "PUT", "/db/a", b'{"n":1.00,"text":"\xc3\xa4"}')["rev"]
    api.expect(200, "GET", "/db/a")
    rev = api.expect(201, "PUT", f"/db/a?rev={rev}", {"n": 2})["rev"]
    rev = api.expect(201, "PUT", "/db/a", {"n": 3, "_rev": rev})["rev"]
    rev = api.request("PUT", "/db/a/file", b"\xff\x00\x01", {"If-Match": f'"{rev}"', "Content-Type": "image/png"}).json["rev"]
    api.request("COPY", "/db/a", headers={"Destination": "copied"})
    api.expect(409, "PUT", "/db/a", {"n": 4})
    made = api.expect(201, "POST", "/db", {"made": True})
    api.expect(200, "GET", f"/db/{made['id']}")
    api.expect(201, "PUT", f"/db/{made['id']}", {"made": 2, "_rev": made["rev"]})
    rows = api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"b{n}", "n": n} for n in range(20)]})
    again = [{"_id": row["id"], "_rev": row["rev"], "n": "new"} for row in rows] + [{"_id": "b0", "_rev": "7-none"}]
    api.expect(201, "POST", "/db/_bulk_docs", {"docs": again})
    api.expect(200, "DELETE", f"/db/a?rev={rev}")
    api.expect(404, "GET", "/db/a")
    api.request("HEAD", "/db/copied")
    api.expect(200, "GET", "/db/_all_docs?include_docs=true")
    api.expect(200, "POST", "/db/_find", {"selector": {"n": {"$gt": 1}}})
    # At 5 times the speed, what comes by other connections is still behind the above, on a busy machine too.
    time.sleep(1.5)
    chunked = b"POST /db/_find HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    chunked += f"Authorization: {basic(server.admin)}\r\n\r\n".encode()
    body = b'{"selector":{"n":{"$gt":2}}}'
    raw(url, chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    return made["id"]


def leave_a_feed(url, server):
    """Reads the beginning of a feed that does not end, and goes."""
    parts = urllib.parse.urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        head = f"GET /db/_changes?feed=continuous&heartbeat=100 HTTP/1.1\r\nHost: a\r\nAuthorization: {basic(server.admin)}\r\n\r\n"
        connection.sendall(head.encode())
        seen = b""
        while b'"copied"' not in seen:
            seen += connection.recv(65536)


def contents(server, without=()):
    rows = server.api().expect(200, "GET", "/db/_all_docs?include_docs=true&attachments=true")["rows"]
    return {row["id"]: row["doc"] for row in rows if row["id"] not in without}


def replay(ctx, path, server, *options):
    return bench(ctx, "replay", path, "--url", url_of(server), "--json", *options)


def test_a_replay_does_what_was_recorded(ctx):
    report = ctx.report
    path = ctx.folder("replay") / "recording.jsonl"
    with ctx.server("recorded") as server:
        recorder = Recorder(ctx, server.url, path)
        made = converse(recorder.url, server)
        feed = Api(recorder.url, server.admin)
        waiting = threading.Thread(target=feed.request, args=("GET", "/db/_changes?feed=longpoll&since=now&timeout=500"))
        waiting.start()
        waiting.join()
        leave_a_feed(recorder.url, server)
        large = b"x" * (9 << 20)
        rev = Api(recorder.url, server.admin).request("PUT", "/db/large/file", large, {"Content-Type": "text/plain"}).json["rev"]
        got = server.api().get(f"/db/large/file?rev={rev}").raw
        report.check("a body passes that is too long to be kept", got == large)
        said = recorder.stop()
        report.check("and is told", "1 left out: a body of more than 8 MiB" in said, said)
        server.api().expect(200, "DELETE", f"/db/large?rev={rev}")
        recorded = contents(server, without=[made])
    lines = entries(path)
    report.check("bodies are text where they are, and base64 where not", {"body", "body_base64"} <= set().union(*lines), lines[:3])
    chunked = [entry for entry in lines if entry.get("body") == '{"selector":{"n":{"$gt":2}}}']
    report.equal("a chunked body is whole", len(chunked), 1)
    report.equal(
        "a client that left is noted", [entry["path"].split("?")[1] for entry in lines if entry.get("aborted")], ["feed=continuous&heartbeat=100"]
    )
    for speed in ("1", "5", "max"):
        with ctx.server(f"replayed-{speed}") as server:
            done = replay(ctx, path, server, "--speed", speed)
            result = json.loads(done.stdout)
            summary = (done.returncode, result["errors"], result["differences"], result["requests"], result["same_status"])
            report.equal(f"speed {speed}: every status is as recorded", summary, (0, 0, [], len(lines), len(lines)))
            report.check(f"speed {speed}: the made-up id was replaced", result["names_replaced"] >= 1, result)
            now = contents(server)
            report.equal(f"speed {speed}: the documents are the same", {name: now.get(name) for name in recorded}, recorded)
            others = [doc for name, doc in now.items() if name not in recorded]
            report.check(f"speed {speed}: the document with the other id was changed", len(others) == 1 and others[0]["made"] == 2, others)
            classes = {each["class"]: each for each in result["classes"]}
            wanted = {
                "document_read",
                "document_write",
                "document_delete",
                "bulk_docs",
                "all_docs",
                "find",
                "changes",
                "attachment_write",
                "database",
            }
            report.check(f"speed {speed}: classes of routes have latencies", wanted <= set(classes), classes)
            if speed == "1":
                report.check("the original times are kept", result["seconds"] >= result["recorded_seconds"], result)


def test_other_histories(ctx):
    """Documents that are there with other revisions: what a GET showed is what the update then names."""
    report = ctx.report
    path = ctx.folder("histories") / "recording.jsonl"
    with ctx.server("history") as server:
        direct = server.api()
        direct.expect(201, "PUT", "/db")
        for name in ("x", "y"):
            direct.expect(201, "PUT", f"/db/{name}", {"n": 0})
        recorder = Recorder(ctx, server.url, path)
        api = Api(recorder.url, server.admin)
        for n in range(3):
            rev = api.expect(200, "GET", "/db/x")["_rev"]
            api.expect(201, "PUT", "/db/x", {"n": n, "_rev": rev})
        # A recorded write made this revision, so that it does not matter where the client has it from.
        rows = api.expect(200, "GET", "/db/_changes")["results"]
        rev = next(row["changes"][0]["rev"] for row in rows if row["id"] == "x")
        api.expect(201, "PUT", "/db/x", {"n": 3, "_rev": rev})
        # This one's revision was never shown.
        rev = direct.expect(200, "GET", "/db/y")["_rev"]
        api.expect(201, "PUT", f"/db/y?rev={rev}", {"n": 1})
        recorder.stop()
    with ctx.server("another-history") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        for name in ("x", "y"):
            rev = api.expect(201, "PUT", f"/db/{name}", {"other": 1})["rev"]
            api.expect(201, "PUT", f"/db/{name}?rev={rev}", {"other": 2})
        done = replay(ctx, path, server, "--speed", "max")
        result = json.loads(done.stdout)
        differing = [(each["recorded"], each["replayed"], each["count"]) for each in result["differences"]]
        report.equal("only what nobody was shown conflicts", differing, [(201, 409, 1)])
        found = api.expect(200, "GET", "/db/x")
        report.equal("the other updates are done", (found["n"], found["_rev"].split("-")[0]), (3, "6"))
        report.equal("a status that differs is no failure", done.returncode, 0)
        text = bench(ctx, "replay", path, "--url", url_of(server), "--speed", "max").stdout
        report.check("people are told too", "409 for 201" in text and "document_write" in text, text)


def test_damaged_recordings(ctx):
    report = ctx.report
    folder = ctx.folder("damaged")
    path = folder / "recording.jsonl"
    with ctx.server("damaged") as server:
        recorder = Recorder(ctx, server.url, path)
        api = Api(recorder.url, server.admin)
        api.expect(201, "PUT", "/once")
        for n in range(5):
            api.expect(201, "PUT", f"/once/{n}", {"n": n})
        # It writes what it holds every second.
        wait_until(lambda: path.read_bytes().count(b"\n") == 7, 30)
        recorder.process.kill()
        end(recorder.process)
        report.equal("a recorder that is killed leaves what was asked a second ago", len(entries(path)), 6)
        api = server.api()
        api.expect(200, "DELETE", "/once")
        lines = path.read_bytes().splitlines(keepends=True)
        damages = {
            "a line cut in the middle": [*lines[:2], lines[2][:20] + b"\n", *lines[3:]],
            "zeros": [*lines[:2], b"\0" * 50 + b"\n", *lines[3:]],
            "a forged request": [*lines[:2], lines[2].replace(b'"/once/', b'"/ HTTP/1.1\\r\\nX: /'), *lines[3:]],
            "no recording": [b"{}\n"],
            "nothing": [],
            "a header alone": lines[:1],
        }
        for name, damaged in damages.items():
            file = folder / "damaged.jsonl"
            file.write_bytes(b"".join(damaged))
            done = replay(ctx, file, server)
            report.check(f"{name}: refused in words", done.returncode == 1 and "damaged.jsonl" in done.stderr, (done.returncode, done.stderr))
        report.equal("and nothing was sent", api.get("/once").status, 404)
        file.write_bytes(b"".join(lines)[:-10])
        result = json.loads(replay(ctx, file, server).stdout)
        report.check("of a cut last line the others are replayed", result["requests"] == 5 and "cut off" in " ".join(result["notes"]), result)
        extra = json.loads(lines[1])
        extra["headers"] = [["authorization", "Basic " + base64.b64encode(b"wrong:wrong").decode()], ["x-other", "1"]]
        api.expect(200, "DELETE", "/once")
        file.write_bytes(lines[0] + json.dumps(extra).encode() + b"\n")
        result = json.loads(replay(ctx, file, server).stdout)
        report.equal("headers that no recording has are not sent", result["same_status"], 1)


def test_servers_that_are_gone(ctx):
    report = ctx.report
    folder = ctx.folder("gone")
    path = folder / "recording.jsonl"
    with ctx.server("gone") as server:
        recorder = Recorder(ctx, server.url, path)
        api = Api(recorder.url, server.admin)
        for n in range(20):
            api.expect(201, "PUT", f"/db{n}")
            time.sleep(0.02)
        server.kill()
        report.equal("a recorder says that its server is gone", api.get("/").status, 502)
        said = recorder.stop()
        report.check("what it did not answer is left out", "left out: no answer from the server" in said and len(entries(path)) == 20, said)
        done = replay(ctx, path, server)
        report.check("a replay to nobody is refused", done.returncode == 1 and "connect" in done.stderr, done.stderr)
    with ctx.server("dies") as server:
        # It dies in the middle of the seconds that the replay takes.
        command = [ctx.binary, "bench", "replay", str(path), "--url", url_of(server), "--speed", "0.2", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        track(process)
        api = server.api()
        while api.get("/db3").status != 200:
            time.sleep(0.01)
        server.kill()
        out, err = process.communicate(timeout=120)
        end(process)
        result = json.loads(out)
        report.check("a server that dies is counted in errors", process.returncode == 1 and 0 < result["errors"] <= 16, (err, result))
        report.check("and what it had answered is told", result["same_status"] >= 4 and result["first_error"], result)


# --- peers


def test_peers(ctx):
    """All at once: nothing here is about how fast anything is, and most of the time is waiting for servers to be at rest."""
    report = ctx.report
    sys.path.insert(0, str(ctx.checkout / "scripts" / "bench"))
    import instances

    sizes = ("--scale", 0.001, "--seconds", 0.1, "--connections", 3, "--json")

    def beside(name, *workloads):
        command = [sys.executable, ctx.checkout / "scripts" / "bench", "peers", "--binary", ctx.binary, "--only", name, *workloads, *map(str, sizes)]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)

    there = [name for name in instances.PACKAGES if name in instances.installed()]
    with ctx.server("rows") as server, concurrent.futures.ThreadPoolExecutor() as pool:
        running = {name: pool.submit(beside, name) for name in there}
        running["sqlite"] = pool.submit(beside, "sqlite", "search")
        done = bench(ctx, "peers", *sizes, "--url", url_of(server))
        lines = lines_of(done)
        report.equal("the rows of peers are measured on a server alone", (done.returncode, len(lines)), (0, 18))
        done = {name: each.result() for name, each in running.items()}
    for name in instances.PACKAGES:
        if name not in there:
            report.skip(f"Settee beside {name}", f"{name} is not installed; make bench-peers installs it")
        elif report.equal(f"Settee beside {name}: ends well", (done[name].returncode, done[name].stderr), (0, "")):
            peer_is_measured(report, name, done[name])
    # FTS5 has one connection, and is in Python.
    if report.equal("Settee beside SQLite: ends well", (done["sqlite"].returncode, done["sqlite"].stderr), (0, "")):
        searches = [f"peer_search_{name}_1" for name in ("term", "and", "phrase", "prefix")]
        report.equal("Settee beside SQLite: rows of both", rows_of_both(done["sqlite"]), ["peer_search_build", *searches, "peer_search_fresh"])
        report.check("SQLite's settings are told", "synchronous=FULL" in str(json.loads(done["sqlite"].stdout)["notes"]), done["sqlite"].stdout)


def rows_of_both(done):
    """Names of the rows in which both sides did something, without errors."""
    return [
        name for name, sides in lines_of(done).items() if len(sides) == 2 and all(side and side["count"] and not side["errors"] for side in sides)
    ]


def peer_is_measured(report, name, done):
    result, both = json.loads(done.stdout), rows_of_both(done)
    wanted = {"postgresql": 18, "redis": 5}[name]
    report.equal(f"Settee beside {name}: rows of both", len(both), wanted)
    report.check(f"{name}: its settings are told, and it is durable", "NOT as durable" not in str(result["notes"]) and "sync" in str(result["notes"]))
    ratios = [line["a_over_b"] for line in result["lines"] if line["name"] in both]
    report.check(f"{name}: ratios are told", all(ratio and ratio["value"] > 0 for ratio in ratios), ratios)

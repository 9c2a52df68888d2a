"""Closed doors: who on the machine may read the files, what a refused start leaves behind, how long a head may take, which hosts
a request may be for, and what pages of other sites may have a browser send."""

import concurrent.futures
import json
import os
import pathlib
import re
import socket
import stat
import subprocess
import threading
import time

import pytest

from harness.api import Api, basic, exchange, quote
from harness.server import wait_until

pytestmark = pytest.mark.costly_hashes

OTHER = "http://evil.example"
FORM = "application/x-www-form-urlencoded"
HEAD_TIME_MS = 1500
#: Nobody should have to wait longer for the server to hang up; far below the 300 seconds that a connection may rest.
HANG_UP_MAX_S = 30


# Files


def open_to_others(root):
    """The paths that others than the owner have any access to."""
    # A walk goes on when a folder vanishes meanwhile.
    walked = os.walk(root)
    opened = []
    for path in [pathlib.Path(root), *(pathlib.Path(folder, name) for folder, folders, files in walked for name in folders + files)]:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue  # the engine removed it meanwhile
        if not stat.S_ISLNK(mode) and mode & 0o077:
            opened.append(f"{path} {stat.filemode(mode)}")
    return opened


class Umask:
    """For the programs that are started meanwhile."""

    def __init__(self, mask):
        self.mask = mask

    def __enter__(self):
        self.old = os.umask(self.mask)

    def __exit__(self, *_):
        os.umask(self.old)


def test_private_files(ctx):
    report = ctx.report
    log = ctx.root / "own.log"
    options = ["--generate-admin", "--set", "log/writer=file", "--set", f"log/file={log}"]
    with Umask(0), ctx.server("private", options=options) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/db/_design/d", {"views": {"v": {"map": "function (doc) { emit(1); }"}}})
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"n": n} for n in range(100)]})
        api.expect(201, "PUT", "/db/doc/file", {"any": "x" * 10_000})
        api.expect(200, "GET", "/db/_design/d/_view/v")
        api.expect(200, "PUT", "/_node/_local/_config/log/level", "warning")
        api.expect(202, "POST", "/db/_compact")
        report.equal("others have no access to the data, whatever the umask", open_to_others(server.data), [])
        report.equal("nor to the log", open_to_others(log), [])
        server.stop()
    report.equal("nor after the stop", open_to_others(server.data), [])


# A server admin is not an admin of the machine


FORGED = "x\n[query_servers]\nevil = /bin/sh -c id\r\n[forged]\u0085\u2028\x1b[2J"


def test_log_lines_cannot_be_forged(ctx):
    """Whatever clients choose, each event is one line, without control characters."""
    report = ctx.report
    with ctx.server("forged", options=["--set", "log/level=debug", "--set", "chttpd_auth_lockout/mode=off"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/db/a", {})
        design = f"/db/_design/{quote(FORGED)}"
        maps = {"throws": "function (doc) { throw new Error(%s); }" % json.dumps(FORGED), "logs": "function (doc) { log(%s); }" % json.dumps(FORGED)}
        api.expect(201, "PUT", design, {"views": {FORGED: {"map": maps["throws"]}, "logs": {"map": maps["logs"]}}})
        for path in (f"{design}/_view/{quote(FORGED)}", f"{design}/_view/logs", f"{design}/{quote(FORGED)}"):
            api.get(path)
        names = {"names": [FORGED], "roles": []}
        api.expect(200, "PUT", "/db/_security", {"admins": names, "members": names})
        for credentials in (f"{FORGED}:x", f"x:{FORGED}"):
            server.api(credentials=credentials).get("/db/a")
        for path in (f"/{quote(FORGED)}", f"/db/{quote(FORGED)}", f"/db/_changes?filter={quote(FORGED)}", f"/_node/{quote(FORGED)}/_stats"):
            api.get(path)
        replication = {"source": f"http://127.0.0.1:9/{quote(FORGED)}", "target": FORGED, "doc_ids": [FORGED]}
        api.request("PUT", f"/_replicator/{quote(FORGED)}", replication)
        api.post("/_replicate", replication)
        api.put(f"/_node/_local/_config/log/{quote(FORGED)}", FORGED)
        report.check("the server logs them", wait_until(lambda: "evil" in server.log()), server.log()[-2000:])
        # It is stopped, so that all lines are there.
    lines = server.log().split("\n")
    own = [line for line in lines if re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z ", line) or line.startswith(("Settee is listening", "Open "))]
    report.equal("every line begins as the server's do", [line for line in lines if line and line not in own], [])
    unsafe = [line for line in lines if any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" for c in line)]
    report.equal("no control characters", unsafe, [])
    report.equal("no line of 4 KiB", [line[:200] for line in lines if len(line.encode()) > 4096 + 64], [])


def test_long_paths_do_not_fill_the_log(ctx):
    report = ctx.report
    log = ctx.root / "long.log"
    options = ["--set", "log/writer=file", "--set", f"log/file={log}", "--set", "log/max_file_size=20000", "--set", "log/max_old_files=2"]
    with ctx.server("long", options=options) as server:
        api = server.api()
        for _ in range(40):
            api.get(f"/{'x' * 30_000}")
        names = lambda: sorted(path.name for path in ctx.root.glob("long.log*"))
        report.check("old files are kept", wait_until(lambda: names() == ["long.log", "long.log.1", "long.log.2"]), names())
    lines = b"".join(path.read_bytes() for path in ctx.root.glob("long.log*")).decode().splitlines()
    report.equal("lines are cut", [line[:200] for line in lines if len(line) > 4096 + 64], [])
    cut = [line for line in lines if "bytes cut)" in line]
    report.check("and say so, with the fields that follow", cut and all(" status=" in line for line in cut), lines[-2:])
    report.check("the files are small", all(path.stat().st_size < 60_000 for path in ctx.root.glob("long.log*")))


def test_settings_of_the_machine(ctx):
    """What names files, commands or hosts of the machine is not changed over HTTP, and the list of settings says so."""
    report = ctx.report
    with ctx.server("machine") as server:
        api = server.api()
        config = "/_node/_local/_config"
        settings = api.expect(200, "GET", "/_node/_local/_settee/settings")
        closed = [(setting["section"], setting["key"]) for setting in settings if setting.get("file_only")]
        expected = {
            ("log", "file"),
            ("log", "slow_file"),
            ("ssl", "key_file"),
            ("couchdb", "database_dir"),
            ("backup", "target"),
            ("tracing", "otlp_endpoint"),
        }
        report.equal("they are listed", expected - set(closed), set())
        before = api.expect(200, "GET", config)
        closed += [("query_servers", "evil"), ("native_query_servers", "evil"), ("kafka", "bootstrap.servers"), ("daemons", "evil")]
        answers = {}
        for section, key in closed:
            for method, body in (("PUT", "/tmp/x"), ("PUT", ""), ("DELETE", None)):
                answers[method, section, key, body] = api.request(method, f"{config}/{section}/{quote(key)}", body).status
                answers[method, section, key, body, "kept"] = api.request(
                    method, f"{config}/{section}/{quote(key)}?persist=false", body, headers={"X-Couch-Persist": "false"}
                ).status
        report.equal("none can be changed", {name: status for name, status in answers.items() if status != 403}, {})
        report.equal("nothing has changed", api.expect(200, "GET", config), before)
        # Names that an ini file might give back as others.
        for section, key in (("log ", "file"), (" log", "file"), ("log", "file "), ("log]", "file"), ("x]\n[log", "file"), ("x", "y\n[log]\nfile")):
            api.put(f"{config}/{quote(section)}/{quote(key)}", "/tmp/x")
        api.expect(200, "POST", f"{config}/_reload", {})
        after = api.expect(200, "GET", config)
        report.equal("nor by names that an ini file would read as theirs", after.get("log"), before.get("log"))


# Files of before


def test_older_files(ctx):
    report = ctx.report
    with ctx.server("older") as server:
        server.api().expect(201, "PUT", "/db")
    for path in [pathlib.Path(server.data), *pathlib.Path(server.data).rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with ctx.server("older") as server:
        store, log = f"{server.data}/store", server.log()
        report.equal("a store that an older version made is closed", open_to_others(store), [])
        report.check("which is said", f"could read {store}" in log, log)
        report.check("an open data directory is warned of", f"chmod 700 {server.data}" in log, log)
        report.check("and an open configuration file with secrets", f"chmod 600 {server.data}/local.ini" in log, log)
        server.api().expect(200, "PUT", "/_node/_local/_config/log/level", "warning")
        report.equal("which is closed when it is written", open_to_others(f"{server.data}/local.ini"), [])
    pathlib.Path(server.data).chmod(0o700)
    with ctx.server("older") as server:
        report.check("then there is nothing to warn of", "chmod" not in server.log(), server.log())


def test_private_backup(ctx):
    report = ctx.report
    with Umask(0), ctx.server("source") as server:
        server.api().expect(201, "PUT", "/db")
        made = command(ctx, "backup", server.url.replace("://", f"://{server.admin}@"), ctx.root / "copy", "--copy")
        report.check("a backup is made", made.returncode == 0, made)
    report.equal("others have no access to it", open_to_others(ctx.root / "copy"), [])
    for path in (ctx.root / "copy").iterdir():
        path.chmod(0o644)
    with Umask(0):
        restored = command(ctx, "restore", ctx.root / "copy", ctx.root / "restored")
    report.check("it is restored", restored.returncode == 0, restored)
    report.equal("nor to what is restored of an open one", open_to_others(ctx.root / "restored"), [])


def command(ctx, *arguments, **options):
    return subprocess.run([ctx.binary, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, **options)


# Refused starts


def test_refused_starts(ctx):
    report = ctx.report
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    name = ["--admin", "a:b"]
    admin = [*name, "--port", "0"]
    for number, (why, arguments, said) in enumerate(
        [
            ("no admin", [], "no admin"),
            ("a setting of the wrong kind", [*admin, "--set", "chttpd/port=x"], "port"),
            ("a setting that is none", [*admin, "--set", "chttpd/allowed_hosts=http://x"], "allowed_hosts"),
            ("a wrong address", [*admin, "--set", "chttpd/bind_address=nowhere"], "bind_address"),
            ("an address of another machine", [*admin, "--bind", "192.0.2.1"], "192.0.2.1"),
            ("a port in use", [*name, "--port", str(port)], str(port)),
            (
                "no certificate",
                [*admin, "--set", "ssl/enable=true", "--set", "ssl/cert_file=/nowhere", "--set", "ssl/key_file=/nowhere"],
                "cert_file",
            ),
            ("no log", [*admin, "--set", "log/writer=file", "--set", "log/file=/nowhere/log"], "/nowhere/log"),
            ("a configuration file that is not there", [*admin, "--config", "/nowhere.ini"], "/nowhere.ini"),
            ("a wrong argument", [*admin, "--set", "x"], "--set"),
        ]
    ):
        outer = ctx.root / f"refused-{number}"
        refused = command(ctx, "serve", "--data", outer / "in" / "data", *arguments)
        report.check(f"{why} is a reason to refuse", refused.returncode in (1, 2) and said in refused.stderr, refused)
        report.check(f"{why}: nothing is left behind", not outer.exists(), list(outer.rglob("*")) if outer.exists() else "")
    here = ctx.folder("here")
    refused = command(ctx, "serve", cwd=here)
    report.equal("nor where the program was started", (refused.returncode, os.listdir(here)), (2, []))
    there = ctx.folder("there")
    (there / "note").write_text("mine")
    command(ctx, "serve", "--data", there, "--admin", "a:b", "--port", str(port))
    report.equal("a directory that was there stays as it was", os.listdir(there), ["note"])
    with ctx.server("held") as server:
        again = command(ctx, "serve", "--data", server.data, "--admin", "a:b", "--port", "0")
        report.check("a data directory in use is refused", again.returncode == 1, again)
        report.equal("and its server goes on", server.api().put("/db").status, 201)
    taken.close()


# Heads that take too long


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=HANG_UP_MAX_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def trickle(connection, first, more, step_s=0.2):
    """Sends `first`, then a piece of `more` at a time, until the server hangs up; answers how long that took, and what it said."""
    began, said = time.monotonic(), b""
    connection.settimeout(step_s)
    try:
        connection.sendall(first)
        while time.monotonic() - began < HANG_UP_MAX_S:
            try:
                piece = connection.recv(4096)
                if not piece:
                    return time.monotonic() - began, said
                said += piece
            except TimeoutError:
                connection.sendall(next(more, b""))
    except ConnectionError:
        return time.monotonic() - began, said
    finally:
        connection.close()
    return None, said


def endless(piece):
    while True:
        yield piece


def trickle_all(server, cases):
    """Trickles on a connection each, all at the same time. `cases` are of (name, first, more); returns [(name, what `trickle` returns)]."""
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        running = [(name, pool.submit(trickle, connect(server), first, endless(more))) for name, first, more in cases]
        return [(name, one.result()) for name, one in running]


def test_slow_heads(ctx):
    report = ctx.report
    with ctx.server("slow", options=["--set", f"chttpd/header_timeout={HEAD_TIME_MS}"]) as server:
        least = HEAD_TIME_MS / 1000 * 0.9
        get = b"GET / HTTP/1.1\r\nHost: x\r\n"
        resting = server.api()
        resting.get("/")
        kept = resting.connection.sock
        fresh = connect(server)
        rested = time.monotonic() + HEAD_TIME_MS / 1000 * 2
        cases = [
            ("half a head", get, b""),
            ("a byte", b"G", b""),
            ("a head that trickles", get + b"A: ", b"x"),
            ("headers that trickle", get, b"A: x\r\n"),
            ("a target that trickles", b"GET /", b"x"),
            ("half a head after a whole request", get + b"\r\nGET / HT", b""),
            ("a head that trickles after a body", b"POST /_session HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}GET /", b"x"),
            ("a head that trickles after one that would upgrade", get + b"Upgrade: x\r\nConnection: upgrade\r\n\r\nGET /", b"x"),
            ("a head that trickles after CONNECT", b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\nGET /", b"x"),
            ("half of HTTP/2's preface", b"PRI * HTTP/2.0\r\n", b""),
        ]
        for name, (took, _) in trickle_all(server, cases):
            report.check(f"{name} is hung up on in time", took is not None and took >= least, took)
        quick = trickle(connect(server), b"", iter([get[n : n + 1] for n in range(len(get))] + [b"Connection: close\r\n\r\n"]), 0.02)
        report.check("a head that trickles quickly is answered", b"HTTP/1.1 200" in quick[1], quick)
        many = [connect(server) for _ in range(8)]
        for connection in many:
            connection.sendall(get)
        report.equal("eight of them are gone soon", [connection.recv(1) for connection in many], [b""] * 8)
        for connection in many:
            connection.close()
        time.sleep(max(0.0, rested - time.monotonic()))
        report.check("a connection may rest longer", resting.get("/").status == 200 and resting.connection.sock is kept)
        fresh.sendall(get + b"\r\n")
        report.check("also before its first request", fresh.recv(4096).startswith(b"HTTP/1.1 200"))
        fresh.close()


# HTTP/2, as little of it as is needed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, GOAWAY, CONTINUATION = 1, 3, 4, 7, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def field(name, value):
    """A header that is not remembered, without Huffman's code."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def head(**fields):
    named = {"method": "GET", "scheme": "http", "path": "/", "authority": "x", **fields}
    pseudo = [field(f":{name}", value) for name, value in named.items() if name in ("method", "scheme", "path", "authority") and value is not None]
    return b"".join(pseudo + [field(name, value) for name, value in named.items() if name not in ("method", "scheme", "path", "authority")])


def frames(data):
    while len(data) >= 9:
        end = 9 + int.from_bytes(data[:3])
        yield data[3], data[9:end]
        data = data[end:]


def test_slow_frames(ctx):
    report = ctx.report
    with ctx.server("slow2", options=["--set", f"chttpd/header_timeout={HEAD_TIME_MS}"]) as server:
        opened = PREFACE + frame(SETTINGS)
        cases = [
            ("headers that go on and on", opened + frame(HEADERS, END_STREAM, 1, head()), frame(CONTINUATION, 0, 1)),
            ("a head that is not ended", opened + frame(HEADERS, END_STREAM, 1, head()), b""),
            ("half a frame of headers", opened + frame(HEADERS, END_STREAM | END_HEADERS, 1, head())[:-3], b""),
            ("half a frame's start", opened + frame(HEADERS)[:5], b""),
        ]
        for (_, _, piece), (name, (took, _)) in zip(cases, trickle_all(server, cases), strict=True):
            # The HTTP library has had enough of empty frames before.
            least = 0 if piece else HEAD_TIME_MS / 1000 * 0.9
            report.check(f"HTTP/2: {name}: hung up on in time", took is not None and took >= least, took)
        for name, fields, wanted in [
            ("a host", {}, "200"),
            ("a differing Host", {"host": "y"}, "400"),
            ("the same Host", {"host": "X"}, "200"),
            ("only a Host", {"authority": None, "host": "x"}, "200"),
            ("no host", {"authority": None}, "400"),
            ("a user in the host", {"authority": "u@x"}, "400"),
        ]:
            connection = connect(server)
            connection.sendall(opened + frame(HEADERS, END_STREAM | END_HEADERS, 1, head(**fields)))
            status = status_of(connection)
            # One that is none in the eyes of the HTTP library is a reset of the stream.
            report.check(f"HTTP/2 with {name}: {wanted}", status == wanted or (wanted == "400" and status == "reset"), status)
            connection.close()


def status_of(connection):
    """The status of the answer to stream 1: the first field of its head, in the static table or as text."""
    data = b""
    connection.settimeout(10)
    try:
        while piece := connection.recv(65536):
            data += piece
            for kind, payload in frames(data):
                if kind == HEADERS:
                    static = {0x88: "200", 0x8C: "400", 0x8D: "404"}
                    return static.get(payload[0], payload[:10])
                if kind in (RST_STREAM, GOAWAY):
                    return "reset"
    except (TimeoutError, ConnectionError):
        pass
    return None


def test_resets(ctx):
    """Streams that are opened and reset at once cost the client its connection."""
    report = ctx.report
    with ctx.server("resets") as server:
        connection = connect(server)
        block = head()
        flood = b"".join(frame(HEADERS, END_STREAM | END_HEADERS, n, block) + frame(RST_STREAM, 0, n, (8).to_bytes(4)) for n in range(1, 40_001, 2))
        data, ended = b"", True
        try:
            connection.sendall(PREFACE + frame(SETTINGS) + flood)
            while piece := connection.recv(65536):
                data += piece
        except TimeoutError:
            ended = False
        except OSError:
            pass  # the server closes while we send
        report.check("HTTP/2: a flood of resets ends the connection", GOAWAY in [kind for kind, _ in frames(data)] or ended, len(data))
        report.equal("and the server goes on", server.api().get("/_up").status, 200)
        connection.close()


# Hosts


def ask(server, *headers, method="GET", target="/", version="1.1", body=b""):
    host, port = server.url.removeprefix("http://").split(":")
    lines = [f"{method} {target} HTTP/{version}", *headers]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    return exchange(host, int(port), ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)


def test_hosts(ctx):
    report = ctx.report
    with ctx.server("hosts") as server:
        for name, headers, status in [
            ("a host", ["Host: db.example"], 200),
            ("a host and a port", ["Host: db.example:5984"], 200),
            ("an IPv6 address", ["Host: [::1]:5984"], 200),
            ("no host", [], 200),
            ("two hosts", ["Host: a.example", "Host: b.example"], 400),
            ("the same host twice", ["Host: a.example", "Host: a.example"], 400),
            ("an empty host", ["Host:"], 400),
            ("a host with a path", ["Host: a.example/b"], 400),
            ("a user", ["Host: a@b.example"], 400),
            ("a list", ["Host: a.example, b.example"], 400),
            ("a space", ["Host: a example"], 400),
            ("a port that is none", ["Host: a.example:99999"], 400),
            ("a port that is no number", ["Host: a.example:x"], 400),
            ("a name beyond ASCII", ["Host: \xe9.example"], 400),
        ]:
            answer = ask(server, *headers)
            ok = (
                answer is not None
                and answer.status == status
                and (status == 200 or (answer.json["error"] == "bad_request" and answer.is_error_shape))
            )
            report.check(f"HTTP/1.1 with {name}: {status}", ok, answer)
        report.equal("HTTP/1.0 needs no host", ask(server, version="1.0").status, 200)
        report.equal("but not two", ask(server, "Host: a", "Host: b", version="1.0").status, 400)
        report.equal("a refused host ends the connection", ask(server, "Host: a@b.example").headers["Connection"], "close")
        authorization = "Authorization: " + basic("admin:admin")
        made = ask(server, "Host: db.example:81", authorization, method="PUT", target="/made")
        report.equal("Location names the host", made.headers["Location"], "http://db.example:81/made")
        made = ask(server, "Host: db.example", authorization, method="PUT", target="http://target.example/made2")
        report.equal("a target that names another counts", (made.status, made.headers["Location"]), (201, "http://target.example/made2"))


def test_allowed_hosts(ctx):
    report = ctx.report
    with ctx.server("allowed", options=["--set", "chttpd/allowed_hosts=db.example, *.apps.example"]) as server:
        for host, status in [
            ("db.example", 200),
            ("DB.example:81", 200),
            ("a.b.apps.example", 200),
            ("localhost:1", 200),
            ("127.0.0.1", 200),
            ("evil.example", 421),
            ("apps.example", 421),
            ("10.0.0.1", 421),
            ("db.example.evil.example", 421),
        ]:
            answer = ask(server, f"Host: {host}")
            report.check(
                f"allowed_hosts: {host}: {status}",
                answer.status == status and (status == 200 or answer.json["error"] == "misdirected_request"),
                answer,
            )
        report.equal("a preflight too", ask(server, "Host: evil.example", method="OPTIONS").status, 421)
        report.equal("a target too", ask(server, "Host: db.example", target="http://evil.example/").status, 421)
        report.equal("anybody may ask whether it is up", ask(server, "Host: 10.0.0.1", target="/_up").status, 200)
        report.equal("HTTP/1.0 without a host is answered", ask(server, version="1.0").status, 200)
        api = server.api()
        report.equal("another list counts at once", api.put("/_node/_local/_config/chttpd/allowed_hosts", "new.example").status, 200)
        report.equal("for the new", ask(server, "Host: new.example").status, 200)
        report.equal("and against the old", ask(server, "Host: db.example").status, 421)


def test_forwarded_hosts(ctx):
    report = ctx.report
    with ctx.server("forwarded") as server:

        def location(forwarded, n):
            made = ask(
                server, "Host: own.example", f"X-Forwarded-Host: {forwarded}", "Authorization: " + basic("admin:admin"), method="PUT", target=f"/f{n}"
            )
            return made.headers["Location"]

        for n, (forwarded, shown) in enumerate(
            [
                ("shown.example:81", "shown.example:81"),
                ("a.example/b", "own.example"),
                ("u@a.example", "own.example"),
                ("a.example, b.example", "own.example"),
                ("a b", "own.example"),
                ("", "own.example"),
            ]
        ):
            report.equal(f"X-Forwarded-Host: {forwarded}", location(forwarded, n), f"http://{shown}/f{n}")
        server.api().expect(200, "PUT", "/_node/_local/_config/chttpd/allowed_hosts", "own.example, shown.example")
        report.equal("one that is allowed is shown", location("shown.example", 10), "http://shown.example/f10")
        report.equal("another is not", location("evil.example", 11), "http://own.example/f11")


# Pages of other sites


def test_media_types(ctx):
    """What a page can have sent without a preflight is no JSON."""
    report = ctx.report
    with ctx.server("types") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        paths = [
            "/_node/_local/_restart",
            "/_node/_local/_config/_reload",
            "/_settee/backup",
            "/_cluster_setup",
            "/_replicate",
            "/db",
            "/db/_bulk_docs",
            "/db/_compact",
            "/db/_ensure_full_commit",
            "/db/_purge",
            "/db/_index",
            "/db/_find",
            "/db/_explain",
            "/db/_revs_diff",
            "/db/_missing_revs",
            "/_dbs_info",
            "/_session",
        ]
        for path in paths:
            refused = [api.request("POST", path, b"{}", {"Content-Type": kind}) for kind in ("text/plain", "multipart/form-data; boundary=x")]
            refused += [api.request("POST", path, b"{}", {"Content-Type": FORM})] if path != "/_session" else []
            ok = all(answer.status == 415 and answer.json["error"] == "bad_content_type" for answer in refused)
            report.check(f"POST {path} wants JSON", ok, refused)
        for path in ("/_node/_local/_restart", "/_node/_local/_config/_reload"):
            answer = ask(server, "Host: x", "Authorization: " + basic("admin:admin"), method="POST", target=path)
            report.equal(f"POST {path} without a type", answer.status, 415)
        report.equal("the configuration is read again for JSON", api.post("/_node/_local/_config/_reload").json, {"ok": True})
        report.equal("and the server was not started anew", server.log().count("listening on http://"), 1)


def session(server):
    login = server.api(credentials="").post("/_session", {"name": "admin", "password": "admin"})
    return "Cookie: " + login.headers["Set-Cookie"].split(";")[0]


#: What changes something: method, path, type, body, and the status of those who may.
CHANGES = [
    ("POST", "/db/_view_cleanup", None, b"", 202),
    ("POST", "/db/_search_cleanup", None, b"", 202),
    ("POST", "/db/_nouveau_cleanup", "application/json", b"{}", 202),
    ("POST", "/db/_sync_shards", None, b"", 202),
    ("POST", "/db/_compact", "application/json", b"", 202),
    ("POST", "/db/_bulk_docs", "application/json", b'{"docs": [{}]}', 201),
    ("POST", "/db", "application/json", b"{}", 201),
    ("POST", "/db/_design/d/_update/make", "text/plain", b"x", 201),
    ("POST", "/_node/_local/_config/_reload", "application/json", b"", 200),
    ("PUT", "/db/new", "application/json", b"{}", 201),
    ("POST", "/_session", FORM, b"name=admin&password=admin", 200),
]
UPDATES = {
    "updates": {"make": "function (doc, req) { return [{_id: req.uuid}, 'made']; }"},
    "language": "javascript",
    "rewrites": "function (req) { return {path: '_update/make', method: 'POST', headers: {origin: '', 'sec-fetch-site': 'none'}}; }",
}


def change(server, cookie, change_, *headers):
    method, path, kind, body, _ = change_
    sent = ["Host: db.example", cookie, *headers] + ([f"Content-Type: {kind}"] if kind else [])
    answer = ask(server, *sent, method=method, target=path, body=body)
    if answer.status == 201 and path == "/db/new":
        server.api().expect(200, "DELETE", f"/db/new?rev={answer.json['rev']}")
    return answer


def test_other_sites(ctx):
    report = ctx.report
    with ctx.server("sites") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/db/_design/d", UPDATES)
        cookie = session(server)
        for change_ in CHANGES:
            method, path, _, _, status = change_
            name = f"{method} {path}"
            for origin in (OTHER, "null", "http://db.example.evil.example", "http://db.example:81", "https://evil.example"):
                answer = change(server, cookie, change_, f"Origin: {origin}")
                report.check(
                    f"{name} of a page of {origin} by its reader's session: 403",
                    answer.status == 403 and answer.json["error"] == "forbidden",
                    answer,
                    quiet=origin != OTHER,
                )
            for why, headers in [
                ("of no page", []),
                ("of an own page", ["Origin: http://db.example"]),
                ("of an own page, in other letters", ["Origin: http://DB.example:80"]),
                ("of an own page behind a proxy", ["Origin: https://shown.example", "X-Forwarded-Host: shown.example", "X-Forwarded-Proto: https"]),
                ("behind a proxy that does not tell of HTTPS", ["Origin: https://db.example"]),
            ]:
                answer = change(server, cookie, change_, *headers)
                report.equal(f"{name} {why}", answer.status, status, quiet=True)
            # A browser would add a password that it keeps to what a form can send, and to nothing else.
            by_form = change_[2] != "application/json" and change_[1] != "/_session"
            for origin in ("null", OTHER):
                answer = change(server, "Authorization: " + basic("admin:admin"), change_, f"Origin: {origin}")
                report.equal(f"{name} of a page of {origin}, by password", answer.status, 403 if by_form else status, quiet=True)
            answer = change(server, "Authorization: " + basic("admin:admin"), change_)
            report.equal(f"{name} of no page, by password", answer.status, status, quiet=True)
        for method in ("GET", "HEAD"):
            report.equal(
                f"{method} of another page", ask(server, "Host: db.example", cookie, f"Origin: {OTHER}", method=method, target="/db").status, 200
            )
        report.equal(
            "a page of http is no page of a server of https",
            change(server, cookie, CHANGES[0], "Origin: http://db.example", "X-Forwarded-Proto: https").status,
            403,
        )
        count = api.expect(200, "GET", "/db")["doc_count"]
        change(server, cookie, CHANGES[5], f"Origin: {OTHER}")
        report.equal("nothing was written by another page", api.expect(200, "GET", "/db")["doc_count"], count)


def test_other_sites_by_fetch_metadata(ctx):
    report = ctx.report
    with ctx.server("metadata") as server:
        server.api().expect(201, "PUT", "/db")
        cookie = session(server)
        for headers, status in [
            (["Sec-Fetch-Site: cross-site"], 403),
            (["Sec-Fetch-Site: same-site"], 403),
            (["Sec-Fetch-Site: cross-site", "Origin: http://db.example"], 403),
            (["Sec-Fetch-Site: same-origin"], 202),
            (["Sec-Fetch-Site: none"], 202),
            # A proxy that names another host than the browser does.
            (["Sec-Fetch-Site: same-origin", "Origin: https://shown.example"], 202),
        ]:
            report.equal(", ".join(headers), change(server, cookie, CHANGES[0], *headers).status, status)


def test_shared_sessions(ctx):
    """Pages that may use the session by [cors]."""
    report = ctx.report
    app = "http://app.example"
    options = ["--set", "chttpd/enable_cors=true", "--set", f"cors/origins={app}", "--set", "cors/credentials=true"]
    with ctx.server("shared", options=options) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        cookie = session(server)
        for more in ([], ["Sec-Fetch-Site: cross-site"]):
            report.equal("an allowed page may", change(server, cookie, CHANGES[0], f"Origin: {app}", *more).status, 202)
            refused = change(server, cookie, CHANGES[0], f"Origin: {OTHER}", *more)
            report.check("another may not", refused.status == 403 and "Access-Control-Allow-Origin" not in refused.headers, refused)
        api.expect(200, "PUT", "/_node/_local/_config/cors/credentials", "false")
        report.equal("without credentials the page may not use the session", change(server, cookie, CHANGES[0], f"Origin: {app}").status, 403)


# Headers of links, with the status of a request that writes.
LINKS = [
    ([], 201),
    (["Sec-Fetch-Site: same-origin"], 201),
    (["Referer: http://db.example/page"], 201),
    (["Sec-Fetch-Site: cross-site"], 403),
    ([f"Origin: {OTHER}"], 403),
    ([f"Referer: {OTHER}/page"], 403),
]


def test_rewritten(ctx):
    """A rewrite function can make a POST of a link."""
    report = ctx.report
    with ctx.server("rewritten") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/db/_design/d", UPDATES)
        cookie = session(server)
        for headers, status in LINKS:
            answer = ask(server, "Host: db.example", cookie, *headers, target="/db/_design/d/_rewrite/x")
            report.equal(f"a link that makes a document, {headers}", answer.status, status)


def test_linked_updates(ctx):
    """Functions in other languages than JavaScript write by any method: a page of another site is refused before one is called."""
    report = ctx.report
    with ctx.server("linked") as server:
        api = server.api()
        api.expect(201, "PUT", "/db?partitioned=true")
        update = UPDATES["updates"]["make"].replace("req.uuid", "'p:' + req.uuid")
        api.expect(201, "PUT", "/db/_design/d", {"updates": {"make": update}, "options": {"partitioned": False}})
        credentials = {"session": session(server), "password": "Authorization: " + basic("admin:admin")}
        for path in ("/db/_design/d/_update/make", "/db/_partition/p/_design/d/_update/make"):
            for by, credential in credentials.items():
                for headers, status in LINKS:
                    before = api.expect(200, "GET", "/db")["doc_count"]
                    answer = ask(server, "Host: db.example", credential, *headers, target=path)
                    made = api.expect(200, "GET", "/db")["doc_count"] - before
                    # JavaScript functions refuse GET themselves, as in CouchDB.
                    expected = 405 if status == 201 else status
                    report.equal(f"{path} by {by}, {headers}", (answer.status, made), (expected, 0))


# Relatives


def test_smuggling(ctx):
    """Requests whose end two programs may see at different places: one answer, and the connection ends."""
    report = ctx.report
    with ctx.server("smuggling") as server:
        host, port = server.url.removeprefix("http://").split(":")
        inner = b"GET /_smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        for name, lines, body in [
            ("both lengths", [b"Content-Length: 4", b"Transfer-Encoding: chunked"], b"0\r\n\r\n" + inner),
            ("both lengths, in the other order", [b"Transfer-Encoding: chunked", b"Content-Length: 4"], b"0\r\n\r\n" + inner),
            ("two lengths", [b"Content-Length: 4", b"Content-Length: 40"], inner),
            ("a length with a sign", [b"Content-Length: +4"], inner),
            ("a length in a list", [b"Content-Length: 4, 4"], inner),
            ("a coding that is not the last", [b"Transfer-Encoding: chunked, gzip"], inner),
            ("a coding with a name of its own", [b"Transfer-Encoding: xchunked"], inner),
            ("a space before the colon", [b"Transfer-Encoding : chunked"], inner),
            ("a folded header", [b"A: b", b" Transfer-Encoding: chunked"], inner),
            ("a chunk whose length is no number", [b"Transfer-Encoding: chunked"], b"0x1\r\na\r\n0\r\n\r\n" + inner),
            ("a chunk's length before a bare line feed", [b"Transfer-Encoding: chunked"], b"1\na\r\n0\r\n\r\n" + inner),
            ("a null in a header", [b"A: \0"], inner),
            ("a bare carriage return", [b"A: b\rTransfer-Encoding: chunked"], inner),
            ("two hosts", [b"Host: y"], inner),
        ]:
            sent = b"POST /_session HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + body
            answers = raw_answers(host, int(port), sent)
            report.check(f"{name}: one answer at most", len(answers) <= 1 and b"_smuggled" not in b"".join(answers), answers)
        many = b"GET /_up HTTP/1.1\r\nHost: x\r\n\r\n" * 5000
        before = server.rss_mb()
        answers = raw_answers(host, int(port), many + b"GET /_up HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", half_close=False)
        report.equal("5,001 requests sent at once are all answered", len(answers), 5001)
        report.check("one after the other", server.rss_mb() - before < 64, (before, server.rss_mb()))
        for name, sent, statuses in [
            ("a thousand headers", b"".join(b"A%d: b\r\n" % n for n in range(1000)), ("431",)),
            ("a megabyte of a header", b"A: " + b"x" * (1 << 20) + b"\r\n", ("431",)),
        ]:
            answers = raw_answers(host, int(port), b"GET / HTTP/1.1\r\nHost: x\r\n" + sent + b"\r\n")
            report.check(f"{name}: refused", len(answers) == 1 and answers[0][:3].decode() in statuses, answers)


CODINGS = {
    "a coding before chunks": ("1.1", [b"Transfer-Encoding: gzip, chunked"]),
    "a coding on a line of its own": ("1.1", [b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"]),
    "chunks of chunks": ("1.1", [b"Transfer-Encoding: chunked, chunked"]),
    "chunks of chunks on two lines": ("1.1", [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"]),
    "no coding": ("1.1", [b"Transfer-Encoding: identity"]),
    "no coding before chunks": ("1.1", [b"Transfer-Encoding: identity, chunked"]),
    "a parameter of chunks": ("1.1", [b"Transfer-Encoding: chunked;q=1"]),
    "an empty element": ("1.1", [b"Transfer-Encoding: ,chunked"]),
    "a length before chunks": ("1.1", [b"Content-Length: 5", b"Transfer-Encoding: chunked"]),
    "a length after chunks": ("1.1", [b"Transfer-Encoding: chunked", b"Content-Length: 5"]),
    "a length of nothing and chunks": ("1.1", [b"Content-Length: 0", b"Transfer-Encoding: chunked"]),
    "a length that is no number after chunks": ("1.1", [b"Transfer-Encoding: chunked", b"Content-Length: x"]),
    "lengths around chunks": ("1.1", [b"Content-Length: 5", b"A: b", b"Transfer-Encoding: chunked", b"Content-Length: 5"]),
    "chunks in HTTP/1.0": ("1.0", [b"Connection: keep-alive", b"Transfer-Encoding: chunked"]),
}


def test_codings(ctx):
    """The one coding of a body is `chunked`, once, and without a length: all else is refused, and the connection closed."""
    report = ctx.report
    with ctx.server("codings") as server:
        host, port = server.url.removeprefix("http://").split(":")
        inner = b"GET /_smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        for target in ("/_up", "/nowhere"):
            for name, (version, lines) in CODINGS.items():
                sent = f"GET {target} HTTP/{version}\r\nHost: x\r\n".encode() + b"\r\n".join(lines) + b"\r\n\r\n0\r\n\r\n" + inner
                answers = raw_answers(host, int(port), sent, half_close=False)
                report.equal(f"{name}, {target}: refused, and nothing else is answered", [answer[:3] for answer in answers], [b"400"])
        for coding in (b"Transfer-Encoding: chunked", b"transfer-encoding: \tChunked "):
            sent = b"GET /_up HTTP/1.1\r\nHost: x\r\n" + coding + b"\r\n\r\n0\r\n\r\n"
            answers = raw_answers(host, int(port), sent + sent + b"GET /_up HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", half_close=False)
            report.equal(f"{coding.decode()}: accepted", [answer[:3] for answer in answers], [b"200"] * 3)


def test_names_in_targets(ctx):
    """PHP's HTTP client sends the name and the password of its URL in the target. As in CouchDB, only the header counts."""
    report = ctx.report
    with ctx.server("targets", options=["--set", "chttpd/allowed_hosts=db.example"]) as server:
        admin = basic("admin:admin")
        for user in ("", "admin@", "admin:admin@", "nobody:wrong@", "a%40b:c%3Ad@", "a:@"):
            for host in ("db.example", "127.0.0.1:5984"):
                target = f"http://{user}{host}/_session"
                for headers, name in ([], None), ([f"Authorization: {admin}"], "admin"):
                    answer = ask(server, f"Host: {host}", *headers, target=target)
                    who = answer.json["userCtx"]["name"] if answer.status == 200 else answer
                    report.equal(f"{target}, {headers}", who, name)
        for target in ("http://db.example@evil.example/", "http://db.example:x@evil.example:80/"):
            report.equal(f"{target}: for another host", ask(server, "Host: db.example", target=target).status, 421)
        for target in ("http://admin@/", "http://admin:admin@", "http://a@b@/"):
            report.equal(f"{target}: for no host", ask(server, "Host: db.example", target=target).status, 400)


def raw_answers(host, port, sent, half_close=True):
    """What follows `HTTP/1.1 ` of each answer, until the server hangs up. `half_close` ends our side after sending."""
    with socket.create_connection((host, port), timeout=20) as connection:

        def send():
            try:
                connection.sendall(sent)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the server hung up already

        sender = threading.Thread(target=send)
        sender.start()
        received = b""
        try:
            while piece := connection.recv(1 << 16):
                received += piece
        except OSError:
            pass
        sender.join()
    return received.split(b"HTTP/1.1 ")[1:]


def test_split_answers(ctx):
    """Nothing that a user wrote ends a header of an answer."""
    report = ctx.report
    with ctx.server("split") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        evil = "text/plain\r\nX-Evil: yes"
        made = api.put("/db/doc", {"_attachments": {"a": {"content_type": evil, "data": "YQ=="}}})
        shown = api.get("/db/doc/a")
        report.check("of an attachment's type", made.status >= 400 or "X-Evil" not in shown.headers, (made, shown.headers.items()))
        report.equal("attachments are what they say they are", api.put("/db/page/a", b"<b>x", headers={"Content-Type": "text/plain"}).status, 201)
        report.equal("to browsers", api.get("/db/page/a").headers["X-Content-Type-Options"], "nosniff")
        two = {"Range": "bytes=0-0,2-2"}
        ranges = api.get("/db/page/a", headers=two)
        guards = [ranges.headers[name] for name in ("X-Content-Type-Options", "Content-Security-Policy")]
        report.equal("and several ranges of them too", (ranges.status, guards), (206, ["nosniff", "sandbox"]))
        made = api.put("/db/ranges", {"_attachments": {"a": {"content_type": evil, "data": "YWJjZA=="}}})
        shown = api.get("/db/ranges/a", headers=two)
        report.check("of a part's type", made.status >= 400 or (shown.status == 206 and b"X-Evil" not in shown.raw), (made, shown.raw))
        for n, headers in enumerate(({"X-A": "b\r\nX-Evil: yes"}, {"X-A\r\nX-Evil": "yes"}, {"Location": "/\r\nX-Evil: yes"})):
            source = "function (doc, req) { return {body: 'x', headers: %s}; }" % json.dumps(headers)
            api.expect(201, "PUT", f"/db/_design/s{n}", {"shows": {"s": source}})
            shown = api.get(f"/db/_design/s{n}/_show/s")
            report.check(
                f"of a show function's headers {n}", "X-Evil" not in shown.headers and shown.status in (200, 400, 500), (shown, shown.headers.items())
            )
        for target in ("/db%0d%0aX-Evil:%20yes", "/_session?next=/%0d%0aX-Evil:%20yes"):
            for method in ("GET", "PUT", "POST", "DELETE"):
                answer = api.request(method, target, b"name=admin&password=admin", {"Content-Type": FORM})
                report.check(f"of {method} {target}", "X-Evil" not in answer.headers, answer.headers.items(), quiet=True)
        text = "".join(api.get(path).raw.decode() for path in ("/", "/_up", "/db", "/nowhere", "/db/none"))
        report.check("no answer tells where the data is", str(ctx.root) not in text and not re.search(r"/(tmp|home|root|var)/", text), text)


def test_credentials_of_commands(ctx):
    """Passwords need not stand on the command line."""
    report = ctx.report
    with ctx.server("commands") as server:
        environment = {**os.environ, "SETTEE_CREDENTIALS": server.admin}
        made = command(ctx, "backup", server.url, ctx.root / "quiet", env=environment)
        report.check("settee backup", made.returncode == 0, made)
        (ctx.root / "docs.json").write_text('[{"_id": "a"}]')
        loaded = command(ctx, "load", ctx.root / "docs.json", server.url + "/loaded", env=environment)
        report.check("settee load", loaded.returncode == 0 and server.api().get("/loaded/a").status == 200, loaded)
    environment = {**os.environ, "SETTEE_ADMINS_ANNA": "secret"}
    with subprocess.Popen(
        [ctx.binary, "serve", "--data", ctx.root / "anna", "--port", "0"],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            url = process.stdout.readline().split()[-1]
            report.equal("settee serve", Api(url, "anna:secret").get("/_session").json["userCtx"]["name"], "anna")
        finally:
            process.terminate()
            process.wait(30)

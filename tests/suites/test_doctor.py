"""`settee doctor`: each fault is planted on a real server and found, a healthy server has none, and a large one is examined in time."""

import json
import os
import random
import re
import socket
import subprocess
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.api import Api, ask
from harness.certificates import openssl
from harness.faulty_cluster import ADMIN, KAFKA, FaultyCluster
from harness.prometheus import metrics
from harness.server import wait_until
from harness.small_disk import SmallDisk

pytestmark = [pytest.mark.on_disk, pytest.mark.may_be_retried, pytest.mark.costly_hashes]

NOTHING, WARNINGS, ERRORS, NOT_ASKED = range(4)
# Faults that would need another disk, another kernel, an address that others reach, or a network that lets one direction pass: planted as
# facts in the unit tests of crates/doctor.
UNIT_TESTED = {"slow-syncs", "confinement", "plain-http", "node-connections"}
SEVERITIES = ["note", "warning", "error"]
# A node that is behind is a warning after 30 s.
FOUND_TIMEOUT_S = 120
# It gathers for 3 s at most.
TOOK_MS_MAX = 10_000
# Checks that `finds` looked for in the test that runs now.
LOOKED_FOR = set()


def plants(*checks):
    """Declares the checks whose faults a test plants: `finds` has to look for each of them."""

    def declare(test):
        test.plants = set(checks)
        return test

    return declare


@pytest.fixture(autouse=True)
def planted_checks(request):
    LOOKED_FOR.clear()
    yield
    declared = getattr(request.function, "plants", set())
    if declared != LOOKED_FOR:
        pytest.fail(f"declares {sorted(declared)}, looks for {sorted(LOOKED_FOR)}")


@pytest.fixture(autouse=True)
def ignored_checks(request):
    """The disk of the machine that tests may be slow, or short of space: only `full_disk` has one of its own."""
    with environment(SETTEE_DOCTOR_IGNORE="slow-syncs" if request.node.name == "test_full_disk" else "disk-space, slow-syncs"):
        yield


@contextmanager
def environment(**variables):
    """Of the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def doctor(ctx, server, *options, credentials=None):
    url = server.url.replace("http://", f"http://{credentials or server.admin}@")
    return subprocess.run([ctx.binary, "doctor", url, *options], capture_output=True, text=True, timeout=60)


def told(ctx, server, api=None):
    """What the server tells, by the command line unless a connection is given."""
    if api is not None:
        answer = api.get("/_settee/doctor")
        if answer.status != 200:
            raise AssertionError(repr(answer))
        return answer.json
    done = doctor(ctx, server, "--json")
    if done.returncode == NOT_ASKED:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def severities(answer):
    """Of each check that found something, the worst."""
    worst = {}
    for finding in answer["findings"]:
        severity = SEVERITIES.index(finding["severity"])
        worst[finding["id"]] = max(worst.get(finding["id"], 0), severity)
    return {check: SEVERITIES[severity] for check, severity in worst.items()}


def finds(ctx, answer, *wanted):
    """The checks `id=severity` have found what was planted. Nothing else is wrong, but what a server of a minute may be noted for."""
    found = severities(answer)
    for check in wanted:
        name, severity = check.split("=")
        LOOKED_FOR.add(name)
        ctx.report.check(f"{name} finds what was planted", found.get(name) == severity, (severity, answer["findings"], answer["checks"]))
    names = {check.split("=")[0] for check in wanted}
    others = {name: severity for name, severity in found.items() if name not in names and severity != "note"}
    ctx.report.check("and nothing else is a warning", not others, answer["findings"])


def is_well(ctx, what, done):
    ctx.report.check(f"{what}: no warning", done.returncode == NOTHING, done.stdout + done.stderr)


def test_fresh_servers(ctx):
    """Just started, in either way of making an admin."""
    with ctx.server("fresh") as server:
        is_well(ctx, "a fresh server", doctor(ctx, server))
        answer = told(ctx, server)
        ctx.report.equal("a fresh server: no note either", answer["findings"], [])
        ctx.report.equal("all databases were looked at", answer["databases"]["not_looked_at"], 0)
        ctx.report.check("skipped checks say why", all(c.get("why") for c in answer["checks"] if c["outcome"] == "skipped"), answer["checks"])
        quiet = doctor(ctx, server, "--quiet")
        ctx.report.equal("--quiet says nothing then", (quiet.returncode, quiet.stdout), (NOTHING, ""))
    with ctx.server("generated", admin=None) as server:
        server.admin = "admin:" + (Path(server.data) / "admin-password").read_text().strip()
        is_well(ctx, "one with a made-up admin", doctor(ctx, server))


def fill(api, db, documents, bulk=5_000, make=lambda n: {"_id": f"{n:07}", "n": n, "kind": n % 100, "text": "x" * 200}):
    if api.get(f"/{db}").status != 200:
        api.expect(201, "PUT", f"/{db}")
    for at in range(0, documents, bulk):
        docs = [make(n) for n in range(at, min(at + bulk, documents))]
        api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})


def test_a_healthy_server(ctx):
    """With data, indexes that are used, users, a replication and updates."""
    with ctx.server("healthy") as server:
        api = server.api()
        fill(api, "shop", 20_000)
        views = {"by_kind": {"map": "function (doc) { emit(doc.kind, doc.n); }", "reduce": "_sum"}}
        api.expect(201, "PUT", "/shop/_design/sales", {"views": views})
        api.expect(200, "POST", "/shop/_index", {"index": {"fields": ["n"]}, "name": "n"})
        for n in range(ctx.size(100, 200)):
            api.expect(200, "GET", f"/shop/_design/sales/_view/by_kind?key={n % 100}&reduce=false&limit=10")
            api.expect(200, "POST", "/shop/_find", {"selector": {"n": n}})
            api.expect(200, "POST", "/shop/_find", {"selector": {"n": {"$gt": n}, "kind": 1}, "limit": 5})
            doc = api.expect(200, "GET", f"/shop/{n:07}")
            api.expect(201, "PUT", f"/shop/{n:07}", {**doc, "changed": True})
        api.expect(201, "PUT", "/_users/org.couchdb.user:anna", {"name": "anna", "password": "annas-password", "roles": [], "type": "user"})
        itself = server.url.replace("http://", f"http://{server.admin}@")
        api.expect(
            201, "PUT", "/_replicator/copy", {"source": f"{itself}/shop", "target": f"{itself}/copy", "create_target": True, "continuous": True}
        )
        copied = wait_until(lambda: api.get("/copy").status == 200 and api.get("/copy").json["doc_count"] >= 20_000, 60)
        ctx.report.check("the replication is through", copied)
        done = doctor(ctx, server)
        is_well(ctx, "a healthy server", done)
        before = [api.get(f"/{db}").json["update_seq"] for db in ("shop", "copy", "_users")]
        answer = told(ctx, server)
        after = [api.get(f"/{db}").json["update_seq"] for db in ("shop", "copy", "_users")]
        ctx.report.equal("and it is only read", after, before)
        ctx.report.check("it has no more than notes", set(severities(answer).values()) <= {"note"}, answer["findings"])
        secrets = ("annas-password", server.admin.split(":")[1] + "@", "derived_key", "salt")
        ctx.report.check("nothing secret is told", not any(word in json.dumps(answer) for word in secrets), answer)


@plants("open-files", "permissions")
def test_files(ctx):
    """Open files, by many connections; files that others may read."""
    with ctx.server("files") as server:
        api = server.api()
        api.expect(200, "GET", "/")
        limit = int(re.search(r"Max open files\s+(\d+)", Path(f"/proc/{server.process.pid}/limits").read_text()).group(1))
        subprocess.run(["prlimit", f"--pid={server.process.pid}", f"--nofile=200:{limit}"], check=True)
        own = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        held = [socket.create_connection((api.host, api.port)) for _ in range(170 - own)]
        os.chmod(Path(server.data) / "store", 0o755)
        ini = Path(server.data) / "local.ini"
        os.chmod(ini, 0o644)
        opened = wait_until(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) >= 165)
        ctx.report.check("connections are open", opened)
        answer = told(ctx, server, api)
        finds(ctx, answer, "open-files=warning", "permissions=warning")
        acts = [act for finding in answer["findings"] for act in finding["do"] if act.startswith("chmod")]
        for act in acts:
            subprocess.run(act, shell=True, check=True)
        for connection in held:
            connection.close()
        subprocess.run(["prlimit", f"--pid={server.process.pid}", f"--nofile={limit}:{limit}"], check=True)
        done = wait_until(lambda: doctor(ctx, server).returncode == NOTHING)
        ctx.report.check("what it says mends it", done and len(acts) == 2, acts)


@plants("accept-backlog", "connections", "queues")
def test_connections(ctx):
    """Three are served at a time, and a server admin beyond them; feeds of admins make no room. Of four that wait the rest is dropped."""
    options = ["--set", "chttpd/backlog=4", "--set", "chttpd/server_options=[{max, 3}]"]
    with ctx.server("connections", options=options) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        feeds = []
        for _ in range(3):
            # At once: a connection that rests for a second would make room.
            api.expect(200, "GET", "/db")
            feeds.append(ask(server, "/db/_changes?feed=continuous&heartbeat=1000"))
            feeds[-1].recv(1)
        waiting = [socket.socket() for _ in range(20)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex((api.host, api.port))
        wait_until(lambda: "accept-backlog" in severities(told(ctx, server, api)), 10)
        finds(ctx, told(ctx, server, api), "accept-backlog=warning", "queues=warning", "connections=warning")
        dropped = metrics(api)("settee_connections_dropped_total")
        ctx.report.check("the metrics count dropped connections", dropped > 0, dropped)
        top = api.expect(200, "GET", "/_settee/top")
        ctx.report.check("and so does top", top["connections_dropped"] >= dropped, top["connections_dropped"])
        for client in [*waiting, *feeds]:
            client.close()


@plants("memory")
def test_memory(ctx):
    with ctx.server("memory", options=["--set", "memory/limit=30000000"]) as server:
        fill(server.api(), "db", 20_000)
        finds(ctx, told(ctx, server), "memory=warning")


@plants("disk-space", "writes")
def test_full_disk(ctx):
    with SmallDisk(ctx.folder("disk")) as disk:
        if disk.refused:
            LOOKED_FOR.add("disk-space")
            ctx.report.skip("disk-space finds what was planted", disk.refused)
            return
        with ctx.server("disk/data", log_path=str(ctx.root / "disk.log")) as server:
            is_well(ctx, "a small disk", doctor(ctx, server))
            free = os.statvfs(disk.path)
            size, free = free.f_blocks * free.f_frsize, free.f_bavail * free.f_frsize
            with open(disk.path / "ballast", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, int(free - size * 0.05))
            # The store needs more than that to write what it has in memory to files.
            finds(ctx, told(ctx, server), "disk-space=warning", "writes=error")
            with open(disk.path / "more", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, int(size * 0.04))
            done = doctor(ctx, server)
            ctx.report.equal("a fuller one is an error", (done.returncode, "disk-space" in done.stdout), (ERRORS, True))


@plants("block-cache")
def test_block_cache(ctx):
    """Random reads of more than the cache holds."""
    options = ["--set", "rocksdb/block_cache_size=1048576", "--set", "rocksdb/write_buffer_size=1048576"]
    with ctx.server("cache", options=options) as server:
        api = server.api()
        documents = 20_000
        fill(api, "db", documents, make=lambda n: {"_id": f"{n:07}", "text": random.randbytes(150).hex()})
        for turn in range(400):
            keys = [f"{random.randrange(documents):07}" for _ in range(1_000)]
            api.expect(200, "POST", "/db/_bulk_get", {"docs": [{"id": key} for key in keys]})
            # One read of 256 is looked at, and 500 of these are needed.
            if turn >= 128 and turn % 16 == 0 and "block-cache" in severities(told(ctx, server, api)):
                break
        finds(ctx, told(ctx, server), "block-cache=warning")


@plants("random-ids", "long-ids", "tiny-bulks", "conflicts", "tombstones")
def test_data(ctx):
    """Random ids, also behind a prefix, long ids, tiny bulks, wide conflicts, tombstones."""
    with ctx.server("data") as server:
        api = server.api()
        fill(api, "random", 100_000, make=lambda n: {"_id": uuid.UUID(int=random.getrandbits(128)).hex, "n": n})
        # Every second document has an id in order.
        made = lambda n: f"order/{n:032x}" if n % 2 else f"status/{uuid.UUID(int=random.getrandbits(128)).hex}"
        fill(api, "prefixed", 100_000, make=lambda n: {"_id": made(n), "n": n})
        fill(api, "long", 100_000, make=lambda n: {"_id": f"{n:0100}"})
        for n in range(1_050):
            api.expect(201, "POST", "/random/_bulk_docs", {"docs": [{"_id": f"tiny{n}"}]})
        api.expect(201, "PUT", "/conflicts")
        revs = [{"_id": "wide", "_rev": f"1-{n:032x}", "n": n} for n in range(13)]
        api.expect(201, "POST", "/conflicts/_bulk_docs", {"docs": revs, "new_edits": False})
        fill(api, "deleted", 100_000, make=lambda n: {"_id": f"{n:07}", "_deleted": True})
        fill(api, "deleted", 100, make=lambda n: {"_id": f"alive{n}"})
        answer = told(ctx, server)
        finds(ctx, answer, "random-ids=note", "long-ids=note", "tiny-bulks=note", "conflicts=warning", "tombstones=warning")
        of = lambda check: {finding["subject"]: finding["says"] for finding in answer["findings"] if finding["id"] == check}
        ctx.report.equal("databases with random ids", set(of("random-ids")), {"random", "prefixed"})
        ctx.report.check("the prefix of random ids is named", " behind the prefix status/ " in of("random-ids").get("prefixed", ""), of("random-ids"))
        why = {finding["why"] for finding in answer["findings"] if finding["id"] == "random-ids"}
        ctx.report.check("random ids cost time too", all("1.7 times the processor time" in text for text in why), why)
        ctx.report.equal("databases with long ids", set(of("long-ids")), {"long"})


@plants("nodes", "slots", "safe-to-stop", "log", "lag")
def test_a_cluster(ctx):
    """A node without the log, and one that is down."""
    cluster = FaultyCluster(ctx, "cluster", log=KAFKA, has_links=True)

    def becomes(number, *wanted):
        """The checks `id=severity` find what was planted; `id` alone finds nothing any more. Faults have consequences that others find."""
        expected = dict(check.partition("=")[::2] for check in wanted)
        LOOKED_FOR.update(check for check, severity in expected.items() if severity)
        found = {}

        def is_so():
            found.clear()
            found.update(severities(told(ctx, None, Api(cluster.nodes[number].url, ADMIN))))
            return all(found.get(check, "") == severity for check, severity in expected.items())

        ctx.report.check(f"node {number}: {wanted}", wait_until(is_so, FOUND_TIMEOUT_S, 0.2), found)

    try:
        cluster.start()
        for number in cluster.nodes:
            becomes(number, "nodes", "slots", "safe-to-stop", "log", "lag", "node-connections")
        api = cluster.api(1)
        api.expect(201, "PUT", "/db")
        cluster.cut_from_brokers(2)
        becomes(2, "log=error")
        becomes(1, "log")
        for _ in range(20):
            api.expect(201, "POST", "/db", {})
        becomes(2, "lag=warning")
        cluster.heal()
        becomes(2, "log", "lag", "slots")
        cluster.kill(3)
        becomes(1, "nodes=warning", "slots=warning", "safe-to-stop=note")
        cluster.heal()
        becomes(1, "nodes", "slots", "safe-to-stop")
    finally:
        cluster.stop()


@plants("dev")
def test_no_login(ctx):
    """A server without logins."""
    with ctx.server("dev", options=["--dev"]) as server:
        finds(ctx, told(ctx, server), "dev=warning")


@plants("functions")
def test_functions_for_another_engine(ctx):
    """One that fails here is a warning, one that may only differ a note."""
    with ctx.server("functions") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        fails = "function (doc) {\n Array.forEach(doc.tags, function (tag) { emit(tag) }) }"
        api.expect(201, "PUT", "/db/_design/old", {"views": {"tags": {"map": fails}}})
        answer = told(ctx, server, api)
        finds(ctx, answer, "functions=warning")
        found = [finding for finding in answer["findings"] if finding["id"] == "functions"]
        says = [(finding["subject"], "line 2: Array.forEach" in finding["says"]) for finding in found]
        ctx.report.equal("its place is named", says, [("db/_design/old, views/tags/map", True)])
        api.expect(200, "DELETE", f"/db/_design/old?rev={api.get('/db/_design/old').json['_rev']}")
        differs = {"filters": {"f": "function (doc, req) { return doc.tags instanceof Array }"}}
        api.expect(201, "PUT", "/db/_design/new", differs)
        finds(ctx, told(ctx, server, api), "functions=note")


@plants("compaction-due")
def test_garbage(ctx):
    """Superseded revisions that nobody compacts."""
    with ctx.server("garbage", options=["--set", "compaction/enable=false"]) as server:
        api = server.api()
        fill(api, "db", 10_000)
        for round in range(3):
            rows = api.expect(200, "GET", "/db/_all_docs")["rows"]
            docs = [{"_id": row["id"], "_rev": row["value"]["rev"], "round": round} for row in rows]
            api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        answer = told(ctx, server)
        finds(ctx, answer, "compaction-due=warning")
        commands = [act for finding in answer["findings"] for act in finding["do"]]
        environment = dict(os.environ, S=server.url.replace("http://", f"http://{server.admin}@"))
        for command in commands:
            done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
            ctx.report.equal(f"a command works: {command}", (done.returncode, "error" in done.stdout), (0, False))
        ctx.report.check("and helps", wait_until(lambda: doctor(ctx, server).returncode == NOTHING), told(ctx, server))


@plants("scans", "examined", "unused-indexes", "duplicate-indexes", "whole-documents")
def test_queries(ctx):
    """Scans, an index that narrows too little, one that nobody uses, one twice, one that begins another."""
    with ctx.server("queries", options=["--set", "doctor/unused_index_time=0"]) as server:
        api = server.api()
        fill(api, "db", 5_000)
        fill(api, "narrow", 5_000)
        fill(api, "whole", 5_000, make=lambda n: {"_id": f"{n:07}", "n": n, "text": "x" * 4_000})
        twice = "function (doc) { emit(doc.n, 1); }"
        views = {"v": {"map": twice}}
        api.expect(201, "PUT", "/db/_design/one", {"views": views})
        api.expect(201, "PUT", "/db/_design/two", {"views": {**views, "w": {"map": "function (doc) { emit(doc.kind); }"}}})
        api.expect(201, "PUT", "/db/_design/unused", {"views": {"v": {"map": "function (doc) { emit(doc.text); }"}}})
        copies = {"copies": {"map": "function (doc) { emit(doc.n, doc); }"}}
        api.expect(201, "PUT", "/whole/_design/copy", {"views": copies})
        for fields in (["n"], ["n", "kind"]):
            api.expect(200, "POST", "/narrow/_index", {"index": {"fields": fields}, "ddoc": "-".join(fields), "name": "-".join(fields)})
        api.expect(200, "GET", "/whole/_design/copy/_view/copies?limit=1")
        for _ in range(20):
            for design in ("one", "two"):
                api.expect(200, "GET", f"/db/_design/{design}/_view/v?limit=1")
            api.expect(200, "POST", "/db/_find", {"selector": {"kind": {"$gte": 0}, "text": "unheard-of"}})
            for index in ("n", "n-kind"):
                selector = {"n": {"$gt": 10}, "kind": {"$gte": 0}, "text": "unheard-of"}
                api.expect(200, "POST", "/narrow/_find", {"selector": selector, "use_index": index})
        built = wait_until(lambda: api.get("/db/_design/unused/_info").json["view_index"]["updates_pending"]["total"] == 0, 30)
        ctx.report.check("the background builds what nobody uses", built)
        wanted = ("scans=warning", "examined=warning", "unused-indexes=warning", "duplicate-indexes=warning", "whole-documents=warning")
        answer = told(ctx, server)
        finds(ctx, answer, *wanted)
        subjects = {finding["subject"] for finding in answer["findings"] if finding["id"] == "unused-indexes"}
        ctx.report.equal("used indexes are not called unused", subjects, {"db/_design/unused"})
        begins = [f for f in answer["findings"] if f["id"] == "duplicate-indexes" and f["severity"] == "note"]
        ctx.report.check("an index that begins another is noted", begins, answer["findings"])
        scan = next(f for f in answer["findings"] if f["id"] == "scans")
        ctx.report.check("fields are told, values are not", "text" in scan["says"] and "unheard-of" not in json.dumps(answer), scan)
        environment = dict(os.environ, S=server.url.replace("http://", f"http://{server.admin}@"))
        command = next(act for act in scan["do"] if act.startswith("curl"))
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
        ctx.report.check("the command makes an index", '"created"' in done.stdout, (command, done))
        ctx.report.check("of the field that equals a value first", '["text","kind"]' in command, command)


@plants("failing-maps", "failing-builds")
def test_maps(ctx):
    """Functions that throw for every document, of views and of text indexes, and builds that fail."""
    with ctx.server("maps") as server:
        api = server.api()
        fill(api, "db", 2_000)
        throws = "function (doc) { emit(doc.items.length); }"
        healthy = "function (doc) { emit(doc.n); }"
        api.expect(201, "PUT", "/db/_design/throws", {"views": {"always": {"map": throws}, "never": {"map": healthy}}})
        api.expect(201, "PUT", "/db/_design/some", {"views": {"some": {"map": "function (doc) { if (doc.n % 5 == 0) throw 'x'; emit(doc.n); }"}}})
        api.expect(201, "PUT", "/db/_design/fails", {"language": "unheard-of", "views": {"v": {"map": "x"}}})
        for view in ("throws/_view/always", "some/_view/some", "throws/_view/never"):
            api.expect(200, "GET", f"/db/_design/{view}?limit=1")
        index = "function (doc) { index('text', 'x', doc.items.length); }"
        misspelled = {"default_analyzer": "standart", "index": index}
        api.expect(201, "PUT", "/db/_design/texts", {"nouveau": {"throws": {"index": index}, "misspelled": misspelled, "no": 5}})
        api.expect(200, "GET", "/db/_design/texts/_nouveau/throws?q=x:x")
        for _ in range(3):
            api.get("/db/_design/fails/_view/v")
        answer = told(ctx, server)
        finds(ctx, answer, "failing-maps=warning", "failing-builds=error")
        found = {f["subject"]: f["severity"] for f in answer["findings"] if f["id"] == "failing-maps"}
        wanted = {"throws, view always": "warning", "some, view some": "note", "texts, text index throws": "warning"}
        ctx.report.equal("functions are told apart", found, {f"db/_design/{subject}": severity for subject, severity in wanted.items()})
        failing = sorted((f["subject"], f["severity"]) for f in answer["findings"] if f["id"] == "failing-builds")
        never = [(f"db/_design/texts, text index {name}", "warning") for name in ("misspelled", "no")]
        ctx.report.equal("what nobody asked for yet too", failing, [("db/_design/fails", "error"), *never])
        ctx.report.check("the log says of what kind a function is", "index function failed for document" in server.log(), server.log()[-500:])
        ctx.report.equal("errors exit with 2", doctor(ctx, server, "--quiet").returncode, ERRORS)


@plants("unused-indexes", "failing-builds", "text-indexes")
def test_texts(ctx):
    """Text indexes: one that nobody uses, one that cannot be built, one that lacks documents, one that nobody updates."""
    word = lambda field: {"index": f'function (doc) {{ index("text", "{field}", doc.text); }}'}
    with ctx.server("texts", options=["--set", "doctor/unused_index_time=0", "--set", f"functions/time_limit_ms={ctx.size(150, 300)}"]) as server:
        api = server.api()
        fill(api, "db", 11_000)
        api.expect(201, "PUT", "/db/_design/used", {"nouveau": {"used": word("a"), "unused": word("b")}})
        mixed = {"index": 'function (doc) { index(doc.n % 2 ? "text" : "double", "x", doc.n % 2 ? doc.text : doc.n); }'}
        api.expect(201, "PUT", "/db/_design/lacks", {"nouveau": {"mixed": mixed}})
        endless = {"index": "function (doc) { while (true) {} }"}
        api.expect(201, "PUT", "/db/_design/fails", {"nouveau": {"endless": endless}})
        classic = {"index": 'function (doc) { index("text", doc.text); }'}
        api.expect(201, "PUT", "/db/_design/left", {"autoupdate": False, "indexes": {"left": classic}})
        api.expect(200, "GET", "/db/_design/used/_nouveau/used?q=a:x")
        api.expect(200, "GET", "/db/_design/left/_search/left?q=text:x&stale=ok")
        api.expect(200, "GET", "/db/_design/lacks/_nouveau/mixed?q=*:*")
        for _ in range(2):
            api.expect(500, "GET", "/db/_design/fails/_nouveau/endless?q=x:x")
        documents = lambda: api.get("/db/_design/used/_nouveau_info/unused").json["search_index"]["num_docs"]
        ctx.report.check("the background builds what nobody uses", wait_until(lambda: documents() == 11_000, 60), documents())
        answer = told(ctx, server, api)
        finds(ctx, answer, "unused-indexes=warning", "failing-builds=error", "text-indexes=warning")
        wanted = [
            ("failing-builds", "fails, text index endless"),
            ("unused-indexes", "used, text index unused"),
            ("text-indexes", "lacks, text index mixed"),
            ("text-indexes", "left, text index left"),
        ]
        wanted = [(check, f"db/_design/{subject}") for check, subject in wanted]
        named = [(finding["id"], finding["subject"]) for finding in answer["findings"] if "text index" in finding["subject"]]
        ctx.report.equal("each is named once", named, wanted)
        api.expect(200, "GET", "/db/_design/left/_search/left?q=text:x")
        api.expect(200, "GET", "/db/_design/used/_nouveau/unused?q=b:x")
        lacks = api.expect(200, "GET", "/db/_design/lacks")
        api.expect(200, "DELETE", f"/db/_design/lacks?rev={lacks['_rev']}")
        left = severities(told(ctx, server, api))
        ctx.report.equal("what was asked and updated is well", [left.get(check) for check in ("unused-indexes", "text-indexes")], [None, None])


@plants("replications", "weak-hashes", "cors", "maintenance-mode")
def test_operation(ctx):
    """A replication that was given up and one that crashes, weak hashes, CORS, maintenance."""
    options = ["--set", "chttpd_auth/upgrade_hash_on_auth=false"]
    with ctx.server("operation", options=options) as server:
        api = server.api()
        nowhere = {"source": "http://user:hidden@127.0.0.1:1/db", "target": "http://127.0.0.1:1/other", "continuous": True}
        api.expect(201, "PUT", "/_replicator/crashes", nowhere)
        crashes = wait_until(lambda: severities(told(ctx, server, api)).get("replications") == "note", 30, 0.5)
        ctx.report.check("a replication that failed once is a note", crashes, told(ctx, server, api)["findings"])
        old = {"derived_key": "00" * 20, "iterations": 10, "password_scheme": "pbkdf2", "salt": "s"}
        api.expect(201, "PUT", "/_users/org.couchdb.user:old", {"name": "old", "roles": [], "type": "user", **old})
        config = "/_node/_local/_config"
        api.expect(200, "PUT", f"{config}/admins/weak", "-pbkdf2-" + "00" * 20 + ",salt,10")
        for section, key, value in (
            ("chttpd", "enable_cors", "true"),
            ("cors", "origins", "*"),
            ("cors", "credentials", "true"),
            ("couchdb", "maintenance_mode", "true"),
        ):
            api.expect(200, "PUT", f"{config}/{section}/{key}", value)
        # The same once more is refused for good.
        api.expect(201, "PUT", "/_replicator/given-up", nowhere)
        wait_until(lambda: severities(told(ctx, server, api)).get("replications") == "warning", ctx.size(30, 200), 0.5)
        # As another server may have left it.
        reason = "db_not_found: could not open http://user:hidden@127.0.0.1:1/db"
        imported = {**nowhere, "_replication_state": "failed", "_replication_state_reason": reason}
        api.expect(201, "PUT", "/_replicator/imported", imported)
        answer = told(ctx, server)
        reasons = {f["subject"]: f["says"] for f in answer["findings"] if f["id"] == "replications"}
        ctx.report.check("reasons are told", "could not open http://127.0.0.1:1/db" in reasons.get("_replicator/imported", ""), reasons)
        finds(ctx, answer, "replications=warning", "weak-hashes=warning", "cors=warning", "maintenance-mode=note")
        weak = {f["subject"] for f in answer["findings"] if f["id"] == "weak-hashes"}
        ctx.report.equal("admins and users are looked at", weak, {"admin weak", "users"})
        text = doctor(ctx, server)
        ctx.report.equal("warnings exit with 1", text.returncode, WARNINGS)
        ctx.report.check("credentials are not told", "hidden" not in text.stdout + json.dumps(answer), text.stdout)
        api.expect(200, "PUT", f"{config}/doctor/ignore", "cors, weak-hashes, replications, disk-space, slow-syncs")
        ignored = told(ctx, server)
        ctx.report.equal("what is ignored is skipped", severities(ignored), {"maintenance-mode": "note"})
        skipped = {check["id"] for check in ignored["checks"] if check["outcome"] == "skipped"}
        ctx.report.check("and said to be", {"cors", "weak-hashes", "replications"} <= skipped, skipped)


@plants("certificates")
def test_certificates(ctx):
    folder = ctx.folder("certificates")
    for days in (1, 365):
        cert, key = folder / f"{days}.pem", folder / f"{days}-key.pem"
        request = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-days", str(days))
        openssl("req", "-x509", *request, "-keyout", key, "-out", cert)
        os.chmod(key, 0o600)
        tls = ("ssl/enable=true", "ssl/port=0", f"ssl/cert_file={cert}", f"ssl/key_file={key}")
        options = [word for setting in tls for word in ("--set", setting)]
        with ctx.server(f"tls-{days}", options=options) as server:
            if days == 1:
                finds(ctx, told(ctx, server), "certificates=warning")
                cert.write_text("no certificate")
                ctx.report.equal("one that cannot be read is an error", severities(told(ctx, server)).get("certificates"), "error")
            else:
                is_well(ctx, "a certificate of a year", doctor(ctx, server))


@plants("backup")
def test_backups(ctx):
    with ctx.server("backups") as server:
        done = subprocess.run(
            [ctx.binary, "backup", server.url.replace("http://", f"http://{server.admin}@"), str(ctx.root / "backup")], capture_output=True, text=True
        )
        ctx.report.equal("a backup is made", done.returncode, 0)
        is_well(ctx, "a server with a backup", doctor(ctx, server))
        last = Path(server.data) / "store" / "LAST_BACKUP"
        ctx.report.check("its time is known", abs(int(last.read_text()) - time.time()) < 600, last.read_text())
        last.write_text(str(int(time.time()) - 30 * 86_400))
        finds(ctx, told(ctx, server), "backup=warning")
    with ctx.server("none", options=["--set", "doctor/backup_age_max=0"]) as server:
        fill(server.api(), "db", 2_000)
        ctx.report.equal("none that is known of is a note", severities(told(ctx, server)), {"backup": "note"})


@plants("auto-purge")
def test_automatic_purges(ctx):
    with ctx.server("purges", options=["--set", "couch_auto_purge_plugin/dry_run=true"]) as server:
        finds(ctx, told(ctx, server), "auto-purge=note")


@plants("expiry")
def test_invalid_times_of_documents_that_expire(ctx):
    with ctx.server("expiry") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        api.expect(201, "PUT", "/db/_auto_purge", {"expires_at": "expires_at"})
        doc = {"_id": "a", "_rev": "1-a", "expires_at": "soon"}
        api.expect(201, "POST", "/db/_bulk_docs", {"new_edits": False, "docs": [doc]})
        # It is counted a moment later.
        wait_until(lambda: "expiry" in severities(told(ctx, server)), 60)
        finds(ctx, told(ctx, server), "expiry=note")


def test_every_check_is_planted(ctx, request):
    tests = {name: test for name, test in vars(request.module).items() if hasattr(test, "plants")}
    marked = {mark.name for test in tests.values() for mark in getattr(test, "pytestmark", [])}
    ctx.report.equal("every test that plants faults is run", ([name for name in tests if not name.startswith("test_")], marked), ([], set()))
    planted = set().union(*(test.plants for test in tests.values()))
    with ctx.server("all") as server:
        checks = {check["id"] for check in told(ctx, server)["checks"]}
        ctx.report.equal("a fault of each check is planted", checks - UNIT_TESTED, planted)


def test_who_may(ctx):
    with ctx.server("who") as server:
        api = server.api()
        user = {"name": "watcher", "password": "secret", "roles": ["_metrics"], "type": "user"}
        api.expect(201, "PUT", "/_users/org.couchdb.user:watcher", user)
        refused = doctor(ctx, server, credentials="watcher:secret")
        ctx.report.equal("only an admin may", (refused.returncode, "admin" in refused.stderr, refused.stdout), (NOT_ASKED, True, ""))
        ctx.report.equal("it is only asked", api.post("/_settee/doctor", {}).status, 405)
        gone = subprocess.run([ctx.binary, "doctor", "http://127.0.0.1:1"], capture_output=True, text=True, timeout=60)
        ctx.report.equal("a server that is not there", (gone.returncode, "127.0.0.1:1" in gone.stderr), (NOT_ASKED, True))


def told_in_time(ctx, server):
    """Returns an answer that took little longer than the time for gathering.

    A busy machine may delay one, not three.
    """
    for _ in range(3):
        answer = told(ctx, server)
        if answer["took_ms"] < TOOK_MS_MAX:
            break
    ctx.report.check(f"by itself it takes less than {TOOK_MS_MAX} ms", answer["took_ms"] < TOOK_MS_MAX, answer["took_ms"])
    return answer


def test_many_databases(ctx):
    """An answer within its time, whatever there is."""
    count = ctx.size(500, 20_000)
    with ctx.server("many") as server:
        api = server.api()
        for n in range(count):
            api.expect(201, "PUT", f"/db{n}")
            if n % 50 == 0:
                api.expect(201, "PUT", f"/db{n}/_design/d", {"views": {"v": {"map": "function (doc) { emit(doc.n); }"}}})
        server.stop()
        server.restart()
        began = time.monotonic()
        answer = told_in_time(ctx, server)
        took = time.monotonic() - began
        ctx.report.check("all databases are counted", answer["databases"]["all"] >= count, answer["databases"])
        ctx.report.check("some are looked at", 0 < answer["databases"]["looked_at"] <= 400, answer["databases"])
        ctx.report.note(f"{count} databases: {took:.2f} s in all, {answer['took_ms']} ms in the server, {answer['databases']}")
        ctx.report.check("and nothing is wrong", answer["worst"] in ("ok", "note"), answer["findings"])


def test_many_designs(ctx):
    """Of more design documents than there is time for some are looked at, and the rest is told of."""
    views = lambda n: {"v": {"map": f"function (doc) {{ emit(doc.n, {n}); }}"}}
    with ctx.server("designs") as server:
        fill(server.api(), "db", ctx.size(1_000, 5_000), make=lambda n: {"_id": f"_design/{n:05}", "autoupdate": False, "views": views(n)})
        answer = told_in_time(ctx, server)
        ctx.report.check("the rest is told of", any("design documents of db " in what for what in answer["not_looked_at"]), answer["not_looked_at"])

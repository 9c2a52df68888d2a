"""Readers of one kilobyte a second: they slow nobody else, and their rows are not piled up in memory."""

import socket
import threading

import pytest

from harness.api import basic
from harness.server import wait_until

pytestmark = pytest.mark.may_be_retried

DOCUMENTS = 100_000
DOCUMENT_BYTES = 1000
BATCH = 1000
FEEDS = ["/slow/_changes?include_docs=true", "/slow/_all_docs?include_docs=true", "/slow/_changes?feed=continuous&include_docs=true&timeout=60000"]
BYTES_A_SECOND = 1024
# A whole answer is over 100 MB, so were the rows of even two of the slow answers held, it would show.
GROWTH_MB_MAX = 200


LIST_READERS = 540


def test_readers_of_lists(ctx):
    """Functions that wait for their readers have places and threads of their own number: everything else goes on."""
    with ctx.server("lists") as server:
        api = server.api(timeout=20)
        api.expect(201, "PUT", "/lists")
        long = "function(head, req) { var s = new Array(10000).join('x'); for (var i = 0; i < 10000; i++) send(s); }"
        api.expect(201, "PUT", "/lists/_design/d", {"views": {"v": {"map": "function(doc) {}"}}, "lists": {"long": long}})
        request = f"GET /lists/_design/d/_list/long/v HTTP/1.1\r\nHost: x\r\nAuthorization: {basic('admin:admin')}\r\n\r\n"
        readers = [socket.create_connection((api.host, api.port)) for _ in range(LIST_READERS)]
        for reader in readers:
            reader.sendall(request.encode())
        answers = [
            api.put("/lists/a", {}).status,
            api.put("/_node/_local/_config/log/level", "info").status,
            server.api(credentials="admin:wrong").get("/_all_dbs").status,
            api.get("/lists/_design/d/_view/v").status,
        ]
        ctx.report.equal(f"{LIST_READERS} readers of lists who take nothing stop nobody", answers, [201, 200, 401, 200])
        for reader in readers:
            reader.close()
        short = {"lists": {"short": "function(head, req) { send('short'); }"}, "views": {"v": {"map": "function(doc) {}"}}}
        api.expect(201, "PUT", "/lists/_design/e", short)
        ctx.report.equal("and when they are gone, lists go on", api.get("/lists/_design/e/_list/short/v").raw, b"short")
        ctx.report.check("no panic", "panicked" not in server.log())


def make_users(api, names):
    """Users, each a member of a database of the same name. Answers the credentials."""
    for name in names:
        user = {"name": name, "password": name, "roles": [], "type": "user"}
        api.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", user)
        api.expect(201, "PUT", f"/{name}")
        api.expect(200, "PUT", f"/{name}/_security", {"admins": {"names": []}, "members": {"names": names}})
    return {name: f"{name}:{name}" for name in names}


def held(api, count, path, credentials):
    """Requests that are sent, and whose answers nobody takes."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(credentials)}\r\n\r\n"
    readers = [socket.create_connection((api.host, api.port)) for _ in range(count)]
    for reader in readers:
        reader.sendall(request.encode())
    return readers


def test_feeds_are_shared(ctx):
    """A user, or a database, never has all feeds."""
    feeds_max = 40
    with ctx.server("feeds", options=["--set", f"limits/max_open_feeds={feeds_max}"]) as server:
        api = server.api()
        names = ["one", "two", "three"]
        credentials = make_users(api, names)
        feeds = lambda: api.get("/_node/_local/_system").json["open_feeds"]
        live = "_changes?feed=continuous&heartbeat=60000"
        readers = held(api, feeds_max, f"/one/{live}", credentials["one"])
        ctx.report.check("a user gets feeds", wait_until(lambda: feeds() == feeds_max // 2), feeds())
        once = "_changes?feed=longpoll&timeout=1"
        for user in ("two", "three"):
            other = server.api(credentials=credentials[user])
            ctx.report.equal(
                f"{user} gets one of that database, and of another", [other.get(f"/{db}/{once}").status for db in ("one", "two")], [200, 200]
            )
        ctx.report.equal("an admin gets one", api.get(f"/one/{once}").status, 200)
        refused = server.api(credentials=credentials["one"]).get(f"/two/{once}")
        ctx.report.equal("who has too many is told why", (refused.status, "max_open_feeds (40)" in refused.json["reason"]), (503, True))
        readers += held(api, feeds_max, f"/one/{live}", "admin:admin")
        ctx.report.check("an admin gets more", wait_until(lambda: feeds() > feeds_max * 3 // 4), feeds())
        ctx.report.equal("but not those of other databases", server.api(credentials=credentials["two"]).get(f"/two/{once}").status, 200)
        for reader in readers:
            reader.close()
        ctx.report.check("all are given back", wait_until(lambda: feeds() == 0), feeds())


def test_lists_are_shared(ctx):
    """Users whose clients take nothing, in several databases each, leave lists to others."""
    with ctx.server("lists", options=["--set", "functions/queue_time_limit_ms=1000"]) as server:
        api = server.api(timeout=30)
        names = ["one", "two", "three", "four", "calm"]
        credentials = make_users(api, names)
        long = "function(head, req) { var s = new Array(10000).join('x'); for (var i = 0; i < 10000; i++) send(s); }"
        lists = {"long": long, "short": "function(head, req) { send('short'); }"}
        for name in names:
            api.expect(201, "PUT", f"/{name}/_design/d", {"views": {"v": {"map": "function(doc) {}"}}, "lists": lists})
        short = lambda db: server.api(timeout=30, credentials=credentials["calm"]).get(f"/{db}/_design/d/_list/short/v").status
        for what, who, databases in (
            ("one user in one database", lambda db: "one", names[:1]),
            ("one user in four databases", lambda db: "one", names[:4]),
            ("four users", lambda db: db, names[:4]),
        ):
            readers = []
            for db in databases:
                readers += held(api, 12, f"/{db}/_design/d/_list/long/v", credentials[who(db)])
            # Those that got a place send until nobody takes more; the others are refused.
            all_answered = wait_until(lambda held=readers: all(has_bytes(reader) for reader in held))
            ctx.report.check(f"{what} get places, or are refused", all_answered)
            ctx.report.equal(f"{what} leave lists to others", short("calm"), 200)
            ctx.report.equal(f"{what} leave lists of a database to its other users", short("one"), 200)
            for reader in readers:
                reader.close()
            ctx.report.check("and give them back", wait_until(lambda: short("one") == 200))


def has_bytes(reader):
    reader.setblocking(False)
    try:
        return len(reader.recv(1, socket.MSG_PEEK)) > 0
    except BlockingIOError:
        return False


def test_many_at_once(ctx):
    readers_wanted = ctx.size(6, 60)
    with ctx.server() as server:
        api = server.api()
        fill(api)
        sockets_before = server.open_sockets()
        resident = {"before": server.rss_mb()}
        readers = [SlowReader(server, FEEDS[at % len(FEEDS)]) for at in range(readers_wanted)]
        for reader in readers:
            reader.start()
        started = wait_until(lambda: all(reader.received > 2 * BYTES_A_SECOND for reader in readers), 60)
        ctx.report.check(f"{readers_wanted} slow readers are being served", started, [reader.received for reader in readers])
        others_are_served(ctx, api)
        resident["with slow readers"] = server.rss_mb()
        ctx.report.check("the slow readers are still connected", all(reader.is_alive() for reader in readers))
        whole_lists_are_right(ctx, api)
        resident["after whole lists beside them"] = server.rss_mb()
        a_deleted_database_is_gone(ctx, server)
        ctx.report.note("resident MB: " + ", ".join(f"{when} {mb:.0f}" for when, mb in resident.items()))
        growth = max(resident.values()) - resident["before"]
        ctx.report.check(f"memory grows by less than {GROWTH_MB_MAX} MB", growth < GROWTH_MB_MAX, f"{growth:.0f} MB")
        for reader in readers:
            reader.end()
        api.close()
        ctx.report.check(
            "their connections are closed when they go",
            wait_until(lambda: server.open_sockets() <= sockets_before, 60),
            f"{sockets_before} sockets before, {server.open_sockets()} after",
        )
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def fill(api):
    api.expect((201, 202), "PUT", "/slow")
    pad = "x" * (DOCUMENT_BYTES - 60)
    for first in range(0, DOCUMENTS, BATCH):
        docs = [{"_id": f"doc-{number:06d}", "number": number, "pad": pad} for number in range(first, first + BATCH)]
        api.expect(201, "POST", "/slow/_bulk_docs", {"docs": docs})


class SlowReader(threading.Thread):
    """Takes a kilobyte, waits a second, and so on, with a small receive buffer."""

    def __init__(self, server, path):
        super().__init__(daemon=True)
        host, port = server.url.removeprefix("http://").split(":")
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.connection.connect((host, int(port)))
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {basic(server.admin)}\r\n\r\n"
        self.connection.sendall(request.encode())
        self.received = 0
        self.ended = threading.Event()

    def run(self):
        try:
            while not self.ended.is_set():
                got = len(self.connection.recv(BYTES_A_SECOND))
                if not got:
                    return
                self.received += got
                self.ended.wait(got / BYTES_A_SECOND)
        except OSError:
            pass

    def end(self):
        self.ended.set()
        self.connection.close()


def others_are_served(ctx, api):
    wrong = []
    for number in range(0, DOCUMENTS, DOCUMENTS // 300):
        answer = api.get(f"/slow/doc-{number:06d}")
        if answer.status != 200 or answer.json["number"] != number:
            wrong.append(repr(answer))
    ctx.report.check("reads beside them are right", not wrong, "\n".join(wrong[:3]))
    statuses = {api.put(f"/slow/new-{number:03d}", {"number": number}).status for number in range(200)}
    ctx.report.equal("writes beside them are taken", statuses, {201})


def whole_lists_are_right(ctx, api):
    rows = api.expect(200, "GET", "/slow/_all_docs")
    expected = [f"doc-{number:06d}" for number in range(DOCUMENTS)] + [f"new-{number:03d}" for number in range(200)]
    ctx.report.check(
        "a whole _all_docs beside them is right", [row["id"] for row in rows["rows"]] == expected and rows["total_rows"] == len(expected)
    )
    feed = api.expect(200, "GET", "/slow/_changes?include_docs=true")["results"]
    ctx.report.check("a whole _changes beside them is right", sorted(row["id"] for row in feed) == expected)


def a_deleted_database_is_gone(ctx, server):
    """Deleting the database ends nothing but its own feeds."""
    api = server.api()
    ctx.report.check("the database can be deleted under its readers", api.delete("/slow").status in (200, 202))
    ctx.report.equal("and is gone for everybody else", api.get("/slow").status, 404)
    api.expect((201, 202), "PUT", "/other")
    ctx.report.equal("other databases go on", api.put("/other/a", {}).status, 201)

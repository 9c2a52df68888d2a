"""Clients that hang up: what they began is done whole or not at all, and what they asked for is not piled up for them."""

import json
import socket
import time

from harness.api import basic
from harness.server import wait_until

DOCUMENT_BYTES = 1_000_000
COPIES = 300
GROWTH_MB_MAX = 100
SAME_MIN = 5


def test_creations(ctx):
    """A database whose creator has gone is there, before and after a restart alike."""
    with ctx.server("creations") as server:
        api = server.api()
        at_rest = sockets_at_rest(server, api)
        names = [f"made-{n}" for n in range(ctx.size(20, 200))]
        for n, name in enumerate(names):
            leave(server, "PUT", f"/{name}", after_s=n % 10 * 0.01)
        before = everything_is_done(server, api, at_rest, lambda: {name: api.get(f"/{name}").status for name in names})
        ctx.report.check("some were made", 200 in before.values(), before)
        api.close()
        server.kill()
        server.restart()
        after = {name: server.api().get(f"/{name}").status for name in names}
        ctx.report.equal("the same databases after kill -9", after, before)


def sockets_at_rest(server, api):
    """Those of a server that only the test is connected to."""
    api.expect(200, "GET", "/")
    return server.open_sockets()


def everything_is_done(server, api, at_rest, seen):
    """Waits until nothing is under way of what clients left. Returns what `seen()` returns then.

    Work may go on without its connection. So what is seen has to stay the same while several other
    writes are done, which wait for the same disk.
    """
    if not wait_until(lambda: server.open_sockets() <= at_rest):
        raise AssertionError(f"{server.open_sockets()} sockets are open, not {at_rest}")
    last, same, number = seen(), 0, 0
    while same < SAME_MIN:
        number += 1
        api.expect(201, "PUT", f"/last-{number}")
        now = seen()
        last, same = now, same + 1 if now == last else 0
    return last


def test_deletions(ctx):
    """Feeds of a database end when it is deleted, also when its deleter has gone."""
    with ctx.server("deletions") as server:
        api, feeds = server.api(), {}
        at_rest = sockets_at_rest(server, api)
        for n in range(ctx.size(10, 100)):
            name = f"/gone-{n}"
            api.expect(201, "PUT", name)
            feeds[name] = request(server, "GET", f"{name}/_changes?feed=continuous&heartbeat=60000")
            feeds[name].settimeout(60)
            feeds[name].recv(1)
            leave(server, "DELETE", name, after_s=soon_s(n))
        # A request may have been dropped before it began.
        dropped = everything_is_done(server, api, at_rest + len(feeds), lambda: {name for name in feeds if api.get(name).status == 200})
        ctx.report.check("some were deleted", len(dropped) < len(feeds), dropped)
        for name, feed in feeds.items():
            if name in dropped:
                feed.close()
            elif not ctx.report.check(f"the feed of {name} ends", ends(feed)):
                return


def test_properties(ctx):
    """What the running server says of a database is what a restart says."""
    with ctx.server("properties") as server:
        api = server.api()
        at_rest = sockets_at_rest(server, api)
        api.expect(201, "PUT", "/db")
        properties = lambda: [api.expect(200, "GET", f"/db/{name}") for name in ("_security", "_revs_limit")]
        before = properties()
        for n in range(ctx.size(20, 200)):
            leave(server, "PUT", "/db/_security", json.dumps({"n": n}), soon_s(n))
            leave(server, "PUT", "/db/_revs_limit", str(100 + n), soon_s(n))
        seen = everything_is_done(server, api, at_rest, properties)
        ctx.report.check("some were set", seen != before, seen)
        api.close()
        server.kill()
        server.restart()
        again = [server.api().expect(200, "GET", f"/db/{name}") for name in ("_security", "_revs_limit")]
        ctx.report.equal("security and limit after kill -9", again, seen)


def test_listings_of_a_deleted_database(ctx):
    """Listings that begin while their database goes end, each with an answer."""
    with ctx.server("listings") as server:
        api = server.api()
        body = json.dumps({"keys": ["a"]})
        for round_ in range(ctx.size(10, 100)):
            name = f"/going-{round_}"
            api.expect(201, "PUT", name)
            api.expect(201, "PUT", f"{name}/a", {})
            waiting = [request(server, "POST", f"{name}/_all_docs", body, all_but=1) for _ in range(12)]
            deleter = request(server, "DELETE", name)
            for client in waiting:
                client.sendall(body[-1:].encode())
            answered = [answers(client) for client in [deleter, *waiting]]
            if not all(answered):
                ctx.report.check(f"every listing is answered in round {round_}", False, answered)
                return
        ctx.report.check("every listing is answered", True)
        ctx.report.equal("the server goes on", api.get("/").status, 200)


def test_a_held_database(ctx):
    """Nothing spins on a deleted database that a slow client still holds."""
    with ctx.server("held") as server:
        api = server.api()
        api.expect(201, "PUT", "/held")
        api.expect(201, "PUT", "/held/_design/d", {"views": {"v": {"map": "function (doc) { emit(1); }"}}})
        upload = request(server, "PUT", "/held/doc/file", "x" * 100, all_but=50)
        api.expect(201, "PUT", "/held/a", {})
        api.expect(200, "DELETE", "/held")
        watched_s = ctx.size(1, 2)
        time.sleep(watched_s)
        began = server.cpu_seconds()
        time.sleep(watched_s)
        used = server.cpu_seconds() - began
        ctx.report.check("the server rests", used < watched_s / 2, f"{used:.2f} s of CPU in {watched_s} s")
        upload.close()


def test_unread_multipart(ctx):
    """A long answer is made as the client takes it."""
    with ctx.server("multipart") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/db/big", {"pad": "x" * DOCUMENT_BYTES})
        body = json.dumps({"docs": [{"id": "big"}] * COPIES})
        before = server.rss_mb()
        client = request(server, "POST", "/db/_bulk_get", body, accept="multipart/mixed")
        time.sleep(ctx.size(1, 2))
        growth = server.rss_mb() - before
        ctx.report.check(f"memory grows by less than {GROWTH_MB_MAX} MB", growth < GROWTH_MB_MAX, f"{growth:.0f} MB")
        received = b""
        client.settimeout(60)
        tail = b""
        while True:
            piece = client.recv(1 << 20)
            if not piece:
                break
            received = (received or piece)[:4096]
            tail = (tail + piece)[-64:]
            if tail.endswith(b"\r\n0\r\n\r\n"):
                break
        ctx.report.check("and is whole at last", received.startswith(b"HTTP/1.1 200") and b'--"' not in tail and b"--\r\n" in tail, tail)
        client.close()


def request(server, method, path, body="", all_but=0, accept="*/*"):
    """Sends a request, but for the last bytes of its body, and answers the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: settee\r\nAuthorization: {basic(server.admin)}\r\nAccept: {accept}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    client.sendall((head + body[: len(body) - all_but]).encode())
    return client


def soon_s(number):
    """At once, within the work of most requests, or after it on most machines."""
    return (number % 5) ** 3 * 0.001


def leave(server, method, path, body="", after_s=0):
    client = request(server, method, path, body)
    time.sleep(after_s)
    client.close()


def answers(client):
    client.settimeout(30)
    try:
        return client.recv(4096).startswith(b"HTTP/1.1 ")
    except TimeoutError:
        return False
    finally:
        client.close()


def ends(feed):
    """Whether the server ends the answer."""
    received = b""
    try:
        while True:
            piece = feed.recv(4096)
            received = (received + piece)[-16:]
            if not piece or received.endswith(b"0\r\n\r\n"):
                return True
    except TimeoutError:
        return False
    finally:
        feed.close()

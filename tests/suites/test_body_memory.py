"""Memory for the bodies of requests: one user leaves room to others, and what can never fit is refused."""

import gzip
import http.client
import json
import socket

import pytest

from harness.api import basic
from harness.files import MIB
from harness.server import wait_until
from harness.unread import pad

BODIES = 16 * MIB
# The part of one user, and of a server admin.
USER_MAX, ADMIN_MAX = BODIES // 4, BODIES // 2
HOSTILE = 24
# [couchdb] max_document_size
DOCUMENT_MAX = 8_000_000


class Begun:
    """A request whose head was sent and some of its body: it holds the room for all of it."""

    def __init__(self, server, method, path, length, credentials=None, headers=(), address=None, some=b"{"):
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60, source_address=(address, 0) if address else None)
        login = [f"Authorization: {basic(credentials)}"] if credentials else []
        sized = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", sized, *login, *headers]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        if some:
            self.send(some, chunked=length is None)

    def send(self, data, chunked=False):
        self.socket.sendall(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)

    def answer(self):
        """Status and JSON of the answer, whether or not the body was sent."""
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        return response.status, json.loads(response.read())

    def close(self):
        self.socket.close()


def bodies(server):
    api = server.api()
    part = api.expect(200, "GET", "/_node/_local/_system")["memory"]["budgets"]["bodies"]
    api.close()
    return part


def user(api, name):
    api.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "password": "pw", "roles": [], "type": "user"})
    return f"{name}:pw"


def limited(ctx):
    return ctx.server(options=["--set", f"memory/bodies={BODIES}", "--set", f"memory/limit={1024 * MIB}"])


def open_to_all(api, db):
    api.expect((201, 202), "PUT", f"/{db}?q=1")
    api.expect(200, "PUT", f"/{db}/_security", {"admins": {"names": [], "roles": []}, "members": {"names": [], "roles": []}})


KINDS = {
    "long documents": ("PUT", "/db/h{}", 3 * MIB // 2, ()),
    "short bodies": ("POST", "/db/_bulk_docs", 900 << 10, ()),
    "gzipped bodies": ("POST", "/db/_bulk_docs", 900 << 10, ("Content-Encoding: gzip",)),
    "attachments": ("PUT", "/db/h{}/file", 3 * MIB // 2, ()),
}


def ordinary(api, number):
    """What others write meanwhile, of each kind."""
    text = "x" * (3 * MIB // 2)
    docs = {"docs": [{"text": "y" * 1000} for _ in range(800)]}
    packed = gzip.compress(json.dumps({"docs": [{"text": f"{n} " * 100} for n in range(800)]}).encode())
    json_type = {"Content-Type": "application/json"}
    return {
        "a long document": api.put(f"/db/o{number}", {"text": text}).status,
        "a bulk": api.post("/db/_bulk_docs", docs).status,
        "a gzipped bulk": api.post("/db/_bulk_docs", packed, headers={**json_type, "Content-Encoding": "gzip"}).status,
        "an attachment": api.put(f"/db/a{number}/file", text.encode(), headers={"Content-Type": "image/png"}).status,
    }


@pytest.mark.parametrize("by", ["users", "addresses"])
def test_one_client_leaves_room_to_others(ctx, by):
    """Many bodies that one client has begun take its share; those of others are read meanwhile."""
    with limited(ctx) as server:
        api = server.api()
        open_to_all(api, "db")
        is_user = by == "users"
        hostile, other = (user(api, "hostile"), user(api, "other")) if is_user else (None, None)
        address = None if is_user else "127.0.0.2"
        for at, (kind, (method, path, length, headers)) in enumerate(KINDS.items()):
            held = [Begun(server, method, path.format(f"{at}-{n}"), length, hostile, headers, address) for n in range(HOSTILE)]
            taken = wait_until(lambda: bodies(server)["used"] > 0, 20)
            ctx.report.check(f"{kind}: some room is held", taken, bodies(server))
            own = server.api(credentials=other)
            statuses = ordinary(own, at)
            ctx.report.equal(f"{kind}: another client writes", statuses, dict.fromkeys(statuses, 201))
            own.close()
            admin = ordinary(api, f"{at}-admin")
            ctx.report.equal(f"{kind}: and so does an admin", admin, dict.fromkeys(admin, 201))
            part = bodies(server)
            ctx.report.check(f"{kind}: the share of one is at most half of each part", part["used"] <= part["budget"] // 2, part)
            for body in held:
                body.close()
            gone = wait_until(lambda: bodies(server)["used"] == 0, 30)
            ctx.report.check(f"{kind}: nothing is held when they are gone", gone, bodies(server))
        part = bodies(server)
        ctx.report.check("the peak is within the budget", part["peak"] <= part["budget"], part)
        api.close()


def test_what_can_never_fit_is_refused(ctx):
    """A body that is longer than the part of one user is a 413, by its stated length or once it has come, also while others hold their parts."""
    with limited(ctx) as server:
        api = server.api()
        open_to_all(api, "db")
        hostile, other = user(api, "hostile"), user(api, "other")
        held = [Begun(server, "PUT", f"/db/h{n}", 3 * MIB // 2, hostile) for n in range(HOSTILE)]
        wait_until(lambda: bodies(server)["used"] > 0, 20)
        refused(ctx, "an admin: by its length, before it is sent", Begun(server, "PUT", "/db/x", ADMIN_MAX + 1, server.admin, some=None))
        never_fits(ctx, server, "a user", other, USER_MAX)
        for body in held:
            body.close()
        wait_until(lambda: bodies(server)["used"] == 0, 30)
        never_fits(ctx, server, "an admin", server.admin, ADMIN_MAX)
        part = bodies(server)
        ctx.report.check("the peak is within the budget", part["peak"] <= part["budget"], part)
        api.close()


def never_fits(ctx, server, who, credentials, most):
    refused(ctx, f"{who}: by its length, before it is sent", Begun(server, "PUT", "/db/stated", most + 1, credentials, some=None))
    comes = Begun(server, "PUT", "/db/comes", None, credentials, some=b'{"text":"')
    try:
        for _ in range(most // 65536 + 1):
            comes.send(b"x" * 65536, chunked=True)
    except OSError:
        pass  # the server takes no more of it
    refused(ctx, f"{who}: as it comes", comes)
    swells = gzip.compress(json.dumps({"text": pad(most + MIB)}).encode())
    own = server.api(credentials=credentials)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = own.put("/db/swells", swells, headers=headers)
    ctx.report.check(f"{who}: as it inflates", is_refusal(answer.status, answer.json), answer)
    fits = own.put(f"/db/fits-{most}", {"text": "x" * (min(most, DOCUMENT_MAX) - (64 << 10))})
    ctx.report.equal(f"{who}: what fits is stored", fits.status, 201)
    own.close()


def is_refusal(status, answer):
    return status == 413 and answer["error"] == "too_large" and "[memory] bodies" in answer["reason"]


def refused(ctx, name, body):
    status, answer = body.answer()
    ctx.report.check(name, is_refusal(status, answer), (status, answer))
    body.close()


def test_many_bodies_take_the_budget(ctx):
    """Bodies of one user that inflate and grow, of unknown length and never ended, take less than the budget of bodies."""
    clients = ctx.size(60, 300)
    with limited(ctx) as server:
        api = server.api()
        open_to_all(api, "db")
        hostile = user(api, "hostile")
        packed = gzip.compress(json.dumps({"docs": [{"text": pad(3 * MIB)}]}).encode())
        begun = [Begun(server, "POST", "/db/_bulk_docs", 1000, hostile) for _ in range(clients)]
        before = server.rss_mb()
        for body in begun:
            body.close()
        held = [Begun(server, "POST", "/db/_bulk_docs", None, hostile, ("Content-Encoding: gzip",), some=packed[:-9]) for _ in range(clients)]
        peak = [0]

        def is_steady():
            part = bodies(server)
            peak[0] = max(peak[0], server.rss_mb() - before)
            return part["used"] > MIB

        wait_until(is_steady, 30)
        own = server.api(credentials=user(api, "other"))
        statuses = ordinary(own, 0)
        ctx.report.equal("another user writes meanwhile", statuses, dict.fromkeys(statuses, 201))
        part = bodies(server)
        ctx.report.note(
            f"{clients} bodies that inflate to {clients * 3} MB: {server.rss_mb() - before:.0f} MB more, budget {part['budget'] / MIB:.0f} MB"
        )
        ctx.report.check("what they hold is within the budget", part["peak"] <= part["budget"], part)
        grown = server.rss_mb() - before
        ctx.report.check("and so is the memory of the process", grown * MIB < 1.3 * part["budget"] + clients * (256 << 10), f"{grown:.0f} MB")
        for body in held:
            body.close()
        own.close()
        api.close()


def test_values_take_room_by_their_number(ctx):
    """A short body of many short arrays or objects takes much more memory than its length, unless it stays a text."""
    with limited(ctx) as server:
        api = server.api()
        open_to_all(api, "db")
        for name, value in (("arrays", "[0]"), ("objects", '{"a":1}')):
            many, too_many = ('{%s,"unknown":[' + f"{value}," * n + "0]}" for n in (8_000, 80_000))
            for path, member in (
                ("_bulk_get", '"docs":[]'),
                ("_all_docs", '"keys":[]'),
                ("_changes?filter=_doc_ids", '"doc_ids":[]'),
                ("_revs_diff", '"a":[]'),
            ):
                refused = api.post(f"/db/{path}", (too_many % member).encode(), headers={"Content-Type": "application/json"})
                ctx.report.equal(f"{name} in {path}: too many", (refused.status, refused.json["error"]), (413, "too_large"))
                ctx.report.check(f"{name} in {path}: the budget is named", "[memory] bodies" in refused.json["reason"], refused.json)
                answer = api.post(f"/db/{path}", (many % member).encode(), headers={"Content-Type": "application/json"})
                ctx.report.check(f"{name} in {path}: many", answer.status in (200, 400), answer)
            document = json.dumps({"list": json.loads("[" + f"{value}," * 80_000 + "0]")}).encode()
            ctx.report.equal(f"{name} in a document", api.put(f"/db/{name}", document).status, 201)
        part = bodies(server)
        ctx.report.check("their memory is shown", part["peak"] > 3 * MIB, part)
        ctx.report.equal("and nothing is held afterwards", part["used"], 0)
        api.close()

"""What answers take of memory until they end: long ones, and what they were requested with."""

import base64
import concurrent.futures
import gc
import json
import subprocess
import threading
import time

from harness.api import basic
from harness.files import MIB
from harness.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, UnreadStreams, frame, header
from harness.server import wait_until
from harness.unread import Unread, pad

LEAF_BYTES = MIB
READERS = 6
MULTIPART = ("Accept: multipart/mixed",)
JSON = {"Accept": "application/json"}
# What the allocator gives out beyond what the table of budgets says.
BEYOND = 1.3


def memory_of(server):
    return system(server)["memory"]


def used(server, name):
    return memory_of(server)["budgets"][name]["used"]


def settled(server):
    """Memory once nothing of it changes any more."""
    seen = []

    def is_settled():
        seen.append(memory_of(server)["allocated"])
        return len(seen) > 2 and max(seen[-3:]) - min(seen[-3:]) < 64 << 10

    wait_until(is_settled, 20)
    return memory_of(server)


def system(server):
    api = server.api()
    answer = api.expect(200, "GET", "/_node/_local/_system")
    api.close()
    return answer


def write_leaves(api, db, leaves, history=3):
    """A document `x` with long leaves, a document `y` with short ones; `leaves` of each."""
    api.expect((201, 202), "PUT", f"/{db}?q=2")
    for first in range(0, leaves, 10):
        docs = [
            {"_id": doc_id, "_revisions": {"start": history, "ids": [f"{generation:016x}{leaf:016x}" for generation in range(history)]}, "a": text}
            for leaf in range(first, min(leaves, first + 10))
            for doc_id, text in (("x", pad(LEAF_BYTES, leaf)), ("y", f"short {leaf}"))
        ]
        api.expect(201, "POST", f"/{db}/_bulk_docs", {"new_edits": False, "docs": docs})


def forms(db):
    """Each way to ask for all leaves: method, path, body and headers."""
    docs = {"docs": [{"id": "y"}, {"id": "x"}, {"id": "missing"}, {"id": "y"}]}
    return {
        "open_revs": ("GET", f"/{db}/x?open_revs=all&revs=true", None, ("Accept: application/json",)),
        "open_revs with attachments": ("GET", f"/{db}/x?open_revs=all&revs=true&attachments=true", None, ("Accept: application/json",)),
        "open_revs as multipart": ("GET", f"/{db}/x?open_revs=all&revs=true", None, MULTIPART),
        "_bulk_get": ("POST", f"/{db}/_bulk_get?revs=true", docs, ("Accept: application/json",)),
        "_bulk_get with attachments": ("POST", f"/{db}/_bulk_get?revs=true&attachments=true", docs, ("Accept: application/json",)),
        "_bulk_get as multipart": ("POST", f"/{db}/_bulk_get?revs=true", docs, MULTIPART),
    }


def test_unread_leaves_take_one_leaf_each(ctx):
    """However many leaves a document has, an answer with all of them has about one in memory."""
    leaves = ctx.size(30, 150)
    with ctx.server(options=["--set", f"rocksdb/block_cache_size={8 * MIB}"]) as server:
        api = server.api()
        write_leaves(api, "leaves", leaves)
        for name, (method, path, body, headers) in forms("leaves").items():
            before = settled(server)
            readers = [Unread(server, method, path, body, headers=headers) for _ in range(READERS)]
            after = settled(server)
            ctx.report.equal(f"{name}: all are answered", {reader.status for reader in readers}, {200})
            grown = (after["allocated"] - before["allocated"]) / LEAF_BYTES
            ctx.report.check(f"{name}: {READERS} unread answers take {grown:.1f} leaves of {READERS * leaves}", grown < 3 * READERS, grown)
            for reader in readers:
                reader.close()
        gone = wait_until(lambda: used(server, "answers") == 0, 20)
        ctx.report.check("nothing is counted when they are gone", gone, memory_of(server)["budgets"])
        api.close()


def read(api, path):
    """A JSON answer: who takes multipart is given that."""
    answer = api.get(path, headers=JSON)
    assert answer.status == 200, answer
    return answer.json


def documents_of(answer):
    """(id, rev, document) of all documents of a JSON answer, the missing ones too."""
    if isinstance(answer, list):
        answer = {"results": [{"id": "x", "docs": answer}]}
    for result in answer["results"]:
        for found in result["docs"]:
            doc = found.get("ok")
            yield (result["id"], doc["_rev"] if doc else None, doc or found)


def parts_of(answer):
    """The parts of a multipart answer as JSON, those within parts too."""
    kind = answer.headers["Content-Type"]
    boundary = kind.split('boundary="')[1].split('"')[0].encode()
    for part in answer.raw.split(b"--" + boundary)[1:-1]:
        head, body = part.strip(b"\r\n").split(b"\r\n\r\n", 1)
        if b"multipart/related" in head:
            inner = head.split(b'boundary="')[1].split(b'"')[0]
            body = body.split(b"--" + inner)[1].strip(b"\r\n").split(b"\r\n\r\n", 1)[1]
        yield json.loads(body)


def test_long_answers_are_whole(ctx):
    """What is made leaf by leaf is what the leaves are, in their order, with missing ones where they were asked for."""
    leaves = ctx.size(8, 40)
    with ctx.server() as server:
        api = server.api()
        write_leaves(api, "leaves", leaves)
        attached = {"file": {"content_type": "application/octet-stream", "data": base64.b64encode(b"bytes" * 40_000).decode()}}
        with_file = {"_id": "x", "_rev": "9-f", "a": "with a file", "_attachments": attached}
        api.expect(201, "POST", "/leaves/_bulk_docs", {"new_edits": False, "docs": [with_file]})
        one_by_one = {}
        revs = read(api, "/leaves/x?conflicts=true")
        revs = [revs["_rev"], *revs["_conflicts"]]
        for rev in revs:
            one_by_one[rev] = read(api, f"/leaves/x?rev={rev}&revs=true&attachments=true")
        stubs = {rev: read(api, f"/leaves/x?rev={rev}&revs=true") for rev in revs}
        for name, (method, path, body, headers) in forms("leaves").items():
            answer = api.request(method, path, body, headers=dict(header.split(": ") for header in headers))
            ctx.report.equal(f"{name}: status", answer.status, 200)
            in_order = revs if "_bulk_get" in name else sorted(revs)
            if "multipart" in name:
                found = [part for part in parts_of(answer) if part.get("_id") == "x"]
                texts = [(part["_rev"], part["a"], part["_revisions"]) for part in found]
                wanted = [(rev, stubs[rev]["a"], stubs[rev]["_revisions"]) for rev in in_order]
                ctx.report.check(f"{name}: every leaf is there", texts == wanted, [rev for rev, _, _ in texts])
                ctx.report.equal(f"{name}: with its bytes once", answer.raw.count(b"bytes" * 40_000), 1)
                continue
            found = list(documents_of(answer.json))
            wanted = one_by_one if "attachments" in name else stubs
            of_x = [(rev, doc) for doc_id, rev, doc in found if doc_id == "x"]
            ctx.report.check(f"{name}: every leaf is there", of_x == [(rev, wanted[rev]) for rev in in_order], [rev for rev, _ in of_x])
            if "_bulk_get" in name:
                ids = [doc_id for doc_id, _, _ in found]
                ctx.report.equal(f"{name}: in their order", ids, ["y"] * leaves + ["x"] * len(revs) + ["missing"] + ["y"] * leaves)
        some = [revs[2], "7-none", revs[0], revs[2], revs[4]]
        listed = read(api, f"/leaves/x?open_revs={json.dumps(some, separators=(',', ':'))}")
        shown = [entry["ok"]["_rev"] if "ok" in entry else entry["missing"] for entry in listed]
        ctx.report.equal("revisions that are named come once, with those that are missing", shown, sorted(set(some)))
        latest = read(api, f'/leaves/x?latest=true&open_revs=["{revs[3]}","1-none"]')
        ctx.report.equal("and the latest of them", [next(iter(entry)) for entry in latest], ["missing", "ok"])
        api.close()


def test_a_wide_document_is_whole(ctx):
    """A document with more leaves than are kept in memory between two pieces."""
    leaves = ctx.size(3000, 10_000)
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/wide?q=1")
        docs = [{"_id": "x", "_rev": f"1-{leaf:032x}", "a": f"{leaf} " + "z" * 200} for leaf in range(leaves)]
        api.expect(201, "POST", "/wide/_bulk_docs", {"new_edits": False, "docs": docs})
        found = read(api, "/wide/x?open_revs=all&revs=true")
        expected = [f"1-{leaf:032x}" for leaf in range(leaves)]
        ctx.report.check("every leaf is there, in its order", [entry["ok"]["_rev"] for entry in found] == expected, len(found))
        rows = api.expect(200, "POST", "/wide/_bulk_get", {"docs": [{"id": "x"}]})["results"]
        ctx.report.check("also by _bulk_get", [entry["ok"]["_rev"] for entry in rows[0]["docs"]] == expected[::-1], len(rows[0]["docs"]))
        api.close()


def member(api, db, name="mallory"):
    """A database of a member; answers the member's credentials."""
    api.expect((201, 409), "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "password": "pw", "roles": [], "type": "user"})
    api.expect((201, 202), "PUT", f"/{db}?q=2")
    api.expect(200, "PUT", f"/{db}/_security", {"admins": {"names": [name]}, "members": {"names": [name]}})
    return f"{name}:pw"


DESIGN = {
    "views": {"v": {"map": "function (doc) { emit('k', doc.a); }"}},
    "filters": {"f": "function (doc, req) { return true; }"},
}


def kinds(scale):
    """What an answer can be requested with, by name: path and body of a POST. `scale` 0 is as little as there is."""
    count = max(2, int(60_000 * scale))
    ids = [f"{number * 2654435761 % 2**32:08x}" for number in range(count)]
    feed = "/held/_changes?feed=continuous&heartbeat=60000"
    return {
        "selector of one text": (f"{feed}&filter=_selector", {"selector": {"a": pad(int(2 * MIB * scale) or 1)}}),
        "selector of many values": (f"{feed}&filter=_selector", {"selector": {"a": {"$in": ids}}}),
        "selector of many conditions": (f"{feed}&filter=_selector", {"selector": {"$or": [{"a": text} for text in ids[: count // 12 + 1]]}}),
        "ids": (f"{feed}&filter=_doc_ids", {"doc_ids": ids}),
        "a function's request": (f"{feed}&filter=d/f", {"a": pad(int(2 * MIB * scale) or 1)}),
        "keys of _all_docs": ("/held/_all_docs?include_docs=true", {"keys": ["x"] * 400 + ids}),
        "queries of _all_docs": ("/held/_all_docs/queries", {"queries": [{"keys": ["x"] * 4000 + ids}, {"keys": ids}]}),
        "keys of a view": ("/held/_design/d/_view/v?include_docs=true", {"keys": ["k"] * 400 + ids}),
        "queries of a view": ("/held/_design/d/_view/v/queries", {"queries": [{"keys": ["k"] * 4000 + ids}, {"keys": ids}]}),
        "_bulk_get": ("/held/_bulk_get", {"docs": [{"id": "x"}] * 400 + [{"id": text} for text in ids]}),
        "_find": ("/held/_find", {"selector": {"_id": {"$in": ["x", *ids]}, "a": {"$in": [*range(1000), pad(2000)]}}, "limit": 1000}),
    }


def open_all(server, credentials, scale, each):
    """So many unread requests of each kind; answers them by name."""
    return {name: [Unread(server, "POST", path, body, credentials) for _ in range(each)] for name, (path, body) in kinds(scale).items()}


def close_all(requests):
    for of_kind in requests.values():
        for request in of_kind:
            request.close()


def fill_held(api):
    credentials = member(api, "held")
    api.expect(201, "PUT", "/held/_design/d", DESIGN)
    api.expect(201, "PUT", "/held/x", {"a": pad(2000)})
    api.expect(200, "GET", "/held/_design/d/_view/v")
    return credentials


def test_the_table_says_what_answers_take(ctx):
    """Unread answers of all kinds, requested with much: what the allocator gave out is in the table of budgets."""
    each = ctx.size(2, 6)
    with ctx.server(options=["--set", f"memory/answers={512 * MIB}", "--set", f"memory/limit={4096 * MIB}"]) as server:
        api = server.api()
        credentials = fill_held(api)
        # Workers, caches and threads are there from now on. What connections and streams take whatever they hold is the slack.
        close_all(open_all(server, credentials, 1, 1))
        wait_until(lambda: used(server, "answers") == 0, 20)
        idle = settled(server)
        small = open_all(server, credentials, 0, each)
        slack = max(0, settled(server)["allocated"] - idle["allocated"])
        close_all(small)
        wait_until(lambda: used(server, "answers") == 0, 20)
        idle = settled(server)
        gc.collect()
        large = {}
        for name, (path, body) in kinds(1).items():
            before = settled(server)
            large[name] = [Unread(server, "POST", path, body, credentials) for _ in range(each)]
            after = settled(server)
            said, grown = total(after) - total(before), after["allocated"] - before["allocated"]
            statuses = {request.status for request in large[name]}
            ctx.report.equal(f"{name}: answered", statuses, {200})
            ctx.report.note(f"{name}: {grown / MIB:.1f} MB, of which the table says {said / MIB:.1f}")
        after = settled(server)
        said, grown = total(after) - total(idle), after["allocated"] - idle["allocated"]
        ctx.report.note(f"all: {grown / MIB:.1f} MB, of which the table says {said / MIB:.1f}; slack {slack / MIB:.1f}")
        ctx.report.check("what is allocated is in the table", grown <= BEYOND * said + slack, f"{grown} > {BEYOND} * {said} + {slack}")
        ctx.report.check("and not much less", said <= BEYOND * grown + slack, f"{said} > {BEYOND} * {grown} + {slack}")
        close_all(large)
        gone = wait_until(lambda: used(server, "answers") == 0, 20)
        ctx.report.check("nothing is counted when they are gone", gone, memory_of(server)["budgets"])
        api.close()


def total(memory):
    return sum(part["used"] for part in memory["budgets"].values())


def test_answers_are_refused_beyond_the_budget(ctx):
    """A user's requests get half of the budget, then a 503; others' are served, and small ones always."""
    with ctx.server(options=["--set", f"memory/answers={16 * MIB}"]) as server:
        api = server.api()
        credentials = fill_held(api)
        path = "/held/_changes?feed=continuous&heartbeat=60000&filter=_selector"
        selector = {"selector": {"a": pad(MIB)}}
        opened = []
        for _ in range(16):
            opened.append(Unread(server, "POST", path, selector, credentials))
            if opened[-1].status != 200:
                break
        refused = opened.pop()
        answer = refused.rest()
        ctx.report.equal("a feed too many is refused", refused.status, 503)
        ctx.report.check("in CouchDB's shape, by name", b'"service_unavailable"' in answer and b"[memory] answers" in answer, answer)
        ctx.report.check("for now", b"retry-after" in answer.lower(), answer)
        part = memory_of(server)["budgets"]["answers"]
        ctx.report.check("what the others hold is counted, within the budget", 0 < part["used"] <= part["budget"], part)
        small = Unread(server, "POST", path, {"selector": {"a": 1}}, credentials)
        other = Unread(server, "POST", path, selector, server.admin)
        ctx.report.equal("a small one is served, and another user's", [small.status, other.status], [200, 200])
        too_much = api.post("/held/_changes?filter=_selector", {"selector": {"a": pad(24 * MIB)}})
        ctx.report.check("more than the budget is a 413", (too_much.status, b"[memory] answers" in too_much.raw) == (413, True), too_much)
        for request in [*opened, small, other, refused]:
            request.close()
        again = wait_until(lambda: api.post("/held/_changes?filter=_selector", selector).status == 200, 20)
        ctx.report.check("when they are gone there is room again", again)
        api.close()


def test_aggregates_share_a_budget(ctx):
    """Aggregates that nobody reads hold a bounded amount together; those that need more get a 503."""
    documents = ctx.size(4800, 12_000)
    # Two and a half: a group has its key as text and in the order of keys.
    budget = documents * 2400 * 5
    with ctx.server(options=["--set", f"memory/aggregates={budget}"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/agg?q=2")
        for first in range(0, documents, 600):
            docs = [{"_id": f"{number:06d}", "k": f"{number:08d}" + "k" * 2300} for number in range(first, first + 600)]
            api.expect(201, "POST", "/agg/_bulk_docs", {"docs": docs})
        query = {"selector": {"_id": {"$gt": None}}, "aggregate": {"group_by": ["k"], "compute": {"n": {"$count": True}}}}
        whole = api.expect(200, "POST", "/agg/_find", query)
        ctx.report.equal("one alone is answered", len(whole["groups"]), documents)
        idle = settled(server)
        slack = unread_slack(server, {**query, "selector": {"_id": {"$lt": "000100"}}})
        readers = [Unread(server, "POST", "/agg/_find", query) for _ in range(4)]
        statuses = [reader.status for reader in readers]
        ctx.report.equal("some are answered, others refused", set(statuses), {200, 503})
        refused = readers[statuses.index(503)].rest() if 503 in statuses else b""
        ctx.report.check("by the name of the setting, for now", b"[memory] aggregates" in refused and b"retry-after" in refused.lower(), refused)
        after = settled(server)
        part = after["budgets"]["aggregates"]
        ctx.report.check("what they hold is counted", budget // 4 < part["used"] <= budget * 1.1, part)
        said, grown = total(after) - total(idle), after["allocated"] - idle["allocated"]
        ctx.report.check("as it is allocated", grown <= BEYOND * said + slack, f"{grown} > {BEYOND} * {said} + {slack}")
        for reader in readers:
            reader.close()
        ctx.report.check("until they are gone", wait_until(lambda: used(server, "aggregates") == 0, 20), memory_of(server)["budgets"])
        ctx.report.equal("then there is room again", api.post("/agg/_find", query).status, 200)
        # As many as have no room together: the oldest of those that grow has it.
        for _ in range(ctx.size(3, 20)):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                statuses = list(pool.map(lambda _: server.api().post("/agg/_find", query).status, range(8)))
            ctx.report.check("of many at once one is answered", 200 in statuses and set(statuses) <= {200, 503}, statuses, quiet=True)
        api.close()


def unread_slack(server, query):
    """What four small aggregates take that nobody reads: streams, sockets, snapshots."""
    before = settled(server)
    readers = [Unread(server, "POST", "/agg/_find", query) for _ in range(4)]
    after = settled(server)
    for reader in readers:
        reader.close()
    wait_until(lambda: used(server, "aggregates") == 0, 20)
    settled(server)
    return max(0, after["allocated"] - before["allocated"])


def test_a_user_leaves_answers_to_others(ctx):
    """One feed with as much as a user gets, and a long answer that nobody reads: another user's replication goes on."""
    with ctx.server(options=["--set", f"memory/answers={16 * MIB}"]) as server:
        api = server.api()
        hostile, other = member(api, "hostile", "hostile"), member(api, "ordinary", "ordinary")
        docs = [{"_id": f"{number:032x}", "a": "x" * 300} for number in range(200)]
        api.expect(201, "POST", "/ordinary/_bulk_docs", {"docs": docs})
        api.expect(201, "PUT", "/ordinary/long", {"a": "x" * 100_000})
        ids = [f"{number:032x}" for number in range(int(7.8 * MIB) // 40)]
        path = "/hostile/_changes?feed=continuous&heartbeat=60000&filter=_doc_ids"
        held = [Unread(server, "POST", path, {"doc_ids": ids}, hostile)]
        part = memory_of(server)["budgets"]["answers"]
        ctx.report.check("the user has its half", held[0].status == 200 and 0.45 < part["used"] / part["budget"] <= 0.5, part)
        refused = Unread(server, "POST", path, {"doc_ids": ids[:20_000]}, hostile)
        ctx.report.equal("the hostile user gets no more", refused.status, 503)
        rows = api.expect(200, "GET", "/ordinary/_all_docs?limit=200")["rows"]
        asked = {
            "_bulk_get of a replication": (
                "POST",
                "/ordinary/_bulk_get?revs=true",
                {"docs": [{"id": row["id"], "rev": row["value"]["rev"]} for row in rows]},
            ),
            "keys": ("POST", "/ordinary/_all_docs", {"keys": [row["id"] for row in rows] * 5}),
            "a long document": ("GET", "/ordinary/long", None),
            "a listing": ("GET", "/ordinary/_all_docs?include_docs=true", None),
        }
        for name, (method, path, body) in asked.items():
            request = Unread(server, method, path, body, other)
            ctx.report.equal(f"{name} of another user is answered", request.status, 200)
            request.close()
        for request in [*held, refused]:
            request.close()
        gone = wait_until(lambda: used(server, "answers") == 0, 20)
        ctx.report.check("nothing is counted when they are gone", gone, memory_of(server)["budgets"])
        api.close()


# What a connection may hold besides what is counted, in bytes: what was handed to it for sending, and its own state.
CONNECTION_BYTES = 160 << 10
LONG_DOCUMENT_BYTES = 125_000


def test_unread_pieces_are_in_the_table(ctx):
    """Streamed answers that nobody reads, of each kind: what they take beyond their connections is in the table."""
    each = ctx.size(30, 200)
    with ctx.server(options=["--set", f"memory/limit={4096 * MIB}"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/unread?q=2")
        api.expect(201, "POST", "/unread/_bulk_docs", {"docs": [{"_id": f"{number:04}", "a": "x" * 1000} for number in range(2000)]})
        api.expect(201, "POST", "/unread/_bulk_docs", {"docs": [{"_id": f"z{number:03}", "a": "y" * LONG_DOCUMENT_BYTES} for number in range(120)]})
        forms = {
            "_all_docs": ("GET", "/unread/_all_docs?include_docs=true", None),
            "_all_docs of long documents": ("GET", '/unread/_all_docs?include_docs=true&startkey="z"', None),
            "_bulk_get": ("POST", "/unread/_bulk_get", {"docs": [{"id": f"z{number:03}"} for number in range(120)]}),
            "_changes": ("GET", "/unread/_changes?include_docs=true", None),
            "a feed": ("GET", "/unread/_changes?feed=continuous&include_docs=true&heartbeat=60000", None),
        }
        for name, (method, path, body) in forms.items():
            before = settled(server)
            requests = [Unread(server, method, path, body) for _ in range(each)]
            after = settled(server)
            said, grown = after["budgets"]["answers"]["used"], after["allocated"] - before["allocated"]
            ctx.report.equal(f"{name}: answered", {request.status for request in requests}, {200})
            # A maker of pieces keeps the text of the document that it read last.
            of_connections = each * (CONNECTION_BYTES + LONG_DOCUMENT_BYTES)
            ctx.report.check(
                f"{name}: what is allocated is in the table",
                grown <= BEYOND * said + of_connections,
                f"{grown} > {BEYOND} * {said} + {of_connections}",
            )
            ctx.report.check(f"{name}: something is", said >= each * (16 << 10), said)
            for request in requests:
                request.close()
            wait_until(lambda: used(server, "answers") == 0, 20)
        api.close()


# What a stream of HTTP/2 may take that holds no response: its state, and the head.
STREAM_BYTES = 96 << 10
ANSWERS_MB = 16


def test_unread_streams_of_http2_have_a_bound(ctx):
    """Hundreds of unread responses below 1 MiB on a few connections: all of them together take no more than a user's part."""
    connections, streams = ctx.size(3, 8), ctx.size(100, 200)
    with ctx.server(options=["--set", f"memory/answers={ANSWERS_MB * MIB}", "--set", f"memory/limit={4096 * MIB}"]) as server:
        api = server.api()
        hostile, other = member(api, "hostile", "hostile"), member(api, "ordinary", "ordinary")
        api.expect(201, "PUT", "/hostile/long", {"a": "x" * 900_000})
        api.expect(201, "PUT", "/ordinary/long", {"a": "x" * 900_000})
        api.expect(201, "POST", "/hostile/_bulk_docs", {"docs": [{"_id": f"k{number:03}", "a": "y" * 2000} for number in range(400)]})
        forms = {
            "documents": ("GET", "/hostile/long", None),
            "_all_docs": ("GET", "/hostile/_all_docs?include_docs=true&limit=400", None),
            "_bulk_get": ("POST", "/hostile/_bulk_get", b'{"docs":[{"id":"long"}]}'),
            "_find": ("POST", "/hostile/_find", b'{"selector":{},"limit":400}'),
        }
        for name, (method, path, body) in forms.items():
            idle = settled(server)
            opened = [UnreadStreams(server, streams, method, path, body, hostile) for _ in range(connections)]
            after = settled(server)
            used_bytes, grown = after["budgets"]["answers"]["used"], after["allocated"] - idle["allocated"]
            # Half of the budget, and an eighth of it in responses that wait for room.
            most = after["budgets"]["answers"]["budget"] * 3 // 4
            ctx.report.check(f"{name}: what is counted is bounded", used_bytes <= most, f"{used_bytes} of {most}")
            bound = BEYOND * most + connections * streams * STREAM_BYTES
            ctx.report.check(f"{name}: and so is what is allocated", grown <= bound, f"{grown} > {bound}")
            asked = {
                "a document": ("GET", "/ordinary/long", None),
                "_find": ("POST", "/ordinary/_find", {"selector": {"a": {"$in": [f"x{number}" for number in range(4000)]}}}),
                "keys": ("POST", "/ordinary/_all_docs", {"keys": [f"k{number}" for number in range(8000)]}),
            }
            for what, (method, path, body) in asked.items():
                request = Unread(server, method, path, body, other)
                ctx.report.equal(f"{name}: {what} of another user is answered", request.status, 200)
                request.close()
            for connection in opened:
                connection.close()
            gone = wait_until(lambda: used(server, "answers") == 0, 20)
            ctx.report.check(f"{name}: nothing is counted when they are gone", gone, memory_of(server)["budgets"])
        api.close()


# Responses of 900 KB that a connection may hold unread: 4 that it makes at a time, and those that take longer to make than the
# server waits for them, on a slow machine.
RESPONSES_AHEAD = 20
HTTP2_DOCUMENT_BYTES = 900_000


def test_a_connection_of_http2_makes_little_ahead(ctx):
    """A connection whose streams are unread holds a few responses, although its user has memory for more; others wait."""
    streams = ctx.size(60, 200)
    with ctx.server(options=["--set", f"memory/answers={512 * MIB}", "--set", f"memory/limit={4096 * MIB}"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=1")
        for number in range(4):
            api.expect(201, "PUT", f"/db/k{number:03}", {"a": "y" * HTTP2_DOCUMENT_BYTES})
        forms = {
            "documents": ("GET", "/db/k001", None),
            "_all_docs": ("GET", "/db/_all_docs?include_docs=true", None),
            "_changes": ("GET", "/db/_changes?include_docs=true", None),
            "_bulk_get": ("POST", "/db/_bulk_get", b'{"docs":[{"id":"k001"}]}'),
            "_find": ("POST", "/db/_find", b'{"selector":{},"limit":4}'),
        }
        for name, (method, path, body) in forms.items():
            settled(server)
            # All documents of a `_find` are one response; others are made piece by piece.
            documents = 4 if name == "_find" else 1
            check_few_are_made(ctx, server, name, UnreadStreams(server, streams, method, path, body, "admin:admin"), documents)
        method, path, body = forms["_bulk_get"]
        late = UnreadStreams(server, 0, method, path)
        send_bodies_late(server, late.socket, streams, path, body)
        check_few_are_made(ctx, server, "bodies that come late", late)
        api.close()


def check_few_are_made(ctx, server, name, unread, documents=1):
    """Checks what a connection with unread streams holds, and closes it. `documents`: of each response."""
    some = wait_until(lambda: used(server, "answers") >= HTTP2_DOCUMENT_BYTES, 20)
    ctx.report.check(f"{name}: some are made", some, memory_of(server)["budgets"])
    settled(server)
    held, most = used(server, "answers"), RESPONSES_AHEAD * documents * HTTP2_DOCUMENT_BYTES
    ctx.report.check(f"{name}: few are made", held <= most, f"{held} > {most}")
    api = server.api()
    ctx.report.equal(f"{name}: another connection is answered", api.get("/db/k001").status, 200)
    api.close()
    unread.close()
    gone = wait_until(lambda: used(server, "answers") == 0, 20)
    ctx.report.check(f"{name}: nothing is counted when they are gone", gone, memory_of(server)["budgets"])


def send_bodies_late(server, connection, streams, path, body):
    """Sends the heads of POST requests, and their bodies when all heads have been read: a request without a body has no place."""
    block = header(":method", "POST") + header(":scheme", "http") + header(":path", path) + header(":authority", "127.0.0.1")
    block += header("authorization", basic("admin:admin")) + header("accept", "application/json") + header("content-type", "application/json")
    ids = range(1, 2 * streams, 2)
    connection.sendall(b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in ids))
    settled(server)
    connection.sendall(b"".join(frame(DATA, END_STREAM, stream, body) for stream in ids))


def test_a_head_request_of_http2_gets_no_body(ctx):
    """Over HTTP/2 the response to HEAD is its headers, with the length that the body of GET has."""
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=1")
        for name, length in (("short", 10), ("long", HTTP2_DOCUMENT_BYTES)):
            api.expect(201, "PUT", f"/db/{name}", {"a": "y" * length})
            heads = UnreadStreams(server, 1, "HEAD", f"/db/{name}", credentials="admin:admin")
            ctx.report.check(f"{name}: the headers end the stream", head_flags(heads.socket) & END_STREAM)
            heads.close()
            options = ["--silent", "--http2-prior-knowledge", "--head", "--user", "admin:admin", "--max-time", "60"]
            shown = subprocess.run(["curl", *options, f"{server.url}/db/{name}"], capture_output=True, text=True, timeout=120)
            lengths = [line.split(": ")[1].strip() for line in shown.stdout.splitlines() if line.lower().startswith("content-length: ")]
            ctx.report.equal(f"{name}: it is complete", shown.returncode, 0)
            ctx.report.equal(f"{name}: the length is that of GET", lengths, [str(len(api.get(f"/db/{name}").raw))])
        api.close()


def head_flags(connection):
    """The flags of the first frame with headers that comes by a connection of HTTP/2."""
    received = connection.makefile("rb")
    while True:
        head = received.read(9)
        assert len(head) == 9, "the connection ended"
        received.read(int.from_bytes(head[:3]))
        if head[3] == HEADERS:
            return head[4]


def test_static_files_cost_nothing(ctx):
    """Unread responses that the server has in memory anyway use none of the budget."""
    with ctx.server(options=["--set", f"memory/answers={ANSWERS_MB * MIB}"]) as server:
        opened = [UnreadStreams(server, 100, "GET", path) for path in ("/_settee/openapi.json", "/_utils/") for _ in range(2)]
        settled(server)
        ctx.report.equal("nothing is counted", used(server, "answers"), 0)
        for connection in opened:
            connection.close()


def test_addresses_share_what_strangers_get(ctx):
    """Unread responses of one address: clients of other addresses, and users, keep their part."""
    with ctx.server(options=["--set", f"memory/answers={ANSWERS_MB * MIB}"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/open")
        api.expect(200, "PUT", "/open/_security", {"admins": {"names": [], "roles": ["_admin"]}, "members": {"names": [], "roles": []}})
        api.expect(201, "PUT", "/open/long", {"a": "x" * 900_000})
        other = member(api, "ordinary", "ordinary")
        idle = settled(server)
        opened = [UnreadStreams(server, 100, "GET", path, source="127.0.0.9") for path in ("/open/long", "/_uuids?count=1000")]
        after = settled(server)
        part, grown = after["budgets"]["answers"], after["allocated"] - idle["allocated"]
        bound = BEYOND * part["budget"] + 200 * STREAM_BYTES
        ctx.report.check("what is allocated is bounded", grown <= bound, f"{grown} > {bound}")
        ctx.report.check("an address has no more than its part", part["used"] <= part["budget"], part)
        ctx.report.equal("another address is answered", server.api().get("/open/long").status, 200)
        query = {"selector": {"a": {"$in": [f"x{number}" for number in range(40_000)]}}}
        request = Unread(server, "POST", "/ordinary/_find", query, other)
        ctx.report.equal("a long query of a user is answered", request.status, 200)
        for connection in [*opened, request]:
            connection.close()
        api.close()


SECURITY_NAMES = 120_000


def test_security_objects_are_small_and_sent_from_one_copy(ctx):
    """A security object has a limit of its own; a longer one from before is usable, and its readers share one copy."""
    names = ["owner", *(f"u{number:07}" for number in range(SECURITY_NAMES))]
    large = {"admins": {"names": ["owner"]}, "members": {"names": names}}
    limit = 1 << 20
    with ctx.server(options=["--set", "couchdb/max_security_size=8000000"]) as server:
        api = server.api()
        owner = member(api, "large", "owner")
        api.expect(200, "PUT", "/large/_security", large)
        api.expect(200, "PUT", "/_node/_local/_config/couchdb/max_security_size", str(limit))
        refused = api.put("/large/_security", large)
        ctx.report.equal("a longer one is refused", (refused.status, refused.json["error"]), (413, "too_large"))
        ctx.report.check("by the name of the setting", "max_security_size" in refused.json["reason"], refused.json)
        ctx.report.equal("the one from before is unchanged", api.expect(200, "GET", "/large/_security"), large)
        reader = Unread(server, "GET", "/large", None, owner)
        ctx.report.equal("and used", reader.status, 200)
        reader.close()
        idle = settled(server)
        readers = [Unread(server, "GET", "/large/_security", None, owner) for _ in range(60)]
        after = settled(server)
        length = len(json.dumps(large))
        grown = after["allocated"] - idle["allocated"]
        ctx.report.equal("all readers are answered", {one.status for one in readers}, {200})
        bound = 5 * length + 60 * CONNECTION_BYTES
        ctx.report.check("from one copy", grown <= bound, f"{grown} > {bound}")
        for one in readers:
            one.close()
        api.expect(200, "PUT", "/large/_security", {"members": {"names": ["owner"]}})
        ctx.report.equal("it can be replaced by a shorter one", api.expect(200, "GET", "/large/_security"), {"members": {"names": ["owner"]}})
        api.close()


def test_a_wide_document_keeps_nobody_waiting(ctx):
    """Requests that read one document with many leaves again and again, beside requests of others."""
    leaves, reads = ctx.size(1200, 10_000), ctx.size(500, 1000)
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/wide?q=1")
        for first in range(0, leaves, 2000):
            docs = [
                {"_id": "x", "_revisions": {"start": 9, "ids": [f"{generation:016x}{leaf:016x}" for generation in range(9)]}}
                for leaf in range(first, min(leaves, first + 2000))
            ]
            api.expect(201, "POST", "/wide/_bulk_docs", {"new_edits": False, "docs": docs})
        emits = f"function (doc) {{ if (doc._id === 'y') for (var i = 0; i < {reads}; i++) emit(i, {{_id: 'x'}}); }}"
        api.expect(201, "PUT", "/wide/_design/d", {"views": {"v": {"map": emits}}})
        api.expect(201, "PUT", "/wide/y", {})
        api.expect(200, "GET", "/wide/_design/d/_view/v?limit=1")
        # Below the limit of a request's head.
        listed = [f"9-{0:016x}{leaf:016x}" for leaf in range(min(reads, 1000))]
        asked = {
            "_all_docs by keys": ("POST", "/wide/_all_docs?include_docs=true", {"keys": ["x"] * reads}),
            "documents that view rows name": ("GET", "/wide/_design/d/_view/v?include_docs=true", None),
            "_bulk_get": ("POST", "/wide/_bulk_get", {"docs": [{"id": "x", "rev": f"9-{0:016x}{leaf:016x}"} for leaf in range(reads)]}),
            "open_revs of many leaves": ("GET", f"/wide/x?latest=true&open_revs={json.dumps(listed, separators=(',', ':'))}", None),
        }
        # What the machine itself keeps waiting.
        _, idle, _ = beside(server, 3, lambda api: time.sleep(2) or api.get("/_up"))
        for name, (method, path, body) in asked.items():
            took, slowest, answered = beside(server, 3, lambda api, asked=(method, path, body): api.request(*asked))
            ctx.report.note(f"{name}: {took:.2f} s; /_up answered {answered} times, the slowest {slowest:.2f} s")
            ctx.report.check(
                f"{name}: others are answered meanwhile", slowest < max(0.5, took / 4, 5 * idle), f"{slowest:.2f} of {took:.2f} s; idle {idle:.2f} s"
            )
        api.close()


# A list of a million numbers is 2 MB of text, and took 72 MB as values.
LINK_VALUES = 1_000_000
LINK_MB_MAX = 40


def test_links_that_are_lists_are_not_parsed(ctx):
    """The value of a view row names another document by a string; anything else in `_id` takes no memory."""
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/links?q=1")
        api.expect(201, "PUT", "/links/_design/d", {"views": {"v": {"map": "function (doc) { emit(null, {_id: doc.link}); }"}}})
        api.expect(201, "PUT", "/links/a", {"link": [1] * LINK_VALUES})
        api.expect(201, "PUT", "/links/b", {"link": "c"})
        api.expect(201, "PUT", "/links/c", {"link": None})
        rows = api.expect(200, "GET", "/links/_design/d/_view/v")["rows"]
        before = server.peak_rss_mb()
        answer = api.expect(200, "GET", "/links/_design/d/_view/v?include_docs=true")
        grown = server.peak_rss_mb() - before
        ctx.report.equal("links: all rows are there", [row["id"] for row in rows], ["a", "b", "c"])
        docs = [row["doc"] and row["doc"]["_id"] for row in answer["rows"]]
        ctx.report.equal("links: only strings name documents", docs, [None, "c", None])
        ctx.report.check(f"links: the peak grows by less than {LINK_MB_MAX} MB", grown < LINK_MB_MAX, f"{grown:.0f} MB")
        api.close()


def beside(server, count, request):
    """Makes so many requests at a time, and asks `/_up` meanwhile: seconds of all, of the slowest `/_up`, and how many there were."""
    done, times, statuses = threading.Event(), [], []

    def probe():
        api = server.api()
        while not done.is_set():
            began = time.monotonic()
            api.expect(200, "GET", "/_up")
            times.append(time.monotonic() - began)
        api.close()

    def work():
        api = server.api()
        statuses.append(request(api).status)
        api.close()

    prober = threading.Thread(target=probe)
    prober.start()
    began = time.monotonic()
    workers = [threading.Thread(target=work) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.monotonic() - began
    done.set()
    prober.join()
    assert statuses == [200] * count, statuses
    return took, max(times), len(times)

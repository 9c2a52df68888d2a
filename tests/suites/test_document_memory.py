"""Long stored documents that a request reads before it waits: for its body, for a place of functions, for its commit, or for its client.

Each test has many requests of one kind wait at the same time, and compares the memory that is allocated then with a few documents.
"""

import concurrent.futures
import json
import socket
import threading

from harness.api import basic
from harness.files import MIB
from harness.prometheus import metrics
from harness.server import wait_until
from harness.unread import Unread, pad

DOC_BYTES = 4 * MIB
REQUESTS, SOAK_REQUESTS = 18, 60
# Documents that may be in memory at a time whatever the number of requests is: those of running calls, in several forms, and of caches.
RUNNING_MAX = 12
# Several times as long as it takes to look at the memory.
PAUSE_MS = 150
LOOK_EVERY_S = 0.03
PAUSE = f"for (var end = Date.now() + {PAUSE_MS}; Date.now() < end;);"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FUNCTIONS = {
    "shows": {
        "slow": f"function (doc, req) {{ {PAUSE} return String(doc.a.length); }}",
        "fields": "function (doc, req) { return String(Object.keys(req.form).length); }",
    },
    "updates": {
        "slow": f"function (doc, req) {{ {PAUSE} return [null, String(doc.a.length)]; }}",
        "copy": "function (doc, req) { return [{_id: req.uuid, a: doc.a}, 'copied']; }",
        "fields": "function (doc, req) { return [null, String(Object.keys(req.form).length)]; }",
    },
}
SLOW_VALIDATION = {"validate_doc_update": f"function (doc, old) {{ if (old || doc.slow || doc.a) {{ {PAUSE} }} }}"}


def serve(ctx, **more):
    """A server with patient queues, whose caches hold little."""
    settings = {
        "rocksdb/block_cache_size": 8 * MIB,
        "functions/queue_time_limit_ms": 120_000,
        "functions/time_limit_ms": 20_000,
        **more,
    }
    return ctx.server(options=[part for key, value in settings.items() for part in ("--set", f"{key}={value}")])


def fill(api, documents=1):
    """A database `db` with long documents `big0` and so on; answers their revisions."""
    api.expect((201, 202), "PUT", "/db?q=2")
    return [api.expect(201, "PUT", f"/db/big{n}", {"a": pad(DOC_BYTES, n)})["rev"] for n in range(documents)]


def memory_of(server):
    api = server.api()
    answer = api.expect(200, "GET", "/_node/_local/_system")
    api.close()
    return answer["memory"]


def used(server, name):
    return memory_of(server)["budgets"][name]["used"]


def settled(server):
    """Memory once nothing of it changes any more."""
    seen = []

    def is_settled():
        seen.append(memory_of(server)["allocated"])
        return len(seen) > 5 and max(seen[-5:]) - min(seen[-5:]) < 64 << 10

    wait_until(is_settled, 20, 0.1)
    return memory_of(server)


def largest_growth(server, calls):
    """Makes the calls at the same time. Answers what they answered, and how many documents more than before were allocated at a time."""
    before = settled(server)["allocated"]
    seen, done = [], threading.Event()

    def watch():
        while not done.is_set():
            seen.append(memory_of(server)["allocated"])
            done.wait(LOOK_EVERY_S)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        answers = [future.result() for future in [pool.submit(call) for call in calls]]
    done.set()
    watcher.join()
    return answers, (max(seen) - before) / DOC_BYTES


def calls_of(server, requests):
    """A call of each request (method, path, body, headers), with a connection of its own."""

    def call(method, path, body=None, headers=None):
        api = server.api(300)
        answer = api.request(method, path, body, headers)
        api.close()
        return answer

    return [lambda request=request: call(*request) for request in requests]


class Silent:
    """A request that announces a body and does not send it."""

    def __init__(self, server, method, path, length):
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.length = length
        head = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: {basic(server.admin)}", f"Content-Length: {length}", "", ""]
        self.socket.sendall("\r\n".join(head).encode())

    def finish(self):
        """Sends the body; answers the status."""
        self.socket.sendall(b"x" * self.length)
        return int(self.socket.recv(1000).split(b" ", 2)[1])

    def close(self):
        self.socket.close()


def grown_by_silent(server, requests):
    """Sends all heads. Answers the requests, and how many documents more are allocated once all of them wait."""
    before = settled(server)["allocated"]
    # The server may not have noticed yet that earlier ones were closed.
    open_before = min(connections(server) for _ in range(10))
    silent = [Silent(server, *request) for request in requests]
    assert wait_until(lambda: connections(server) >= open_before + len(silent)), "they are all there"
    return silent, (settled(server)["allocated"] - before) / DOC_BYTES


def connections(server):
    api = server.api()
    open_now = metrics(api)("settee_connections")
    api.close()
    return open_now


def test_uploads_hold_no_document(ctx):
    """The document that an attachment is added to is read when the attachment is there."""
    count = ctx.size(REQUESTS, SOAK_REQUESTS)
    with serve(ctx) as server:
        api = server.api()
        (rev,) = fill(api)
        silent, grown = grown_by_silent(server, [("PUT", f"/db/big0/file{n}?rev={rev}", 1000) for n in range(count)])
        ctx.report.check(f"{count} uploads that wait take {grown:.1f} documents", grown < RUNNING_MAX, grown)
        statuses = [request.finish() for request in silent]
        ctx.report.equal("one of them is written, the others conflict", sorted(statuses), [201] + [409] * (count - 1))
        doc = api.expect(200, "GET", "/db/big0")
        ctx.report.equal("to the document as it was", (len(doc["a"]), len(doc["_attachments"])), (DOC_BYTES, 1))
        for request in silent:
            request.close()
        missing = api.put("/db/big0/other?rev=1-abc", b"x")
        ctx.report.equal("a revision that does not exist is refused", (missing.status, missing.json["reason"]), (409, "missing_rev"))
        api.close()


def test_calls_hold_no_design_document(ctx):
    """A call that waits for its body does not keep an old revision of a long design document."""
    count = ctx.size(REQUESTS, SOAK_REQUESTS)
    with serve(ctx) as server:
        api = server.api()
        fill(api)
        silent, rev = [], None
        before = settled(server)["allocated"]
        for n in range(count):
            doc = {"_id": "_design/d", **FUNCTIONS, "long": pad(DOC_BYTES, n), **({"_rev": rev} if rev else {})}
            rev = api.expect(201, "PUT", "/db/_design/d", doc)["rev"]
            for kind in ("_show/slow/big0", "_update/slow/big0"):
                silent.append(Silent(server, "POST", f"/db/_design/d/{kind}", 1000))
            api.expect(200, "POST", "/db/_design/d/_show/fields")
        grown = (settled(server)["allocated"] - before) / DOC_BYTES
        ctx.report.check(f"{len(silent)} calls that wait take {grown:.1f} design documents", grown < RUNNING_MAX, grown)
        statuses = [request.finish() for request in silent[-4:]]
        ctx.report.equal("and are answered by the current one", statuses, [200] * 4)
        for request in silent:
            request.close()
        api.close()


def test_waiting_calls_hold_no_document(ctx):
    """Shows and updates read their documents in their places; `If-None-Match` is answered without one."""
    count = ctx.size(REQUESTS, SOAK_REQUESTS)
    with serve(ctx) as server:
        api = server.api()
        fill(api)
        api.expect(201, "PUT", "/db/_design/d", FUNCTIONS)
        for kind in ("_show", "_update"):
            requests = [("POST", f"/db/_design/d/{kind}/slow/big0", {"n": n}) for n in range(count)]
            answers, grown = largest_growth(server, calls_of(server, requests))
            ctx.report.check(f"{kind}: {count} calls take {grown:.1f} documents", grown < RUNNING_MAX, grown)
            ctx.report.equal(f"{kind}: all are answered", {answer.raw for answer in answers}, {str(DOC_BYTES).encode()})
        first = api.get("/db/_design/d/_show/fields/big0")
        again = api.get("/db/_design/d/_show/fields/big0", headers={"If-None-Match": first.headers["ETag"]})
        ctx.report.equal("an unchanged document needs no call", (first.status, again.status), (200, 304))
        api.close()


def test_waiting_validations_hold_no_document(ctx):
    """Edits that wait for their next place between two validators do not hold the documents that they change."""
    count = ctx.size(REQUESTS, SOAK_REQUESTS)
    with serve(ctx) as server:
        api = server.api()
        revs = fill(api, count)
        for n in range(3):
            api.expect(201, "PUT", f"/db/_design/v{n}", SLOW_VALIDATION)
        requests = [("PUT", f"/db/big{n}", {"_rev": rev, "n": n}) for n, rev in enumerate(revs)]
        answers, grown = largest_growth(server, calls_of(server, requests))
        ctx.report.check(f"{count} edits take {grown:.1f} documents", grown < RUNNING_MAX, grown)
        ctx.report.equal("all are written", {answer.status for answer in answers}, {201})
        refusing = {"validate_doc_update": "function (doc, old) { if (old && old.n === doc.n) throw {forbidden: 'same ' + old.n}; }"}
        api.expect(201, "PUT", "/db/_design/w", refusing)
        last = api.put("/db/big1", {"_rev": answers[1].json["rev"], "n": 1})
        ctx.report.equal("a validator sees the old document", (last.status, last.json["reason"]), (403, "same 1"))
        api.close()


def test_edits_of_stored_documents_are_counted(ctx):
    """Copies, removals of attachments and documents of update functions have memory until they are written, or are refused."""
    # Each request takes the memory of several documents, so that the budget is for fewer requests than come.
    count, budget = ctx.size(24, SOAK_REQUESTS), 96 * MIB
    with serve(ctx, **{"memory/answers": budget}) as server:
        api = server.api()
        (rev,) = fill(api)
        rev = api.expect(201, "PUT", f"/db/big0/file?rev={rev}", b"x")["rev"]
        api.expect(201, "PUT", "/db/_design/d", FUNCTIONS)
        api.expect(201, "PUT", "/db/_design/v", SLOW_VALIDATION)
        kinds = {
            "COPY": [("COPY", "/db/big0", None, {"Destination": f"copy{n}"}) for n in range(count)],
            "update": [("POST", "/db/_design/d/_update/copy/big0") for _ in range(count)],
            "DELETE of an attachment": [("DELETE", f"/db/big0/file?rev={rev}") for _ in range(count)],
        }
        for name, requests in kinds.items():
            most = []
            is_over = threading.Event()

            def watch(most=most, is_over=is_over):
                while not is_over.wait(LOOK_EVERY_S):
                    most.append(used(server, "answers"))

            watcher = threading.Thread(target=watch)
            watcher.start()
            answers, grown = largest_growth(server, calls_of(server, requests))
            is_over.set()
            watcher.join()
            statuses = {answer.status for answer in answers}
            ctx.report.check(f"{name}: what waits is counted", max(most) >= 2 * DOC_BYTES, max(most))
            # What is written is in the store's write buffers, too, until the disk has it: up to as much again on a busy one.
            ctx.report.check(f"{name}: {grown:.1f} documents are within the budget", grown * DOC_BYTES < 3 * budget, grown)
            ctx.report.check(f"{name}: some are written, others refused for now", 201 in statuses or 200 in statuses, statuses)
            ctx.report.check(f"{name}: nothing else happens", statuses <= {200, 201, 409, 503}, statuses)
            ctx.report.check(f"{name}: nothing stays", wait_until(lambda: used(server, "answers") == 0), used(server, "answers"))
        api.close()


def test_explanations_are_read_in_pieces(ctx):
    """`_explain` has all definitions in its answer, one at a time in memory."""
    # All that a database uses.
    indexes, readers = 6, ctx.size(REQUESTS, SOAK_REQUESTS)
    definition = MIB
    with serve(ctx) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2")
        for n in range(indexes):
            index = {"fields": ["a"], "partial_filter_selector": {"b": pad(definition, n)}}
            api.expect(200, "POST", "/db/_index", {"index": index, "ddoc": f"i{n}", "name": "i"})
        query = {"selector": {"a": 1}}
        whole = api.expect(200, "POST", "/db/_explain", query)
        names = [candidate["index"]["ddoc"] for candidate in whole["index_candidates"]]
        ctx.report.equal("all indexes are in it", names, [f"_design/i{n}" for n in range(indexes - 1, -1, -1)])
        texts = {len(candidate["index"]["def"]["partial_filter_selector"]["b"]["$eq"]) for candidate in whole["index_candidates"]}
        ctx.report.equal("with their definitions", texts, {definition})
        before = settled(server)["allocated"]
        unread = [Unread(server, "POST", "/db/_explain", query) for _ in range(readers)]
        ctx.report.equal("all are answered", {request.status for request in unread}, {200})
        grown = (settled(server)["allocated"] - before) / definition
        ctx.report.check(f"{readers} that nobody reads take {grown:.1f} definitions of {readers * indexes}", grown < 3 * readers, grown)
        for request in unread:
            request.close()
        api.close()


def test_forms_have_limited_fields(ctx):
    """The fields of a form are values as those of a JSON body are."""
    with serve(ctx, **{"limits/max_json_values": 1000}) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        api.expect(201, "PUT", "/db/_design/d", FUNCTIONS)
        form = lambda fields: "&".join(f"f{n}" for n in range(fields)).encode()
        for path in ("_show/fields", "_update/fields"):
            few = api.request("POST", f"/db/_design/d/{path}", form(1000), FORM)
            ctx.report.equal(f"{path}: as many as are allowed", (few.status, few.raw), (200, b"1000"))
            many = api.request("POST", f"/db/_design/d/{path}", form(1001), FORM)
            ctx.report.equal(f"{path}: one more", (many.status, many.json["error"]), (413, "too_large"))
            ctx.report.check(f"{path}: by the name of the limit", "fields" in many.json["reason"], json.dumps(many.json))
        other = api.request("POST", "/db/_design/d/_show/fields", form(5000), {"Content-Type": "text/plain"})
        ctx.report.equal("what is no form has no fields", (other.status, other.raw), (200, b"0"))
        api.close()


def test_design_documents_have_limited_values(ctx):
    """A design document of many values is refused, not read into a tree."""
    with serve(ctx) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        writes = [("PUT", f"/db/_design/d{n}", b'{"a":[' + b'{"":0},' * 900_000 + b"0]}") for n in range(4)]
        answers, grown = largest_growth(server, calls_of(server, writes))
        ctx.report.equal("it is refused", {answer.status for answer in answers}, {400})
        ctx.report.check("by the limit", "262144" in answers[0].json["reason"], answers[0])
        ctx.report.check(f"four of them take {grown * DOC_BYTES / MIB:.0f} MB", grown * DOC_BYTES < 300 * MIB, grown)
        sources = {"lib": {"m": "exports.a = [" + "[1,2]," * 400_000 + "];"}, "views": {"v": {"map": "function (doc) { emit(1); }"}}}
        saved = api.put("/db/_design/s", sources)
        ctx.report.equal("commas of a source are no values", saved.status, 201)
        api.close()


def test_attachments_of_many_values_stay_texts(ctx):
    """What `_attachments` of a document says is not read into a tree, in whatever way the document comes."""
    count = 3
    values = b'{"_attachments":{"x":{"k":[' + b"0," * 4_000_000 + b"0]}}}"
    members = '{"_attachments":{"x":{%s}}}' % ",".join(f'"{n}":0' for n in range(800_000))
    with serve(ctx) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        headers = {"Referer": f"http://{api.host}:{api.port}/page", "Content-Type": "multipart/form-data; boundary=b"}
        for name, text in (("values", values), ("members", members.encode())):
            field = b'--b\r\nContent-Disposition: form-data; name="_doc"\r\n\r\n' + text
            file = b'\r\n--b\r\nContent-Disposition: form-data; name="_attachments"; filename="f"\r\n\r\nx\r\n--b--\r\n'
            for way, request in (("a document", ("PUT", "/db/a", text)), ("a form", ("POST", "/db/a", field + file, headers))):
                answers, grown = largest_growth(server, calls_of(server, [request] * count))
                ctx.report.equal(f"{way} of many {name} is refused", {answer.status for answer in answers}, {400})
                times = grown * DOC_BYTES / (count * len(text))
                ctx.report.check(f"{way} of many {name} takes {times:.1f} times its text", times < 12, times)
        api.close()


def test_names_of_a_forms_files_are_counted(ctx):
    files, name_bytes = 300, 8000
    with serve(ctx) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        address = f"{api.host}:{api.port}"
        file = '--b\r\nContent-Disposition: form-data; name="_attachments"; filename="{}"\r\n\r\nx\r\n'
        body = "".join(file.format(str(n).zfill(name_bytes)) for n in range(files)).encode()
        lines = [
            "POST /db/a HTTP/1.1",
            f"Host: {address}",
            f"Authorization: {basic(server.admin)}",
            f"Referer: http://{address}/page",
            "Content-Type: multipart/form-data; boundary=b",
            f"Content-Length: {2 * len(body)}",
        ]
        with socket.create_connection((api.host, int(api.port)), timeout=60) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            are_counted = wait_until(lambda: used(server, "answers") >= files * name_bytes)
            ctx.report.check("they are counted while the rest is awaited", are_counted, used(server, "answers"))
        ctx.report.check("nothing stays", wait_until(lambda: used(server, "answers") == 0), used(server, "answers"))
        api.close()


def test_long_documents_are_the_same_however_they_are_written(ctx):
    """Texts of more than 1 MiB are parsed by other threads than those that serve, in each of the ways to write a document."""
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2")
        refusals = []
        for values in (10, 600_000):
            doc = {"a": [values] * values, "b": 1.50, "c": None}
            written = {
                "PUT": api.expect(201, "PUT", f"/db/put{values}", doc)["rev"],
                "POST": api.expect(201, "POST", "/db", doc)["rev"],
                "_bulk_docs": api.expect(201, "POST", "/db/_bulk_docs", {"docs": [doc]})[0]["rev"],
                "COPY": api.request("COPY", f"/db/put{values}", headers={"Destination": f"copy{values}"}).json["rev"],
            }
            related = b"".join([b"--x\r\nContent-Type: application/json\r\n\r\n", json.dumps(doc, separators=(",", ":")).encode(), b"\r\n--x--"])
            headers = {"Content-Type": 'multipart/related; boundary="x"'}
            written["multipart/related"] = api.put(f"/db/related{values}", related, headers=headers).json.get("rev")
            ctx.report.equal(f"{values} values: one revision", set(written.values()), {written["PUT"]})
            attached = api.put(f"/db/put{values}/f?rev={written['PUT']}", b"x", headers={"Content-Type": "text/plain"}).json["rev"]
            api.expect(200, "DELETE", f"/db/put{values}/f?rev={attached}")
            read = api.expect(200, "GET", f"/db/put{values}")
            ctx.report.equal(f"{values} values: kept with and without an attachment", {name: read[name] for name in doc}, doc)
            broken = api.put("/db/broken", json.dumps(doc).encode()[:-1] + b",}", headers={"Content-Type": "application/json"})
            refusals.append((broken.status, broken.json))
        ctx.report.equal("an invalid one is refused as a short one is", refusals[1], refusals[0])

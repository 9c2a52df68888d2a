"""What answers with the contents of attachments take of memory: pieces of them, however long the contents are."""

import base64
import gzip
import hashlib
import http.client
import json

import pytest

from harness.api import basic
from harness.files import MIB
from harness.server import wait_until
from harness.unread import Unread

ANSWERS = 16 * MIB
READERS = 4
JSON = {"Accept": "application/json"}
# What an unread answer may hold: pieces of a text and of a content, the decoder, and the connection.
READER_BYTES = 2 * MIB
DESIGN = {
    "views": {"v": {"map": "function (doc) { if (doc.a !== undefined) { emit(doc._id, null); } }"}},
    "filters": {"f": "function (doc, req) { return doc.a !== undefined; }"},
    "lists": {"l": "function (head, req) { var row, n = 0; while (row = getRow()) { n += JSON.stringify(row.doc).length; } send(String(n)); }"},
}


def ways(db, first):
    """Each way to ask for documents with their contents: method, path, body and headers. `first` is an id for those that ask for one."""
    shown = "include_docs=true&attachments=true"
    keys, docs = {"keys": [first]}, {"docs": [{"id": first}]}
    view = f"/{db}/_design/d/_view/v"
    selector = {"selector": {"a": {"$exists": True}}}
    every = "heartbeat=60000&timeout=60000"
    return {
        "_all_docs": ("GET", f"/{db}/_all_docs?{shown}", None, JSON),
        "keys of _all_docs": ("POST", f"/{db}/_all_docs?{shown}", keys, JSON),
        "queries of _all_docs": ("POST", f"/{db}/_all_docs/queries?{shown}", {"queries": [keys, {}]}, JSON),
        "a view": ("GET", f"{view}?{shown}", None, JSON),
        "a view downwards": ("GET", f"{view}?{shown}&descending=true", None, JSON),
        "queries of a view": ("POST", f"{view}/queries?{shown}", {"queries": [keys, {}]}, JSON),
        "_changes": ("GET", f"/{db}/_changes?{shown}", None, JSON),
        "_changes by a selector": ("POST", f"/{db}/_changes?{shown}&filter=_selector", selector, JSON),
        "_changes with fields": ("POST", f"/{db}/_changes?{shown}&filter=_selector", {**selector, "fields": ["_id", "_attachments"]}, JSON),
        "_changes by a function": ("GET", f"/{db}/_changes?{shown}&filter=d/f", None, JSON),
        "longpoll": ("GET", f"/{db}/_changes?{shown}&feed=longpoll&{every}", None, JSON),
        "continuous": ("GET", f"/{db}/_changes?{shown}&feed=continuous&{every}", None, JSON),
        "eventsource": ("GET", f"/{db}/_changes?{shown}&feed=eventsource&{every}", None, JSON),
        "_bulk_get": ("POST", f"/{db}/_bulk_get?attachments=true", docs, JSON),
        "_bulk_get as multipart": ("POST", f"/{db}/_bulk_get?attachments=true", docs, {"Accept": "multipart/mixed"}),
        "a document": ("GET", f"/{db}/{first}?attachments=true", None, JSON),
        "a document as multipart": ("GET", f"/{db}/{first}?attachments=true", None, {"Accept": "multipart/related"}),
        "open_revs": ("GET", f"/{db}/{first}?open_revs=all&attachments=true", None, JSON),
        "open_revs as multipart": ("GET", f"/{db}/{first}?open_revs=all", None, {"Accept": "multipart/mixed"}),
    }


OF_ONE = ("keys of _all_docs", "_bulk_get", "a document", "open_revs")


def of_feed(name):
    return name in ("continuous", "eventsource")


def lines_of(header):
    return [f"{name}: {value}" for name, value in header.items()]


def stream(server, way, bytes_min=0, timeout=120):
    """Reads an answer, of a feed until `bytes_min` came and a row ended; answers its status and length."""
    method, path, body, headers = way
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=timeout)
    sent = None if body is None else json.dumps(body).encode()
    connection.request(method, path, sent, {"Authorization": basic(server.admin), "Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    length, last = 0, b""
    while True:
        piece = answer.read1(1 << 16)
        if not piece:
            break
        length += len(piece)
        last = (last + piece)[-2:]
        if bytes_min and length >= bytes_min and last.endswith(b"\n"):
            break
    connection.close()
    return answer.status, length


def memory_of(server):
    api = server.api()
    memory = api.expect(200, "GET", "/_node/_local/_system")["memory"]
    api.close()
    return memory


def settled(server):
    seen = []

    def is_settled():
        seen.append(memory_of(server)["allocated"])
        return len(seen) > 2 and max(seen[-3:]) - min(seen[-3:]) < 64 << 10

    wait_until(is_settled, 20)
    return memory_of(server)


def put_attachment(api, path, content, **headers):
    answer = api.put(path, content, headers={"Content-Type": "application/octet-stream", **headers})
    assert answer.status in (201, 202), answer
    return answer.json["rev"]


def bomb(api, db, length):
    """A document whose attachment is short as the client sends it."""
    api.expect((201, 202), "PUT", f"/{db}?q=1")
    api.expect(201, "PUT", f"/{db}/_design/d", DESIGN)
    rev = api.expect(201, "PUT", f"/{db}/bomb", {"a": 1})["rev"]
    sent = gzip.compress(b"\0" * length, 9)
    put_attachment(api, f"/{db}/bomb/file?rev={rev}", sent, **{"Content-Encoding": "gzip"})
    return len(sent)


def shared(api, db, documents, length):
    """Documents that all have one content, which was sent once."""
    api.expect((201, 202), "PUT", f"/{db}?q=1")
    api.expect(201, "PUT", f"/{db}/_design/d", DESIGN)
    rev = api.expect(201, "PUT", f"/{db}/d0000", {"a": 1})["rev"]
    content = hashlib.shake_128(b"content").digest(length)
    put_attachment(api, f"/{db}/d0000/file?rev={rev}", content)
    for number in range(1, documents):
        answer = api.request("COPY", f"/{db}/d0000", headers={"Destination": f"d{number:04}"})
        assert answer.status == 201, answer
    return length


@pytest.mark.parametrize("kind", ["one content that inflates", "one content of many documents"])
def test_contents_are_sent_piece_by_piece(ctx, kind):
    """Answers with contents take a bounded amount, read or unread: less than what is counted as answers may take."""
    contents = ctx.size(48, 400) * MIB
    options = ["--set", f"memory/answers={ANSWERS}", "--set", f"rocksdb/block_cache_size={4 * MIB}"]
    with ctx.server(options=options) as server:
        api = server.api(120)
        bomb(api, "small", 300)
        if "inflates" in kind:
            documents, first, sent = 1, "bomb", bomb(api, "large", contents)
        else:
            documents, first = 240, "d0000"
            sent = shared(api, "large", documents, contents // documents)
        api.expect(200, "GET", "/large/_design/d/_view/v")
        for name, way in ways("small", "bomb").items():
            status, _ = stream(server, way, bytes_min=100 if of_feed(name) else 0)
            ctx.report.equal(f"{name}: answered", status, 200, quiet=True)
        before, allocated = server.peak_rss_mb(), settled(server)["allocated"]
        for name, way in ways("large", first).items():
            least = contents // documents if name in OF_ONE else contents
            least = 1 if "multipart" in name else least * 4 // 3
            status, length = stream(server, way, bytes_min=least if of_feed(name) else 0)
            ctx.report.check(f"{name}: whole", status == 200 and length >= least, (status, length, least))
        grown = server.peak_rss_mb() - before
        ctx.report.note(
            f"{kind}: {sent >> 10} KiB sent, {contents // MIB} MiB of contents, {len(ways('', ''))} answers: {grown:.0f} MB more at the peak"
        )
        ctx.report.check("reading them takes less than twice the budget of answers", grown < 2 * ANSWERS / MIB, f"{grown:.0f} MB")
        for name, (method, path, body, headers) in ways("large", first).items():
            opened = [Unread(server, method, path, body, headers=lines_of(headers)) for _ in range(READERS)]
            after = settled(server)["allocated"]
            ctx.report.equal(f"{name}: unread ones are answered", {reader.status for reader in opened}, {200}, quiet=True)
            ctx.report.check(f"{name}: unread ones hold pieces", after - allocated < READERS * READER_BYTES + MIB, (after - allocated) / MIB)
            for reader in opened:
                reader.close()
            wait_until(lambda: memory_of(server)["budgets"]["answers"]["used"] == 0, 20)
        part = memory_of(server)["budgets"]["answers"]
        ctx.report.check("nothing is counted when they are gone", part["used"] == 0 and part["peak"] <= ANSWERS, part)
        ctx.report.check("the peak stays", server.peak_rss_mb() - before < 2 * ANSWERS / MIB, f"{server.peak_rss_mb() - before:.0f} MB")
        api.close()


def test_a_document_of_many_short_contents(ctx):
    """Contents that are short enough to be read with their documents are so up to a piece, not for all of a document."""
    count, length = ctx.size(900, 8000), 24 << 10
    with ctx.server(options=["--set", f"memory/answers={ANSWERS}", "--set", f"rocksdb/block_cache_size={4 * MIB}"]) as server:
        api = server.api(120)
        bomb(api, "small", 300)
        api.expect((201, 202), "PUT", "/many?q=1")
        api.expect(201, "PUT", "/many/_design/d", DESIGN)
        content = base64.b64encode(hashlib.shake_128(b"short").digest(length)).decode()
        rev, kept = None, {}
        for begin in range(0, count, 100):
            new = {f"f{number:05}": {"content_type": "image/png", "data": content} for number in range(begin, begin + 100)}
            doc = {"a": 1, "_attachments": {**kept, **new}} | ({"_rev": rev} if rev else {})
            rev = api.expect(201, "PUT", "/many/x", doc)["rev"]
            kept |= {name: {"stub": True} for name in new}
        api.expect(200, "GET", "/many/_design/d/_view/v")
        for name, way in ways("small", "bomb").items():
            stream(server, way, bytes_min=100 if of_feed(name) else 0)
        allocated, all_bytes = settled(server)["allocated"], count * len(content)
        for name, (method, path, body, headers) in ways("many", "x").items():
            opened = [Unread(server, method, path, body, headers=lines_of(headers)) for _ in range(READERS)]
            memory = settled(server)
            grown, said = memory["allocated"] - allocated, memory["budgets"]["answers"]["used"]
            ctx.report.equal(f"{name}: answered", {reader.status for reader in opened}, {200}, quiet=True)
            ctx.report.check(
                f"{name}: {grown / MIB:.1f} MB, of which {said / MIB:.1f} are counted, of {READERS * all_bytes // MIB} MB of contents",
                # On a busy machine what was freed is given back late.
                grown < 1.3 * said + READERS * (READER_BYTES + all_bytes // 20),
                (grown, said),
            )
            for reader in opened:
                reader.close()
            wait_until(lambda: memory_of(server)["budgets"]["answers"]["used"] == 0, 20)
        api.close()


def rows_of(name, raw):
    """The documents of an answer by their ids."""
    text = raw.decode()
    if name == "continuous":
        docs = [json.loads(line)["doc"] for line in text.splitlines() if '"doc"' in line]
    elif name == "eventsource":
        docs = [json.loads(line.removeprefix("data: "))["doc"] for line in text.splitlines() if line.startswith("data: {")]
    else:
        answer = json.loads(text)
        if isinstance(answer, list):
            docs = [entry["ok"] for entry in answer]
        elif "_id" in answer:
            docs = [answer]
        else:
            rows = answer.get("rows") or answer["results"]
            rows = [row for part in rows for row in part.get("rows", part.get("docs", [part]))]
            docs = [row.get("doc") or row.get("ok") for row in rows]
    return {doc["_id"]: doc for doc in docs if doc and doc["_id"].startswith("x")}


def test_contents_are_whole(ctx):
    """Each way answers each content as the attachment itself is: long, short and empty ones, compressed or not, what is no gzip, and gzip of nothing."""
    text = b"".join(b"line %d\n" % number for number in range(60_000))
    noise = hashlib.shake_128(b"noise").digest(700_001)
    with ctx.server() as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/whole?q=2")
        api.expect(201, "PUT", "/whole/_design/d", DESIGN)
        files = {
            "x1": {
                "long.txt": ("text/plain", text, {}),
                "noise": ("image/png", noise, {}),
                "empty": ("image/png", b"", {}),
                "short": ("image/png", b"ab", {}),
            },
            "x2": {
                "sent gzipped": ("text/plain", gzip.compress(text), {"Content-Encoding": "gzip"}),
            },
            "x3": {f"piece {length}": ("image/png", noise[:length], {}) for length in (1, 131_071, 131_072, 131_073, 262_144, 32_768, 32_769)},
            "x4": {},
        }
        wanted = {}
        for doc_id, of_doc in files.items():
            rev = api.expect(201, "PUT", f"/whole/{doc_id}", {"a": doc_id, "quoted": '"data":""'})["rev"]
            for name, (kind, content, headers) in of_doc.items():
                path = f"/whole/{doc_id}/{name.replace(' ', '%20')}"
                rev = put_attachment(api, f"{path}?rev={rev}", content, **{"Content-Type": kind, **headers})
            contents = {name: text if name == "sent gzipped" else content for name, (_, content, _) in of_doc.items()}
            wanted[doc_id] = {name: base64.b64encode(content).decode() for name, content in contents.items()}
        no_gzip = {"no gzip": noise, "short no gzip": b"no gzip"}
        put_as_gzip(api, "/whole/x6", {"a": "x6"}, no_gzip)
        wanted["x6"] = {name: base64.b64encode(content).decode() for name, content in no_gzip.items()}
        # More than a reader decodes in one step.
        members = gzip.compress(b"") * 120_000
        put_as_gzip(api, "/whole/x7", {"a": "x7"}, {"empty members": members}, length=0)
        rev = api.expect(200, "GET", "/whole/x7")["_rev"]
        put_attachment(api, f"/whole/x7/end?rev={rev}", members + gzip.compress(b"end"), **{"Content-Encoding": "gzip"})
        wanted["x7"] = {"empty members": "", "end": base64.b64encode(b"end").decode()}
        stubs = {doc_id: api.expect(200, "GET", f"/whole/{doc_id}") for doc_id in wanted}
        api.expect(201, "PUT", "/whole/x5", {"b": "not in the view"})
        for name, way in [
            *ways("whole", "x1").items(),
            *ways("whole", "x2").items(),
            *ways("whole", "x3").items(),
            *ways("whole", "x6").items(),
            *ways("whole", "x7").items(),
        ]:
            if "multipart" in name:
                continue
            method, path, body, headers = way
            found = rows_of(name, read_feed(server, way) if of_feed(name) else api.request(method, path, body, headers=headers).raw)
            found.pop("x5", None)
            ctx.report.check(f"{name}: documents", found and set(found) <= set(wanted), sorted(found))
            shown = {doc_id: {file: entry.get("data") for file, entry in doc.get("_attachments", {}).items()} for doc_id, doc in found.items()}
            wrong = [(doc_id, file) for doc_id in found for file in wanted[doc_id] if shown[doc_id].get(file) != wanted[doc_id][file]]
            ctx.report.check(f"{name}: every content", not wrong, wrong)
            if "fields" not in name:
                others = {doc_id: {k: v for k, v in doc.items() if k != "_attachments"} for doc_id, doc in found.items()}
                expected = {doc_id: {k: v for k, v in stubs[doc_id].items() if k != "_attachments"} for doc_id in found}
                ctx.report.check(f"{name}: and the rest", others == expected, others)
        some_members(ctx, api, wanted)
        lists(ctx, api)
        lengths(ctx, api)
        api.close()


def put_as_gzip(api, path, doc, contents, length=None):
    """A document with attachments that are said to be gzip: such bytes are stored when a length is said too."""
    lengths = {name: len(content) if length is None else length for name, content in contents.items()}
    follow = {
        name: {"follows": True, "length": lengths[name], "encoded_length": len(content), "encoding": "gzip", "content_type": "text/plain"}
        for name, content in contents.items()
    }
    parts = [json.dumps({**doc, "_attachments": follow}).encode(), *contents.values()]
    heads = [b"Content-Type: application/json\r\n", *[b""] * len(contents)]
    body = b"".join(b"--b\r\n" + head + b"\r\n" + part + b"\r\n" for head, part in zip(heads, parts, strict=True)) + b"--b--"
    answer = api.put(path, body, headers={"Content-Type": 'multipart/related; boundary="b"'})
    assert answer.status == 201, answer


def read_feed(server, way):
    """All rows of a feed that are there now."""
    method, path, body, headers = way
    reader = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    reader.request(method, path + "&limit=8", body, {"Authorization": basic(server.admin), **headers})
    raw = reader.getresponse().read()
    reader.close()
    return raw


def some_members(ctx, api, wanted):
    """`fields` of a feed take some contents, in any order, or none."""
    path = "/whole/_changes?include_docs=true&attachments=true&filter=_selector"

    def docs(fields):
        rows = api.expect(200, "POST", path, {"selector": {"a": "x1"}, "fields": fields})["results"]
        return [row["doc"] for row in rows]

    ctx.report.equal("fields without attachments", docs(["a"]), [{"a": "x1"}])
    found = docs(["_attachments.noise.data", "a", "_attachments.short.data"])
    expected = {"noise": {"data": wanted["x1"]["noise"]}, "short": {"data": wanted["x1"]["short"]}}
    ctx.report.check("fields with some contents", found == [{"a": "x1", "_attachments": expected}], str(found)[:300])


def lists(ctx, api):
    """A list function gets contents that its heap has room for; longer ones are a 413."""
    shown = "include_docs=true&attachments=true"
    small = api.get(f'/whole/_design/d/_list/l/v?{shown}&key="x1"')
    ctx.report.check("a list function gets contents", small.status == 200 and int(small.raw) > 700_000, small)
    rev = api.expect(201, "PUT", "/whole/y", {"a": 1})["rev"]
    put_attachment(api, f"/whole/y/file?rev={rev}", gzip.compress(b"\0" * (40 * MIB)), **{"Content-Encoding": "gzip"})
    large = api.get(f'/whole/_design/d/_list/l/v?{shown}&key="y"')
    ctx.report.equal("and none that are too long", (large.status, large.is_error_shape and large.json["error"]), (413, "too_large"))
    api.delete(f"/whole/y?rev={api.expect(200, 'GET', '/whole/y')['_rev']}")


def lengths(ctx, api):
    """A short answer has a length, as without contents."""
    for path in ('/whole/_all_docs?include_docs=true&key="x4"', '/whole/_all_docs?include_docs=true&attachments=true&key="x4"'):
        ctx.report.check(f"{path} has a length", api.get(path).headers.get("Content-Length"))
    rev = api.expect(201, "PUT", "/whole/z", {})["rev"]
    put_attachment(api, f"/whole/z/file?rev={rev}", b"short")
    answer = api.get('/whole/_all_docs?include_docs=true&attachments=true&key="z"')
    ctx.report.equal("with a short content too", answer.headers.get("Content-Length"), str(len(answer.raw)))

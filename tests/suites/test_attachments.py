"""Attachments: long ones streamed in little memory, each content stored once a shard, space given back, nothing lost by kill -9."""

import base64
import hashlib
import json
import os
import pathlib
import random
import re
import socket
import threading
import time

from harness.api import Disconnected, basic, quote
from harness.files import files_below
from harness.server import wait_until

MB = 1 << 20
# Resident memory that any of the transfers below may add.
GROWTH_MB_MAX = 64
BOUNDARY = "attachments-suite-boundary"


# ---- sending and receiving without holding the bytes


class Content:
    """Bytes that can be made again: `megabytes` blocks that differ in their first bytes. Not compressible."""

    def __init__(self, seed, megabytes):
        self.block, self.megabytes = random.Random(seed).randbytes(MB), megabytes
        self.length = megabytes * MB

    def __iter__(self):
        for number in range(self.megabytes):
            yield number.to_bytes(8, "big") + self.block[8:]

    def md5(self):
        md5 = hashlib.md5()
        for piece in self:
            md5.update(piece)
        return base64.b64encode(md5.digest()).decode()


class Connection:
    """A raw connection: one request with a body in pieces, and its answer in pieces."""

    def __init__(self, server, timeout=120):
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.authorization = basic(server.admin)

    def begin(self, method, path, headers):
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: {self.authorization}", "Connection: close", *headers]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")

    def send(self, pieces):
        for piece in pieces:
            self.socket.sendall(piece)

    def answer(self, md5=None):
        """(status, headers, length of the body, the body when there is no `md5` to give it to)"""
        got = b""
        while b"\r\n\r\n" not in got:
            piece = self.socket.recv(65536)
            if not piece:
                return None, {}, 0, b""
            got += piece
        head, _, rest = got.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        length, body, buffer = len(rest), [rest], bytearray(256 * 1024)
        if md5 is not None:
            md5.update(rest)
        while count := self.socket.recv_into(buffer):
            length += count
            if md5 is not None:
                md5.update(memoryview(buffer)[:count])
            else:
                body.append(bytes(buffer[:count]))
        self.socket.close()
        return int(lines[0].split(" ")[1]), headers, length, b"".join(body) if md5 is None else b""


def put(server, path, content, content_type="application/octet-stream", chunked=False):
    connection = Connection(server)
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {content.length}"
    connection.begin("PUT", path, [f"Content-Type: {content_type}", framing])
    if chunked:
        connection.send(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in content)
        connection.send([b"0\r\n\r\n"])
    else:
        connection.send(content)
    status, _, _, body = connection.answer()
    return status, body


def get_md5(server, path, headers=()):
    md5 = hashlib.md5()
    connection = Connection(server)
    connection.begin("GET", path, headers)
    status, headers, length, _ = connection.answer(md5)
    return status, headers, length, base64.b64encode(md5.digest()).decode()


def put_multipart(server, path, content):
    doc = {"_attachments": {"big": {"follows": True, "content_type": "application/octet-stream", "length": content.length}}}
    head = (
        f"--{BOUNDARY}\r\nContent-Type: application/json\r\n\r\n{json.dumps(doc)}\r\n--{BOUNDARY}\r\n"
        f'Content-Disposition: attachment; filename="big"\r\n\r\n'
    ).encode()
    tail = f"\r\n--{BOUNDARY}--".encode()
    connection = Connection(server)
    connection.begin(
        "PUT", path, [f'Content-Type: multipart/related; boundary="{BOUNDARY}"', f"Content-Length: {len(head) + content.length + len(tail)}"]
    )
    connection.send([head])
    connection.send(content)
    connection.send([tail])
    status, _, _, body = connection.answer()
    return status, body


def part_head(field, filename=None, content_type=None):
    file = f'; filename="{filename}"' if filename is not None else ""
    kind = f"Content-Type: {content_type}\r\n" if content_type else ""
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"{file}\r\n{kind}\r\n'.encode()


def form_body(*parts):
    """Of parts (content, field, filename, content type), of which the last two may be left out."""
    return b"".join(part_head(*head) + content + b"\r\n" for content, *head in parts) + f"--{BOUNDARY}--\r\n".encode()


FORM = {"Referer": "http://{host}/page.html?x=y", "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def post_form(api, path, body, **headers):
    """`headers`: in place of the usual ones; None for none."""
    sent = {name: value.replace("{host}", f"{api.host}:{api.port}") for name, value in {**FORM, **headers}.items() if value is not None}
    return api.post(path, body, headers=sent)


def post_form_with(server, path, content):
    head = part_head("_attachments", "big", "application/octet-stream")
    tail = f'\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name="_doc"\r\n\r\n{{}}\r\n--{BOUNDARY}--'.encode()
    connection = Connection(server)
    connection.begin(
        "POST",
        path,
        ["Referer: http://localhost/", f"Content-Type: {FORM['Content-Type']}", f"Content-Length: {len(head) + content.length + len(tail)}"],
    )
    connection.send([head])
    connection.send(content)
    connection.send([tail])
    status, _, _, body = connection.answer()
    return status, body


class Memory:
    """How much the server's peak memory grows within a block."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        # Resets the peak.
        pathlib.Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5", encoding="ascii")
        self.before = self.server.rss_mb()
        return self

    def __exit__(self, *_):
        self.growth = self.server.peak_rss_mb() - self.before


def server_for(ctx, name):
    config = ctx.root / "limits.ini"
    config.write_text("[couchdb]\nmax_attachment_size = infinity\n", encoding="utf-8")
    return ctx.server(name, options=["--config", str(config)])


def folder_mb(server):
    """Without the log, which is cut when it is long enough."""
    return sum(stat.st_size for _, stat in files_below(server.data, ".sst", ".blob")) / MB


def compact(api, db):
    api.expect((200, 202), "POST", f"/{db}/_compact", {})
    wait_until(lambda: not api.get(f"/{db}").json["compact_running"], 120)


# ---- parts


def test_long_ones_take_little_memory(ctx):
    megabytes = ctx.size(96, 2048)
    report = ctx.report
    with server_for(ctx, "long") as server:
        api = server.api(timeout=300)
        api.expect((201, 202), "PUT", "/long")
        # What a server needs once: buffers, caches, threads.
        put(server, "/long/first/small", Content(0, 24))
        whole, parts, chunks = Content(1, megabytes), Content(2, megabytes), Content(3, megabytes)
        with Memory(server) as memory:
            status, body = put(server, "/long/whole/big", whole)
        small(report, f"PUT of {megabytes} MB", memory, status == 201, body)
        with Memory(server) as memory:
            status, _, length, md5 = get_md5(server, "/long/whole/big")
        small(report, f"GET of {megabytes} MB", memory, (status, length, md5) == (200, whole.length, whole.md5()), (status, length))
        with Memory(server) as memory:
            status, body = put_multipart(server, "/long/parts", parts)
        small(report, f"multipart/related of {megabytes} MB", memory, status == 201, body)
        digest = api.get("/long/parts").json["_attachments"]["big"]["digest"]
        report.equal("its digest is that of the bytes", digest, "md5-" + parts.md5())
        with Memory(server) as memory:
            status, headers, length, _ = get_md5(server, "/long/parts?attachments=true", ["Accept: multipart/related"])
        small(
            report,
            f"multipart/related back of {megabytes} MB",
            memory,
            status == 200 and length > parts.length and int(headers["content-length"]) == length,
            (status, headers),
        )
        with Memory(server) as memory:
            status, body = post_form_with(server, "/long/form", parts)
        small(report, f"multipart/form-data of {megabytes} MB", memory, status == 201, body)
        digest = api.get("/long/form").json["_attachments"]["big"]["digest"]
        report.equal("its digest is that of the bytes", digest, "md5-" + parts.md5())
        with Memory(server) as memory:
            status, body = put(server, "/long/chunks/big", chunks, chunked=True)
        small(report, f"PUT in chunks of {megabytes} MB", memory, status == 201, body)
        report.equal("it has arrived", get_md5(server, "/long/chunks/big")[3], chunks.md5())
        with Memory(server) as memory:
            readers = [Connection(server) for _ in range(8)]
            for reader in readers:
                reader.begin("GET", "/long/whole/big", [])
            served = wait_until(lambda: all(reader.socket.recv(1024) for reader in readers), 60)
        small(report, "eight readers that do not read on", memory, served, "")
        for reader in readers:
            reader.socket.close()
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def small(report, what, memory, ok, detail):
    report.check(f"{what} works", ok, detail)
    report.check(f"{what} adds less than {GROWTH_MB_MAX} MB of memory", memory.growth < GROWTH_MB_MAX, f"{memory.growth:.0f} MB")
    report.note(f"{what}: {memory.growth:.0f} MB of memory")


def test_forms(ctx):
    """What pages send: `POST /db/doc` with multipart/form-data."""
    report = ctx.report
    with ctx.server("forms") as server:
        api = server.api()
        api.expect(201, "PUT", "/forms")

        def stubs(doc):
            return {name: (a["content_type"], a["length"], a["revpos"]) for name, a in doc.get("_attachments", {}).items()}

        made = post_form(
            api,
            "/forms/a",
            form_body(
                (b"one", "_attachments", "1.txt", "Text/Plain; charset=utf-8"),
                (b'{"n": 1, "_id": "other"}', "_doc"),
                (b"\r\n--\0", "_attachments", "2", None),
                (b"{}", "_doc"),
                (b"said", "other"),
                (b"", "_attachments", "", "text/plain"),
            ),
        )
        rev = made.json.get("rev", "")
        report.equal(
            "a form makes a document",
            (made.status, made.json, made.headers["ETag"], made.headers["Location"]),
            (201, {"ok": True, "id": "a", "rev": rev}, f'"{rev}"', None),
        )
        doc = api.get("/forms/a").json
        report.equal("with the form's JSON", (doc["n"], doc["_id"], doc["_rev"]), (1, "a", rev))
        report.equal("and its files", stubs(doc), {"1.txt": ("text/plain", 3, 1), "2": ("application/octet-stream", 5, 1)})
        report.equal("bytes as they are", api.get("/forms/a/2").raw, b"\r\n--\0")
        same = api.expect(
            201,
            "PUT",
            "/forms/same",
            {
                "n": 1,
                "_attachments": {
                    "1.txt": {"content_type": "text/plain", "data": base64.b64encode(b"one").decode()},
                    "2": {"data": base64.b64encode(b"\r\n--\0").decode()},
                },
            },
        )
        report.equal("the revision is that of the same document by PUT", same["rev"], rev)

        more = post_form(
            api,
            "/forms/a",
            form_body((b" " + rev.encode() + b" ", "_rev"), (b"new", "_attachments", "2", "a/b"), (b"3", "_attachments", "ü/3", "a/b")),
        )
        report.equal("a revision's body stays", (more.status, api.get("/forms/a").json.get("n")), (201, 1))
        report.equal(
            "files are replaced and added", stubs(api.get("/forms/a").json), {"2": ("a/b", 3, 2), "ü/3": ("a/b", 1, 2), "1.txt": ("text/plain", 3, 1)}
        )
        rev = more.json["rev"]
        kept = json.dumps({"_rev": rev, "_attachments": {name: {"stub": True} for name in ("1.txt", "2")}}).encode()
        edited = post_form(api, "/forms/a", form_body((kept, "_doc"), (b"newer", "_attachments", "2", "a/b")))
        report.equal(
            "stubs stay but where there is a file",
            (edited.status, stubs(api.get("/forms/a").json)),
            (201, {"2": ("a/b", 5, 3), "1.txt": ("text/plain", 3, 1)}),
        )
        rev = edited.json["rev"]
        by_query = post_form(api, f"/forms/a?rev={rev}", form_body((b'{"n": 4}', "_doc")))
        report.equal("the revision may be in the query", (by_query.status, stubs(api.get("/forms/a").json)), (201, {}))
        design = post_form(api, "/forms/_design/d", form_body((b"{}", "_doc"), (b"x", "_attachments", "f", "a/b")))
        report.equal("a design document", (design.status, api.get("/forms/_design/d/f").raw), (201, b"x"))
        report.equal("a local document", post_form(api, "/forms/_local/l", form_body((b'{"n": 1}', "_doc"))).status, 201)
        proxied = post_form(api, "/forms/proxied", form_body((b"{}", "_doc")), Referer="https://db.example/", **{"X-Forwarded-Host": "db.example"})
        report.equal("behind a proxy", proxied.status, 201)


def test_hostile_forms(ctx):
    report = ctx.report
    with ctx.server("hostile-forms") as server:
        api = server.api()
        api.expect(201, "PUT", "/forms")
        rev = api.expect(201, "PUT", "/forms/a", {"n": 1})["rev"]
        before = api.get("/forms").json["update_seq"]
        doc, file = (b"{}", "_doc"), (b"x", "_attachments", "f", "a/b")
        good = form_body(doc, file)
        required, match = "Referer header required.", "Referer header must match host."
        kind = "Content-Type must be multipart/form-data"
        for name, headers, status, reason in (
            ("no Referer", {"Referer": None, "Content-Type": None}, 400, required),
            *(
                (f"from {referer}", {"Referer": referer, "Content-Type": None}, 400, match)
                for referer in (
                    "http://evil.example/",
                    "http://{host}.evil.example/",
                    "http://evil.example/http://{host}/",
                    "http://x@{host}/",
                    "/",
                    "é",
                    "",
                )
            ),
            ("no type", {"Content-Type": None}, 415, kind),
            *(
                (f"type {sent}", {"Content-Type": sent}, 415, kind)
                for sent in ("application/x-www-form-urlencoded", "multipart/related; boundary=b", "multipart/form-datax", "")
            ),
            ("no boundary", {"Content-Type": "multipart/form-data"}, 400, "Missing multipart boundary"),
            ("a long boundary", {"Content-Type": "multipart/form-data; boundary=" + "b" * 71}, 400, "Bad multipart boundary"),
        ):
            answer = post_form(api, "/forms/b", good, **headers)
            report.equal(f"a form with {name}", (answer.status, answer.json["reason"]), (status, reason))
        for name, body, status, reason in (
            ("nothing", b"", 400, "Multipart body ended too early"),
            ("its end missing", good.replace(b"--\r\n", b"\r\n"), 400, None),
            ("its file cut", good[:-40], 400, "Multipart body ended too early"),
            ("no field", form_body(file), 400, "The form has neither a field `_doc` nor a field `_rev`"),
            ("no parts", f"--{BOUNDARY}--".encode(), 400, "The form has neither a field `_doc` nor a field `_rev`"),
            ("a part that is none", f"--{BOUNDARY}\r\n\r\nx\r\n".encode() + good, 400, "A part of the form is no form field"),
            ("a header that is none", f"--{BOUNDARY}\r\nx\r\n\r\nx\r\n".encode() + good, 400, "Bad multipart header"),
            ("long headers", f"--{BOUNDARY}\r\nx: {'x' * 20000}\r\n\r\nx\r\n".encode() + good, 400, "Multipart headers are too long"),
            ("bad JSON", form_body((b"{", "_doc"), file), 400, None),
            ("JSON that is no object", form_body((b"[]", "_doc"), file), 400, None),
            ("an empty document", form_body((b"", "_doc"), file), 400, None),
            ("a bad revision", form_body((b"x", "_rev"), file), 400, "Invalid rev format"),
            ("a revision that is no text", form_body((b"1-\xff", "_rev"), file), 400, "Invalid rev format"),
            ("a long revision", form_body((b"1" * 2000, "_rev"), file), 400, "Invalid rev format"),
            ("an unknown revision", form_body((b"1-x", "_rev"), file), 409, "missing_rev"),
            ("the same file twice", form_body(doc, file, file), 400, "Duplicate attachments"),
            ("a private name", form_body(doc, (b"x", "_attachments", "_f", "a/b")), 400, "Attachment name '_f' starts with prohibited character '_'"),
            ("a file without a name", form_body(doc, (b"x", "_attachments", "", "a/b")), 400, "A file has no name"),
            ("a stub of nothing", form_body((b'{"_attachments":{"g":{"stub":true}}}', "_doc"), file), 412, None),
        ):
            answer = post_form(api, "/forms/b", body)
            report.check(f"a form with {name}", (answer.status, answer.json["reason"]) == (status, reason or answer.json["reason"]), repr(answer))
        report.equal("a form without a revision", post_form(api, "/forms/a", good).status, 409)
        report.equal("a form for two revisions", post_form(api, f"/forms/a?rev={rev}", form_body((b'{"_rev":"1-x"}', "_doc"))).status, 400)
        report.equal("a form for an id that is none", post_form(api, "/forms/_b", good).json["error"], "illegal_docid")
        report.equal("files for a local document", post_form(api, "/forms/_local/b", good).status, 400)
        for setting, value, status in (
            ("max_attachment_size", "4", 413),
            ("max_attachments_per_document", "1", 413),
            ("max_document_size", "50", 413),
        ):
            api.expect(200, "PUT", f"/_node/_local/_config/couchdb/{setting}", value)
            body = form_body((b'{"n":"' + b"x" * 100 + b'"}', "_doc"), (b"12345", "_attachments", "f", "a/b"), (b"x", "_attachments", "g", "a/b"))
            answer = post_form(api, "/forms/b", body)
            report.check(f"a form beyond {setting}", answer.status == status, repr(answer))
            api.expect(200, "DELETE", f"/_node/_local/_config/couchdb/{setting}")
        anonymous = server.api(credentials="")
        report.equal("a form of who is nobody", post_form(anonymous, "/forms/b", good).status, 401)
        report.equal("nothing was written", (api.get("/forms/b").status, api.get("/forms").json["update_seq"]), (404, before))
        compact(api, "forms")
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def test_ranges_of_long_ones(ctx):
    report = ctx.report
    with server_for(ctx, "ranges") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/ranges")
        content = Content(4, 20)
        report.equal("a long attachment is stored", put(server, "/ranges/a/big", content)[0], 201)
        text = " ".join(str(number) for number in range(200_000)).encode()
        report.equal("a text is stored", api.put("/ranges/b/text", text, headers={"Content-Type": "text/plain"}).status, 201)
        whole = b"".join(content)
        for _ in range(ctx.size(40, 400)):
            path, stored = ctx.random.choice((("/ranges/a/big", whole), ("/ranges/b/text", text)))
            first = ctx.random.randrange(len(stored))
            last = min(len(stored) - 1, first + ctx.random.choice((0, 1, 1000, 131_071, 131_072, 300_000)))
            got = api.get(path, headers={"Range": f"bytes={first}-{last}"})
            right = (
                got.status == 206 and got.raw == stored[first : last + 1] and got.headers["content-range"] == f"bytes {first}-{last}/{len(stored)}"
            )
            report.check("a range is what was asked for", right, f"{path} {first}-{last}: {got!r}", quiet=True)
        part = api.get("/ranges/b/text", headers={"Accept-Encoding": "gzip", "Range": "bytes=100-199"})
        report.check(
            "of what is stored gzipped a range is of the bytes as they are, also when gzip is accepted",
            part.status == 206 and "content-encoding" not in part.headers and part.raw == text[100:200],
            repr(part),
        )
        # All before a range is inflated for it: a client could keep the processors busy with ranges at the end.
        zeros = bytes(9 << 20)
        report.equal("a long text is stored", api.put("/ranges/c/zeros", zeros, headers={"Content-Type": "text/plain"}).status, 201)
        got = api.get("/ranges/c/zeros", headers={"Range": "bytes=-10"})
        whole = (got.status, got.headers["accept-ranges"], got.raw == zeros)
        report.equal("a long content that is stored gzipped is sent whole, as CouchDB sends it", whole, (200, "none", True))


def test_content_outlives_who_brought_it(ctx):
    """Clients that close right after sending, so that the answer finds nobody: a document that was stored has its attachment."""
    report = ctx.report
    with ctx.server("hang-ups") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/hangups")
        host, port = "127.0.0.1", int(server.url.rsplit(":", 1)[1])
        sent = {}
        for n in range(ctx.size(600, 20_000)):
            content = ctx.random.randbytes(2500)
            sent[f"d{n}"] = content
            attachment = {"content_type": "image/x", "data": base64.b64encode(content).decode()}
            body = json.dumps({"docs": [{"_id": f"d{n}", "_attachments": {"f": attachment}}]}).encode()
            head = f"POST /hangups/_bulk_docs HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(server.admin)}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            with socket.create_connection((host, port)) as connection:
                connection.sendall(head.encode() + body)
                time.sleep(ctx.random.random() * 0.003)  # so that it is hung up at different moments of the request
        stored = {row["id"] for row in api.expect(200, "GET", "/hangups/_all_docs")["rows"]}
        wrong = [id for id in sorted(stored) if api.get(f"/hangups/{id}/f").raw != sent[id]]
        report.check("some documents are stored before the client hung up", len(stored) > len(sent) // 20, f"{len(stored)} of {len(sent)}")
        report.check("each has its attachment", not wrong, f"{len(wrong)} of {len(stored)}, such as {wrong[:5]}")


def test_sizes(ctx):
    """Sizes count each attachment once, before and after what was written is in files; CouchDB says 10,493 for the first."""
    report = ctx.report
    with server_for(ctx, "sizes") as server:
        api = server.api()
        for shards in (1, 4):
            db = f"sizes{shards}"
            api.expect((201, 202), "PUT", f"/{db}?q={shards}")
            empty = api.expect(200, "GET", f"/{db}")["sizes"]
            length = 10_000
            api.expect(201, "PUT", f"/{db}/doc/f", ctx.random.randbytes(length))
            sizes = [api.expect(200, "GET", f"/{db}")["sizes"]]
            compact(api, db)
            sizes.append(api.expect(200, "GET", f"/{db}")["sizes"])
            for when, of in zip(("young", "compacted"), sizes, strict=True):
                # A file of one document is a few kB of frame.
                report.check(f"{when}: active", length < of["active"] < length + (1000 if when == "young" else 8000), (empty, of))
                report.check(f"{when}: external", length < of["external"] < length + 100, of)
                report.check(f"{when}: file", length < of["file"] < length + 100_000, of)
        # Of one content in several documents, the documents alone are more.
        api.expect((201, 202), "PUT", "/shared?q=1")
        for number in range(50):
            put(server, f"/shared/doc-{number}/f", Content(2, 1))
        sizes = api.expect(200, "GET", "/shared")["sizes"]
        report.check("a shared content is counted once", sizes["active"] < 20 * MB and sizes["external"] > 49 * MB, sizes)


def test_content_is_stored_once(ctx):
    report = ctx.report
    with server_for(ctx, "once") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/once?q=1")
        content, megabytes = Content(5, 20), 20
        put(server, "/once/doc-0/a", content)
        compact(api, "once")
        before, file_before = folder_mb(server), api.get("/once").json["sizes"]["file"]
        for number in range(1, 6):
            report.equal("the same bytes are stored again", put(server, f"/once/doc-{number}/b-{number}", content)[0], 201, quiet=True)
        file_after = api.get("/once").json["sizes"]["file"]
        report.check("sizes.file counts them once", file_after - file_before < MB, f"{file_before} before, {file_after} after")
        compact(api, "once")
        grown = folder_mb(server) - before
        report.check("five more documents with the same 20 MB take no more room", grown < megabytes, f"{grown:.0f} MB more")
        report.equal("each has them", {get_md5(server, f"/once/doc-{n}/b-{n}")[3] for n in range(1, 6)}, {content.md5()})
        for number in range(5):
            rev = api.get(f"/once/doc-{number}").json["_rev"]
            api.expect(200, "DELETE", f"/once/doc-{number}?rev={rev}")
        compact(api, "once")
        report.equal("the last one keeps them", get_md5(server, "/once/doc-5/b-5")[3], content.md5())


def test_content_is_copied_between_shards(ctx):
    """Each shard has the contents of its own documents: a copy of a document is whole, whatever becomes of the first one."""
    report = ctx.report
    with server_for(ctx, "copied") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/copied?q=4")
        content = Content(9, 18)
        put(server, "/copied/doc-0/a", content)
        text = "some words " * 20_000
        rev = api.get("/copied/doc-0").json["_rev"]
        rev = api.put(f"/copied/doc-0/text?rev={rev}", text.encode(), headers={"Content-Type": "text/plain"}).json["rev"]
        stubs = api.get("/copied/doc-0").json["_attachments"]
        names = [f"doc-{number}" for number in range(1, 13)]
        shards = {api.get(f"/copied/_shards/{name}").json["range"] for name in ["doc-0", *names]}
        report.equal("the documents are in all shards", len(shards), 4)
        for name in names:
            copied = api.request("COPY", "/copied/doc-0", headers={"Destination": name})
            report.equal("a document is copied", copied.status, 201, quiet=True)
        # Of what is in no file yet, the size is estimated.
        compact(api, "copied")
        file = api.get("/copied").json["sizes"]["file"]
        report.check("a content is stored once a shard", file < 4 * content.length + 2 * MB, file)
        api.expect(200, "DELETE", f"/copied/doc-0?rev={rev}")
        compact(api, "copied")

        def check(when):
            wrong = [name for name in names if get_md5(server, f"/copied/{name}/a")[3] != content.md5()]
            report.check(f"{when}: each has the bytes", not wrong, wrong)
            wrong = [name for name in names if api.get(f"/copied/{name}/text").raw != text.encode()]
            report.check(f"{when}: and the text", not wrong, wrong)
            now = api.get(f"/copied/{names[0]}").json["_attachments"]
            same = [(a["digest"], a["length"], a["content_type"]) for a in stubs.values()]
            report.equal(f"{when}: as they were", [(a["digest"], a["length"], a["content_type"]) for a in now.values()], same)
            part = api.get(f"/copied/{names[5]}/text", headers={"Range": "bytes=100000-100099"})
            report.equal(f"{when}: a range", (part.status, part.raw), (206, text.encode()[100_000:100_100]))

        check("without the first one")
        server.kill()
        server.start()
        api = server.api()
        check("after a crash")
        for name in names:
            api.expect(200, "DELETE", f"/copied/{name}?rev={api.get(f'/copied/{name}').json['_rev']}")
        compact(api, "copied")
        file = api.get("/copied").json["sizes"]["file"]
        report.check("all are gone with the last documents", file < MB, file)


def test_space_is_given_back(ctx):
    report = ctx.report
    with server_for(ctx, "space") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/space")
        api.expect((201, 202), "PUT", "/dropped")
        empty = folder_mb(server)
        put(server, "/space/long/a", Content(6, 60))
        for number in range(40):
            put(server, f"/space/short-{number}/a", Content(100 + number, 1))
        put(server, "/dropped/long/a", Content(7, 60))
        full = folder_mb(server)
        kept = Content(100, 1)
        report.check("attachments take room", full - empty > 100, f"{empty:.0f} MB before, {full:.0f} MB after")
        for name in ["long"] + [f"short-{number}" for number in range(1, 40)]:
            rev = api.get(f"/space/{name}").json["_rev"]
            api.expect(200, "DELETE", f"/space/{name}?rev={rev}")
        compact(api, "space")
        api.expect((200, 202), "DELETE", "/dropped")
        gone = wait_until(lambda: folder_mb(server) < empty + 30, 60)
        report.check(
            "after a compaction, and with a deleted database, it is given back",
            gone,
            f"{empty:.0f} MB before, {full:.0f} MB full, {folder_mb(server):.0f} MB after",
        )
        report.note(f"{empty:.0f} MB empty, {full:.0f} MB full, {folder_mb(server):.0f} MB after")
        sizes = server.api().get("/space").json["sizes"]
        report.check("sizes.file says so", sizes["file"] < 3 * MB, sizes)
        report.equal("what is still named is there", get_md5(server, "/space/short-0/a")[3], kept.md5())


def test_what_a_reader_kept_goes_after_a_crash(ctx):
    kept_by_a_reader(ctx, "crash", lambda server: server.kill())


def test_what_a_reader_kept_goes_after_a_stop(ctx):
    kept_by_a_reader(ctx, "stop", lambda server: server.stop())


def compactions_of(server, db):
    return sum(re.search(rf'\bcompacted\b.*\bdb="?{db}\b', line) is not None for line in server.log().splitlines())


def kept_by_a_reader(ctx, name, end):
    """A reader keeps a long content that a compaction would remove; then the server ends."""
    report = ctx.report
    server = server_for(ctx, f"kept-{name}")
    with server:
        api = server.api()
        api.expect((201, 202), "PUT", "/kept?q=1")
        empty = folder_mb(server)
        # More than what makes a compaction due.
        put(server, "/kept/long/a", Content(8, 140))
        reader = Connection(server)
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.begin("GET", "/kept/long/a", [])
        reader.socket.recv(100)
        rev = api.get("/kept/long").json["_rev"]
        api.expect(200, "DELETE", f"/kept/long?rev={rev}")
        compact(api, "kept")
        held = api.get("/kept").json["sizes"]["file"]
        report.check(f"{name}: a content that is read stays", held > 140 * MB, held)
        compactions = compactions_of(server, "kept")
        api.expect((201, 202), "PUT", "/another?q=1")
        for _ in range(ctx.size(3, 20)):
            api.expect((201, 202), "POST", "/kept", {})
            # Before each compaction the server starts those that writes have made due.
            compact(api, "another")
        api.expect(202, "POST", "/another/_compact", {})
        report.check(f"{name}: others are made", wait_until(lambda: compactions_of(server, "another") >= 3))
        report.equal(f"{name}: compactions that could free nothing are not repeated", compactions_of(server, "kept") - compactions, 0)
        end(server)
        reader.socket.close()
        server.start()
        api = server.api()
        compact(api, "kept")
        sizes = api.get("/kept").json["sizes"]
        report.check(f"{name}: the next compaction removes it", sizes["file"] < MB, sizes)
        given_back = wait_until(lambda: folder_mb(server) < empty + 40, 30)
        report.check(f"{name}: and gives its space back", given_back, f"{empty:.0f} MB before, {folder_mb(server):.0f} MB after")


def test_broken_uploads_leave_nothing(ctx):
    report = ctx.report
    with server_for(ctx, "broken") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/broken")
        sockets_before = server.open_sockets()
        for number, megabytes in enumerate((0, 1, 8, 30)):
            connection = Connection(server)
            connection.begin("PUT", f"/broken/doc-{number}/a", [f"Content-Length: {64 * MB}", "Content-Type: image/png"])
            connection.send([b"x" * 1000])
            connection.send(Content(number, megabytes))
            connection.socket.close()
        settled = wait_until(lambda: server.open_sockets() <= sockets_before, 30)
        report.check("their connections end", settled, server.open_sockets())
        report.equal("no document has come of them", api.get("/broken").json["doc_count"], 0)
        ingest = pathlib.Path(server.data) / "store" / "ingest"
        # A portion may be worked on when its connection ends.
        report.check("nor any file", wait_until(lambda: not list(ingest.iterdir()), 30), list(ingest.iterdir()))
        api.put("/broken/doc", {"a": 1})
        wrong = api.put("/broken/doc/a", os.urandom(300_000), headers={"Content-Type": "image/png"})
        report.equal("an upload without the revision is a conflict", wrong.status, 409)
        report.check("and leaves nothing", api.get("/broken").json["sizes"]["file"] < 100_000, api.get("/broken").json["sizes"])
        late = api.put("/broken/none/a", b"hello", headers={"Content-MD5": base64.b64encode(bytes(16)).decode()})
        report.check("a wrong Content-MD5 is refused", (late.status, late.json["error"]) == (400, "content_md5_mismatch"), repr(late))
        right = base64.b64encode(hashlib.md5(b"hello").digest()).decode()
        for content_type in ("image/png", "text/plain"):
            kept = api.put(f"/broken/{content_type[:5]}/a", b"hello", headers={"Content-MD5": right, "Content-Type": content_type})
            report.equal(f"a right one is not ({content_type})", kept.status, 201)


def test_kill_during_uploads(ctx):
    report = ctx.report
    acknowledged = {}
    server = server_for(ctx, "killed")
    for turn in range(ctx.size(2, 20)):
        server.start()
        api = server.api()
        if turn == 0:
            api.expect((201, 202), "PUT", "/killed")
        else:
            check_acknowledged(report, api, acknowledged)
            folder = pathlib.Path(server.data) / "store" / "ingest"
            report.check("no file is left over", not list(folder.iterdir()), list(folder.iterdir()), quiet=True)
        writers = [Uploader(server, acknowledged, f"{turn}-{number}", ctx.random.random()) for number in range(4)]
        for writer in writers:
            writer.start()
        enough = len(acknowledged) + ctx.random.randrange(5, 40)
        report.check("uploads go on", wait_until(lambda: len(acknowledged) >= enough, 120), len(acknowledged), quiet=True)
        server.kill()
        for writer in writers:
            writer.join(60)
    server.start()
    api = server.api()
    check_acknowledged(report, api, acknowledged)
    report.note(f"{len(acknowledged)} attachments acknowledged")
    compact(api, "killed")
    check_acknowledged(report, api, acknowledged)
    stored = api.get("/killed").json["sizes"]["file"]
    named = sum(dict(acknowledged.values()).values())
    others = sum(row["doc"]["_attachments"]["a"]["length"] for row in api.get("/killed/_all_docs?include_docs=true").json["rows"])
    report.check(
        "what was not acknowledged and is in no document takes no room", stored < max(named, others) + 2 * MB, f"{stored}, {named}, {others}"
    )
    server.stop()


def check_acknowledged(report, api, acknowledged):
    wrong = []
    for path, (md5, length) in list(acknowledged.items()):
        got = api.get(path)
        if got.status != 200 or len(got.raw) != length or hashlib.md5(got.raw).hexdigest() != md5:
            wrong.append((path, got.status, len(got.raw), length))
    report.check("every acknowledged attachment is whole", not wrong, wrong[:5])


class Uploader(threading.Thread):
    """Uploads attachments of all sizes, some of them of equal bytes, and notes what was acknowledged."""

    def __init__(self, server, acknowledged, name, seed):
        super().__init__(daemon=True)
        self.api, self.acknowledged, self.name_, self.random = server.api(), acknowledged, name, random.Random(seed)

    def run(self):
        number = 0
        while True:
            size = self.random.choice((0, 10, 5000, 131_072, 200_000, 1_000_000, 17 * MB))
            same = self.random.random() < 0.3
            body = (b"same" * (size // 4 + 1))[:size] if same else self.random.randbytes(size)
            path = f"/killed/{self.name_}-{number}/a"
            kind = self.random.choice(("image/png", "text/plain")) if size < MB else "image/png"
            try:
                answer = self.api.put(path, body, headers={"Content-Type": kind})
            except Disconnected:
                return
            if answer.status == 201:
                self.acknowledged[path] = hashlib.md5(body).hexdigest(), size
            number += 1


def test_changed_by_many_at_once(ctx):
    """Writers replace, delete and copy attachments with few different contents, while a compaction runs and readers read."""
    report = ctx.report
    contents = [random.Random(n).randbytes(size) for n, size in enumerate((10, 5000, 140_000, 400_000))]
    known = {hashlib.md5(content).hexdigest() for content in contents}
    with server_for(ctx, "many") as server:
        server.api().expect((201, 202), "PUT", "/many")
        wrong, stop = [], threading.Event()

        def change(seed):
            api, rng = server.api(), random.Random(seed)
            for _ in range(ctx.size(60, 600)):
                doc = f"/many/doc-{rng.randrange(6)}"
                now = api.get(doc)
                rev = f"?rev={now.json['_rev']}" if now.status == 200 else ""
                action = rng.random()
                if action < 0.6 or not rev:
                    answer = api.put(f"{doc}/a{rev}", rng.choice(contents), headers={"Content-Type": "image/png"})
                elif action < 0.8:
                    answer = api.delete(f"{doc}/a{rev}")
                elif action < 0.85:
                    other = f"doc-{rng.randrange(6)}"
                    there = api.get(f"/many/{other}")
                    to = f"{other}?rev={there.json['_rev']}" if there.status == 200 else other
                    answer = api.request("COPY", doc, headers={"Destination": to})
                    if answer.status == 412:
                        continue  # it was changed, and what it had is compacted away
                elif action < 0.9:
                    answer = api.put(doc, {"_rev": now.json["_rev"], "_attachments": now.json.get("_attachments", {})})
                else:
                    answer = api.delete(f"{doc}{rev}")
                # Another one may have been first.
                if answer.status not in (200, 201, 409) and not (answer.status == 404 and rev):
                    wrong.append(repr(answer))

        def read():
            api, rng = server.api(), random.Random(0)
            while not stop.is_set():
                got = api.get(f"/many/doc-{rng.randrange(6)}/a")
                if got.status != 404 and (got.status != 200 or hashlib.md5(got.raw).hexdigest() not in known):
                    wrong.append(repr(got))

        def compact_again():
            api = server.api()
            while not stop.is_set():
                compact(api, "many")

        changers = [threading.Thread(target=change, args=(number,), daemon=True) for number in range(4)]
        others = [threading.Thread(target=read, daemon=True), threading.Thread(target=compact_again, daemon=True)]
        for thread in changers + others:
            thread.start()
        for thread in changers:
            thread.join(300)
        stop.set()
        for thread in others:
            thread.join(60)
        report.check("every answer is a right one", not wrong, "\n".join(wrong[:5]))
        api = server.api()
        compact(api, "many")
        named, shards = {}, {f"doc-{n}": api.get(f"/many/_shards/doc-{n}").json["range"] for n in range(6)}
        for row in api.get("/many/_all_docs?include_docs=true&attachments=true").json["rows"]:
            for attachment in row["doc"].get("_attachments", {}).values():
                data = base64.b64decode(attachment["data"])
                named[shards[row["id"]], hashlib.md5(data).hexdigest()] = len(data)
        stored = api.get("/many").json["sizes"]["file"]
        report.check("only known contents are left", {digest for _, digest in named} <= known, named)
        report.check("and no more of them than documents name", stored <= sum(named.values()) + 100_000, f"{stored}, {named}")
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def test_very_many_attachments(ctx):
    """As many as a document may have: as stubs in any order, and as parts. One more is refused."""
    most = 2_000
    with ctx.server(options=["--set", f"couchdb/max_attachments_per_document={most}"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/many")
        names = [f"file {number}" for number in range(most)]
        doc = {"_attachments": {name: {"data": ""} for name in names}}
        rev = api.expect(201, "PUT", "/many/doc", doc)["rev"]
        stubs = {"_rev": rev, "_attachments": {name: {"stub": True} for name in reversed(names)}}
        api.expect(201, "PUT", "/many/doc", stubs)
        kept = api.get("/many/doc").json["_attachments"]
        ctx.report.check("stubs keep all", sorted(kept) == sorted(names) and all(entry["revpos"] == 1 for entry in kept.values()), len(kept))
        parts = {"_attachments": {name: {"follows": True, "length": 1, "content_type": "text/plain"} for name in names}}
        body = b"".join(b"\r\n--b\r\n\r\n" + str(n % 10).encode() for n in range(most))
        related = b"--b\r\nContent-Type: application/json\r\n\r\n" + json.dumps(parts).encode() + body + b"\r\n--b--"
        answer = api.request("PUT", "/many/parts", related, {"Content-Type": "multipart/related;boundary=b"})
        ctx.report.equal("parts are taken", answer.status, 201)
        ctx.report.equal("each has its content", [api.get(f"/many/parts/{quote(names[n])}").raw for n in (0, 7, 1999)], [b"0", b"7", b"9"])
        by_name = b"".join(
            f'\r\n--b\r\nContent-Disposition: attachment; filename="{names[n]}"\r\n\r\n{n % 10}'.encode() for n in reversed(range(most))
        )
        related = b"--b\r\nContent-Type: application/json\r\n\r\n" + json.dumps(parts).encode() + by_name + b"\r\n--b--"
        answer = api.request("PUT", "/many/named", related, {"Content-Type": "multipart/related;boundary=b"})
        ctx.report.equal("parts are taken by their names", answer.status, 201)
        ctx.report.equal("and each has its content", [api.get(f"/many/named/{quote(names[n])}").raw for n in (0, 7, 1999)], [b"0", b"7", b"9"])
        parts["_attachments"]["more"] = {"follows": True}
        # The parts are missing: it is refused before they would arrive.
        related = b"--b\r\nContent-Type: application/json\r\n\r\n" + json.dumps(parts).encode() + b"\r\n--b\r\n\r\n0\r\n--b--"
        refused = api.request("PUT", "/many/parts-more", related, {"Content-Type": "multipart/related;boundary=b"})
        ctx.report.equal("one part more is refused", (refused.status, refused.json["error"]), (413, "attachment_too_large"))
        one_more = {"_attachments": {name: {"data": ""} for name in [*names, "more"]}}
        refused = api.put("/many/more", one_more)
        ctx.report.equal("one more is refused", (refused.status, refused.json["error"]), (413, "attachment_too_large"))
        ctx.report.check("by the name of the limit", "max_attachments_per_document" in refused.json["reason"], refused.json)
        ctx.report.equal("and nothing of it is there", api.get("/many/more").status, 404)

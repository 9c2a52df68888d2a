"""Malformed requests: each gets a 4xx in CouchDB's shape (or works, where the damage left it valid).

Never a 5xx, a panic, a dead server or a leaked connection. The seed is printed; `run.py --seed N fuzz`
repeats a run.
"""

import collections
import concurrent.futures
import gzip
import json

import pytest

from harness.api import basic, exchange
from harness.ledger import Found, disagreements
from harness.mutate import mutate_json, odd_segment, odd_value
from harness.server import wait_until

pytestmark = pytest.mark.quick

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_REQUEST_BYTES = 1024 * 1024
LIMITS = f"""[couchdb]
max_document_size = {MAX_DOCUMENT_BYTES}
max_document_id_length = 300
[chttpd]
max_http_request_size = {MAX_REQUEST_BYTES}
"""
CLIENTS = 4
FAILURES_SHOWN = 12

REV = "1-967a00dff5e02add41819138abb3284d"
BODIES = [
    ("PUT", "/fuzz/doc", {"_id": "doc", "_rev": REV, "a": [1, 2.5, "x", {"b": None}], "_deleted": False}),
    ("POST", "/fuzz", {"_id": "posted", "value": {"deep": [[[1]]]}, "_revisions": {"start": 1, "ids": ["abc"]}}),
    ("POST", "/fuzz/_bulk_docs", {"docs": [{"_id": "b1", "x": 1}, {"_id": "b2", "_rev": REV}], "new_edits": True}),
    ("POST", "/fuzz/_bulk_docs", {"new_edits": False, "docs": [{"_id": "g", "_rev": "2-b", "_revisions": {"start": 2, "ids": ["b", "a"]}}]}),
    ("POST", "/fuzz/_bulk_get", {"docs": [{"id": "doc", "rev": REV, "atts_since": [REV]}, {"id": "b1"}]}),
    ("POST", "/fuzz/_bulk_get?revs=true", {"docs": [{"id": "doc"}, {"id": "none", "rev": "3-x"}]}),
    ("POST", "/fuzz/_all_docs", {"keys": ["doc", "b1", "none"], "limit": 3, "skip": 0, "include_docs": True, "descending": False}),
    ("POST", "/fuzz/_all_docs/queries", {"queries": [{"keys": ["doc"]}, {"startkey": "a", "endkey": "z", "limit": 2}]}),
    ("POST", "/fuzz/_design_docs", {"keys": ["_design/a"], "limit": 3}),
    ("POST", "/fuzz/_local_docs", {"keys": ["_local/a"], "limit": 3}),
    ("POST", "/fuzz/_local_docs/queries", {"queries": [{"limit": 2}]}),
    ("POST", "/fuzz/_revs_diff", {"doc": [REV, "2-x"], "none": ["1-a"]}),
    ("POST", "/fuzz/_missing_revs", {"doc": [REV, "2-x"]}),
    ("POST", "/fuzz/_purge", {"purged": ["1-a", "2-b"], "none": ["1-a"]}),
    ("POST", "/fuzz/_changes?filter=_doc_ids", {"doc_ids": ["doc", "b1"]}),
    ("POST", "/fuzz/_changes?filter=_selector", {"selector": {"x": {"$gt": 0, "$in": [1]}, "$or": [{"a": 1}, {"b": {"$exists": True}}]}}),
    ("PUT", "/fuzz-other/_security", {"admins": {"names": ["a"], "roles": []}, "members": {"names": [], "roles": ["r"]}}),
    ("PUT", "/fuzz-other/_revs_limit", 1000),
    ("PUT", "/fuzz-other/_purged_infos_limit", 1000),
    (
        "PUT",
        "/fuzz/att",
        {
            "_attachments": {
                "a": {"data": "aGVsbG8=", "content_type": "text/plain", "revpos": 1, "digest": "md5-x"},
                "b": {"stub": True, "revpos": 1},
                "c": {"follows": True, "length": 3},
            }
        },
    ),
    ("PUT", "/fuzz/_local/l", {"_rev": "0-1", "a": 1}),
    ("PUT", "/fuzz/_design/d", {"views": {"v": {"map": "function(doc){emit(doc._id)}"}}, "language": "javascript"}),
    ("PUT", "/_node/_local/_config/fuzz/key", "value"),
    ("POST", "/_dbs_info", {"keys": ["fuzz", "none"]}),
    ("POST", "/_session", {"name": "nobody", "password": "wrong"}),
    ("POST", "/fuzz/_compact", {}),
    ("POST", "/fuzz/_ensure_full_commit", {}),
]
LIST_OPTIONS = [
    "startkey",
    "endkey",
    "start_key",
    "end_key",
    "key",
    "keys",
    "limit",
    "skip",
    "descending",
    "include_docs",
    "inclusive_end",
    "conflicts",
    "update_seq",
    "startkey_docid",
    "endkey_docid",
    "attachments",
    "stable",
    "update",
    "reduce",
    "group",
    "nope",
]
QUERIES = {
    "/fuzz/_all_docs": LIST_OPTIONS,
    "/fuzz/_design_docs": LIST_OPTIONS,
    "/fuzz/_local_docs": LIST_OPTIONS,
    "/fuzz/doc": [
        "rev",
        "revs",
        "revs_info",
        "conflicts",
        "deleted_conflicts",
        "open_revs",
        "latest",
        "local_seq",
        "meta",
        "attachments",
        "atts_since",
    ],
    "/fuzz/_changes": [
        "since",
        "limit",
        "descending",
        "style",
        "filter",
        "doc_ids",
        "include_docs",
        "conflicts",
        "seq_interval",
        "view",
        "timeout",
        "last-event-id",
    ],
    "/_all_dbs": ["startkey", "endkey", "limit", "skip", "descending", "inclusive_end"],
    "/_dbs_info": ["startkey", "endkey", "limit", "skip", "descending"],
    "/_uuids": ["count", "prefix"],
    "/_db_updates": ["since", "limit", "timeout", "descending"],
    "/_active_tasks": ["x"],
    "/fuzz/_partition/p/_all_docs": LIST_OPTIONS,
    "/fuzz/_shards/doc": ["x"],
    "/_node/_local/_stats": ["flush"],
}
CREATIONS = {"/fuzz-made": ["q", "n", "partitioned"], "/fuzz/doc": ["rev", "batch", "new_edits"]}
HEADERS = [
    "Content-Length: -1",
    "Content-Length: x",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 99999999999999999999999",
    "Transfer-Encoding: nope",
    "Transfer-Encoding: chunked\r\nContent-Length: 3",
    "Transfer-Encoding: chunked, chunked",
    "Expect: nonsense",
    "Authorization: Basic",
    "Authorization: Basic !!!",
    "Authorization: Basic YQ==",
    "Authorization: Bearer x",
    "Authorization: \xff\xfe",
    "Cookie: AuthSession=",
    "Cookie: AuthSession=%%%",
    "Cookie: AuthSession=YWRtaW46NDVGRjA=",
    "Cookie: ;;;===",
    "Accept: ,;q=x",
    "Accept: \x01",
    'Accept: multipart/mixed; boundary="',
    'If-None-Match: "',
    "If-None-Match: W/",
    "If-Match: x\x7f",
    "If-Match: 1-",
    "Range: bytes=9-1,-0",
    "X-HTTP-Method-Override: NOPE",
    "X-HTTP-Method-Override: \t",
    "Destination: ",
    "Destination: http://x/%zz",
    "Destination: b?rev=",
    "Host: ",
    "Host: a\r\nHost: b",
    "Content-Type: ;;",
    "Content-Type: multipart/related; boundary=",
    "Content-Type: application/json; charset=nope",
    "No-Colon-Here",
    ": empty name",
    "Bad Name: x",
    "X-Null: a\x00b",
    "X-Fold: a\r\n b",
    "X-Couch-Full-Commit: maybe",
    "Connection: close, upgrade",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    "Last-Event-ID: x",
    "Content-Encoding: br",
    "X-Long: " + "x" * 200_000,
    "\r\n".join(f"X-Many-{n}: {n}" for n in range(3000)),
    "X-Couch-Request-ID: \x80" * 3,
]
METHODS = ["FOO", "get", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "COPY", "MOVE", "X" * 500, "G\x00T", "", "HEAD", "DELETE"]


class Case:
    """Bytes to send, and what may come back. `protocol` marks damage below CouchDB's API: the answer
    is then a 4xx whose body, if any, need not be JSON, or the connection's end."""

    __slots__ = ("half_close", "protocol", "sent")

    def __init__(self, sent, protocol=False, half_close=False):
        self.sent, self.protocol, self.half_close = sent, protocol, half_close


def test_malformed_requests(ctx):
    total = ctx.size(2500, 10_000)
    config = ctx.root / "limits.ini"
    config.write_text(LIMITS, encoding="utf-8")
    with ctx.server(options=["--config", str(config)]) as server:
        api = server.api()
        for name in ("/fuzz", "/fuzz-other"):
            api.expect((201, 202), "PUT", name)
        api.expect(201, "PUT", "/fuzz/doc", {"a": 1})
        api.expect(
            201,
            "PUT",
            "/fuzz/with",
            {
                "_attachments": {
                    "t": {"content_type": "text/plain", "data": "aGVsbG8gaGVsbG8="},
                    "b": {"content_type": "image/png", "data": "AAECAwQFBgcICQ=="},
                }
            },
        )
        api.close()
        sockets_before = server.open_sockets()
        ctx.report.note(f"seed {ctx.seed}, {total} requests")
        fire(ctx, server, [make_case(ctx.random) for _ in range(total)])
        ctx.report.check(
            "connections are closed again",
            wait_until(lambda: server.open_sockets() <= sockets_before, 30),
            f"{sockets_before} sockets before, {server.open_sockets()} after",
        )
        oversized(ctx, server)
        still_sound(ctx, server)


def fire(ctx, server, cases):
    statuses, bad = collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        outcomes = pool.map(lambda case: send(server, case), cases)
        for number, (case, (status, problem)) in enumerate(zip(cases, outcomes)):
            statuses[status] += 1
            if problem is None:
                ctx.report.check("a malformed request gets a 4xx, or works", True, quiet=True)
            if problem:
                bad.append(f"request {number}: {problem}\n  {case.sent[:400]!r}")
    for text in bad[:FAILURES_SHOWN]:
        ctx.report.check("a malformed request gets a 4xx, or works", False, text)
    if len(bad) > FAILURES_SHOWN:
        ctx.report.check(f"and {len(bad) - FAILURES_SHOWN} more", False, "\n".join(sorted({text.splitlines()[0][:200] for text in bad})[:40]))
    ctx.report.note("answers: " + ", ".join(f"{status} × {count}" for status, count in sorted(statuses.items(), key=str)))


def send(server, case):
    """(status or what happened, problem or None)"""
    host, port = server.url.removeprefix("http://").split(":")
    try:
        answer = exchange(host, int(port), case.sent, timeout=30, half_close=case.half_close)
    except TimeoutError:
        return "timeout", "no answer within 30 s"
    except OSError as error:
        return "refused", repr(error)
    if answer is None:
        return "closed", None if case.protocol or case.half_close else "the connection ended without an answer"
    return answer.status, problem_of(case, answer)


def problem_of(case, answer):
    if answer.status >= 500 and not (answer.status == 501 and answer.is_error_shape and b"not_implemented" in answer.raw):
        return f"{answer!r}"
    if answer.status < 400:
        return None
    bare = case.sent.startswith(b"HEAD ") or (case.protocol and not answer.raw)
    if not bare and not answer.is_error_shape:
        return f"no error and reason: {answer!r}"
    return None


def make_case(rng):
    kind = rng.choices(list(MAKERS), weights=[weight for weight, _ in MAKERS.values()])[0]
    return MAKERS[kind][1](rng)


def message(method, target, body=None, headers=(), length=None, host=True):
    """A request of its own connection. `length` overrides the true Content-Length."""
    lines = [f"{method} {target} HTTP/1.1"]
    if host:
        lines.append("Host: localhost")
    lines += ["Authorization: " + basic("admin:admin"), "Connection: close", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + (body or b"")


def harmed_body(rng):
    method, target, value = rng.choice(BODIES)
    return Case(message(method, target, mutate_json(rng, value), ["Content-Type: application/json"]))


def harmed_path(rng):
    method = rng.choice(("GET", "HEAD", "PUT", "POST", "DELETE", "COPY"))
    depth = rng.randint(1, 4)
    segments = [odd_segment(rng) for _ in range(depth)]
    if rng.random() < 0.7:
        segments[0] = "fuzz"
    target = "/" + "/".join(segments)
    if method == "DELETE" and not target.split("?")[0].split("#")[0].removeprefix("/fuzz").strip("/."):
        method = "GET"  # the database is still needed
    body = b"{}" if method in ("PUT", "POST") else None
    return Case(message(method, escape_control(target), body, ["Content-Type: application/json"]), protocol=not is_plain(target))


def harmed_query(rng):
    if rng.random() < 0.1:
        target, names = rng.choice(list(CREATIONS.items()))
        return Case(message("PUT", escape_control(f"{target}?{query(rng, names)}"), b'{"a":1}'), protocol=True)
    target, names = rng.choice(list(QUERIES.items()))
    full = f"{target}?{query(rng, names)}"
    if target == "/_db_updates" or target == "/fuzz/_changes":
        full += "&feed=" + rng.choice(("normal", "nope", "", "normal"))
    return Case(message("GET", escape_control(full)), protocol=not is_plain(full))


def query(rng, names):
    return "&".join(
        rng.choice(("{}={}", "{}={}", "{}={}", "{}", "{}==&{}")).format(rng.choice(names), odd_value(rng)) for _ in range(rng.randint(1, 4))
    )


def harmed_header(rng):
    method, target, body = rng.choice(
        (
            ("GET", "/fuzz/doc", None),
            ("PUT", "/fuzz/headed", b'{"a":1}'),
            ("COPY", "/fuzz/doc", None),
            ("POST", "/fuzz/_bulk_docs", b'{"docs":[]}'),
            ("GET", "/fuzz/_all_docs", None),
            ("DELETE", "/fuzz/none", None),
        )
    )
    header = rng.choice(HEADERS)
    unending = header.startswith(("Content-Length", "Transfer-Encoding"))
    return Case(message(method, target, body, [header], host=rng.random() < 0.9), protocol=True, half_close=unending)


def truncated_body(rng):
    method, target, value = rng.choice(BODIES)
    text = json.dumps(value).encode()
    cut = text[: rng.randrange(len(text) + 1)]
    return Case(message(method, target, cut, ["Content-Type: application/json"], length=len(cut) + rng.randint(1, 5000)), half_close=True)


def harmed_chunks(rng):
    method, target, value = rng.choice(BODIES)
    text = json.dumps(value).encode()
    size = f"{len(text):x}".encode()
    framed = rng.choice(
        (
            b"zz\r\n" + text,
            size + b"\n" + text + b"0\n\n",
            b"-5\r\n" + text + b"\r\n0\r\n\r\n",
            size + b"\r\n" + text,
            b"ffffffffffffffffff\r\n" + text,
            size + b"\r\n" + text + b"xx0\r\n\r\n",
            size + b"\r\n" + text[: len(text) // 2],
            size + b";ext=\x00\r\n" + text + b"\r\n0\r\n\r\n",
            b"\r\n\r\n",
            b"",
            size + b"\r\n" + text + b"\r\n0\r\nBad Trailer\r\n\r\n",
        )
    )
    headers = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
    return Case(message(method, target, None, headers) + framed, protocol=True, half_close=True)


def harmed_gzip(rng):
    method, target, value = rng.choice(BODIES)
    packed = bytearray(gzip.compress(json.dumps(value).encode(), mtime=0))
    kind = rng.random()
    if kind < 0.4:
        packed = packed[: rng.randrange(len(packed))]
    elif kind < 0.8:
        packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
    else:
        packed = bytearray(b"[1]" if kind < 0.95 else gzip.compress(b"[" + b" " * (8 * MAX_REQUEST_BYTES) + b"]"))
    encoding = rng.choice(("gzip", "gzip", "gzip", "deflate", "nope", "gzip, gzip"))
    return Case(message(method, target, bytes(packed), ["Content-Type: application/json", f"Content-Encoding: {encoding}"]))


def multipart(rng):
    """A document with attachments that follow, damaged here and there."""
    boundary = rng.choice(("b", "b", "b", "a b", "x" * 70, "x" * 71, ""))
    names = [rng.choice(("one", "two", "a/b", "\u00fc", "_x", "")) for _ in range(rng.randint(0, 3))]
    entry = lambda: {
        "follows": rng.choice((True, True, True, False, 1)),
        "length": rng.choice((0, 3, 5, -1, 2**70, "x")),
        "content_type": rng.choice(("text/plain", "image/png", "", 1)),
        "encoding": rng.choice(("gzip", "identity", "br")),
        "digest": rng.choice(("md5-AAAAAAAAAAAAAAAAAAAAAA==", "x", 1)),
        "revpos": rng.choice((1, -1, "x")),
        "stub": rng.choice((True, False)),
    }
    doc = {"_attachments": {name: {key: value for key, value in entry().items() if rng.random() < 0.5} for name in names}}
    lines = [b"--" + boundary.encode(), b"Content-Type: application/json", b"", json.dumps(doc).encode()]
    for name in names:
        lines += [
            b"--" + boundary.encode(),
            f'Content-Disposition: attachment; filename="{name}"'.encode(),
            b"",
            rng.choice((b"", b"abc", b"hello", b"\r\n--")),
        ]
    lines.append(b"--" + boundary.encode() + b"--")
    body = bytearray(b"\r\n".join(lines))
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(body))
        body[at : at + rng.choice((0, 1, 4))] = rng.choice((b"", b"\r\n", b"--", b"\x00", b":", bytes([rng.randrange(256)])))
    kind = rng.choice(
        (f'multipart/related; boundary="{boundary}"', f"multipart/related;boundary={boundary}", "multipart/related", 'multipart/related; boundary="')
    )
    cut = rng.random() < 0.1
    target = rng.choice(("/fuzz/mp", "/fuzz/mp?new_edits=false", "/fuzz/with", "/fuzz/_local/mp", "/fuzz/_design/mp"))
    return Case(message("PUT", target, bytes(body), [f"Content-Type: {kind}"], length=len(body) + 100 if cut else None), half_close=cut)


def ranged(rng):
    """Ranges and encodings of attachments."""
    number = lambda: rng.choice(("", "0", "1", "4", "9", "10", "99", "-1", "x", "9" * 30, "\u0660", " 3"))
    ranges = ",".join(f"{number()}{rng.choice(('-', '-', '-', '', '--'))}{number()}" for _ in range(rng.choice((1, 1, 1, 2, 9, 40))))
    headers = [f"Range: {rng.choice(('bytes=', 'bytes=', 'bytes', 'items=', '', 'BYTES = '))}{ranges}".encode().decode("latin-1")]
    if rng.random() < 0.4:
        headers.append("Accept-Encoding: " + rng.choice(("gzip", "identity;q=0", "*;q=0", "gzip;q=x", ";;,=", "gzip;q=0.0, *")))
    if rng.random() < 0.2:
        headers.append("If-Range: " + rng.choice(("x", '"x"', "")))
    return Case(message(rng.choice(("GET", "GET", "HEAD")), rng.choice(("/fuzz/with/t", "/fuzz/with/b", "/fuzz/with/none")), None, headers))


def uploaded(rng):
    """Attachments put with odd headers and names."""
    headers = [f"Content-Type: {rng.choice(('text/plain', '', 'x' * 5000, 'a/b; c=' + chr(34)))}"]
    if rng.random() < 0.3:
        headers.append("Content-MD5: " + rng.choice(("x", "AAAAAAAAAAAAAAAAAAAAAA==", "=" * 30)))
    if rng.random() < 0.3:
        headers.append("Content-Encoding: " + rng.choice(("gzip", "br", "", "gzip, gzip")))
    if rng.random() < 0.3:
        headers.append("If-Match: " + rng.choice(("x", REV, "1-")))
    target = f"/fuzz/{rng.choice(('up', 'with', '_design/up', '_local/up'))}/{odd_segment(rng)}"
    body = rng.choice((b"", b"hello", gzip.compress(b"hello", mtime=0), bytes(3000)))
    plain = is_plain(target)
    return Case(message(rng.choice(("PUT", "PUT", "DELETE")), escape_control(target), body, headers), protocol=not plain)


def harmed_method(rng):
    target = rng.choice(
        ("/", "/fuzz/doc", "/fuzz/_all_docs", "/fuzz/_bulk_docs", "/fuzz/_changes?feed=normal", "/_uuids", "/_session", "/fuzz/_local/l")
    )
    return Case(message(rng.choice(METHODS), target, rng.choice((None, b"{}"))), protocol=True)


def noise(rng):
    return Case(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 300))) + rng.choice((b"", b"\r\n\r\n")), protocol=True, half_close=True)


def request_line(rng):
    line = rng.choice(
        (
            f"GET /fuzz/{odd_segment(rng)}",
            "GET",
            "GET  /  HTTP/1.1",
            "GET / HTTP/9.9",
            "GET / HTTP/1.1 x",
            "GET http://[/ HTTP/1.1",
            "GET //// HTTP/1.1",
            "GET * HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "GET /" + "a" * 100_000 + " HTTP/1.1",
            "GET /?" + "&" * 20_000 + " HTTP/1.1",
            "PRI * HTTP/2.0",
        )
    )
    return Case(line.encode("utf-8") + b"\r\nHost: x\r\nConnection: close\r\n\r\n", protocol=True, half_close=line.startswith("PRI"))


MAKERS = {
    "body": (40, harmed_body),
    "path": (15, harmed_path),
    "query": (20, harmed_query),
    "header": (8, harmed_header),
    "truncated": (4, truncated_body),
    "chunks": (4, harmed_chunks),
    "gzip": (4, harmed_gzip),
    "method": (2, harmed_method),
    "multipart": (8, multipart),
    "range": (6, ranged),
    "upload": (4, uploaded),
    "noise": (1, noise),
    "request line": (2, request_line),
}


def is_plain(target):
    """Only bytes that a request line may hold, and short enough for any server."""
    return target.isascii() and target.isprintable() and not set(target) & set(' "<>\\^`{|}') and len(target) < 4000


def escape_control(target):
    return target.replace(" ", "%20").replace("\r", "%0d").replace("\n", "%0a")


def oversized(ctx, server):
    """Input over a limit: 413 with the limit's name (400 for an id, 431 or 414 for what HTTP itself limits)."""
    api, report = server.api(), ctx.report
    big = {"pad": "x" * (MAX_DOCUMENT_BYTES + 1)}
    json_type = ["Content-Type: application/json"]
    for name, method, target, body in (
        ("a PUT document", "PUT", "/fuzz/big", big),
        ("a POST document", "POST", "/fuzz", big),
        ("a local document", "PUT", "/fuzz/_local/big", big),
    ):
        answer = api.request(method, target, body)
        report.check(f"{name} over max_document_size gets 413 and its name", named(answer, 413, "max_document_size"), repr(answer))
    answer = api.post("/fuzz/_bulk_docs", {"docs": [{"_id": "small"}, {"_id": "big", **big}]})
    refused = named(answer, 413, "max_document_size") or (answer.status == 201 and "document_too_large" in answer.raw.decode())
    report.check("so does one in a bulk", refused, repr(answer))
    for name, headers, body in (
        ("declared", json_type, b"{" + b" " * MAX_REQUEST_BYTES + b"}"),
        ("gzipped", [*json_type, "Content-Encoding: gzip"], gzip.compress(b'{"docs":[' + b" " * (4 * MAX_REQUEST_BYTES) + b"]}")),
    ):
        answer = raw(server, message("POST", "/fuzz/_bulk_docs", body, headers))
        report.check(
            f"a request over max_http_request_size ({name}) gets 413 and its name",
            answer is not None and named(answer, 413, "max_http_request_size"),
            repr(answer),
        )
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    answer = raw(server, message("POST", "/fuzz/_bulk_docs", None, [*json_type, "Transfer-Encoding: chunked"]) + piece * 20 + b"0\r\n\r\n")
    report.check(
        "a request over max_http_request_size (chunked) gets 413 and its name",
        answer is not None and named(answer, 413, "max_http_request_size"),
        repr(answer),
    )
    answer = api.put("/fuzz/" + "i" * 301, {})
    report.check("an id over max_document_id_length gets a 4xx", answer.status in (400, 413) and answer.is_error_shape, repr(answer))
    answer = raw(server, message("GET", "/fuzz/doc", None, ["X-Long: " + "x" * 4_000_000]))
    report.check("a header of 4 MB gets a 4xx", answer is not None and 400 <= answer.status < 500, repr(answer))
    answer = raw(server, message("GET", "/fuzz/" + "u" * 1_000_000))
    report.check("a URL of 1 MB gets a 4xx", answer is not None and 400 <= answer.status < 500, repr(answer))


def named(answer, status, limit):
    return answer.status == status and answer.is_error_shape and limit in answer.raw.decode("utf-8", "replace")


def raw(server, sent):
    host, port = server.url.removeprefix("http://").split(":")
    return exchange(host, int(port), sent, timeout=30)


def still_sound(ctx, server):
    report = ctx.report
    report.check("the server lives", server.alive(), server.log()[-2000:])
    log = server.log()
    at = log.find("panicked")
    report.check("no panic in its log", at < 0, log[max(0, at - 200) : at + 1500])
    wrong = disagreements(Found(server.api(), "fuzz"))
    report.check("counts, lists, feed and offsets of the fuzzed database agree", not wrong, "\n".join(wrong))
    answer = server.api().put("/fuzz/after", {"fine": True})
    report.check("a good request works as before", answer.status == 201, repr(answer))

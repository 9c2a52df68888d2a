"""What CouchDB 3.5 answers where the vectors are silent: parameters, partitions, odd but legal HTTP, configuration. The scenarios
are data: a name, the database's options, and steps of (request, status, what the answer holds)."""

import base64
import gzip
import json
import re
import socket

from harness.api import Disconnected

DOCS = [{"_id": f"d{i}", "n": i} for i in range(4)]
VIEWS = {
    "views": {
        "plain": {"map": "function(doc) { if ('n' in doc) emit(doc.n, null); }"},
        "sums": {"map": "function(doc) { if ('n' in doc) emit(doc.n, doc.n); }", "reduce": "_sum"},
    }
}
PARTITIONED = [{"_id": f"{p}:{i}", "n": i} for p in ("a", "b") for i in range(3)]
ILLEGAL_ID = {"error": "illegal_docid", "reason": "Doc id must be of form partition:id"}


def ids(*expected):
    """The answer's rows are of these documents, in this order."""
    return lambda body: [row.get("id") for row in body["rows"]] == list(expected)


def bad(error, reason):
    return {"error": error, "reason": reason}


def parse_error(reason):
    return bad("query_parse_error", reason)


# Of each: name, parameters of the database's creation, documents, steps. `{db}` stands for the database.
SCENARIOS = [
    ("the query string counts more than the body", "", DOCS, [
        ("POST /{db}/_all_docs?limit=1", {"limit": 2}, 200, ids("_design/v")),
        ("POST /{db}/_design/v/_view/plain?limit=1", {"limit": 2, "descending": True}, 200, ids("d3")),
        ("POST /{db}/_all_docs", {"keys": ["d1", "d2"], "limit": 1}, 200, ids("d1")),
    ]),
    ("of two equal parameters the later counts", "", DOCS, [
        ("GET /{db}/_all_docs?limit=3&limit=1&start_key=%22d1%22", None, 200, ids("d1")),
        ("GET /{db}/_design/v/_view/plain?startkey=2&key=1", None, 200, ids("d1")),
        ("GET /{db}/_all_docs?key=%22d1%22&start_key=%22d0%22", None, 200, ids("d0", "d1")),
        ("GET /_all_dbs?limit=5&limit=0", None, 200, []),
    ]),
    ("parameters of wrong kinds", "", DOCS, [
        *((f"GET /{{db}}/{path}?{query}", None, 400, parse_error(reason))
          for path in ("_all_docs", "_design/v/_view/plain")
          for query, reason in (
              ("limit=x", 'Invalid value for integer: "x"'),
              ("limit=", "Invalid value for integer: []"),
              ("skip=-1", 'Invalid value for positive integer: "-1"'),
              ("descending=", "Invalid boolean parameter: []"),
              ("include_docs=1", 'Invalid boolean parameter: "1"'),
              ("stale=x", "Invalid value for `stale`."),
              ("update=x", "Invalid value for `update`."),
              ("stable=x", "Invalid value for `stable`."),
          )),
        ("GET /{db}/_design/v/_view/plain?reduce=FALSE&limit=1&descending=TRUE", None, 200, ids("d3")),
        ("GET /{db}/_design/v/_view/sums?conflicts=true", None, 400, parse_error("`conflicts` is invalid for reduce views.")),
        ("GET /{db}/_design/v/_view/plain?keys=1", None, 400, parse_error("`keys` must be an array of strings.")),
        ("POST /{db}/_design/v/_view/plain", {"keys": 1}, 400, bad("bad_request", "`keys` member must be an array.")),
        ("POST /{db}/_all_docs", {"keys": 1}, 400, bad("bad_request", "`keys` body member must be an array.")),
        ("POST /{db}/_design/v/_view/plain", {"queries": [{}]}, 400,
         bad("bad_request", "The `queries` parameter is no longer supported at this endpoint")),
        ("GET /{db}/_all_docs?skip=99999999999999999999", None, 200, ids()),
        ("GET /{db}/_all_docs?partition=a", None, 400, parse_error("`partition` parameter is not supported on this db")),
        ("GET /{db}/_design/v/_view/plain/x", None, 405, {"error": "method_not_allowed"}),
    ]),
    ("limits of queries", "", DOCS, [
        ("GET /{db}/_design/v/_view/plain?limit=268435457", None, 400,
         parse_error("Limit is too large, must not exceed 268435456")),
        ("PUT /_node/_local/_config/query_server_config/query_limit", "2", 200, None),
        ("GET /{db}/_design/v/_view/plain", None, 200, ids("d0", "d1")),
        ("GET /{db}/_design/v/_view/plain?limit=3", None, 400, parse_error("Limit is too large, must not exceed 2")),
        ("GET /{db}/_all_docs?limit=3", None, 200, ids("_design/v", "d0", "d1")),
        ("DELETE /_node/_local/_config/query_server_config/query_limit", None, 200, "2"),
    ]),
    ("a partition as a parameter", "?partitioned=true", PARTITIONED, [
        ("GET /{db}/_all_docs?partition=a", None, 200, ids("a:0", "a:1", "a:2")),
        ("GET /{db}/_design/v/_view/plain?partition=b&limit=2", None, 200, ids("b:0", "b:1")),
        ("GET /{db}/_partition/a/_all_docs?partition=a&limit=1", None, 200, ids("a:0")),
        ("GET /{db}/_partition/a/_all_docs?partition=b", None, 400,
         bad("bad_request", "Conflicting value for `partition` in query string")),
        ("GET /{db}/_all_docs?partition=", None, 400, parse_error("Invalid value for `partition`.")),
        ("GET /{db}/_partition/a/_design/v/_info", None, 200, {"name": "v"}),
        ("GET /{db}/_partition/a/_design/v", None, 404, bad("not_found", "missing")),
        ("GET /{db}/_partition/a/a:0", None, 404, bad("not_found", "missing")),
        ("HEAD /{db}/_partition/a", None, 200, None),
        ("POST /{db}/_partition/_a", {}, 400, bad("illegal_partition", "Partition must not start with an underscore")),
        ("PUT /{db}/_design/g", {"options": {"partitioned": False}, **VIEWS}, 201, None),
        ("GET /{db}/_partition/a/_design/g/_view/plain", None, 400,
         parse_error("`partition` parameter is not supported in this design doc")),
    ]),
    ("ids without a partition", "?partitioned=true", PARTITIONED, [
        ("GET /{db}/x", None, 400, ILLEGAL_ID),
        ("PUT /{db}/x", {}, 400, ILLEGAL_ID),
        ("POST /{db}/_purge", {"x": ["1-a"]}, 400, ILLEGAL_ID),
        ("POST /{db}/_revs_diff", {"x": ["1-a"]}, 400, ILLEGAL_ID),
        ("POST /{db}/_bulk_get", {"docs": [{"id": "x", "rev": "1-a"}]}, 200,
         {"results": [{"id": "x", "docs": [{"error": {"id": "x", "rev": None, **ILLEGAL_ID}}]}]}),
    ]),
    ("a full partition", "?partitioned=true&q=1", [], [
        ("PUT /_node/_local/_config/couchdb/max_partition_size", "2000", 200, None),
        ("POST /{db}/_bulk_docs", {"docs": [{"_id": f"a:{i}", "text": "x" * 1000} for i in range(3)]}, 201, None),
        ("PUT /{db}/a:3", {}, 403, bad("partition_overflow", "Partition limit exceeded due to update on 'a:3'")),
        ("POST /{db}/_bulk_docs", {"docs": [{"_id": "a:3"}, {"_id": "b:0"}]}, 201,
         lambda body: body[0]["error"] == "partition_overflow" and body[1].get("ok") is True),
        ("PUT /{db}/a:4?new_edits=false", {"_rev": "1-00000000000000000000000000000001"}, 201, None),
        ("PUT /{db}/_design/more", {}, 201, None),
        ("GET /{db}/a:0", None, 200, {"_id": "a:0"}),
        ("PUT /_node/_local/_config/couchdb/max_partition_size", "1000000", 200, "2000"),
        ("PUT /{db}/a:3", {}, 201, None),
        ("DELETE /_node/_local/_config/couchdb/max_partition_size", None, 200, "1000000"),
    ]),
    ("what a database may not be created with", "", [], [
        *((f"PUT /{{db}}x?{query}", None, 400, bad("bad_request", reason)) for query, reason in (
            ("q=0", "The `q` value should be a positive integer."),
            ("n=x", "The `n` value should be a positive integer."),
            ("placement=x", "The `placement` value should be in a format `zone:n`."),
            ("engine=x", "invalid_engine_extension"),
            ("partitioned=TRUE", "Invalid `partitioned` parameter"),
        )),
        ("PUT /{db}%2F_users?partitioned=true", None, 400, bad("bad_request", "Cannot partition a system database")),
        ("DELETE /{db}nope?rev=1-a", None, 400, {"error": "bad_request"}),
    ]),
    ("HEAD goes wherever GET goes", "", DOCS, [
        *((f"HEAD /{{db}}/{path}", None, 200, None) for path in (
            "_security", "_revs_limit", "_purged_infos_limit", "_purged_infos", "_shards", "_local_docs",
            "_design/v/_info", "_design/v/_view/plain")),
        ("HEAD /{db}/_bulk_docs", None, 405, None),
    ]),
    ("_bulk_get", "", DOCS, [
        *((f"POST /{{db}}/_bulk_get?{name}=1-a", {"docs": []}, 400,
           bad("bad_request", f'"{name}" query parameter is not acceptable'))
          for name in ("rev", "open_revs", "new_edits", "w", "atts_since")),
        ("POST /{db}/_bulk_get?revs=true&latest=true", {"docs": []}, 200, {"results": []}),
    ]),
    ("purges", "", DOCS, [
        ("PUT /{db}/_purged_infos_limit", 0, 400, bad("bad_request", "`purged_infos_limit` must be positive integer")),
        ("POST /{db}/_purged_infos_limit", 1, 405, bad("method_not_allowed", "Only GET,PUT allowed")),
        ("POST /{db}/_purge", {str(i): ["1-a"] for i in range(101)}, 400,
         bad("bad_request", "Exceeded maximum number of documents.")),
        ("POST /{db}/_purge", {"d0": [f"{i}-a" for i in range(1, 1002)]}, 400,
         bad("bad_request", "Exceeded maximum number of revisions.")),
    ]),
    ("changes", "", DOCS, [
        ("GET /{db}/_changes?heartbeat=-1", None, 400,
         bad("bad_request", "The heartbeat value should be a positive integer (in milliseconds).")),
        ("GET /{db}/_changes?heartbeat=x", None, 400,
         bad("bad_request", "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).")),
        ("GET /{db}/_changes?feed=", None, 400, {"error": "bad_request"}),
    ]),
    ("configuration", "", [], [
        *((f"PUT /_node/_local/_config/{section}/x", "y", 403,
           bad("forbidden", "Config section blacklisted for modification over HTTP API."))
          for section in ("daemons", "httpd_global_handlers", "query_servers", "native_query_servers")),
        ("GET /_node", None, 400, bad("bad_request", "Incomplete path to _node request")),
        ("POST /_node/_local/_stats", {}, 405, bad("method_not_allowed", "Only GET allowed")),
        ("PUT /_node/_local/_config/couchdb/maintenance_mode", "nolb", 200, None),
        ("GET /_up", None, 404, {"status": "nolb"}),
        ("DELETE /_node/_local/_config/couchdb/maintenance_mode", None, 200, "nolb"),
        ("GET /_up", None, 200, {"status": "ok"}),
        ("PUT /_node/_local/_config/chttpd/decode_plus_to_space", "false", 200, None),
        ("PUT /{db}/a+b", {}, 201, {"id": "a+b"}),
        ("DELETE /_node/_local/_config/chttpd/decode_plus_to_space", None, 200, "false"),
        ("GET /{db}/a+b", None, 404, None),
        ("GET /{db}/a%2Bb", None, 200, {"_id": "a+b"}),
    ]),
    ("rewrites without an end", "", [], [
        ("PUT /{db}/_design/l", {"rewrites": [{"from": "loop", "to": "_rewrite/loop"}]}, 201, None),
        ("PUT /{db}/_design/f", {"rewrites": "function(req) { return {path: '../../_design/f/_rewrite/x'}; }"}, 201, None),
        ("PUT /_node/_local/_config/chttpd/rewrite_limit", "1000", 200, None),
        ("GET /{db}/_design/l/_rewrite/loop", None, 400, {"error": "bad_request"}),
        ("GET /{db}/_design/f/_rewrite/loop", None, 400, {"error": "bad_request"}),
        ("DELETE /_node/_local/_config/chttpd/rewrite_limit", None, 200, "1000"),
    ]),
    ("counts of documents in a request", "", DOCS, [
        *(step for limit, path in (("max_bulk_docs_count", "_bulk_docs"), ("max_bulk_get_count", "_bulk_get")) for step in (
            (f"PUT /_node/_local/_config/couchdb/{limit}", "1", 200, None),
            (f"POST /{{db}}/{path}", {"docs": [{"id": "d0"}, {"id": "d1"}]}, 413, bad(f"{limit}_exceeded", "1")),
            (f"DELETE /_node/_local/_config/couchdb/{limit}", None, 200, "1"),
        )),
    ]),
    ("paths that are not well encoded", "", [], [
        ("GET /{db}/%zz", None, 400, bad("bad_request", "invalid_url_encoding")),
        ("GET /{db}?x=%", None, 400, bad("bad_request", "invalid_url_encoding")),
    ]),
]


def run(context):
    context.attempt(scenarios)
    context.attempt(odd_http)
    context.attempt(few_connections)


def scenarios(context):
    server = context.server("scenarios").start()
    api = server.api()
    for number, (name, options, docs, steps) in enumerate(SCENARIOS):
        db = f"behaviour{number}"
        api.expect(201, "PUT", f"/{db}{options}")
        if docs:
            api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})
            api.expect(201, "PUT", f"/{db}/_design/v", VIEWS)
        failures = [failure for step in steps if (failure := step_failure(api, db, step))]
        context.report.check(name, not failures, "\n".join(failures))


def step_failure(api, db, step):
    """What is wrong with the answer, or None."""
    request, body, status, holds = step
    method, path = request.replace("{db}", db).split(" ", 1)
    answer = api.request(method, path, json.dumps(body).encode() if isinstance(body, (str, int)) else body)
    if answer.status == status and holds_true(answer, holds):
        return None
    return f"{method} {path}: expected {status} {holds}, got {answer!r}"


def holds_true(answer, holds):
    if holds is None:
        return True
    body = answer.json
    if callable(holds):
        return holds(body)
    if isinstance(holds, dict):
        return all(body.get(key) == value for key, value in holds.items())
    return body == holds


def odd_http(context):
    server = context.server("odd").start()
    api, report = server.api(), context.report
    api.expect(201, "PUT", "/db")
    api.expect(201, "PUT", "/db/a", {"n": 1})

    mine = api.get("/", headers={"X-Couch-Request-ID": "E7498DE1-B661"}).headers["X-Couch-Request-ID"]
    other = api.get("/", headers={"X-Couch-Request-ID": "not; an id"}).headers["X-Couch-Request-ID"]
    report.check("a client may name its request", mine == "E7498DE1-B661" and re.fullmatch("[0-9a-f]{10}", other), [mine, other])

    for path in ("/_all_dbs", "/db/_changes", "/db/a"):
        etag = api.get(path).headers["ETag"]
        again = api.get(path, headers={"If-None-Match": f'"x", {etag}'})
        report.equal(f"{path} is not sent to who has it", (again.status, again.raw), (304, b""))

    for accept, kind in (("application/json", "application/json"), ("text/html", "application/json"), ("*/*", "multipart/mixed"),
                         ("application/json, multipart/mixed", "multipart/mixed")):
        answer = api.get("/db/a?open_revs=all", headers={"Accept": accept})
        report.equal(f"open_revs to who takes {accept}", answer.headers["Content-Type"].split(";")[0], kind)

    minimal = api.get("/db/a", headers={"Prefer": "return=minimal"}).headers
    report.check("headers to be done without are left out", "ETag" in minimal and "X-Couch-Request-ID" not in minimal, minimal)
    report.equal("an event source is not cached", api.get("/db/_changes?feed=eventsource&timeout=1").headers["Cache-Control"], "no-cache")

    off = api.get("/db/a?callback=f")
    report.equal("JSONP is off at first", (off.headers["Content-Type"], off.raw[:1]), ("application/json", b"{"))
    api.expect(200, "PUT", "/_node/_local/_config/chttpd/allow_jsonp", "true")
    for path in ("/db/a", "/db/_all_docs", "/db/_changes"):
        on = api.get(f"{path}?callback=f.g")
        called = re.fullmatch(rb"/\* CouchDB \*/f\.g\((.*)\);\n", on.raw, re.S)
        report.check(f"JSONP of {path}", on.headers["Content-Type"] == "application/javascript" and called
                     and json.loads(called[1]), repr(on))
    report.equal("a callback is no script", api.get("/db/a?callback=f'").status, 400)

    zipped = gzip.compress(b'{"docs":[{"_id":"zipped"}]}')
    inflated = api.post("/db/_bulk_docs", zipped, headers={"Content-Encoding": "gzip"})
    report.equal("a body may be gzipped", (inflated.status, inflated.json[0].get("id")), (201, "zipped"))

    head = f"HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {base64.b64encode(b'admin:admin').decode()}\r\n"
    for name, sent, statuses in (
        ("a PUT that announces no body", f"PUT /db/b {head}\r\n", [400]),
        ("a client that waits to be told is refused at once",
         f"POST /db/_bulk_docs {head}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n", [415]),
        ("a client that waits to be told is told",
         f"PUT /db/c {head}Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n{{}}", [100, 201]),
        ("a body in chunks",
         f"PUT /db/d {head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1;x=y\r\n{{\r\n1\r\n}}\r\n0\r\nX: y\r\n\r\n", [201]),
        ("requests one behind another, also behind an error",
         f"GET /db/a {head}\r\nPOST /db/_bulk_docs {head}Content-Length: 2\r\n\r\n{{}}GET /db/a {head}Connection: close\r\n\r\n",
         [200, 415, 200]),
    ):
        got = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", exchange(server, sent.encode(), len(statuses)))]
        report.equal(name, got, statuses)


def few_connections(context):
    """CouchDB's `{max, N}`: who comes when all places are taken waits until one is free."""
    server = context.server("few", options=["--set", "chttpd/server_options=[{max, 2}]"]).start()
    first, second, third = (server.api(timeout=2) for _ in range(3))
    context.report.equal("two connections are served", [api.get("/").status for api in (first, second)], [200, 200])
    try:
        third.get("/")
        waits = False
    except Disconnected:
        waits = True
    context.report.check("a third one waits", waits)
    first.close()
    context.report.equal("for one to go", server.api().get("/").status, 200)


def exchange(server, data, answers):
    """What the server sends until it closes, or until it has sent so many heads and a whole last body of JSON."""
    api = server.api()
    with socket.create_connection((api.host, api.port), timeout=10) as sock:
        sock.sendall(data)
        received = b""
        while piece := sock.recv(65536):
            received += piece
            if received.count(b"HTTP/1.1 ") >= answers and received.endswith(b"}\n"):
                break
        return received

"""What clients of CouchDB were seen to depend on, beyond the recorded vectors: requests, sequences, the order of rows, and what
functions written for SpiderMonkey rely on. The expected answers are those of CouchDB."""

import base64
import json
import re
import socket
import threading

import pytest

from harness.server import wait_until

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]


@pytest.fixture(scope="module")
def server(suite):
    with suite.server() as server:
        yield server
        suite.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


@pytest.fixture
def api(server):
    return server.api()


@pytest.fixture
def report(suite):
    return suite.report


def fresh(api, name, design=None, docs=(), q=None):
    """An empty database with a design document `d` and documents."""
    api.delete(f"/{name}")
    api.expect((201, 202), "PUT", f"/{name}" + (f"?q={q}" if q else ""))
    if design is not None:
        api.expect((201, 202), "PUT", f"/{name}/_design/d", design)
    if docs:
        api.expect((201, 202), "POST", f"/{name}/_bulk_docs", {"docs": list(docs)})
    return f"/{name}"


def rows_of(api, path):
    answer = api.get(path)
    assert answer.status == 200, answer
    return [[row["key"], row["value"]] for row in answer.json["rows"]]


def values_of(api, path):
    return [value for _, value in rows_of(api, path)]


# ---- databases and limits ----


def test_version(api, report):
    """Clients choose what they send by the version. All places name the same one."""
    welcome = api.get("/")
    report.equal("the version", welcome.json["version"], "3.5.2")
    report.check("the header", welcome.headers["Server"].startswith("CouchDB/3.5.2 (Settee/"), dict(welcome.headers))


def test_a_database_that_exists_can_be_used(server, report):
    """Of several clients that create one database, each can use it as soon as it knows that it exists."""
    clients = 6
    refused = []
    for name in (f"race{n}" for n in range(12)):
        start = threading.Barrier(clients)

        def create(name=name, start=start):
            api = server.api()
            start.wait()
            created, written = api.put(f"/{name}"), api.post(f"/{name}", {})
            if created.status not in (201, 412) or written.status not in (201, 202):
                refused.append((created, written))

        threads = [threading.Thread(target=create) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    report.equal("all writes to databases that exist", refused, [])


def test_high_limits_mean_all_rows(report, api):
    views = {"v": {"map": "function (doc) { emit(doc._id, 1) }", "reduce": "_count"}}
    lists = {"count": "function (head, req) { var n = 0; while (getRow()) n++; return '' + n }"}
    db = fresh(api, "limits", {"views": views, "lists": lists}, [{"_id": "a"}, {"_id": "b"}])
    paths = ["_design/d/_view/v?reduce=false", "_design/d/_view/v?group=true", "_design/d/_list/count/v?reduce=false", "_all_docs?"]
    for limit in (268435457, 2147483647, 2**53 - 1, 2**59 - 1):
        for path in paths:
            report.equal(f"{path} with limit {limit}", api.get(f"{db}/{path}&limit={limit}").status, 200)
        report.equal(f"a posted limit {limit}", api.post(f"{db}/_design/d/_view/v", {"reduce": False, "limit": limit}).status, 200)
    high = api.get(f"{db}/_all_docs?limit={2**59}")
    report.equal("a limit beyond all", (high.status, high.json["reason"]), (400, f"Limit is too large, must not exceed {2**59 - 1}"))


def test_numbers_may_have_any_length(report, api):
    db = fresh(api, "numbers", docs=[{"_id": "a", "n": 1}])
    huge = 10**25
    found = api.post(f"{db}/_find", {"selector": {"n": 1}, "limit": huge, "r": huge})
    report.equal("a limit of _find", (found.status, len(found.json["docs"])), (200, 1))
    report.equal("a skip of _find", api.post(f"{db}/_find", {"selector": {"n": 1}, "skip": huge}).json["docs"], [])
    report.equal("a number with a fraction", api.post(f"{db}/_find", {"selector": {}, "limit": 1e25}).status, 400)
    for name in ("limit", "seq_interval", "timeout", "heartbeat"):
        report.equal(f"{name} of _changes", len(api.get(f"{db}/_changes?{name}={huge}").json["results"]), 1)
    report.equal("_revs_limit", api.put(f"{db}/_revs_limit", huge).status, 200)
    report.equal("a write after that", api.put(f"{db}/b", {}).status, 201)
    report.equal("_revs_limit below 1", api.put(f"{db}/_revs_limit", -huge).status, 400)
    garbage = api.get(f"{db}/_changes?descending=true&since=garbage")
    report.equal("since is not read in a descending feed", (garbage.status, len(garbage.json["results"])), (200, 2))


def test_the_offset_of_design_documents_is_within_their_number(report, api):
    db = fresh(api, "offsets", {}, [{"_id": str(n)} for n in range(5)])
    listing = api.get(f"{db}/_design_docs").json
    report.equal("of documents before them", (listing["total_rows"], listing["offset"], len(listing["rows"])), (1, 1, 1))


# ---- requests and responses ----


def test_some_bodies_are_read_whatever_their_type(report, api):
    index = {"analyzer": "keyword", "index": "function (doc) { index('a', doc.a) }"}
    db = fresh(api, "types", {"indexes": {"i": index}, "views": {"v": {"map": "function (doc) { emit(1) }"}}}, [{"_id": "x", "a": "word"}])
    for kind in ("text/plain;charset=UTF-8", "application/x-www-form-urlencoded"):
        headers = {"Content-Type": kind}

        def post(path, body, headers=headers):
            return api.request("POST", f"{db}/{path}", json.dumps(body).encode(), headers=headers)

        found = post("_design/d/_search/i", {"q": "a:word"})
        report.equal(f"_search with {kind}", (found.status, [row["id"] for row in found.json["rows"]]), (200, ["x"]))
        report.equal(f"_all_docs/queries with {kind}", post("_all_docs/queries", {"queries": [{"limit": 1}]}).status, 200)
        report.equal(f"queries of a view with {kind}", post("_design/d/_view/v/queries", {"queries": [{}]}).status, 415)
        report.equal(f"_find with {kind}", post("_find", {"selector": {}}).status, 415)


def test_numbers_are_found_by_ranges_of_text(report, api):
    """In Clouseau's interface, where numbers are indexed as terms."""
    source = "function (doc) { ['word', 'n'].forEach(function (name) { if (name in doc) index(name, doc[name]) }) }"
    docs = [{"_id": "a", "word": "w"}, {"_id": "b", "word": "x", "n": 7}]
    db = fresh(api, "ranges", {"indexes": {"i": {"analyzer": "standard", "index": source}}}, docs)
    for query, wanted in (
        ('n:["" TO *]', ["b"]),
        ("*:* AND n:[* TO zz]", ["b"]),
        ('*:* AND !n:["" TO *]', ["a"]),
        ("n:[a TO *]", []),
        ('word:["" TO *]', ["a", "b"]),
        ("n:[7 TO 8]", ["b"]),
    ):
        found = api.post(f"{db}/_design/d/_search/i", {"q": query}).json
        report.equal(query, sorted(row["id"] for row in found["rows"]), wanted)


def test_updates_of_databases(report, api):
    for query in ("heartbeat=false", "heartbeat=0", "feed=longpoll&heartbeat=false&timeout=1&since=0", f"limit={10**25}"):
        report.equal(query, api.get(f"/_db_updates?{query}").status, 200)
    for query in ("heartbeat=soon", "timeout=-1", "limit=x"):
        answer = api.get(f"/_db_updates?{query}")
        report.equal(query, (answer.status, answer.json["reason"]), (400, "invalid_integer"))
    # Another test's databases may be written meanwhile: then its ETag is another one.
    for _ in range(20):
        etag = api.get("/_db_updates").headers["etag"]
        again = api.get("/_db_updates", headers={"If-None-Match": etag})
        if again.status == 304:
            break
    report.equal("a feed that the client has", (again.status, again.raw), (304, b""))


def test_parameters_of_feeds(report, api):
    """Names in any case, the last of several, and sequences that nobody wrote."""
    db = fresh(api, "feeds", docs=[{"_id": "a"}, {"_id": "b"}], q=1)

    def ids(query):
        answer = api.get(f"{db}/_changes?{query}")
        return [row["id"] for row in answer.json["results"]] if answer.status == 200 else answer.status

    last = api.get(f"{db}/_changes").json["results"][0]["seq"]
    for query, wanted in (
        ("LIMIT=1", ["a"]),
        ("limit=1&limit=2", ["a", "b"]),
        ("Filter=_design", []),
        ("filter=/", ["a", "b"]),
        ("descending=true&descending=false&limit=1", ["b"]),
        (f"since={last}", ["b"]),
        (f"since={last.split('-', 1)[1]}", ["b"]),
        (f"since=0&last-event-id={last}", ["b"]),
        (f"last-event-id={last}&since=0", ["a", "b"]),
        ("since=", 400),
        ("since=1-abc", 400),
        ("limit=x&limit=1", 400),
        ("SEQ_INTERVAL=0", 400),
        ("filter=_doc_ids&doc_ids=[%22b%22]", ["b"]),
    ):
        report.equal(query, ids(query), wanted)
    posted = api.post(f"{db}/_changes?filter=_doc_ids&doc_ids=[%22b%22]", {})
    report.equal("a POST has its ids in its body", posted.status, 400)
    times = api.get("/_db_updates?feed=live")
    report.equal("live", (times.status, times.json["reason"]), (400, "Supported `feed` types: normal, continuous, longpoll, eventsource"))
    # Events are written a moment later.
    limited = lambda: len(api.get("/_db_updates?limit=1&limit=2").json["results"])
    wait_until(lambda: limited() == 2)
    report.equal("the last limit", limited(), 2)
    for path, allowed in (("/_db_updates", "GET"), ("/_membership", "GET"), (f"{db}/_changes", "GET,POST,HEAD")):
        report.equal(path, api.delete(path).json["reason"], f"Only {allowed} allowed")


def test_a_single_key_of_queries_is_a_range(report, api):
    db = fresh(api, "queries", docs=[{"_id": "a"}, {"_id": "b"}])
    queries = [{"keys": ["b"]}, {"keys": ["missing"]}, {"keys": ["b", "missing"]}]
    found = api.post(f"{db}/_all_docs/queries", {"queries": queries}).json["results"]
    shown = [(result["offset"], [row["key"] for row in result["rows"]]) for result in found]
    report.equal("rows and offsets", shown, [(1, ["b"]), (2, []), (None, ["b", "missing"])])


def test_one_invalid_document_refuses_a_bulk(report, api):
    db = fresh(api, "bulk")
    path = {"start": 1, "ids": ["g" * 32]}
    for what, document, error, reason in (
        ("data", {"_attachments": {"a": {"data": "!!"}}}, "bad_request", "Invalid attachment data for a"),
        ("a name", {"_attachments": {"_a": {"data": ""}}}, "bad_request", "Attachment name '_a' starts with prohibited character '_'"),
        ("a revision", {"_revisions": path}, "doc_validation", "RevId isn't a valid hexadecimal"),
    ):
        answer = api.post(f"{db}/_bulk_docs", {"docs": [{"_id": "other"}, {"_id": "bad", **document}]})
        report.equal(what, (answer.status, answer.json), (400, {"error": error, "reason": reason}))
    report.equal("nothing was written", api.get(db).json["doc_count"], 0)


def test_a_required_login_is_asked_for_and_leads_nowhere(ctx):
    with ctx.server(options=["--set", "chttpd/require_valid_user=true", "--set", "chttpd_auth_lockout/mode=off"]) as server:
        wrong, unknown = server.api(credentials="admin:wrong"), server.api(credentials="")
        challenge = (401, 'Basic realm="server"')
        for name, api in (("a wrong password", wrong), ("no password", unknown)):
            for path in ("/", "/_utils/session.html", "/_all_dbs"):
                for accept in ("application/json", "text/html"):
                    answer = api.get(path, headers={"Accept": accept})
                    ctx.report.equal(f"{path} as {accept} with {name}", (answer.status, answer.headers.get("www-authenticate")), challenge)


def test_browsers_are_sent_to_the_login_page_once(report, server):
    api = server.api(credentials="admin:wrong")
    to_login = api.get("/_all_dbs", headers={"Accept": "text/html"})
    report.equal("a page", (to_login.status, "/_utils/session.html?return=" in to_login.headers["location"]), (302, True))
    report.equal("the login page itself", api.get("/_utils/session.html", headers={"Accept": "text/html"}).status, 401)
    report.equal("JSON is taken, too", api.get("/_all_dbs", headers={"Accept": "application/json, text/html"}).status, 401)


def received(server, head):
    """Sends a request without a body, and returns the response as it is written."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall((head + "\r\nConnection: close\r\n\r\n").encode())
        pieces = iter(lambda: connection.recv(65536), b"")
        return b"".join(pieces).decode()


def test_the_framing_of_messages(report, server, api):
    db = fresh(api, "framing", docs=[{"_id": f"{n:04}", "text": "x" * 100} for n in range(500)])
    login = "Authorization: Basic " + base64.b64encode(b"admin:admin").decode()
    report.check("a request without a host", received(server, "GET / HTTP/1.1").startswith("HTTP/1.1 200 OK\r\n"))
    report.check(
        "the phrase of a 404", received(server, f"GET {db}/none HTTP/1.1\r\nHost: a\r\n{login}").startswith("HTTP/1.1 404 Object Not Found\r\n")
    )
    listing = received(server, f"GET {db}/_all_docs?include_docs=true HTTP/1.1\r\nHost: a\r\n{login}")
    head, body = listing.split("\r\n\r\n", 1)
    report.check("the listing is chunked", "Transfer-Encoding: chunked" in head, head)
    sizes = []
    while body:
        size, body = body.split("\r\n", 1)
        sizes.append(size)
        body = body[int(size, 16) + 2 :]
    report.check(
        "sizes in lower case", any(re.search("[a-f]", size) for size in sizes) and not any(re.search("[A-F]", size) for size in sizes), sizes
    )


def test_what_functions_answer(report, api):
    shows = {
        "code": "function (doc, req) { return {code: '404', body: 'x'} }",
        "phrase": "function (doc, req) { return {code: '410 Long gone', body: 'x'} }",
        "headers": "function (doc, req) { return {headers: {'X-A': true, 'X-B': null, 'X-C': 5, 'X-D': false}, body: 'x'} }",
    }
    lists = {"code": "function (head, req) { start({code: '400', headers: {'X-A': true}}); send('bad') }"}
    db = fresh(api, "answers", {"shows": shows, "lists": lists, "views": {"v": {"map": "function (doc) { emit(1) }"}}})
    report.equal("a code that is text", api.get(f"{db}/_design/d/_show/code").status, 404)
    report.equal("a code with a phrase", api.get(f"{db}/_design/d/_show/phrase").status, 410)
    answer = api.get(f"{db}/_design/d/_show/headers")
    report.equal("headers of any plain value", [answer.headers.get(f"x-{name}") for name in "abcd"], ["true", "null", "5", "false"])
    listed = api.get(f"{db}/_design/d/_list/code/v")
    report.equal("start of a list", (listed.status, listed.headers.get("x-a"), listed.raw), (400, "true", b"bad"))


# ---- sequences ----


def decoded(term):
    """The value of an Erlang term: only what sequences consist of."""
    assert term[0] == 131, term[:4]
    at = 1

    def take(count):
        nonlocal at
        at += count
        return term[at - count : at]

    def number(count):
        return int.from_bytes(take(count), "big", signed=True)

    def value():
        tag = take(1)[0]
        if tag == 97:
            return take(1)[0]
        if tag == 98:
            return number(4)
        if tag == 110:
            count, sign = take(2)
            return int.from_bytes(take(count), "little") * (-1 if sign else 1)
        if tag == 104:
            return tuple(value() for _ in range(take(1)[0]))
        if tag == 106:
            return []
        if tag == 108:
            elements = [value() for _ in range(number(4))]
            assert value() == []
            return elements
        if tag == 109:
            return take(number(4))
        assert tag == 119, tag
        return take(take(1)[0]).decode()

    whole = value()
    assert at == len(term), (at, term)
    return whole


def test_sequences_can_be_decoded(report, api):
    db = fresh(api, "seqs", {"views": {"v": {"map": "function (doc) { emit(1) }"}}}, [{"_id": str(n)} for n in range(9)], q=3)
    api.get(f"{db}/_design/d/_view/v")
    seqs = {
        "the database's": api.get(db).json["update_seq"],
        "the view's": api.get(f"{db}/_design/d/_view/v?update_seq=true").json["update_seq"],
        "the listing's": api.get(f"{db}/_all_docs?update_seq=true").json["update_seq"],
    }
    ranges = [bounds.split("-") for bounds in sorted(api.get(f"{db}/_shards").json["shards"])]
    for name, seq in seqs.items():
        number, opaque = seq.split("-", 1)
        term = decoded(base64.urlsafe_b64decode(opaque + "=" * (-len(opaque) % 4)))
        report.equal(f"{name} ranges", [[f"{bound:08x}" for bound in bounds] for _, bounds, _ in term], ranges)
        report.equal(f"{name} sum", sum(seq[0] for _, _, seq in term), int(number))
        report.equal(f"a feed from {name}", api.get(f"{db}/_changes?since={seq}").json["results"], [])
    last = api.get(f"{db}/_changes").json["last_seq"]
    report.equal("a feed has the same number", last.split("-")[0], seqs["the database's"].split("-")[0])
    report.equal("and goes on from its own", api.get(f"{db}/_changes?since={last}").json["results"], [])
    report.equal("a seq of another database", api.get(f"{db}/_changes?since=9-AAAAAQED").status, 200)


# ---- the order of rows ----


def test_rows_of_one_document_with_one_key_stay_in_order(report, api):
    source = "function (doc) { if (doc.n) for (var i = 0; i < doc.n; i++) emit('k', i) }"
    for q in (1, 3):
        db = fresh(
            api,
            f"alike{q}",
            {"views": {"v": {"map": source}}},
            [{"_id": name, "n": n} for name, n in (("a", 3), ("b", 1), ("c", 700), ("d", 2))],
            q=q,
        )
        view = f"{db}/_design/d/_view/v?descending=true"
        wanted = [*range(2), *range(700), 0, *range(3)]
        report.equal("all", values_of(api, view), wanted)
        for skip, limit in ((0, 1), (1, 2), (2, 5), (300, 3), (650, 100), (701, 4), (702, 1), (703, 9), (706, 1)):
            report.equal(f"skip {skip}, limit {limit}", values_of(api, f"{view}&skip={skip}&limit={limit}"), wanted[skip : skip + limit])
        report.equal("ascending", values_of(api, f"{db}/_design/d/_view/v"), [*range(3), 0, *range(700), *range(2)])


def test_rows_of_one_document_arrive_whole_in_pieces(report, api):
    """A long answer is written in pieces, which may end among the rows of one document."""
    source = "function (doc) { for (var i = 0; i < 40; i++) emit('k', [i, new Array(1000).join('x')]) }"
    db = fresh(api, "pieces", {"views": {"v": {"map": source}}}, [{"_id": f"{n:02}"} for n in range(30)], q=2)
    answer = api.get(f"{db}/_design/d/_view/v?descending=true").json["rows"]
    report.equal("rows", [(row["id"], row["value"][0]) for row in answer], [(f"{n:02}", i) for n in range(29, -1, -1) for i in range(40)])


def test_reduce_functions_are_called_as_in_couchdb(report, api):
    """With one shard: the rows from last to first, and a rereduce at the end, even of one value."""
    views = {
        "first": {"map": "function (doc) { emit(doc.k, doc._id) }", "reduce": "function (keys, values, rereduce) { return values[0] }"},
        "calls": {
            "map": "function (doc) { emit(doc.k, doc.n) }",
            "reduce": "function (keys, values, rereduce) { return (rereduce ? 'r' : '') + '(' + values.join() + ')' }",
        },
        "mean": {
            "map": "function (doc) { emit(doc.k, doc.n) }",
            "reduce": """function (keys, values, rereduce) {
                if (!rereduce) return {s: sum(values), n: values.length};
                var s = 0, n = 0; values.forEach(function (x) { s += x.s; n += x.n });
                return {s: s, n: n, mean: s / n} }""",
        },
        "alike": {
            "map": "function (doc) { emit(1, [doc.n, 2]); emit(1, [doc.n, 1]) }",
            "reduce": "function (keys, values, rereduce) { return rereduce ? values[0] : values }",
        },
    }
    db = fresh(api, "reduces", {"views": views}, [{"_id": f"d{n}", "k": "ab"[n % 2], "n": n} for n in range(8)], q=1)
    view = f"{db}/_design/d/_view/"
    report.equal("values[0]", rows_of(api, view + "first?group=true"), [["a", "d6"], ["b", "d7"]])
    report.equal("values[0] descending", rows_of(api, view + "first?group=true&descending=true"), [["b", "d1"], ["a", "d0"]])
    report.equal("values[0] of all", rows_of(api, view + "first"), [[None, "d7"]])
    report.equal("values[0] of all, descending", rows_of(api, view + "first?descending=true"), [[None, "d0"]])
    report.equal("calls", rows_of(api, view + "calls?group=true"), [["a", "r((6,4,2,0))"], ["b", "r((7,5,3,1))"]])
    report.equal("calls for a key", rows_of(api, view + 'calls?group=true&key="a"'), [["a", "r((6,4,2,0))"]])
    report.equal("calls of a range", rows_of(api, view + 'calls?startkey="b"'), [[None, "r((7,5,3,1))"]])
    report.equal(
        "a mean that rereduce makes",
        rows_of(api, view + "mean?group=true"),
        [["a", {"s": 12, "n": 4, "mean": 3}], ["b", {"s": 16, "n": 4, "mean": 4}]],
    )
    alike = [pair for n in range(7, -1, -1) for pair in ([n, 1], [n, 2])]
    report.equal("rows of one document with one key", values_of(api, view + "alike"), [alike])


def test_reductions_of_many_rows_are_right_in_any_order(report, api):
    reduce = "function (keys, values, rereduce) { return sum(values) }"
    docs = [{"_id": f"{n:05}", "k": [n % 7, n % 3], "n": n} for n in range(3000)]
    for q in (1, 2):
        db = fresh(
            api,
            f"sums{q}",
            {
                "views": {
                    "v": {"map": "function (doc) { emit(doc.k, doc.n) }", "reduce": reduce},
                    "b": {"map": "function (doc) { emit(doc.k, doc.n) }", "reduce": "_sum"},
                }
            },
            docs,
            q=q,
        )
        for options in (
            "",
            "?group=true",
            "?group_level=1",
            "?descending=true",
            "?group_level=1&descending=true",
            "?startkey=[2,1]&endkey=[5]",
            "?group=true&startkey=[2,1]",
        ):
            report.equal(f"q={q} {options}", rows_of(api, f"{db}/_design/d/_view/v{options}"), rows_of(api, f"{db}/_design/d/_view/b{options}"))


# ---- SpiderMonkey ----

SORTED = [8, 5, 2, 8, 0, 8, 4, 1, 4, 8]


def emitted(api, name, body, doc=None):
    """What a map function with this body emits for a document, as one value."""
    db = fresh(api, name, {"views": {"v": {"map": f"function (doc) {{ {body} }}"}}}, [{"_id": "x", **(doc or {})}])
    return values_of(api, f"{db}/_design/d/_view/v")


def test_sort_takes_any_comparison(report, api):
    body = "var many = []; for (var i = 0; i < 500; i++) many.push(i * 7919 % 500);"
    for name, comparison, reverse in (("gt", "a > b", False), ("lt", "a < b", True), ("one", "a > b ? 1 : 0", False), ("minus", "a - b", False)):
        compare = f"function (a, b) {{ return {comparison} }}"
        few, many = emitted(api, f"sort_{name}", f"{body} emit(1, [doc.a.slice().sort({compare}), many.sort({compare})])", {"a": SORTED})[0]
        report.equal(f"few by {comparison}", few, sorted(SORTED, reverse=reverse))
        report.equal(f"many by {comparison}", many, sorted(range(500), reverse=reverse))
    source = "var a = [3, undefined, 1, , 2]; a.sort(function (a, b) { return a - b }); emit(1, [a, a.length, 4 in a, [10, 9, 1].sort()])"
    report.equal("holes and undefined come last", emitted(api, "sort_holes", source), [[[1, 2, 3, None, None], 5, False, [1, 10, 9]]])
    stable = "emit(1, doc.a.sort(function (a, b) { return a[0] - b[0] }))"
    pairs = [[n * 7 % 5, n] for n in range(60)]
    report.equal("equal elements keep their order", emitted(api, "sort_stable", stable, {"a": pairs})[0], sorted(pairs, key=lambda pair: pair[0]))
    report.equal(
        "what cannot be called is refused", emitted(api, "sort_wrong", "try { [2, 1].sort(5) } catch (e) { emit(1, e instanceof TypeError) }"), [True]
    )


def spidermonkey_sorted(items, is_above):
    """The merge sort of SpiderMonkey: insertion for few elements, else for pieces of 4, which are merged."""

    def inserted(items):
        done = []
        for item in items:
            at = len(done)
            while at > 0 and is_above(done[at - 1], item):
                at -= 1
            done.insert(at, item)
        return done

    def merged(left, right):
        if not right or not is_above(left[-1], right[0]):
            return left + right
        out, i, j = [], 0, 0
        while i < len(left) and j < len(right):
            if is_above(left[i], right[j]):
                out.append(right[j])
                j += 1
            else:
                out.append(left[i])
                i += 1
        return out + left[i:] + right[j:]

    if len(items) < 24:
        return inserted(items)
    runs = [inserted(items[n : n + 4]) for n in range(0, len(items), 4)]
    while len(runs) > 1:
        runs = [merged(runs[n], runs[n + 1] if n + 1 < len(runs) else []) for n in range(0, len(runs), 2)]
    return runs[0]


def test_sort_compares_values_that_miss_the_member_as_equal(report, api):
    """Such comparisons are inconsistent, so the order depends on which elements are compared."""

    def is_above(a, b):
        return "n" in a and "n" in b and a["n"] > b["n"]

    few = [{"i": 0, "n": 3}, {"i": 1}, {"i": 2, "n": 1}, {"i": 3, "n": 2}, {"i": 4}, {"i": 5, "n": 0}]
    many = [{"i": i, **({"n": i * 7919 % 500} if i % 3 else {})} for i in range(500)]
    comparisons = ("a.n - b.n", "a.n < b.n ? -1 : a.n > b.n ? 1 : 0", "a.n > b.n", "a.n > b.n ? 1 : -1")
    for number, comparison in enumerate(comparisons):
        compare = f"function (a, b) {{ return {comparison} }}"
        body = f"[doc.few, doc.many].forEach(function (a, k) {{ emit(k, a.sort({compare}).map(function (x) {{ return x.i }})) }})"
        found = emitted(api, f"sort_missing_{number}", body, {"few": few, "many": many})
        for name, order, items in zip(("few", "many"), found, (few, many), strict=True):
            wanted = [item["i"] for item in spidermonkey_sorted(items, is_above)]
            report.equal(f"{name} by {comparison}", order, wanted)
    thrown = "var a = [3, 1, 2]; try { a.sort(function (x, y) { if (y === 2) throw 1; return x - y }) } catch (e) { emit(1, a) }"
    report.equal("an array is unchanged if a comparison throws", emitted(api, "sort_throws", thrown), [[3, 1, 2]])


def test_the_last_match_is_remembered_where_it_is_named(report, api):
    body = "if (doc._id.match(/^map\\/(\\d+)\\/(.*)$/)) emit(RegExp.$1, RegExp.$2)"
    views = {
        "a": {"map": f"function (doc) {{ {body} }}"},
        "b": {
            "map": """function (doc) { if (/:(.*)@/.test(doc.t)) emit(RegExp.lastMatch, [RegExp.leftContext, RegExp.rightContext, RegExp.input,
                RegExp.lastParen, RegExp['$&'], RegExp['$`'], RegExp["$'"], RegExp.$_, RegExp['$+'], RegExp.$9]) }"""
        },
        "c": {
            "map": "function (doc) { emit(1, [doc.t.replace(/(o)(e)/, function () { return RegExp.$2 + RegExp.$1 }), doc.t.split(/[:@]/), typeof RegExp.$1]) }"
        },
    }
    loop = """function (doc, req) { var b = ['<hr>'], t = '~K0K';
        while (t.search(/~K(\\d+)K/) >= 0) t = t.replace(/~K\\d+K/, b[RegExp.$1].replace(/x/g, '')); return t }"""
    lib = {"lib": {"m": "exports.first = function (text) { return /(.)/.test(text) ? RegExp.$1 : null }"}}
    db = fresh(api, "matches", {"views": views, "shows": {"s": loop}}, [{"_id": "map/42/x", "t": "user:joe@x"}])
    view = f"{db}/_design/d/_view/"
    report.equal("groups", rows_of(api, view + "a"), [["42", "x"]])
    parts = ["user", "x", "user:joe@x", "joe", ":joe@", "user", "x", "user:joe@x", "joe", ""]
    report.equal("all parts", rows_of(api, view + "b"), [[":joe@", parts]])
    report.equal("in replacements", values_of(api, view + "c"), [["user:jeo@x", ["user", "joe", "x"], "string"]])
    report.equal("a show", api.get(f"{db}/_design/d/_show/s").raw, b"<hr>")
    body = "emit(1, ['a1-b2-c3'.replace(/([a-z])(\\d)/g, function () { return RegExp.$2 + RegExp.$1 + RegExp.leftContext.length }), RegExp.$1])"
    report.equal("in each of several replacements", emitted(api, "matches_all", body), [["1a0-2b3-3c6", "c"]])
    body = """emit(1, 'x=1;y=2'.replace(/(\\w)=(\\d)/g, function (all) { var name = RegExp.$1; /(.)$/.test(all); return name + ':' + RegExp.$1 }))"""
    report.equal("a replacement may match, too", emitted(api, "matches_within", body), ["x:1;y:2"])
    views = {**lib, "v": {"map": "function (doc) { emit(require('views/lib/m').first(doc._id), typeof RegExp) }"}}
    db = fresh(api, "matches_lib", {"views": views}, [{"_id": "a"}, {"_id": "b"}])
    report.equal("in a module", rows_of(api, f"{db}/_design/d/_view/v"), [["a", "function"], ["b", "function"]])
    source = "emit(1, [RegExp.$1, (/(.)/.test(doc._id), RegExp.$1)])"
    db = fresh(api, "matches_each", {"views": {"v": {"map": f"function (doc) {{ {source} }}"}}}, [{"_id": "a"}, {"_id": "b"}])
    report.equal("a call does not see another's match", values_of(api, f"{db}/_design/d/_view/v"), [["", "a"], ["", "b"]])


def test_texts_of_a_locale(report, api):
    compare = "emit(1, ['a'.localeCompare('B'), 'B'.localeCompare('a'), 'a'.localeCompare('a'), 'ä'.localeCompare('z'), 'a'.localeCompare('A'), 'résumé'.localeCompare('resume')])"
    report.equal("localeCompare", emitted(api, "locale_compare", compare), [[-1, 1, 0, -1, -1, 1]])
    words = ["zebra", "Äpfel", "apple", "Zoo", "éclair", "eclipse", "Eclair"]
    report.equal(
        "sorted by it",
        emitted(api, "locale_sort", "emit(1, doc.w.sort(function (a, b) { return a.localeCompare(b) }))", {"w": words}),
        [["Äpfel", "apple", "Eclair", "éclair", "eclipse", "zebra", "Zoo"]],
    )
    numbers = "emit(1, [1234567.8915, 0.0005, 1e21, 1.5e-7, 999.9996, -1234.5, 12].map(function (n) { return n.toLocaleString() }))"
    report.equal(
        "numbers",
        emitted(api, "locale_numbers", numbers),
        [["1,234,567.892", "0.001", "1,000,000,000,000,000,000,000", "0", "1,000", "-1,234.5", "12"]],
    )
    dates = "var d = new Date(1435744800000); emit(1, [d.toLocaleString(), d.toLocaleDateString(), d.toLocaleTimeString(), new Date(NaN).toLocaleString()])"
    report.equal("dates", emitted(api, "locale_dates", dates), [["7/1/2015, 10:00:00 AM", "7/1/2015", "10:00:00 AM", "Invalid Date"]])


def test_the_source_of_values(report, api):
    body = (
        "emit(1, [({a: 1, 'b-c': [1, , 'x\\n\u00e9']}).toSource(), doc.a.toSource(), 'x'.toSource(), uneval('x'), uneval(undefined), (5).toSource()])"
    )
    wanted = ['({a:1, "b-c":[1, , "x\\n\\xe9"]})', "[1, 2]", '(new String("x"))', '"x"', "(void 0)", "(new Number(5))"]
    report.equal("toSource and uneval", emitted(api, "sources", body, {"a": [1, 2]}), [wanted])


def test_dates_are_in_the_time_zone_that_is_set(ctx):
    """In UTC unless one is set; indexes of functions with dates are rebuilt for another one, and only these."""
    design = {"views": {"v": {"map": "function (doc) { emit(new Date(doc.t).getHours(), new Date(2015, 6, 1).getTime()) }"}}}
    plain = {"views": {"v": {"map": "function (doc) { emit(doc.t) }"}}}
    seen = []
    for zone in ("UTC", "Europe/Berlin"):
        with ctx.server(options=["--set", f"functions/time_zone={zone}"]) as server:
            api = server.api()
            if zone == "UTC":
                db = fresh(api, "zone", design, [{"_id": "x", "t": 1435744800000}])
                api.expect((201, 202), "PUT", f"{db}/_design/plain", plain)
            signatures = [api.get(f"{db}/_design/{name}/_info").json["view_index"]["signature"] for name in ("d", "plain")]
            seen.append((rows_of(api, f"{db}/_design/d/_view/v"), signatures))
    (utc, [dated, undated]), (berlin, [dated_there, undated_there]) = seen
    ctx.report.equal("in UTC", utc, [[10, 1435708800000]])
    ctx.report.equal("in Berlin", berlin, [[12, 1435701600000]])
    ctx.report.check("the index with dates is another one", dated != dated_there)
    ctx.report.equal("the index without dates is the same", undated_there, undated)

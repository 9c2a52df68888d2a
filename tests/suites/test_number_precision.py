"""Doubles keep every bit wherever they go: as values, as keys, and in what is asked for."""

import math
import struct
import urllib.parse

import pytest

pytestmark = pytest.mark.quick

DESIGN = {
    "views": {"x": {"map": "function (doc) { emit(doc.x, doc.x); }"}},
    "nouveau": {"i": {"index": "function (doc) { index('double', 'x', doc.x, {store: true}); index('string', 'id', doc._id); }"}},
    "indexes": {"i": {"index": "function (doc) { index('x', doc.x, {store: true, facet: true}); index('id', doc._id); }"}},
}
INDEXES = [
    {"index": {"fields": ["x"]}, "ddoc": "json", "name": "json"},
    {"index": {"fields": [{"name": "x", "type": "number"}]}, "type": "text", "ddoc": "text", "name": "text"},
]
VIEW, NOUVEAU, SEARCH = "/n/_design/d/_view/x", "/n/_design/d/_nouveau/i", "/n/_design/d/_search/i"


def test_doubles_keep_every_bit(ctx):
    numbers = doubles(ctx.random, ctx.size(300, 5_000))
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/n")
        api.expect(201, "PUT", "/n/_design/d", DESIGN)
        for index in INDEXES:
            api.expect(200, "POST", "/n/_index", index)
        # As text: what is sent are the digits that are tried.
        docs = ",".join(f'{{"_id":"d{n}","x":{x!r}}}' for n, x in enumerate(numbers))
        answer = api.post("/n/_bulk_docs", f'{{"docs":[{docs}]}}'.encode())
        ctx.report.check("documents are written", answer.status == 201, answer)
        lost = {}
        for n, x in enumerate(numbers):
            for what, found, wanted in [*values(api, f"d{n}", x), *questions(api, f"d{n}", x)]:
                those = lost.setdefault(what, [])
                if found != wanted:
                    those.append((x, found))
        for what, those in lost.items():
            ctx.report.check(what, not those, f"{len(those)} of {len(numbers)}: {those[:5]}")
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-2000:])


def doubles(random, count):
    """All different, half of them with any exponent but those of subnormal numbers, which CouchDB reads as 0. JavaScript writes whole
    numbers from 2^53 to 1e21 as integers that are others, so there are none of these.
    """
    found = set()
    while len(found) < count:
        (x,) = struct.unpack("<d", random.randbytes(8)) if len(found) % 2 else (random.uniform(-1e6, 1e6),)
        if math.isfinite(x) and abs(x) > 1e-300 and not 2**53 < abs(x) < 1e21:
            found.add(x)
    return list(found)


def values(api, doc_id, x):
    """What is read: of what, what was found, and what is right."""
    yield "a document has it", api.expect(200, "GET", f"/n/{doc_id}")["x"], x
    body = f'{{"x":{x!r}}}'.encode()
    api.put(f"/n/_local/{doc_id}", body)
    yield "a local document has it", api.expect(200, "GET", f"/n/_local/{doc_id}")["x"], x
    row = api.expect(200, "GET", f"{VIEW}?{query(startkey=repr(x), limit=1)}")["rows"][0]
    yield "a row of a view has it", (row["id"], row["key"], row["value"]), (doc_id, x, x)
    by_id = {"q": f"id:{doc_id}", "sort": "x"}
    hit = api.post(NOUVEAU, by_id).json["hits"][0]
    yield "a hit of _nouveau has it", (hit["fields"], hit["order"][0]["value"]), ({"x": x}, x)
    hit = api.post(SEARCH, {**by_id, "sort": "x<number>"}).json["rows"][0]
    yield "a hit of _search has it", (hit["fields"], hit["order"][0]), ({"x": x}, x)


def questions(api, doc_id, x):
    """What is found by it: of what, the ids that were found, and the right one."""
    number, only = repr(x), [doc_id]
    yield "`key` of a view", ids(api.get(f"{VIEW}?{query(key=number)}").json["rows"]), only
    yield "`keys` of a view", ids(api.post(VIEW, f'{{"keys":[{number}]}}'.encode()).json["rows"]), only
    yield "a range of a view", ids(api.get(f"{VIEW}?{query(startkey=number, endkey=number)}").json["rows"]), only
    for index in ("json", "text", "_all_docs"):
        asked = f'{{"selector":{{"x":{number}}},"use_index":"{index}","fields":["_id"],"execution_stats":true}}'
        yield f"_find by {index}", [doc["_id"] for doc in api.post("/n/_find", asked.encode()).json["docs"]], only
    changes = api.post("/n/_changes?filter=_selector", f'{{"selector":{{"x":{{"$in":[{number}]}}}}}}'.encode())
    yield "a selector of changes", ids(changes.json["results"]), only
    between = f"x:[{number} TO {number}]"
    yield "a range of _search", ids(api.post(SEARCH, {"q": between}).json["rows"]), only
    of_search = api.post(SEARCH, {"q": "*:*", "limit": 0, "ranges": {"x": {"a": f"[{number} TO {number}]"}}}).json
    yield "`ranges` of _search", of_search["ranges"], {"x": {"a": 1}}
    if "e" not in number:  # The numbers of its queries are of Java's NumberFormat, which knows only E.
        yield "a range of _nouveau", ids(api.post(NOUVEAU, {"q": between}).json["hits"]), only
    asked = f'{{"q":"*:*","limit":1,"ranges":{{"x":[{{"label":"a","min":{number},"max":{number}}}]}}}}'
    yield "`ranges` of _nouveau", api.post(NOUVEAU, asked.encode()).json["ranges"], {"x": {"a": 1}}


def query(**parameters):
    return urllib.parse.urlencode(parameters)


def ids(rows):
    return [row["id"] for row in rows]

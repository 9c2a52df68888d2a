"""Mango queries against a naive evaluator: random selectors over random documents, without indexes and with different ones;
pages by bookmark; aggregates against sums made here; hostile selectors; clients for Node."""

import functools
import json
import statistics
import threading
import time

import pytest

from harness import naive_find as naive
from harness.client_scripts import run_script
from harness.packages import node_modules
from harness.server import wait_until

pytestmark = pytest.mark.may_be_retried

FIELDS = ["a", "b", "o.x", "arr.0"]
INDEXES = [["a"], ["b"], ["a", "b"], ["b", "a"], ["o.x"], ["a", "o.x"], ["a", "b", "o.x"], ["arr.0"], ["_id", "a"]]
SCALARS = [None, False, True, -1, 0, 1, 1.0, 2, 2.5, 10**18, "", "a", "A", "b", "ab", "é", "zz"]
# Of the server, for one request.
PROCESSOR_S_MAX = 20
# How long a request may wait without computing, where four programs share the processors.
WAIT_S_MAX = 10
SHARED_BY = 4


def test_one_shard(ctx):
    differential(ctx, "one shard", "?q=1")


def test_three_shards(ctx):
    differential(ctx, "three shards", "?q=3")


def differential(ctx, what, query):
    """Every index that serves answers what a scan answers, and both what the naive evaluator says."""
    with ctx.server(what.replace(" ", "-")) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db" + query)
        docs = documents(ctx.random, ctx.size(150, 1500))
        write(api, docs)
        names = create_indexes(api)
        wrong = []
        used = set()
        for _ in range(ctx.size(150, 5000)):
            selector = random_selector(ctx.random, 2)
            expected = sorted(d["_id"] for d in docs.values() if naive.finds(selector, d))
            for name in [None, *ctx.random.sample(names, 3)]:
                asked = {"selector": selector, "limit": 10_000, "fields": ctx.random.choice([["_id"], []])}
                if name:
                    asked["use_index"] = name
                answer = api.post("/db/_find", asked)
                got = sorted(d["_id"] for d in answer.json["docs"]) if answer.status == 200 else answer
                if got != expected:
                    wrong.append((asked, got, expected))
                elif name and "was not used" not in answer.json.get("warning", ""):
                    used.add(tuple(name))
            sorted_by(ctx, api, docs, selector, wrong)
        ctx.report.check(f"{what}: the same documents with and without every index", not wrong, show(wrong))
        ctx.report.check(f"{what}: indexes were used", len(used) >= len(names) // 2, used)
        edited(ctx, api, docs, what)
        ctx.report.check(f"{what}: no panic", "panicked" not in server.log(), server.log()[-1500:])


def sorted_by(ctx, api, docs, selector, wrong):
    """A sort that an index has: the order of the index, which is the field's, then its other fields' and the ids'."""
    field = ctx.random.choice(["a", "b", "o.x"])
    direction = ctx.random.choice(["asc", "desc"])
    limit, skip = ctx.random.choice([(10_000, 0), (5, 0), (7, 3)])
    asked = {"selector": {"$and": [selector, {field: {"$exists": True}}]}, "sort": [{field: direction}], "limit": limit, "skip": skip}
    answer = api.post("/db/_find", asked)
    if answer.status != 200:
        wrong.append((asked, answer, "an answer"))
        return
    found = [d for d in docs.values() if naive.matches(asked["selector"], d)]
    index = api.expect(200, "POST", "/db/_explain", asked)["index"]["def"]["fields"]
    fields = [next(iter(f)) for f in index]
    order = functools.cmp_to_key(naive.compare)
    found.sort(key=lambda d: ([order(naive.get(d, f)) for f in fields], d["_id"]), reverse=direction == "desc")
    expected = [d["_id"] for d in found][skip : skip + limit]
    got = [d["_id"] for d in answer.json["docs"]]
    keys = [order(naive.get(docs[doc_id], field)) for doc_id in got]
    if got != expected or keys != sorted(keys, reverse=direction == "desc"):
        wrong.append((asked, got, expected))


def edited(ctx, api, docs, what):
    """Indexes follow edits and deletions."""
    for doc_id in ctx.random.sample(sorted(docs), len(docs) // 3):
        rev = api.expect(200, "GET", f"/db/{doc_id}")["_rev"]
        if ctx.random.random() < 0.5:
            api.expect(200, "DELETE", f"/db/{doc_id}?rev={rev}")
            del docs[doc_id]
        else:
            docs[doc_id] = {"_id": doc_id, **random_body(ctx.random)}
            api.expect((201, 202), "PUT", f"/db/{doc_id}", {**docs[doc_id], "_rev": rev})
    for field in ("a", "b"):
        answer = api.expect(200, "POST", "/db/_find", {"selector": {field: {"$gt": None}}, "limit": 10_000, "fields": ["_id"]})
        expected = sorted(d["_id"] for d in docs.values() if naive.matches({field: {"$gt": None}}, d))
        ctx.report.equal(f"{what}: after edits, {field}", sorted(d["_id"] for d in answer["docs"]), expected)


def documents(random, count):
    ids = [f"doc-{n:04}" for n in range(count)]
    return {doc_id: {"_id": doc_id, **random_body(random)} for doc_id in ids}


def random_body(random):
    body = {}
    for field in ("a", "b"):
        if random.random() < 0.8:
            body[field] = random_value(random)
    if random.random() < 0.6:
        body["o"] = random.choice([{}, {"x": random_value(random)}, 1, {"x": {"y": random.choice(SCALARS)}}])
    if random.random() < 0.6:
        body["arr"] = [random.choice(SCALARS) for _ in range(random.randrange(4))]
    return body


def random_value(random):
    kind = random.random()
    if kind < 0.8:
        return random.choice(SCALARS)
    return [random.choice(SCALARS) for _ in range(random.randrange(3))] if kind < 0.9 else {"k": random.choice(SCALARS)}


def random_selector(random, depth):
    kind = random.random()
    if depth and kind < 0.15:
        return {"$or": [random_selector(random, depth - 1) for _ in range(random.randrange(1, 4))]}
    if depth and kind < 0.3:
        return {"$and": [random_selector(random, depth - 1) for _ in range(random.randrange(1, 4))]}
    if depth and kind < 0.36:
        return {"$not": random_selector(random, depth - 1)}
    if depth and kind < 0.4:
        return {"$nor": [random_selector(random, depth - 1)]}
    if depth and kind < 0.46:
        return random.choice(
            [
                lambda: {"$and": [{random.choice(["$or", "$and", "$nor"]): []}, random_selector(random, depth - 1)]},
                lambda: {"$or": [random_selector(random, depth - 1), {"$or": []}]},
                lambda: {"$or": []},
                lambda: {"$or": [{"$type": random.choice(["object", "array"])}, random_selector(random, depth - 1)]},
                lambda: {**random_selector(random, 0), random.choice(["$gt", "$lt", "$ne"]): random.choice(SCALARS)},
                lambda: {"$nor": [{}, random_selector(random, depth - 1)]},
            ]
        )()
    fields = random.sample(FIELDS, random.choice([1, 1, 2, 3]))
    return {field: random_condition(random) for field in fields}


def random_condition(random):
    value = random_value(random)
    return random.choice(
        [
            lambda: value if not isinstance(value, dict) else {"$eq": value},
            lambda: {"$eq": value},
            lambda: {"$ne": value},
            lambda: {"$gt": value},
            lambda: {"$gte": value, "$lt": random_value(random)},
            lambda: {"$lte": value},
            lambda: {"$in": [random_value(random) for _ in range(random.randrange(4))]},
            lambda: {"$nin": [random_value(random) for _ in range(random.randrange(3))]},
            lambda: {"$exists": random.random() < 0.7},
            lambda: {"$type": random.choice(["null", "boolean", "number", "string", "array", "object", "x"])},
            lambda: {"$regex": random.choice(["^a", "b", "", "^$"])},
            lambda: {"$beginsWith": random.choice(["a", "", "z", "A"])},
            lambda: {"$size": random.randrange(3)},
            lambda: {"$mod": [2, 0]},
            lambda: {"$all": [random.choice(SCALARS)]},
            lambda: {"$elemMatch": {"$eq": random.choice(SCALARS)}},
            lambda: {random.choice(["$elemMatch", "$allMatch"]): {"$or": []}},
            lambda: {"$not": {"$gt": value}},
        ]
    )()


def write(api, docs):
    for answer in api.expect((201, 202), "POST", "/db/_bulk_docs", {"docs": list(docs.values())}):
        assert answer.get("ok"), answer


def create_indexes(api):
    names = []
    for n, fields in enumerate(INDEXES):
        body = {"index": {"fields": fields}, "ddoc": f"i{n}", "name": "by"}
        api.expect(200, "POST", "/db/_index", body)
        names.append([f"i{n}", "by"])
    return names


def test_partitioned(ctx):
    """A query of a partition sees the partition, with a partitioned index and without one."""
    with ctx.server("partitioned") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2&partitioned=true")
        docs = {f"{p}:{n}": {"_id": f"{p}:{n}", "n": n % 7} for p in "pqr" for n in range(50)}
        write(api, docs)
        selector = {"n": {"$in": [2, 5]}}
        expected = sorted(d for d in docs if d.startswith("q:") and docs[d]["n"] in (2, 5))
        for index in (None, {"index": {"fields": ["n"]}}, {"index": {"fields": ["n"]}, "partitioned": False, "ddoc": "g"}):
            if index:
                api.expect(200, "POST", "/db/_index", index)
            answer = api.expect(200, "POST", "/db/_partition/q/_find", {"selector": selector, "limit": 100})
            ctx.report.equal(f"a partition, with {index}", sorted(d["_id"] for d in answer["docs"]), expected)
        other = api.expect(200, "POST", "/db/_partition/r/_find", {"selector": selector, "limit": 2, "sort": [{"n": "desc"}]})
        for direction in ("asc", "desc"):
            asked = {"selector": selector, "limit": 100, "sort": [{"n": direction}], "bookmark": other["bookmark"]}
            got = api.expect(200, "POST", "/db/_partition/q/_find", asked)["docs"]
            ctx.report.check(f"no document of another partition, {direction}", all(d["_id"].startswith("q:") for d in got), got)
        everywhere = api.expect(200, "POST", "/db/_find", {"selector": selector, "limit": 1000})
        ctx.report.equal("all partitions by the global index", (len(everywhere["docs"]), "warning" in everywhere), (3 * len(expected), False))


def test_pages(ctx):
    """Pages by bookmark are the whole answer, each document once."""
    with ctx.server("pages") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=3")
        docs = documents(ctx.random, 4000)
        write(api, docs)
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["a", "b"]}, "ddoc": "i", "name": "ab"})
        cases = [
            ("all documents", {"selector": {}}),
            ("a scan", {"selector": {"o.x": {"$exists": True}}}),
            ("an index", {"selector": {"a": {"$gt": None}, "b": {"$exists": True}}}),
            ("an index, descending", {"selector": {"a": {"$gt": None}, "b": {"$exists": True}}, "sort": [{"a": "desc"}]}),
            ("several ranges", {"selector": {"a": {"$in": [1, "a", None]}, "b": {"$in": [0, True, "b"]}}}),
        ]
        for what, asked in cases:
            whole = api.expect(200, "POST", "/db/_find", {**asked, "limit": 100_000})["docs"]
            got, bookmark = [], None
            while True:
                page = api.expect(200, "POST", "/db/_find", {**asked, "limit": 333, "bookmark": bookmark})
                if not page["docs"]:
                    break
                got += page["docs"]
                bookmark = page["bookmark"]
            expected = [d["_id"] for d in docs.values() if naive.matches(asked["selector"], d)]
            ctx.report.check(
                f"pages of {what}",
                got == whole and sorted(d["_id"] for d in got) == sorted(expected),
                f"{len(got)} by pages, {len(whole)} at once, {len(expected)} expected",
            )


def test_skipped(ctx):
    """Skipped matches move the bookmark too."""
    with ctx.server("skipped") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        write(api, {f"{n:02}": {"_id": f"{n:02}", "n": n} for n in range(30)})
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}, "ddoc": "i", "name": "i"})
        for selector in ({"_id": {"$gt": None}}, {"n": {"$gt": 3}}, {"n": {"$gt": 3}, "_id": {"$gt": "05"}}):
            first = api.expect(200, "POST", "/db/_find", {"selector": selector, "skip": 100})
            again = api.expect(200, "POST", "/db/_find", {"selector": selector, "bookmark": first["bookmark"]})
            ctx.report.equal(f"{selector}: all are skipped", (first["docs"], first["bookmark"] != "nil", again["docs"]), ([], True, []))


def test_in_pieces(ctx):
    """Answers and searches of many pieces by an index, with few documents asked for: not cut short."""
    with ctx.server("pieces") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        docs = {f"{n:04}": {"_id": f"{n:04}", "n": n, "m": n % 1000, "s": "x" * 1000} for n in range(3000)}
        write(api, docs)
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}, "ddoc": "i", "name": "i"})
        ctx.report.equal("a long answer", len(found(api, {"n": {"$gte": 0}}, limit=1000)), 1000)
        ctx.report.equal("a long search", found(api, {"n": {"$gte": 0}, "m": 999}, limit=3), ["0999", "1999", "2999"])


def test_ids_in_indexes(ctx):
    """Ids compare byte by byte, and an index collates them: no document is lost by that."""
    with ctx.server("ids") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        docs = {doc_id: {"_id": doc_id, "a": 1, "s": "\u0e40\u0e01"} for doc_id in "ABCabc"}
        write(api, docs)
        cases = [
            ({"_id": {"$gt": "B", "$lt": "a"}, "a": 1}, ["C"]),
            ({"_id": {"$gte": "B", "$lt": "a"}}, ["B", "C"]),
            ({"s": {"$beginsWith": "\u0e40", "$lt": "\u0e40"}}, sorted(docs)),
            ({"_id": {"$gt": "b", "$lt": "a"}}, []),
        ]
        for index in (None, ["_id"], ["_id", "a"], ["s"]):
            if index:
                api.expect(200, "POST", "/db/_index", {"index": {"fields": index}, "ddoc": "-".join(index), "name": "i"})
            for selector, expected in cases:
                asked = {"selector": selector, **({"use_index": "-".join(index)} if index else {})}
                got = [d["_id"] for d in api.expect(200, "POST", "/db/_find", asked)["docs"]]
                ctx.report.equal(f"{selector} with {index}", sorted(got), expected)
        for name in api.expect(200, "GET", "/db/_index")["indexes"][1:]:
            api.expect(200, "DELETE", f"/db/_index/{name['ddoc']}/json/{name['name']}")
        nothing = {"selector": {"_id": {"$gt": "b", "$lt": "a"}}}
        ctx.report.equal("no id at all", api.expect(200, "POST", "/db/_find", nothing), {"docs": []})
        mrargs = api.expect(200, "POST", "/db/_explain", nothing)["mrargs"]
        ctx.report.equal("and no range", (mrargs["start_key"], mrargs["end_key"]), (None, None))


def test_empty_combinations(ctx):
    """An empty `$or` restricts nothing, but for `_find` of it alone. A condition without a field is about the document."""
    with ctx.server("empty") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        docs = {str(n): {"_id": str(n), "a": n, "l": [n]} for n in range(5)}
        write(api, docs)
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["a"], "partial_filter_selector": {"$or": []}}, "ddoc": "p", "name": "p"})
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["nope"]}, "ddoc": "n", "name": "n"})
        everything = [
            {"$and": [{"$or": []}]},
            {"$or": [{"$or": []}]},
            {"$or": [{"x": 6}, {"$or": []}]},
            {"l": {"$allMatch": {"$or": []}}},
            {"$and": [{"_id": {"$gt": None}}, {"x": {"$not": {"$and": []}}}]},
            {"$and": [{"$gt": None}]},
            {"$nor": [{}]},
            {"$and": [{"$ne": 5}]},
            {"$not": {"$and": [{}]}},
            {"$or": [{"$type": "object"}, {"a": 1}]},
        ]
        for selector in everything:
            ctx.report.equal(f"{selector}", found(api, selector), sorted(docs))
        for selector in ({"a": 3, "$or": []}, {"a": 3, "$gt": 5}, {"a": 3, "$or": [], "use": {"$exists": False}}):
            ctx.report.equal(f"{selector}", found(api, selector), ["3"])
        ctx.report.equal("none", found(api, {"$and": [{}, {"a": 1}]}), [])
        ctx.report.equal("a partial index of all", found(api, {"a": {"$gt": None}}, use_index="p"), sorted(docs))
        for selector in ({"$or": []}, {"$and": []}, {"x": {"$or": []}}, {"x": {"$nor": []}}, {"x": {"$not": {"$or": []}}}):
            ctx.report.equal(f"_find of {selector}", api.expect(200, "POST", "/db/_find", {"selector": selector}), {"docs": []})
            changes = api.expect(200, "POST", "/db/_changes?filter=_selector", {"selector": selector})["results"]
            ctx.report.equal(f"_changes of {selector}", len(changes), len(docs) + 2)
        alone = api.post("/db/_find", {"selector": {"$gt": 5}})
        ctx.report.equal("a condition alone", (alone.status, alone.json["error"]), (400, "invalid_selector"))


def found(api, selector, **options):
    answer = api.expect(200, "POST", "/db/_find", {"selector": selector, "limit": 10_000, **options})
    return sorted(d["_id"] for d in answer["docs"])


def test_long_integers(ctx):
    """Integers of any length are compared digit by digit, and kept so in a partial index."""
    with ctx.server("integers") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        long = 123456789012345678901234567890
        write(api, {str(n): {"_id": str(n), "n": long + n, "l": [long + n], "t": 1} for n in range(3)})
        index = {"index": {"fields": ["t"], "partial_filter_selector": {"n": long + 1}}, "ddoc": "p", "name": "p"}
        api.expect(200, "POST", "/db/_index", index)
        for fields in (None, ["n"]):
            if fields:
                api.expect(200, "POST", "/db/_index", {"index": {"fields": fields}, "ddoc": "n", "name": "n"})
            for condition in (long + 1, {"$in": [7, long + 1]}, {"$gt": long, "$lt": long + 2}, {"$mod": [10, 1]}, {"$mod": [long, 1]}):
                ctx.report.equal(f"{condition} with an index on {fields}", found(api, {"n": condition}), ["1"])
        for condition in (long + 1, {"$in": [*range(20_000), long + 1]}):  # a short body, and one that is read apart
            changes = api.expect(200, "POST", "/db/_changes?filter=_selector", {"selector": {"n": condition}})["results"]
            ctx.report.equal(f"_changes of {str(condition)[:40]}", [row["id"] for row in changes], ["1"])
        ctx.report.equal("$all", found(api, {"l": {"$all": [long + 1]}}), ["1"])
        ctx.report.equal("by a partial index", found(api, {"t": 1}, use_index="p"), ["1"])
        ddoc = api.expect(200, "GET", "/db/_design/p")["views"]["p"]
        ctx.report.equal("the design document", ddoc["map"]["partial_filter_selector"], {"n": {"$eq": long + 1}})
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["x"]}, "ddoc": "p", "name": "q"})
        ddoc = api.expect(200, "GET", "/db/_design/p")["views"]["p"]
        ctx.report.equal("with another index in it", ddoc["options"]["def"]["partial_filter_selector"], {"n": long + 1})
        listed = api.expect(200, "GET", "/db/_index")["indexes"]
        ctx.report.check("the list", any(i["def"].get("partial_filter_selector") == {"n": {"$eq": long + 1}} for i in listed), listed)
        explained = api.expect(200, "POST", "/db/_explain", {"selector": {"n": long}})
        ctx.report.equal("_explain", (explained["selector"], explained["mrargs"]["start_key"]), ({"n": {"$eq": long}}, [long]))
        unchanged = api.expect(200, "POST", "/db/_index", index)["result"]
        ctx.report.equal("the same index again", unchanged, "exists")


def test_explained(ctx):
    """The other candidates, in the order of CouchDB; what covers; and no design documents in indexes."""
    with ctx.server("explained") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        write(api, {"1": {"_id": "1", "a": 1, "language": "x"}})
        for name, fields in (("a", ["a"]), ("c", ["z"]), ("b", ["a", "b"]), ("d", ["a", "_id"])):
            api.expect(200, "POST", "/db/_index", {"index": {"fields": fields}, "ddoc": name, "name": name})
        asked = {"selector": {"a": 1}, "fields": ["a"], "conflicts": True}
        answer = api.expect(200, "POST", "/db/_explain", asked)
        ctx.report.equal("candidates", [c["index"]["name"] for c in answer["index_candidates"]], ["d", "c", "b", "_all_docs"])
        ctx.report.equal("covering", (answer["covering"], answer["mrargs"]["include_docs"]), (True, False))
        ctx.report.equal("and yet with conflicts", api.expect(200, "POST", "/db/_find", asked)["docs"], [{"a": 1}])
        view = {
            "map": {"fields": {"language": "asc"}, "partial_filter_selector": {}},
            "reduce": "_count",
            "options": {"def": {"fields": ["language"]}},
        }
        api.expect((201, 202), "PUT", "/db/_design/with", {"language": "query", "options": {"include_design": True}, "views": {"v": view}})
        ctx.report.equal("no design documents", found(api, {"language": {"$gt": None}}, use_index="with"), ["1"])


def test_dense_scans(ctx):
    """A query of many matches without an index: all of them, in order, each counted once."""
    with ctx.server("dense") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2")
        count = ctx.size(150_000, 400_000)
        write(api, {f"a{n:06}": {"_id": f"a{n:06}", "t": 0} for n in range(2000)})
        for start in range(0, count, 50_000):
            ids = [f"b{n:06}" for n in range(start, min(start + 50_000, count))]
            write(api, {doc_id: {"_id": doc_id, "t": 1} for doc_id in ids})
        for what, selector in (("dense", {"t": 1}), ("sparse", {"t": 1, "_id": {"$regex": "[05]$"}})):
            answer = api.expect(200, "POST", "/db/_find", {"selector": selector, "limit": count, "fields": ["_id"], "execution_stats": True})
            expected = [f"b{n:06}" for n in range(count) if what == "dense" or n % 5 == 0]
            ctx.report.check(f"{what}: all in order", [d["_id"] for d in answer["docs"]] == expected, len(answer["docs"]))
            examined = answer["execution_stats"]["total_docs_examined"]
            ctx.report.check(f"{what}: each counted once, but for the first", examined <= count + 4000, examined)


def test_aggregates(ctx):
    """Groups by scan, by an index and by a covering one are what a sum made here says."""
    with ctx.server("aggregates") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=3")
        docs = {f"d{n:05}": {"_id": f"d{n:05}", "g": f"g{n % 5}", "n": n, "t": n % 2} for n in range(5000)}
        write(api, docs)
        asked = {
            "selector": {"t": 1},
            "aggregate": {
                "group_by": ["g"],
                "compute": {
                    "docs": {"$count": True},
                    "sum": {"$sum": "n"},
                    "low": {"$min": "n"},
                    "high": {"$max": "n"},
                    "mean": {"$average": "n"},
                    "all": {"$distinct": "t"},
                },
            },
        }
        expected = []
        for g in sorted({d["g"] for d in docs.values()}):
            numbers = [d["n"] for d in docs.values() if d["g"] == g and d["t"] == 1]
            expected.append(
                {
                    "key": {"g": g},
                    "value": {
                        "docs": len(numbers),
                        "sum": sum(numbers),
                        "low": min(numbers),
                        "high": max(numbers),
                        "mean": sum(numbers) / len(numbers),
                        "all": [1],
                    },
                }
            )
        answer = api.expect(200, "POST", "/db/_find", asked)
        # And no word of how many documents a group is made of.
        ctx.report.equal("by scan", answer, {"groups": expected, "warning": "No matching index found, create an index to optimize query time."})
        for fields in (["t"], ["t", "g", "n"]):
            api.expect(200, "POST", "/db/_index", {"index": {"fields": fields}, "ddoc": "-".join(fields), "name": "i"})
            answer = api.expect(200, "POST", "/db/_find", {**asked, "use_index": "-".join(fields)})
            # An index on fields that the selector does not name is not used.
            ctx.report.equal(f"with an index on {fields}", answer["groups"], expected)
        asked["selector"].update({"g": {"$gt": None}, "n": {"$gt": None}})
        answer = api.expect(200, "POST", "/db/_find", {**asked, "execution_stats": True})
        ctx.report.equal("by a covering index", (answer["groups"], answer["execution_stats"]["total_docs_examined"]), (expected, 0))
        write(api, {"x1": {"_id": "x1", "f": 1.0, "v": 1.0}, "x2": {"_id": "x2", "f": 1, "v": 1}, "x3": {"_id": "x3", "f": 1.0, "v": 1.0}})
        ties = {"selector": {"f": {"$gt": None}}, "aggregate": {"group_by": ["f"], "compute": {"v": {"$distinct": "v"}, "n": {"$count": True}}}}
        for fields in (None, ["f"], ["f", "v"]):
            if fields:
                api.expect(200, "POST", "/db/_index", {"index": {"fields": fields}, "ddoc": "-".join(fields), "name": "i"})
            groups = json.dumps(api.expect(200, "POST", "/db/_find", {**ties, **({"use_index": "-".join(fields)} if fields else {})})["groups"])
            ctx.report.equal(f"equal values with {fields}", groups, '[{"key": {"f": 1}, "value": {"v": [1], "n": 3}}]')
        for selector in ({"t": 77}, {"$or": []}, {"_id": {"$gt": "b", "$lt": "a"}}):
            none = {"selector": selector, "aggregate": {"compute": {"n": {"$count": True}}}}
            ctx.report.equal(f"no match of {selector}", api.expect(200, "POST", "/db/_find", none)["groups"], [{"key": {}, "value": {"n": 0}}])
        refused = api.post("/db/_find", {**asked, "sort": ["t"]})
        ctx.report.equal("what means nothing is refused", (refused.status, refused.json["error"]), (400, "invalid_aggregate"))
        misspelt = api.post("/db/_find", {"selector": {}, "aggregate": {"compute": {"n": {"$cuont": True}}}})
        ctx.report.check("a misspelt function is named", misspelt.status == 400 and "no function `$cuont`" in misspelt.json["reason"], misspelt)


def test_covering_never_reads(ctx):
    with ctx.server("covering") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        write(api, {str(n): {"_id": str(n), "a": n, "b": [n], "c": "x" * 100} for n in range(50)})
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["a", "b"]}, "ddoc": "i", "name": "ab"})
        for fields, read in ((["a", "b", "_id"], 0), (["a", "c"], 10)):
            answer = api.expect(
                200, "POST", "/db/_find", {"selector": {"a": {"$lt": 10}, "b": {"$exists": True}}, "fields": fields, "execution_stats": True}
            )
            docs = [{f: {"_id": str(n), "a": n, "b": [n], "c": "x" * 100}[f] for f in fields} for n in range(10)]
            stats = answer["execution_stats"]["total_docs_examined"]
            ctx.report.equal(f"fields {fields}", (answer["docs"], stats >= read, stats == 0), (docs, True, read == 0))


def test_hostile(ctx):
    """Each is answered or refused in bounded time, and the server goes on."""
    with ctx.server("hostile") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        write(api, {str(n): {"_id": str(n), "a": "a" * 5000, "n": n} for n in range(200)})
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}, "ddoc": "i", "name": "n"})
        nested = functools.reduce(lambda inner, _: {"$and": [inner]}, range(100), {"a": 1})
        elements = functools.reduce(lambda inner, _: {"$elemMatch": inner}, range(100), {"$eq": 1})
        cases = {
            "a backtracking regular expression": ({"a": {"$regex": "(a+)+$b"}}, 200),
            "a huge regular expression": ({"a": {"$regex": "(a{1000}){1000}"}}, 400),
            "look-ahead": ({"a": {"$regex": "(?=a)b"}}, 400),
            "a back reference": ({"a": {"$regex": "(a)\\1"}}, 400),
            "many regular expressions": ({"$or": [{"a": {"$regex": f"x{n}"}} for n in range(1000)]}, 400),
            "depth": (nested, 400),
            "depth of elements": ({"a": elements}, 400),
            "width": ({"$or": [{"n": n} for n in range(20_000)]}, 400),
            "a giant $in": ({"n": {"$in": list(range(10**18, 10**18 + 200_000)) + [7]}}, 200),
            "a giant $nin": ({"n": {"$nin": list(range(200_000))}}, 200),
            "many giant $in": ({"$and": [{"n": {"$in": list(range(20_000))}} for _ in range(20)]}, 200),
            "a long name": ({".".join(["a"] * 5000): 1}, 400),
            "a wide $or over an index": ({"$or": [{"n": {"$gt": n, "$lt": n + 1}} for n in range(3000)]}, 200),
        }
        for what, (selector, status) in cases.items():
            for _ in range(2):
                is_bounded(ctx, server, api, what, "_find", {"selector": selector}, status)
        one = api.expect(200, "POST", "/db/_find", {"selector": {"n": {"$in": list(range(10**18, 10**18 + 50_000)) + [7]}}})
        ctx.report.equal("a giant $in finds the one", [d["_id"] for d in one["docs"]], ["7"])
        many = api.post("/db/_find", {"selector": {}, "aggregate": {"compute": {"all": {"$distinct": "n"}}}})
        ctx.report.equal("all values of 200 documents", len(many.json["groups"][0]["value"]["all"]), 200)
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def is_bounded(ctx, server, api, what, endpoint, asked, status):
    """Checks that a request computes little and waits for nothing.

    A busy machine may delay one, not two.
    """
    for _ in range(2):
        computed, began = server.cpu_seconds(), time.monotonic()
        answer = api.post(f"/db/{endpoint}", asked)
        took, computed = time.monotonic() - began, server.cpu_seconds() - computed
        waited = took - SHARED_BY * computed
        if waited < WAIT_S_MAX:
            break
    told = f"{answer!r} after {took:.1f} s, {computed:.1f} of processors"
    ctx.report.check(f"{what}: {status}", answer.status == status and computed < PROCESSOR_S_MAX and waited < WAIT_S_MAX, told)


def test_hostile_sizes(ctx):
    """Large requests and large values: bounded time, bounded memory, and others are answered meanwhile."""
    with ctx.server("hostile-sizes") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        write(api, {"a": {"_id": "a", "n": 1}, "l": {"_id": "l", "n": list(range(60_000))}})
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}, "ddoc": "i", "name": "n"})
        many = {f"f{n:x}": 1 for n in range(9_000)}
        cases = {
            "a long name": ("_find", {"selector": {"x" * 50_000: {"$or": [{"$eq": n} for n in range(9_000)]}}}, 400),
            "a name as long as allowed": ("_find", {"selector": {"x" * 1024: {"$or": [{"$eq": n} for n in range(9_000)]}}}, 200),
            "the same explained": ("_explain", {"selector": {"x" * 1024: {"$or": [{"$eq": n} for n in range(9_000)]}}}, 200),
            "many fields in a selector": ("_find", {"selector": many}, 200),
            "the same explained, with all as fields": ("_explain", {"selector": many, "fields": list(many)}, 200),
            "many fields shown": ("_find", {"selector": {}, "fields": [f"f{n}.a.b" for n in range(10_000)]}, 200),
            "fields of too many parts": ("_find", {"selector": {}, "fields": [f"f{n}" + ".a" * 255 for n in range(10_000)]}, 400),
            "the same in a selector": ("_find", {"selector": {f"f{n}" + ".a" * 255: 1 for n in range(5_000)}}, 400),
            "the same in an aggregate": (
                "_find",
                {"selector": {}, "aggregate": {"compute": {f"f{n}": {"$sum": f"f{n}" + ".a" * 255} for n in range(5_000)}}},
                400,
            ),
            "caseless classes": ("_find", {"selector": {"a": {"$regex": "(*UTF8)(?i)" + "[ -\U0002a943]" * 7_000}}}, 400),
            "too many fields": ("_find", {"selector": {}, "fields": [f"f{n}" for n in range(200_000)]}, 400),
            "$all of many": ("_find", {"selector": {"_id": "l", "n": {"$all": list(range(59_999, -1, -1))}}}, 200),
            "$in beside many conditions": (
                "_find",
                {"selector": {"$and": [{"n": {"$in": list(range(80_000))}}] + [{"n": {"$ne": -1}}] * 2_000}},
                200,
            ),
        }
        for what, (endpoint, asked, status) in cases.items():
            is_bounded(ctx, server, api, what, endpoint, asked, status)
        deep = '{"selector":' + '{"$and":[' * 2_000 + "{}" + "]}" * 2_000 + "}"
        answer = api.post("/db/_find", deep.encode())
        ctx.report.check("deep", answer.status == 400 and "nested too deeply" in answer.json["reason"], repr(answer))
        depth = 1_000
        write_text(api, '{"docs":[{"_id":"deep","d":' + "[" * depth + "]" * depth + "}]}")
        deep = '{"selector":{"_id":"deep","d":' + "[" * depth + "]" * depth + '},"fields":["_id"]}'
        answer = api.post("/db/_find", deep.encode())
        ctx.report.equal("a deep value is found", answer.json, {**answer.json, "docs": [{"_id": "deep"}]})
        api.expect(200, "PUT", "/_node/_local/_config/mango/max_aggregate_bytes", "3000000")
        write(api, {f"s{n}": {"_id": f"s{n}", "s": f"{n}" + "x" * 1_000_000} for n in range(10)})
        for aggregate in ({"group_by": ["s"]}, {"compute": {"d": {"$distinct": "s"}}}):
            asked = {"selector": {"s": {"$gt": None}}, "aggregate": aggregate}
            wait_until(lambda: api.post("/db/_find", asked).status == 413)
            refused = api.post("/db/_find", asked)
            ctx.report.equal(f"{aggregate}", (refused.status, refused.json["error"]), (413, "aggregate_too_large"))
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


READS = 25
# The median read takes at most this part of the shortest query. A read that waits for a query
# takes about half of it, or more.
READ_PART_MAX = 0.25


def test_slow_expressions(ctx):
    """A regular expression that takes long keeps nobody waiting, though an index finds the documents."""
    with ctx.server("slow") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        write(api, {str(n): {"_id": str(n), "n": n, "s": "01" * ctx.size(10_000, 50_000)} for n in range(8)})
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}, "ddoc": "i", "name": "i"})
        asked = {"selector": {"n": {"$gte": 0}, "s": {"$regex": "[01]*1[01]{1500}x"}}}
        read = lambda: seconds_of(lambda: api.expect(200, "GET", "/db/1"))
        alone = [read() for _ in range(READS)]
        queries, done = [], threading.Event()

        def query():
            own = server.api(300)
            while True:
                queries.append(seconds_of(lambda: own.expect(200, "POST", "/db/_find", asked)))
                if done.is_set():
                    break

        before = server.cpu_seconds()
        threads = [threading.Thread(target=query) for _ in range(4)]
        for thread in threads:
            thread.start()
        ctx.report.check("the expressions run", wait_until(lambda: server.cpu_seconds() - before > 0.2), server.cpu_seconds() - before)
        meanwhile = [read() for _ in range(READS)]
        done.set()
        for thread in threads:
            thread.join()
        alone, usual = statistics.median(alone), statistics.median(meanwhile)
        told = f"a read takes {usual * 1000:.1f} ms beside slow expressions, {alone * 1000:.1f} ms alone; {len(queries)} queries, {min(queries):.2f} s or more"
        ctx.report.check("others are answered meanwhile", usual < READ_PART_MAX * min(queries), told)
        ctx.report.note(told)


def seconds_of(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def write_text(api, text):
    answer = api.post("/db/_bulk_docs", text.encode())
    assert answer.status in (201, 202), answer


def test_refused_scans(ctx):
    """`scan_limit` refuses what no index serves, and nothing else."""
    with ctx.server("refused") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        write(api, {str(n): {"_id": str(n), "n": n} for n in range(100)})
        api.expect(200, "PUT", "/_node/_local/_config/mango/scan_limit", "50")
        wait_until(lambda: api.post("/db/_find", {"selector": {"n": 1}}).status == 400)
        refused = api.post("/db/_find", {"selector": {"n": 1}})
        ctx.report.equal("a scan is refused", (refused.status, refused.json["error"]), (400, "scan_refused"))
        for selector in ({}, {"_id": "7"}, {"_id": {"$gt": "90"}, "n": {"$gt": 1}}):
            ctx.report.equal(f"{selector} is not", api.post("/db/_find", {"selector": selector}).status, 200)
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}})
        ctx.report.equal("with an index it is answered", api.post("/db/_find", {"selector": {"n": 1}}).status, 200)


def test_clients(ctx):
    """pouchdb-find over HTTP, nano and the Cloudant SDK."""
    folder = ctx.checkout / "tests" / "clients"
    node = {"NODE_PATH": str(node_modules(ctx, folder / "find"))}
    with ctx.server("clients") as server:
        run_script(ctx, server, "find", ["node", folder / "js" / "find.cjs"], node)


def show(wrong):
    return "\n".join(f"{json.dumps(asked)}\n  got {got}\n  expected {expected}" for asked, got, expected in wrong[:4]) + f"\n{len(wrong)} in all"

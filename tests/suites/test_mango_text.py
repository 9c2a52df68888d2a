"""Text indexes of Mango, of both types: what they find is what a scan of all documents finds, under random selectors and edits; sorts,
pages and partitions. What single requests answer is in the recorded behaviour (suite `vectors`, area nouveau)."""

import base64
import json
import re

CITIES = ["rome", "paris", "oslo", "new york"]
TAGS = ["red", "green", "blue"]


def document(random, number):
    doc = {"_id": f"d{number:04d}", "ok": random.random() < 0.5}
    if random.random() < 0.9:
        doc.update(n=random.randint(-5, 5), city=random.choice(CITIES))
    if random.random() < 0.7:
        doc["tags"] = random.sample(TAGS, random.randint(0, 3))
    if random.random() < 0.7:
        doc["in"] = {"k.l": random.choice(CITIES), "m": random.choice([1.5, None, "x"])}
    if random.random() < 0.3:
        doc["list"] = [{"a": random.randint(1, 3)}, {"a": random.randint(1, 3)}]
    return doc


def selector(random, depth=0):
    """A selector whose values have the types that fields have: so all indexes agree."""
    leaves = [
        lambda: {"n": random.randint(-5, 5)},
        lambda: {"n": {random.choice(["$gt", "$gte", "$lt", "$lte", "$ne"]): random.randint(-5, 5)}},
        lambda: {"n": {"$in": [random.randint(-5, 5) for _ in range(3)]}},
        lambda: {"n": {"$mod": [2, 0]}},
        lambda: {"city": random.choice(CITIES)},
        lambda: {"city": {random.choice(["$gt", "$lte", "$ne"]): random.choice(CITIES)}},
        lambda: {"city": {"$beginsWith": random.choice(["r", "new ", "x"])}},
        lambda: {"city": {"$regex": "^[op]"}},
        lambda: {"city": {"$nin": random.sample(CITIES, 2)}},
        lambda: {"ok": random.random() < 0.5},
        lambda: {"tags": {"$all": random.sample(TAGS, 2)}},
        lambda: {"tags": {"$size": random.randint(0, 3)}},
        lambda: {"tags": {"$elemMatch": {"$eq": random.choice(TAGS)}}},
        lambda: {"tags": {"$in": [random.choice(TAGS)]}},
        lambda: {"tags": random.sample(TAGS, random.randint(0, 2))},
        lambda: {"tags.0": random.choice(TAGS)},
        lambda: {"tags": {"$exists": random.random() < 0.5}},
        lambda: {"in.m": random.choice([1.5, None, "x"])},
        lambda: {"in.m": {"$type": random.choice(["null", "number", "string"])}},
        lambda: {"in.k\\.l": random.choice(CITIES)},
        lambda: {"list": {"$elemMatch": {"a": random.randint(1, 3)}}},
        lambda: {"list": {"$allMatch": {"a": random.randint(1, 3)}}},
        lambda: {"in": {"$exists": True}},
    ]
    if depth < 2 and random.random() < 0.4:
        operator = random.choice(["$and", "$or", "$nor"])
        return {operator: [selector(random, depth + 1) for _ in range(random.randint(1, 3))]}
    if depth < 2 and random.random() < 0.1:
        return {"$not": selector(random, depth + 1)}
    return random.choice(leaves)()


def find(api, db, body):
    return api.expect(200, "POST", f"/{db}/_find", {"limit": 100000, **body})


def ids(answer):
    return sorted(doc["_id"] for doc in answer["docs"])


def text_in_or(ctx, api, number):
    """A document matches when it has the word or when the other branch says so, whatever the index is asked for that branch."""
    random = ctx.random
    word = random.choice(["rome", "york", "red", "x", "nothing"])
    simple = {"n": {"$gt": random.randint(-5, 5)}}, {"city": {"$lt": random.choice(CITIES)}}
    first, second = random.choice([simple, (selector(random), selector(random))])
    of_first, of_second = (set(ids(find(api, "plain", {"selector": s, "fields": ["_id"]}))) for s in (first, second))
    everything = find(api, "plain", {"selector": {}})["docs"]
    for ddoc in ("all", "some", "new"):
        # An index of some fields has no words of others.
        strings = {doc["_id"]: str([doc.get("city"), *([] if ddoc == "some" else [doc.get("tags"), doc.get("in")])]) for doc in everything}
        # Nor documents of which it has nothing; of arrays it has the lengths.
        known = {doc["_id"] for doc in everything if ddoc != "some" or {"n", "tags", "list"} & doc.keys()}
        words = {id_ for id_, text in strings.items() if re.search(rf"(?<![\w.]){word}(?![\w.])", re.sub(r"'k\.l'|'m'", "", text))}
        text = {"$text": word}
        for wanted, expected in (
            ({"$or": [text, first]}, words | of_first & known),
            ({"$or": [first, {"$and": [text, second]}]}, of_first & known | words & of_second),
            ({"$and": [first, {"$or": [second, text]}]}, of_first & known & (words | of_second)),
        ):
            query, name = {"selector": wanted, "use_index": ddoc}, f"round {number}, {ddoc}: {wanted}"
            # Without an index that serves, `$text` restricts nothing.
            if api.expect(200, "POST", "/db/_explain", query)["index"]["ddoc"] != f"_design/{ddoc}":
                ctx.report.equal(f"{name} has other fields", ddoc, "some", quiet=True)
                break
            ctx.report.equal(name, ids(find(api, "db", {**query, "fields": ["_id"]})), sorted(expected), quiet=True)
        else:
            groups = api.expect(200, "POST", "/db/_find", {**query, "aggregate": {"compute": {"n": {"$count": True}}}})["groups"]
            ctx.report.equal(f"{name}, counted", sum(group["value"]["n"] for group in groups), len(expected), quiet=True)
            paged = []
            while len(paged) <= len(everything):
                page = find(api, "db", {**query, "limit": 37})
                paged += ids(page)
                query["bookmark"] = page["bookmark"]
                if not page["docs"]:
                    break
            ctx.report.equal(f"{name}, in pages", sorted(paged), sorted(expected), quiet=True)


def test_differential(ctx):
    with ctx.server("differential") as server:
        api, random = server.api(), ctx.random
        api.expect((201, 202), "PUT", "/db?q=2")
        # The same documents without an index.
        api.expect((201, 202), "PUT", "/plain?q=2")
        some = [{"name": "n", "type": "number"}, {"name": "city", "type": "string"}]
        for ddoc, kind, index in (("all", "text", {}), ("some", "text", {"fields": some}), ("new", "nouveau", {})):
            body = {"type": kind, "ddoc": ddoc, "name": "i", "index": index}
            ctx.report.equal(f"{ddoc} is made", api.expect(200, "POST", "/db/_index", body)["result"], "created")
            ctx.report.equal(f"{ddoc} exists", api.expect(200, "POST", "/db/_index", body)["result"], "exists")
        revs = {}
        for number in range(1, ctx.size(3, 30) + 1):
            docs = [document(random, random.randint(0, 400)) for _ in range(150)]
            docs = list({doc["_id"]: doc for doc in docs}.values())
            for doc in docs:
                if doc["_id"] in revs:
                    doc["_rev"] = revs[doc["_id"]]
                    if random.random() < 0.2:
                        doc["_deleted"] = True
            api.expect(201, "POST", "/plain/_bulk_docs", {"docs": docs})
            for row, doc in zip(api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs}), docs, strict=True):
                revs[row["id"]] = row["rev"]
                if doc.get("_deleted"):
                    del revs[row["id"]]
            for _ in range(ctx.size(40, 200)):
                wanted = selector(random)
                expected = ids(find(api, "plain", {"selector": wanted, "fields": ["_id"]}))
                for ddoc in ("all", "some", "new"):
                    found = ids(find(api, "db", {"selector": wanted, "use_index": ddoc, "fields": ["_id"]}))
                    ctx.report.equal(f"round {number}, {ddoc}: {wanted}", found, expected, quiet=True)
            for _ in range(ctx.size(15, 60)):
                text_in_or(ctx, api, number)
        texts = find(api, "db", {"selector": {"$text": "york"}, "use_index": "all"})["docs"]
        everything = find(api, "plain", {"selector": {}})["docs"]
        expected = sorted(doc["_id"] for doc in everything if "york" in str(doc.get("city")) + str(doc.get("in")))
        ctx.report.equal("$text finds words of all strings", sorted(doc["_id"] for doc in texts), expected)


def test_definitions(ctx):
    with ctx.server("definitions") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        answer = api.post("/db/_index", {"type": "text", "index": 5})
        ctx.report.equal("a definition is an object", (answer.status, answer.json["error"]), (400, "invalid_index"))
        answer = api.post("/db/_index", {"type": "text", "index": {"fields": [{"name": "a", "type": "date"}]}})
        ctx.report.equal("types are three", (answer.status, answer.json["error"]), (400, "invalid_index_fields_definition"))
        fields = {"fields": [{"name": "a", "type": "text"}]}
        answer = api.post("/db/_index", {"type": "text", "index": fields})
        ctx.report.equal("and not text", (answer.status, answer.json["error"]), (400, "invalid_index_fields_definition"))
        made = api.expect(200, "POST", "/db/_index", {"type": "nouveau", "index": fields})
        listed = api.expect(200, "GET", "/db/_index")["indexes"]
        ctx.report.equal("but for nouveau it is one", listed[-1]["def"]["fields"], [{"a": "text"}])
        api.expect(201, "PUT", "/db/fox", {"a": "a fox", "b": "a dog"})
        for wanted, expected in (({"$text": "fox"}, ["fox"]), ({"$text": "dog"}, []), ({"a": "a fox"}, ["fox"])):
            ctx.report.equal(f"and has {wanted}", ids(find(api, "db", {"selector": wanted, "use_index": made["id"]})), expected)
        api.expect(200, "DELETE", f"/db/_index/{made['id']}/nouveau/{made['name']}")
        made = api.expect(200, "POST", "/db/_index", {"type": "text", "index": {}})
        listed = api.expect(200, "GET", "/db/_index")["indexes"]
        ctx.report.equal("it is listed", [(i["type"], i["name"]) for i in listed], [("special", "_all_docs"), ("text", made["name"])])
        ctx.report.equal("one of another type is not there", api.request("DELETE", f"/db/_index/{made['id']}/nouveau/{made['name']}").status, 404)
        ctx.report.equal("it is deleted", api.request("DELETE", f"/db/_index/{made['id']}/text/{made['name']}").status, 200)
        ctx.report.equal("and its design document with it", api.get(f"/db/{made['id']}").status, 404)


def written_between_pages(ctx, api):
    query = {"selector": {"s": "rome"}, "use_index": "text", "sort": ["s:string"], "limit": 7, "fields": ["_id"]}
    whole = find(api, "db", {**query, "limit": 1000})["docs"]
    paged, bookmark = [], None
    while True:
        page = find(api, "db", {**query, **({"bookmark": bookmark} if bookmark else {})})
        if not page["docs"]:
            break
        paged += page["docs"]
        bookmark = page["bookmark"]
        api.expect(201, "PUT", f"/db/zz-{len(paged)}", {"s": "elsewhere"})
    ctx.report.equal("sorted pages have no gaps while others write", paged, whole)


def long_strings_and_names(ctx, api, threes):
    text = "# T" + "x" * 70_000
    revs = {"long": api.expect(201, "PUT", "/db/long", {"body": text, "year": "2024"})["rev"]}
    for selector in ({"body": {"$beginsWith": "# T"}}, {"$text": 2024}, {"body": text}):
        ids = [doc["_id"] for doc in find(api, "db", {"selector": selector, "use_index": "text"})["docs"]]
        ctx.report.equal(f"found by {str(selector)[:40]}", ids, ["long"])
    # Longer than any name of a field, with many values below; and as long as one may be.
    revs["hostile"] = api.expect(201, "PUT", "/db/hostile", {"k" * 1_000_000: [1] * 100_000})["rev"]
    revs["hostile-too"] = api.expect(201, "PUT", "/db/hostile-too", {"k" * 4000: [1] * 100_000})["rev"]
    found = find(api, "db", {"selector": {"n": 3}, "use_index": "text", "limit": 1000})["docs"]
    ctx.report.equal("documents of very long names hold up nothing", len(found), threes)
    for name, rev in revs.items():
        api.expect(200, "DELETE", f"/db/{name}?rev={rev}")


def test_pages(ctx):
    with ctx.server("pages") as server:
        api, random = server.api(), ctx.random
        api.expect((201, 202), "PUT", "/db?q=3")
        docs = [{"_id": f"d{n:03d}", "n": random.randint(0, 5), "s": random.choice(CITIES)} for n in range(250)]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        for kind in ("text", "nouveau"):
            api.expect(200, "POST", "/db/_index", {"type": kind, "ddoc": kind, "name": "i", "index": {}})
            for sort in ([], ["n:number"], [{"n:number": "desc"}], ["s:string", "n:number"], ["n"]):
                query = {"selector": {"n": {"$gte": 1}}, "use_index": kind, "sort": sort, "fields": ["_id", "n", "s"]}
                whole = find(api, "db", query)["docs"]
                paged, bookmark = [], None
                while True:
                    page = find(api, "db", {**query, "limit": 30, **({"bookmark": bookmark} if bookmark else {})})
                    if not page["docs"]:
                        break
                    paged += page["docs"]
                    bookmark = page["bookmark"]
                ctx.report.check(
                    f"{kind}: pages by {sort}", paged == whole and len(whole) == sum(doc["n"] >= 1 for doc in docs), f"{len(paged)} of {len(whole)}"
                )
                if sort in (["n:number"], ["n"]):
                    ctx.report.equal(f"{kind}: order by {sort}", [doc["n"] for doc in whole], sorted(doc["n"] for doc in whole))
        written_between_pages(ctx, api)
        many = find(api, "db", {"selector": {"_id": {"$in": [f"d{n:03d}" for n in range(600)]}}, "limit": 1000})["docs"]
        ctx.report.equal("hundreds of values are looked for", len(many), 250)
        conflicts = find(api, "db", {"selector": {"_conflicts": {"$exists": False}, "n": 3}, "conflicts": True, "limit": 1000})["docs"]
        ctx.report.equal("what only a read document has is no reason to find nothing", len(conflicts), sum(doc["n"] == 3 for doc in docs))
        long_strings_and_names(ctx, api, len(conflicts))
        answer = api.post("/db/_find", {"selector": {"n": {"$gte": 1}}, "sort": ["s"], "use_index": "text"})
        ctx.report.equal("a sort without a type is refused", (answer.status, answer.json["error"]), (400, "text_sort_error"))
        answer = api.post("/db/_find", {"selector": {"$text": "rome"}, "use_index": "text", "bookmark": "nonsense"})
        ctx.report.equal("a bookmark that is none is refused", (answer.status, answer.json["error"]), (400, "invalid_bookmark"))
        stats = find(api, "db", {"selector": {"s": "rome"}, "use_index": "text", "execution_stats": True})["execution_stats"]
        rome = sum(doc["s"] == "rome" for doc in docs)
        ctx.report.equal("only hits are looked at", (stats["total_docs_examined"], stats["results_returned"]), (rome, rome))
        groups = api.expect(
            200, "POST", "/db/_find", {"selector": {"s": "rome"}, "use_index": "text", "aggregate": {"compute": {"n": {"$sum": "n"}}}}
        )
        ctx.report.equal("aggregates", groups["groups"][0]["value"]["n"], sum(doc["n"] for doc in docs if doc["s"] == "rome"))


def test_partitions(ctx):
    with ctx.server("partitions") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2&partitioned=true")
        docs = [{"_id": f"p{n % 3}:{n}", "s": CITIES[n % 4]} for n in range(60)]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        api.expect(200, "POST", "/db/_index", {"type": "text", "ddoc": "t", "name": "i", "index": {}})
        found = api.expect(200, "POST", "/db/_partition/p1/_find", {"selector": {"s": "rome"}, "use_index": "t"})
        expected = sorted(doc["_id"] for doc in docs if doc["_id"].startswith("p1:") and doc["s"] == "rome")
        ctx.report.equal("hits of the partition", ids(found), expected)
        ctx.report.check("by the index", "warning" not in found, found.get("warning"))


def test_explained(ctx):
    with ctx.server("explained") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        api.expect(200, "POST", "/db/_index", {"type": "text", "ddoc": "t", "name": "i", "index": {}})
        answer = api.expect(200, "POST", "/db/_explain", {"selector": {"s": "new york"}, "sort": [{"n:number": "desc"}]})
        ctx.report.equal("the query as CouchDB writes it", answer["query"], '(s_3astring:"new\\ york")')
        ctx.report.equal("and the sort", answer["sort"], ["-n_3anumber<number>"])
        api.expect(200, "POST", "/db/_index", {"ddoc": "j", "name": "i", "index": {"fields": ["s"]}})
        answer = api.expect(200, "POST", "/db/_explain", {"selector": {"s": "new york"}})
        ctx.report.equal("a json index comes first", answer["index"]["type"], "json")
        answer = api.expect(200, "POST", "/db/_explain", {"selector": {"s": "x", "$text": "york"}})
        ctx.report.equal("but not for words", answer["index"]["type"], "text")
        api.expect(200, "POST", "/db/_index", {"type": "text", "ddoc": "some", "name": "i", "index": {"fields": [{"name": "s", "type": "string"}]}})
        for other, chosen in (({"zz": {"$exists": True}}, 200), ({"s": "y"}, 400)):
            answer = api.post("/db/_explain", {"selector": {"$or": [{"$text": "x"}, other]}})
            ctx.report.equal(f"one of two text indexes is chosen if the other lacks documents: {other}", answer.status, chosen)


def test_pages_beside_writers(ctx):
    """Documents that come and go between two pages move no other one across the end of a page."""
    random = ctx.random
    with ctx.server("writers") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2")
        words = ["alpha", "beta", "gamma", "delta"]
        kept = {f"d{n:03d}": " ".join(random.choices(words, k=random.randint(2, 40))) for n in range(ctx.size(150, 300))}
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": id_, "text": text} for id_, text in kept.items()]})
        api.expect(200, "POST", "/db/_index", {"index": {}, "type": "text", "ddoc": "texts", "name": "all"})
        body, paged = {"selector": {"$text": "alpha gamma"}, "limit": 20}, []
        for page in range(100):
            answer = api.expect(200, "POST", "/db/_find", body)
            if not answer["docs"]:
                break
            paged += [doc["_id"] for doc in answer["docs"] if doc["_id"] in kept]
            body["bookmark"] = answer["bookmark"]
            # Words that were rare are not any more.
            others = [{"_id": f"e{page}-{n}", "text": random.choice(["alpha gamma", "alpha " * 20, "other"])} for n in range(30)]
            api.expect(201, "POST", "/db/_bulk_docs", {"docs": others})
            made = api.expect(200, "POST", "/db/_all_docs", {"keys": [doc["_id"] for doc in others[:15]]})["rows"]
            gone = [{"_id": row["id"], "_rev": row["value"]["rev"], "_deleted": True} for row in made]
            api.expect(201, "POST", "/db/_bulk_docs", {"docs": gone})
        # A text of several words is a phrase.
        wanted = {id_ for id_, text in kept.items() if "alpha gamma" in text}
        ctx.report.equal("each document on one page", (len(paged), set(paged) ^ wanted), (len(wanted), set()))


def test_several_texts(ctx):
    """A selector may have several `$text`, each of which is judged by its own words."""
    texts = {"a": "red apple", "b": "red pear", "c": "green apple", "d": "green pear", "e": "blue"}
    with ctx.server("several") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2")
        docs = [{"_id": id_, "text": text, "n": number, "list": [number]} for number, (id_, text) in enumerate(texts.items())]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        api.expect(200, "POST", "/db/_index", {"type": "text", "ddoc": "t", "name": "i", "index": {}})
        text = lambda *words: [{"$text": word} for word in words]
        for selector, expected in (
            ({"$and": text("red", "apple")}, "a"),
            ({"$and": text("red", "red")}, "ab"),
            ({"$and": text("red", "green")}, ""),
            ({"$or": text("red", "green")}, "abcd"),
            ({"$or": text("red", "blue", "none")}, "abe"),
            ({"$and": [*text("apple"), {"$or": text("red", "blue")}]}, "a"),
            ({"$and": [{"$or": text("red", "blue")}, {"$or": text("apple", "blue")}]}, "ae"),
            ({"$or": [{"$and": [*text("red"), {"n": 1}]}, {"$and": [*text("green"), {"n": 2}]}]}, "bc"),
            # What no index knows of a document is judged for each `$text`.
            (
                {
                    "$or": [
                        {"$and": [*text("red"), {"list": {"$allMatch": {"$gt": 0}}}]},
                        {"$and": [*text("green"), {"list": {"$allMatch": {"$lt": 3}}}]},
                    ]
                },
                "bc",
            ),
            ({"$or": [*text("pear", "blue"), {"n": 0}], "$and": text("red")}, "ab"),
            ({"$or": text(*(f"w{n}" for n in range(63)), "blue")}, "e"),
        ):
            found = find(api, "db", {"selector": selector, "use_index": "t"})
            ctx.report.equal(f"{str(selector)[:200]}", "".join(ids(found)), expected)
            groups = find(api, "db", {"selector": selector, "use_index": "t", "aggregate": {"compute": {"n": {"$count": True}}}})["groups"]
            ctx.report.equal("and as many are counted", sum(group["value"]["n"] for group in groups), len(expected))
        explained = api.expect(200, "POST", "/db/_explain", {"selector": {"$and": text("red", "apple")}})
        ctx.report.equal("as CouchDB writes it", explained["query"], '(($default:"red") AND ($default:"apple"))')
        many = api.post("/db/_find", {"selector": {"$or": text(*map(str, range(65)))}})
        ctx.report.equal("there is a limit", (many.status, many.json["reason"]), (400, "Selector has too many $text operators: more than 64"))


def test_without_the_default_field(ctx):
    """`$text` finds nothing in an index without the default field; other branches of an `$or` find theirs."""
    with ctx.server("without") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": "a", "s": "red", "n": 1}, {"_id": "b", "s": "blue", "n": 2}]})
        for kind in ("text", "nouveau"):
            for default in ({"enabled": False}, False):
                index = {"default_field": default}
                made = api.expect(200, "POST", "/db/_index", {"type": kind, "ddoc": "t", "name": "i", "index": index})
                for selector, expected in (
                    ({"$text": "red"}, ""),
                    ({"$text": "red", "n": 1}, ""),
                    ({"$or": [{"$text": "red"}, {"n": 2}]}, "b"),
                    ({"n": 1}, "a"),
                ):
                    asked = {"selector": selector, "use_index": "t"}
                    explained = api.expect(200, "POST", "/db/_explain", asked)
                    ctx.report.equal(f"{kind}, {default}: the index serves {selector}", explained["index"]["type"], kind)
                    ctx.report.equal("and finds", "".join(ids(find(api, "db", asked))), expected)
                api.expect(200, "DELETE", f"/db/_index/{made['id']}/{kind}/i")


def test_many_fields(ctx):
    """A document that has too many fields for an index is left out; queries that did not ask for the index do without it."""
    with ctx.server("fields") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        api.expect(200, "POST", "/db/_index", {"index": {}, "type": "text", "ddoc": "texts", "name": "all"})
        api.expect(201, "PUT", "/db/a", {"n": 1, "city": "rome"})
        asked = {"selector": {"n": 1}}
        ctx.report.equal("it serves", api.expect(200, "POST", "/db/_explain", asked)["index"]["type"], "text")
        api.expect(201, "PUT", "/db/many", {"n": 1, **{f"field{n}": n for n in range(10_001)}})
        answer = api.expect(200, "POST", "/db/_find", asked)
        ctx.report.equal("a query that does not name it", sorted(doc["_id"] for doc in answer["docs"]), ["a", "many"])
        lacks = "Documents that text index all lacks: 1."
        ctx.report.check("is warned", f"{lacks} It was not used." in answer.get("warning", ""), answer.get("warning"))
        for named in ({**asked, "use_index": "texts"}, {"selector": {"$text": "rome"}}):
            answer = api.expect(200, "POST", "/db/_find", named)
            ctx.report.equal(f"{list(named)}: others are found", ids(answer), ["a"])
            ctx.report.check(f"{list(named)}: with a warning", lacks in answer.get("warning", ""), answer.get("warning"))
        ctx.report.check("the log says why", "at most 10000 fields" in server.log(), "")
        rev = api.expect(200, "GET", "/db/many")["_rev"]
        api.expect(200, "DELETE", f"/db/many?rev={rev}")


def test_long_texts_and_bookmarks(ctx):
    """Texts and bookmarks of several megabytes are refused, whatever they hold; those that the server itself writes are not."""
    with ctx.server("long") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        long = "\x01" * 60_000
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"d{n}", "s": f"fox {long}{n}"} for n in range(3)]})
        for kind in ("text", "nouveau"):
            api.expect(200, "POST", "/db/_index", {"type": kind, "ddoc": kind, "name": "i", "index": {}})
            query = {"selector": {"$text": "fox"}, "use_index": kind}
            many = "\u4e2d" * 300_000
            for name, selector in (
                ("too many words", {"$or": [{"$text": many}, {"n": 1}]}),
                ("too many words of several", {"$or": [{"$text": many[:100_000]}, {"$text": many[:99_999]}]}),
            ):
                answer = api.post("/db/_find", {**query, "selector": selector})
                # With little memory for searches, it is the memory that does not suffice.
                ctx.report.check(f"{kind}: {name}", answer.status in (400, 413) and answer.is_error_shape, answer.status)
            answer = api.post("/db/_find", {**query, "selector": {"$or": [{"$text": many}, {"$text": many}]}})
            reason = "Texts of $text operators are longer than 1048576 bytes together"
            ctx.report.equal(f"{kind}: long texts", (answer.status, answer.json["reason"]), (400, reason))
            answer = api.post("/db/_find", {**query, "sort": [f"f{n}:string" for n in range(33)]})
            ctx.report.equal(f"{kind}: many fields to sort by", (answer.status, answer.json["error"]), (400, "invalid_sort_field"))
            sorted_ = {**query, "sort": ["s:string"], "limit": 1, "fields": ["_id"]}
            page = find(api, "db", sorted_)
            ctx.report.check(f"{kind}: a sort value is in the bookmark", len(page["bookmark"]) > len(long), len(page["bookmark"]))
            behind = find(api, "db", {**sorted_, "bookmark": page["bookmark"]})
            ctx.report.equal(f"{kind}: a long bookmark is read", (ids(page), ids(behind)), (["d0"], ["d1"]))
            index = base64.urlsafe_b64decode(page["bookmark"][:8])
            nested = base64.urlsafe_b64encode(json.dumps({"order": [[0]] * 200_000, "sort": "x", "statistics": "x"}).encode())
            whole = base64.urlsafe_b64encode(index + nested.rstrip(b"=")).rstrip(b"=").decode()
            answer = api.post("/db/_find", {**sorted_, "bookmark": whole})
            ctx.report.equal(f"{kind}: a bookmark of nested values", (answer.status, answer.json["error"]), (400, "invalid_bookmark"))

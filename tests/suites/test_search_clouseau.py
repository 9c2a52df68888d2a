"""Text indexes by Clouseau's interface, `_search`: what CouchDB's documentation and its own tests say of parameters and answers, orders and scores
against Lucene's formulas written out here, distances, groups, bookmarks, highlights, partitions. Nothing of it was recorded from a Clouseau."""

import json
import math
import struct
import urllib.parse

import pytest

from harness.hostile_searches import HOSTILE_INDEX, hostile_documents, hostile_requests

pytestmark = pytest.mark.may_be_retried

FRUITS = [
    {"_id": "a", "item": "apple", "place": "kitchen", "state": "new", "price": 0.99},
    {"_id": "b", "item": "banana", "place": "kitchen", "state": "new", "price": 1.49},
    {"_id": "c", "item": "carrot", "place": "kitchen", "state": "old", "price": 0.75},
    {"_id": "d", "item": "date", "place": "lobby", "state": "unknown", "price": 1.25},
]
FRUIT_INDEX = """function (doc) {
  index("item", doc.item, {facet: true});
  index("place", doc.place, {facet: true, store: true});
  index("state", doc.state, {facet: true});
  index("price", doc.price, {facet: true, store: true});
}"""
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
TEXT_INDEX = """function (doc) {
  if (doc.text) index("default", doc.text, {store: true});
  if (doc.tag) index("tag", doc.tag);
  if (typeof doc.n == "number") index("n", doc.n, {store: "yes"});
}"""
CITIES = {
    "berlin": (13.4050, 52.5200),
    "hamburg": (9.9937, 53.5511),
    "munich": (11.5820, 48.1351),
    "paris": (2.3522, 48.8566),
    "vienna": (16.3738, 48.2082),
}


def index(source, **more):
    return {"indexes": {"i": {"index": source, **more}}}


class Index:
    def __init__(self, server, name, definition, docs, query="?q=2"):
        self.api, self.path = server.api(), f"/{name}/_design/d/_search/i"
        self.api.expect((201, 202), "PUT", f"/{name}{query}")
        self.api.expect(201, "PUT", f"/{name}/_design/d", definition)
        self.api.expect(201, "POST", f"/{name}/_bulk_docs", {"docs": docs})

    def get(self, **params):
        params = {name: value if isinstance(value, str) else json.dumps(value) for name, value in params.items()}
        return self.api.expect(200, "GET", f"{self.path}?{urllib.parse.urlencode(params)}")

    def post(self, **body):
        return self.api.expect(200, "POST", self.path, body)

    def ids(self, q="*:*", **body):
        return [row["id"] for row in self.post(q=q, **body)["rows"]]

    def refused(self, **body):
        answer = self.api.post(self.path, body)
        return (answer.status, answer.json.get("error"), answer.json.get("reason"))


def test_fruits(ctx):
    """The cases of CouchDB's own test/elixir/test/search_test.exs."""
    with ctx.server("fruits") as server:
        fruits = Index(server, "db", index(FRUIT_INDEX, analyzer={"name": "standard"}), FRUITS)
        equal = ctx.report.equal

        def items(answer):
            return sorted(row["doc"]["item"] for row in answer["rows"])

        for name, ask in (("GET", fruits.get), ("POST", fruits.post)):
            equal(f"{name}: all", items(ask(q="*:*", include_docs=True)), ["apple", "banana", "carrot", "date"])
            equal(f"{name}: query", items(ask(query="item:date", include_docs=True)), ["date"])
            for drilldown, expected in (
                (["place", "kitchen"], ["apple", "banana", "carrot"]),
                (["state", "new", "unknown"], ["apple", "banana", "date"]),
                ([["state", "old"], ["item", "apple"]], []),
                ([["place", "kitchen"], ["state", "new"], ["item", "apple"]], ["apple"]),
                ([["state", "old", "new"], ["item", "apple"]], ["apple"]),
            ):
                found = items(ask(q="*:*", drilldown=drilldown, include_docs=True))
                equal(f"{name}: drilldown {drilldown}", found, expected)
            answer = ask(q="*:*", limit=0, counts=["place"])
            equal(f"{name}: counts", answer["counts"], {"place": {"kitchen": 3, "lobby": 1}})
            equal(f"{name}: a limit of 0", (answer["rows"], answer["total_rows"]), ([], 4))
            equal(f"{name}: counts of nothing", ask(q="item:tomato", limit=0, counts=["place"])["counts"], {"place": {}})
            ranges = {"price": {"cheap": "[0 TO 0.99]", "expensive": "[1.00 TO Infinity]"}}
            equal(f"{name}: ranges", ask(q="*:*", limit=0, ranges=ranges)["ranges"], {"price": {"cheap": 2, "expensive": 2}})
            equal(f"{name}: no ranges", ask(q="*:*", limit=0, ranges={"price": {}})["ranges"], {"price": {}})
        several = "drilldown=" + urllib.parse.quote('["state","old"]') + "&drilldown=" + urllib.parse.quote('["item","apple"]')
        found = fruits.api.expect(200, "GET", f"{fruits.path}?q=*:*&{several}&include_docs=true")
        equal("several drilldowns of a query string", items(found), [])
        row = fruits.post(q="item:apple")["rows"][0]
        equal("stored fields", row["fields"], {"place": "kitchen", "price": 0.99})
        equal("the order is a score and a number", [type(value) for value in row["order"]], [float, int])
        equal("include_fields", fruits.post(q="item:apple", include_fields=["price"])["rows"][0]["fields"], {"price": 0.99})
        equal("no fields", fruits.post(q="item:apple", include_fields=[])["rows"][0]["fields"], {})
        equal("a number is found in its field", fruits.ids("price:0.75"), ["c"])
        equal("ranges of numbers", sorted(fruits.ids("price:[0.75 TO 1.25]")), ["a", "c", "d"])
        equal("open ones", sorted(fruits.ids("price:{0.99 TO Infinity]")), ["b", "d"])
        equal("by number", fruits.ids(sort="price"), ["c", "a", "d", "b"])
        equal("backwards", fruits.ids(sort="-price<number>"), ["b", "d", "a", "c"])
        equal("by string", fruits.ids(sort=["-place<string>", "item<string>"]), ["d", "a", "b", "c"])
        equal("its values", fruits.post(q="*:*", sort=["-place<string>", "price"])["rows"][0]["order"][:2], ["lobby", 1.25])
        equal("a field that is not there", fruits.post(q="*:*", sort="nosuch<string>")["rows"][0]["order"][0], None)
        equal("of numbers it is 0", fruits.post(q="*:*", sort="nosuch")["rows"][0]["order"][0], 0.0)
        fruits.api.expect(201, "PUT", "/db/_design/bad", {"indexes": [{"name": "foo", "ddoc": "bar", "type": "text"}]})
        equal("a clean-up beside an invalid design document", fruits.api.post("/db/_search_cleanup").status, 202)
        equal("and the index is there", sorted(fruits.ids()), ["a", "b", "c", "d"])


def test_refusals(ctx):
    with ctx.server("refusals") as server:
        fruits = Index(server, "db", index(FRUIT_INDEX), FRUITS)
        for body, error, reason in (
            ({}, "query_parse_error", "Query must include a 'q' or 'query' argument"),
            ({"q": "*:*", "limit": 201}, "query_parse_error", "Value for limit is too large, must not exceed 200"),
            ({"q": "*:*", "limit": -1}, "query_parse_error", "limit must be greater than or equal to zero"),
            ({"q": "*:*", "group_limit": 201}, "query_parse_error", "Value for group_limit is too large, must not exceed 200"),
            ({"q": "*:*", "highlight_size": 0}, "query_parse_error", "highlight_size must be greater than zero"),
            ({"q": "*:*", "partition": "p"}, "bad_request", "`partition` not supported on this index"),
            ({"q": "*:*", "bookmark": "x"}, "bad_request", "Invalid bookmark parameter supplied"),
            ({"q": "*:*", "sort": "item"}, "bad_request", "cannot sort string field as numeric field"),
            ({"q": "*:*", "sort": "item<date>"}, "bad_request", "Unrecognized type: date"),
            ({"q": "*:*", "sort": [5]}, "bad_request", "Unrecognized sort parameter: 5"),
            ({"q": "*:*", "stable": "x"}, "query_parse_error", 'Invalid value for stable: "x"'),
            ({"q": "*:*", "limit": 10**20}, "query_parse_error", "Value for limit is too large, must not exceed 200"),
            ({"q": "*:*", "ranges": {"price": {"x": "item:a"}}}, "bad_request", "item:a was not a well-formed range specification"),
            ({"q": "*:*", "group_field": "price<number>"}, "bad_request", "Group by number not supported. Group by string terms only."),
        ):
            ctx.report.equal(f"{body} is refused", fruits.refused(**body), (400, error, reason))
        for q in ("*", "item:*x", "item:(", '"', "[1 TO"):
            ctx.report.equal(f"the query {q} is refused", fruits.refused(q=q)[:2], (400, "bad_request"))
        for name, value in (("limit", "x"), ("sort", "{"), ("include_docs", "maybe"), ("stale", "update_after"), ("stable", "maybe")):
            answer = fruits.api.get(f"{fruits.path}?q=*:*&{name}={value}")
            ctx.report.equal(f"{name}={value} is refused", answer.status, 400)
        missing = fruits.api.post("/db/_design/d/_search/nosuch", {"q": "*:*"})
        ctx.report.equal("an index that is not there", (missing.status, missing.json["reason"]), (404, "nosuch not found."))
        for place in ("181,0", "0,-91"):
            ctx.report.equal(f"there is no place at {place}", fruits.refused(q="*:*", sort=f"<distance,x,y,{place},km>")[:2], (400, "bad_request"))
        other = fruits.api.request("PUT", fruits.path, {})
        ctx.report.equal("other methods", (other.status, other.json["reason"]), (405, "Only GET,POST allowed"))
        ctx.report.equal("unknown parameters are ignored", len(fruits.ids(nosuch=1, stale="ok")), 4)


def test_values(ctx):
    """What `index()` takes, and what it drops a document for."""
    with ctx.server("values") as server:
        source = "function (doc) { index('x', doc.x, doc.o || {store: true}); if ('y' in doc) index('x', doc.y, {store: true}); }"
        docs = [
            {"_id": "text", "x": "Red Fox"},
            {"_id": "number", "x": 5},
            {"_id": "boolean", "x": True},
            {"_id": "array", "x": ["Red"]},
            {"_id": "null", "x": None},
            {"_id": "late", "x": "Red", "y": {}},
            {"_id": "twice", "x": "one", "y": "two"},
            {"_id": "raw", "x": "Red Fox", "o": {"index": "not_analyzed", "store": True}},
            {"_id": "unfound", "x": "Red Fox", "o": {"index": False, "store": True}},
            {"_id": "nothing", "x": "Red Fox", "o": {"index": False, "store": False}},
            {"_id": "flag", "x": False, "o": {"index": False, "store": True}},
        ]
        of = Index(server, "db", index(source, analyzer="standard"), docs)
        ids = sorted(of.ids())
        expected = ["boolean", "flag", "nothing", "number", "raw", "text", "twice", "unfound"]
        ctx.report.equal("arrays and null drop their documents", ids, expected)
        stored = {row["id"]: row["fields"].get("x") for row in of.post(q="*:*")["rows"]}
        ctx.report.equal("repeated values come newest first", stored["twice"], ["two", "one"])
        ctx.report.equal("numbers and booleans", (stored["number"], stored["boolean"]), (5.0, "true"))
        ctx.report.equal("an unquoted number is one", of.ids("x:5"), ["number"])
        ctx.report.equal("booleans are words, in any case", (of.ids("x:true"), of.ids("x:false")), (["boolean"], ["flag"]))
        ctx.report.equal("words are analyzed", of.ids("x:RED"), ["text"])
        ctx.report.equal("every one of a field", sorted(of.ids("x:one AND x:two")), ["twice"])
        source = "function (doc) { emit(doc._id, 1); index('id', doc._id); if (doc.x) index('x', doc.x, {facet: true}); }"
        facets = Index(server, "facets", index(source), [{"_id": "a", "x": "one"}, {"_id": "b", "x": "two"}, {"_id": "c"}])
        ctx.report.equal("what is emitted is nothing", sorted(facets.ids()), ["_design/d", "a", "b", "c"])
        for drilldown in (["x"], [["x"]]):
            ctx.report.equal(f"documents with any such facet: {drilldown}", sorted(facets.ids(drilldown=drilldown)), ["a", "b"])
        texts = index("function (doc) { index('x', doc.x); }", analyzer="keyword")
        raw = Index(server, "raw", texts, [{"_id": "a", "x": "Red Fox"}, {"_id": "b", "x": "red"}])
        ctx.report.equal("keywords stay as they are", (raw.ids("x:Red*"), raw.ids('x:"Red Fox"')), (["a"], ["a"]))


def encode_norm(value):
    """Lucene 4.6's SmallFloat.floatToByte315 and back."""
    bits = struct.unpack(">i", struct.pack(">f", value))[0]
    small = bits >> 21
    code = min(max(small - 384, 0), 255)
    return 0.0 if code == 0 else struct.unpack(">f", struct.pack(">I", (code << 21) + (48 << 24)))[0]


def classic_scores(docs, terms, needed=()):
    """Scores of Lucene 4.6's DefaultSimilarity: `terms` are words with boosts."""
    count = len(docs)
    idf = {word: math.log(count / (sum(word in text.split() for text in docs.values()) + 1)) + 1 for word in terms}
    norm = 1 / math.sqrt(sum((idf[word] * boost) ** 2 for word, boost in terms.items()))
    found = {}
    for doc_id, text in docs.items():
        words = text.split()
        matching = [word for word in terms if word in words]
        if not matching or any(word not in words for word in needed):
            continue
        length = encode_norm(1 / math.sqrt(len(words)))
        score = sum(math.sqrt(words.count(word)) * idf[word] ** 2 * terms[word] * length for word in matching)
        found[doc_id] = score * norm * len(matching) / len(terms)
    return found


def test_scores(ctx):
    """Scores are TF-IDF with coordination, as the formula says, and hits are in their order."""
    with ctx.server("scores") as server:
        random = ctx.random
        docs = {f"d{n:03d}": " ".join(random.choice(WORDS) for _ in range(random.randint(1, 30))) for n in range(ctx.size(150, 2000))}
        of = Index(server, "db", index(TEXT_INDEX), [{"_id": doc_id, "text": text} for doc_id, text in docs.items()], "?q=1")
        for q, terms, needed in (
            ("alpha", {"alpha": 1}, ()),
            ("alpha beta", {"alpha": 1, "beta": 1}, ()),
            ("alpha^3 beta gamma", {"alpha": 3, "beta": 1, "gamma": 1}, ()),
            ("+alpha beta", {"alpha": 1, "beta": 1}, ("alpha",)),
            ("alpha AND zeta", {"alpha": 1, "zeta": 1}, ("alpha", "zeta")),
        ):
            expected = classic_scores(docs, terms, needed)
            rows = of.post(q=q, limit=200)["rows"]
            total = of.post(q=q, limit=0)["total_rows"]
            ctx.report.equal(f"{q}: hits", total, len(expected))
            near = all(math.isclose(row["order"][0], expected[row["id"]], rel_tol=1e-4) for row in rows)
            ctx.report.check(f"{q}: scores", near, [(row["order"][0], expected[row["id"]]) for row in rows[:5]])
            order = [row["order"][0] for row in rows]
            ctx.report.check(f"{q}: the best first", order == sorted(order, reverse=True), order[:5])


def test_pages(ctx):
    """All pages together are all hits, each once, in every order, while bookmarks are handed on."""
    with ctx.server("pages") as server:
        random = ctx.random
        docs = []
        for number in range(120):
            doc = {"_id": f"d{number:03d}", "text": " ".join(random.choice(WORDS) for _ in range(6)), "n": random.randint(-3, 3)}
            if number % 3:
                doc["tag"] = random.choice(WORDS)
            docs.append(doc)
        of = Index(server, "db", index(TEXT_INDEX), docs, "?q=3")
        far = ["<distance,n,n,1,2.5,km>", "-<distance,n,m,1,2,mi>", "<distance,nosuch,nosuch,1,2,km>"]
        for sort in (None, "n", "-n", "tag<string>", ["-tag<string>", "n"], "<score>", "<doc>", "-<doc>", "nosuch<string>", *far):
            for q in ("*:*", "alpha beta"):
                options = {"q": q, **({} if sort is None else {"sort": sort})}
                whole = of.post(**options, limit=200)
                paged, bookmark = [], None
                while True:
                    page = of.post(**options, limit=17, **({"bookmark": bookmark} if bookmark else {}))
                    if not page["rows"]:
                        break
                    paged += [row["id"] for row in page["rows"]]
                    bookmark = page["bookmark"]
                right = paged == [row["id"] for row in whole["rows"]] and len(set(paged)) == len(paged) == whole["total_rows"]
                ctx.report.check(f"pages of {q} by {sort}", right, f"{len(paged)} of {whole['total_rows']}")


def test_pages_beside_writers(ctx):
    """Documents that come and go between two pages, and merges, move no other hit across the end of a page."""
    with ctx.server("writers") as server:
        random = ctx.random
        kept, others = ctx.size((100, 80), (300, 200))
        texts = {f"d{number:03d}": " ".join(random.choice(WORDS) for _ in range(random.randint(2, 40))) for number in range(kept)}
        docs = [{"_id": id_, "text": text} for id_, text in texts.items()]
        docs += [{"_id": f"e{number:03d}", "text": f"alpha {number}"} for number in range(others)]
        # Each index has commits of its own searches, not of the other's too.
        of = Index(server, "db", {**index(TEXT_INDEX), "autoupdate": False}, docs)
        nouveau = """function (doc) { index("text", "default", doc.text); }"""
        of.api.expect(201, "PUT", "/db/_design/n", {"nouveau": {"i": {"index": nouveau}}, "autoupdate": False})
        for path, rows in ((of.path, "rows"), ("/db/_design/n/_nouveau/i", "hits")):
            for q in ("alpha beta", 'alpha^3 "beta gamma" alph*', f"alpha^{'9' * 38} beta"):
                body = {"q": q, "limit": 20}
                wanted = {id_ for id_, text in texts.items() if found_by(q, text)}
                paged = []
                while True:
                    page = of.api.expect(200, "POST", path, body)
                    if not page[rows]:
                        break
                    paged += [row["id"] for row in page[rows] if row["id"] in texts]
                    body["bookmark"] = page["bookmark"]
                    write_others(of.api, random, others)
                label = f"{path.split('/')[-2]}: {q[:40]}"
                ctx.report.equal(f"{label}: each hit on one page", (len(paged), set(paged) ^ wanted), (len(wanted), set()))


def found_by(q, text):
    words = text.split()
    return "alpha" in words or ("beta" in words and '"' not in q) or ('"' in q and "beta gamma" in text)


def write_others(api, random, count):
    """Changes how many documents there are, how long they are and how many have a word."""
    ids = [f"e{random.randrange(2 * count):03d}" for _ in range(count // 5)]
    rows = api.expect(200, "POST", "/db/_all_docs", {"keys": sorted(set(ids))})["rows"]
    docs = []
    for row in rows:
        rev = row.get("value", {}).get("rev")
        doc = {"_id": row["key"], "text": " ".join(random.choices(["beta", "other"], k=random.randint(1, 30)))}
        if rev and not row["value"].get("deleted"):
            doc = {**doc, "_rev": rev, **({"_deleted": True} if random.random() < 0.7 else {})}
        docs.append(doc)
    api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})


def test_ids(ctx):
    """The id is a field as others are; bookmarks are of one order; what has no measure is a number all the same."""
    with ctx.server("ids") as server:
        source = "function (doc) { index('b', doc.b, {facet: true}); index('s', doc.s, {facet: true}); index('t', doc.t); }"
        docs = [{"_id": f"d{n}", "b": n > 2, "s": "xy"[n % 2], "t": "word"} for n in range(5)]
        of = Index(server, "db", index(source), docs)
        rows = of.post(q="*:*", sort="-_id<string>")["rows"]
        ctx.report.equal("an order by id", [(row["id"], row["order"][0]) for row in rows], [(f"d{n}", f"d{n}") for n in (4, 3, 2, 1, 0)])
        found = of.post(q="*:*", group_field="_id", group_sort="_id<string>")["groups"]
        ctx.report.equal("groups of an id each", [(group["by"], group["total_rows"]) for group in found], [(f"d{n}", 1) for n in range(5)])
        ctx.report.equal("strings are counted, booleans are not", of.post(q="*:*", counts=["s", "b"])["counts"], {"s": {"x": 3, "y": 2}, "b": {}})
        bookmark = of.post(q="*:*", sort="s<string>", limit=2)["bookmark"]
        for sort in ("-s<string>", "b<string>", "_id<string>"):
            ctx.report.equal(
                f"a bookmark of another order than {sort}", of.api.post(of.path, {"q": "*:*", "sort": sort, "bookmark": bookmark}).status, 400
            )
        page = of.post(q=f"t:word^{'9' * 60}", limit=2)
        ctx.report.check("a score beyond all numbers is one", all(row["order"][0] > 1e30 for row in page["rows"]), page["rows"])
        last = of.post(q=f"t:word^{'9' * 60}", limit=9, bookmark=page["bookmark"])
        ctx.report.equal("and its bookmark goes on", len(last["rows"]), 3)
        nouveau = "function (doc) { index('string', 's', doc.s); index('text', 't', doc.t); }"
        of.api.expect(201, "PUT", "/db/_design/n", {"nouveau": {"i": {"index": nouveau}}})
        grouped = {field: of.api.post("/db/_design/n/_nouveau/i", {"q": "*:*", "group_field": field}) for field in ("s", "t", "_id")}
        ctx.report.equal("groups are of strings", {field: answer.status for field, answer in grouped.items()}, {"s": 200, "t": 400, "_id": 200})


def test_groups(ctx):
    with ctx.server("groups") as server:
        of = Index(
            server, "db", index(FRUIT_INDEX), [*FRUITS, {"_id": "e", "item": "egg", "state": "new", "price": 3, "place": "kitchen cupboard"}], "?q=3"
        )
        answer = of.post(q="*:*", group_field="place", group_sort="-price", sort="price", limit=2)
        ctx.report.equal("all hits are counted", answer["total_rows"], 5)
        shown = [(group["by"], group["total_rows"], [row["id"] for row in group["rows"]]) for group in answer["groups"]]
        expected = [("kitchen", 4, ["c", "a"]), ("lobby", 1, ["d"])]
        ctx.report.equal("groups by their greatest word, with their first hits", shown, expected)
        answer = of.post(q="*:*", group_field="place<string>", group_limit=1, group_sort="price")
        ctx.report.equal("so many groups", [group["by"] for group in answer["groups"]], ["kitchen"])
        answer = of.post(q="*:*", group_field="nosuch")
        ctx.report.equal("hits without one are a group too", [(g["by"], g["total_rows"]) for g in answer["groups"]], [(None, 5)])
        old = of.post(q="state:new", group_by="place", include_docs=True)
        names = (sorted(old), sorted(old["groups"][0]))
        ctx.report.equal("group_by has other names", names, (["groups", "total_grouped_hits", "total_hits"], ["by", "hits", "total_hits"]))
        ctx.report.equal("with documents", sorted(hit["doc"]["item"] for hit in old["groups"][0]["hits"]), ["apple", "banana", "egg"])
        ctx.report.equal("no hits, no groups", of.post(q="state:none", group_field="place"), {"total_rows": 0, "groups": []})


def haversine(a, b, radius):
    (lon1, lat1), (lon2, lat2) = (tuple(map(math.radians, point)) for point in (a, b))
    h = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * radius * math.asin(math.sqrt(h))


def test_distances(ctx):
    with ctx.server("distances") as server:
        source = "function (doc) { if (doc.lon) { index('lon', doc.lon); index('lat', doc.lat); } if (doc.name) index('name', doc.name); }"
        docs = [{"_id": name, "name": name, "lon": lon, "lat": lat} for name, (lon, lat) in CITIES.items()] + [{"_id": "nowhere", "name": "nowhere"}]
        of = Index(server, "db", index(source, analyzer="keyword"), docs, "?q=2")
        here = (8.6821, 50.1109)
        for unit, radius in (("km", 6378.1370), ("mi", 6378.1370 * 0.621371192)):
            rows = of.post(q="*:*", sort=f"<distance,lon,lat,{here[0]},{here[1]},{unit}>")["rows"]
            expected = sorted(CITIES, key=lambda name: haversine(here, CITIES[name], radius))
            ctx.report.equal(f"the nearest first, in {unit}", [row["id"] for row in rows if row["id"] in CITIES], expected)
            near = all(math.isclose(row["order"][0], haversine(here, CITIES[row["id"]], radius), rel_tol=1e-9) for row in rows if row["id"] in CITIES)
            ctx.report.check(f"and how far, in {unit}", near, rows)
            ctx.report.equal(f"what is nowhere comes last, in {unit}", [row["id"] for row in rows if row["id"] not in CITIES], ["nowhere"])
            ctx.report.check(
                "half around the earth", math.isclose(rows[-2]["order"][0], math.pi * radius) or math.isclose(rows[-1]["order"][0], math.pi * radius)
            )
        far = of.ids(sort=f"-<distance,lon,lat,{here[0]},{here[1]},km>", q="name:paris OR name:berlin")
        ctx.report.equal(
            "the farthest first",
            far,
            ["paris", "berlin"] if haversine(here, CITIES["paris"], 1) > haversine(here, CITIES["berlin"], 1) else ["berlin", "paris"],
        )


def test_highlights(ctx):
    with ctx.server("highlights") as server:
        docs = [{"_id": "a", "text": "The quick brown fox jumps over the lazy dog"}, {"_id": "b", "text": "foxes"}]
        of = Index(server, "db", index(TEXT_INDEX), docs)

        def parts(q, **options):
            return of.post(q=q, highlight_fields=["default"], **options)["rows"][0]["highlights"]

        ctx.report.equal("words", parts("fox dog"), {"default": ["The quick brown <em>fox</em> jumps over the lazy <em>dog</em>"]})
        tags = parts("jum*", highlight_pre_tag="[", highlight_post_tag="]")
        ctx.report.equal("beginnings, with tags", tags, {"default": ["The quick brown fox [jumps] over the lazy dog"]})
        # Neighbouring parts become one, as in Lucene.
        several = parts("quick dog", highlight_size=20, highlight_number=5)["default"]
        ctx.report.equal("short parts", several, ["The <em>quick</em> brown fox jumps over the lazy <em>dog</em>"])
        ctx.report.equal("fields that are not stored", of.post(q="quick", highlight_fields=["tag"])["rows"][0]["highlights"], {"tag": []})
        ctx.report.check("none without being asked", "highlights" not in of.post(q="quick")["rows"][0])


def test_partitions(ctx):
    with ctx.server("partitions") as server:
        docs = [{"_id": f"p{n % 3}:{n}", "text": "alpha" if n % 2 else "beta"} for n in range(60)]
        of = Index(server, "db", index(TEXT_INDEX), docs, "?q=2&partitioned=true")
        path = "/db/_partition/p1/_design/d/_search/i"
        expected = sorted(doc["_id"] for doc in docs if doc["_id"].startswith("p1:") and doc["text"] == "alpha")
        for method, answer in (
            ("GET", of.api.expect(200, "GET", f"{path}?q=alpha")),
            ("POST", of.api.expect(200, "POST", path, {"q": "alpha"})),
            ("partition", of.api.expect(200, "POST", of.path, {"q": "alpha", "partition": "p1"})),
        ):
            ctx.report.equal(f"hits of the partition, by {method}", sorted(row["id"] for row in answer["rows"]), expected)
        ctx.report.equal("without one", of.refused(q="*:*")[2], "`partition` parameter is mandatory for queries to this index.")
        answer = of.api.post(path, {"q": "*:*", "counts": ["tag"]})
        ctx.report.equal("counts of a partition are refused", answer.status, 400)
        answer = of.api.post(path, {"q": "*:*", "partition": "p2"})
        ctx.report.equal("two partitions are refused", answer.json["reason"], "Multiple conflicting values for `partition` provided")
        of.api.expect(201, "PUT", "/db/_design/g", {**index(TEXT_INDEX), "options": {"partitioned": False}})
        everything = of.api.expect(200, "POST", "/db/_design/g/_search/i", {"q": "alpha"})
        ctx.report.equal("a global index", everything["total_rows"], 30)


def test_info(ctx):
    with ctx.server("info") as server:
        of = Index(server, "db", index(FRUIT_INDEX), FRUITS)
        of.ids()
        found = of.api.expect(200, "GET", "/db/_design/d/_search_info/i")
        ctx.report.equal("_search_info names the index", found["name"], "_design/d/i")
        ctx.report.equal("and counts its documents", found["search_index"]["doc_count"], 4)
        size = of.api.expect(200, "GET", "/db/_design/d/_search_disk_size/i")
        ctx.report.equal("_search_disk_size is the same size", size["search_index"], {"disk_size": found["search_index"]["disk_size"]})
        ctx.report.equal("of none", of.api.get("/db/_design/d/_search_info/nosuch").status, 404)


def test_analyzers(ctx):
    with ctx.server("analyzers") as server:
        api = server.api()
        for analyzer, text, tokens in (
            ("standard", "The Running foxes", ["running", "foxes"]),
            ("english", "The Running foxes", ["run", "fox"]),
            ("keyword", "The Running foxes", ["The Running foxes"]),
            ({"name": "standard", "stopwords": ["running"]}, "The Running foxes", ["the", "foxes"]),
            ({"name": "perfield", "default": "english", "fields": {"raw": "keyword"}}, "The Running foxes", ["run", "fox"]),
            ({"name": "perfield", "fields": {"default": "keyword"}}, "The Running foxes", ["The Running foxes"]),
            ("perfield", "The Running foxes", ["running", "foxes"]),
        ):
            answer = api.expect(200, "POST", "/_search_analyze", {"analyzer": analyzer, "text": text})
            ctx.report.equal(f"{analyzer}", answer["tokens"], tokens)
        ctx.report.equal("by GET", api.expect(200, "GET", "/_search_analyze?analyzer=keyword&text=a%20b"), {"tokens": ["a b"]})
        refused = api.post("/_search_analyze", {"analyzer": "klingon", "text": "x"})
        ctx.report.equal("one that is not known", refused.status, 400)
        refused = api.post("/_search_analyze", {"text": "x"})
        ctx.report.equal("none", (refused.status, refused.json["reason"]), (400, "analyzer parameter is mandatory"))
        fields = {"name": "perfield", "default": "english", "fields": {"raw": "keyword"}}
        source = "function (doc) { index('default', doc.t); index('raw', doc.t); }"
        of = Index(server, "db", index(source, analyzer=fields), [{"_id": "a", "t": "Running Foxes"}])
        ctx.report.equal("an analyzer for each field", (of.ids("fox"), of.ids('raw:"Running Foxes"'), of.ids("raw:fox")), (["a"], ["a"], []))


def test_design_documents(ctx):
    """Design documents are documents of an index, as in CouchDB; changed and deleted documents are."""
    with ctx.server("designs") as server:
        of = Index(server, "db", index("function (doc) { index('id', doc._id); }", analyzer="keyword"), [{"_id": "a"}])
        ctx.report.equal("design documents are found", sorted(of.ids()), ["_design/d", "a"])
        rev = of.api.expect(200, "GET", "/db/a")["_rev"]
        of.api.expect(200, "DELETE", f"/db/a?rev={rev}")
        ctx.report.equal("deleted documents are not", of.ids(), ["_design/d"])
        of.api.expect(201, "PUT", "/db/b", {})
        ctx.report.equal("new ones are", sorted(of.ids()), ["_design/d", "b"])


def test_hostile(ctx):
    """Requests that are made to cost: answered or refused, while others are answered."""
    with ctx.server("hostile") as server:
        of = Index(server, "db", index(HOSTILE_INDEX, analyzer="whitespace"), hostile_documents(ctx.size(1, 10)))
        for name, body in hostile_requests(ctx.size(1, 10), ctx.size(10, 100)).items():
            answer = of.api.post(of.path, body)
            ctx.report.check(f"{name}: answered or refused", answer.status in (200, 400, 413), (answer.status, answer.raw[:300]))
        for what, body in {
            "fields to sort by": {"sort": ["n"] * 33},
            "fields to count": {"counts": ["tag"] * 101},
            "fields to highlight": {"highlight_fields": ["default"] * 101},
            "ranges": {"ranges": {"n": {str(n): "[0 TO 1]" for n in range(1001)}}},
            "bytes of a tag of highlights": {"highlight_fields": ["default"], "highlight_post_tag": "x" * 257},
        }.items():
            ctx.report.equal(f"too many {what} are refused", of.refused(q="alpha", **body)[:2], (400, "bad_request"))
        ctx.report.equal("and others are answered", of.post(q="alpha")["total_rows"], 2000)
        ctx.report.check("nothing panicked", "panicked" not in server.log(), server.log()[-1500:])

"""Text indexes by Nouveau's interface: against a naive one while documents come, change and go; pages without gaps or repeats;
background updates; clean-up and deletion give the space back; copies of the store. What single requests answer is in the recorded behaviour
(suite `vectors`), bad days in `search_faults`."""

import json
import math
import pathlib
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.server import wait_until
from harness.text_database import HOSTILE_QUERIES, INDEX, QUESTIONS, Database, design, words

pytestmark = pytest.mark.may_be_retried


def test_differential(ctx):
    """Every question finds what is there, after every round of edits, on one shard and on three."""
    with ctx.server("differential") as server:
        for shards in (1, 3):
            database = Database(ctx, server, f"db{shards}", f"?q={shards}")
            for number in range(1, ctx.size(3, 40) + 1):
                database.edit(ctx.size(200, 1000))
                for q, matches in QUESTIONS:
                    expected = sorted(doc_id for doc_id, doc in database.docs.items() if matches(doc))
                    found = database.search(q, sort="_id")
                    ids = [hit["id"] for hit in found["hits"]]
                    right = ids == expected and found["total_hits"] == len(expected)
                    ctx.report.check(f"{shards} shards, round {number}: {q}", right, f"{len(ids)} of {len(expected)}", quiet=True)
                counts(ctx, database, f"{shards} shards, round {number}")
            ctx.report.equal(f"{shards} shards: stored fields", *stored(database))


def counts(ctx, database, label):
    ranges = {"n": [{"label": "low", "max": 0, "max_inclusive": False}, {"label": "high", "min": 0}]}
    found = database.search("alpha", counts=["tag"], ranges=ranges, limit=1)
    hits = [doc for doc in database.docs.values() if "alpha" in words(doc)]
    tags = {}
    for doc in hits:
        for tag in set(doc.get("tags", [])):
            tags[tag] = tags.get(tag, 0) + 1
    ctx.report.equal(f"{label}: counts", found["counts"], {"tag": tags}, quiet=True)
    numbers = [doc["n"] for doc in hits if "n" in doc]
    expected = {"n": {"low": sum(n < 0 for n in numbers), "high": sum(n >= 0 for n in numbers)}}
    ctx.report.equal(f"{label}: ranges", found["ranges"], expected, quiet=True)


def stored(database):
    found = {hit["id"]: hit["fields"] for hit in database.search("*:*")["hits"]}
    expected = {}
    for doc_id, doc in database.docs.items():
        expected[doc_id] = {"default": doc["text"], **({"n": float(doc["n"])} if "n" in doc else {})}
    return found, expected


def test_pages(ctx):
    """All pages together are all hits, each once, in every order."""
    with ctx.server("pages") as server:
        database = Database(ctx, server, "db", "?q=3")
        database.edit(ctx.size(300, 2000))
        for sort in (None, "_id", "-_id", ["n"], ["-n"], ["tag", "-n"], ["-tag"], ["nosuch"], ["<score>", "n"]):
            for q in ("*:*", "alpha beta"):
                options = {} if sort is None else {"sort": sort}
                whole = database.ids(q, **options)
                paged, bookmark = [], None
                while True:
                    page = database.search(q, **{**options, "limit": 17}, **({"bookmark": bookmark} if bookmark else {}))
                    if not page["hits"]:
                        break
                    paged += [hit["id"] for hit in page["hits"]]
                    bookmark = page["bookmark"]
                ctx.report.check(f"pages of {q} by {sort}", paged == whole and len(set(paged)) == len(paged), f"{len(paged)} and {len(whole)}")


def test_background(ctx):
    """Without being asked, an index follows its database; `update=false` takes what is there."""
    with ctx.server("background") as server:
        database = Database(ctx, server, "db", "?q=2")
        database.edit(50)

        def seen():
            # Before the first build the index is not there.
            answer = database.api.post("/db/_design/d/_nouveau/i", {"q": "*:*", "update": False})
            return answer.status == 200 and answer.json["total_hits"] == len(database.docs)

        ctx.report.check("the background indexes what was written", wait_until(seen, 30, 0.1))
        database.edit(50)
        ctx.report.check("and what is written later", wait_until(seen, 30, 0.1))
        ctx.report.equal("a search waits for what was written", len(database.ids("*:*")), len(database.docs))
        info = database.api.expect(200, "GET", "/db/_design/d/_nouveau_info/i")["search_index"]
        ctx.report.equal("_nouveau_info counts the documents", info["num_docs"], len(database.docs))
        ctx.report.check("and the bytes", info["disk_size"] > 1000, info)
        # The same documents as those of one update are found after many small ones.
        small = Database(ctx, server, "small", "?q=1")
        for number in range(30):
            small.api.expect(201, "PUT", f"/small/{number}", {"text": "omega"})
            ctx.report.equal(f"small write {number} is found", small.search("omega")["total_hits"], number + 1, quiet=True)
        most = lambda: max(len(list(folder.glob("*.term"))) for folder in server_text(server).iterdir())
        ctx.report.check("small commits do not pile up segments", wait_until(lambda: most() < 20, 30, 0.1), most())


def server_text(server):
    """The folder of text indexes."""
    return pathlib.Path(server.data) / "store" / "text"


def test_bad_documents(ctx):
    """A function that throws costs its document; one that never ends costs documents, and the update when it ends for none."""
    with ctx.server("bad", options=["--set", f"functions/time_limit_ms={ctx.size(200, 500)}"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=1")
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": "a", "s": "x"}, {"_id": "b"}, {"_id": "c", "s": "y"}]})
        api.expect(201, "PUT", "/db/_design/d", design("function (doc) { index('string', 's', doc.s); }"))
        answer = api.expect(200, "GET", "/db/_design/d/_nouveau/i?q=*:*")
        ctx.report.equal("a document whose function throws is left out", [hit["id"] for hit in answer["hits"]], ["a", "c"])
        api.expect(201, "PUT", "/db/_design/e", design("function (doc) { while (true) {} }"))
        answer = api.expect(200, "GET", "/db/_design/e/_nouveau/i?q=*:*")
        left_out = api.expect(200, "GET", "/db/_design/e/_nouveau_info/i")["search_index"]["num_left_out_docs"]
        ctx.report.equal("documents that take too long are left out", (answer["total_hits"], left_out), (0, 3))
        api.expect((201, 202), "PUT", "/many?q=1")
        api.expect(201, "POST", "/many/_bulk_docs", {"docs": [{"n": n} for n in range(12)]})
        api.expect(201, "PUT", "/many/_design/e", design("function (doc) { while (true) {} }"))
        answer = api.get("/many/_design/e/_nouveau/i?q=*:*")
        ctx.report.check("a function without end is an error", answer.status >= 400 and "time_limit_ms" in answer.json["reason"], answer)
        ctx.report.equal("and others are searched", api.get("/db/_design/d/_nouveau/i?q=s:x").json["total_hits"], 1)
        two_types = "function (doc) { if (doc.v) index(typeof doc.v == 'string' ? 'string' : 'double', 'v', doc.v); }"
        api.expect(201, "PUT", "/db/_design/f", design(two_types))
        api.expect(201, "PUT", "/db/other", {"v": "wall"})
        rev = {}
        for value, found in (("word", ["other", "v"]), (5, ["other"]), ("words", ["other", "v"])):
            rev = {"_rev": api.expect(201, "PUT", "/db/v", {"v": value, **rev})["rev"]}
            answer = api.expect(200, "GET", "/db/_design/f/_nouveau/i?q=v:w*&sort=%22_id%22")
            ctx.report.equal(f"a field of two types, with {value}", [hit["id"] for hit in answer["hits"]], found)


# What one document may give to an index, and what is then in it. A call that throws can be caught.
ODD_CALLS = (
    ("a name with an underscore", "index('string', '_x', 'y')", False),
    ("a name that throws, and is caught", "try { index('string', '_x', 'y') } catch (e) {}", True),
    ("a name that is none", "index('string', 'a-b', 'y')", False),
    ("a name that is empty", "index('string', '', 'y')", False),
    ("another type", "index('double', 's', 5)", False),
    ("a number that is none", "index('double', 'n', NaN)", False),
    ("a store that is no boolean", "index('string', 't', 'y', {store: 'maybe'})", False),
    ("too many fields", "for (var i = 0; i < 10001; i++) index('double', 'f' + i, i)", False),
)


def test_one_odd_document(ctx):
    """One document whose function gives what cannot be in the index is left out, counted and reported; all others are found."""
    with ctx.server("odd") as server:
        api = server.api()
        for number, (name, call, is_in) in enumerate(ODD_CALLS):
            db = f"db{number}"
            api.expect((201, 202), "PUT", f"/{db}?q=2")
            function = f"function (doc) {{ if (doc.odd) {{ {call} }} index('string', 's', doc._id); }}"
            api.expect(201, "PUT", f"/{db}/_design/d", design(function))
            docs = [{"_id": id_, "odd": id_ == "odd"} for id_ in ("a", "b", "odd", "z")]
            # In the order that lets the odd one not be the first.
            for doc in docs:
                api.expect(201, "PUT", f"/{db}/{doc['_id']}", doc)
            search = lambda: [hit["id"] for hit in api.expect(200, "GET", f"/{db}/_design/d/_nouveau/i?q=*:*&sort=%22_id%22")["hits"]]
            left_out = lambda: api.expect(200, "GET", f"/{db}/_design/d/_nouveau_info/i")["search_index"].get("num_left_out_docs", 0)
            expected = ["a", "b", *(["odd"] if is_in else []), "z"]
            ctx.report.equal(f"{name}: others are found", search(), expected)
            # One that throws is left out as CouchDB does, and counted with functions that throw.
            counted = 0 if is_in or "_x" in call else 1
            ctx.report.equal(f"{name}: it is counted", left_out(), counted)
            if not counted:
                continue
            # Lines of one kind are written once a second.
            logged = wait_until(lambda db=db: f"index={db}" in server.log() and 'first="odd"' in server.log(), 20, 0.1)
            ctx.report.check(f"{name}: the log says so", logged, server.log()[-500:])
            found = [f for f in api.expect(200, "GET", "/_settee/doctor")["findings"] if f["id"] == "text-indexes" and db in f["subject"]]
            ctx.report.check(f"{name}: doctor says so", found and "leaves out 1 of" in found[0]["says"], found)
            api.expect(201, "PUT", f"/{db}/later", {"odd": False})
            ctx.report.equal(f"{name}: what comes later is found", search(), ["a", "b", "later", "z"])
            api.expect(201, "PUT", f"/{db}/odd", {"_rev": api.expect(200, "GET", f"/{db}/odd")["_rev"], "odd": False})
            ctx.report.equal(f"{name}: once it is right it is found", (search(), left_out()), (["a", "b", "later", "odd", "z"], 0))
        server.stop()
        server.start()
        api = server.api()
        api.expect(201, "PUT", "/db2/odd2", {"odd": True})
        api.expect(200, "GET", "/db2/_design/d/_nouveau/i?q=*:*")
        server.stop()
        server.start()
        info = server.api().expect(200, "GET", "/db2/_design/d/_nouveau_info/i")["search_index"]
        ctx.report.equal("the count is kept over a restart", (info["num_left_out_docs"], info["num_docs"]), (1, 5))


def test_beyond(ctx):
    """Parts of stored texts, groups and `drilldown`, which a real Nouveau does not have."""
    with ctx.server("beyond") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2")
        docs = [
            {"_id": "a", "text": "alpha beta", "tags": ["x"], "n": 1},
            {"_id": "b", "text": "beta", "tags": ["y"], "n": 2},
            {"_id": "c", "text": "beta gamma", "n": 3},
        ]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        api.expect(201, "PUT", "/db/_design/d", design())
        path = "/db/_design/d/_nouveau/i"
        body = {"q": "beta", "sort": "n", "highlight_fields": ["default"], "highlight_pre_tag": "[", "highlight_post_tag": "]"}
        found = [hit["highlights"] for hit in api.expect(200, "POST", path, body)["hits"]]
        ctx.report.equal("highlights", found, [{"default": [text]} for text in ("alpha [beta]", "[beta]", "[beta] gamma")])
        by_get = api.expect(200, "GET", f"{path}?q=alpha&highlight_fields=%5B%22default%22%5D&group_field=tag")
        shown = ("highlights" in by_get["hits"][0], "groups" in by_get)
        ctx.report.equal("in a query string they are ignored, as all that Nouveau does not know", shown, (False, False))
        answer = api.expect(200, "POST", path, {"q": "beta", "group_field": "tag", "group_sort": "-n", "include_docs": True})
        groups = [(group["by"], group["total_hits"], [hit["doc"]["_id"] for hit in group["hits"]]) for group in answer["groups"]]
        ctx.report.equal("groups", (answer["total_hits"], groups), (3, [(None, 1, ["c"]), ("y", 1, ["b"]), ("x", 1, ["a"])]))
        odd = ["DE", "FR", "a/b", "a.b", 'say "x"', "*", "", "\n", "東京", "北京", "New 1", "new 1"]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"odd{n}", "text": "odd", "tags": [value]} for n, value in enumerate(odd)]})
        narrowed = [[hit["id"] for hit in api.expect(200, "POST", path, {"q": "odd", "drilldown": ["tag", value]})["hits"]] for value in odd]
        ctx.report.equal("drilldown is to a string as it is", narrowed, [[f"odd{n}"] for n in range(len(odd))])
        with_any = api.expect(200, "POST", path, {"q": "*:*", "drilldown": ["tag"], "counts": ["tag"], "top_n": 1000})
        ctx.report.equal("to any string of a field", with_any["total_hits"], sum(with_any["counts"]["tag"].values()))
        both = api.expect(200, "POST", path, {"q": "*:*", "drilldown": [["tag", "x", "y", "z"], ["tag", "x"]], "group_field": "tag"})
        ctx.report.equal("several: one of each, in groups too", (both["total_hits"], [group["by"] for group in both["groups"]]), (1, ["x"]))
        ctx.report.equal("to what nothing is", api.expect(200, "POST", path, {"q": "*:*", "drilldown": ["none", "x"]})["total_hits"], 0)
        by_id = api.expect(200, "POST", path, {"q": "*:*", "drilldown": ["_id", "a", "odd3", "none"]})
        ctx.report.equal("to ids", sorted(hit["id"] for hit in by_id["hits"]), ["a", "odd3"])
        for bad in ([5], "tag", [[]], ["tag", 5], ["n", "1"], ["default", "odd"]):
            for more in ({}, {"group_field": "tag"}):
                ctx.report.equal(f"drilldown {bad} is refused, {more}", api.post(path, {"q": "beta", "drilldown": bad, **more}).status, 400)
        for bad in ({"highlight_fields": "default"}, {"highlight_fields": [5]}, {"highlight_fields": [], "highlight_number": 0}, {"group_field": 5}):
            ctx.report.equal(f"{bad} is refused", api.post(path, {"q": "beta", **bad}).status, 400)


def test_explained(ctx):
    """`explain` and `as_you_type`, which a real Nouveau does not have."""
    with ctx.server("explained") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=2")
        texts = ["red fox runs", "the red dog and the red fox", "foxes", "a fog", "red", "fo", "forest of red foxes in a fog"]
        docs = [{"_id": f"d{n}", "text": text, "tags": [], "n": n} for n, text in enumerate(texts)]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        api.expect(201, "PUT", "/db/_design/d", design())
        path = "/db/_design/d/_nouveau/i"
        for q in ("red", "red fox", "+red -dog", '"red fox" fog^2', "fo*", "red AND n:[0 TO 3]", "(red OR fo*)^3 forest", "*:*", "fox~1 red"):
            answer = api.expect(200, "POST", path, {"q": q, "explain": True})
            found = [(hit["order"][0]["value"], hit["explanation"]) for hit in answer["hits"]]
            ctx.report.check(f"{q}: there are hits", found, answer, quiet=True)
            ctx.report.check(f"{q}: the score is explained", all(is_about(score, why["value"]) for score, why in found), found)
            wrong = [part for _, why in found for part in parts(why) if not adds_up(part)]
            ctx.report.check(f"{q}: and adds up", not wrong, wrong[:3])
        plain = api.expect(200, "POST", path, {"q": "red"})["hits"][0]
        ctx.report.check("nobody else is told", "explanation" not in plain, plain)
        by_classic = api.expect(200, "POST", path, {"q": "red", "explain": True, "sort": "n", "group_field": "tag"})["groups"][0]["hits"]
        ctx.report.check("in groups and other orders too", all(hit["explanation"]["value"] > 0 for hit in by_classic), by_classic)

        def ids(q, **more):
            return sorted(hit["id"] for hit in api.expect(200, "POST", path, {"q": q, **more})["hits"])

        ctx.report.equal("the last word may go on", ids("red AND fo", as_you_type=True), ["d0", "d1", "d6"])
        ctx.report.equal("without that it is one", (ids("red AND fo"), ids("fo")), ([], ["d5"]))
        first = api.expect(200, "POST", path, {"q": "fo", "as_you_type": True, "highlight_fields": ["default"]})["hits"]
        ctx.report.equal("who has it whole comes first", first[0]["id"], "d5")
        for bad in ({"explain": 1}, {"as_you_type": "true"}):
            ctx.report.equal(f"{bad} is refused", api.post(path, {"q": "red", **bad}).status, 400)
        beginnings(ctx, api)


def beginnings(ctx, api):
    """`edge_ngram` indexes the beginnings of words."""
    analyzer = {"name": "edge_ngram", "min_gram": 2, "max_gram": 4}
    functions = [f"function (doc) {{ index({kind}'default', doc.text, {{store: true}}); }}" for kind in ("'text', ", "")]
    index = {"nouveau": {"i": {"default_analyzer": analyzer, "index": functions[0]}}, "indexes": {"i": {"analyzer": analyzer, "index": functions[1]}}}
    api.expect(201, "PUT", "/db/_design/begin", index)
    marked = {"highlight_fields": ["default"], "highlight_size": 100}
    for interface, hits in (("_nouveau", "hits"), ("_search", "rows")):
        path = f"/db/_design/begin/{interface}/i"
        for q, expected in (
            ("fo", ["d0", "d1", "d2", "d3", "d5", "d6"]),
            ("FOX", ["d0", "d1", "d2", "d6"]),
            ("foxes", ["d2", "d6"]),
            ("f", []),
            ("foxe foxesx", ["d2", "d6"]),
            ('"red fo"', ["d0", "d1", "d6"]),
            ("fores AND red", []),
            ("fores* AND red", ["d6"]),
            ("+fo -fog", ["d0", "d1", "d2", "d5"]),
        ):
            found = api.expect(200, "POST", path, {"q": q, **marked})[hits]
            ctx.report.equal(f"{interface}: beginnings: {q}", sorted(hit["id"] for hit in found), expected)
        found = {hit["id"]: hit["highlights"]["default"] for hit in api.expect(200, "POST", path, {"q": "fox", **marked})[hits]}
        ctx.report.equal(
            f"{interface}: beginnings: whole words are marked", (found["d0"], found["d2"]), (["red <em>fox</em> runs"], ["<em>foxes</em>"])
        )
    for options in ({"min_gram": 0}, {"max_gram": 51}, {"min_gram": "2"}, {"min_gram": 21}):
        bad = {"nouveau": {"i": {"default_analyzer": {"name": "edge_ngram", **options}, "index": functions[0]}}}
        api.put("/db/_design/bad", {**bad, **{key: rev for key, rev in api.get("/db/_design/bad").json.items() if key == "_rev"}})
        refused = api.get("/db/_design/bad/_nouveau/i?q=fo")
        ctx.report.check(f"beginnings: {options} are refused", refused.status == 400 and "min_gram" in refused.json["reason"], repr(refused))


def parts(why):
    yield why
    for part in why.get("details", []):
        yield from parts(part)


def is_about(a, b):
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-9)


def adds_up(part):
    values = [detail["value"] for detail in part.get("details", [])]
    text = part["description"]
    if not values or text.startswith("tf,"):
        return True
    return is_about(part["value"], math.prod(values) if text.endswith("product of") else sum(values))


def test_clean_up(ctx):
    """`_nouveau_cleanup` drops what no design document names, and leaves views and other indexes."""
    with ctx.server("cleanup") as server:
        database = Database(ctx, server, "db", "?q=2")
        database.api.expect(201, "PUT", "/db/_design/v", {"views": {"v": {"map": "function (doc) { emit(doc.n); }"}}})
        database.edit(100)
        rows = database.api.expect(200, "GET", "/db/_design/v/_view/v")
        database.ids("*:*")
        before = set(folders(server))
        ctx.report.equal("a folder for each shard", len(before), 2)
        rev = database.api.expect(200, "GET", "/db/_design/d")["_rev"]
        database.api.expect(201, "PUT", "/db/_design/d", {**design(INDEX + " // changed"), "_rev": rev})
        expected = database.ids("alpha", sort="_id")
        ctx.report.equal("the old index stays until the clean-up", len(folders(server)), 4)
        database.api.expect(202, "POST", "/db/_view_cleanup")
        ctx.report.equal("that of views leaves it", len(folders(server)), 4)
        database.api.expect(202, "POST", "/db/_nouveau_cleanup", {})
        gone = wait_until(lambda: len(folders(server)) == 2 and not before & set(folders(server)), 30, 0.1)
        ctx.report.check("the old index goes", gone, folders(server))
        ctx.report.equal("the new one answers", database.ids("alpha", sort="_id"), expected)
        ctx.report.equal("and the view", database.api.expect(200, "GET", "/db/_design/v/_view/v"), rows)
        rev = database.api.expect(200, "GET", "/db/_design/d")["_rev"]
        database.api.expect(200, "DELETE", f"/db/_design/d?rev={rev}")
        database.api.expect(202, "POST", "/db/_nouveau_cleanup", {})
        ctx.report.check("a deleted design document's goes too", wait_until(lambda: not folders(server), 30, 0.1), folders(server))


def folders(server):
    return sorted(path.name for path in server_text(server).iterdir())


def test_hostile(ctx):
    """Queries and documents that are made to cost: answered or refused, while others are answered."""
    # Beside other suites a document of a hundred thousand calls may take longer than functions may by default.
    with ctx.server("hostile", options=["--set", "functions/time_limit_ms=30000"]) as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db?q=1")
        long = "x" * 1_000_000
        docs = [
            {"_id": "long", "text": long},
            {"_id": "wide", "text": " ".join(f"w{n}" for n in range(ctx.size(20_000, 100_000)))},
            {"_id": "a", "text": "alpha"},
        ]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        api.expect(201, "PUT", "/db/_design/d", design())
        path = "/db/_design/d/_nouveau/i"
        ctx.report.equal("a megabyte without a space is indexed", api.expect(200, "POST", path, {"q": "alpha"})["total_hits"], 1)
        for name, q in HOSTILE_QUERIES.items():
            answer = api.post(path, {"q": q})
            ctx.report.check(f"{name}: answered or refused", answer.status in (200, 400, 413), answer)
        words = " ".join(f"w{n}" for n in range(2000))
        ctx.report.equal("a function of too many words is refused", api.post(path, {"q": f"default:fn:or({words})"}).status, 400)
        classes = {"Unicode classes": r"\w" * 50_000, "caseless classes": "(?i)" + "[ -\U0001e943]" * 10_000, "alternatives": "aaaa|" * 20_000}
        for name, expression in classes.items():
            answer = api.post(path, {"q": f"/{expression}/"})
            is_refused = answer.status == 400 and "4096 bytes" in answer.json["reason"]
            ctx.report.check(f"an expression of too many {name} is refused", is_refused, answer.raw[:300])
        for expression, total in {r"\w+pha": 1, "al(pha)?": 1, "(?i)ALPHA": 0, "al(ph|PH)a": 1, r"[^\d]{5}": 1, r"\d{5}": 0}.items():
            answer = api.expect(200, "POST", path, {"q": f"/{expression}/"})
            ctx.report.equal(f"hits of {expression}", answer["total_hits"], total)
        for name, asked in {
            "fields to sort by": {"sort": ["n"] * 33},
            "fields to count": {"counts": ["tag"] * 101},
            "ranges": {"ranges": {"n": [{"label": str(n), "min": n} for n in range(1001)]}},
            "fields to highlight": {"highlight_fields": ["default"] * 101},
            "bytes of a tag of highlights": {"highlight_fields": ["default"], "highlight_pre_tag": "x" * 257},
        }.items():
            answer = api.post(path, {"q": "alpha", **asked})
            ctx.report.check(f"too many {name} are refused", answer.status == 400 and name in answer.json["reason"], answer)
        ctx.report.equal("no limit is too high", len(api.expect(200, "POST", path, {"q": "*:*", "limit": 2_000_000_000})["hits"]), 3)
        before = server.rss_mb()
        for number in range(200):
            api.post(path, {"q": f"{'f' * 200_000}{number}:x"})
        ctx.report.check("names of fields that are not there are not kept", server.rss_mb() < before + 30, (before, server.rss_mb()))
        deep = {"_id": "deep", "text": "omega", "x": json.loads("[" * 500 + "]" * 500), "n": 12345678901234567890123}
        api.expect(201, "POST", "/db", deep)
        hits = api.expect(200, "POST", path, {"q": "omega", "include_docs": True})["hits"]
        ctx.report.check("a document with a hit is as it was written", [{**hit["doc"], "_rev": 0} for hit in hits] == [{**deep, "_rev": 0}], hits)
        api.expect(200, "DELETE", f"/db/deep?rev={hits[0]['doc']['_rev']}")
        many = "function (doc) { for (var i = 0; i < 1000000; i++) index('double', 'f' + i, i); }"
        api.expect(201, "PUT", "/db/_design/many", design(many))
        answer = api.get("/db/_design/many/_nouveau/i?q=*:*")
        ctx.report.equal("documents beyond a limit are left out", (answer.status, answer.json.get("total_hits")), (200, 0))
        info = api.expect(200, "GET", "/db/_design/many/_nouveau_info/i")
        ctx.report.equal("and counted", info["search_index"]["num_left_out_docs"], 3)
        api.expect(201, "PUT", "/db/_design/fewer", design(many.replace("1000000", "10001")))
        answer = api.get("/db/_design/fewer/_nouveau/i?q=*:*")
        ctx.report.equal("documents of too many fields are left out", (answer.status, answer.json.get("total_hits")), (200, 0))
        same = "function (doc) { for (var i = 0; i < 100000; i++) index('string', 'f', 'v' + i, {store: false}); }"
        api.expect(201, "PUT", "/db/_design/same", design(same))
        answer = api.get("/db/_design/same/_nouveau/i?q=f:v99999")
        ctx.report.check("a hundred thousand values of one field are found", answer.status == 200 and answer.json["total_hits"] == 3, answer.status)
        ctx.report.equal("and others are answered", api.expect(200, "POST", path, {"q": "alpha"})["total_hits"], 1)
        ctx.report.check("nothing panicked", "panicked" not in server.log(), server.log()[-1500:])


def test_idle(ctx):
    """Indexes that nobody uses are closed, and opened again by who asks."""
    # 16 indexes stay open, whatever the memory.
    count = ctx.size(40, 1000)
    with ctx.server("idle", options=["--set", "memory/open_databases=1048576"]) as server:
        api = server.api()
        for number in range(count):
            api.expect((201, 202), "PUT", f"/db{number}?q=1")
            api.expect(201, "PUT", f"/db{number}/a", {"text": f"alpha w{number}"})
            api.expect(201, "PUT", f"/db{number}/_design/d", design())
            ctx.report.equal(f"database {number}", api.get(f"/db{number}/_design/d/_nouveau/i?q=alpha").json["total_hits"], 1, quiet=True)

        def open_indexes():
            return api.expect(200, "GET", "/_node/_local/_stats/settee/open_indexes")["value"]

        ctx.report.check("most are closed", wait_until(lambda: open_indexes() < count / 2, 60, 0.2), open_indexes())
        for number in range(0, count, 7):
            found = api.get(f"/db{number}/_design/d/_nouveau/i?q=w{number}").json["total_hits"]
            ctx.report.equal(f"database {number} again", found, 1, quiet=True)


def test_deleted_databases(ctx):
    with ctx.server("deleted") as server:
        database = Database(ctx, server, "db", "?q=2")
        database.edit(100)
        database.ids("*:*")
        ctx.report.equal("a folder for each shard", len(folders(server)), 2)
        database.api.expect(200, "DELETE", "/db")
        ctx.report.check("a deleted database leaves nothing", wait_until(lambda: not folders(server), 30, 0.1), folders(server))
        again = Database(ctx, server, "db", "?q=2")
        ctx.report.equal("one of the same name begins empty", again.ids("*:*"), [])


def test_copies(ctx):
    """Large text indexes are in copies of the store, small ones are made again; writes go on meanwhile. A check has nothing to say of any."""
    with ctx.server("copied") as server:
        database = Database(ctx, server, "small", "?q=2")
        database.edit(100)
        expected = database.ids("alpha", sort="_id")
        api, large = server.api(timeout=120), ctx.size(20_000, 200_000)
        api.expect(201, "PUT", "/large?q=2")
        api.expect(201, "PUT", "/large/_design/d", design())
        for at in range(0, large, 5_000):
            texts = (" ".join(f"w{ctx.random.randrange(50_000)}" for _ in range(40)) for _ in range(5_000))
            docs = [{"_id": f"{at + n:06}", "text": text, "n": at + n} for n, text in enumerate(texts)]
            api.expect(201, "POST", "/large/_bulk_docs", {"docs": docs})
        api.expect(200, "GET", "/large/_design/d/_nouveau/i?q=w7")
        over = threading.Event()
        writer = threading.Thread(target=write_beside, args=(server, over))
        writer.start()
        url = server.url.replace("://", f"://{server.admin}@")
        places = {"one copy": str(ctx.root / "copy-of-store"), "backups": f"file://{ctx.root}/place"}
        for what, place in places.items():
            words = [url, place, *(["--copy"] if what == "one copy" else [])]
            subprocess.run([ctx.binary, "backup", *words], check=True, capture_output=True, timeout=120)
        said = subprocess.run([ctx.binary, "backup", url, places["backups"]], check=True, capture_output=True, timeout=120, text=True).stdout
        over.set()
        writer.join()
        ctx.report.note(f"another backup beside writes: {said.strip()}")
        copies_to_one_place(ctx, server)
    for what, place in places.items():
        name = f"restored-{what.replace(' ', '-')}"
        subprocess.run([ctx.binary, "restore", place, str(ctx.root / name)], check=True, capture_output=True, timeout=120)
        done = subprocess.run([ctx.binary, "check", str(ctx.root / name), "--indexes"], check=False, capture_output=True, timeout=120, text=True)
        ctx.report.check(f"{what}: it is sound", done.returncode == 0 and "no design document" not in done.stdout, done.stdout + done.stderr)
        with ctx.server(name) as server:
            api = server.api(timeout=120)
            as_it_is = api.expect(200, "GET", "/large/_design/d/_nouveau/i?q=n:[0%20TO%20*]&limit=1&update=false")["total_hits"]
            ctx.report.check(f"{what}: the large index is there at once", as_it_is >= large, as_it_is)
            done = server.api().expect(200, "GET", "/_node/_local/_stats/settee/text_indexes/documents")["value"]
            rows = api.expect(200, "GET", "/large/_all_docs?startkey=%22new%22")["rows"]
            found = api.expect(200, "GET", "/large/_design/d/_nouveau/i?q=new&limit=1000000")["hits"]
            ctx.report.equal(f"{what}: what was written beside the backup", sorted(hit["id"] for hit in found), [row["id"] for row in rows])
            caught_up = server.api().expect(200, "GET", "/_node/_local/_stats/settee/text_indexes/documents")["value"] - done
            ctx.report.check(f"{what}: it is brought up to date, not built anew", caught_up < large / 2, caught_up)
            database.api = api
            ctx.report.equal(f"{what}: the small index finds the same", database.ids("alpha", sort="_id"), expected)
            api.expect(200, "DELETE", "/large")
            ctx.report.check(
                f"{what}: a deleted database leaves nothing", wait_until(lambda s=server: len(folders(s)) <= 2, 30, 0.1), folders(server)
            )


def copies_to_one_place(ctx, server):
    """Several at once: one is made, and none harms the files of the others or of the server."""
    place = ctx.folder("places")
    # What the command makes to show that it may write.
    permits = [".settee-permit-" + digit * 32 for digit in "abcdef01"]
    for permit in permits:
        (place / permit).touch()

    def copy(permit):
        body = {"directory": str(place / "one-place"), "permit": permit}
        return server.api(timeout=120).post("/_settee/backup", body)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(copy, permits))
    made = [answer.status for answer in answers].count(201)
    ctx.report.equal("copies to one place: one is made", made, 1)
    others = [answer for answer in answers if answer.status != 201]
    ctx.report.check("copies to one place: others are told that it is there", all(answer.status in (403, 412) for answer in others), others)
    sound = subprocess.run([ctx.binary, "check", str(place / "one-place"), "--indexes"], check=False, capture_output=True, timeout=120, text=True)
    ctx.report.check("copies to one place: it is sound", sound.returncode == 0, sound.stdout + sound.stderr)
    hits = server.api(timeout=120).get("/large/_design/d/_nouveau/i?q=n:[0%20TO%20*]&limit=1&update=false")
    ctx.report.equal("copies to one place: the server answers", hits.status, 200)


def write_beside(server, over):
    """Writes, and asks, so that the index has commits all the time."""
    api = server.api(timeout=120)
    number = 0
    while not over.is_set():
        number += 1
        api.expect(201, "PUT", f"/large/new{number:06}", {"text": f"new w{number}"})
        api.expect(200, "GET", "/large/_design/d/_nouveau/i?q=new&limit=1")

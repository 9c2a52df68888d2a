"""Orders and scores of searches beside those that Lucene 4.6.1 (`_search`) and 9.12.1 (`_nouveau`) gave for the same corpus, recorded by
crates/analysis/tests/oracle/record.py: some 350 query texts each, over one shard. So for the parts of texts that Lucene 4.6.1's highlighter
cuts out."""

import gzip
import json
import pathlib
import urllib.parse

import pytest

pytestmark = [pytest.mark.quick, pytest.mark.may_be_retried]

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates/analysis/tests/data"
# Scores are sums of numbers of 4 bytes, in another order here.
RELATIVE = 2e-5
HITS = 40
SHOWN = 5
CLOUSEAU = "function (doc) { index('default', doc.text); index('title', doc.title); }"
NOUVEAU = "function (doc) { index('text', 'default', doc.text); index('text', 'title', doc.title); }"


def test_clouseau(ctx):
    compare(ctx, "lucene4", Clouseau)


def test_nouveau(ctx):
    compare(ctx, "lucene9", Nouveau)


class Clouseau:
    route = "_search"

    @staticmethod
    def design():
        return {"indexes": {"i": {"analyzer": "standard", "index": CLOUSEAU}}}

    @staticmethod
    def found(answer):
        return answer["total_rows"], [(row["id"], row["order"][0]) for row in answer["rows"]]


class Nouveau:
    route = "_nouveau"

    @staticmethod
    def design():
        return {"nouveau": {"i": {"default_analyzer": "standard", "index": NOUVEAU}}}

    @staticmethod
    def found(answer):
        return answer["total_hits"], [(hit["id"], hit["order"][0]["value"]) for hit in answer["hits"]]


def compare(ctx, name, flavour):
    server = ctx.server(name).start()
    api = server.api()
    documents, queries = recorded(f"scores-{name}")
    db = f"/{name}"
    api.expect(201, "PUT", f"{db}?q=1")
    docs = [{"_id": f"{n:04}", "title": doc["title"], "text": doc["default"]} for n, doc in enumerate(documents)]
    api.expect(201, "POST", f"{db}/_bulk_docs", {"docs": docs})
    api.expect(201, "PUT", f"{db}/_design/d", flavour.design())
    differing = []
    for query in queries:
        path = f"{db}/_design/d/{flavour.route}/i?limit={HITS}&q={urllib.parse.quote(query['text'])}"
        total, hits = flavour.found(api.expect(200, "GET", path))
        expected = [(f"{number:04}", score) for number, score in query["hits"]]
        if total != query["total"] or not are_same(hits, expected):
            differing.append((query["text"], total, query["total"], hits[:3], expected[:3]))
    ctx.report.check(
        f"{name}: {len(documents)} documents, {len(queries)} queries", len(documents) > 300 and len(queries) > 300, (len(documents), len(queries))
    )
    ctx.report.check(
        f"{name}: the same documents with the same scores in the same order", not differing, f"{len(differing)} differ: {differing[:SHOWN]}"
    )
    server.stop()


def test_fragments(ctx):
    documents, queries = recorded("fragments-lucene4")
    source = "function (doc) { index('default', doc.text, {store: true}); index('title', doc.title); }"
    with ctx.server("fragments") as server:
        api = server.api()
        api.expect(201, "PUT", "/f?q=1")
        docs = [{"_id": f"{n:04}", "title": doc["title"], "text": doc["default"]} for n, doc in enumerate(documents)]
        api.expect(201, "POST", "/f/_bulk_docs", {"docs": docs})
        api.expect(201, "PUT", "/f/_design/d", {"indexes": {name: {"analyzer": name, "index": source} for name in ("standard", "english")}})
        compared, differing = 0, []
        for query in queries:
            asked = {"q": query["text"], "limit": 200, "highlight_fields": ["default"], "highlight_number": query["number"]}
            if query["size"]:
                asked["highlight_size"] = query["size"]
            for row in api.expect(200, "POST", f"/f/_design/d/_search/{query['analyzer']}", asked)["rows"]:
                expected = query["fragments"].get(str(int(row["id"])), [])
                compared += 1
                if row["highlights"]["default"] != expected:
                    differing.append(
                        (query["analyzer"], query["text"], query["number"], query["size"], row["id"], row["highlights"]["default"], expected)
                    )
        ctx.report.check("enough parts are compared", compared > 3_000, compared)
        ctx.report.check("the parts that Lucene shows", not differing, f"{len(differing)} of {compared} differ: {differing[:SHOWN]}")


def recorded(name):
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "title" in line], [line for line in lines if "title" not in line]


def are_same(hits, expected):
    """Scores place by place, and documents in it; those whose scores are too close to tell may be the other way round."""
    if len(hits) != len(expected):
        return False
    scores = dict(expected)
    for (doc, score), (other, right) in zip(hits, expected, strict=True):
        if not close(score, right):
            return False
        # At the end of the hits that were recorded there may be others of the same score.
        if doc != other and not close(scores.get(doc, expected[-1][1]), right):
            return False
    return True


def close(a, b):
    return abs(a - b) <= RELATIVE * max(abs(a), abs(b), 1e-9)

"""Is the naive view right? It is held against CouchDB's recorded answers, and wrong ones must differ from them."""

import json
import random
import subprocess
import urllib.parse

from harness import naive_view as naive
from harness.view_samples import GROUPS, Samples

# The maps of the vectors' scenarios about query options, and their reduces.
RECORDED_VIEWS = {
    "k": (lambda doc: [(doc["k"], doc["v"])], None),
    "g": (lambda doc: [(doc["g"], doc["v"])], naive.total),
    "c": (lambda doc: [(doc["k"], 1)], naive.count),
    "n": (lambda doc: [(doc["v"], None)], None),
}
SYNONYMS = {"start_key": "startkey", "end_key": "endkey", "start_key_doc_id": "startkey_docid", "end_key_doc_id": "endkey_docid"}
# Options that change nothing, or not what the model has.
UNKNOWN = {"stable", "sorted", "update_seq", "foo"}
# What of a query is judged by the parser alone, or depends on the index's age.
LEFT_OUT = {"update", "stale"}
RECORDED_MIN = 30
# The mutants that random queries must find are always given the same ones: this is no place for chance.
SEED = 20261121
RANDOM_QUERIES = 300
# Runs map functions as a query server does: what they emitted before they threw is dropped.
NODE_RUNNER = """
const { maps, docs } = JSON.parse(require('fs').readFileSync(0, 'utf8'));
let rows;
globalThis.emit = (key, value) => rows.push([key === undefined ? null : key, value === undefined ? null : value]);
console.log(JSON.stringify(maps.map((source) => {
  const map = (0, eval)('(' + source + ')');
  return docs.map((doc) => {
    rows = [];
    try { map(JSON.parse(JSON.stringify(doc))); } catch (thrown) { return []; }
    return rows;
  });
})));
"""
NODE_TIMEOUT_S = 60
RECORDED_SHARDS = 2


class IgnoresInclusiveEnd(naive.NaiveView):
    def _range(self, rows, options):
        return super()._range(rows, {name: value for name, value in options.items() if name != "inclusive_end"})


class IgnoresDocIds(naive.NaiveView):
    def _range(self, rows, options):
        return super()._range(rows, {name: value for name, value in options.items() if not name.endswith("_docid")})


class ForgetsToTurn(naive.NaiveView):
    def query(self, options):
        return super().query({name: value for name, value in options.items() if name != "descending"})


class SkipsAfterTheLimit(naive.NaiveView):
    @staticmethod
    def _cut(rows, options):
        return rows[: options.get("limit")][options.get("skip", 0) :]


class CountsFromTheRange(naive.NaiveView):
    def query(self, options):
        answer = super().query(options)
        return {**answer, "offset": 0} if "offset" in answer else answer


class GroupsOneTooDeep(naive.NaiveView):
    def query(self, options):
        return super().query({**options, "group_level": options["group_level"] + 1} if options.get("group_level") else options)


class LosesARow(naive.NaiveView):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.rows = self.rows[:-1]


MUTANTS = (IgnoresInclusiveEnd, IgnoresDocIds, ForgetsToTurn, SkipsAfterTheLimit, CountsFromTheRange, GroupsOneTooDeep, LosesARow)


def check(ctx, vectors):
    """`vectors`: the folder of CouchDB's recorded answers, or None."""
    collation_is_couchdbs(ctx.report)
    both_writings_agree(ctx.report)
    recorded = list(recorded_queries(vectors / "views.jsonl")) if vectors else []
    if ctx.report.check("there are recorded queries for the model", len(recorded) >= RECORDED_MIN, f"{len(recorded)} in {vectors}"):
        wrong = [line for line in (difference(naive.NaiveView, *query) for query in recorded) if line]
        ctx.report.check(f"the model answers {len(recorded)} queries as CouchDB did", not wrong, "\n".join(wrong[:5]))
        missed = [mutant.__name__ for mutant in MUTANTS if not any(difference(mutant, *query) for query in recorded)]
        ctx.report.check("CouchDB's answers tell wrong models from the right one", not missed, missed)
    missed = [mutant.__name__ for mutant in MUTANTS if not random_queries_catch(mutant)]
    ctx.report.check("and so do the random queries", not missed, missed)


def collation_is_couchdbs(report):
    ordered = [
        None,
        False,
        True,
        -3,
        0,
        0.5,
        1,
        12,
        "",
        "0",
        "9",
        "a",
        "aa",
        "b",
        [],
        [None],
        ["a"],
        ["a", 1],
        ["b"],
        [[]],
        {},
        {"a": 1},
        {"a": 1, "b": 2},
        {"a": 2},
        {"b": 1},
    ]
    keys = [naive.collation(value) for value in ordered]
    report.check("the model's collation", keys == sorted(keys) and len({repr(key) for key in keys}) == len(keys))
    report.check(
        "1 and 1.0 are the same key, 1 and true are not",
        naive.collation(1) == naive.collation(1.0)
        and naive.canonical([1.0]) == naive.canonical([1])
        and naive.collation(1) != naive.collation(True)
        and naive.canonical(1) != naive.canonical(True),
    )


def recorded_queries(path):
    """(documents, view, options, expected status, expected body) of the scenarios about query options."""
    for line in path.read_text(encoding="utf-8").splitlines():
        scenario = json.loads(line)
        if not scenario["name"].startswith(("map ", "reduce ")) or scenario["name"].startswith("map fn"):
            continue
        docs = next((step["body"]["docs"] for step in scenario["steps"] if step["path"].endswith("/_bulk_docs")), None)
        for step in scenario["steps"]:
            view, _, query = step["path"].partition("_view/")[2].partition("?")
            options = parsed(query) if view in RECORDED_VIEWS and step["method"] == "GET" else None
            if docs and options is not None and LEFT_OUT.isdisjoint(options) and not ("keys" in options and "startkey" in options):
                revs = {row["id"]: row["rev"] for row in scenario["steps"][1]["expect"]["body"]}
                whole = [{"_id": doc["_id"], "_rev": revs[doc["_id"]], **doc} for doc in docs]
                yield whole, view, options, step["expect"]["status"], step["expect"]["body"]


def parsed(query):
    """None for values that only a parser can judge."""
    options = {}
    for name, value in urllib.parse.parse_qsl(query):
        name = SYNONYMS.get(name, name)
        if name in UNKNOWN:
            continue
        if name.endswith("_docid") or name in LEFT_OUT:
            options[name] = value
            continue
        try:
            options[name] = json.loads(value)
        except ValueError:
            return None
        wanted = {"limit": int, "skip": int, "group_level": int, "descending": bool, "group": bool, "reduce": bool, "include_docs": bool}
        if type(options[name]) is not wanted.get(name, type(options[name])) or (name == "limit" and options[name] < 0):
            return None
    if "keys" in options:
        options.pop("key", None)
    return options


def difference(kind, docs, view, options, status, body):
    map_function, reduce = RECORDED_VIEWS[view]
    model = kind(docs, map_function, reduce)
    model.shard_of = lambda doc_id: naive.shard_of(doc_id, RECORDED_SHARDS)
    try:
        answer, answered = model.query(options), 200
    except naive.Refused as refused:
        answer, answered = {"error": refused.error}, refused.status
    if answered != status:
        return f"{view} {options}: {answered}, CouchDB {status} {body}"
    if status != 200:
        return None if answer["error"] == body["error"] else f"{view} {options}: {answer}, CouchDB {body}"
    expected = {name: value for name, value in body.items() if name in answer and name != "update_seq"}
    return None if naive.canonical(answer) == naive.canonical(expected) else f"{view} {options}: {answer}, CouchDB {body}"


def sampled_docs(samples, number):
    ids = [samples.doc_id(at) for at in range(number)]
    return [{"_id": doc_id, "_rev": "1-a", **samples.doc(ids)} for doc_id in ids]


def both_writings_agree(report):
    """Node runs the JavaScript of every view: the Python beside it must emit the same."""
    docs = sampled_docs(Samples(random.Random(SEED)), 100)
    views = [view for group in GROUPS.values() for view in group]
    given = json.dumps({"maps": [view.js for view in views], "docs": docs})
    done = subprocess.run(["node", "-e", NODE_RUNNER], input=given, capture_output=True, text=True, timeout=NODE_TIMEOUT_S, check=False)
    if not report.check("node runs the map functions", done.returncode == 0, done.stderr):
        return
    wrong = []
    for view, emitted in zip(views, json.loads(done.stdout)):
        for doc, rows in zip(docs, emitted):
            model = sorted(naive.canonical([row.key, row.value]) for row in view.over([doc]).rows)
            if model != sorted(map(naive.canonical, rows)):
                wrong.append(f"{view.name}: {doc}\n  JavaScript {rows}\n  Python     {model}")
    report.check(f"{len(views)} map functions emit the same in JavaScript and Python", not wrong, "\n".join(wrong[:3]))


def random_queries_catch(mutant):
    """Do the queries of the differential test tell the wrong model from the right one?"""
    samples = Samples(random.Random(SEED))
    docs = sampled_docs(samples, 60)
    for _ in range(RANDOM_QUERIES):
        for view in GROUPS["plain"] + GROUPS["reduced"]:
            right, wrong = view.over(docs), mutant(docs, view.model, view.naive_reduce)
            options = samples.query(view, right)
            if outcome(right, options) != outcome(wrong, options):
                return True
    return False


def outcome(model, options):
    try:
        return naive.canonical(model.query(options))
    except naive.Refused as refused:
        return str(refused)


def disagreement(view, model, options, answer):
    """None when the answer is the model's."""
    try:
        expected = model.query(options)
    except naive.Refused as refused:
        same = answer.status == refused.status and answer.json.get("error") == refused.error
        return None if same else f"expected {refused}, got {answer!r}"
    if answer.status != 200:
        return f"expected rows, got {answer!r}"
    actual, expected = answer.json, dict(expected)
    if options.get("limit") == 0 or not view.ordered:
        # CouchDB's offset of no rows depends on how it came to none.
        actual.pop("offset", None)
        expected.pop("offset", None)
    if not view.ordered:
        for answered in (actual, expected):
            answered["rows"].sort(key=naive.canonical)
    if view.same and len(actual["rows"]) == len(expected["rows"]) and all("id" not in row for row in expected["rows"]):
        pairs = list(zip(actual["rows"], expected["rows"]))
        same = all(naive.canonical(one["key"]) == naive.canonical(two["key"]) and view.same(one["value"], two["value"]) for one, two in pairs)
    else:
        same = naive.canonical(actual) == naive.canonical(expected)
    return None if same else first_difference(actual, expected)


def first_difference(actual, expected):
    for at, (one, two) in enumerate(zip(actual.get("rows", []), expected["rows"])):
        if naive.canonical(one) != naive.canonical(two):
            return f"row {at}\n    expected {naive.canonical(two)[:500]}\n    actual   {naive.canonical(one)[:500]}"

    def heads(body):
        return {**{name: value for name, value in body.items() if name != "rows"}, "number of rows": len(body.get("rows", []))}

    return f"expected {heads(expected)}\n    actual   {heads(actual)}"

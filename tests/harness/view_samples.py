"""Documents, views and queries at random, for comparing a server with `naive_view`.

Every map function is written twice, in JavaScript for the server and in Python for the model.
"""

import math

from harness import naive_view as naive
from harness.api import quote
from harness.naive_view import is_number

LETTERS = "abcxyz019"
UNICODE = "aéßñЖ漢字🙂"
RAW_OPTIONS = ("startkey_docid", "endkey_docid", "update", "stale")


class View:
    """`ordered`: keys sort alike in the model and by ICU. `same`: compares reductions that are estimates.
    `forwards`: the reduction depends on the order of the rows, so it is not asked for backwards, nor compared over
    several shards. `twice`: a document may emit a key twice with different values; their order backwards is nowhere said."""

    def __init__(self, name, js, model, reduce=None, naive_reduce=None, ordered=True, same=None, forwards=False, twice=False):
        self.name, self.js, self.model, self.reduce, self.naive_reduce = name, js, model, reduce, naive_reduce
        self.ordered, self.same, self.forwards, self.twice = ordered, same, forwards, twice

    def source(self, comment=""):
        source = {"map": self.js + comment}
        if self.reduce:
            source["reduce"] = self.reduce
        return source

    def over(self, docs):
        return naive.NaiveView(docs, self.model, self.naive_reduce)


def numbered(doc):
    if is_number(doc.get("v")):
        yield [doc["g"], int(math.fmod(doc["v"], 3)), doc["n"]], doc["v"]


def tags(doc):
    for tag in doc["tags"] if isinstance(doc.get("tags"), list) else []:
        yield tag, 1


def items(doc):
    for at, item in enumerate(doc.get("items", [])):
        yield [at, item["code"]], [item["amount"], 1]


def item_objects(doc):
    for item in doc.get("items", []):
        yield item["code"], {"amount": item["amount"], "nested": {"count": 1}}


def amounts(doc):
    for item in doc.get("items", []):
        yield doc["g"], item["amount"]


def members(doc):
    for name, value in doc.items():
        if not name.startswith("_"):
            yield [name, typeof(value)], None


def typeof(value):
    return {bool: "boolean", int: "number", float: "number", str: "string"}.get(type(value), "object")


def deep(doc):
    inner = doc["deep"]["a"]["b"]
    yield [inner["c"], len(doc["deep"]["list"])], doc["deep"]["list"][0]["x"]


def throws(doc):
    yield doc["n"], "kept"
    if doc["n"] % 3 == 0:
        raise ValueError("as the JavaScript does")


def twice(doc):
    yield doc["g"], doc["g"]
    yield doc["g"], doc["g"]


def conflicts(doc):
    yield len(doc.get("_conflicts", [])), doc["_rev"]


def linked(doc):
    yield doc["n"], {"_id": doc["link"]}


def text(doc):
    yield doc["text"], len(doc["text"].encode("utf-16-le")) // 2


def near(actual, expected):
    return abs(actual - expected) <= 1 + expected / 10


def by_number(doc):
    yield doc["g"], doc["n"]


def by_remainder(doc):
    yield doc["g"], abs(doc["n"]) % 4


JS_ITEMS = "(doc.items || []).forEach(function (item, at) { %s })"

# One design document each: what is in one group is mapped in one pass.
GROUPS = {
    "plain": [
        View("key", "function (doc) { emit(doc.k, doc.v); }", lambda doc: [(doc.get("k"), doc.get("v"))]),
        View("arrow", "(doc) => { emit([doc.g, doc.k], null); }", lambda doc: [([doc.get("g"), doc.get("k")], None)]),
        View("id", "function (doc) { emit(doc._id, doc); }", lambda doc: [(doc["_id"], doc)]),
        View("none", "function (doc) { if (doc.n < 0) emit(doc.n); }", lambda doc: []),
    ],
    "reduced": [
        View("sum", "function (doc) { if (typeof doc.v === 'number') emit([doc.g, doc.v % 3 | 0, doc.n], doc.v); }", numbered, "_sum", naive.total),
        View("stats", "function (doc) { %s }" % JS_ITEMS % "emit(doc.g, item.amount);", amounts, "_stats", naive.stats, twice=True),
        View(
            "count",
            "function (doc) { if (Array.isArray(doc.tags)) doc.tags.forEach(function (tag) { emit(tag, 1); }); }",
            tags,
            "_count",
            naive.count,
        ),
        View("arrays", "function (doc) { %s }" % JS_ITEMS % "emit([at, item.code], [item.amount, 1]);", items, "_sum", naive.total),
        View(
            "objects",
            "function (doc) { %s }" % JS_ITEMS % "emit(item.code, {amount: item.amount, nested: {count: 1}});",
            item_objects,
            "_sum",
            naive.total,
            twice=True,
        ),
        View(
            "distinct",
            "function (doc) { if (Array.isArray(doc.tags)) doc.tags.forEach(function (tag) { emit(tag, 1); }); }",
            tags,
            "_approx_count_distinct",
            naive.distinct,
            same=near,
        ),
    ],
    "ends": [
        View("top", "function (doc) { emit(doc.g, doc.n); }", by_number, "_top_3", naive.top(3)),
        View("bottom", "function (doc) { emit(doc.g, doc.n); }", by_number, "_bottom_2", naive.bottom(2)),
        View("top_equal", "function (doc) { emit(doc.g, Math.abs(doc.n) % 4); }", by_remainder, "_top_3", naive.top(3)),
        View(
            "first",
            "function (doc) { emit([doc.g, doc.n], doc.n); }",
            lambda doc: [([doc["g"], doc["n"]], doc["n"])],
            "_first",
            naive.first,
            forwards=True,
        ),
        View(
            "last",
            "function (doc) { emit([doc.g, doc.n], doc.n); }",
            lambda doc: [([doc["g"], doc["n"]], doc["n"])],
            "_last",
            naive.last,
            forwards=True,
        ),
    ],
    "custom": [
        View(
            "rows",
            "function (doc) { if (typeof doc.v === 'number') emit([doc.g, doc.v % 3 | 0, doc.n], doc.v); }",
            numbered,
            "function (keys, values, rereduce) { return rereduce ? sum(values) : keys.length; }",
            naive.count,
        ),
        View(
            "largest",
            "function (doc) { emit(doc.g, doc.n); }",
            by_number,
            "function (keys, values) { return Math.max.apply(null, values); }",
            lambda rows: max(row.value for row in rows),
        ),
    ],
    "whole": [
        View(
            "members", "function (doc) { for (var name in doc) if (name[0] !== '_') emit([name, typeof doc[name]], null); }", members, ordered=False
        ),
        View("deep", "function (doc) { var d = doc.deep; emit([d.a.b.c, d.list.length], d.list[0].x); }", deep),
        View("throws", "function (doc) { emit(doc.n, 'kept'); if (doc.n % 3 === 0) throw new Error('not this one'); }", throws),
        View("twice", "function (doc) { var g = doc.g; emit(g, g); emit(g, g); }", twice, "_count", naive.count),
        View("text", "function (doc) { emit(doc.text, doc.text.length); }", text, ordered=False),
    ],
    "linked": [
        View("conflicts", "function (doc) { emit((doc._conflicts || []).length, doc._rev); }", conflicts),
        View("links", "function (doc) { emit(doc.n, {_id: doc.link}); }", linked),
    ],
}


def design(group, comment="", **members_of_design):
    return {**members_of_design, "views": {view.name: view.source(comment) for view in GROUPS[group]}}


class Samples:
    """Documents and queries from one random source; `n` is another number in every revision of every document."""

    def __init__(self, random, partitions=()):
        self.random, self.partitions, self.numbers = random, partitions, 0

    def doc_id(self, number):
        prefix = f"{self.partitions[number % len(self.partitions)]}:" if self.partitions else ""
        return f"{prefix}d{number:04d}"

    def doc(self, known_ids):
        pick = self.random
        self.numbers += 1
        doc = {
            "n": self.numbers,
            "g": pick.choice("abcde"),
            "text": self.text(UNICODE),
            "link": pick.choice([*known_ids, "none"]),
            "deep": {"a": {"b": {"c": self.key()}, "skip": self.key()}, "list": [{"x": self.key()} for _ in range(pick.randint(0, 2))]},
        }
        if pick.random() < 0.9:
            doc["k"] = self.key()
        if pick.random() < 0.9:
            doc["v"] = pick.choice([pick.randint(-50, 50), pick.randint(-50, 50), pick.randint(-200, 200) / 4, "text", None])
        if pick.random() < 0.8:
            doc["tags"] = [self.text(LETTERS, 2) for _ in range(pick.randint(0, 4))]
        if pick.random() < 0.8:
            doc["items"] = [
                {"code": self.text(LETTERS, 1), "amount": pick.choice([pick.randint(0, 999), pick.randint(0, 99) / 4])}
                for _ in range(pick.randint(0, 3))
            ]
        for _ in range(pick.randint(0, 3)):
            doc[pick.choice(["7", "12", "m", "Ж", "constructor"])] = self.key()
        return doc

    def text(self, alphabet, longest=6):
        return "".join(self.random.choice(alphabet) for _ in range(self.random.randint(0, longest)))

    def key(self, depth=2):
        pick = self.random
        kinds = ["null", "bool", "int", "float", "text", "text"] + (["array", "object"] if depth else [])
        kind = pick.choice(kinds)
        if kind == "null":
            return None
        if kind == "bool":
            return pick.random() < 0.5
        if kind == "int":
            return pick.choice([pick.randint(-9, 9), pick.randint(-(10**12), 10**12)])
        if kind == "float":
            return pick.randint(-40, 40) / 4
        if kind == "text":
            return self.text(LETTERS, 4)
        if kind == "array":
            return [self.key(depth - 1) for _ in range(pick.randint(0, 3))]
        names = sorted({self.text("abc", 2) for _ in range(pick.randint(0, 2))})
        return {name: self.key(depth - 1) for name in names}

    def query(self, view, model):
        """Options for a view that is not refused, mostly."""
        pick, options = self.random, {}
        reducing = view.reduce is not None and pick.random() < 0.7
        if view.reduce and not reducing:
            options["reduce"] = False
        if view.ordered:
            self._choose_rows(options, model, may_turn=not (view.forwards if reducing else view.twice))
        elif model.rows and pick.random() < 0.5:
            options["key"] = pick.choice(model.rows).key
        if reducing:
            how = pick.random()
            if how < 0.35 or len(options.get("keys", [])) > 1:
                options["group"] = True
            elif how < 0.75 and "keys" not in options:
                options["group_level"] = pick.randint(0, 4)
        elif pick.random() < 0.3:
            options["include_docs"] = True
            if pick.random() < 0.5:
                options["conflicts"] = True
        if view.ordered and pick.random() < 0.3:
            options["limit"] = pick.choice([0, 1, 2, 7, 50])
        if view.ordered and pick.random() < 0.3:
            options["skip"] = pick.choice([0, 1, 3, 20, 1000])
        if pick.random() < 0.1:
            options["stable"] = True
        return options

    def _choose_rows(self, options, model, may_turn):
        pick = self.random
        how = pick.random()
        if how < 0.15:
            options["key"] = self.some_key(model)
        elif how < 0.3:
            options["keys"] = unique([self.some_key(model) for _ in range(pick.randint(1, 5))])
        elif how < 0.8:
            self._choose_range(options, model)
        if may_turn and pick.random() < 0.3:
            options["descending"] = True
            if "startkey" in options and "endkey" in options and pick.random() < 0.95:
                options["startkey"], options["endkey"] = options["endkey"], options["startkey"]

    def _choose_range(self, options, model):
        pick = self.random
        keys = sorted([self.some_key(model), self.some_key(model)], key=naive.collation)
        if pick.random() < 0.05:
            keys.reverse()
        if pick.random() < 0.8:
            options["startkey"] = keys[0]
        if pick.random() < 0.8:
            options["endkey"] = keys[1]
            if pick.random() < 0.3:
                options["inclusive_end"] = False
        ids = list(model.docs) or ["d"]
        if "startkey" in options and pick.random() < 0.2:
            options["startkey_docid"] = pick.choice(ids)
        if "endkey" in options and options.get("inclusive_end") is not False and pick.random() < 0.2:
            options["endkey_docid"] = pick.choice(ids)

    def some_key(self, model):
        pick = self.random
        if model.rows and pick.random() < 0.8:
            key = pick.choice(model.rows).key
            # A prefix of an array is a usual start of a range.
            return key[: pick.randint(0, len(key))] if isinstance(key, list) and pick.random() < 0.4 else key
        return self.key()


def unique(keys):
    return list({naive.canonical(key): key for key in keys}.values())


def query_text(options):
    def encoded(name, value):
        return quote(str(value).lower() if isinstance(value, bool) else value) if name in RAW_OPTIONS else quote(naive.json.dumps(value))

    return "&".join(f"{name}={encoded(name, value)}" for name, value in options.items())

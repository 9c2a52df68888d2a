"""Text indexes (`_search`, `_nouveau`) beside a model that goes through all documents: index functions made by chance, queries, orders, pages,
counts, ranges, drilldowns and groups, while documents change between one round and the next."""

import itertools
import math
import re

WORDS = [a + b for a in ("ba", "be", "du", "gamma", "ki", "lo") for b in ("", "ba", "ki", "to")]
TAGS = ["red", "green", "blue", "dark blue", "Ünder"]
LIMIT = 200


# ---- documents and what an index function makes of them


def document(random, number):
    """Every property may be missing, or be of another type than most are."""
    doc = {"_id": f"d{number:03d}", "text": " ".join(random.choices(WORDS, k=random.randint(0, 9))), "kind": random.choice("abcd")}
    if random.random() < 0.8:
        doc["title"] = " ".join(random.choices(WORDS, k=random.randint(1, 3)))
    if random.random() < 0.8:
        doc["n"] = random.choice([random.randint(-5, 5), random.randint(-5, 5) / 4, 1e300, -0.0, random.randint(-(10**6), 10**6)])
    if random.random() < 0.7:
        doc["tags"] = random.sample(TAGS, random.randint(0, 3))
    if random.random() < 0.7:
        doc["colour"] = random.choice(TAGS)
    if random.random() < 0.5:
        doc["ok"] = random.random() < 0.5
    if random.random() < 0.05:
        doc[random.choice(["text", "title", "n", "colour", "ok"])] = random.choice([None, [], {}, ["ba"]])
    return doc


class Dropped(Exception):
    """The index function threw: nothing of the document is in the index."""


class Emitted:
    """What an index function emitted for one document."""

    def __init__(self):
        self.words, self.numbers, self.facets = {}, {}, {}

    def text(self, name, value, analyzed=True):
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif not isinstance(value, str):
            raise Dropped
        # Texts of one name stand one behind the other.
        self.words.setdefault(name, []).extend(re.findall(r"\w+", value.lower()) if analyzed else [value])

    def number(self, name, value):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Dropped
        self.numbers.setdefault(name, []).append(float(value))

    def facet(self, name, value):
        if value:
            self.facets.setdefault(name, []).append(value)


def has(doc, name):
    return doc.get(name) is not None


# Pieces of index functions by the interface that they are for, and what they do. `call` is how that interface emits.
def text_piece(name, guarded):
    def emit(doc, out):
        if guarded and not has(doc, name):
            return
        out.text({"text": "default"}.get(name, name), doc.get(name))

    guard = f"if (doc.{name} !== undefined && doc.{name} !== null) " if guarded else ""
    field = {"text": "default"}.get(name, name)
    return (
        {"_search": f"{guard}index('{field}', doc.{name});", "_nouveau": f"{guard}index('text', '{field}', doc.{name});"},
        emit,
    )


def both_piece():
    def emit(doc, out):
        out.text("both", doc["kind"] + " ba")
        if isinstance(doc.get("title"), str):
            out.text("both", doc["title"])

    title = "if (typeof doc.title == 'string') "
    return (
        {
            "_search": f"index('both', doc.kind + ' ba'); {title}index('both', doc.title);",
            "_nouveau": f"index('text', 'both', doc.kind + ' ba'); {title}index('text', 'both', doc.title);",
        },
        emit,
    )


def number_piece(factor):
    def emit(doc, out):
        if isinstance(doc.get("n"), int | float):
            out.number("n", doc["n"] * factor)

    guard = "if (typeof doc.n == 'number') "
    return (
        {"_search": f"{guard}index('n', doc.n * {factor}, {{facet: true}});", "_nouveau": f"{guard}index('double', 'n', doc.n * {factor});"},
        emit,
    )


def tags_piece():
    def emit(doc, out):
        for tag in doc.get("tags", []):
            out.text("tags", tag, False)
            out.facet("tags", tag)

    return (
        {
            "_search": "for (var i in doc.tags) index('tags', doc.tags[i], {facet: true});",
            "_nouveau": "(doc.tags || []).forEach(function (tag) { index('string', 'tags', tag); });",
        },
        emit,
    )


def colour_piece():
    def emit(doc, out):
        if isinstance(doc.get("colour"), str):
            out.text("colour", doc["colour"], False)
            out.facet("colour", doc["colour"])

    guard = "if (typeof doc.colour == 'string') "
    return (
        {
            "_search": f"{guard}index('colour', doc.colour, {{facet: true, store: true}});",
            "_nouveau": f"{guard}index('string', 'colour', doc.colour);",
        },
        emit,
    )


def throwing_piece(kind):
    def emit(doc, _):
        if doc["kind"] == kind:
            raise Dropped

    thrown = f"if (doc.kind == '{kind}') throw new Error('not this one');"
    return ({"_search": thrown, "_nouveau": thrown}, emit)


def function(random):
    """The pieces of an index function. The fields that orders and counts are of are always there."""
    pieces = [number_piece(random.choice([1, 2, -1])), tags_piece(), colour_piece(), text_piece("text", random.random() < 0.7)]
    pieces += random.sample(
        [text_piece("title", True), text_piece("title", False), both_piece(), throwing_piece(random.choice("abcd"))], random.randint(0, 3)
    )
    random.shuffle(pieces)
    return pieces


def emitted(pieces, doc):
    out = Emitted()
    try:
        for _, emit in pieces:
            emit(doc, out)
    except Dropped:
        return None
    return out if out.words or out.numbers else None


# ---- queries: the text, and whether a document is one of its hits


def leaf(random, route):
    kind = random.randrange(9)
    field = random.choice(["default", "default", "default", "title", "both"])
    prefix = "" if field == "default" else f"{field}:"
    word, other = random.choice(WORDS), random.choice(WORDS)
    words = lambda doc: doc.words.get(field, [])
    if kind <= 1:
        return f"{prefix}{word}", lambda doc: word in words(doc)
    if kind == 2:
        return f"{prefix}{word[:2]}*", lambda doc: any(one.startswith(word[:2]) for one in words(doc))
    if kind == 3:
        wanted = re.compile(word[0] + "." + word[2:3] + ".*")
        return f"{prefix}{word[0]}?{word[2:3]}*", lambda doc: any(wanted.fullmatch(one) for one in words(doc))
    if kind == 4:
        return f'{prefix}"{word} {other}"', lambda doc: (word, other) in itertools.pairwise(words(doc))
    if kind == 5:
        low, high = sorted((word, other))
        # Both ends are words, so that it is no range of numbers.
        return f"{prefix}[{low} TO {high}]", lambda doc: any(low <= one <= high for one in words(doc))
    if kind == 6:
        low, high = sorted((random.randint(-6, 6), random.randint(-6, 6)))
        return f"n:[{low} TO {high}]", lambda doc: any(low <= n <= high for n in doc.numbers.get("n", []))
    if kind == 7:
        tag = random.choice(TAGS[:3])
        return f"tags:{tag}", lambda doc: tag in doc.words.get("tags", [])
    low = random.randint(-6, 6)
    if route == "_nouveau":
        return f"n:[{low} TO *]", lambda doc: any(low <= n for n in doc.numbers.get("n", []))
    return f"n:[{low} TO Infinity]", lambda doc: any(low <= n for n in doc.numbers.get("n", []))


def query(random, route, depth=0):
    if depth == 0 and random.random() < 0.15:
        return "*:*", lambda _: True
    if depth > 2 or random.random() < 0.4:
        return leaf(random, route)
    (left, in_left), (right, in_right) = query(random, route, depth + 1), query(random, route, depth + 1)
    kind = random.randrange(4)
    if kind == 0:
        return f"({left} OR {right})", lambda doc: in_left(doc) or in_right(doc)
    if kind == 1:
        return f"({left} AND {right})", lambda doc: in_left(doc) and in_right(doc)
    if kind == 2:
        return f"(+{left} -{right})", lambda doc: in_left(doc) and not in_right(doc)
    return f"({left} {right}^2)", lambda doc: in_left(doc) or in_right(doc)


# ---- the two interfaces


class Model:
    """The documents of a database and what the index has of each."""

    def __init__(self, api, random, name, route):
        self.api, self.random, self.name, self.route = api, random, name, route
        self.pieces, self.docs, self.revs = function(random), {}, {}
        api.expect(201, "PUT", f"/{name}?q={random.randint(1, 3)}")
        # `_search` has design documents too.
        source = "function (doc) { if (doc._id[0] == '_') return; " + " ".join(sources[route] for sources, _ in self.pieces) + " }"
        if route == "_search":
            index = {"analyzer": {"name": "perfield", "default": "simple", "fields": {"tags": "keyword", "colour": "keyword"}}, "index": source}
            api.expect(201, "PUT", f"/{name}/_design/d", {"indexes": {"i": index}})
        else:
            analyzers = {"tags": "keyword", "colour": "keyword"}
            index = {"default_analyzer": "simple", "field_analyzers": analyzers, "index": source}
            api.expect(201, "PUT", f"/{name}/_design/d", {"nouveau": {"i": index}})

    def write(self):
        """New documents, changed ones and deleted ones."""
        docs = []
        for number in self.random.sample(range(90), self.random.randint(1, 60)):
            doc = document(self.random, number)
            known = self.revs.get(doc["_id"])
            if known and self.random.random() < 0.3:
                doc["_deleted"] = True
            docs.append({**doc, **({"_rev": known} if known else {})})
        for doc, row in zip(docs, self.api.expect(201, "POST", f"/{self.name}/_bulk_docs", {"docs": docs}), strict=True):
            if doc.get("_deleted"):
                del self.docs[doc["_id"]], self.revs[doc["_id"]]
            else:
                self.docs[doc["_id"]], self.revs[doc["_id"]] = emitted(self.pieces, doc), row["rev"]

    def hits(self, is_hit):
        return {id_: out for id_, out in self.docs.items() if out and is_hit(out)}

    def post(self, **body):
        return self.api.expect(200, "POST", f"/{self.name}/_design/d/{self.route}/i", body)

    def pages(self, rows, **body):
        """All rows, page by page."""
        limit, all_rows = self.random.choice([7, 25, LIMIT]), []
        while True:
            page = self.post(limit=limit, **body)
            if not page[rows]:
                return all_rows
            all_rows += page[rows]
            body["bookmark"] = page["bookmark"]


def differences(found, expected):
    return {name: (found[name], expected[name]) for name in expected if found[name] != expected[name]}


def compare(ctx, route, ask):
    """Rounds of writes and questions; `ask` says what differs from the model."""
    rounds, asked = ctx.size((6, 40), (150, 40))
    differing, questions, hits = [], 0, 0
    with ctx.server(route.strip("_")) as server:
        for number in range(rounds):
            model = Model(server.api(), ctx.random, f"m{number}", route)
            for _ in range(3):
                model.write()
                for _ in range(asked):
                    text, is_hit = query(ctx.random, route)
                    wanted = model.hits(is_hit)
                    questions, hits = questions + 1, hits + len(wanted)
                    differ = ask(ctx.random, model, text, wanted)
                    if differ:
                        differing.append((model.name, text, differ))
            model.api.expect(200, "DELETE", f"/{model.name}")
    ctx.report.check(f"{route}: the questions have hits", hits > questions, (hits, questions))
    ctx.report.check(f"{route}: as the model in {questions} questions", not differing, f"{len(differing)} differ: {differing[:3]}")


def of_strings(wanted, field):
    counts = {}
    for out in wanted.values():
        for value in out.facets.get(field, []):
            counts[value] = counts.get(value, 0) + 1
    return counts


def in_range(wanted, low, high):
    return sum(any(low <= n < high for n in out.numbers.get("n", [])) for out in wanted.values())


# How values of orders follow each other: documents without one come first, or are as if it were 0.
def key_of(out, field):
    if field == "n":
        return out.numbers.get("n", [0.0])[0]
    return out.facets.get(field, [None])[0]


def is_ordered(keys, descending):
    keys = [(key is not None, key if key is None or isinstance(key, float) else key.encode()) for key in keys]
    before = lambda a, b: a[0] < b[0] or (a[0] == b[0] and (a[1] is None or a[1] <= b[1]))
    pairs = itertools.pairwise(keys)
    return all(before(b, a) if descending else before(a, b) for a, b in pairs)


def test_clouseau(ctx):
    def ask(random, model, text, wanted):
        kind = random.randrange(4)
        if kind == 0:
            rows = model.pages("rows", q=text)
            ids = [row["id"] for row in rows]
            scores = [row["order"][0] for row in rows]
            found = {"hits": sorted(ids), "ordered": scores == sorted(scores, reverse=True)}
            return differences(found, {"hits": sorted(wanted), "ordered": True})
        if kind == 1:
            field, minus = random.choice(["n", "colour"]), random.choice(["", "-"])
            rows = model.pages("rows", q=text, sort=f"{minus}{field}<{'number' if field == 'n' else 'string'}>")
            ids = [row["id"] for row in rows]
            ordered = set(ids) <= set(wanted) and is_ordered([key_of(wanted[id_], field) for id_ in ids], bool(minus))
            return differences({"hits": sorted(ids), "ordered": ordered}, {"hits": sorted(wanted), "ordered": True})
        if kind == 2:
            drilldown = random.choice([None, ["colour", random.choice(TAGS)], ["tags", *random.sample(TAGS, 2)]])
            if drilldown:
                wanted = {id_: out for id_, out in wanted.items() if set(out.facets.get(drilldown[0], [])) & set(drilldown[1:])}
            ranges = {"n": {"low": "[-3 TO 0}", "high": "[0 TO 7}", "all": "[-Infinity TO Infinity]"}}
            answer = model.post(q=text, limit=0, counts=["tags", "colour"], ranges=ranges, **({"drilldown": [drilldown]} if drilldown else {}))
            found = {name: answer[name] for name in ("total_rows", "counts", "ranges", "rows")}
            expected = {
                "total_rows": len(wanted),
                "rows": [],
                "counts": {field: of_strings(wanted, field) for field in ("tags", "colour")},
                "ranges": {"n": {"low": in_range(wanted, -3, 0), "high": in_range(wanted, 0, 7), "all": in_range(wanted, -math.inf, math.inf)}},
            }
            return differences(found, expected)
        answer = model.post(q=text, group_field="colour", group_sort="colour<string>", group_limit=LIMIT, limit=LIMIT, sort="-n<number>")
        groups = {}
        for id_, out in wanted.items():
            groups.setdefault(key_of(out, "colour"), []).append(id_)
        found = {
            "total": answer["total_rows"],
            "groups": {group["by"]: (group["total_rows"], sorted(row["id"] for row in group["rows"])) for group in answer["groups"]},
            "groups in order": is_ordered([group["by"] for group in answer["groups"]], False),
            "rows in order": all(
                is_ordered([key_of(wanted[row["id"]], "n") for row in group["rows"] if row["id"] in wanted], True) for group in answer["groups"]
            ),
        }
        expected = {
            "total": len(wanted),
            "groups": {by: (len(ids), sorted(ids)) for by, ids in groups.items()},
            "groups in order": True,
            "rows in order": True,
        }
        return differences(found, expected)

    compare(ctx, "_search", ask)


def test_nouveau(ctx):
    def ask(random, model, text, wanted):
        kind = random.randrange(3)
        if kind == 0:
            rows = model.pages("hits", q=text)
            ids = [row["id"] for row in rows]
            scores = [row["order"][0]["value"] for row in rows]
            found = {"hits": sorted(ids), "ordered": scores == sorted(scores, reverse=True)}
            return differences(found, {"hits": sorted(wanted), "ordered": True})
        if kind == 1:
            rows = model.pages("hits", q=text, sort=random.choice(["n", "-n", "colour", "-colour"]))
            return differences({"hits": sorted(row["id"] for row in rows)}, {"hits": sorted(wanted)})
        ranges = {
            "n": [
                {"label": "low", "min": -3, "max": 0, "max_inclusive": False},
                {"label": "high", "min": 0, "max": 7, "max_inclusive": False},
            ]
        }
        answer = model.post(q=text, counts=["tags", "colour"], ranges=ranges, top_n=100)
        found = {"total": answer["total_hits"], "counts": answer["counts"], "ranges": {k: v for k, v in answer["ranges"]["n"].items() if v}}
        expected = {
            "total": len(wanted),
            "counts": {field: of_strings(wanted, field) for field in ("tags", "colour")},
            "ranges": {k: v for k, v in (("low", in_range(wanted, -3, 0)), ("high", in_range(wanted, 0, 7))) if v},
        }
        return differences(found, expected)

    compare(ctx, "_nouveau", ask)

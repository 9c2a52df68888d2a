"""Index functions and queries that are made to cost."""

HOSTILE_INDEX = """function (doc) {
  if (!doc.text) return;
  index("default", doc.text, {store: true});
  index("tag", doc._id, {facet: true});
  index("n", doc.n);
  if (doc.many) for (var i = 0; i < 2000; i++) { index("n", i); index("tag", "t" + i, {facet: true}); }
}"""


def hostile_documents(long):
    docs = [{"_id": f"d{n:04d}", "text": f"alpha w{n}", "n": n} for n in range(2000)]
    wide = " ".join(f"w{n}" for n in range(2_000 * long))
    docs += [{"_id": f"wide{n}", "text": wide, "n": n, "many": n == 0} for n in range(5)]
    return [*docs, {"_id": "same", "text": "a " * 5_000 * long, "n": 0}, {"_id": "long", "text": "x" * 1_000_000, "n": 0}]


def hostile_requests(long, fields):
    """What is quadratic in `long` runs into the longest time of a search at 10, which is 30 s."""
    highlight = {"highlight_fields": ["default"] * fields, "highlight_number": 1000, "highlight_size": 1, "highlight_pre_tag": "<" * 256}
    phrase = '"' + "a " * 1_000 * long + '"'
    loose_phrase = '"' + "a " * 100 * long * long + '"~1000'
    return {
        "highlights of everything": {"q": "w*", **highlight},
        "highlights of one word": {"q": "a", **highlight},
        "highlights of a phrase": {"q": phrase, **highlight},
        "highlights of a loose phrase": {"q": loose_phrase, **highlight},
        "highlights of many patterns": {"q": " ".join(f"w*{n}?*" for n in range(50 * long)), **highlight},
        "highlights of many that are alike": {"q": " ".join(f"w{n}~2" for n in range(500)), **highlight},
        "highlights of a long word": {"q": "x*", **highlight},
        "groups of one each": {"q": "*:*", "group_field": "tag", "group_limit": 200, "limit": 200, **highlight},
        "groups of many words": {"q": "w*", "group_field": "default", "group_limit": 200, "group_sort": ["n"] * 32},
        "many ranges": {"q": "*:*", "ranges": {"n": {str(n): f"[{n} TO {n + 1}]" for n in range(1000)}}},
        "many counts": {"q": "*:*", "counts": ["tag"] * 100},
        "many facets": {"q": "*:*", "drilldown": ["tag", *(f"t{n}" for n in range(1000))]},
        "too many facets": {"q": "*:*", "drilldown": [["tag", *(f"t{n}" for n in range(600))]] * 2},
        "distances of what is none": {"q": "*:*", "sort": ["<distance,n,n,1,0,km>", "<distance,tag,n,0,0,km>"]},
        "far distances": {"q": "*:*", "sort": ["<distance,n,n,-179.99999999999999999999,89.99999999999,km>"] * 32},
        "deep parentheses": {"q": "(" * 5000 + "alpha" + ")" * 5000},
        "wide": {"q": " ".join(f"w{n}" for n in range(5000))},
        "a star in each place": {"q": "a*" * 1000 + "b"},
        "expressions": {"q": " ".join("/(w.*)*[0-9]+/" for _ in range(500)), **highlight},
        "an expression that repeats": {"q": "/((a{1000}){1000}){1000}/"},
    }

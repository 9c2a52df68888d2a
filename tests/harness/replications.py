"""Documents to replicate."""


def fill(api, db, count, prefix="doc"):
    docs = [{"_id": f"{prefix}{n:05}", "n": n, "kind": "even" if n % 2 == 0 else "odd"} for n in range(count)]
    api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})


def tangle(api, db):
    """Conflicts, tombstones, a deleted branch, a long history, odd ids."""
    docs = [
        {"_id": "conflict", "_revisions": {"start": 3, "ids": [a * 32, b * 32, "1" * 32]}, "of": a} for a, b in (("a", "c"), ("b", "c"), ("d", "e"))
    ]
    docs += [
        {"_id": "gone", "_rev": "2-" + "7" * 32, "_deleted": True, "why": "a body stays"},
        {"_id": "half gone", "_rev": "1-" + "a" * 32},
        {"_id": "half gone", "_revisions": {"start": 2, "ids": ["b" * 32, "c" * 32]}, "_deleted": True},
        {"_id": 'naïve/ü?&#+ %41"', "_rev": "1-abc", "text": '\u2028 \\ " \x01 \U0001f600'},
        {"_id": "_design/d", "_rev": "1-" + "d" * 32, "views": {"v": {"map": "function(doc) { emit(doc._id); }"}}},
    ]
    api.expect(201, "POST", f"/{db}/_bulk_docs", {"new_edits": False, "docs": docs})
    rev = None
    for n in range(30):
        body = {"n": n} if rev is None else {"n": n, "_rev": rev}
        rev = api.expect(201, "PUT", f"/{db}/edited", body)["rev"]

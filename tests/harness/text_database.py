"""A database with text indexes, and what a naive search finds in it."""

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
INDEX = """function (doc) {
  if (doc.text) index("text", "default", doc.text, {store: true});
  (doc.tags || []).forEach(function (tag) { index("string", "tag", tag); });
  if (typeof doc.n == "number") index("double", "n", doc.n, {store: true});
}"""


def design(index=INDEX, **more):
    return {"nouveau": {"i": {"index": index, **more}}}


def document(random):
    doc = {"text": " ".join(random.choice(WORDS) for _ in range(random.randint(1, 12)))}
    if random.random() < 0.8:
        doc["tags"] = random.sample(WORDS[:4], random.randint(0, 3))
    if random.random() < 0.8:
        doc["n"] = random.randint(-5, 5)
    return doc


class Database:
    """A database under random edits, with what is in it."""

    def __init__(self, ctx, server, name, query=""):
        self.random, self.name = ctx.random, name
        self.api = server.api()
        self.docs, self.revs = {}, {}
        self.api.expect((201, 202), "PUT", f"/{name}{query}")
        self.api.expect((201, 202), "PUT", f"/{name}/_design/d", design())

    def edit(self, count):
        """Adds documents, changes some and deletes some, in one request."""
        batch = {}
        for _ in range(count):
            doc_id = f"d{self.random.randint(0, 3 * count):05d}"
            doc = {"_id": doc_id, "_rev": self.revs[doc_id]} if doc_id in self.revs else {"_id": doc_id}
            if doc_id in self.revs and self.random.random() < 0.3:
                batch[doc_id] = {**doc, "_deleted": True}
            else:
                batch[doc_id] = {**doc, **document(self.random)}
        answers = self.api.expect(201, "POST", f"/{self.name}/_bulk_docs", {"docs": list(batch.values())})
        for answer, doc in zip(answers, batch.values(), strict=True):
            if doc.get("_deleted"):
                self.docs.pop(doc["_id"], None)
                self.revs.pop(doc["_id"], None)
            else:
                self.docs[doc["_id"]] = doc
                self.revs[doc["_id"]] = answer["rev"]

    def search(self, q, **options):
        body = {"q": q, "limit": 10000, **options}
        return self.api.expect(200, "POST", f"/{self.name}/_design/d/_nouveau/i", body)

    def ids(self, q, **options):
        return [hit["id"] for hit in self.search(q, **options)["hits"]]


def words(doc):
    return doc["text"].split()


def has_phrase(doc, phrase):
    text = words(doc)
    return any(text[at : at + len(phrase)] == phrase for at in range(len(text)))


QUESTIONS = [
    ("*:*", lambda doc: True),
    ("alpha", lambda doc: "alpha" in words(doc)),
    ("alpha beta", lambda doc: {"alpha", "beta"} & set(words(doc))),
    ("+alpha +beta", lambda doc: {"alpha", "beta"} <= set(words(doc))),
    ("alpha AND NOT gamma", lambda doc: "alpha" in words(doc) and "gamma" not in words(doc)),
    ('"alpha beta"', lambda doc: has_phrase(doc, ["alpha", "beta"])),
    ('"beta gamma delta"', lambda doc: has_phrase(doc, ["beta", "gamma", "delta"])),
    ("e*", lambda doc: any(word.startswith("e") for word in words(doc))),
    ("tag:alpha", lambda doc: "alpha" in doc.get("tags", [])),
    ("tag:[beta TO delta]", lambda doc: any("beta" <= tag <= "delta" for tag in doc.get("tags", []))),
    ("n:[0 TO 3]", lambda doc: 0 <= doc.get("n", 99) <= 3),
    ("n:{0 TO 3}", lambda doc: 0 < doc.get("n", 99) < 3),
    ("n:[* TO *]", lambda doc: "n" in doc),
]
HOSTILE_QUERIES = {
    "deep parentheses": "(" * 5000 + "alpha" + ")" * 5000,
    "deep NOT": "NOT " * 5000 + "alpha",
    "wide": " ".join(f"w{n}" for n in range(5000)),
    "a star in each place": "a*" * 1000 + "b",
    "many expressions": " ".join("/(w.*)*[0-9]+/" for _ in range(500)),
    "a large expression": "/" + "(a|b)" * 20000 + "/",
    "an expression of classes": "/" + r"\w" * 2000 + "/",
    "an expression of many states": "/(w|[0-9])*w(w|[0-9]){2000}/",
    "exclusions of everything": "(*:* -*:*) " * 200,
    "an expression that repeats": "/((a{1000}){1000}){1000}/",
    "many that are alike": " ".join(f"w{n}~2" for n in range(500)),
    "a wide range": "[a TO z]",
    "a long word": "x" * 1_000_000,
    "a long phrase": '"' + "w1 " * 20000 + '"',
}

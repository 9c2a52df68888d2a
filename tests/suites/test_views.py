"""Views against a naive one in memory: random documents, edits, deletions, conflicts, purges and queries; an index that
was caught up against one built afresh; kill -9 during builds; indexes over restarts; clean-up."""

import itertools
import threading

from harness import naive_view as naive
from harness import view_models
from harness.api import Disconnected, quote
from harness.server import wait_until
from harness.vectors import vectors_folder
from harness.view_models import disagreement, first_difference
from harness.view_samples import GROUPS, Samples, design, query_text

DIFFERENCES_SHOWN = 5
QUERIES_A_VIEW = 6
# After a kill all rows are compared, and some queries; `differential` tries all kinds of queries.
QUERIES_AFTER_KILL, QUERIES_AFTER_KILL_SOAK = 2, QUERIES_A_VIEW
# Documents that are written while a build is killed, again and again: a slow build would otherwise leave thousands of them to the naive model.
WRITTEN_MEANWHILE = 50
BULK = 200
# Each document costs a map about a millisecond, so a build takes long enough to be interrupted.
SLOW_MAP = "function (doc) { var x = 0; for (var i = 0; i < 20000; i++) x += i % 7; emit(doc.g, doc.n + (x < 0 ? 1 : 0)); }"


def test_models(ctx):
    """The model agrees with what CouchDB answered, and a wrong one would be caught."""
    view_models.check(ctx, vectors_folder(ctx))


def test_one_shard(ctx):
    differential(ctx, "one shard", "?q=1")


def test_three_shards(ctx):
    differential(ctx, "three shards", "?q=3")


def test_partitioned(ctx):
    differential(ctx, "partitioned", "?q=2&partitioned=true", partitions=("p", "q", "r"))


class Database:
    """A database under random edits, and the documents that its views are over. `queries` are the random ones of each view in a comparison."""

    def __init__(self, ctx, server, name, query="", partitions=(), queries=QUERIES_A_VIEW):
        self.ctx, self.server, self.name, self.partitions, self.queries = ctx, server, name, partitions, queries
        self.api = server.api()
        self.samples = Samples(ctx.random, partitions)
        self.ids, self.grafted, self.designs = [], set(), {}
        self.api.expect((201, 202), "PUT", f"/{name}{query}")
        self.shards = self.api.expect(200, "GET", f"/{name}")["cluster"]["q"]

    def put_design(self, name, group, comment="", **members):
        if self.partitions and "options" not in members:
            members["options"] = {"partitioned": False}
        old = self.api.get(f"/{self.name}/_design/{name}")
        body = design(group, comment, **members)
        if old.status == 200:
            body["_rev"] = old.json["_rev"]
        self.api.expect((201, 202), "PUT", f"/{self.name}/_design/{name}", body)
        self.designs[name] = group

    def docs(self):
        """What maps see of every document: conflicts too, which only reads of one document tell whole."""
        rows = self.api.expect(200, "GET", f"/{self.name}/_all_docs?include_docs=true&conflicts=true")["rows"]
        docs = [row["doc"] for row in rows if not row["id"].startswith("_design/")]
        query = "?conflicts=true&deleted_conflicts=true"
        return [self.api.expect(200, "GET", f"/{self.name}/{quote(doc['_id'])}{query}") if doc["_id"] in self.grafted else doc for doc in docs]

    def edit(self, number_of_new):
        """One round: new documents, changed ones, deletions, conflicts, purges."""
        pick = self.ctx.random
        new = [self.samples.doc_id(len(self.ids) + at) for at in range(number_of_new)]
        known = self.ids + new
        self._bulk([{"_id": doc_id, **self.samples.doc(known)} for doc_id in new])
        self.ids = known
        revs = self._revs()
        edited = pick.sample(sorted(revs), min(len(revs), len(known) // 4))
        self._bulk(
            [{"_id": doc_id, "_rev": revs[doc_id], **({"_deleted": True} if pick.random() < 0.3 else self.samples.doc(known))} for doc_id in edited]
        )
        self._graft(pick.sample(known, min(len(known), 10)))
        self._purge()

    def _bulk(self, docs, **options):
        for first in range(0, len(docs), BULK):
            self.api.expect((201, 202), "POST", f"/{self.name}/_bulk_docs", {"docs": docs[first : first + BULK], **options})

    def _revs(self):
        rows = self.api.expect(200, "GET", f"/{self.name}/_all_docs")["rows"]
        return {row["id"]: row["value"]["rev"] for row in rows if not row["id"].startswith("_design/")}

    def _graft(self, ids):
        """Conflicting branches, some longer than the document's own, some deleted."""
        pick, docs = self.ctx.random, []
        for doc_id in ids:
            generation, ancestor = pick.randint(1, 4), f"{pick.getrandbits(128):032x}"
            hashes = [f"{pick.getrandbits(128):032x}" for _ in range(generation - 1)] + [ancestor]
            docs.append(
                {
                    "_id": doc_id,
                    "_rev": f"{generation}-{hashes[0]}",
                    "_revisions": {"start": generation, "ids": hashes},
                    **({"_deleted": True} if pick.random() < 0.3 else self.samples.doc(self.ids)),
                }
            )
        self.grafted |= set(ids)
        self._bulk(docs, new_edits=False)

    def _purge(self):
        revs = self._revs()
        doomed = self.ctx.random.sample(sorted(revs), min(len(revs), 4))
        self.api.expect((201, 202), "POST", f"/{self.name}/_purge", {doc_id: [revs[doc_id]] for doc_id in doomed})

    def path(self, name, view, partition=None):
        inside = f"/_partition/{partition}" if partition else ""
        return f"/{self.name}{inside}/_design/{name}/_view/{view}"

    def differences(self, docs=None):
        """Random queries of every view; a line for each answer that is not the model's."""
        docs, wrong = self.docs() if docs is None else docs, []
        for name, group in self.designs.items():
            for view in GROUPS[group]:
                if view.forwards and self.shards > 1:
                    continue
                wrong += self.view_differences(name, view, view.over(docs))
        return wrong

    def view_differences(self, name, view, model, partition=None):
        wrong = []
        model.shard_of = lambda doc_id: naive.shard_of(doc_id, self.shards, bool(self.partitions))
        for options in [{"reduce": False} if view.reduce else {}] + [self.samples.query(view, model) for _ in range(self.queries)]:
            answer = self.ask(self.path(name, view.name, partition), options)
            difference = disagreement(view, model, options, answer)
            if difference:
                wrong.append(f"{self.path(name, view.name, partition)}?{query_text(options)}\n  {difference}")
        return wrong

    def ask(self, path, options):
        """The same query in one of the ways in which it can be sent."""
        way = self.ctx.random.random()
        if way < 0.15:
            return self.api.post(path, options)
        if way < 0.3 and "keys" in options:
            rest = {name: value for name, value in options.items() if name != "keys"}
            return self.api.post(f"{path}?{query_text(rest)}", {"keys": options["keys"]})
        if way < 0.4:
            return FirstOfQueries(self.api.post(f"{path}/queries", {"queries": [options]}))
        return self.api.get(f"{path}?{query_text(options)}")

    def rows(self, name, view, options=""):
        """All rows as the server orders them."""
        return self.api.expect(200, "GET", f"{self.path(name, view.name)}?{options}{'&reduce=false' if view.reduce else ''}")


class FirstOfQueries:
    """An answer of `/queries` in the place of the answer of its only query."""

    def __init__(self, response):
        self.status, self._response = response.status, response

    @property
    def json(self):
        body = self._response.json
        return body["results"][0] if self.status == 200 else body

    def __repr__(self):
        return repr(self._response)


def shown(differences):
    return f"{len(differences)} differences\n" + "\n".join(differences[:DIFFERENCES_SHOWN])


def differential(ctx, label, query, partitions=()):
    with ctx.server(label.replace(" ", "-")) as server:
        database = Database(ctx, server, "views", query, partitions)
        for group in GROUPS:
            database.put_design(group, group)
        rounds = ctx.size(3, 40)
        for number in range(1, rounds + 1):
            database.edit(60 if number == 1 else 15)
            ctx.report.check(f"{label}: round {number}: every answer is the naive view's", *none(database.differences()))
            if partitions:
                ctx.report.check(f"{label}: round {number}: partitions", *none(partition_differences(database)))
        incremental_is_rebuilt(ctx, database, label)
        ctx.report.check(f"{label}: no panic", "panicked" not in server.log(), server.log()[-1500:])


def none(differences):
    return not differences, shown(differences)


def partition_differences(database):
    """The same views in design documents that are built and queried by partition."""
    wrong, docs = [], database.docs()
    for group in ("plain", "reduced"):
        if database.api.get(f"/{database.name}/_design/by-partition-{group}").status == 404:
            database.api.expect((201, 202), "PUT", f"/{database.name}/_design/by-partition-{group}", design(group))
        for partition in database.partitions:
            inside = [doc for doc in docs if doc["_id"].startswith(partition + ":")]
            for view in GROUPS[group]:
                # Without linked documents, which may be in another partition.
                wrong += database.view_differences(f"by-partition-{group}", view, view.over(inside), partition)
    return wrong


def incremental_is_rebuilt(ctx, database, label):
    """A comment makes the same functions another index, which is built from nothing."""
    wrong = []
    for name, group in list(database.designs.items()):
        database.put_design(f"{name}-again", group, comment="\n// built afresh")
        signatures = {
            database.api.expect(200, "GET", f"/{database.name}/_design/{one}/_info")["view_index"]["signature"] for one in (name, f"{name}-again")
        }
        if len(signatures) != 2:
            wrong.append(f"{name}: the comment did not change the signature")
        for view in GROUPS[group]:
            grown, fresh = (database.rows(one, view) for one in (name, f"{name}-again"))
            if naive.canonical(grown) != naive.canonical(fresh):
                wrong.append(f"{name}/{view.name}: {first_difference(grown, fresh)}")
            if view.reduce and view.ordered:
                grown, fresh = (database.api.expect(200, "GET", f"{database.path(one, view.name)}?group_level=1") for one in (name, f"{name}-again"))
                if naive.canonical(grown) != naive.canonical(fresh):
                    wrong.append(f"{name}/{view.name}, reduced: {first_difference(grown, fresh)}")
    ctx.report.check(f"{label}: an index that was caught up equals one built afresh", *none(wrong))


def test_options_of_design_documents(ctx):
    with ctx.server("options") as server:
        api = server.api()
        api.expect((201, 202), "PUT", "/options?q=2")
        api.expect((201, 202), "POST", "/options/_bulk_docs", {"docs": [{"_id": key, "k": key} for key in ("a", "B", "c")]})
        map_ids = {"v": {"map": "function (doc) { emit(doc._id, doc._local_seq > 0); }"}}
        map_keys = {"v": {"map": "function (doc) { emit(doc.k, null); }"}}
        for name, views, options in (
            ("seq", map_ids, {"local_seq": True}),
            ("with-designs", map_ids, {"include_design": True}),
            ("plain", map_ids, {}),
        ):
            api.expect((201, 202), "PUT", f"/options/_design/{name}", {"views": views, "options": options})
        raw = {"v": {"map": map_keys["v"]["map"], "options": {"collation": "raw"}}}
        api.expect((201, 202), "PUT", "/options/_design/raw", {"views": raw})
        api.expect((201, 202), "PUT", "/options/_design/icu", {"views": map_keys})

        def rows(name):
            return [(row["id"], row["value"]) for row in api.expect(200, "GET", f"/options/_design/{name}/_view/v")["rows"]]

        ctx.report.equal("local_seq shows sequences to maps", rows("seq"), [("a", True), ("B", True), ("c", True)])
        ctx.report.equal("without it there are none", rows("plain"), [("a", False), ("B", False), ("c", False)])
        ctx.report.equal("include_design maps design documents", sum(doc_id.startswith("_design/") for doc_id, _ in rows("with-designs")), 5)
        ctx.report.equal("ICU's order by default", [doc_id for doc_id, _ in rows("icu")], ["a", "B", "c"])
        ctx.report.equal("collation raw is bytewise", [doc_id for doc_id, _ in rows("raw")], ["B", "a", "c"])


def test_stale_reads(ctx):
    """`autoupdate` false: the index moves only when a query asks for it."""
    with ctx.server("stale") as server:
        database = Database(ctx, server, "stale", "?q=2")
        database.put_design("lazy", "plain", autoupdate=False)
        database.edit(40)
        view = GROUPS["plain"][0]
        ctx.report.equal("update=false before the first build has no rows", database.rows("lazy", view, "update=false")["rows"], [])
        before = database.rows("lazy", view)
        database.edit(20)
        for option in ("update=false", "stale=ok"):
            same = naive.canonical(database.rows("lazy", view, option)) == naive.canonical(before)
            ctx.report.check(f"{option} answers from the index as it is", same)
        fresh = view.over(database.docs()).query({})
        for option in ("update=lazy", "stale=update_after"):
            first = naive.canonical(database.rows("lazy", view, option))
            ctx.report.check(f"{option} answers at once", first in (naive.canonical(before), naive.canonical(fresh)))
            caught_up = wait_until(lambda: naive.canonical(database.rows("lazy", view, "update=false")) == naive.canonical(fresh), 30)
            ctx.report.check(f"{option} brings the index up to date afterwards", caught_up)
            database.edit(5)
            before, fresh = fresh, view.over(database.docs()).query({})
        info = database.rows("lazy", view, "update_seq=true")
        ctx.report.check(
            "update_seq=true tells how far the index is", str(info.get("update_seq", "")).split("-")[0].isdigit(), info.get("update_seq")
        )
        wrong = disagreement(view, view.over(database.docs()), {}, database.api.get(database.path("lazy", "key") + "?sorted=false"))
        ctx.report.check("sorted=false has the same rows", wrong is None or "offset" in wrong, wrong)


def index_info(database, name):
    return database.api.expect(200, "GET", f"/{database.name}/_design/{name}/_info")["view_index"]


def test_indexes_survive_restarts(ctx):
    server = ctx.server("survivor").start()
    database = Database(ctx, server, "survivor", "?q=2")
    for group in GROUPS:
        database.put_design(group, group, autoupdate=False)
    database.edit(80)
    docs = database.docs()
    ctx.report.check("before the restart every answer is right", *none(database.differences(docs)))
    before = {name: index_info(database, name) for name in database.designs}
    positive = all(info["sizes"][name] > 0 for info in before.values() for name in ("file", "active", "external"))
    ctx.report.check("_info has sizes", positive, before)
    old = {view.name: database.rows(group, view) for group in GROUPS for view in GROUPS[group]}
    for how in ("stop", "kill"):
        getattr(server, how)()
        server = ctx.server("survivor").start()
        database.api, database.server = server.api(), server
        after = {name: index_info(database, name) for name in database.designs}
        for name in database.designs:
            kept = all(after[name][member] == before[name][member] for member in ("signature", "update_seq"))
            ctx.report.check(f"{name}: the index is where it was after {how}", kept, (before[name], after[name]), quiet=True)
        # Without an update these are the rows of the index itself: nothing was built again.
        wrong = [
            view.name
            for group in GROUPS
            for view in GROUPS[group]
            if naive.canonical(database.rows(group, view, "update=false")) != naive.canonical(old[view.name])
        ]
        ctx.report.check(f"after {how} the indexes answer without an update", not wrong, wrong)
        ctx.report.check(f"after {how} every answer is right", *none(database.differences(docs)))
    database.edit(20)
    ctx.report.check("and they go on", *none(database.differences()))
    server.stop()


def test_clean_up(ctx):
    with ctx.server("tidy") as server:
        database = Database(ctx, server, "tidy", "?q=2")
        for group in ("plain", "reduced"):
            database.put_design(group, group, autoupdate=False)
        database.edit(40)
        view, other = GROUPS["plain"][0], GROUPS["reduced"][0]
        old, kept = database.rows("plain", view), database.rows("reduced", other)
        database.put_design("plain", "plain", autoupdate=False, note="an edit elsewhere")
        same = naive.canonical(database.rows("plain", view, "update=false")) == naive.canonical(old)
        ctx.report.check("an edit elsewhere in the design document builds nothing again", same)
        ctx.report.equal("_view_cleanup answers 202", database.api.post("/tidy/_view_cleanup", {}).status, 202)
        same = [
            naive.canonical(database.rows(name, one, "update=false")) == naive.canonical(rows)
            for name, one, rows in (("plain", view, old), ("reduced", other, kept))
        ]
        ctx.report.equal("it leaves indexes alone that are in use", same, [True, True])
        rev = database.api.expect(200, "GET", "/tidy/_design/plain")["_rev"]
        database.api.expect((200, 202), "DELETE", f"/tidy/_design/plain?rev={rev}")
        ctx.report.equal("a view of a deleted design document is a 404", database.api.get(database.path("plain", "key")).status, 404)
        database.api.expect(202, "POST", "/tidy/_view_cleanup", {})

        def is_gone():
            database.put_design("plain", "plain", autoupdate=False)
            gone = not database.rows("plain", view, "update=false")["rows"]
            rev = database.api.expect(200, "GET", "/tidy/_design/plain")["_rev"]
            database.api.expect((200, 202), "DELETE", f"/tidy/_design/plain?rev={rev}")
            return gone

        ctx.report.check("_view_cleanup drops the index of a deleted design document", wait_until(is_gone, 20, 0.2))
        database.designs.pop("plain")
        ctx.report.check("the other answers as before", *none(database.differences()))
        ctx.report.equal("_compact of a design document answers 202", database.api.post("/tidy/_compact/reduced", {}).status, 202)
        done = wait_until(lambda: not index_info(database, "reduced")["compact_running"], 30)
        ctx.report.check(
            "its compaction ends, and the rows are the same", done and naive.canonical(database.rows("reduced", other)) == naive.canonical(kept)
        )


def test_killed_builds(ctx):
    """kill -9 at a random part of a first build, and of catching up while documents are written."""
    # Each in a database of its own, so that the naive model, in Python, stays faster than the server's patience with connections.
    for part in range(ctx.size(1, 12)):
        killed_builds_of(ctx, f"killed-{part}", ctx.size(2, 5))


def killed_builds_of(ctx, name, kills):
    server = ctx.server("killed").start()
    database = Database(ctx, server, name, "?q=2", queries=ctx.size(QUERIES_AFTER_KILL, QUERIES_AFTER_KILL_SOAK))
    for group in ("plain", "reduced", "whole"):
        database.put_design(group, group)
    for number in range(1, kills + 1):
        label = f"{name}: kill {number}"
        database.edit(ctx.size(150, 500))
        slow = {"views": {"slow": {"map": f"{SLOW_MAP} // {number}", "reduce": "_sum"}}}
        slow_name = f"slow-{number}"
        if database.partitions:
            slow["options"] = {"partitioned": False}
        database.api.expect((201, 202), "PUT", f"/{name}/_design/{slow_name}", slow)
        query = threading.Thread(target=ask_and_forget, args=(server, f"/{name}/_design/{slow_name}/_view/slow"), daemon=True)
        meanwhile = [f"w{number}-{at:02d}" for at in range(WRITTEN_MEANWHILE)]
        writer = threading.Thread(target=write_until_gone, args=(server, name, meanwhile, database.samples.doc(database.ids)), daemon=True)
        query.start()
        if number % 2 == 0:
            writer.start()
        wanted = ctx.random.random() * len(database.ids)
        # Either the build gets as far as that, or it is done and the moment has passed.
        wait_until(lambda: changes_done(database.api, slow_name) >= wanted or not query.is_alive(), 60, 0.005)
        server.kill()
        query.join(30)
        server = ctx.server("killed").start()
        database.api, database.server = server.api(), server
        docs = database.docs()
        ctx.report.check(f"{label}: every view is the naive one afterwards", *none(database.differences(docs)))
        sums = {row["key"]: row["value"] for row in database.api.expect(200, "GET", f"/{name}/_design/{slow_name}/_view/slow?group=true")["rows"]}
        expected = {}
        for doc in docs:
            if "g" in doc:
                expected[doc["g"]] = expected.get(doc["g"], 0) + doc["n"]
        ctx.report.equal(f"{label}: and the one that was being built", sums, expected)
        ctx.report.check(f"{label}: no panic", "panicked" not in server.log(), server.log()[-1500:], quiet=True)
    incremental_is_rebuilt(ctx, database, name)
    server.stop()


def changes_done(api, name):
    tasks = api.expect(200, "GET", "/_active_tasks")
    return sum(task.get("changes_done", 0) for task in tasks if task.get("type") == "indexer" and task.get("design_document") == f"_design/{name}")


def ask_and_forget(server, path):
    try:
        server.api().get(path)
    except Disconnected:
        pass  # the server was killed under it


def write_until_gone(server, name, ids, doc):
    """Creates documents, and edits them until the server is killed."""
    api, revs = server.api(), {}
    try:
        for doc_id in itertools.cycle(ids):
            answer = api.put(f"/{name}/{doc_id}", {**doc, "link": "none", **revs.get(doc_id, {})})
            if answer.status in (201, 202):
                revs[doc_id] = {"_rev": answer.json["rev"]}
    except Disconnected:
        pass  # the server was killed under it

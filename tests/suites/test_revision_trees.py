"""Documents with very many leaf revisions: how many there may be, that others' writes do not wait for them, and what becomes of those that have more."""

import itertools
import threading
import time

import pytest

from harness.api import quote
from harness.prometheus import metrics

pytestmark = pytest.mark.quick

MAX = 40


def limited(ctx, name="limited", max_leaves=MAX):
    return ctx.server(name, options=["--set", f"couchdb/max_document_leaves={max_leaves}"])


def leaf(doc_id, n, generation=1, **more):
    return {"_id": doc_id, "_rev": f"{generation}-{n:032x}", **more}


def replicate_into(api, db, docs):
    return api.expect(201, "POST", f"/{db}/_bulk_docs", {"new_edits": False, "docs": docs})


def leaves_of(api, db, doc_id):
    rows = api.expect(200, "GET", f"/{db}/_changes?style=all_docs")["results"]
    return next((len(row["changes"]) for row in rows if row["id"] == doc_id), 0)


def names_the_setting(error):
    return error["error"] == "forbidden" and "max_document_leaves" in error["reason"]


def test_limit(ctx):
    with limited(ctx) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        docs = [leaf("wide", n) for n in range(2 * MAX)]
        docs.insert(MAX + 5, leaf("other", 1))
        errors = replicate_into(api, "db", docs)
        ctx.report.equal("leaves too many are refused, one by one", len(errors), MAX)
        ctx.report.check("with the limit's name", all(map(names_the_setting, errors)), errors[:1])
        ctx.report.equal("those within it are there", leaves_of(api, "db", "wide"), MAX)
        ctx.report.equal("and so are other documents", api.get("/db/other").status, 200)
        single = api.put("/db/wide?new_edits=false", {"_rev": f"1-{7000:032x}"})
        ctx.report.equal("one alone is a 403", single.status, 403)
        ctx.report.check("with the limit's name", names_the_setting(single.json), single.json)
        again = replicate_into(api, "db", [leaf("wide", n) for n in range(MAX)])
        ctx.report.equal("those that are there are written again", again, [])
        winner = api.expect(200, "GET", "/db/wide")["_rev"]
        ctx.report.equal("the winner can be edited", api.put(f"/db/wide?rev={winner}", {"n": 1}).status, 201)
        ctx.report.equal("a leaf can be deleted", api.delete(f"/db/wide?rev=1-{3:032x}").status, 200)
        ctx.report.equal("a deleted leaf is one, too", len(replicate_into(api, "db", [leaf("wide", 8000)])), 1)
        purged = api.expect(201, "POST", "/db/_purge", {"wide": [f"1-{n:032x}" for n in range(10, 15)]})
        ctx.report.equal("leaves can be purged", len(purged["purged"]["wide"]), 5)
        errors = replicate_into(api, "db", [leaf("wide", 8000 + n) for n in range(7)])
        ctx.report.equal("and make room", len(errors), 2)


def test_documents_with_more_leaves_than_the_limit(ctx):
    with limited(ctx, max_leaves="infinity") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        replicate_into(api, "db", [leaf("wide", n) for n in range(100)])
        api.expect(200, "PUT", "/_node/_local/_config/couchdb/max_document_leaves", "10")
        ctx.report.equal("all leaves can be read", len(api.expect(200, "GET", "/db/wide?conflicts=true")["_conflicts"]), 99)
        ctx.report.equal("no other can come", len(replicate_into(api, "db", [leaf("wide", 500)])), 1)
        docs = [{"_id": "wide", "_rev": f"1-{n:032x}", "_deleted": True} for n in range(95)]
        outcomes = api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        ctx.report.check("most can be deleted at once", all("ok" in outcome for outcome in outcomes), outcomes[:2])
        ctx.report.equal("few conflicts are left", len(api.expect(200, "GET", "/db/wide?conflicts=true")["_conflicts"]), 4)
        tombstones = [row["rev"] for row in api.expect(200, "GET", "/db/_changes?style=all_docs")["results"][0]["changes"]]
        purged = api.expect(201, "POST", "/db/_purge", {"wide": [rev for rev in tombstones if rev.startswith("2-")]})
        ctx.report.equal("and their tombstones purged", len(purged["purged"]["wide"]), 95)
        ctx.report.equal("then there is room again", len(replicate_into(api, "db", [leaf("wide", 900 + n) for n in range(5)])), 0)


def test_replication_continues(ctx):
    with limited(ctx, "source", "infinity") as source, limited(ctx, "target") as target:
        there, here = source.api(), target.api()
        there.expect(201, "PUT", "/db")
        replicate_into(there, "db", [leaf("wide", n) for n in range(MAX + 25)])
        replicate_into(there, "db", [leaf(f"doc{n}", n) for n in range(30)])
        url = source.url.replace("http://", f"http://{source.admin}@")
        done = here.expect(200, "POST", "/_replicate", {"source": f"{url}/db", "target": "db", "create_target": True})
        history = done["history"][0]
        ctx.report.equal("leaves too many are failures of their document", history["doc_write_failures"], 25)
        ctx.report.equal("everything else is written", history["docs_written"], MAX + 30)
        ctx.report.equal("and is there", here.expect(200, "GET", "/db")["doc_count"], 31)
        ctx.report.equal("with as many leaves as there may be", leaves_of(here, "db", "wide"), MAX)


def test_others_write_between_pieces_of_a_bulk(ctx):
    """One bulk of revisions of one document was a single piece of work for the thread that writes for all databases."""
    count = 100_000
    with limited(ctx, max_leaves="infinity") as server:
        api, other = server.api(timeout=600), server.api()
        for db in ("bulk", "other"):
            api.expect(201, "PUT", f"/{db}")
        times, numbers, ended = [], itertools.count(), threading.Event()

        def write():
            while not ended.is_set():
                began = time.monotonic()
                other.expect(201, "PUT", f"/other/d{next(numbers)}", {})
                times.append((began, time.monotonic()))

        writer = threading.Thread(target=write)
        writer.start()
        docs = [leaf("wide", n) for n in range(count)]
        before = long_holds(server)
        began = time.monotonic()
        errors = replicate_into(api, "bulk", docs)
        end = time.monotonic()
        ended.set()
        writer.join()
        within = [1 for start, stop in times if start > began and stop < end]
        ctx.report.equal("the bulk is written", (errors, leaves_of(api, "bulk", "wide")), ([], count))
        ctx.report.check("others wrote meanwhile", len(within) >= 8, len(within))
        # Those of the other writer are short; a single piece of so many edits would be one long one.
        ctx.report.check("it was several pieces", long_holds(server) - before >= 3, long_holds(server) - before)
        winner = max(doc["_rev"] for doc in docs)
        ctx.report.equal("the winner is the highest", api.expect(200, "GET", "/bulk/wide")["_rev"], winner)


def long_holds(server):
    """Batches that the commit thread needed more than 10 ms for."""
    told = metrics(server.api())
    return told("settee_commit_hold_seconds_count") - told("settee_commit_hold_seconds_bucket", le="0.01")


def test_bulks_of_few_documents_with_many_edits(ctx):
    """Edits of a document one after another in one bulk come to the same as one by one."""
    with limited(ctx) as server:
        api = server.api()
        for db in ("bulk", "single"):
            api.expect(201, "PUT", f"/{db}")
            api.expect(200, "PUT", f"/{db}/_revs_limit", 7)
        docs = []
        for n in range(120):
            branch, at = n % 6, n // 6
            ids = [f"{branch:016x}{age:016x}" for age in range(at, -1, -1)][: 1 + n % 9]
            doc = {"_id": f"d{n % 2}", "_revisions": {"start": at + 1, "ids": ids}, "n": n}
            docs.append(doc | ({"_deleted": True} if n % 17 == 0 else {}))
        ctx.report.equal("a bulk is written", replicate_into(api, "bulk", docs), [])
        for doc in docs:
            replicate_into(api, "single", [doc])
        ask = "?open_revs=all&revs=true"
        for doc_id in ("d0", "d1"):
            both = [api.request("GET", f"/{db}/{quote(doc_id)}{ask}", headers={"Accept": "application/json"}).json for db in ("bulk", "single")]
            ctx.report.equal(f"{doc_id} is the same", both[0], both[1])

"""Short requests of readers whose parameters or responses would take many times their length: what is in memory of them is bounded."""

import concurrent.futures
import json
import os
import pathlib
import time

from harness.files import MIB
from harness.server import wait_until
from harness.unread import Unread

MEMBER = "reader:pw"


def member(api, db):
    """A database with a member who is no admin."""
    api.expect((201, 409), "PUT", "/_users/org.couchdb.user:reader", {"name": "reader", "password": "pw", "roles": [], "type": "user"})
    api.expect((201, 202, 412), "PUT", f"/{db}?q=2")
    api.expect(200, "PUT", f"/{db}/_security", {"admins": {"names": []}, "members": {"names": ["reader"]}})


def used(server):
    api = server.api()
    answer = api.expect(200, "GET", "/_node/_local/_system")
    api.close()
    return answer["memory"]["budgets"]["answers"]["used"]


def held_by(server, method, path, body=None, credentials=None):
    """What a response that nobody reads has of the budget, once its first bytes have come; answers its status too."""
    wait_until(lambda: used(server) == 0, 20)
    request = Unread(server, method, path, body, credentials)
    held = used(server)
    request.close()
    return request.status, held


# A parameter of a URL, below the limit of a request's head, in bytes.
PARAMETER_BYTES = 48_000
MANY_QUERIES = 6000
QUERIES_MAX = 10_000


def test_queries_do_not_multiply_the_parameters_of_the_url(ctx):
    """A parameter of the URL applies to each of `queries`: memory is taken for them before they are made."""
    with ctx.server(options=["--set", f"memory/answers={64 * MIB}", "--set", f"memory/limit={2048 * MIB}"]) as server:
        api = server.api()
        member(api, "db")
        api.expect(201, "PUT", "/db/_design/d", {"views": {"v": {"map": "function (doc) { emit(doc._id); }"}}})
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": name} for name in "abcdef"]})
        reader = server.api(credentials=MEMBER)
        key = json.dumps("x" * PARAMETER_BYTES)
        for path in ("/db/_all_docs/queries", "/db/_design/d/_view/v/queries"):
            few = reader.expect(200, "POST", f"{path}?startkey={key}", {"queries": [{}] * 20})
            ctx.report.equal(f"{path}: few are answered", [result["rows"] for result in few["results"]], [[]] * 20)
            before = server.peak_rss_mb()
            refused = reader.post(f"{path}?startkey={key}", {"queries": [{}] * MANY_QUERIES})
            grown = server.peak_rss_mb() - before
            whole = MANY_QUERIES * PARAMETER_BYTES / MIB
            ctx.report.equal(f"{path}: many with a long parameter are refused", (refused.status, refused.json["error"]), (413, "too_large"))
            # A user gets half of the budget.
            ctx.report.check(f"{path}: most are not made", grown < 32 + whole / 4, f"{grown:.0f} MB of {whole:.0f}")
            too_many = reader.post(path, {"queries": [{}] * (QUERIES_MAX + 1)})
            ctx.report.equal(f"{path}: too many are refused", (too_many.status, too_many.json["error"]), (400, "bad_request"))
            ctx.report.check(
                f"{path}: by the name of the member, with the limit", f"`queries` must have at most {QUERIES_MAX}" in too_many.json["reason"]
            )
            check_many_are_as_few(ctx, reader, path)


def check_many_are_as_few(ctx, reader, path):
    """Many queries, which other threads make, have the rows of the same queries one at a time."""
    queries = [{}, {"startkey": "d"}, {"keys": ["b", "none", "a"]}, {"key": "c"}, {"descending": True, "startkey": "e", "endkey": "b"}] * 8
    for url in ("", '?limit=3&keys=["a","b"]', "?skip=1&limit=2"):
        many = reader.expect(200, "POST", path + url, {"queries": queries})["results"]
        single = [reader.expect(200, "POST", path + url, {"queries": [query]})["results"][0] for query in queries]
        ctx.report.equal(f"{path}{url}: many queries are answered as one at a time", many, single)
    wrong = [reader.post(f"{path}?limit=x", {"queries": [{}] * count}) for count in (1, 40)]
    ctx.report.equal(f"{path}: errors of the URL are the same", wrong[1].raw, wrong[0].raw)
    ctx.report.equal(f"{path}: without queries nothing of the URL is read", reader.post(f"{path}?limit=x", {"queries": []}).status, 200)


WIDE_DOCUMENTS = 30


def test_possible_ancestors_are_sent_document_by_document(ctx):
    """`_revs_diff` of documents with many leaves: an unread response holds a document or two of all."""
    leaves = ctx.size(3000, 10_000)
    with ctx.server() as server:
        api = server.api()
        member(api, "wide")
        for number in range(WIDE_DOCUMENTS):
            docs = [{"_id": f"w{number:02}", "_rev": f"1-{leaf:032x}"} for leaf in range(leaves)]
            api.expect(201, "POST", "/wide/_bulk_docs", {"new_edits": False, "docs": docs})
        asked = {f"w{number:02}": ["2-missing", f"1-{number:032x}"] for number in range(WIDE_DOCUMENTS)}
        reader = server.api(credentials=MEMBER)
        whole = reader.post("/wide/_revs_diff", asked)
        ancestors = [f"1-{leaf:032x}" for leaf in range(leaves)]
        wanted = {doc_id: {"missing": ["2-missing"], "possible_ancestors": ancestors} for doc_id in asked}
        text = json.dumps(wanted, separators=(",", ":")).encode() + b"\n"
        ctx.report.check("every possible ancestor is there", whole.raw == text, (whole.status, len(whole.raw), len(text)))
        status, held = held_by(server, "POST", "/wide/_revs_diff", asked, MEMBER)
        ctx.report.equal("it is answered", status, 200)
        most = 6 * len(text) // WIDE_DOCUMENTS
        ctx.report.check("an unread response holds few documents of it", held <= most, f"{held} of {len(text)}, at most {most}")
        many = {**{f"n{number:05}": ["1-a", "1-b"] for number in range(2000)}, **asked}
        found = reader.expect(200, "POST", "/wide/_revs_diff", many)
        ctx.report.check("long requests are answered in their order", list(found) == list(many), len(found))
        ctx.report.equal("each with what is missing", found["n00007"], {"missing": ["1-a", "1-b"]})
        older = reader.expect(200, "POST", "/wide/_missing_revs", many)["missing_revs"]
        ctx.report.equal("also in the older form", older, {doc_id: diff["missing"] for doc_id, diff in found.items()})
        ctx.report.equal("nothing is missing of nothing", reader.post("/wide/_revs_diff", {}).raw, b"{}\n")
        ctx.report.equal("nor in the older form", reader.post("/wide/_missing_revs", {}).raw, b'{"missing_revs":{}}\n')


PURGES = 1000
ID_BYTES = 900


def test_remembered_purges_are_sent_in_pieces(ctx):
    """An unread list of many purges holds a piece of it."""
    with ctx.server() as server:
        api = server.api()
        member(api, "purged")
        api.expect(200, "PUT", "/purged/_purged_infos_limit", 100_000)
        ctx.report.equal("there are none", api.get("/purged/_purged_infos").raw, b'{"purged_infos":[]}\n')
        ids = [f"{number:04}" + "p" * ID_BYTES for number in range(PURGES)]
        rows = api.expect(201, "POST", "/purged/_bulk_docs", {"docs": [{"_id": doc_id} for doc_id in ids]})
        revs = {row["id"]: [row["rev"]] for row in rows}
        for first in range(0, PURGES, 100):
            api.expect(201, "POST", "/purged/_purge", {doc_id: revs[doc_id] for doc_id in ids[first : first + 100]})
        whole = api.get("/purged/_purged_infos")
        infos = whole.json["purged_infos"]
        ctx.report.check("each purge is there once", {info["id"]: info["revs"] for info in infos} == revs and len(infos) == PURGES, len(infos))
        again = json.dumps({"purged_infos": infos}, separators=(",", ":")).encode() + b"\n"
        ctx.report.check("in the form of short ones", whole.raw == again, whole.raw[:200])
        status, held = held_by(server, "GET", "/purged/_purged_infos", None, MEMBER)
        ctx.report.equal("it is answered", status, 200)
        ctx.report.check("an unread list holds less than half of it", held < len(whole.raw) // 2, f"{held} of {len(whole.raw)}")


LONG_ROW_BYTES = 2 * MIB
LONG_ROWS = 60
# A function sends a text of this length at a time.
SENT_BYTES = 2_000_000
LISTS = {
    "first": "function (head, req) { getRow(); send('first'); }",
    "count": "function (head, req) { var n = 0; while (getRow()) n++; send(String(n)); }",
    "long": f"function (head, req) {{ var s = new Array({SENT_BYTES + 1}).join('s'); for (var i = 0; i < 4; i++) send(s); }}",
}
DESIGN = {
    "views": {
        "long": {"map": f"function (doc) {{ if (doc._id === 'long') for (var i = 0; i < {LONG_ROWS}; i++) emit(i, {{_id: 'long'}}); }}"},
        "short": {"map": "function (doc) { if (doc._id === 'long') for (var i = 0; i < 250; i++) emit(i); }"},
    },
    "lists": LISTS,
}


def test_lists_fetch_few_long_rows(ctx):
    """However many rows a view has, a list function has about one long row ahead."""
    with ctx.server() as server:
        api = server.api()
        member(api, "listed")
        api.expect(201, "PUT", "/listed/_design/d", DESIGN)
        api.expect(201, "PUT", "/listed/long", {"a": "x" * LONG_ROW_BYTES})
        api.expect(200, "GET", "/listed/_design/d/_view/short?limit=1")
        reader = server.api(credentials=MEMBER)
        path = "/listed/_design/d/_list/first/long?include_docs=true"
        # The buffers of one long row are there from now on.
        ctx.report.equal("one row", reader.get(f"{path}&limit=1").raw, b"first")
        before = server.peak_rss_mb()
        ctx.report.equal("many rows, of which one is used", reader.get(path).raw, b"first")
        grown, whole = server.peak_rss_mb() - before, LONG_ROWS * LONG_ROW_BYTES / MIB
        ctx.report.check("the others are not fetched", grown < whole / 2, f"{grown:.0f} MB of {whole:.0f}")
        for rows in ("short", "short?limit=100", "short?limit=101", "long?limit=3&include_docs=true"):
            wanted = len(reader.expect(200, "GET", f"/listed/_design/d/_view/{rows}")["rows"])
            ctx.report.equal(f"a list has every row of {rows}", reader.get(f"/listed/_design/d/_list/count/{rows}").raw, str(wanted).encode())


def test_what_lists_send_is_counted(ctx):
    """Long texts of list functions that nobody reads are in the table of budgets, until their client is gone."""
    with ctx.server() as server:
        api = server.api()
        member(api, "listed")
        api.expect(201, "PUT", "/listed/_design/d", DESIGN)
        api.expect(200, "GET", "/listed/_design/d/_view/short?limit=1")
        path = "/listed/_design/d/_list/long/short"
        whole = server.api(credentials=MEMBER).get(path)
        ctx.report.check("all of it is sent", whole.raw == b"s" * (4 * SENT_BYTES), (whole.status, len(whole.raw)))
        wait_until(lambda: used(server) == 0, 20)
        request = Unread(server, "GET", path, None, MEMBER)
        counted = wait_until(lambda: used(server) >= SENT_BYTES, 20)
        ctx.report.check("what waits is counted", counted, used(server))
        ctx.report.check("and is not all of it", used(server) < 4 * SENT_BYTES, used(server))
        request.close()
        ctx.report.check("until its client is gone", wait_until(lambda: used(server) == 0, 20), used(server))


KEYED = {
    "views": {
        "v": {"map": "function (doc) { emit(doc.n % 10, doc.n); }"},
        "c": {"map": "function (doc) { emit(doc.n % 10, null); }", "reduce": "_count"},
        "custom": {
            "map": "function (doc) { emit(doc.n % 10, null); }",
            "reduce": "function (keys, values, re) { return re ? sum(values) : values.length; }",
        },
    },
    "lists": LISTS,
}
KEYED_VIEW = "/keyed/_design/d/_view"


def keyed(server):
    """A database whose view has rows of ten keys, as one of its members sees it."""
    api = server.api()
    member(api, "keyed")
    api.expect(201, "PUT", "/keyed/_design/d", KEYED)
    api.expect(201, "POST", "/keyed/_bulk_docs", {"docs": [{"_id": f"{number:03}", "n": number} for number in range(100)]})
    api.expect(200, "GET", f"{KEYED_VIEW}/v?limit=1")
    return server.api(credentials=MEMBER, timeout=300)


def test_many_keys_have_the_rows_of_few(ctx):
    """Keys that no row has, even thousands, change nothing about the rows of the others."""
    with ctx.server() as server:
        reader = keyed(server)
        few = [3, 3, 12, 5]
        many = few + list(range(1000, 4000)) + few
        for options in ("", "?descending=true", "?include_docs=true"):
            wanted = reader.expect(200, "POST", f"{KEYED_VIEW}/v{options}", {"keys": few})
            found = reader.expect(200, "POST", f"{KEYED_VIEW}/v{options}", {"keys": many})
            ctx.report.equal(f"rows of many keys{options}", found, {**wanted, "rows": wanted["rows"] * 2})
            asked = {"queries": [{"keys": many}, {"keys": few}, {"key": 3}, {"keys": many}]}
            results = reader.expect(200, "POST", f"{KEYED_VIEW}/v/queries{options}", asked)["results"]
            ctx.report.equal(f"as one of several queries{options}", [results[0], results[1], results[3]], [found, wanted, found])
        rows = reader.expect(200, "POST", f"{KEYED_VIEW}/v", {"keys": few})["rows"]
        skipped = reader.expect(200, "POST", f"{KEYED_VIEW}/v?skip={len(rows)}", {"keys": many})["rows"]
        ctx.report.equal("rows before the long list are skipped", skipped, rows)
        counted = reader.post("/keyed/_design/d/_list/count/v", {"keys": many})
        ctx.report.equal("a list function gets all of them", counted.raw, str(2 * len(rows)).encode())
        for view in ("c", "custom"):
            wanted = reader.expect(200, "POST", f"{KEYED_VIEW}/{view}?group=true", {"keys": few})["rows"]
            found = reader.expect(200, "POST", f"{KEYED_VIEW}/{view}?group=true", {"keys": many})["rows"]
            ctx.report.equal(f"groups of {view}", found, wanted * 2)
        listed = reader.expect(200, "POST", "/keyed/_all_docs", {"keys": ["003", *map(str, range(1000, 12_000)), "005"]})["rows"]
        ctx.report.equal("long lists of ids have a row each", [listed[0]["id"], len(listed), listed[-1]["id"]], ["003", 11_002, "005"])


def test_searches_for_many_keys_give_way(ctx):
    """While more queries than cores search for keys that no row has, other requests are answered."""
    queries = 2 * os.cpu_count()
    with ctx.server() as server, concurrent.futures.ThreadPoolExecutor(queries) as threads:
        # Each key is searched for in every shard.
        server.api().expect(201, "PUT", "/keyed?q=64")
        keyed(server)
        # Short, so that most of the time is that of the searches.
        body = json.dumps({"keys": list(range(1000, 1000 + ctx.size(15_000, 400_000)))}).encode()

        def ask(_):
            return server.api(credentials=MEMBER, timeout=600).post(f"{KEYED_VIEW}/v?limit=1", body)

        began = time.monotonic()
        asked = [threads.submit(ask, number) for number in range(queries)]
        api, longest = server.api(timeout=600), 0
        while not all(answer.done() for answer in asked):
            before = time.monotonic()
            api.expect(200, "GET", "/_up")
            longest = max(longest, time.monotonic() - before)
            # More often would take the searches' processors.
            time.sleep(0.01)
        whole = time.monotonic() - began
        for answer in asked:
            found = answer.result()
            ctx.report.equal("no rows, after all others", (found.status, found.json["rows"], found.json["offset"]), (200, [], 100))
        ctx.report.check("no other request waits for the searches", longest < whole / 4, f"{longest:.2f} s of {whole:.2f} s")


DELETED_MAX = 10_000


def test_deletions_of_indexes_are_limited(ctx):
    """One request deletes the indexes of a limited number of design documents. The results are in reverse order, as in CouchDB."""
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/indexes")
        for name in ("a", "b"):
            api.expect(200, "POST", "/indexes/_index", {"index": {"fields": [name]}, "ddoc": name, "name": name})
        path = "/indexes/_index/_bulk_delete"
        done = api.expect(200, "POST", path, {"docids": ["a", "none", "b", "nobody"]})
        listed = {kind: [row["id"] for row in done[kind]] for kind in ("success", "fail")}
        ctx.report.equal("in their order", listed, {"success": ["_design/b", "_design/a"], "fail": ["_design/nobody", "_design/none"]})
        many = api.expect(200, "POST", path, {"docids": [f"x{number}" for number in range(DELETED_MAX)]})
        ctx.report.equal("as many as are allowed", len(many["fail"]), DELETED_MAX)
        refused = api.post(path, {"docids": [f"x{number}" for number in range(DELETED_MAX + 1)]})
        ctx.report.equal("more are refused", (refused.status, refused.json["error"]), (400, "bad_request"))
        ctx.report.check(
            "by the name of the member, with the limit", f"`docids` must have at most {DELETED_MAX}" in refused.json["reason"], refused.json
        )


def test_indexes_of_a_design_document_are_deleted_in_one_write(ctx):
    """However many indexes a design document has, their deletion writes it once, also if others are deleted before."""
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/indexes")
        names = [f"i{number}" for number in range(10)]
        for ddoc in ("all", "some"):
            for name in names:
                api.expect(200, "POST", "/indexes/_index", {"index": {"fields": [name]}, "ddoc": ddoc, "name": name})
        some = api.expect(200, "GET", "/indexes/_design/some")
        api.expect(201, "PUT", "/indexes/_design/some", {**some, "other": {"member": 1}})
        done = api.expect(200, "POST", "/indexes/_index/_bulk_delete", {"docids": ["all", "some", "all"]})
        listed = {kind: [row["id"] for row in done[kind]] for kind in ("success", "fail")}
        ctx.report.equal("each once", listed, {"success": ["_design/some", "_design/all"], "fail": ["_design/all"]})
        rows = {row["id"]: row for row in api.expect(200, "GET", "/indexes/_changes")["results"]}
        edits = {name: int(rows[f"_design/{name}"]["changes"][0]["rev"].split("-")[0]) for name in ("all", "some")}
        # Each index was a write, and so was the other member.
        ctx.report.equal("in one write", edits, {"all": len(names) + 1, "some": len(names) + 2})
        left = api.expect(200, "GET", "/indexes/_design/some")
        ctx.report.equal("other members stay", sorted(left), ["_id", "_rev", "language", "other"])
        indexes = api.expect(200, "GET", "/indexes/_index")["indexes"]
        ctx.report.equal("no index is left", [index["name"] for index in indexes], ["_all_docs"])


# One piece of a count has about 4,000 documents.
COUNTED = 20_000


def turns_apart(server):
    """How often the threads for long work have waited for work."""
    turns = 0
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        try:
            status = dict(line.split(":", 1) for line in (task / "status").read_text(encoding="ascii").splitlines())
        except OSError:
            continue
        if status["Name"].strip() == "apart":
            turns += int(status["voluntary_ctxt_switches"])
    return turns


def test_partitions_are_counted_in_pieces(ctx):
    """The counts of a long partition are those of its documents. Other threads than those that serve count it."""
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/db?q=1&partitioned=true")
        for first in range(0, COUNTED, 5000):
            docs = [{"_id": f"long:{number:06}", "n": 1, "_deleted": number % 4 == 0} for number in range(first, first + 5000)]
            api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        short = [{"_id": f"short:{number:05}", "n": 1, "_deleted": number % 4 == 0} for number in range(4)]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": short})
        few = api.expect(200, "GET", "/db/_partition/short")
        ctx.report.equal("a short partition", (few["doc_count"], few["doc_del_count"]), (3, 1))
        before = turns_apart(server)
        many = api.expect(200, "GET", "/db/_partition/long")
        ctx.report.equal("a long partition", (many["doc_count"], many["doc_del_count"]), (COUNTED * 3 // 4, COUNTED // 4))
        sizes = {name: size * COUNTED // 4 for name, size in few["sizes"].items()}
        ctx.report.equal("has the sizes of a short one, times its length", many["sizes"], sizes)
        # They wait again once they have counted.
        ctx.report.check("other threads count it", wait_until(lambda: turns_apart(server) > before, 20))


def test_full_partitions_refuse_long_requests(ctx):
    """A request with many documents of a full partition is refused document by document; others have room."""
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/db?q=1&partitioned=true")
        for first in (0, 5000):
            docs = [{"_id": f"full:{number:05}", "n": 1} for number in range(first, first + 5000)]
            api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        api.expect(200, "PUT", "/_node/_local/_config/couchdb/max_partition_size", "50000")
        docs = [{"_id": f"{partition}:x{number:05}", "n": 1} for number in range(1000) for partition in ("full", "other")]
        done = api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        refused = [row["id"] for row in done if row.get("error") == "partition_overflow"]
        ctx.report.equal("documents of the full partition", refused, [doc["_id"] for doc in docs if doc["_id"].startswith("full:")])
        ctx.report.equal("of the other one", sum(row.get("ok", False) for row in done), 1000)


# A name of this length for each of these values was 2 GB of fields.
LITERAL_NAME_BYTES, LITERAL_VALUES = 50_000, 40_000
NESTED, POSITIONS = 1000, 24


def test_literals_of_selectors_are_not_multiplied_for_text_indexes(ctx):
    """Short selectors that stand for many long fields of a text index: they are explained and answered in little memory."""
    with ctx.server() as server:
        api = server.api()
        member(api, "db")
        long = "k" * LITERAL_NAME_BYTES
        api.expect(201, "PUT", "/db/long", {"a": {long: [1] * 10}})
        api.expect(201, "PUT", "/db/short", {"a": [1, 2], "b": 2})
        for fields in ([], [{"name": "a", "type": "number"}]):
            api.expect(200, "POST", "/db/_index", {"type": "text", "ddoc": f"d{len(fields)}", "name": "t", "index": {"fields": fields}})
        reader = server.api(credentials=MEMBER)
        nested, positions = [1], {"$eq": 1}
        for _ in range(NESTED // 2):
            nested = [nested]
        for _ in range(POSITIONS):
            positions = {"$elemMatch": {"0": positions}}
        hostile = {
            "a long name": {"a": {"$eq": {long: [1] * LITERAL_VALUES}}},
            "arrays in arrays": {"a": {"$eq": nested}},
            "positions": {"a": positions},
        }
        for name, selector in hostile.items():
            for design in ("d0", "d1"):
                before = server.peak_rss_mb()
                body = {"selector": selector, "use_index": design}
                explained = reader.expect(200, "POST", "/db/_explain", body)
                reader.expect(200, "POST", "/db/_find", body)
                grown = server.peak_rss_mb() - before
                ctx.report.check(f"{name}, {design}: little memory", grown < 200, f"{grown:.0f} MB")
                # Arrays in arrays become one list of conditions.
                if explained["index"]["type"] == "text" and name != "arrays in arrays":
                    ctx.report.equal(f"{name}, {design}: the query is of all documents", explained["query"], "*:*")
        # What matches is found nevertheless.
        for selector, wanted in (({"a": {"$eq": {long: [1] * 10}}}, ["long"]), ({"a": [1, 2], "b": {"$in": list(range(3000))}}, ["short"])):
            found = reader.expect(200, "POST", "/db/_find", {"selector": selector, "use_index": "d0"})["docs"]
            ctx.report.equal("documents are found", [doc["_id"] for doc in found], wanted)


IDS_MAX = 1000
SINCE_MAX = 10_000


def test_lists_of_a_feed_and_of_atts_since_are_limited(ctx):
    """A feed keeps its ids, and the read of a document its revisions, as long as the client takes nothing."""
    with ctx.server(options=["--set", f"limits/max_keys={IDS_MAX}"]) as server:
        api = server.api()
        member(api, "db")
        rev = api.expect(201, "PUT", "/db/d7", {"n": 1})["rev"]
        reader = server.api(credentials=MEMBER)
        # Long ones are read by other threads.
        for length in (10, 200):
            ids = [f"d{n}".ljust(length, "x") if n != 7 else "d7" for n in range(IDS_MAX)]
            changes = reader.expect(200, "POST", "/db/_changes?filter=_doc_ids", {"doc_ids": ids})["results"]
            ctx.report.equal(f"the changes of ids of {length} bytes", [row["id"] for row in changes], ["d7"])
            refused = reader.post("/db/_changes?filter=_doc_ids", {"doc_ids": [*ids, "more"]})
            ctx.report.equal("more are refused", (refused.status, refused.json["error"]), (413, "too_large"))
            ctx.report.check("by the name of the limit", "max_keys" in refused.json["reason"], refused)
        for pad in ("", "x" * 200_000):
            wrong = reader.post("/db/_changes?filter=no/such", {"a": pad})
            answer = (wrong.status, wrong.json["error"], wrong.json["reason"])
            ctx.report.equal("a missing filter is found missing whatever the body is", answer, (404, "not_found", "missing"))
        results = []
        for count in (1, SINCE_MAX, SINCE_MAX + 1):
            since = [f"1-{n:032x}" for n in range(count)]
            body = {"docs": [{"id": "d7", "rev": rev, "atts_since": since}, {"id": "d7"}]}
            read = reader.expect(200, "POST", "/db/_bulk_get", body)["results"]
            results.append([doc["docs"][0] for doc in read])
        ctx.report.equal("as many as may be change nothing", results[1], results[0])
        (refused, other), error = results[2], {"error": "bad_request", "reason": f"`atts_since` must have at most {SINCE_MAX} revisions"}
        ctx.report.equal("more are refused for their document", refused, {"error": {"id": "d7", "rev": rev, **error}})
        ctx.report.equal("others are read", other["ok"]["n"], 1)
        many = reader.expect(200, "POST", "/db/_bulk_get", {"docs": [0] * 100_000})["results"]
        few = reader.expect(200, "POST", "/db/_bulk_get", {"docs": [0]})["results"]
        ctx.report.equal("many elements are answered as few are", (len(many), many[-1]), (100_000, few[0]))


READS = 60


def apart_switches(server):
    """How often the threads for slow reads got a processor and left it."""
    switches = 0
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        try:
            status = (task / "status").read_text(encoding="ascii")
        except OSError:
            continue
        if status.startswith("Name:\tapart\n"):
            switches += sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)
    return switches


def test_reads_of_all_ancestors_leave_the_threads_that_serve_requests(ctx):
    """`revs_info` reads a row for each ancestor: other threads do that, whatever the reads before took."""
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        rev = api.expect(201, "PUT", "/db/x", {"n": 1})["rev"]
        found = api.expect(200, "GET", "/db/x?revs_info=true")
        ctx.report.equal("the ancestors are named", found["_revs_info"], [{"rev": rev, "status": "available"}])
        before = apart_switches(server)
        for _ in range(READS):
            api.expect(200, "GET", "/db/x?x=1")
        plain = apart_switches(server) - before
        ctx.report.check("reads of the winner need no other thread", plain < READS // 2, plain)
        for query in ("revs_info=true", "meta=true", "open_revs=[]&meta=true", f'open_revs=["{rev}"]&revs_info=true', "open_revs=all&meta=true"):
            before = apart_switches(server)
            # The second read is fast, and must not be taken for one of the first kind.
            statuses = {api.get(f"/db/x?{parameters}").status for _ in range(READS) for parameters in (query, "x=1")}
            apart = apart_switches(server) - before
            ctx.report.equal(f"{query}: it is answered", statuses, {200})
            ctx.report.check(f"{query}: other threads read", apart >= READS // 2, apart)


def test_long_view_keys_leave_the_threads_that_serve_requests(ctx):
    """Other threads write the sort keys of long keys; short bodies, which are parsed where they arrive, can have these too."""
    with ctx.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/db/_design/d", {"views": {"v": {"map": "function (doc) { emit(doc.k, 1); }"}}})
        long = "x" * 40_000
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": "long", "k": long}, {"_id": "short", "k": "x"}]})
        view = "/db/_design/d/_view/v"
        ctx.report.equal("the view has both", len(api.expect(200, "GET", view)["rows"]), 2)
        switches = {}
        for name, key in (("short", "x"), ("long", long)):
            before = apart_switches(server)
            answers = [api.expect(200, "POST", f"{view}?update=false", {"key": key})["rows"] for _ in range(READS)]
            switches[name] = apart_switches(server) - before
            ctx.report.equal(f"{name}: the row is found", {tuple(row["id"] for row in rows) for rows in answers}, {(name,)})
        ctx.report.check("a short key needs no other thread", switches["short"] < READS // 2, switches)
        ctx.report.check("a long key is read by other threads", switches["long"] >= READS // 2, switches)
        reversed_range = {"startkey": "b" * 35_000, "endkey": "a" * 35_000}
        refused = api.expect(400, "POST", f"{view}?update=false", reversed_range)
        ctx.report.equal("a reversed range is refused", refused["error"], "query_parse_error")
        between = {"startkey": long, "endkey": long + "x"}
        rows = api.expect(200, "POST", f"{view}?update=false", between)["rows"]
        ctx.report.equal("a range is read", [row["id"] for row in rows], ["long"])

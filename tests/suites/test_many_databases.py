"""Many small databases in one store, and many small text indexes: what they cost in memory and at a restart."""

import concurrent.futures

from harness.prometheus import metrics
from harness.server import wait_until

DOCUMENTS = 5
WRITERS = 8
SAMPLES = 40
# What 10,000 text indexes that nobody uses may take of memory, in MB.
IDLE_INDEXES, IDLE_MB = 10_000, 100
# The memory of a short run is mostly what the allocator keeps. It is checked that of three times as many indexes hardly more shards have files in memory.
MAPPED_SLACK = 20
# Resident memory that changes by less for so long rests.
REST_S, REST_MB = 25, 3
# The shards of each.
SHARDS = 2


def test_many_databases(ctx):
    count = ctx.size(400, 20_000)
    names = [f"many-{number:05d}" for number in range(count)]
    server = ctx.server().start()
    fill(server, names)
    ctx.report.note(f"{count} databases of {DOCUMENTS} documents: {server.rss_mb():.0f} MB resident, {server.peak_rss_mb():.0f} MB at the peak")
    check_all(ctx, server, names, "after writing")
    check_long_answers(ctx, server, names)
    ctx.report.equal("a clean stop exits with 0", server.stop(), 0)

    server = ctx.server().start()
    ctx.report.note(f"restart after a clean stop: {server.start_seconds:.2f} s, {server.rss_mb():.0f} MB resident")
    check_all(ctx, server, names, "after a clean stop")
    delete_every_other(ctx, server, names)
    server.kill()

    server = ctx.server().start()
    ctx.report.note(f"restart after kill -9: {server.start_seconds:.2f} s, {server.rss_mb():.0f} MB resident")
    check_all(ctx, server, names[1::2], "after deleting every other one and kill -9")
    compact_gives_space_back(ctx, server, names[1::2])
    server.stop()


def each(server, names, work):
    """Runs `work(api, name)` for all names on some connections."""

    def share(at):
        api = server.api()
        results = [work(api, name) for name in names[at::WRITERS]]
        api.close()
        return results

    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        return [result for results in pool.map(share, range(WRITERS)) for result in results]


def fill(server, names):
    def create(api, name):
        api.expect((201, 202), "PUT", "/" + name)
        api.expect(201, "POST", f"/{name}/_bulk_docs", {"docs": [{"_id": f"d{at}", "in": name} for at in range(DOCUMENTS)]})

    each(server, names, create)


def check_all(ctx, server, names, when):
    api, report = server.api(), ctx.report
    listed = [name for name in api.expect(200, "GET", "/_all_dbs") if not name.startswith("_")]
    report.equal(f"{when}: _all_dbs lists them in order", listed, names)
    wrong = []
    for name in ctx.random.sample(names, SAMPLES):
        answer = api.expect(200, "GET", f"/{name}/_all_docs?include_docs=true")
        bodies = [(row["id"], row["doc"]["in"]) for row in answer["rows"]]
        if bodies != [(f"d{at}", name) for at in range(DOCUMENTS)] or answer["total_rows"] != DOCUMENTS:
            wrong.append(f"{name}: {answer}")
    report.check(f"{when}: each holds its own documents", not wrong, "\n".join(wrong[:3]))
    page = api.expect(200, "POST", "/_dbs_info", {"keys": names[:100]})
    report.equal(f"{when}: _dbs_info counts them", {info["info"]["doc_count"] for info in page}, {DOCUMENTS})


def check_long_answers(ctx, server, names):
    """Answers about all databases are made in pieces, as the client takes them; short ones have a length and an ETag."""
    api, report = server.api(), ctx.report

    def form(answer):
        return answer.status, "Transfer-Encoding" in answer.headers, "Content-Length" in answer.headers

    infos = api.get("/_dbs_info?startkey=%22many%22")
    report.equal("_dbs_info of all is sent in pieces", form(infos), (200, True, False))
    report.equal("and complete", [(info["key"], info["info"]["doc_count"]) for info in infos.json], [(name, DOCUMENTS) for name in names])
    some = names[:3]
    expected = [info for info in infos.json if info["key"] in some]
    few = api.get(f"/_dbs_info?startkey=%22many%22&endkey=%22{some[-1]}%22")
    report.equal("of few it has a length", form(few), (200, False, True))
    report.equal("and the same elements", few.json, expected)
    again = api.get(f"/_dbs_info?startkey=%22many%22&endkey=%22{some[-1]}%22", headers={"If-None-Match": few.headers["ETag"]})
    report.equal("and an ETag", again.status, 304)
    report.equal("of none it is empty", api.get("/_dbs_info?key=%22nosuch%22").raw, b"[]\n")
    posted = api.post("/_dbs_info", {"keys": [*some, "nosuch", 7]})
    report.equal("of keys", posted.json, [*expected, {"key": "nosuch", "error": "not_found"}, {"key": 7, "error": "not_found"}])
    wanted = sorted((kind, name) for kind in ("created", "updated") for name in names)
    seen = []

    def is_complete():
        seen[:] = [api.get("/_db_updates")]
        rows = [(row["type"], row["db_name"]) for row in seen[0].json["results"]]
        return sorted(row for row in rows if row[1].startswith("many-")) == wanted

    report.check("_db_updates has the events of all", wait_until(is_complete, 60))
    report.equal("and is sent in pieces", form(seen[0]), (200, True, False))
    report.equal("up to its end", api.expect(200, "GET", f"/_db_updates?since={seen[0].json['last_seq']}")["results"], [])
    api.close()


def delete_every_other(ctx, server, names):
    statuses = each(server, names[::2], lambda api, name: api.delete("/" + name).status)
    ctx.report.check("every other database can be deleted", set(statuses) <= {200, 202}, set(statuses))
    gone = server.api().get("/" + names[0])
    ctx.report.equal("a deleted one is a 404", gone.status, 404)
    server.api().expect((201, 202), "PUT", "/" + names[0])
    ctx.report.equal("made again it is empty", server.api().expect(200, "GET", "/" + names[0])["doc_count"], 0)
    server.api().expect((200, 202), "DELETE", "/" + names[0])


def compact_gives_space_back(ctx, server, names):
    api = server.api()
    ctx.report.equal("_compact answers 202", api.post(f"/{names[0]}/_compact").status, 202)
    done = wait_until(lambda: not api.expect(200, "GET", f"/{names[0]}")["compact_running"], 60)
    ctx.report.check("compaction ends", done)


def test_idle_text_indexes(ctx):
    """Each database has a small text index that was built and asked once. Then nobody uses them: more of them hardly take more."""
    report, sizes = ctx.report, ctx.size((50, 150), (IDLE_INDEXES // 4, IDLE_INDEXES))
    names = [f"text-{number:05d}" for number in range(sizes[-1])]
    # More have to be closed than may be open, so few get little room.
    options = [] if ctx.soak else ["--set", "memory/open_databases=2097152"]
    with ctx.server("texts", options=options) as server:
        fill(server, names)
        settle(server)
        before, built, costs, mapped = server.rss_mb(), 0, [], []
        texts = {"nouveau": {"words": {"index": 'function (doc) { index("text", "in", doc.in); }'}}}

        def build(api, name):
            api.expect(201, "PUT", f"/{name}/_design/d", texts)
            return search(api, name)

        for count in sizes:
            found = each(server, names[built:count], build)
            report.equal("each index finds all documents of its database", set(found), {DOCUMENTS})
            report.note(f"{count} text indexes: {server.rss_mb():.0f} MB resident when they are built, {before:.0f} MB before")
            settle(server)
            built = count
            if ctx.soak:
                rest(server)
            if mapped:
                # Databases that nobody uses are closed one after another.
                wait_until(lambda: shards_of(mapped_files(server)) <= mapped[0] + MAPPED_SLACK, 60, 0.5)
            costs.append(server.rss_mb() - before)
            still_open, files = metrics(server.api())("settee_text_indexes_open"), mapped_files(server)
            of_shards = shards_of(files)
            report.note(
                f"idle: {costs[-1]:.1f} MB more than before, {still_open:.0f} of them open; {len(files)} files of {of_shards} shards"
                f" are mapped, {server.mapped_mb():.1f} MB are pages of files"
            )
            mapped.append(of_shards)
            report.check("only what is open has its files mapped", of_shards <= still_open * SHARDS, (of_shards, still_open))
        each_kb = (costs[1] - costs[0]) * 1024 / (sizes[1] - sizes[0])
        report.note(f"each idle text index more takes {each_kb:.1f} KB")
        report.check("of more indexes hardly more have their files mapped", mapped[1] <= mapped[0] + MAPPED_SLACK, mapped)
        if ctx.soak:
            most_kb = IDLE_MB * 1024 / IDLE_INDEXES
            report.check(f"that is at most {most_kb:.0f} KB", each_kb <= most_kb, each_kb)
            report.check(f"{IDLE_INDEXES} idle text indexes take at most {IDLE_MB} MB", costs[-1] <= IDLE_MB, costs)
        again = each(server, ctx.random.sample(names, SAMPLES), search)
        report.equal("one that is asked again finds the same", set(again), {DOCUMENTS})


def search(api, name):
    """How many documents the index of a database finds; all of it have its number."""
    number = name.rpartition("-")[2]
    return api.expect(200, "GET", f"/{name}/_design/d/_nouveau/words?q=in:{number}")["total_hits"]


def settle(server):
    """Waits until nothing is built and what is open is within its budget, as often as it takes for that to stay so."""
    api, well = server.api(), 0

    def is_quiet():
        nonlocal well
        system = api.expect(200, "GET", "/_node/_local/_system")
        opened = system["memory"]["budgets"]["open_databases"]
        is_within = opened["used"] <= opened["budget"]
        well = well + 1 if is_within and system["databases_to_index"] == 0 and not api.expect(200, "GET", "/_active_tasks") else 0
        return well >= 6

    if not wait_until(is_quiet, 300, 0.4):
        raise AssertionError("the server does not come to rest")
    api.close()


def rest(server):
    """Waits until the server has given back memory that is free, of which the allocator keeps some for ten seconds, then less and less."""
    seen = []

    def is_at_rest():
        seen.append(server.rss_mb())
        return len(seen) > REST_S and min(seen[-REST_S:]) > max(seen[-REST_S:]) - REST_MB

    wait_until(is_at_rest, 120, 1)


def shards_of(files):
    return len({file.partition("/")[0] for file in files})


def mapped_files(server):
    """Files of text indexes that are in the server's memory, below their folder: no descriptor is open for them."""
    with open(f"/proc/{server.process.pid}/maps", encoding="utf-8") as maps:
        parts = [line.rstrip("\n").partition("/store/text/") for line in maps]
    return {file for _, found, file in parts if found}

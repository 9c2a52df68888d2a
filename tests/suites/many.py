"""Many small databases in one store: what they cost in memory and at a restart."""

import concurrent.futures

from harness.server import wait_until

DOCUMENTS = 5
WRITERS = 8
SAMPLES = 40


def run(ctx):
    count = ctx.size(2000, 20_000)
    names = [f"many-{number:05d}" for number in range(count)]
    server = ctx.server().start()
    fill(server, names)
    ctx.report.note(f"{count} databases of {DOCUMENTS} documents: {server.rss_mb():.0f} MB resident, {server.peak_rss_mb():.0f} MB at the peak")
    check_all(ctx, server, names, "after writing")
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

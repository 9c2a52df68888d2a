"""Replications that are interrupted: kill -9 of either side at random moments, a peer that vanishes, connections that are
cut and garbled. Nothing is lost, little is repeated, and no checkpoint claims what is not there."""

import threading

from harness.api import Disconnected
from harness.flaky import FlakyProxy
from harness.leaves import same_leaves
from harness.replications import fill, tangle
from harness.server import wait_until

# Quick to notice, quick to try again; what CouchDB's defaults wait seconds for takes milliseconds here.
OPTIONS = [
    text
    for option in ("startup_jitter=0", "connection_timeout=2000", "checkpoint_interval=100", "worker_batch_size=50", "retries_per_request=10")
    for text in ("--set", f"replicator/{option}")
]
# A replication as one request takes as long as it does.
ANSWER_TIMEOUT_S = 300


def with_admin(url):
    return url.replace("http://", "http://admin:admin@")


def test_killed(ctx):
    """A continuous replication, restarted by its document; writers on the source; either server killed at random moments."""
    rounds = ctx.size(6, 50)
    source = ctx.server("source", options=OPTIONS).start()
    target = ctx.server("target", options=OPTIONS).start()
    for server in (source, target):
        server.port = int(server.url.rsplit(":", 1)[1])
    source_api, target_api = source.api(), target.api()
    source_api.expect(201, "PUT", "/db")
    target_api.expect(201, "PUT", "/db")
    tangle(source_api, "db")
    doc = {"source": f"{with_admin(source.url)}/db", "target": f"{with_admin(target.url)}/db", "continuous": True}
    target_api.expect(201, "PUT", "/_replicator/killed", doc)
    written = checked = 0
    victims = [source, target] * (rounds // 2)
    ctx.random.shuffle(victims)
    for number, victim in enumerate(victims):
        batch = ctx.random.randint(500, 3000)
        fill(source_api, "db", batch, f"r{number:02}-")
        written += batch
        wanted = ctx.random.randint(0, batch)
        has = lambda: target_api.request("GET", "/db").json["doc_count"] >= written - batch + wanted
        ctx.report.check(f"round {number + 1}: it goes on", wait_until(has, timeout_s=60), quiet=True)
        if victim is target:
            # The counts go with the process.
            checked += looked_at(target_api)
        victim.kill()
        victim.start()
        source_api, target_api = source.api(), target.api()
        caught_up = lambda: target_api.request("GET", "/db").json["doc_count"] == source_api.request("GET", "/db").json["doc_count"]
        done = ctx.report.check(
            f"round {number + 1}: after kill -9 of the {'source' if victim is source else 'target'} it catches up",
            wait_until(caught_up, timeout_s=60),
            f"{source_api.request('GET', '/db').json}\n{target_api.request('GET', '/db').json}\n{target_api.request('GET', '/_scheduler/docs').json}",
            quiet=ctx.soak,
        )
        if not done:
            break
        row = target_api.request("GET", "/_scheduler/docs/_replicator/killed").json
        ctx.report.equal(f"round {number + 1}: the job did not give up", row["error_count"], 0, quiet=True)
    checked += looked_at(target_api)
    same_leaves(ctx.report, f"after {rounds} kills every leaf is on both sides", (source_api, "db"), (target_api, "db"))
    # Beginning anew after each kill looks at 3.5 times as many in six rounds, which may all end before a checkpoint, and at ten
    # times as many in fifty.
    ctx.report.check(
        "little is repeated", written // 2 < checked < ctx.size(4, 3) * written, f"{checked} revisions looked at, {written} documents written"
    )
    ctx.report.note(f"{written} documents, {checked} revisions looked at through {rounds} kills")
    for server in (source, target):
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-2000:])
        server.stop()


def looked_at(api):
    """Revisions that the job has asked the target about since the target was started."""
    info = api.request("GET", "/_scheduler/docs/_replicator/killed").json.get("info") or {}
    return info.get("revisions_checked", 0)


def test_vanished(ctx):
    """The other server is away for a while in the middle of one request of `_replicate`."""
    with ctx.server("asked", options=OPTIONS) as asked:
        other = ctx.server("other", options=OPTIONS).start()
        other.port = int(other.url.rsplit(":", 1)[1])
        api = asked.api()
        for end in (api, other.api()):
            end.expect(201, "PUT", "/db")
        fill(other.api(), "db", 20_000)
        answers = []
        request = {"source": f"{with_admin(other.url)}/db", "target": "db"}
        asking = threading.Thread(target=lambda: answers.append(asked.api(ANSWER_TIMEOUT_S).post("/_replicate", request)))
        asking.start()
        ctx.report.check("it has begun", wait_until(lambda: api.request("GET", "/db").json["doc_count"] > 0), quiet=True)
        other.kill()
        other.start()
        asking.join(ANSWER_TIMEOUT_S)
        ctx.report.check("a source that comes back is gone on with", answers and answers[0].status == 200, answers)
        same_leaves(ctx.report, "and nothing is missing", (other.api(), "db"), (api, "db"))
        other.stop()


def test_bad_connections(ctx):
    """Between the servers is a proxy that cuts one chunk in ten off and damages one in twenty."""
    with ctx.server("near", options=OPTIONS) as near, ctx.server("far", options=OPTIONS) as far:
        api, far_api = near.api(ANSWER_TIMEOUT_S), far.api()
        proxy = FlakyProxy(int(far.url.rsplit(":", 1)[1]), ctx.random.getrandbits(32), cut=0.1, garble=0.05)
        url = with_admin(proxy.url)
        for end in (api, far_api):
            end.expect(201, "PUT", "/db")
        count = ctx.size(3000, 30_000)
        fill(far_api, "db", count)
        tangle(far_api, "db")
        patient = {"retries_per_request": 30, "connection_timeout": 500}
        until_done(ctx, api, {"source": f"{url}/db", "target": "db", **patient}, "a pull")
        same_leaves(ctx.report, "a pull through cut and garbled connections brings everything, and nothing else", (far_api, "db"), (api, "db"))
        fill(api, "db", count, "mine")
        until_done(ctx, api, {"source": "db", "target": f"{url}/db", **patient}, "a push")
        same_leaves(ctx.report, "and so does a push", (far_api, "db"), (api, "db"))
        ctx.report.check("connections were cut and garbled", proxy.cuts and proxy.garbled, (proxy.cuts, proxy.garbled))
        ctx.report.note(f"{proxy.connections} connections, {proxy.cuts} cut, {proxy.garbled} garbled")
        proxy.close()
        for server in (near, far):
            ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-2000:])


def until_done(ctx, api, request, what, tries=20):
    """A replication that gave up is asked for again, as its users would."""
    for number in range(1, tries + 1):
        try:
            answer = api.post("/_replicate", request)
        except Disconnected as error:
            answer = error
            continue
        if answer.status == 200:
            ctx.report.note(f"{what} was asked for {number} times")
            return ctx.report.equal(f"{what} refuses no document", failures(answer), 0)
    return ctx.report.check(f"{what} gets through", False, answer)


def failures(answer):
    return sum(entry["doc_write_failures"] for entry in answer.json.get("history", []))

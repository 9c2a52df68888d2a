"""PouchDB and pouchdb-server sync with a server that is killed and a network that breaks, and everybody ends equal.

Equal means: the same leaf revisions, with the same bodies, ancestry and attachments. And nothing that was acknowledged to
a writer is gone: its revision is a leaf, or an ancestor of one.
"""

import itertools
import os
import random
import threading

from harness import leaves
from harness.api import Disconnected
from harness.edits import ServerEdits
from harness.flaky_proxy import FlakyProxy
from harness.packages import node_modules
from harness.pouch import Pouch, PouchServer
from harness.server import wait_until

DB = "synced"
CONVERGE_TIMEOUT_S = 90
EDITS_TIMEOUT_S = 60
MEAN_BYTES_UNTIL_CUT = 3_000  # PouchDB opens a connection for most requests, and most are small
CUT_SHARE = 0.2
REPLICATOR_MEAN_BYTES_UNTIL_CUT = 40_000  # Settee's replicator keeps its connections
REPLICATOR_CUT_SHARE = 0.6


def test_live_sync(ctx):
    """Two devices and a server that is edited too; kill -9 of the server and of a device, and cut connections."""
    server = ctx.server("live").start()
    server.api().expect(201, "PUT", f"/{DB}")
    devices = [device(ctx, "anna", retries=False), device(ctx, "ben", retries=True)]
    rounds, edits = ctx.size(4, 50), ctx.size(40, 120)
    others = ServerEdits(lambda: server.api(timeout=20), DB, "server", random.Random(ctx.random.random()))
    with FlakyProxy(server.url, random.Random(ctx.random.random()), MEAN_BYTES_UNTIL_CUT, CUT_SHARE) as proxy:
        for each in devices:
            each.live(f"{proxy.url}/{DB}", server.admin)
        for number in range(rounds):
            if number % 2:  # one device dies while it syncs what it has, and comes back
                devices[1].kill()
                devices[1].start().live(f"{proxy.url}/{DB}", server.admin)
            moment = len(others.acknowledged) + ctx.random.randrange(edits // 2)
            together(
                [lambda each=each: each.edit(edits) for each in devices] + [lambda: others.make(edits)],
                lambda: kill_server(server, proxy, number, lambda: len(others.acknowledged) >= moment),
            )
        said = [event for each in devices for event in each.events]
        ctx.report.check("live: connections were cut", proxy.cuts >= rounds, f"{proxy.cuts} cuts of {proxy.connections} connections")
        proxy.calm()
        everybody = lambda: [leaves.leaf_revs(server.api(), DB)] + [each.revs() for each in devices]
        ctx.report.check(
            "live: both devices and the server come to the same leaves",
            wait_until(lambda: all_equal(everybody()), CONVERGE_TIMEOUT_S, 0.2),
            lagging(everybody(), ["server"] + [each.name for each in devices]) + last_words(devices),
        )
        ctx.report.note(
            f"live: {proxy.cuts} of {proxy.connections} connections cut, {proxy.bytes} bytes; "
            f"{sum(len(each.acknowledged) for each in devices) + len(others.acknowledged)} edits"
        )
    on_server = leaves.leaves(server.api(), DB)
    for each in devices:
        leaves.same_readings(
            ctx.report, f"live: {each.name} has what the server has", on_server, each.leaves(ctx.root), ("on the server", f"on {each.name}")
        )
    acknowledged = list(itertools.chain(others.acknowledged, *(each.acknowledged for each in devices)))
    nothing_lost(ctx, "live: nothing acknowledged is lost", acknowledged, on_server)
    ctx.report.check("live: there are conflicts, tombstones and attachments to compare", *variety(on_server))
    ctx.report.equal("live: no edit of the server's users was refused", others.refused[:5], [])
    wrong = [event for event in said if event["event"] in ("denied", "error", "complete") or event.get("failed")]
    ctx.report.check("live: no sync gave up, and no document was denied", not wrong, wrong[:5])
    for each in devices:
        each.stop()
    ctx.report.check("live: no panic", "panicked" not in server.log(), server.log()[-1500:])
    server.stop()


def test_settee_replicates_with_pouchdb_server(ctx):
    """Documents of `_replicator`, continuous in both directions; both servers die and connections are cut."""
    label = "Settee and pouchdb-server"
    settee, pouch, writers = two_servers(ctx, "settee-replicates", unique_names=False)
    with FlakyProxy(pouch.url, random.Random(ctx.random.random()), REPLICATOR_MEAN_BYTES_UNTIL_CUT, REPLICATOR_CUT_SHARE) as proxy:
        here, there = with_admin(settee), f"{proxy.url}/{DB}"
        for name, source, target in (("pull", there, here), ("push", here, there)):
            settee.api().expect(201, "PUT", f"/_replicator/{name}", {"source": source, "target": target, "continuous": True})
        for number in range(ctx.size(3, 50)):
            edit_and_kill(ctx, writers, [settee, pouch][number % 2], proxy.cut_all)
        proxy.calm()
        ctx.report.check(f"{label}: connections were cut", proxy.cuts > 0 or not ctx.soak, f"{proxy.cuts} cuts of {proxy.connections} connections")
        both = lambda: [leaves.leaf_revs(settee.api(), DB), leaves.leaf_revs(pouch.api(), DB)]
        ctx.report.check(
            f"{label}: both come to the same leaves",
            wait_until(lambda: all_equal(both()), CONVERGE_TIMEOUT_S, 0.2),
            lagging(both(), ["Settee", "pouchdb-server"]) + f"\n{settee.api().get('/_scheduler/docs').raw.decode()[:1500]}",
        )
        ctx.report.note(f"{label}: {proxy.cuts} of {proxy.connections} connections cut; {sum(len(each.acknowledged) for each in writers)} edits")
    same_on_both(ctx, label, settee, pouch, writers)
    settee.stop()


def test_pouchdb_server_replicates_with_settee(ctx):
    """Its own replicator, as source and as target, begun again until nothing fails; both servers die in the middle.

    Its replicator must not survive a failure: it has the fault that tests/clients/js/pouchdb_retrying.cjs tells of.
    """
    label = "pouchdb-server's replicator"
    settee, pouch, writers = two_servers(ctx, "pouchdb-server-replicates")
    here = with_admin(settee)
    pairs = [{"source": here, "target": DB}, {"source": DB, "target": here}]
    for number in range(ctx.size(3, 50)):
        edit_and_kill(ctx, writers, None)
        replicating = threading.Thread(target=lambda: [replicated(pouch, pair) for pair in pairs], daemon=True)
        done = len(settee.log())
        replicating.start()
        wait_until(lambda: len(settee.log()) > done + ctx.random.randrange(20_000) or not replicating.is_alive(), EDITS_TIMEOUT_S)
        if number % 2:
            settee.kill()
            replicating.join(EDITS_TIMEOUT_S)
            pouch.kill()
            settee.restart()
        else:
            pouch.kill()
        replicating.join(EDITS_TIMEOUT_S)
        pouch.start()
    for pair in pairs + pairs:
        answer = pouch.api().post("/_replicate", pair)
        ctx.report.check(f"{label}: {'pull' if pair['target'] == DB else 'push'}", answer.status == 200 and answer.json.get("ok"), repr(answer))
    same_on_both(ctx, label, settee, pouch, writers)
    settee.stop()


def with_admin(settee):
    return f"{settee.url.replace('://', '://' + settee.admin + '@')}/{DB}"


def replicated(pouch, pair):
    try:
        return pouch.api().post("/_replicate", pair).status == 200
    except Disconnected:
        return False


def two_servers(ctx, name, unique_names=True):
    settee = ctx.server(name, options=["--set", "replicator/startup_jitter=100", "--set", "replicator/checkpoint_interval=500"]).start()
    pouch = PouchServer(node_modules(ctx, ctx.checkout / "tests" / "clients" / "pouchdb-server"), ctx.folder(name + "-pouchdb-server")).start()
    writers = []
    for at, server in (("settee", settee), ("pouch", pouch)):
        server.api().expect(201, "PUT", f"/{DB}")
        writers.append(ServerEdits(lambda server=server: server.api(timeout=20), DB, at, random.Random(ctx.random.random()), unique_names))
    return settee, pouch, writers


def edit_and_kill(ctx, writers, server, first=lambda: None):
    """Edits on both sides at once; in the middle `first` happens, and `server` dies and comes back."""
    edits = ctx.size(40, 100)
    moment = len(writers[0].acknowledged) + ctx.random.randrange(edits // 2)

    def meanwhile():
        wait_until(lambda: len(writers[0].acknowledged) >= moment, EDITS_TIMEOUT_S)
        first()
        if server is not None:
            server.kill()
            server.restart()

    together([lambda each=each: each.make(edits) for each in writers], meanwhile)


def same_on_both(ctx, label, settee, pouch, writers):
    on_settee = leaves.leaves(settee.api(), DB)
    leaves.same_readings(
        ctx.report, f"{label}: both have the same", on_settee, leaves.leaves(pouch.api(), DB, bulk=False), ("on Settee", "on pouchdb-server")
    )
    nothing_lost(ctx, f"{label}: nothing acknowledged is lost", list(itertools.chain(*(each.acknowledged for each in writers))), on_settee)
    ctx.report.check(f"{label}: there are conflicts, tombstones and attachments to compare", *variety(on_settee))
    ctx.report.equal(f"{label}: no edit was refused", [line for each in writers for line in each.refused][:5], [])
    ctx.report.check(f"{label}: no panic", "panicked" not in settee.log(), settee.log()[-1500:])
    pouch.kill()


def device(ctx, name, retries):
    scripts = ctx.checkout / "tests" / "clients" / "js"
    environment = {**os.environ, "NODE_PATH": str(node_modules(ctx, scripts))}
    return Pouch(scripts / "sync.cjs", environment, ctx.folder("devices") / name, name, ctx.random.getrandbits(31), retries).start()


def kill_server(server, proxy, number, when):
    """At the moment `when`, the server dies and comes back on its port; every third time the network goes before it."""
    wait_until(when, EDITS_TIMEOUT_S)
    if number % 3 == 2:
        proxy.refuse()
    server.kill()
    server.restart()
    proxy.refuse(False)


def together(acts, meanwhile):
    """Runs `acts` in threads and `meanwhile` here; the first exception of any is raised."""
    raised = []

    def guarded(act):
        try:
            act()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    guarded(meanwhile)
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def all_equal(values):
    return all(value == values[0] for value in values[1:])


def lagging(revs, names):
    first = revs[0]
    lines = []
    for name, other in zip(names[1:], revs[1:]):
        ids = sorted(doc_id for doc_id in set(first) | set(other) if first.get(doc_id) != other.get(doc_id))
        lines += [f"{doc_id}: {first.get(doc_id)} on {names[0]}, {other.get(doc_id)} on {name}" for doc_id in ids[:5]]
    return "\n".join(lines)


def last_words(devices):
    """For whoever looks for the reason why one stands still."""
    lines = []
    for each in devices:
        lines += [f"{each.name}: {event}" for event in each.events[-6:]]
        lines += [f"{each.name} waits for {request}" for request in each.call("unanswered")]
    return "\n" + "\n".join(lines)


def nothing_lost(ctx, name, acknowledged, found):
    known = {(doc_id, rev) for doc_id, revs in found.items() for leaf_rev, leaf in revs.items() for rev in [leaf_rev, *leaf["ancestors"]]}
    lost = [pair for pair in acknowledged if pair not in known]
    ctx.report.check(f"{name} ({len(acknowledged)} edits)", not lost, f"{len(lost)} lost, such as {lost[:5]}")


def variety(found):
    every = [leaf for revs in found.values() for leaf in revs.values()]
    counts = {
        "conflicts": sum(len(revs) > 1 for revs in found.values()),
        "tombstones": sum(leaf["deleted"] for leaf in every),
        "attachments": sum(len(leaf["attachments"]) for leaf in every),
    }
    return all(counts.values()), counts

"""PouchDB and pouchdb-server sync with a server that is killed and a network that breaks, and everybody ends equal.

Equal means: the same leaf revisions, with the same bodies, ancestry and attachments. And nothing that was acknowledged to
a writer is gone: its revision is a leaf, or an ancestor of one.
"""

import itertools
import os
import random
import threading

from harness import leaves
from harness.edits import ServerEdits
from harness.flaky_proxy import FlakyProxy
from harness.packages import node_modules
from harness.pouch import Pouch
from harness.server import wait_until

DB = "synced"
CONVERGE_TIMEOUT_S = 90
EDITS_TIMEOUT_S = 60
MEAN_BYTES_UNTIL_CUT = 3_000  # PouchDB opens a connection for most requests, and most are small
CUT_SHARE = 0.2


def run(ctx):
    for part in (live_sync,):
        ctx.attempt(part)


def live_sync(ctx):
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
            together([lambda each=each: each.edit(edits) for each in devices] + [lambda: others.make(edits)],
                     lambda: kill_server(server, proxy, number, lambda: len(others.acknowledged) >= moment))
        said = [event for each in devices for event in each.events]
        ctx.report.check("live: connections were cut", proxy.cuts >= rounds, f"{proxy.cuts} cuts of {proxy.connections} connections")
        proxy.calm()
        everybody = lambda: [leaves.leaf_revs(server.api(), DB)] + [each.revs() for each in devices]  # noqa: E731
        ctx.report.check("live: both devices and the server come to the same leaves", wait_until(lambda: all_equal(everybody()), CONVERGE_TIMEOUT_S, 0.2),
                         lagging(everybody(), ["server"] + [each.name for each in devices]) + last_words(devices))
        ctx.report.note(f"live: {proxy.cuts} of {proxy.connections} connections cut, {proxy.bytes} bytes; "
                        f"{sum(len(each.acknowledged) for each in devices) + len(others.acknowledged)} edits")
    on_server = leaves.read_leaves(server.api(), DB)
    for each in devices:
        leaves.same_leaves(ctx.report, f"live: {each.name} has what the server has", on_server, each.leaves(ctx.root), ("server", each.name))
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

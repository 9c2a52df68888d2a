"""`settee check` and `settee repair`: a sound store is called sound, also after kill -9; what is planted is found and named; what is not in a
damaged block is saved, exactly."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from harness import rocks
from harness.api import quote
from harness.documents import write_documents
from harness.ledger import Ledger, verify
from harness.server import StartFailed, wait_until
from harness.writers import BulkWriter, Compactor, GraftWriter, LocalWriter, SerialWriter

pytestmark = pytest.mark.on_disk

SOUND, DAMAGED, NOT_LOOKED_AT, LOSSES = 0, 1, 2, 3
WRITERS = [BulkWriter, SerialWriter, GraftWriter, LocalWriter, Compactor]
MAP = {"views": {"by_number": {"map": "function (doc) { if (doc.number !== undefined) { emit(doc.number, doc.pad.length); } }", "reduce": "_sum"}}}


def settee(ctx, *arguments):
    return subprocess.run([ctx.binary, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600)


def check(ctx, data, *options):
    """The exit status and what `--json` says."""
    done = settee(ctx, "check", data, "--json", *options)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"stderr": done.stderr, "stdout": done.stdout, "findings": []}


def damage(told):
    return [finding for finding in told["findings"] if finding["damage"]]


def filled(ctx, name, count=300):
    """A store with all kinds of things in it, of a server that was stopped."""
    server = ctx.server(name).start()
    api = server.api()
    api.expect((201, 202), "PUT", "/kept?q=1")
    api.expect((201, 202), "PUT", "/shards?q=2")
    for db in ("kept", "shards"):
        docs = [{"_id": f"doc-{n:05}", "number": n, "pad": os.urandom(100).hex()} for n in range(count)]
        docs += [{"_id": f"long-{n}", "number": n, "pad": os.urandom(4000).hex()} for n in range(5)]
        rows = api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})
        again = [{"_id": row["id"], "_rev": row["rev"], "number": n + 1000, "pad": "x"} for n, row in enumerate(rows[:40])]
        api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": again})
        gone = [{"_id": row["id"], "_rev": row["rev"], "_deleted": True} for row in rows[50:60]]
        api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": gone})
        branch = {"_id": "doc-00070", "number": 7, "pad": "b", "_revisions": {"start": 2, "ids": ["b" * 32, "a" * 32]}}
        api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": [branch], "new_edits": False})
        api.expect(201, "PUT", f"/{db}/_local/checkpoint", {"seq": 1})
        api.expect(201, "PUT", f"/{db}/_design/numbers", MAP)
        attached = {"_attachments": {"file": {"content_type": "image/png", "data": "iVBORw0KGgo="}}}
        api.expect(201, "PUT", f"/{db}/attached", attached)
        api.expect(201, "POST", f"/{db}/_purge", {"doc-00080": [rows[80]["rev"]]})
        api.expect(200, "GET", f"/{db}/_design/numbers/_view/by_number")
    api.expect((200, 201), "PUT", "/kept/_security", {"members": {"roles": ["reader"]}, "admins": {"names": ["alice"]}})
    server.stop()
    return server


def listing(folder):
    files = sorted(path for path in pathlib.Path(folder).rglob("*"))
    return [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]


def test_sound_and_untouched(ctx):
    server = filled(ctx, "sound")
    before = listing(server.data)
    status, told = check(ctx, server.data, "--indexes")
    ctx.report.check("a sound store is sound", status == SOUND and not damage(told), json.dumps(damage(told))[:1500] or told)
    ctx.report.equal("and its documents are counted", (told.get("looked_at") or {}).get("databases", 0) >= 2, True)
    ctx.report.equal("a check changes nothing", listing(server.data), before)
    server.start()
    done = settee(ctx, "check", server.data)
    ctx.report.check(
        "with a server on it, it is not looked at", done.returncode == NOT_LOOKED_AT and "a server has it open" in done.stderr, done.stderr
    )
    backup = ctx.root / "backup"
    made = settee(ctx, "backup", server.url.replace("://", f"://{server.admin}@"), backup, "--copy")
    ctx.report.equal("a backup is made", made.returncode, 0)
    status, told = check(ctx, backup)
    ctx.report.check("a backup is looked at while the server runs", status == SOUND, json.dumps(told)[:1500])
    server.stop()
    done = settee(ctx, "check", ctx.root / "nowhere")
    ctx.report.check("what is no store is not looked at", done.returncode == NOT_LOOKED_AT and done.stderr.strip(), repr(done))
    text = settee(ctx, "check", server.data)
    ctx.report.check("for people it says so in words", text.returncode == SOUND and "sound" in text.stdout, text.stdout)


def test_after_kills(ctx):
    server = ctx.server("killed").start()
    for number in range(ctx.size(2, 40)):
        ledger = Ledger(f"killed-{number}")
        server.api().expect((201, 202), "PUT", "/" + ledger.db)
        writers = [kind(server.api(), ledger, f"w{at}", ctx.random.getrandbits(32)) for at, kind in enumerate(WRITERS)]
        for writer in writers:
            writer.start()
        ledger.wait_for(ctx.random.randint(50, 800), 60)
        server.kill()
        for writer in writers:
            writer.stop_event.set()
            writer.join(30)
        status, told = check(ctx, server.data)
        ctx.report.check(f"after kill -9, {number}: sound", status == SOUND, json.dumps(damage(told))[:1500] or told, quiet=ctx.soak)
        server = ctx.server("killed").start()
        verify(ctx.report, server.api(), ledger, f"after kill -9 and a check, {number}", quiet=True)
    server.stop()


def store_of(server):
    return pathlib.Path(server.data) / "store"


def shard_of_one(server):
    """The shard of the database `kept`: its record, JSON in the log, is the one that names the role `reader`."""
    data = b"".join(path.read_bytes() for path in rocks.logs(store_of(server)))
    at = data.rindex(b'{"epoch":', 0, data.rindex(b"reader"))
    shards = data.index(b'"shards":', at) + 9
    return json.loads(data[shards : data.index(b"]", shards) + 1])[0]


def test_planted_rows(ctx):
    source = filled(ctx, "planted")
    shard = shard_of_one(source)
    meta = b"s" + shard.to_bytes(4, "big")
    first_after = 345
    faults = [
        ("a change removed", [("by_seq", rocks.seq_key(shard, 120), None)], "no feed and no view shows it", "doc-00119"),
        ("a record removed", [("by_id", rocks.id_key(shard, "doc-00120"), None)], "whose record does not name it", "doc-00120"),
        ("a record that is none", [("by_id", rocks.id_key(shard, "doc-00121"), b"\x01")], "a record cannot be read", "doc-00121"),
        ("a marker added", [("superseded", rocks.seq_key(shard, 130), b"")], "marked as replaced", "doc-00129"),
        ("a marker removed", [("superseded", rocks.seq_key(shard, 3), None)], "whose record does not name it", "doc-00002"),
        ("a long body removed", [("bodies", rocks.seq_key(shard, 301), None)], "a long body is missing", "long-0"),
        ("counters that are none", [("default", meta, b"\x07")], "the counters cannot be read", None),
        ("counters off by one", [("default", meta, counters(first_after))], "a counter is wrong", None),
        ("a database's record removed", [("default", b"dkept", None)], "rows are of no database", None),
        ("a database's record that is none", [("default", b"dkept", b"{}")], "the record of a database cannot be read", None),
        ("a local document that is none", [("local", rocks.id_key(shard, "_local/checkpoint"), b"\x01{")], "a local document", "_local/checkpoint"),
        ("a purge removed", [("purges", rocks.seq_key(shard, 1), None)], "purges differ from the counters", None),
        ("a row of nothing", [("by_id", rocks.id_key(4_000_000, "x"), b"\x00\x01\x01\x10" + b"r" * 16 + b"\x02")], "rows are of no database", None),
    ]
    for what, operations, said, document in faults:
        harmed = copy_of(ctx, source, "harmed")
        rocks.plant(store_of_data(harmed), *operations)
        named(ctx, harmed, what, said, document)
    index_and_attachment(ctx, source)


def counters(update_seq):
    """Counters of a shard that has nothing else."""
    return b"\x01" + b"".join(rocks.varint(n) for n in (update_seq + 1000, 1, 0, 0, 0, 0, 0, 0))


def index_and_attachment(ctx, source):
    """Keys that only a read of the store tells are found where they are in its tables and log, as text."""
    shard = shard_of_one(source)
    number = index_of(source, shard)
    if ctx.report.check("the index of the view is in the catalogue", number is not None, "", quiet=True):
        key = number.to_bytes(4, "big") + b"doc-00200"
        harmed = copy_of(ctx, source, "harmed")
        rocks.plant(store_of_data(harmed), ("index_back", key, None))
        named(ctx, harmed, "a document's rows forgotten", "the rows and the back-index differ", None, index="_design/numbers")
        harmed = copy_of(ctx, source, "harmed")
        rocks.plant(store_of_data(harmed), ("default", b"m" + number.to_bytes(4, "big"), None))
        named(ctx, harmed, "the state of an index removed", "it has rows and no state", None, index="_design/numbers")
        harmed = copy_of(ctx, source, "harmed")
        rocks.plant(store_of_data(harmed), ("index_blocks", number.to_bytes(4, "big") + b"\0\0", b"\x05\x00"))
        named(ctx, harmed, "a block that miscounts", "a block miscounts its rows", None, index="_design/numbers")
    harmed = copy_of(ctx, source, "harmed")
    operations = [("attachments", shard.to_bytes(4, "big") + b"c" + n.to_bytes(8, "big") + bytes(4), None) for n in range(1, 600)]
    rocks.plant(store_of_data(harmed), *operations)
    named(ctx, harmed, "the bytes of an attachment removed", "the bytes of a content are missing", "attached")
    harmed = copy_of(ctx, source, "harmed")
    operations = [("attachments", key, b"other bytes") for _, key, _ in operations]
    rocks.plant(store_of_data(harmed), *operations)
    named(ctx, harmed, "the bytes of an attachment changed", "a content", "attached")


def index_of(server, shard):
    """The number of the one index of a shard: the value of its entry, 16 bytes of signature after the shard."""
    head = b"i" + shard.to_bytes(4, "big")
    for path in rocks.logs(store_of(server)):
        data, at = path.read_bytes(), 0
        while (at := data.find(b"\x15" + head, at)) >= 0:
            value = data[at + 1 + 21 :][:5]
            if value[:1] == b"\x04":
                return int.from_bytes(value[1:5], "big")
            at += 1
    return None


def store_of_data(data):
    return pathlib.Path(data) / "store"


def copy_of(ctx, server, name):
    data = ctx.root / name
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(server.data, data)
    return data


def named(ctx, data, what, said, document, index=None):
    status, told = check(ctx, data)
    found = [finding for finding in damage(told) if said in finding["says"] and (document is None or finding["document"] == document)]
    if index:
        found = [finding for finding in found if finding["index"] == index]
    ctx.report.check(f"{what}: found and named", status == DAMAGED and found, f"{status} {json.dumps(damage(told))[:1500] or told}")
    ctx.report.check(f"{what}: it says what to do", all(finding["do"] for finding in damage(told)), "", quiet=True)


def with_tables(ctx, name, count):
    """A store whose documents are in tables."""
    server = ctx.server(name).start()
    ledger, api = Ledger("kept"), server.api()
    api.expect((201, 202), "PUT", "/kept?q=1")
    write_documents(api, ledger, count, size=1500)
    api.expect(202, "POST", "/kept/_compact")
    wait_until(lambda: any(store_of(server).glob("*.sst")), timeout_s=20)
    wait_until(lambda: not api.get("/kept").json["compact_running"], timeout_s=20)
    server.stop()
    return server, ledger


def largest_table(data):
    return max(store_of_data(data).glob("*.sst"), key=lambda path: path.stat().st_size)


def flip(path, at, length=1):
    with open(path, "r+b") as file:
        file.seek(at)
        block = file.read(length)
        file.seek(at)
        file.write(bytes(byte ^ 0x5A for byte in block))


def test_harmed_files(ctx):
    server, _ = with_tables(ctx, "files", 300)
    size = largest_table(server.data).stat().st_size
    faults = [("a block of a table flipped", lambda path: flip(path, size // 3, 64))]
    faults += [("a table cut short", lambda path: os.truncate(path, size // 2)), ("a table gone", lambda path: path.unlink())]
    for _ in range(ctx.size(3, 200)):
        at = ctx.random.randrange(size // 2)
        faults.append((f"a bit of a table at {at} of {size}", lambda path, at=at: flip(path, at)))
    for what, harm in faults:
        harmed = copy_of(ctx, server, "harmed-file")
        harm(largest_table(harmed))
        status, told = check(ctx, harmed)
        ctx.report.check(f"{what}: found", status == DAMAGED, f"{status} {told}", quiet=ctx.soak)
    harmed = copy_of(ctx, server, "harmed-file")
    (store_of_data(harmed) / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    status, told = check(ctx, harmed)
    ctx.report.check("a lost list of files: said", status in (DAMAGED, NOT_LOOKED_AT), f"{status} {told}")
    log_harm(ctx)


def log_harm(ctx):
    server = ctx.server("log").start()
    ledger = Ledger("kept")
    server.api().expect((201, 202), "PUT", "/kept")
    write_documents(server.api(), ledger, 300)
    server.kill()
    # Behind its end are zeros.
    written, log = max((rocks.end_of(path.read_bytes())[0], path) for path in rocks.logs(store_of(server)))
    flip(log, written // 2, 16)
    status, told = check(ctx, server.data)
    found = [finding for finding in damage(told) if "the log is damaged" in finding["says"]]
    ctx.report.check("a damaged log: found and named", status == DAMAGED and found, f"{status} {told}")
    new = ctx.root / "log-repaired"
    done = settee(ctx, "repair", server.data, new)
    ctx.report.check("a damaged log: repaired", done.returncode in (SOUND, LOSSES), done.stdout[-1500:] + done.stderr)
    served = ctx.server("log-repaired").start()
    total = served.api().get("/kept").json["doc_count"]
    # The engine goes on at the next block of the log, and a document takes more than 400 bytes of one.
    ctx.report.check("a damaged log: all but what was in the damaged block is saved", 300 - rocks.BLOCK // 400 <= total <= 300, total)
    served.stop()


def everything(api, db):
    """All leaves of all documents with their bodies, by id."""
    changes = api.expect(200, "GET", f"/{db}/_changes?style=all_docs")["results"]
    return {row["id"]: leaves_of(api, db, row["id"]) for row in changes}


def leaves_of(api, db, doc_id):
    answer = api.get(f"/{db}/{quote(doc_id)}?open_revs=all&revs=true", headers={"Accept": "application/json"})
    if answer.status != 200:
        return None
    return sorted(json.dumps(leaf.get("ok", leaf), sort_keys=True) for leaf in answer.json)


def test_repaired_store(ctx):
    """Of a sound store, everything; of one with a damaged table, everything that a server can read of it, and more."""
    source = filled(ctx, "whole")
    (pathlib.Path(source.data) / "local.d").mkdir(exist_ok=True)
    (pathlib.Path(source.data) / "local.d" / "own.ini").write_text("[couchdb]\nmax_document_size = 7000000\n", encoding="utf-8")
    source.start()
    before = {db: everything(source.api(), db) for db in ("kept", "shards")}
    source.stop()
    was = listing(source.data)
    new = ctx.root / "whole-repaired"
    done = settee(ctx, "repair", source.data, new)
    ctx.report.check("repair of a sound store: nothing is lost", done.returncode == 0, done.stdout[-1500:] + done.stderr)
    ctx.report.equal("repair does not touch what it reads", listing(source.data), was)
    ctx.report.check("settings come along", (new / "local.d" / "own.ini").is_file())
    status, told = check(ctx, new)
    ctx.report.check("what was repaired is sound", status == SOUND, json.dumps(damage(told))[:1500])
    served = ctx.server("whole-repaired").start()
    api = served.api()
    ctx.report.equal("every leaf is there with its history", {db: everything(api, db) for db in before}, before)
    ctx.report.equal("security objects too", api.get("/kept/_security").json["admins"], {"names": ["alice"]})
    ctx.report.equal("local documents too", api.get("/kept/_local/checkpoint").status, 200)
    ctx.report.equal("attachments too", api.get("/kept/attached/file").raw, b"\x89PNG\r\n\x1a\n")
    ctx.report.equal("views are built", api.get("/kept/_design/numbers/_view/by_number").status, 200)
    served.stop()
    again = settee(ctx, "repair", source.data, new)
    ctx.report.check("a directory with something in it is refused", again.returncode == 1 and "is there already" in again.stderr, repr(again))


def test_repair_of_what_is_lost(ctx):
    """Blocks of a table are harmed. What a server reads of the harmed store, document by document, is what is saved at least; what is lost is told."""
    server, ledger = with_tables(ctx, "lossy", 600)
    for number in range(ctx.size(2, 40)):
        harmed = copy_of(ctx, server, "lossy-harmed")
        table = largest_table(harmed)
        size = table.stat().st_size
        for _ in range(ctx.random.randint(1, 3)):
            flip(table, ctx.random.randrange(size * 9 // 10), 8)
        was = listing(harmed)
        shutil.rmtree(ctx.root / "lossy-new", ignore_errors=True)
        done = settee(ctx, "repair", harmed, ctx.root / "lossy-new", "--json")
        ctx.report.check(f"damaged blocks, {number}: repaired", done.returncode in (SOUND, LOSSES), done.stdout[-1000:] + done.stderr)
        ctx.report.equal(f"damaged blocks, {number}: the damaged store stays as it was", listing(harmed), was, quiet=True)
        lost = {loss["document"] for loss in json.loads(done.stdout)["lost"]}
        status, told = check(ctx, ctx.root / "lossy-new")
        ctx.report.check(f"damaged blocks, {number}: what was saved is sound", status == SOUND, json.dumps(damage(told))[:1500])
        exactly(ctx, number, ledger, lost)


def test_lost_lists_of_files(ctx):
    """The engine's list of its files, or what names it, is lost; documents are in tables and in the log, or in the log alone."""
    in_tables, ledger = with_tables(ctx, "unlisted", 400)
    api = in_tables.start().api()
    write_documents(api, ledger, 100, prefix="more")
    in_tables.kill()
    in_log, logged = ctx.server("unlisted-log").start(), Ledger("kept")
    in_log.api().expect((201, 202), "PUT", "/kept?q=2")
    write_documents(in_log.api(), logged, 100)
    in_log.kill()
    ctx.report.equal("lost lists: of one store all is in the log", [path.name for path in store_of(in_log).glob("*.sst")], [])
    for stored, server, written in (("tables and log", in_tables, ledger), ("log", in_log, logged)):
        for what, harm, is_whole in LOST_LISTS:
            harmed = copy_of(ctx, server, "unlisted-harmed")
            harm(store_of_data(harmed))
            was = listing(harmed)
            shutil.rmtree(ctx.root / "unlisted-new", ignore_errors=True)
            done = settee(ctx, "repair", harmed, ctx.root / "unlisted-new", "--json")
            what = f"{what}, {stored}"
            if not ctx.report.check(f"{what}: repaired, nothing is lost", done.returncode == SOUND, done.stdout[-1000:] + done.stderr):
                continue
            notes = json.loads(done.stdout)["notes"]
            ctx.report.check(f"{what}: what was done is told", any("list of files" in note for note in notes), notes)
            ctx.report.equal(
                f"{what}: only of a lost list attachments are said to be lost", any("attachments" in note for note in notes), not is_whole
            )
            ctx.report.equal(f"{what}: the damaged store stays as it was", listing(harmed), was, quiet=True)
            status, told = check(ctx, ctx.root / "unlisted-new")
            ctx.report.check(f"{what}: what was saved is sound", status == SOUND, json.dumps(damage(told))[:1500])
            saved = read_all(ctx, "unlisted-new", written)
            wanted = {doc_id: {"_id": doc_id, "_rev": doc.rev, **doc.body} for doc_id, doc in written.acknowledged.items()}
            missed = [doc_id for doc_id, doc in wanted.items() if saved.get(doc_id) != doc]
            ctx.report.check(f"{what}: all {len(wanted)} documents are saved", not missed, missed[:10])


def lists(store):
    return list(store.glob("MANIFEST-*"))


# What is lost, and whether the list itself is whole.
LOST_LISTS = (
    ("CURRENT gone", lambda store: (store / "CURRENT").unlink(), True),
    ("CURRENT names no file", lambda store: (store / "CURRENT").write_bytes(b"MANIFEST-999999\n"), True),
    ("the list gone", lambda store: [path.unlink() for path in lists(store)], False),
    ("the list damaged", lambda store: [flip(path, 20, 64) for path in lists(store)], False),
    ("both gone", lambda store: [path.unlink() for path in (store / "CURRENT", *lists(store))], False),
)


def read_all(ctx, name, ledger):
    """The documents that a server there answers with; none when it does not start."""
    server = ctx.server(name)
    try:
        api = server.start().api()
    except StartFailed:
        return {}
    answers = {doc_id: api.get(f"/kept/{quote(doc_id)}") for doc_id in ledger.acknowledged}
    server.kill()
    return {doc_id: answer.json for doc_id, answer in answers.items() if answer.status == 200}


def exactly(ctx, number, ledger, lost):
    readable, saved = read_all(ctx, "lossy-harmed", ledger), read_all(ctx, "lossy-new", ledger)
    missed = [doc_id for doc_id in readable if saved.get(doc_id) != readable[doc_id]]
    ctx.report.check(
        f"damaged blocks, {number}: everything that can be read is saved, {len(saved)} of {len(ledger.acknowledged)}", not missed, missed[:10]
    )
    wrong = [
        doc_id for doc_id, doc in saved.items() if doc != {"_id": doc_id, "_rev": ledger.acknowledged[doc_id].rev, **ledger.acknowledged[doc_id].body}
    ]
    ctx.report.check(f"damaged blocks, {number}: nothing is saved wrongly", not wrong, wrong[:10])
    silent = [doc_id for doc_id in ledger.acknowledged if doc_id not in saved and doc_id not in lost and None not in lost]
    ctx.report.check(f"damaged blocks, {number}: what is lost is told", not silent, silent[:10])

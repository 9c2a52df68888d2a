"""Torn and damaged logs, a full disk, unreadable files: a clear error, and nothing that was acknowledged corrupted."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import pytest

from harness.api import quote
from harness.documents import write_documents
from harness.files import files_below
from harness.ledger import Edit, Ledger, verify
from harness.server import StartFailed, wait_until
from harness.small_disk import DISK_BYTES, SmallDisk

pytestmark = pytest.mark.on_disk

DAMAGE_NAMED = re.compile(r"corrupt|damag|checksum|truncat|unreadable|cannot be read|mismatch|missing|invalid|bad ", re.I)
BALLAST_BYTES = 60 << 20
SECTOR_BYTES = 512
SPACE_RETURNS_TIMEOUT_S = 60


def filled_and_killed(ctx, name, count):
    server = ctx.server(name).start()
    ledger = Ledger("kept")
    api = server.api()
    api.expect((201, 202), "PUT", "/kept")
    write_documents(api, ledger, count)
    server.kill()
    return server, ledger


def log_files(data):
    """RocksDB's write-ahead logs, NNNNNN.log, the oldest first; wherever in the data directory they are."""
    logs = [path for path, stat in files_below(data, ".log") if path.stem.isdigit() and stat.st_size]
    return sorted(logs, key=lambda path: int(path.stem))


def written_bytes(log):
    """Where a log's records end; zeros lie ahead of it."""
    return len(log.read_bytes().rstrip(b"\0"))


def test_torn_log_tail(ctx):
    for cut in (1, 5, 40):
        server, ledger = filled_and_killed(ctx, f"torn-{cut}", 200)
        logs = log_files(server.data)
        if not ctx.report.check(f"torn tail, {cut} bytes: there is a log to tear", logs, f"no NNNNNN.log in {server.data}"):
            return
        os.truncate(logs[-1], written_bytes(logs[-1]) - cut)
        server = ctx.server(f"torn-{cut}").start()
        verify(ctx.report, server.api(), ledger, f"torn tail, {cut} bytes", may_lack={ledger.order[-1]})
        write_documents(server.api(), ledger, 20, prefix="later")
        server.kill()
        server = ctx.server(f"torn-{cut}").start()
        verify(ctx.report, server.api(), ledger, f"torn tail, {cut} bytes, then more and another crash", may_lack={ledger.order[199]}, quiet=True)
        server.stop()


def test_lost_sectors(ctx):
    """A loss of power may have written the second half of what was not synced and not the first: zeros, and records behind them. That is
    the end of the log; the same zeros far before its end are damage."""
    server, ledger = filled_and_killed(ctx, "sectors", 2000)
    log = log_files(server.data)[-1]
    end = written_bytes(log)
    lost = end // SECTOR_BYTES * SECTOR_BYTES - 4 * SECTOR_BYTES
    with damaged(log, lambda path: zero(path, end // 2 // SECTOR_BYTES * SECTOR_BYTES, 2 * SECTOR_BYTES)):
        refuses_clearly(ctx, "sectors", "zeros in the middle of a log", kind="start")
    accepted(ctx, server.data, log.relative_to(server.data), end)
    zero(log, lost, SECTOR_BYTES)
    server = ctx.server("sectors").start()
    verify(ctx.report, server.api(), ledger, "sectors that were not written", may_lack=set(ledger.order[-12:]))
    ctx.report.check("the log that was cut off is told of", "is cut off" in server.log(), server.log()[-500:])
    write_documents(server.api(), ledger, 20, prefix="later")
    server.kill()
    server = ctx.server("sectors").start()
    verify(ctx.report, server.api(), ledger, "after that, more and another crash", may_lack=set(ledger.order[1988:2000]), quiet=True)
    server.stop()


def accepted(ctx, data, log, end):
    """What lies behind zeros in the middle is left out as a whole, and kept aside."""
    copy = ctx.root / "accepted"
    shutil.copytree(data, copy, dirs_exist_ok=True)
    zero(copy / log, end // 2 // SECTOR_BYTES * SECTOR_BYTES, 2 * SECTOR_BYTES)
    whole = (copy / log).read_bytes()
    server = ctx.server("accepted", options=["--accept-damaged-log"]).start()
    rows = server.api().expect(200, "GET", "/kept/_all_docs")["rows"]
    ids = [row["id"] for row in rows]
    ctx.report.check("what comes before the damage is there", 100 < len(ids) < 1900, len(ids))
    ctx.report.check("and nothing of what comes after", ids == [f"doc-{number:06d}" for number in range(len(ids))], ids[-5:])
    aside = (copy / log).with_suffix(".log.damaged")
    ctx.report.check("the damaged log is put aside", aside.read_bytes() == whole, aside)
    server.stop()
    check = subprocess.run([ctx.binary, "check", str(copy)], capture_output=True, text=True)
    ctx.report.check("the store is sound then", check.returncode == 0, check.stdout[-800:] + check.stderr[-300:])


def zero(path, at, length):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(length))


def test_killed_while_opening(ctx):
    """The engine recovers a torn log, begins the next one with an empty batch, and only then removes the torn one. What is on the
    disk when it is killed between the two is made here."""
    server, ledger = filled_and_killed(ctx, "opening", 200)
    torn = log_files(server.data)[-1]
    os.truncate(torn, written_bytes(torn) - 100)
    later = torn.with_name(f"{int(torn.stem) + 5:06}.log")
    later.write_bytes(log_record(struct.pack("<QI", 1_000, 0)))
    server = ctx.server("opening").start()
    verify(ctx.report, server.api(), ledger, "an empty log after a torn one", may_lack={ledger.order[-1]})
    server.stop()


def log_record(payload):
    """A record as RocksDB's logs have them: checksum, length, type, payload."""
    full = 1
    crc = crc32c(bytes([full]) + payload)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(payload), full) + payload


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_damaged_log_middle(ctx):
    """Stopping silently at the first bad record would lose acknowledged writes without a word."""
    server, ledger = filled_and_killed(ctx, "middle", 2000)
    log = max(log_files(server.data), key=written_bytes)
    with damaged(log, lambda path: flip(path, written_bytes(path) // 2, 64)):
        refuses_clearly(ctx, "middle", "damaged log", kind="start")
    server = ctx.server("middle").start()
    verify(ctx.report, server.api(), ledger, "the log mended, after a refused start")
    server.stop()


def test_damaged_table(ctx):
    server, ledger = stopped_with_tables(ctx, "table")
    for what, harm in (("garbage", flip_all), ("cut short", cut_in_half), ("empty", make_empty), ("gone", remove)):
        table, _ = max(files_below(server.data, ".sst"), key=lambda found: found[1].st_size)
        with damaged(table, harm):
            refuses_clearly(ctx, "table", f"table file {what}", kind="start or answer", ledger=ledger)
        server = ctx.server("table").start()
        verify(ctx.report, server.api(), ledger, f"the table file mended ({what})", quiet=True)
        server.stop()


def stopped_with_tables(ctx, name):
    server = ctx.server(name).start()
    ledger, api = Ledger("kept"), server.api()
    api.expect((201, 202), "PUT", "/kept")
    write_documents(api, ledger, 500, size=2000)
    api.expect(202, "POST", "/kept/_compact")
    has_table = wait_until(lambda: files_below(server.data, ".sst"), timeout_s=20)
    server.stop()
    if not has_table and not files_below(server.data, ".sst"):
        raise AssertionError("neither _compact nor a clean stop wrote a table file")
    return server, ledger


def test_damaged_current(ctx):
    server, ledger = filled_and_killed(ctx, "current", 50)
    current = next(pathlib.Path(server.data).rglob("CURRENT"), None)
    if not ctx.report.check("there is a CURRENT file", current is not None, server.data, quiet=True):
        return
    with damaged(current, flip_all):
        refuses_clearly(ctx, "current", "garbage in CURRENT", kind="start")
    server = ctx.server("current").start()
    verify(ctx.report, server.api(), ledger, "CURRENT mended")
    server.stop()


TEXT_DOCS = 400
WORDS = [f"word{letter}" for letter in "abcdefghij"]
SEARCH_TIMEOUT_S = 60


def test_damaged_text_index(ctx):
    """A text index is never asked with wrong bytes for long: it is built anew. `check` names what is wrong."""
    server = ctx.server("text").start()
    api = server.api()
    api.expect(201, "PUT", "/texts")
    docs = [{"_id": f"d{n:04}", "t": f"{WORDS[n % 10]} all", "n": n} for n in range(TEXT_DOCS)]
    api.expect(201, "POST", "/texts/_bulk_docs", {"docs": docs})
    function = "function(doc) { index('text', 't', doc.t); index('double', 'n', doc.n); }"
    api.expect(201, "PUT", "/texts/_design/d", {"nouveau": {"i": {"default_analyzer": "simple", "index": function}}})

    def answers(api):
        found = [api.get(f"/texts/_design/d/_nouveau/i?q=t:{word}&limit=100&sort=%22n%22") for word in WORDS]
        return [[hit["id"] for hit in answer.json["hits"]] if answer.status == 200 else answer.status for answer in found]

    expected = [[f"d{n:04}" for n in range(word, TEXT_DOCS, 10)] for word in range(10)]
    ctx.report.equal("the text index answers", answers(api), expected)
    # A stop waits for clients that keep their connections.
    api.close()
    server.stop()
    ctx.report.check("a sound store is sound", checked(server) == (0, []), checked(server))
    kinds = ("idx", "pos", "term", "fast", "store", "fieldnorm")
    for kind in kinds:
        files = sorted(pathlib.Path(server.data).rglob(f"text/*/*.{kind}"))
        if not files:
            continue
        flip(files[0], 0, 1)
        code, found = checked(server)
        named = [finding["index"] for finding in found if finding["kind"] == "text_index" and finding["damage"]]
        ctx.report.check(f"a flipped byte of .{kind}: check names the index", code == 1 and named == ["_design/d/i"], (code, found))
        server = ctx.server("text").start()
        api = server.api()
        ctx.report.equal(f"a flipped byte of .{kind}: the index is built anew", answers(api), expected)
        ctx.report.check(f"a flipped byte of .{kind}: the log says so", "starts over" in server.log(), server.log()[-1500:])
        api.close()
        server.stop()
        ctx.report.equal(f"a flipped byte of .{kind}: sound again", checked(server), (0, []))
    damaged_while_it_is_asked(ctx, answers, expected)


def damaged_while_it_is_asked(ctx, answers, expected):
    """All files of the index become garbage below a server that has them open: an error or two, and then right answers."""
    server = ctx.server("text").start()
    api = server.api()
    answers(api)
    for file, _ in files_below(f"{server.data}/store/text", ".idx", ".pos", ".term", ".fast", ".store"):
        flip_all(file)
    right = wait_until(lambda: answers(api) == expected, timeout_s=SEARCH_TIMEOUT_S)
    ctx.report.check("garbage below a running server: right answers again", right, answers(api))
    ctx.report.check("garbage below a running server: the log says so", "is damaged" in server.log() and server.alive(), server.log()[-2000:])
    server.stop()


def checked(server):
    """The exit status of `settee check`, and what it found."""
    done = subprocess.run([server.binary, "check", server.data, "--json"], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout)["findings"]


def refuses_clearly(ctx, name, what, kind, ledger=None):
    """The start fails with an exit code and a reason; or, for `start or answer`, reads say so as errors."""
    server = ctx.server(name)
    try:
        server.start()
    except StartFailed as failed:
        said = failed.log.strip()
        ctx.report.check(
            f"{what}: the start is refused with an exit code and a reason",
            failed.exit_code not in (None, 0) and failed.exit_code > 0 and DAMAGE_NAMED.search(said) and "panicked" not in said,
            failed,
        )
        ctx.report.note(f"{what}: {said.splitlines()[-1][:300] if said else '(said nothing)'}")
        return
    if kind == "start":
        ctx.report.check(f"{what}: the start is refused", False, f"it started; it said: {server.log()[-1500:]}")
        server.stop()
        return
    answers_clearly(ctx, server, what, ledger)
    server.stop()


def answers_clearly(ctx, server, what, ledger):
    """A server that started on a damaged table: right documents, or a 5xx in CouchDB's shape."""
    api, wrong, refused = server.api(), [], 0
    for doc_id, edit in list(ledger.acknowledged.items())[::10]:
        answer = api.get(f"/{ledger.db}/{quote(doc_id)}")
        if answer.status == 200:
            if answer.json != {"_id": doc_id, "_rev": edit.rev, **edit.body}:
                wrong.append(repr(answer))
        elif answer.status >= 500 and answer.is_error_shape:
            refused += 1
        else:
            wrong.append(repr(answer))
    ctx.report.check(f"{what}: no wrong answer, {refused} clear errors", not wrong, "\n".join(wrong[:5]))
    ctx.report.check(f"{what}: no panic", "panicked" not in server.log() and server.alive(), server.log()[-1500:])


class damaged:
    """A file harmed for the time of a `with`, and put back as it was."""

    def __init__(self, path, harm):
        self.path, self.harm = path, harm
        self.kept = path.with_name(path.name + ".kept-by-test")

    def __enter__(self):
        shutil.copy2(self.path, self.kept)
        self.harm(self.path)

    def __exit__(self, *_):
        self.kept.replace(self.path)


def flip_all(path):
    flip(path, 0, path.stat().st_size)


def flip(path, at, length):
    with open(path, "r+b") as file:
        file.seek(at)
        block = file.read(length)
        file.seek(at)
        file.write(bytes(byte ^ 0x5A for byte in block))


def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


def make_empty(path):
    os.truncate(path, 0)


def remove(path):
    path.unlink()


def test_full_disk(ctx):
    with SmallDisk(ctx.folder("disk")) as disk:
        if disk.refused:
            ctx.report.skip("full disk", disk.refused)
            return
        fill_and_recover(ctx, disk.path)


def fill_and_recover(ctx, disk):
    report = ctx.report
    ballast = disk / "ballast"
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, BALLAST_BYTES)
    server = ctx.server("disk/data", log_path=str(ctx.root / "disk.log")).start()
    try:
        api, ledger = server.api(), Ledger("kept")
        api.expect((201, 202), "PUT", "/kept")
        refusal = write_until_refused(api, ledger)
        report.check(
            "full disk: a write is refused with a 5xx in CouchDB's shape",
            refusal is not None and refusal.status >= 500 and refusal.is_error_shape,
            repr(refusal),
        )
        report.note(f"full disk: after {len(ledger.acknowledged)} documents: {refusal!r}")
        again = write_one(api, ledger, "one-more", Edit({"pad": os.urandom(200_000).hex()}))
        report.check(
            "full disk: the next one gets a clear answer too", again.status == 201 or (again.status >= 500 and again.is_error_shape), repr(again)
        )
        reads_go_on(report, api, ledger)
        ballast.unlink()
        report.check("full disk: writes go on after space returns", writes_go_on(api, ledger), server.log()[-2000:])
        report.check("full disk: no panic", "panicked" not in server.log(), server.log()[-2000:])
        server.kill()
        server = ctx.server("disk/data", log_path=str(ctx.root / "disk.log")).start()
        verify(report, server.api(), ledger, "full disk, then a restart")
    finally:
        server.kill()


def write_until_refused(api, ledger):
    """Bulks of incompressible documents until the server says no; its answer, or None when it never does."""
    for batch in range(4 * DISK_BYTES // (100 * 8000)):
        docs = []
        for number in range(100):
            doc_id, edit = f"fill-{batch:04d}-{number:03d}", Edit({"pad": os.urandom(4000).hex()})
            ledger.intend(doc_id, edit)
            docs.append({"_id": doc_id, **edit.body})
        answer = api.post(f"/{ledger.db}/_bulk_docs", {"docs": docs})
        if answer.status != 201:
            return answer
        for row in answer.json:
            ledger.acknowledge(row["id"], row["rev"])
    return None


def reads_go_on(report, api, ledger):
    sample = list(ledger.acknowledged.items())[:: max(1, len(ledger.acknowledged) // 50)]
    answers = [(doc_id, edit, api.get(f"/{ledger.db}/{doc_id}")) for doc_id, edit in sample]
    wrong = [
        repr(answer) for doc_id, edit, answer in answers if answer.status != 200 or answer.json != {"_id": doc_id, "_rev": edit.rev, **edit.body}
    ]
    report.check(f"full disk: {len(sample)} reads go on", not wrong, "\n".join(wrong[:3]))
    report.check("full disk: the server still answers", api.get("/").status == 200)


def write_one(api, ledger, doc_id, edit):
    """Stays open in the ledger when it is refused: a 5xx promises neither that it happened nor that not."""
    ledger.intend(doc_id, edit)
    answer = api.put(f"/{ledger.db}/{doc_id}", edit.body)
    if answer.status == 201:
        ledger.acknowledge(doc_id, answer.json["rev"])
    return answer


def writes_go_on(api, ledger):
    edit = Edit({"written": "after space returned"})
    return wait_until(lambda: write_one(api, ledger, "space-again", edit).status == 201, SPACE_RETURNS_TIMEOUT_S, 0.25)

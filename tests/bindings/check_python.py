"""The Python package as people use it, from a wheel that was installed. The suite `bindings` runs this."""

import base64
import gc
import io
import itertools
import json
import math
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time

import settee

from checks import part, run

BY_TYPE = {
    "_id": "_design/by",
    "views": {
        "type": {"map": "function (doc) { emit(doc.type, doc.n); }", "reduce": "_sum"},
        "id": {"map": "function (doc) { emit(doc._id, null); }"},
    },
}
SLOW = {
    "_id": "_design/slow",
    "autoupdate": False,
    "views": {"v": {"map": "function (doc) { for (var i = 0, x = 0; i < 3e5; i++) { x += i; } emit(doc._id, x); }"}},
}


def raises(kind, work, **words):
    try:
        work()
    except kind as error:
        for name, value in words.items():
            assert getattr(error, name) == value, f"{name} is {getattr(error, name)!r}, not {value!r}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def child(folder, source):
    """Another interpreter, which is given the folder."""
    command = [sys.executable, "-c", source, folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@part
def documents_are_written_read_and_deleted(folder):
    with settee.open(folder) as directory:
        db = directory.create("notes")
        # The revision that the README's tour shows for the same edit.
        tour = db.put({"_id": "r1", "day": [2026, 11, 20], "what": "tea", "price": 4.5})
        assert tour == ("r1", "1-27c8ea11f15ef39c3d198d01b48d3d81"), tour
        db.delete(*tour)
        first = db.put({"_id": "a", "text": "hello"})
        doc = db.get("a")
        assert doc == {"_id": "a", "_rev": first.rev, "text": "hello"}, doc
        raises(settee.Conflict, lambda: db.put({"_id": "a"}), status=409, error="conflict", reason="Document update conflict.")
        second = db.put({**doc, "text": "bye"})
        assert db.get("a", rev=first.rev)["text"] == "hello"
        assert db.get("a", revs=True)["_revisions"]["start"] == 2
        named = db.put({"no": "id"})
        assert len(named.id) == 32 and named.id in db and "zzz" not in db and len(db) == 2
        gone = db.delete("a", second.rev)
        assert gone.rev.startswith("3-")
        raises(settee.NotFound, lambda: db.get("a"), status=404, error="not_found", reason="deleted")
        raises(KeyError, lambda: db.get("never"), reason="missing")
        raises(settee.BadRequest, lambda: db.put({"_id": "_x"}), status=400)
        raises(TypeError, lambda: db.put([1]))
        assert db.put({"_id": "_local/x", "n": 1}).rev == "0-1"


@part
def databases_are_made_listed_and_deleted(folder):
    with settee.open(folder, q=1) as directory:
        directory.create("b")
        made = directory.create("a", q=3, partitioned=True)
        assert made.info()["q"] == 3 and made.info()["partitioned"] is True
        assert directory["b"].info()["q"] == 1
        assert list(directory) == ["a", "b"] and len(directory) == 2 and "a" in directory and "c" not in directory
        raises(settee.FileExists, lambda: directory.create("a"), status=412, error="file_exists")
        assert directory.create("a", exist_ok=True).name == "a"
        raises(settee.BadRequest, lambda: directory.create("A"), error="illegal_database_name")
        raises(settee.Forbidden, lambda: directory.create("_users"), status=403)
        held = directory["b"]
        directory.delete("b")
        raises(settee.NotFound, lambda: directory["b"], status=404, reason="Database does not exist.")
        raises(settee.NotFound, held.info)
        directory.create("b")
        assert held.info()["doc_count"] == 0
        raises(settee.BadRequest, lambda: settee.open(folder + "2", q="x"), status=400)
    raises(settee.NotFound, lambda: settee.open(folder + "3", create=False))
    assert not os.path.exists(folder + "3")


@part
def values_keep_their_kind(folder):
    with settee.open(folder) as directory:
        db = directory.create("v")
        values = {
            "big": 2**200 + 1,
            "negative": -(10**60),
            "one": 1,
            "float": 1.0,
            "small": 2.2250738585072014e-308,
            "large": 1.7976931348623157e308,
            "text": 'é\U0001f600\u0000"\\',
            "list": [None, True, False, [], {}],
            "tuple": (1, "a"),
        }
        db.put({"_id": "a", **values})
        doc = db.get("a")
        for name, value in values.items():
            expected = list(value) if isinstance(value, tuple) else value
            assert doc[name] == expected and type(doc[name]) is type(expected), (name, doc[name])
        # CouchDB too has two revisions for 1 and 1.0.
        assert db.put({"_id": "i", "n": 1}).rev != db.put({"_id": "f", "n": 1.0}).rev
        for bad in (math.nan, math.inf, -math.inf):
            error = raises(ValueError, lambda bad=bad: db.put({"_id": "n", "a": [0, {"b": bad}]}))
            assert ".a[1].b" in str(error), error
        raises(TypeError, lambda: db.put({"_id": "n", 1: 2}))
        raises(TypeError, lambda: db.put({"_id": "n", "when": object()}))
        raises(ValueError, lambda: db.put({"_id": "n", "half": "\ud800"}))
        itself = {}
        itself["x"] = itself
        raises(ValueError, lambda: db.put(itself))
        raises(settee.BadRequest, lambda: db.put({"_id": "n", "n": 10**700}))
        assert "n" not in db


@part
def raw_text_goes_in_and_out(folder):
    with settee.open(folder) as directory:
        db = directory.create("raw")
        db.put('{"_id":"a","n":1.0,"big":123456789012345678901234567890}')
        db.put(b'{"_id":"b","n":1}')
        assert db.get("a", raw=True).endswith('"n":1.0,"big":123456789012345678901234567890}')
        outcomes = db.bulk(['{"_id":"c"}', b'{"_id":"d"}', {"_id": "e"}])
        assert [o["id"] for o in outcomes] == ["c", "d", "e"]
        rows = list(db.all_docs(raw=True))
        assert all(isinstance(row, str) for row in rows) and [json.loads(row)["id"] for row in rows] == list("abcde")
        assert [json.loads(row)["id"] for row in db.changes(raw=True)]
        raises(settee.BadRequest, lambda: db.put('{"_id":"x"},{"_id":"y"}'), error="bad_request")
        raises(settee.BadRequest, lambda: db.bulk(['{"_id":"x"}', "{"]))
        assert "x" not in db


@part
def bulks_and_loads_tell_what_became_of_each(folder):
    with settee.open(folder) as directory:
        db = directory.create("bulk")
        outcomes = db.bulk([{"_id": f"{n:04}", "n": n} for n in range(1000)])
        assert len(outcomes) == 1000 and all(o["ok"] for o in outcomes)
        (conflict,) = db.bulk([{"_id": "0000"}])
        assert conflict == {"id": "0000", "error": "conflict", "reason": "Document update conflict."}
        rev = "7-0123456789abcdef0123456789abcdef"
        assert db.bulk([{"_id": "r", "_rev": rev}], new_edits=False) == []
        assert db.get("r")["_rev"] == rev
        told = []
        loaded = db.load(({"_id": f"l{n}"} for n in range(2500)), batch=1000, progress=told.append)
        assert loaded == (2500, []) and told == [1000, 2000, 2500]
        again = db.load([{"_id": "l0"}, {"_id": "new"}])
        assert again.written == 1 and again.failed[0]["error"] == "conflict"

        def stop(done):
            if done >= 2000:
                raise RuntimeError("enough")

        raises(RuntimeError, lambda: db.load(({"_id": f"s{n}"} for n in range(10_000)), progress=stop))
        assert sum(1 for _ in db.all_docs(startkey="s", endkey="t")) == 2000
        assert db.load([], delayed=True).written == 0


@part
def listings_and_views_are_iterated(folder):
    with settee.open(folder) as directory:
        db = directory.create("views")
        db.load({"_id": f"{n:05}", "type": "even" if n % 2 == 0 else "odd", "n": n} for n in range(5000))
        rows = db.all_docs()
        assert rows.total_rows == 5000 and rows.offset == 0
        assert [row["id"] for row in rows] == [f"{n:05}" for n in range(5000)]
        some = list(db.all_docs(startkey="00010", endkey="00012", inclusive_end=False, include_docs=True))
        assert [row["doc"]["n"] for row in some] == [10, 11]
        assert [row["key"] for row in db.all_docs(keys=["00001", "nope"])] == ["00001", "nope"]
        assert next(db.all_docs(descending=True, limit=1))["id"] == "04999"
        raises(settee.BadRequest, lambda: db.all_docs(nonsense=1), status=400)
        db.put(BY_TYPE)
        assert list(db.view("by", "type")) == [{"key": None, "value": 4999 * 2500}]
        grouped = list(db.view("by", "type", group=True))
        assert [row["key"] for row in grouped] == ["even", "odd"], grouped
        odd = db.view("by", "type", key="odd", reduce=False)
        assert odd.total_rows == 5000 and len(list(odd)) == 2500
        assert list(db.view("by", "type", key=None, reduce=False)) == []
        assert len(list(db.view("_design/by", "id", startkey="04990"))) == 10
        raises(settee.NotFound, lambda: db.view("by", "nope"), reason="missing_named_view")
        raises(settee.NotFound, lambda: db.view("nope", "x"))
        raises(settee.BadRequest, lambda: db.view("by", "id", group=True), error="query_parse_error")
        raises(settee.BadRequest, lambda: db.view("by", "id", startkey=2, endkey=1), error="query_parse_error")
        with db.view("by", "id") as rows:
            next(rows)
        assert list(rows) == []
        # A snapshot: what comes later is not in it.
        rows = db.all_docs()
        next(rows)
        db.put({"_id": "zzz"})
        assert sum(1 for _ in rows) == 5000


@part
def functions_may_throw(folder):
    with settee.open(folder, functions_time_limit_ms=300) as directory:
        db = directory.create("f")
        db.put({"_id": "_design/v", "validate_doc_update": "function (doc) { if (!doc.ok && !doc._deleted) throw({forbidden: 'not ok'}); }"})
        raises(settee.Forbidden, lambda: db.put({"_id": "a"}), status=403, error="forbidden", reason="not ok")
        assert db.bulk([{"_id": "a"}, {"_id": "b", "ok": True}])[0]["error"] == "forbidden"
        raises(settee.BadRequest, lambda: db.put({"_id": "_design/w", "ok": 1, "views": {"v": {"map": "function ("}}}))
        db.put({"_id": "_design/r", "ok": 1, "views": {"v": {"map": "function (d) { emit(1, 1); }", "reduce": "function () { for (;;) {} }"}}})
        raises(settee.Error, lambda: list(db.view("r", "v")))


@part
def queries_use_indexes(folder):
    with settee.open(folder) as directory:
        db = directory.create("find")
        db.load({"_id": str(n), "n": n, "what": "tea" if n % 3 else "milk"} for n in range(1000))
        made = db.create_index(["n"], name="by-n")
        assert made["result"] == "created" and db.create_index(["n"], name="by-n")["result"] == "exists"
        assert [index["name"] for index in db.indexes()] == ["_all_docs", "by-n"]
        found = db.find({"n": {"$gte": 10, "$lt": 13}}, fields=["_id", "n"], sort=["n"])
        assert list(found) == [{"_id": str(n), "n": n} for n in (10, 11, 12)]
        assert found.tail["bookmark"]
        assert db.explain({"n": 1})["index"]["name"] == "by-n"
        # All of them, unless there is a limit.
        assert len(list(db.find({"what": "tea"}))) == 666
        assert len(list(db.find({"what": "tea"}, limit=5))) == 5
        groups = list(db.find({"n": {"$gte": 0}}, aggregate={"group_by": ["what"], "compute": {"sum": {"$sum": "n"}}}))
        assert sum(group["value"]["sum"] for group in groups) == 499500, groups
        raises(settee.BadRequest, lambda: db.find({"n": {"$nonsense": 1}}))
        db.delete_index(made["id"], "by-n")
        raises(settee.NotFound, lambda: db.delete_index(made["id"], "by-n"))


@part
def changes_are_read_and_followed(folder):
    with settee.open(folder) as directory:
        db = directory.create("changes")
        db.load({"_id": str(n), "n": n} for n in range(300))
        rows = list(db.changes(include_docs=True))
        assert len(rows) == 300 and {row["doc"]["n"] for row in rows} == set(range(300))
        assert list(db.changes(since=rows[-1]["seq"])) == []
        assert len(list(db.changes(selector={"n": {"$lt": 5}}))) == 5
        assert [row["id"] for row in db.changes(doc_ids=["7"])] == ["7"]
        assert len(list(db.changes(limit=3, descending=True))) == 3
        raises(settee.BadRequest, lambda: db.changes(design=True, doc_ids=["a"]))
        seen, ready = [], threading.Event()

        def follow():
            with db.changes(since="now", live=True) as feed:
                ready.set()
                for row in feed:
                    seen.append(row["id"])
                    if len(seen) == 50:
                        return

        thread = threading.Thread(target=follow)
        thread.start()
        assert ready.wait(10)
        for n in range(50):
            db.put({"_id": f"new{n}"})
        thread.join(20)
        # Each once; those of different shards are in no order.
        assert not thread.is_alive() and sorted(seen) == sorted(f"new{n}" for n in range(50)), seen
        feed = db.changes(since="now", live=True, timeout=0.2)
        began = time.monotonic()
        assert list(feed) == [] and 0.1 < time.monotonic() - began < 10
        db.put({"_id": "later"})
        assert [row["id"] for row in feed] == ["later"] and feed.last_seq


@part
def ids_ascend_and_never_repeat(folder):
    for source in (settee.ids.sequential, settee.ids.monotonic):
        new_id = source("status/")
        made = [new_id() for _ in range(1000)] + list(itertools.islice(new_id, 1000)) + [next(source("status/"))]
        assert made == sorted(set(made)) and all(id.startswith("status/") and len(id) == 39 for id in made)
        assert len(source()()) == 32 and new_id.prefix == "status/" and repr(new_id).endswith("('status/')")
        assert pickle.loads(pickle.dumps(new_id))() > made[-1]
        found, threads = [], []
        for _ in range(8):
            threads.append(threading.Thread(target=lambda: found.append([new_id() for _ in range(2000)])))
            threads[-1].start()
        for thread in threads:
            thread.join()
        assert all(ids == sorted(ids) for ids in found) and len({id for ids in found for id in ids}) == 16_000
        # A fork has the state of its parent, and must not go on with it.
        reader, writer = os.pipe()
        forked = os.fork()
        if forked == 0:
            os.write(writer, json.dumps([new_id() for _ in range(500)]).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as told:
            others = json.loads(told.read())
        os.waitpid(forked, 0)
        own = [new_id() for _ in range(500)]
        assert len(others) == 500 and others == sorted(others) and not set(others) & set(own)
        for wrong in ("_design/", "_", "x" * 257, "a\n"):
            raises(settee.BadRequest, lambda wrong=wrong: source(wrong), status=400)
        raises(TypeError, lambda: source(1))
    with settee.open(folder) as directory:
        db = directory.create("a")
        new_id = settee.ids.monotonic("m/")
        written = [db.put({"_id": new_id(), "n": n}).id for n in range(100)]
        assert [row["id"] for row in db.all_docs()] == written
    milliseconds = int(settee.ids.monotonic()()[:12], 16)
    assert abs(milliseconds - time.time() * 1000) < 60_000


@part
def attachments_are_files(folder):
    with settee.open(folder) as directory:
        db = directory.create("files")
        small = db.put_attachment("a", "hello.txt", b"hello", content_type="text/plain")
        reader = db.open_attachment("a", "hello.txt")
        assert reader.read() == b"hello" and reader.content_type == "text/plain" and reader.length == 5 and reader.digest.startswith("md5-")
        large = os.urandom(3_000_000)
        written = db.put_attachment("a", "large", io.BytesIO(large), rev=small.rev)
        with db.open_attachment("a", "large") as reader:
            assert reader.read(10) == large[:10] and reader.read() == large[10:]
        assert db.open_attachment("a", "large", start=5, end=9).read() == large[5:9]
        target = pathlib.Path(folder) / "copy"
        with db.open_attachment("a", "large") as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        assert target.read_bytes() == large
        with db.create_attachment("a", "lines", rev=written.rev, content_type="text/plain") as writer:
            for n in range(1000):
                writer.write(f"line {n}\n".encode())
        assert sum(1 for _ in db.open_attachment("a", "lines")) == 1000
        assert set(db.get("a")["_attachments"]) == {"hello.txt", "large", "lines"}

        def fails():
            with db.create_attachment("a", "no", rev=writer.written.rev) as other:
                other.write(b"x")
                raise RuntimeError("given up")

        raises(RuntimeError, fails)
        other = db.create_attachment("a", "no", rev=writer.written.rev)
        other.write(b"x")
        del other
        gc.collect()
        assert "no" not in db.get("a")["_attachments"]
        raises(settee.Conflict, lambda: db.put_attachment("a", "x", b"", rev=small.rev))
        raises(settee.Conflict, lambda: db.put_attachment("a", "x", b""))
        raises(settee.NotFound, lambda: db.open_attachment("a", "x"), reason="Document is missing attachment")
        gone = db.delete_attachment("a", "large", writer.written.rev)
        assert set(db.get("a", attachments=True)["_attachments"]) == {"hello.txt", "lines"} and gone.rev.startswith("4-")


@part
def bulks_stream_their_attachments(folder):
    with settee.open(folder) as directory:
        db = directory.create("files")
        large = os.urandom(3_000_000)
        opened = []

        def late():
            opened.append(io.BytesIO(large))
            return opened[-1]

        def pieces():
            yield large[:1_000_001]
            yield memoryview(large)[1_000_001:]

        def doc(id, data, **more):
            return {"_id": id, "n": 1, "_attachments": {"plain": {"data": "aGVsbG8="}, "file": {"content_type": "image/x", "data": data}}, **more}

        sources = {
            "bytes": large,
            "array": bytearray(large),
            "file": io.BytesIO(large),
            "pieces": pieces(),
            "list": [large[:9], large[9:]],
            "late": late,
        }
        docs = [doc(id, data) for id, data in sources.items()]
        before = json.dumps([sorted(one["_attachments"]["file"]) for one in docs])
        outcomes = db.bulk([*docs, {"_id": "without"}, '{"_id":"text"}'])
        assert [outcome["id"] for outcome in outcomes] == [*sources, "without", "text"] and all(outcome["ok"] for outcome in outcomes), outcomes
        assert json.dumps([sorted(one["_attachments"]["file"]) for one in docs]) == before, "documents are left as they are"
        assert opened[0].closed and not sources["file"].closed
        for id in sources:
            reader = db.open_attachment(id, "file")
            assert reader.content_type == "image/x" and reader.read() == large, id
            assert db.open_attachment(id, "plain").read() == b"hello"
            assert set(db.get(id)["_attachments"]) == {"file", "plain"}
        # The same revision as with the bytes in Base64, and stubs beside streams.
        text = base64.b64encode(large).decode()
        assert db.bulk([doc("text-file", text)])[0]["rev"] == db.bulk([doc("stream-file", io.BytesIO(large))])[0]["rev"]
        rev = db.get("bytes")["_rev"]
        stubs = {"plain": {"stub": True}, "file": {"stub": True}, "more": {"data": b""}}
        outcome = db.bulk([{"_id": "bytes", "_rev": rev, "_attachments": stubs}, doc("file", b"x"), doc("new", b"x")])
        assert [one.get("error", one["id"]) for one in outcome] == ["bytes", "conflict", "new"], outcome
        assert db.open_attachment("bytes", "more").length == 0 and db.open_attachment("bytes", "file").read() == large

        def broken():
            yield b"x"
            raise RuntimeError("given up")

        size = len(db)
        raises(RuntimeError, lambda: db.bulk([doc("whole", b"x"), doc("broken", broken())]))
        raises(TypeError, lambda: db.bulk([doc("whole", b"x"), doc("broken", io.StringIO("text"))]))
        raises(TypeError, lambda: db.bulk([doc("whole", b"x"), doc("broken", [1])]))
        raises(settee.BadRequest, lambda: db.bulk([doc("whole", b"x"), {"_id": "_local/x", "_attachments": {"a": {"data": b"x"}}}]))
        raises(settee.BadRequest, lambda: db.bulk([doc("whole", b"x"), {"_id": "y", "_attachments": {"a": {"follows": True}}}]))
        assert len(db) == size and "whole" not in db
        loaded = db.load((doc(f"l{n}", lambda n=n: io.BytesIO(b"%d" % n)) for n in range(250)), batch=100)
        assert loaded == (250, []) and db.open_attachment("l249", "file").read() == b"249"
        replicated = db.bulk([doc("bytes", b"other", _rev="1-" + "f" * 32)], new_edits=False)
        assert replicated == [] and db.get("bytes", conflicts=True)["_conflicts"]
        given = db.bulk([{"_attachments": {"a": {"data": b"x"}}}])[0]["id"]
        assert len(given) == 32 and db.open_attachment(given, "a").read() == b"x"


@part
def streams_of_a_bulk_are_not_held_in_memory(folder):
    with settee.open(folder) as directory:
        db = directory.create("files")

        def rss_mb():
            pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") >> 20

        piece, most = os.urandom(1 << 20), []

        def pieces(n):
            for _ in range(64):
                yield piece
                most.append(rss_mb())
            yield b"%d" % n

        db.bulk([{"_id": "first", "_attachments": {"a": {"content_type": "image/x", "data": pieces(0)}}}])
        before = max(most)
        db.bulk([{"_id": f"d{n}", "_attachments": {"a": {"content_type": "image/x", "data": pieces(n)}}} for n in range(6)])
        assert max(most) < before + 150, (before, max(most))


@part
def closing_closes_everything(folder):
    directory = settee.open(folder)
    db = directory.create("c")
    db.load({"_id": str(n)} for n in range(3000))
    db.put_attachment("f", "x", b"x" * 100_000)
    rows, feed = db.all_docs(), db.changes(live=True)
    next(rows)
    reader, writer = db.open_attachment("f", "x"), db.create_attachment("g", "x")
    ended = []

    def follow():
        try:
            for _ in db.changes(since="now", live=True):
                pass
        except settee.Closed as error:
            ended.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    directory.close()
    thread.join(10)
    assert ended and directory.closed
    directory.close()
    # Rows that were read already are given still.
    raises(settee.Closed, lambda: list(rows), status=503, error="closed")
    for closed in (lambda: next(feed), reader.read, lambda: writer.write(b"x"), db.info, directory.names, lambda: db.put({})):
        raises(settee.Closed, closed)
    # The directory is free, and everything is there.
    with settee.open(folder) as directory:
        assert len(directory["c"]) == 3001


@part
def a_second_opener_is_refused(folder):
    opens = "import settee, sys\ntry:\n    settee.open(sys.argv[1])\nexcept settee.InUse as e:\n    print(e.status, e.error)\n"
    with settee.open(folder) as directory:
        raises(settee.InUse, lambda: settee.open(folder), status=423, error="in_use")
        done = child(folder, opens)
        assert done.stdout == "423 in_use\n", (done.stdout, done.stderr)
        # It took nothing away from who has it.
        directory.create("a").put({"_id": "x"})
        assert child(folder, opens).stdout == "423 in_use\n"
    assert child(folder, "import settee, sys\nprint(settee.open(sys.argv[1]).names())\n").stdout == "['a']\n"


@part
def a_forked_process_is_told(folder):
    directory = settee.open(folder)
    db = directory.create("a")
    db.put({"_id": "x"})
    rows = db.all_docs()
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = []
        try:
            for work in (
                directory.names,
                lambda: db.get("x"),
                lambda: db.put({}),
                lambda: next(rows),
                directory.close,
                lambda: settee.open(folder + "-other"),
                lambda: settee.open(folder),
            ):
                try:
                    work()
                    words.append("nothing")
                except settee.ForkedProcess as error:
                    words.append(error.error)
            del rows, work
            gc.collect()
        except BaseException as error:
            words.append(repr(error))
        os.write(send, " ".join(words).encode())
        os._exit(0)
    os.close(send)
    told = b""
    while piece := os.read(receive, 1000):
        told += piece
    os.close(receive)
    assert os.waitpid(pid, 0)[1] == 0
    assert told.decode() == " ".join(["forked"] * 7), told
    db.put({"_id": "y"})
    assert len(db) == 2
    directory.close()


@part
def processes_are_started_by_spawn(folder):
    # Who opens a directory in the child alone may.
    source = (
        "import multiprocessing, sys, settee\n"
        "def work(folder):\n    with settee.open(folder) as d: d.create('a').put({'_id': 'x'})\n"
        "if __name__ == '__main__':\n    p = multiprocessing.get_context('spawn').Process(target=work, args=(sys.argv[1],))\n"
        "    p.start(); p.join(); print(p.exitcode)\n"
    )
    script = pathlib.Path(folder) / "spawn.py"
    script.write_text(source)
    done = subprocess.run([sys.executable, str(script), folder + "/data"], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "0\n", (done.stdout, done.stderr)
    with settee.open(folder + "/data") as directory:
        assert "x" in directory["a"]


@part
def ctrl_c_gets_through(folder):
    # What was started in the background of a shell ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with settee.open(folder, background_indexing=False) as directory:
        db = directory.create("slow")
        db.load({"_id": f"{n:05}"} for n in range(20_000))
        db.put(SLOW)
        told = []

        def look(done, total):
            told.append((done, total))
            if len(told) == 3:
                os.kill(os.getpid(), signal.SIGINT)

        began = time.monotonic()
        raises(KeyboardInterrupt, lambda: db.view("slow", "v", progress=look))
        assert time.monotonic() - began < 60
        assert told[0][1] > 0 and told[-1][0] <= told[-1][1], told
        # So it does while a feed waits, and nothing is lost by it.
        feed = db.changes(since="now", live=True)
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        raises(KeyboardInterrupt, lambda: next(feed))
        db.put({"_id": "after"})
        assert next(feed)["id"] == "after"

        class Enough(Exception):
            pass

        def enough(done, total):
            raise Enough

        raises(Enough, lambda: db.build_index("slow", progress=enough))
        deadline = time.monotonic() + 60
        while not any(task["type"] == "indexer" for task in directory.tasks()):
            assert time.monotonic() < deadline, "the build goes on when nobody waits for it"
            time.sleep(0.01)
        began = time.monotonic()
    # Closing ended the build.
    assert time.monotonic() - began < 60


@part
def threads_share_a_database(folder):
    with settee.open(folder) as directory:
        db = directory.create("threads")
        failures = []

        def work(name):
            try:
                for n in range(100):
                    rev = db.put({"_id": f"{name}-{n}", "n": n}).rev
                    assert db.get(f"{name}-{n}")["_rev"] == rev
                    if n % 25 == 0:
                        list(db.all_docs(limit=50))
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        assert len(db) == 800
        # Others run while one waits: the interpreter's lock is let go of.
        counted = 0
        feed = db.changes(since="now", live=True, timeout=0.5)
        waiting = threading.Thread(target=lambda: list(feed))
        waiting.start()
        while waiting.is_alive():
            counted += 1
        assert counted > 1000
        # One iterator shared by threads gives each row once.
        rows, given = db.all_docs(), [[] for _ in range(4)]
        takers = [threading.Thread(target=lambda mine=mine: mine.extend(row["id"] for row in rows)) for mine in given]
        for thread in takers:
            thread.start()
        for thread in takers:
            thread.join()
        assert sorted(doc_id for some in given for doc_id in some) == sorted({row["id"] for row in db.all_docs()})


@part
def an_interpreter_that_ends_closes(folder):
    source = "import settee, sys\nd = settee.open(sys.argv[1])\nd.create('a').load(({'_id': str(n)} for n in range(5000)), delayed=True)\n"
    done = child(folder, source)
    assert done.returncode == 0, done.stderr
    with settee.open(folder) as directory:
        assert len(directory["a"]) == 5000


@part
def functions_may_run_in_processes(folder):
    program = os.environ.get("SETTEE_BINARY")
    assert program, "SETTEE_BINARY names the program"
    with settee.open(folder, functions_program=program) as directory:
        db = directory.create("p")
        db.load({"_id": str(n), "type": "x", "n": 1} for n in range(100))
        db.put(BY_TYPE)
        assert list(db.view("by", "type")) == [{"key": None, "value": 100}]


run()

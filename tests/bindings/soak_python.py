"""What is opened over and over, and not closed, leaves nothing behind. The number of times is the argument."""

import gc
import pathlib
import sys
import threading

import settee

from checks import part, run

TIMES = int(sys.argv.pop())
# Allocators keep some of what they had.
GROWTH_MAX_BYTES = 64 << 20


def resident_bytes():
    gc.collect()
    (line,) = (line for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


@part
def directories_are_opened_and_closed(folder):
    for n in range(max(20, TIMES // 100)):
        with settee.open(folder) as directory:
            db = directory.create("a", exist_ok=True)
            db.put({"_id": str(n)})
            rows = db.all_docs()
            next(rows)
            assert len(db) == n + 1


@part
def cursors_and_streams_are_dropped(folder):
    with settee.open(folder) as directory:
        db = directory.create("a")
        db.load({"_id": f"{n:05}", "text": "x" * 1000} for n in range(2000))
        db.put({"_id": "_design/d", "views": {"v": {"map": "function (doc) { emit(doc._id, doc.text); }", "reduce": "_count"}}})
        db.build_index("d")
        db.put_attachment("f", "x", b"x" * 300_000)

        def use(n):
            next(db.all_docs(include_docs=True))
            next(db.view("d", "v", reduce=False, skip=n % 1000))
            list(db.view("d", "v", group=True, limit=3))
            next(db.changes(include_docs=True))
            list(db.find({"text": {"$gt": None}}, limit=2))
            db.open_attachment("f", "x").read(10)
            db.create_attachment(f"g{n}", "x").write(b"x" * 1000)
            db.put({"_id": f"n{n % 100}", "_rev": db.get(f"n{n % 100}")["_rev"]} if n >= 100 else {"_id": f"n{n}"})

        for n in range(100):
            use(n)
        before = resident_bytes()
        for n in range(100, 100 + TIMES):
            use(n)
        grown = resident_bytes() - before
        assert grown < GROWTH_MAX_BYTES, f"{grown >> 20} MiB more after {TIMES} times"


@part
def threads_write_follow_and_read_at_once(folder):
    with settee.open(folder) as directory:
        db = directory.create("a")
        each, writers, failures, followed = max(TIMES // 4, 50), 4, [], []

        def guarded(work):
            try:
                work()
            except BaseException as failure:
                failures.append(failure)

        def write(name):
            for n in range(each):
                db.put({"_id": f"{name}-{n}"}, delayed=n % 2 == 0)

        def follow():
            for row in db.changes(live=True, timeout=30):
                followed.append(row["id"])
                if len(followed) == each * writers:
                    return

        def read():
            while len(followed) < each * writers and not failures:
                assert sum(1 for _ in db.all_docs()) <= each * writers

        work = [follow, read, *(lambda name=name: write(name) for name in range(writers))]
        threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        assert sorted(followed) == sorted(row["id"] for row in db.all_docs())


run()

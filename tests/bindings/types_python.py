"""Looked at by mypy, not run: what the package says of its types, and what it must refuse."""

import io
from typing import assert_type

import settee


def documents(db: settee.Database) -> None:
    assert_type(db.put({"_id": "a"}), settee.Written)
    assert_type(db.put("{}").rev, str)
    assert_type(db.get("a"), dict[str, object])  # type: ignore[assert-type]
    assert_type(db.get("a", raw=True), str)
    assert_type(db.load([{"_id": "a"}]).failed, list[settee.BulkError])
    db.put([1])  # type: ignore[arg-type]
    db.get(1)  # type: ignore[call-overload]
    db.get("a", nonsense=True)  # type: ignore[call-overload]


def rows(db: settee.Database) -> None:
    for row in db.view("d", "v", startkey=["a", 1], group_level=1, progress=lambda done, total: print(done, total)):
        print(row["key"])
    for text in db.all_docs(raw=True, include_docs=True):
        assert_type(text, str)
    assert_type(db.all_docs().total_rows, int | None)
    for change in db.changes(since="now", live=True, timeout=1.5, selector={"a": 1}):
        print(change["seq"])
    for found in db.find({"a": 1}, fields=["a"], sort=[{"a": "desc"}], limit=1):
        print(found["a"])
    db.view("d", "v", limit="1")  # type: ignore[call-overload]
    db.changes(nonsense=1)  # type: ignore[call-overload]


def ids(db: settee.Database) -> None:
    new_id = settee.ids.sequential("a/")
    assert_type(new_id(), str)
    assert_type(next(settee.ids.monotonic()), str)
    settee.ids.sequential(1)  # type: ignore[arg-type]


def files(db: settee.Database) -> None:
    db.bulk([{"_id": "a", "_attachments": {"x": {"data": io.BytesIO(b"x")}}}])
    with db.open_attachment("a", "x") as reader:
        assert_type(reader.read(), bytes)
        assert_type(reader.content_type, str)
    with db.create_attachment("a", "x") as writer:
        writer.write(b"x")
    assert_type(writer.written, settee.Written)
    assert_type(db.put_attachment("a", "x", io.BytesIO(b"x")), settee.Written)
    db.put_attachment("a", "x", "text")  # type: ignore[arg-type]


def directories() -> None:
    with settee.open("data", q=1) as directory:
        assert_type(directory, settee.Directory)
        assert_type(directory["a"], settee.Database)
        assert_type(list(directory), list[str])
    try:
        settee.open("data")
    except settee.InUse as error:
        assert_type(error.status, int)
    settee.open("data", nonsense=1)  # type: ignore[call-arg]

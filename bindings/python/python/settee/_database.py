"""A database."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TypedDict, overload

from . import _bulk, _settee
from ._attachments import AttachmentReader, AttachmentWriter
from ._json import given, loads, options
from ._options import AllDocsOptions, ChangesOptions, FindOptions, GetOptions, ViewOptions
from ._rows import Changes, Rows

if TYPE_CHECKING:
    # In Python 3.10 it is nowhere else.
    from typing_extensions import Unpack

# A document: a `dict`, or its JSON text.
Document = dict[str, Any] | str | bytes
# Called with the amount done, and the total.
Progress = Callable[[int, int], object]

# Options of views for which `None` is a value.
_KEYS = ("key", "startkey", "endkey")
# Bytes of an attachment's file that are read at a time.
_PIECE_BYTES = 256 << 10


class Written(NamedTuple):
    """A written document."""

    id: str
    rev: str


class BulkError(TypedDict):
    """Why one document of a bulk was not written."""

    id: str
    error: str
    reason: str


class Loaded(NamedTuple):
    """The outcome of a load."""

    written: int
    failed: list[BulkError]


class Database:
    """A database of a directory. Threads may share it.

    CouchDB's query parameters are keyword arguments here. `raw=True` returns JSON text instead of values.
    """

    def __init__(self, native: _settee.Database) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    def __repr__(self) -> str:
        return f"<settee.Database {self.name!r}>"

    def info(self) -> dict[str, Any]:
        """Counts and sizes, as in `GET /{db}`."""
        info: dict[str, Any] = loads(self._native.info())
        return info

    def __len__(self) -> int:
        """Number of documents that are not deleted."""
        return int(self.info()["doc_count"])

    def __bool__(self) -> bool:
        return True

    def compact(self) -> None:
        """Starts a compaction in the background."""
        self._native.compact()

    # Documents

    @overload
    def get(self, id: str, *, raw: Literal[False] = ..., **asked: Unpack[GetOptions]) -> dict[str, Any]: ...

    @overload
    def get(self, id: str, *, raw: Literal[True], **asked: Unpack[GetOptions]) -> str: ...

    def get(self, id: str, *, raw: bool = False, **asked: Unpack[GetOptions]) -> dict[str, Any] | str:
        """Reads a document. Raises `NotFound`.

        rev: this revision instead of the winning one
        latest: the leaf that `rev` has become
        revs, revs_info, conflicts, deleted_conflicts, local_seq: add the members that CouchDB adds
        attachments: with their bytes, in Base64
        raw: as JSON text
        """
        text = self._native.get(id, options(asked))
        if raw:
            return text
        doc: dict[str, Any] = loads(text)
        return doc

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, str):
            return False
        return any("error" not in row and "deleted" not in row["value"] for row in self.all_docs(keys=[id]))

    def put(self, doc: Document, *, new_edits: bool = True, delayed: bool = False) -> Written:
        """Writes a document, a `dict` or JSON text. Without `_id` it gets a new id; an existing document needs its `_rev`.

        Acknowledged when it is on disk; `delayed`: immediately, and on disk within a second.
        new_edits: `False` stores revisions with their own ids, as a replicator does.

        Raises `Conflict`, and `Forbidden` when a validation refuses the document.
        """
        return Written(*self._native.put(doc, _writes(new_edits, delayed)))

    def delete(self, id: str, rev: str, *, delayed: bool = False) -> Written:
        """Deletes a document. Raises `Conflict` or `NotFound`."""
        return Written(*self._native.delete(id, rev, _writes(True, delayed)))

    def bulk(
        self,
        docs: Sequence[Document],
        *,
        new_edits: bool = True,
        delayed: bool = False,
    ) -> list[dict[str, Any]]:
        """Writes documents in one commit, and answers what became of each, in their order: `ok`, `id` and `rev`, or `id`, `error` and
        `reason`. Raises `BadRequest` when one of them is no document: then none is written.

        `data` of an attachment in `_attachments` may be bytes, a binary file, an iterable of bytes, or a function without parameters
        that returns one of them, and is closed afterwards. It is stored as it is read. An exception of it ends the bulk: nothing is written.
        """
        outcomes: list[dict[str, Any]] = self._bulk(list(docs), _writes(new_edits, delayed))
        return outcomes

    def _bulk(self, docs: list[Document], said: str) -> Any:
        contents = [_bulk.contents_of(doc) for doc in docs]
        if any(contents):
            text = _bulk.write(self._native.begin_bulk(said), docs, contents)
        else:
            text = self._native.bulk(docs, said)
        return loads(text)

    def load(
        self,
        docs: Iterable[Document],
        *,
        batch: int = 1000,
        new_edits: bool = True,
        delayed: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> Loaded:
        """Writes many documents, as they come, in commits of `batch`. Attachments may be streams, as of `bulk`.

        progress: called after each commit with the number of documents done. An exception of it, or of `docs`, ends the load: earlier
        commits remain.
        """
        said = _writes(new_edits, delayed)
        source, done, failed = iter(docs), 0, []
        while some := list(itertools.islice(source, batch)):
            outcomes = self._bulk(some, said)
            failed += [outcome for outcome in outcomes if "error" in outcome]
            done += len(some)
            if progress is not None:
                progress(done)
        return Loaded(done - len(failed), failed)

    # Listings, views, queries, changes

    @overload
    def all_docs(self, *, raw: Literal[True], **asked: Unpack[AllDocsOptions]) -> Rows[str]: ...

    @overload
    def all_docs(self, *, raw: Literal[False] = ..., **asked: Unpack[AllDocsOptions]) -> Rows[dict[str, Any]]: ...

    def all_docs(self, *, raw: bool = False, **asked: Unpack[AllDocsOptions]) -> Rows[Any]:
        """Documents by id, from one snapshot."""
        return Rows(self._native.all_docs(options(asked)), raw)

    @overload
    def view(self, design: str, view: str, *, progress: Progress | None = ..., raw: Literal[True], **asked: Unpack[ViewOptions]) -> Rows[str]: ...

    @overload
    def view(
        self, design: str, view: str, *, progress: Progress | None = ..., raw: Literal[False] = ..., **asked: Unpack[ViewOptions]
    ) -> Rows[dict[str, Any]]: ...

    def view(self, design: str, view: str, *, progress: Progress | None = None, raw: bool = False, **asked: Unpack[ViewOptions]) -> Rows[Any]:
        """Rows of a view, from one snapshot of its index, which is updated first.

        `None` is the key `null`: omit a key to leave it unset.
        update: `False` reads the index without updating it, `"lazy"` updates it afterwards
        progress: called with the number of processed changes and their total during the build. An exception of it ends the wait, as Ctrl-C does;
        the build continues until the directory is closed.

        Raises `NotFound`, `BadRequest`, or `FunctionError` when a function throws.
        """
        return Rows(self._native.view(design, view, options(asked, null=_KEYS), progress), raw)

    def build_index(self, design: str, *, progress: Progress | None = None) -> None:
        """Updates the index of a design document. `progress`: as for `view`."""
        self._native.build_index(design, progress)

    @overload
    def find(self, selector: Mapping[str, Any], *, raw: Literal[True], **asked: Unpack[FindOptions]) -> Rows[str]: ...

    @overload
    def find(self, selector: Mapping[str, Any], *, raw: Literal[False] = ..., **asked: Unpack[FindOptions]) -> Rows[dict[str, Any]]: ...

    def find(self, selector: Mapping[str, Any], *, raw: bool = False, **asked: Unpack[FindOptions]) -> Rows[Any]:
        """Matching documents, as in `_find`, read on demand; all of them, unless `limit` is set.

        With `aggregate` the rows are groups. `tail` of the answer has bookmark, warning and statistics once all were given.
        """
        return Rows(self._native.find({"selector": dict(selector), **given(asked)}), raw)

    def explain(self, selector: Mapping[str, Any], **asked: Unpack[FindOptions]) -> dict[str, Any]:
        """The index that a query would use, as in `_explain`."""
        plan: dict[str, Any] = loads(self._native.explain({"selector": dict(selector), **given(asked)}))
        return plan

    def indexes(self) -> list[dict[str, Any]]:
        """The indexes for queries; the index of all documents comes first."""
        indexes: list[dict[str, Any]] = loads(self._native.indexes())
        return indexes

    def create_index(
        self,
        fields: Sequence[str | Mapping[str, str]],
        *,
        name: str | None = None,
        ddoc: str | None = None,
        partial_filter_selector: Mapping[str, Any] | None = None,
        partitioned: bool | None = None,
    ) -> dict[str, str]:
        """Creates an index for queries, unless it exists: returns `result`, `id` of its design document, `name`."""
        index: dict[str, Any] = {"fields": list(fields)}
        if partial_filter_selector is not None:
            index["partial_filter_selector"] = dict(partial_filter_selector)
        said = given({"name": name, "ddoc": ddoc, "partitioned": partitioned})
        made: dict[str, str] = loads(self._native.create_index({"index": index, "type": "json", **said}))
        return made

    def delete_index(self, ddoc: str, name: str) -> None:
        """Deletes an index for queries. Raises `NotFound`."""
        self._native.delete_index(ddoc, name)

    @overload
    def changes(self, *, timeout: float | None = ..., raw: Literal[True], **asked: Unpack[ChangesOptions]) -> Changes[str]: ...

    @overload
    def changes(self, *, timeout: float | None = ..., raw: Literal[False] = ..., **asked: Unpack[ChangesOptions]) -> Changes[dict[str, Any]]: ...

    def changes(self, *, timeout: float | None = None, raw: bool = False, **asked: Unpack[ChangesOptions]) -> Changes[Any]:
        """Changes: each document once, at its newest change.

        since: a `seq` to resume after, or `"now"`
        live: wait for new changes; `timeout`: longest wait for the next one, in seconds. Iterate again to continue
        all_leaves: rows name all leaves, not only the winning revision
        doc_ids, selector (with `fields`), design: only changes of these documents
        """
        selector = asked.get("selector")
        if selector is not None:
            asked["selector"] = dict(selector)
        return Changes(self._native.changes(options(asked)), raw, timeout)

    # Attachments

    def open_attachment(
        self,
        id: str,
        name: str,
        *,
        rev: str | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> AttachmentReader:
        """An attachment as a binary file; `start` and `end` select a range of its bytes. Raises `NotFound`."""
        said = options({"rev": rev, "start": start, "end": end})
        return AttachmentReader(self._native.attachment(id, name, said))

    def create_attachment(
        self,
        id: str,
        name: str,
        *,
        rev: str | None = None,
        content_type: str = "application/octet-stream",
    ) -> AttachmentWriter:
        """A binary file that becomes an attachment of the revision `rev` of a document, or of a new document. Raises `Conflict`."""
        said = options({"rev": rev, "content_type": content_type})
        return AttachmentWriter(self._native.put_attachment(id, name, said))

    def put_attachment(
        self,
        id: str,
        name: str,
        data: bytes | BinaryIO,
        *,
        rev: str | None = None,
        content_type: str = "application/octet-stream",
    ) -> Written:
        """Writes an attachment: bytes, or the rest of a binary file from its current position. Raises `Conflict`."""
        with self.create_attachment(id, name, rev=rev, content_type=content_type) as writer:
            if isinstance(data, bytes):
                writer.write(data)
            else:
                while piece := data.read(_PIECE_BYTES):
                    writer.write(piece)
        return writer.written

    def delete_attachment(self, id: str, name: str, rev: str) -> Written:
        """Removes an attachment. Raises `NotFound` or `Conflict`."""
        return Written(*self._native.delete_attachment(id, name, rev))


def _writes(new_edits: bool, delayed: bool) -> str:
    return options({"new_edits": None if new_edits else False, "delayed": delayed or None})

"""Bulks whose attachments come as streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TypeGuard

from . import _settee
from ._errors import BadRequest

# What an attachment's `data` may be besides text in Base64: bytes, a binary file, pieces of bytes, or what returns one of them.
Content = bytes | bytearray | memoryview | BinaryIO | Iterable[bytes]
Contents = dict[str, Content | Callable[[], Content]]

# Bytes that are held at a time.
_PIECE_BYTES = 256 << 10


def contents_of(doc: object) -> Contents:
    """The contents of a document's attachments that are not text in Base64."""
    attachments = doc.get("_attachments") if isinstance(doc, dict) else None
    if not isinstance(attachments, dict):
        return {}
    entries = ((name, entry.get("data")) for name, entry in attachments.items() if isinstance(entry, dict))
    return {name: data for name, data in entries if _is_content(data)}


def _is_content(data: object) -> TypeGuard[Content | Callable[[], Content]]:
    if isinstance(data, (str, dict)):
        return False
    return isinstance(data, Iterable) or callable(data) or hasattr(data, "read")


def write(native: _settee.Bulk, docs: Sequence[Any], contents: Sequence[Contents]) -> str:
    """Writes documents with the contents of their attachments, of which a piece at a time is in memory. The outcomes are JSON text."""
    try:
        for doc, own in zip(docs, contents, strict=True):
            for name in native.add(_without(doc, own) if own else doc):
                if name not in own:
                    raise BadRequest(400, "bad_request", f"attachment {name} has no data")
                native.begin()
                for piece in _pieces(name, own[name]):
                    native.write(piece)
                native.end()
        return native.commit()
    finally:
        native.close()


def _without(doc: dict[str, Any], contents: Contents) -> dict[str, Any]:
    """The document, which says of these contents that they follow."""

    def entry(name: str, said: Any) -> Any:
        if name not in contents:
            return said
        return {**{member: value for member, value in said.items() if member != "data"}, "follows": True}

    attachments = {name: entry(name, said) for name, said in doc["_attachments"].items()}
    return {**doc, "_attachments": attachments}


def _pieces(name: str, content: Content | Callable[[], Content]) -> Iterator[bytes]:
    if callable(content):
        opened = content()
        try:
            yield from _pieces(name, opened)
        finally:
            close = getattr(opened, "close", None)
            if close is not None:
                close()
        return
    if isinstance(content, (bytes, bytearray, memoryview)):
        view = memoryview(content).cast("B")
        for start in range(0, len(view), _PIECE_BYTES):
            yield bytes(view[start : start + _PIECE_BYTES])
        return
    read = getattr(content, "read", None)
    pieces: Iterable[object] = content if read is None else iter(lambda: read(_PIECE_BYTES) or None, None)
    for piece in pieces:
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise TypeError(f"attachment {name}: {type(piece).__name__} is not bytes")
        yield bytes(piece)

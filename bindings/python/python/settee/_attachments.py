"""Attachments as files."""

from __future__ import annotations

import io
from types import TracebackType
from typing import TYPE_CHECKING

from . import _settee

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from ._database import Written


class _Pieces(io.RawIOBase):
    def __init__(self, native: _settee.Reader) -> None:
        self._native = native

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        piece = self._native.read(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._native.close()
        super().close()


class AttachmentReader(io.BufferedReader):
    """The bytes of an attachment: a binary file that is read from its beginning to its end."""

    def __init__(self, native: _settee.Reader) -> None:
        super().__init__(_Pieces(native), 128 << 10)
        self._native = native

    @property
    def content_type(self) -> str:
        """The type that was set when it was written."""
        return self._native.content_type

    @property
    def length(self) -> int:
        """Bytes of the whole attachment."""
        return self._native.length

    @property
    def digest(self) -> str:
        """`md5-…`, as in the document."""
        return self._native.digest


class AttachmentWriter(io.RawIOBase):
    """An attachment that is being written: a binary file.

    As a context manager it writes the document's new revision at its end, and nothing when there was an exception. Otherwise `finish` does;
    closed without it, it leaves nothing.
    """

    def __init__(self, native: _settee.Writer) -> None:
        self._native = native
        self._written: Written | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data)
        self._native.write(bytes(view))
        return view.nbytes

    def finish(self) -> Written:
        """Ends the upload, and writes the document's new revision. Raises `Conflict` when the document has changed meanwhile."""
        from ._database import Written

        if self._written is None:
            self._written = Written(*self._native.finish())
            super().close()
        return self._written

    @property
    def written(self) -> Written:
        """The written document."""
        if self._written is None:
            raise ValueError("the attachment is not written")
        return self._written

    def close(self) -> None:
        """Discards it, unless it is finished."""
        if not self.closed:
            self._native.close()
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        self.close()

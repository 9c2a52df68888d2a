"""Rows and changes, read on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from . import _settee
from ._json import loads

T = TypeVar("T")
S = TypeVar("S", bound="_Cursor[Any]")


class _Cursor(Iterator[T], Generic[T]):
    """Reads rows from the database in groups, and returns them one at a time."""

    def __init__(self) -> None:
        self._batch: Iterator[T] = iter(())
        self._ended = False
        self._turn = threading.Lock()

    def _more(self) -> list[T] | None:
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether the end is final."""
        return True

    def __iter__(self: S) -> S:
        return self

    def __next__(self) -> T:
        for row in self._batch:
            return row
        # Threads that share it wait for each other here, so that each row is returned once.
        with self._turn:
            while True:
                for row in self._batch:
                    return row
                batch = None if self._ended else self._more()
                if batch is None:
                    self._ended = self._is_over()
                    raise StopIteration
                self._batch = iter(batch)

    def close(self) -> None:
        """Releases its snapshot; not needed after iterating to the end."""
        raise NotImplementedError

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Rows(_Cursor[T]):
    """Rows of a listing, of a view or of a query, from one snapshot. An iterator: each row is returned once."""

    def __init__(self, native: _settee.Rows, raw: bool) -> None:
        super().__init__()
        self._native, self._raw = native, raw
        self._head: dict[str, Any] = loads(native.head())

    def _more(self) -> list[T] | None:
        if self._raw:
            texts: Any = self._native.next_texts()
            return texts  # type: ignore[no-any-return]
        text = self._native.next_array()
        return None if text is None else loads(text)

    @property
    def total_rows(self) -> int | None:
        """Number of all rows of the view or database; `None` for reductions and queries."""
        return self._head.get("total_rows")

    @property
    def offset(self) -> int | None:
        """Number of rows before the first one."""
        return self._head.get("offset")

    @property
    def update_seq(self) -> str | None:
        """The update seq of the rows, if it was requested."""
        return self._head.get("update_seq")

    @property
    def tail(self) -> dict[str, Any]:
        """Members that are known after the last row: for a query `bookmark`, `warning`, `execution_stats`."""
        known: dict[str, Any] = loads(self._native.tail())
        return known

    def close(self) -> None:
        self._ended, self._batch = True, iter(())
        self._native.close()


class Changes(_Cursor[T]):
    """Changes of a database. A `live` feed waits for new ones, until it is closed or after `timeout`."""

    def __init__(self, native: _settee.Feed, raw: bool, timeout: float | None) -> None:
        super().__init__()
        self._native, self._raw = native, raw
        # In seconds; may be changed at any time.
        self.timeout = timeout

    def _more(self) -> list[T] | None:
        if self._raw:
            texts: Any = self._native.next_texts(self.timeout)
            return texts  # type: ignore[no-any-return]
        text = self._native.next_array(self.timeout)
        return None if text is None else loads(text)

    def _is_over(self) -> bool:
        # After a pause of a live feed there may be more.
        return False

    @property
    def last_seq(self) -> str:
        """The seq to resume from later: after the rows that were read from the database, some of which may not have been returned yet. Each row
        has its own, `seq`."""
        return self._native.last_seq()

    def close(self) -> None:
        self._ended, self._batch = True, iter(())
        self._native.close()

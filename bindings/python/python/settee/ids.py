"""Ids for documents, made in this process, without asking a server.

>>> new_id = settee.ids.sequential("status/")
>>> new_id()
'status/47c1bf9a7d3e0a86f5ac9d32a1b0c4e8'

An id is the prefix and 32 hexadecimal digits. Each is greater than all ids of its kind and prefix that this process made before,
whichever thread asked, so documents are in the order in which they were made, and neighbours share most digits, which keeps them
small on disk. Ids of different processes differ; a forked process starts a new sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from . import _settee

__all__ = ["Ids", "monotonic", "sequential"]


class Ids(Iterator[str]):
    """A source of ids, which never ends: call it, or iterate over it. Threads may share it."""

    def __init__(self, kind: Literal["sequential", "monotonic"], prefix: str = "") -> None:
        self._kind = kind
        self._native = _settee.Ids(kind, prefix)

    @property
    def prefix(self) -> str:
        """What each id starts with."""
        return self._native.prefix

    def __call__(self) -> str:
        """The next id."""
        return self._native.next()

    def __next__(self) -> str:
        return self._native.next()

    def __reduce__(self) -> tuple[type[Ids], tuple[str, str]]:
        return Ids, (self._kind, self.prefix)

    def __repr__(self) -> str:
        return f"settee.ids.{self._kind}({self.prefix!r})"


def sequential(prefix: str = "") -> Ids:
    """Ids that start at a random number and grow by random steps, as the server's `sequential` ones do.

    They do not show when they were made. Ids of different processes are in no order. Raises `BadRequest` for a prefix that
    documents' ids cannot start with.
    """
    return Ids("sequential", prefix)


def monotonic(prefix: str = "") -> Ids:
    """UUIDs of version 7, which start with the time in milliseconds.

    Ids of different processes are in the order of their milliseconds, as far as the clocks agree. Raises `BadRequest` for a
    prefix that documents' ids cannot start with.
    """
    return Ids("monotonic", prefix)

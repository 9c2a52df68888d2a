"""An open directory."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from . import _settee
from ._database import Database
from ._json import given, loads, options

# A directory that is open when the interpreter ends is closed first: its threads must not outlive the objects that they use.
_open: weakref.WeakSet[Directory] = weakref.WeakSet()


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    q: int | None = None,
    cache_bytes: int | None = None,
    documents_bytes: int | None = None,
    write_buffers_bytes: int | None = None,
    index_builds_bytes: int | None = None,
    index_rows_bytes: int | None = None,
    background_indexing: bool = True,
    auto_compact: bool = True,
    accept_damaged_log: bool = False,
    functions_program: str | os.PathLike[str] | None = None,
    functions_time_limit_ms: int | None = None,
    functions_memory_limit_bytes: int | None = None,
) -> Directory:
    """Opens a directory of databases, and creates it if it does not exist.

    The data directory of a server (`settee serve --data`) may be opened while the server does not run.

    create: create the directory if it does not exist
    q: shards of a new database; 2 by default
    cache_bytes: memory for recently read blocks of files (256 MiB)
    documents_bytes: memory for recently read documents (128 MiB)
    write_buffers_bytes: memory for writes that are not in files yet (96 MiB)
    index_builds_bytes: memory for the rows of index builds (256 MiB)
    index_rows_bytes: memory for frequently read rows of indexes (64 MiB)
    background_indexing: update indexes in the background, before queries need them
    auto_compact: compact automatically
    accept_damaged_log: open a store with a damaged log: keep the writes before the damage, and lose later ones
    functions_program: the program `settee`: JavaScript then runs in separate processes
    functions_time_limit_ms: JavaScript's time for one document (5000)
    functions_memory_limit_bytes: memory of one JavaScript heap (64 MiB)

    Raises `InUse` when it is open already, `ForkedProcess` in a fork of a process that opened one.
    """
    functions = {
        "program": None if functions_program is None else os.fspath(functions_program),
        "time_limit_ms": functions_time_limit_ms,
        "memory_limit_bytes": functions_memory_limit_bytes,
    }
    said = {
        "create": create,
        "q": q,
        "cache_bytes": cache_bytes,
        "documents_bytes": documents_bytes,
        "write_buffers_bytes": write_buffers_bytes,
        "index_builds_bytes": index_builds_bytes,
        "index_rows_bytes": index_rows_bytes,
        "background_indexing": background_indexing,
        "auto_compact": auto_compact,
        "accept_damaged_log": accept_damaged_log,
        "functions": given(functions),
    }
    directory = Directory(_settee.Directory.open(os.fspath(path), options(said)))
    _open.add(directory)
    return directory


class Directory:
    """An open directory, from `open`. Threads may share it."""

    def __init__(self, native: _settee.Directory) -> None:
        self._native = native

    @property
    def path(self) -> str:
        """Path of the directory."""
        return str(self._native.path)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    def names(self) -> list[str]:
        """Names of databases, in their order."""
        return self._native.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._native.has(name)

    def __getitem__(self, name: str) -> Database:
        """Returns the database of this name. Raises `NotFound`, which is a `KeyError`."""
        return Database(self._native.database(name))

    def create(
        self,
        name: str,
        *,
        q: int | None = None,
        partitioned: bool = False,
        exist_ok: bool = False,
    ) -> Database:
        """Creates a database. Raises `FileExists` if it exists already, unless `exist_ok`."""
        if exist_ok and name in self:
            return self[name]
        return Database(self._native.create(name, options({"q": q, "partitioned": partitioned})))

    def delete(self, name: str) -> None:
        """Deletes a database. Raises `NotFound`."""
        self._native.delete(name)

    def tasks(self) -> list[dict[str, Any]]:
        """Running compactions and index builds, as in `/_active_tasks`."""
        tasks: list[dict[str, Any]] = loads(self._native.tasks())
        return tasks

    def close(self) -> None:
        """Stops background work, writes queued changes, and closes the directory. A second call does nothing."""
        self._native.close()
        _open.discard(self)

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<settee.Directory {self.path!r}, {state}>"


_opened_by = os.getpid()


def _close_all() -> None:
    if os.getpid() != _opened_by:
        return
    for directory in list(_open):
        directory.close()


atexit.register(_close_all)

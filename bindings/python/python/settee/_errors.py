"""Exceptions, with CouchDB's error names."""

from __future__ import annotations


class Error(Exception):
    """A refusal or a failure.

    `status` is what the server would answer, `error` a word for programs (`not_found`), `reason` a sentence for people.
    """

    status: int
    error: str
    reason: str

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(status, error, reason)
        self.status, self.error, self.reason = status, error, reason

    def __str__(self) -> str:
        return f"{self.error}: {self.reason}"


class BadRequest(Error):
    """The request is invalid (400), or too large (413)."""


class Forbidden(Error):
    """A validation refused the write, or only a server can do it (401, 403)."""


class NotFound(Error, KeyError):
    """The database, document, view or attachment does not exist (404)."""

    __str__ = Error.__str__


class Conflict(Error):
    """The document's current revision is not the given one (409)."""


class FileExists(Error):
    """The database exists already, or an attachment that a document keeps is missing (412)."""


class InUse(Error):
    """The directory is open already, in this process or another (423)."""


class Cancelled(Error):
    """The operation was cancelled (499)."""


class FunctionError(Error):
    """A function of a design document failed, or the database did (500)."""


class Unavailable(Error):
    """The database is not available now (503, 507)."""


class Closed(Unavailable):
    """The directory, this cursor or this stream is closed."""


class ForkedProcess(Unavailable):
    """This process is a fork of one that has a directory open."""


_BY_WORD: dict[str, type[Error]] = {"closed": Closed, "forked": ForkedProcess}
_BY_STATUS: dict[int, type[Error]] = {
    400: BadRequest,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: FileExists,
    413: BadRequest,
    423: InUse,
    499: Cancelled,
    503: Unavailable,
    507: Unavailable,
}


def error(status: int, word: str, reason: str) -> Error:
    """The exception for an error's name."""
    kind = _BY_WORD.get(word) or _BY_STATUS.get(status, FunctionError if status >= 500 else Error)
    return kind(status, word, reason)

"""What goes wrong, in CouchDB's words."""

from __future__ import annotations


class Error(Exception):
    """What the database refused, or what failed.

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
    """What was asked for makes no sense (400), or is larger than it may be (413)."""


class Forbidden(Error):
    """A validation refused it, or it is a server's to do (401, 403)."""


class NotFound(Error, KeyError):
    """There is no such database, document, view or attachment (404)."""

    __str__ = Error.__str__


class Conflict(Error):
    """The document has another revision than the one that was said (409)."""


class FileExists(Error):
    """There is such a database already, or an attachment is not there that a document keeps (412)."""


class InUse(Error):
    """The directory is open already, in this process or another (423)."""


class Cancelled(Error):
    """Somebody asked that it should end (499)."""


class FunctionError(Error):
    """A function of a design document failed, or the database did (500)."""


class Unavailable(Error):
    """It cannot be done now (503, 507)."""


class Closed(Unavailable):
    """The directory is closed, or this cursor or stream."""


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
    """The exception of these words."""
    kind = _BY_WORD.get(word) or _BY_STATUS.get(status, FunctionError if status >= 500 else Error)
    return kind(status, word, reason)

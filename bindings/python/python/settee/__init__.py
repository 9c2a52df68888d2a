"""Settee's databases in this process: documents, views, queries and changes, without a server.

>>> import settee
>>> with settee.open("data") as directory:
...     notes = directory.create("notes")
...     notes.put({"_id": "a", "text": "hello"})
"""

from . import ids
from ._attachments import AttachmentReader, AttachmentWriter
from ._database import BulkError, Database, Loaded, Written
from ._directory import Directory, open
from ._errors import (
    BadRequest,
    Cancelled,
    Closed,
    Conflict,
    Error,
    FileExists,
    Forbidden,
    ForkedProcess,
    FunctionError,
    InUse,
    NotFound,
    Unavailable,
)
from ._json import dumps, loads
from ._rows import Changes, Rows
from ._settee import version as __version__

__all__ = [
    "AttachmentReader",
    "AttachmentWriter",
    "BadRequest",
    "BulkError",
    "Cancelled",
    "Changes",
    "Closed",
    "Conflict",
    "Database",
    "Directory",
    "Error",
    "FileExists",
    "Forbidden",
    "ForkedProcess",
    "FunctionError",
    "InUse",
    "Loaded",
    "NotFound",
    "Rows",
    "Unavailable",
    "Written",
    "__version__",
    "dumps",
    "ids",
    "loads",
    "open",
]

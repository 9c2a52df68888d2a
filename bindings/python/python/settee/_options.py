"""Options of reads, with CouchDB's names. The compiled part refuses unknown ones with a `BadRequest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class GetOptions(TypedDict, total=False):
    """Options of `Database.get`."""

    rev: str | None
    latest: bool
    revs: bool
    revs_info: bool
    conflicts: bool
    deleted_conflicts: bool
    local_seq: bool
    attachments: bool


class _Shown(TypedDict, total=False):
    """Options of all listings of documents."""

    limit: int | None
    descending: bool
    include_docs: bool
    conflicts: bool | None
    attachments: bool


class _Rows(_Shown, total=False):
    """Options of rows with keys."""

    inclusive_end: bool
    skip: int
    update_seq: bool
    partition: str | None


class AllDocsOptions(_Rows, total=False):
    """Options of `Database.all_docs`."""

    key: str | None
    keys: Sequence[str] | None
    startkey: str | None
    endkey: str | None
    only: Literal["_design_docs", "_local_docs"] | None


class ViewOptions(_Rows, total=False):
    """Options of `Database.view`. `None` is the key `null`: omit a key to leave it unset."""

    key: Any
    keys: Sequence[Any] | None
    startkey: Any
    endkey: Any
    startkey_docid: str | None
    endkey_docid: str | None
    reduce: bool | None
    group: bool | None
    group_level: int | None
    update: bool | Literal["lazy"]


class FindOptions(TypedDict, total=False):
    """Options of `Database.find` and `Database.explain`."""

    fields: Sequence[str] | None
    sort: Sequence[str | Mapping[str, str]] | None
    limit: int | None
    skip: int | None
    use_index: str | Sequence[str] | None
    bookmark: str | None
    conflicts: bool | None
    update: bool | None
    execution_stats: bool | None
    allow_fallback: bool | None
    aggregate: Mapping[str, Any] | None


class ChangesOptions(_Shown, total=False):
    """Options of `Database.changes`."""

    since: str | None
    live: bool
    all_leaves: bool
    doc_ids: Sequence[str] | None
    selector: Mapping[str, Any] | None
    fields: Sequence[str] | None
    design: bool

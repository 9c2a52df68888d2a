"""What reads may be asked for, each by CouchDB's name. The compiled part refuses what nobody knows by a `BadRequest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class GetOptions(TypedDict, total=False):
    """Of `Database.get`."""

    rev: str | None
    latest: bool
    revs: bool
    revs_info: bool
    conflicts: bool
    deleted_conflicts: bool
    local_seq: bool
    attachments: bool


class _Shown(TypedDict, total=False):
    """Of whatever lists documents."""

    limit: int | None
    descending: bool
    include_docs: bool
    conflicts: bool | None
    attachments: bool


class _Rows(_Shown, total=False):
    """Of rows by their keys."""

    inclusive_end: bool
    skip: int
    update_seq: bool
    partition: str | None


class AllDocsOptions(_Rows, total=False):
    """Of `Database.all_docs`."""

    key: str | None
    keys: Sequence[str] | None
    startkey: str | None
    endkey: str | None
    only: Literal["_design_docs", "_local_docs"] | None


class ViewOptions(_Rows, total=False):
    """Of `Database.view`. A key that is not given is not there; `None` is the key `null`."""

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
    """Of `Database.find` and `Database.explain`."""

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
    """Of `Database.changes`."""

    since: str | None
    live: bool
    all_leaves: bool
    doc_ids: Sequence[str] | None
    selector: Mapping[str, Any] | None
    fields: Sequence[str] | None
    design: bool

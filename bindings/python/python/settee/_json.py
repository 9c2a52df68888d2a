"""JSON text of values, and values of JSON text."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ._settee import dumps

__all__ = ["dumps", "given", "loads", "options"]

_decoder = json.JSONDecoder()


def loads(text: str) -> Any:
    """The value of JSON text. Integers of any size are `int`, numbers with a point or an exponent `float`."""
    return _decoder.decode(text)


def given(asked: Mapping[str, Any], null: Collection[str] = ()) -> dict[str, Any]:
    """The options that are not `None`, and those named in `null`."""
    return {name: value for name, value in asked.items() if value is not None or name in null}


def options(asked: Mapping[str, Any], null: Collection[str] = ()) -> str:
    """Options as JSON text, without those that are `None`, except those named in `null`. No text without options."""
    said = given(asked, null) if asked else None
    return dumps(said) if said else ""

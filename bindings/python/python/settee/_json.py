"""JSON text of values, and values of JSON text."""

from __future__ import annotations

import json
from typing import Any

from ._settee import dumps

__all__ = ["dumps", "loads", "options"]

_decoder = json.JSONDecoder()


def loads(text: str) -> Any:
    """The value of JSON text. Integers of any size are `int`, numbers with a point or an exponent `float`."""
    return _decoder.decode(text)


def options(**given: Any) -> str:
    """Options as JSON text: those that are neither `None` nor `False`."""
    said = {name: value for name, value in given.items() if value is not None and value is not False}
    return dumps(said) if said else ""

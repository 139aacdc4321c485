"""How values and errors read in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalcore.mistakes.foreign_text import LINE_LENGTH as KEPT_LENGTH
from evalcore.mistakes.foreign_text import (
    QUOTED_LENGTH,
    describe_error,
    one_line,
    quote,
    quote_all,
    shorten,
)

__all__ = [
    "KEPT_LENGTH",
    "QUOTED_LENGTH",
    "describe_error",
    "expected_text",
    "json_text",
    "one_line",
    "quote",
    "quote_all",
    "shorten",
]

# In this order: the first that an assertion has is its value to a person.
_VALUE_PARAMS = ("value", "pattern", "values", "schema", "callable", "id")


def json_text(value: Any) -> str:
    """Return the value as JSON text, or in Python's words where JSON has none for it."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def expected_text(params: Mapping[str, Any]) -> str | None:
    """Return what the assertion asks for as a short text; None where it has no value."""
    for name in _VALUE_PARAMS:
        if name in params:
            value = params[name]
            if type(value) is str:
                return value if len(value) <= KEPT_LENGTH else shorten(value)
            if value is not None or name == "value":
                return shorten(json_text(value))
    if params.get("threshold") is not None:
        return f"≤ {params['threshold']}"
    low, high = params.get("min"), params.get("max")
    if low is None:
        return None if high is None else f"max {high}"
    return f"min {low}" if high is None else f"min {low}, max {high}"

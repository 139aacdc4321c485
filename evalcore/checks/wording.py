"""How values and errors read in one line."""

from __future__ import annotations

import json
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
    "json_text",
    "one_line",
    "quote",
    "quote_all",
    "shorten",
]


def json_text(value: Any) -> str:
    """Return the value as JSON text, or in Python's words where JSON has none for it."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)

"""How values and errors read in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
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

KEPT_LENGTH = 500
QUOTED_LENGTH = 80
_LISTED = 5


def shorten(text: str, limit: int = KEPT_LENGTH) -> str:
    """Return the text, its end replaced by `…` where it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote(text: str) -> str:
    """Return the text in quotes, on one line, shortened."""
    return repr(shorten(text, QUOTED_LENGTH))


def quote_all(texts: Sequence[str]) -> str:
    """Return the texts in quotes, the first five of them."""
    listed = ", ".join(map(quote, texts[:_LISTED]))
    more = len(texts) - _LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def one_line(text: str) -> str:
    """Return the text with its white space (line breaks too) made single blanks, shortened."""
    return shorten(" ".join(text[: 4 * KEPT_LENGTH].split()))


def describe_error(error: BaseException) -> str:
    """Return `Type: message` on one line, even if the exception cannot say its message.

    The project's own errors say enough without their type.
    """
    try:
        message = one_line(str(error))
    except Exception:  # noqa: BLE001 - an exception's own __str__
        message = ""
    name = type(error).__name__
    if message and isinstance(error, EvalError):
        return message
    return f"{name}: {message}" if message else name


def json_text(value: Any) -> str:
    """Return the value as JSON text, or in Python's words where JSON has none for it."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)

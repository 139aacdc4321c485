"""Foreign texts and errors on one line, shortened to be quoted in a message."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from evalcore.errors import EvalError

LINE_LENGTH = 500
QUOTED_LENGTH = 80
_LISTED = 5


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair: Python has one for a byte that is no text."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def shorten(text: str, limit: int = LINE_LENGTH) -> str:
    """Return the text, its end replaced by `…` where it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str, limit: int = LINE_LENGTH) -> str:
    """Return the text with each run of white space as one blank, shortened."""
    return shorten(" ".join(text[: 4 * limit].split()), limit)


def quote(text: str) -> str:
    """Return the text in quotes, on one line, shortened."""
    return repr(shorten(text, QUOTED_LENGTH))


def quote_pattern(pattern: str) -> str:
    r"""Return a regular expression in quotes as its author wrote it, `\d` with one backslash.

    It stays on one line: what `repr` escapes means the same in a pattern.
    """
    return quote(pattern).replace("\\\\", "\\")


def quote_all(texts: Sequence[str]) -> str:
    """Return the texts in quotes, the first five of them."""
    listed = ", ".join(map(quote, texts[:_LISTED]))
    more = len(texts) - _LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def escape_character(match: re.Match[str]) -> str:
    r"""Return a matched character as `\x1b`, `\u202e` or `\U000e0001`."""
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_text(value: Any) -> str:
    """Return the value as JSON text, or in Python's words where JSON has none for it."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def value_text(value: Any) -> str:
    """Return the text that a value is compared as: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def describe_error(error: BaseException) -> str:
    """Return `Type: message` on one line, even if the exception cannot say its message.

    The project's own errors say enough without their type.
    """
    try:
        message = one_line(str(error))
    except Exception:  # noqa: BLE001 - a foreign __str__
        message = ""
    name = type(error).__name__
    if message and isinstance(error, EvalError):
        return message
    return f"{name}: {message}" if message else name

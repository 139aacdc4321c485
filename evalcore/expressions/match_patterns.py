"""The patterns of the statement `match`: Python's `re`, bounded in length and time."""

from __future__ import annotations

from typing import Final

from evalcore.expressions.failure import ExpressionError, ExpressionSyntaxError
from evalcore.patterns import Pattern, PatternError, compile_pattern

TIMEOUT_S: Final = 1.0
_LONGEST: Final = 10_000


def compile_match_pattern(text: str) -> Pattern:
    """Compile a pattern; raise `ExpressionSyntaxError` where Python's `re` does not allow it."""
    if len(text) > _LONGEST:
        raise ExpressionSyntaxError(f"a pattern has at most {_LONGEST} characters")
    try:
        return compile_pattern(text)
    except PatternError as error:
        before = text[: error.position or 0]
        column = len(before) - before.rfind("\n")
        raise ExpressionSyntaxError(error.message, before.count("\n") + 1, column) from None


def match_groups(
    pattern: Pattern, text: str, timeout_s: float = TIMEOUT_S
) -> tuple[str | None, ...] | None:
    """Search the text; return the whole match and then its groups, None without a match.

    Raises `ExpressionError` (kind "LimitError") when time or memory runs out.
    """
    try:
        match = pattern.search(text, timeout_s)
    except PatternError as error:
        raise ExpressionError("LimitError", str(error)) from None
    return None if match is None else match.groups

"""The regular expressions of `match`, with a time limit."""

from __future__ import annotations


class Pattern:
    """A compiled regular expression in Python's dialect."""

    def groups(self, text: str, timeout_s: float = 1.0) -> tuple[str | None, ...] | None:
        """Search the text; return the whole match and then its groups, or None.

        Raises `ExpressionError` (kind "LimitError") when time is up.
        """
        raise NotImplementedError


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern; raise `ExpressionSyntaxError` where Python's `re` does not allow it."""
    raise NotImplementedError

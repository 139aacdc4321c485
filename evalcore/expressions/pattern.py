"""The regular expressions of `match`, with a time limit.

`re` reads them, so that they are Python's dialect; the `regex` package searches, as it can be
stopped.
"""

from __future__ import annotations

import importlib
import re
import warnings
from functools import lru_cache
from typing import Any, Final

from evalcore.expressions.failure import ExpressionError, ExpressionSyntaxError

TIMEOUT_S: Final = 1.0
# The `regex` package writes out the least number of rounds; this bounds its memory and time.
_LARGEST: Final = 20_000
_LONGEST: Final = 10_000
_OTHERWISE: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?![0-9]*(?:,[0-9]*)?\})", re.DOTALL
)
_IN_SET: Final = re.compile(r"\\.|\[", re.DOTALL)


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._compiled = compiled

    def groups(self, text: str, timeout_s: float = TIMEOUT_S) -> tuple[str | None, ...] | None:
        """Search the text; return the whole match and then its groups, or None.

        Raises `ExpressionError` (kind "LimitError") when time is up.
        """
        found = self._found("search", text, timeout_s)
        return None if found is None else (found.group(), *found.groups())

    def full_groups(self, text: str, timeout_s: float = TIMEOUT_S) -> tuple[str | None, ...] | None:
        """Do what `groups` does for a match of the text from its beginning to its end."""
        found = self._found("fullmatch", text, timeout_s)
        return None if found is None else (found.group(), *found.groups())

    def named(self) -> dict[str, int]:
        """Return the numbers of the groups that have names."""
        return dict(self._compiled.groupindex)

    def _found(self, how: str, text: str, timeout_s: float) -> Any:
        try:
            return getattr(self._compiled, how)(text, timeout=timeout_s)
        except TimeoutError:
            reason = f"the search took longer than {timeout_s:g} s"
        except MemoryError:
            reason = "the search took too much memory"
        raise ExpressionError("LimitError", reason, f"pattern {self.text!r}")


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern; raise `ExpressionSyntaxError` where Python's `re` does not allow it."""
    if len(text) > _LONGEST:
        raise ExpressionSyntaxError(f"a pattern has at most {_LONGEST} characters")
    try:
        with warnings.catch_warnings():
            # `re` warns of sets that another version might read otherwise; this one does not.
            warnings.simplefilter("ignore", FutureWarning)
            tree = importlib.import_module("re._parser").parse(text)
        if _size(tree) > _LARGEST:
            raise ExpressionSyntaxError(f"the pattern {text[:80]!r} asks for too many repeats")
        import regex

        return Pattern(text, regex.compile(_plain(text), regex.V0))
    except re.error as error:
        message = f"the pattern {text[:80]!r} cannot be read: {error.msg}"
        raise ExpressionSyntaxError(message, error.lineno or 1, error.colno or 1) from None
    except (OverflowError, RecursionError, ValueError) as error:
        raise ExpressionSyntaxError(f"the pattern cannot be read: {error}") from None


def _plain(text: str) -> str:
    """Return a pattern of `re` without what only the `regex` package reads otherwise.

    To it `{e<=1}` allows errors, and `[:alpha:]` within a set is a class.
    """
    return _OTHERWISE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    part = found[0]
    if part.startswith("["):
        return "[" + _IN_SET.sub(lambda each: "\\[" if each[0] == "[" else each[0], part[1:])
    return part if part.startswith("\\") else "\\{"


def _size(items: Any) -> int:
    """Return about how many pieces the pattern comes to once its least repeats are written."""
    total = 1
    for operator, argument in items:
        name = str(operator)
        if name.endswith("_REPEAT"):
            total += _size(argument[2]) * max(int(argument[0]), 1)
        elif name == "SUBPATTERN":
            total += _size(argument[3])
        elif name in ("ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):
            total += _size(argument if name == "ATOMIC_GROUP" else argument[1])
        elif name == "BRANCH":
            total += sum(map(_size, argument[1]))
        elif name == "GROUPREF_EXISTS":
            total += sum(_size(part) for part in argument[1:] if part is not None)
        else:
            total += 1
    return total

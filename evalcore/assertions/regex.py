"""Is there a match of a regular expression in the text: in Python's dialect or ECMAScript's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from evalcore.assertions.subject import Subject
from evalcore.assertions.wording import quote
from evalcore.model.assertion import PASSED, Verdict, broken, failed

PYTHON_FLAGS = "ailmsux"
# In a translation every other escape is `\\u`, `\\U` or a class.
_BACKREFERENCE = re.compile(r"\\[1-9]|\(\?P=")


class Search(Protocol):
    """A compiled pattern."""

    def __call__(self, text: str, timeout_s: float) -> bool:
        """Return whether the pattern matches somewhere; raise `TimeoutError` when time is up."""


def matches(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that `pattern`, in its `dialect` and with its `flags`, matches somewhere.

    An invalid pattern and a search that takes longer than the context allows are errors.
    """
    pattern = params["pattern"]
    timeout_s = subject.context.regex_timeout_s
    try:
        found = compile_pattern(pattern, params["flags"], params["dialect"])(
            subject.output, timeout_s
        )
    except TimeoutError:
        return broken(f"the search for {quote(pattern)} took longer than {timeout_s:g} s")
    except ValueError as error:
        return broken(f"invalid pattern {quote(pattern)}: {error}")
    return PASSED if found else failed(f"no match of {quote(pattern)}")


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, flags: str, dialect: str) -> Search:
    """Return the search for a pattern; raise `ValueError` where its dialect does not allow it."""
    return _ecmascript(pattern, flags) if dialect == "ecmascript" else _python(pattern, flags)


def _ecmascript(pattern: str, flags: str) -> Search:
    from evalcore.assertions import python_regex
    from evalcore.assertions.ecmascript import translate

    translated = translate(pattern, flags)
    try:
        # What groups capture is another matter in `re`; whether there is a match is the same.
        search = None if _BACKREFERENCE.search(translated) else re.compile(translated).search
    except (re.error, OverflowError, RecursionError):
        search = None
    if search is None:
        return _Bounded(None, -1, lambda: translated)
    items, _ = python_regex.parse(translated, 0)
    return _Bounded(search, python_regex.longest_safe_text(items), lambda: translated)


def _python(pattern: str, flags: str) -> Search:
    from evalcore.assertions import python_regex

    chosen = 0
    for flag in flags:
        if flag not in PYTHON_FLAGS:
            raise ValueError(f"unknown flag {flag!r} (valid are {', '.join(PYTHON_FLAGS)})")
        chosen |= re.RegexFlag[flag.upper()]
    try:
        search = re.compile(pattern, chosen).search
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    items, all_flags = python_regex.parse(pattern, chosen)
    safe_length = python_regex.longest_safe_text(items)
    return _Bounded(search, safe_length, lambda: python_regex.translate(items, all_flags))


class _Bounded:
    """A search by `re` in texts short enough for it, by the `regex` package's clock in others."""

    def __init__(
        self,
        search: Callable[[str], object] | None,
        safe_length: int,
        translate: Callable[[], str],
    ) -> None:
        self._search = search
        self._safe_length = safe_length
        self._translate = translate
        self._timed: Callable[..., object] | None = None

    def __call__(self, text: str, timeout_s: float) -> bool:
        """Return whether there is a match; raise `TimeoutError` when time is up."""
        if self._search is not None and len(text) <= self._safe_length:
            return self._search(text) is not None
        if self._timed is None:
            import regex

            self._timed = regex.compile(self._translate(), regex.V0).search
        return self._timed(text, timeout=timeout_s) is not None

"""Is there a match of a regular expression in the text: in Python's dialect or ECMAScript's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import ClassVar, Literal, Protocol

from evalcore.checks.base import Check
from evalcore.checks.subject import Subject
from evalcore.checks.wording import quote
from evalcore.model.assertion import PASSED, Verdict, broken, failed
from evalcore.patterns.plain import PlainPattern, plain_ecmascript, plain_python

PYTHON_FLAGS = "ailmsux"
# About a tenth of a second of `re`.
AFFORDABLE_STEPS = 10_000_000
_FOLDED = re.ASCII | re.IGNORECASE
_PLAIN_FLAGS = {"": re.ASCII, "g": re.ASCII, "i": _FOLDED, "gi": _FOLDED, "ig": _FOLDED}
# In a translation every other escape is `\\u`, `\\U` or a class.
_BACKREFERENCE = re.compile(r"\\[1-9]|\(\?P=")


class Search(Protocol):
    """A compiled pattern."""

    def __call__(self, text: str, timeout_s: float) -> bool:
        """Return whether the pattern matches somewhere; raise `TimeoutError` when time is up."""


class Regex(Check):
    """`pattern`, in its `dialect` and with its `flags`, matches somewhere in the output.

    An invalid pattern and a search that takes longer than the context allows are errors.
    """

    expected_field: ClassVar[str] = "pattern"

    pattern: str
    flags: str = ""
    dialect: Literal["python", "ecmascript"] = "python"

    def check(self, subject: Subject) -> Verdict:
        """Search the output."""
        return match_text(self, subject.output, subject.context.regex_timeout_s)


class HasPattern(Protocol):
    """What a search needs of a check."""

    @property
    def pattern(self) -> str: ...  # noqa: D102 - fields
    @property
    def flags(self) -> str: ...  # noqa: D102 - fields
    @property
    def dialect(self) -> str: ...  # noqa: D102 - fields


def match_text(check: HasPattern, text: str, timeout_s: float) -> Verdict:
    """Return whether the pattern matches somewhere in the text, as a verdict."""
    pattern = check.pattern
    try:
        matches = compile_pattern(pattern, check.flags, check.dialect)(text, timeout_s)
    except TimeoutError:
        return broken(f"the search for {quote(pattern)} took longer than {timeout_s:g} s")
    except ValueError as error:
        return broken(f"invalid pattern {quote(pattern)}: {error}")
    return PASSED if matches else failed(f"no match of {quote(pattern)}")


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, flags: str, dialect: str) -> Search:
    """Return the search for a pattern; raise `ValueError` where its dialect does not allow it."""
    return _ecmascript(pattern, flags) if dialect == "ecmascript" else _python(pattern, flags)


def _ecmascript(pattern: str, flags: str) -> Search:
    plain = plain_ecmascript(pattern) if flags in _PLAIN_FLAGS else None
    if plain is not None:
        # What a plain pattern names is ASCII, and so is what `i` folds in it.
        search = re.compile(plain.text, _PLAIN_FLAGS[flags]).search
        return _Bounded(
            search, _affordable(plain), lambda: _translated(pattern, flags), plain.strangers
        )
    from evalcore.patterns import python as python_regex

    translated = _translated(pattern, flags)
    try:
        # What groups capture is another matter in `re`; whether there is a match is the same.
        found = None if _BACKREFERENCE.search(translated) else re.compile(translated).search
    except (re.error, OverflowError, RecursionError):
        found = None
    if found is None:
        return _Bounded(None, lambda _: False, lambda: translated)
    items, _ = python_regex.parse(translated, 0)
    return _Bounded(found, partial(python_regex.ends_soon, items), lambda: translated)


def _translated(pattern: str, flags: str) -> str:
    from evalcore.patterns.ecmascript import translate

    return translate(pattern, flags)


def _affordable(plain: PlainPattern) -> Callable[[int], bool]:
    return lambda length: plain.steps(length) <= AFFORDABLE_STEPS


def _python(pattern: str, flags: str) -> Search:
    chosen = 0
    for flag in flags:
        if flag not in PYTHON_FLAGS:
            raise ValueError(f"unknown flag {flag!r} (valid are {', '.join(PYTHON_FLAGS)})")
        chosen |= re.RegexFlag[flag.upper()]
    try:
        search = re.compile(pattern, chosen).search
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    plain = plain_python(pattern)
    if plain is not None:
        return _Bounded(search, _affordable(plain), lambda: _rewritten(pattern, chosen))
    from evalcore.patterns import python as python_regex

    items, all_flags = python_regex.parse(pattern, chosen)
    ends_soon = partial(python_regex.ends_soon, items)
    return _Bounded(search, ends_soon, lambda: python_regex.translate(items, all_flags))


def _rewritten(pattern: str, flags: int) -> str:
    from evalcore.patterns import python as python_regex

    return python_regex.translate(*python_regex.parse(pattern, flags))


class _Bounded:
    """A search by `re` in texts short enough for it, by the `regex` package's clock in others."""

    def __init__(
        self,
        search: Callable[[str], object] | None,
        ends_soon: Callable[[int], bool],
        translate: Callable[[], str],
        strangers: tuple[str, ...] = (),
    ) -> None:
        self._search = search
        self._ends_soon = ends_soon
        self._translate = translate
        self._strangers = strangers
        self._timed: Callable[..., object] | None = None
        # Texts up to the first length are known to be short enough, from the second on too long.
        self._short = -1
        self._long = math.inf

    def __call__(self, text: str, timeout_s: float) -> bool:
        """Return whether there is a match; raise `TimeoutError` when time is up."""
        if (
            self._search is not None
            and self._is_short(len(text))
            and not any(stranger in text for stranger in self._strangers)
        ):
            return self._search(text) is not None
        if self._timed is None:
            import regex

            self._timed = regex.compile(self._translate(), regex.V0).search
        return self._timed(text, timeout=timeout_s) is not None

    def _is_short(self, length: int) -> bool:
        if length <= self._short or length >= self._long:
            return length <= self._short
        # A generous bound first, so that texts of similar lengths are judged once.
        for bound in (max(1024, 2 * length), length):
            if self._ends_soon(bound):
                self._short = bound
                return True
        self._long = length
        return False

"""Compiled patterns whose searches end in time.

`re` cannot be interrupted. It searches the texts that are short enough for the worst case to end
soon; in longer ones the `regex` package searches a translation of the pattern, with a time limit.
The package's own syntax is never read from a pattern.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from evalcore.mistakes.foreign_text import quote
from evalcore.patterns.errors import PatternError
from evalcore.patterns.plain import plain_ecmascript, plain_python
from evalcore.patterns.python import ends_soon, parse, silenced, translate

PYTHON_FLAGS = "ailmsux"
_FOLDED = re.ASCII | re.IGNORECASE
_PLAIN_FLAGS = {"": re.ASCII, "g": re.ASCII, "i": _FOLDED, "gi": _FOLDED, "ig": _FOLDED}
# In a translation every other escape is `\\u`, `\\U` or a class.
_BACKREFERENCE = re.compile(r"\\[1-9]|\(\?P=")


class PatternMatch(NamedTuple):
    """Where a pattern matches, and its groups; the first group is the whole match."""

    span: tuple[int, int]
    groups: tuple[str | None, ...]


class Pattern:
    """A compiled pattern of any dialect."""

    def __init__(
        self,
        text: str,
        compiled: re.Pattern[str] | None,
        ends_soon: Callable[[int], bool],
        translate: Callable[[], str],
        foreign_characters: tuple[str, ...] = (),
    ) -> None:
        """`compiled` is right for texts without `foreign_characters`."""
        self.text = text
        self._compiled = compiled
        self._ends_soon = ends_soon
        self._translate = translate
        self._foreign_characters = foreign_characters
        self._translated: Any = None
        # Texts up to the first length are known to be short enough, from the second on too long.
        self._short = -1
        self._long = math.inf

    def is_found_in(self, text: str, timeout_s: float) -> bool:
        """Return whether the pattern matches somewhere; raise `PatternError` when time is up."""
        return self._attempt("search", text, timeout_s) is not None

    def _attempt(self, method: str, text: str, timeout_s: float) -> Any:
        """Return the match object of a method of `re.Pattern` or of the `regex` package."""
        if (
            self._compiled is not None
            and self._is_short(len(text))
            and not (self._foreign_characters and self._has_foreign_character(text))
        ):
            return getattr(self._compiled, method)(text)
        if self._translated is None:
            self._translated = _compile_translation(self.text, self._translate)
        try:
            return getattr(self._translated, method)(text, timeout=timeout_s)
        except TimeoutError:
            reason = f"took longer than {timeout_s:g} s"
        except MemoryError:
            reason = "took too much memory"
        raise PatternError(f"the search for {quote(self.text)} {reason}")

    def _has_foreign_character(self, text: str) -> bool:
        return any(character in text for character in self._foreign_characters)

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


class PythonPattern(Pattern):
    """A compiled pattern of Python's `re`.

    Each method returns the match that `re` returns, None without one. Raises `PatternError` when
    time is up.
    """

    def search(self, text: str, timeout_s: float) -> PatternMatch | None:
        """Return the first match in the text."""
        return _pattern_match(self._attempt("search", text, timeout_s))

    def match(self, text: str, timeout_s: float) -> PatternMatch | None:
        """Return the match at the beginning of the text."""
        return _pattern_match(self._attempt("match", text, timeout_s))

    def fullmatch(self, text: str, timeout_s: float) -> PatternMatch | None:
        """Return the match of the text from its beginning to its end."""
        return _pattern_match(self._attempt("fullmatch", text, timeout_s))


@lru_cache(maxsize=1024)
def compile_pattern(text: str, flags: str, dialect: str) -> Pattern:
    """Return the pattern in its dialect, `python` or `ecmascript`, with flags as letters.

    Raises `PatternError` where the dialect does not allow the pattern or a flag.
    """
    if dialect == "ecmascript":
        return compile_ecmascript(text, flags)
    return compile_python(text, flags)


@lru_cache(maxsize=1024)
def compile_python(text: str, flags: str = "") -> PythonPattern:
    """Return the pattern of Python's `re`; raise `PatternError` where `re` does not allow it."""
    flag_bits = 0
    for flag in flags:
        if flag not in PYTHON_FLAGS:
            reason = f"unknown flag {flag!r} (valid are {', '.join(PYTHON_FLAGS)})"
            raise _invalid(text, PatternError(reason))
        flag_bits |= re.RegexFlag[flag.upper()]
    try:
        with silenced(text):
            compiled = re.compile(text, flag_bits)
    except re.error as error:
        raise _invalid(text, PatternError(error.msg, error.pos)) from None
    except (OverflowError, RecursionError, ValueError) as error:
        raise _invalid(text, PatternError(str(error))) from None
    plain = plain_python(text)
    if plain is not None:
        lazily = partial(_translate_python, text, flag_bits)
        return PythonPattern(text, compiled, plain.ends_soon, lazily)
    tree, all_flags = parse(text, flag_bits)
    lazily = partial(translate, tree, all_flags)
    return PythonPattern(text, compiled, partial(ends_soon, tree), lazily)


@lru_cache(maxsize=1024)
def compile_ecmascript(text: str, flags: str = "") -> Pattern:
    """Return the pattern of ECMAScript; raise `PatternError` where it does not allow it."""
    plain = plain_ecmascript(text) if flags in _PLAIN_FLAGS else None
    if plain is not None:
        # What a plain pattern names is ASCII, and so is what `i` folds in it.
        compiled = re.compile(plain.text, _PLAIN_FLAGS[flags])
        lazily = partial(_translate_ecmascript, text, flags)
        return Pattern(text, compiled, plain.ends_soon, lazily, plain.foreign_characters)
    try:
        translation = _translate_ecmascript(text, flags)
    except PatternError as error:
        raise _invalid(text, error) from None
    try:
        # `re` captures other groups, but finds a match in the same texts.
        searched_by_re = None if _BACKREFERENCE.search(translation) else re.compile(translation)
    except (re.error, OverflowError, RecursionError):
        searched_by_re = None
    if searched_by_re is None:
        return Pattern(text, None, lambda _: False, lambda: translation)
    tree, _ = parse(translation, 0)
    return Pattern(text, searched_by_re, partial(ends_soon, tree), lambda: translation)


def _pattern_match(match: Any) -> PatternMatch | None:
    return None if match is None else PatternMatch(match.span(), (match[0], *match.groups()))


def _translate_python(text: str, flags: int) -> str:
    return translate(*parse(text, flags))


def _translate_ecmascript(text: str, flags: str) -> str:
    from evalcore.patterns import ecmascript  # few patterns are so special that they need it

    return ecmascript.translate(text, flags)


def _compile_translation(text: str, translation: Callable[[], str]) -> Any:
    import regex  # it takes as long to import as all the rest

    try:
        return regex.compile(translation(), regex.V0)
    except PatternError as error:
        raise _invalid(text, error) from None
    except RecursionError as error:
        raise _invalid(text, PatternError(str(error))) from None


def _invalid(text: str, error: PatternError) -> PatternError:
    return PatternError(f"invalid pattern {quote(text)}: {error.message}", error.position)

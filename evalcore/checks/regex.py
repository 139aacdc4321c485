"""Is there a match of a regular expression in the text: in Python's dialect or ECMAScript's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar, Literal, Protocol

from evalcore.checks.base import Check, Fault
from evalcore.checks.subject import Subject
from evalcore.mistakes.foreign_text import quote_pattern
from evalcore.model.assertion import PASSED, Verdict, broken, failed
from evalcore.patterns.bounded import compile_pattern
from evalcore.patterns.errors import PatternError


class Regex(Check):
    """`pattern`, in its `dialect` and with its `flags`, matches somewhere in the output.

    An invalid pattern and a search that takes longer than the context allows are errors.
    """

    of_text: ClassVar[bool] = True
    expected_field: ClassVar[str] = "pattern"

    pattern: str
    flags: str = ""
    dialect: Literal["python", "ecmascript"] = "python"

    def check(self, subject: Subject) -> Verdict:
        """Search the output."""
        return match_text(self, subject.output, subject.context.regex_timeout_s)

    def faults(self) -> Iterator[Fault]:
        """Yield that the dialect does not allow the pattern or its flags."""
        return pattern_faults(self)


class HasPattern(Protocol):
    """What a search needs of a check."""

    @property
    def pattern(self) -> str: ...  # noqa: D102 - fields
    @property
    def flags(self) -> str: ...  # noqa: D102 - fields
    @property
    def dialect(self) -> str: ...  # noqa: D102 - fields


def pattern_faults(check: HasPattern) -> Iterator[Fault]:
    """Yield that the dialect does not allow a check's pattern, or not with its flags."""
    try:
        compile_pattern(check.pattern, check.flags, check.dialect)
    except PatternError as error:
        field = "pattern"
        if check.flags:
            with suppress(PatternError):
                compile_pattern(check.pattern, "", check.dialect)
                field = "flags"
        yield Fault((field,), str(error))


def match_text(check: HasPattern, text: str, timeout_s: float) -> Verdict:
    """Return whether the pattern matches somewhere in the text, as a verdict."""
    try:
        pattern = compile_pattern(check.pattern, check.flags, check.dialect)
        is_found = pattern.is_found_in(text, timeout_s)
    except PatternError as error:
        return broken(str(error))
    return PASSED if is_found else failed(f"no match of {quote_pattern(check.pattern)}")

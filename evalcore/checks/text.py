"""Checks on the text itself: what it contains, how it begins and ends, how many words it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Literal, Required

from typing_extensions import TypedDict

from evalcore.checks.base import AssertionValueError, Check, Fault, Reader, Subject
from evalcore.model.assertion import PASSED, Verdict, broken, failed
from evalcore.patterns import PatternError, compile_pattern
from evalcore.wording import counted, quote, quote_all, quote_pattern, value_text

# White space and line terminators of ECMAScript; `str.strip` knows others.
ECMASCRIPT_TRIMMED = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class Contains(Check):
    """`value` is in the output; with `fold` both are lower-cased first."""

    of_text: ClassVar[bool] = True

    value: str
    fold: bool = False

    def check(self, subject: Subject) -> Verdict:
        """Search the output."""
        value, output = self.value, subject.output
        if (value.lower() in output.lower()) if self.fold else (value in output):
            return PASSED
        return failed(f"does not contain {quote(value)}")


class _SeveralTexts(Check):
    of_text: ClassVar[bool] = True
    expected_field: ClassVar[str] = "values"

    values: list[str]
    fold: bool = False

    def missing(self, output: str) -> list[str]:
        """Return the values that are not in the output."""
        if self.fold:
            output = output.lower()
            return [value for value in self.values if value.lower() not in output]
        return [value for value in self.values if value not in output]


class ContainsAny(_SeveralTexts):
    """One of `values` is in the output; without values the check fails."""

    def check(self, subject: Subject) -> Verdict:
        """Search the output for each value."""
        values = self.values
        if len(self.missing(subject.output)) < len(values):
            return PASSED
        return failed(f"contains none of {quote_all(values)}" if values else "there are no values")


class ContainsAll(_SeveralTexts):
    """Every one of `values` is in the output."""

    def check(self, subject: Subject) -> Verdict:
        """Search the output for each value."""
        missing = self.missing(subject.output)
        return failed(f"does not contain {quote_all(missing)}") if missing else PASSED


class _TrimmedText(Check):
    of_text: ClassVar[bool] = True

    value: str
    trim: Literal["ecmascript"] | None = None

    def trimmed(self, output: str) -> tuple[str, str]:
        """Return the value and the output, both trimmed if `trim` says so."""
        if self.trim is None:
            return self.value, output
        return self.value.strip(ECMASCRIPT_TRIMMED), output.strip(ECMASCRIPT_TRIMMED)


class StartsWith(_TrimmedText):
    """The output begins with `value`; `trim` (`ecmascript` or null) applies to both sides."""

    def check(self, subject: Subject) -> Verdict:
        """Compare the beginnings."""
        value, output = self.trimmed(subject.output)
        return PASSED if output.startswith(value) else failed(f"does not start with {quote(value)}")


class EndsWith(_TrimmedText):
    """The output ends with `value`; `trim` (`ecmascript` or null) applies to both sides."""

    def check(self, subject: Subject) -> Verdict:
        """Compare the ends."""
        value, output = self.trimmed(subject.output)
        return PASSED if output.endswith(value) else failed(f"does not end with {quote(value)}")


class Equals(_TrimmedText):
    """The output is `value`; `trim` (`ecmascript` or null) applies to both sides."""

    def check(self, subject: Subject) -> Verdict:
        """Compare the texts."""
        value, output = self.trimmed(subject.output)
        return PASSED if output == value else failed(f"is not {quote(value)}")

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `equals` means in workflow files: of text, or of JSON."""
        value, mode = written["value"], (written.get("config") or {}).get("mode")
        if value is None:
            hint = "; JSON's null is written in quotes" if mode == "json" else ""
            raise AssertionValueError(f"is required{hint}", "value")
        if mode == "json":
            is_text = isinstance(value, str)
            return "equals-json", {"value": reader.parse_json(value, "value") if is_text else value}
        if mode is not None:
            message = f"unknown mode {mode!r}; only 'json' is known"
            raise AssertionValueError(message, "config", "mode")
        return "equals", {"value": value_text(value), "trim": None}


class WordCount(Check):
    """The output has `min` to `max` white-space-separated words (null: no bound)."""

    of_text: ClassVar[bool] = True

    min: int | None = None
    max: int | None = None

    def check(self, subject: Subject) -> Verdict:
        """Count the words."""
        count = len(subject.output.split())
        if self.min is not None and count < self.min:
            return failed(f"{counted(count, 'word')}, fewer than {self.min}")
        if self.max is not None and count > self.max:
            return failed(f"{counted(count, 'word')}, more than {self.max}")
        return PASSED

    def expected_text(self) -> str | None:
        """Return the bounds."""
        if self.min is None:
            return None if self.max is None else f"max {self.max}"
        return f"min {self.min}" if self.max is None else f"min {self.min}, max {self.max}"

    @classmethod
    def read(cls, written: Mapping[str, Any], _reader: object) -> tuple[str, dict[str, Any]]:
        """Return the check that `word-count` means: a number of words, or their bounds."""
        value = written["value"]
        bounds = value if isinstance(value, Mapping) else {"min": value, "max": value}
        low, high = bounds.get("min"), bounds.get("max")
        if low is not None and high is not None and low > high:
            message = f"'min' ({low}) is above 'max' ({high}): no number of words is both"
            raise AssertionValueError(message, "value")
        return "word-count", {"min": low, "max": high}


class WordRange(TypedDict, total=False):
    """Inclusive bounds of a number of words."""

    min: int | None
    max: int | None


class WordCountKeys(TypedDict, total=False):
    """The keys of `word-count`."""

    value: Required[int | WordRange]


class EqualsKeys(TypedDict, total=False):
    """The keys of `equals` in workflow files; with `config.mode: json` the value is JSON."""

    value: Required[Any]


class PatternCheck(Check):
    """A check that searches for a pattern."""

    expected_field: ClassVar[str] = "pattern"

    pattern: str
    flags: str = ""
    dialect: Literal["python", "ecmascript"] = "python"

    def faults(self) -> Iterator[Fault]:
        """Yield that the dialect does not allow the pattern or its flags."""
        try:
            compile_pattern(self.pattern, self.flags, self.dialect)
        except PatternError as error:
            field = "pattern"
            if self.flags:
                with suppress(PatternError):
                    compile_pattern(self.pattern, "", self.dialect)
                    field = "flags"
            yield Fault((field,), str(error))

    def match(self, text: str, timeout_s: float) -> Verdict:
        """Return whether the pattern matches somewhere in the text."""
        try:
            pattern = compile_pattern(self.pattern, self.flags, self.dialect)
            is_found = pattern.is_found_in(text, timeout_s)
        except PatternError as error:
            return broken(str(error))
        return PASSED if is_found else failed(f"no match of {quote_pattern(self.pattern)}")


class Regex(PatternCheck):
    """`pattern`, in its `dialect` and with its `flags`, matches somewhere in the output.

    An invalid pattern and a search that takes longer than the context allows are errors.
    """

    of_text: ClassVar[bool] = True

    def check(self, subject: Subject) -> Verdict:
        """Search the output."""
        return self.match(subject.output, subject.context.regex_timeout_s)

"""Checks on the text itself: what it contains, how it begins, how near it is to another."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, Final, Literal, Required

from typing_extensions import TypedDict

from evalcore.checks.base import AssertionValueError, Check, Fault, Reader, Subject
from evalcore.model.assertion import PASSED, Outcome, Verdict, broken, failed
from evalcore.model.scoring import reaches
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


_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
# Scripts that put no space between words: each letter is a word (UAX #29).
_SPACELESS: Final = r"\p{Han}\p{Hiragana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"


class Levenshtein(Check):
    """At most `threshold` characters have to change to make the output `value`."""

    value: str
    threshold: float = 5

    def check(self, subject: Subject) -> Verdict:
        """Measure the edit distance."""
        from rapidfuzz.distance import Levenshtein

        cutoff = max(math.floor(self.threshold), 0)
        distance = Levenshtein.distance(subject.output, self.value, score_cutoff=cutoff)
        if distance <= self.threshold:
            return PASSED
        return failed(f"the edit distance is more than {self.threshold:g}")


class Bleu(Check):
    """BLEU-4 of lower-cased white-space-separated words is at least `threshold`.

    Counts of two words and more are smoothed by one, so an order of which the output has no n-gram
    counts as 1; an output without any word of `value` scores 0.
    """

    value: str
    threshold: float = 0.5

    def check(self, subject: Subject) -> Verdict:
        """Measure BLEU; the score is graded."""
        percent = _bleu().corpus_score([subject.output], [[self.value]]).score
        return _graded("BLEU", min(percent / 100.0, 1.0), self.threshold)


class RougeN(Check):
    """The F score of ROUGE-1 without stemming is at least `threshold`.

    Words are the runs of letters, marks and digits in the lower-cased text, in scripts without
    spaces between words (Chinese, Japanese, Thai, …) each letter. A `value` that has none is an
    error, an empty one scores 0.
    """

    value: str
    threshold: float = 0.75

    def check(self, subject: Subject) -> Verdict:
        """Measure ROUGE-1; the score is graded."""
        words = _words(self.value)
        if not words and self.value.strip():
            return broken(self._no_word)
        return _graded("ROUGE-1", _rouge_1(words, _words(subject.output)), self.threshold)

    def faults(self) -> Iterator[Fault]:
        """Yield that the value has no word."""
        if self.value.strip() and not _words(self.value):
            yield Fault(("value",), self._no_word)

    @property
    def _no_word(self) -> str:
        return f"ROUGE-1 compares words, and {quote(self.value)} has none"


def _words(text: str) -> Counter[str]:
    if text.isascii():
        return Counter(_ASCII_WORD.findall(text.lower()))
    return Counter(_unicode_word().findall(unicodedata.normalize("NFC", text.lower())))


@cache
def _unicode_word() -> Any:
    import regex

    letters = rf"[[\p{{L}}\p{{M}}\p{{N}}]--[{_SPACELESS}]]+"
    return regex.compile(rf"[[{_SPACELESS}]&&[\p{{L}}\p{{N}}]]\p{{M}}*|{letters}", regex.VERSION1)


def _rouge_1(reference: Counter[str], candidate: Counter[str]) -> float:
    """Return 2PR/(P + R), P and R the shares of the words of each that the other has (Lin 2004)."""
    common = (reference & candidate).total()
    if not common:
        return 0.0
    precision, recall = common / candidate.total(), common / reference.total()
    return 2 * precision * recall / (precision + recall)


def _graded(measure: str, score: float, threshold: float) -> Verdict:
    if reaches(score, threshold):
        return Verdict(Outcome.PASSED, score)
    return Verdict(Outcome.FAILED, score, f"{measure} is {score:.4g}, below {threshold:g}")


@cache
def _bleu() -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(lowercase=True, tokenize="none", smooth_method="add-k", smooth_value=1, force=True)

"""Checks on how near the output comes to a text: edit distance, BLEU, ROUGE."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, Final

from evalcore.checks.base import Check, Fault
from evalcore.checks.scale import Scale, share
from evalcore.checks.subject import Subject
from evalcore.mistakes.foreign_text import quote
from evalcore.model.assertion import PASSED, Outcome, Verdict, broken, failed
from evalcore.model.tolerance import reaches

_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
# Scripts that put no space between words: each letter is a word (UAX #29).
_SPACELESS: Final = r"\p{Han}\p{Hiragana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"


class Levenshtein(Check):
    """At most `threshold` characters have to change to make the output `value`."""

    measure_scale: ClassVar[Scale] = Scale("the edit distance", "0 or more")

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

    measure_scale: ClassVar[Scale] = share("BLEU")

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

    measure_scale: ClassVar[Scale] = share("ROUGE-1")

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

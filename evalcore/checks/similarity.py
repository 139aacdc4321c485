"""Checks on how near the output comes to a text: edit distance, BLEU, ROUGE."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any, ClassVar, Final, Required

from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.checks.base import STRICT, Check, Fault, Reader, Subject
from evalcore.checks.judged import Judge
from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeSpec, cosine
from evalcore.judging.panel import Panel
from evalcore.judging.prompts import expected_text
from evalcore.model.assertion import PASSED, Outcome, Verdict, broken, failed
from evalcore.model.scoring import reaches
from evalcore.shapes import Scalar, Share, Text, TextOrTexts
from evalcore.wording import quote, value_text

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


DEFAULT_THRESHOLD: Final = 0.8


class Similar(Check):
    """The cosine of the embeddings of output and `value`, at least 0, reaches `threshold`.

    Of several values the nearest counts; without `value` the case's expected output is taken.
    """

    nested: ClassVar[bool] = True

    value: str | list[str] | None = None
    threshold: float = DEFAULT_THRESHOLD
    judges: list[Judge] = field(default_factory=list)

    @property
    def panel(self) -> Panel:
        """Who is asked: the first of the judges."""
        return Panel(tuple(judge.spec for judge in self.judges) or (JudgeSpec(),))

    async def check(self, subject: Subject) -> Verdict:
        """Ask for the embeddings; the score is graded."""
        value = self.value
        reference = expected_text(subject.case.expected_output) if value is None else value
        texts = reference if isinstance(reference, list) else [reference]
        if not all(texts):
            return broken("there is nothing to compare with: no 'value' and no 'expected_output'")
        try:
            embedded = await subject.context.judges.embed(
                self.panel.judges[0], [*texts, subject.output]
            )
            *references, output = embedded.vectors
            score = min(1.0, max(0.0, *(cosine(vector, output) for vector in references)))
        except (TargetError, ValueError) as error:
            return broken(str(error))
        reached = reaches(score, self.threshold)
        metrics = embedded.metrics
        usage = {"input": metrics.input_tokens, "output": metrics.output_tokens}
        unpriced = {} if embedded.unpriced is None else {"unpriced": [embedded.unpriced]}
        return Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            score,
            f"cosine similarity {score:.4g} {'≥' if reached else '<'} {self.threshold:g}",
            expected="; ".join(texts),
            details={"model": embedded.model, "token_usage": usage, **unpriced},
            latency_ms=metrics.latency_ms,
            cost_usd=metrics.cost_usd,
        )

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `similar` means in test files."""
        return "similar", {
            "value": written.get("value"),
            "threshold": float(written.get("threshold", DEFAULT_THRESHOLD)),
            "judges": [reader.embedding(written)],
        }

    @classmethod
    def read_config(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `similar` means in workflow files and suites."""
        config = reader.validate(SimilarConfig, written.get("config") or {}, "config")
        threshold = written.get("threshold")
        if threshold is None:
            threshold = config.get("threshold", DEFAULT_THRESHOLD)
        options = {key: value for key, value in config.items() if key != "threshold"}
        judge = reader.inline_judge(options) if "provider" in options else reader.embedding(options)
        value = value_text(written["value"])
        return "similar", {"value": value, "threshold": float(threshold), "judges": [judge]}


@with_config(STRICT)
class SimilarKeys(TypedDict, total=False):
    """The keys of `similar` in test files."""

    value: TextOrTexts
    threshold: Share
    judge: Text
    target: Text
    model: Text


class SimilarValue(TypedDict, total=False):
    """The keys of `similar` in workflow files."""

    value: Required[Scalar]


@with_config(STRICT)
class SimilarConfig(TypedDict, total=False):
    """The keys in the `config` of `similar` in workflow files and suites."""

    judge: Text
    target: Text
    model: Text
    provider: Text
    base_url: Text
    api_key: Text
    threshold: Share

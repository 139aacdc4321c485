"""Checks on how near the output comes to a text: edit distance, BLEU, ROUGE."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from evalcore.checks.subject import Subject
from evalcore.model.assertion import PASSED, Outcome, Verdict, failed
from evalcore.model.tolerance import reaches

_WORD: Final = re.compile(r"[a-z0-9]+")


def levenshtein(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that at most `threshold` characters have to change to make the output `value`."""
    from rapidfuzz.distance import Levenshtein

    threshold = params["threshold"]
    cutoff = max(math.floor(threshold), 0)
    distance = Levenshtein.distance(subject.output, params["value"], score_cutoff=cutoff)
    if distance <= threshold:
        return PASSED
    return failed(f"the edit distance is more than {threshold:g}")


def bleu(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Measure BLEU-4 of lower-cased white-space-separated words; passes from `threshold` on.

    Counts of two words and more are smoothed by one, so an order of which the output has no n-gram
    counts as 1; an output without any word of `value` scores 0.
    """
    percent = _bleu().corpus_score([subject.output], [[params["value"]]]).score
    return _graded("BLEU", min(percent / 100.0, 1.0), params["threshold"])


def rouge_n(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Measure the F score of ROUGE-1 without stemming; passes from `threshold` on.

    Words are the runs of `[a-z0-9]` in the lower-cased text.
    """
    score = _rouge_1(_words(params["value"]), _words(subject.output))
    return _graded("ROUGE-1", score, params["threshold"])


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


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

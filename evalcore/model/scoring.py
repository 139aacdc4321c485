"""From assertion results to an item's score and outcome (docs/reference/engine.md)."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from evalcore.model.assertion import AssertionResult, Outcome
from evalcore.model.suite import ScoreRule
from evalcore.model.tolerance import reaches

_MEASURED = frozenset({Outcome.PASSED, Outcome.FAILED})


def score_item(
    results: Sequence[AssertionResult], rule: ScoreRule, threshold: float
) -> tuple[float, Outcome]:
    """Return an item's score and outcome.

    An assertion that is blocked or in error scores 0 with its weight. The outcome is the rule's
    verdict over the measured assertions: not met is failed; met, but one is not measured, is
    blocked. Without any assertion the score is 1 and the item passes. What is advisory counts only
    for the score of an item that has nothing else, and never decides.
    """
    if not results:
        return 1.0, Outcome.PASSED
    if rule is ScoreRule.WEIGHTED and threshold <= 1.0 and all_plain_passes(results):
        return 1.0, Outcome.PASSED
    deciding = [result for result in results if result.details is None or not result.is_advisory]
    if len(deciding) < len(results):
        if not deciding:
            return weighted_mean(results), Outcome.PASSED
        return score_item(deciding, rule, threshold)
    measured = [result for result in results if result.outcome in _MEASURED]
    if rule is ScoreRule.BLOCKS:
        score = _block_score(results)
        met = all(result.outcome is Outcome.PASSED for result in measured)
    else:
        score = weighted_mean(results)
        met = _weighted_rule(measured, threshold)
    if not met:
        return score, Outcome.FAILED
    return score, Outcome.PASSED if len(measured) == len(results) else Outcome.BLOCKED


def all_plain_passes(results: Sequence[AssertionResult]) -> bool:
    """Whether every assertion passed with 1 and has weight: by far the most frequent case."""
    for result in results:
        if result.score != 1.0 or result.outcome is not Outcome.PASSED or result.weight <= 0:
            return False
    return True


def weighted_mean(results: Sequence[AssertionResult]) -> float:
    """Return Σ(score·weight)/Σ(weight); 0.0 when no weight is left."""
    total = fsum([result.weight for result in results])
    if total <= 0:
        return 0.0
    return fsum([result.score * result.weight for result in results]) / total


def _block_score(results: Sequence[AssertionResult]) -> float:
    """Return the plain mean of the blocks' weighted means."""
    blocks: dict[str | None, list[AssertionResult]] = {}
    for result in results:
        blocks.setdefault(result.block, []).append(result)
    return fsum([weighted_mean(block) for block in blocks.values()]) / len(blocks)


def _weighted_rule(measured: Sequence[AssertionResult], threshold: float) -> bool:
    """Whether the measured assertions reach the threshold, and each required one its own."""
    if not measured:
        return True
    for result in measured:
        if result.required is not None and not reaches(result.score, result.required):
            return False
        if result.details is not None and result.fails_item:
            return False
    return reaches(weighted_mean(measured), threshold)

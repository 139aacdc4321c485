"""From assertion results to an item's score and outcome (docs/reference/engine.md)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from math import fsum
from typing import Final, NamedTuple

from evalcore.model.assertion import AssertionResult, Outcome
from evalcore.model.exchange import Aggregation, turn_block, turn_number
from evalcore.model.suite import ScoreRule

# `0.8 * 3 / 3` is `0.7999999999999999` in doubles and reaches a threshold of 0.8
# (docs/decisions/0006-epsilon.md). Scores themselves are never rounded.
ROUNDING: Final = 1e-9


def reaches(value: float, threshold: float, scale: float = 1.0) -> bool:
    """Whether a computed value is at least the threshold, up to rounding.

    `scale` is the size of the numbers that the value is computed from; scores are at most 1.
    """
    return value >= threshold - ROUNDING * scale


def is_below(amount: float, limit: float) -> bool:
    """Whether a computed amount of any size is less than the limit, and not only by rounding."""
    return amount < limit and not math.isclose(amount, limit, rel_tol=ROUNDING)


_REASONS = 3
_MEASURED = frozenset({Outcome.PASSED, Outcome.FAILED})


def score_item(
    results: Sequence[AssertionResult],
    rule: ScoreRule,
    threshold: float,
    aggregation: Aggregation | None = None,
) -> tuple[float, Outcome]:
    """Return an item's score and outcome.

    An assertion that is blocked or in error scores 0 with its weight. The outcome is the rule's
    verdict over the measured assertions: not met is failed; met, but one is not measured, is
    blocked. Without any assertion the score is 1 and the item passes. With an `aggregation` the
    score is that of the blocks' weighted means instead of all assertions'.
    """
    if not results:
        return 1.0, Outcome.PASSED
    if rule is ScoreRule.WEIGHTED and threshold <= 1.0 and all_plain_passes(results):
        return 1.0, Outcome.PASSED
    measured = [result for result in results if result.outcome in _MEASURED]
    if rule is ScoreRule.BLOCKS:
        score = _block_score(results)
        met = all(result.outcome is Outcome.PASSED for result in measured)
    else:
        score = _aggregated(results, aggregation)
        # With no weight among the measured, what is not measured alone makes the score.
        decides = _has_weight(measured) or (bool(measured) and not _has_weight(results))
        met = _requirements_met(measured) and (
            not decides or reaches(_aggregated(measured, aggregation), threshold)
        )
    if not met:
        return score, Outcome.FAILED
    return score, Outcome.PASSED if len(measured) == len(results) else Outcome.BLOCKED


def score_reason(results: Sequence[AssertionResult], score: float, threshold: float) -> str | None:
    """Return why an item failed of which every assertion that decides passed, else None."""
    if not results or any(result.outcome is not Outcome.PASSED for result in results):
        return None
    required = [
        f"{result.name}: score {result.score:.6g} < {result.required:g}, which is required"
        for result in results
        if result.required is not None and not reaches(result.score, result.required)
    ]
    reasons = required or [f"score {score:.6g} < {threshold:g} (the threshold of the test)"]
    messages = [
        f"{result.name}: {result.message}"
        for result in sorted(results, key=lambda result: result.score)
        if result.score < 1.0 and result.message
    ]
    return "; ".join((*reasons, *messages[:_REASONS]))


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
    means = _block_means(results)
    return fsum(means) / len(means)


def _block_means(results: Sequence[AssertionResult]) -> list[float]:
    blocks: dict[str | None, list[AssertionResult]] = {}
    for result in results:
        blocks.setdefault(result.block, []).append(result)
    return [weighted_mean(block) for block in blocks.values()]


def _aggregated(results: Sequence[AssertionResult], aggregation: Aggregation | None) -> float:
    match aggregation:
        case None:
            return weighted_mean(results)
        case "mean":
            return _block_score(results)
        case "min":
            return min(_block_means(results))
        case "max":
            return max(_block_means(results))


def _has_weight(results: Sequence[AssertionResult]) -> bool:
    return any(result.weight > 0 for result in results)


def _requirements_met(measured: Sequence[AssertionResult]) -> bool:
    """Whether each required assertion reaches its own threshold, and no part of one falls short."""
    for result in measured:
        if result.required is not None and not reaches(result.score, result.required):
            return False
        if result.details is not None and result.fails_item:
            return False
    return True


def after_failed_turn(
    results: Sequence[AssertionResult], threshold: float, answered: Collection[str]
) -> tuple[AssertionResult, ...]:
    """Return the results with those of turns after the first one below the threshold as failed.

    `answered` are the blocks that have an output: a recorded conversation has all of them.
    """
    turns: dict[int, list[AssertionResult]] = {}
    for result in results:
        if (number := turn_number(result.block)) is not None:
            turns.setdefault(number, []).append(result)
    numbers = (n for n in sorted(turns) if turn_block(n) in answered)
    below = (n for n in numbers if not turn_passes(turns[n], threshold))
    failed = next(below, None)
    if failed is None:
        return tuple(results)
    why = f"{turn_block(failed)} did not pass (on_turn_failure: stop)"
    return tuple(
        _failed_after(each, failed, why if each.block in answered else f"not asked: {why}")
        for each in results
    )


def _failed_after(result: AssertionResult, turn: int, message: str) -> AssertionResult:
    if (turn_number(result.block) or 0) <= turn:
        return result
    return result._replace(outcome=Outcome.FAILED, score=0.0, message=message)


def after_last_turn(
    results: Sequence[AssertionResult], last_turn: int
) -> tuple[AssertionResult, ...]:
    """Return the results with those of turns after the last one that was asked as failed."""
    message = (
        f"not asked: the conversation ended with {turn_block(last_turn)} (on_turn_failure: stop)"
    )
    return tuple(_failed_after(result, last_turn, message) for result in results)


def turn_passes(results: Sequence[AssertionResult], threshold: float) -> bool:
    """Whether the results of a turn reach the threshold; a turn without any does."""
    return not results or reaches(weighted_mean(results), threshold)


class GroupScore(NamedTuple):
    """The mean of a suite's tests in a variant; None where nothing was scored."""

    variant: str
    group: str | None
    score: float | None


class TestScore(NamedTuple):
    """The mean of a test's iterations in a variant.

    A `placeholder` stands for a suite without tests.
    """

    variant: str
    group: str | None
    case: str
    score: float | None
    placeholder: bool


class TestDetail(NamedTuple):
    """The scores of a test's iterations and what went wrong in them, by iteration.

    `square_sum` is the sum of the squared distances of the scores from their mean.
    """

    iterations: tuple[int, ...]
    scores: tuple[float | None, ...]
    errors: tuple[str | None, ...]
    square_sum: float | None


class Note(NamedTuple):
    """A warning or an error of some iterations of a test."""

    is_error: bool
    variant: str
    case: str
    message: str
    iterations: tuple[int, ...]


class ModelTokens(NamedTuple):
    """What a model was given and made, in tokens."""

    model: str
    input_tokens: int
    output_tokens: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens


class ScriptScores(NamedTuple):
    """The scores of a run; `finals` are the means of the suites, by variant in their order."""

    finals: tuple[tuple[str, float | None], ...]
    groups: tuple[GroupScore, ...]
    tests: tuple[TestScore, ...]
    details: tuple[TestDetail, ...] | None
    tokens: tuple[ModelTokens, ...]

"""From assertion results to an item's score and outcome."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.model.assertion import AssertionResult, Outcome
from evalcore.model.scoring import score_item, score_reason
from evalcore.model.suite import ScoreRule

P, F, B, E = Outcome.PASSED, Outcome.FAILED, Outcome.BLOCKED, Outcome.ERROR


def result(
    outcome: Outcome,
    score: float | None = None,
    *,
    weight: float = 1.0,
    block: str | None = None,
    required: float | None = None,
) -> AssertionResult:
    value = (1.0 if outcome is P else 0.0) if score is None else score
    return AssertionResult("n", "t", block, outcome, value, weight, required, None, None, "")


BLOCKS = [
    ("no assertion passes with 1", [], 1.0, P),
    (
        "mean of block means",
        [result(P, block="a"), result(F, block="a"), result(P, block="b")],
        0.75,
        F,
    ),
    ("weight 0 must pass too", [result(P), result(F, weight=0)], 1.0, F),
    ("no weight left scores 0", [result(P, weight=0)], 0.0, P),
    ("an error scores 0 and blocks", [result(P), result(E)], 0.5, B),
    ("a failure outranks an error", [result(F), result(E)], 0.0, F),
    ("blocked blocks", [result(B)], 0.0, B),
    ("weights count", [result(P, weight=3), result(F)], 0.75, F),
]


@pytest.mark.parametrize(
    ("results", "score", "outcome"), [row[1:] for row in BLOCKS], ids=[row[0] for row in BLOCKS]
)
def test_rule_blocks(results: list[AssertionResult], score: float, outcome: Outcome) -> None:
    found, verdict = score_item(results, ScoreRule.BLOCKS, 1.0)
    assert found == pytest.approx(score)
    assert verdict is outcome


WEIGHTED = [
    ("reaches the threshold", [result(P, weight=4), result(F)], 0.8, P),
    ("stays below it", [result(P, weight=3), result(F)], 0.75, F),
    (
        "a required one below its own fails",
        [result(P, weight=9), result(F, 0.5, required=0.6)],
        0.95,
        F,
    ),
    (
        "a required one at its own holds",
        [result(P, weight=9), result(F, 0.6, required=0.6)],
        0.96,
        P,
    ),
    ("an error is not measured, and blocks", [result(P), result(E)], 0.5, B),
    ("a required one in error blocks", [result(P), result(E, required=0.8)], 0.5, B),
    ("only errors block", [result(E)], 0.0, B),
    ("no weight left fails", [result(P, weight=0)], 0.0, F),
    ("what has no weight decides nothing", [result(B), result(F, weight=0)], 0.0, B),
    ("a blocked one without weight blocks", [result(B, weight=0)], 0.0, B),
    ("no weight at all fails", [result(B, weight=0), result(P, weight=0)], 0.0, F),
    (
        "a required one without weight fails",
        [result(B), result(F, weight=0, required=0.5)],
        0.0,
        F,
    ),
]


@pytest.mark.parametrize(
    ("results", "score", "outcome"), [row[1:] for row in WEIGHTED], ids=[row[0] for row in WEIGHTED]
)
def test_rule_weighted(results: list[AssertionResult], score: float, outcome: Outcome) -> None:
    found, verdict = score_item(results, ScoreRule.WEIGHTED, 0.8)
    assert found == pytest.approx(score)
    assert verdict is outcome


def test_a_mean_of_thirds_reaches_its_decimal_threshold() -> None:
    results = [result(F, 0.8) for _ in range(3)]
    assert score_item(results, ScoreRule.WEIGHTED, 0.8)[1] is P


def scored(score: float, **changed: Any) -> AssertionResult:
    made = AssertionResult("a", "llm-grader", None, P, score, 1.0, None, None, None, "")
    return made._replace(**changed)


WHY: dict[str, tuple[list[AssertionResult], str | None]] = {
    "the threshold": ([scored(0.6)], "score 0.6 < 0.8 (the threshold of the test)"),
    "what a judge said": (
        [scored(1.0, message="good"), scored(0.2, message="off topic")],
        "score 0.6 < 0.8 (the threshold of the test); a: off topic",
    ),
    "what is required": ([scored(0.7, required=0.9)], "a: score 0.7 < 0.9, which is required"),
    "a failed one says it": ([scored(0.6), scored(0.0, outcome=F)], None),
}


@pytest.mark.parametrize(("results", "reason"), WHY.values(), ids=WHY)
def test_an_item_whose_assertions_all_passed_has_a_reason_to_fail(
    results: list[AssertionResult], reason: str | None
) -> None:
    score, _ = score_item(results, ScoreRule.WEIGHTED, 0.8)
    assert score_reason(results, score, 0.8) == reason

from __future__ import annotations

import pytest

from evalcore.checks.grading import grade
from evalcore.execution.item import run_inline
from evalcore.model.assertion import Outcome
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.suite import Case
from tests.unit.checks.checking import (
    BLOCKED,
    ERROR,
    FAILED,
    PASSED,
    assertion,
    context,
    result,
)

MEASURED = Metrics(latency_ms=250.0, cost_usd=0.06, input_tokens=10, output_tokens=5)


@pytest.mark.parametrize(
    ("check", "threshold", "expected"),
    [
        ("cost", 0.06, PASSED),
        ("cost", 0.05, FAILED),
        ("cost", 0.06 - 1e-17, PASSED),
        ("latency", 250, PASSED),
        ("latency", 249.9, FAILED),
        ("tokens", 15, PASSED),
        ("tokens", 14, FAILED),
    ],
)
def test_the_measured_value_is_at_most_the_threshold(
    check: str, threshold: float, expected: Outcome
) -> None:
    ended = result(assertion(check, {"threshold": threshold}), "x", metrics=MEASURED)
    assert ended.outcome is expected


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("check", ["cost", "latency", "tokens"])
def test_what_was_not_measured_is_blocked_and_has_no_opposite(check: str, negate: bool) -> None:
    ended = result(assertion(check, {"threshold": 1}, negate=negate), "x", metrics=UNMEASURED)
    assert (ended.outcome, ended.score, ended.message) == (BLOCKED, 0.0, "not measured")


def test_a_failure_says_both_values() -> None:
    ended = result(assertion("latency", {"threshold": 100}), "x", metrics=MEASURED)
    assert (ended.actual, ended.expected) == ("250 ms", "≤ 100 ms")
    assert ended.message == "250 ms, expected ≤ 100 ms"


def test_a_blocks_assertion_looks_at_the_blocks_measures() -> None:
    evidence = Evidence(
        "x",
        outputs={"a": "x", "b": "x"},
        metrics=Metrics(cost_usd=5.0),
        block_metrics={"a": Metrics(cost_usd=0.5)},
    )
    checks = [assertion("cost", {"threshold": 1}, block=block) for block in (None, "a", "b")]
    graded = run_inline(grade(checks, evidence, Case("1"), context()))
    assert [one.outcome for one in graded] == [FAILED, PASSED, BLOCKED]


def test_an_unavailable_type_is_in_error_for_its_reason() -> None:
    params = {"type": "similar", "reason": "no embedding model is configured"}
    ended = result(assertion("unavailable", params), "x")
    assert (ended.outcome, ended.message) == (ERROR, "no embedding model is configured")

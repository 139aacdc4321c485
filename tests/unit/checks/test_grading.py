from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from evalcore.checks.base import GradingThread, apply_negation
from evalcore.checks.grading import grade, waits
from evalcore.execution.item import run_inline
from evalcore.model.assertion import (
    Assertion,
    AssertionResult,
    Outcome,
    Verdict,
    blocked,
    broken,
    failed,
)
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from tests.unit.checks.checking import ERROR, FAILED, PASSED, assertion, context, result

REFUND = assertion("contains", {"value": "refund", "fold": False})


def graded(assertions: list[Assertion], evidence: Evidence) -> tuple[AssertionResult, ...]:
    assert not waits(assertions)
    return run_inline(grade(assertions, evidence, Case("1"), context()))


def test_results_stand_in_the_order_of_the_assertions() -> None:
    other = assertion("contains", {"value": "x", "fold": False})
    outcomes = [one.outcome for one in graded([REFUND, other, REFUND], Evidence("a refund"))]
    assert outcomes == [PASSED, FAILED, PASSED]


def test_a_result_carries_what_the_assertion_says_of_itself() -> None:
    one = Assertion(
        "icontains",
        "contains",
        "my name",
        {"value": "X", "fold": True},
        block="a",
        weight=2.5,
        required=0.8,
    )
    assert graded([one], Evidence(None, {"a": "x"})) == (
        AssertionResult("my name", "icontains", "a", PASSED, 1.0, 2.5, 0.8, None, "X", ""),
    )


def test_a_failure_shows_the_checked_text_cut() -> None:
    ended = result(assertion("contains", {"value": "y" * 900, "fold": False}), "x" * 900)
    assert ended.actual == "x" * 499 + "…"
    assert ended.expected == "y" * 499 + "…"


def test_grading_waits_if_one_check_has_to_be_awaited() -> None:
    assertions = [REFUND, assertion("python", {"callable": "a:b", "config": None})]
    assert waits(assertions)


@pytest.mark.parametrize("check", ["contains", "cost", "unavailable", "is-json"])
def test_a_block_that_was_never_reached_is_an_error(check: str) -> None:
    one = assertion(check, {"value": "", "fold": False, "threshold": 1}, block="draft", negate=True)
    (ended,) = graded([one], Evidence("text", {"other": "text"}))
    assert (ended.outcome, ended.actual) == (ERROR, None)
    assert ended.message == "block 'draft' was never reached"


def test_no_primary_output_is_an_error() -> None:
    (ended,) = graded([REFUND], Evidence(None, {"a": "refund"}))
    assert (ended.outcome, ended.message) == (ERROR, "there is no output")


BROKEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown check": ("contian", {}, "unknown check 'contian'. Did you mean 'contains'?"),
    "missing parameter": (
        "contains",
        {},
        "AttributeError: 'Contains' object has no attribute 'value'",
    ),
    "misshapen parameter": ("contains", {"value": 7, "fold": False}, "TypeError: "),
}


@pytest.mark.parametrize(("check", "params", "expected"), BROKEN.values(), ids=BROKEN)
def test_a_check_that_raises_is_an_error_of_that_assertion_only(
    check: str, params: dict[str, Any], expected: str
) -> None:
    first, second = graded([assertion(check, params, negate=True), REFUND], Evidence("refund"))
    assert (first.outcome, first.score) == (ERROR, 0.0)
    assert first.message.startswith(expected)
    assert second.outcome is PASSED


@pytest.mark.parametrize(
    ("verdict", "outcome", "score"),
    [
        (Verdict(Outcome.PASSED, 1.0), FAILED, 0.0),
        (failed("no"), PASSED, 1.0),
        (Verdict(Outcome.FAILED, 0.25, "low"), PASSED, 0.75),
        (Verdict(Outcome.PASSED, 0.75), FAILED, 0.25),
        (blocked("why"), Outcome.BLOCKED, 0.0),
        (broken("why"), ERROR, 0.0),
    ],
)
def test_only_a_measured_verdict_has_an_opposite(
    verdict: Verdict, outcome: Outcome, score: float
) -> None:
    opposite = apply_negation(REFUND._replace(negate=True), verdict)
    assert (opposite.outcome, opposite.score) == (outcome, score)
    assert apply_negation(REFUND, verdict) is verdict


def test_a_negated_failure_says_what_holds() -> None:
    ended = result(REFUND._replace(negate=True), "a refund")
    assert ended.message == "contains 'refund' holds, but must not"
    assert (ended.actual, ended.expected) == ("a refund", "not refund")


EXPECTED: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "text": ("equals", {"value": "a\nb", "trim": None}, "a\nb"),
    "list": ("contains-all", {"values": ["a", "é"], "fold": False}, '["a", "é"]'),
    "pattern": ("regex", {"pattern": "a+", "flags": "", "dialect": "python"}, "a+"),
    "JSON": ("equals-json", {"value": {"a": 1}}, '{"a": 1}'),
    "JSON null": ("equals-json", {"value": None}, "null"),
    "schema": ("is-json", {"schema": {"type": "array"}}, '{"type": "array"}'),
    "no schema": ("is-json", {"schema": None}, None),
    "maximum": ("cost", {"threshold": 0.5}, "≤ 0.5"),
    "bounds": ("word-count", {"min": 1, "max": 3}, "min 1, max 3"),
    "one bound": ("word-count", {"min": None, "max": 3}, "max 3"),
    "no bound": ("word-count", {"min": None, "max": None}, None),
}


@pytest.mark.parametrize(("check", "params", "expected"), EXPECTED.values(), ids=EXPECTED)
def test_expected_is_the_assertions_value_as_text(
    check: str, params: dict[str, Any], expected: str | None
) -> None:
    assert result(assertion(check, params), "text").expected == expected


def test_a_context_with_a_thread_gives_the_same_results() -> None:
    checks = [REFUND, assertion("bleu", {"reference": "a refund", "threshold": 0.0})]

    async def off_the_loop() -> tuple[AssertionResult, ...]:
        threaded = replace(context(), thread=GradingThread(["bleu"]))
        return await grade(checks, Evidence("a refund"), Case("1"), threaded)

    assert asyncio.run(off_the_loop()) == graded(checks, Evidence("a refund"))

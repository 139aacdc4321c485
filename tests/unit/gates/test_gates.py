"""What each gate decides, how it is written, and what a run decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evalcore.errors import ExitCode
from evalcore.gates.decide import decide_gates, decide_run, exit_code
from evalcore.gates.registry import parse_gate, parse_gate_option
from evalcore.model.run import Decision, GateOutcome, GateResult, GateSpec
from evalcore.model.suite import ErrorPolicy, Policy, Reducer, ScoreRule
from evalcore.model.summary import Counts, Extreme, RequiredFailure, Sample, Summary, VariantSummary
from evalcore.shapes import ParameterError

COUNTS = Counts(planned=10, completed=9, error=1, passed=8, failed=1)
SUMMARY = Summary(
    counts=COUNTS,
    cases=10,
    passed_cases=8,
    score=0.85,
    variants=(VariantSummary("a", 5, 5, 1.0), VariantSummary("b", 5, 3, 0.7)),
    p95_latency_ms=900.0,
    slowest=Extreme("b", "slow-case", 1000.0),
    total_cost_usd=0.5,
    total_tokens=100,
    required_failures=1,
    required_examples=(RequiredFailure("a", "c1", "contains-x", 0.0, 0.8),),
)
POLICY = Policy(ScoreRule.WEIGHTED, ())

DECISIONS: list[tuple[dict[str, Any], str]] = [
    ({"gate": "pass_rate", "threshold": 0.8}, "pass"),
    ({"gate": "pass_rate", "threshold": 0.81}, "fail"),
    ({"gate": "passRate", "threshold": 0.6, "perVariant": True}, "pass"),
    ({"gate": "pass_rate", "threshold": 0.8, "per_variant": True}, "fail"),
    ({"gate": "score_at_least", "threshold": 0.85}, "pass"),
    ({"gate": "threshold", "threshold": 0.9}, "fail"),
    ({"gate": "errors"}, "fail"),
    ({"gate": "error_rate_under", "threshold": 0.2}, "pass"),
    ({"gate": "error_rate_under", "threshold": 0.1}, "fail"),
    ({"gate": "required_assertions"}, "fail"),
    ({"gate": "latency_under", "max": 1000}, "fail"),
    ({"gate": "latency_under", "max": 1001}, "pass"),
    ({"gate": "p95_latency_under", "max": 901}, "pass"),
    ({"gate": "cost_under", "max": 0.5}, "fail"),
    ({"gate": "cost_under", "max": 0.51}, "pass"),
    ({"gate": "tokens_under", "max": 101}, "pass"),
]


@pytest.mark.parametrize(("written", "expected"), DECISIONS, ids=str)
def test_gate_decides(written: dict[str, Any], expected: str) -> None:
    policy = replace(POLICY, gates=(parse_gate(written),))
    (result,) = decide_gates(policy, SUMMARY)
    assert (result.outcome, result.passed) == (expected, expected == "pass")
    assert result.message


@pytest.mark.parametrize(
    ("written", "unmeasured", "expected"),
    [
        ({"max": 0.51}, 0, "pass"),
        ({"max": 0.51}, 1, "inconclusive"),
        ({"max": 0.5}, 1, "fail"),
        ({"max": 0.51, "include_judges": True}, 0, "inconclusive"),
    ],
    ids=["of a judge alone", "of a target", "too much already", "of a judge that counts"],
)
def test_costs_without_a_price_are_not_below_a_maximum(
    written: dict[str, Any], unmeasured: int, expected: str
) -> None:
    policy = replace(POLICY, gates=(parse_gate({"gate": "cost_under", **written}),))
    summary = replace(SUMMARY, unpriced=("new-model",), unmeasured_cost=unmeasured)
    (result,) = decide_gates(policy, summary)
    assert result.outcome == expected
    assert ("no price is known for new-model" in result.message) == (expected == "inconclusive")


def test_the_slowest_case_is_named() -> None:
    policy = replace(POLICY, gates=(parse_gate({"gate": "latency_under", "max": 10}),))
    assert "variant 'b', case 'slow-case'" in decide_gates(policy, SUMMARY)[0].message


def test_a_share_of_errors_can_be_excluded() -> None:
    policy = replace(
        POLICY, gates=(GateSpec("errors"),), errors=ErrorPolicy.EXCLUDE, max_error_share=0.1
    )
    assert decide_gates(policy, SUMMARY)[0].passed
    assert not decide_gates(replace(policy, max_error_share=0.05), SUMMARY)[0].passed


@pytest.mark.parametrize(
    ("threshold", "score", "outcome"),
    [(0.8, 0.85, "inconclusive"), (0.9, 0.85, "fail"), (0.8, None, "inconclusive")],
)
@pytest.mark.parametrize("reducer", [Reducer.PASS_AT_K, Reducer.PASS_ALL_K])
def test_a_score_without_the_cases_that_errors_shortened_passes_nothing(
    threshold: float, score: float | None, outcome: str, reducer: Reducer
) -> None:
    scored = 0 if score is None else 8
    summary = replace(SUMMARY, score=score, score_sample=Sample(scored, score or 0.0, scored))
    policy = replace(
        POLICY,
        gates=(GateSpec("score_at_least", {"threshold": threshold}), GateSpec("errors")),
        reducer=reducer,
        k=3,
        errors=ErrorPolicy.EXCLUDE,
        max_error_share=0.1,
    )
    result, errors = decide_gates(policy, summary)

    few = f"{10 - scored} cases with fewer than 3 iterations that count"
    assert result.outcome == outcome
    assert (few in result.message) == (outcome == "inconclusive")
    assert errors.message.endswith(f"; {few}, and no score")


@pytest.mark.parametrize(
    ("items", "assertions", "message"),
    [
        (0, 0, "nothing is in error"),
        (0, 1, "1 assertion is in error"),
        (1, 0, "1 of 10 items is in error"),
        (2, 3, "2 of 10 items and 3 assertions are in error"),
    ],
)
def test_the_gate_of_errors_names_only_what_is_in_error(
    items: int, assertions: int, message: str
) -> None:
    summary = replace(SUMMARY, counts=replace(COUNTS, error=items), asserted_errors=assertions)
    policy = replace(POLICY, gates=(GateSpec("errors"),))
    assert decide_gates(policy, summary)[0].message == message


WRONG = [
    ({"gate": "pass_rat"}, "Did you mean 'pass_rate'?"),
    ({"gate": "pass_rate"}, "'threshold' is required"),
    ({"gate": "pass_rate", "threshold": 2}, "a number from 0 to 1"),
    ({"gate": "pass_rate", "threshold": "0.9"}, "a number"),
    ({"gate": "pass_rate", "threshold": True}, "a number"),
    (
        {"gate": "pass_rate", "treshold": 1},
        "unknown key 'treshold'. Did you mean 'threshold'?",
    ),
    ({"gate": "cost_under", "max": float("nan")}, "a finite number"),
    ({"gate": "cost_under", "max": 10**400}, "a number"),
    ({"gate": "custom", "name": "half \ud800", "callable": "a:b"}, "valid Unicode text"),
    (["pass_rate"], "a gate is a name or a mapping"),
]


@pytest.mark.parametrize(("written", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_gate_says_what_would_work(written: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message.replace("?", r"\?").replace("(", r"\(")):
        parse_gate(written)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("errors", GateSpec("errors")),
        ("pass_rate=0.9", GateSpec("pass_rate", {"threshold": 0.9, "per_variant": False})),
        (
            "pass_rate:threshold=0.9,per_variant=true",
            GateSpec("pass_rate", {"threshold": 0.9, "per_variant": True}),
        ),
    ],
)
def test_gates_on_the_command_line(text: str, expected: GateSpec) -> None:
    assert parse_gate_option(text) == expected


def gate(name: str, outcome: str) -> GateResult:
    return GateResult(name, GateOutcome(outcome), "")


RUNS = [
    ([gate("pass_rate", "pass"), gate("errors", "pass")], "pass"),
    ([gate("pass_rate", "fail"), gate("errors", "fail")], "fail"),
    ([gate("pass_rate", "inconclusive"), gate("errors", "fail")], "error"),
    ([gate("pass_rate", "inconclusive"), gate("errors", "pass")], "inconclusive"),
    ([], "pass"),
]


@pytest.mark.parametrize(
    ("gates", "decision"), RUNS, ids=[row[1] + str(len(row[0])) for row in RUNS]
)
def test_decision_of_a_run(gates: list[GateResult], decision: str) -> None:
    assert decide_run(gates, SUMMARY) == decision


def test_counts_that_do_not_add_up_fail_the_run() -> None:
    broken = replace(SUMMARY, counts=replace(COUNTS, completed=8))
    assert decide_run([gate("errors", "pass")], broken) is Decision.FAIL


def test_the_worst_exit_code_of_several_runs() -> None:
    everything = [Decision.PASS, Decision.INCONCLUSIVE, Decision.ERROR, Decision.FAIL]
    assert exit_code(everything) == ExitCode.GATE_FAILED
    assert exit_code(everything[:3]) == ExitCode.ERRORS
    assert exit_code(everything[:2]) == ExitCode.INCONCLUSIVE
    assert exit_code(everything[:1]) == ExitCode.PASS

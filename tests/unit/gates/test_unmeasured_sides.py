"""Comparing gates decide over what is measured, and nothing else (decision 0037)."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.formats.single_gate import read_question
from evalcore.gates.decide import decide_gates
from evalcore.gates.registry import parse_gate
from evalcore.model.run import GateResult
from evalcore.model.suite import Policy, ScoreRule
from evalcore.model.summary import Summary
from evalcore.pipeline.gates import decide_question
from tests.support.comparison_results import no_functions

Rows = list[dict[str, Any]]

GATES: list[Any] = [
    "no_regressions",
    {"gate": "no_regressions", "first_run": "pass"},
    {"gate": "no_regressions", "allow_metric_regressions": False},
    "no_metric_regressions",
    "no_significant_regression",
]
UNMEASURED: dict[str, dict[str, Any]] = {
    "error": {"error": "boom", "overall": 0.0},
    "blocked": {"outcome": "blocked", "overall": 0.0},
    "skipped": {"status": "skipped"},
    "cancelled": {"status": "cancelled"},
}


_STATES = {"error": "in error", "blocked": "blocked"}


def good(count: int = 3, **more: Any) -> Rows:
    return [{"caseId": f"c{one}", "passed": True, "overall": 1.0, **more} for one in range(count)]


def unmeasured(state: str, count: int = 3) -> Rows:
    return [{"caseId": f"c{one}", **UNMEASURED[state]} for one in range(count)]


def summarise(errors: str = "fail", **variants: Rows) -> Summary:
    question = {
        "gate": "errors",
        "errors": errors,
        "baseline": "base",
        "variants": [{"variantId": name, "cases": cases} for name, cases in variants.items()],
    }
    return decide_question(read_question(question), no_functions)[1]


def decide(summary: Summary, gate: Any = "no_regressions") -> GateResult:
    (result,) = decide_gates(Policy(ScoreRule.BLOCKS, (parse_gate(gate),)), summary)
    return result


@pytest.mark.parametrize(
    ("side", "errors", "state"),
    [
        ("baseline", "zero", "error"),
        ("candidate", "exclude", "error"),
        ("both", "fail", "error"),
        ("candidate", "fail", "blocked"),
        ("baseline", "zero", "skipped"),
        ("candidate", "exclude", "cancelled"),
    ],
)
def test_a_side_without_a_measurement_is_inconclusive(side: str, errors: str, state: str) -> None:
    base = good() if side == "candidate" else unmeasured(state)
    cand = good() if side == "baseline" else unmeasured(state)
    summary = summarise(errors, base=base, cand=cand)
    for gate in GATES:
        found = decide(summary, gate)
        assert found.outcome == "inconclusive"
        assert "nothing is measured in" in found.message


@pytest.mark.parametrize(
    ("errors", "state"),
    [("fail", "error"), ("zero", "error"), ("exclude", "error"), ("zero", "blocked")],
)
def test_a_first_run_passes_only_if_it_measured_something(errors: str, state: str) -> None:
    gate = {"gate": "no_regressions", "first_run": "pass"}
    found = decide(summarise(errors, cand=unmeasured(state)), gate)
    assert found.outcome == "inconclusive"
    assert found.message.startswith(f"nothing is measured: of 3 items 3 {_STATES[state]}; ")
    partly = decide(summarise(errors, cand=[*good(1), *unmeasured(state)[1:]]), gate)
    assert partly.outcome == "pass"


def test_a_side_says_why_nothing_is_measured() -> None:
    cand = [
        *unmeasured("error", 2),
        {"caseId": "c2", "status": "skipped"},
        {"caseId": "c3", "outcome": "blocked"},
    ]
    found = decide(summarise(base=good(4), cand=cand))
    assert found.message == (
        "nothing is measured in variant 'cand': of 4 cases 2 in error, 1 blocked, 1 skipped"
    )


def test_a_baseline_without_a_measured_case_is_named_once_for_all_candidates() -> None:
    found = decide(summarise(base=unmeasured("error"), cand=good(), more=good()))
    assert found.message == "nothing is measured in baseline 'base': of 3 cases 3 in error"


def test_a_candidate_in_error_does_not_hide_that_another_is_worse() -> None:
    bad = [{**row, "passed": False, "overall": 0.0} for row in good()]
    found = decide(summarise(base=good(), dead=unmeasured("error"), cand=bad))
    assert found.outcome == "fail"
    found = decide(summarise(base=good(), dead=unmeasured("error"), cand=good()))
    assert found.outcome == "inconclusive"
    assert "variant 'dead'" in found.message


# What single cases of an otherwise measured comparison come to: baseline, candidate, outcome,
# (case, kind) of the regressions, missing from.
ERROR, SKIPPED, BLOCKED = UNMEASURED["error"], UNMEASURED["skipped"], UNMEASURED["blocked"]
PASSED = {"passed": True, "overall": 1.0}
FAILED = {"passed": False, "overall": 0.0}
MIXED: list[tuple[str, dict[str, Any], dict[str, Any], str, list[str], list[str]]] = [
    ("error in the candidate", PASSED, ERROR, "fail", ["missing"], ["candidate"]),
    ("error after a failure", FAILED, ERROR, "fail", ["missing"], ["candidate"]),
    ("error in the baseline", ERROR, PASSED, "pass", [], ["baseline"]),
    ("failure after an error", ERROR, FAILED, "pass", [], ["baseline"]),
    ("error in both", ERROR, ERROR, "pass", [], ["both"]),
    ("skipped in the candidate", PASSED, SKIPPED, "fail", ["missing"], ["candidate"]),
    ("skipped in both", SKIPPED, SKIPPED, "pass", [], ["both"]),
    ("blocked in the candidate", PASSED, BLOCKED, "fail", ["assertion", "score"], []),
    ("blocked in both", BLOCKED, BLOCKED, "pass", [], []),
]


@pytest.mark.parametrize("errors", ["zero", "exclude"])
@pytest.mark.parametrize(
    ("was", "now", "outcome", "kinds", "missing"), [row[1:] for row in MIXED],
    ids=[row[0] for row in MIXED],
)  # fmt: skip
def test_a_case_without_a_measurement_is_missing_there(
    was: dict[str, Any],
    now: dict[str, Any],
    outcome: str,
    kinds: list[str],
    missing: list[str],
    errors: str,
) -> None:
    base, cand = [*good(2), {"caseId": "x", **was}], [*good(2), {"caseId": "x", **now}]
    summary = summarise(errors, base=base, cand=cand)
    assert decide(summary).outcome == outcome
    assert summary.comparison is not None
    (one,) = summary.comparison.variants
    assert [str(entry.kind) for entry in one.regressions] == kinds
    assert [entry.missing_from for entry in one.missing] == missing
    assert one.improvements == ()


def test_a_pass_says_how_many_cases_it_is_not_about() -> None:
    base, cand = [*good(1), *unmeasured("error", 4)[1:]], good(4)
    found = decide(summarise("zero", base=base, cand=cand))
    assert found.message == (
        "no regression in 1 comparison with the baseline; 3 cases not measured on both sides"
    )


def test_sides_that_share_no_measured_case_are_no_comparison() -> None:
    base = [{"caseId": "a", **FAILED}, {"caseId": "b", **BLOCKED}]
    cand = [{"caseId": "a", **BLOCKED}, {"caseId": "b", **PASSED}]
    found = decide(summarise(base=base, cand=cand))
    assert found.outcome == "inconclusive"
    assert "no case of variant 'cand' is measured on both sides" in found.message


@pytest.mark.parametrize(
    ("errors", "outcome"), [("fail", "inconclusive"), ("zero", "inconclusive"), ("exclude", "pass")]
)
def test_scores_of_errors_are_no_measurement(errors: str, outcome: str) -> None:
    # Counted as 0 on both sides, the difference of c200 would be 0; on one, it would be −1.
    base, cand = good(201), [*good(200), {"caseId": "c200", **ERROR}]
    summary = summarise(errors, base=base, cand=cand)
    assert decide(summary, "no_significant_regression").outcome == outcome
    assert summary.comparison is not None
    paired = summary.comparison.variants[0].paired
    assert paired is not None
    assert (paired.cases, paired.mean) == (200, 0.0)


def test_a_blocked_baseline_does_not_hide_a_loss() -> None:
    base = [*good(9), *({"caseId": f"b{one}", **BLOCKED} for one in range(100))]
    cand = [
        *({**row, **FAILED} for row in good(9)),
        *({"caseId": f"b{one}", **FAILED} for one in range(100)),
    ]
    summary = summarise(base=base, cand=cand)
    assert decide(summary, "no_significant_regression").outcome == "fail"


def iterations(marks: str) -> Rows:
    """Return the iterations of a case: p passes, f fails, e is in error; and a stable case."""
    states = {"p": PASSED, "f": FAILED, "e": ERROR}
    stable = [{"caseId": "stable", **PASSED} for _ in marks]
    return [*({"caseId": "c", **states[mark]} for mark in marks), *stable]


# baseline, candidate, outcome of no_regressions with the policies fail and zero, and exclude
PARTLY: list[tuple[str, str, str, str]] = [
    ("ppppp", "ppppp", "pass", "pass"),
    ("ppppe", "ppppe", "pass", "pass"),
    ("ppppe", "ppppp", "pass", "pass"),
    ("ppppe", "fffff", "fail", "fail"),
    ("peeee", "fffff", "fail", "fail"),
    ("ppppp", "pppee", "inconclusive", "pass"),
    ("ppppe", "peeee", "inconclusive", "pass"),
    ("ppppp", "feeee", "fail", "fail"),
    ("ppppp", "eeeee", "fail", "fail"),
    ("eeeee", "fffff", "pass", "pass"),
    ("ffffe", "ppppp", "pass", "pass"),
]  # fmt: skip


@pytest.mark.parametrize(("was", "now", "counted", "excluded"), PARTLY)
@pytest.mark.parametrize("errors", ["zero", "exclude"])
def test_iterations_in_error_hide_no_loss(
    was: str, now: str, counted: str, excluded: str, errors: str
) -> None:
    summary = summarise(errors, base=iterations(was), cand=iterations(now))
    expected = excluded if errors == "exclude" else counted
    gate = {"gate": "no_regressions", "allow_metric_regressions": False}
    assert decide(summary, gate).outcome == expected
    if (was, now) != ("ppppe", "peeee"):  # there only the score tells that less is measured
        assert decide(summary).outcome == expected


def test_times_of_errors_are_not_compared() -> None:
    slow = {"caseId": "c", "error": "timeout", "durationMs": 30_000}
    base = [{"caseId": "c", **PASSED, "durationMs": 100}, slow]
    cand = [{"caseId": "c", **PASSED, "durationMs": 1_000}] * 2
    gate = {"gate": "no_regressions", "allow_metric_regressions": False}
    found = decide(summarise("zero", base=base, cand=cand), gate)
    assert "latency 100 → 1000" in found.message

from __future__ import annotations

from dataclasses import replace

import pytest

from evalcore.gates.comparing import NoRegressions
from evalcore.model.comparison import (
    CaseState,
    Comparison,
    Difference,
    DifferenceKind,
    VariantComparison,
)
from evalcore.model.quarantine import Quarantine, QuarantineEntry
from evalcore.model.suite import Policy, ScoreRule
from evalcore.report.changes import (
    IMPROVEMENT,
    MISSING,
    REGRESSION,
    CaseChange,
    changed_cases,
    changes,
    compared,
)
from evalcore.report.document import Report
from tests.support.report_runs import case, run_of


def listed(*compared: VariantComparison) -> tuple[CaseChange, ...]:
    return changes(run_of(case("a"), comparison=Comparison(compared)).report)


def test_regressions_come_before_what_is_missing_and_improvements_last() -> None:
    one = Difference("x", "a", DifferenceKind.SCORE, 0.0, 1.0)
    gone = Difference("x", "z", DifferenceKind.MISSING, missing_from="candidate")
    first = VariantComparison("x", "base", improvements=(one,), missing=(gone,))
    second = VariantComparison("y", "base", regressions=(one,))
    found = [(change.direction, change.variant) for change in listed(first, second)]
    assert found == [(REGRESSION, "y"), (MISSING, "x"), (IMPROVEMENT, "x")]


def test_what_differs_in_one_case_is_one_change() -> None:
    differences = (
        Difference("x", "a", DifferenceKind.ASSERTION, 1.0, 0.0),
        Difference("x", "b", DifferenceKind.ASSERTION, 1.0, 0.0),
        Difference("x", "a", DifferenceKind.SCORE, 1.0, 0.25),
    )
    first, second = listed(VariantComparison("x", "base", regressions=differences))
    assert first == CaseChange(
        REGRESSION, "x", "base", "a", "assertion, score", "passed → failed, score 1 → 0.25", 2
    )
    assert (second.case, second.differences) == ("b", 1)


@pytest.mark.parametrize(
    ("difference", "detail"),
    [
        (
            Difference("x", "a", DifferenceKind.LATENCY, 100.0, 150.0),
            "latency 100 ms → 150 ms (+50%)",
        ),
        (Difference("x", "a", DifferenceKind.COST, 0.0, 0.5), "cost 0 USD → 0.5 USD"),
        (Difference("x", "a", DifferenceKind.TOKENS, 200.0, None), "tokens 200 tokens → –"),
        (
            Difference("x", "a", DifferenceKind.MISSING, missing_from="baseline"),
            "not in the baseline",
        ),
        (Difference("x", "a", DifferenceKind.ASSERTION, 1.0, 0.0, p=0.1, settled=False),
         "passed → failed (p 0.1, may be chance)"),
        (Difference("x", "a", DifferenceKind.ASSERTION, 1.0, 0.5), "passed → 0.5"),
    ],
    ids=["latency", "from nothing", "not measured", "missing", "chance", "share of iterations"],
)  # fmt: skip
def test_a_change_has_both_values_in_their_unit(difference: Difference, detail: str) -> None:
    (change,) = listed(VariantComparison("x", "base", regressions=(difference,)))
    assert change.detail == detail


def test_the_baseline_may_be_of_another_run() -> None:
    one = Difference("x", "a", DifferenceKind.SCORE, 1.0, 0.0)
    (change,) = listed(
        VariantComparison("x", "x", run="20260101T000000Z-0a1b2c", regressions=(one,))
    )
    assert change.baseline == "x of 20260101T000000Z-0a1b2c"


def test_a_run_without_a_comparison_has_no_changes() -> None:
    assert changes(run_of(case("a")).report) == ()


LATENCY = Difference("x", "slow", DifferenceKind.LATENCY, 100.0, 150.0)
FAILED = Difference("x", "bad", DifferenceKind.ASSERTION, 1.0, 0.0)
BOTH = (Difference("x", "both", DifferenceKind.LATENCY, 100.0, 150.0), FAILED._replace(case="both"))


def gated(*gates: NoRegressions, quarantined: tuple[str, ...] = ()) -> Report:
    """Return the report of four regressions in three cases, as these gates decide it."""
    compared = VariantComparison(
        "x",
        "base",
        baseline_cases={CaseState.MEASURED: 3},
        candidate_cases={CaseState.MEASURED: 3},
        measured_in_both=3,
        regression_kinds={DifferenceKind.ASSERTION: 2, DifferenceKind.LATENCY: 2},
        regressed_cases=3,
        hard_regressed_cases=2,
        improved_cases=1,
        regressions=(LATENCY, *BOTH, FAILED),
    )
    run = run_of(case("a"), comparison=Comparison((compared,)))
    policy = Policy(ScoreRule.BLOCKS, ())
    results = tuple(gate.decide(run.report.summary, policy) for gate in gates)
    entries = tuple(QuarantineEntry(name, "2999-01-01", "ann", "") for name in quarantined)
    return replace(run.report, gates=results, quarantine=Quarantine(entries))


ALLOWING, STRICT = NoRegressions(allow_metric_regressions=True), NoRegressions()


@pytest.mark.parametrize(
    ("report", "counted", "allowed"),
    [
        (gated(), ["both", "bad", "slow"], []),
        (gated(STRICT), ["both", "bad", "slow"], []),
        (gated(ALLOWING), ["both", "bad"], ["slow"]),
        (gated(ALLOWING, STRICT), ["both", "bad", "slow"], []),
        (gated(STRICT, quarantined=("both",)), ["bad", "slow"], ["both"]),
        (gated(ALLOWING, quarantined=("both", "slow")), ["bad"], ["both", "slow"]),
    ],
    ids=["no gate", "all count", "measures allowed", "both gates", "quarantined", "both reasons"],
)
def test_regressions_that_the_gates_count_come_first(
    report: Report, counted: list[str], allowed: list[str]
) -> None:
    listed = changes(report)
    assert [change.case for change in listed if not change.allowed] == counted
    assert [change.case for change in listed] == counted + allowed
    (candidate,) = compared(report)
    cases = changed_cases(report, candidate)
    assert (cases.regressed, cases.allowed, cases.improved) == (len(counted), len(allowed), 1)

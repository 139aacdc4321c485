from __future__ import annotations

from dataclasses import replace

import pytest

from evalcore.model.suite import Quarantine, QuarantineEntry
from evalcore.model.summary import (
    CaseState,
    Comparison,
    Difference,
    DifferenceKind,
    Measure,
    VariantComparison,
)
from evalcore.report.comparison import (
    IMPROVEMENT,
    MISSING,
    REGRESSION,
    CaseChange,
    changed_cases,
    changes,
    compared,
    measure_changes,
)
from evalcore.report.document import Report, comparison_entries, report_head
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


LOWER = Difference("x", "lower", DifferenceKind.SCORE, 1.0, 0.5)
FAILED = Difference("x", "bad", DifferenceKind.ASSERTION, 1.0, 0.0)
BOTH = (LOWER._replace(case="both"), FAILED._replace(case="both"))
SLOW = Difference("x", "slow", DifferenceKind.LATENCY, 100.0, 150.0)


def compared_run(*quarantined: str) -> Report:
    """Return the report of four regressions in three cases; a further one is slower."""
    compared = VariantComparison(
        "x",
        "base",
        baseline_cases={CaseState.MEASURED: 3},
        candidate_cases={CaseState.MEASURED: 3},
        measured_in_both=3,
        regression_kinds={
            DifferenceKind.ASSERTION: 2,
            DifferenceKind.SCORE: 2,
            DifferenceKind.LATENCY: 1,
        },
        regressed_cases=3,
        hard_regressed_cases=2,
        improved_cases=1,
        measures=(
            Measure(DifferenceKind.LATENCY, 100.0, 110.0, 3),
            Measure(DifferenceKind.COST, 1.0, 1.0, 3),
            Measure(DifferenceKind.SCORE, 1.0, 0.5, 3),
        ),
        regressions=(LOWER, *BOTH, FAILED),
        worse_measures=(SLOW,),
    )
    run = run_of(case("a"), comparison=Comparison((compared,)))
    entries = tuple(QuarantineEntry(name, "2999-01-01", "ann", "") for name in quarantined)
    return replace(run.report, quarantine=Quarantine(entries))


def test_measures_are_no_regressions_and_stand_apart() -> None:
    report = compared_run()
    (measure,) = measure_changes(report)
    assert measure.text == "median latency 100 ms → 110 ms (+10%), 1 case worse, 0 better"
    assert "slow" not in [change.case for change in changes(report)]
    (entry,) = comparison_entries(report.summary.comparison)
    assert entry["measures"]["worse"] == [
        {"variant": "x", "case": "slow", "kind": "latency", "baseline": 100.0, "candidate": 150.0}
    ]
    assert entry["measures"]["run"]["latency"]["worse"] == 1
    assert entry["counts"]["regressions"] == {"assertion": 2, "score": 2}
    assert [each["case"] for each in entry["regressions"]] == ["lower", "both", "both", "bad"]
    assert report_head(report)["summary"]["regressions"] == 4


@pytest.mark.parametrize(
    ("quarantined", "counted", "allowed"),
    [
        ((), ["both", "bad", "lower"], []),
        (("both",), ["bad", "lower"], ["both"]),
        (("both", "lower"), ["bad"], ["both", "lower"]),
    ],
    ids=["none", "one", "two"],
)
def test_regressions_of_quarantined_cases_come_last(
    quarantined: tuple[str, ...], counted: list[str], allowed: list[str]
) -> None:
    report = compared_run(*quarantined)
    listed = changes(report)
    assert [change.case for change in listed if not change.allowed] == counted
    assert [change.case for change in listed] == counted + allowed
    (candidate,) = compared(report)
    cases = changed_cases(report, candidate)
    assert (cases.regressed, cases.allowed, cases.improved) == (len(counted), len(allowed), 1)

"""What the gates decide that compare with a baseline, and those over single cases."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from evalcore.gates.registry import parse_gate, parse_gate_option
from evalcore.shapes import ParameterError
from tests.support.comparison_results import decide, result

GOOD, BAD = result(), result(passed=False)
SLOW = {"durationMs": 1000.0}
METRICS = {"allow_metric_regressions": False}

# gate, base, cand (None: no such variant), outcome
NO_REGRESSIONS: list[tuple[str, dict[str, Any], Any, Any, str]] = [
    ("equal", {}, [GOOD], [GOOD], "pass"),
    ("worse", {}, [GOOD], [BAD], "fail"),
    ("better", {}, [BAD], [GOOD], "pass"),
    ("slower", {}, [GOOD | {"durationMs": 1}], [GOOD | SLOW], "pass"),
    ("slower counts", {"allowMetricRegressions": False}, [GOOD | {"durationMs": 1}],
     [GOOD | SLOW], "fail"),
    ("a lower score counts", {"allow_metric_regressions": False}, [result(overall=1.0)],
     [result(overall=0.1)], "fail"),
    ("missing is not", {"allowMetricRegressions": True}, [GOOD, result("d")], [GOOD], "fail"),
    ("every case is missing", {}, [GOOD], [], "inconclusive"),
    ("no baseline", {}, None, [GOOD], "inconclusive"),
    ("no baseline, may pass", {"firstRun": "pass"}, None, [GOOD], "pass"),
    ("nothing at all", {}, [], [], "inconclusive"),
    ("a flip that may be chance", {}, [GOOD] * 3, [GOOD, GOOD, BAD], "inconclusive"),
    ("a flip of every iteration", {}, [GOOD] * 3, [BAD] * 3, "fail"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("params", "base", "cand", "expected"),
    [row[1:] for row in NO_REGRESSIONS],
    ids=[row[0] for row in NO_REGRESSIONS],
)
def test_no_regressions(params: dict[str, Any], base: Any, cand: Any, expected: str) -> None:
    variants = {name: rows for name, rows in (("base", base), ("cand", cand)) if rows is not None}
    gate, _ = decide({"gate": "no_regressions", **params}, **variants)
    assert (gate.outcome, gate.passed) == (expected, expected == "pass")
    assert gate.message


@pytest.mark.parametrize(
    ("base", "cand", "missed"),
    [
        ([], [], ["c [base] was not run", "c [cand] was not run"]),
        ([GOOD], [], ["c [cand] was not run"]),
        ([], [BAD], ["c [cand]", "c [base] was not run"]),
    ],
    ids=["no results", "one variant without", "one without, one that failed"],
)
def test_a_required_case_is_missed_in_a_variant_without_results(
    base: Any, cand: Any, missed: list[str]
) -> None:
    required = {"gate": "required_cases", "caseIds": ["c"]}
    gate, _ = decide(required, base=base, cand=cand)
    assert (gate.outcome, gate.details["missed"]) == ("fail", missed)


def test_regressions_that_are_allowed_are_counted_by_kind() -> None:
    base, slow = [GOOD | {"durationMs": 1}], [GOOD | SLOW]
    gate, _ = decide(
        {"gate": "no_regressions", "allow_metric_regressions": True}, base=base, cand=slow
    )
    assert gate.details["allowed"] == {"latency": 1, "cost": 0, "tokens": 0, "score": 0}


def test_tiny_costs_have_no_exponent_in_messages() -> None:
    base, dear = [GOOD | {"costUsd": 5.3e-06}], [GOOD | {"costUsd": 1.06e-05}]
    gate, _ = decide({"gate": "no_regressions", **METRICS}, base=base, cand=dear)
    assert "cost 0.0000053 → 0.0000106" in gate.message


def runs(**metrics: list[float]) -> list[dict[str, Any]]:
    """Return results of as many cases as each metric has values."""
    rows = zip(*metrics.values(), strict=True)
    return [
        result(f"c{number}", **dict(zip(metrics, row, strict=True)))
        for number, row in enumerate(rows)
    ]


# parameters, base, cand, outcome, the metrics that are worse
NO_METRIC_REGRESSIONS: dict[str, tuple[dict[str, Any], Any, Any, str, list[str]]] = {
    "equal": ({}, runs(durationMs=[500.0]), runs(durationMs=[500.0]), "pass", []),
    "median latency": ({}, runs(durationMs=[100, 200, 9_000]), runs(durationMs=[100, 300, 300]),
                       "fail", ["latency"]),
    "one slow case": ({}, runs(durationMs=[100, 200, 300]), runs(durationMs=[100, 200, 9_000]),
                      "pass", []),
    "49 ms are noise": ({}, runs(durationMs=[13]), runs(durationMs=[62]), "pass", []),
    "50 ms are not": ({}, runs(durationMs=[13]), runs(durationMs=[63]), "fail", ["latency"]),
    "sum of costs": ({}, runs(costUsd=[1.0, 1.0]), runs(costUsd=[0.5, 1.8]), "fail", ["cost"]),
    "cost left out": ({"cost": None}, runs(costUsd=[1], tokens=[1]),
                      runs(costUsd=[2], tokens=[1]), "pass", []),
    "tokens": ({}, runs(tokens=[100, 100]), runs(tokens=[100, 150]), "fail", ["tokens"]),
    "mean score": ({}, runs(overall=[1.0, 1.0]), runs(overall=[1.0, 0.7]), "fail", ["score"]),
    "two metrics": ({}, runs(tokens=[1], costUsd=[1]), runs(tokens=[2], costUsd=[2]),
                    "fail", ["cost", "tokens"]),
    "a failure is no metric": ({}, [GOOD | {"tokens": 9}], [BAD | {"tokens": 9}], "pass", []),
    "cases of both only": ({}, runs(tokens=[100]), runs(tokens=[100, 900]), "pass", []),
    "not measured": ({"score": None}, [GOOD], [GOOD], "inconclusive", []),
    "in error": ({}, runs(durationMs=[5]), [GOOD | {"error": "boom"}], "inconclusive", []),
    "no baseline": ({}, None, runs(durationMs=[5]), "inconclusive", []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("params", "base", "cand", "expected", "worse"),
    NO_METRIC_REGRESSIONS.values(),
    ids=list(NO_METRIC_REGRESSIONS),
)
@pytest.mark.parametrize("name", ["no_metric_regressions", "noMetricRegressions"])
def test_no_metric_regressions(
    name: str, params: dict[str, Any], base: Any, cand: Any, expected: str, worse: list[str]
) -> None:
    variants = {name: rows for name, rows in (("base", base), ("cand", cand)) if rows is not None}
    gate, _ = decide({"gate": name, **params}, **variants)
    assert (gate.outcome, gate.name) == (expected, "no_metric_regressions"), gate.message
    assert [each["worse"] for each in gate.details.get("variants", [])] in ([], [worse])


def test_every_candidate_counts_in_metrics_of_the_run() -> None:
    base, dear = runs(costUsd=[1.0, 2.0]), runs(costUsd=[2.0, 2.0])
    gate, _ = decide("no_metric_regressions", base=base, dear=dear, same=base)
    assert gate.message == "variant 'dear' is worse: cost (USD) 3 → 4 (+33%)"
    assert gate.details["worse"] == 1


def test_a_chance_says_how_many_iterations_would_decide() -> None:
    gate, _ = decide("no_regressions", base=[GOOD] * 3, cand=[GOOD, BAD, BAD])
    assert "passes 3 of 3 → 1 of 3" in gate.message
    assert "4 more iterations would decide" in gate.message


def scores(values: list[float]) -> list[dict[str, Any]]:
    return [result(f"c{number}", overall=value) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ([0.8] * 200, [0.8] * 200, "pass"),
        # 0 of n differences bound their rate by 1 − .025^(1/n): below .02 from 183 cases on.
        ([0.8] * 183, [0.8] * 183, "pass"),
        ([0.8] * 182, [0.8] * 182, "inconclusive"),
        ([0.8] * 2, [0.8] * 2, "inconclusive"),
        ([1.0] * 10, [0.7, 0.5] * 5, "fail"),
        ([1.0] * 200, [1.0] * 198 + [0.0] * 2, "inconclusive"),
        ([0.8] * 10, [0.785, 0.795] * 5, "pass"),
        ([0.8] * 10, [0.9, 0.7] * 5, "inconclusive"),
        ([0.8], [0.8], "inconclusive"),
    ],
    ids=[
        "equal",
        "just enough equal cases",
        "one equal case too few",
        "two equal cases",
        "surely worse",
        "few are worse",
        "within the margin",
        "may be worse",
        "a single case",
    ],
)
def test_no_significant_regression(was: list[float], now: list[float], expected: str) -> None:
    gate, _ = decide("noSignificantRegression", base=scores(was), cand=scores(now))
    assert gate.outcome == expected


def test_an_undecided_difference_says_how_many_cases_would_decide() -> None:
    # Δ = 0, SE = .0333: (t + z₀.₈)·SE of the larger sample has to fall below the margin of .02.
    gate, _ = decide(
        "no_significant_regression", base=scores([0.8] * 10), cand=scores([0.9, 0.7] * 5)
    )
    assert gate.details["variants"][0]["more_cases"] == 210
    assert gate.remedy == "undecided: about 210 more cases would decide this gate"


def test_of_many_candidates_only_those_fail_that_holm_rejects() -> None:
    # Alone its p is .0207 (t = −2.2, 39 degrees of freedom): below .025, above .025 / 10.
    was = [0.5] * 40
    chance = [0.5 - 0.0349 + (0.1 if number % 2 else -0.1) for number in range(40)]
    alone, _ = decide(
        {"gate": "no_significant_regression", "margin": 0}, base=scores(was), cand=scores(chance)
    )
    others = {f"k{number}": scores([0.6, 0.4] * 20) for number in range(9)}
    variants: dict[str, Any] = {"base": scores(was), "cand": scores(chance), **others}
    together, _ = decide({"gate": "no_significant_regression", "margin": 0}, **variants)
    assert (alone.outcome, together.outcome) == ("fail", "inconclusive")
    assert "may be chance among 10 variants" in together.message


OTHER: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    ({"gate": "requiredCases", "caseIds": ["c"]}, [GOOD], "pass"),
    ({"gate": "requiredCases", "caseIds": ["c"]}, [BAD], "fail"),
    ({"gate": "requiredCases", "caseIds": ["c"]}, [GOOD, BAD], "fail"),
    ({"gate": "requiredCases", "caseIds": ["c", "gone"]}, [GOOD], "fail"),
    ({"gate": "passRate", "threshold": 0.5, "perVariant": True}, [BAD], "fail"),
    ({"gate": "passRate", "threshold": 0.0, "perVariant": True}, [], "fail"),
    ({"gate": "costUnder", "max": 0.3}, [GOOD | {"costUsd": 0.1}], "fail"),
    ({"gate": "costUnder", "max": 0.21, "perCase": True}, [GOOD | {"costUsd": 0.1}], "pass"),
    ({"gate": "costUnder", "max": 0.2, "perCase": True}, [GOOD | {"costUsd": 0.1}], "fail"),
    ({"gate": "latencyUnder", "max": 1e9}, [GOOD], "fail"),
    ({"gate": "tokensUnder", "max": 20}, [GOOD | {"tokens": 10}], "fail"),
]
BASE = [GOOD | {"costUsd": 0.2, "durationMs": 20, "tokens": 10, "overall": 0.5}]


@pytest.mark.parametrize(("gate", "cand", "expected"), OTHER, ids=str)
def test_gates_over_every_variant(
    gate: dict[str, Any], cand: list[dict[str, Any]], expected: str
) -> None:
    assert decide(gate, base=BASE, cand=cand)[0].outcome == expected


def raises(_: Any) -> bool:
    raise RuntimeError("no such column")


FUNCTIONS: dict[str, Any] = {
    "f:true": lambda report: True,
    "f:rate": lambda report: report["passed_cases"] == 2,
    "f:tuple": lambda report: (False, "too few"),
    "f:mapping": lambda report: {"outcome": "inconclusive", "message": "hm"},
    "f:nothing": lambda report: None,
    "f:raises": raises,
    "f:exits": lambda report: sys.exit(4),
}


@pytest.mark.parametrize(
    ("function", "outcome", "message"),
    [
        ("f:true", "pass", "my rule"),
        ("f:rate", "pass", "my rule"),
        ("f:tuple", "fail", "too few"),
        ("f:mapping", "inconclusive", "hm"),
        ("f:nothing", "fail", "returned NoneType"),
        ("f:raises", "fail", "RuntimeError: no such column"),
        ("f:exits", "fail", "SystemExit: 4"),
        ("f:unknown", "fail", "KeyError"),
    ],
)
def test_a_custom_gate(function: str, outcome: str, message: str) -> None:
    gate = {"gate": "custom", "name": "mine", "description": "my rule", "callable": function}
    found, _ = decide(gate, lambda gate: FUNCTIONS[str(gate.fn)], base=[GOOD], cand=[GOOD])
    assert (found.name, found.outcome) == ("mine", outcome)
    assert message in found.message


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"gate": "no_regressions", "firstRun": "fail"}, "Known: inconclusive, pass"),
        ({"gate": "no_metric_regressions", "cost": 0.9}, "'cost' must be at least 1"),
        ({"gate": "no_metric_regressions", "latency": True}, "'latency': expected a number"),
        ({"gate": "no_metric_regressions", "score": 1.1}, "'score' must be a number from 0 to 1"),
        (
            {
                "gate": "noMetricRegressions",
                **dict.fromkeys(("latency", "cost", "tokens", "score")),
            },
            "names no metric",
        ),
        ({"gate": "required_cases"}, "'case_ids' is required"),
        ({"gate": "required_cases", "caseIds": []}, "must not be empty"),
        ({"gate": "required_cases", "caseIds": "a"}, "expected a list"),
        ({"gate": "custom", "callable": "nowhere"}, "module:function"),
        ({"gate": "custom", "callable": "a:b", "name": "errors"}, "name of another gate"),
        ({"gate": "no_significant_regression", "alpha": 0}, "more than 0"),
        (
            {"gate": "pass_rate", "threshold": 1, "perVariant": True, "per_variant": True},
            "unknown key",
        ),
    ],
    ids=str,
)
def test_a_wrong_parameter_says_what_would_work(written: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_gate(written)


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("required_cases=a, b", {"case_ids": ("a", "b")}),
        ("required_cases:case_ids=a,b", {"case_ids": ("a", "b")}),
        ("custom=gates:check", {"callable": "gates:check", "name": None, "description": None}),
        ("noRegressions:firstRun=pass", {"allow_metric_regressions": True, "first_run": "pass"}),
        (
            "noMetricRegressions:latency=2,cost=none",
            {"latency": 2.0, "cost": None, "tokens": 1.2, "score": 0.1},
        ),
        (
            "cost_under:max=1,per_case=true",
            {"max": 1.0, "per_case": True, "include_judges": False},
        ),
        (
            "costUnder:max=1,includeJudges=true",
            {"max": 1.0, "per_case": False, "include_judges": True},
        ),
    ],
)
def test_parameters_on_the_command_line(text: str, params: dict[str, Any]) -> None:
    assert parse_gate_option(text).params == params


@pytest.mark.parametrize("text", ["pass_rate", "required_cases", "custom", "latencyUnder"])
def test_a_gate_without_its_value_shows_how_to_give_it(text: str) -> None:
    with pytest.raises(ParameterError, match=f"is required: {text}="):
        parse_gate_option(text)

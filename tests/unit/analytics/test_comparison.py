"""Which cases count as worse, better or missing against the baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from evalcore.analytics.compare import ComparisonPlan, match_variants
from evalcore.analytics.summary import Aggregates
from evalcore.model.run import GateSpec, Plan
from evalcore.model.suite import Policy, ScoreRule
from evalcore.model.summary import DifferenceKind, Tolerances, VariantComparison
from evalcore.sql.rows import write_rows
from evalcore.statistics.tests import paired_moments
from tests.support.comparison_results import compare, decide, kinds, result

# was, now: the fields of a passing case; the kinds of its regressions and improvements.
DIFFERENCES: list[tuple[str, dict[str, Any], dict[str, Any], list[str], list[str]]] = [
    ("same", {}, {}, [], []),
    ("passed → failed", {}, {"passed": False}, ["assertion"], []),
    ("failed → passed", {"passed": False}, {}, [], ["assertion"]),
    ("failed on both sides", {"passed": False}, {"passed": False}, [], []),
    ("latency +20 %", {"durationMs": 1000}, {"durationMs": 1200}, [], []),
    ("latency +20.1 %", {"durationMs": 1000}, {"durationMs": 1201}, ["latency"], []),
    ("latency falls", {"durationMs": 1201}, {"durationMs": 1000}, [], ["latency"]),
    ("latency not measured before", {}, {"durationMs": 9000}, [], []),
    ("cost +10 %", {"costUsd": 0.01}, {"costUsd": 0.011}, [], []),
    ("cost +10 % of thirty cents", {"costUsd": 0.3}, {"costUsd": 0.33}, [], []),
    ("cost +11 %", {"costUsd": 0.01}, {"costUsd": 0.0111}, ["cost"], []),
    ("cost falls", {"costUsd": 0.0111}, {"costUsd": 0.01}, [], ["cost"]),
    ("cost from nothing", {"costUsd": 0}, {"costUsd": 1}, [], []),
    ("cost falls to nothing", {"costUsd": 1}, {"costUsd": 0}, [], ["cost"]),
    ("tokens +20 %", {"tokens": 100}, {"tokens": 120}, [], []),
    ("tokens +21 %", {"tokens": 100}, {"tokens": 121}, ["tokens"], []),
    ("tokens by direction", {"inputTokens": 90, "outputTokens": 10},
     {"inputTokens": 90, "outputTokens": 31}, ["tokens"], []),
    ("score −0.1 with rounding", {"overall": 0.8}, {"overall": 0.7}, [], []),
    ("score −0.11", {"overall": 0.9}, {"overall": 0.79}, ["score"], []),
    ("score +0.1", {"overall": 0.7}, {"overall": 0.8}, [], []),
    ("score +0.11", {"overall": 0.79}, {"overall": 0.9}, [], ["score"]),
    ("error now", {}, {"error": "boom"}, ["missing"], []),
    ("skipped now", {}, {"status": "skipped"}, ["missing"], []),
    ("error now, cheaper", {"costUsd": 1, "passed": False, "overall": 0.0},
     {"costUsd": 0.1, "error": "boom"}, ["missing"], []),
    ("error before", {"error": "boom", "overall": 0.0}, {"overall": 1.0}, [], []),
    ("error on both sides", {"error": "boom"}, {"error": "boom"}, [], []),
    ("blocked now", {}, {"outcome": "blocked"}, ["assertion"], []),
    ("worse and better", {"durationMs": 100, "overall": 0.2},
     {"durationMs": 200, "overall": 0.8}, ["latency"], ["score"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def compared() -> VariantComparison:
    """One comparison with a case for each row of `DIFFERENCES`, named by it."""
    base = [result(name, **was) for name, was, *_ in DIFFERENCES]
    cand = [result(name, **now) for name, _, now, *_ in DIFFERENCES]
    return only(compare(base, cand).comparison)


@pytest.mark.parametrize(
    ("name", "worse", "better"),
    [(name, worse, better) for name, _, _, worse, better in DIFFERENCES],
    ids=[row[0] for row in DIFFERENCES],
)
def test_a_case_against_the_baseline(
    compared: VariantComparison, name: str, worse: list[str], better: list[str]
) -> None:
    worse_entries = (*compared.regressions, *compared.worse_measures)
    better_entries = (*compared.improvements, *compared.better_measures)
    regressions = tuple(entry for entry in worse_entries if entry.case == name)
    improvements = tuple(entry for entry in better_entries if entry.case == name)
    assert (kinds(regressions), kinds(improvements)) == (worse, better)


def test_every_regression_and_improvement_counts(compared: VariantComparison) -> None:
    kinds = compared.regression_kinds, compared.improvement_kinds
    assert tuple(sum(each.values()) for each in kinds) == (
        sum(len(row[3]) for row in DIFFERENCES),
        sum(len(row[4]) for row in DIFFERENCES),
    )
    measures = {"latency", "cost", "tokens"}
    assert (compared.regression_count, compared.improvement_count) == (
        sum(len(set(row[3]) - measures) for row in DIFFERENCES),
        sum(len(set(row[4]) - measures) for row in DIFFERENCES),
    )


def only(comparison: Any) -> VariantComparison:
    (one,) = comparison.variants
    assert isinstance(one, VariantComparison)
    return one


def test_a_case_missing_from_the_candidate_is_a_regression() -> None:
    one = only(compare([result("a"), result("b")], [result("a")]).comparison)
    assert [(entry.case, str(entry.kind)) for entry in one.regressions] == [("b", "missing")]
    assert [(entry.case, entry.missing_from) for entry in one.missing] == [("b", "candidate")]


def test_a_case_missing_from_the_baseline_is_listed_and_nothing_else() -> None:
    one = only(compare([result("a")], [result("a"), result("b")]).comparison)
    assert (one.regressions, one.improvements) == ((), ())
    assert [(entry.case, entry.missing_from) for entry in one.missing] == [("b", "baseline")]


def test_every_candidate_is_compared() -> None:
    gate, summary = decide(
        {"gate": "noRegressions"}, first=[result(passed=False)], base=[result()], last=[result()]
    )
    assert summary.comparison is not None
    assert [one.variant for one in summary.comparison.variants] == ["first", "last"]
    assert gate.details["per_variant"] == {"first": 1, "last": 0}


def test_lists_are_cut_and_counts_are_not() -> None:
    base = [result(f"c{number}", durationMs=1) for number in range(4_000)]
    cand = [result(f"c{number}", durationMs=2, passed=number < 3_999) for number in range(4_000)]
    one = only(compare(base, cand).comparison)
    slower = one.regression_kinds[DifferenceKind.LATENCY]
    assert (slower, len(one.worse_measures), one.complete) == (4_000, 3_000, False)
    assert [entry.case for entry in one.worse_measures[:3]] == ["c0", "c1", "c2"]
    assert [entry.case for entry in one.regressions] == ["c3999"]


def test_a_case_that_changed_in_several_ways_counts_once() -> None:
    slow: dict[str, Any] = {"durationMs": 10, "costUsd": 2, "overall": 0.2}
    base = [result(name, durationMs=1, costUsd=1, overall=0.9) for name in ("a", "b", "c")]
    cand = [
        result("a", **slow, passed=False),
        result("b", **slow),
        result("c", durationMs=0, costUsd=0, overall=1.0),
    ]
    one = only(compare(base, cand).comparison)
    assert (one.regression_count, one.improvement_count) == (3, 0)
    assert (one.regressed_cases, one.hard_regressed_cases, one.improved_cases) == (2, 1, 0)
    assert one.worse_cases == 2


def test_iterations_are_compared_by_their_means() -> None:
    was = [result(durationMs=ms, costUsd=0.1, overall=0.5) for ms in (90, 110)]
    now = [result(durationMs=ms, costUsd=0.1, overall=0.5) for ms in (100, 141)]
    one = only(compare(was, now).comparison)
    assert [(entry.was, entry.now) for entry in one.worse_measures] == [(100.0, 120.5)]


@pytest.mark.parametrize(
    ("was", "now", "settled"),
    [("ppp", "fff", True), ("ppp", "ppf", False), ("p" * 20, "p" * 9 + "f" * 11, True)],
    ids=["all fail", "one fails", "too many fail for chance"],
)
def test_a_flip_that_may_be_chance_is_not_settled(was: str, now: str, settled: bool) -> None:
    one = only(compare(passes(was), passes(now)).comparison)
    (entry,) = one.regressions
    assert entry.p is not None
    assert entry.settled is settled


def test_a_thousand_stable_cases_make_a_single_partial_flip_chance() -> None:
    stable = [row for number in range(1_000) for row in passes("pp", f"c{number}")]
    was, now = passes("p" * 20, "flaky"), passes("p" * 9 + "f" * 11, "flaky")
    one = only(compare([*stable, *was], [*stable, *now]).comparison)
    (entry,) = one.regressions
    assert entry.p is not None
    assert entry.p < 0.05
    assert not entry.settled


def passes(marks: str, case: str = "c") -> list[dict[str, Any]]:
    return [result(case, mark == "p") for mark in marks]


def test_the_paired_difference_is_of_the_shared_cases() -> None:
    was = [result("a", overall=0.5), result("b", overall=0.5), result("gone", overall=1.0)]
    now = [result("a", overall=0.7), result("b", overall=0.4), result("new", overall=0.0)]
    paired = only(compare(was, now).comparison).paired
    assert paired is not None
    assert paired.cases == 2
    assert paired.mean == pytest.approx(0.05)
    assert paired.sums.squares == pytest.approx(2 * 0.15**2)


def test_cases_that_passed_on_one_side_only_are_counted() -> None:
    was = [result("a"), result("b"), result("c", passed=False), result("d")]
    now = [result("a", passed=False), result("b", passed=False), result("c"), result("d")]
    one = only(compare(was, now).comparison)
    assert (one.compared, one.worse, one.better) == (4, 2, 1)


@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ({}, 1),
        ({"noise_ms": 50.0}, 1),
        ({"noise_ms": 50.1}, 0),
        ({"floor_ms": 69.0}, 1),
        ({"floor_ms": 70.0}, 0),
    ],
)
def test_what_a_clock_cannot_tell_apart_is_the_same(
    bounds: dict[str, float], found: int, tmp_path: Path
) -> None:
    rows = [
        {"item": item, "case_id": "c", "variant": variant, "status": "completed",
         "outcome": "passed", "score": 1.0, "latency_ms": ms, "assertions": []}
        for item, (variant, ms) in enumerate((("base", 20.0), ("cand", 70.0)))
    ]  # fmt: skip
    write_rows([orjson.dumps(row) + b"\n" for row in rows], tmp_path / "00000.parquet")
    against = ComparisonPlan(("base", "cand"), "base", tolerances=Tolerances(**bounds))
    plan, policy = Plan(2, 1, 2, 1, 1, 2, 1, 1), Policy(ScoreRule.BLOCKS, ())
    with Aggregates([tmp_path / "00000.parquet"], plan, policy, against) as tables:
        assert tables.summary().comparison is not None
        assert len(only(tables.summary().comparison).worse_measures) == found


def test_cases_of_one_cluster_are_not_independent(tmp_path: Path) -> None:
    clusters = [[1, 1, 0], [0, 0, 0, 0], [1, 1], [1, 0, 1], [1]]
    values = [(name, value) for name, cluster in enumerate(clusters) for value in cluster]
    rows: list[dict[str, Any]] = [
        {"item": 2 * number + side, "case_id": f"c{number}", "variant": variant,
         "status": "completed", "outcome": "passed", "score": score, "assertions": [],
         # The last cluster has one case: without the key it stands for itself.
         "metadata": {"document": f"d{name}"} if name < 4 else None}
        for number, (name, value) in enumerate(values)
        for side, (variant, score) in enumerate((("base", 0.0), ("cand", float(value))))
    ]  # fmt: skip
    write_rows([orjson.dumps(row) + b"\n" for row in rows], tmp_path / "00000.parquet")
    plan = Plan(len(rows), len(values), 2, 1, 1, len(rows), 1, 1)
    against = ComparisonPlan(("base", "cand"), "base", cluster="document")
    policy = Policy(ScoreRule.BLOCKS, ())
    with Aggregates([tmp_path / "00000.parquet"], plan, policy, against) as tables:
        moments = paired_moments(only(tables.summary().comparison).paired)
    assert moments is not None
    assert (moments.n, moments.clusters) == (13, 5)
    assert moments.standard_error == pytest.approx(0.210663, abs=1e-6)


@pytest.mark.parametrize(
    ("now", "was", "pairs", "alone"),
    [
        (["a", "b"], ["b", "a"], [("a", "a"), ("b", "b")], []),
        (["new"], ["old"], [("new", "old")], []),
        (["a", "new"], ["a"], [("a", "a")], ["new"]),
        (["x", "y"], ["a"], [], ["x", "y"]),
    ],
    ids=["same ids", "one each", "one is new", "nothing in common"],
)
def test_variants_of_two_runs_are_matched(
    now: list[str], was: list[str], pairs: list[tuple[str, str]], alone: list[str]
) -> None:
    assert match_variants(now, was) == (pairs, alone)


def test_a_case_that_is_for_one_variants_target_is_no_regression_of_the_others(
    tmp_path: Path,
) -> None:
    passed: dict[str, Any] = {
        "status": "completed",
        "outcome": "passed",
        "score": 1.0,
        "assertions": [],
    }
    skipped: dict[str, Any] = {"status": "skipped", "reason": "not for this target"}
    ends = [("both", passed), ("both", passed), ("base only", passed), ("base only", skipped)]
    rows = [
        {"item": item, "case_id": case, "variant": ("base", "cand")[item % 2], **end}
        for item, (case, end) in enumerate(ends)
    ]
    write_rows([orjson.dumps(row) + b"\n" for row in rows], tmp_path / "00000.parquet")
    plan, against = Plan(4, 2, 2, 1, 1, 4, 1, 2), ComparisonPlan(("base", "cand"), "base")
    policy = Policy(ScoreRule.BLOCKS, (GateSpec("required_cases", {"case_ids": ["base only"]}),))
    with Aggregates([tmp_path / "00000.parquet"], plan, policy, against) as tables:
        summary = tables.summary()
    one = only(summary.comparison)
    assert (one.compared, one.regression_count, one.missing_count) == (1, 0, 0)
    assert [variant.cases for variant in summary.variants] == [2, 1]
    assert (summary.pass_rate, summary.required_cases) == (1.0, ())


@pytest.mark.parametrize("variants", [1, 2])
def test_each_variant_has_its_median_latency_and_its_cost(tmp_path: Path, variants: int) -> None:
    # By case and variant: the second variant costs nothing that was measured.
    measures = [((100.0, 0.25), (10.0, None)), ((300.0, 0.5), (30.0, None)), ((800.0, None),) * 2]
    rows: list[dict[str, Any]] = [
        {"item": number * variants + variant, "case_id": f"c{number}", "variant": f"v{variant}",
         "status": "completed", "outcome": "passed", "score": 1.0, "assertions": [],
         "latency_ms": case[variant][0], "cost_usd": case[variant][1]}
        for number, case in enumerate(measures)
        for variant in range(variants)
    ]  # fmt: skip
    write_rows([orjson.dumps(row) + b"\n" for row in rows], tmp_path / "00000.parquet")
    plan = Plan(3 * variants, 3, variants, 1, 1, 3 * variants, 1, 3)
    with Aggregates([tmp_path / "00000.parquet"], plan, Policy(ScoreRule.BLOCKS, ())) as tables:
        found = [(v.p50_latency_ms, v.total_cost_usd) for v in tables.summary().variants]
    assert found == [(300.0, 0.75), (30.0, None)][:variants]

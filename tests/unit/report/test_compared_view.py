"""Two runs side by side, and their page."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.sample import UnitSums
from evalcore.model.summary import (
    Comparison,
    Difference,
    DifferenceKind,
    Paired,
    VariantComparison,
)
from evalcore.report.comparison import ComparedView
from evalcore.report.html import render_comparison
from evalcore.report.view import CaseFacts
from tests.support.report_runs import MadeRun, case, item, run_of

EARLIER = "20260101T000000Z-0a1b2c"
FAILED = GateResult("no_regressions", GateOutcome.FAIL, "1 regression: b")


def compared_view(baseline: MadeRun, candidate: MadeRun, *variants: str) -> ComparedView:
    """Return the view of two runs in which `b` is a regression of the first variant."""
    difference = Difference(variants[0], "b", DifferenceKind.ASSERTION, 1.0, 0.0)
    compared = [
        VariantComparison(
            name,
            name,
            EARLIER,
            compared=2,
            worse=1,
            paired=Paired(2, -0.5, UnitSums(2, 0.1, -0.2, 0.2, 0.005)),
        )
        for name in variants
    ]
    compared[0] = replace(compared[0], regressed_cases=1, regressions=(difference,))
    summary = replace(candidate.report.summary, comparison=Comparison(tuple(compared)))
    earlier = baseline.with_report(run=replace(baseline.report.run, id=EARLIER))
    return ComparedView(earlier, candidate, summary, FAILED)


def rows(view: ComparedView) -> list[tuple[str, str, bool]]:
    return [
        (each.record["id"], each.record["variant"], each.record["passed"]) for each in view.listed()
    ]


@pytest.mark.parametrize("order", ["abz", "zba", "azb"])
def test_each_case_stands_after_that_of_the_baseline_in_any_order(order: str) -> None:
    baseline = run_of(*(case(name) for name in order))
    candidate = run_of(case("a"), case("b", item("failed")), case("new"))
    assert rows(compared_view(baseline, candidate, "default")) == [
        ("a", f"default of {EARLIER}", True),
        ("a", "default", True),
        ("b", f"default of {EARLIER}", True),
        ("b", "default", False),
        ("new", "default", True),
        ("z", f"default of {EARLIER}", True),
    ]


def test_cases_of_the_same_id_in_different_groups_are_not_mixed_up() -> None:
    baseline = run_of(case("a", group="x"), case("a", item("failed"), group="y"))
    candidate = run_of(case("a", group="y"))
    assert rows(compared_view(baseline, candidate, "default")) == [
        ("a", f"default of {EARLIER}", False),
        ("a", "default", True),
        ("a", f"default of {EARLIER}", True),
    ]


def test_variants_that_are_not_compared_stand_alone() -> None:
    baseline = run_of(case("a", variant="x"), case("a", variant="old"))
    candidate = run_of(case("a", variant="x"), case("a", variant="fresh"))
    view = compared_view(baseline, candidate, "x")
    names = [variant.variant for variant in view.report.summary.variants]
    assert names == [f"x of {EARLIER}", "x", "fresh"]
    assert [variant for _, variant, _ in rows(view)] == names


def test_the_page_has_both_runs_the_difference_and_what_changed() -> None:
    facts = CaseFacts("Is it late?", question="Is it late?")
    baseline = run_of(case("a"), case("b", facts=facts), suite="other")
    candidate = run_of(case("a"), case("b", item("failed"), facts=facts), suite="demo")
    page = "".join(render_comparison(compared_view(baseline, candidate, "default")))
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    for part in (
        f"demo: fail against {EARLIER}",
        "the baseline is of another suite, other",
        "fail no_regressions 1 regression: b",
        "Score difference -0.5000",
        "Passed before only 1",
        f"default of {EARLIER} baseline 2 2 100.0%",
        f"regression b default default of {EARLIER} assertion passed → failed",
        "Is it late?",
    ):
        assert part in text


def test_the_figures_of_several_variants_are_a_table() -> None:
    names = ("x", "y")
    run = run_of(case("b", variant="x"), case("b", variant="y"))
    view = compared_view(run, run, *names)
    assert view.summary.comparison is not None
    first, second = view.summary.comparison.variants
    compared = Comparison((first, replace(second, paired=None)))
    view = replace(view, summary=replace(view.summary, comparison=compared))
    page = "".join(render_comparison(view))
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    head = "Variant Cases in both Score difference Passed before only Passed now only"
    assert f"{head} x 2 -0.5000" in text
    assert " y 2 – 1 0 p = 1.0000" in text

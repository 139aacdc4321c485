from __future__ import annotations

import re

from evalcore.model.summary import (
    Comparison,
    Difference,
    DifferenceKind,
    Measure,
    VariantComparison,
)
from evalcore.report.markdown import render
from tests.support.report_runs import MadeRun, assertion, case, item, run_of


def markdown(run: MadeRun) -> str:
    return "".join(render(run))


def test_the_report_has_counts_gates_and_failures() -> None:
    lines = markdown(run_of(case("good"), case("bad", item("failed")))).splitlines()
    assert lines[0] == "# demo: fail"
    assert "| 2 | 1 | 1 | 0 | 0 | 50.0% | 0.5000 |" in lines
    assert r"| pass\_rate | ❌ fail | pass rate 0.5 &lt; 1 |" in lines
    assert "| bad | default | failed | says-yes: does not contain 'yes' |" in lines


def test_a_failure_is_followed_by_what_was_expected_and_what_came() -> None:
    text = markdown(run_of(case("bad", item("failed"))))
    assert "expected:\n\n```text\nyes\n```\n\nactual:\n\n```text\nno, never\n```" in text


def test_variants_stand_side_by_side() -> None:
    run = run_of(case("a", variant="base"), case("a", item("failed"), variant="new"))
    lines = markdown(run).splitlines()
    assert "| base | 1 | 1 | 100.0% | 1.0000 |" in lines
    assert "| new | 1 | 0 | 0.0% | 0.0000 |" in lines


def test_what_changed_against_the_baseline_is_listed() -> None:
    compared = VariantComparison(
        "new",
        "base",
        compared=4,
        regression_kinds={DifferenceKind.SCORE: 1, DifferenceKind.LATENCY: 3},
        improvement_kinds={DifferenceKind.LATENCY: 1},
        regressed_cases=1,
        measures=(Measure(DifferenceKind.LATENCY, 100.0, 150.0, 4),),
        regressions=(Difference("new", "a", DifferenceKind.SCORE, 1.0, 0.5),),
    )
    comparison = Comparison((compared,), unavailable=("c has no baseline",))
    lines = markdown(run_of(case("a"), comparison=comparison)).splitlines()
    assert "| new | base | 4 | 1 | 0 | 0 |" in lines
    assert "| 🔻 regression | a | new | score | score 1 → 0.5 |" in lines
    assert "| new | median latency | 100 ms | 150 ms | +50% | 3 | 1 |" in lines
    assert "c has no baseline" in lines


def test_what_was_skipped_has_its_reasons() -> None:
    text = markdown(run_of(case("a"), skipped=(("budget: max_tokens", 3),)))
    assert "- 3 × budget: max\\_tokens" in text


def test_every_table_row_has_the_columns_of_its_head() -> None:
    evil = "a|b\n| c <script>`x`\r|"
    checks = [assertion(evil, "failed", message=evil, actual=evil)]
    text = markdown(run_of(case(evil, item("failed", assertions=checks), variant=evil), suite=evil))
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1
    assert "<script>" not in re.sub(r"```text.*?```", "", text, flags=re.DOTALL)

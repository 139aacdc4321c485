from __future__ import annotations

import html as html_module
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from evalcore.model.summary import Comparison, Difference, DifferenceKind, VariantComparison
from evalcore.report import html, junit, markdown
from evalcore.report.tables import cut, wrap
from evalcore.report.terminal import Style, render_terminal, render_verbose
from evalcore.report.view import CaseFacts
from tests.support.report_runs import MadeRun, assertion, case, item, run_of


def clean(text: str) -> str:
    return text.replace("\n", "\\n")


def lines(run: MadeRun, *, width: int = 160, most: int = 10) -> list[str]:
    return [line for _, line in render_terminal(run, Style(clean, width), most=most)]


def verbose(run: MadeRun) -> list[str]:
    return [line for _, line in render_verbose(run, Style(clean))]


SKIPPED = item(None) | {"status": "skipped", "error": None, "reason": "budget"}


def compared(*regressions: Difference, count: int = 0) -> Comparison:
    kinds = {DifferenceKind.ASSERTION: max(count, len(regressions))}
    return Comparison(
        (VariantComparison("new", "base", regression_kinds=kinds, regressions=regressions),)
    )


def test_a_failure_has_what_was_expected_and_what_came() -> None:
    assert lines(run_of(case("bad", item("failed"))))[:4] == [
        "✗ bad [default]: failed, score 0.0000",
        "    ✗ says-yes: does not contain 'yes'",
        "        expected  yes",
        "        actual    no, never",
    ]


WHY = "score 0.6 < 0.8 (the threshold of the test)"


@pytest.mark.parametrize(
    "render",
    [
        lambda run: "\n".join(lines(run)),
        lambda run: "\n".join(verbose(run)),
        lambda run: html_module.unescape("".join(markdown.render(run)).replace("\\", "")),
        lambda run: "".join(junit.render(run)).replace("&lt;", "<"),
        lambda run: "".join(html.render(run)).replace("\\u003c", "<"),
    ],
    ids=["terminal", "verbose", "markdown", "junit", "html"],
)
def test_every_form_says_why_an_item_failed_whose_assertions_passed(
    render: Callable[[MadeRun], str],
) -> None:
    short = item("failed", reason=WHY, score=0.6, assertions=[assertion(outcome="passed")])
    assert WHY in render(run_of(case("half", short)))


def test_equal_failures_are_shown_once_with_their_number() -> None:
    refused = item(None, error={"kind": "authentication", "message": "no key"})
    cases = [case(f"c{number}", refused) for number in range(6)]
    run = run_of(*cases, case("late", item(None)), case("flaky", item("failed"), item("failed")))
    shown = lines(run, most=3)
    assert shown[:6] == [
        "! 6 items (c0 [default], c1 [default], c2 [default], c3 [default], c4 [default] and 1 "
        "more): error",
        "    no key",
        "! late [default]: error",
        "    no answer within 5 s",
        "✗ 2 items (flaky [default] × 2): failed, score 0.0000",
        "    ✗ says-yes: does not contain 'yes'",
    ]
    assert not [line for line in shown if "more that did not pass" in line]


def test_the_advice_at_the_end_of_a_long_message_is_not_cut_off() -> None:
    message = f"no recording of this call; {'differs ' * 60}; record it with `evalcore record`"
    missing = item(None, error={"kind": "recording", "message": message})
    judged = assertion("tone", "error", message=message)
    run = run_of(case("a", missing), case("b", item("blocked", assertions=[judged])))
    for width in (60, 160):
        shown = lines(run, width=width)
        assert " ".join(" ".join(shown).split()).count("record it with `evalcore record`") == 2
        assert max(map(cell_len, shown)) <= width


def test_regressions_stand_before_failures() -> None:
    regression = Difference("new", "a", DifferenceKind.ASSERTION, 1.0, 0.0)
    run = run_of(
        case("a", variant="base"), case("a", item("failed"), variant="new"),
        comparison=compared(regression),
    )  # fmt: skip
    shown = lines(run)
    assert shown[:3] == [
        "▼ a [new]: regression against base: passed → failed",
        "",
        "✗ a [new]: failed, score 0.0000",
    ]


def test_regressions_that_are_not_shown_are_counted() -> None:
    regressions = [Difference("new", f"c{n}", DifferenceKind.ASSERTION, 1.0, 0.0) for n in range(4)]
    run = run_of(case("a", variant="base"), comparison=compared(*regressions, count=9))
    assert "… and 7 more regressions (report.json has the list)" in lines(run, most=2)


def test_variants_stand_side_by_side() -> None:
    run = run_of(
        case("a", variant="base"), case("a", item("failed"), variant="new"), comparison=compared()
    )
    shown = lines(run)
    place = shown.index("demo (test-file): 2 items: 1 passed, 1 failed") + 2
    assert shown[place : place + 3] == [
        "  variant          cases  passed  pass rate   score  regressed  improved  missing",
        "  base (baseline)      1       1     100.0%  1.0000          –         –        –",
        "  new                  1       0       0.0%  0.0000          0         0        0",
    ]


def measured_variants() -> MadeRun:
    made = run_of(case("a", variant="mini"), case("a", variant="large"))
    mini, large = made.report.summary.variants
    variants = (
        replace(mini, p50_latency_ms=412.4, total_cost_usd=0.0000078),
        replace(large, p50_latency_ms=1_530.0),
    )
    summary = replace(made.report.summary, variants=variants)
    return replace(made, report=replace(made.report, summary=summary))


def test_variants_have_their_latency_and_cost_where_one_was_measured() -> None:
    run = measured_variants()
    assert [line.split()[-5:] for line in lines(run) if line.startswith(("  mini", "  large"))] == [
        ["1.0000", "412", "ms", "0.0000078", "USD"],
        ["100.0%", "1.0000", "1,530", "ms", "–"],
    ]
    text = "".join(markdown.render(run))
    assert "| variant | cases | passed | pass rate | score | latency p50 | cost |\n" in text
    assert "| large | 1 | 1 | 100.0% | 1.0000 | 1,530 ms | – |\n" in text
    page = "".join(html.render(run))
    assert '<th scope="col" class="n">Latency p50</th><th scope="col" class="n">Cost</th>' in page
    assert '<td class="n">412 ms</td><td class="n">0.0000078 USD</td>' in page


def test_what_was_skipped_is_counted_by_its_reason_and_not_listed() -> None:
    shown = lines(run_of(case("a", SKIPPED), case("b", SKIPPED), skipped=(("budget", 2),)))
    assert shown[0] == "demo (test-file): 2 items: 0 passed, 2 skipped"
    assert "  2 skipped: budget" in shown


def test_a_narrow_terminal_gets_no_longer_lines() -> None:
    checks = [assertion("long", "failed", expected="漢字" * 90, actual="x" * 300)]
    shown = lines(run_of(case("bad", item("failed", assertions=checks))), width=60)
    assert {cell_len(line) for line in shown if "…" in line} <= {59, 60}
    assert max(map(cell_len, shown)) <= 60


def test_verbose_has_every_case_with_input_output_and_assertions() -> None:
    run = run_of(
        case("good", facts=CaseFacts("Say\nyes.")),
        case("bad", item("failed")),
    )
    shown = verbose(run)
    assert shown[: shown.index("")] == [
        "✓ good [default]: passed, score 1.0000",
        "    input     Say",
        "              yes.",
        "    output    yes",
        "    ✓ says-yes",
        "        expected  yes",
        "✗ bad [default]: failed, score 0.0000",
        "    input     Say yes.",
        "    output    no, never",
        "    ✗ says-yes: does not contain 'yes'",
        "        expected  yes",
        "        actual    no, never",
    ]


def test_verbose_has_each_iteration() -> None:
    shown = verbose(run_of(case("flaky", item(), item(None))))
    assert shown[0] == "✗ flaky [default]: did not pass, 2 iterations, score 0.5000"
    assert "! flaky [default] iteration 1: error" in shown
    assert "    no answer within 5 s" in shown


def test_counts_that_do_not_add_up_are_told() -> None:
    run = run_of(case("a"))
    run = run.with_report(summary=replace(run.report.summary, each_item_once=False))
    assert [line for line in lines(run) if "do not add up" in line]


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Mn"))), st.integers(1, 40))
def test_a_cut_line_fits(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) <= width
    assert cut(text, cell_len(text) or 1) == text


@given(st.text("ab 漢é", max_size=60), st.integers(2, 20))
def test_a_wrapped_text_keeps_its_characters_and_fits(text: str, width: int) -> None:
    wrapped = list(wrap(text, width))
    assert max(map(cell_len, wrapped)) <= width
    assert "".join(wrapped).replace(" ", "") == text.replace(" ", "")

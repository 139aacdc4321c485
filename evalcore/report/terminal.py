"""The report on a terminal: regressions and what failed first, then variants, gates, decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from evalcore.mistakes.wording import counted, outcomes_text
from evalcore.model.comparison import VariantComparison
from evalcore.model.gate import Decision, GateOutcome
from evalcore.model.latency_text import latency_text
from evalcore.report.changes import (
    IMPROVEMENT,
    MISSING,
    REGRESSION,
    CaseChange,
    changed_cases,
    changes,
    compared,
    measure_changes,
    no_comparison,
)
from evalcore.report.columns import table
from evalcore.report.costs import tokens_text, usd_text
from evalcore.report.document import Report
from evalcore.report.durations import duration_text
from evalcore.report.intervals import rate_text, score_text, variant_texts
from evalcore.report.notes import note_lines
from evalcore.report.quarantine import quarantine_lines
from evalcore.report.terminal_failures import EQUAL_FAILURES, equal_failures, render_failures
from evalcore.report.terminal_style import Line, Style
from evalcore.report.variant_measures import measure_columns
from evalcore.report.view import ReportView

_MARKS = {
    GateOutcome.PASS: ("green", "✓"),
    GateOutcome.FAIL: ("red", "✗"),
    GateOutcome.INCONCLUSIVE: ("yellow", "?"),
}
_COLOURS = {
    Decision.PASS: "green",
    Decision.FAIL: "red",
    Decision.INCONCLUSIVE: "yellow",
    Decision.ERROR: "magenta",
}
_CHANGES = {
    REGRESSION: ("red", "▼"),
    MISSING: ("yellow", "?"),
    IMPROVEMENT: ("green", "▲"),
}


SHOWN_FAILURES: Final = 10


def render_terminal(view: ReportView, style: Style, *, most: int) -> Iterator[Line]:
    """Yield the report; of regressions and of what failed `most` each."""
    report = view.report
    regressions = [change for change in changes(report) if change.direction == REGRESSION]
    yield from render_changes(regressions, style, most)
    listed = sum(change.differences for change in regressions[:most])
    unlisted = sum(candidate.regression_count for candidate in compared(report)) - listed
    if unlisted > 0:
        yield None, f"… and {counted(unlisted, 'more regression')} (report.json has the list)"
    failures = view.failures(most * EQUAL_FAILURES)
    groups = equal_failures(failures, report.quarantine)[:most]
    if regressions and groups:
        yield None, ""
    for group in groups:
        yield from render_failures(group, style)
    counts = report.summary.counts
    listed = sum(len(group.failures) for group in groups)
    unlisted = counts.planned - counts.passed - counts.skipped - listed
    if unlisted > 0:
        yield None, f"… and {unlisted} more that did not pass (report.json lists them)"
    if groups or regressions:
        yield None, ""
    yield from render_summary(view, style)


def render_summary(view: ReportView, style: Style) -> Iterator[Line]:
    """Yield counts, measures, variants, gates and the decision."""
    report = view.report
    heading = f"{report.suite} ({report.format}): {_counted(report)}"
    yield from style.lines(heading, hanging=2)
    yield None, "  " + ", ".join(_measured(report))
    if report.run.budget is not None:
        yield None, f"  {budget_line(report.run.budget)}"
    if report.run.evidence == "none":
        yield None, "  no outputs are kept (evidence: none)"
    if report.run.reused:
        yield style.line(f"  {_reused(report)}")
    if report.iterations is not None:
        yield style.line(f"  {iterations_line(report.iterations)}")
    for reason, number in view.reasons():
        yield style.line(f"  {number} skipped: {reason}", "yellow")
    yield from _variants(report, style)
    for text in (*note_lines(report), *quarantine_lines(report.quarantine)):
        yield from style.lines(text, "yellow", indent=2)
    for gate in report.gates:
        colour, mark = _MARKS[gate.outcome]
        yield colour, style.clean(f"  {mark} {gate.name}: {gate.message}")
        if gate.remedy is not None:
            yield from style.lines(gate.remedy, indent=6)
    if not report.summary.adds_up:
        yield "red", "  ✗ the counts do not add up: planned items are missing from the results"
    duration = duration_text(report.run.duration_s)
    yield _COLOURS[report.decision], f"{report.decision.upper()} in {duration}"


def render_changes(listed: Sequence[CaseChange], style: Style, most: int) -> Iterator[Line]:
    """Yield what changed against the baseline, a line each, `most` of them."""
    for change in listed[:most]:
        colour, mark = _CHANGES[change.direction]
        if change.allowed:
            colour = "yellow"
        where = f"{change.case} [{change.variant}]"
        what = f"{change.title} against {change.baseline}: {change.detail}"
        yield from style.lines(f"{mark} {where}: {what}", colour, hanging=2)


def _measured(report: Report) -> Iterator[str]:
    summary = report.summary
    yield f"pass rate {rate_text(summary.pass_rate, summary.pass_sample)}"
    if summary.score is not None:
        yield f"score {score_text(summary.score, summary.score_sample)}"
    if summary.p50_latency_ms is not None:
        yield f"latency p50 {latency_text(summary.p50_latency_ms)} ms"
        yield f"p95 {latency_text(summary.p95_latency_ms)} ms"
    if summary.total_cost_usd is not None:
        yield f"cost {usd_text(summary.total_cost_usd)} USD"
    if summary.judge_cost_usd is not None:
        yield f"judges {usd_text(summary.judge_cost_usd)} USD"
    if tokens := tokens_text(summary):
        yield f"tokens {tokens}"
    if report.run.reexecuted:
        yield f"{counted(report.run.reexecuted, 'item')} executed again"


def iterations_line(iterations: Mapping[str, Any]) -> str:
    """Return how many iterations a run has added by itself, and why no more."""
    groups = ", ".join(f"{entry['cases']} × {entry['iterations']}" for entry in iterations["cases"])
    line = f"iterations: {iterations['rounds']} of at most {iterations['max']} (auto): "
    return f"{line}{iterations['stopped']}; cases × iterations: {groups}"


def budget_line(budget: Mapping[str, Any]) -> str:
    """Return what a run has spent of its budget, over all its attempts."""
    parts = []
    for what, share in (
        ("billed", budget["billed"]),
        ("reserved, not settled", budget["unsettled"]),
    ):
        amounts = []
        if budget["max_cost_usd"] is not None:
            spent, bound = usd_text(share["cost_usd"]), usd_text(budget["max_cost_usd"])
            amounts.append(f"{spent} of {bound} USD")
        if budget["max_tokens"] is not None:
            amounts.append(f"{share['tokens']} of {budget['max_tokens']} tokens")
        if what == "billed" or any(share.values()):
            parts.append(f"{', '.join(amounts)} {what}")
    return f"budget: {'; '.join(parts)}"


def _reused(report: Report) -> str:
    """Return how many items were not executed, and which runs their evidence is of."""
    sources = [(str(entry["run"]), int(entry["items"])) for entry in report.run.reused]
    total = sum(items for _, items in sources)
    noun = "item" if total == 1 else "items"
    if len(sources) == 1:
        return f"{total} {noun} reused from run {sources[0][0]}"
    return f"{total} {noun} reused: " + ", ".join(f"{items} from {run}" for run, items in sources)


def _variants(report: Report, style: Style) -> Iterator[Line]:
    """Yield the variants side by side where there are several."""
    variants = report.summary.variants
    comparisons = {candidate.variant: candidate for candidate in compared(report)}
    if len(variants) < 2 and not comparisons:
        return
    baselines = {candidate.baseline for candidate in comparisons.values() if candidate.run is None}
    rows = [["variant", "cases", "passed", "pass rate", "score"]]
    for variant in variants:
        name = style.clean(variant.variant)
        if variant.variant in baselines:
            name += " (baseline)"
        rate, score = variant_texts(variant)
        rows.append([name, str(variant.cases), str(variant.passed), rate, score])
    for head, cells in measure_columns(variants):
        for row, cell in zip(rows, (head, *cells), strict=True):
            row.append(cell)
    if comparisons:
        rows[0] += ["regressed", "improved", "missing"]
        for number, variant in enumerate(variants, 1):
            rows[number] += _compared_cells(report, comparisons.get(variant.variant))
    for line in table(rows, style.width - 2):
        yield None, f"  {line}"
    yield from _comparison_notes(report, style)


def _comparison_notes(report: Report, style: Style) -> Iterator[Line]:
    """Yield the measures that differ from the baseline, and why variants were not compared."""
    for each in measure_changes(report):
        yield None, f"  {style.clean(each.variant)}: {each.text}"
    for why in no_comparison(report):
        yield style.line(f"  not compared: {why}", "yellow")


def _compared_cells(report: Report, candidate: VariantComparison | None) -> list[str]:
    if candidate is None:
        return ["–", "–", "–"]
    cases = changed_cases(report, candidate)
    return [cases.regressed_text, str(cases.improved), str(cases.missing)]


def _counted(report: Report) -> str:
    counts = report.summary.counts
    names = ("passed", "failed", "blocked", "error", "skipped", "cancelled")
    outcomes = outcomes_text({name: getattr(counts, name) for name in names})
    return f"{counted(counts.planned, 'item')}: {outcomes}"

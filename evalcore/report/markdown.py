"""The report as Markdown: for pull requests, job summaries and Prefect artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalcore.mistakes.foreign_text import shorten
from evalcore.mistakes.wording import counted
from evalcore.model.failure import FailedAssertion, Failure, cut_mark
from evalcore.model.gate import GateOutcome
from evalcore.model.latency_text import latency_text
from evalcore.model.run import NOT_FOR_TARGET
from evalcore.report.comparison import (
    MISSING,
    REGRESSION,
    CaseChange,
    MeasureChange,
    baseline_name,
    changed_cases,
    changes,
    compared,
    measure_changes,
    no_comparison,
)
from evalcore.report.document import Report
from evalcore.report.escape import escape_markdown as escape
from evalcore.report.escape import escape_markdown_html, fenced
from evalcore.report.figures import (
    duration_text,
    latency_ends_text,
    measure_columns,
    note_lines,
    quarantine_lines,
    quarantine_mark,
    rate_text,
    score_text,
    tokens_text,
    total_text,
    usd_text,
    variant_texts,
)
from evalcore.report.view import ReportView

_MARKS = {GateOutcome.PASS: "✅", GateOutcome.FAIL: "❌", GateOutcome.INCONCLUSIVE: "❔"}
_LISTED_FAILURES = 200
_DETAILED_FAILURES = 20
_LISTED_CHANGES = 100
_REASONS = 5
_MAX_CODE = 1_500


def render(view: ReportView) -> Iterator[str]:
    """Yield the Markdown of a run."""
    yield render_markdown(view.report, view.failures(_LISTED_FAILURES), view.reasons())


def render_markdown(
    report: Report, failures: Sequence[Failure], reasons: Sequence[tuple[str, int]] = ()
) -> str:
    """Return the report; every foreign text is escaped for Markdown.

    `reasons` are those of skipped items, with how many there are.
    """
    return "\n".join(_lines(report, failures, reasons)) + "\n"


def _lines(
    report: Report, failures: Sequence[Failure], reasons: Sequence[tuple[str, int]]
) -> Iterator[str]:
    yield f"# {escape(report.suite)}: {report.decision}"
    yield ""
    yield from _counts(report)
    yield ""
    yield "| gate | outcome | why |"
    yield "|---|---|---|"
    for gate in report.gates:
        mark = _MARKS[gate.outcome]
        why = escape(gate.message if gate.remedy is None else f"{gate.message}. {gate.remedy}")
        yield f"| {escape(gate.name)} | {mark} {gate.outcome} | {why} |"
    if not report.summary.adds_up:
        yield ""
        yield "**The counts do not add up: planned items are missing from the results.**"
    for text in note_lines(report):
        yield ""
        yield escape(text)
    if report.quarantine:
        yield ""
        yield "## Quarantine"
        yield ""
        for text in quarantine_lines(report.quarantine):
            yield f"- {escape(text.removeprefix('quarantine: '))}"
    yield from _variants(report)
    yield from _changes(report)
    yield from _failures(report, failures, dict(reasons).get(NOT_FOR_TARGET, 0))
    if reasons:
        yield ""
        yield "## What was skipped"
        yield ""
        for reason, number in reasons:
            yield f"- {number} × {escape(reason)}"
    yield ""
    again = report.run.reexecuted
    yield (
        f"Run `{report.run.id}` ({escape(report.format)}, {escape(report.run.mode)}), "
        f"{duration_text(report.run.duration_s)}, started {escape(report.run.started_at)}"
        + (f", {counted(again, 'item')} executed again." if again else ".")
    )


def _counts(report: Report) -> Iterator[str]:
    counts, summary = report.summary.counts, report.summary
    columns = {
        "planned": str(counts.planned),
        "passed": str(counts.passed),
        "failed": str(counts.failed),
        "blocked": str(counts.blocked),
        "in error": str(counts.error),
    }
    for name in ("skipped", "cancelled"):
        if number := getattr(counts, name):
            columns[name] = str(number)
    columns["pass rate"] = rate_text(summary.pass_rate, summary.pass_sample)
    columns["score"] = score_text(summary.score, summary.score_sample)
    if summary.p50_latency_ms is not None:
        columns["latency p50"] = f"{latency_text(summary.p50_latency_ms)} ms"
        ends = latency_ends_text(summary.p95_latency_ends_ms)
        columns["p95"] = f"{latency_text(summary.p95_latency_ms)} ms" + (ends and f" ({ends})")
    if (cost := summary.total_cost_usd) is not None:
        ends = total_text(cost, summary.cost_sample)
        columns["cost"] = f"{usd_text(cost)} USD" + (ends and f" ({ends})")
    if summary.judge_cost_usd is not None:
        columns["judges"] = f"{usd_text(summary.judge_cost_usd)} USD"
    if tokens := tokens_text(summary):
        columns["tokens"] = tokens
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---:|' * len(columns)}"
    yield f"| {' | '.join(columns.values())} |"


def _variants(report: Report) -> Iterator[str]:
    variants = report.summary.variants
    if len(variants) < 2:
        return
    yield ""
    yield "## Variants"
    yield ""
    measures = measure_columns(variants)
    heads = ("variant", "cases", "passed", "pass rate", "score", *(head for head, _ in measures))
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    for number, variant in enumerate(variants):
        rate, score = variant_texts(variant)
        cells = [escape(variant.variant), variant.cases, variant.passed, rate, score]
        cells += [column[number] for _, column in measures]
        yield f"| {' | '.join(map(str, cells))} |"


def _changes(report: Report) -> Iterator[str]:
    variants, reasons = compared(report), no_comparison(report)
    if not variants and not reasons:
        return
    yield ""
    yield "## What changed against the baseline"
    yield ""
    if variants:
        yield "| variant | baseline | cases in both | regressed | improved | missing |"
        yield "|---|---|---:|---:|---:|---:|"
    for candidate in variants:
        names = escape(candidate.variant), escape(baseline_name(candidate))
        cases = changed_cases(report, candidate)
        counts = cases.regressed_text, cases.improved, cases.missing
        yield f"| {' | '.join(map(str, (*names, candidate.compared, *counts)))} |"
    for why in reasons:
        yield f"\n{escape(why)}"
    yield from _change_rows(changes(report))
    yield from _measure_rows(measure_changes(report))


def _measure_rows(listed: Sequence[MeasureChange]) -> Iterator[str]:
    if not listed:
        return
    yield ""
    yield "| variant | measure | baseline | now | | cases worse | better |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for each in listed:
        cells = escape(each.variant), each.measure, each.was, each.now, each.change
        yield f"| {' | '.join(map(str, (*cells, each.worse, each.better)))} |"


def _change_rows(listed: Sequence[CaseChange]) -> Iterator[str]:
    if not listed:
        return
    yield ""
    yield "| | case | variant | kind | what |"
    yield "|---|---|---|---|---|"
    for change in listed[:_LISTED_CHANGES]:
        mark = {REGRESSION: "🔻", MISSING: "❔"}.get(change.direction, "🔺")
        yield (
            f"| {mark} {change.title} | {escape(change.case)} | {escape(change.variant)} "
            f"| {escape(change.kind)} | {escape(change.detail)} |"
        )
    if len(listed) > _LISTED_CHANGES:
        yield ""
        yield f"{counted(len(listed) - _LISTED_CHANGES, 'more change')}; see `report.json`."


def _failures(report: Report, failures: Sequence[Failure], unplanned: int) -> Iterator[str]:
    if failures:
        yield ""
        yield "## What did not pass"
        yield ""
        yield "| case | variant | outcome | why |"
        yield "|---|---|---|---|"
        for failure in failures:
            yield _failure_row(failure, quarantine_mark(report.quarantine, failure.case))
    counts = report.summary.counts
    unlisted = counts.planned - counts.passed - unplanned - len(failures)
    if unlisted > 0:
        yield ""
        yield f"{unlisted} more did not pass; `report.json` lists them."
    for failure in failures[:_DETAILED_FAILURES]:
        yield from _details(failure)


def _failure_row(failure: Failure, mark: str) -> str:
    if failure.status == "completed":
        reasons = [
            f"{assertion.name}: {assertion.message or assertion.outcome}"
            for assertion in failure.assertions
        ] or ([failure.reason] if failure.reason else [])
    else:
        reasons = [failure.error_message or failure.reason or failure.status]
    why = "<br>".join(escape(reason) for reason in reasons[:_REASONS])
    if len(reasons) > _REASONS:
        why += f"<br>and {len(reasons) - _REASONS} more"
    cut = cut_mark(failure.finish_reason)
    outcome = f"{failure.outcome or failure.status}{cut}{mark}"
    return f"| {escape(failure.case)} | {escape(failure.variant)} | {escape(outcome)} | {why} |"


def _details(failure: Failure) -> Iterator[str]:
    """Yield what was expected and what came, folded; nothing where there is neither."""
    assertions = [
        each for each in failure.assertions if each.expected is not None or each.actual is not None
    ]
    if not assertions:
        return
    title = f"{failure.case} [{failure.variant}]"
    if failure.iteration:
        title += f" iteration {failure.iteration}"
    yield ""
    yield f"<details><summary>{escape_markdown_html(title)}</summary>"
    for assertion in assertions:
        yield from _compared(assertion)
    yield ""
    yield "</details>"


def _compared(assertion: FailedAssertion) -> Iterator[str]:
    block = f"{escape(assertion.block)}: " if assertion.block else ""
    yield ""
    kind, outcome = escape(assertion.type), escape(assertion.outcome)
    yield f"**{block}{escape(assertion.name)}** ({kind}, {outcome})"
    for name, text in (("expected", assertion.expected), ("actual", assertion.actual)):
        if text is not None:
            yield ""
            yield f"{name}:"
            yield ""
            yield fenced(shorten(text, _MAX_CODE))

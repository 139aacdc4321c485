"""The report as Markdown: for pull requests, job summaries and Prefect artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from evalcore.model.run import NOT_FOR_TARGET, GateOutcome
from evalcore.model.summary import Failure, cut_mark
from evalcore.report.comparison import (
    MISSING,
    REGRESSION,
    CaseChange,
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
    measures,
    note_lines,
    quarantine_lines,
    quarantine_mark,
    variant_cells,
)
from evalcore.report.view import ReportView, compared_values, item_reasons, missed
from evalcore.wording import counted, shorten

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
    yield from _counts(report)
    rows = [
        (
            escape(gate.name),
            f"{_MARKS[gate.outcome]} {gate.outcome}",
            escape(gate.message if gate.remedy is None else f"{gate.message}. {gate.remedy}"),
        )
        for gate in report.gates
    ]
    yield from _table("| gate | outcome | why |", "|---|---|---|", rows)
    if not report.summary.adds_up:
        yield "\n**The counts do not add up: planned items are missing from the results.**"
    for text in note_lines(report):
        yield f"\n{escape(text)}"
    if report.quarantine:
        yield "\n## Quarantine\n"
        for text in quarantine_lines(report.quarantine):
            yield f"- {escape(text.removeprefix('quarantine: '))}"
    yield from _variants(report)
    yield from _changes(report)
    yield from _failures(report, failures, dict(reasons).get(NOT_FOR_TARGET, 0))
    if reasons:
        yield "\n## What was skipped\n"
        for reason, number in reasons:
            yield f"- {number} × {escape(reason)}"
    again = report.run.reexecuted
    yield (
        f"\nRun `{report.run.id}` ({escape(report.format)}, {escape(report.run.mode)}), "
        f"{duration_text(report.run.duration_s)}, started {escape(report.run.started_at)}"
        + (f", {counted(again, 'item')} executed again." if again else ".")
    )


def _table(head: str, line: str, rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield a table whose cells are escaped."""
    yield f"\n{head}\n{line}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def _counts(report: Report) -> Iterator[str]:
    counts = report.summary.counts
    columns = {"planned": str(counts.planned)}
    for name in ("passed", "failed", "blocked", "error", "skipped", "cancelled"):
        number = getattr(counts, name)
        if number or name not in {"skipped", "cancelled"}:
            columns["in error" if name == "error" else name] = str(number)
    for each in measures(report.summary):
        unit = f" {each.unit}" if each.unit else ""
        interval = f" ({each.interval})" if each.interval else ""
        columns[each.name.replace("latency p95", "p95")] = f"{each.value}{unit}{interval}"
    line = f"|{'---:|' * len(columns)}"
    yield from _table(f"| {' | '.join(columns)} |", line, [[*columns.values()]])


def _variants(report: Report) -> Iterator[str]:
    variants = report.summary.variants
    if len(variants) < 2:
        return
    yield "\n## Variants"
    heads, cells = variant_cells(variants)
    yield from _table(
        f"| {' | '.join(('variant', 'cases', 'passed', *heads))} |",
        f"|---|{'---:|' * (len(heads) + 2)}",
        [
            (escape(variant.variant), variant.cases, variant.passed, *own)
            for variant, own in zip(variants, cells, strict=True)
        ],
    )


def _changes(report: Report) -> Iterator[str]:
    variants, reasons = compared(report), no_comparison(report)
    if not variants and not reasons:
        return
    yield "\n## What changed against the baseline"
    if variants:
        rows = []
        for candidate in variants:
            names = escape(candidate.variant), escape(baseline_name(candidate))
            cases = changed_cases(report, candidate)
            counts = cases.regressed_text, cases.improved, cases.missing
            rows.append((*names, candidate.compared, *counts))
        head = "| variant | baseline | cases in both | regressed | improved | missing |"
        yield from _table(head, "|---|---|---:|---:|---:|---:|", rows)
    for why in reasons:
        yield f"\n{escape(why)}"
    if listed := changes(report):
        head, line = "| | case | variant | kind | what |", "|---|---|---|---|---|"
        yield from _table(head, line, map(_change_row, listed[:_LISTED_CHANGES]))
        if len(listed) > _LISTED_CHANGES:
            more = counted(len(listed) - _LISTED_CHANGES, "more change")
            yield f"\n{more}; see `report.json`."
    if differing := measure_changes(report):
        head = "| variant | measure | baseline | now | | cases worse | better |"
        cells = [(escape(each.variant), each.measure, *each[3:]) for each in differing]
        yield from _table(head, "|---|---|---:|---:|---:|---:|---:|", cells)


def _change_row(change: CaseChange) -> Sequence[str]:
    mark = {REGRESSION: "🔻", MISSING: "❔"}.get(change.direction, "🔺")
    cells = change.case, change.variant, change.kind, change.detail
    return f"{mark} {change.title}", *map(escape, cells)


def _failures(report: Report, failures: Sequence[Failure], unplanned: int) -> Iterator[str]:
    if failures:
        yield "\n## What did not pass"
        rows = [
            _failure_row(failure, quarantine_mark(report.quarantine, failure.case))
            for failure in failures
        ]
        yield from _table("| case | variant | outcome | why |", "|---|---|---|---|", rows)
    counts = report.summary.counts
    unlisted = counts.planned - counts.passed - unplanned - len(failures)
    if unlisted > 0:
        yield f"\n{unlisted} more did not pass; `report.json` lists them."
    for failure in failures[:_DETAILED_FAILURES]:
        yield from _details(failure)


def _failure_row(failure: Failure, mark: str) -> Sequence[str]:
    item, reasons = failure.item, item_reasons(failure.item)
    why = "<br>".join(escape(reason) for reason in reasons[:_REASONS])
    if len(reasons) > _REASONS:
        why += f"<br>and {len(reasons) - _REASONS} more"
    outcome = f"{item['outcome'] or item['status']}{cut_mark(item.get('finish_reason'))}{mark}"
    return escape(failure.case), escape(failure.variant), escape(outcome), why


def _details(failure: Failure) -> Iterator[str]:
    """Yield what was expected and what came, folded; nothing where there is neither."""
    assertions = list(filter(compared_values, missed(failure.item)))
    if not assertions:
        return
    title = f"{failure.case} [{failure.variant}]"
    if failure.item["iteration"]:
        title += f" iteration {failure.item['iteration']}"
    yield f"\n<details><summary>{escape_markdown_html(title)}</summary>"
    for assertion in assertions:
        block = f"{escape(assertion['block'])}: " if assertion["block"] else ""
        kind, outcome = escape(assertion["type"]), escape(assertion["outcome"])
        yield f"\n**{block}{escape(assertion['name'])}** ({kind}, {outcome})"
        for name, text in compared_values(assertion):
            yield f"\n{name}:\n\n{fenced(shorten(text, _MAX_CODE))}"
    yield "\n</details>"

"""The report on a terminal: regressions and what failed first, then variants, gates, decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from evalcore.model.summary import Failure, cut_mark
from evalcore.report.comparison import (
    CHANGE_MARKS,
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
from evalcore.report.document import Report
from evalcore.report.figures import (
    MARKS,
    duration_text,
    measures,
    note_lines,
    quarantine_lines,
    quarantine_mark,
    usd_text,
    variant_cells,
)
from evalcore.report.tables import cut, table, wrap
from evalcore.report.view import ListedCase, ReportView, compared_values, item_reasons, missed
from evalcore.wording import counted, outcomes_text

_COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow", "error": "magenta"}
_CHANGE_COLOURS = {REGRESSION: "red", MISSING: "yellow", IMPROVEMENT: "green"}


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
    groups: dict[tuple[str, tuple[Line, ...]], list[Failure]] = {}
    for failure in view.failures(most * _EQUAL_FAILURES):
        if failure.item["status"] != "skipped":
            mark = quarantine_mark(report.quarantine, failure.case)
            shown = _outcome(failure.item, mark), tuple(_why(failure.item, style))
            groups.setdefault(shown, []).append(failure)
    failures = list(groups.items())[:most]
    if regressions and failures:
        yield None, ""
    for (outcome, why), equal in failures:
        ended = equal[0].item["status"] == "completed"
        colour, sign = ("red", "✗") if ended else ("magenta", "!")
        yield from style.lines(f"{sign} {_items(equal)}: {outcome}", colour, hanging=2)
        yield from why
    counts = report.summary.counts
    listed = sum(len(equal) for _, equal in failures)
    unlisted = counts.planned - counts.passed - counts.skipped - listed
    if unlisted > 0:
        yield None, f"… and {unlisted} more that did not pass (report.json lists them)"
    if failures or regressions:
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
        text = f"  {MARKS[gate.outcome]} {gate.name}: {gate.message}"
        yield _COLOURS[gate.outcome], style.clean(text)
        if gate.remedy is not None:
            yield from style.lines(gate.remedy, indent=6)
    if not report.summary.adds_up:
        yield "red", "  ✗ the counts do not add up: planned items are missing from the results"
    duration = duration_text(report.run.duration_s)
    yield _COLOURS[report.decision], f"{report.decision.upper()} in {duration}"


def render_changes(listed: Sequence[CaseChange], style: Style, most: int) -> Iterator[Line]:
    """Yield what changed against the baseline, a line each, `most` of them."""
    for change in listed[:most]:
        mark = CHANGE_MARKS[change.direction]
        colour = "yellow" if change.allowed else _CHANGE_COLOURS[change.direction]
        where = f"{change.case} [{change.variant}]"
        what = f"{change.title} against {change.baseline}: {change.detail}"
        yield from style.lines(f"{mark} {where}: {what}", colour, hanging=2)


def _measured(report: Report) -> Iterator[str]:
    for each in measures(report.summary):
        unit = f" {each.unit}" if each.unit else ""
        interval = f" ({each.interval})" if each.interval and not each.unit else ""
        yield f"{each.name.replace('latency p95', 'p95')} {each.value}{unit}{interval}"
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
    for what, share in (("billed", "billed"), ("reserved, not settled", "unsettled")):
        spent, amounts = budget[share], []
        if (most := budget["max_cost_usd"]) is not None:
            amounts.append(f"{usd_text(spent['cost_usd'])} of {usd_text(most)} USD")
        if (most := budget["max_tokens"]) is not None:
            amounts.append(f"{spent['tokens']} of {most} tokens")
        if what == "billed" or any(spent.values()):
            parts.append(f"{', '.join(amounts)} {what}")
    return f"budget: {'; '.join(parts)}"


def _reused(report: Report) -> str:
    """Return how many items were not executed, and which runs their evidence is of."""
    reused = report.run.reused
    total = counted(sum(int(entry["items"]) for entry in reused), "item")
    if len(reused) == 1:
        return f"{total} reused from run {reused[0]['run']}"
    return f"{total} reused: " + ", ".join(f"{each['items']} from {each['run']}" for each in reused)


def _variants(report: Report, style: Style) -> Iterator[Line]:
    """Yield the variants side by side where there are several."""
    variants = report.summary.variants
    comparisons = {candidate.variant: candidate for candidate in compared(report)}
    if len(variants) < 2 and not comparisons:
        return
    baselines = {candidate.baseline for candidate in comparisons.values() if candidate.run is None}
    heads, cells = variant_cells(variants)
    rows = [["variant", "cases", "passed", *heads]]
    if comparisons:
        rows[0] += ["regressed", "improved", "missing"]
    for variant, own in zip(variants, cells, strict=True):
        is_baseline = " (baseline)" if variant.variant in baselines else ""
        name = f"{style.clean(variant.variant)}{is_baseline}"
        row = [name, str(variant.cases), str(variant.passed), *own]
        if (candidate := comparisons.get(variant.variant)) is not None:
            changed = changed_cases(report, candidate)
            row += [changed.regressed_text, str(changed.improved), str(changed.missing)]
        elif comparisons:
            row += ["–", "–", "–"]
        rows.append(row)
    for line in table(rows, style.width - 2):
        yield None, f"  {line}"
    for each in measure_changes(report):
        yield None, f"  {style.clean(each.variant)}: {each.text}"
    for why in no_comparison(report):
        yield style.line(f"  not compared: {why}", "yellow")


def _counted(report: Report) -> str:
    counts = report.summary.counts
    names = ("passed", "failed", "blocked", "error", "skipped", "cancelled")
    outcomes = outcomes_text({name: getattr(counts, name) for name in names})
    return f"{counted(counts.planned, 'item')}: {outcomes}"


Line = tuple[str | None, str]
"""A colour or None, and the line."""

DEFAULT_WIDTH: Final = 160
_MOST_LINES: Final = 20


class Style(NamedTuple):
    """How a terminal is written to: `clean` makes foreign text one safe line; `width` in cells."""

    clean: Callable[[str], str]
    width: int = DEFAULT_WIDTH

    def line(self, text: str, colour: str | None = None) -> Line:
        """Return foreign text as a line that fits; the rest of it is cut."""
        return colour, cut(self.clean(text), self.width)

    def lines(
        self, text: str, colour: str | None = None, *, indent: int = 0, hanging: int = 0
    ) -> Iterator[Line]:
        """Yield foreign text that says what to do, over as many lines as it needs.

        `hanging` is added to the indent of the lines after the first. Of more than 20 lines the
        first 19 and the last one are kept: advice ends a message.
        """
        wrapped = list(wrap(self.clean(text), max(1, self.width - indent - hanging)))
        if len(wrapped) > _MOST_LINES:
            wrapped = [*wrapped[: _MOST_LINES - 1], "…", wrapped[-1]]
        for number, line in enumerate(wrapped):
            yield colour, " " * (indent + hanging * (number > 0)) + line


_EQUAL_FAILURES: Final = 20
"""How many failures are read for each group of equal ones that is shown."""
_NAMED: Final = 5


def _outcome(item: Mapping[str, Any], mark: str) -> str:
    outcome = (
        f"{item['outcome']}{_score(item)}" if item["status"] == "completed" else item["status"]
    )
    return f"{outcome}{cut_mark(item.get('finish_reason'))}{mark}"


def _why(item: Mapping[str, Any], style: Style) -> Iterator[Line]:
    assertions = missed(item) if item["status"] == "completed" else []
    for assertion in assertions:
        yield from _assertion(assertion, style)
    if not assertions:
        for reason in item_reasons(item):
            yield from style.lines(reason, indent=4)


def _items(failures: Sequence[Failure]) -> str:
    """Return what items are called: of one its case, variant and iteration, else their number."""
    names = Counter(f"{failure.case} [{failure.variant}]" for failure in failures)
    if len(failures) == 1:
        iteration = failures[0].item["iteration"]
        return f"{next(iter(names))}{f' iteration {iteration}' if iteration else ''}"
    listed = [f"{name} × {n}" if n > 1 else name for name, n in names.items()]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"{len(failures)} items ({', '.join(listed[:_NAMED])}{more})"


def _assertion(assertion: Mapping[str, Any], style: Style) -> Iterator[Line]:
    block = f"{assertion['block']}: " if assertion["block"] else ""
    sign = {"error": "!", "blocked": "–"}.get(assertion["outcome"], "✗")
    message = f": {assertion['message']}" if assertion["message"] else ""
    text = f"{sign} {block}{assertion['name']}{message}"
    if assertion["outcome"] != "failed":
        yield from style.lines(text, indent=4)
        return
    yield style.line(f"    {text}")
    for name, text in compared_values(assertion):
        yield style.line(f"        {name:<8}  {text}")


_OUTCOME_MARKS = {
    "passed": ("green", "✓"),
    "failed": ("red", "✗"),
    "blocked": ("yellow", "–"),
    "error": ("magenta", "!"),
}
_OTHER = ("yellow", "·")
_MAX_LINES = 20
_MOST_CHANGES = 200


def render_verbose(view: ReportView, style: Style) -> Iterator[Line]:
    """Yield what changed, the cases that the report lists in the order of the plan, the summary."""
    listed = changes(view.report)
    yield from render_changes(listed, style, _MOST_CHANGES)
    if listed:
        yield None, ""
    for case in view.listed():
        yield from _case(case, style)
    if not view.report.cases_complete:
        yield None, "… of so many items only those that did not pass are listed"
    yield None, ""
    yield from render_summary(view, style)


def _case(case: ListedCase, style: Style) -> Iterator[Line]:
    record = case.record
    items = record["items"]
    where = f"{record['id']} [{record['variant']}]"
    if len(items) > 1:
        colour, mark = _OUTCOME_MARKS["passed" if record["passed"] else "failed"]
        reduced = "passed" if record["passed"] else "did not pass"
        yield style.line(
            f"{mark} {where}: {reduced}, {counted(len(items), 'iteration')}{_score(record)}",
            colour,
        )
    for number, item in enumerate(items):
        name = f"{where} iteration {item['iteration']}" if len(items) > 1 else where
        outcome = item["outcome"] or item["status"]
        mark_of_cut = cut_mark(item.get("finish_reason"))
        colour, mark = _OUTCOME_MARKS.get(outcome, _OTHER)
        yield style.line(f"{mark} {name}: {outcome}{_score(item)}{mark_of_cut}", colour)
        if number == 0 and case.facts.input is not None:
            yield from _text("    input     ", case.facts.input, style)
        yield from _item(item, style)


def _item(item: Mapping[str, Any], style: Style) -> Iterator[Line]:
    reason = (item["error"] or {}).get("message") or item["reason"]
    if reason is not None:
        yield from style.lines(reason, indent=4)
    if item["output"] is not None:
        yield from _text("    output    ", item["output"], style)
    for name, text in (item.get("outputs") or {}).items():
        if text is not None and text != item["output"]:
            yield from _text(f"    output of {name}  ", text, style)
    for assertion in item["assertions"]:
        colour, mark = _OUTCOME_MARKS.get(assertion["outcome"], _OTHER)
        block = f"{assertion['block']}: " if assertion["block"] else ""
        message = f": {assertion['message']}" if assertion["message"] else ""
        text = f"{mark} {block}{assertion['name']}{message}"
        if assertion["outcome"] in ("error", "blocked"):
            yield from style.lines(text, colour, indent=4)
        else:
            yield style.line(f"    {text}", colour)
        for name, value in compared_values(assertion):
            yield from _text(f"        {name:<8}  ", value, style)
    for score in item["scores"]:
        value = score.get("error") or _number(score["value"])
        yield style.line(f"    · {score['name']}: {value}")


def _text(label: str, text: str, style: Style) -> Iterator[Line]:
    """Yield foreign text line by line; what follows the first line is indented like it."""
    lines = text.split("\n")
    for number, line in enumerate(lines[:_MAX_LINES]):
        before = label if number == 0 else " " * len(label)
        yield None, cut(style.clean(before + line), max(style.width, len(label) + 20))
    if len(lines) > _MAX_LINES:
        yield None, f"{' ' * len(label)}… {counted(len(lines) - _MAX_LINES, 'more line')}"


def _score(record: Mapping[str, Any]) -> str:
    return "" if record["score"] is None else f", score {record['score']:.4f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"

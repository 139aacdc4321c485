"""Every case on a terminal, with what was asked, expected and answered (`--verbose`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalcore.mistakes.wording import counted
from evalcore.model.failure import cut_mark
from evalcore.report.changes import changes
from evalcore.report.columns import cut
from evalcore.report.terminal import render_changes, render_summary
from evalcore.report.terminal_style import Line, Style
from evalcore.report.view import ListedCase, ReportView

_MARKS = {
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
        colour, mark = _MARKS["passed" if record["passed"] else "failed"]
        reduced = "passed" if record["passed"] else "did not pass"
        yield style.line(
            f"{mark} {where}: {reduced}, {counted(len(items), 'iteration')}{_score(record)}"
            f"{_spread(record.get('spread'))}",
            colour,
        )
    for number, item in enumerate(items):
        name = f"{where} iteration {item['iteration']}" if len(items) > 1 else where
        outcome = item["outcome"] or item["status"]
        mark_of_cut = cut_mark(item.get("finish_reason"))
        colour, mark = _MARKS.get(outcome, _OTHER)
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
        colour, mark = _MARKS.get(assertion["outcome"], _OTHER)
        block = f"{assertion['block']}: " if assertion["block"] else ""
        message = f": {assertion['message']}" if assertion["message"] else ""
        text = f"{mark} {block}{assertion['name']}{message}"
        if assertion["outcome"] in ("error", "blocked"):
            yield from style.lines(text, colour, indent=4)
        else:
            yield style.line(f"    {text}", colour)
        for name in ("expected", "actual"):
            if assertion[name] is not None:
                yield from _text(f"        {name:<8}  ", assertion[name], style)
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


def _spread(spread: Mapping[str, Any] | None) -> str:
    """Return how far apart a case's iterations are."""
    if spread is None or spread["min"] is None:
        return ""
    text = f" ({spread['passed']} of {spread['iterations']} passed, "
    text += f"{_number(spread['min'])} to {_number(spread['max'])}"
    if spread["stdev"] is not None:
        text += f", standard deviation {_number(spread['stdev'])}"
    rate = spread["pass_rate"]
    return f"{text}; pass rate 95 % {_number(rate['low'])} to {_number(rate['high'])})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"

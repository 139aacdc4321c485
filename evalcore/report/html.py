"""The report as one HTML file: no request leaves it, nothing in its data is ever executed.

Styles and script stand in the file, and its content security policy allows exactly these, by their
hashes. Foreign text reaches the page as escaped text, or as data that the script shows as text.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evalcore.model.summary import cut_mark
from evalcore.report.comparison import (
    CHANGE_MARKS,
    CaseChange,
    baseline_name,
    changed_cases,
    changes,
    compared,
    measure_changes,
    no_comparison,
)
from evalcore.report.document import Report
from evalcore.report.escape import escape_data, visible
from evalcore.report.figures import (
    MARKS,
    Figure,
    duration_text,
    measures,
    note_lines,
    quarantine_lines,
    tokens_text,
    variant_cells,
)
from evalcore.report.view import CaseFacts, ListedCase, ReportView, item_reasons
from evalcore.wording import one_line, plural, shorten

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).parent / "templates"
_STYLES = ("theme.css", "report.css")
_SCRIPTS = ("diff.js", "details.js", "report.js")
_MOST_CHANGES = 500
_MOST_REASONS = 20
_MOST_CASES = 1_000
_ENDS = ("passed", "failed", "blocked", "error", "skipped", "cancelled")


def render(view: ReportView) -> Iterator[str]:
    """Yield the page in pieces."""
    report = view.report
    css, script = _joined(_STYLES), _joined(_SCRIPTS)
    variants = [variant.variant for variant in report.summary.variants]
    data = page_data(view.listed(), variants)
    differences = changes(report)
    head = {
        "variants": variants,
        "tags": data.tags,
        "changes": [change._asdict() | {"hard": change.is_hard} for change in differences],
    }
    yield from _template().generate(
        policy=_policy(css, script),
        css=css,
        script=script,
        head_data=escape_data(orjson.dumps(head).decode()),
        data=data,
        most_cases=f"{_MOST_CASES:,}",
        reasons=view.reasons(),
        causes=sorted(data.causes.items(), key=lambda cause: -len(cause[1]))[:_MOST_REASONS],
        trend=_trend_image(view),
        report=report,
        run=report.run,
        source=view.source_file,
        started=f"{report.run.started_at[:16].replace('T', ' ')} UTC",
        duration=duration_text(report.run.duration_s).replace(" ", "\u00a0"),
        marks=MARKS | CHANGE_MARKS,
        figures=list(_figures(report)),
        shares=[(name, n) for name in _ENDS if (n := getattr(report.summary.counts, name))],
        notes=[*note_lines(report), *quarantine_lines(report.quarantine)],
        **_changes(report, differences),
    )


def _trend_image(view: ReportView) -> str | None:
    """Return the picture of the suite's trend as base64: an image executes nothing."""
    trend = view.trend()
    if trend is None:
        return None
    from evalcore.report.charts import chart_svg, trend_spec

    return base64.b64encode(chart_svg(trend_spec(trend))).decode()


@cache
def _joined(names: Sequence[str]) -> str:
    return "\n".join((TEMPLATES / name).read_text("utf-8") for name in names)


@cache
def _template() -> Any:
    return html_templates(TEMPLATES).get_template("report.html.j2")


def html_templates(folder: Path) -> Environment:
    """Return the templates of a folder: what they show is escaped, unknown names are errors.

    The filter `visible` shows invisible characters; `plural` gives the noun of a count:
    `{{ count }} {{ count|plural("case") }}`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["visible"] = lambda text: visible(str(text))
    templates.filters["plural"] = plural
    return templates


def _policy(css: str, script: str) -> str:
    def allowed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {allowed(script)}; style-src {allowed(css)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _figures(report: Report) -> Iterator[Figure]:
    counts, tokens = report.summary.counts, report.summary.total_tokens
    yield Figure("Items", f"{counts.planned:,}")
    for name in _ENDS:
        number = getattr(counts, name)
        if number or name in {"passed", "failed"}:
            label = "In error" if name == "error" else name.capitalize()
            yield Figure(label, f"{number:,}", tone=name if number else "")
    for each in measures(report.summary):
        parts = [each.unit, each.interval]
        if each.name == "score" and report.threshold is not None:
            parts.append(f"threshold {report.threshold:g}")
        if each.name != "tokens":
            unit = ", ".join(filter(None, parts))
            yield Figure(each.name[0].upper() + each.name[1:], each.value, unit)
    if tokens is not None:
        yield Figure("Tokens", f"{tokens:,}", tokens_text(report.summary))


def _changes(report: Report, differences: Sequence[CaseChange]) -> dict[str, Any]:
    comparisons = {candidate.variant: candidate for candidate in compared(report)}
    heads, rows = variant_cells(report.summary.variants)
    allowed = [change for change in differences if change.allowed][:_MOST_CHANGES]
    listed = [change for change in differences if not change.allowed][:_MOST_CHANGES]
    exact = sum(
        candidate.regression_count + candidate.improvement_count + candidate.missing_count
        for candidate in comparisons.values()
    )
    return {
        "heads": ["Rate", *(head[0].upper() + head[1:] for head in heads[1:])],
        "variants": [
            (variant, cells, changed_cases(report, candidate) if candidate else None)
            for variant, cells in zip(report.summary.variants, rows, strict=True)
            for candidate in [comparisons.get(variant.variant)]
        ],
        "baselines": [baseline_name(candidate) for candidate in comparisons.values()],
        "not_compared": no_comparison(report),
        "changes": listed,
        "allowed_changes": allowed,
        "measure_changes": measure_changes(report)[:_MOST_CHANGES],
        "unlisted_changes": max(
            0, exact - sum(change.differences for change in (*listed, *allowed))
        ),
    }


# In the order of report.js; a case shows the first that one of its items has.
OUTCOMES = ("failed", "error", "blocked", "skipped", "cancelled", "passed")
_WORST_FIRST = ("error", "failed", "blocked", "skipped", "cancelled")
_MAX_TEXT = 4_000
_MAX_WHY = 200
_MAX_QUESTION = 160
_PASSED_BYTES = 8 * 1024 * 1024
_ALL_BYTES = 32 * 1024 * 1024
_MOST_TAGS = 500


@dataclass
class PageData:
    """What report.js reads. `rows` is one JSON array, in pieces; `details` has a line a case.

    `causes` has the ids of the cases of the answers that did not pass by each reason.
    """

    rows: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    causes: dict[str, list[str]] = field(default_factory=dict)


def page_data(listed: Iterable[ListedCase], variants: Sequence[str]) -> PageData:
    """Return the data of cases in the order of the plan, the variants of a case together."""
    data = PageData(rows=["["])
    indices = {name: index for index, name in enumerate(variants)}
    tags: dict[str, int] = {}
    size = 0
    grouped = groupby(listed, key=lambda case: (case.record["id"], case.record["group"]))
    for number, ((case_id, group), cases) in enumerate(grouped):
        answers = list(cases)
        facts = answers[0].facts
        records: list[Mapping[str, Any] | None] = [None] * len(variants)
        for answer in answers:
            records[indices[answer.record["variant"]]] = answer.record
            if not answer.record["passed"]:
                for reason in dict.fromkeys(map(one_line, _reasons(answer.record))):
                    data.causes.setdefault(shorten(reason, _MAX_WHY), []).append(case_id)
        cells = [None if record is None else _cell(record) for record in records]
        known = (tag for tag in facts.tags if tag in tags or len(tags) < _MOST_TAGS)
        tag_indices = [tags.setdefault(tag, len(tags)) for tag in known]
        question = None if facts.question is None else shorten(facts.question, _MAX_QUESTION)
        row = [case_id, group, tag_indices, cells, question]
        data.rows.append((",\n" if number else "\n") + _dumps(row))
        passed = all(answer.record["passed"] for answer in answers)
        line = ""
        if size < (_PASSED_BYTES if passed else _ALL_BYTES):
            line = _dumps(_detail(facts, records))
            size += len(line)
        data.details.append(f"{line}\n")
    data.rows.append("\n]")
    data.tags = list(tags)
    return data


def _reasons(record: Mapping[str, Any]) -> Iterator[str]:
    for item in record["items"]:
        yield from item_reasons(item)


def _dumps(value: Any) -> str:
    return escape_data(orjson.dumps(value).decode())


def _cell(record: Mapping[str, Any]) -> list[Any]:
    items = record["items"]
    outcomes = {item["outcome"] or item["status"] for item in items}
    outcome = "passed"
    if not record["passed"]:
        # A reducer may fail a case of which each iteration passed.
        outcome = next((each for each in _WORST_FIRST if each in outcomes), "failed")
    measured = [item["metrics"]["latency_ms"] for item in items]
    latencies = [value for value in measured if value is not None]
    latency = sum(latencies) / len(latencies) if latencies else None
    reasons = Counter(() if record["passed"] else _reasons(record))
    why = "; ".join(f"{n} × {reason}" if n > 1 else reason for reason, n in reasons.items())
    cuts = dict.fromkeys(cut_mark(item.get("finish_reason")).removeprefix(", ") for item in items)
    marks = ["quarantined"] if record.get("quarantined") else []
    why = "; ".join(filter(None, (*marks, *cuts, shorten(why, _MAX_WHY))))
    return [OUTCOMES.index(outcome), record["score"], latency, why, len(items)]


def _detail(facts: CaseFacts, records: Sequence[Mapping[str, Any] | None]) -> list[Any]:
    answers = [None if record is None else list(map(_item, record["items"])) for record in records]
    return [_text(facts.input), _text(facts.expected), answers]


def _item(item: Mapping[str, Any]) -> Any:
    """Return an item of report.json as details.js reads it: long texts cut, without nulls."""
    return _bounded({**item, "cut": cut_mark(item.get("finish_reason")).removeprefix(", ")})


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {key: _bounded(each) for key, each in value.items() if each is not None}
    return list(map(_bounded, value)) if isinstance(value, list | tuple) else value


def _text(text: str | None) -> str | None:
    if text is None or len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n… ({len(text) - _MAX_TEXT} more characters)"

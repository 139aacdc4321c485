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

from evalcore.model.summary import Counts, VariantComparison, cut_mark
from evalcore.report.comparison import (
    CHANGE_MARKS,
    CaseChange,
    ComparedView,
    baseline_name,
    changed_cases,
    changes,
    compared,
    measure_changes,
    no_comparison,
)
from evalcore.report.document import Report, comparison_entries
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
from evalcore.wording import plural, shorten

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).parent / "templates"
_STYLES = ("theme.css", "report.css")
_SCRIPTS = ("diff.js", "details.js", "report.js")
_MOST_CHANGES = 500
_MOST_REASONS = 20
_MOST_CASES = 1_000
_ENDS = ("passed", "failed", "blocked", "error", "skipped", "cancelled")


def render(view: ReportView, **replaced: Any) -> Iterator[str]:
    """Yield the page in pieces; values of its template are `replaced` by their names."""
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
    values = dict(
        policy=_policy(css, script),
        css=css,
        script=script,
        head_data=escape_data(orjson.dumps(head).decode()),
        data=data,
        most_cases=f"{_MOST_CASES:,}",
        reasons=view.reasons(),
        causes=sorted(data.causes.values(), key=lambda each: -each.answers)[:_MOST_REASONS],
        trend=_trend_images(view),
        against=None,
        differences=(),
        report=report,
        run=report.run,
        source=view.source_line("").file,
        started=f"{report.run.started_at[:16].replace('T', ' ')} UTC",
        duration=duration_text(report.run.duration_s).replace(" ", "\u00a0"),
        marks=MARKS | CHANGE_MARKS,
        figures=list(_figures(report)),
        shares=list(_shares(report.summary.counts)),
        shares_text=_shares_text(report.summary.counts),
        notes=[*note_lines(report), *quarantine_lines(report.quarantine)],
        **_changes(report, differences),
    )
    yield from _template().generate({**values, **replaced})


def render_comparison(view: ComparedView) -> Iterator[str]:
    """Yield the page of two compared runs in pieces, with the components of the report."""
    earlier = view.baseline.report
    notes = []
    if earlier.suite != view.report.suite:
        notes.append(f"the baseline is of another suite, {earlier.suite}")
    comparison = view.report.summary.comparison
    figures = {
        candidate.variant: list(_compared_figures(candidate, entry))
        for candidate, entry in zip(
            compared(view.report), comparison_entries(comparison), strict=True
        )
    }
    names = dict.fromkeys(each.name for listed in figures.values() for each in listed)
    differences = []
    for variant, listed in figures.items():
        own = {each.name: each for each in listed}
        filled = [own.get(name) or Figure(name, "–") for name in names]
        differences.append({"variant": variant, "figures": filled})
    # The figures of one variant stand side by side, those of several are a table.
    yield from render(
        view,
        against=earlier.run.id,
        notes=notes,
        figures=differences[0]["figures"] if len(differences) == 1 else (),
        differences=differences if len(differences) > 1 else (),
        causes=(),
    )


def _compared_figures(candidate: VariantComparison, entry: dict[str, Any]) -> Iterator[Figure]:
    yield Figure("Cases in both", f"{candidate.compared:,}")
    score, passed = entry["score"], entry["passed"]
    if score["difference"] is not None:
        interval = ""
        if score["low"] is not None:
            interval = f"95 %: {score['low']:+.4f} to {score['high']:+.4f}"
        yield Figure("Score difference", f"{score['difference']:+.4f}", interval)
    if passed["p"] is not None:
        tone = "failed" if candidate.worse else ""
        yield Figure("Passed before only", f"{candidate.worse:,}", tone=tone)
        tone = "passed" if candidate.better else ""
        p = f"p = {passed['p']:.4f}"
        yield Figure("Passed now only", f"{candidate.better:,}", p, tone=tone)


def _trend_images(view: ReportView) -> dict[str, str] | None:
    """Return the picture of the suite's trend as base64 by theme: an image executes nothing."""
    trend = view.trend()
    if trend is None:
        return None
    from evalcore.report.charts import THEMES, chart_svg, trend_spec

    return {
        name: base64.b64encode(chart_svg(trend_spec(trend, theme))).decode()
        for name, theme in THEMES.items()
    }


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


def _shares(counts: Counts) -> Iterator[dict[str, Any]]:
    """Yield the parts of the bar under the figures, whose width is 1 000."""
    start = 0.0
    for name in _ENDS:
        width = 1000 * getattr(counts, name) / max(1, counts.planned)
        if width:
            yield {"name": name, "start": round(start, 2), "width": round(width, 2)}
        start += width


def _shares_text(counts: Counts) -> str:
    parts = [f"{number} {name}" for name in _ENDS if (number := getattr(counts, name))]
    return ", ".join(parts) or "no items"


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
_MOST_CAUSES = 1_000
_CAUSE_CASES = 5


@dataclass
class Cause:
    """Why answers did not pass: how many of them, and the ids of the first cases.

    One case more than the page shows is listed, so that it says that there are more.
    """

    reason: str
    answers: int = 0
    cases: list[str] = field(default_factory=list)


@dataclass
class PageData:
    """What report.js reads. `rows` is one JSON array, in pieces; `details` has a line a case."""

    rows: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    causes: dict[str, Cause] = field(default_factory=dict)


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
                _count(data.causes, case_id, answer.record)
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


def _count(causes: dict[str, Cause], case_id: str, record: Mapping[str, Any]) -> None:
    """Count the reasons why an answer did not pass, each once; of at most `_MOST_CAUSES`."""
    for reason in dict.fromkeys(_reasons(record)):
        text = shorten(" ".join(reason.split()), _MAX_WHY)
        if text in causes or len(causes) < _MOST_CAUSES:
            cause = causes.setdefault(text, Cause(text))
            cause.answers += 1
            if case_id not in cause.cases and len(cause.cases) <= _CAUSE_CASES:
                cause.cases.append(case_id)


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
    answers = [
        None if record is None else [_item(item) for item in record["items"]] for record in records
    ]
    return [_text(facts.input), _text(facts.expected), answers]


def _item(item: Mapping[str, Any]) -> list[Any]:
    metrics, error = item["metrics"], item["error"] or {}
    cut = cut_mark(item.get("finish_reason"))
    counted = [metrics["input_tokens"], metrics["output_tokens"]]
    return [
        item["iteration"],
        item["outcome"] or item["status"],
        item["score"],
        error.get("kind") or ("cut" if cut else None),
        _text(error.get("message") or item["reason"] or cut.removeprefix(", ") or None),
        _text(item["output"]),
        metrics["latency_ms"],
        metrics["cost_usd"],
        None if counted == [None, None] else sum(value or 0 for value in counted),
        [[score["name"], score["value"], score.get("error")] for score in item["scores"]],
        [_assertion(assertion) for assertion in item["assertions"]],
        [
            [name, _text(text)]
            for name, text in (item.get("outputs") or {}).items()
            if text is not None
        ],
    ]


def _assertion(assertion: Mapping[str, Any]) -> list[Any]:
    names = ("name", "type", "block", "outcome", "score", "weight", "required")
    texts = ("expected", "actual", "message")
    values = [assertion[name] for name in names] + [_text(assertion[name]) for name in texts]
    return [*values, _grader(assertion.get("details") or {})]


def _grader(details: Mapping[str, Any]) -> list[Any] | None:
    """Return what a judge or a program gave as reasons: the reasoning, its points, its votes."""

    def entries(name: str) -> list[Mapping[str, Any]]:
        return [each for each in details.get(name) or () if isinstance(each, Mapping)]

    points = [
        [point.get("passed"), _text(point.get("text")), _text(point.get("evidence"))]
        for point in entries("assertions")
    ]
    votes = [[vote.get("judge"), vote.get("score")] for vote in entries("votes")]
    reasoning = details.get("reasoning")
    reasoning = _text(reasoning) if isinstance(reasoning, str) else None
    return [reasoning, points, votes] if reasoning or points or len(votes) > 1 else None


def _text(text: str | None) -> str | None:
    if text is None or len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n… ({len(text) - _MAX_TEXT} more characters)"

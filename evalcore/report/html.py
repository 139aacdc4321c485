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
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from evalcore.mistakes.foreign_text import shorten
from evalcore.mistakes.wording import plural
from evalcore.model.comparison import VariantComparison
from evalcore.model.failure import cut_mark
from evalcore.model.gate import Decision, GateOutcome
from evalcore.model.latency_text import latency_text
from evalcore.report.comparison import (
    IMPROVEMENT,
    MISSING,
    REGRESSION,
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
    duration_text,
    figure_texts,
    latency_ends_text,
    measure_columns,
    note_lines,
    quarantine_lines,
    rate_text,
    score_text,
    tokens_text,
    total_text,
    usd_text,
    variant_texts,
)
from evalcore.report.view import CaseFacts, ListedCase, ReportView

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).parent / "templates"
_STYLES = ("theme.css", "report.css")
_SCRIPTS = ("diff.js", "details.js", "report.js")
_MOST_CHANGES = 500
_MOST_REASONS = 20
_MOST_CASES = 1_000
_MARKS = {
    Decision.PASS: "✓",
    Decision.FAIL: "✗",
    Decision.ERROR: "!",
    Decision.INCONCLUSIVE: "?",
}
_GATE_MARKS = {GateOutcome.PASS: "✓", GateOutcome.FAIL: "✗", GateOutcome.INCONCLUSIVE: "?"}
_CHANGE_MARKS = {REGRESSION: "▼", IMPROVEMENT: "▲", MISSING: "?"}
_ENDS = ("passed", "failed", "blocked", "error", "skipped", "cancelled")


def render(view: ReportView) -> Iterator[str]:
    """Yield the page in pieces."""
    yield from page_pieces(view)


def page_pieces(view: ReportView, **replaced: Any) -> Iterator[str]:
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
        rows=data.rows,
        details=data.details,
        complete=report.cases_complete,
        most_cases=f"{_MOST_CASES:,}",
        reasons=view.reasons(),
        causes=data.causes.most_frequent(_MOST_REASONS),
        trend=_trend_images(view),
        against=None,
        differences=(),
        **_head(report, view.source_line("").file),
        **_changes(report),
    )
    yield from _template().generate({**values, **replaced})


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


def _policy(css: str, script: str) -> str:
    def allowed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {allowed(script)}; style-src {allowed(css)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _head(report: Report, source: str) -> dict[str, Any]:
    summary, run = report.summary, report.run
    return {
        "suite": report.suite,
        "decision": str(report.decision),
        "decision_mark": _MARKS[report.decision],
        "adds_up": summary.adds_up,
        "run": {
            "id": run.id,
            "format": report.format,
            "mode": run.mode,
            "started": f"{run.started_at[:16].replace('T', ' ')} UTC",
            "started_at": run.started_at,
            "duration": duration_text(run.duration_s).replace(" ", "\u00a0"),
            "reexecuted": run.reexecuted,
            "engine": run.engine.get("evalcore", ""),
            "source": source,
        },
        "figures": list(_figures(report)),
        **_shares(report),
        "gates": [
            {
                "name": gate.name,
                "outcome": str(gate.outcome),
                "mark": _GATE_MARKS[gate.outcome],
                "message": gate.message,
                "remedy": gate.remedy or "",
            }
            for gate in report.gates
        ],
        "notes": [*note_lines(report), *quarantine_lines(report.quarantine)],
    }


def figure(name: str, value: str, unit: str = "", tone: str = "") -> dict[str, Any]:
    """Return a figure as the template shows it; `tone` is the name of an outcome."""
    return {"name": name, "value": value, "unit": unit, "tone": tone}


def _figures(report: Report) -> Iterator[dict[str, Any]]:
    summary, counts = report.summary, report.summary.counts
    yield figure("Items", f"{counts.planned:,}")
    for name in _ENDS:
        number = getattr(counts, name)
        if number or name in {"passed", "failed"}:
            label = "In error" if name == "error" else name.capitalize()
            yield figure(label, f"{number:,}", tone=name if number else "")
    rate, rate_interval = figure_texts(rate_text(summary.pass_rate, summary.pass_sample))
    yield figure("Pass rate", rate, rate_interval)
    if summary.score is not None:
        score, interval = figure_texts(score_text(summary.score, summary.score_sample))
        threshold = "" if report.threshold is None else f"threshold {report.threshold:g}"
        yield figure("Score", score, ", ".join(filter(None, (interval, threshold))))
    for label, value, ends in (
        ("p50", summary.p50_latency_ms, summary.p50_latency_ends_ms),
        ("p95", summary.p95_latency_ms, summary.p95_latency_ends_ms),
    ):
        if value is not None:
            unit = ", ".join(filter(None, ("ms", latency_ends_text(ends))))
            yield figure(f"Latency {label}", latency_text(value), unit)
    if (cost := summary.total_cost_usd) is not None:
        unit = ", ".join(filter(None, ("USD", total_text(cost, summary.cost_sample))))
        yield figure("Cost", usd_text(cost), unit)
    if summary.judge_cost_usd is not None:
        yield figure("Judges", usd_text(summary.judge_cost_usd), "USD")
    if summary.total_tokens is not None:
        yield figure("Tokens", f"{summary.total_tokens:,}", tokens_text(summary))


def _shares(report: Report) -> dict[str, Any]:
    """Return the widths of the bar under the figures, of 1 000, and what they say."""
    counts = report.summary.counts
    shares, start = [], 0.0
    for name in _ENDS:
        width = 1000 * getattr(counts, name) / max(1, counts.planned)
        if width:
            shares.append({"name": name, "start": round(start, 2), "width": round(width, 2)})
        start += width
    text = ", ".join(f"{getattr(counts, name)} {name}" for name in _ENDS if getattr(counts, name))
    return {"shares": shares, "shares_text": text or "no items"}


def _changes(report: Report) -> dict[str, Any]:
    comparisons = {candidate.variant: candidate for candidate in compared(report)}
    baselines = set(map(baseline_name, comparisons.values()))
    variants = []
    measures = measure_columns(report.summary.variants)
    for number, variant in enumerate(report.summary.variants):
        candidate = comparisons.get(variant.variant)
        variants.append(
            {
                "name": variant.variant,
                "is_baseline": variant.variant in baselines,
                "cases": variant.cases,
                "passed": variant.passed,
                "rate": variant_texts(variant)[0],
                "score": variant_texts(variant)[1],
                "measures": [cells[number] for _, cells in measures],
                "changed": None if candidate is None else changed_cases(report, candidate),
            }
        )
    differences = changes(report)
    allowed = [change for change in differences if change.allowed][:_MOST_CHANGES]
    listed = [change for change in differences if not change.allowed][:_MOST_CHANGES]
    exact: Sequence[int] = [
        candidate.regression_count + candidate.improvement_count + candidate.missing_count
        for candidate in comparisons.values()
    ]
    return {
        "variants": variants,
        "measures": [head.capitalize() for head, _ in measures],
        "compared": [baseline_name(candidate) for candidate in comparisons.values()],
        "not_compared": no_comparison(report),
        "changes": listed,
        "allowed_changes": allowed,
        "change_marks": _CHANGE_MARKS,
        "measure_changes": measure_changes(report)[:_MOST_CHANGES],
        "unlisted_changes": max(
            0, sum(exact) - sum(change.differences for change in (*listed, *allowed))
        ),
    }


def render_comparison(view: ComparedView) -> Iterator[str]:
    """Yield the page in pieces."""
    earlier = view.baseline.report
    notes = []
    if earlier.suite != view.report.suite:
        notes.append(f"the baseline is of another suite, {earlier.suite}")
    differences = list(_differences(view))
    yield from page_pieces(
        view,
        against=earlier.run.id,
        notes=notes,
        # The figures of one variant stand side by side, those of several are a table.
        figures=differences[0]["figures"] if len(differences) == 1 else (),
        differences=differences if len(differences) > 1 else (),
        causes=(),
    )


def _differences(view: ComparedView) -> Iterator[dict[str, Any]]:
    """Yield the figures of each variant; a figure that it does not have is a dash."""
    report = view.report
    entries = comparison_entries(report.summary.comparison)
    per_variant = [
        (candidate.variant, list(_compared_figures(candidate, entry)))
        for candidate, entry in zip(compared(report), entries, strict=True)
    ]
    names = dict.fromkeys(each["name"] for _, figures in per_variant for each in figures)
    for variant, figures in per_variant:
        own = {each["name"]: each for each in figures}
        filled = [own.get(name) or figure(name, "–") for name in names]
        yield {"variant": variant, "figures": filled}


def _compared_figures(
    candidate: VariantComparison, entry: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    yield figure("Cases in both", f"{candidate.compared:,}")
    score, passed = entry["score"], entry["passed"]
    if score["difference"] is not None:
        interval = ""
        if score["low"] is not None:
            interval = f"95 %: {score['low']:+.4f} to {score['high']:+.4f}"
        yield figure("Score difference", f"{score['difference']:+.4f}", interval)
    if passed["p"] is not None:
        tone = "failed" if candidate.worse else ""
        yield figure("Passed before only", f"{candidate.worse:,}", tone=tone)
        tone = "passed" if candidate.better else ""
        p = f"p = {passed['p']:.4f}"
        yield figure("Passed now only", f"{candidate.better:,}", p, tone)


# In the order of report.js; a case shows the first that one of its items has.
OUTCOMES = ("failed", "error", "blocked", "skipped", "cancelled", "passed")
_WORST_FIRST = ("error", "failed", "blocked", "skipped", "cancelled", "passed")
_MAX_TEXT = 4_000
_MAX_WHY = 200
_MAX_QUESTION = 160
_PASSED_BYTES = 8 * 1024 * 1024
_ALL_BYTES = 32 * 1024 * 1024
_MOST_TAGS = 500
_MOST_CAUSES = 1_000
_CAUSE_CASES = 5


class Cause(NamedTuple):
    """Why answers did not pass: how many of them, and the ids of the first cases."""

    reason: str
    answers: int
    cases: tuple[str, ...]
    has_more: bool


@dataclass
class Causes:
    """Reasons for which cases did not pass, counted; at most `_MOST_CAUSES` different ones."""

    _counts: Counter[str] = field(default_factory=Counter)
    _cases: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, case_id: str, record: Mapping[str, Any]) -> None:
        """Count the reasons of an answer, each once."""
        for reason in dict.fromkeys(_reasons(record["items"])):
            text = shorten(" ".join(reason.split()), _MAX_WHY)
            if text in self._counts or len(self._counts) < _MOST_CAUSES:
                self._counts[text] += 1
                cases = self._cases.setdefault(text, {})
                # One more than is shown, so that the page says that there are more.
                if len(cases) <= _CAUSE_CASES:
                    cases[case_id] = None

    def most_frequent(self, most: int) -> list[Cause]:
        """Return the reasons of most answers, of as many the first one first."""
        return [
            Cause(
                reason,
                answers,
                tuple(self._cases[reason])[:_CAUSE_CASES],
                len(self._cases[reason]) > _CAUSE_CASES,
            )
            for reason, answers in self._counts.most_common(most)
        ]


@dataclass
class PageData:
    """What report.js reads. `rows` is one JSON array, in pieces; `details` has a line a case."""

    rows: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    causes: Causes = field(default_factory=Causes)


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
                data.causes.add(case_id, answer.record)
        cells = [None if record is None else _cell(record) for record in records]
        tag_indices = [tags.setdefault(tag, len(tags)) for tag in _known_tags(facts, tags)]
        separator = ",\n" if number else "\n"
        row = [case_id, group, tag_indices, cells, _question(facts)]
        data.rows.append(separator + _dumps(row))
        passed = all(answer.record["passed"] for answer in answers)
        line = ""
        if size < (_PASSED_BYTES if passed else _ALL_BYTES):
            line = _dumps(_detail(facts, records))
            size += len(line)
        data.details.append(f"{line}\n")
    data.rows.append("\n]")
    data.tags = list(tags)
    return data


def _question(facts: CaseFacts) -> str | None:
    return None if facts.question is None else shorten(facts.question, _MAX_QUESTION)


def _known_tags(facts: CaseFacts, tags: Mapping[str, int]) -> Iterator[str]:
    return (tag for tag in facts.tags if tag in tags or len(tags) < _MOST_TAGS)


def _dumps(value: Any) -> str:
    return escape_data(orjson.dumps(value).decode())


def _cell(record: Mapping[str, Any]) -> list[Any]:
    items = record["items"]
    outcomes = {item["outcome"] or item["status"] for item in items}
    # A reducer may pass a case of which one iteration failed.
    worst = next((outcome for outcome in _WORST_FIRST if outcome in outcomes), "failed")
    outcome = "passed" if record["passed"] else worst
    if outcome == "passed" and not record["passed"]:
        outcome = "failed"
    measured = [item["metrics"]["latency_ms"] for item in items]
    latencies = [value for value in measured if value is not None]
    latency = sum(latencies) / len(latencies) if latencies else None
    why = "" if record["passed"] else shorten(_counted_reasons(items), _MAX_WHY)
    cuts = dict.fromkeys(cut_mark(item.get("finish_reason")).removeprefix(", ") for item in items)
    why = "; ".join(filter(None, (*cuts, why)))
    if record.get("quarantined"):
        why = f"quarantined; {why}" if why else "quarantined"
    return [OUTCOMES.index(outcome), record["score"], latency, why, len(items)]


def _counted_reasons(items: Sequence[Mapping[str, Any]]) -> str:
    """Return the reasons of all iterations; those of several once, with their number."""
    reasons = Counter(_reasons(items))
    return "; ".join(f"{n} × {reason}" if n > 1 else reason for reason, n in reasons.items())


def _reasons(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for item in items:
        if item["status"] != "completed":
            yield (item["error"] or {}).get("message") or item["reason"] or item["status"]
        missed = [each for each in item["assertions"] if each["outcome"] != "passed"]
        if item["status"] == "completed" and item["reason"] and not missed:
            yield item["reason"]
        for assertion in missed:
            yield f"{assertion['name']}: {assertion['message'] or assertion['outcome']}"


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
    points = [
        [point.get("passed"), _text(point.get("text")), _text(point.get("evidence"))]
        for point in details.get("assertions") or ()
        if isinstance(point, Mapping)
    ]
    votes = [
        [vote.get("judge"), vote.get("score")]
        for vote in details.get("votes") or ()
        if isinstance(vote, Mapping)
    ]
    reasoning = details.get("reasoning")
    if not isinstance(reasoning, str):
        reasoning = None
    return [_text(reasoning), points, votes] if reasoning or points or len(votes) > 1 else None


def _text(text: str | None) -> str | None:
    if text is None or len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n… ({len(text) - _MAX_TEXT} more characters)"


def html_templates(folder: Path) -> Environment:
    """Return the templates of a folder; the filter `visible` shows invisible characters.

    `plural` gives the noun of a count: `{{ count }} {{ count|plural("case") }}`.
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

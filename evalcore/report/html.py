"""The report as one HTML file: no request leaves it, nothing in its data is ever executed.

Styles and script stand in the file, and its content security policy allows exactly these, by their
hashes. Foreign text reaches the page as escaped text, or as data that the script shows as text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from evalcore.model.gate import Decision, GateOutcome
from evalcore.model.latency_text import latency_text
from evalcore.report.changes import (
    IMPROVEMENT,
    MISSING,
    REGRESSION,
    baseline_name,
    changed_cases,
    changes,
    compared,
    measure_changes,
    no_comparison,
)
from evalcore.report.costs import tokens_text, usd_text
from evalcore.report.document import Report
from evalcore.report.durations import duration_text
from evalcore.report.escape import escape_data
from evalcore.report.html_data import page_data
from evalcore.report.html_templates import html_templates
from evalcore.report.intervals import (
    figure_texts,
    latency_ends_text,
    rate_text,
    score_text,
    total_text,
    variant_texts,
)
from evalcore.report.notes import note_lines
from evalcore.report.quarantine import quarantine_lines
from evalcore.report.variant_measures import measure_columns
from evalcore.report.view import ReportView

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
    from evalcore.report.charts.drawing import chart_svg
    from evalcore.report.charts.themes import THEMES
    from evalcore.report.charts.trend import trend_spec

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

"""The report as Markdown: for pull requests, job summaries and Prefect artifacts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evalcore.model.failure import Failure
from evalcore.model.gate import GateOutcome
from evalcore.report.document import Report

_MARKS = {GateOutcome.PASS: "✅", GateOutcome.FAIL: "❌", GateOutcome.INCONCLUSIVE: "❔"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")
_MAX_TEXT = 300


def render_markdown(report: Report, failures: Sequence[Failure]) -> str:
    """Return the report; every foreign text is escaped for Markdown."""
    return "\n".join(_lines(report, failures)) + "\n"


def _lines(report: Report, failures: Sequence[Failure]) -> Iterator[str]:
    counts, summary = report.summary.counts, report.summary
    yield f"# {escape(report.suite)}: {report.decision}"
    yield ""
    score = "–" if summary.score is None else f"{summary.score:.4f}"
    yield "| planned | passed | failed | blocked | in error | pass rate | score |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    yield (
        f"| {counts.planned} | {counts.passed} | {counts.failed} | {counts.blocked} "
        f"| {counts.error} | {summary.pass_rate:.1%} | {score} |"
    )
    yield ""
    yield "| gate | outcome | why |"
    yield "|---|---|---|"
    for gate in report.gates:
        mark = _MARKS[gate.outcome]
        yield f"| {escape(gate.name)} | {mark} {gate.outcome} | {escape(gate.message)} |"
    if failures:
        yield ""
        yield "## What did not pass"
        yield ""
        yield "| case | variant | outcome | why |"
        yield "|---|---|---|---|"
        for failure in failures:
            yield _failure_row(failure)
    unlisted = counts.planned - counts.passed - len(failures)
    if unlisted > 0:
        yield ""
        yield f"{unlisted} more did not pass; `report.json` lists them."
    yield ""
    yield (
        f"Run `{report.run.id}` ({report.format}, {report.run.mode}), "
        f"{report.run.duration_s:.1f} s, started {report.run.started_at}."
    )


def _failure_row(failure: Failure) -> str:
    if failure.status == "completed":
        reasons = [
            f"{assertion.name}: {assertion.message or assertion.outcome}"
            for assertion in failure.assertions
        ]
    else:
        reasons = [failure.error_message or failure.reason or failure.status]
    why = "<br>".join(escape(reason) for reason in reasons[:5])
    outcome = failure.outcome or failure.status
    return f"| {escape(failure.case)} | {escape(failure.variant)} | {outcome} | {why} |"


def escape(text: str) -> str:
    """Return foreign text as inert Markdown on one line, cut to 300 characters."""
    cut = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    printable = "".join(letter if letter.isprintable() else " " for letter in cut)
    return _SPECIAL.sub(r"\\\1", printable).replace("\\<", "&lt;").replace("\\>", "&gt;")

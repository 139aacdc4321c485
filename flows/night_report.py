"""One report of many suites: every gate of every suite, in a table and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefect.client.schemas.objects import State

from evalcore.report.document import Report
from evalcore.report.escape import escape_markdown, fenced, inert_message
from flows import states
from flows.publish import gate_row

PASSED = "Passed"
_LONGEST_CELL = 1_000


@dataclass(frozen=True)
class SuiteEnd:
    """What became of one suite: its flow run's state, and its report if it came to a decision."""

    suite: str
    state: State[Any]
    report: Report | None = None

    @property
    def decision(self) -> str:
        """The decision in one word."""
        return PASSED if self.state.is_completed() else states.named(self.state)


def night_rows(ends: Sequence[SuiteEnd]) -> list[dict[str, Any]]:
    """Return all gates as rows of a table; a suite without a decision has one row that says why."""
    rows: list[dict[str, Any]] = []
    for end in ends:
        fields = {"suite": inert_message(end.suite), "decision": end.decision}
        if end.report is None:
            nothing = {"gate": "–", "outcome": "–", "message": end.state.message or ""}
            rows.append(fields | {"run": "–"} | nothing)
        else:
            run = end.report.run.id
            rows.extend(fields | {"run": run} | gate_row(gate) for gate in end.report.gates)
    return rows


def night_markdown(ends: Sequence[SuiteEnd], state: State[Any]) -> str:
    """Return the report: the decision, a line for each suite, then the gates."""
    decision = PASSED if state.is_completed() else states.named(state)
    passed = sum(end.decision == PASSED for end in ends)
    lines = [f"# Nightly: {decision}", "", f"{passed} of {len(ends)} suites passed.", ""]
    lines += _table(
        ("suite", "decision", "score", "pass rate", "cases", "run"), [_suite_line(e) for e in ends]
    )
    for end in ends:
        lines += ["", f"## {_cell(end.suite)}: {end.decision}", ""]
        if end.report is None:
            # What a file says of itself is shown as it is, never as Markdown.
            lines.append(fenced(end.state.message or ""))
        else:
            gates = [(g.name, str(g.outcome), g.message) for g in end.report.gates]
            lines += _table(("gate", "outcome", "message"), gates)
    return "\n".join(lines) + "\n"


def _suite_line(end: SuiteEnd) -> tuple[str, ...]:
    if end.report is None:
        return (end.suite, end.decision, "–", "–", "–", "–")
    summary = end.report.summary
    score = "–" if summary.score is None else f"{summary.score:.4f}"
    cases = f"{summary.passed_cases} of {summary.cases}"
    return (end.suite, end.decision, score, f"{summary.pass_rate:.4f}", cases, end.report.run.id)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruler = ["---"] * len(head)
    return ["| " + " | ".join(map(_cell, row)) + " |" for row in (head, ruler, *rows)]


def _cell(text: str) -> str:
    """Return text as a table's cell shows it: on one line, none of it as Markdown or HTML."""
    return text if text == "---" else escape_markdown(text, _LONGEST_CELL)

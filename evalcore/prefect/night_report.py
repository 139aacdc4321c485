"""One report of many suites: every gate of every suite, in a table and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefect.client.schemas.objects import State

from evalcore.mistakes.wording import counted
from evalcore.model.gate import Decision
from evalcore.prefect import states
from evalcore.prefect.night_history import FailingCase, NightHistory
from evalcore.prefect.publish import PublishedRun, gate_row
from evalcore.report.document import Report
from evalcore.report.escape import escape_markdown, fenced, inert_message
from evalcore.report.message import LISTED_CASES
from evalcore.report.quarantine import quarantine_lines

PASSED = "Passed"
_LONGEST_CELL = 1_000


@dataclass(frozen=True)
class SuiteEnd:
    """What became of one suite: its flow run's state, and its report if it came to a decision."""

    suite: str
    state: State[Any]
    report: Report | None = None
    published: PublishedRun | None = None
    history: NightHistory | None = None

    @property
    def decision(self) -> str:
        """The decision in one word."""
        return PASSED if self.state.is_completed() else states.named(self.state)

    @property
    def has_changed(self) -> bool:
        """Whether it decided otherwise than in its run before, or came to no decision at all."""
        if self.report is None:
            return not self.state.is_completed()
        before = None if self.history is None else self.history.before
        return self.report.decision != (before or Decision.PASS)


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
    lines = [f"# Nightly: {decision}", "", f"{passed} of {counted(len(ends), 'suite')} passed.", ""]
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
            lines += _what_changed(end)
            lines += _failing_cases(end)
            lines += _links(end)
    return "\n".join(lines) + "\n"


def _what_changed(end: SuiteEnd) -> list[str]:
    if end.history is None:
        return []
    lines = []
    if end.has_changed and end.history.before is not None:
        lines += ["", f"The run before decided {escape_markdown(end.history.before)}."]
    if end.history.changes:
        lines += ["", f"Changed since: {_cell('; '.join(end.history.changes))}."]
    if end.history.ready:
        ready = _cell(", ".join(end.history.ready))
        lines += ["", f"Ready to return from quarantine: {ready}."]
    return lines


def _links(end: SuiteEnd) -> list[str]:
    """Return the entries of the quarantine, and the links to the run's report."""
    if end.published is None:
        return []
    entries = quarantine_lines(end.published.report.quarantine)
    lines = [f"- {escape_markdown(line)}" for line in entries]
    links = [f"[{escape_markdown(name)}]({address})" for name, address in end.published.links]
    return [*([""] if lines else []), *lines, *([""] if links else []), *links]


def _failing_cases(end: SuiteEnd) -> list[str]:
    """Return the first cases that failed, each with an assertion, both values, and since when."""
    if end.published is None or not end.published.failures:
        return []
    failing = () if end.history is None else end.history.failing
    histories = {(case.case, case.variant): case for case in failing}
    rows = []
    for failure in end.published.failures[:LISTED_CASES]:
        missed = next(iter(failure.assertions), None)
        reason = failure.error_message or failure.reason or failure.outcome or failure.status
        why = reason if missed is None else f"{missed.name}: {missed.message or missed.outcome}"
        expected = (missed.expected if missed else None) or "–"
        actual = (missed.actual if missed else None) or "–"
        history = histories.get((failure.case, failure.variant))
        name = f"{failure.case} [{failure.variant}]"
        rows.append((name, why, expected, actual, failing_since(history)))
    lines = ["", *_table(("case", "why", "expected", "actual", "fails since"), rows)]
    more = end.published.report.summary.counts
    unlisted = more.planned - more.passed - more.skipped - len(rows)
    return [*lines, "", f"{unlisted} more did not pass."] if unlisted > 0 else lines


def failing_since(history: FailingCase | None) -> str:
    """Return since which run a case fails and in which it passed last; a dash where unknown."""
    if history is None or history.since is None:
        return "–"
    if history.is_new:
        return f"this run; passed in {history.last_pass}"
    if history.last_pass is None:
        return f"{history.since}; never passed"
    return f"{history.since}; last passed in {history.last_pass}"


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

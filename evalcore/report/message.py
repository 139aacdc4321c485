"""The message that tells people of a run's decision: no markup in it comes from data."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from evalcore.model.summary import Failure
from evalcore.redaction.redactor import PROCESS
from evalcore.report.document import Report
from evalcore.report.escape import escape_markdown, visible
from evalcore.report.figures import quarantine_lines
from evalcore.report.view import compared_values, item_reasons, missed
from evalcore.wording import counted

LISTED_CASES: Final = 10
_MOST: Final = 300


@dataclass(frozen=True, slots=True)
class Notice:
    """A message without secrets: `title` is one line of plain text, `body` is Markdown."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """What a message says besides the report.

    `before` is the decision of the suite's run before, `changes` what changed since, `links` are
    names and addresses.
    """

    before: str | None = None
    changes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


def decision_message(
    report: Report, failures: Sequence[Failure], context: DecisionContext
) -> Notice:
    """Return the message of a decided run; of the failed cases it has the first ten."""
    was = "" if context.before in {None, str(report.decision)} else f" (was {context.before})"
    title = plain(f"{report.suite}: {report.decision}{was}")
    return Notice(title, "\n".join(_lines(report, failures, context)))


def _lines(report: Report, failures: Sequence[Failure], context: DecisionContext) -> Iterator[str]:
    summary = report.summary
    yield f"{summary.passed_cases} of {counted(summary.cases, 'case')} passed."
    undecided = [gate for gate in report.gates if not gate.passed]
    if undecided:
        yield heading("Gates")
        for gate in undecided:
            yield f"- {safe(gate.name)} ({gate.outcome}): {safe(gate.message)}"
    gating = [each for each in failures if report.quarantine.entry_of(each.case) is None]
    if gating:
        yield heading("Cases")
        yield from (failure_line(each) for each in gating[:LISTED_CASES])
        if len(gating) > LISTED_CASES:
            yield "- and more"
    if report.quarantine.expired:
        yield heading("Quarantine")
        for line in quarantine_lines(report.quarantine):
            yield f"- {safe(line)}"
    if context.changes:
        yield heading("Changed since the run before")
        for change in context.changes:
            yield f"- {safe(change)}"
    yield f"\nRun {safe(report.run.id)}"
    for name, address in context.links:
        yield link(name, address)


def failure_line(failure: Failure) -> str:
    """Return a line of a list: the case, and why it did not pass."""
    item = failure.item
    why, *_ = item_reasons(item) or [item["outcome"] or "failed"]
    detail = ""
    if item["status"] == "completed" and (assertions := missed(item)):
        values = compared_values(assertions[0])
        shown = ", ".join(f"{name} {safe(text)}" for name, text in values)
        detail = f" ({shown})" if shown else ""
    return f"- {safe(f'{failure.case} [{failure.variant}]')}: {safe(why)}{detail}"


def heading(text: str) -> str:
    """Return the heading of a list."""
    return f"\n**{text}**\n"


def link(name: str, address: str) -> str:
    """Return a link as a paragraph of its own."""
    return f"\n[{safe(name)}]({address})"


def without_marks(body: str) -> str:
    """Return a message as plain text: links as `name: address`, headings with a colon."""
    body = re.sub(r"^\[(.*)\]\((\S+)\)$", r"\1: \2", body, flags=re.MULTILINE)
    body = re.sub(r"^\*\*(.*)\*\*\n", r"\1:", body, flags=re.MULTILINE)
    return html.unescape(re.sub(r"\\(\W)", r"\1", body))


def plain(text: str) -> str:
    """Return foreign text without secrets on one line."""
    return visible(" ".join(PROCESS.text(text).split()))[:_MOST]


def safe(text: str) -> str:
    """Return foreign text without secrets as inert Markdown on one line."""
    return escape_markdown(PROCESS.text(text), _MOST)

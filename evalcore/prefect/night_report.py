"""What a night says of its suites: every gate in a table and in Markdown, and one message.

A suite's history tells what changed, and since when its cases fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefect.client.schemas.objects import State

from evalcore.history.trend import CaseHistory, SuiteHistory, returning_cases
from evalcore.model.gate import Decision
from evalcore.model.run import NotifyOn, NotifyPolicy
from evalcore.model.summary import Trend
from evalcore.pipeline.notify import decided_before
from evalcore.prefect import states
from evalcore.prefect.publish import FLOW_RUN_LINK, PAGE_LINK, PublishedRun, gate_row
from evalcore.report.document import Report
from evalcore.report.escape import escape_markdown, fenced, inert_message
from evalcore.report.figures import quarantine_lines
from evalcore.report.message import LISTED_CASES, MARKDOWN, PLAIN, MessageForm, Notice, plain
from evalcore.wording import counted

PASSED = "Passed"
_LONGEST_CELL = 1_000


@dataclass(frozen=True)
class FailingCase:
    """A case that does not pass: the first run since which it does not, and the last that it did.

    None where the history does not say. `runs` are those since. `is_new`: it passed in the suite's
    run before.
    """

    case: str
    variant: str
    since: str | None
    runs: int
    last_pass: str | None
    is_new: bool


@dataclass(frozen=True)
class NightHistory:
    """What the history says of a suite's run.

    `before` is the decision of the run before, None of none; `changes` is what changed since;
    `failing` are the first ten cases that fail; `ready` are quarantined cases that can return.
    """

    suite: str
    before: str | None
    changes: tuple[str, ...]
    failing: tuple[FailingCase, ...]
    ready: tuple[str, ...]


def look_back(published: PublishedRun) -> NightHistory:
    """Return what the history says of a run; the tables have to be up to date."""
    run, report = published.run, published.report
    cases = dict.fromkeys((each.case, each.variant) for each in published.failures)
    before = decided_before(run.store, report.suite, run.run_id)
    with SuiteHistory(run.store, report.suite, case_tables=True) as history:
        trend = history.trend()
        failing = tuple(
            _failing(history.case(case, variant), None if before is None else before.id)
            for case, variant in list(cases)[:LISTED_CASES]
        )
    ready = returning_cases(run.store, report.quarantine.active, suites=[report.suite])
    return NightHistory(
        suite=report.suite,
        before=None if before is None else before.decision,
        changes=_changes(trend, run.run_id),
        failing=failing,
        ready=tuple(entry.case for entry in ready),
    )


def _failing(groups: tuple[CaseHistory, ...], before: str | None) -> FailingCase:
    """Return since when a case fails, over its groups."""
    case = next((group for group in groups if group.failing), groups[0])
    last_pass = None if case.last_pass is None else case.last_pass.run_id
    return FailingCase(
        case=case.case_id,
        variant=case.variant,
        since=case.failing[0].run_id if case.failing else None,
        runs=len(case.failing),
        last_pass=last_pass,
        is_new=bool(case.failing) and last_pass is not None and last_pass == before,
    )


def _changes(trend: Trend, run_id: str) -> tuple[str, ...]:
    every = (*trend.points, *trend.partial)
    points = [point for point in every if point.run_id == run_id]
    return tuple(dict.fromkeys(change for point in points for change in point.changes))


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
        ("suite", "decision", "score", "pass rate", "cases", "run"), [_suite_row(e) for e in ends]
    )
    for end in ends:
        lines += ["", f"## {_cell(end.suite)}: {end.decision}", ""]
        if end.report is None:
            # What a file says of itself is shown as it is, never as Markdown.
            lines.append(fenced(end.state.message or ""))
        else:
            gates = [(_cell(g.name), str(g.outcome), _cell(g.message)) for g in end.report.gates]
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
        case = f"{failure.case} [{failure.variant}]"
        since = failing_since(
            histories.get((failure.case, failure.variant)), lambda run: _run_link(end, run)
        )
        rows.append((*map(_cell, (case, why, expected, actual)), since))
    lines = ["", *_table(("case", "why", "expected", "actual", "fails since"), rows)]
    more = end.published.report.summary.counts
    unlisted = more.planned - more.passed - more.skipped - len(rows)
    return [*lines, "", f"{unlisted} more did not pass."] if unlisted > 0 else lines


def failing_since(case: FailingCase | None, run: Callable[[str], str] = str) -> str:
    """Return since which run a case fails and in which it passed last; a dash where unknown.

    `run` shows a run by its id.
    """
    if case is None or case.since is None:
        return "–"
    if case.is_new and case.last_pass is not None:
        return f"this run; passed in {run(case.last_pass)}"
    passed = "never passed" if case.last_pass is None else f"last passed in {run(case.last_pass)}"
    return f"{run(case.since)} ({counted(case.runs, 'run')}); {passed}"


def _suite_row(end: SuiteEnd) -> tuple[str, ...]:
    if end.report is None:
        return (_cell(end.suite), end.decision, "–", "–", "–", "–")
    summary = end.report.summary
    score = "–" if summary.score is None else f"{summary.score:.4f}"
    cases = f"{summary.passed_cases} of {summary.cases}"
    run = _run_link(end, end.report.run.id)
    return (_cell(end.suite), end.decision, score, f"{summary.pass_rate:.4f}", cases, run)


def _run_link(end: SuiteEnd, run_id: str) -> str:
    """Return a run of the suite as a link: to its page in the viewer, else to its flow run."""
    links = {} if end.published is None else dict(end.published.links)
    address = None
    if PAGE_LINK in links:
        address = f"{links[PAGE_LINK].rpartition('/')[0]}/{run_id}"
    elif end.report is not None and run_id == end.report.run.id:
        address = links.get(FLOW_RUN_LINK)
    return run_id if address is None else f"[{run_id}]({address})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table of cells that are Markdown already."""
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def _cell(text: str) -> str:
    """Return text as a table's cell shows it: on one line, none of it as Markdown or HTML."""
    return escape_markdown(text, _LONGEST_CELL)


def is_night_due(policy: NotifyPolicy, ends: Sequence[SuiteEnd]) -> bool:
    """Whether a night is told of: with `change` if a suite changed or came to no decision."""
    if policy.on is NotifyOn.ALWAYS:
        return True
    if policy.on is NotifyOn.FAILURE:
        return any(end.decision != PASSED for end in ends)
    return any(end.has_changed for end in ends)


def night_message(
    ends: Sequence[SuiteEnd], state: State[object], links: Sequence[tuple[str, str]]
) -> Notice:
    """Return the message: suites that changed first, then those without a decision, then cases."""
    decision = PASSED if state.is_completed() else states.named(state)
    passed = sum(end.decision == PASSED for end in ends)
    title = plain(f"Nightly: {decision}, {passed} of {counted(len(ends), 'suite')} passed")
    body, text = ("\n".join(_message_lines(ends, links, form)) for form in (MARKDOWN, PLAIN))
    return Notice(title, body, text)


def _message_lines(
    ends: Sequence[SuiteEnd], links: Sequence[tuple[str, str]], form: MessageForm
) -> Iterator[str]:
    safe = form.safe
    changed = [end for end in ends if end.report is not None and end.has_changed]
    if changed:
        yield form.heading("Suites that changed")
        for end in changed:
            before = end.history.before if end.history is not None else None
            was = f" (was {before})" if before else ""
            yield f"- {safe(end.suite)}: {end.decision}{was}"
    undecided = [end for end in ends if end.report is None and end.decision != PASSED]
    if undecided:
        yield form.heading("Suites without a decision")
        for end in undecided:
            yield f"- {safe(end.suite)}: {end.decision}: {safe(end.state.message or '')}"
    yield from _message_cases(ends, form)
    still = [end for end in ends if end.decision != PASSED and not end.has_changed]
    if still:
        yield form.heading("Suites that still do not pass")
        for end in still:
            yield f"- {safe(end.suite)}: {end.decision}"
    for name, address in links:
        yield form.link(name, address)
    yield from _message_links(ends, form)


def _message_cases(ends: Sequence[SuiteEnd], form: MessageForm) -> Iterator[str]:
    safe = form.safe
    failing = [
        (end, case) for end in ends if end.history is not None for case in end.history.failing
    ]
    for heading, is_new in (
        ("Cases that passed the night before", True),
        ("Cases that fail for longer", False),
    ):
        cases = [(end, case) for end, case in failing if case.is_new is is_new]
        if cases:
            yield form.heading(heading)
        for end, case in cases:
            since = "" if case.since is None else f", fails since {failing_since(case)}"
            yield f"- {safe(end.suite)}: {safe(f'{case.case} [{case.variant}]')}{safe(since)}"


def _message_links(ends: Sequence[SuiteEnd], form: MessageForm) -> Iterator[str]:
    for end in ends:
        if end.published is not None:
            run = f"{end.suite}, run {end.published.report.run.id}"
            for name, address in end.published.links:
                yield form.link(f"{run}: {name}", address)

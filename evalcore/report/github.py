"""The report as workflow commands of GitHub Actions: annotations at the suite's file.

GitHub shows ten errors and ten warnings of a step and drops the others in silence; so the tenth
says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evalcore.model.run import Decision, GateOutcome
from evalcore.model.summary import Failure
from evalcore.report.comparison import REGRESSION, CaseChange, changes
from evalcore.report.document import Report
from evalcore.report.escape import escape_command, escape_command_property
from evalcore.report.view import ReportView, compared_values, item_reasons, missed
from evalcore.wording import counted, shorten

MOST_OF_A_KIND = 10
_MAX_MESSAGE = 2_000
_MAX_TEXT = 400
_NOTED_FAILURES = 200
_LEVELS = {
    Decision.PASS: "notice",
    Decision.FAIL: "error",
    Decision.ERROR: "error",
    Decision.INCONCLUSIVE: "warning",
}


class Annotation(NamedTuple):
    """One workflow command; `level` is `error`, `warning` or `notice`."""

    level: str
    title: str
    message: str
    file: str

    def __str__(self) -> str:
        properties = {"file": self.file, "title": self.title}
        written = ",".join(f"{name}={escape_command_property(v)}" for name, v in properties.items())
        return f"::{self.level} {written}::{escape_command(shorten(self.message, _MAX_MESSAGE))}"


def render(view: ReportView) -> Iterator[str]:
    """Yield a line for each annotation; the first one sums the run up."""
    report = view.report
    failures = view.failures(_NOTED_FAILURES)
    file = view.source_file
    head = Annotation(
        _LEVELS[report.decision],
        f"{report.suite}: {report.decision}",
        summary_line(report),
        file,
    )
    allowed = report.decision is Decision.PASS
    noted = [
        *_of_gates(report, file),
        *(
            _of_change(change, file, level="notice" if change.allowed else "warning")
            for change in changes(report)
            if change.direction == REGRESSION
        ),
        *(
            _of_failure(failure, file, level=_failure_level(report, failure))
            for failure in failures
            if failure.item["status"] != "skipped"
        ),
    ]
    counts = report.summary.counts
    not_passed = counts.failed + counts.blocked + counts.error + counts.cancelled
    unlisted = max(0, not_passed - len(failures))
    yield f"{head}\n"
    for level in ("error", "warning", "notice"):
        of_level = [annotation for annotation in noted if annotation.level == level]
        room = MOST_OF_A_KIND - (head.level == level)
        more = unlisted if level == ("warning" if allowed else "error") else 0
        yield from _bounded(of_level, room, more, file)


def summary_line(report: Report) -> str:
    """Return the counts of a run, its score and what its gates said, in one line."""
    counts = report.summary.counts
    parts = [f"{counts.passed} of {counted(counts.planned, 'item')} passed"]
    for name in ("failed", "blocked", "error", "skipped", "cancelled"):
        if number := getattr(counts, name):
            parts.append(f"{number} in error" if name == "error" else f"{number} {name}")
    if report.summary.score is not None:
        parts.append(f"score {report.summary.score:.4f}")
    return f"{', '.join(parts)} (run {report.run.id})"


def _bounded(annotations: Sequence[Annotation], room: int, more: int, file: str) -> Iterator[str]:
    """Yield as many annotations as there is room for, the last one telling of the others."""
    unseen = len(annotations) + more - room
    listed = annotations if unseen <= 0 else annotations[: room - 1]
    for annotation in listed:
        yield f"{annotation}\n"
    if unseen > 0 and annotations:
        left = len(annotations) + more - len(listed)
        message = f"{left} more; the job summary and the run's report list them"
        yield f"{Annotation(annotations[0].level, 'and more', message, file)}\n"


def _of_gates(report: Report, file: str) -> Iterator[Annotation]:
    for gate in report.gates:
        if gate.outcome is not GateOutcome.PASS:
            level = "error" if gate.outcome is GateOutcome.FAIL else "warning"
            why = gate.message if gate.remedy is None else f"{gate.message}; {gate.remedy}"
            yield Annotation(level, f"gate {gate.name}: {gate.outcome}", why, file)


def _failure_level(report: Report, failure: Failure) -> str:
    """Return `error` for a failure; `warning` in a run that passes in spite of it.

    A quarantined case is only noted.
    """
    if report.quarantine.entry_of(failure.case) is not None:
        return "notice"
    allowed = report.decision is Decision.PASS or failure.item["outcome"] == "blocked"
    return "warning" if allowed else "error"


def _of_change(change: CaseChange, file: str, *, level: str) -> Annotation:
    message = f"against {change.baseline}: {change.detail}"
    title = f"regression: {change.case} [{change.variant}]"
    return Annotation(level, title, message, file)


def _of_failure(failure: Failure, file: str, *, level: str) -> Annotation:
    item = failure.item
    title = f"{failure.case} [{failure.variant}]: {item['outcome'] or item['status']}"
    lines = []
    for assertion in missed(item) if item["status"] == "completed" else ():
        lines.append(f"{assertion['name']}: {assertion['message'] or assertion['outcome']}")
        for name, text in compared_values(assertion):
            lines.append(f"  {name + ':':<9} {shorten(text, _MAX_TEXT)}")
    message = "\n".join(lines or item_reasons(item))
    return Annotation(level, title, message, file)

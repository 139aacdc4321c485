"""The report on a terminal: what failed first, with actual and expected; then the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from evalcore.model.failure import FailedAssertion, Failure
from evalcore.model.gate import Decision, GateOutcome
from evalcore.report.document import Report

Line = tuple[str | None, str]
Clean = Callable[[str], str]

_MARKS = {
    GateOutcome.PASS: ("green", "✓"),
    GateOutcome.FAIL: ("red", "✗"),
    GateOutcome.INCONCLUSIVE: ("yellow", "?"),
}
_COLOURS = {
    Decision.PASS: "green",
    Decision.FAIL: "red",
    Decision.INCONCLUSIVE: "yellow",
    Decision.ERROR: "magenta",
}
_WIDTH = 160


def render_terminal(report: Report, failures: Sequence[Failure], *, clean: Clean) -> Iterator[Line]:
    """Yield (colour or None, line); `clean` makes foreign text safe for a terminal."""
    for failure in failures:
        yield from _failure(failure, clean)
    counts, summary = report.summary.counts, report.summary
    unlisted = counts.planned - counts.passed - len(failures)
    if unlisted > 0:
        yield None, f"… and {unlisted} more that did not pass (report.json lists them)"
    if failures:
        yield None, ""
    yield None, clean(f"{report.suite} ({report.format}): {_counted(report)}")
    measured = [f"pass rate {summary.pass_rate:.1%}"]
    if summary.score is not None:
        measured.append(f"score {summary.score:.4f}")
    if summary.p50_latency_ms is not None:
        measured.append(f"latency p50 {summary.p50_latency_ms:.0f} ms")
        measured.append(f"p95 {summary.p95_latency_ms:.0f} ms")
    if summary.total_cost_usd is not None:
        measured.append(f"cost {summary.total_cost_usd:.4f} USD")
    if report.run.reexecuted:
        measured.append(f"{report.run.reexecuted} items executed again")
    yield None, "  " + ", ".join(measured)
    for gate in report.gates:
        colour, mark = _MARKS[gate.outcome]
        yield colour, clean(f"  {mark} {gate.name}: {gate.message}")
    if not summary.adds_up:
        yield "red", "  ✗ the counts do not add up: planned items are missing from the results"
    duration = f"{report.run.duration_s:.1f} s"
    yield _COLOURS[report.decision], f"{report.decision.upper()} in {duration}"


def _counted(report: Report) -> str:
    counts = report.summary.counts
    parts = [f"{counts.passed} passed"]
    for name in ("failed", "blocked", "error", "skipped", "cancelled"):
        number = getattr(counts, name)
        if number:
            parts.append(f"{number} {name}" if name != "error" else f"{number} in error")
    noun = "item" if counts.planned == 1 else "items"
    return f"{counts.planned} {noun}: {', '.join(parts)}"


def _failure(failure: Failure, clean: Clean) -> Iterator[Line]:
    where = f"{failure.case} [{failure.variant}]"
    if failure.iteration:
        where += f" iteration {failure.iteration}"
    if failure.status != "completed":
        yield "magenta", clean(f"! {where}: {failure.status}")
        said = failure.error_message or failure.reason or ""
        yield None, f"    {_cut(clean(said))}"
        return
    score = "" if failure.score is None else f", score {failure.score:.4f}"
    yield "red", clean(f"✗ {where}: {failure.outcome}{score}")
    for assertion in failure.assertions:
        yield from _assertion(assertion, clean)


def _assertion(assertion: FailedAssertion, clean: Clean) -> Iterator[Line]:
    block = f"{assertion.block}: " if assertion.block else ""
    mark = {"error": "!", "blocked": "–"}.get(assertion.outcome, "✗")
    message = f": {assertion.message}" if assertion.message else ""
    yield None, _cut(clean(f"    {mark} {block}{assertion.name}{message}"))
    if assertion.outcome == "failed":
        if assertion.expected is not None:
            yield None, f"        expected  {_cut(_one_line(clean(assertion.expected)))}"
        if assertion.actual is not None:
            yield None, f"        actual    {_cut(_one_line(clean(assertion.actual)))}"


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n")


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"

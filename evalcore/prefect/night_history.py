"""What a suite's history says of the run of this night: what changed, and since when cases fail."""

from __future__ import annotations

from dataclasses import dataclass

from evalcore.history.returning_cases import returning_cases
from evalcore.history.trend import CaseHistory, SuiteHistory
from evalcore.model.trend import Trend
from evalcore.pipeline.notify import decided_before
from evalcore.prefect.publish import PublishedRun
from evalcore.report.charts.drawing import chart_png
from evalcore.report.charts.trend import trend_spec
from evalcore.report.message import LISTED_CASES

_MIN_POINTS = 2


@dataclass(frozen=True)
class FailingCase:
    """A case that does not pass: the first run since which it does not, and the last that it did.

    None where the history does not say. `is_new`: it passed in the suite's run before.
    """

    case: str
    variant: str
    since: str | None
    last_pass: str | None
    is_new: bool


@dataclass(frozen=True)
class NightHistory:
    """What the history says of a suite's run.

    `before` is the decision of the run before, None of none; `changes` is what changed since;
    `failing` are the first ten cases that fail; `ready` are quarantined cases that can return;
    `trend_png` is the trend of the score if there are two runs.
    """

    suite: str
    before: str | None
    changes: tuple[str, ...]
    failing: tuple[FailingCase, ...]
    ready: tuple[str, ...]
    trend_png: bytes | None


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
    enough = len({point.run_id for point in trend.points}) >= _MIN_POINTS
    return NightHistory(
        suite=report.suite,
        before=None if before is None else before.decision,
        changes=_changes(trend, run.run_id),
        failing=failing,
        ready=tuple(entry.case for entry in ready),
        trend_png=chart_png(trend_spec(trend)) if enough else None,
    )


def _failing(groups: tuple[CaseHistory, ...], before: str | None) -> FailingCase:
    """Return since when a case fails, over its groups."""
    case = next((group for group in groups if group.failing), groups[0])
    last_pass = None if case.last_pass is None else case.last_pass.run_id
    return FailingCase(
        case=case.case_id,
        variant=case.variant,
        since=case.failing[0].run_id if case.failing else None,
        last_pass=last_pass,
        is_new=bool(case.failing) and last_pass is not None and last_pass == before,
    )


def _changes(trend: Trend, run_id: str) -> tuple[str, ...]:
    every = (*trend.points, *trend.partial)
    points = [point for point in every if point.run_id == run_id]
    return tuple(dict.fromkeys(change for point in points for change in point.changes))

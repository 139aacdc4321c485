"""The trend that a run's report shows: the earlier runs in the history, then the run itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from evalcore.errors import EvalError
from evalcore.model.trend import Metric, Trend, TrendPoint
from evalcore.report.document import Report
from evalcore.statistics.estimates import estimate_mean
from evalcore.storage.object_store import ObjectStore

_HISTORY_LOG: Final = "history/runs/_delta_log/"
_MOST_POINTS: Final = 365


def run_trend(store: ObjectStore, report: Report, *, whole: bool) -> Trend | None:
    """Return the score of the suite up to this run; None without an earlier run in the history.

    A run that is not `whole` is no point of it.

    The history is taken as it is: a report does not bring it up to date. What cannot be read is
    left out, the report does not depend on it.
    """
    if next(iter(store.list(_HISTORY_LOG)), None) is None:
        return None
    from evalcore.history.trend import SuiteHistory

    try:
        with SuiteHistory(store, report.suite) as history:
            trend = history.trend(Metric.SCORE)
    except EvalError:
        return None
    started_at = datetime.fromisoformat(report.run.started_at)
    variants = {variant.variant for variant in report.summary.variants}
    earlier = [
        point
        for point in trend.points
        if point.started_at <= started_at and point.variant in variants
    ]
    if not any(point.run_id != report.run.id for point in earlier):
        return None
    if whole and not any(point.run_id == report.run.id for point in earlier):
        earlier += _own_points(report, started_at)
    return replace(trend, points=tuple(earlier[-_MOST_POINTS * len(variants) :]))


def _own_points(report: Report, started_at: datetime) -> list[TrendPoint]:
    points = []
    for variant in report.summary.variants:
        low, high = estimate_mean(variant.score_sample)[:2]
        decision = str(report.decision)
        points.append(
            TrendPoint(
                report.run.id, started_at, variant.variant, variant.score, low, high, decision
            )
        )
    return points

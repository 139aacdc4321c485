"""What an address chooses of a suite: its trend's metric and variant, and which runs are listed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, BeforeValidator

from evalcore.errors import UsageError
from evalcore.model.summary import Metric, Trend
from evalcore.viewer.catalogue import RunEntry
from evalcore.viewer.suite_overview import SuiteOverview

_Day = Annotated[date | None, BeforeValidator(lambda value: value or None)]


class SuiteQuery(BaseModel):
    """An empty value chooses nothing. `since` and `until` are days in UTC, both included."""

    metric: str = ""
    variant: str = ""
    outcome: str = ""
    mode: str = ""
    branch: str = ""
    since: _Day = None
    until: _Day = None
    after: str = ""

    def takes(self, run: RunEntry) -> bool:
        """Whether a run is listed on any page."""
        return (
            (not self.outcome or run.outcome == self.outcome)
            and (not self.mode or (run.manifest is not None and run.manifest.mode == self.mode))
            and (not self.branch or run.branch == self.branch)
            and self._has_day(run.created_at)
        )

    def page(self, runs: Sequence[RunEntry], most: int) -> tuple[list[RunEntry], str | None]:
        """Return at most `most` listed runs after `after`, in their order, and the next `after`.

        The next one is None on the last page.
        """
        ids = [run.id for run in runs]
        # Runs of one second are not in the order of their ids.
        if self.after in ids:
            runs = runs[ids.index(self.after) + 1 :]
        elif self.after:
            runs = [run for run in runs if run.id < self.after]
        listed = [run for run in runs if self.takes(run)]
        return listed[:most], listed[most - 1].id if len(listed) > most else None

    @property
    def limits_runs(self) -> bool:
        """Whether fewer than all runs are listed."""
        return any((self.outcome, self.mode, self.branch, self.since, self.until))

    def trend(self, overview: SuiteOverview) -> Trend | None:
        """Return the chosen trend over the chosen days; None if nothing is measured.

        Raises `UsageError` for a metric or variant that there is not.
        """
        if not overview.metrics:
            return None
        metric = self.chosen_metric(overview)
        whole = overview.trends[metric]
        if self.variant and self.variant not in whole.variants:
            names = ", ".join(whole.variants)
            raise UsageError(f"variant={self.variant!r}: the suite has {names}")
        points = tuple(
            point
            for point in whole.points
            if (not self.variant or point.variant == self.variant)
            and self._has_day(point.started_at)
        )
        return Trend(whole.suite, metric, points) if points else None

    def chosen_metric(self, overview: SuiteOverview) -> Metric:
        """Return the metric of the address, else the first that is measured."""
        if not self.metric:
            return Metric.PASS_RATE if Metric.PASS_RATE in overview.metrics else overview.metrics[0]
        try:
            return Metric(self.metric)
        except ValueError:
            raise UsageError(f"metric={self.metric!r}: one of {', '.join(Metric)}") from None

    def of_trend(self) -> dict[str, str]:
        """Return the part of the address that the trend depends on."""
        values = {"metric": self.metric, "variant": self.variant}
        days = {"since": self.since, "until": self.until}
        return values | {name: day.isoformat() for name, day in days.items() if day is not None}

    def _has_day(self, moment: datetime) -> bool:
        day = moment.astimezone(UTC).date()
        return (self.since or date.min) <= day <= (self.until or date.max)


ChosenRuns = Annotated[SuiteQuery, Query()]

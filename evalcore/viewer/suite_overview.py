"""How a suite went over its runs: trends by metric, flaky cases; what the history knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evalcore.model.summary import Metric, Trend

if TYPE_CHECKING:
    from evalcore.history.trend import FlakyCase, SuiteHistory


@dataclass(frozen=True, slots=True)
class SuiteOverview:
    """The trends of a suite, all variants, by metric; empty without a run that has ended.

    `flaky` are the cases that differ without a change of their work, the most often first.
    """

    trends: Mapping[Metric, Trend] = field(default_factory=dict)
    flaky: tuple[FlakyCase, ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants in the order in which they appear."""
        return next((trend.variants for trend in self.trends.values()), ())

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that a run has measured."""
        return tuple(
            metric
            for metric, trend in self.trends.items()
            if any(point.value is not None for point in trend.points)
        )


def read_overview(history: SuiteHistory) -> SuiteOverview:
    """Return the overview of a suite; the history has its cases."""
    return SuiteOverview({metric: history.trend(metric) for metric in Metric}, history.flaky())

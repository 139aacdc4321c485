"""How a suite's figures went over its runs: the points, and what changed between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from evalcore.model.latency_text import latency_text


class Metric(StrEnum):
    """A figure of a run that a trend shows."""

    SCORE = "score"
    PASS_RATE = "pass_rate"
    LATENCY = "latency"
    COST = "cost"
    TOKENS = "tokens"

    @property
    def heading(self) -> str:
        """What the figure is, for a heading or an axis."""
        return _TITLES[self]

    @property
    def is_share(self) -> bool:
        """Whether the figure lies between 0 and 1."""
        return self in {Metric.SCORE, Metric.PASS_RATE}

    def text(self, value: float | None) -> str:
        """Return a value for people, `–` for none."""
        if self is Metric.LATENCY:
            return latency_text(value)
        return "–" if value is None else _FORMS[self].format(value)


_TITLES: Mapping[Metric, str] = {
    Metric.SCORE: "score",
    Metric.PASS_RATE: "pass rate",
    Metric.LATENCY: "median latency (ms)",
    Metric.COST: "cost (USD)",
    Metric.TOKENS: "tokens",
}
_FORMS: Mapping[Metric, str] = {
    Metric.SCORE: "{:.4f}",
    Metric.PASS_RATE: "{:.1%}",
    Metric.COST: "{:,.4f}",
    Metric.TOKENS: "{:,.0f}",
}


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One run's figure of one variant. `started_at` is aware, in UTC.

    `low` and `high` are the ends of its 95 % interval, None where it has none. `decision` is the
    run's, or the state of a run without one. `changes` says in short texts what differs from the
    point before of the variant. `part` says why the run is of a part of its suite, None for a whole
    run.
    """

    run_id: str
    started_at: datetime
    variant: str
    value: float | None
    low: float | None = None
    high: float | None = None
    decision: str = "pass"
    changes: tuple[str, ...] = ()
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """The points of a suite's whole runs, oldest first; those of one run stand together.

    `partial` are those of runs of a part of the suite, which no trend counts.
    """

    suite: str
    metric: Metric
    points: tuple[TrendPoint, ...]
    partial: tuple[TrendPoint, ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants in the order in which they appear."""
        return tuple(dict.fromkeys(point.variant for point in self.points))

"""Trends for a terminal: sparklines, intervals, and what changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from evalcore.model.trend import Metric, Trend, TrendPoint

_BARS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = "·"
_MOST_BARS: Final = 80


def sparkline(values: list[float | None], most: int = _MOST_BARS) -> str:
    """Return one bar for each of the last values, from the least to the largest; `·` for None."""
    bars = values[-most:]
    measured = [value for value in bars if value is not None]
    if not measured:
        return _GAP * len(bars)
    low, width = min(measured), max(measured) - min(measured)
    top = len(_BARS) - 1
    return "".join(
        _GAP if value is None else _BARS[round((value - low) / width * top) if width else top // 2]
        for value in bars
    )


def interval_text(metric: Metric, point: TrendPoint) -> str:
    """Return the 95 % interval of a point; empty where it has none."""
    if point.low is None or point.high is None:
        return ""
    return f"{metric.text(point.low)}–{metric.text(point.high)}"


def trend_summaries(trend: Trend) -> Iterator[str]:
    """Yield a text for each variant: its last, least and largest value; for pictures of a trend."""
    for variant in trend.variants:
        name = f"{variant}: " if len(trend.variants) > 1 else ""
        yield f"{name}{_summary(trend, variant)}"


def _summary(trend: Trend, variant: str) -> str:
    metric = trend.metric
    values = [point.value for point in trend.points if point.variant == variant]
    measured = [value for value in values if value is not None]
    if not measured:
        return f"{metric.heading}: not measured"
    return (
        f"{metric.text(measured[-1])} last, {metric.text(min(measured))} least, "
        f"{metric.text(max(measured))} most"
    )


def trend_headings(trend: Trend) -> Iterator[str]:
    """Yield a line for each variant: its sparkline, its least, largest and last value."""
    for variant in trend.variants:
        values = [point.value for point in trend.points if point.variant == variant]
        name = f"{variant}  " if len(trend.variants) > 1 else ""
        bars = "" if all(value is None for value in values) else f"{sparkline(values)}  "
        yield f"{name}{bars}{_summary(trend, variant)}"

"""The trend of a suite as a Vega-Lite chart.

Values of the data never become parts of the chart's own expressions: names are shown as text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.errors import UsageError
from evalcore.mistakes.foreign_text import shorten
from evalcore.model.trend import Metric, Trend, TrendPoint
from evalcore.report.escape import escape_data, visible

Spec = dict[str, Any]

_WIDTH, _HEIGHT = 760, 280
_MOST_NAME = 40
# More intervals than these stand too close for single lines: they become a band.
_MOST_BARS: Final = 60
# More labels than these would cover each other.
_MOST_LABELS: Final = 6
_LABEL_LINES, _LABEL_HEIGHT = 3, 12
# From this share of the time on a text would leave the chart.
_LEFTWARD_FROM: Final = 0.6
_DAY_S: Final = 86_400
# Of each form the span up to which ticks are too close for the next one: their labels differ.
_TIME_FORMS: Final = (
    (600, "%d %b %H:%M:%S"),
    (8 * _DAY_S, "%d %b %H:%M"),
    (300 * _DAY_S, "%d %b"),
)
_LONG_TIME_FORM: Final = "%b %Y"
_DECISIONS: Final = ("pass", "fail", "inconclusive", "error", "not decided")
_SHAPES: Final = ("circle", "cross", "diamond", "triangle-up", "square")


@dataclass(frozen=True, slots=True)
class ChartTheme:
    """Colours as CSS writes them. `decisions` are pass, fail, inconclusive, error, not decided."""

    ground: str
    text: str
    soft: str
    line: str
    grid: str
    decisions: tuple[str, ...]
    variants: tuple[str, ...]


LIGHT: Final = ChartTheme(
    ground="white",
    text="#24292f",
    soft="#57606a",
    line="#8c959f",
    grid="#eaeef2",
    decisions=("#1a7f37", "#cf222e", "#9a6700", "#8250df", "#57606a"),
    variants=("#0969da", "#bc4c00", "#1b7c83", "#8250df", "#57606a", "#bf3989"),
)
DARK: Final = ChartTheme(
    ground="#111418",
    text="#e3e6ea",
    soft="#a3adb9",
    line="#6b7583",
    grid="#2a3037",
    decisions=("#5cc98a", "#ff8a83", "#e0b455", "#d295ee", "#a3adb9"),
    variants=("#79b0ff", "#ffa657", "#56d4dd", "#d295ee", "#a3adb9", "#ff9bce"),
)
THEMES: Final[Mapping[str, ChartTheme]] = {"light": LIGHT, "dark": DARK}


def trend_spec(trend: Trend, theme: ChartTheme = LIGHT) -> Spec:
    """Return the chart of a trend: lines with intervals, decisions as marks, changes as rules."""
    import altair

    rows = [_row(trend, point) for point in trend.points if point.value is not None]
    dense = max((_count(trend, variant) for variant in trend.variants), default=0) > _MOST_SPARKS
    base = _chart(rows)
    span_s = _span_s(trend)
    decisions = {row["decision"] for row in rows}
    layers = [
        _intervals(base, theme, span_s, dense=dense),
        _lines(base, trend, theme, span_s),
        _marks(base, decisions, theme, span_s, dense=dense),
    ]
    changed = _change_rows(trend)
    if changed:
        layers.insert(0, _change_rules(changed, theme, span_s))
        if len(changed) <= _MOST_LABELS:
            layers += _change_labels(changed, theme, _first(trend), span_s)
    chart = altair.layer(*layers).resolve_scale(color="independent", shape="independent")
    chart = chart.properties(
        width=_WIDTH,
        height=_HEIGHT,
        background=theme.ground,
        padding=12,
        title=altair.TitleParams(
            text=_name(trend.suite),
            subtitle=f"{trend.metric.heading} over {_runs(trend)}",
            anchor="start",
            fontSize=15,
            color=theme.text,
            subtitleColor=theme.soft,
        ),
    )
    # The check against Vega-Lite's schema takes seconds for a year of runs.
    spec: Spec = _configured(chart, theme).to_dict(validate=False)
    return spec


def _configured(chart: Any, theme: ChartTheme) -> Any:
    return (
        chart.configure_view(stroke=None)
        .configure_axis(
            grid=True,
            gridColor=theme.grid,
            domainColor=theme.line,
            tickColor=theme.line,
            labelColor=theme.text,
            titleColor=theme.soft,
            titleFontWeight="normal",
        )
        .configure_legend(
            labelLimit=260,
            labelColor=theme.text,
            titleColor=theme.soft,
            titleFontWeight="normal",
        )
    )


def _runs(trend: Trend) -> str:
    runs = len({point.run_id for point in trend.points})
    return "1 run" if runs == 1 else f"{runs:,} runs"


def _count(trend: Trend, variant: str) -> int:
    return sum(point.variant == variant for point in trend.points)


def _name(text: str) -> str:
    return shorten(" ".join(visible(text).split()), _MOST_NAME)


def _row(trend: Trend, point: TrendPoint) -> dict[str, Any]:
    decision = point.decision if point.decision in _DECISIONS else _DECISIONS[-1]
    return {
        "time": point.started_at.isoformat(),
        "run": point.run_id,
        "variant": _name(point.variant),
        "value": point.value,
        "low": point.low,
        "high": point.high,
        "decision": decision,
        "shown": trend.metric.text(point.value),
        "title": trend.metric.heading,
        "changes": _name("; ".join(point.changes)),
    }


def _change_rows(trend: Trend) -> list[dict[str, Any]]:
    """Return one row for each run at which something changed, of whichever variant."""
    texts: dict[str, list[str]] = {}
    times: dict[str, str] = {}
    for point in trend.points:
        if point.changes:
            times[point.run_id] = point.started_at.isoformat()
            changes = texts.setdefault(point.run_id, [])
            changes.extend(change for change in point.changes if change not in changes)
    return [
        {"time": times[run], "changes": _name("; ".join(changes))} for run, changes in texts.items()
    ]


def _span_s(trend: Trend) -> float:
    """Return the time from the first to the last point in seconds."""
    times = [point.started_at for point in trend.points]
    return (max(times) - min(times)).total_seconds() if times else 0.0


def _first(trend: Trend) -> datetime:
    return min(point.started_at for point in trend.points)


def _time(span_s: float) -> Any:
    import altair

    form = next((form for limit_s, form in _TIME_FORMS if span_s < limit_s), _LONG_TIME_FORM)
    axis = altair.Axis(
        title="UTC", labelOverlap=True, labelSeparation=8, tickCount=8, grid=False, format=form
    )
    return altair.X("time:T", axis=axis, scale=altair.Scale(type="utc", padding=14))


def _value(title: str | None, *, share: bool) -> Any:
    import altair

    axis = altair.Axis(title=title, tickCount=6, format=".2~f" if share else "~s")
    scale = altair.Scale(zero=False, nice=True, padding=8)
    return altair.Y("value:Q", axis=axis, scale=scale)


def _intervals(base: Any, theme: ChartTheme, span_s: float, *, dense: bool) -> Any:
    import altair

    bounds = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    colour = _variant_colour(theme, legend=False)
    if dense:
        mark = bounds.mark_area(opacity=0.16, line=False)
    else:
        mark = bounds.mark_rule(opacity=0.45, strokeWidth=2)
    return mark.encode(
        x=_time(span_s),
        y=altair.Y("low:Q"),
        y2=altair.Y2("high:Q"),
        color=colour,
        detail="variant:N",
    )


def _variant_colour(theme: ChartTheme, *, legend: bool) -> Any:
    import altair

    return altair.Color(
        "variant:N",
        scale=altair.Scale(range=list(theme.variants)),
        sort=None,
        legend=altair.Legend(title="variant", orient="right") if legend else None,
    )


def _lines(base: Any, trend: Trend, theme: ChartTheme, span_s: float) -> Any:
    metric = trend.metric
    return base.mark_line(strokeWidth=1.6).encode(
        x=_time(span_s),
        y=_value(metric.heading, share=metric.is_share),
        color=_variant_colour(theme, legend=len(trend.variants) > 1),
    )


def _marks(
    base: Any, shown_decisions: Collection[str], theme: ChartTheme, span_s: float, *, dense: bool
) -> Any:
    """Return the decisions as marks; in a dense chart those that did not pass."""
    import altair

    marked = base.transform_filter("datum.decision !== 'pass'") if dense else base
    decisions = [name for name in _DECISIONS if name in shown_decisions]
    numbers = [_DECISIONS.index(name) for name in decisions]
    domain = altair.Scale(domain=decisions, range=[theme.decisions[number] for number in numbers])
    shapes = altair.Scale(domain=decisions, range=[_SHAPES[number] for number in numbers])
    legend = altair.Legend(title="decision of the run", orient="right")
    return marked.mark_point(filled=True, size=16 if dense else 75, opacity=1).encode(
        x=_time(span_s),
        y=altair.Y("value:Q"),
        color=altair.Color("decision:N", scale=domain, legend=legend),
        shape=altair.Shape("decision:N", scale=shapes, legend=legend),
        tooltip=[
            altair.Tooltip("run:N", title="run"),
            altair.Tooltip("time:T", title="started (UTC)", format="%Y-%m-%d %H:%M"),
            altair.Tooltip("variant:N", title="variant"),
            altair.Tooltip("shown:N", title="value"),
            altair.Tooltip("low:Q", title="95 % from", format=".4~f"),
            altair.Tooltip("high:Q", title="95 % to", format=".4~f"),
            altair.Tooltip("decision:N", title="decision"),
            altair.Tooltip("changes:N", title="changed"),
        ],
    )


def _change_rules(rows: list[dict[str, Any]], theme: ChartTheme, span_s: float) -> Any:
    import altair

    chart = _chart(rows)
    return chart.mark_rule(strokeDash=[3, 3], color=theme.line, strokeWidth=1).encode(
        x=_time(span_s), tooltip=[altair.Tooltip("changes:N", title="changed")]
    )


def _change_labels(
    rows: list[dict[str, Any]], theme: ChartTheme, first: datetime, span_s: float
) -> list[Any]:
    """Return what changed as texts: neighbours on lines of their own, the last ones leftward.

    `first` is the time of the chart's first point, at its left edge.
    """
    import altair

    times = [datetime.fromisoformat(row["time"]) for row in rows]
    texts: dict[tuple[int, bool], list[dict[str, Any]]] = {}
    for number, (row, time) in enumerate(zip(rows, times, strict=True)):
        leftward = (time - first).total_seconds() > _LEFTWARD_FROM * span_s
        texts.setdefault((number % _LABEL_LINES, leftward), []).append(row)
    layers = []
    for (line, leftward), values in texts.items():
        text = _chart(values).mark_text(
            align="right" if leftward else "left",
            baseline="top",
            dx=-3 if leftward else 3,
            fontSize=10,
            color=theme.soft,
            limit=200,
        )
        top = altair.value(line * _LABEL_HEIGHT)
        layers.append(text.encode(x=_time(span_s), y=top, text="changes:N"))
    return layers


def _chart(rows: list[dict[str, Any]]) -> Any:
    import altair

    data: Any = altair.Data
    return altair.Chart(data(values=rows))


_SCALE: Final = 2.0


def chart_svg(spec: Spec) -> bytes:
    """Return the chart as SVG."""
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return text.encode()


def chart_png(spec: Spec) -> bytes:
    """Return the chart as PNG, at twice its size for screens of today."""
    import vl_convert

    data: bytes = vl_convert.vegalite_to_png(spec, scale=_SCALE, allowed_base_urls=[])
    return data


def chart_html(spec: Spec) -> bytes:
    """Return a page that shows the chart with its tooltips; it loads nothing."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(_SNIPPET)
    # `<script` and `</script` within the bundle would end or nest the element.
    bundle = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    data = escape_data(orjson.dumps(spec).decode())
    return _PAGE.format(data=data, bundle=bundle).encode()


_SNIPPET: Final = """
const spec = JSON.parse(document.getElementById("chart-data").textContent);
vegaEmbed("#chart", spec, {mode: "vega-lite", actions: false, ast: true});
"""
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:;
 script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>Trend</title>
<body style="margin:1rem;background:white">
<div id="chart"></div>
<script type="application/json" id="chart-data">{data}</script>
<script type="module">{bundle}</script>
</body>
</html>
"""

CHART_FORMS: Final[Mapping[str, Callable[[Spec], bytes]]] = {
    ".svg": chart_svg,
    ".png": chart_png,
    ".html": chart_html,
}


def check_chart_path(path: Path) -> None:
    """Raise `UsageError` unless a chart can be written to the file."""
    if path.suffix.lower() not in CHART_FORMS:
        raise UsageError(f"--chart: '{path}' ends in none of {', '.join(CHART_FORMS)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        reason = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UsageError(f"--chart: {path}: {reason}")


def draw_chart(spec: Spec, path: Path) -> None:
    """Write a chart to a file, of the form that the name's end says."""
    check_chart_path(path)
    data = CHART_FORMS[path.suffix.lower()](spec)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"--chart: {path} cannot be written: {error.strerror}") from error


_BARS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = "·"
_MOST_SPARKS: Final = 80


def sparkline(values: list[float | None], most: int = _MOST_SPARKS) -> str:
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

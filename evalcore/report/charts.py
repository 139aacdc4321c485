"""The trend of a suite as a Vega-Lite chart.

Values of the data never become parts of the chart's own expressions: names are shown as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.errors import UsageError
from evalcore.model.summary import Metric, Trend, TrendPoint
from evalcore.report.escape import escape_data, visible
from evalcore.wording import plural, shorten

Spec = dict[str, Any]

_WIDTH, _HEIGHT = 760, 280
_MOST_NAME = 40
_DAY_S: Final = 86_400
# Of each form the span up to which ticks are too close for the next one: their labels differ.
_TIME_FORMS: Final = (
    (600, "%d %b %H:%M:%S"),
    (8 * _DAY_S, "%d %b %H:%M"),
    (300 * _DAY_S, "%d %b"),
)
_LONG_TIME_FORM: Final = "%b %Y"
_DECISIONS: Final = ("pass", "fail", "inconclusive", "error", "not decided")
_TOOLTIPS: Final = {
    "run": "run",
    "started": "started (UTC)",
    "variant": "variant",
    "shown": "value",
    "interval": "95 %",
    "decision": "decision",
    "changes": "changed",
}
_SHAPES: Final = ("circle", "cross", "diamond", "triangle-up", "square")


# Dark pages turn the colours of the picture around (`theme.css`).
_GROUND, _TEXT, _SOFT, _LINE, _GRID = "white", "#24292f", "#57606a", "#8c959f", "#eaeef2"
_DECISION_COLOURS: Final = ("#1a7f37", "#cf222e", "#9a6700", "#8250df", "#57606a")
_VARIANT_COLOURS: Final = ("#0969da", "#bc4c00", "#1b7c83", "#8250df", "#57606a", "#bf3989")


def trend_spec(trend: Trend) -> Spec:
    """Return the chart of a trend: lines with intervals, decisions as marks, changes as rules."""
    import altair as alt

    rows = [_row(trend, point) for point in trend.points if point.value is not None]
    time, base = _time(trend), _chart(rows)
    bounds = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    colours = alt.Color("variant:N", scale=alt.Scale(range=_VARIANT_COLOURS), sort=None)
    legend = alt.Legend(title="variant", orient="right") if len(trend.variants) > 1 else None
    axis = alt.Axis(
        title=trend.metric.heading, tickCount=6, format=".2~f" if trend.metric.is_share else "~s"
    )
    layers = [
        *_changes(trend, time),
        bounds.mark_rule(opacity=0.45, strokeWidth=2).encode(
            x=time,
            y=alt.Y("low:Q"),
            y2=alt.Y2("high:Q"),
            color=colours.legend(None),
            detail="variant:N",
        ),
        base.mark_line(strokeWidth=1.6).encode(
            x=time,
            y=alt.Y("value:Q", axis=axis, scale=alt.Scale(zero=False, nice=True, padding=8)),
            color=colours.legend(legend),
        ),
        _marks(base, rows).encode(x=time),
    ]
    chart = alt.layer(*layers).resolve_scale(color="independent", shape="independent")
    runs = len({point.run_id for point in trend.points})
    title = alt.TitleParams(
        text=_name(trend.suite),
        subtitle=f"{trend.metric.heading} over {runs:,} {plural(runs, 'run')}",
        anchor="start",
        fontSize=15,
        color=_TEXT,
        subtitleColor=_SOFT,
    )
    texts = {"labelColor": _TEXT, "titleColor": _SOFT, "titleFontWeight": "normal"}
    lines = {"gridColor": _GRID, "domainColor": _LINE, "tickColor": _LINE}
    chart = (
        chart.properties(width=_WIDTH, height=_HEIGHT, background=_GROUND, padding=12, title=title)
        .configure_view(stroke=None)
        .configure_axis(grid=True, **lines, **texts)
        .configure_legend(labelLimit=260, **texts)
    )
    # The check against Vega-Lite's schema takes seconds for a year of runs.
    return dict(chart.to_dict(validate=False))


def _name(text: str) -> str:
    return shorten(" ".join(visible(text).split()), _MOST_NAME)


def _chart(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.Chart({"values": rows})


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
        "started": f"{point.started_at:%Y-%m-%d %H:%M}",
        "shown": trend.metric.text(point.value),
        "interval": interval_text(trend.metric, point),
        "changes": _name("; ".join(point.changes)),
    }


def _time(trend: Trend) -> Any:
    import altair as alt

    times = [point.started_at for point in trend.points] or [datetime.min]
    span_s = (max(times) - min(times)).total_seconds()
    form = next((form for limit_s, form in _TIME_FORMS if span_s < limit_s), _LONG_TIME_FORM)
    axis = alt.Axis(
        title="UTC", labelOverlap=True, labelSeparation=8, tickCount=8, grid=False, format=form
    )
    return alt.X("time:T", axis=axis, scale=alt.Scale(type="utc", padding=14))


def _marks(base: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the decisions as marks; those of many runs are small."""
    import altair as alt

    shown = {row["decision"] for row in rows}
    size = max(12, min(75, 4_000 // max(1, len(rows))))
    kinds = zip(_DECISIONS, _DECISION_COLOURS, _SHAPES, strict=True)
    listed = [kind for kind in kinds if kind[0] in shown]
    names, colours, shapes = ([kind[n] for kind in listed] for n in range(3))
    legend = alt.Legend(title="decision of the run", orient="right")
    return base.mark_point(filled=True, size=size, opacity=1).encode(
        y=alt.Y("value:Q"),
        color=alt.Color("decision:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
        shape=alt.Shape("decision:N", scale=alt.Scale(domain=names, range=shapes), legend=legend),
        tooltip=[alt.Tooltip(f"{name}:N", title=title) for name, title in _TOOLTIPS.items()],
    )


def _changes(trend: Trend, time: Any) -> Iterator[Any]:
    """Yield rules at the runs at which something changed, of whichever variant."""
    import altair as alt

    changed: dict[datetime, dict[str, None]] = {}
    for point in trend.points:
        if point.changes:
            changed.setdefault(point.started_at, {}).update(dict.fromkeys(point.changes))
    rows = [
        {"time": at.isoformat(), "changes": _name("; ".join(texts))}
        for at, texts in changed.items()
    ]
    if rows:
        rules = _chart(rows).mark_rule(strokeDash=[3, 3], color=_LINE, strokeWidth=1)
        yield rules.encode(x=time, tooltip=[alt.Tooltip("changes:N", title="changed")])


def chart_svg(spec: Spec) -> bytes:
    """Return the chart as SVG."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])).encode()


def chart_png(spec: Spec) -> bytes:
    """Return the chart as PNG, at twice its size for screens of today."""
    import vl_convert

    return bytes(vl_convert.vegalite_to_png(spec, scale=2.0, allowed_base_urls=[]))


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
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--chart: {path}: there is no folder {path.parent}")


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
    metric, several = trend.metric, len(trend.variants) > 1
    for variant in trend.variants:
        name = f"{variant}: " if several else ""
        values = [point.value for point in trend.points if point.variant == variant]
        if not (measured := [value for value in values if value is not None]):
            yield f"{name}{metric.heading}: not measured"
            continue
        yield (
            f"{name}{metric.text(measured[-1])} last, {metric.text(min(measured))} least, "
            f"{metric.text(max(measured))} most"
        )


def trend_headings(trend: Trend) -> Iterator[str]:
    """Yield a line for each variant: its sparkline, its least, largest and last value."""
    for variant, summary in zip(trend.variants, trend_summaries(trend), strict=True):
        values = [point.value for point in trend.points if point.variant == variant]
        bars = "" if all(value is None for value in values) else f"{sparkline(values)}  "
        own = summary.removeprefix(f"{variant}: ")
        yield f"{variant}  {bars}{own}" if len(trend.variants) > 1 else f"{bars}{own}"

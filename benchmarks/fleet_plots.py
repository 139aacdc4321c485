"""The plots of docs/scale.md: predictions as SVG, for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import ROOT
from evalcore.report.charts.themes import DARK, LIGHT, ChartTheme

PICTURES = ROOT / "docs" / "pictures"
_COLOURS = {"light": ("#1f6feb", "#b35900", "#1a7f37", "#8250df"),
            "dark": ("#79b8ff", "#ffab70", "#85e89d", "#d2a8ff")}  # fmt: skip


class Line(NamedTuple):
    """One line: its name, and its points (workers, value)."""

    name: str
    points: Sequence[tuple[int, float]]


def draw(name: str, lines: Sequence[Line], *, title: str, value: str, bound: float = 0) -> None:
    """Write a chart of values by number of workers, both on logarithmic axes, in both themes.

    `bound` is a value that a rule marks; 0 is none.
    """
    import vl_convert

    PICTURES.mkdir(exist_ok=True)
    for theme_name, theme in (("light", LIGHT), ("dark", DARK)):
        spec = _spec(lines, title, value, bound, theme_name, theme)
        text = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
        Path(PICTURES, f"{name}-{theme_name}.svg").write_text(text, "utf-8")


def _spec(
    lines: Sequence[Line],
    title: str,
    value: str,
    bound: float,
    theme_name: str,
    theme: ChartTheme,
) -> dict[str, Any]:
    import altair

    rows = [
        {"workers": workers, "value": number, "work": line.name}
        for line in lines
        for workers, number in line.points
    ]
    names = [line.name for line in lines]
    chart = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("workers:Q", scale=altair.Scale(type="log"), title="workers"),
        y=altair.Y("value:Q", scale=altair.Scale(type="log"), title=value),
        color=altair.Color(
            "work:N",
            title=None,
            scale=altair.Scale(domain=names, range=list(_COLOURS[theme_name][: len(names)])),
            legend=altair.Legend(orient="bottom", columns=1, labelLimit=600),
        ),
        shape=altair.Shape("work:N", title=None, scale=altair.Scale(domain=names)),
    )
    layers = [chart.mark_line(strokeWidth=2), chart.mark_point(size=50, filled=True)]
    if bound:
        rule = altair.Chart(altair.Data(values=[{"bound": bound}]))
        layers.append(rule.mark_rule(strokeDash=[4, 4], color=theme.soft).encode(y="bound:Q"))
    layered = (
        altair.layer(*layers)
        .properties(width=640, height=280, title=title, background=theme.ground, padding=12)
        .configure_view(stroke=None)
        .configure_axis(
            gridColor=theme.grid,
            domainColor=theme.line,
            tickColor=theme.line,
            labelColor=theme.soft,
            titleColor=theme.soft,
        )
        .configure_title(color=theme.text, anchor="start", fontSize=14)
        .configure_legend(labelColor=theme.text, symbolStrokeWidth=2)
    )
    spec: dict[str, Any] = layered.to_dict(validate=False)
    return spec

"""A trend is drawn without a network, and its names stay data."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evalcore.errors import UsageError
from evalcore.model.summary import Metric, Trend, TrendPoint
from evalcore.report.charts import chart_html, chart_png, chart_svg, draw_chart, trend_spec

EVIL = "</script><script>alert(1)</script><svg onload='x'>{{datum.run}}\u202e"
FIRST = datetime(2026, 5, 18, 2, tzinfo=UTC)


def trend(runs: int, *, name: str = "support", variants: tuple[str, ...] = ("default",)) -> Trend:
    points = [
        TrendPoint(
            f"run-{number}",
            FIRST + timedelta(days=number),
            variant,
            0.9 - 0.001 * number,
            0.8,
            0.95,
            "fail" if number % 7 == 6 else "pass",
            (f"model {name}",) if number == 1 else (),
        )
        for number in range(runs)
        for variant in variants
    ]
    return Trend(name, Metric.SCORE, tuple(points))


@pytest.mark.parametrize("runs", [0, 1, 2, 365])
def test_a_trend_of_any_length_is_a_picture(runs: int) -> None:
    assert chart_png(trend_spec(trend(runs))).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "apart",
    [
        timedelta(seconds=2),
        timedelta(minutes=1),
        timedelta(minutes=20),
        timedelta(hours=9),
        timedelta(days=1),
        timedelta(days=30),
        timedelta(days=200),
    ],
)
def test_no_two_times_on_the_axis_have_the_same_label(apart: timedelta) -> None:
    points = [
        TrendPoint(f"run-{number}", FIRST + number * apart, "a", 0.5, 0.4, 0.6, "pass", ())
        for number in range(8)
    ]
    text = chart_svg(trend_spec(Trend("support", Metric.SCORE, tuple(points)))).decode()
    axis = text.partition("role-axis-label")[2].partition("</g>")[0]
    labels = re.findall(r">([^<>]+)</text>", axis)
    assert len(labels) >= 4
    assert len(set(labels)) == len(labels)


def test_names_in_a_picture_are_text() -> None:
    text = chart_svg(trend_spec(trend(3, name=EVIL, variants=(EVIL, "b")))).decode()
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    assert not re.search(r"<svg[^>]*onload", text)
    assert "\u202e" not in text


def test_names_in_a_page_are_data() -> None:
    page = chart_html(trend_spec(trend(3, name=EVIL))).decode()
    assert page.lower().count("<script") == 2
    data = page.partition('id="chart-data">')[2].partition("</script>")[0]
    assert json.loads(data)["title"]["text"].startswith("</script><script>")
    assert not re.search(r"""(?:src|href)=["']?https?:""", page)


def test_the_marks_are_the_decisions_and_what_changed() -> None:
    spec = trend_spec(trend(8, variants=("a", "b")))
    text = json.dumps(spec)
    assert '"range": ["#1a7f37", "#cf222e"]' in text
    assert "model support" in text


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in none of \.svg, \.png, \.html"):
        draw_chart(trend_spec(trend(2)), tmp_path / "trend.pdf")
    with pytest.raises(UsageError, match="there is no folder"):
        draw_chart(trend_spec(trend(2)), tmp_path / "missing" / "trend.svg")

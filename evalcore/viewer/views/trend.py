"""How a suite went over its runs: trends, flaky cases, and the pictures of them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.errors import StoreError
from evalcore.model.summary import Metric, Trend
from evalcore.report.charts import trend_spec
from evalcore.viewer.shelf import Recent

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


_WRITE: Final = "import sys, vl_convert; text = sys.stdin.buffer.read().decode(); "
_DRAW: Final = (
    f"{_WRITE}drawn = vl_convert.vegalite_to_svg(text, allowed_base_urls=[]); "
    "sys.stdout.buffer.write(drawn.encode())"
)
_BUNDLE: Final = f"{_WRITE}sys.stdout.buffer.write(vl_convert.javascript_bundle(text).encode())"
_LONGEST_S: Final = 60.0


def draw_svg(spec: dict[str, Any]) -> bytes:
    """Return a chart as SVG; raise `StoreError` if it cannot be drawn."""
    return _written_by(_DRAW, orjson.dumps(spec))


def bundle_script(text: str) -> bytes:
    """Return a script with Vega's libraries; raise `StoreError` if it cannot be made."""
    return _written_by(_BUNDLE, text.encode())


def _written_by(program: str, data: bytes) -> bytes:
    command = [sys.executable, "-P", "-c", program]
    try:
        ended = subprocess.run(
            command, input=data, capture_output=True, timeout=_LONGEST_S, check=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise StoreError(f"the chart cannot be drawn here: {type(error).__name__}") from error
    return ended.stdout


_MOST: Final = 64
_SCRIPT: Final = Path(__file__).parent.parent / "static" / "trend.js"


class TrendPictures:
    """SVG pictures by trend; the last `_MOST` are kept."""

    def __init__(self) -> None:
        self._pictures: Recent[bytes] = Recent(_MOST)
        self._charts: Recent[bytes] = Recent(_MOST)

    def svg(self, trend: Trend, version: Hashable) -> bytes:
        """Return a trend as SVG; `version` differs whenever the trend's points do."""
        key = (trend.suite, trend.metric, trend.variants, version)
        return self._pictures.get(key, lambda: draw_svg(trend_spec(trend)))

    def chart(self, trend: Trend, version: Hashable) -> bytes:
        """Return a trend as a Vega-Lite chart in JSON; as `svg` otherwise."""
        key = (trend.suite, trend.metric, trend.variants, version)
        return self._charts.get(key, lambda: orjson.dumps(trend_spec(trend)))


_BUNDLING: Final = threading.Lock()


def chart_script() -> bytes:
    """Return the script of interactive trends with the libraries that it uses; made once."""
    with _BUNDLING:
        return _bundle()


@cache
def _bundle() -> bytes:
    return bundle_script(_SCRIPT.read_text("utf-8"))


@cache
def chart_script_digest() -> str:
    """Return what the script's address ends in, so that it can be cached for good."""
    from importlib.metadata import version

    text = f"{version('vl-convert-python')} {_SCRIPT.read_text('utf-8')}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]

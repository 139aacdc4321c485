"""How a suite went over its runs: trends, flaky cases, and the pictures of them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from evalcore.errors import StoreError
from evalcore.model.summary import Metric, Trend
from evalcore.report.charts import trend_spec

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


_SCRIPT: Final = Path(__file__).parent.parent / "static" / "trend.js"
_WRITE: Final = "import sys, vl_convert; text = sys.stdin.buffer.read().decode(); "
_DRAW: Final = (
    f"{_WRITE}drawn = vl_convert.vegalite_to_svg(text, allowed_base_urls=[]); "
    "sys.stdout.buffer.write(drawn.encode())"
)
_BUNDLE: Final = f"{_WRITE}sys.stdout.buffer.write(vl_convert.javascript_bundle(text).encode())"
_LONGEST_S: Final = 60.0


def draw_svg(trend: Trend) -> bytes:
    """Return a trend as SVG; raise `StoreError` if it cannot be drawn."""
    return _written_by(_DRAW, orjson.dumps(trend_spec(trend)))


@cache
def chart_script() -> bytes:
    """Return the script of interactive trends with the libraries that it uses; made once."""
    return _written_by(_BUNDLE, _SCRIPT.read_bytes())


@cache
def chart_script_digest() -> str:
    """Return what the script's address ends in, so that it can be cached for good."""
    from importlib.metadata import version

    text = f"{version('vl-convert-python')} {_SCRIPT.read_text('utf-8')}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _written_by(program: str, data: bytes) -> bytes:
    """Return what a process writes; the engine that draws takes 100 MB, free afterwards."""
    command = [sys.executable, "-P", "-c", program]
    try:
        ended = subprocess.run(
            command, input=data, capture_output=True, timeout=_LONGEST_S, check=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise StoreError(f"the chart cannot be drawn here: {type(error).__name__}") from error
    return ended.stdout

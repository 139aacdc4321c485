"""Pictures of trends, and the script that makes them answer to the mouse: each made once."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Final

import orjson

from evalcore.model.summary import Trend
from evalcore.report.charts import trend_spec
from evalcore.viewer.drawing_process import bundle_script, draw_svg
from evalcore.viewer.recent import Recent

_MOST: Final = 64
_SCRIPT: Final = Path(__file__).parent / "static" / "trend.js"


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

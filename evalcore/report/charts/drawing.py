"""A chart as a file: SVG, PNG, or an HTML page with everything in it. No network is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import orjson

from evalcore.errors import UsageError
from evalcore.report.charts.trend import Spec
from evalcore.report.escape import escape_data

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

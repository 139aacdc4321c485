"""Pages from templates. Every foreign text reaches a page escaped; addresses are quoted."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from evalcore.model.summary import latency_text
from evalcore.report.figures import duration_text, usd_text
from evalcore.report.html import TEMPLATES as REPORT_TEMPLATES
from evalcore.report.html import html_templates
from evalcore.version import VERSION
from evalcore.viewer.site import Site
from evalcore.viewer.views.trend import chart_script, chart_script_digest

_PACKAGE: Final = Path(__file__).parent
TEMPLATES: Final = _PACKAGE / "templates"
STATIC: Final = _PACKAGE / "static"
# The HTML report has the same styles within its one file.
THEME: Final = REPORT_TEMPLATES / "theme.css"
_ABSENT: Final = "–"
_OUTCOME_MARKS: Final = {
    "pass": "✓",
    "passed": "✓",
    "fail": "✗",
    "failed": "✗",
    "error": "!",
    "damaged": "!",
    "inconclusive": "?",
    "blocked": "?",
    "running": "…",
    "regression": "▼",
    "improvement": "▲",
    "missing": "?",
}


def render(
    request: Request, site: Site, template: str, *, status: int = 200, **values: Any
) -> HTMLResponse:
    """Return a page. `url(path…, **query)` and `case_url` make addresses of this viewer."""

    def url(*parts: object, **query: Any) -> str:
        return page_url(site, *parts, **query)

    text = (
        _environment()
        .get_template(template)
        .render(
            url=url,
            case_url=partial(case_url, site),
            here=request.url.path,
            store_name=site.store.url,
            signs_out=site.signs_out,
            history_is_late=site.syncing.is_under_way,
            version=VERSION,
            asset=lambda name: f"{site.prefix}/static/{name}?v={asset_digest(name)}",
            chart_script=f"{site.prefix}/static/charts.js?v={chart_script_digest()}",
            **({"query": dict(request.query_params)} | values),
        )
    )
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})


def page_url(site: Site, *parts: object, **query: Any) -> str:
    """Return the address of a page: its parts quoted, and what of the query is not None."""
    path = "/".join(quote(str(part), safe="") for part in parts)
    chosen = {name: value for name, value in query.items() if value not in {None, "", False}}
    return f"{site.prefix}/{path}" + (f"?{urlencode(chosen)}" if chosen else "")


def case_url(site: Site, run_id: str, case_id: str, **query: Any) -> str:
    """Return the address of a case's page, its id in the query if a path cannot hold it.

    Browsers resolve `.` and `..` in a path, encoded or not; routes end a path at a line break.
    """
    if case_id in {".", ".."} or "\n" in case_id:
        return page_url(site, "runs", run_id, "cases", id=case_id, **query)
    return page_url(site, "runs", run_id, "cases", case_id, **query)


@cache
def asset_digest(name: str) -> str:
    """Return what an asset's address ends in, so that it can be cached for good."""
    path = THEME if name == THEME.name else STATIC / name
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


@cache
def _environment() -> Environment:
    environment = html_templates(TEMPLATES)
    environment.filters.update(
        share=lambda value: _ABSENT if value is None else f"{value:.1%}",
        score=lambda value: _ABSENT if value is None else f"{value:.3f}",
        usd=lambda value: _ABSENT if value is None else usd_text(value),
        ms=latency_text,
        number=lambda value: _ABSENT if value is None else f"{value:,}",
        seconds=lambda value: _ABSENT if value is None else duration_text(value),
        mark=lambda outcome: _OUTCOME_MARKS.get(str(outcome), "·"),
        moment=lambda moment: f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}",
        ago=_ago,
    )
    return environment


def _ago(moment: datetime) -> str:
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    for unit_s, name in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.0f} {name} ago"
    return "just now"


router = APIRouter()
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# An asset's address has its digest.
_FOR_GOOD: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


@router.get("/static/charts.js")
def chart_library() -> Response:
    """Return the script of interactive charts with its libraries."""
    return Response(chart_script(), media_type="text/javascript", headers=_FOR_GOOD)


@router.get("/static/{name}")
def asset(name: str) -> Response:
    """Return a style sheet, script or picture of the package."""
    data = _assets().get(name)
    if data is None:
        raise HTTPException(404)
    media_type = _TYPES[f".{name.rpartition('.')[2]}"]
    return Response(data, media_type=media_type, headers=_FOR_GOOD)


@cache
def _assets() -> dict[str, bytes]:
    paths = [THEME, *(path for path in STATIC.iterdir() if path.suffix in _TYPES)]
    return {path.name: path.read_bytes() for path in paths}

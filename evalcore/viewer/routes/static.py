"""The files of the package that pages load: nothing is requested from elsewhere."""

from __future__ import annotations

from functools import cache
from typing import Final

from fastapi import APIRouter, HTTPException, Response

from evalcore.viewer.rendering import STATIC, THEME
from evalcore.viewer.trend_pictures import chart_script

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

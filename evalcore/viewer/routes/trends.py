"""The picture of a suite's trend, and the chart behind it for the script."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Final

from fastapi import APIRouter, HTTPException, Query, Response

from evalcore.model.summary import Trend
from evalcore.viewer.site import CurrentSite, Site
from evalcore.viewer.suite_query import SuiteQuery

router = APIRouter()
# The page's address of a picture changes with the runs; without that part it is looked at again.
_VERSIONED: Final = {"Cache-Control": "private, max-age=86400"}
_UNVERSIONED: Final = {"Cache-Control": "no-cache"}


class TrendQuery(SuiteQuery):
    """What an address chooses of a trend; `v` is the version of the suite's runs."""

    v: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """How long a browser may keep the answer."""
        return _VERSIONED if self.v else _UNVERSIONED


ChosenTrend = Annotated[TrendQuery, Query()]


@router.get("/suites/{suite}/trend.svg")
def trend_picture(site: CurrentSite, suite: str, query: ChosenTrend) -> Response:
    """Return the picture of the chosen trend."""
    trend = _trend(site, suite, query)
    picture = site.pictures.svg(trend, _version(site, suite, query))
    return Response(picture, media_type="image/svg+xml", headers=query.headers)


@router.get("/suites/{suite}/trend.json")
def trend_chart(site: CurrentSite, suite: str, query: ChosenTrend) -> Response:
    """Return the chosen trend as a Vega-Lite chart."""
    trend = _trend(site, suite, query)
    chart = site.pictures.chart(trend, _version(site, suite, query))
    return Response(chart, media_type="application/json", headers=query.headers)


def _version(site: Site, suite: str, query: TrendQuery) -> Hashable:
    # While runs are entered into the history the same runs may have more points.
    points = len(site.overview(suite).trends[query.chosen_metric(site.overview(suite))].points)
    return site.catalogue.version(suite), points, tuple(sorted(query.of_trend().items()))


def _trend(site: Site, suite: str, query: TrendQuery) -> Trend:
    trend = query.trend(site.overview(suite)) if site.catalogue.runs(suite) else None
    if trend is None:
        raise HTTPException(404)
    return trend

"""All suites, and one suite: how it went, what became of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel, BeforeValidator

from evalcore.errors import UsageError
from evalcore.model.suite import NO_QUARANTINE, Quarantine, quarantine_of
from evalcore.model.summary import Metric, Trend
from evalcore.report.charts import interval_text, trend_spec, trend_summaries
from evalcore.storage.baselines import list_baselines
from evalcore.viewer.catalogue import RunEntry
from evalcore.viewer.rendering import page_url, render
from evalcore.viewer.security import Chosen
from evalcore.viewer.site import CurrentSite, Site
from evalcore.viewer.views.trend import SuiteOverview, draw_svg

if TYPE_CHECKING:
    from evalcore.history.trend import LatestRun


_Day = Annotated[date | None, BeforeValidator(lambda value: value or None)]


class SuiteQuery(BaseModel):
    """An empty value chooses nothing. `since` and `until` are days in UTC, both included."""

    metric: Annotated[Metric | None, BeforeValidator(lambda value: value or None)] = None
    variant: Chosen = None
    outcome: Chosen = None
    mode: Chosen = None
    branch: Chosen = None
    since: _Day = None
    until: _Day = None
    after: str = ""

    def takes(self, run: RunEntry) -> bool:
        """Whether a run is listed on any page."""
        return (
            (not self.outcome or run.outcome == self.outcome)
            and (not self.mode or (run.manifest is not None and run.manifest.mode == self.mode))
            and (not self.branch or run.branch == self.branch)
            and self._has_day(run.created_at)
        )

    def page(self, runs: Sequence[RunEntry], most: int) -> tuple[list[RunEntry], str | None]:
        """Return at most `most` listed runs after `after`, in their order, and the next `after`.

        The next one is None on the last page.
        """
        ids = [run.id for run in runs]
        # Runs of one second are not in the order of their ids.
        if self.after in ids:
            runs = runs[ids.index(self.after) + 1 :]
        elif self.after:
            runs = [run for run in runs if run.id < self.after]
        listed = [run for run in runs if self.takes(run)]
        return listed[:most], listed[most - 1].id if len(listed) > most else None

    @property
    def limits_runs(self) -> bool:
        """Whether fewer than all runs are listed."""
        return any((self.outcome, self.mode, self.branch, self.since, self.until))

    def trend(self, overview: SuiteOverview) -> Trend | None:
        """Return the chosen trend over the chosen days; None if nothing is measured.

        Raises `UsageError` for a variant that there is not.
        """
        if not overview.metrics:
            return None
        measured = overview.metrics
        usual = Metric.PASS_RATE if Metric.PASS_RATE in measured else measured[0]
        metric = self.metric or usual
        whole = overview.trends[metric]
        if self.variant and self.variant not in whole.variants:
            names = ", ".join(whole.variants)
            raise UsageError(f"variant={self.variant!r}: the suite has {names}")
        points = tuple(
            point
            for point in whole.points
            if (not self.variant or point.variant == self.variant)
            and self._has_day(point.started_at)
        )
        return Trend(whole.suite, metric, points) if points else None

    def of_trend(self) -> dict[str, Any]:
        """Return the part of the address that the trend depends on."""
        values = {"metric": self.metric, "variant": self.variant}
        days = {"since": self.since, "until": self.until}
        return values | {name: day.isoformat() for name, day in days.items() if day is not None}

    def _has_day(self, moment: datetime) -> bool:
        day = moment.astimezone(UTC).date()
        return (self.since or date.min) <= day <= (self.until or date.max)


ChosenRuns = Annotated[SuiteQuery, Query()]


router = APIRouter()
_MOST_POINTS: Final = 40
_MOST_CHANGES: Final = 20
_MOST_FLAKY: Final = 25
_RUNS_PER_PAGE: Final = 50
_FAILING_FIRST: Final = {"fail": 0, "error": 0, "damaged": 0, "inconclusive": 1, "interrupted": 1}


@router.get("/")
def all_suites(request: Request, site: CurrentSite) -> Response:
    """Show a line for each suite, failing ones first."""
    latest = site.latest_runs()
    suites = [_suite_line(key, runs, latest) for key, runs in site.catalogue.suites().items()]
    suites.sort(key=lambda line: (_FAILING_FIRST.get(line["decided"].outcome, 2), line["name"]))
    return render(request, site, "suites.html.j2", suites=suites)


@router.get("/suites/{suite}")
def one_suite(request: Request, site: CurrentSite, suite: str, query: ChosenRuns) -> Response:
    """Show a suite: its trend, its runs newest first, its flaky and quarantined cases."""
    runs = site.catalogue.runs(suite)
    if not runs:
        raise HTTPException(404)
    overview = site.overview(suite)
    trend = query.trend(overview)
    listed, following = query.page(runs, _RUNS_PER_PAGE)
    return render(
        request,
        site,
        "suite.html.j2",
        suite=suite,
        name=suite_name(runs),
        last=runs[0],
        newest_ended=next((run for run in runs if run.figures.pass_rate is not None), None),
        query=query,
        trend=None if trend is None else _trend(site, suite, query, trend),
        overview=overview,
        flaky=overview.flaky[:_MOST_FLAKY],
        quarantine=_quarantine(runs),
        baselines=list(list_baselines(site.store, suite_name(runs))),
        runs=listed,
        next_url=_next_url(site, request, suite, following),
        choices=_choices(runs),
    )


def suite_name(runs: list[RunEntry]) -> str:
    """Return the name of the suite of these runs; its key if no manifest can be read."""
    return next((run.suite for run in runs if run.manifest is not None), runs[0].suite)


def _choices(runs: list[RunEntry]) -> dict[str, list[str]]:
    """Return what the runs can be filtered by."""
    return {
        "outcomes": sorted({run.outcome for run in runs}),
        "modes": sorted({run.manifest.mode for run in runs if run.manifest is not None}),
        "branches": sorted({run.branch for run in runs if run.branch is not None}),
    }


def _next_url(site: Site, request: Request, suite: str, following: str | None) -> str | None:
    if following is None:
        return None
    query = dict(request.query_params) | {"after": following}
    return page_url(site, "suites", suite, **query)


def _quarantine(runs: list[RunEntry]) -> Quarantine:
    """Return the quarantine that the newest run was planned with."""
    manifest = runs[0].manifest
    return NO_QUARANTINE if manifest is None else quarantine_of(manifest.settings)


def _trend(site: Site, suite: str, query: SuiteQuery, trend: Trend) -> dict[str, Any]:
    chosen = query.of_trend() | {"v": site.catalogue.version(suite)}
    return {
        "picture": page_url(site, "suites", suite, "trend.svg", **chosen),
        "data": page_url(site, "suites", suite, "trend.json", **chosen),
        "summary": "; ".join(trend_summaries(trend)),
        "metric": trend.metric,
        "points": [
            (point, trend.metric.text(point.value), interval_text(trend.metric, point))
            for point in reversed(trend.points)
        ][:_RUNS_PER_PAGE],
        "changes": list(_changes(trend)),
    }


def _changes(trend: Trend) -> Iterator[tuple[Any, str]]:
    """Yield the newest runs at which something changed, each once, with what it was."""
    texts: dict[str, dict[str, None]] = {}
    points = {}
    for point in reversed(trend.points):
        if point.changes:
            points[point.run_id] = point
            texts.setdefault(point.run_id, {}).update(dict.fromkeys(point.changes))
    for run_id in list(texts)[:_MOST_CHANGES]:
        yield points[run_id], "; ".join(texts[run_id])


def _suite_line(key: str, runs: list[RunEntry], latest: Mapping[str, LatestRun]) -> dict[str, Any]:
    from evalcore.history.files import partition_suite

    whole = [run for run in runs if not run.part and not run.is_filtered]
    values = [run.figures.pass_rate for run in reversed(whole[:_MOST_POINTS])]
    name = suite_name(runs)
    ended = [run for run in runs if not run.is_live and not run.is_filtered]
    # A run that goes on says nothing yet, one of some cases nothing of the suite.
    decided = ended[0] if ended else runs[0]
    return {
        "key": key,
        "name": name,
        "last": runs[0],
        "decided": decided,
        "interval": decided.figures.interval,
        "latest": latest.get(partition_suite(name)),
        "runs": len(runs),
        "points": sparkline_points([value for value in values if value is not None]),
    }


def sparkline_points(values: list[float], width: float = 120, height: float = 24) -> str:
    """Return the points of a polyline over shares from 0 to 1; empty with fewer than two."""
    if len(values) < 2:
        return ""
    step = width / (len(values) - 1)
    low, high = min(values), max(values)
    span = high - low or 1.0
    return " ".join(
        f"{number * step:.1f},{height - 2 - (value - low) / span * (height - 4):.1f}"
        for number, value in enumerate(values)
    )


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
    trend = _chosen_trend(site, suite, query)
    picture = site.pictures.get(("svg", trend), lambda: draw_svg(trend))
    return Response(picture, media_type="image/svg+xml", headers=query.headers)


@router.get("/suites/{suite}/trend.json")
def trend_chart(site: CurrentSite, suite: str, query: ChosenTrend) -> Response:
    """Return the chosen trend as a Vega-Lite chart."""
    trend = _chosen_trend(site, suite, query)
    chart = site.pictures.get(("json", trend), lambda: orjson.dumps(trend_spec(trend)))
    return Response(chart, media_type="application/json", headers=query.headers)


def _chosen_trend(site: Site, suite: str, query: TrendQuery) -> Trend:
    trend = query.trend(site.overview(suite)) if site.catalogue.runs(suite) else None
    if trend is None:
        raise HTTPException(404)
    return trend

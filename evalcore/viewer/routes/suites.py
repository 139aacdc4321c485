"""All suites, and one suite: what became of their runs."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query, Request, Response

from evalcore.viewer.catalogue import RunEntry
from evalcore.viewer.rendering import render
from evalcore.viewer.site import CurrentSite

router = APIRouter()
_MOST_POINTS: Final = 40
_RUNS_PER_PAGE: Final = 50
_FAILING_FIRST: Final = {"fail": 0, "error": 0, "damaged": 0, "inconclusive": 1, "interrupted": 1}


@router.get("/")
def all_suites(request: Request, site: CurrentSite) -> Response:
    """Show a line for each suite, failing ones first."""
    suites = [_suite_line(key, runs) for key, runs in site.catalogue.suites().items()]
    suites.sort(key=lambda line: (_FAILING_FIRST.get(line["last"].outcome, 2), line["name"]))
    return render(request, site, "suites.html.j2", suites=suites)


@router.get("/suites/{suite}")
def one_suite(
    request: Request,
    site: CurrentSite,
    suite: str,
    outcome: Annotated[str | None, Query()] = None,
    mode: Annotated[str | None, Query()] = None,
    after: Annotated[str | None, Query()] = None,
) -> Response:
    """Show the runs of a suite, newest first."""
    runs = site.catalogue.runs(suite)
    if not runs:
        raise HTTPException(404)
    chosen = [
        run
        for run in runs
        if (not outcome or run.outcome == outcome)
        and (not mode or (run.manifest is not None and run.manifest.mode == mode))
        and (not after or run.id < after)
    ]
    return render(
        request,
        site,
        "suite.html.j2",
        suite=suite,
        name=runs[0].suite,
        runs=chosen[:_RUNS_PER_PAGE],
        following=chosen[_RUNS_PER_PAGE - 1].id if len(chosen) > _RUNS_PER_PAGE else None,
        outcomes=sorted({run.outcome for run in runs}),
        modes=sorted({run.manifest.mode for run in runs if run.manifest is not None}),
    )


def _suite_line(key: str, runs: list[RunEntry]) -> dict[str, Any]:
    values = [run.figures.pass_rate for run in reversed(runs[:_MOST_POINTS])]
    return {
        "key": key,
        "name": runs[0].suite,
        "last": runs[0],
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

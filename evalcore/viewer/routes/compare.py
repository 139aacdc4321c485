"""Two runs or variants: the cases that moved, the scores beside each other, what differs."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from evalcore.analytics.compare import (
    GRID,
    MOVES,
    PairedChoice,
    PairedKey,
    PairedPage,
    ScatterPoint,
    read_paired,
)
from evalcore.errors import UsageError
from evalcore.report.document import comparison_entries
from evalcore.viewer.rendering import page_url, render
from evalcore.viewer.routes.runs import parse_key
from evalcore.viewer.security import Chosen
from evalcore.viewer.site import CurrentSite, Site
from evalcore.viewer.views.opened import OpenedComparison, Side

SIZE: Final = 400.0
MARGIN: Final = 40.0
_LEAST_RADIUS: Final = 3.0
_MOST_RADIUS: Final = 11.0


class ScatterMark(NamedTuple):
    """A circle; `tone` is `worse` below the diagonal, `better` above it, `same` on it."""

    x: float
    y: float
    radius: float
    tone: str
    point: ScatterPoint


def scatter_marks(points: Sequence[ScatterPoint]) -> tuple[ScatterMark, ...]:
    """Return a circle for each point, its area by the number of cases; the largest first."""
    most = max((point.cases for point in points), default=1)
    return tuple(
        ScatterMark(
            round(MARGIN + point.was_score * SIZE, 1),
            round(SIZE + MARGIN / 4 - point.now_score * SIZE, 1),
            round(max(_LEAST_RADIUS, _MOST_RADIUS * sqrt(point.cases / most)), 1),
            _tone(point),
            point,
        )
        for point in points
    )


def _tone(point: ScatterPoint) -> str:
    if point.now_cell == point.was_cell:
        return "same"
    return "better" if point.now_cell > point.was_cell else "worse"


router = APIRouter()
_CASES_PER_PAGE: Final = 100
_MOST_RUNS: Final = 100


class CompareQuery(BaseModel):
    """What an address compares: `a` is the baseline, `b` the candidate, each RUN or RUN~VARIANT."""

    a: Chosen = None
    b: Chosen = None
    move: Chosen = None
    cell: Chosen = None
    after: Chosen = None

    @property
    def choice(self) -> PairedChoice:
        """The filters; raises `UsageError`."""
        if self.move and self.move not in MOVES:
            raise UsageError(f"move={self.move!r}: one of {', '.join(MOVES)}")
        return PairedChoice(self.move, _cell(self.cell))


@router.get("/compare")
def compare(
    request: Request, site: CurrentSite, query: Annotated[CompareQuery, Query()]
) -> Response:
    """Show a comparison; without two runs a form that asks for them."""
    if not (query.a and query.b):
        return render(
            request,
            site,
            "compare_form.html.j2",
            a=query.a,
            b=query.b,
            runs=site.catalogue.runs()[:_MOST_RUNS],
        )
    choice, after = query.choice, _key(query.after)
    with site.comparisons.open(query.a, query.b) as opened:
        page = PairedPage((), None)
        if opened.paired is not None:
            page = read_paired(opened.tables.connection, choice, after, most=_CASES_PER_PAGE)
        return render(
            request,
            site,
            "compare.html.j2",
            opened=opened,
            entries=[site.catalogue.entry(side.run.run_id) for side in opened.sides],
            figures=_figures(opened),
            marks=scatter_marks(opened.scatter),
            grid=GRID,
            page=page,
            choice=choice,
            address=_address,
            next_url=_next_url(site, request, page),
        )


def _address(side: Side, variant: str | None = None) -> str:
    """Return what names a side in an address, or another variant of its run."""
    return f"{side.run.run_id}~{variant or side.variant}"


def _figures(opened: OpenedComparison) -> dict[str, Any] | None:
    entries = comparison_entries(opened.compared.comparison)
    return entries[0] if entries else None


def _cell(text: str | None) -> tuple[int, int] | None:
    if not text:
        return None
    was, _, now = text.partition(",")
    try:
        return int(was), int(now)
    except ValueError as error:
        raise UsageError(f"cell={text!r} is no cell of the scatter") from error


def _key(text: str | None) -> PairedKey | None:
    if not text:
        return None
    rank, _, rest = text.partition("~")
    number, _, case_id = rest.partition("~")
    end = parse_key(f"{rank}~{number}")
    return None if end is None else PairedKey(end.key, end.number, case_id)


def _next_url(site: Site, request: Request, page: PairedPage) -> str | None:
    if page.following is None:
        return None
    rank, number, case_id = page.following
    query = dict(request.query_params)
    query["after"] = f"{rank!r}~{number}~{case_id}"
    return page_url(site, "compare", **query)

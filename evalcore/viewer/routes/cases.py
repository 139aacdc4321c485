"""One case of a run: input, outputs side by side, how they were graded, what happened within."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, HTTPException, Query, Request, Response

from evalcore.errors import EvalError, UsageError
from evalcore.history.trend import CaseHistory
from evalcore.storage.layout import suite_key
from evalcore.viewer.rendering import case_url, render
from evalcore.viewer.site import CurrentSite, Site
from evalcore.viewer.views.case import CaseAddress, read_case_page

router = APIRouter()
_MOST_OUTCOMES: Final = 40


class HistoryLines(NamedTuple):
    """A case over the suite's runs, a line for each variant; `problem` says why there is none."""

    lines: tuple[CaseHistory, ...] = ()
    problem: str | None = None


# Browsers resolve some ids within a path: see `case_url`.
@router.get("/runs/{run_id}/cases")
@router.get("/runs/{run_id}/cases/{case_id:path}")
def one_case(
    request: Request, site: CurrentSite, run_id: str, query: Annotated[CaseAddress, Query()]
) -> Response:
    """Show a case: input, outputs with what differs, assertions, calls, events, history."""
    case_id = request.path_params.get("case_id", query.id)
    address = query.model_copy(update={"id": case_id})
    with site.opened.open(run_id) as opened:
        page = read_case_page(opened, address)
        run = opened.manifest
    if page is None:
        raise HTTPException(404, f"Run {run_id} has no result of case '{case_id}'.")
    address.group = page.rows[0].group
    previous, following = page.neighbours

    def narrowed(variant: str | None, iteration: int | None) -> str:
        chosen = {"group": address.group, "variant": variant, "reference": address.reference}
        number = None if iteration is None else str(iteration)
        return case_url(site, run_id, case_id, **chosen, iteration=number)

    return render(
        request,
        site,
        "case.html.j2",
        run=run,
        entry=site.catalogue.entry(run_id),
        page=page,
        address=address,
        iterations=sorted({iteration for _, iteration in page.marks}),
        previous=previous,
        following=following,
        narrowed=narrowed,
        history=_history(site, run.suite, address),
        most_outcomes=_MOST_OUTCOMES,
    )


def _history(site: Site, suite: str, address: CaseAddress) -> HistoryLines:
    try:
        lines = site.case_history(suite_key(suite), suite, address.id, address.variant)
    except UsageError:
        return HistoryLines()
    except EvalError as error:
        # The rest of the page does not depend on it.
        return HistoryLines(problem=str(error))
    return HistoryLines(tuple(line for line in lines if line.case_group == address.group))

"""Which assertions fail most, which never do, which judge disagrees with people."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from evalcore.analytics.assertions import AssertionCounts
from evalcore.viewer.rendering import render
from evalcore.viewer.site import CurrentSite

router = APIRouter()
# More rows are no help, and too large a page.
_MOST_LISTED: Final = 500


@router.get("/runs/{run_id}/assertions")
def run_assertions(request: Request, site: CurrentSite, run_id: str) -> Response:
    """Show the assertions of a run, those that fail most first."""
    with site.opened.open(run_id) as opened:
        counts = opened.assertion_counts()
        manifest = opened.manifest
    entry = site.catalogue.entry(run_id)
    return render(
        request,
        site,
        "assertions.html.j2",
        name=manifest.suite,
        suite=None if entry is None else entry.suite_key,
        run_id=run_id,
        **_listed(counts),
    )


def _listed(counts: tuple[AssertionCounts, ...]) -> dict[str, Any]:
    judged = [each for each in counts if each.compared]
    return {
        "assertions": counts[:_MOST_LISTED],
        "unlisted": max(0, len(counts) - _MOST_LISTED),
        "never_failing": sum(each.always_passes for each in counts),
        "disagreeing": sorted(judged, key=lambda each: each.disagreement or 0.0, reverse=True),
    }

"""One run: its gates, what changed, its cases as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel

from evalcore.analytics.cases import CASE_ORDERS, CaseChoice, CaseKey, CasePage
from evalcore.errors import UsageError
from evalcore.model.run import Manifest, State
from evalcore.model.suite import quarantine_of
from evalcore.report.comparison import changes, measure_changes, no_comparison
from evalcore.report.figures import rate_text, score_text, summary_notes, tokens_text
from evalcore.viewer.catalogue import RunEntry
from evalcore.viewer.opened_runs import OpenedRun
from evalcore.viewer.rendering import page_url, render
from evalcore.viewer.site import CurrentSite, Site

router = APIRouter()
_CASES_PER_PAGE: Final = 100
_MOST_CHANGES: Final = 50
_FIRST_ORDER: Final = "worst"


class CaseQuery(BaseModel):
    """What an address chooses of a run's cases; an empty value chooses nothing."""

    outcome: str = ""
    variant: str = ""
    tag: str = ""
    assertion: str = ""
    q: str = ""
    changed: bool = False
    order: str = ""
    after: str = ""

    @property
    def choice(self) -> CaseChoice:
        """The filters."""
        return CaseChoice(
            outcome=self.outcome or None,
            variant=self.variant or None,
            tag=self.tag or None,
            assertion=self.assertion or None,
            text=self.q or None,
            changed=self.changed,
        )


@router.get("/runs/{run_id}")
def one_run(
    request: Request, site: CurrentSite, run_id: str, query: Annotated[CaseQuery, Query()]
) -> Response:
    """Show a run: gates first, then what changed, its counts, its cases."""
    order = query.order or _FIRST_ORDER
    if order not in CASE_ORDERS:
        raise UsageError(f"order={order!r}: one of {', '.join(CASE_ORDERS)}")
    choice, key = query.choice, parse_key(query.after)
    with site.opened.open(run_id) as opened:
        entry = site.catalogue.entry(run_id)
        if entry is None:
            raise HTTPException(404)
        table = opened.cases
        page = CasePage((), None)
        if table is not None:
            page = table.page(choice, order=order, after=key, most=_CASES_PER_PAGE)
        return render(
            request,
            site,
            "run.html.j2",
            run=opened.manifest,
            entry=entry,
            # What the list of runs says may be a second old.
            is_live=entry.is_live and opened.manifest.state is State.RUNNING,
            facts=_facts(opened),
            groups=_groups(opened),
            comparable=_comparable(site, opened, entry),
            quarantine=quarantine_of(opened.manifest.settings),
            flow_run_url=_flow_run_url(opened.manifest),
            ended_items=0 if table is None else table.ended_items(),
            page=page,
            chosen=0 if table is None else table.count(choice),
            facets=None if table is None else table.facets(),
            choice=choice,
            order=order,
            orders=tuple(CASE_ORDERS),
            next_url=_next_url(site, request, run_id, page),
        )


def parse_key(text: str | None) -> CaseKey | None:
    """Return the key in an address; raises `UsageError`."""
    if not text:
        return None
    value, _, number = text.partition("~")
    try:
        key = CaseKey(float(value), int(number))
    except ValueError as error:
        raise UsageError(_no_key(text)) from error
    # NaN is below and above nothing: the page would be empty. 64 bits are what a row's number has.
    if math.isnan(key.key) or abs(key.number) >= 2**63:
        raise UsageError(_no_key(text))
    return key


def _no_key(text: str) -> str:
    return f"after={text!r} is not where a page ends: follow the link of a page to the next one"


def _next_url(site: Site, request: Request, run_id: str, page: CasePage) -> str | None:
    if page.following is None:
        return None
    query = dict(request.query_params)
    query["after"] = f"{page.following.key!r}~{page.following.number}"
    return page_url(site, "runs", run_id, **query)


def _comparable(site: Site, opened: OpenedRun, entry: RunEntry) -> str | None:
    """Return the run to compare with: the baseline, else the run before; None if there is none."""
    if not entry.is_decided:
        return None
    baseline = opened.manifest.settings.get("baseline")
    if baseline:
        return str(baseline["run"])
    earlier = site.catalogue.before(entry)
    return None if earlier is None else earlier.id


def _flow_run_url(manifest: Manifest) -> str | None:
    """Return the address of the Prefect flow run that evaluated the run, if a browser follows it.

    A store may be written by others: no other scheme is linked.
    """
    address = manifest.execution.get("flow_run_url")
    if not isinstance(address, str) or not address.startswith(("http://", "https://")):
        return None
    return address


def _groups(opened: OpenedRun) -> Mapping[str, str | None]:
    """Return the groups of the changed cases that the page lists, for their addresses."""
    if opened.report is None or opened.cases is None:
        return {}
    return opened.cases.groups_of([each.case for each in changes(opened.report)[:_MOST_CHANGES]])


def _facts(opened: OpenedRun) -> dict[str, Any] | None:
    report = opened.report
    if report is None:
        return None
    summary = report.summary
    listed = changes(report)
    return {
        "report": report,
        "summary": summary,
        "counts": asdict(summary.counts),
        "rate": rate_text(summary.pass_rate, summary.pass_sample),
        "score": score_text(summary.score, summary.score_sample),
        "changes": listed[:_MOST_CHANGES],
        "unlisted_changes": max(0, len(listed) - _MOST_CHANGES),
        "measure_changes": measure_changes(report),
        "no_comparison": no_comparison(report),
        "tokens": tokens_text(summary),
        "notes": list(summary_notes(summary)),
    }

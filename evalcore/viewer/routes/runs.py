"""One run: its gates, what changed, its cases as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel

from evalcore.analytics.assertions import AssertionCounts
from evalcore.analytics.cases import (
    CASE_ORDERS,
    CaseChoice,
    CaseItem,
    CaseKey,
    CasePage,
    read_items,
)
from evalcore.errors import ObjectNotFoundError, UsageError
from evalcore.model.run import Manifest, State
from evalcore.model.suite import quarantine_of
from evalcore.report.comparison import changes, measure_changes, no_comparison
from evalcore.report.figures import rate_text, score_text, summary_notes, tokens_text
from evalcore.report.view import shown_text
from evalcore.storage.layout import blob_key
from evalcore.viewer.catalogue import RunEntry
from evalcore.viewer.rendering import page_url, render
from evalcore.viewer.security import Chosen
from evalcore.viewer.site import CurrentSite, Site
from evalcore.viewer.views.case import planned_case, read_evidence
from evalcore.viewer.views.opened import OpenedRun

router = APIRouter()
_CASES_PER_PAGE: Final = 100
_MOST_CHANGES: Final = 50
_FIRST_ORDER: Final = "worst"


class CaseQuery(BaseModel):
    """What an address chooses of a run's cases; an empty value chooses nothing."""

    outcome: Chosen = None
    variant: Chosen = None
    tag: Chosen = None
    assertion: Chosen = None
    q: Chosen = None
    changed: bool = False
    order: Chosen = None
    after: Chosen = None

    @property
    def choice(self) -> CaseChoice:
        """The filters."""
        named = self.outcome, self.variant, self.tag, self.assertion
        return CaseChoice(*named, text=self.q, changed=self.changed)


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


# More rows are no help, and too large a page.
_MOST_LISTED: Final = 500


@router.get("/runs/{run_id}/assertions")
def run_assertions(request: Request, site: CurrentSite, run_id: str) -> Response:
    """Show the assertions of a run, those that fail most first."""
    with site.opened.open(run_id) as opened:
        counts = opened.assertion_counts
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


@router.get("/runs/{run_id}/look.json")
def run_look(site: CurrentSite, run_id: str) -> Response:
    """Return what `evalcore runs watch --json` prints, for a page that asks once a second."""
    headers = {"Cache-Control": "no-store"}
    return Response(orjson.dumps(site.look(run_id)), media_type="application/json", headers=headers)


_WHOLE: Final = 2**31 - 1


@router.get("/runs/{run_id}/items/{number}/output")
def item_output(
    site: CurrentSite, run_id: str, number: int, block: Annotated[str | None, Query()] = None
) -> Response:
    """Return the whole output of a work item, or of a block of its workflow."""
    with site.opened.open(run_id) as opened:
        row = _item(opened, number)
        if block is not None:
            evidence = read_evidence(row, opened.run.store)
            text = None if evidence is None else evidence.outputs.get(block)
        elif row.output_ref is not None:
            text = _blob(opened, row.output_ref)
        else:
            text = row.output
    return _text(text, f"{run_id}-{number}-output.txt")


@router.get("/runs/{run_id}/items/{number}/evidence")
def item_evidence(site: CurrentSite, run_id: str, number: int) -> Response:
    """Return what stands in the evidence of a work item beside its output, as JSON text."""
    with site.opened.open(run_id) as opened:
        row = _item(opened, number)
        text = row.evidence if row.evidence_ref is None else _blob(opened, row.evidence_ref)
    indented = (
        None if text is None else orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2)
    )
    return _text(None if indented is None else indented.decode(), f"{run_id}-{number}-evidence.txt")


@router.get("/runs/{run_id}/planned/{case_number}/{part}")
def planned_text(
    site: CurrentSite, run_id: str, case_number: int, part: Literal["input", "expected"]
) -> Response:
    """Return the whole input or expected output of a case, JSON where it is no text."""
    with site.opened.open(run_id) as opened:
        if not 0 <= case_number < opened.manifest.plan.cases:
            raise HTTPException(404)
        case = planned_case(opened, case_number)
    text = shown_text(case.input if part == "input" else case.expected_output)
    return _text(text, f"{run_id}-case-{case_number}-{part}.txt")


def _item(opened: OpenedRun, number: int) -> CaseItem:
    tables = opened.connection
    rows = () if tables is None else read_items(tables, [number], most_characters=_WHOLE)
    if not rows:
        raise HTTPException(404)
    return rows[0]


def _blob(opened: OpenedRun, digest: str) -> str:
    try:
        data = opened.run.store.get(blob_key(digest)).data
    except ObjectNotFoundError as error:
        raise HTTPException(404, "This text is not in the store any more.") from error
    return data.decode("utf-8", "replace")


def _text(text: str | None, name: str) -> Response:
    if text is None:
        raise HTTPException(404)
    return Response(
        text.encode("utf-8", "replace"),
        media_type="text/plain; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store",
        },
    )

"""Texts that pages cut, whole: as plain text that a browser saves and never runs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import orjson
from fastapi import APIRouter, HTTPException, Query, Response

from evalcore.analytics.cases import CaseItem, read_items
from evalcore.errors import ObjectNotFoundError
from evalcore.report.view import shown_text
from evalcore.storage.layout import blob_key
from evalcore.viewer.case_pages import planned_case
from evalcore.viewer.item_views import read_evidence
from evalcore.viewer.opened_runs import OpenedRun
from evalcore.viewer.site import CurrentSite

router = APIRouter()
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

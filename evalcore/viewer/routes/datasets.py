"""Datasets: versions, what differs between two, captures that wait to become cases."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from evalcore.datasets.promotion import Acceptance
from evalcore.datasets.reference import DatasetReference
from evalcore.errors import EvalError, UsageError
from evalcore.report.view import question_of
from evalcore.viewer.capture_forms import (
    EXPECTATIONS,
    CaptureFields,
    acceptance_of,
    assertions_of,
    captured_output,
    editable_input,
    fields_of,
    preview,
)
from evalcore.viewer.posted_forms import Posted
from evalcore.viewer.rendering import page_url, render
from evalcore.viewer.site import CurrentSite, Site

router = APIRouter()
_CLUSTERS: Final = 20
_OF_CLUSTER: Final = 50
_CASES: Final = 50
_MOST_IDS: Final = 200
_CASE_CHARACTERS: Final = 2_000

Offset = Annotated[int, Query(ge=0, le=10**9)]


class CaseLine(NamedTuple):
    """A case of a version in a list."""

    id: str
    question: str | None
    assertions: int
    text: str


@router.get("/datasets")
def all_datasets(request: Request, site: CurrentSite) -> Response:
    """Show a line for each dataset."""
    return render(
        request,
        site,
        "datasets.html.j2",
        datasets=site.datasets.datasets(),
        address=_segment,
    )


@router.get("/datasets/{name}")
def one_dataset(request: Request, site: CurrentSite, name: str, offset: Offset = 0) -> Response:
    """Show the versions of a dataset, and its pending captures in clusters."""
    dataset, pending = site.datasets.dataset(unquote(name), offset=offset, limit=_CLUSTERS)
    return render(
        request,
        site,
        "dataset.html.j2",
        dataset=dataset,
        segment=_segment(dataset.name if dataset.records else unquote(name)),
        versions=dataset.versions[::-1],
        pending=pending,
        following=offset + _CLUSTERS if offset + _CLUSTERS < pending.total_clusters else None,
        of_cluster=_OF_CLUSTER,
        question_of=question_of,
    )


@router.post("/datasets/{name}")
def decide_captures(site: CurrentSite, name: str, form: Posted) -> Response:
    """Accept or refuse the captures that are checked."""
    ids = form.texts("capture")
    if not ids:
        raise UsageError("no capture is checked: check some, then accept or refuse them")
    if form.text("decision") == "refuse":
        site.datasets.refuse(unquote(name), ids)
    else:
        assertions = assertions_of(form.text("assertions"))
        accepted = [Acceptance(identity, assertions=assertions) for identity in ids]
        site.datasets.accept(unquote(name), accepted)
    return _see_dataset(site, name)


@router.get("/datasets/{name}/captures/{identity}")
def one_capture(request: Request, site: CurrentSite, name: str, identity: str) -> Response:
    """Show a pending capture as the form that makes a case of it."""
    capture = site.datasets.capture(unquote(name), identity)
    return _capture_page(request, site, name, capture, CaptureFields(editable_input(capture).text))


@router.post("/datasets/{name}/captures/{identity}")
def decide_capture(
    request: Request, site: CurrentSite, name: str, identity: str, form: Posted
) -> Response:
    """Accept a capture as it was edited, refuse it, or show the case that it would become."""
    capture = site.datasets.capture(unquote(name), identity)
    decision = form.text("decision")
    if decision == "refuse":
        site.datasets.refuse(unquote(name), [capture.id])
        return _see_dataset(site, name)
    fields = fields_of(form)
    if decision == "preview":
        return _capture_page(request, site, name, capture, fields, is_edited=True)
    try:
        acceptance = acceptance_of(capture, fields)
    except EvalError:
        # The page says what is wrong, and still has what was written.
        return _capture_page(request, site, name, capture, fields, is_edited=True, status=400)
    site.datasets.accept(unquote(name), [acceptance])
    return _see_dataset(site, name)


@router.get("/datasets/{name}/{version}")
def one_version(
    request: Request,
    site: CurrentSite,
    name: str,
    version: int,
    offset: Offset = 0,
    since: str = "",
) -> Response:
    """Show the cases of a version, and what differs from the version of `since`."""
    page = site.datasets.cases(
        DatasetReference(unquote(name), version), offset=offset, limit=_CASES
    )
    if since and not since.isdecimal():
        raise UsageError(f"since={since!r}: the number of a version")
    difference = None
    if since:
        difference = site.datasets.difference(unquote(name), int(since), version)
    dataset, _ = site.datasets.dataset(unquote(name), offset=0, limit=1)
    return render(
        request,
        site,
        "dataset_version.html.j2",
        dataset_version=page.version,
        segment=_segment(page.version.dataset),
        others=[each for each in dataset.versions[::-1] if each.version != version],
        since=since,
        difference=difference,
        most_ids=_MOST_IDS,
        cases=[_case_line(case) for case in page.cases],
        offset=offset,
        following=offset + _CASES if offset + _CASES < page.total else None,
    )


def _capture_page(
    request: Request,
    site: Site,
    name: str,
    capture: Any,
    fields: CaptureFields,
    *,
    is_edited: bool = False,
    status: int = 200,
) -> Response:
    case, mistake = preview(capture, fields) if is_edited else (None, None)
    return render(
        request,
        site,
        "capture.html.j2",
        status=status,
        name=unquote(name),
        segment=_segment(unquote(name)),
        capture=capture,
        is_json=editable_input(capture).is_json,
        output=captured_output(capture),
        fields=fields,
        expectations=EXPECTATIONS,
        case=case,
        mistake=mistake,
    )


def _case_line(case: dict[str, Any]) -> CaseLine:
    text = orjson.dumps(case, option=orjson.OPT_INDENT_2).decode()
    return CaseLine(
        str(case["id"]),
        question_of(case.get("input")),
        len(case.get("assertions") or ()),
        text if len(text) <= _CASE_CHARACTERS else f"{text[:_CASE_CHARACTERS]}…",
    )


def _segment(name: str) -> str:
    """Return a dataset's name as part of a path: quoted here, as `/` may stand in it."""
    return quote(name, safe="")


def _see_dataset(site: Site, name: str) -> RedirectResponse:
    return RedirectResponse(page_url(site, "datasets", name), 303)

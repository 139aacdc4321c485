"""Datasets: versions, what differs between two, captures that wait to become cases."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from evalcore.datasets.messages import case_input
from evalcore.datasets.pending import PendingCapture
from evalcore.datasets.promotion import Acceptance, case_of
from evalcore.datasets.reference import DatasetReference
from evalcore.errors import EvalError, UsageError
from evalcore.formats.single_assertions import parse_assertions
from evalcore.jsonvalues import json_reason
from evalcore.report.escape import visible
from evalcore.report.view import question_of
from evalcore.viewer.rendering import page_url, render
from evalcore.viewer.security import Posted, PostedForm
from evalcore.viewer.site import CurrentSite, Site

EXPECTATIONS: Final = {
    "none": "nothing",
    "reference": "the captured output, as expected output",
    "fixture": "the captured output, as expected output and as the answer (no target is asked)",
}
_OUTPUT_CHARACTERS: Final = 40_000


class EditedText(NamedTuple):
    """An input as a form holds it; JSON unless it is a text that can be shown as it is."""

    text: str
    is_json: bool


@dataclass(frozen=True, slots=True)
class CaptureFields:
    """What the fields of the form hold."""

    input: str
    assertions: str = ""
    personal: str = ""
    tags: str = ""
    expectation: str = "none"


def editable_input(capture: PendingCapture) -> EditedText:
    """Return the input of the case that the capture becomes, to be edited."""
    value = case_input(capture.input)
    if isinstance(value, str) and visible(value) == value and "\r" not in value:
        return EditedText(value, is_json=False)
    # Characters that cannot be seen would not survive a form.
    return EditedText(json.dumps(value, indent=2, ensure_ascii=not _is_visible(value)), True)


def captured_output(capture: PendingCapture) -> str | None:
    """Return the beginning of the captured output; None if the call ended in an error."""
    if capture.error is not None or "output" not in capture.record:
        return None
    value = capture.output
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text[:_OUTPUT_CHARACTERS]


def fields_of(form: PostedForm) -> CaptureFields:
    """Return what was sent."""
    expectation = form.text("expectation")
    return CaptureFields(
        form.text("input"),
        form.text("assertions"),
        form.text("personal"),
        form.text("tags"),
        expectation if expectation in EXPECTATIONS else "none",
    )


def acceptance_of(capture: PendingCapture, fields: CaptureFields) -> Acceptance:
    """Return what the fields say of the capture; raise `EvalError` for what cannot be a case."""
    edited = editable_input(capture)
    changes: dict[str, Any] = {}
    if fields.input != edited.text:
        changes["input"] = _parsed_input(fields.input, edited)
    acceptance = Acceptance(
        capture.id,
        assertions=assertions_of(fields.assertions),
        personal=tuple(filter(None, fields.personal.split("\n"))),
        tags=tuple(filter(None, (tag.strip() for tag in fields.tags.split(",")))),
        expect_output=fields.expectation == "fixture",
        reference_output=fields.expectation == "reference",
        **changes,
    )
    case_of(capture, acceptance)
    return acceptance


def assertions_of(text: str) -> list[dict[str, Any]]:
    """Return the assertions of a field; raise `LoadError`."""
    return parse_assertions(text, "assertions") if text.strip() else []


def preview(capture: PendingCapture, fields: CaptureFields) -> tuple[str | None, str | None]:
    """Return the case that the fields make as JSON, else why they make none."""
    try:
        case = case_of(capture, acceptance_of(capture, fields))
    except EvalError as error:
        return None, str(error)
    return orjson.dumps(case, option=orjson.OPT_INDENT_2).decode(), None


def _parsed_input(text: str, edited: EditedText) -> Any:
    if not edited.is_json:
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"input: not JSON: {json_reason(error)}") from None


def _is_visible(value: Any) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return visible(text) == text


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

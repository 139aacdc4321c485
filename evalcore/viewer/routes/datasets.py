"""Datasets: versions, what differs between two, captures that wait to become cases."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import orjson
from fastapi import APIRouter, Form, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator

from evalcore.datasets.pending import (
    Acceptance,
    PendingCapture,
    case_input,
    case_of,
    chosen_captures,
    promote,
    refuse,
)
from evalcore.datasets.reference import DatasetReference
from evalcore.datasets.store import compare_versions, find_version, read_dataset, version_cases
from evalcore.errors import EvalError, UsageError
from evalcore.formats.single_assertions import parse_assertions
from evalcore.jsonvalues import json_reason
from evalcore.report.escape import visible
from evalcore.report.view import question_of
from evalcore.viewer.rendering import page_url, render
from evalcore.viewer.security import FormText
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


class CaptureForm(BaseModel):
    """What the fields of the form hold, and which button sends it."""

    input: FormText = ""
    assertions: FormText = ""
    personal: FormText = ""
    tags: str = ""
    expectation: str = "none"
    decision: str = "accept"


class CapturesForm(BaseModel):
    """The captures that are checked, and what becomes of them."""

    capture: list[str] = []
    assertions: FormText = ""
    decision: str = "accept"


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


def acceptance_of(capture: PendingCapture, fields: CaptureForm) -> Acceptance:
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


def preview(capture: PendingCapture, fields: CaptureForm) -> tuple[str | None, str | None]:
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
# A form has at most 1,000 fields.
_OF_CLUSTER: Final = 45
_CASES: Final = 50
_MOST_IDS: Final = 200
_CASE_CHARACTERS: Final = 2_000

Offset = Annotated[int, Query(ge=0, le=10**9)]


# A name may have `/`: it is quoted within its part of a path.
Name = Annotated[str, AfterValidator(unquote)]
Since = Annotated[int | None, BeforeValidator(lambda text: text or None)]


class CaseLine(NamedTuple):
    """A case of a version in a list."""

    id: str
    question: str | None
    assertions: int
    text: str


@router.get("/datasets")
def all_datasets(request: Request, site: CurrentSite) -> Response:
    """Show a line for each dataset."""
    datasets = site.datasets.datasets()
    return render(request, site, "datasets.html.j2", datasets=datasets, address=_segment)


@router.get("/datasets/{name}")
def one_dataset(request: Request, site: CurrentSite, name: Name, offset: Offset = 0) -> Response:
    """Show the versions of a dataset, and its pending captures in clusters."""
    dataset = read_dataset(site.store, name)
    pending = site.datasets.pending(name, offset=offset, limit=_CLUSTERS)
    if not dataset.versions and not pending.total_captures:
        raise HTTPException(404, f"There is no dataset '{name}' in this store.")
    return render(
        request,
        site,
        "dataset.html.j2",
        dataset=dataset,
        segment=_segment(dataset.name if dataset.records else name),
        versions=dataset.versions[::-1],
        pending=pending,
        following=offset + _CLUSTERS if offset + _CLUSTERS < pending.total_clusters else None,
        of_cluster=_OF_CLUSTER,
        question_of=question_of,
    )


@router.post("/datasets/{name}")
def decide_captures(
    site: CurrentSite, name: Name, form: Annotated[CapturesForm, Form()]
) -> Response:
    """Accept or refuse the captures that are checked."""
    if not form.capture:
        raise UsageError("no capture is checked: check some, then accept or refuse them")
    if form.decision == "refuse":
        refuse(site.store, name, form.capture, reader=site.datasets.reader)
    else:
        assertions = assertions_of(form.assertions)
        accepted = [Acceptance(identity, assertions=assertions) for identity in form.capture]
        promote(site.store, name, accepted, reader=site.datasets.reader)
    return _see_dataset(site, name)


@router.get("/datasets/{name}/captures/{identity}")
def one_capture(request: Request, site: CurrentSite, name: Name, identity: str) -> Response:
    """Show a pending capture as the form that makes a case of it."""
    capture = _capture(site, name, identity)
    fields = CaptureForm(input=editable_input(capture).text)
    return _capture_page(request, site, name, capture, fields)


@router.post("/datasets/{name}/captures/{identity}")
def decide_capture(
    request: Request,
    site: CurrentSite,
    name: Name,
    identity: str,
    form: Annotated[CaptureForm, Form()],
) -> Response:
    """Accept a capture as it was edited, refuse it, or show the case that it would become."""
    capture = _capture(site, name, identity)
    if form.decision == "refuse":
        refuse(site.store, name, [capture.id], reader=site.datasets.reader)
    elif form.decision == "preview":
        return _capture_page(request, site, name, capture, form, is_edited=True)
    else:
        try:
            acceptance = acceptance_of(capture, form)
        except EvalError:
            # The page says what is wrong, and still has what was written.
            return _capture_page(request, site, name, capture, form, is_edited=True, status=400)
        promote(site.store, name, [acceptance], reader=site.datasets.reader)
    return _see_dataset(site, name)


@router.get("/datasets/{name}/{version}")
def one_version(
    request: Request,
    site: CurrentSite,
    name: Name,
    version: int,
    offset: Offset = 0,
    since: Since = None,
) -> Response:
    """Show the cases of a version, and what differs from the version of `since`."""
    shown = find_version(site.store, DatasetReference(name, version))
    difference = None
    if since is not None:
        earlier = find_version(site.store, DatasetReference(name, since))
        difference = compare_versions(site.store, earlier, shown)
    versions = read_dataset(site.store, name).versions[::-1]
    cases = version_cases(site.store, shown, offset=offset, limit=_CASES)
    return render(
        request,
        site,
        "dataset_version.html.j2",
        dataset_version=shown,
        segment=_segment(shown.dataset),
        others=[each for each in versions if each.version != version],
        since=since,
        difference=difference,
        most_ids=_MOST_IDS,
        cases=[_case_line(case) for case in cases],
        offset=offset,
        following=offset + _CASES if offset + _CASES < shown.cases else None,
    )


def _capture(site: Site, name: str, identity: str) -> PendingCapture:
    """Return a pending capture; raise 404 if it does not wait any more."""
    pending = site.datasets.reader.read(read_dataset(site.store, name))
    captures, _ = chosen_captures(pending, [identity])
    if not captures:
        raise HTTPException(
            404, f"No capture {identity} of dataset '{name}' waits: it was accepted or refused."
        )
    return captures[0]


def _capture_page(
    request: Request,
    site: Site,
    name: str,
    capture: PendingCapture,
    fields: CaptureForm,
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
        name=name,
        segment=_segment(name),
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
    return RedirectResponse(page_url(site, "datasets", _segment(name)), 303)

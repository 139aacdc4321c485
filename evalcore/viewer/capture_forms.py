"""The form that makes a case of a capture: what it shows, and what is sent with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from evalcore.datasets.messages import case_input
from evalcore.datasets.pending import PendingCapture
from evalcore.datasets.promotion import Acceptance, case_of
from evalcore.errors import EvalError, UsageError
from evalcore.formats.single_assertions import parse_assertions
from evalcore.jsonvalues import json_reason
from evalcore.report.escape import visible
from evalcore.viewer.posted_forms import PostedForm

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

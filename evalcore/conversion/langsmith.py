"""Examples of LangSmith's datasets, and runs of its experiments → suites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.conversion.converted import Converted, Notes
from evalcore.conversion.exported_rows import (
    ExportedRow,
    convert_rows,
    id_text,
    metadata_of,
    parsed_cell,
)
from evalcore.conversion.foreign_file import ForeignFile
from evalcore.conversion.foreign_shapes import LangSmithRow, check_shape
from evalcore.conversion.registry import ImportOptions
from evalcore.formats.text.documents import raise_problem

# What says the answer of a run, beside the reference that it is compared with.
_REFERENCES: Final = ("reference_outputs", "reference_output", "expected_outputs", "reference")
_IDS: Final = ("id", "example_id", "run_id", "name")
_FEEDBACK: Final = ("feedback", "feedback_stats", "scores")
_SINGLE: Final = (
    "output",
    "answer",
    "expected",
    "response",
    "text",
    "result",
    "content",
    "message",
)


def convert_langsmith(file: ForeignFile, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of an export; raise `LoadError` if a row has no inputs."""
    value = file.value.get("examples") if isinstance(file.value, Mapping) else file.value
    if not isinstance(value, list) or not value:
        raise_problem(file.name, None, "an export of LangSmith has rows with 'inputs'")
    rows = []
    for number, raw in enumerate(value, 1):
        if isinstance(raw, Mapping) and parsed_cell(raw.get("parent_run_id")):
            notes.add("runs below a trace's own are not taken over", f"row {number}")
            continue
        rows.append(_row(file, number, raw, notes))
    return convert_rows(file, rows, options, notes)


def _row(file: ForeignFile, number: int, raw: Any, notes: Notes) -> ExportedRow:
    check_shape(file, raw, LangSmithRow, (number - 1,))
    # Runs have a reference beside their outputs; of an example the outputs are the reference.
    reference = next((key for key in _REFERENCES if key in raw), None)
    expected = raw.get(reference or "outputs")
    output = raw.get("outputs") if reference else None
    for key in _FEEDBACK:
        if raw.get(key):
            notes.add(f"{key}: scores of the experiment are not taken over", f"row {number}")
    if raw.get("attachments") or raw.get("attachment_urls"):
        notes.add("attachments are not taken over", f"row {number}")
    metadata = metadata_of(raw.get("metadata"))
    splits = raw.get("split") or metadata.get("dataset_split") or ()
    splits = splits if isinstance(splits, list) else [splits] if splits else []
    return ExportedRow(
        id=id_text(next((raw[key] for key in _IDS if raw.get(key) not in (None, "")), None)),
        input=_only_value(parsed_cell(raw["inputs"])),
        expected=_only_value(parsed_cell(expected)),
        output=_only_value(parsed_cell(output)),
        metadata=metadata,
        tags=[str(split) for split in splits],
    )


def _only_value(value: Any) -> Any:
    """Return the value of a mapping with one key, such as `{question: …}`; else the value.

    Of an answer with several keys (`{answer, context}`) it is still the whole mapping.
    """
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((key, only),) = value.items()
    return only if isinstance(only, str | list) or key in _SINGLE else value

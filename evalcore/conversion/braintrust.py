"""Rows of Braintrust's datasets and experiments → suites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from evalcore.conversion.converted import Converted, Notes
from evalcore.conversion.exported_rows import (
    ExportedRow,
    convert_rows,
    id_text,
    metadata_of,
    parsed_cell,
)
from evalcore.conversion.foreign_file import ForeignFile
from evalcore.conversion.foreign_shapes import BraintrustRow, check_shape
from evalcore.conversion.registry import ImportOptions, braintrust_rows
from evalcore.formats.text.documents import raise_problem

_MEASURES: Final = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "estimated_cost": "cost_usd",
}


def convert_braintrust(file: ForeignFile, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of an export; raise `LoadError` if a row has no input."""
    value = braintrust_rows(file.value)
    if not isinstance(value, list) or not value:
        raise_problem(file.name, None, "an export of Braintrust has rows with 'input'")
    rows = []
    for number, raw in enumerate(value, 1):
        if isinstance(raw, Mapping) and _is_inner(raw):
            notes.add("spans below a row's own are not taken over", f"row {number}")
            continue
        rows.append(_row(file, number, raw, notes))
    return convert_rows(file, rows, options, notes)


def _is_inner(raw: Mapping[str, Any]) -> bool:
    """Whether a row is a span below another one."""
    return raw.get("is_root") is False or bool(parsed_cell(raw.get("span_parents")))


def _row(file: ForeignFile, number: int, raw: Any, notes: Notes) -> ExportedRow:
    check_shape(file, raw, BraintrustRow, (number - 1,))
    position = f"row {number}"
    if raw.get("scores"):
        names = ", ".join(sorted(parsed_cell(raw["scores"]) or ()))
        notes.add(f"scores ({names}): scorers are programs, they are not taken over", position)
    if raw.get("error"):
        notes.add("the row ended in an error: it has no answer, and the target is asked", position)
    tags = parsed_cell(raw.get("tags")) or ()
    return ExportedRow(
        id=id_text(raw.get("id")),
        input=parsed_cell(raw["input"]),
        expected=parsed_cell(raw.get("expected")),
        output=None if raw.get("error") else parsed_cell(raw.get("output")),
        metrics=_metrics(parsed_cell(raw.get("metrics"))),
        metadata=metadata_of(raw.get("metadata")),
        tags=[str(tag) for tag in ([tags] if isinstance(tags, str) else tags)],
    )


def _metrics(raw: Any) -> dict[str, float]:
    if not isinstance(raw, Mapping):
        return {}
    measured = {ours: raw[key] for key, ours in _MEASURES.items() if _is_measure(raw.get(key))}
    start, end = raw.get("start"), raw.get("end")
    if _is_measure(start) and _is_measure(end) and end >= start:
        measured["latency_ms"] = round((end - start) * 1000, 3)
    return measured


def _is_measure(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0

"""Goldens, test cases and test runs of DeepEval → suites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
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
from evalcore.conversion.foreign_shapes import DeepEvalRow, check_shape
from evalcore.conversion.registry import ImportOptions
from evalcore.declared.parameters import snake_case
from evalcore.formats.text.documents import raise_problem

_METADATA: Final = ("context", "retrieval_context", "comments", "source_file")
_TOOLS: Final = ("expected_tools", "tools_called")
_MEASURES: Final = {
    "token_cost": ("cost_usd", 1.0),
    "input_token_count": ("input_tokens", 1.0),
    "output_token_count": ("output_tokens", 1.0),
    "completion_time": ("latency_ms", 1000.0),  # in seconds
}
_METRICS: Final = (
    "are not taken over; those that ask a model have DeepEval's prompts: --check judge"
)
_EXACT: Final = "Exact Match"
_CONVERSATIONS: Final = "conversations are not taken over: a test with messages or turns says them"


def convert_deepeval(file: ForeignFile, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of a dataset or of a test run; raise `LoadError` if a row has no input."""
    value = file.value
    if isinstance(value, Mapping):  # the latest run stands in one key
        value = value.get("testRunData") or value
    is_run = isinstance(value, Mapping)
    listed = value.get("testCases") if is_run else value
    if is_run and value.get("conversationalTestCases"):
        notes.add(_CONVERSATIONS, "conversationalTestCases")
    if not isinstance(listed, list) or not listed:
        raise_problem(file.name, None, "a file of DeepEval has rows with 'input'")
    rows = []
    for number, raw in enumerate(listed, 1):
        if isinstance(raw, Mapping) and "scenario" in raw and "input" not in raw:
            notes.add(_CONVERSATIONS, f"row {number}")
            continue
        rows.append(_row(file, number, raw, notes, is_run=is_run))
    metrics = _metric_names(listed)
    if metrics == [_EXACT] and options.check is None:
        options = replace(options, check="equals")
    elif metrics:
        notes.add(f"the metrics ({', '.join(metrics)}) {_METRICS}")
    if not rows:
        raise_problem(file.name, None, f"nothing is left of it: {'; '.join(notes.lines)}")
    return convert_rows(file, rows, options, notes)


def _row(file: ForeignFile, number: int, raw: Any, notes: Notes, *, is_run: bool) -> ExportedRow:
    check_shape(file, raw, DeepEvalRow, ("testCases", number - 1) if is_run else (number - 1,))
    row = {snake_case(str(key)): parsed_cell(value) for key, value in raw.items()}
    position = f"row {number}"
    for key in _TOOLS:
        if row.get(key):
            notes.add(f"{key}: write `tool-trajectory`; only a target reports calls", position)
    if row.get("expectations"):
        notes.add("expectations are not taken over", position)
    sources = {key: row[key] for key in _METADATA if row.get(key)}
    own = row.get("custom_column_key_values")
    return ExportedRow(
        id=id_text(row.get("name")),
        input=raw["input"] or "",
        expected=_text(raw, "expected_output", "expectedOutput"),
        output=_text(raw, "actual_output", "actualOutput"),
        metrics=_metrics(row),
        metadata={
            **metadata_of(row.get("additional_metadata") or row.get("metadata")),
            **(own if isinstance(own, Mapping) else {}),
            **sources,
        },
        tags=[str(tag) for tag in row.get("tags") or ()],
    )


def _metric_names(rows: Sequence[Any]) -> list[str]:
    """Return the names of the metrics of a run."""
    measured = [
        each
        for row in rows
        if isinstance(row, Mapping) and isinstance(row.get("metricsData"), list)
        for each in row["metricsData"]
        if isinstance(each, Mapping)
    ]
    return sorted({str(each.get("name")) for each in measured})


def _text(raw: Mapping[str, Any], *keys: str) -> Any:
    """Return a text as it is, also one of JSON."""
    return next((raw[key] for key in keys if raw.get(key) is not None), None)


def _metrics(row: Mapping[str, Any]) -> dict[str, float]:
    measured = {}
    for key, (name, factor) in _MEASURES.items():
        try:
            number = float(row[key]) * factor
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if isfinite(number) and number >= 0:
            measured[name] = number
    return measured

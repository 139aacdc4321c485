"""Rows of an export, with an input and an expected output each → a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from evalcore.conversion.converted import Converted, ConvertedCase, Notes, unique_id
from evalcore.conversion.expected_checks import (
    as_input,
    chat_messages,
    default_judge,
    expected_check,
    is_structured,
)
from evalcore.conversion.foreign_file import ForeignFile
from evalcore.conversion.registry import ImportOptions
from evalcore.formats.text.documents import raise_problem
from evalcore.model.suite import Format

_DEFAULT_CHECK: Final = "contains"
_ASSUMED: Final = (
    "the file does not say how answers are compared: an answer has to contain the expected text, "
    "in any case of letters, and to equal an expected value that is no text; --check equals "
    "compares whole texts, --check judge asks a model"
)


@dataclass(frozen=True, slots=True)
class ExportedRow:
    """A row: what is asked, what is expected, and what was answered; None where it is absent."""

    id: str
    input: Any
    expected: Any = None
    output: Any = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()


def convert_rows(
    file: ForeignFile, rows: Sequence[ExportedRow], options: ImportOptions, notes: Notes
) -> Converted:
    """Return the suite of the rows, a test file if all expected outputs and answers are texts.

    Rows that expect nothing are left out and noted. Raises `LoadError` if none is left.
    """
    rows = [_with_answer_texts(row, notes) for row in rows]
    comparable = [row for row in rows if row.expected is not None]
    if len(comparable) < len(rows):
        dropped = len(rows) - len(comparable)
        notes.add(f"{dropped} of {len(rows)} rows are left out: they expect nothing to compare")
    if not comparable:
        raise_problem(file.name, None, "no row has an expected output, so nothing can be checked")
    if options.check is None:
        notes.add(_ASSUMED)
    check = options.check or _DEFAULT_CHECK
    values = [row.expected for row in comparable] + [row.output for row in comparable]
    in_suite = is_structured(values) or any(_is_empty(row.expected) for row in comparable)
    has_answers = any(row.output is not None for row in comparable)
    cases: dict[str, ConvertedCase] = {}
    for number, row in enumerate(comparable, 1):
        name = unique_id(row.id or f"case-{number}", cases)
        if has_answers and row.output is None:
            notes.add("no answer is recorded: the target is asked", name)
        cases[name] = ConvertedCase(
            name,
            as_input(row.input),
            [expected_check(row.expected, check, in_suite=in_suite)],
            expected_output=row.expected,
            output=row.output,
            metrics=row.metrics,
            metadata=row.metadata,
            tags=row.tags,
        )
    form = Format.SUITE if in_suite else Format.TEST_FILE
    judges = default_judge(notes) if check == "judge" else []
    return Converted(form, options.name, tuple(cases.values()), judges=judges)


def _with_answer_texts(row: ExportedRow, notes: Notes) -> ExportedRow:
    """Return the row with answers that are messages as their texts, which targets answer with."""
    expected, output = answer_text(row.expected), answer_text(row.output)
    if (expected, output) == (row.expected, row.output):
        return row
    notes.add("of answers that are messages the text of the last one counts")
    return replace(row, expected=expected, output=output)


def answer_text(value: Any) -> Any:
    """Return the text of a message of the assistant, or of the last message if it is one.

    Any other value is returned as it is.
    """
    messages = chat_messages(value if isinstance(value, list) else [value])
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant":
        return value
    raw = value[-1] if isinstance(value, list) else value
    # What only calls tools has no text; what says nothing has an empty one.
    return last["content"] if last["content"] or raw.get("content") == "" else value


def _is_empty(value: Any) -> bool:
    # Test files refuse to compare with an empty text.
    return isinstance(value, str) and not value


def id_text(value: Any) -> str:
    """Return an id as text, empty if there is none."""
    return "" if value is None else str(value)


def parsed_cell(value: Any) -> Any:
    """Return the value of a cell: of CSV, the JSON object or array in its text."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def metadata_of(value: Any) -> Mapping[str, Any]:
    """Return metadata as a mapping; what is none stands under its own name."""
    parsed = parsed_cell(value)
    if parsed in (None, ""):
        return {}
    return parsed if isinstance(parsed, Mapping) else {"metadata": parsed}

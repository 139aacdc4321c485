"""Exports of LangSmith, Braintrust and DeepEval: rows with inputs, expected outputs and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Final, TypeGuard

import orjson

from evalcore.formats.documents import raise_problem
from evalcore.importers.converted import (
    Converted,
    ConvertedCase,
    Notes,
    as_input,
    chat_messages,
    default_judge,
    expected_check,
    is_structured,
    unique_id,
)
from evalcore.importers.files import (
    BraintrustRow,
    DeepEvalRow,
    ForeignFile,
    LangSmithRow,
    check_shape,
)
from evalcore.importers.registry import ImportOptions, braintrust_rows
from evalcore.model.suite import Format
from evalcore.shapes import snake_case

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
        rows.append(_langsmith_row(file, number, raw, notes))
    return convert_rows(file, rows, options, notes)


def _langsmith_row(file: ForeignFile, number: int, raw: Any, notes: Notes) -> ExportedRow:
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
        rows.append(_braintrust_row(file, number, raw, notes))
    return convert_rows(file, rows, options, notes)


def _is_inner(raw: Mapping[str, Any]) -> bool:
    """Whether a row is a span below another one."""
    return raw.get("is_root") is False or bool(parsed_cell(raw.get("span_parents")))


def _braintrust_row(file: ForeignFile, number: int, raw: Any, notes: Notes) -> ExportedRow:
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


_METADATA: Final = ("context", "retrieval_context", "comments", "source_file")
_TOOLS: Final = ("expected_tools", "tools_called")
_DEEPEVAL_MEASURES: Final = {
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
        rows.append(_deepeval_row(file, number, raw, notes, is_run=is_run))
    metrics = _metric_names(listed)
    if metrics == [_EXACT] and options.check is None:
        options = replace(options, check="equals")
    elif metrics:
        notes.add(f"the metrics ({', '.join(metrics)}) {_METRICS}")
    if not rows:
        raise_problem(file.name, None, f"nothing is left of it: {'; '.join(notes.lines)}")
    return convert_rows(file, rows, options, notes)


def _deepeval_row(
    file: ForeignFile, number: int, raw: Any, notes: Notes, *, is_run: bool
) -> ExportedRow:
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
        metrics=_deepeval_metrics(row),
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


def _deepeval_metrics(row: Mapping[str, Any]) -> dict[str, float]:
    measured = {}
    for key, (name, factor) in _DEEPEVAL_MEASURES.items():
        try:
            number = float(row[key]) * factor
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if isfinite(number) and number >= 0:
            measured[name] = number
    return measured

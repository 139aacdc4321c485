"""Rows of LangSmith, Braintrust and DeepEval: which columns hold questions and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from evalcore.formats.documents import raise_problem
from evalcore.importers.converted import (
    Converted,
    ConvertedCase,
    Notes,
    as_input,
    chat_messages,
    check_cases,
    default_judge,
    expected_check,
    unique_id,
)
from evalcore.importers.files import ForeignFile
from evalcore.importers.registry import ImportOptions
from evalcore.model.suite import Format
from evalcore.problems import Problems
from evalcore.shapes import snake_case


@dataclass(frozen=True, slots=True)
class Preset:
    """The columns of a program, in snake_case; of several the first that a row has counts.

    Keys of `lists` lead from a document to its rows. Columns of `metadata` are mappings, those of
    `kept` stand in the metadata under their own names, those of `noted` are not taken over. With
    `as_texts` a text of JSON stays a text.
    """

    input: str
    expected: Sequence[str]
    output: str
    ids: Sequence[str]
    lists: Sequence[str]
    noted: Mapping[str, str]
    metadata: Sequence[str] = ("metadata",)
    kept: Sequence[str] = ()
    as_texts: bool = False


_SCORES: Final = "scores of the experiment are not taken over; scorers are programs"
_CALLS: Final = "write `tool-trajectory`; only a target reports calls"
_METRICS: Final = (
    "metrics are not taken over: --check equals compares whole texts, --check judge asks a model"
)
PRESETS: Final[Mapping[str, Preset]] = {
    "langsmith": Preset(
        input="inputs",
        # Runs have a reference beside their outputs; of an example the outputs are the reference.
        expected=("reference_outputs", "reference_output", "expected_outputs", "outputs"),
        output="outputs",
        ids=("id", "example_id", "run_id", "name"),
        lists=("examples",),
        noted={
            **dict.fromkeys(("feedback", "feedback_stats", "scores"), _SCORES),
            **dict.fromkeys(("attachments", "attachment_urls"), "attachments are not taken over"),
        },
    ),
    "braintrust": Preset(
        input="input",
        expected=("expected",),
        output="output",
        ids=("id",),
        lists=("events", "data", "examples"),
        noted={"scores": _SCORES},
    ),
    "deepeval": Preset(
        input="input",
        expected=("expected_output",),
        output="actual_output",
        ids=("name",),
        lists=("testRunData", "testCases"),
        noted={
            **dict.fromkeys(("expected_tools", "tools_called"), _CALLS),
            "expectations": "not taken over",
            "metrics_data": _METRICS,
        },
        metadata=("additional_metadata", "metadata", "custom_column_key_values"),
        kept=("context", "retrieval_context", "comments", "source_file"),
        as_texts=True,
    ),
}
_TAGS: Final = ("tags", "split", "dataset_split")
_PARENTS: Final = ("parent_run_id", "span_parents")
_SINGLE: Final = ("output", "answer", "expected", "response", "text", "result", "content")
_ASSUMED: Final = (
    "the file does not say how answers are compared: an answer has to contain the expected text, "
    "in any case of letters, and to equal an expected value that is no text; --check equals "
    "compares whole texts, --check judge asks a model"
)


def convert(file: ForeignFile, source: str, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of the rows, a test file if all expected outputs and answers are texts.

    Rows that expect nothing are left out and noted. Raises `LoadError` if none is left, or a row
    asks nothing.
    """
    preset = PRESETS[source]
    listed = _listed(file.value, preset, notes)
    if not isinstance(listed, list) or not listed:
        raise_problem(file.name, None, f"a file of {source} has rows with '{preset.input}'")
    rows = list(_cases(file, listed, preset, notes))
    check_cases(file.name, rows, notes)
    comparable = [row for row in rows if row.expected_output is not None]
    if len(comparable) < len(rows):
        dropped = len(rows) - len(comparable)
        notes.add(f"{dropped} of {len(rows)} rows are left out: they expect nothing to compare")
    if not comparable:
        raise_problem(file.name, None, "no row has an expected output, so nothing can be checked")
    if options.check is None:
        notes.add(_ASSUMED)
    check = options.check or "contains"
    values = [value for row in comparable for value in (row.expected_output, row.output)]
    # Test files compare texts only, and no empty ones.
    in_suite = any(each is not None and not isinstance(each, str) for each in values)
    in_suite = in_suite or any(row.expected_output == "" for row in comparable)
    has_answers = any(row.output is not None for row in comparable)
    cases: dict[str, ConvertedCase] = {}
    for number, row in enumerate(comparable, 1):
        name = unique_id(row.id or f"case-{number}", cases)
        if has_answers and row.output is None:
            notes.add("no answer is recorded: the target is asked", name)
        assertion = expected_check(row.expected_output, check, in_suite=in_suite)
        cases[name] = replace(row, id=name, assertions=[assertion])
    judges = default_judge(notes) if check == "judge" else []
    form = Format.SUITE if in_suite else Format.TEST_FILE
    return Converted(form, options.name, tuple(cases.values()), judges=judges)


def _listed(value: Any, preset: Preset, notes: Notes) -> Any:
    """Return the rows of an export: a list, or what stands in a document under one of its keys."""
    for name in preset.lists:
        if isinstance(value, Mapping) and name in value:
            for key, other in value.items():
                if key != name and isinstance(other, list) and other:
                    notes.add(f"{key} are not taken over")
            value = value[name]
    return value


def _cases(
    file: ForeignFile, listed: Sequence[Any], preset: Preset, notes: Notes
) -> Iterator[ConvertedCase]:
    """Yield the rows as cases without assertions."""
    problems = Problems(file.name, file.locate)
    for number, raw in enumerate(listed, 1):
        position = f"row {number}"
        row = {snake_case(str(key)): each for key, each in raw.items()} if _is_map(raw) else {}
        if row.get("is_root") is False or any(parsed_cell(row.get(key)) for key in _PARENTS):
            notes.add("spans and runs below a row's own are not taken over", position)
        elif "scenario" in row and preset.input not in row:
            notes.add("conversations are not taken over: write a test with `turns`", position)
        elif preset.input not in row:
            problems.add((number - 1, preset.input), "is required")
        else:
            yield _case(row, preset, notes, position)
    problems.raise_if_any()


def _case(row: Mapping[str, Any], preset: Preset, notes: Notes, position: str) -> ConvertedCase:
    for key, note in preset.noted.items():
        if row.get(key):
            notes.add(f"{key}: {note}", position)
    expected = next((key for key in preset.expected if key in row), "")
    if row.get("error"):
        notes.add("the row ended in an error: it has no answer, and the target is asked", position)
    answers = preset.output != expected and not row.get("error")
    metadata: dict[str, Any] = {}
    for key in preset.metadata:
        metadata |= metadata_of(row.get(key))
    metadata |= {key: parsed_cell(row[key]) for key in preset.kept if row.get(key)}
    tags = next((each for key in _TAGS if (each := row.get(key) or metadata.get(key))), ())
    tags = parsed_cell(tags)
    values = [row[preset.input], row.get(expected), row.get(preset.output) if answers else None]
    if not preset.as_texts:
        values = [_only_value(parsed_cell(value)) for value in values]
    texts = [values[0], answer_text(values[1]), answer_text(values[2])]
    if texts != values:
        notes.add("of answers that are messages the text of the last one counts")
    return ConvertedCase(
        id_text(next((row[key] for key in preset.ids if row.get(key) not in (None, "")), None)),
        as_input(texts[0]),
        (),
        expected_output=texts[1],
        output=texts[2],
        metadata=metadata,
        tags=[str(tag) for tag in (tags if isinstance(tags, list | tuple) else [tags])],
    )


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _only_value(value: Any) -> Any:
    """Return the value of a mapping with one key, such as `{question: …}`; else the value.

    Of an answer with several keys (`{answer, context}`) it is still the whole mapping.
    """
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((key, only),) = value.items()
    return only if isinstance(only, str | list) or key in (*_SINGLE, "message") else value


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

"""Read a file as cases of a dataset: all of it, or every mistake in it and nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Required

import orjson
from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.datasets.case_lines import content_id, encode_case
from evalcore.datasets.messages import case_input
from evalcore.datasets.pending import SHOWN_ID
from evalcore.declared.types import Text
from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.dataset_file.traces import is_traces, trace_cases
from evalcore.formats.rows import NO_TEST, RawTest
from evalcore.formats.section import STRICT
from evalcore.formats.sources import file_tests, forbidden_parts
from evalcore.mistakes.foreign_text import value_text
from evalcore.mistakes.problems import Problems, raise_all
from evalcore.mistakes.wording import describe
from evalcore.redaction.personal import PersonalRedactor
from evalcore.redaction.redactor import PROCESS

_SUFFIXES: Final = (".json", ".jsonl", ".csv", ".parquet")
_KEPT_BY_REDACTION: Final = ("id", "assertions", "expected", "tags")


@with_config(STRICT)
class DatasetRow(TypedDict, total=False):
    """One case of a dataset, as a line of its file says it."""

    id: Text
    description: str | None
    input: Required[Any]
    expected_output: Any
    criteria: str | None
    assertions: list[Any] | None
    expected: dict[str, list[Any]] | None
    fixtures: dict[str, Any] | None
    tags: list[str] | None
    metadata: dict[str, Any] | None


class ImportedCases(NamedTuple):
    """The cases of a file by their ids, as the lines of a dataset.

    `derived` are the ids that are made of the input. `repeated` counts the cases that came again.
    """

    lines: dict[str, bytes]
    derived: frozenset[str]
    repeated: int

    @property
    def cases(self) -> tuple[dict[str, Any], ...]:
        """The cases, decoded."""
        return tuple(map(orjson.loads, self.lines.values()))


def read_cases(
    path: Path, *, redact: bool | None = None, expect_output: bool = False
) -> ImportedCases:
    """Return the cases of a file: OpenTelemetry traces as JSON, JSON lines, CSV, Parquet.

    `redact` covers keys and personal data, by default in traces only. With `expect_output` what a
    trace's call answered is its case's answer and expected output. Raises `LoadError` with every
    mistake, `UsageError` for another kind of file.
    """
    if path.suffix.lower() not in _SUFFIXES:
        kinds = ", ".join(_SUFFIXES)
        raise UsageError(f"{path}: a dataset is imported from {kinds} (traces: .json, .jsonl)")
    name = str(path)
    _check_readable(path, name)
    collectors: dict[int, Problems] = {}
    of_traces = is_traces(path)
    rows = trace_cases(path, name, expect_output=expect_output) if of_traces else _rows(path, name)
    redactor = PersonalRedactor(PROCESS) if (of_traces if redact is None else redact) else None
    lines: dict[str, bytes] = {}
    derived: set[str] = set()
    repeated = 0
    for raw in rows:
        collectors[id(raw.problems)] = raw.problems
        if raw.value is NO_TEST:
            continue
        case = _checked(raw)
        if case is None:
            continue
        has_id = "id" in case
        if redactor is not None:
            case = _redacted(case, redactor)
        case["id"] = case.get("id") or f"case-{content_id(case['input'])[:SHOWN_ID]}"
        line = encode_case(case)
        if case["id"] in lines:
            if has_id and line != lines[case["id"]]:
                raw.problems.add((*raw.loc, "id"), f"duplicate id: {case['id']}")
            repeated += 1
            continue
        lines[case["id"]] = line
        if not has_id:
            derived.add(case["id"])
    raise_all(tuple(collectors.values()))
    if not lines:
        reason = "no span has gen_ai.input.messages" if of_traces else "holds no case"
        raise LoadError((Problem(name, None, "", reason),))
    return ImportedCases(lines, frozenset(derived), repeated)


def _check_readable(path: Path, name: str) -> None:
    try:
        with path.open("rb"):
            return
    except FileNotFoundError:
        reason = "no such file"
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    raise LoadError((Problem(name, None, "", reason),))


def _rows(path: Path, name: str) -> Iterator[RawTest]:
    suite = Problems(name, lambda _: None)
    yield RawTest(NO_TEST, (), suite)
    yield from file_tests(path, name, {}, suite, required=("input",))


def _checked(raw: RawTest) -> dict[str, Any] | None:
    """Return a row as a case without empty fields; None if something is wrong with it."""
    value, loc, problems = raw.value, raw.loc, raw.problems
    before = problems.count
    if not isinstance(value, dict):
        problems.add(loc, f"a case is a mapping, got {describe(value)}")
        return None
    if isinstance(value.get("id"), int | float) and not isinstance(value["id"], bool):
        value = {**value, "id": value_text(value["id"])}
    problems.check_shape(value, DatasetRow, loc)
    for inner, message in forbidden_parts(value):
        problems.add((*loc, *inner), message)
    expected = value.get("expected")
    for block, assertions in expected.items() if isinstance(expected, dict) else ():
        for inner, message in forbidden_parts({"assertions": assertions}):
            problems.add((*loc, "expected", block, *inner[1:]), message)
    if problems.count > before:
        return None
    case = {field: member for field, member in value.items() if member is not None}
    case["input"] = case_input(value["input"])
    return case


def _redacted(case: dict[str, Any], redactor: PersonalRedactor) -> dict[str, Any]:
    return {
        field: member if field in _KEPT_BY_REDACTION else redactor.value(member)
        for field, member in case.items()
    }

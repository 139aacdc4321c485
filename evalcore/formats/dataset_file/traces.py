"""OpenTelemetry traces as OTLP JSON: what a model was asked becomes a case.

GenAI semantic conventions in three generations: messages as attributes of the span or of an event,
one event for each message (as span events or log records), and numbered attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from evalcore.errors import LoadError, Problem
from evalcore.formats.dataset_file.trace_calls import TracedCall, TracedCalls
from evalcore.formats.documents import json_reason, parse_row
from evalcore.formats.rows import NO_TEST, RawTest, open_reason
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import describe

_SPANS: Final = ("resourceSpans", "scopeSpans", "spans")
_LOGS: Final = ("resourceLogs", "scopeLogs", "logRecords")
_ROOTS: Final = ("resourceSpans", "resourceLogs", "resourceMetrics")
_LONGEST_HEAD: Final = 4_096
_LARGEST_FILE: Final = 1024 * 1024 * 1024
_TAG: Final = "traced"


def is_traces(path: Path) -> bool:
    """Whether a file begins as OTLP JSON does; other JSON is no traces."""
    if path.suffix.lower() not in {".json", ".jsonl"}:
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_LONGEST_HEAD)
    except OSError:
        return False
    return any(f'"{root}"'.encode() in head for root in _ROOTS)


def trace_cases(path: Path, name: str, *, expect_output: bool) -> Iterator[RawTest]:
    """Yield a row for each call with an input, in the order of the file.

    The file is one JSON document or one a line. All calls are in memory: events may come apart from
    their span. Mistakes are noted with the line and the path in it.
    """
    line = 1
    problems = Problems(name, lambda _: line)
    yield RawTest(NO_TEST, (), problems)
    calls = TracedCalls()
    for line, document in _documents(path, name, problems):
        for kind, keys in (("span", _SPANS), ("log", _LOGS)):
            for loc, entry in _entries(document, keys, (), problems):
                calls.add(kind, entry, loc, problems, line)
    for call in calls.with_input():
        line = call.line
        yield RawTest(_case(call, expect_output), call.loc, problems, marked=False, is_data=True)


def _documents(path: Path, name: str, problems: Problems) -> Iterator[tuple[int, Any]]:
    """Yield the documents with the numbers of their lines."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise LoadError((Problem(name, None, "", "is larger than 1 GiB; split it"),))
        data = path.read_bytes()
    except OSError as error:
        raise LoadError((Problem(name, None, "", open_reason(error)),)) from error
    try:
        yield 1, parse_row(data.removeprefix(b"\xef\xbb\xbf")).value
        return
    except ValueError as error:
        whole = error
    lines = data.splitlines()
    if sum(text.lstrip().startswith(b"{") and text.rstrip().endswith(b"}") for text in lines) < 2:
        raise LoadError((Problem(name, None, "", f"not valid JSON: {json_reason(whole)}"),))
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            yield number, parse_row(text).value
        except ValueError as error:
            message = f"not valid JSON: {json_reason(error)}"
            problems.include([Problem(name, number, "", message)])


def _entries(
    value: Any, keys: tuple[str, ...], loc: Loc, problems: Problems
) -> Iterator[tuple[Loc, Mapping[str, Any]]]:
    """Yield the entries below nested lists: the spans, or the log records."""
    if not isinstance(value, dict):
        problems.add(loc, f"expected an object of OTLP JSON, got {describe(value)}")
        return
    if not loc and not any(root in value for root in _ROOTS):
        if keys is _SPANS:
            problems.add(loc, "has none of " + ", ".join(f"'{root}'" for root in _ROOTS))
        return
    key, *rest = keys
    members = value.get(key, [])
    if not isinstance(members, list):
        problems.add((*loc, key), f"expected a list, got {describe(members)}")
        return
    for index, member in enumerate(members):
        member_loc = (*loc, key, index)
        if rest:
            yield from _entries(member, tuple(rest), member_loc, problems)
        elif isinstance(member, dict):
            yield member_loc, member
        else:
            problems.add(member_loc, f"expected an object of OTLP JSON, got {describe(member)}")


def _case(call: TracedCall, expect_output: bool) -> dict[str, Any]:
    case: dict[str, Any] = {"input": call.input, "tags": [_TAG], "metadata": call.metadata}
    if call.output is not None:
        if expect_output:
            case["expected_output"] = call.output
            case["fixtures"] = {"output": call.output_text}
        else:
            case["metadata"] = {**call.metadata, "output": call.output}
    return case

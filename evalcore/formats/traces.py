"""What a dataset is imported from: OpenTelemetry traces as OTLP JSON, JSON lines, CSV, Parquet.

Of a trace each span with `gen_ai.input.messages` (its own attribute, or one of an event on it)
becomes a case, by OpenTelemetry's semantic conventions for generative AI.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Required

import orjson
from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.datasets.pending import SHOWN_ID, answer_text, case_input, case_message
from evalcore.datasets.store import content_id, encode_case
from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.documents import json_reason, parse_row
from evalcore.formats.rows import NO_TEST, RawTest, open_reason
from evalcore.formats.section import STRICT
from evalcore.formats.sources import digest_of, file_tests, forbidden_parts
from evalcore.problems import Problems, raise_all
from evalcore.redaction.personal import PersonalRedactor
from evalcore.redaction.redactor import PROCESS
from evalcore.shapes import Text
from evalcore.wording import Loc, describe, value_text

_INPUT: Final = "gen_ai.input.messages"
_OUTPUT: Final = "gen_ai.output.messages"
_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_METADATA: Final = {
    "operation": ("gen_ai.operation.name",),
    "provider": ("gen_ai.provider.name",),
    "model": ("gen_ai.response.model", "gen_ai.request.model"),
    "input_tokens": ("gen_ai.usage.input_tokens",),
    "output_tokens": ("gen_ai.usage.output_tokens",),
    "conversation": ("gen_ai.conversation.id",),
}


def _span_case(
    span: Mapping[str, Any], loc: Loc, problems: Problems, *, expect_output: bool
) -> dict[str, Any] | None:
    """Return the case of a span; None where it does not say what was asked, or not legibly."""
    before = problems.count
    found: dict[str, tuple[Any, Loc]] = {}
    events = span.get("events")
    parts = [(span, loc)]
    if isinstance(events, list):
        parts += (
            (each, (*loc, "events", index))
            for index, each in enumerate(events)
            if isinstance(each, dict)
        )
    for part, at in parts:
        for name, value in _attributes(part.get("attributes")).items():
            found.setdefault(name, (value, (*at, "attributes", name)))
    read = {
        name: [*_messages(*found[name], role, problems)] if name in found else []
        for name, role in ((_INSTRUCTIONS, "system"), (_INPUT, "user"), (_OUTPUT, "assistant"))
    }
    if not read[_INPUT] or problems.count > before:
        return None
    output = _shown(read[_OUTPUT], "assistant") or None
    named = {
        name: next((found[key][0] for key in keys if key in found), None)
        for name, keys in _METADATA.items()
    }
    metadata = {name: value for name, value in named.items() if value not in (None, "")}
    question = _shown([*read[_INSTRUCTIONS], *read[_INPUT]], "user")
    case = {"input": question, "tags": [_TAG], "metadata": metadata}
    if output is not None and expect_output:
        return {**case, "expected_output": output, "fixtures": {"output": answer_text(output)}}
    return case if output is None else {**case, "metadata": {**metadata, "output": output}}


def _shown(messages: list[dict[str, Any]], role: str) -> Any:
    """Return messages as a case has them: of one message of text by its usual author its text."""
    content = messages[0]["content"] if messages else None
    return content if messages == [{"role": role, "content": content}] else messages


def _messages(value: Any, loc: Loc, role: str, problems: Problems) -> Iterator[dict[str, Any]]:
    """Yield the messages of an attribute: JSON in a text, or structured values."""
    if isinstance(value, str):
        if not value.lstrip().startswith(("[", "{")):
            yield {"role": role, "content": value}
            return
        try:
            value = parse_row(value.encode("utf-8", "replace")).value
        except ValueError as error:
            problems.add(loc, f"its messages are not valid JSON: {json_reason(error)}")
            return
    listed = value if isinstance(value, list) else [value]
    if listed and all(isinstance(each, dict) and "type" in each for each in listed):
        listed = [{"role": role, "parts": listed}]
    for index, raw in enumerate(listed):
        message = case_message(_without_parts(raw, role))
        if message is None:
            problems.add((*loc, index), f"expected a message with a role, got {describe(raw)}")
        else:
            yield message


def _without_parts(raw: Any, role: str) -> Any:
    """Return a message whose `parts` are content and tool calls."""
    if isinstance(raw, str):
        return {"role": role, "content": raw}
    if not isinstance(raw, dict):
        return raw
    if not isinstance(raw.get("parts"), list):
        return {"role": role, **raw}
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    message: dict[str, Any] = {"role": raw.get("role") or role}
    for part in raw["parts"]:
        if not isinstance(part, dict):
            texts.append(answer_text(part))
        elif part.get("type") == "tool_call":
            calls.append({key: part[key] for key in ("id", "name", "arguments") if key in part})
        elif part.get("type") == "tool_call_response":
            message["tool_call_id"] = part.get("id")
            texts.append(answer_text(part.get("response", part.get("result"))))
        elif part.get("type") == "text":
            texts.append(answer_text(part.get("content", "")))
        elif part.get("type") != "reasoning":
            texts.append(f"[{part.get('type', 'part')}]")
    message["content"] = "\n".join(texts) if texts or not calls else None
    return {**message, "tool_calls": calls} if calls else message


def _attributes(raw: Any) -> dict[str, Any]:
    """Return a list of OTLP attributes as a mapping."""
    if not isinstance(raw, list):
        return {}
    return {
        entry["key"]: _any_value(entry.get("value"))
        for entry in raw
        if isinstance(entry, dict) and isinstance(entry.get("key"), str)
    }


def _any_value(raw: Any) -> Any:
    """Return an OTLP value as JSON has it."""
    if not isinstance(raw, dict) or not raw:
        return raw or None
    (kind, value), *_ = raw.items()
    if kind == "intValue":
        return int(value) if str(value).lstrip("-").isdecimal() else value
    if kind in ("arrayValue", "kvlistValue"):
        values = (value.get("values") if isinstance(value, dict) else None) or []
        return list(map(_any_value, values)) if kind == "arrayValue" else _attributes(values)
    return value if kind in ("stringValue", "boolValue", "doubleValue", "bytesValue") else raw


_SPANS: Final = ("resourceSpans", "scopeSpans", "spans")
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

    The file is one JSON document or one a line. Mistakes are noted with the line and the path in
    it.
    """
    line = 1
    problems = Problems(name, lambda _: line)
    yield RawTest(NO_TEST, (), problems)
    for number, document in _documents(path, name, problems):
        line = number
        for loc, span in _entries(document, _SPANS, (), problems):
            case = _span_case(span, loc, problems, expect_output=expect_output)
            if case is not None:
                yield RawTest(case, loc, problems, marked=False, is_data=True)


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
    """Yield the entries below nested lists."""
    if not isinstance(value, dict):
        problems.add(loc, f"expected an object of OTLP JSON, got {describe(value)}")
        return
    if not loc and not any(root in value for root in _ROOTS):
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


_SUFFIXES: Final = (".json", ".jsonl", ".csv", ".parquet")
_KEPT_BY_REDACTION: Final = ("id", "assertions", "tags")


@with_config(STRICT)
class DatasetRow(TypedDict, total=False):
    """One case of a dataset, as a line of its file says it."""

    id: Text
    description: str | None
    input: Required[Any]
    expected_output: Any
    criteria: str | None
    assertions: list[Any] | None
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
    digest_of(path, name)  # a mistake where it cannot be read
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

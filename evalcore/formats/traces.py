"""OpenTelemetry traces as OTLP JSON: what a model was asked becomes a case.

GenAI semantic conventions in three generations: messages as attributes of the span or of an event,
one event for each message (as span events or log records), and numbered attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
from evalcore.formats.sources import file_tests, forbidden_parts
from evalcore.problems import Problems, raise_all
from evalcore.redaction.personal import PersonalRedactor
from evalcore.redaction.redactor import PROCESS
from evalcore.shapes import Text
from evalcore.wording import Loc, describe, value_text

# Attributes with messages, the newest convention first: input, then output.
_INPUTS: Final = ("gen_ai.input.messages", "gen_ai.prompt")
_OUTPUTS: Final = ("gen_ai.output.messages", "gen_ai.completion")
_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_NUMBERED: Final = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,4})\.(role|content)")
_MESSAGE_EVENT: Final = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_CHOICE_EVENT: Final = "gen_ai.choice"
_METADATA: Final = {
    "operation": ("gen_ai.operation.name",),
    "provider": ("gen_ai.provider.name", "gen_ai.system"),
    "model": ("gen_ai.response.model", "gen_ai.request.model"),
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "conversation": ("gen_ai.conversation.id",),
}


@dataclass
class TracedCall:
    """One call of a model. `line` and `loc` are where its span, or its first event, stands."""

    line: int
    loc: Loc
    attributes: dict[str, Any] = field(default_factory=dict)
    instructions: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    event_messages: list[dict[str, Any]] = field(default_factory=list)
    event_answers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def input(self) -> Any:
        """The question: its text if it is one user message, else the messages."""
        # Instrumentations in transition write both forms: one of them is the input.
        messages = [*self.instructions, *(self.messages or self.event_messages)]
        is_single = len(messages) == 1 and set(messages[0]) == {"role", "content"}
        if is_single and messages[0]["role"] == "user":
            return messages[0]["content"]
        return messages

    @property
    def output(self) -> Any:
        """The answer: its text if it is one message of text, else the messages; None without."""
        answers = self.answers or self.event_answers
        if len(answers) == 1 and set(answers[0]) == {"role", "content"}:
            return answers[0]["content"]
        return answers or None

    @property
    def output_text(self) -> str:
        """The answer as a fixture."""
        return answer_text(self.output)

    @property
    def metadata(self) -> dict[str, Any]:
        """Operation, provider, model and usage, as far as the span says them."""
        named = {
            name: next((self.attributes[key] for key in keys if key in self.attributes), None)
            for name, keys in _METADATA.items()
        }
        return {name: value for name, value in named.items() if value not in (None, "")}


class TracedCalls:
    """The calls of a file, put together from spans, their events, and log records."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], TracedCall] = {}

    def with_input(self) -> Iterator[TracedCall]:
        """Yield the calls that say what was asked."""
        for call in self._calls.values():
            if call.messages or call.event_messages:
                yield call

    def add(
        self, kind: str, entry: Mapping[str, Any], loc: Loc, problems: Problems, line: int
    ) -> None:
        """Take a span (`span`) or a log record (`log`); note what cannot be read in it."""
        key = (str(entry.get("traceId", "")), str(entry.get("spanId") or f"{line}:{loc}"))
        call = self._calls.setdefault(key, TracedCall(line, loc))
        attributes = _attributes(entry.get("attributes"))
        if kind == "span":
            call.attributes.update(attributes)
            _take_attributes(call, attributes, (*loc, "attributes"), problems)
            events = entry.get("events")
            for index, event in enumerate(events if isinstance(events, list) else ()):
                if isinstance(event, dict):
                    inner = _attributes(event.get("attributes"))
                    name = str(event.get("name", ""))
                    _take_event(call, name, inner, (*loc, "events", index), problems)
            return
        body = _any_value(entry.get("body"))
        named = body if isinstance(body, dict) else {"content": body}
        name = str(entry.get("eventName") or attributes.get("event.name") or "")
        _take_event(call, name, {**attributes, **named}, loc, problems)


def _take_attributes(
    call: TracedCall, attributes: Mapping[str, Any], loc: Loc, problems: Problems
) -> None:
    for names, messages, role in (
        (_INPUTS, call.messages, "user"),
        (_OUTPUTS, call.answers, "assistant"),
        ((_INSTRUCTIONS,), call.instructions, "system"),
    ):
        name = next((each for each in names if each in attributes), None)
        if name is not None and not messages:
            messages.extend(_messages(attributes[name], role, (*loc, name), problems))
    _take_numbered(call, attributes)


def _take_numbered(call: TracedCall, attributes: Mapping[str, Any]) -> None:
    """Take `gen_ai.prompt.0.content` and the like."""
    numbered: dict[tuple[str, int], dict[str, Any]] = {}
    for name, value in attributes.items():
        match = _NUMBERED.fullmatch(name)
        if match:
            numbered.setdefault((match[1], int(match[2])), {})[match[3]] = value
    for (kind, _), raw in sorted(numbered.items()):
        role = "user" if kind == "prompt" else "assistant"
        message = case_message({"role": role, **raw})
        if message is not None:
            (call.event_messages if kind == "prompt" else call.event_answers).append(message)


def _take_event(
    call: TracedCall, name: str, attributes: Mapping[str, Any], loc: Loc, problems: Problems
) -> None:
    match = _MESSAGE_EVENT.fullmatch(name)
    if match:
        call.event_messages.extend(_event_message(attributes, match[1]))
    elif name == _CHOICE_EVENT:
        call.event_answers.extend(_event_message(attributes, "assistant"))
    elif name.startswith("gen_ai."):
        call.attributes.update({key: value for key, value in attributes.items()
                                if key not in (*_INPUTS, *_OUTPUTS)})  # fmt: skip
        _take_attributes(call, attributes, (*loc, "attributes"), problems)


def _event_message(attributes: Mapping[str, Any], role: str) -> Iterator[dict[str, Any]]:
    """Yield the message of an event: by fields, or as JSON in one of them."""
    fields = dict(attributes)
    for name in ("gen_ai.event.content", "message"):
        inner = _parsed(fields.pop(name, None))
        if isinstance(inner, dict):
            fields = {**fields, **inner}
            nested = _parsed(fields.pop("message", None))
            fields = {**fields, **nested} if isinstance(nested, dict) else fields
        elif isinstance(inner, str):
            fields.setdefault("content", inner)
    raw: dict[str, Any] = {"role": fields.get("role") or role, "content": fields.get("content")}
    calls = _parsed(fields.get("tool_calls"))
    if isinstance(calls, list) and calls:
        raw["tool_calls"] = calls
    message = case_message(raw)
    if message is not None:
        yield message


def _parsed(value: Any) -> Any:
    """Return what a text says as JSON; other values, and texts that are none, as they are."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return parse_row(value.encode("utf-8", "replace")).value
        except ValueError:
            return value
    return value


def _messages(value: Any, role: str, loc: Loc, problems: Problems) -> Iterator[dict[str, Any]]:
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
    if not isinstance(raw, dict):
        return raw
    for name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if name in raw:
            return raw[name]
    if "intValue" in raw:
        try:
            return int(raw["intValue"])
        except (TypeError, ValueError):
            return raw["intValue"]
    if "arrayValue" in raw:
        values = raw["arrayValue"].get("values") if isinstance(raw["arrayValue"], dict) else None
        return [_any_value(value) for value in values or ()]
    if "kvlistValue" in raw:
        values = raw["kvlistValue"].get("values") if isinstance(raw["kvlistValue"], dict) else None
        return _attributes(values or [])
    return raw or None


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

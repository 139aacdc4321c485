"""Calls of models out of spans, their events and log records: input, output, model, usage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from evalcore.datasets.messages import answer_text, case_message
from evalcore.formats.documents import json_reason, parse_row
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import describe

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

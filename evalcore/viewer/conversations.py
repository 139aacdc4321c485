"""Messages of a conversation, as inputs, requests and replies hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from evalcore.viewer.texts import PageText, TextBudget

_MOST_MESSAGES: Final = 200
_MESSAGE_CHARACTERS: Final = 8_000


class PageToolCall(NamedTuple):
    """A call of a tool that a model asks for."""

    name: str
    arguments: PageText | None
    id: str | None = None


class PageMessage(NamedTuple):
    """One message. `attachments` name the images and files in it; `answers` is a tool call's id."""

    role: str
    text: PageText | None
    tool_calls: tuple[PageToolCall, ...] = ()
    attachments: tuple[str, ...] = ()
    answers: str | None = None


class MessageList(NamedTuple):
    """Messages in their order; `omitted` counts those that are left out at the end."""

    messages: tuple[PageMessage, ...]
    omitted: int = 0


def conversation_of(value: Any, budget: TextBudget) -> MessageList | None:
    """Return the conversation that a value is, or holds as `messages`; None if it is none."""
    if isinstance(value, Mapping) and set(value) == {"messages"}:
        value = value["messages"]
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return None
    if not all(isinstance(entry, Mapping) and "role" in entry for entry in value):
        return None
    messages = tuple(message_of(entry, budget) for entry in value[:_MOST_MESSAGES])
    return MessageList(messages, len(value) - len(messages))


def message_of(entry: Mapping[str, Any], budget: TextBudget) -> PageMessage:
    """Return a message of `role`, `content` and `tool_calls`."""
    content, attachments = entry.get("content"), []
    if isinstance(content, Sequence) and not isinstance(content, str):
        texts = []
        for segment in content:
            text = _segment_text(segment)
            if text is None:
                attachments.append(_attachment(segment))
            else:
                texts.append(text)
        content = "\n".join(texts) if texts else None
    calls = entry.get("tool_calls")
    return PageMessage(
        str(entry.get("role", "")),
        budget.cut(content, _MESSAGE_CHARACTERS),
        tool_calls_of(calls, budget),
        tuple(attachments),
        _text_or_none(entry.get("tool_call_id")),
    )


def tool_calls_of(calls: Any, budget: TextBudget) -> tuple[PageToolCall, ...]:
    """Return calls of tools: `{id, name, arguments}`, or those with a `function`."""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return ()
    return tuple(_tool_call(call, budget) for call in calls if isinstance(call, Mapping))


def _tool_call(call: Mapping[str, Any], budget: TextBudget) -> PageToolCall:
    function = call.get("function")
    named = function if isinstance(function, Mapping) else call
    arguments = next((named[key] for key in ("arguments", "input", "args") if key in named), None)
    name = named.get("name") or named.get("tool") or "?"
    return PageToolCall(
        str(name), budget.cut(arguments, _MESSAGE_CHARACTERS), _text_or_none(call.get("id"))
    )


def _segment_text(segment: Any) -> str | None:
    if isinstance(segment, str):
        return segment
    if isinstance(segment, Mapping):
        text = segment.get("text", segment.get("value") if segment.get("type") == "text" else None)
        return text if isinstance(text, str) else None
    return str(segment)


def _attachment(segment: Mapping[str, Any]) -> str:
    """Return what a segment is, and its name or its size: pictures are not loaded."""
    kind = str(segment.get("type", "attachment"))
    value = segment.get("value")
    if isinstance(value, str):
        return f"{kind}: {value}" if len(value) <= 120 else f"{kind} ({len(value):,} characters)"
    return kind


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
